//! Encodes state for snapshots.

use flownet_core::KeyGroup;

use super::{IsOver, Share, StatePart, StatePieces, WrittenState};
use crate::error::TaskError;
use crate::state::{
    Base, Changes, KeyEntry, KeyGroupRange, KeyedState, LargeState, OnDisk, Slot, StateError, SweepResult, Values,
    WrittenRange,
};
use crate::timer::{KeptTimers, TimerKey, TimersSince};
use crate::varint::{put_varint, zigzag};

/// Version of the written format.
pub(super) const VERSION: u8 = 2;
/// Oldest version that can be read. It has no changes of timers.
pub(super) const OLDEST_VERSION: u8 = 1;
pub(super) const OF_GROUPS: u8 = 1;
pub(super) const OF_ITEMS: u8 = 2;
pub(super) const OF_CHANGES: u8 = 3;
pub(super) const OF_CHANNEL: u8 = 4;
pub(crate) const REMOVED: u8 = 0;
pub(crate) const CHANGED: u8 = 1;

/// The state of one subtask of an operator, as it is written.
#[derive(Debug)]
pub struct Snapshot<'a> {
    uid: &'a str,
    subtask: u32,
    checkpoint_id: u64,
    complete: Option<u64>,
    written: WrittenState,
    /// One bit for each byte that any written key begins with.
    first_bytes: [u64; 4],
}

impl<'a> Snapshot<'a> {
    /// An empty snapshot, of a subtask of the operator with this uid.
    pub fn new(uid: &'a str, subtask: u32, checkpoint_id: u64) -> Self {
        Self { uid, subtask, checkpoint_id, complete: None, written: WrittenState::default(), first_bytes: [0; 4] }
    }

    /// The same snapshot, which may build on this complete checkpoint.
    #[must_use]
    pub fn on(self, complete: Option<u64>) -> Self {
        Self { complete, ..self }
    }

    /// The checkpoint of this snapshot.
    pub fn checkpoint_id(&self) -> u64 {
        self.checkpoint_id
    }

    /// Adds state by key group. `write` appends each entry to the group of its key, see [`Groups::of`].
    pub fn add_groups(
        &mut self,
        name: &str,
        range: KeyGroupRange,
        write: impl FnOnce(&mut Groups) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        let mut groups = Groups::new(range);
        write(&mut groups)?;
        self.add_body(name, false, groups);
        Ok(())
    }

    /// Returns the complete checkpoint that keyed state may build on, as changes since. With `None`, all of it is
    /// written. The caller also writes all if more than half was touched since: changes are no shorter then, and one
    /// more part to read.
    pub(crate) fn base<K>(&self, changes: &Changes<K>) -> Option<Base> {
        self.complete.and_then(|complete| changes.base(complete))
    }

    /// Adds state by key group: the changes since `base`, or all. On-disk state is added as [`StatePieces`], and held
    /// state as changes to them.
    pub(crate) fn add_upon<K>(
        &mut self,
        base: Option<Base>,
        on_disk: Option<OnDisk>,
        name: &str,
        groups: Groups,
        changes: &mut Changes<K>,
    ) {
        let share = groups.share();
        let mut bytes = self.add_body(name, base.is_some() || on_disk.is_some(), groups);
        if let Some(OnDisk { piece, bytes: on_disk_bytes, first_bytes }) = on_disk {
            self.add_pieces(name, share, first_bytes, piece);
            bytes += on_disk_bytes;
        }
        changes.on_taken(self.checkpoint_id, self.complete, base, bytes);
    }

    /// Adds pieces, to be fetched one by one.
    fn add_pieces(
        &mut self,
        name: &str,
        share: Share,
        first_bytes: [u64; 4],
        mut next: impl FnMut() -> Result<Option<Vec<u8>>, TaskError> + Send + 'static,
    ) {
        self.first_bytes.iter_mut().zip(first_bytes).for_each(|(all, some)| *all |= some);
        let (uid, name) = (self.uid.to_owned(), name.to_owned());
        self.written.pieces.push(StatePieces::new(move || {
            let piece = |bytes| StatePart { uid: uid.clone(), name: name.clone(), share, bytes };
            Ok(next()?.map(piece))
        }));
    }

