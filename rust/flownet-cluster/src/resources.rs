//! Measures the resources of a process apart from its tasks. Each status report measures them with two calls and a file
//! of `/proc`.

use std::time::Duration;

use flownet_memory::SegmentPool;
use flownet_runtime::GarbageCollections;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Resources at one moment.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Resources {
    /// Resident memory; none if the system does not report it.
    pub(crate) resident_bytes: Option<u64>,
    /// Number of threads; none if the system does not report it.
    pub(crate) threads: Option<u64>,
    /// Number of open files, sockets and similar; none if the system does not report it at once.
    pub(crate) open_files: Option<u64>,
    /// Processor time in user and system mode since it began.
    pub(crate) cpu: Duration,
    /// Garbage collections of its interpreter.
    pub(crate) garbage: GarbageCollections,
    /// Segments of its network memory that pools have taken.
    pub(crate) segments_used: u64,
    /// All segments of its network memory.
    pub(crate) segments: u64,
}

impl Resources {
    pub(crate) fn now(pool: Option<&SegmentPool>, garbage: GarbageCollections) -> Self {
        let (segments, free) = pool.map_or((0, 0), |pool| (pool.total() as u64, pool.available() as u64));
        // Linux reports memory and threads in this file.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            resident_bytes: number_of(&status, "VmRSS:").map(|kibibytes| kibibytes * 1024),
            threads: number_of(&status, "Threads:"),
            open_files: open_files(),
            cpu: cpu_time(),
            garbage,
            segments_used: segments - free.min(segments),
            segments,
        }
    }
}

fn number_of(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the number of open files, which is the size of the folder with Linux 6.2 and newer. With older versions the
/// size is 0, and listing the files takes time proportional to their number.
fn open_files() -> Option<u64> {
    let folder = std::fs::metadata("/proc/self/fd").ok()?;
    Some(folder.len()).filter(|files| *files > 0)
}

fn cpu_time() -> Duration {
    let taken = clock_gettime(ClockId::ProcessCPUTime);
    // Neither part is negative for a process.
    Duration::new(taken.tv_sec.unsigned_abs(), taken.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_is_larger_than_a_megabyte_and_has_threads() {
        let resources = Resources::now(None, GarbageCollections::default());
        assert!(resources.resident_bytes.is_some_and(|bytes| bytes > 1 << 20));
        let other = std::thread::spawn(|| Resources::now(None, GarbageCollections::default()).threads);
        assert!(other.join().unwrap() >= Some(2));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn files_that_are_open_are_counted_where_that_is_told_at_once() {
        let Some(before) = open_files() else { return };
        // Other tests of the process open and close files meanwhile.
        let files: Vec<_> = (0..200).map(|_| std::fs::File::open("/proc/self/status").unwrap()).collect();
        assert!(open_files().is_some_and(|now| now >= before + 100), "{before} and {} more", files.len());
    }

    #[test]
    fn what_a_thread_computes_is_time_of_its_process() {
        let before = cpu_time();
        while cpu_time() < before + Duration::from_millis(20) {
            std::hint::black_box((0..1000).sum::<u64>());
        }
        assert!(Resources::now(None, GarbageCollections::default()).cpu >= before + Duration::from_millis(20));
    }

    #[test]
    fn what_the_system_does_not_tell_is_none() {
        assert_eq!(number_of("Name:\tflownet\nVmRSS:\t 1024 kB\nThreads:\tmany\n", "VmRSS:"), Some(1024));
        assert_eq!(number_of("VmRSS:\t 1024 kB\nThreads:\tmany\n", "Threads:"), None);
        assert_eq!(number_of("", "Threads:"), None);
    }

    #[test]
    fn segments_that_are_out_are_counted() {
        let pool = SegmentPool::new(4, 64).unwrap();
        let settings =
            flownet_memory::BufferPoolSettings { min: 1, max: None, lanes: 1, max_per_lane: 4, max_overdraft: 0 };
        let taken = pool.create_buffer_pool(settings).unwrap().try_take(0);
        let resources = Resources::now(Some(&pool), GarbageCollections::default());
        assert_eq!((resources.segments_used, resources.segments), (1, 4));
        drop(taken);
    }
}
