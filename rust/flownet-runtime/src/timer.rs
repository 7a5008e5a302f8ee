//! Timers of either clock: ordered, each at most once.
//!
//! The service holds no clock; who uses it passes the time in and asks what is due.
//!
//! Most timers are set, and looked at again when they are due. So they are put in order late, and many at a time: each lies
//! in a leaf, in no order, until something is taken out of that. Where they are many, and due one behind the other as they are
//! set, all but the first and the last ones are packed.
//!
//! Where a job's state may lie [on disk](TimerService::open), those that are far from being due do, too, once there is no room
//! for them.
//!
//! # Invariants
//! - I1: leaves follow each other: all timers of one lie before the bound of the next, and at or behind their own.
//! - I2: no leaf is empty, and none holds more than `MOST_IN_LEAF` timers.
//! - I3: the first timer is near: where none is, there is none far off.

mod far;
mod kept;
mod leaf;
mod log;
mod packed;
mod pages;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

use flownet_core::keygroup::hash_key;

use self::far::Far;
pub use self::kept::KeptTimers;
pub(crate) use self::kept::TimersSince;
use self::leaf::{Leaf, MOST_IN_LEAF};
pub use self::packed::TimerOwner;
use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::key::Key;
use crate::operator::KeyedRecord;
use crate::spec::StateBackend;
use crate::state::{DiskStateError, of_timers};
use crate::varint::{put_varint, take_varint};

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

/// The form that the key was given in with its length, and the key.
impl TimerOwner for TimerKey {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.given().map_or(0, |given| given.len() as u64 + 1));
        out.extend(self.given().unwrap_or_default());
        out.extend_from_slice(self.key());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (more, rest) = take_varint(bytes).ok()?;
        Some(match usize::try_from(more).ok()?.checked_sub(1) {
            None => Self::held(rest, None),
            Some(given) => {
                let (given, key) = rest.split_at_checked(given)?;
                Self::held(key, Some(given))
            }
        })
    }

    fn bytes_elsewhere(&self) -> usize {
        self.key.bytes_elsewhere() + self.given().map_or(0, <[u8]>::len)
    }
}

/// The timers of one task. `K` says whose timer it is, usually the key's bytes.
pub struct TimerService<K> {
    /// The leaf with the earliest timers; empty if there are none.
    first: Leaf<K>,
    /// The others, by their bounds.
    leaves: BTreeMap<(i64, K), Leaf<K>>,
    /// Those that are due behind all of these, where they may lie on disk.
    far: Option<Box<Far<K>>>,
}

/// The timers of fewer than these are counted one by one.
const FEW_LEAVES: usize = 4;
/// One takes so many bytes on disk, beside those of a long key, about.
const WRITTEN_BYTES: usize = 16;
/// Fewer than these take no room that is worth the time to pack them.
const MANY_LEAVES: usize = if cfg!(test) { 2 } else { 64 };

impl<K: TimerOwner> TimerService<K> {
    /// No timers.
    pub fn new() -> Self {
        Self { first: Leaf::new(), leaves: BTreeMap::new(), far: None }
    }

    /// Lets what has no room in memory lie where the job says. `state` is what the timers are called, for errors; `among` is
    /// how many services have the memory for timers of one operator, in equal parts.
    pub fn open(&mut self, state: &str, among: usize, cx: &TaskContext) {
        let StateBackend::Disk { memory_bytes, folder } = &cx.state else { return };
        let about = DiskStateError::of(state, folder.as_deref(), cx);
        self.open_in(about, of_timers(*memory_bytes) / among);
    }

    /// The same in a folder, with so much memory: `about` says that, and whose they are.
    pub fn open_in(&mut self, about: DiskStateError, memory_bytes: usize) {
        self.far = Some(Box::new(Far::new(about, memory_bytes)));
    }

    /// All of them, which lie here no more.
    #[must_use]
    pub fn take(&mut self) -> Self {
        let far = self.far.as_ref().map(|far| Box::new(far.like()));
        std::mem::replace(self, Self { first: Leaf::new(), leaves: BTreeMap::new(), far })
    }

