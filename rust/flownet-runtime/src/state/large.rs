//! Keyed state that may be larger than memory. Recently used keys are held decoded in memory, the others are on disk,
//! encoded as in a snapshot.
//!
//! # Invariants
//! - L1: a key is held in memory, or on disk, or absent. If it is in both places, the held value is valid.
//! - L2: a touched key is held, so values change only in memory.
//! - L3: after [`make_room`](LargeState::make_room), no more keys are held than there is room for, but at least one.
//! - L4: a snapshot is written while the task continues only if nothing is on disk, and only one at a time. A key that
//!   the snapshot still needs is neither touched nor removed before it is saved.

#[cfg(test)]
mod tests;

use flownet_core::KeyGroup;

use super::disk::DiskPlace;
use super::spill::{IdleKey, Resident, Room, Spill};
use super::sweep::{LEAST_KEYS, Sweep, SweepResult};
use super::view::OnDisk;
use super::{Base, Changes, KeyEntry, KeyGroupRange, KeyedState, Slot};
use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::key::Key;
use crate::operator::KeyedRecord;
use crate::snapshot::{Input, IsOver};

/// Encodes and decodes the values of a state.
pub trait Values<V> {
    /// Encodes the value of a key. `key` decodes to the key, for errors.
    fn write(&self, key: &[u8], value: &V, out: &mut Vec<u8>) -> Result<(), TaskError>;

    /// Observes values that are [written](Self::write) next, one after the other. Implementations whose values refer to
    /// other memory load it here for all values at once, instead of waiting for each.
    fn look_at<'v>(&self, values: impl Iterator<Item = &'v V> + Clone)
    where
        V: 'v,
    {
        let _ = values;
    }

    /// Decodes a value that [`write`](Self::write) wrote, and reads no further.
    fn read(&self, input: &mut Input<'_>) -> Result<V, TaskError>;

    /// Skips the bytes that [`read`](Self::read) would read. Implement it if the end can be found without building the
    /// value, because values on disk are not decoded before they are needed.
    fn pass(&self, input: &mut Input<'_>) -> Result<(), TaskError> {
        self.read(input).map(drop)
    }

    /// Estimates the memory of a value in addition to its table entry, from its encoded size.
    fn resident_bytes(&self, written: usize) -> usize {
        OBJECT_BYTES + RESIDENT_PER_WRITTEN * written
    }
}

/// One value per key, for the keys of one subtask.
pub struct LargeState<V> {
    held: KeyedState<KeyEntry<V>>,
    spill: Option<Box<Spill>>,
    /// The last snapshot, while it is being written.
    sweep: Option<Box<Sweep<V>>>,
}

impl<V> LargeState<V> {
    /// Empty state for the groups of `range`, in memory until it is [opened](Self::open).
    pub fn new(range: KeyGroupRange) -> Self {
        Self { held: KeyedState::new(range), spill: None, sweep: None }
    }

    /// Lets keys that do not fit in memory go to the disk that the job configures. `name` names the state in errors.
    ///
    /// # Errors
    /// The file cannot be created in its folder.
    pub fn open(&mut self, name: &str, cx: &TaskContext) -> Result<(), TaskError> {
        self.open_in(name, Room::All, cx)
    }

    /// The same for operators with timers, which get a part of the memory.
    ///
    /// # Errors
    /// The file cannot be created in its folder.
    pub fn open_beside_timers(&mut self, name: &str, cx: &TaskContext) -> Result<(), TaskError> {
        self.open_in(name, Room::BesideTimers, cx)
    }

    fn open_in(&mut self, name: &str, room: Room, cx: &TaskContext) -> Result<(), TaskError> {
        self.spill = Spill::open((name, false), self.held.range(), room, cx)?;
        Ok(())
    }

    /// Returns the value of the record's key, and creates it with `default` if there is none.
    #[inline]
    pub fn get_or_insert_with(
        &mut self,
        record: &KeyedRecord<'_>,
        values: &impl Values<V>,
        default: impl FnOnce() -> V,
    ) -> Result<&mut KeyEntry<V>, TaskError> {
        let Self { held, spill, sweep } = self;
        if let Some(sweep) = sweep {
            save(sweep, held, (record.key, record.hash), values);
        }
        held.get_or_try_insert_with(record.key, record.hash, || {
            if let Some(spill) = spill
                && let Some(found) = spill.give_back((None, record.key, record.hash), values)?
            {
                return Ok(found);
            }
            Ok(KeyEntry::new(record, default()))
        })
    }

