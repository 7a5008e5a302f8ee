//! Timers of either clock: ordered, each at most once.
//!
//! The service has no clock. The caller passes the time in and takes due timers.
//!
//! Most timers are set, and not looked at again until they are due. So they are sorted late, and many at a time: each
//! is stored in a leaf, unsorted, until a timer is taken from that leaf. If there are many, and they are set in the
//! order in which they are due, all leaves except the first and the last ones are packed.
//!
//! If the job stores state [on disk](TimerService::open), timers far from due go there too, once there is no room for
//! them in memory.
//!
//! # Invariants
//! - I1: leaves follow each other. All timers of a leaf are before the bound of the next leaf, and at or after its own
//!   bound.
//! - I2: no leaf is empty, and none holds more than `MOST_IN_LEAF` timers.
//! - I3: the first timer is near. Without a near timer, there is no far one.

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

/// The owner of a timer: a key, and the form in which it was given if that is not the canonical one.
#[derive(Clone, Debug)]
pub struct TimerKey {
    key: Key,
    given: Option<Box<[u8]>>,
}

impl TimerKey {
    /// The owner for the key of a record.
    pub fn of(record: &KeyedRecord<'_>) -> Self {
        Self { key: record.key.into(), given: record.given().map(Into::into) }
    }

    /// The owner for a held key, with the form in which it was given if that is not the canonical one.
    pub fn held(key: &[u8], given: Option<&[u8]>) -> Self {
        Self { key: key.into(), given: given.map(Into::into) }
    }

    /// The canonical bytes of the key.
    pub fn key(&self) -> &[u8] {
        self.key.as_slice()
    }

    /// The hash of the canonical bytes.
    pub fn hash(&self) -> u32 {
        hash_key(self.key())
    }

    /// The form in which the key was given, if that is not the canonical one.
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

/// Encodes the given form with its length, and then the key.
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

/// The timers of one task. `K` is the owner of a timer, usually the bytes of a key.
pub struct TimerService<K> {
    /// The leaf with the earliest timers; empty if there are none.
    first: Leaf<K>,
    /// The other leaves, by their bounds.
    leaves: BTreeMap<(i64, K), Leaf<K>>,
    /// Timers due after all of these, if timers may be on disk.
    far: Option<Box<Far<K>>>,
}

/// With fewer leaves, timers are counted one by one.
const FEW_LEAVES: usize = 4;
/// Approximate bytes of a timer on disk, without those of a long key.
const WRITTEN_BYTES: usize = 16;
/// Fewer leaves take too little memory to be worth packing.
const MANY_LEAVES: usize = if cfg!(test) { 2 } else { 64 };

impl<K: TimerOwner> TimerService<K> {
    /// A service without timers.
    pub fn new() -> Self {
        Self { first: Leaf::new(), leaves: BTreeMap::new(), far: None }
    }

    /// Lets timers that do not fit in memory go to the disk that the job configures. `state` names the timers in
    /// errors. `among` is the number of services that share the memory for timers of one operator in equal parts.
    pub fn open(&mut self, state: &str, among: usize, cx: &TaskContext) {
        let StateBackend::Disk { memory_bytes, folder } = &cx.state else { return };
        let about = DiskStateError::of(state, folder.as_deref(), cx);
        self.open_in(about, of_timers(*memory_bytes) / among);
    }

    /// The same with this much memory. `about` names the folder and the timers in errors.
    pub fn open_in(&mut self, about: DiskStateError, memory_bytes: usize) {
        self.far = Some(Box::new(Far::new(about, memory_bytes)));
    }

    /// Moves all timers out.
    #[must_use]
    pub fn take(&mut self) -> Self {
        let far = self.far.as_ref().map(|far| Box::new(far.like()));
        std::mem::replace(self, Self { first: Leaf::new(), leaves: BTreeMap::new(), far })
    }

    /// Sets a timer. If it is set already, it stays as it is.
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

