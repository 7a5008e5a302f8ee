//! Separates busy time of a task from time in which it waits to get the interpreter back, in the middle of a call.
//!
//! CPython takes the interpreter every few milliseconds from a thread that runs Python, and from a thread that begins a
//! call which releases it. The thread does not report this, but the system knows its CPU time and where it sleeps. The
//! samples of [`crate::work`] query the system for threads of tasks that run Python functions:
//!
//! | the thread | counts as |
//! |---|---|
//! | had CPU time since the last sample | busy, for that time |
//! | sleeps in a system call, or waits for a lock of its own | busy: the function itself waits |
//! | sleeps on the interpreter's lock | waiting for the interpreter |
//! | is runnable or running, while another task wants the interpreter too | waiting for it, except its CPU time |
//! | is runnable, alone | busy: it waits for a processor |
//!
//! # Invariants
//! - I1: if the system gives no answer, all time is busy. The same holds if no other task wants the interpreter.
//! - I2: functions that release the interpreter and compute are busy: they have CPU time.
//!
//! The address of the interpreter's lock is learned from tasks that report that they wait for the interpreter, as they
//! do before each batch: they sleep on it.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// State of a thread, as the system reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadState {
    /// It is running or runnable.
    Runs,
    /// It sleeps on the lock at this address.
    OnLock(u64),
    /// It sleeps elsewhere, or the system does not report it.
    Elsewhere,
}

/// A sample of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    rest: ThreadState,
    /// CPU time of its thread so far.
    pub(crate) worked: Duration,
}

impl Look {
    /// Queries the system about a thread of this process. `None` if it does not report it.
    pub(crate) fn at(thread: u32) -> Option<Self> {
        let read = |file: &str| fs::read_to_string(format!("/proc/self/task/{thread}/{file}")).ok();
        let worked = worked(&read("schedstat")?)?;
        Some(Self { rest: ThreadState::read(&read("syscall")?), worked })
    }

    /// Returns true if the task may want the interpreter, because it does not wait for anything else.
    pub(crate) fn wants_interpreter(self) -> bool {
        self.rest == ThreadState::Runs || self.is_on_interpreter()
    }

    /// Returns true if it certainly waits for the interpreter.
    pub(crate) fn is_on_interpreter(self) -> bool {
        matches!(self.rest, ThreadState::OnLock(address) if is_interpreter(address))
    }

    /// Stores the address of the interpreter's lock. The task reports that it waits for the interpreter, so it sleeps
    /// on that lock.
    pub(crate) fn learn(self) {
        if let ThreadState::OnLock(address) = self.rest {
            INTERPRETER.store(address, Ordering::Relaxed);
        }
    }
}

impl ThreadState {
    /// Parses the system call that a thread is in: its number and arguments, or `running`.
    fn read(syscall: &str) -> Self {
        let mut fields = syscall.split_ascii_whitespace();
        let address = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
        match (fields.next(), fields.next().and_then(address)) {
            (Some("running"), _) => Self::Runs,
            (Some(number), Some(address)) if FUTEX.is_some_and(|futex| number == futex) => Self::OnLock(address),
            _ => Self::Elsewhere,
        }
    }
}

/// Parses "time on a processor, time in its queue, turns" and returns the first, in nanoseconds.
fn worked(schedstat: &str) -> Option<Duration> {
    schedstat.split_ascii_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

fn is_interpreter(address: u64) -> bool {
    let known = INTERPRETER.load(Ordering::Relaxed);
    known != 0 && known.abs_diff(address) < LOCK_BYTES
}

/// Address of a word of the interpreter's lock; 0 until it is known. A process has one interpreter.
static INTERPRETER: AtomicU64 = AtomicU64::new(0);
/// Its mutexes and condition variables are adjacent, and threads sleep on several of their words.
const LOCK_BYTES: u64 = 256;
/// Number of the system call that waits for a lock.
const FUTEX: Option<&str> = match () {
    () if cfg!(target_arch = "x86_64") => Some("202"),
    () if cfg!(target_arch = "aarch64") => Some("98"),
    () => None,
};

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};
    use std::thread;

    use super::*;

    #[test]
    fn the_lines_of_the_system_are_read() {
        assert_eq!(ThreadState::read("running\n"), ThreadState::Runs);
        assert_eq!(ThreadState::read("230 0x0 0x0 0x7ffc 0x0 0x0 0x0 0x7ffc 0x7f71"), ThreadState::Elsewhere);
        assert_eq!(ThreadState::read(""), ThreadState::Elsewhere);
        assert_eq!(ThreadState::read("-1 0x7ffc 0x7f71"), ThreadState::Elsewhere);
        if let Some(futex) = FUTEX {
            assert_eq!(ThreadState::read(&format!("{futex} 0x7f6c 0x189 0x0")), ThreadState::OnLock(0x7f6c));
        }
        assert_eq!(worked("1234 5 6\n"), Some(Duration::from_nanos(1234)));
        assert_eq!(worked("?"), None);
    }

    #[test]
    fn a_thread_that_sleeps_on_a_lock_is_seen_there() {
        let own_number = || rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        if Look::at(own_number()).is_none() {
            return; // the system does not report it
        }
        assert_eq!(Look::at(u32::MAX), None);
        let (lock, bell) = (&Mutex::new(false), &Condvar::new());
        let (sender, receiver) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                let held = lock.lock().expect("whole");
                sender.send(own_number()).expect("heard");
                drop(bell.wait_while(held, |is_over| !*is_over));
            });
            let number = receiver.recv().expect("its number");
            let asleep = loop {
                match Look::at(number) {
                    Some(look) if look.rest == ThreadState::Runs => thread::yield_now(),
                    asleep => break asleep,
                }
            };
            *lock.lock().expect("whole") = true;
            bell.notify_all();
            let asleep = asleep.expect("it is there");
            assert!(matches!(asleep.rest, ThreadState::OnLock(_)), "{asleep:?}");
            assert!(!asleep.wants_interpreter(), "a lock of its own");
        });
    }

    #[test]
    fn the_interpreters_lock_is_where_tasks_sleep_that_say_so() {
        let on = |address| Look { rest: ThreadState::OnLock(address), worked: Duration::ZERO };
        on(0x10_000).learn();
        assert!(on(0x10_028).is_on_interpreter() && on(0x10_000).wants_interpreter());
        assert!(!on(0x20_000).is_on_interpreter());
        Look { rest: ThreadState::Elsewhere, worked: Duration::ZERO }.learn();
        assert!(on(0x10_000).is_on_interpreter());
    }
}
