//! Encodes and decodes instances of classes: the class by number, and the contents of the instance.
//!
//! Decoding builds instances without their `__init__`, as pickle does.

use std::sync::Arc;

use pyo3::exceptions::PyAttributeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PySet, PyString, PyTuple, PyType};

use super::changed_class::{ChangedClass, ClassReading};
use super::class::{Class, Kind};
use super::decode::Decoder;
use super::encode::Encoder;
use super::exact::exact;
use super::{CodecError, Pickle, pickle, tag};
use flownet_runtime::varint::put_varint;

/// If a model has more names, the fields that were given travel by name.
const MAX_MASK_BITS: usize = 62;

/// Encodes an instance of a class that was found.
pub(super) fn encode(
    encoder: &mut Encoder<'_>,
    value: &Bound<'_, PyAny>,
    class: &Arc<Class>,
    depth: usize,
) -> Result<(), CodecError> {
    if let Kind::Opaque { refusal } = &class.kind {
        return match encoder.classes.pickle() {
            Pickle::Allowed => pickle::encode(encoder, value),
            Pickle::Refused => Err(CodecError::unsupported_class(value, refusal)),
        };
    }
    let start = encoder.out.len();
    let is_outermost = !std::mem::replace(&mut encoder.inside_object, true);
    let mut encoded = instance(encoder, value, class, depth);
    if is_outermost {
        encoder.inside_object = false;
        // Pickle can encode an instance that contains itself.
        if matches!(encoded, Err(CodecError::TooDeep { .. })) && encoder.classes.pickle() == Pickle::Allowed {
            encoder.out.truncate(start);
            encoded = pickle::encode(encoder, value);
        }
    }
    encoded
}

fn instance(
    encoder: &mut Encoder<'_>,
    value: &Bound<'_, PyAny>,
    class: &Arc<Class>,
    depth: usize,
) -> Result<(), CodecError> {
    let number = encoder.classes.tell(class, value.py())?;
    let start = encoder.out.len();
    begin(encoder, tag::OBJECT, number);
    match &class.kind {
        Kind::Enum { .. } => {
            put_varint(encoder.out, class.place(value)?.into());
            return Ok(());
        }
        Kind::Flag => {
            encoder.enter(depth)?;
            return encoder.value(&value.getattr("_value_")?, depth + 1);
        }
        _ => encoder.enter(depth)?,
    }
    let is_regular = match &class.kind {
        Kind::Tuple => class.has_no_attributes(value)? && items(encoder, value, class, depth).map(|()| true)?,
        _ => regular(encoder, value, class, depth)?,
    };
    if is_regular {
        return Ok(());
    }
    encoder.out.truncate(start);
    begin(encoder, tag::OBJECT_ATTRIBUTES, number);
    if let Kind::Tuple = &class.kind {
        items(encoder, value, class, depth)?;
    }
    all_attributes(encoder, value, class, depth)
}

fn begin(encoder: &mut Encoder<'_>, tag: u8, number: u64) {
    encoder.out.push(tag);
    encoder.out.extend_from_slice(&number.to_le_bytes());
}

fn items(encoder: &mut Encoder<'_>, value: &Bound<'_, PyAny>, class: &Class, depth: usize) -> Result<(), CodecError> {
    let tuple = value.cast::<PyTuple>().map_err(PyErr::from)?;
    if tuple.len() != class.in_dict.len() {
        return Err(CodecError::unsupported_class(value, "it has more or fewer items than fields"));
    }
    tuple.iter_borrowed().try_for_each(|item| encoder.value(&item, depth + 1))
}

/// Encodes the attributes in the order of the class. Returns false if there are others, or some are missing.
fn regular(
    encoder: &mut Encoder<'_>,
    value: &Bound<'_, PyAny>,
    class: &Class,
    depth: usize,
) -> Result<bool, CodecError> {
    let py = value.py();
    if class.has_dict {
        let dict = dict_of(value)?;
        if dict.len() != class.in_dict.len() {
            return Ok(false);
        }
        for name in &class.in_dict {
            let Some(attribute) = dict.get_item(name.bind(py))? else { return Ok(false) };
            encoder.value(&attribute, depth + 1)?;
        }
    }
    for (place, name) in class.in_slots.iter().enumerate() {
        let Some(attribute) = in_slot(value, name.bind(py))? else { return Ok(false) };
        match (&class.kind, place) {
            (Kind::Model, 0) => given_fields(encoder, &attribute, class, depth)?,
            _ => encoder.value(&attribute, depth + 1)?,
        }
    }
    Ok(true)
}

/// The set of names of the fields that were given to a model, as a number with a bit for each if possible.
fn given_fields(
    encoder: &mut Encoder<'_>,
    given: &Bound<'_, PyAny>,
    class: &Class,
    depth: usize,
) -> Result<(), CodecError> {
    if let Some(set) = exact::<PySet>(given)
        && class.in_dict.len() <= MAX_MASK_BITS
    {
        let mut mask = 0;
        for (bit, name) in class.in_dict.iter().enumerate() {
            mask |= i64::from(set.contains(name)?) << bit;
        }
        if mask.count_ones() as usize == set.len() {
            encoder.small_int(mask);
            return Ok(());
        }
    }
    encoder.value(given, depth + 1)
}