    fn add_body(&mut self, name: &str, is_of_changes: bool, groups: Groups) -> usize {
        let share = groups.share();
        let bytes = groups.into_bytes_of_keys(is_of_changes);
        let len = bytes.len();
        self.add(name, share, bytes);
        len
    }

    /// Adds keyed state: all of it, or the changes since a complete checkpoint. `header` applies to all keys. `write`
    /// appends the value of one.
    pub fn add_keyed<V>(
        &mut self,
        name: &str,
        header: &[i64],
        state: &mut KeyedState<KeyEntry<V>>,
        mut write: impl FnMut(&[u8], &KeyEntry<V>, &mut Vec<u8>) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        let mut groups = Groups::with_header(state.range(), header);
        let touched =
            self.base(state.changes()).and_then(|base| Some((base, state.touched_since(base, state.len() / 2)?)));
        let base = touched.as_ref().map(|(base, _)| *base);
        let mut write = |key: &[u8], held: &KeyEntry<V>, out: &mut Vec<u8>| {
            self.note_key(key);
            write(key, held, out)
        };
        match touched {
            None => groups.put_held(state.slots(), false, |_| (), &mut write)?,
            Some((base, touched)) => {
                groups.put_held(touched.into_iter(), true, |_| (), &mut write)?;
                groups.put_removed(state.removed_since(base))?;
            }
        }
        self.add_upon(base, None, name, groups, state.changes_mut());
        Ok(())
    }

    /// The same for state that may be partly on disk.
    pub fn add_large<V>(
        &mut self,
        name: &str,
        header: &[i64],
        state: &mut LargeState<V>,
        values: &impl Values<V>,
    ) -> Result<(), TaskError> {
        self.write_large(name, header, state, false, values)
    }

    fn write_large<V>(
        &mut self,
        name: &str,
        header: &[i64],
        state: &mut LargeState<V>,
        may_be_later: bool,
        values: &impl Values<V>,
    ) -> Result<(), TaskError> {
        let mut groups = Groups::with_header(state.range(), header);
        let WrittenRange { base, held, touched, on_disk, removed, is_many } =
            state.since(self.base(state.held().changes()))?;
        let keys = touched.as_ref().map_or(held.len(), Vec::len);
        if may_be_later && is_many {
            groups.put_removed(removed.into_iter())?;
            // These changes build on the pieces that follow.
            let bytes = self.add_body(name, true, groups);
            state.begin_to_write(self.checkpoint_id, base, keys);
            state.changes_mut().on_taken(self.checkpoint_id, self.complete, base, bytes);
            return Ok(());
        }
        let is_of_changes = base.is_some() || on_disk.is_some();
        let look_at = |row: &[(KeyGroup, &Slot<KeyEntry<V>>)]| {
            values.look_at(row.iter().map(|(_, slot)| &slot.value().value));
        };
        let write = |key: &[u8], held: &KeyEntry<V>, out: &mut Vec<u8>| {
            self.note_key(key);
            values.write(held.key_value(key), &held.value, out)
        };
        match touched {
            None => groups.put_held(held.slots(), is_of_changes, look_at, write)?,
            Some(touched) => groups.put_held(touched.into_iter(), is_of_changes, look_at, write)?,
        }
        groups.put_removed(removed.into_iter())?;
        self.add_upon(base, on_disk, name, groups, state.changes_mut());
        Ok(())
    }

    /// The same, but large state is written while the task continues, by [`write_on`](Self::write_on). It precedes the
    /// state that is added here.
    pub fn begin_large<V>(
        &mut self,
        name: &str,
        header: &[i64],
        state: &mut LargeState<V>,
        values: &impl Values<V>,
    ) -> Result<(), TaskError> {
        self.write_large(name, header, state, true, values)
    }

