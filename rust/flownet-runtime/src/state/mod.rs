//! Keyed state: one value per key, stored by key group so that it can move between subtasks.
//!
//! # Invariants
//! - I1: every key held belongs to the subtask's key groups. Any other key is refused and never stored.
//! - I2: `len` is the number of keys over all groups.
//!
//! `state/changes.rs` tracks changes between snapshots, `state/large.rs` handles state that may exceed memory, and
//! `state/sweep.rs` writes state while the task continues.

mod arriving;
mod changes;
mod disk;
mod large;
mod spill;
mod sweep;
mod view;

use flownet_core::KeyGroup;
use flownet_core::keygroup::{group_range, key_group};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use serde::{Deserialize, Serialize};

pub(crate) use self::changes::{Base, Changes, Stamp};
pub use self::disk::DiskStateError;
pub(crate) use self::disk::{DiskPlace, OfSlice, unnamed_file};
pub(crate) use self::large::WrittenRange;
pub use self::large::{LargeState, RESIDENT_PER_WRITTEN, Values};
pub(crate) use self::spill::{IdleKey, Resident, Room, Spill, of_timers};
pub(crate) use self::sweep::SweepResult;
pub(crate) use self::view::{OnDisk, PIECE_BYTES};
use crate::key::Key;
use crate::operator::KeyedRecord;

/// The key groups that one subtask owns, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyGroupRange {
    first: KeyGroup,
    last: KeyGroup,
    max_parallelism: u32,
}

impl KeyGroupRange {
    /// The groups of `subtask` out of `parallelism`.
    ///
    /// # Panics
    /// If not `subtask < parallelism <= max_parallelism <= 32768`. A [`TaskSpec`](crate::spec::TaskSpec) is checked for
    /// this when it is prepared.
    pub fn of(subtask: u32, parallelism: u32, max_parallelism: u32) -> Self {
        let range = group_range(subtask, max_parallelism, parallelism);
        Self { first: KeyGroup::new(*range.start()), last: KeyGroup::new(*range.end()), max_parallelism }
    }

    /// The first group owned.
    pub fn first(&self) -> KeyGroup {
        self.first
    }

    /// The last group owned.
    pub fn last(&self) -> KeyGroup {
        self.last
    }

    /// Number of key groups of the vertex, over all its subtasks.
    pub fn max_parallelism(&self) -> u32 {
        self.max_parallelism
    }

    /// The group of the key with this hash, if it is owned.
    #[inline]
    pub fn check(&self, hash: u32) -> Result<KeyGroup, StateError> {
        let group = key_group(hash, self.max_parallelism);
        if (self.first..=self.last).contains(&group) { Ok(group) } else { Err(self.refuse(group)) }
    }

    #[cold]
    fn refuse(&self, group: KeyGroup) -> StateError {
        StateError::ForeignKey { group: group.get(), first: self.first.get(), last: self.last.get() }
    }

    #[inline]
    fn slot(&self, hash: u32) -> Result<usize, StateError> {
        self.check(hash).map(|group| usize::from(group.get() - self.first.get()))
    }

    fn groups(&self) -> usize {
        usize::from(self.last.get() - self.first.get()) + 1
    }
}

/// The reason why a key was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum StateError {
    /// The key belongs to another subtask: sender and receiver disagree about hash or parallelism.
    #[error("key of group {group} reached a subtask that owns groups {first} to {last}")]
    ForeignKey {
        /// The key's group.
        group: u16,
        /// First group owned.
        first: u16,
        /// Last group owned.
        last: u16,
    },
}

/// One value per key, for the keys of one subtask.
///
/// Keys are bytes in their canonical form; callers pass the hash they already have
/// ([`hash_key`](flownet_core::keygroup::hash_key) of the same bytes), so no key is hashed twice.
#[derive(Debug)]
pub struct KeyedState<V> {
    range: KeyGroupRange,
    groups: Vec<HashTable<Slot<V>>>,
    len: usize,
    changes: Changes,
    /// The next group to take idle keys from, counted from the first group.
    hand: usize,
}

/// The value of one key, and the form in which the key was first given. A Python `dict` also retains the first form of
/// a key.
#[derive(Debug)]
pub struct KeyEntry<V> {
    given: Option<Box<[u8]>>,
    /// The value.
    pub value: V,
}

impl<V> KeyEntry<V> {
    /// An entry for the key of the record.
    #[inline]
    pub fn new(record: &KeyedRecord<'_>, value: V) -> Self {
        Self { given: record.given().map(Into::into), value }
    }

    /// An entry for a key that was given in this form, if that is not the canonical one.
    pub fn of(given: Option<Box<[u8]>>, value: V) -> Self {
        Self { given, value }
    }