    /// Returns the value of a key, for changes.
    pub fn get_mut(
        &mut self,
        key: &[u8],
        hash: u32,
        values: &impl Values<V>,
    ) -> Result<Option<&mut KeyEntry<V>>, TaskError> {
        if let Some(spill) = &mut self.spill
            && self.held.get(key, hash).is_none()
        {
            let Some(found) = spill.give_back((None, key, hash), values)? else { return Ok(None) };
            // Values change only in memory (L2).
            self.held.insert(key, hash, found)?;
        }
        if let Some(sweep) = &mut self.sweep {
            save(sweep, &mut self.held, (key, hash), values);
        }
        Ok(self.held.get_mut(key, hash))
    }

    /// The same for a key in memory. `None` if it may be on disk, or if a snapshot has to save it first.
    #[inline]
    pub fn get_held_mut(&mut self, key: &[u8], hash: u32) -> Option<&mut KeyEntry<V>> {
        if self.sweep.is_some() {
            return None;
        }
        self.held.get_mut(key, hash)
    }

    /// Restores the value of a key, or removes it if `value` is `None`. This replaces an earlier value. The value is
    /// decoded while there is room. After that it goes to disk as it was written, until
    /// [`end_taking_up`](Self::end_taking_up).
    pub(crate) fn take_up(
        &mut self,
        record: &KeyedRecord<'_>,
        value: Option<&mut Input<'_>>,
        values: &impl Values<V>,
    ) -> Result<(), TaskError> {
        let (key, hash) = (record.key, record.hash);
        if let Some(spill) = &mut self.spill
            && self.held.get(key, hash).is_none()
            && !spill.has_room_for_one(&self.held, values)?
        {
            let value = value.map(|input| input.passed(|input| values.pass(input))).transpose()?;
            return spill.put_down((None, key, hash), record.given(), value, &mut |_| ());
        }
        match value {
            Some(input) => drop(self.held.insert(key, hash, KeyEntry::new(record, values.read(input)?))?),
            None => drop(self.held.remove(key, hash)),
        }
        Ok(())
    }

    /// Ends the restore.
    pub(crate) fn end_taking_up(&mut self) -> Result<(), TaskError> {
        self.spill.as_mut().map_or(Ok(()), |spill| spill.end_putting_down(&mut |_| ()))
    }

    /// Sets the value of a key.
    pub fn put(&mut self, key: &[u8], hash: u32, kept: KeyEntry<V>, values: &impl Values<V>) -> Result<(), TaskError> {
        match self.get_mut(key, hash, values)? {
            Some(held) => *held = kept,
            None => self.insert_new(key, hash, kept)?,
        }
        self.make_room(values)
    }

    /// The same for a key without a value, as [`get_mut`](Self::get_mut) has shown.
    pub fn insert_new(&mut self, key: &[u8], hash: u32, kept: KeyEntry<V>) -> Result<(), TaskError> {
        Ok(self.held.insert(key, hash, kept).map(drop)?)
    }

    /// Removes a key. A key on disk is looked up there, without decoding its value.
    pub fn remove(&mut self, key: &[u8], hash: u32) -> Result<(), TaskError> {
        let removed = self.held.take(key, hash);
        let was_held = removed.is_some();
        if let (Some(sweep), Some(removed)) = (&mut self.sweep, removed) {
            sweep.keep_removed(removed);
        }
        let Some(spill) = &mut self.spill else { return Ok(()) };
        let place = spill.place(None, key, hash);
        if !was_held {
            if !spill.forget((None, key, hash))? {
                return Ok(());
            }
            // A held key was listed as removed by `take`. A key on disk is listed here.
            let held = self.held.len();
            self.held.changes_mut().on_removed(|| (hash, Key::from(key)), || held);
        }
        spill.disk.on_removed(place, self.held.changes().oldest())
    }