    /// Sets a timer; one that is set already stays as it is.
    pub fn register(&mut self, timestamp_ms: i64, key: K) {
        let timer = (timestamp_ms, key);
        if let Some(far) = &mut self.far
            && far.takes(&timer)
        {
            return far.push(timer, true);
        }
        let mut leaf = Self::leaf_of(&mut self.first, &mut self.leaves, &timer);
        if leaf.len() == MOST_IN_LEAF {
            self.split_leaf_of(&timer);
            leaf = Self::leaf_of(&mut self.first, &mut self.leaves, &timer);
        }
        leaf.push(timer);
    }

    /// Takes a timer back, if it is set: gives whose it was, where it is not far off.
    ///
    /// # Errors
    /// What is the next to be due lies on disk and cannot be read.
    pub fn delete(&mut self, timestamp_ms: i64, key: K) -> Result<Option<K>, TaskError> {
        let timer = (timestamp_ms, key);
        if let Some(far) = &mut self.far
            && far.takes(&timer)
        {
            far.push(timer, false);
            return Ok(None);
        }
        let leaf = Self::leaf_of(&mut self.first, &mut self.leaves, &timer);
        let deleted = leaf.remove(&timer);
        if leaf.is_empty() {
            self.drop_leaf_of(&timer)?;
        }
        Ok(deleted.map(|(_, key)| key))
    }

    /// The earliest timer whose time has come. One at a time, because firing it may set or delete others.
    ///
    /// # Errors
    /// What is the next to be due lies on disk and cannot be read.
    #[inline]
    pub fn pop_due(&mut self, now_ms: i64) -> Result<Option<(i64, K)>, TaskError> {
        let Some(due) = self.first.pop_if(|timestamp_ms| timestamp_ms <= now_ms) else { return Ok(None) };
        if self.first.is_empty() {
            self.begin_next()?;
        }
        Ok(Some(due))
    }

    /// Writes to disk what has no room in memory. To be called as often as some timers may have been set.
    ///
    /// # Errors
    /// It cannot be written.
    #[inline]
    pub fn make_room(&mut self) -> Result<(), TaskError> {
        match &self.far {
            Some(far) if far.is_to_look(self.leaves.len()) => self.spill(),
            _ => Ok(()),
        }
    }

    /// When the earliest timer is due.
    pub fn next_ms(&self) -> Option<i64> {
        self.first.first_ms()
    }

    /// Those that are set, the earliest first.
    ///
    /// # Errors
    /// Some lie on disk and cannot be read; or as `each` says.
    pub fn each<E: From<TaskError>>(&self, mut each: impl FnMut(i64, &K) -> Result<(), E>) -> Result<(), E> {
        for (timestamp_ms, key) in self.near() {
            each(timestamp_ms, &key)?;
        }
        self.far.as_ref().map_or(Ok(()), |far| far.each(each))
    }

    /// Those of them that are not far off.
    fn near(&self) -> impl Iterator<Item = (i64, K)> {
        self.all_leaves().flat_map(Leaf::in_order)
    }

    /// Shows those near that were set after so many snapshots and more, and some others, in no order; one that was set twice
    /// lately may come twice.
    pub(crate) fn each_since(&self, taken: u32, mut show: impl FnMut(i64, &K)) {
        self.all_leaves().for_each(|leaf| leaf.each_since(taken, &mut show));
    }

    /// How many are set; where they are many, about: one that was set twice lately may count twice.
    pub fn len(&self) -> usize {
        let near = if self.leaves.len() < FEW_LEAVES { self.near().count() } else { self.most() };
        near + self.far.as_ref().map_or(0, |far| far.len())
    }

    /// How many near are set at most: one that was set twice lately may count twice, so that only the leaves are looked at.
    fn most(&self) -> usize {
        self.all_leaves().map(Leaf::len).sum()
    }

    /// Whether no timer is set.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    fn all_leaves(&self) -> impl Iterator<Item = &Leaf<K>> {
        [&self.first].into_iter().chain(self.leaves.values())
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
    fn split_leaf_of(&mut self, timer: &(i64, K)) {
        let are_many = self.leaves.len() >= MANY_LEAVES;
        let leaf = Self::leaf_of(&mut self.first, &mut self.leaves, timer);
        if let Some((bound, later)) = leaf.split(are_many) {
            self.leaves.insert(bound, later);
        }
    }