    /// Another value for the same key.
    pub fn of_same_key(&self, value: V) -> Self {
        Self { given: self.given.clone(), value }
    }

    /// The form in which the key was given, if that is not the canonical one.
    pub fn given(&self) -> Option<&[u8]> {
        self.given.as_deref()
    }

    /// Returns that form and the value.
    pub fn into_parts(self) -> (Option<Box<[u8]>>, V) {
        (self.given, self.value)
    }

    /// Bytes of the key as it was first given. `key` is the canonical form.
    #[inline]
    pub fn key_value<'a>(&'a self, key: &'a [u8]) -> &'a [u8] {
        self.given.as_deref().unwrap_or(key)
    }

    /// Returns these bytes and the value.
    pub fn shown<'a>(&'a mut self, key: &'a [u8]) -> (&'a [u8], &'a mut V) {
        (self.given.as_deref().unwrap_or(key), &mut self.value)
    }
}

/// A key in the table.
#[derive(Debug)]
pub(crate) struct Slot<V> {
    hash: u32,
    touched: Stamp,
    key: Key,
    value: V,
}

impl<V> Slot<V> {
    /// The key.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.key.as_slice()
    }

    /// The value of the key.
    #[inline]
    pub(crate) fn value(&self) -> &V {
        &self.value
    }

    #[inline]
    fn touch(&mut self, now: Stamp) -> &mut V {
        self.touched = now;
        &mut self.value
    }

    #[inline]
    fn is(&self, hash: u32, key: &[u8]) -> bool {
        self.hash == hash && self.key.is(key)
    }
}

impl<V> KeyedState<V> {
    /// Empty state for the groups of `range`. Groups cost memory once they hold a key.
    pub fn new(range: KeyGroupRange) -> Self {
        let groups = (0..range.groups()).map(|_| HashTable::new()).collect();
        Self { range, groups, len: 0, changes: Changes::default(), hand: 0 }
    }

    /// Returns the value of a key, and creates it with `default` if there is none.
    #[inline]
    pub fn get_or_insert_with(
        &mut self,
        key: &[u8],
        hash: u32,
        default: impl FnOnce() -> V,
    ) -> Result<&mut V, StateError> {
        self.get_or_try_insert_with(key, hash, || Ok(default()))
    }

    /// The same with a `default` that may fail.
    #[inline]
    pub(crate) fn get_or_try_insert_with<E: From<StateError>>(
        &mut self,
        key: &[u8],
        hash: u32,
        default: impl FnOnce() -> Result<V, E>,
    ) -> Result<&mut V, E> {
        let (slot, now) = (self.range.slot(hash)?, self.changes.now());
        let group = &mut self.groups[slot];
        let entry = group.entry(spread(hash), |held| held.is(hash, key), |held| spread(held.hash));
        Ok(match entry {
            Entry::Occupied(held) => held.into_mut().touch(now),
            Entry::Vacant(free) => {
                let value = default()?;
                self.len += 1;
                &mut free.insert(Slot { hash, touched: now.of_new(), key: key.into(), value }).into_mut().value
            }
        })
    }

    /// Sets the value of a key and returns the previous one.
    pub fn insert(&mut self, key: &[u8], hash: u32, value: V) -> Result<Option<V>, StateError> {
        let mut value = Some(value);
        let held = self.get_or_insert_with(key, hash, || value.take().expect("default is called at most once"))?;
        Ok(value.map(|value| std::mem::replace(held, value)))
    }

    /// Returns the value of a key, for changes.
    #[inline]
    pub fn get_mut(&mut self, key: &[u8], hash: u32) -> Option<&mut V> {
        let (slot, now) = (self.range.slot(hash).ok()?, self.changes.now());
        self.groups[slot].find_mut(spread(hash), |held| held.is(hash, key)).map(|held| held.touch(now))
    }

    /// Removes a key and returns its value.
    pub fn remove(&mut self, key: &[u8], hash: u32) -> Option<V> {
        self.take(key, hash).map(|(_, removed)| removed.value)
    }

    /// The same, but returns the whole table entry.
    pub(crate) fn take(&mut self, key: &[u8], hash: u32) -> Option<(KeyGroup, Slot<V>)> {
        let slot = self.range.slot(hash).ok()?;
        let held = self.groups[slot].find_entry(spread(hash), |held| held.is(hash, key)).ok()?;
        self.len -= 1;
        let removed = held.remove().0;
        self.changes.on_removed(|| (hash, removed.key.clone()), || self.len);
        Some((self.number(slot), removed))
    }

    /// Removes all keys and yields them, group by group.
    pub fn drain(&mut self) -> impl Iterator<Item = (Box<[u8]>, V)> {
        self.len = 0;
        self.changes.forget();
        self.groups
            .iter_mut()
            .flat_map(|group| std::mem::take(group).into_iter())
            .map(|held| (held.key.into(), held.value))
    }