    /// Writes keys that do not fit in memory to disk. Call it between two keys, after a number of keys may have been
    /// added.
    #[inline]
    pub fn make_room(&mut self, values: &impl Values<V>) -> Result<(), TaskError> {
        match &mut self.spill {
            Some(spill) if spill.is_to_look(self.held.len()) => spill.look(&mut self.held, values),
            _ => Ok(()),
        }
    }

    /// The same at the end of a batch. From time to time it measures whether the held values have grown.
    #[inline]
    pub fn end_batch(&mut self, values: &impl Values<V>) -> Result<(), TaskError> {
        if self.spill.is_some() { self.look_at_times(values) } else { Ok(()) }
    }

    #[cold]
    fn look_at_times(&mut self, values: &impl Values<V>) -> Result<(), TaskError> {
        let Some(spill) = &mut self.spill else { return Ok(()) };
        if spill.has_come_round() { spill.look(&mut self.held, values) } else { self.make_room(values) }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.held.len() + self.on_disk()
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of keys that are only on disk.
    pub fn on_disk(&self) -> usize {
        self.spill.as_ref().map_or(0, |spill| spill.disk.only_here())
    }

    /// The key groups of the subtask.
    pub fn range(&self) -> KeyGroupRange {
        self.held.range()
    }

    /// Visits every key and value, in no particular order.
    pub fn each(
        &self,
        values: &impl Values<V>,
        mut each: impl FnMut(&[u8], &KeyEntry<V>) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        self.held.iter().try_for_each(|(_, key, held)| each(key, held))?;
        let Some(spill) = &self.spill else { return Ok(()) };
        spill.disk.each(None, &|place| self.held.get(place.key, place.hash).is_some(), &mut |place, lying| {
            each(place.key, &spill.read(&lying, values)?)
        })
    }

    /// The keys held in memory.
    pub(crate) fn held(&self) -> &KeyedState<KeyEntry<V>> {
        &self.held
    }

    /// The changes since snapshots, to report a snapshot to.
    pub(crate) fn changes_mut(&mut self) -> &mut Changes {
        self.held.changes_mut()
    }

    /// Starts to write the snapshot of this checkpoint, which is taken now: all keys, or those touched since `base`.
    /// `keys` is their number.
    pub(crate) fn begin_to_write(&mut self, checkpoint_id: u64, base: Option<Base>, keys: usize) {
        self.sweep = Some(Box::new(Sweep::new(checkpoint_id, base, keys, &mut self.held)));
    }

    /// Returns true while a snapshot is being written.
    #[inline]
    pub fn is_writing(&self) -> bool {
        self.sweep.is_some()
    }

    /// Continues to write, until all is written or `is_over` ends this turn. Returns `None` if more is left.
    pub(crate) fn write_on(
        &mut self,
        values: &impl Values<V>,
        is_over: IsOver<'_>,
    ) -> Result<Option<SweepResult>, TaskError> {
        let Some(mut sweep) = self.sweep.take() else { return Ok(None) };
        // A failed sweep is dropped.
        if !sweep.go_on(&mut self.held, values, is_over)? {
            self.sweep = Some(sweep);
            return Ok(None);
        }
        let checkpoint_id = sweep.checkpoint_id();
        let swept = sweep.into_swept();
        self.held.changes_mut().on_written(checkpoint_id, swept.bytes);
        Ok(Some(swept))
    }

    /// The checkpoint will never complete: the rest of it need not be written.
    pub fn abort(&mut self, checkpoint_id: u64) {
        self.sweep.take_if(|sweep| sweep.checkpoint_id() == checkpoint_id);
    }

    /// Returns the changes since `base` if they affect at most half of the keys, else all keys.
    pub(crate) fn since(&mut self, base: Option<Base>) -> Result<WrittenRange<'_, V>, TaskError> {
        // The pending sweep belongs to a checkpoint that will never complete, because there is one at a time.
        self.sweep = None;
        let Self { held, spill, .. } = self;
        let changed = base.and_then(|base| Some((base, few_touched_since(held, spill.as_deref(), base)?)));
        let base = changed.as_ref().map(|(base, _)| *base);
        let on_disk = match spill {
            Some(spill) => spill.view(base, held.changes().oldest())?,
            None => None,
        };
        let removed = base.map_or(Ok(Vec::new()), |base| removed_since(held, spill.as_deref(), base))?;
        let touched = changed.map(|(_, touched)| touched);
        let is_many = spill.is_none() && touched.as_ref().map_or(held.len(), Vec::len) >= LEAST_KEYS;
        Ok(WrittenRange { base, held, touched, on_disk, removed, is_many })
    }
}

