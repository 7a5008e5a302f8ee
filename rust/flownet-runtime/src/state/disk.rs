//! The part of a keyed state that does not fit in memory: a B-tree in its own file.
//!
//! Keys are ordered by key group, and those of windows by time slice first. Each is stored with the number of its last
//! touch and with its encoding in snapshots, so that snapshots copy it. A second table lists keys by their last touch,
//! so that snapshots of changes need not read all other keys.
//!
//! # Invariants
//! - D1: the file has no name, so the system removes it when the process dies. Nothing is synced: checkpoints hold the
//!   state that has to survive.
//! - D2: the value here of a key that is held in memory, or that is listed as removed, is out of date and is never
//!   read.
//! - D3: `only_here` is the number of keys here that are not out of date.
//! - D4: each key that was touched after the oldest snapshot that may be built on, and is not out of date, is in the
//!   list.

use std::fs::File;
use std::io;
use std::ops::Bound;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flownet_core::KeyGroup;
use hashbrown::HashTable;
use redb::{
    Builder, CursorError, Database, ReadOnlyTable, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    StorageBackend, TableDefinition,
};
use serde::{Deserialize, Serialize};

use super::arriving::ArrivingKeys;
use super::view::{Entries, FullRange, OnDisk, View};
use super::{Base, KeyGroupRange, spread};
use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::key::Key;
use crate::varint::take_varint;

/// Values by place.
const VALUES: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("values");
/// Keys by the number of snapshots before their last touch, and place.
const TOUCHED: TableDefinition<'static, &[u8], ()> = TableDefinition::new("touched");
/// Most keys that may wait to be deleted.
const MOST_REMOVED: usize = 4096;
/// Least memory for pages of the file.
const LEAST_CACHE_BYTES: usize = 256 << 10;

/// State that does not fit in memory cannot be stored on disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error(
    "state '{state}' of '{task}' (subtask {} of {parallelism}) cannot be kept on disk in folder '{folder}', where it has \
     {disk_bytes} bytes with {keys} keys: {reason}; make room there, or say by state_dir where there is more",
    .subtask + 1, folder = .folder.display()
)]
pub struct DiskStateError {
    /// The task.
    pub task: String,
    /// Index of its subtask, from 0.
    pub subtask: u32,
    /// Number of subtasks of the task.
    pub parallelism: u32,
    /// Name of the state.
    pub state: String,
    /// Folder of its file.
    pub folder: PathBuf,
    /// Bytes of the file.
    pub disk_bytes: u64,
    /// Keys that are on disk and not in memory.
    pub keys: u64,
    /// The error of the system.
    pub reason: String,
}

impl DiskStateError {
    /// An error without a reason, for a state without keys on disk.
    pub(crate) fn of(state: &str, folder: Option<&Path>, cx: &TaskContext) -> Self {
        Self {
            task: cx.task_name.clone(),
            subtask: cx.subtask,
            parallelism: cx.parallelism,
            state: state.to_owned(),
            folder: folder.map_or_else(std::env::temp_dir, Path::to_path_buf),
            disk_bytes: 0,
            keys: 0,
            reason: String::new(),
        }
    }
}

/// Creates a file as in D1 in a folder, and the folder if it does not exist.
pub(crate) fn unnamed_file(folder: &Path) -> io::Result<File> {
    std::fs::create_dir_all(folder).and_then(|()| tempfile::tempfile_in(folder))
}

/// The on-disk part of one state of a subtask.
pub(crate) struct Disk {
    about: DiskStateError,
    /// True if keys are ordered by time slice first.
    is_sliced: bool,
    file: Arc<File>,
    cache_bytes: usize,
    /// Created by the first write.
    store: Option<Store>,
    only_here: usize,
    /// One bit for each byte that any key ever stored here began with.
    first_bytes: [u64; 4],
    /// Number of values ever stored here, and their total bytes, for the average size.
    taken_in: (usize, usize),
    /// Keys that are stored here but have been removed, with their hashes.
    removed: HashTable<(u32, Key)>,
    /// Slices that begin before this are to be deleted.
    begin_ms: i64,
    /// Scratch buffer for the place of a key to look up.
    place: Vec<u8>,
}