    /// Returns the value of a key, for reading. Changes through interior mutability are in no snapshot: see
    /// [`get_mut`](Self::get_mut).
    #[inline]
    pub fn get(&self, key: &[u8], hash: u32) -> Option<&V> {
        let slot = self.range.slot(hash).ok()?;
        self.groups[slot].find(spread(hash), |held| held.is(hash, key)).map(|held| &held.value)
    }

    /// The changes since snapshots.
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// The same, to report a snapshot to.
    pub(crate) fn changes_mut(&mut self) -> &mut Changes {
        &mut self.changes
    }

    /// Returns the keys that were touched since `base` and are held, or `None` if they are more than `most`. A single
    /// pass over the table both counts and collects them, and stops as soon as there are too many.
    pub(crate) fn touched_since(&self, base: Base, most: usize) -> Option<Vec<(KeyGroup, &Slot<V>)>> {
        let is_touched = |(_, slot): &(KeyGroup, &Slot<V>)| base.is_before(slot.touched.taken());
        let touched: Vec<_> = self.slots().filter(is_touched).take(most.saturating_add(1)).collect();
        (touched.len() <= most).then_some(touched)
    }

    /// Hashes and keys that were removed since `base` and are not held.
    pub(crate) fn removed_since(&self, base: Base) -> impl Iterator<Item = (u32, &[u8])> {
        let removed = self.changes.removed_since(base).map(|(hash, key)| (*hash, key.as_slice()));
        removed.filter(|(hash, key)| self.get(key, *hash).is_none())
    }

    /// Iterates over all keys and values: by key group, in no particular order within a group.
    pub fn iter(&self) -> impl Iterator<Item = (KeyGroup, &[u8], &V)> {
        self.slots().map(|(group, slot)| (group, slot.key(), slot.value()))
    }

    /// The same, as table entries.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (KeyGroup, &Slot<V>)> {
        let groups = (self.range.first.get()..).zip(&self.groups);
        groups.flat_map(|(group, held)| held.iter().map(move |slot| (KeyGroup::new(group), slot)))
    }

    /// Returns the entry of a key without touching it.
    fn slot_mut(&mut self, key: &[u8], hash: u32) -> Option<(KeyGroup, &mut Slot<V>)> {
        let slot = self.range.slot(hash).ok()?;
        let group = self.number(slot);
        self.groups[slot].find_mut(spread(hash), |held| held.is(hash, key)).map(|held| (group, held))
    }

    /// Number of key groups, each with its own table.
    fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The key group of the table at this index.
    fn number(&self, slot: usize) -> KeyGroup {
        let slot = u16::try_from(slot).expect("there are no more groups than numbers for them");
        KeyGroup::new(self.range.first.get() + slot)
    }

    /// Returns the indices of up to `most` entries in the table of a group, starting at `from`. Includes only those
    /// with a wanted last touch.
    fn some_of_group(&self, group: usize, from: usize, most: usize, is_wanted: impl Fn(Stamp) -> bool) -> Vec<usize> {
        let table = &self.groups[group];
        let is_there = |at: &usize| table.get_bucket(*at).is_some_and(|slot| is_wanted(slot.touched));
        (from..table.num_buckets()).filter(is_there).take(most).collect()
    }

    /// Returns the entry at an index of a group's table.
    fn slot_at(&self, group: usize, at: usize) -> Option<(KeyGroup, &Slot<V>)> {
        self.groups[group].get_bucket(at).map(|slot| (self.number(group), slot))
    }

    /// Updates the last touch of an entry.
    fn mark_at(&mut self, group: usize, at: usize, mark: impl FnOnce(Stamp) -> Stamp) {
        if let Some(slot) = self.groups[group].get_bucket_mut(at) {
            slot.touched = mark(slot.touched);
        }
    }

    /// Removes up to `most` keys that were not touched since the last pass, and leaves no trace of them in `changes`.
    /// It visits the groups in turn.
    fn take_idle_from_hand(&mut self, most: usize) -> Vec<Slot<V>> {
        let (first, groups, mut taken) = (self.hand, self.groups.len(), Vec::new());
        // Two rounds, because all keys may have been touched before the first one.
        for passed in 0..2 * groups {
            let at = (first + passed) % groups;
            let room = most - taken.len();
            taken.extend(self.groups[at].extract_if(|slot| !slot.touched.take_is_recent()).take(room));
            if taken.len() == most {
                self.hand = (at + 1) % groups;
                break;
            }
        }
        self.len -= taken.len();
        taken
    }

    /// Returns up to `most` keys and their values, starting at the next group to take idle keys from.
    fn some_from_hand(&self, most: usize) -> impl Iterator<Item = (&[u8], &V)> {
        let (before, behind) = self.groups.split_at(self.hand);
        behind.iter().chain(before).flatten().take(most).map(|slot| (slot.key.as_slice(), &slot.value))
    }

    /// Number of keys held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if no key is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The key groups of the subtask.
    pub fn range(&self) -> KeyGroupRange {
        self.range
    }
}

