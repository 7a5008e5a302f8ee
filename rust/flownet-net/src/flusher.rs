//! Flushes all partitions of a process that have a flush timeout, with one timer.
//!
//! # Invariants
//! - I1: bytes written to a registered partition are visible to its reader after at most its timeout, plus the system's
//!   delay in waking a thread.
//! - I2: while nothing is written, the flusher sleeps without a timer until a writer wakes it.
//! - I3: no lock of this module is held while partitions are flushed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use flownet_core::PartitionId;
use flownet_core::partition::PartitionHandle;
use tokio::sync::Notify;

use crate::alarm::Alarm;

/// State shared by the flushing task and the threads that register partitions.
#[derive(Debug, Default)]
pub(crate) struct Flusher {
    groups: Mutex<Groups>,
    changed: Arc<FlusherWaker>,
}

/// Wakes the flusher for a new group, and for a write to a partition that was idle.
#[derive(Debug, Default)]
struct FlusherWaker(Notify);

impl Wake for FlusherWaker {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Partitions by timeout. Each distinct timeout has one due time.
type Groups = BTreeMap<Duration, Group>;

#[derive(Debug)]
struct Group {
    /// `None` while all partitions are idle. Their writers then wake the flusher.
    due: Option<Instant>,
    /// Consecutive rounds without a dirty partition.
    idle_rounds: u32,
    partitions: Vec<PartitionHandle>,
}

impl Flusher {
    /// Flushes `partition` every `timeout` from now on.
    pub(crate) fn register(&self, partition: PartitionHandle, timeout: Duration) {
        let begins = {
            let mut groups = self.lock();
            let group =
                groups.entry(timeout).or_insert_with(|| Group { due: None, idle_rounds: 0, partitions: Vec::new() });
            group.partitions.push(partition);
            group.due.is_none()
        };
        if begins {
            self.changed.0.notify_one();
        }
    }

    /// Removes a partition. No effect if it was never registered.
    pub(crate) fn remove(&self, id: PartitionId) {
        let mut groups = self.lock();
        for group in groups.values_mut() {
            group.partitions.retain(|partition| partition.id() != id);
        }
        groups.retain(|_, group| !group.partitions.is_empty());
    }