/// Encodes all attributes by name.
fn all_attributes(
    encoder: &mut Encoder<'_>,
    value: &Bound<'_, PyAny>,
    class: &Class,
    depth: usize,
) -> Result<(), CodecError> {
    let py = value.py();
    let all = if class.has_dict { dict_of(value)?.copy()? } else { PyDict::new(py) };
    for name in &class.in_slots {
        if let Some(attribute) = in_slot(value, name.bind(py))? {
            all.set_item(name, attribute)?;
        }
    }
    put_varint(encoder.out, all.len() as u64);
    for (name, attribute) in all {
        let Some(name) = exact::<PyString>(&name) else {
            return Err(CodecError::unsupported_class(value, "the name of an attribute is no text"));
        };
        encoder.string(name)?;
        encoder.value(&attribute, depth + 1)?;
    }
    Ok(())
}

/// Decodes the body of `OBJECT`, or with `by_name` of `OBJECT_ATTRIBUTES`.
pub(super) fn decode<'py>(
    decoder: &mut Decoder<'_>,
    py: Python<'py>,
    by_name: bool,
    depth: usize,
) -> Result<Bound<'py, PyAny>, CodecError> {
    let class = match decoder.classes.reading(u64::from_le_bytes(decoder.array()?))? {
        ClassReading::As(class) => class,
        ClassReading::Changed(changed) => return decode_changed(decoder, py, &changed, by_name, depth),
        ClassReading::Gone(reason) => return Err(CodecError::NotRestored { reason: reason.to_string() }),
    };
    match &class.kind {
        Kind::Enum { members, .. } if !by_name => {
            let place = usize::try_from(decoder.varint()?).unwrap_or(usize::MAX);
            let member = members.get(place).ok_or(CodecError::Malformed("a member that an Enum does not have"))?;
            return Ok(member.bind(py).clone());
        }
        Kind::Flag if !by_name => {
            decoder.enter(depth)?;
            return Ok(class.class.bind(py).call1((decoder.value(py, depth)?,))?);
        }
        Kind::Tuple | Kind::Attributes | Kind::Model => decoder.enter(depth)?,
        _ => return Err(CodecError::Malformed("an instance of a class that has none of this form")),
    }
    let object = match class.kind {
        Kind::Tuple => {
            decoder.claim(class.in_dict.len())?;
            let items = decoder.tuple(py, class.in_dict.len(), depth)?;
            new_instance(py, &raw mut ffi::PyTuple_Type, class.class.bind(py), &PyTuple::new(py, [items])?)?
        }
        _ => new_instance(py, &raw mut ffi::PyBaseObject_Type, class.class.bind(py), &PyTuple::empty(py))?,
    };
    if by_name {
        take_all_attributes(decoder, &object, &class, depth)?;
    } else if !matches!(class.kind, Kind::Tuple) {
        take_regular(decoder, &object, &class, depth)?;
    }
    Ok(object)
}

/// Decodes an instance whose class now has other fields.
#[cold]
fn decode_changed<'py>(
    decoder: &mut Decoder<'_>,
    py: Python<'py>,
    changed: &ChangedClass,
    by_name: bool,
    depth: usize,
) -> Result<Bound<'py, PyAny>, CodecError> {
    match changed.kind {
        "enum" if !by_name => {
            let place = usize::try_from(decoder.varint()?).unwrap_or(usize::MAX);
            return changed.member(py, place);
        }
        "flag" if !by_name => {
            decoder.enter(depth)?;
            return Ok(changed.class.class.bind(py).call1((decoder.value(py, depth)?,))?);
        }
        "tuple" | "attributes" | "model" => decoder.enter(depth)?,
        _ => return Err(CodecError::Malformed("an instance of a class that has none of this form")),
    }
    let values = PyDict::new(py);
    if changed.kind == "tuple" || !by_name {
        decoder.claim(changed.in_dict.len() + changed.in_slots.len())?;
        for name in &changed.in_dict {
            values.set_item(name, decoder.value(py, depth)?)?;
        }
    }
    if by_name {
        for _ in 0..decoder.item_count(2)? {
            values.set_item(decoder.value(py, depth)?, decoder.value(py, depth)?)?;
        }
        return changed.instance(py, &values);
    }
    for (place, name) in changed.in_slots.iter().enumerate() {
        let mut attribute = decoder.value(py, depth)?;
        if let ("model", 0, Some(mask)) = (changed.kind, place, exact::<PyInt>(&attribute)) {
            attribute = names_of(py, mask.extract()?, &changed.in_dict)?.into_any();
        }
        values.set_item(name, attribute)?;
    }
    changed.instance(py, &values)
}

