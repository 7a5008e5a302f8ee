//! The two clocks of a measurement.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// CPU time of this process on all its threads so far, user and system, in nanoseconds.
pub(crate) fn process_cpu_ns() -> u64 {
    to_ns(clock_gettime(ClockId::ProcessCPUTime))
}

/// A clock that all processes of this machine share, in nanoseconds. Reading it is no system call.
#[inline]
pub(crate) fn monotonic_ns() -> u64 {
    to_ns(clock_gettime(ClockId::Monotonic))
}

#[inline]
fn to_ns(time: Timespec) -> u64 {
    // Neither clock is ever negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_grows_in_steps_finer_than_a_clock_tick() {
        let before = process_cpu_ns();
        while process_cpu_ns() < before + 100_000 {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn the_monotonic_clock_goes_forward() {
        let before = monotonic_ns();
        assert!(monotonic_ns() >= before);
    }
}