    /// Removes all partitions.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    /// Flushes until the environment drops the future.
    pub(crate) async fn run(&self) {
        let (alarm, mut due) = (Alarm::new(), Vec::new());
        let waker = Waker::from(Arc::clone(&self.changed));
        loop {
            let left = self.next_due().map(|next| next.saturating_duration_since(Instant::now()));
            tokio::select! {
                () = alarm.wait(left.unwrap_or_default()), if left.is_some() => {}
                () = self.changed.0.notified() => {
                    self.resume(Instant::now());
                    continue;
                }
            }
            self.collect_due(Instant::now(), &mut due);
            for partition in due.drain(..) {
                partition.flush_dirty();
            }
            self.doze(&waker);
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.lock().values().filter_map(|group| group.due).min()
    }

    fn collect_due(&self, now: Instant, due: &mut Vec<PartitionHandle>) {
        for (timeout, group) in self.lock().iter_mut() {
            let Some(was_due) = group.due.filter(|due| *due <= now) else { continue };
            // Count from the due time, or the lateness of each flush would add up. But if that time has passed too,
            // count from now: a late flush must not be followed by a burst.
            let next = was_due + *timeout;
            group.due = Some(if next > now { next } else { now + *timeout });
            let before = due.len();
            due.extend(group.partitions.iter().filter(|partition| partition.is_dirty()).cloned());
            group.idle_rounds = if due.len() > before { 0 } else { group.idle_rounds.saturating_add(1) };
        }
    }

    /// Stops the timer of groups in which nothing was written for some time.
    fn doze(&self, waker: &Waker) {
        let idle = |group: &&mut Group| group.due.is_some() && group.idle_rounds >= IDLE_ROUNDS;
        let partitions: Vec<PartitionHandle> =
            self.lock().values_mut().filter(idle).flat_map(|group| group.partitions.iter().cloned()).collect();
        if partitions.is_empty() {
            return;
        }
        PartitionHandle::doze(&partitions, waker);
        for group in self.lock().values_mut().filter(idle) {
            if group.partitions.iter().all(PartitionHandle::is_dozing) {
                group.due = None;
            } else {
                // A writer was faster, or a partition was registered meanwhile.
                group.idle_rounds = 0;
            }
        }
    }

    /// Starts the timer of groups that are new or were written to.
    fn resume(&self, now: Instant) {
        for (timeout, group) in self.lock().iter_mut().filter(|(_, group)| group.due.is_none()) {
            if !group.partitions.iter().all(PartitionHandle::is_dozing) {
                group.due = Some(now + *timeout);
                group.idle_rounds = 0;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Groups> {
        // No foreign code runs under this lock, so a poisoned map is still consistent.
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dozing and waking up again costs about as much as this many rounds.
const IDLE_ROUNDS: u32 = 16;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use flownet_core::partition::ResultPartition;
    use flownet_core::{PoolSizing, SubpartitionIndex};
    use flownet_memory::SegmentPool;

    use super::*;

    #[derive(Default)]
    struct WakeCount(AtomicU32);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Partition whose reader has checked and found nothing.
    fn partition(segments: &Arc<SegmentPool>, id: u64) -> (ResultPartition, Arc<WakeCount>) {
        let pool = segments.create_buffer_pool(PoolSizing::default().partition(1)).unwrap();
        let partition = ResultPartition::new(PartitionId::new(id), pool, 1);
        let wakes = Arc::new(WakeCount::default());
        partition.subpartitions()[0].attach_reader(Arc::clone(&wakes).into()).unwrap();
        assert!(partition.subpartitions()[0].poll().is_none());
        (partition, wakes)
    }

    fn write(partition: &mut ResultPartition) {
        let first = SubpartitionIndex::new(0);
        assert_eq!(partition.try_write(first, b"record"), 6);
        partition.end_record(first);
    }

    fn wakes(wakes: &WakeCount) -> u32 {
        wakes.0.load(Ordering::Relaxed)
    }

    fn flush(flusher: &Flusher, now: Instant) {
        let mut due = Vec::new();
        flusher.collect_due(now, &mut due);
        due.iter().for_each(PartitionHandle::flush_dirty);
    }

    #[test]
    fn each_partition_is_flushed_in_its_own_time_and_not_before() {
        let segments = SegmentPool::new(4, 64).unwrap();
        let flusher = Flusher::default();
        let (mut slow, slow_wakes) = partition(&segments, 1);
        let (mut fast, fast_wakes) = partition(&segments, 2);
        let start = Instant::now();
        flusher.register(slow.handle(), Duration::from_secs(100));
        flusher.register(fast.handle(), Duration::from_secs(10));
        flusher.resume(start);
        let after = |seconds| start + Duration::from_secs(seconds);
        write(&mut slow);
        write(&mut fast);
        flush(&flusher, after(9));
        assert_eq!((wakes(&slow_wakes), wakes(&fast_wakes)), (0, 0));
        flush(&flusher, after(15));
        assert_eq!((wakes(&slow_wakes), wakes(&fast_wakes)), (0, 1));
        flush(&flusher, after(115));
        assert_eq!((wakes(&slow_wakes), wakes(&fast_wakes)), (1, 1), "what is flushed is not flushed again");

        flusher.remove(PartitionId::new(1));
        assert!(slow.subpartitions()[0].poll().is_some());
        assert!(slow.subpartitions()[0].poll().is_none());
        write(&mut slow);
        flush(&flusher, after(1000));
        assert_eq!(wakes(&slow_wakes), 1, "a removed partition is left alone");
        drop((slow, fast));
        flusher.clear();
        assert_eq!(segments.available(), 4);
    }

    #[tokio::test]
    async fn a_running_flusher_comes_by_for_what_is_registered_while_it_sleeps() {
        let segments = SegmentPool::new(4, 64).unwrap();
        let flusher = Arc::new(Flusher::default());
        let running = tokio::spawn({
            let flusher = Arc::clone(&flusher);
            async move { flusher.run().await }
        });
        let (mut slow, slow_wakes) = partition(&segments, 1);
        let (mut fast, fast_wakes) = partition(&segments, 2);
        flusher.register(slow.handle(), Duration::from_secs(3600));
        tokio::time::sleep(Duration::from_millis(1)).await;
        flusher.register(fast.handle(), Duration::from_millis(2));
        write(&mut slow);
        write(&mut fast);
        while wakes(&fast_wakes) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(wakes(&slow_wakes), 0);
        running.abort();
        drop((slow, fast));
        flusher.clear();
        assert_eq!(segments.available(), 4);
    }

    #[tokio::test]
    async fn a_running_flusher_that_has_fallen_asleep_comes_by_for_the_next_record() {
        let segments = SegmentPool::new(4, 64).unwrap();
        let flusher = Arc::new(Flusher::default());
        let running = tokio::spawn({
            let flusher = Arc::clone(&flusher);
            async move { flusher.run().await }
        });
        let (mut partition, wakes_of_it) = partition(&segments, 1);
        flusher.register(partition.handle(), Duration::from_micros(100));
        for round in 1..=3 {
            while !partition.handle().is_dozing() || flusher.next_due().is_some() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            write(&mut partition);
            while wakes(&wakes_of_it) < round {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            while partition.subpartitions()[0].poll().is_some() {}
        }
        running.abort();
    }

    #[test]
    fn late_timers_do_not_add_up_and_are_not_made_up_for() {
        let segments = SegmentPool::new(2, 64).unwrap();
        let flusher = Flusher::default();
        let (partition, _wakes) = partition(&segments, 1);
        let timeout = Duration::from_millis(10);
        flusher.register(partition.handle(), timeout);
        flusher.resume(Instant::now());
        let due = flusher.next_due().unwrap();
        let mut collected = Vec::new();
        flusher.collect_due(due + Duration::from_millis(1), &mut collected);
        assert_eq!(flusher.next_due(), Some(due + timeout));
        let late = due + Duration::from_millis(35);
        flusher.collect_due(late, &mut collected);
        assert_eq!(flusher.next_due(), Some(late + timeout));
    }

    #[test]
    fn a_flusher_with_nothing_to_do_waits_for_no_time_but_for_a_writer() {
        let segments = SegmentPool::new(4, 64).unwrap();
        let flusher = Flusher::default();
        assert_eq!(flusher.next_due(), None);
        let (mut partition, _wakes) = partition(&segments, 1);
        let (bell, rung) = (Arc::new(WakeCount::default()), |bell: &Arc<WakeCount>| wakes(bell));
        let (waker, timeout, start) = (Waker::from(Arc::clone(&bell)), Duration::from_secs(10), Instant::now());
        flusher.register(partition.handle(), timeout);
        flusher.resume(start);
        for round in 1..=IDLE_ROUNDS {
            assert_eq!(flusher.next_due(), Some(start + timeout * round));
            flush(&flusher, start + timeout * round);
            flusher.doze(&waker);
        }
        assert_eq!((flusher.next_due(), rung(&bell)), (None, 0));

        write(&mut partition);
        write(&mut partition);
        assert_eq!(rung(&bell), 1);
        let later = start + Duration::from_secs(1_000_000);
        flusher.resume(later);
        assert_eq!(flusher.next_due(), Some(later + timeout), "bytes wait for the timeout, and no longer");
        flusher.remove(PartitionId::new(1));
        assert_eq!(flusher.next_due(), None);
    }

    #[test]
    fn a_flusher_does_not_doze_while_one_partition_is_written() {
        let segments = SegmentPool::new(4, 64).unwrap();
        let flusher = Flusher::default();
        let (idle, _) = partition(&segments, 1);
        let (mut busy, _) = partition(&segments, 2);
        let (waker, timeout, start) = (Waker::noop(), Duration::from_secs(10), Instant::now());
        flusher.register(idle.handle(), timeout);
        flusher.register(busy.handle(), timeout);
        flusher.resume(start);
        for round in 1..=2 * IDLE_ROUNDS {
            write(&mut busy);
            flush(&flusher, start + timeout * round);
            flusher.doze(waker);
            while busy.subpartitions()[0].poll().is_some() {}
        }
        assert!(flusher.next_due().is_some());
    }
}
