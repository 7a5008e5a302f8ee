//! Keeps a task thread known to the interpreter between attachments.
//!
//! Otherwise each attachment would create and destroy a thread state. Each batch would pay for that, and the
//! `threading.local` and `contextvars` of users' functions would lose their values between batches.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_ulong;
use std::process;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flownet_rows::TaskThread;
use flownet_runtime::flame::StackOf;
use flownet_runtime::{Outputs, TaskError};
use pyo3::exceptions::PySystemExit;
use pyo3::ffi;
use pyo3::prelude::*;

use super::switch_interval::SwitchInterval;

/// The threads of one job that run users' functions in this process.
#[derive(Debug, Default)]
pub struct TaskThreads {
    listed: Mutex<ThreadList>,
    left: Condvar,
}

/// The threads and the process that they belong to. After a fork, a child has the list and not the threads.
#[derive(Debug, Default)]
struct ThreadList {
    threads: HashMap<(u32, c_ulong), ThreadRole>,
    /// Number of threads that read stacks of these, and may have to wait for the interpreter to do so.
    visitors: Vec<u32>,
}

/// Purpose of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ThreadRole {
    task: u32,
    of: StackOf,
}

/// The threads of a job, for one of its tasks.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadsOfTask {
    threads: Arc<TaskThreads>,
    task: u32,
}

impl ThreadsOfTask {
    pub(crate) fn new(threads: Arc<TaskThreads>, task: u32) -> Self {
        Self { threads, task }
    }

    /// Lists a helper thread of the task that runs users' functions from now on.
    pub(super) fn enter_as_helper(&self, thread: c_ulong) {
        self.enter(thread, StackOf::Helper);
    }

    /// Removes a thread from the list: a helper, or the task's own thread.
    pub(super) fn leave(&self, thread: c_ulong) {
        self.threads.leave(thread);
        TaskThreads::of_all_jobs().leave(thread);
    }

    fn enter(&self, thread: c_ulong, of: StackOf) {
        let seat = ThreadRole { task: self.task, of };
        self.threads.enter(thread, seat);
        TaskThreads::of_all_jobs().enter(thread, seat);
    }
}

impl TaskThreads {
    /// Raises `SystemExit` in the Python code of these threads, which ends endless computations. Code that
    /// waits inside a call such as `time.sleep` notices when the call returns.
    pub fn interrupt(&self, py: Python<'_>) {
        for &(_, thread) in self.lock().threads.keys().filter(|&&(process, _)| process == process::id()) {
            // SAFETY: attached, as `py` shows; the exception is a class. A thread that is gone is not found and
            // left alone.
            unsafe { ffi::PyThreadState_SetAsyncExc(thread.cast_signed(), py.get_type::<PySystemExit>().as_ptr()) };
        }
    }

    /// Waits until all threads and visitors have left, or until the limit. Returns true if all have left. The
    /// caller must be detached.
    pub fn wait_until_left(&self, limit: Duration) -> bool {
        let waited = self.left.wait_timeout_while(self.lock(), limit, |listed| !listed.are_gone());
        waited.unwrap_or_else(PoisonError::into_inner).0.are_gone()
    }