/// A key on its way to disk, with its encoded value.
pub(super) struct SpilledKey {
    /// From [`DiskPlace::to_bytes`].
    pub(super) place: Vec<u8>,
    /// Number of snapshots before its last touch.
    pub(super) taken: u32,
    /// The form in which the key was given, and the value, encoded as in snapshots.
    pub(super) kept: Vec<u8>,
}

/// The place of a key in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskPlace<'a> {
    /// Start of its time slice, if the state has slices.
    pub(crate) slice_ms: Option<i64>,
    pub(crate) group: KeyGroup,
    pub(crate) key: &'a [u8],
    /// Hash of the key.
    pub(crate) hash: u32,
}

impl<'a> DiskPlace<'a> {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SLICE_BYTES + GROUP_BYTES + self.key.len());
        self.put(&mut bytes);
        bytes
    }

    /// Returns its place within its slice.
    pub(crate) fn in_slice(self) -> Vec<u8> {
        Self { slice_ms: None, ..self }.to_bytes()
    }

    pub(super) fn put(self, out: &mut Vec<u8>) {
        self.slice_ms.into_iter().for_each(|slice_ms| out.extend(slice_bytes(slice_ms)));
        out.extend(self.group.get().to_be_bytes());
        out.extend_from_slice(self.key);
    }

    /// Decodes a place that `put` wrote.
    pub(crate) fn of(bytes: &'a [u8], is_sliced: bool) -> Option<Self> {
        let (slice_ms, bytes) = if is_sliced {
            let (slice, rest) = bytes.split_first_chunk()?;
            (Some((u64::from_be_bytes(*slice) ^ SIGN).cast_signed()), rest)
        } else {
            (None, bytes)
        };
        let (group, key) = bytes.split_first_chunk()?;
        let (group, hash) = (KeyGroup::new(u16::from_be_bytes(*group)), flownet_core::keygroup::hash_key(key));
        Some(Self { slice_ms, group, key, hash })
    }
}

/// Bytes of a place for the slice, and for the key group.
const SLICE_BYTES: usize = size_of::<i64>();
const GROUP_BYTES: usize = size_of::<u16>();
/// Inverted, so that slices before 1970 sort first.
const SIGN: u64 = 1 << 63;

/// The prefix of all places of a slice, in order of time.
fn slice_bytes(slice_ms: i64) -> [u8; SLICE_BYTES] {
    (slice_ms.cast_unsigned() ^ SIGN).to_be_bytes()
}

/// The stored value of a key.
pub(crate) struct StoredKey<'a> {
    /// Number of snapshots before its last touch.
    taken: u32,
    /// The form in which the key was given, with its length, and the value, encoded as in snapshots.
    kept: &'a [u8],
}

impl<'a> StoredKey<'a> {
    /// Encodes the header of a stored value. The kept bytes follow.
    pub(super) fn put(taken: u32, out: &mut Vec<u8>) {
        out.extend(taken.to_be_bytes());
    }

    pub(super) fn of(bytes: &'a [u8]) -> Option<Self> {
        let (taken, kept) = bytes.split_first_chunk()?;
        Some(Self { taken: u32::from_be_bytes(*taken), kept })
    }

    /// Number of snapshots before its last touch.
    pub(super) fn taken(&self) -> u32 {
        self.taken
    }

    /// Returns the kept bytes, see [`SpilledKey::kept`].
    pub(super) fn kept(&self) -> &'a [u8] {
        self.kept
    }

    /// Returns the given form and the value separately.
    pub(super) fn written(&self) -> Option<(&'a [u8], &'a [u8])> {
        let (more, rest) = take_varint(self.kept).ok()?;
        let given = usize::try_from(more.saturating_sub(1)).ok()?;
        self.kept.split_at_checked(self.kept.len() - rest.len() + given)
    }
}

impl Disk {
    /// An empty state, in a file in this folder.
    pub(super) fn new(
        (state, is_sliced): (&str, bool),
        folder: Option<&Path>,
        memory_bytes: usize,
        cx: &TaskContext,
    ) -> Result<Self, TaskError> {
        let mut about = DiskStateError::of(state, folder, cx);
        let file = match unnamed_file(&about.folder) {
            Ok(file) => Arc::new(file),
            Err(error) => {
                about.reason = error.to_string();
                return Err(about.into());
            }
        };
        let cache_bytes = memory_bytes.max(LEAST_CACHE_BYTES);
        let (removed, place) = (HashTable::new(), Vec::new());
        let (first_bytes, taken_in) = ([0; 4], (0, 0));
        let store = None;
        Ok(Self {
            about,
            is_sliced,
            file,
            cache_bytes,
            store,
            only_here: 0,
            first_bytes,
            taken_in,
            removed,
            begin_ms: i64::MIN,
            place,
        })
    }

