//! How long a thread keeps the interpreter that another one waits for: `sys.setswitchinterval`, of the whole process.
//!
//! Short while a task is sampled, longer where many tasks share the interpreter, and otherwise the program's own. Changed by
//! task threads as they begin and end, and by those that sample them (`stacks.rs`).
//!
//! Who waits for the interpreter wakes up once an interval to ask its holder to hurry: where hundreds do so every 5 ms, they
//! take most of a processor from the one that works. Tasks let the interpreter go behind each batch anyway.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;

/// Why it is not the program's own, and which that is.
pub(super) struct SwitchInterval {
    sampled_by: u32,
    task_threads: u32,
    /// What the program has set, or began with.
    own: f64,
    /// What was set here. None: it is the program's own.
    ours: Option<f64>,
}

impl SwitchInterval {
    /// Short, from now on, for one more who samples.
    pub(super) fn begin_sampling(py: Python<'_>) {
        Self::change(py, |shared| shared.sampled_by += 1);
    }

    /// Takes that back.
    pub(super) fn end_sampling(py: Python<'_>) {
        Self::change(py, |shared| shared.sampled_by = shared.sampled_by.saturating_sub(1));
    }

    /// One more thread runs users' functions.
    pub(super) fn enter(py: Python<'_>) {
        Self::change(py, |shared| shared.task_threads += 1);
    }

    /// Takes that back.
    pub(super) fn leave(py: Python<'_>) {
        Self::change(py, |shared| shared.task_threads = shared.task_threads.saturating_sub(1));
    }

    fn change(py: Python<'_>, change: impl FnOnce(&mut Self)) {
        let is_other = {
            let mut shared = Self::lock();
            let before = shared.reason();
            change(&mut shared);
            shared.reason() != before
        };
        if !is_other {
            return;
        }
        // None of these calls lets the interpreter go, so nobody changes it in between.
        let Ok(now) = interval(py) else { return };
        let wanted = Self::lock().wanted(now);
        if differ(wanted, now) {
            set_interval(py, wanted);
        }
    }

    /// What it depends on, beside the program's own.
    fn reason(&self) -> (bool, u32) {
        (self.sampled_by > 0, self.times())
    }

    fn times(&self) -> u32 {
        (self.task_threads / MANY_THREADS).max(1)
    }

    /// What it should be, where it is `now`.
    fn wanted(&mut self, now: f64) -> f64 {
        // Somebody else has set it since: that is the program's own from now on.
        if self.ours.is_none_or(|ours| differ(ours, now)) {
            self.own = now;
        }
        let wanted = match self.reason() {
            (true, _) => self.own.min(SHORT_SECONDS),
            (false, times) => (self.own * f64::from(times)).min(self.own.max(LONG_SECONDS)),
        };
        self.ours = differ(wanted, self.own).then_some(wanted);
        wanted
    }

    fn lock() -> MutexGuard<'static, Self> {
        static SHARED: Mutex<SwitchInterval> = Mutex::new(SwitchInterval::new());
        SHARED.lock().unwrap_or_else(PoisonError::into_inner)
    }

    const fn new() -> Self {
        Self { sampled_by: 0, task_threads: 0, own: 0.0, ours: None }
    }
}

/// The interpreter keeps whole microseconds.
fn differ(one: f64, other: f64) -> bool {
    (one - other).abs() > 1e-6
}

fn interval(py: Python<'_>) -> PyResult<f64> {
    py.import(intern!(py, "sys"))?.call_method0(intern!(py, "getswitchinterval"))?.extract()
}

fn set_interval(py: Python<'_>, seconds: f64) {
    let set = || py.import(intern!(py, "sys"))?.call_method1(intern!(py, "setswitchinterval"), (seconds,));
    // The numbers are within its bounds; a program that has replaced it has its own.
    let _ = set();
}

/// So soon threads change over while one is sampled, where the interpreter begins with 5 ms. It decides what is found: at
/// 100 µs a function that took 9 % of the time between two sleeps was in 1 % of the samples.
const SHORT_SECONDS: f64 = 0.000_01;

/// So many threads wait for the interpreter once an interval, and twice as many once in two. 300 subtasks of three tasks
/// each: 46 s of a processor at 5 ms, 15 s at 100 ms.
const MANY_THREADS: u32 = 64;

/// And no longer than this, for what else runs in the process.
const LONG_SECONDS: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    /// What it is at after each look, where the program began with 5 ms.
    fn after(shared: &mut SwitchInterval, now: f64, change: impl FnOnce(&mut SwitchInterval)) -> f64 {
        change(shared);
        (shared.wanted(now) * 1e6).round() / 1e6
    }

    #[test]
    fn it_grows_with_the_threads_and_is_the_programs_own_behind_them() {
        let mut shared = SwitchInterval::new();
        assert_eq!(after(&mut shared, 0.005, |shared| shared.task_threads = 127), 0.005);
        assert_eq!(after(&mut shared, 0.005, |shared| shared.task_threads = 128), 0.01);
        assert_eq!(after(&mut shared, 0.01, |shared| shared.task_threads = 10_000), 0.1);
        assert_eq!(after(&mut shared, 0.1, |shared| shared.sampled_by = 1), 0.000_01);
        assert_eq!(after(&mut shared, 0.000_01, |shared| shared.sampled_by = 0), 0.1);
        assert_eq!(after(&mut shared, 0.1, |shared| shared.task_threads = 0), 0.005);
    }

    #[test]
    fn what_the_program_sets_meanwhile_is_its_own() {
        let mut shared = SwitchInterval::new();
        assert_eq!(after(&mut shared, 0.005, |shared| shared.task_threads = 128), 0.01);
        assert_eq!(after(&mut shared, 0.2, |shared| shared.task_threads = 192), 0.2);
        assert_eq!(after(&mut shared, 0.2, |shared| shared.task_threads = 0), 0.2);
    }
}
