//! Moves keyed state that does not fit in memory to disk. Decides the number of keys to hold, chooses the keys that
//! leave, and finds them again. The caller holds the other keys in memory.
//!
//! The number of held keys depends on the available memory and on the size of a key. That size is estimated from the
//! encoding of some of them: [`Values::resident_bytes`].

use flownet_core::keygroup::key_group;

use super::arriving::ArrivingKeys;
use super::disk::{Disk, DiskPlace, SpilledKey, StoredKey};
use super::view::OnDisk;
use super::{Base, KeyEntry, KeyGroupRange, Values};
use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::key::Key;
use crate::snapshot::{Input, Share, StatePart, put_given};
use crate::spec::StateBackend;

/// The keys of a state in memory, which can be spilled.
pub(crate) trait Resident<V> {
    /// Bytes of a key in its table, in addition to the heap memory of key and value.
    const ENTRY_BYTES: usize;

    /// Number of held keys.
    fn held(&self) -> usize;

    /// Returns up to `most` of them with their values.
    fn some<'a>(&'a self, most: usize) -> impl Iterator<Item = (&'a [u8], &'a KeyEntry<V>)>
    where
        V: 'a;

    /// Removes up to `most` keys that were not touched since the last pass. Removes them without a trace, as if they
    /// had never been held.
    fn take_idle(&mut self, most: usize) -> Vec<IdleKey<V>>;

    /// The oldest snapshot that may be built on.
    fn oldest(&self) -> Option<Base>;
}

/// A key that leaves memory.
pub(crate) struct IdleKey<V> {
    /// Start of its time slice, if the state has slices.
    pub(crate) slice_ms: Option<i64>,
    pub(crate) hash: u32,
    /// Number of snapshots before its last touch.
    pub(crate) taken: u32,
    pub(crate) key: Key,
    pub(crate) held: KeyEntry<V>,
}

/// The users of the memory for an operator's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// The keyed state alone.
    All,
    /// The keyed state and its timers.
    BesideTimers,
}

/// The part of the memory for timers, in operators that have some.
pub(crate) fn of_timers(memory_bytes: usize) -> usize {
    memory_bytes / TIMERS_PART
}

/// The part of a state that does not fit in memory, and the limit for the rest.
pub(crate) struct Spill {
    pub(super) disk: Disk,
    range: KeyGroupRange,
    /// The state of decoded values, for errors.
    of: StatePart,
    /// Memory for held keys.
    memory_bytes: usize,
    most_keys: usize,
    /// Number of held keys at which the size of a key is estimated again.
    look_at: usize,
    batches: u32,
    /// Restored keys on their way to disk, once there is no more room in memory.
    arriving: Option<Box<ArrivingKeys>>,
}

impl Spill {
    /// Stores state that does not fit in memory as the job configures it. `None` if all state is held in memory. `name`
    /// names the state in errors. With `is_sliced`, keys belong to time slices.
    ///
    /// # Errors
    /// The file cannot be created in its folder.
    pub(crate) fn open(
        (name, is_sliced): (&str, bool),
        range: KeyGroupRange,
        room: Room,
        cx: &TaskContext,
    ) -> Result<Option<Box<Self>>, TaskError> {
        let StateBackend::Disk { memory_bytes, folder } = &cx.state else { return Ok(None) };
        let memory_bytes = match room {
            Room::All => *memory_bytes,
            Room::BesideTimers => memory_bytes - of_timers(*memory_bytes),
        };
        let cache_bytes = memory_bytes / CACHE_PART;
        let disk = Disk::new((name, is_sliced), folder.as_deref(), cache_bytes, cx)?;
        let share = Share::All { subtask: cx.subtask };
        let of = StatePart { uid: cx.task_name.clone(), name: name.to_owned(), share, bytes: Vec::new() };
        let memory_bytes = memory_bytes - cache_bytes;
        let spill =
            Self { disk, range, of, memory_bytes, most_keys: usize::MAX, look_at: 0, batches: 0, arriving: None };
        Ok(Some(Box::new(spill)))
    }

    /// Returns true if it is time to check whether so many keys can be held.
    #[inline]
    pub(crate) fn is_to_look(&self, held: usize) -> bool {
        held > self.look_at
    }

    /// Returns true if more keys are held than there was room for at the last check.
    pub(crate) fn is_full(&self, held: usize) -> bool {
        held > self.most_keys
    }