    /// Continues to write the state of [`begin_large`](Self::begin_large), until all is written, which is added then,
    /// or `is_over` ends this turn.
    pub fn write_on<V>(
        &mut self,
        name: &str,
        state: &mut LargeState<V>,
        values: &impl Values<V>,
        is_over: IsOver<'_>,
    ) -> Result<(), TaskError> {
        let share = share_of(state.range());
        if let Some(SweepResult { mut pieces, first_bytes, .. }) = state.write_on(values, is_over)? {
            self.add_pieces(name, share, first_bytes, move || Ok(pieces.pop_front()));
        }
        Ok(())
    }

    /// Records the first byte of a written key.
    #[inline]
    pub(crate) fn note_key(&mut self, key: &[u8]) {
        let first = key.first().copied().unwrap_or_default();
        self.first_bytes[usize::from(first / 64)] |= 1 << (first % 64);
    }

    /// Returns the bytes that any written key begins with.
    pub(crate) fn first_bytes_of_keys(&self) -> impl Iterator<Item = u8> {
        let all = self.first_bytes;
        (0..=u8::MAX).filter(move |byte| all[usize::from(byte / 64)] & (1 << (byte % 64)) != 0)
    }

    /// Adds the timers of keys: all of them, or the changes since a complete checkpoint.
    pub fn add_timers(&mut self, name: &str, range: KeyGroupRange, timers: &mut KeptTimers) -> Result<(), TaskError> {
        let mut groups = Groups::new(range);
        let TimersSince { base, set, unset, on_disk } = timers.since(self.base(timers.changes()), range)?;
        // A timer that was deleted and set again is in both lists.
        unset.iter().try_for_each(|(at_ms, key)| groups.put_timer(*at_ms, key, Some(REMOVED)))?;
        let becomes = (base.is_some() || on_disk.is_some()).then_some(CHANGED);
        match set {
            None => timers.near().try_for_each(|(at_ms, key)| groups.put_timer(at_ms, &key, becomes))?,
            Some(set) => set.iter().try_for_each(|(at_ms, key)| groups.put_timer(*at_ms, key, becomes))?,
        }
        self.add_upon(base, on_disk, name, groups, timers.changes_mut());
        timers.on_taken();
        Ok(())
    }

    /// Adds items that belong to no key.
    pub fn add_items<I: AsRef<[u8]>>(&mut self, name: &str, items: impl IntoIterator<Item = I>) {
        let mut bytes = vec![VERSION, OF_ITEMS];
        for item in items {
            put_block(&mut bytes, item.as_ref());
        }
        self.add(name, Share::All { subtask: self.subtask }, bytes);
    }

    /// Returns everything that was added.
    pub fn into_written(self) -> WrittenState {
        self.written
    }

    /// Returns true if nothing was added.
    pub fn is_empty(&self) -> bool {
        self.written.parts.is_empty()
    }

    fn add(&mut self, name: &str, share: Share, bytes: Vec<u8>) {
        self.written.parts.push(StatePart { uid: self.uid.to_owned(), name: name.to_owned(), share, bytes });
    }
}

/// The entries of each key group of a subtask.
#[derive(Debug)]
pub struct Groups {
    range: KeyGroupRange,
    /// Data for all groups.
    pub header: Vec<u8>,
    entries: Vec<Vec<u8>>,
}

impl Groups {
    pub(crate) fn new(range: KeyGroupRange) -> Self {
        let groups = usize::from(range.last().get() - range.first().get()) + 1;
        Self { range, header: Vec::new(), entries: vec![Vec::new(); groups] }
    }

    fn with_header(range: KeyGroupRange, header: &[i64]) -> Self {
        let mut groups = Self::new(range);
        header.iter().for_each(|value| put_signed(&mut groups.header, *value));
        groups
    }