    /// Number of keys here that are not out of date.
    pub(super) fn only_here(&self) -> usize {
        self.only_here
    }

    /// Stores keys that leave memory, in order of place, and deletes removed keys. `oldest` is the oldest snapshot that
    /// may be built on.
    pub(super) fn take_in(&mut self, leaving: &[SpilledKey], oldest: Option<Base>) -> Result<(), TaskError> {
        let written = self.write(leaving, oldest);
        written.map_err(|error| self.failed(&error))?;
        self.only_here += leaving.len();
        for SpilledKey { place, kept, .. } in leaving {
            self.note(place, kept.len());
        }
        Ok(())
    }

    /// Counts a stored key of this size.
    fn note(&mut self, place: &[u8], bytes: usize) {
        let before_key = if self.is_sliced { SLICE_BYTES + GROUP_BYTES } else { GROUP_BYTES };
        let first = place.get(before_key).copied().unwrap_or_default();
        self.first_bytes[usize::from(first / 64)] |= 1 << (first % 64);
        self.taken_in = (self.taken_in.0 + 1, self.taken_in.1 + place.len() + bytes);
    }

    /// Stores the keys that a job restores, before any other use. None of them is held in memory. A later value of a
    /// key replaces the earlier one. Calls `on_new` for each place that was empty.
    pub(super) fn put_down(
        &mut self,
        arriving: &mut ArrivingKeys,
        on_new: &mut dyn FnMut(&[u8]),
    ) -> Result<(), TaskError> {
        for (place, kept) in arriving.in_order() {
            kept.into_iter().for_each(|kept| self.note(place, kept.len()));
        }
        let Self { store, file, cache_bytes, only_here, .. } = self;
        let put = opened(store, file, *cache_bytes).and_then(|store| {
            store.put_down(arriving, &mut |place, becomes| match becomes {
                PlaceChange::New => {
                    *only_here += 1;
                    on_new(place);
                }
                PlaceChange::Gone => *only_here -= 1,
            })
        });
        put.map_err(|error| self.failed(&error))?;
        arriving.clear();
        Ok(())
    }

    /// Returns a view of the current keys, to be read while the task continues. `None` if all keys here are out of
    /// date.
    pub(super) fn view(
        &mut self,
        range: KeyGroupRange,
        base: Option<Base>,
        oldest: Option<Base>,
    ) -> Result<Option<OnDisk>, TaskError> {
        if self.only_here == 0 {
            return Ok(None);
        }
        // Removed keys are deleted first, because the view reads the tables alone.
        if !self.removed.is_empty() || self.has_slices_to_delete() {
            self.take_in(&[], oldest)?;
        }
        let keys = base.map_or(Ok(self.only_here), |_| self.most_touched())?.min(self.only_here);
        let Some(store) = &self.store else { return Ok(None) };
        let entries = store.entries(base).map_err(|error| self.failed(&error))?;
        let disk_bytes = self.file.metadata().map_or(0, |metadata| metadata.len());
        let about = DiskStateError { disk_bytes, keys: self.only_here as u64, ..self.about.clone() };
        let (database, is_sliced) = (Arc::clone(&store.database), self.is_sliced);
        let view = View { entries, range, is_sliced, is_of_changes: base.is_some(), about, _database: database };
        let (values, bytes) = self.taken_in;
        let mut view = view;
        let piece = Box::new(move || view.piece());
        Ok(Some(OnDisk { piece, bytes: keys * (bytes / values.max(1)), first_bytes: self.first_bytes }))
    }

    /// Marks slices up to the one that begins then as deleted. `keys` is the number of their keys that were only here.
    pub(crate) fn forget_slice(&mut self, slice_ms: i64, keys: usize) {
        self.only_here -= keys;
        self.begin_ms = self.begin_ms.max(slice_ms.saturating_add(1));
    }

