//! Classifies objects for isolation.

use std::cell::RefCell;
use std::sync::Arc;

use hashbrown::HashMap;
use pyo3::PyTypeInfo;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple, PyType,
};

/// How an object is inspected and copied.
#[derive(Clone)]
pub(super) enum Kind {
    /// Immutable, as are all of its parts.
    Atom,
    /// A tuple, named or not.
    Tuple,
    FrozenSet,
    List,
    Set,
    Dict,
    ByteArray,
    /// An array of numpy.
    Array,
    /// A subclass of `dict`: inspected as a `dict`, copied by its own methods.
    Mapping,
    /// A subclass of another container: inspected as the container, copied by its own methods.
    Iterable,
    /// Immutable, but its parts might be mutable: a frozen dataclass.
    Frozen(Fields),
    /// Mutable; these are all of its parts.
    Fields(Fields),
    /// Its parts are in its `__dict__`.
    Instance,
    /// Not inspected.
    Opaque,
}

type Fields = Arc<[Py<PyString>]>;

/// Returns true if the type alone shows that the object is immutable.
#[inline]
pub(super) fn is_atom(object: &Bound<'_, PyAny>) -> bool {
    // Ordered by frequency.
    object.is_exact_instance_of::<PyString>()
        || object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyFloat>()
        || object.is_none()
        || object.is_exact_instance_of::<PyBool>()
        || object.is_exact_instance_of::<PyBytes>()
}

/// Classifies an object that is no obvious atom.
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

/// Classification of types that are not built in. Each thread finds it once for each type, which needs no
/// lock.
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
    // Stored with the type itself: otherwise another type might be allocated at the same address.
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
