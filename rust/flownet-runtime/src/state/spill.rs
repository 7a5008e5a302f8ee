//! What does not fit into memory of a state by key: how much does, what leaves, and where it lies then. Whoever holds the rest
//! in memory asks for what is not there.
//!
//! How many keys are held follows from the memory that there is and from what a key takes, which is reckoned from some of
//! them, as they are written: [`Values::resident_bytes`].

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

/// What is held in memory of a state, and can leave.
pub(crate) trait Resident<V> {
    /// What a key takes in its table, beside what the key and the value take elsewhere.
    const ENTRY_BYTES: usize;

    /// Keys that are held.
    fn held(&self) -> usize;

    /// Up to so many of them with their values.
    fn some<'a>(&'a self, most: usize) -> impl Iterator<Item = (&'a [u8], &'a KeyEntry<V>)>
    where
        V: 'a;

    /// Takes out, and has forgotten without a trace, up to so many keys that were not touched since they were last passed by
    /// here.
    fn take_idle(&mut self, most: usize) -> Vec<IdleKey<V>>;

    /// The oldest snapshot that may be built on.
    fn oldest(&self) -> Option<Base>;
}

/// A key that leaves memory.
pub(crate) struct IdleKey<V> {
    /// The slice of time that it is of, where there are any.
    pub(crate) slice_ms: Option<i64>,
    pub(crate) hash: u32,
    /// After how many snapshots it was last touched.
    pub(crate) taken: u32,
    pub(crate) key: Key,
    pub(crate) held: KeyEntry<V>,
}

/// Who has the memory that there is for what an operator keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// What it keeps by key.
    All,
    /// That, and its timers.
    BesideTimers,
}

/// The part of that memory which timers have, of who keeps some.
pub(crate) fn of_timers(memory_bytes: usize) -> usize {
    memory_bytes / TIMERS_PART
}

/// What does not fit into memory, and how much does.
pub(crate) struct Spill {
    pub(super) disk: Disk,
    range: KeyGroupRange,
    /// Of which state values that are read back are, for errors.
    of: StatePart,
    /// For what is held.
    memory_bytes: usize,
    most_keys: usize,
    /// With so many keys, what a key takes is reckoned again.
    look_at: usize,
    batches: u32,
    /// As long as a job takes up what it goes on with, and from where there was no more room on.
    arriving: Option<Box<ArrivingKeys>>,
}

impl Spill {
    /// Lets what has no room in memory lie where the job says; none where that is in memory. `name` is that of the state, for
    /// errors; `is_sliced`: it is of slices of time.
    ///
    /// # Errors
    /// There can be no file in the folder for it.
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

    /// Whether it is time to look whether so many keys can be held.
    #[inline]
    pub(crate) fn is_to_look(&self, held: usize) -> bool {
        held > self.look_at
    }

    /// Whether more are held than there is room for, as was reckoned last.
    pub(crate) fn is_full(&self, held: usize) -> bool {
        held > self.most_keys
    }

    /// Whether a batch that has ended is one behind which it is looked in any case: values may have grown.
    pub(crate) fn has_come_round(&mut self) -> bool {
        self.batches = self.batches.wrapping_add(1);
        self.batches.is_multiple_of(LOOK_BATCHES)
    }

    /// Reckons for how many keys there is room, and makes it.
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
        // Some more than has to be, so that not every key that comes makes another leave.
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

    /// Whether one more key of what a job goes on with is to be held. Once there is no room for one all that are not held go
    /// [to disk](Self::put_down), until [the end](Self::end_putting_down).
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

    /// Puts down what was kept of a key that is not held, as it was written, or that nothing was kept any more. `on_new` is
    /// told later of each place where nothing lay.
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

    /// All that a job goes on with has come.
    pub(crate) fn end_putting_down(&mut self, on_new: &mut dyn FnMut(&[u8])) -> Result<(), TaskError> {
        self.arriving.take().map_or(Ok(()), |mut arriving| self.disk.put_down(&mut arriving, on_new))
    }

    /// What lies on disk of a key that is not held: it is held from now on.
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

    /// The same where it goes on to lie there.
    pub(crate) fn look_up<V>(
        &self,
        (slice_ms, key, hash): (Option<i64>, &[u8], u32),
        values: &impl Values<V>,
    ) -> Result<Option<KeyEntry<V>>, TaskError> {
        self.disk.look_up(self.place(slice_ms, key, hash), |lying| self.read(&lying, values))
    }

    /// Where a key lies, of a slice of time where there are any.
    pub(crate) fn place<'k>(&self, slice_ms: Option<i64>, key: &'k [u8], hash: u32) -> DiskPlace<'k> {
        DiskPlace { slice_ms, group: key_group(hash, self.range.max_parallelism()), key, hash }
    }

    /// A value that lies on disk.
    pub(crate) fn read<V>(&self, lying: &StoredKey<'_>, values: &impl Values<V>) -> Result<KeyEntry<V>, TaskError> {
        read(lying, &self.of, values)
    }

    /// A key of a slice that is not held is to lie there no more; whether it did. What is held from now on counts.
    pub(crate) fn forget(&mut self, (slice_ms, key, hash): (Option<i64>, &[u8], u32)) -> Result<bool, TaskError> {
        let place = self.place(slice_ms, key, hash);
        self.disk.forget(place)
    }

    /// Whether few were touched since that lie on disk, as `is_few` says of their number.
    pub(crate) fn are_few_since(
        &self,
        base: Base,
        is_held: &dyn Fn(&DiskPlace<'_>) -> bool,
        is_few: impl Fn(usize) -> bool,
    ) -> bool {
        // A key that was touched again and again is in the list as often: counted only where that matters.
        let mut on_disk = 0;
        let mut count = |_: &DiskPlace<'_>, _: StoredKey<'_>| {
            on_disk += 1;
            Ok(())
        };
        // Where it cannot be told all of it is written, which fails by name.
        self.disk.most_touched().is_ok_and(&is_few)
            || (self.disk.each(Some(base), is_held, &mut count).is_ok() && is_few(on_disk))
    }

    /// What lies on disk now, to be read while the task goes on: all, or what was touched since `base`. What is held has to be
    /// put upon it. None where that is all there is.
    pub(crate) fn view(&mut self, base: Option<Base>, oldest: Option<Base>) -> Result<Option<OnDisk>, TaskError> {
        self.disk.view(self.range, base, oldest)
    }

    /// What lies on disk.
    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The same, to be told of what is gone.
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

/// Bytes of memory that a key takes with all that is kept for it, about: the mean of some.
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

/// A place in a table, which is half to seven eighths full, costs so many halves of itself.
const ENTRY_PARTS: usize = 3;
/// The part of the memory that pages of the file may take.
const CACHE_PART: usize = 4;
const TIMERS_PART: usize = 8;
/// The part of the keys for which room is made at once.
const SPARE_PART: usize = 8;
/// And no more than these: the task does nothing else meanwhile.
const MOST_SPARE_KEYS: usize = 1 << 14;
/// What a key takes is reckoned from so many.
const LOOK_KEYS: usize = 64;
/// And that again behind so many batches.
pub(super) const LOOK_BATCHES: u32 = 64;
