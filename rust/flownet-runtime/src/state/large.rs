//! State by key that may be larger than memory: what was touched lately is held as it is used, the rest lies on disk, encoded
//! as in a snapshot.
//!
//! How many keys are held follows from the memory that there is and from what a key takes, which is reckoned from some of
//! them, as they are written: [`Values::resident_bytes`].
//!
//! # Invariants
//! - L1: a key is held, or lies on disk, or is not there; where it is both held and on disk, what is held counts.
//! - L2: what is touched is held, so it is changed in memory and nowhere else.
//! - L3: behind [`make_room`](LargeState::make_room) no more keys are held than there is room for, one at least.

#[cfg(test)]
mod tests;

use flownet_core::KeyGroup;
use flownet_core::keygroup::key_group;

use super::disk::{Disk, Leaving, Lying, place_of};
use super::view::View;
use super::{Base, Changes, Held, KeyGroupRange, KeyedState, Slot};
use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::key::Key;
use crate::operator::KeyedRecord;
use crate::snapshot::{Input, Share, StatePart, put_given};
use crate::spec::StateBackend;

/// How the values of a state are written and read.
pub trait Values<V> {
    /// Appends what is kept for a key. `key` decodes to it, for errors.
    fn write(&self, key: &[u8], value: &V, out: &mut Vec<u8>) -> Result<(), TaskError>;

    /// Reads back what [`write`](Self::write) wrote, and no more.
    fn read(&self, input: &mut Input<'_>) -> Result<V, TaskError>;

    /// Bytes of memory, about, that a value takes beside its place in the table, which takes so many when written.
    fn resident_bytes(&self, written: usize) -> usize {
        OBJECT_BYTES + RESIDENT_PER_WRITTEN * written
    }
}

/// One value a key, for the keys of one subtask.
pub struct LargeState<V> {
    held: KeyedState<Held<V>>,
    spill: Option<Box<Spill>>,
}

/// What does not fit into memory, and how much does.
struct Spill {
    disk: Disk,
    /// Of which state values that are read back are, for errors.
    of: StatePart,
    /// For what is held.
    memory_bytes: usize,
    most_keys: usize,
    /// With so many keys, what a key takes is reckoned again.
    look_at: usize,
    batches: u32,
    /// The key group to take keys from next, counted from the first of the subtask.
    group: usize,
}

impl<V> LargeState<V> {
    /// Empty state for the groups of `range`, in memory until it is [opened](Self::open).
    pub fn new(range: KeyGroupRange) -> Self {
        Self { held: KeyedState::new(range), spill: None }
    }

    /// Lets what has no room in memory lie where the job says. `name` is that of the state, for errors.
    ///
    /// # Errors
    /// There can be no file in the folder for it.
    pub fn open(&mut self, name: &str, cx: &TaskContext) -> Result<(), TaskError> {
        if let StateBackend::Disk { memory_bytes, folder } = &cx.state {
            let cache_bytes = memory_bytes / CACHE_PART;
            let disk = Disk::new(name, folder.as_deref(), cache_bytes, cx)?;
            let share = Share::All { subtask: cx.subtask };
            let of = StatePart { uid: cx.task_name.clone(), name: name.to_owned(), share, bytes: Vec::new() };
            let memory_bytes = memory_bytes - cache_bytes;
            let spill = Spill { disk, of, memory_bytes, most_keys: usize::MAX, look_at: 0, batches: 0, group: 0 };
            self.spill = Some(Box::new(spill));
        }
        Ok(())
    }

    /// What is kept for the key of the record, made by `default` if there is nothing.
    #[inline]
    pub fn get_or_insert_with(
        &mut self,
        record: &KeyedRecord<'_>,
        values: &impl Values<V>,
        default: impl FnOnce() -> V,
    ) -> Result<&mut Held<V>, TaskError> {
        let Self { held, spill } = self;
        let range = held.range();
        held.get_or_try_insert_with(record.key, record.hash, || {
            if let Some(spill) = spill
                && let Some(found) = spill.give_back(range, record.key, record.hash, values)?
            {
                return Ok(found);
            }
            Ok(Held::new(record, default()))
        })
    }

    /// What is kept for a key, to change.
    pub fn get_mut(
        &mut self,
        key: &[u8],
        hash: u32,
        values: &impl Values<V>,
    ) -> Result<Option<&mut Held<V>>, TaskError> {
        if let Some(spill) = &mut self.spill
            && self.held.get(key, hash).is_none()
        {
            let Some(found) = spill.give_back(self.held.range(), key, hash, values)? else { return Ok(None) };
            self.held.insert(key, hash, found)?;
        }
        Ok(self.held.get_mut(key, hash))
    }

    /// Keeps this for a key.
    pub fn put(&mut self, key: &[u8], hash: u32, kept: Held<V>, values: &impl Values<V>) -> Result<(), TaskError> {
        match self.get_mut(key, hash, values)? {
            Some(held) => *held = kept,
            None => self.insert_new(key, hash, kept)?,
        }
        self.make_room(values)
    }

