//! Calls user functions.

use pyo3::ffi;
use pyo3::prelude::*;

/// Calls `function(argument)`.
///
/// PyO3's `call1` builds a tuple for each call on abi3 before Python 3.12; this variadic call passes the
/// argument on the stack, by vectorcall, and is the hot path of every operator.
#[inline]
pub(super) fn call1<'py>(function: &Bound<'py, PyAny>, argument: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let none = std::ptr::null_mut::<ffi::PyObject>();
    // SAFETY: both are live objects of an attached interpreter, the arguments end with null as the call
    // demands, and the result is a new reference or null with an exception set.
    unsafe {
        let result = ffi::PyObject_CallFunctionObjArgs(function.as_ptr(), argument.as_ptr(), none);
        Bound::from_owned_ptr_or_err(function.py(), result)
    }
}

/// Calls `function(first, second)`.
#[inline]
pub(super) fn call2<'py>(
    function: &Bound<'py, PyAny>,
    first: &Bound<'py, PyAny>,
    second: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let none = std::ptr::null_mut::<ffi::PyObject>();
    // SAFETY: as in `call1`.
    unsafe {
        let result = ffi::PyObject_CallFunctionObjArgs(function.as_ptr(), first.as_ptr(), second.as_ptr(), none);
        Bound::from_owned_ptr_or_err(function.py(), result)
    }
}