    fn has_slices_to_delete(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.begin_ms < self.begin_ms)
    }

    fn write(&mut self, leaving: &[SpilledKey], oldest: Option<Base>) -> Result<(), redb::Error> {
        let store = opened(&mut self.store, &self.file, self.cache_bytes)?;
        store.write((self.begin_ms, self.removed.iter().map(|(_, place)| place.as_slice())), leaving, oldest)?;
        self.removed.clear();
        Ok(())
    }

    /// Reads a key that is not held in memory. The caller holds it from now on.
    pub(super) fn give_back<T>(
        &mut self,
        place: DiskPlace<'_>,
        read: impl FnOnce(StoredKey<'_>) -> Result<T, TaskError>,
    ) -> Result<Option<T>, TaskError> {
        if self.only_here == 0 {
            return Ok(None);
        }
        self.place.clear();
        place.put(&mut self.place);
        if self.is_removed(&self.place, place.hash) {
            return Ok(None);
        }
        let Some(store) = &self.store else { return Ok(None) };
        match store.values.get(&*self.place) {
            Ok(None) => Ok(None),
            Ok(Some(found)) => {
                // It is held from now on, so the value here is out of date (D2).
                self.only_here -= 1;
                let lying = StoredKey::of(found.value()).ok_or_else(|| self.damaged())?;
                read(lying).map(Some)
            }
            Err(error) => Err(self.failed(&error.into())),
        }
    }

    /// Reads a key that is not held in memory. It stays here.
    pub(super) fn look_up<T>(
        &self,
        place: DiskPlace<'_>,
        read: impl FnOnce(StoredKey<'_>) -> Result<T, TaskError>,
    ) -> Result<Option<T>, TaskError> {
        let Some(store) = &self.store else { return Ok(None) };
        let found = store.values.get(&*place.to_bytes()).map_err(|error| self.failed(&error.into()))?;
        found.map(|found| read(StoredKey::of(found.value()).ok_or_else(|| self.damaged())?)).transpose()
    }

    /// Removes a key that is not held in memory. Returns true if it was here: call [`on_removed`](Self::on_removed)
    /// next.
    pub(crate) fn forget(&mut self, key: DiskPlace<'_>) -> Result<bool, TaskError> {
        let lies_here = self.only_here > 0 && self.has(key)?;
        self.only_here -= usize::from(lies_here);
        Ok(lies_here)
    }

    /// A key was removed from memory, so its value here is out of date.
    pub(super) fn on_removed(&mut self, place: DiskPlace<'_>, oldest: Option<Base>) -> Result<(), TaskError> {
        if self.store.is_none() {
            return Ok(());
        }
        self.place.clear();
        place.put(&mut self.place);
        if !self.is_removed(&self.place, place.hash) {
            let removed = (place.hash, Key::from(&*self.place));
            self.removed.insert_unique(spread(place.hash), removed, |(hash, _)| spread(*hash));
        }
        if self.removed.len() > MOST_REMOVED { self.take_in(&[], oldest) } else { Ok(()) }
    }

    fn is_removed(&self, place: &[u8], hash: u32) -> bool {
        self.removed.find(spread(hash), |(other, removed)| *other == hash && removed.is(place)).is_some()
    }

    /// Upper bound of the keys here that were touched since the oldest snapshot that may be built on.
    pub(super) fn most_touched(&self) -> Result<usize, TaskError> {
        let Some(store) = &self.store else { return Ok(0) };
        let listed = store.touched.len().map_err(|error| self.failed(&error.into()))?;
        Ok(usize::try_from(listed).unwrap_or(usize::MAX))
    }

    /// Visits all keys here that are not out of date, by key group: those touched since `base`, or all. Each comes with
    /// the form in which it was given, encoded as in snapshots, and the value. `is_held` returns true for keys in
    /// memory.
    pub(super) fn each(
        &self,
        base: Option<Base>,
        is_held: &dyn Fn(&DiskPlace<'_>) -> bool,
        each: &mut dyn FnMut(&DiskPlace<'_>, StoredKey<'_>) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        let Some(store) = &self.store else { return Ok(()) };
        let failed = |error: redb::StorageError| self.failed(&error.into());
        let mut look = |bytes: &[u8], taken: Option<u32>, value: &[u8]| {
            let broken = || self.damaged();
            let place = DiskPlace::of(bytes, self.is_sliced).ok_or_else(broken)?;
            let lying = StoredKey::of(value).ok_or_else(broken)?;
            let is_as_listed = taken.is_none_or(|taken| taken == lying.taken);
            let is_gone = place.slice_ms.is_some_and(|slice_ms| slice_ms < self.begin_ms);
            if !is_as_listed || is_gone || is_held(&place) || self.is_removed(bytes, place.hash) {
                return Ok(());
            }
            each(&place, lying)
        };
        match base {
            None => {
                for entry in store.values.iter().map_err(failed)? {
                    let (place, bytes) = entry.map_err(failed)?;
                    look(place.value(), None, bytes.value())?;
                }
            }
            Some(base) => {
                let first = (base.first_behind()).to_be_bytes();
                for entry in store.touched.range(&first[..]..).map_err(failed)? {
                    let (listed, _) = entry.map_err(failed)?;
                    let (taken, place) = listed.value().split_first_chunk().ok_or_else(|| self.damaged())?;
                    if let Some(bytes) = store.values.get(place).map_err(failed)? {
                        look(place, Some(u32::from_be_bytes(*taken)), bytes.value())?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns all keys of a time slice, out of date or not, by key group.
    pub(crate) fn of_slice(&self, slice_ms: i64) -> Result<OfSlice<'_>, TaskError> {
        let (first, behind) = (slice_bytes(slice_ms), slice_ms.checked_add(1).map(slice_bytes));
        let entries = self.store.as_ref().map(|store| match &behind {
            Some(behind) => store.values.range(&first[..]..&behind[..]),
            None => store.values.range(&first[..]..),
        });
        Ok(OfSlice { disk: self, entries: entries.transpose().map_err(|error| self.failed(&error.into()))? })
    }

    /// Returns true if a key is here that memory does not hold.
    pub(super) fn has(&self, place: DiskPlace<'_>) -> Result<bool, TaskError> {
        let Some(store) = &self.store else { return Ok(false) };
        let bytes = place.to_bytes();
        if self.is_removed(&bytes, place.hash) {
            return Ok(false);
        }
        Ok(store.values.get(&*bytes).map_err(|error| self.failed(&error.into()))?.is_some())
    }

    /// The error of a file with other contents than were written.
    #[cold]
    pub(super) fn damaged(&self) -> TaskError {
        self.error("the file was changed by somebody else".to_owned())
    }

    #[cold]
    fn failed(&self, error: &redb::Error) -> TaskError {
        self.error(match error {
            redb::Error::Io(error) => error.to_string(),
            other => other.to_string(),
        })
    }

    fn error(&self, reason: String) -> TaskError {
        let disk_bytes = self.file.metadata().map_or(0, |metadata| metadata.len());
        DiskStateError { disk_bytes, keys: self.only_here as u64, reason, ..self.about.clone() }.into()
    }
}

/// The keys of one time slice on disk.
pub(crate) struct OfSlice<'a> {
    disk: &'a Disk,
    entries: Option<FullRange>,
}

impl OfSlice<'_> {
    /// Returns the next key, as read by `look`.
    pub(crate) fn next<T>(
        &mut self,
        look: impl FnOnce(DiskPlace<'_>, StoredKey<'_>) -> Result<T, TaskError>,
    ) -> Result<Option<T>, TaskError> {
        let Some(entry) = self.entries.as_mut().and_then(Iterator::next) else { return Ok(None) };
        let (place, value) = entry.map_err(|error| self.disk.failed(&error.into()))?;
        let place = DiskPlace::of(place.value(), true).zip(StoredKey::of(value.value()));
        let (place, lying) = place.ok_or_else(|| self.disk.damaged())?;
        look(place, lying).map(Some)
    }
}

/// The file, and both tables as of the last write.
struct Store {
    values: ReadOnlyTable<&'static [u8], &'static [u8]>,
    touched: ReadOnlyTable<&'static [u8], ()>,
    /// `touched` has no entries before this number.
    listed_from: u32,
    /// Slices that began before this are deleted.
    begin_ms: i64,
    database: Arc<Database>,
}

/// A place that gains or loses a key.
enum PlaceChange {
    New,
    Gone,
}

/// Returns the store, and creates it for the first write.
fn opened<'a>(
    store: &'a mut Option<Store>,
    file: &Arc<File>,
    cache_bytes: usize,
) -> Result<&'a mut Store, redb::Error> {
    match store {
        Some(store) => Ok(store),
        empty => Ok(empty.insert(Store::new(Arc::clone(file), cache_bytes)?)),
    }
}

impl Store {
    fn new(file: Arc<File>, cache_bytes: usize) -> Result<Self, redb::Error> {
        let database = Builder::new().set_cache_size(cache_bytes).create_with_backend(UnnamedFile(file))?;
        let transaction = database.begin_write()?;
        transaction.open_table(VALUES)?;
        transaction.open_table(TOUCHED)?;
        transaction.commit()?;
        let (values, touched) = read(&database)?;
        Ok(Self { values, touched, listed_from: 0, begin_ms: i64::MIN, database: Arc::new(database) })
    }

    /// Returns the current entries: all, or those touched since `base`.
    fn entries(&self, base: Option<Base>) -> Result<Entries, redb::Error> {
        let (values, touched) = read(&self.database)?;
        Ok(match base {
            None => Entries::All(values.range::<&[u8]>(..)?),
            Some(base) => {
                let first = (base.first_behind()).to_be_bytes();
                Entries::Touched { listed: touched.range(&first[..]..)?, values }
            }
        })
    }

    fn write<'a>(
        &mut self,
        (begin_ms, removed): (i64, impl Iterator<Item = &'a [u8]>),
        leaving: &[SpilledKey],
        oldest: Option<Base>,
    ) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut values = transaction.open_table(VALUES)?;
            if self.begin_ms < begin_ms {
                values.retain_in(..&slice_bytes(begin_ms)[..], |_, _| false)?;
                self.begin_ms = begin_ms;
            }
            for place in removed {
                values.remove(place)?;
            }
            let mut bytes = Vec::new();
            for SpilledKey { place, taken, kept } in leaving {
                bytes.clear();
                bytes.extend(taken.to_be_bytes());
                bytes.extend_from_slice(kept);
                values.insert(&**place, &*bytes)?;
            }
            // Without a snapshot to build on, the next one contains all keys, so the list is not needed.
            let from = oldest.map_or(u32::MAX, |oldest| oldest.first_behind());
            if from != self.listed_from {
                transaction.open_table(TOUCHED)?.retain_in(..&from.to_be_bytes()[..], |_, ()| false)?;
                self.listed_from = from;
            }
            let mut touched = transaction.open_table(TOUCHED)?;
            for SpilledKey { place, taken, .. } in leaving.iter().filter(|leaving| leaving.taken >= from) {
                bytes.clear();
                bytes.extend(taken.to_be_bytes());
                bytes.extend_from_slice(place);
                touched.insert(&*bytes, ())?;
            }
        }
        transaction.commit()?;
        (self.values, self.touched) = read(&self.database)?;
        Ok(())
    }

    /// Writes restored keys, none of which is listed as touched.
    fn put_down(
        &mut self,
        arriving: &mut ArrivingKeys,
        told: &mut dyn FnMut(&[u8], PlaceChange),
    ) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut values = transaction.open_table(VALUES)?;
            let mut entries = arriving.in_order().peekable();
            // While no stored key is between them, the cursor appends them leaf by leaf.
            if let Some((first, _)) = entries.peek() {
                let mut cursor = values.upper_bound_mut(Bound::Excluded(*first))?;
                while let Some((place, Some(kept))) = entries.peek() {
                    match cursor.insert_before(*place, *kept) {
                        Ok(()) => told(place, PlaceChange::New),
                        Err(CursorError::UnorderedKey) => break,
                        Err(error) => return Err(error.into()),
                    }
                    entries.next();
                }
                cursor.close()?;
            }
            for (place, kept) in entries {
                let before = match kept {
                    Some(kept) => values.insert(place, kept)?.is_some(),
                    None => values.remove(place)?.is_some(),
                };
                match (before, kept) {
                    (false, Some(_)) => told(place, PlaceChange::New),
                    (true, None) => told(place, PlaceChange::Gone),
                    _ => {}
                }
            }
        }
        transaction.commit()?;
        (self.values, self.touched) = read(&self.database)?;
        Ok(())
    }
}

type Tables = (ReadOnlyTable<&'static [u8], &'static [u8]>, ReadOnlyTable<&'static [u8], ()>);

fn read(database: &Database) -> Result<Tables, redb::Error> {
    let transaction = database.begin_read()?;
    Ok((transaction.open_table(VALUES)?, transaction.open_table(TOUCHED)?))
}

/// A file that no other process can open, and that is not read after this process.
#[derive(Debug)]
struct UnnamedFile(Arc<File>);

impl StorageBackend for UnnamedFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }
}
