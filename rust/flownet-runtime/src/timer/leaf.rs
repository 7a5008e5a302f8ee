//! A range of adjacent timers.
//!
//! # Invariants
//! - L1: packed timers are sorted, each once.
//! - L2: of equal timers, the one that was set first stays, packed or not.

use super::packed::{PackedTimers, TimerOwner};

/// The timers of one leaf: packed ones, and those that were set since.
#[derive(Clone, Debug)]
pub(super) struct Leaf<K> {
    packed: PackedTimers,
    /// The first `ordered` are sorted, the latest first, so that the earliest is taken from the end.
    loose: Vec<(i64, K)>,
    ordered: usize,
}

/// A leaf is sorted within the caches nearest to the processor, and there are few enough leaves to be found in these.
pub(super) const MOST_IN_LEAF: usize = 256;
/// If this many timers in a row belonged to the later half of a leaf, few will belong to the other half.
const FEW_LATELY: usize = 8;
/// Fewer timers than these are inserted one by one.
const FEW: usize = 6;

impl<K: TimerOwner> Leaf<K> {
    /// A leaf without timers.
    pub(super) fn new() -> Self {
        Self { packed: PackedTimers::default(), loose: Vec::new(), ordered: 0 }
    }

    /// A leaf of sorted timers.
    pub(super) fn of(mut timers: Vec<(i64, K)>) -> Self {
        timers.reverse();
        Self { packed: PackedTimers::of(&timers), loose: Vec::new(), ordered: 0 }
    }

    /// Number of timers. Those that were recently set twice count twice.
    pub(super) fn len(&self) -> usize {
        self.packed.len() + self.loose.len()
    }

    /// Number of packed timers.
    #[cfg(test)]
    pub(super) fn packed(&self) -> usize {
        self.packed.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packed.is_empty() && self.loose.is_empty()
    }

    /// Adds a timer, unsorted.
    #[inline]
    pub(super) fn push(&mut self, timer: (i64, K)) {
        self.loose.push(timer);
    }

    /// Removes a timer, if it is there.
    pub(super) fn remove(&mut self, timer: &(i64, K)) -> Option<(i64, K)> {
        self.put_in_order();
        let found = self.loose.binary_search_by(|other| timer.cmp(other)).ok();
        let loose = found.map(|at| {
            self.ordered -= 1;
            self.loose.remove(at)
        });
        self.packed.remove(timer).or(loose)
    }

    /// Takes the earliest timer, if `is_due` returns true for its time.
    pub(super) fn pop_if(&mut self, is_due: impl FnOnce(i64) -> bool) -> Option<(i64, K)> {
        self.unpack();
        self.put_in_order();
        let due = self.loose.pop_if(|(timestamp_ms, _)| is_due(*timestamp_ms))?;
        self.ordered -= 1;
        Some(due)
    }

    /// The time of the earliest timer.
    pub(super) fn first_ms(&self) -> Option<i64> {
        let (ordered, others) = self.loose.split_at(self.ordered);
        let loose = ordered.last().into_iter().chain(others).map(|(timestamp_ms, _)| *timestamp_ms);
        loose.chain(self.packed.first_ms()).min()
    }

    /// Splits off the later half, with its earliest timer as bound. Returns `None` if duplicates took the room. The
    /// other half is packed if `may_pack` allows it and the last timers that came all belong to the later half.
    pub(super) fn split(&mut self, may_pack: bool) -> Option<((i64, K), Self)> {
        let lately = self.loose.iter().rev().take(FEW_LATELY).map(|(timestamp_ms, _)| *timestamp_ms).min();
        self.unpack();
        self.order();
        if self.loose.len() <= MOST_IN_LEAF / 2 {
            return None;
        }
        let earlier = self.loose.split_off(self.loose.len() / 2);
        let later = std::mem::replace(&mut self.loose, earlier);
        self.ordered = self.loose.len();
        let bound = later.last().expect("half of the timers are there").clone();
        if may_pack && lately.is_some_and(|timestamp_ms| timestamp_ms >= bound.0) {
            self.pack();
        }
        Some((bound, Self { packed: PackedTimers::default(), ordered: later.len(), loose: later }))
    }

    fn pack(&mut self) {
        self.packed = PackedTimers::of(&self.loose);
        (self.loose, self.ordered) = (Vec::new(), 0);
    }

    /// Approximate bytes of its heap memory.
    pub(super) fn bytes(&self) -> usize {
        let elsewhere: usize = self.loose.iter().map(|(_, key)| key.bytes_elsewhere()).sum();
        self.packed.bytes() + self.loose.capacity() * size_of::<(i64, K)>() + elsewhere
    }

    /// Visits timers that were set after at least `taken` snapshots, and some others, unsorted. A timer that was
    /// recently set twice may come twice.
    pub(super) fn each_since(&self, taken: u32, mut show: impl FnMut(i64, &K)) {
        if self.packed.newest() >= taken {
            self.packed.iter::<K>().for_each(|(timestamp_ms, key)| show(timestamp_ms, &key));
        }
        self.loose.iter().for_each(|(timestamp_ms, key)| show(*timestamp_ms, key));
    }

    /// The timers, the earliest first, each once.
    pub(super) fn in_order(&self) -> Vec<(i64, K)> {
        let mut timers: Vec<_> = self.packed.iter().chain(self.loose.iter().cloned()).collect();
        order(&mut timers);
        timers.reverse();
        timers
    }

    /// Unpacks all packed timers.
    fn unpack(&mut self) {
        if !self.packed.is_empty() {
            let mut timers = Vec::with_capacity(self.len());
            timers.extend(self.packed.iter());
            timers.reverse();
            self.ordered = timers.len();
            timers.append(&mut self.loose);
            (self.packed, self.loose) = (PackedTimers::default(), timers);
        }
    }

    /// Sorts the timers that are not packed.
    #[inline]
    fn put_in_order(&mut self) {
        match self.loose.len() - self.ordered {
            0 => {}
            1..FEW => self.insert_others(),
            _ => self.order(),
        }
    }

    /// For timers that are set and fire in turn. Of equal ones the first stays, as in `order`.
    fn insert_others(&mut self) {
        while let Some(timer) = self.loose.get(self.ordered) {
            let at = self.loose[..self.ordered].partition_point(|other| other > timer);
            if at < self.ordered && self.loose[at] == *timer {
                self.loose.swap_remove(self.ordered);
            } else {
                self.loose[at..=self.ordered].rotate_right(1);
                self.ordered += 1;
            }
        }
    }

    fn order(&mut self) {
        order(&mut self.loose);
        self.ordered = self.loose.len();
    }
}

/// Sorts the latest first. The sort detects sorted runs, and leaves equal timers in order of arrival.
fn order<K: Ord>(timers: &mut Vec<(i64, K)>) {
    timers.sort_by(|one, other| other.cmp(one));
    timers.dedup();
}
