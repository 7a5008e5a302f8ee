//! What an object is, as far as owning it goes.

use std::cell::RefCell;
use std::sync::Arc;

use hashbrown::HashMap;
use pyo3::PyTypeInfo;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple, PyType,
};

/// How an object is looked into, and copied.
#[derive(Clone)]
pub(super) enum Kind {
    /// Cannot be changed, nor can any part of it.
    Atom,
    /// A tuple, named or not.
    Tuple,
    FrozenSet,
    List,
    Set,
    Dict,
    ByteArray,
    /// Of numpy.
    Array,
    /// A subclass of `dict`: looked into as such, copied by its own ways.
    Mapping,
    /// A subclass of another container: the same.
    Iterable,
    /// Cannot be changed, but its parts might be: a frozen dataclass.
    Frozen(Fields),
    /// Can be changed; these are all of its parts.
    Fields(Fields),
    /// Its parts are in its `__dict__`.
    Instance,
    /// Not to be looked into.
    Opaque,
}

type Fields = Arc<[Py<PyString>]>;

/// Whether the type alone says that the object cannot be changed.
#[inline]
pub(super) fn is_atom(object: &Bound<'_, PyAny>) -> bool {
    // By how often they are met.
    object.is_exact_instance_of::<PyString>()
        || object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyFloat>()
        || object.is_none()
        || object.is_exact_instance_of::<PyBool>()
        || object.is_exact_instance_of::<PyBytes>()
}

/// What an object that is no obvious atom is.
pub(super) fn kind_of(object: &Bound<'_, PyAny>) -> PyResult<Kind> {
    let (py, its_type) = (object.py(), object.get_type_ptr());
    if its_type == PyTuple::type_object_raw(py) {
        Ok(Kind::Tuple)
    } else if its_type == PyDict::type_object_raw(py) {
        Ok(Kind::Dict)
    } else if its_type == PyList::type_object_raw(py) {
        Ok(Kind::List)
    } else if its_type == PySet::type_object_raw(py) {
        Ok(Kind::Set)
    } else if its_type == PyFrozenSet::type_object_raw(py) {
        Ok(Kind::FrozenSet)
    } else if its_type == PyByteArray::type_object_raw(py) {
        Ok(Kind::ByteArray)
    } else {
        known(object)
    }
}

/// What is known of types that are not built in: found out once for each by each thread, which costs no lock.
fn known(object: &Bound<'_, PyAny>) -> PyResult<Kind> {
    thread_local! {
        static KNOWN: RefCell<HashMap<usize, (Py<PyType>, Kind)>> = RefCell::default();
    }

    let key = object.get_type_ptr() as usize;
    if let Some(kind) = KNOWN.with_borrow(|known| known.get(&key).map(|(_, kind)| kind.clone())) {
        return Ok(kind);
    }
    let object_type = object.get_type();
    let kind = find_out(&object_type)?;
    // The type is kept with it: another one may otherwise come to lie where it was.
    KNOWN.with_borrow_mut(|known| known.insert(key, (object_type.unbind(), kind.clone())));
    Ok(kind)
}

fn find_out(object_type: &Bound<'_, PyType>) -> PyResult<Kind> {
    let py = object_type.py();
    let asked =
        py.import(intern!(py, "flownet.internal.ownership"))?.call_method1(intern!(py, "kind_of"), (object_type,))?;
    let (name, fields): (String, Vec<String>) = asked.extract()?;
    let fields = || fields.iter().map(|field| PyString::intern(py, field).unbind()).collect();
    Ok(match name.as_str() {
        "atom" => Kind::Atom,
        "tuple" => Kind::Tuple,
        "dict" => Kind::Mapping,
        "iterable" => Kind::Iterable,
        "frozen" => Kind::Frozen(fields()),
        "fields" => Kind::Fields(fields()),
        "instance" => Kind::Instance,
        "array" => Kind::Array,
        _ => Kind::Opaque,
    })
}
