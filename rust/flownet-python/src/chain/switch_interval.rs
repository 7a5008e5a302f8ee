//! Adjusts `sys.setswitchinterval`: how long a thread of the process holds the interpreter while another one
//! waits for it.
//!
//! The interval is short while a task is sampled, and longer if many tasks share the interpreter. Otherwise
//! it is the program's own. Task threads change it as they begin and end, and so do threads that sample them
//! (`stacks.rs`).
//!
//! A thread that waits for the interpreter wakes up once an interval to ask the holder to release it. If
//! hundreds of threads do so every 5 ms, they take most of a processor from the one that works. Tasks release
//! the interpreter after each batch anyway.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;

/// Reasons for another interval than the program's own, and the program's own.
pub(super) struct SwitchInterval {
    sampled_by: u32,
    task_threads: u32,
    /// The interval that the program has set, or began with.
    own: f64,
    /// The interval that was set here. None: it is the program's own.
    ours: Option<f64>,
}

impl SwitchInterval {
    /// Counts one more sampler, which shortens the interval.
    pub(super) fn begin_sampling(py: Python<'_>) {
        Self::change(py, |shared| shared.sampled_by += 1);
    }

    /// Undoes [`begin_sampling`](Self::begin_sampling).
    pub(super) fn end_sampling(py: Python<'_>) {
        Self::change(py, |shared| shared.sampled_by = shared.sampled_by.saturating_sub(1));
    }

    /// Counts one more thread that runs users' functions.
    pub(super) fn enter(py: Python<'_>) {
        Self::change(py, |shared| shared.task_threads += 1);
    }

    /// Undoes [`enter`](Self::enter).
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
        // None of these calls releases the interpreter, so no other thread changes the interval in between.
        let Ok(now) = interval(py) else { return };
        let wanted = Self::lock().wanted(now);
        if differ(wanted, now) {
            set_interval(py, wanted);
        }
    }

    /// Reasons for the interval, apart from the program's own.
    fn reason(&self) -> (bool, u32) {
        (self.sampled_by > 0, self.times())
    }

    fn times(&self) -> u32 {
        (self.task_threads / MANY_THREADS).max(1)
    }

    /// The interval to set, if it is `now`.
    fn wanted(&mut self, now: f64) -> f64 {
        // Other code has set it since: that is the program's own from now on.
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

/// The interpreter stores whole microseconds.
fn differ(one: f64, other: f64) -> bool {
    (one - other).abs() > 1e-6
}

fn interval(py: Python<'_>) -> PyResult<f64> {
    py.import(intern!(py, "sys"))?.call_method0(intern!(py, "getswitchinterval"))?.extract()
}

fn set_interval(py: Python<'_>, seconds: f64) {
    let set = || py.import(intern!(py, "sys"))?.call_method1(intern!(py, "setswitchinterval"), (seconds,));
    // The numbers are within bounds. A program that has replaced the function has its own rules.
    let _ = set();
}

/// Interval while a task is sampled; the interpreter begins with 5 ms. It decides which functions samples
/// show: at 100 µs a function that took 9 % of the time between two sleeps was in 1 % of the samples.
const SHORT_SECONDS: f64 = 0.000_01;

/// This many threads wait for the interpreter once an interval, and twice as many once in two. With 300
/// subtasks of three tasks each, waiting took 46 s of a processor at 5 ms, and 15 s at 100 ms.
const MANY_THREADS: u32 = 64;

/// Longest interval, for the sake of other code in the process.
const LONG_SECONDS: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    /// The interval after each change, if the program began with 5 ms.
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