/// Saves a key that is about to be touched, if the snapshot still needs it.
#[cold]
fn save<V>(
    sweep: &mut Sweep<V>,
    held: &mut KeyedState<KeyEntry<V>>,
    (key, hash): (&[u8], u32),
    values: &impl Values<V>,
) {
    if let Some(slot) = held.slot_mut(key, hash) {
        sweep.save(slot, values);
    }
}

/// Touched keys, with their key groups.
type TouchedKeys<'a, V> = Vec<(KeyGroup, &'a Slot<KeyEntry<V>>)>;

/// The part of the state that a snapshot writes.
pub(crate) struct WrittenRange<'a, V> {
    /// The snapshot that it builds on, if it contains changes only.
    pub(crate) base: Option<Base>,
    /// The keys held in memory.
    pub(crate) held: &'a KeyedState<KeyEntry<V>>,
    /// The touched keys among them; `None` if all keys are written.
    pub(crate) touched: Option<TouchedKeys<'a, V>>,
    /// A view of the keys on disk, to be read while the task continues: all of them, or the touched ones. Held values
    /// replace those on disk. `None` if nothing is on disk.
    pub(crate) on_disk: Option<OnDisk>,
    /// Hashes and keys that were removed and have no value.
    pub(crate) removed: Vec<(u32, &'a [u8])>,
    /// True if it is large enough to be [written](LargeState::begin_to_write) while the task continues. If part of the
    /// state is on disk, the held keys are written at once, because they have to follow it.
    pub(crate) is_many: bool,
}

/// Returns the held keys that were touched since `base`, or `None` if more than half of all keys were touched.
fn few_touched_since<'a, V>(
    held: &'a KeyedState<KeyEntry<V>>,
    spill: Option<&Spill>,
    base: Base,
) -> Option<TouchedKeys<'a, V>> {
    let half = (held.len() + spill.map_or(0, |spill| spill.disk.only_here())) / 2;
    let touched = held.touched_since(base, half)?;
    let is_few = |on_disk: usize| touched.len() + on_disk <= half;
    let is_held = |place: &DiskPlace<'_>| held.get(place.key, place.hash).is_some();
    spill.is_none_or(|spill| spill.are_few_since(base, &is_held, is_few)).then_some(touched)
}

/// Hashes and keys that were removed since `base` and have no value.
fn removed_since<'a, V>(
    held: &'a KeyedState<KeyEntry<V>>,
    spill: Option<&Spill>,
    base: Base,
) -> Result<Vec<(u32, &'a [u8])>, TaskError> {
    let mut removed: Vec<_> = held.removed_since(base).collect();
    let Some(spill) = spill else { return Ok(removed) };
    let mut failed = Ok(());
    removed.retain(|(hash, key)| {
        let found = spill.disk.has(spill.place(None, key, *hash));
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

impl<V> Resident<V> for KeyedState<KeyEntry<V>> {
    const ENTRY_BYTES: usize = size_of::<Slot<KeyEntry<V>>>();

    fn held(&self) -> usize {
        self.len()
    }

    fn some<'a>(&'a self, most: usize) -> impl Iterator<Item = (&'a [u8], &'a KeyEntry<V>)>
    where
        V: 'a,
    {
        self.some_from_hand(most)
    }

    fn take_idle(&mut self, most: usize) -> Vec<IdleKey<V>> {
        let idle = |Slot { hash, touched, key, value }| IdleKey {
            slice_ms: None,
            hash,
            taken: touched.taken(),
            key,
            held: value,
        };
        self.take_idle_from_hand(most).into_iter().map(idle).collect()
    }

    fn oldest(&self) -> Option<Base> {
        self.changes().oldest()
    }
}

/// An object of an interpreter takes at least this, even if its encoding is a byte or two.
const OBJECT_BYTES: usize = 32;
/// Approximate bytes of memory per encoded byte: more for small numbers and short strings, less for long strings.
pub const RESIDENT_PER_WRITTEN: usize = 8;