// A table uses the top bits of its 64-bit hash for the tag and the low ones for the position. The 32 bits of our hash
// have to reach both.
#[inline]
pub(crate) fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use flownet_core::keygroup::{hash_key, subtask_of};
    use proptest::prelude::*;

    use super::*;

    const ALL: u32 = 128;

    fn state_of_one() -> KeyedState<u64> {
        KeyedState::new(KeyGroupRange::of(0, 1, ALL))
    }

    #[test]
    fn a_value_is_found_again_by_its_key() {
        let mut state = state_of_one();
        let hash = hash_key(b"a");
        assert_eq!(state.insert(b"a", hash, 1), Ok(None));
        *state.get_or_insert_with(b"a", hash, || unreachable!()).unwrap() += 1;
        assert_eq!((state.get(b"a", hash), state.len()), (Some(&2), 1));
        assert_eq!(state.insert(b"a", hash, 7), Ok(Some(2)));
        assert_eq!(state.remove(b"a", hash), Some(7));
        assert!(state.is_empty() && state.get(b"a", hash).is_none());
    }

    #[test]
    fn keys_with_the_same_hash_stay_apart() {
        let mut state = state_of_one();
        for (key, value) in [(b"a", 1), (b"b", 2), (b"c", 3)] {
            state.insert(key, 42, value).unwrap();
        }
        assert_eq!(state.remove(b"b", 42), Some(2));
        assert_eq!([b"a", b"b", b"c"].map(|key| state.get(key, 42).copied()), [Some(1), None, Some(3)]);
    }

    #[test]
    fn a_key_of_another_subtask_is_refused_by_name_of_its_group() {
        let range = KeyGroupRange::of(1, 4, ALL);
        let mut state = KeyedState::new(range);
        let (mut taken, mut refused) = (0, 0);
        for n in 0..1000u32 {
            let key = n.to_le_bytes();
            let hash = hash_key(&key);
            let group = key_group(hash, ALL);
            match state.insert(&key, hash, n) {
                Ok(_) => {
                    taken += 1;
                    assert_eq!(subtask_of(group, ALL, 4), 1);
                }
                Err(StateError::ForeignKey { group: named, first, last }) => {
                    refused += 1;
                    assert_eq!((named, first, last), (group.get(), 32, 63));
                    assert!(state.get(&key, hash).is_none() && state.remove(&key, hash).is_none());
                }
            }
        }
        assert_eq!((taken, taken + refused), (state.len(), 1000));
    }

    #[test]
    fn iteration_goes_by_group_and_drain_leaves_nothing() {
        let mut state = state_of_one();
        for n in 0..500u64 {
            let key = n.to_le_bytes();
            state.insert(&key, hash_key(&key), n).unwrap();
        }
        let groups: Vec<_> = state.iter().map(|(group, ..)| group).collect();
        assert!(groups.is_sorted());
        for (group, key, _) in state.iter() {
            assert_eq!(group, key_group(hash_key(key), ALL));
        }
        let mut values: Vec<_> = state.drain().map(|(_, value)| value).collect();
        values.sort_unstable();
        assert_eq!(values, (0..500).collect::<Vec<_>>());
        assert_eq!((state.len(), state.iter().count()), (0, 0));
    }

    proptest! {
        #[test]
        fn any_sequence_of_operations_agrees_with_a_map(ops in proptest::collection::vec((0u8..4, 0u8..20, any::<u64>()), 0..300)) {
            let mut state = state_of_one();
            let mut model = BTreeMap::new();
            for (op, key, value) in ops {
                let key = [key];
                // Few distinct hashes, so that keys collide.
                let hash = u32::from(key[0] % 5);
                match op {
                    0 => prop_assert_eq!(state.insert(&key, hash, value).unwrap(), model.insert(key, value)),
                    1 => prop_assert_eq!(state.remove(&key, hash), model.remove(&key)),
                    2 => prop_assert_eq!(state.get_or_insert_with(&key, hash, || value).unwrap(), model.entry(key).or_insert(value)),
                    _ => prop_assert_eq!(state.get_mut(&key, hash), model.get_mut(&key)),
                }
                prop_assert_eq!(state.len(), model.len());
            }
            let held: BTreeMap<_, _> = state.drain().map(|(key, value)| ([key[0]], value)).collect();
            prop_assert_eq!(held, model);
        }
    }
}