    #[cold]
    fn drop_leaf_of(&mut self, timer: &(i64, K)) -> Result<(), TaskError> {
        let bound = self.leaves.range((Bound::Unbounded, Bound::Included(timer))).next_back().map(|(at, _)| at.clone());
        match bound {
            Some(bound) => {
                self.leaves.remove(&bound);
                Ok(())
            }
            None => self.begin_next(),
        }
    }

    /// The first leaf is empty: goes on with the next one.
    fn begin_next(&mut self) -> Result<(), TaskError> {
        match (self.leaves.pop_first(), &mut self.far) {
            (Some((_, next)), _) => self.first = next,
            (None, Some(far)) if !far.is_empty() => {
                let timers = far.give_back()?;
                self.take_up(timers);
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes timers, in order, that were far off; none is near.
    fn take_up(&mut self, timers: Vec<(i64, K)>) {
        let mut timers = timers.into_iter();
        self.first = Leaf::of(timers.by_ref().take(MOST_IN_LEAF / 2).collect());
        loop {
            let some: Vec<_> = timers.by_ref().take(MOST_IN_LEAF / 2).collect();
            let Some(bound) = some.first().cloned() else { break };
            self.leaves.insert(bound, Leaf::of(some));
        }
    }

    #[cold]
    fn spill(&mut self) -> Result<(), TaskError> {
        let Self { first, leaves, far: Some(far) } = self else { return Ok(()) };
        far.make_room()?;
        if !far.is_to_look(leaves.len()) {
            return Ok(());
        }
        let most = far.near_bytes();
        let mut bytes = first.bytes() + leaves.values().map(Leaf::bytes).sum::<usize>();
        if bytes > most {
            // Some more than has to be, so that not every leaf that is added makes another leave.
            while bytes > most / 2 && !leaves.is_empty() {
                bytes -= Self::spill_last(leaves, far)?.min(bytes);
            }
        }
        let each = bytes / (leaves.len() + 1);
        far.look_again_at((most / each.max(1)).min(leaves.len() + leaves.len() / 4 + 1));
        Ok(())
    }

    /// Writes the last of the leaves to disk, as many as make one there. Gives how many bytes they took.
    fn spill_last(leaves: &mut BTreeMap<(i64, K), Leaf<K>>, far: &mut Far<K>) -> Result<usize, TaskError> {
        let (mut leaving, mut written, mut bytes) = (Vec::new(), 0, 0);
        let mut first = None;
        while written < far.least_leaf_bytes()
            && let Some((bound, leaf)) = leaves.pop_last()
        {
            bytes += leaf.bytes();
            let timers = leaf.in_order();
            written += timers.iter().map(|(_, key)| WRITTEN_BYTES + key.bytes_elsewhere()).sum::<usize>();
            leaving.push(timers);
            first = Some(bound);
        }
        let timers = leaving.into_iter().rev().flatten().collect();
        first.map_or(Ok(()), |bound| far.take_in(bound, timers)).map(|()| bytes)
    }
}

impl<K: TimerOwner> Default for TimerService<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    impl TimerOwner for u16 {
        fn put(&self, out: &mut Vec<u8>) {
            out.extend(self.to_be_bytes());
        }

        fn read(bytes: &[u8]) -> Option<Self> {
            bytes.try_into().ok().map(Self::from_be_bytes)
        }
    }

    fn pop<K: TimerOwner>(timers: &mut TimerService<K>, now_ms: i64) -> Option<(i64, K)> {
        timers.pop_due(now_ms).unwrap()
    }

    #[test]
    fn the_same_timer_set_twice_fires_once() {
        let mut timers = TimerService::new();
        [1, 2, 1].into_iter().for_each(|key| timers.register(5, key));
        assert_eq!(pop(&mut timers, 5), Some((5, 1)));
        assert_eq!(pop(&mut timers, 5), Some((5, 2)));
        assert_eq!(pop(&mut timers, 5), None);
    }

    #[test]
    fn a_deleted_timer_does_not_fire() {
        let mut timers = TimerService::new();
        timers.register(5, 1);
        timers.delete(5, 2).unwrap();
        timers.delete(5, 1).unwrap();
        timers.delete(5, 1).unwrap();
        assert_eq!((pop(&mut timers, i64::MAX), timers.next_ms(), timers.is_empty()), (None, None, true));
    }

    #[test]
    fn a_timer_set_while_firing_is_seen() {
        let mut timers = TimerService::new();
        timers.register(1, 0);
        let mut fired = Vec::new();
        while let Some((timestamp_ms, generation)) = pop(&mut timers, 3) {
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
                    timers.delete(at, key).unwrap();
                    model.remove(&(at, key));
                }
                6 => {
                    // One that is there.
                    if let Some((at, key)) = model.range((at, key)..).next().copied() {
                        timers.delete(at, key).unwrap();
                        model.remove(&(at, key));
                    }
                }
                _ => {
                    let now = model.first().map_or(at, |(first, _)| first + at / 8);
                    let later = model.split_off(&(now + 1, 0));
                    let fired: Vec<_> = std::iter::from_fn(|| pop(&mut timers, now)).collect();
                    prop_assert_eq!(fired, model.into_iter().collect::<Vec<_>>());
                    model = later;
                }
            }
            prop_assert_eq!(timers.next_ms(), model.first().map(|timer| timer.0));
            prop_assert_eq!(timers.is_empty(), model.is_empty());
            let is_counted = if timers.leaves.len() < FEW_LEAVES { usize::eq } else { usize::ge };
            prop_assert!(is_counted(&timers.len(), &model.len()));
        }
        prop_assert!(timers.leaves.values().all(|leaf| (1..=MOST_IN_LEAF).contains(&leaf.len())), "I2");
        let kept: Vec<_> = timers.near().collect();
        prop_assert_eq!(kept, model.into_iter().collect::<Vec<_>>());
        Ok(())
    }