    /// Returns true after every `LOOK_BATCHES` batches, to check in any case: values may have grown.
    pub(crate) fn has_come_round(&mut self) -> bool {
        self.batches = self.batches.wrapping_add(1);
        self.batches.is_multiple_of(LOOK_BATCHES)
    }

    /// Estimates how many keys can be held, and spills the others.
    #[cold]
    pub(crate) fn look<V, R: Resident<V>>(
        &mut self,
        resident: &mut R,
        values: &impl Values<V>,
    ) -> Result<(), TaskError> {
        self.reckon(resident, values)?;
        let held = resident.held();
        if held <= self.most_keys {
            return Ok(());
        }
        // Spills some more than necessary, so that not every added key causes another spill.
        let most = held - self.most_keys + (self.most_keys / SPARE_PART).min(MOST_SPARE_KEYS);
        let idle = resident.take_idle(most);
        let mut leaving = idle.iter().map(|idle| self.leaving(idle, values)).collect::<Result<Vec<_>, TaskError>>()?;
        leaving.sort_unstable_by(|one, other| one.place.cmp(&other.place));
        self.disk.take_in(&leaving, resident.oldest())
    }

    fn reckon<V, R: Resident<V>>(&mut self, resident: &R, values: &impl Values<V>) -> Result<(), TaskError> {
        self.most_keys = match bytes_of_one(resident, values)? {
            Some(bytes) => (self.memory_bytes / bytes).max(1),
            None => usize::MAX,
        };
        self.look_at = self.most_keys.min(2 * resident.held().max(1));
        Ok(())
    }

    /// Returns true if one more restored key fits in memory. Once there is no room for one, all keys that are not held
    /// go [to disk](Self::put_down), until [`end_putting_down`](Self::end_putting_down).
    pub(crate) fn has_room_for_one<V, R: Resident<V>>(
        &mut self,
        resident: &R,
        values: &impl Values<V>,
    ) -> Result<bool, TaskError> {
        if self.arriving.is_some() {
            return Ok(false);
        }
        if self.is_to_look(resident.held()) {
            self.reckon(resident, values)?;
        }
        let has_room = resident.held() < self.most_keys;
        if !has_room {
            self.arriving = Some(Box::default());
        }
        Ok(has_room)
    }

    /// Stores a restored key that is not held, as it was written. `None` if the key was removed. `on_new` is called
    /// later for each place that was empty.
    pub(crate) fn put_down(
        &mut self,
        (slice_ms, key, hash): (Option<i64>, &[u8], u32),
        given: Option<&[u8]>,
        value: Option<&[u8]>,
        on_new: &mut dyn FnMut(&[u8]),
    ) -> Result<(), TaskError> {
        let place = self.place(slice_ms, key, hash);
        let arriving = self.arriving.get_or_insert_default();
        arriving.add(place, given, value);
        if arriving.is_full() { self.disk.put_down(arriving, on_new) } else { Ok(()) }
    }

    /// Ends the restore.
    pub(crate) fn end_putting_down(&mut self, on_new: &mut dyn FnMut(&[u8])) -> Result<(), TaskError> {
        self.arriving.take().map_or(Ok(()), |mut arriving| self.disk.put_down(&mut arriving, on_new))
    }

    /// Reads a key that is not held. The caller holds it from now on.
    #[cold]
    pub(crate) fn give_back<V>(
        &mut self,
        (slice_ms, key, hash): (Option<i64>, &[u8], u32),
        values: &impl Values<V>,
    ) -> Result<Option<KeyEntry<V>>, TaskError> {
        let place = self.place(slice_ms, key, hash);
        let Self { disk, of, .. } = self;
        disk.give_back(place, |lying| read(&lying, of, values))
    }

    /// The same, but the key stays on disk.
    pub(crate) fn look_up<V>(
        &self,
        (slice_ms, key, hash): (Option<i64>, &[u8], u32),
        values: &impl Values<V>,
    ) -> Result<Option<KeyEntry<V>>, TaskError> {
        self.disk.look_up(self.place(slice_ms, key, hash), |lying| self.read(&lying, values))
    }

