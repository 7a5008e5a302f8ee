//! Asymmetric fence: two unequal halves for a store-then-load handshake with one hot side.
//!
//! Consider two threads that each store a value and then load the value that the other stores. Both need a full barrier
//! in between, or neither may see the other. On the hot side that barrier costs more than the rest of an emit. Linux
//! can execute it for that side: the other side calls `membarrier(2)`, which takes every running thread of the process
//! through a barrier. So [`light`] only stops the compiler from reordering, and [`heavy`] is a system call.
//!
//! Both are ordinary fences until the process is registered for that call, and permanently if the system refuses it.
//! They are also ordinary fences in loom's models.
//!
//! A call that was granted once may fail later: the kernel has no memory for it, or a new filter forbids it. A hot side
//! may then be between its store and its load, with no fence, and no thread executes one for it. Its store becomes
//! visible to all within the time that a core takes to write back its stores, far below a millisecond, or with the
//! switch to another thread. From then on all fences are therefore ordinary ones. Until that has been so for some
//! milliseconds, the other side waits for as long in addition.

use std::sync::atomic::{AtomicU8, compiler_fence};

use crate::sync::{Ordering, fence};

/// Fence between the store and the load of the hot side.
#[inline]
pub(crate) fn light() {
    PROCESS.light();
}

/// Fence between the store and the load of the other side.
pub(crate) fn heavy() {
    PROCESS.heavy();
}

static PROCESS: AsymmetricFence = AsymmetricFence::new(UNDECIDED, system::barrier);

struct AsymmetricFence {
    means: AtomicU8,
    /// Takes all running threads through a barrier; returns false if the system does not.
    barrier: fn() -> bool,
}

impl AsymmetricFence {
    const fn new(means: u8, barrier: fn() -> bool) -> Self {
        Self { means: AtomicU8::new(means), barrier }
    }

    #[inline]
    fn light(&self) {
        if self.means.load(Ordering::Relaxed) == BY_THE_SYSTEM {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    fn heavy(&self) {
        if self.means.load(Ordering::Relaxed) == UNDECIDED {
            let means = if system::register() { BY_THE_SYSTEM } else { BY_BOTH };
            // The thread that decides first decides for all: halves that differ would not order each other.
            let _ = self.means.compare_exchange(UNDECIDED, means, Ordering::Relaxed, Ordering::Relaxed);
        }
        match self.means.load(Ordering::Relaxed) {
            BY_THE_SYSTEM if (self.barrier)() => {}
            BY_THE_SYSTEM | GIVEN_UP => self.give_up(),
            _ => fence(Ordering::SeqCst),
        }
    }

    #[cold]
    fn give_up(&self) {
        self.means.store(GIVEN_UP, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        system::wait_for_write_back();
        self.means.store(BY_BOTH, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}

const UNDECIDED: u8 = 0;
const BY_THE_SYSTEM: u8 = 1;
const BY_BOTH: u8 = 2;
/// Both sides use ordinary fences, but not every hot side may know it yet.
const GIVEN_UP: u8 = 3;

#[cfg(all(target_os = "linux", not(loom)))]
mod system {
    use rustix::thread::{MembarrierCommand, NanosleepRelativeResult, Timespec, membarrier, nanosleep};

    /// Thousands of times the time that the slowest core takes to make a store visible.
    const WRITE_BACK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

    pub(super) fn register() -> bool {
        membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    }

    pub(super) fn barrier() -> bool {
        membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }

    pub(super) fn wait_for_write_back() {
        let mut left = WRITE_BACK;
        while let NanosleepRelativeResult::Interrupted(rest) = nanosleep(&left) {
            left = rest;
        }
    }
}

#[cfg(not(all(target_os = "linux", not(loom))))]
mod system {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn barrier() -> bool {
        false
    }

    pub(super) fn wait_for_write_back() {}
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::thread;

    use super::*;

    /// Enough rounds for the two threads to run at once on two cores, and to fail if a fence is missing.
    const ROUNDS: usize = 300_000;

    /// In its own cache line: the store then waits for the line while the load after it does not.
    #[repr(align(128))]
    struct Round(AtomicUsize);

    /// Both sides store the number of their round, then load the other's. For no pair of rounds may both sides have
    /// missed each other's store.
    fn assert_one_sees_the_other(fence: &AsymmetricFence) {
        let [hot, cold] = [const { Round(AtomicUsize::new(0)) }; 2];
        let is_done = AtomicBool::new(false);
        let (last_that_saw, seen_by) = thread::scope(|scope| {
            let hot_side = scope.spawn(|| {
                // For each round of the cold side: the last round of the hot side that did not see a later one.
                let mut last_that_saw = vec![0; ROUNDS + 1];
                let mut round = 0;
                while !is_done.load(Ordering::Relaxed) {
                    round += 1;
                    hot.0.store(round, Ordering::Relaxed);
                    fence.light();
                    last_that_saw[cold.0.load(Ordering::Relaxed)] = round;
                }
                last_that_saw
            });
            while hot.0.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            let mut seen_by = vec![0; ROUNDS + 1];
            for (round, seen) in seen_by.iter_mut().enumerate().skip(1) {
                cold.0.store(round, Ordering::Relaxed);
                fence.heavy();
                *seen = hot.0.load(Ordering::Relaxed);
            }
            is_done.store(true, Ordering::Relaxed);
            (hot_side.join().expect("the hot side cannot fail"), seen_by)
        });
        for (cold_round, seen) in seen_by.iter().enumerate().skip(1) {
            let missed_by = last_that_saw[cold_round - 1];
            assert!(*seen >= missed_by, "{cold_round} of the cold side missed {missed_by}, which missed it");
        }
    }

    #[test]
    fn of_two_sides_one_sees_the_other_with_and_without_the_systems_help() {
        let means = [UNDECIDED, BY_BOTH];
        means.into_iter().for_each(|means| assert_one_sees_the_other(&AsymmetricFence::new(means, system::barrier)));
    }

    #[test]
    fn a_barrier_that_fails_one_day_is_made_up_for() {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let fails_later = || CALLS.fetch_add(1, Ordering::Relaxed) < ROUNDS / 2 && system::barrier();
        let fence = AsymmetricFence::new(UNDECIDED, fails_later);
        assert_one_sees_the_other(&fence);
        assert_eq!(fence.means.load(Ordering::Relaxed), BY_BOTH);
    }
}
