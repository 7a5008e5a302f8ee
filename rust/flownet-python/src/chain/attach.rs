//! Keeps a task thread known to the interpreter between attachments.
//!
//! Without it, each attachment makes and destroys a thread state: a batch would pay for that, and `threading.local` and
//! `contextvars` of a user's function would forget everything from one batch to the next.

use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::c_ulong;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PySystemExit;
use pyo3::ffi;
use pyo3::prelude::*;

/// The threads of one job that run users' functions in this process.
#[derive(Debug, Default)]
pub struct TaskThreads {
    threads: Mutex<HashSet<c_ulong>>,
    left: Condvar,
}

impl TaskThreads {
    /// Raises `SystemExit` in the Python code that runs on these threads, which ends what computes without end. What waits
    /// inside a call, `time.sleep` for one, notices when the call returns.
    pub fn interrupt(&self, py: Python<'_>) {
        for &thread in self.lock().iter() {
            // SAFETY: attached, as `py` shows; the exception is a class. A thread that is gone is not found and left alone.
            unsafe { ffi::PyThreadState_SetAsyncExc(thread.cast_signed(), py.get_type::<PySystemExit>().as_ptr()) };
        }
    }

    /// Waits, which must be done detached, until all have left or the time is over.
    pub fn wait_until_left(&self, limit: Duration) {
        let _ = self.left.wait_timeout_while(self.lock(), limit, |threads| !threads.is_empty());
    }

    /// Adds the calling thread.
    pub(super) fn enter(&self, py: Python<'_>) -> PyResult<()> {
        let thread = this_thread(py)?;
        self.lock().insert(thread);
        Ok(())
    }

    /// Takes the calling thread out.
    pub(super) fn leave(&self, py: Python<'_>) {
        if let Ok(thread) = this_thread(py) {
            self.lock().remove(&thread);
            self.left.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<c_ulong>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number by which the interpreter knows the calling thread.
fn this_thread(py: Python<'_>) -> PyResult<c_ulong> {
    py.import("_thread")?.call_method0("get_ident")?.extract()
}

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