    /// The threads of all jobs of this process.
    pub fn of_all_jobs() -> &'static Self {
        static ALL: LazyLock<TaskThreads> = LazyLock::new(TaskThreads::default);
        &ALL
    }

    /// Returns the number of a task's thread.
    pub(super) fn find(&self, task: u32, of: StackOf) -> Option<c_ulong> {
        let (process, seat) = (process::id(), ThreadRole { task, of });
        let listed = self.lock();
        let found = listed.threads.iter().find(|&(&(of, _), seated)| of == process && *seated == seat);
        found.map(|(&(_, thread), _)| thread)
    }

    /// Registers a visitor if this thread is listed. The interpreter exists as long as a listed thread or a
    /// visitor does.
    pub(super) fn visit(&self, thread: c_ulong) -> bool {
        let process = process::id();
        let mut listed = self.lock();
        let is_there = listed.threads.contains_key(&(process, thread));
        if is_there {
            listed.visitors.push(process);
        }
        is_there
    }

    /// Removes a visitor.
    pub(super) fn end_visit(&self) {
        let mut listed = self.lock();
        if let Some(at) = listed.visitors.iter().position(|&visitor| visitor == process::id()) {
            listed.visitors.swap_remove(at);
        }
        drop(listed);
        self.left.notify_all();
    }

    /// Number of listed threads.
    pub(super) fn count(&self) -> u32 {
        let listed = self.lock();
        let here = listed.threads.keys().filter(|&&(process, _)| process == process::id());
        u32::try_from(here.count()).unwrap_or(u32::MAX)
    }

    fn enter(&self, thread: c_ulong, seat: ThreadRole) {
        self.lock().threads.insert((process::id(), thread), seat);
    }

    fn leave(&self, thread: c_ulong) {
        self.lock().threads.remove(&(process::id(), thread));
        self.left.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, ThreadList> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ThreadList {
    fn are_gone(&self) -> bool {
        let mut processes = self.threads.keys().map(|(process, _)| process).chain(&self.visitors);
        !processes.any(|&process| process == process::id())
    }
}

/// The interpreter's number of the calling thread.
pub(super) fn this_thread(py: Python<'_>) -> PyResult<c_ulong> {
    py.import("_thread")?.call_method0("get_ident")?.extract()
}

/// Runs `work` with the interpreter. Waits to acquire it and to release it do not count as work of the task.
/// A thread that releases the interpreter while another one requests it blocks until that thread has it.
pub(super) fn attached<R>(out: &mut Outputs, work: impl FnOnce(Python<'_>, &mut Outputs) -> R) -> R {
    out.control.time.wants_interpreter();
    let result = Python::attach(|py| {
        out.control.time.has_interpreter();
        let result = work(py, out);
        out.control.time.wants_interpreter();
        result
    });
    out.control.time.has_interpreter();
    result
}

/// Runs `work`, which may block, without the interpreter. Waits to release it and to acquire it again do not
/// count as work of the task.
pub(super) fn detached<R: Send>(py: Python<'_>, out: &mut Outputs, work: impl FnOnce(&mut Outputs) -> R + Send) -> R {
    out.control.time.wants_interpreter();
    let result = py.detach(|| {
        out.control.time.has_interpreter();
        let result = work(out);
        out.control.time.wants_interpreter();
        result
    });
    out.control.time.has_interpreter();
    result
}

thread_local! {
    /// Belongs to its thread, so it is stored here and not in the chain, which another thread has built.
    static KEPT: Cell<Option<KeptState>> = const { Cell::new(None) };
}

/// Results of `PyGILState_Ensure` and `PyEval_SaveThread` on this thread. Dropping it does nothing: a thread
/// that ends without [`forget_thread`] leaves its thread state to the interpreter.
struct KeptState {
    state: ffi::PyGILState_STATE,
    saved: *mut ffi::PyThreadState,
    /// The list that the thread is in, and its number there.
    listed: Option<(ThreadsOfTask, c_ulong)>,
}

/// Lists the calling thread, which [`keep_thread`] has registered.
pub(super) fn enter_threads(py: Python<'_>, threads: &ThreadsOfTask) -> PyResult<()> {
    let thread = this_thread(py)?;
    threads.enter(thread, StackOf::Task);
    SwitchInterval::enter(py);
    KEPT.with(|kept| {
        kept.set(kept.take().map(|state| KeptState { listed: Some((threads.clone(), thread)), ..state }));
    });
    Ok(())
}

/// Registers the calling thread, which must not be attached, and leaves it detached.
pub(super) fn keep_thread() {
    KEPT.with(|kept| {
        // SAFETY: the interpreter is initialised (it has loaded this crate) and the thread is not attached:
        // methods of `OperatorChain` attach and detach within themselves. `PyEval_SaveThread` needs the attachment that
        // `PyGILState_Ensure` has made.
        let (state, saved) = unsafe { (ffi::PyGILState_Ensure(), ffi::PyEval_SaveThread()) };
        kept.set(Some(KeptState { state, saved, listed: None }));
    });
}

/// The thread of a task with some operators that call Python. It is attached for these calls only.
pub(crate) struct KeptThread(ThreadsOfTask);

impl KeptThread {
    pub(crate) fn new(threads: ThreadsOfTask) -> Self {
        Self(threads)
    }
}

impl TaskThread for KeptThread {
    fn enter(&mut self) -> Result<(), TaskError> {
        keep_thread();
        let entered = Python::attach(|py| enter_threads(py, &self.0));
        entered.map_err(|error| TaskError::Config(error.to_string()))
    }

    fn leave(&mut self) {
        forget_thread();
    }
}

/// Undoes [`keep_thread`], if it was called on this thread. The thread must be detached.
pub(super) fn forget_thread() {
    if let Some(KeptState { state, saved, listed }) = KEPT.take() {
        // SAFETY: undoes the two calls of `keep_thread` in reverse order, on the same thread, since it was kept
        // there. Between them it is attached.
        unsafe {
            ffi::PyEval_RestoreThread(saved);
            if listed.is_some() {
                SwitchInterval::leave(Python::assume_attached());
            }
            ffi::PyGILState_Release(state);
        }
        // Leave the list last: the interpreter may be finalized as soon as the list is empty.
        if let Some((threads, thread)) = listed {
            threads.leave(thread);
        }
    }
}
