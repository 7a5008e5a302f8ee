//! Timers of either clock: ordered, each at most once.
//!
//! The service holds no clock; who uses it passes the time in and asks what is due.
//!
//! Most timers are set, and looked at again when they are due. So they are put in order late, and many at a time: each lies
//! in a leaf, in no order, until something is taken out of that.
//!
//! # Invariants
//! - I1: leaves follow each other: all timers of one lie before the bound of the next, and at or behind their own.
//! - I2: no leaf is empty, and none holds more than `MOST_IN_LEAF` timers.

mod kept;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

use flownet_core::keygroup::hash_key;

pub use self::kept::KeptTimers;
use crate::key::Key;
use crate::operator::KeyedRecord;

/// Whose timer it is: a key, and the form it was given in where that is another than the canonical one.
#[derive(Clone, Debug)]
pub struct TimerKey {
    key: Key,
    given: Option<Box<[u8]>>,
}

impl TimerKey {
    /// The key of a record.
    pub fn of(record: &KeyedRecord<'_>) -> Self {
        Self { key: record.key.into(), given: record.given().map(Into::into) }
    }

    /// A key that is held, with the form it was given in where that was another than the canonical one.
    pub fn held(key: &[u8], given: Option<&[u8]>) -> Self {
        Self { key: key.into(), given: given.map(Into::into) }
    }

    /// Its canonical bytes.
    pub fn key(&self) -> &[u8] {
        self.key.as_slice()
    }

    /// The hash of these.
    pub fn hash(&self) -> u32 {
        hash_key(self.key())
    }

    /// The form it was given in, where that was another than the canonical one.
    pub fn given(&self) -> Option<&[u8]> {
        self.given.as_deref()
    }

    /// Bytes that decode to the key as it was given.
    pub fn key_value(&self) -> &[u8] {
        self.given.as_deref().unwrap_or(self.key())
    }
}

impl PartialEq for TimerKey {
    fn eq(&self, other: &Self) -> bool {
        self.key.is(other.key())
    }
}

impl Eq for TimerKey {}

impl PartialOrd for TimerKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TimerKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(other.key())
    }
}

/// The timers of one task. `K` says whose timer it is, usually the key's bytes.
#[derive(Clone, Debug)]
pub struct TimerService<K> {
    /// The leaf with the earliest timers; empty if there are none.
    first: Leaf<K>,
    /// The others, by their bounds.
    leaves: BTreeMap<(i64, K), Leaf<K>>,
}

/// Some timers that follow each other.
#[derive(Clone, Debug)]
struct Leaf<K> {
    /// The latest first, as far as they are ordered, so that the earliest is taken from the end.
    timers: Vec<(i64, K)>,
    ordered: usize,
}

/// A leaf is put in order within a few caches, and there are few enough of them to be found in these.
const MOST_IN_LEAF: usize = 256;
/// The timers of fewer than these are counted one by one.
const FEW_LEAVES: usize = 4;
/// Fewer than these are put into their places one by one.
const FEW: usize = 6;

impl<K: Ord + Clone> TimerService<K> {
    /// No timers.
    pub fn new() -> Self {
        Self { first: Leaf::of(Vec::new()), leaves: BTreeMap::new() }
    }

    /// Sets a timer; one that is set already stays as it is.
    pub fn register(&mut self, timestamp_ms: i64, key: K) {
        let timer = (timestamp_ms, key);
        let leaf = Self::leaf_of(&mut self.first, &mut self.leaves, &timer);
        leaf.timers.push(timer);
        if leaf.timers.len() > MOST_IN_LEAF
            && let Some(later) = leaf.split()
        {
            let bound = later.timers.last().expect("half of the timers are there").clone();
            self.leaves.insert(bound, later);
        }
    }

    /// Takes a timer back, if it is set: gives whose it was.
    pub fn delete(&mut self, timestamp_ms: i64, key: K) -> Option<K> {
        let timer = (timestamp_ms, key);
        let leaf = Self::leaf_of(&mut self.first, &mut self.leaves, &timer);
        leaf.put_in_order();
        let found = leaf.timers.binary_search_by(|other| timer.cmp(other)).ok();
        let deleted = found.map(|at| {
            leaf.ordered -= 1;
            leaf.timers.remove(at).1
        });
        if leaf.timers.is_empty() {
            self.drop_leaf_of(&timer);
        }
        deleted
    }

