//! Ensures that each operator of a chain owns the objects that it receives.
//!
//! An operator may change its input and store its output. Between tasks no other operator sees that, since
//! records travel as bytes. Inside of a chain [`isolate`] ensures the same. It returns the object itself if
//! the object cannot be changed. It also does so if no other code refers to the object or to any mutable part
//! of it. Otherwise it returns a copy. A copy equals the record after a transfer between tasks: a tree in
//! which no object appears twice.
//!
//! # Invariants
//! - O1: after `isolate` no mutable object is reachable both from the result and from elsewhere. Objects of
//!   extension types are not inspected: if there is no other reference to one, it is taken as it is.
//!   Otherwise its own `__deepcopy__` copies it.
//! - O2: an object that cannot be copied is passed on as it is. It cannot travel between tasks at all, so no
//!   result differs.
//! - O3: numbers, text and tuples of such cost one comparison of types each, and nothing else.

mod kind;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict, PyFrozenSet, PyList, PySet, PyString, PyTuple};
use pyo3::{CastError, ffi, intern};

use self::kind::{Kind, is_atom, kind_of};
use crate::codec::exact;

/// Returns an object equal to `record` that the caller alone owns. `record` must be the caller's only
/// reference.
pub(super) fn isolate(record: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    if is_ours(&record, 1, 0)? {
        return Ok(record);
    }
    match Copier::default().copy(&record) {
        Ok(copied) => Ok(copied),
        // Python can copy an object that contains itself. Only pickle could transfer such a record, with the
        // same result.
        Err(CopyError::Endless) => deep_copy(&record),
        Err(CopyError::Python(error)) => Err(error),
    }
}

/// Returns true if a glance at the object shows that [`isolate`] returns it unchanged.
#[inline]
pub(super) fn is_immutable(object: &Bound<'_, PyAny>) -> bool {
    is_atom(object) || exact::<PyTuple>(object).is_some_and(|tuple| tuple.iter_borrowed().all(|item| is_atom(&item)))
}

/// Returns true for a numpy array, and false for instances of derived classes.
#[inline]
pub(super) fn is_array(object: &Bound<'_, PyAny>) -> bool {
    !is_atom(object) && shows_its_memory(object) && matches!(kind_of(object), Ok(Kind::Array))
}

/// Returns true if the object exposes its memory through the buffer protocol, as arrays and few other records
/// do. This is checked first because it costs least.
#[inline]
fn shows_its_memory(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the object is alive and the interpreter attached, which is all that this asks for; it reads the
    // object's type.
    unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) != 0 }
}