    /// Set one behind the other as they are due, about, and many: most are packed, those that are taken back among them.
    #[test]
    fn timers_that_are_due_as_they_are_set_are_packed() {
        let (mut timers, mut model) = (TimerService::new(), BTreeSet::new());
        for at in 0..20_000_i64 {
            let timer = ((at / 30) * 10 + at % 7, (at % 1000) as u16);
            timers.register(timer.0, timer.1);
            model.insert(timer);
            if at % 11 == 0 {
                let (at, key) = *model.iter().nth(at as usize % model.len()).expect("it is one of them");
                assert_eq!(timers.delete(at, key).unwrap(), Some(key));
                assert_eq!(timers.delete(at, key).unwrap(), None);
                model.remove(&(at, key));
            }
        }
        let packed: usize = timers.all_leaves().map(Leaf::packed).sum();
        assert!(packed > timers.most() * 9 / 10, "{packed} of {}", timers.most());
        assert_eq!(timers.near().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
        let mut shown = BTreeSet::new();
        timers.each_since(0, |at, key| assert!(shown.insert((at, *key))));
        assert_eq!(shown, model);
        let fired: Vec<_> = std::iter::from_fn(|| pop(&mut timers, i64::MAX)).collect();
        assert_eq!(fired, model.into_iter().collect::<Vec<_>>());
    }

    /// What says whose it is may be longer than a byte says.
    #[test]
    fn keys_of_any_length_are_packed_with_the_form_they_were_given_in() {
        let (mut timers, mut model) = (TimerService::new(), BTreeSet::new());
        for at in 0..3000_usize {
            let (key, given) = (vec![at as u8; at % 300], vec![1; at % 40]);
            let key = TimerKey::held(&key, (at % 3 == 0).then_some(&given[..]));
            timers.register(at as i64 - 1500, key.clone());
            model.insert((at as i64 - 1500, key));
        }
        assert!(timers.all_leaves().map(Leaf::packed).sum::<usize>() > 2000);
        let fired = std::iter::from_fn(|| pop(&mut timers, i64::MAX));
        for ((at, key), (model_at, model_key)) in fired.zip(model) {
            assert_eq!((at, key.key(), key.given()), (model_at, model_key.key(), model_key.given()));
        }
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
