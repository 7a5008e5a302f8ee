//! Passes results of calls on another thread to the task that waits for them.
//!
//! # Invariants
//! - A1: the first answer since the task last took answers wakes the task, and no other answer does. Answers
//!   that arrive together wake it once.
//! - A2: the task takes all answers at once. So no answer remains for which the task was not woken.

use std::sync::{Mutex, MutexGuard, PoisonError};

use flownet_runtime::mailbox::TaskWaker;
use flownet_runtime::operator::Ticket;
use pyo3::exceptions::PyBaseException;
use pyo3::intern;
use pyo3::prelude::*;

use super::attach::{ThreadsOfTask, this_thread};

/// A call and its result.
pub(super) type Answer = (Ticket, PyResult<Py<PyAny>>);

/// Where the thread that runs calls leaves what came of them.
#[pyclass(frozen, name = "Answers", module = "flownet._flownet")]
#[derive(Debug)]
pub struct PyAnswers {
    come: Mutex<Vec<Answer>>,
    bell: TaskWaker,
    threads: ThreadsOfTask,
}

impl PyAnswers {
    /// Answers for the task that this waker wakes. `threads` lists the thread that runs the calls.
    pub(super) fn new(bell: TaskWaker, threads: ThreadsOfTask) -> Self {
        Self { come: Mutex::default(), bell, threads }
    }

    /// Takes all answers that have arrived.
    pub(super) fn take(&self) -> Vec<Answer> {
        std::mem::take(&mut *self.lock())
    }

    /// Returns true if no answer has arrived.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Answer>> {
        self.come.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The exception as a `PyErr`. Its traceback may be a `None` that was set, for which the C interface returns
/// an object that is no traceback.
fn raised(error: Bound<'_, PyBaseException>) -> PyErr {
    let py = error.py();
    let has_traceback = error.getattr(intern!(py, "__traceback__")).is_ok_and(|traceback| !traceback.is_none());
    let error = PyErr::from_value(error.into_any());
    if !has_traceback {
        error.set_traceback(py, None);
    }
    error
}

#[pymethods]
impl PyAnswers {
    /// Leave what a call returned, or what it raised.
    #[pyo3(signature = (ticket, value, error=None))]
    fn put(&self, ticket: Ticket, value: Py<PyAny>, error: Option<Bound<'_, PyBaseException>>) {
        let answer = match error {
            Some(error) => Err(raised(error)),
            None => Ok(value),
        };
        let is_first = {
            let mut come = self.lock();
            come.push((ticket, answer));
            come.len() == 1
        };
        if is_first {
            self.bell.ring();
        }
    }

    /// The calling thread runs users' functions from now on.
    fn enter(&self, py: Python<'_>) -> PyResult<()> {
        self.threads.enter_as_helper(this_thread(py)?);
        Ok(())
    }

    /// The calling thread runs none any more.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        self.threads.leave(this_thread(py)?);
        Ok(())
    }
}
