//! Estimates by sampling what kind of work a busy task does.
//!
//! The task's thread stores a mark of its current work. It is a plain store, made when a record arrives, when a stage
//! of the chain starts on it, and around each value that is encoded or decoded. When a stage continues after it has
//! emitted a record, the mark may still be that of the stage downstream. In a chain of Python stages that is the same.
//! A timer of the process samples the marks of all its tasks. It counts the busy time of each task since the last
//! sample as the work that it finds ([`TimeAccounting`](crate::time_accounting::TimeAccounting)). So no record costs a
//! clock reading, the parts of busy time sum to all of it, and each part is an estimate.
//!
//! # Accuracy
//! - A share `p` found by `n` samples is typically off by `sqrt(p (1 - p) / n)`: 5 points in a second of work, 1 point
//!   in 30 s. Below 20 ms of work there is hardly a sample. Time without a sample counts as the work that most
//!   operators of the task's record format do.
//! - Pauses between samples are random, so that periodic work is not always sampled at the same place.
//! - On an overloaded machine a sample comes late, and so represents more time. That does not depend on the work of the
//!   task: a timer preempts a running task anywhere, and a task that blocks is not busy. A wait that the task does not
//!   declare, for a lock or the disk, counts as its current work.
//! - `python` is the time in operators that call Python functions, with their work around the call. A function that
//!   releases the interpreter still works there. A function that waits to get it back counts as waiting for the
//!   interpreter, see `contention.rs`.

use std::cell::{OnceCell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use flownet_net::NetworkEnvironment;

use crate::contention::Look;
use crate::metrics::TaskMetrics;

/// The kind of work of a busy task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Work {
    /// All other work: reading, routing, writing, and built-in operators.
    Rust,
    /// Operators that call Python functions.
    Python,
    /// Encoding and decoding of records, keys and checkpointed state, in any language.
    Serialising,
}

impl Work {
    /// All kinds, in the order of their numbers.
    pub(crate) const ALL: [Self; 3] = [Self::Rust, Self::Python, Self::Serialising];

    #[inline]
    pub(crate) fn of(number: u8) -> Self {
        match number {
            1 => Self::Python,
            2 => Self::Serialising,
            _ => Self::Rust,
        }
    }
}

/// The work of a task at some moment, to be restored later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub(crate) u8);

impl From<Work> for Mark {
    fn from(work: Work) -> Self {
        Self(work as u8)
    }
}

thread_local! {
    /// The metrics of the task that owns the thread.
    static OF_THREAD: RefCell<Option<Arc<TaskMetrics>>> = const { RefCell::new(None) };
}

/// Registers the calling thread as the thread of the task with these metrics, until it ends.
pub(crate) fn enter_thread(metrics: &Arc<TaskMetrics>) {
    metrics.set_thread(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
    OF_THREAD.with(|of_thread| *of_thread.borrow_mut() = Some(Arc::clone(metrics)));
}

/// Sets the work mark in code that has no access to the task's outputs. It looks the metrics up once, on the first task
/// thread that uses it, so a later call costs as little as elsewhere.
#[derive(Debug, Default)]
pub struct ThreadWork(OnceCell<Arc<TaskMetrics>>);

impl ThreadWork {
    /// Marks the thread's work until the guard is dropped. Does nothing on other threads than a task's.
    #[inline]
    pub fn during(&self, work: Work) -> WorkGuard<'_> {
        let metrics = match self.0.get() {
            Some(metrics) => Some(&**metrics),
            None => self.find(),
        };
        WorkGuard(metrics.map(|metrics| (metrics, metrics.begin(work))))
    }

    #[cold]
    fn find(&self) -> Option<&TaskMetrics> {
        let found = OF_THREAD.with(|of_thread| of_thread.borrow().clone())?;
        Some(self.0.get_or_init(|| found))
    }
}

/// Restores the former mark when dropped. A guard, because code after a call would force a copy of its result.
#[must_use]
#[derive(Debug)]
pub struct WorkGuard<'a>(Option<(&'a TaskMetrics, Mark)>);

impl Drop for WorkGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some((metrics, before)) = self.0 {
            metrics.resume(before);
        }
    }
}

/// Samples the work of these tasks until all of them have ended.
pub fn watch(environment: &NetworkEnvironment, tasks: Vec<Arc<TaskMetrics>>) {
    let (mut tasks, mut lot) = (tasks, RandomState::new().hash_one(0_u64));
    environment.repeat(move || {
        tasks.retain(|task| !task.has_ended());
        look_at(&tasks);
        lot = lot.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (!tasks.is_empty()).then(|| Duration::from_millis(SHORTEST_PAUSE_MS + (lot >> 33) % PAUSES_MS))
    });
}

/// Samples these tasks of one process, and accounts their time since the last sample.
fn look_at(tasks: &[Arc<TaskMetrics>]) {
    let seen: Vec<Option<Look>> = tasks.iter().map(|task| task.at_interpreter()).collect();
    // If only one thread is runnable, it waits for a processor and not for the interpreter.
    let is_contended = seen.iter().flatten().filter(|look| look.wants_interpreter()).count() > 1;
    tasks.iter().zip(seen).for_each(|(task, seen)| task.look(seen, is_contended));
}

/// Shortest pause between two samples.
const SHORTEST_PAUSE_MS: u64 = 5;
/// Range of the random part in milliseconds: two samples are 10 ms apart on average.
const PAUSES_MS: u64 = 11;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_on_the_thread_of_a_task_and_lost_elsewhere() {
        let work = ThreadWork::default();
        assert!(work.during(Work::Serialising).0.is_none(), "no task's thread");
        let metrics = Arc::new(TaskMetrics::new());
        std::thread::scope(|scope| {
            let (metrics, work) = (&metrics, work);
            scope.spawn(move || {
                enter_thread(metrics);
                assert_eq!(metrics.begin(Work::Python), Work::Rust.into());
                let serialising = work.during(Work::Serialising);
                assert_eq!(metrics.begin(Work::Rust), Work::Serialising.into());
                drop(serialising);
            });
        });
        assert_eq!(metrics.begin(Work::Rust), Work::Python.into());
    }

    #[test]
    fn all_kinds_have_their_numbers() {
        assert!(Work::ALL.iter().enumerate().all(|(number, work)| Work::of(number as u8) == *work));
    }
}
