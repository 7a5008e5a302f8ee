//! State by key that may be larger than memory: what was touched lately is held as it is used, the rest lies on disk, encoded
//! as in a snapshot.
//!
//! # Invariants
//! - L1: a key is held, or lies on disk, or is not there; where it is both held and on disk, what is held counts.
//! - L2: what is touched is held, so it is changed in memory and nowhere else.
//! - L3: behind [`make_room`](LargeState::make_room) no more keys are held than there is room for, one at least.
//! - L4: a snapshot is written while the task goes on only where nothing lies on disk, and one at a time; no key is touched
//!   or removed that it awaits.

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

/// How the values of a state are written and read.
pub trait Values<V> {
    /// Appends what is kept for a key. `key` decodes to it, for errors.
    fn write(&self, key: &[u8], value: &V, out: &mut Vec<u8>) -> Result<(), TaskError>;

    /// Looks at values that are [written](Self::write) next, one after the other. Whoever keeps what lies elsewhere in memory
    /// has it come from there for all of them at once, instead of waiting for each.
    fn look_at<'v>(&self, values: impl Iterator<Item = &'v V> + Clone)
    where
        V: 'v,
    {
        let _ = values;
    }

    /// Reads back what [`write`](Self::write) wrote, and no more.
    fn read(&self, input: &mut Input<'_>) -> Result<V, TaskError>;

    /// Goes past what [`read`](Self::read) would read, to where that ends. Whoever finds out without making anything of it
    /// says how: what lies on disk is not read before it is needed.
    fn pass(&self, input: &mut Input<'_>) -> Result<(), TaskError> {
        self.read(input).map(drop)
    }

    /// Bytes of memory, about, that a value takes beside its place in the table, which takes so many when written.
    fn resident_bytes(&self, written: usize) -> usize {
        OBJECT_BYTES + RESIDENT_PER_WRITTEN * written
    }
}

/// One value a key, for the keys of one subtask.
pub struct LargeState<V> {
    held: KeyedState<KeyEntry<V>>,
    spill: Option<Box<Spill>>,
    /// The last snapshot, as long as it is being written.
    sweep: Option<Box<Sweep<V>>>,
}

impl<V> LargeState<V> {
    /// Empty state for the groups of `range`, in memory until it is [opened](Self::open).
    pub fn new(range: KeyGroupRange) -> Self {
        Self { held: KeyedState::new(range), spill: None, sweep: None }
    }

    /// Lets what has no room in memory lie where the job says. `name` is that of the state, for errors.
    ///
    /// # Errors
    /// There can be no file in the folder for it.
    pub fn open(&mut self, name: &str, cx: &TaskContext) -> Result<(), TaskError> {
        self.open_in(name, Room::All, cx)
    }

    /// The same for who keeps timers, too: they have a part of the memory.
    ///
    /// # Errors
    /// There can be no file in the folder for it.
    pub fn open_beside_timers(&mut self, name: &str, cx: &TaskContext) -> Result<(), TaskError> {
        self.open_in(name, Room::BesideTimers, cx)
    }

    fn open_in(&mut self, name: &str, room: Room, cx: &TaskContext) -> Result<(), TaskError> {
        self.spill = Spill::open((name, false), self.held.range(), room, cx)?;
        Ok(())
    }

    /// What is kept for the key of the record, made by `default` if there is nothing.
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