/// Returns true if no mutable object is reachable from elsewhere, if `ours` of the references to `object` are
/// ours.
fn is_ours(object: &Bound<'_, PyAny>, ours: isize, depth: usize) -> PyResult<bool> {
    if is_atom(object) {
        return Ok(true);
    }
    if depth == MAX_DEPTH {
        return Ok(false);
    }
    let is_exclusive = references(object) <= ours;
    // Parts of an object that others refer to are never ours alone, even if only one reference to the part
    // exists. This walk holds one reference to each part, and its container holds another.
    let refers = if is_exclusive { 2 } else { 0 };
    let part = |part: &Bound<'_, PyAny>| if is_atom(part) { Ok(true) } else { is_ours(part, refers, depth + 1) };
    match kind_of(object)? {
        Kind::Atom => Ok(true),
        Kind::Tuple => all(object.cast::<PyTuple>()?.iter(), part),
        Kind::FrozenSet => all(object.cast::<PyFrozenSet>()?.iter(), part),
        Kind::Frozen(fields) => all_fields(object, &fields, part),
        _ if !is_exclusive => Ok(false),
        Kind::List => all(object.cast::<PyList>()?.iter(), part),
        Kind::Set => all(object.cast::<PySet>()?.iter(), part),
        Kind::Dict => all_of_dict(object.cast::<PyDict>()?, part),
        Kind::Fields(fields) => all_fields(object, &fields, part),
        Kind::Instance => all_of_dict(object.getattr(intern!(object.py(), "__dict__"))?.cast::<PyDict>()?, part),
        Kind::Mapping => all_of_dict(object.cast::<PyDict>()?, part),
        Kind::Iterable => {
            for item in object.try_iter()? {
                if !part(&item?)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        // Others may refer to the memory under a view.
        Kind::Array => Ok(!has_objects(object)? && part(&object.getattr(intern!(object.py(), "base"))?)?),
        Kind::ByteArray | Kind::Opaque => Ok(true),
    }
}

/// Copies an object so that no mutable part of the copy is reachable from elsewhere.
#[derive(Default)]
struct Copier {
    /// The objects around the one that is being copied.
    path: Vec<*mut ffi::PyObject>,
}

/// Reason for a failed copy.
enum CopyError {
    /// The object contains itself, or nests too deep.
    Endless,
    Python(PyErr),
}

impl From<PyErr> for CopyError {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<CastError<'_, '_>> for CopyError {
    fn from(error: CastError<'_, '_>) -> Self {
        Self::Python(error.into())
    }
}

type CopyResult<'py, T = PyAny> = Result<Bound<'py, T>, CopyError>;

impl Copier {
    fn copy<'py>(&mut self, object: &Bound<'py, PyAny>) -> CopyResult<'py> {
        if is_atom(object) {
            return Ok(object.clone());
        }
        if self.path.len() == MAX_DEPTH || self.path.contains(&object.as_ptr()) {
            return Err(CopyError::Endless);
        }
        self.path.push(object.as_ptr());
        let copied = self.copy_container(object)?;
        self.path.pop();
        Ok(copied)
    }

    fn copy_container<'py>(&mut self, object: &Bound<'py, PyAny>) -> CopyResult<'py> {
        let py = object.py();
        Ok(match kind_of(object)? {
            Kind::Atom => object.clone(),
            Kind::Tuple => {
                let items = PyTuple::new(py, self.copy_all(object.cast::<PyTuple>()?.iter())?)?;
                if object.is_exact_instance_of::<PyTuple>() {
                    items.into_any()
                } else {
                    py.get_type::<PyTuple>().call_method1(intern!(py, "__new__"), (object.get_type(), items))?
                }
            }
            Kind::FrozenSet => PyFrozenSet::new(py, self.copy_all(object.cast::<PyFrozenSet>()?.iter())?)?.into_any(),
            Kind::List => PyList::new(py, self.copy_all(object.cast::<PyList>()?.iter())?)?.into_any(),
            Kind::Set => PySet::new(py, self.copy_all(object.cast::<PySet>()?.iter())?)?.into_any(),
            Kind::Dict => self.copy_dict(object.cast::<PyDict>()?)?.into_any(),
            Kind::ByteArray => PyByteArray::from(object)?.into_any(),
            Kind::Array if !has_objects(object)? => object.call_method0(intern!(py, "copy"))?,
            Kind::Frozen(fields) | Kind::Fields(fields) => self.copy_instance(object, &fields)?,
            Kind::Instance => self.copy_instance(object, &[])?,
            Kind::Array | Kind::Mapping | Kind::Iterable | Kind::Opaque => deep_copy(object)?,
        })
    }

    /// Copies an object whose parts are in its `__dict__`, or in these attributes if it has none.
    fn copy_instance<'py>(&mut self, object: &Bound<'py, PyAny>, fields: &[Py<PyString>]) -> CopyResult<'py> {
        let py = object.py();
        let base = py.get_type::<PyAny>();
        let copied = base.call_method1(intern!(py, "__new__"), (object.get_type(),))?;
        if let Some(attributes) = object.getattr_opt(intern!(py, "__dict__"))? {
            let attributes = self.copy_dict(attributes.cast::<PyDict>()?)?;
            copied.getattr(intern!(py, "__dict__"))?.cast::<PyDict>()?.update(attributes.as_mapping())?;
            return Ok(copied);
        }
        // `__setattr__` of `object`: a frozen class defines its own, which refuses.
        let set = base.getattr(intern!(py, "__setattr__"))?;
        for field in fields {
            if let Some(value) = object.getattr_opt(field.bind(py))? {
                set.call1((&copied, field, self.copy(&value)?))?;
            }
        }
        Ok(copied)
    }

    fn copy_all<'py>(
        &mut self,
        items: impl Iterator<Item = Bound<'py, PyAny>>,
    ) -> Result<Vec<Bound<'py, PyAny>>, CopyError> {
        items.map(|item| self.copy(&item)).collect()
    }

    fn copy_dict<'py>(&mut self, dict: &Bound<'py, PyDict>) -> CopyResult<'py, PyDict> {
        if dict.iter().any(|(key, _)| !is_atom(&key)) {
            // A key of the copy must be a copy, too, in the same position.
            let copied = PyDict::new(dict.py());
            for (key, value) in dict.iter() {
                copied.set_item(self.copy(&key)?, self.copy(&value)?)?;
            }
            return Ok(copied);
        }
        // One call copies all entries. Most of them need no further copy.
        let copied = dict.copy()?;
        for (key, value) in dict.iter() {
            if !is_atom(&value) {
                copied.set_item(key, self.copy(&value)?)?;
            }
        }
        Ok(copied)
    }
}

fn all<'py>(
    parts: impl Iterator<Item = Bound<'py, PyAny>>,
    is_ours: impl Fn(&Bound<'py, PyAny>) -> PyResult<bool>,
) -> PyResult<bool> {
    for part in parts {
        if !is_ours(&part)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn all_of_dict<'py>(
    dict: &Bound<'py, PyDict>,
    is_ours: impl Fn(&Bound<'py, PyAny>) -> PyResult<bool>,
) -> PyResult<bool> {
    for (key, value) in dict.iter() {
        if !is_ours(&key)? || !is_ours(&value)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn all_fields<'py>(
    object: &Bound<'py, PyAny>,
    fields: &[Py<PyString>],
    is_ours: impl Fn(&Bound<'py, PyAny>) -> PyResult<bool>,
) -> PyResult<bool> {
    for field in fields {
        if let Some(value) = object.getattr_opt(field.bind(object.py()))?
            && !is_ours(&value)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

fn has_objects(array: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = array.py();
    array.getattr(intern!(py, "dtype"))?.getattr(intern!(py, "hasobject"))?.is_truthy()
}

fn references(object: &Bound<'_, PyAny>) -> isize {
    // SAFETY: a live object of an attached interpreter.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) }
}

fn deep_copy<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let copied = py.import(intern!(py, "copy"))?.call_method1(intern!(py, "deepcopy"), (object,));
    match copied {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => Ok(object.clone()),
        copied => copied,
    }
}

/// Deeper objects are copied by Python.
const MAX_DEPTH: usize = crate::codec::MAX_DEPTH;

/// Takes item `at` out of a list, if there is no other reference to the list. Otherwise returns another
/// reference to the item.
#[inline]
pub(super) fn take_item<'py>(list: &Bound<'py, PyList>, at: usize) -> PyResult<Bound<'py, PyAny>> {
    let item = list.get_item(at)?;
    if !is_atom(&item) && references(list) == 1 {
        list.set_item(at, list.py().None())?;
    }
    Ok(item)
}