    /// Returns the place of a key, in a time slice if there are any.
    pub(crate) fn place<'k>(&self, slice_ms: Option<i64>, key: &'k [u8], hash: u32) -> DiskPlace<'k> {
        DiskPlace { slice_ms, group: key_group(hash, self.range.max_parallelism()), key, hash }
    }

    /// Decodes a value from disk.
    pub(crate) fn read<V>(&self, lying: &StoredKey<'_>, values: &impl Values<V>) -> Result<KeyEntry<V>, TaskError> {
        read(lying, &self.of, values)
    }

    /// Removes a key of a slice that is not held from the disk. Returns true if it was there. From now on only a held
    /// value is valid.
    pub(crate) fn forget(&mut self, (slice_ms, key, hash): (Option<i64>, &[u8], u32)) -> Result<bool, TaskError> {
        let place = self.place(slice_ms, key, hash);
        self.disk.forget(place)
    }

    /// Returns true if `is_few` accepts the number of on-disk keys that were touched since `base`.
    pub(crate) fn are_few_since(
        &self,
        base: Base,
        is_held: &dyn Fn(&DiskPlace<'_>) -> bool,
        is_few: impl Fn(usize) -> bool,
    ) -> bool {
        // A key that was touched repeatedly is in the list repeatedly, so an exact count is made only if it matters.
        let mut on_disk = 0;
        let mut count = |_: &DiskPlace<'_>, _: StoredKey<'_>| {
            on_disk += 1;
            Ok(())
        };
        // If the number is unknown, all keys are written, which fails with a proper error.
        self.disk.most_touched().is_ok_and(&is_few)
            || (self.disk.each(Some(base), is_held, &mut count).is_ok() && is_few(on_disk))
    }

    /// Returns a view of the keys on disk, to be read while the task continues: all, or those touched since `base`.
    /// Held values replace those on disk. `None` if nothing is on disk.
    pub(crate) fn view(&mut self, base: Option<Base>, oldest: Option<Base>) -> Result<Option<OnDisk>, TaskError> {
        self.disk.view(self.range, base, oldest)
    }

    /// The on-disk part.
    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The same, for changes.
    pub(crate) fn disk_mut(&mut self) -> &mut Disk {
        &mut self.disk
    }

    fn leaving<V>(&self, idle: &IdleKey<V>, values: &impl Values<V>) -> Result<SpilledKey, TaskError> {
        let (key, held) = (idle.key.as_slice(), &idle.held);
        let place = self.place(idle.slice_ms, key, idle.hash).to_bytes();
        let mut kept = Vec::new();
        put_given(&mut kept, held.given());
        values.write(held.key_value(key), &held.value, &mut kept)?;
        Ok(SpilledKey { place, taken: idle.taken, kept })
    }
}

/// Estimates the memory of one key with its value, as the mean of some keys.
fn bytes_of_one<V, R: Resident<V>>(resident: &R, values: &impl Values<V>) -> Result<Option<usize>, TaskError> {
    let (mut bytes, mut keys, mut out) = (0, 0, Vec::new());
    for (key, held) in resident.some(LOOK_KEYS) {
        out.clear();
        values.write(held.key_value(key), &held.value, &mut out)?;
        let beside = key.len() + held.given().map_or(0, <[u8]>::len);
        bytes += ENTRY_PARTS * R::ENTRY_BYTES / 2 + beside + values.resident_bytes(out.len());
        keys += 1;
    }
    Ok((keys > 0).then(|| (bytes / keys).max(1)))
}

fn read<V>(lying: &StoredKey<'_>, of: &StatePart, values: &impl Values<V>) -> Result<KeyEntry<V>, TaskError> {
    let mut input = Input::kept(of, lying.kept());
    let given = input.given()?;
    Ok(KeyEntry::of(given.map(Into::into), values.read(&mut input)?))
}

/// Memory of a table entry in halves of its size: a table is half to seven eighths full.
const ENTRY_PARTS: usize = 3;
/// Divisor of the memory: the part for pages of the file.
const CACHE_PART: usize = 4;
const TIMERS_PART: usize = 8;
/// Divisor of the keys: the part for which room is made at once.
const SPARE_PART: usize = 8;
/// The limit of that number, because the task does nothing else meanwhile.
const MOST_SPARE_KEYS: usize = 1 << 14;
/// Number of keys from which the size is estimated.
const LOOK_KEYS: usize = 64;
/// Number of batches between two checks.
pub(super) const LOOK_BATCHES: u32 = 64;
