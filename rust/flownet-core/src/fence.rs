//! A fence in two unequal halves, for a store-then-load handshake of which one side is hot.
//!
//! Two threads that each store and then load what the other stores need a full barrier in between, or neither may see
//! the other. On the hot side that barrier costs more than the rest of an emit. Linux can execute it on that side's
//! behalf: the other side asks with `membarrier(2)`, which takes every running thread of the process through a barrier.
//! So [`light`] only keeps the compiler from reordering, and [`heavy`] is a system call.
//!
//! Until the process is registered for that call, and for good where the system refuses it, both are ordinary fences;
//! and in loom's models.

use std::sync::atomic::{AtomicU8, compiler_fence};

use crate::sync::{Ordering, fence};

/// Between the store and the load of the hot side.
#[inline]
pub(crate) fn light() {
    PROCESS.light();
}

/// Between the store and the load of the other side.
pub(crate) fn heavy() {
    PROCESS.heavy();
}

static PROCESS: AsymmetricFence = AsymmetricFence { means: AtomicU8::new(UNDECIDED) };

struct AsymmetricFence {
    means: AtomicU8,
}

impl AsymmetricFence {
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
            // Who decides first does so for all: halves that differ would not order each other.
            let _ = self.means.compare_exchange(UNDECIDED, means, Ordering::Relaxed, Ordering::Relaxed);
        }
        if self.means.load(Ordering::Relaxed) == BY_THE_SYSTEM {
            system::barrier();
        } else {
            fence(Ordering::SeqCst);
        }
    }
}

const UNDECIDED: u8 = 0;
const BY_THE_SYSTEM: u8 = 1;
const BY_BOTH: u8 = 2;

#[cfg(all(target_os = "linux", not(loom)))]
mod system {
    use rustix::thread::{MembarrierCommand, membarrier};

    pub(super) fn register() -> bool {
        membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    }

    pub(super) fn barrier() {
        membarrier(MembarrierCommand::PrivateExpedited).expect("the process is registered for it");
    }
}

#[cfg(not(all(target_os = "linux", not(loom))))]
mod system {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn barrier() {}
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::thread;

    use super::*;

    /// Enough for the two threads to meet on two cores, and to fail where a fence is missing.
    const ROUNDS: usize = 300_000;

    /// In a cache line of its own: a store then waits for it while the load behind it does not.
    #[repr(align(128))]
    struct Round(AtomicUsize);

    /// Both sides store the number of their round, then load the other's. A round of one and a round of the other must
    /// not both have missed each other.
    fn assert_one_sees_the_other(means: u8) {
        let fence = AsymmetricFence { means: AtomicU8::new(means) };
        let [hot, cold] = [const { Round(AtomicUsize::new(0)) }; 2];
        let is_done = AtomicBool::new(false);
        let (last_that_saw, seen_by) = thread::scope(|scope| {
            let hot_side = scope.spawn(|| {
                // By round of the cold side: the last of the hot one that saw no later one.
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
        [UNDECIDED, BY_BOTH].into_iter().for_each(assert_one_sees_the_other);
    }
}
