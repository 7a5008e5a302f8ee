//! Reads the CPU time of a task's thread and its run-queue delay.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time of a task since some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSpent {
    /// Time that counts as busy.
    pub busy: Duration,
    /// Time that counts as idle.
    pub idle: Duration,
    /// CPU time of the task's thread.
    pub worked: Duration,
    /// Run-queue delay of the task's thread: time it was runnable but not running. Zero if the system does not report
    /// it.
    pub queued: Duration,
    /// CPU time of the process.
    pub process: Duration,
}

impl TimeSpent {
    /// Returns the time since an earlier moment.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(earlier.busy),
            idle: self.idle.saturating_sub(earlier.idle),
            worked: self.worked.saturating_sub(earlier.worked),
            queued: self.queued.saturating_sub(earlier.queued),
            process: self.process.saturating_sub(earlier.process),
        }
    }
}

pub(crate) fn cpu_time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns the run-queue delay of this thread since it started. Linux reports it in a file that the thread holds open.
pub(crate) fn queued() -> Duration {
    thread_local!(static SCHEDSTAT: Option<File> = File::open("/proc/thread-self/schedstat").ok());
    let mut line = [0; 64];
    let read = SCHEDSTAT.try_with(|file| file.as_ref()?.read_at(&mut line, 0).ok());
    let read = read.ok().flatten().unwrap_or(0);
    line.get(..read).and_then(wait_in_queue).unwrap_or_default()
}

/// Parses "time on a processor, time in its queue, turns" and returns the second. Both times are in nanoseconds.
fn wait_in_queue(schedstat: &[u8]) -> Option<Duration> {
    let field = std::str::from_utf8(schedstat).ok()?.split_ascii_whitespace().nth(1)?;
    field.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_for_a_processor_is_the_second_number_of_its_line() {
        assert_eq!(wait_in_queue(b"871872708 80910 12\n"), Some(Duration::from_nanos(80_910)));
        for other in [&b""[..], b"871872708", b"1 x 2", b"1 -5 2", &[0xff, b' ', b'1']] {
            assert_eq!(wait_in_queue(other), None, "{other:?}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn threads_that_share_a_processor_wait_for_it() {
        use std::sync::atomic::{AtomicUsize, Ordering};

        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

        // Some systems do not report it, or report zero.
        if std::fs::read_to_string("/proc/thread-self/schedstat").map_or(true, |line| line.starts_with("0 ")) {
            return;
        }
        let any = sched_getaffinity(None).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|cpu| any.is_set(*cpu)).unwrap());
        let have_waited = AtomicUsize::new(0);
        let competes = || {
            sched_setaffinity(None, &one).unwrap();
            let before = queued();
            while queued() == before {
                std::hint::spin_loop();
            }
            have_waited.fetch_add(1, Ordering::Relaxed);
            // The other thread waits only as long as this one computes.
            while have_waited.load(Ordering::Relaxed) < 2 {
                std::hint::spin_loop();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(competes);
            scope.spawn(competes);
        });
        assert_eq!(have_waited.into_inner(), 2);
    }
}
