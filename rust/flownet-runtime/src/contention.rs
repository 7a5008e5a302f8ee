//! Tells busy time of a task from time in which it waits to have the interpreter back, in the middle of a call.
//!
//! CPython takes the interpreter from a thread that runs Python every few milliseconds, and from one that begins a call which
//! lets it go. The thread does not say so, but the system knows how much processor time it had, and where it sleeps. The
//! looks of [`crate::work`] ask it, for threads of tasks that run functions of Python:
//!
//! | the thread | counts as |
//! |---|---|
//! | had processor time since the last look | busy, for that time |
//! | sleeps in a call of the system, or waits for a lock of its own | busy: it is the function's own wait |
//! | sleeps on the interpreter's lock | waiting for the interpreter |
//! | is ready to run, or does, while another task wants the interpreter, too | waiting for it, but for its processor time |
//! | is ready to run, alone | busy: it waits for a processor |
//!
//! # Invariants
//! - I1: without an answer of the system all time is busy, as it is if no other task wants the interpreter.
//! - I2: functions that let the interpreter go and compute are busy: they have processor time.
//!
//! Which lock is the interpreter's is seen where a task sleeps that says it waits for the interpreter, as it does before each
//! batch.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What the system says of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadState {
    /// It runs, or is ready to.
    Runs,
    /// It sleeps on a lock, whose address this is.
    OnLock(u64),
    /// It sleeps elsewhere, or the system does not tell.
    Elsewhere,
}

/// A task at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    rest: ThreadState,
    /// Processor time of its thread so far.
    pub(crate) worked: Duration,
}

impl Look {
    /// Asks the system for a thread of this process. None where it does not tell.
    pub(crate) fn at(thread: u32) -> Option<Self> {
        let read = |file: &str| fs::read_to_string(format!("/proc/self/task/{thread}/{file}")).ok();
        let worked = worked(&read("schedstat")?)?;
        Some(Self { rest: ThreadState::read(&read("syscall")?), worked })
    }

    /// Whether the task may want the interpreter: unlike one that waits for something else.
    pub(crate) fn wants_interpreter(self) -> bool {
        self.rest == ThreadState::Runs || self.is_on_interpreter()
    }

    /// Whether it waits for it, for sure.
    pub(crate) fn is_on_interpreter(self) -> bool {
        matches!(self.rest, ThreadState::OnLock(address) if is_interpreter(address))
    }

    /// The task says that it waits for the interpreter: where it sleeps is the interpreter's lock.
    pub(crate) fn learn(self) {
        if let ThreadState::OnLock(address) = self.rest {
            INTERPRETER.store(address, Ordering::Relaxed);
        }
    }
}

impl ThreadState {
    /// Of the call of the system that a thread is in: its number and arguments, or `running`.
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

/// Of "time on a processor, time in its queue, turns": the first, in nanoseconds.
fn worked(schedstat: &str) -> Option<Duration> {
    schedstat.split_ascii_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

fn is_interpreter(address: u64) -> bool {
    let known = INTERPRETER.load(Ordering::Relaxed);
    known != 0 && known.abs_diff(address) < LOCK_BYTES
}

/// Address of a word of the interpreter's lock; 0 while none is known. A process has one interpreter.
static INTERPRETER: AtomicU64 = AtomicU64::new(0);
/// Its mutexes and condition variables lie together, and threads sleep on several of their words.
const LOCK_BYTES: u64 = 256;
/// Number of the call that waits for a lock.
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
            return; // the system does not tell
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