    /// The earliest timer whose time has come. One at a time, because firing it may set or delete others.
    pub fn pop_due(&mut self, now_ms: i64) -> Option<(i64, K)> {
        self.first.put_in_order();
        let due = self.first.timers.pop_if(|(timestamp_ms, _)| *timestamp_ms <= now_ms)?;
        self.first.ordered -= 1;
        if self.first.timers.is_empty() {
            self.begin_next();
        }
        Some(due)
    }

    /// When the earliest timer is due.
    pub fn next_ms(&self) -> Option<i64> {
        let (ordered, others) = self.first.timers.split_at(self.first.ordered);
        ordered.last().into_iter().chain(others).map(|(timestamp_ms, _)| *timestamp_ms).min()
    }

    /// Those that are set, the earliest first.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &K)> {
        [&self.first].into_iter().chain(self.leaves.values()).flat_map(|leaf| {
            let mut timers: Vec<_> = leaf.timers.iter().collect();
            timers.sort_unstable();
            timers.dedup();
            timers.into_iter().map(|(timestamp_ms, key)| (*timestamp_ms, key))
        })
    }

    /// The same in no order; one that was set twice lately may come twice.
    pub(crate) fn unordered(&self) -> impl Iterator<Item = &(i64, K)> {
        [&self.first].into_iter().chain(self.leaves.values()).flat_map(|leaf| &leaf.timers)
    }

    /// How many are set; where they are many, about: one that was set twice lately may count twice, so that only the leaves
    /// are looked at.
    pub fn len(&self) -> usize {
        if self.leaves.len() < FEW_LEAVES {
            return self.iter().count();
        }
        self.leaves.values().chain([&self.first]).map(|leaf| leaf.timers.len()).sum()
    }

    /// Whether no timer is set.
    pub fn is_empty(&self) -> bool {
        self.first.timers.is_empty()
    }

    /// The leaf that a timer belongs to.
    #[inline]
    fn leaf_of<'a>(
        first: &'a mut Leaf<K>,
        leaves: &'a mut BTreeMap<(i64, K), Leaf<K>>,
        timer: &(i64, K),
    ) -> &'a mut Leaf<K> {
        leaves.range_mut((Bound::Unbounded, Bound::Included(timer))).next_back().map_or(first, |(_, leaf)| leaf)
    }

    #[cold]
    fn drop_leaf_of(&mut self, timer: &(i64, K)) {
        let bound = self.leaves.range((Bound::Unbounded, Bound::Included(timer))).next_back().map(|(at, _)| at.clone());
        match bound {
            Some(bound) => drop(self.leaves.remove(&bound)),
            None => self.begin_next(),
        }
    }

    /// The first leaf is empty: goes on with the next one.
    fn begin_next(&mut self) {
        if let Some((_, next)) = self.leaves.pop_first() {
            self.first = next;
        }
    }
}

impl<K: Ord> Leaf<K> {
    fn of(timers: Vec<(i64, K)>) -> Self {
        Self { ordered: timers.len(), timers }
    }

    #[inline]
    fn put_in_order(&mut self) {
        match self.timers.len() - self.ordered {
            0 => {}
            1..FEW => self.insert_others(),
            _ => self.order(),
        }
    }

    /// For when timers are set and fire in turn. Of equal ones the first stays, as in `order`.
    fn insert_others(&mut self) {
        while let Some(timer) = self.timers.get(self.ordered) {
            let at = self.timers[..self.ordered].partition_point(|other| other > timer);
            if at < self.ordered && self.timers[at] == *timer {
                self.timers.swap_remove(self.ordered);
            } else {
                self.timers[at..=self.ordered].rotate_right(1);
                self.ordered += 1;
            }
        }
    }

    /// The sort finds what is in order already, and leaves equal ones as they came.
    fn order(&mut self) {
        self.timers.sort_by(|one, other| other.cmp(one));
        self.timers.dedup();
        self.ordered = self.timers.len();
    }