    /// What is kept for a key, to change.
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
            self.held.insert(key, hash, found)?;
        }
        if let Some(sweep) = &mut self.sweep {
            save(sweep, &mut self.held, (key, hash), values);
        }
        Ok(self.held.get_mut(key, hash))
    }

    /// The same of a key that is in memory. None: it may lie on disk, or is to be written before it is touched.
    #[inline]
    pub fn get_held_mut(&mut self, key: &[u8], hash: u32) -> Option<&mut KeyEntry<V>> {
        if self.sweep.is_some() {
            return None;
        }
        self.held.get_mut(key, hash)
    }

    /// Takes up what was kept of a key that the job goes on with, or that nothing was any more: what came before is replaced.
    /// As long as there is room it is read, and then it goes to disk as it was written, until [the end](Self::end_taking_up).
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

    /// All that the job goes on with was taken up.
    pub(crate) fn end_taking_up(&mut self) -> Result<(), TaskError> {
        self.spill.as_mut().map_or(Ok(()), |spill| spill.end_putting_down(&mut |_| ()))
    }

    /// Keeps this for a key.
    pub fn put(&mut self, key: &[u8], hash: u32, kept: KeyEntry<V>, values: &impl Values<V>) -> Result<(), TaskError> {
        match self.get_mut(key, hash, values)? {
            Some(held) => *held = kept,
            None => self.insert_new(key, hash, kept)?,
        }
        self.make_room(values)
    }

    /// The same for a key of which nothing is kept, as [`get_mut`](Self::get_mut) said.
    pub fn insert_new(&mut self, key: &[u8], hash: u32, kept: KeyEntry<V>) -> Result<(), TaskError> {
        Ok(self.held.insert(key, hash, kept).map(drop)?)
    }

    /// Forgets a key. One that lies on disk is looked up there, and its value is not read.
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
            let held = self.held.len();
            self.held.changes_mut().on_removed(|| (hash, Key::from(key)), || held);
        }
        spill.disk.on_removed(place, self.held.changes().oldest())
    }

    /// Writes to disk what has no room in memory. To be called between two keys, as often as many may have come.
    #[inline]
    pub fn make_room(&mut self, values: &impl Values<V>) -> Result<(), TaskError> {
        match &mut self.spill {
            Some(spill) if spill.is_to_look(self.held.len()) => spill.look(&mut self.held, values),
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
        if spill.has_come_round() { spill.look(&mut self.held, values) } else { self.make_room(values) }
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
        mut each: impl FnMut(&[u8], &KeyEntry<V>) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        self.held.iter().try_for_each(|(_, key, held)| each(key, held))?;
        let Some(spill) = &self.spill else { return Ok(()) };
        spill.disk.each(None, &|place| self.held.get(place.key, place.hash).is_some(), &mut |place, lying| {
            each(place.key, &spill.read(&lying, values)?)
        })
    }

    /// What is held in memory.
    pub(crate) fn held(&self) -> &KeyedState<KeyEntry<V>> {
        &self.held
    }

    /// What has changed since snapshots, to be told of one.
    pub(crate) fn changes_mut(&mut self) -> &mut Changes {
        self.held.changes_mut()
    }

    /// Begins to write for this checkpoint, which is taken now, all keys, or those that were touched since `base`: so many.
    pub(crate) fn begin_to_write(&mut self, checkpoint_id: u64, base: Option<Base>, keys: usize) {
        self.sweep = Some(Box::new(Sweep::new(checkpoint_id, base, keys, &mut self.held)));
    }

    /// Whether it is being written.
    #[inline]
    pub fn is_writing(&self) -> bool {
        self.sweep.is_some()
    }

    /// Writes on, until all is written or `is_over` says that it is enough for now. None: there is more.
    pub(crate) fn write_on(
        &mut self,
        values: &impl Values<V>,
        is_over: IsOver<'_>,
    ) -> Result<Option<SweepResult>, TaskError> {
        let Some(mut sweep) = self.sweep.take() else { return Ok(None) };
        // One that fails is given up.
        if !sweep.go_on(&mut self.held, values, is_over)? {
            self.sweep = Some(sweep);
            return Ok(None);
        }
        let checkpoint_id = sweep.checkpoint_id();
        let swept = sweep.into_swept();
        self.held.changes_mut().on_written(checkpoint_id, swept.bytes);
        Ok(Some(swept))
    }

    /// The checkpoint will never stand: what is not yet written for it need not be.
    pub fn abort(&mut self, checkpoint_id: u64) {
        self.sweep.take_if(|sweep| sweep.checkpoint_id() == checkpoint_id);
    }

    /// What has changed since `base`, if that is no more than half of the keys, or all of it.
    pub(crate) fn since(&mut self, base: Option<Base>) -> Result<WrittenRange<'_, V>, TaskError> {
        // Of a checkpoint that will never stand: there is one at a time.
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

/// Writes a key that is about to be touched, if it is awaited.
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

/// Keys that were touched, with their key groups.
type TouchedKeys<'a, V> = Vec<(KeyGroup, &'a Slot<KeyEntry<V>>)>;

/// What of state is written.
pub(crate) struct WrittenRange<'a, V> {
    /// The snapshot that it is written upon, as what has changed since.
    pub(crate) base: Option<Base>,
    /// What is held in memory.
    pub(crate) held: &'a KeyedState<KeyEntry<V>>,
    /// That of it which was touched; none where all of it is written.
    pub(crate) touched: Option<TouchedKeys<'a, V>>,
    /// What lies on disk now, to be read while the task goes on: all, or what was touched. What is held has to be put upon it.
    /// None where that is all there is.
    pub(crate) on_disk: Option<OnDisk>,
    /// Hashes and keys of what was removed, and is not kept.
    pub(crate) removed: Vec<(u32, &'a [u8])>,
    /// Whether it is so much that it may be [written](LargeState::begin_to_write) while the task goes on. What is held where
    /// the rest lies on disk is written at once: it is to follow that.
    pub(crate) is_many: bool,
}

/// What is held of no more than half of the keys, which were touched since; none if they are more.
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

/// Hashes and keys of what was removed since, and is not kept.
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

/// An object of an interpreter takes so much even if it is written as a byte or two.
const OBJECT_BYTES: usize = 32;
/// Values take about so many bytes of memory for each byte that is written for them: small numbers and short text more,
/// long text less.
pub const RESIDENT_PER_WRITTEN: usize = 8;
