//! Reads the Python stacks of a task's threads, for flame graphs (`flownet_runtime::flame`).
//!
//! The thread that samples a task calls this. Each reading attaches only for the walk up one stack.
//!
//! # Invariants
//! - S1: while the sampler may attach, the interpreter exists. The sampler registers as a visitor of the
//!   thread list while the task that it reads is listed. Finalization of the interpreter waits for both.
//! - S2: the sampler attaches only for a thread that is listed. A task without Python, or an event loop that
//!   does not exist, costs nothing.
//! - S3: to be admitted in the middle of a function, and not only between batches, the sampler asks threads
//!   to switch sooner ([`SwitchInterval`]). The earlier interval returns after the last sampler has ended.

use std::ffi::c_ulong;
use std::sync::Arc;

use flownet_runtime::flame::{MOST_DEPTH, StackFrame, StackOf, Stacks};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::attach::TaskThreads;
use super::switch_interval::SwitchInterval;

/// The stacks of one task.
pub(super) struct TaskStacks {
    threads: Arc<TaskThreads>,
    task: u32,
    /// None before the first reading.
    visit: Option<Visit>,
}

impl TaskStacks {
    pub(super) fn new(threads: Arc<TaskThreads>, task: u32) -> Self {
        Self { threads, task, visit: None }
    }
}

impl Stacks for TaskStacks {
    fn read(&mut self, of: StackOf) -> Vec<StackFrame> {
        let Some(thread) = self.threads.find(self.task, of) else { return Vec::new() };
        if self.visit.is_none() {
            self.visit = Visit::beside(thread);
        }
        if self.visit.is_none() {
            return Vec::new();
        }
        // An unreadable stack counts as empty; the sample still has its state.
        Python::attach(|py| stack(py, thread)).unwrap_or_default()
    }
}

/// Place of a visitor in the list of threads.
struct Visit;

impl Visit {
    fn beside(thread: c_ulong) -> Option<Self> {
        TaskThreads::of_all_jobs().visit(thread).then(|| {
            Python::attach(SwitchInterval::begin_sampling);
            Self
        })
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        Python::attach(SwitchInterval::end_sampling);
        TaskThreads::of_all_jobs().end_visit();
    }
}

/// The active functions of a thread, innermost first.
fn stack(py: Python<'_>, thread: c_ulong) -> PyResult<Vec<StackFrame>> {
    let frames = py.import(intern!(py, "sys"))?.call_method0(intern!(py, "_current_frames"))?;
    let innermost = frames.cast::<PyDict>().map_err(PyErr::from)?.get_item(thread)?;
    let mut stack = Vec::new();
    let mut next = innermost;
    while let Some(frame) = next.filter(|frame| !frame.is_none()) {
        if stack.len() + 1 == MOST_DEPTH {
            stack.push(StackFrame::further_out());
            break;
        }
        stack.push(frame_of(py, &frame)?);
        next = Some(frame.getattr(intern!(py, "f_back"))?);
    }
    Ok(stack)
}

fn frame_of(py: Python<'_>, frame: &Bound<'_, PyAny>) -> PyResult<StackFrame> {
    let code = frame.getattr(intern!(py, "f_code"))?;
    let (name, file) = (code.getattr(intern!(py, "co_qualname"))?, code.getattr(intern!(py, "co_filename"))?);
    let begins = code.getattr(intern!(py, "co_firstlineno"))?.extract().unwrap_or(0);
    // None at an instruction that belongs to no line.
    let line = frame.getattr(intern!(py, "f_lineno"))?.extract().unwrap_or(begins);
    Ok(StackFrame::new(&name.str()?.to_string_lossy(), &file.str()?.to_string_lossy(), begins, line))
}