    /// The same for a key of which nothing is kept, as [`get_mut`](Self::get_mut) said.
    pub fn insert_new(&mut self, key: &[u8], hash: u32, kept: Held<V>) -> Result<(), TaskError> {
        Ok(self.held.insert(key, hash, kept).map(drop)?)
    }

    /// Forgets a key. One that lies on disk is looked up there, and its value is not read.
    pub fn remove(&mut self, key: &[u8], hash: u32) -> Result<(), TaskError> {
        let was_held = self.held.remove(key, hash).is_some();
        let Some(spill) = &mut self.spill else { return Ok(()) };
        let place = (key_group(hash, self.held.range().max_parallelism()), key, hash);
        if !was_held {
            if !spill.disk.forget(place)? {
                return Ok(());
            }
            let held = self.held.len();
            self.held.changes_mut().on_removed(hash, &Key::from(key), held);
        }
        spill.disk.on_removed(place, self.held.changes().oldest())
    }

    /// Writes to disk what has no room in memory. To be called between two keys, as often as many may have come.
    #[inline]
    pub fn make_room(&mut self, values: &impl Values<V>) -> Result<(), TaskError> {
        match &self.spill {
            Some(spill) if self.held.len() > spill.look_at => self.look(values),
            _ => Ok(()),
        }
    }

    /// The same at the end of a batch: from time to time it looks whether what is held has grown.
    #[inline]
    pub fn end_batch(&mut self, values: &impl Values<V>) -> Result<(), TaskError> {
        if self.spill.is_some() { self.look_at_times(values) } else { Ok(()) }
    }

    #[cold]
    fn look_at_times(&mut self, values: &impl Values<V>) -> Result<(), TaskError> {
        let Some(spill) = &mut self.spill else { return Ok(()) };
        spill.batches = spill.batches.wrapping_add(1);
        if spill.batches.is_multiple_of(LOOK_BATCHES) { self.look(values) } else { self.make_room(values) }
    }

    /// Reckons for how many keys there is room, and makes it.
    #[cold]
    fn look(&mut self, values: &impl Values<V>) -> Result<(), TaskError> {
        let Some(spill) = &mut self.spill else { return Ok(()) };
        let held = self.held.len();
        spill.most_keys = match self.held.bytes_of_one(spill.group, values)? {
            Some(bytes) => (spill.memory_bytes / bytes).max(1),
            None => usize::MAX,
        };
        spill.look_at = spill.most_keys.min(2 * held.max(1));
        if held <= spill.most_keys {
            return Ok(());
        }
        // Some more than has to be, so that not every key that comes makes another leave.
        let most = held - spill.most_keys + (spill.most_keys / SPARE_PART).min(MOST_SPARE_KEYS);
        let (group, idle) = self.held.take_idle(spill.group, most);
        spill.group = group;
        let range = self.held.range();
        let leaving = idle.into_iter().map(|slot| leaving(range, &slot, values));
        let mut leaving = leaving.collect::<Result<Vec<_>, TaskError>>()?;
        leaving.sort_unstable_by(|one, other| one.place.cmp(&other.place));
        spill.disk.take_in(&leaving, self.held.changes().oldest())
    }

    /// Keys that are kept.
    pub fn len(&self) -> usize {
        self.held.len() + self.on_disk()
    }

    /// Whether no key is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keys of these that lie on disk.
    pub fn on_disk(&self) -> usize {
        self.spill.as_ref().map_or(0, |spill| spill.disk.only_here())
    }

    /// The key groups owned.
    pub fn range(&self) -> KeyGroupRange {
        self.held.range()
    }

    /// Every key with what is kept for it, in no particular order.
    pub fn each(
        &self,
        values: &impl Values<V>,
        mut each: impl FnMut(&[u8], &Held<V>) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        self.held.iter().try_for_each(|(_, key, held)| each(key, held))?;
        let Some(spill) = &self.spill else { return Ok(()) };
        spill.disk.each(
            None,
            |key, hash| self.held.get(key, hash).is_some(),
            |_, key, lying| each(key, &spill.read(&lying, values)?),
        )
    }

    /// What is held in memory.
    pub(crate) fn held(&self) -> &KeyedState<Held<V>> {
        &self.held
    }

    /// What has changed since snapshots, to be told of one.
    pub(crate) fn changes_mut(&mut self) -> &mut Changes {
        self.held.changes_mut()
    }

    /// Whether no more than half of the keys were touched since.
    pub(crate) fn are_few_touched_since(&self, base: Base) -> bool {
        let touched = self.held.touched_since(base).count();
        let is_few = |on_disk: usize| 2 * (touched + on_disk) <= self.len();
        let Some(spill) = &self.spill else { return is_few(0) };
        // A key that was touched again and again is in the list as often: counted only where that matters.
        let mut on_disk = 0;
        let count = |_: KeyGroup, _: &[u8], _: Lying<'_>| {
            on_disk += 1;
            Ok(())
        };
        let is_held = |key: &[u8], hash| self.held.get(key, hash).is_some();
        // Where it cannot be told all of it is written, which fails by name.
        spill.disk.most_touched().is_ok_and(is_few)
            || (spill.disk.each(Some(base), is_held, count).is_ok() && is_few(on_disk))
    }

