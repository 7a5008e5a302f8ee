//! Keeps a task thread known to the interpreter between attachments.
//!
//! Without it, each attachment makes and destroys a thread state: a batch would pay for that, and `threading.local` and
//! `contextvars` of a user's function would forget everything from one batch to the next.

use std::cell::Cell;

use pyo3::ffi;

thread_local! {
    /// Belongs to its thread, so it lives here and not in the chain, which was built on another one.
    static KEPT: Cell<Option<KeptState>> = const { Cell::new(None) };
}

/// What `PyGILState_Ensure` and `PyEval_SaveThread` gave on this thread. Dropping it does nothing: a thread that ends
/// without [`forget_thread`] leaves its thread state to the interpreter.
struct KeptState {
    state: ffi::PyGILState_STATE,
    saved: *mut ffi::PyThreadState,
}

/// Registers the calling thread, which must not be attached, and leaves it detached.
pub(super) fn keep_thread() {
    KEPT.with(|kept| {
        // SAFETY: the interpreter is initialised (it has loaded this crate) and the thread is not attached: `Chain` methods
        // attach and detach within themselves. `PyEval_SaveThread` needs the attachment that `PyGILState_Ensure` has made.
        let (state, saved) = unsafe { (ffi::PyGILState_Ensure(), ffi::PyEval_SaveThread()) };
        kept.set(Some(KeptState { state, saved }));
    });
}

/// Takes back [`keep_thread`], if it was called on this thread, which must be detached.
pub(super) fn forget_thread() {
    if let Some(KeptState { state, saved }) = KEPT.take() {
        // SAFETY: undoes the two calls of `keep_thread` in reverse order, on the same thread, since it was kept there.
        unsafe {
            ffi::PyEval_RestoreThread(saved);
            ffi::PyGILState_Release(state);
        }
    }
}