    /// Deletes a timer, if it is set. Returns its owner, unless it is far.
    ///
    /// # Errors
    /// The next due timer is on disk and cannot be read.
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

    /// Takes the earliest due timer. Returns one at a time, because firing it may set or delete others.
    ///
    /// # Errors
    /// The next due timer is on disk and cannot be read.
    #[inline]
    pub fn pop_due(&mut self, now_ms: i64) -> Result<Option<(i64, K)>, TaskError> {
        let Some(due) = self.first.pop_if(|timestamp_ms| timestamp_ms <= now_ms) else { return Ok(None) };
        // The first timer has to be near (I3).
        if self.first.is_empty() {
            self.begin_next()?;
        }
        Ok(Some(due))
    }

    /// Writes timers that do not fit in memory to disk. Call it after a number of timers may have been set.
    ///
    /// # Errors
    /// They cannot be written.
    #[inline]
    pub fn make_room(&mut self) -> Result<(), TaskError> {
        match &self.far {
            Some(far) if far.is_to_look(self.leaves.len()) => self.spill(),
            _ => Ok(()),
        }
    }

    /// The time at which the earliest timer is due.
    pub fn next_ms(&self) -> Option<i64> {
        self.first.first_ms()
    }

    /// Visits all set timers, the earliest first.
    ///
    /// # Errors
    /// Some are on disk and cannot be read; or an error of `each`.
    pub fn each<E: From<TaskError>>(&self, mut each: impl FnMut(i64, &K) -> Result<(), E>) -> Result<(), E> {
        for (timestamp_ms, key) in self.near() {
            each(timestamp_ms, &key)?;
        }
        self.far.as_ref().map_or(Ok(()), |far| far.each(each))
    }

    /// The near timers among them.
    fn near(&self) -> impl Iterator<Item = (i64, K)> {
        self.all_leaves().flat_map(Leaf::in_order)
    }

    /// Visits near timers that were set after at least `taken` snapshots, and some others, unsorted. A timer that was
    /// recently set twice may come twice.
    pub(crate) fn each_since(&self, taken: u32, mut show: impl FnMut(i64, &K)) {
        self.all_leaves().for_each(|leaf| leaf.each_since(taken, &mut show));
    }

    /// Number of timers. It is approximate if there are many: a timer that was recently set twice may count twice.
    pub fn len(&self) -> usize {
        let near = if self.leaves.len() < FEW_LEAVES { self.near().count() } else { self.most() };
        near + self.far.as_ref().map_or(0, |far| far.len())
    }

    /// Upper bound of the number of near timers. A timer that was recently set twice may count twice, so that only the
    /// sizes of leaves are read.
    fn most(&self) -> usize {
        self.all_leaves().map(Leaf::len).sum()
    }

    /// Returns true if no timer is set.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    fn all_leaves(&self) -> impl Iterator<Item = &Leaf<K>> {
        [&self.first].into_iter().chain(self.leaves.values())
    }

    /// The leaf of a timer.
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

    /// The first leaf is empty: continues with the next one.
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

    /// Takes timers, in order, that were far. None is near at this point.
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
            // Some more than necessary, so that not every new leaf causes another spill.
            while bytes > most / 2 && !leaves.is_empty() {
                bytes -= Self::spill_last(leaves, far)?.min(bytes);
            }
        }
        let each = bytes / (leaves.len() + 1);
        far.look_again_at((most / each.max(1)).min(leaves.len() + leaves.len() / 4 + 1));
        Ok(())
    }

    /// Writes the last leaves to disk, as many as make one leaf there. Returns the number of their bytes.
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

    /// Checks that any sequence fires the timers that a sorted set would. Leaves come and go: there are cases with many
    /// timers at few times, and with few at many.
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
                    // A timer that is set.
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

    /// Timers are set roughly in the order in which they are due, and many: most are packed, also some that are deleted
    /// later.
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

    /// The length of an owner may exceed one byte.
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
