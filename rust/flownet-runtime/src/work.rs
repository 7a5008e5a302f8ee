//! What a busy task works on, by looking now and then.
//!
//! The task's thread keeps a mark of what it works on: a plain store where a record comes, where a stage of the chain begins
//! with it, and around each value that is encoded or decoded. Where a stage goes on behind one that it handed a record to, the
//! mark may still be that one's, which in a chain of Python is the same. A timer of the process looks at the marks of all its
//! tasks, and counts the busy time of each since it last looked as what it finds ([`TimeAccounting`](crate::time_accounting::TimeAccounting)).
//! So nothing reads a clock for a record, the parts of busy time sum to all of it, and each of them is an estimate.
//!
//! # How good it is
//! - A share `p` of what `n` looks found is off by `sqrt(p (1 - p) / n)` as a rule: 5 points in a second of work, 1 point in half
//!   a minute. Below 20 ms of work there is hardly a look, and time of which nothing was found counts as what most operators of
//!   the task's medium do.
//! - Pauses between looks are drawn by lot, so that work which comes at a steady pace is not always met in the same place.
//! - On a machine with more to do than processors, a look comes late, and so stands for more time. It is not late because of
//!   what the task does: whoever runs is pushed aside by a timer anywhere, and a task that gave the processor up by waiting
//!   is not busy. What a task waits for without saying so, a lock or the disk, counts as what it was at.
//! - `python` is the time in operators that call functions of Python, with what they do around the call; a function that lets go
//!   of the interpreter is still at work there. One that waits to have it back counts as waiting for the interpreter, see
//!   `contention.rs`.

use std::cell::{OnceCell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use flownet_net::NetworkEnvironment;

use crate::contention::Look;
use crate::metrics::TaskMetrics;

/// What a busy task works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Work {
    /// Everything else: reading, routing, writing, what built-in operators do.
    Rust,
    /// Operators that call functions of Python.
    Python,
    /// Records and keys to bytes and back, and state to those of a checkpoint, in whatever language that is done.
    Serialising,
}

impl Work {
    /// All that there are, in the order of their numbers.
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

/// What a task was at, to be at it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub(crate) u8);

impl From<Work> for Mark {
    fn from(work: Work) -> Self {
        Self(work as u8)
    }
}

thread_local! {
    /// Of the task whose thread it is.
    static OF_THREAD: RefCell<Option<Arc<TaskMetrics>>> = const { RefCell::new(None) };
}

/// The calling thread is that of the task with these metrics, until it ends.
pub(crate) fn enter_thread(metrics: &Arc<TaskMetrics>) {
    metrics.set_thread(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
    OF_THREAD.with(|of_thread| *of_thread.borrow_mut() = Some(Arc::clone(metrics)));
}

/// By which code of a task that is not handed its outputs says what it works on. Found once, on the first thread of a task
/// that uses it, so that this costs as little as it does for others.
#[derive(Debug, Default)]
pub struct ThreadWork(OnceCell<Arc<TaskMetrics>>);

impl ThreadWork {
    /// The thread works on this until the guard is dropped. Nothing where it is no task's.
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

/// Work that goes on until this is dropped. A guard, as code behind a call would have its result copied.
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

/// Looks at what these tasks work on until all of them have ended.
pub fn watch(environment: &NetworkEnvironment, tasks: Vec<Arc<TaskMetrics>>) {
    let (mut tasks, mut lot) = (tasks, RandomState::new().hash_one(0_u64));
    environment.repeat(move || {
        tasks.retain(|task| !task.has_ended());
        look_at(&tasks);
        lot = lot.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (!tasks.is_empty()).then(|| Duration::from_millis(SHORTEST_PAUSE_MS + (lot >> 33) % PAUSES_MS))
    });
}

/// Counts what these tasks of one process did since the last look.
fn look_at(tasks: &[Arc<TaskMetrics>]) {
    let seen: Vec<Option<Look>> = tasks.iter().map(|task| task.at_interpreter()).collect();
    // One alone that is ready to run waits for a processor, not for others to let the interpreter go.
    let is_contended = seen.iter().flatten().filter(|look| look.wants_interpreter()).count() > 1;
    tasks.iter().zip(seen).for_each(|(task, seen)| task.look(seen, is_contended));
}

/// Between two looks, at least.
const SHORTEST_PAUSE_MS: u64 = 5;
/// So many milliseconds are drawn by lot: 10 ms lie between two looks on average.
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