    /// Gives away the later half, unless timers that were set twice took the room.
    fn split(&mut self) -> Option<Self> {
        self.order();
        if self.timers.len() <= MOST_IN_LEAF / 2 {
            return None;
        }
        let earlier = self.timers.split_off(self.timers.len() / 2);
        let mut later = std::mem::replace(&mut self.timers, earlier);
        self.ordered = self.timers.len();
        // Few come back to leaves that are split, where timers are set in the order of time.
        later.shrink_to_fit();
        Some(Self::of(later))
    }
}

impl<K: Ord + Clone> Default for TimerService<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_same_timer_set_twice_fires_once() {
        let mut timers = TimerService::new();
        ["a", "b", "a"].into_iter().for_each(|key| timers.register(5, key));
        assert_eq!(timers.pop_due(5), Some((5, "a")));
        assert_eq!(timers.pop_due(5), Some((5, "b")));
        assert_eq!(timers.pop_due(5), None);
    }

    #[test]
    fn a_deleted_timer_does_not_fire() {
        let mut timers = TimerService::new();
        timers.register(5, "a");
        timers.delete(5, "b");
        timers.delete(5, "a");
        timers.delete(5, "a");
        assert_eq!((timers.pop_due(i64::MAX), timers.next_ms(), timers.is_empty()), (None, None, true));
    }

    #[test]
    fn a_timer_set_while_firing_is_seen() {
        let mut timers = TimerService::new();
        timers.register(1, 0);
        let mut fired = Vec::new();
        while let Some((timestamp_ms, generation)) = timers.pop_due(3) {
            fired.push(timestamp_ms);
            timers.register(timestamp_ms + 1, generation + 1);
        }
        assert_eq!((fired, timers.next_ms()), (vec![1, 2, 3], Some(4)));
    }

    /// Any sequence fires what a sorted set would, with many of few times and few of many, so that leaves come and go.
    fn against_model(ops: Vec<(u8, i64, u16)>) -> Result<(), TestCaseError> {
        let mut timers = TimerService::new();
        let mut model = BTreeSet::new();
        for (op, at, key) in ops {
            match op {
                0..=4 => {
                    timers.register(at, key);
                    model.insert((at, key));
                }
                5 => {
                    timers.delete(at, key);
                    model.remove(&(at, key));
                }
                6 => {
                    // One that is there.
                    if let Some((at, key)) = model.range((at, key)..).next().copied() {
                        timers.delete(at, key);
                        model.remove(&(at, key));
                    }
                }
                _ => {
                    let now = model.first().map_or(at, |(first, _)| first + at / 8);
                    let later = model.split_off(&(now + 1, 0));
                    let fired: Vec<_> = std::iter::from_fn(|| timers.pop_due(now)).collect();
                    prop_assert_eq!(fired, model.into_iter().collect::<Vec<_>>());
                    model = later;
                }
            }
            prop_assert_eq!(timers.next_ms(), model.first().map(|timer| timer.0));
            prop_assert_eq!(timers.is_empty(), model.is_empty());
            let is_counted = if timers.leaves.len() < FEW_LEAVES { usize::eq } else { usize::ge };
            prop_assert!(is_counted(&timers.len(), &model.len()));
        }
        prop_assert!(timers.leaves.values().all(|leaf| (1..=MOST_IN_LEAF).contains(&leaf.timers.len())), "I2");
        let kept: Vec<_> = timers.iter().map(|(at, key)| (at, *key)).collect();
        prop_assert_eq!(kept, model.into_iter().collect::<Vec<_>>());
        Ok(())
    }

    proptest! {
        #[test]
        fn any_sequence_fires_what_a_sorted_list_would(
            ops in proptest::collection::vec((0u8..8, 0i64..20, 0u16..5), 0..200)
        ) {
            against_model(ops)?;
        }

        #[test]
        fn any_long_sequence_does(
            ops in proptest::collection::vec((0u8..7, 0i64..50, any::<u16>()), 0..3000),
            last in proptest::collection::vec((0u8..8, 0i64..50, any::<u16>()), 0..100),
        ) {
            against_model(ops.into_iter().chain(last).collect())?;
        }
    }
}
