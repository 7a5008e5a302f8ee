//! What a process uses, apart from its tasks.

use flownet_memory::SegmentPool;
use serde::{Deserialize, Serialize};

/// As of one moment.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Resources {
    /// Memory that is in RAM; none where the system does not tell.
    pub(crate) resident_bytes: Option<u64>,
    /// Segments of its network memory that pools have taken.
    pub(crate) segments_used: u64,
    /// All of them.
    pub(crate) segments: u64,
}

impl Resources {
    pub(crate) fn now(pool: Option<&SegmentPool>) -> Self {
        let (segments, free) = pool.map_or((0, 0), |pool| (pool.total() as u64, pool.available() as u64));
        Self { resident_bytes: resident_bytes(), segments_used: segments - free.min(segments), segments }
    }
}

/// Linux tells in a file.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_is_larger_than_a_megabyte() {
        assert!(Resources::now(None).resident_bytes.is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn segments_that_are_out_are_counted() {
        let pool = SegmentPool::new(4, 64).unwrap();
        let settings =
            flownet_memory::BufferPoolSettings { min: 1, max: None, lanes: 1, max_per_lane: 4, max_overdraft: 0 };
        let taken = pool.create_buffer_pool(settings).unwrap().try_take(0);
        let resources = Resources::now(Some(&pool));
        assert_eq!((resources.segments_used, resources.segments), (1, 4));
        drop(taken);
    }
}