    /// Adds held keys. `is_of_changes` is true if they build on other parts. `look_at` observes each row of entries
    /// before it is written.
    pub(crate) fn put_held<'s, V: 's>(
        &mut self,
        held: impl Iterator<Item = (KeyGroup, &'s Slot<KeyEntry<V>>)>,
        is_of_changes: bool,
        look_at: impl FnMut(&[(KeyGroup, &'s Slot<KeyEntry<V>>)]),
        mut write: impl FnMut(&[u8], &KeyEntry<V>, &mut Vec<u8>) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        in_rows(held, look_at, |&(group, slot)| {
            let (key, held, out) = (slot.key(), slot.value(), self.at(group.get()));
            put_key(out, key, held.given());
            if is_of_changes {
                out.push(CHANGED);
            }
            write(key, held, out)
        })
    }

    /// Adds keys that were removed.
    fn put_removed<'k>(&mut self, removed: impl Iterator<Item = (u32, &'k [u8])>) -> Result<(), TaskError> {
        for (hash, key) in removed {
            let out = self.of(hash)?;
            put_key(out, key, None);
            out.push(REMOVED);
        }
        Ok(())
    }

    /// Adds a timer, and its change if there is one.
    pub(crate) fn put_timer(
        &mut self,
        timestamp_ms: i64,
        owner: &TimerKey,
        becomes: Option<u8>,
    ) -> Result<(), StateError> {
        let out = self.of(owner.hash())?;
        put_signed(out, timestamp_ms);
        put_key(out, owner.key(), owner.given());
        out.extend(becomes);
        Ok(())
    }

    /// Returns the entries of the key group of a key with this hash.
    pub fn of(&mut self, hash: u32) -> Result<&mut Vec<u8>, StateError> {
        let group = self.range.check(hash)?;
        Ok(self.at(group.get()))
    }

    pub(crate) fn at(&mut self, group: u16) -> &mut Vec<u8> {
        &mut self.entries[usize::from(group - self.range.first().get())]
    }

    fn share(&self) -> Share {
        share_of(self.range)
    }

    /// Returns all entries and leaves none.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.range))
    }

    /// Encodes the entries as a part, whole or of changes.
    pub(crate) fn into_bytes_of_keys(self, is_of_changes: bool) -> Vec<u8> {
        self.into_bytes(if is_of_changes { OF_CHANGES } else { OF_GROUPS })
    }

    fn into_bytes(self, kind: u8) -> Vec<u8> {
        let entries: usize = self.entries.iter().map(|entries| entries.len() + 8).sum();
        let mut bytes = Vec::with_capacity(entries + self.header.len() + 8);
        bytes.extend([VERSION, kind]);
        put_block(&mut bytes, &self.header);
        for (group, entries) in (self.range.first().get()..).zip(self.entries) {
            if !entries.is_empty() {
                put_varint(&mut bytes, group.into());
                put_block(&mut bytes, &entries);
            }
        }
        bytes
    }
}

/// The owners of these groups.
fn share_of(range: KeyGroupRange) -> Share {
    Share::Groups { first: range.first().get(), last: range.last().get(), of: range.max_parallelism() }
}

/// Writes entries row by row, and observes each row as a whole first. An entry refers to any place in memory. Loading
/// many entries at once takes about as long as loading one.
pub(crate) fn in_rows<T>(
    mut entries: impl Iterator<Item = T>,
    mut look_at: impl FnMut(&[T]),
    mut write: impl FnMut(&T) -> Result<(), TaskError>,
) -> Result<(), TaskError> {
    let mut row = Vec::with_capacity(ROW_ENTRIES);
    loop {
        row.clear();
        row.extend(entries.by_ref().take(ROW_ENTRIES));
        if row.is_empty() {
            return Ok(());
        }
        look_at(&row);
        row.iter().try_for_each(&mut write)?;
    }
}

/// Enough entries to keep the memory bus busy, and few enough that their data stays in the nearest cache.
pub(crate) const ROW_ENTRIES: usize = 32;

/// Appends bytes after their length.
pub fn put_block(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends an integer that may be negative.
pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, zigzag(value));
}

/// Appends an optional integer.
pub(crate) fn put_option(out: &mut Vec<u8>, value: Option<i64>) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put_signed(out, value);
    }
}

/// Appends a key, and the form in which it was given if that is not the canonical one.
pub fn put_key(out: &mut Vec<u8>, key: &[u8], given: Option<&[u8]>) {
    put_block(out, key);
    put_given(out, given);
}

/// Appends that form only.
pub(crate) fn put_given(out: &mut Vec<u8>, given: Option<&[u8]>) {
    match given {
        None => out.push(0),
        Some(given) => {
            put_varint(out, given.len() as u64 + 1);
            out.extend_from_slice(given);
        }
    }
}
