//! One timer for all partitions of a process that want to be flushed at most so late.
//!
//! # Invariants
//! - I1: bytes written to a registered partition are visible to its reader after at most its timeout, plus the
//!   precision of the runtime's timer (a millisecond).
//! - I2: with nothing registered the flusher sleeps without a timer.
//! - I3: partitions are flushed with no lock of ours held.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flownet_core::PartitionId;
use flownet_core::partition::PartitionHandle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Shared between the task that flushes and those who register.
#[derive(Debug, Default)]
pub(crate) struct Flusher {
    groups: Mutex<Groups>,
    changed: Notify,
}

/// Partitions by timeout: one due time for each distinct timeout.
type Groups = BTreeMap<Duration, Group>;

#[derive(Debug)]
struct Group {
    due: Instant,
    partitions: Vec<PartitionHandle>,
}

impl Flusher {
    /// Flushes `partition` every `timeout` from now on.
    pub(crate) fn register(&self, partition: PartitionHandle, timeout: Duration) {
        let group_is_new = {
            let mut groups = self.lock();
            let before = groups.len();
            let group = groups
                .entry(timeout)
                .or_insert_with(|| Group { due: Instant::now() + timeout, partitions: Vec::new() });
            group.partitions.push(partition);
            groups.len() > before
        };
        if group_is_new {
            self.changed.notify_one();
        }
    }

    /// Forgets a partition; harmless if it was never registered.
    pub(crate) fn remove(&self, id: PartitionId) {
        let mut groups = self.lock();
        for group in groups.values_mut() {
            group.partitions.retain(|partition| partition.id() != id);
        }
        groups.retain(|_, group| !group.partitions.is_empty());
    }

    /// Forgets all partitions.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    /// Flushes for ever; the environment ends it by dropping the future.
    pub(crate) async fn run(&self) {
        let mut due = Vec::new();
        loop {
            let next = self.next_due();
            tokio::select! {
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
                () = self.changed.notified() => continue,
            }
            self.collect_due(Instant::now(), &mut due);
            for partition in due.drain(..) {
                partition.flush_dirty();
            }
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.lock().values().map(|group| group.due).min()
    }

    fn collect_due(&self, now: Instant, due: &mut Vec<PartitionHandle>) {
        for (timeout, group) in self.lock().iter_mut() {
            if group.due <= now {
                // From now, not from when it was due: a late timer must not be followed by a burst.
                group.due = now + *timeout;
                due.extend(group.partitions.iter().filter(|partition| partition.is_dirty()).cloned());
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Groups> {
        // No code of others runs under this lock: a poisoned map is still whole.
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