    /// What lies on disk now, to be read while the task goes on: all, or what was touched since `base`; and about how many bytes
    /// that are. What is held has to be put upon it. None where that is all there is.
    pub(crate) fn view(&mut self, base: Option<Base>) -> Result<Option<(View, usize)>, TaskError> {
        let (range, oldest) = (self.held.range(), self.held.changes().oldest());
        self.spill.as_mut().map_or(Ok(None), |spill| spill.disk.view(range, base, oldest))
    }

    /// Of the keys that were ever on disk, a bit for each byte that one began with.
    pub(crate) fn first_bytes_on_disk(&self) -> [u64; 4] {
        self.spill.as_ref().map_or([0; 4], |spill| spill.disk.first_bytes())
    }

    /// Hashes and keys of what was removed since, and is not kept.
    pub(crate) fn removed_since(&self, base: Base) -> Result<Vec<(u32, &[u8])>, TaskError> {
        let mut removed: Vec<_> = self.held.removed_since(base).collect();
        let Some(spill) = &self.spill else { return Ok(removed) };
        let (groups, mut failed) = (self.held.range().max_parallelism(), Ok(()));
        removed.retain(|(hash, key)| {
            let found = spill.disk.has((key_group(*hash, groups), key, *hash));
            found.map_or_else(
                |error| {
                    failed = Err(error);
                    false
                },
                |is_there| !is_there,
            )
        });
        failed.map(|()| removed)
    }
}

impl<V> KeyedState<Held<V>> {
    /// Bytes of memory that a key takes with all that is kept for it, about: the mean of some.
    fn bytes_of_one(&self, first: usize, values: &impl Values<V>) -> Result<Option<usize>, TaskError> {
        let (mut bytes, mut keys, mut out) = (0, 0, Vec::new());
        for (key, held) in self.some(first, LOOK_KEYS) {
            out.clear();
            values.write(held.key_value(key), &held.value, &mut out)?;
            let beside = key.len() + held.given().map_or(0, <[u8]>::len);
            bytes += SLOT_PARTS * size_of::<Slot<Held<V>>>() / 2 + beside + values.resident_bytes(out.len());
            keys += 1;
        }
        Ok((keys > 0).then(|| (bytes / keys).max(1)))
    }
}

impl Spill {
    /// What lies on disk of a key that is not held.
    #[cold]
    fn give_back<V>(
        &mut self,
        range: KeyGroupRange,
        key: &[u8],
        hash: u32,
        values: &impl Values<V>,
    ) -> Result<Option<Held<V>>, TaskError> {
        let Self { disk, of, .. } = self;
        let group = key_group(hash, range.max_parallelism());
        disk.give_back((group, key, hash), |lying| read(&lying, of, values))
    }

    fn read<V>(&self, lying: &Lying<'_>, values: &impl Values<V>) -> Result<Held<V>, TaskError> {
        read(lying, &self.of, values)
    }
}

fn read<V>(lying: &Lying<'_>, of: &StatePart, values: &impl Values<V>) -> Result<Held<V>, TaskError> {
    let mut input = Input::kept(of, lying.kept());
    let given = input.given()?;
    Ok(Held::of(given.map(Into::into), values.read(&mut input)?))
}

fn leaving<V>(range: KeyGroupRange, slot: &Slot<Held<V>>, values: &impl Values<V>) -> Result<Leaving, TaskError> {
    let (key, held) = (slot.key.as_slice(), &slot.value);
    let place = place_of(key_group(slot.hash, range.max_parallelism()), key);
    let mut kept = Vec::new();
    put_given(&mut kept, held.given());
    values.write(held.key_value(key), &held.value, &mut kept)?;
    Ok(Leaving { place, taken: slot.touched.taken(), kept })
}

/// An object of an interpreter takes so much even if it is written as a byte or two.
const OBJECT_BYTES: usize = 32;
/// Values take about so many bytes of memory for each byte that is written for them: small numbers and short text more,
/// long text less.
pub const RESIDENT_PER_WRITTEN: usize = 8;
/// A place in a table, which is half to seven eighths full, costs so many halves of itself.
const SLOT_PARTS: usize = 3;
/// The part of the memory that pages of the file may take.
const CACHE_PART: usize = 4;
/// The part of the keys for which room is made at once.
const SPARE_PART: usize = 8;
/// And no more than these: the task does nothing else meanwhile.
const MOST_SPARE_KEYS: usize = 1 << 14;
/// What a key takes is reckoned from so many.
const LOOK_KEYS: usize = 64;
/// And that again behind so many batches.
const LOOK_BATCHES: u32 = 64;