fn take_regular(
    decoder: &mut Decoder<'_>,
    object: &Bound<'_, PyAny>,
    class: &Class,
    depth: usize,
) -> Result<(), CodecError> {
    let py = object.py();
    decoder.claim(class.in_dict.len() + class.in_slots.len())?;
    for name in &class.in_dict {
        set(object, name.bind(py), &decoder.value(py, depth)?)?;
    }
    for (place, name) in class.in_slots.iter().enumerate() {
        let mut attribute = decoder.value(py, depth)?;
        if let (Kind::Model, 0, Some(mask)) = (&class.kind, place, exact::<PyInt>(&attribute)) {
            attribute = names_of(py, mask.extract()?, &class.in_dict)?.into_any();
        }
        set(object, name.bind(py), &attribute)?;
    }
    Ok(())
}

fn names_of<'py>(py: Python<'py>, mask: u64, names: &[Py<PyString>]) -> Result<Bound<'py, PySet>, CodecError> {
    let given = names.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1).map(|(_, name)| name);
    Ok(PySet::new(py, given)?)
}

/// Sets attributes: into slots by way of the class, all others into the dict. No code of the class runs, for
/// any names.
fn take_all_attributes(
    decoder: &mut Decoder<'_>,
    object: &Bound<'_, PyAny>,
    class: &Class,
    depth: usize,
) -> Result<(), CodecError> {
    let py = object.py();
    for _ in 0..decoder.item_count(2)? {
        let name = decoder.value(py, depth)?;
        let name = name.cast::<PyString>().map_err(PyErr::from)?;
        let attribute = decoder.value(py, depth)?;
        let text = name.to_str()?;
        if class.in_slots.iter().any(|slot| slot.bind(py).to_str().is_ok_and(|slot| slot == text)) {
            set(object, name, &attribute)?;
        } else if class.has_dict {
            // Interned as Python does with all names of attributes.
            dict_of(object)?.set_item(PyString::intern(py, text), attribute)?;
        } else {
            return Err(CodecError::Malformed("an attribute that its class has no place for"));
        }
    }
    Ok(())
}

impl Class {
    /// The place of a member of an Enum.
    pub(super) fn place(&self, member: &Bound<'_, PyAny>) -> Result<u32, CodecError> {
        match &self.kind {
            Kind::Enum { places, .. } => places.get(&(member.as_ptr() as usize)).copied(),
            _ => None,
        }
        .ok_or_else(|| CodecError::unsupported_class(member, "it is no member of its Enum"))
    }

    fn has_no_attributes(&self, value: &Bound<'_, PyAny>) -> Result<bool, CodecError> {
        Ok(!self.has_dict || dict_of(value)?.is_empty())
    }
}

/// The dict of an instance whose class has one.
pub(super) fn dict_of<'py>(value: &Bound<'py, PyAny>) -> Result<Bound<'py, PyDict>, CodecError> {
    // SAFETY: attached; `value` lives, the call wants no closure, and gives a new reference or null with an
    // exception set.
    let dict = unsafe {
        let dict = ffi::PyObject_GenericGetDict(value.as_ptr(), std::ptr::null_mut());
        Bound::from_owned_ptr_or_err(value.py(), dict)?
    };
    Ok(dict.cast_into::<PyDict>().map_err(PyErr::from)?)
}

/// An attribute as `object` finds it, without the class's own lookup. `None` if it is not set.
pub(super) fn in_slot<'py>(
    value: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> Result<Option<Bound<'py, PyAny>>, CodecError> {
    // SAFETY: attached; both live, and the call gives a new reference or null with an exception set.
    let found = unsafe {
        let attribute = ffi::PyObject_GenericGetAttr(value.as_ptr(), name.as_ptr());
        Bound::from_owned_ptr_or_err(value.py(), attribute)
    };
    match found {
        Ok(attribute) => Ok(Some(attribute)),
        Err(error) if error.is_instance_of::<PyAttributeError>(value.py()) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Sets an attribute as `object` does, bypassing rules of its class, such as that it is frozen.
#[inline]
fn set(object: &Bound<'_, PyAny>, name: &Bound<'_, PyString>, value: &Bound<'_, PyAny>) -> Result<(), CodecError> {
    // SAFETY: attached, and all three live.
    match unsafe { ffi::PyObject_GenericSetAttr(object.as_ptr(), name.as_ptr(), value.as_ptr()) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(object.py()).into()),
    }
}

/// `base.__new__(class, *arguments)`, for a base type of the interpreter's own.
#[inline]
fn new_instance<'py>(
    py: Python<'py>,
    base: *mut ffi::PyTypeObject,
    class: &Bound<'py, PyType>,
    arguments: &Bound<'py, PyTuple>,
) -> Result<Bound<'py, PyAny>, CodecError> {
    // SAFETY: attached. `base` is a static type, whose slot `tp_new` is a function of this type. `class` is a
    // subclass of `base` that has the `__new__` of `base` (`flownet.internal.record_classes` looks), so the
    // function may make its instances; it gives a new reference or null with an exception set.
    unsafe {
        let slot = ffi::PyType_GetSlot(base, ffi::Py_tp_new);
        let new = std::mem::transmute::<*mut std::ffi::c_void, ffi::newfunc>(slot);
        Ok(Bound::from_owned_ptr_or_err(py, new(class.as_type_ptr(), arguments.as_ptr(), std::ptr::null_mut()))?)
    }
}
