//! State to bytes.

use flownet_core::KeyGroup;

use super::{IsOver, Share, StatePart, StatePieces, WrittenState};
use crate::error::TaskError;
use crate::state::{
    Base, Changes, KeyEntry, KeyGroupRange, KeyedState, LargeState, OnDisk, Slot, StateError, SweepResult, Values,
    WrittenRange,
};
use crate::timer::{KeptTimers, TimerKey, TimersSince};
use crate::varint::{put_varint, zigzag};

/// Of what is written.
pub(super) const VERSION: u8 = 2;
/// What is read goes back to this one, which had no changes of timers.
pub(super) const OLDEST_VERSION: u8 = 1;
pub(super) const OF_GROUPS: u8 = 1;
pub(super) const OF_ITEMS: u8 = 2;
pub(super) const OF_CHANGES: u8 = 3;
pub(super) const OF_CHANNEL: u8 = 4;
pub(crate) const REMOVED: u8 = 0;
pub(crate) const CHANGED: u8 = 1;

/// What one subtask of an operator keeps, as it is written out.
#[derive(Debug)]
pub struct Snapshot<'a> {
    uid: &'a str,
    subtask: u32,
    checkpoint_id: u64,
    complete: Option<u64>,
    written: WrittenState,
    /// Of the keys that were written, a bit for each byte that one began with.
    first_bytes: [u64; 4],
}

impl<'a> Snapshot<'a> {
    /// Nothing yet, of a subtask of the operator with this uid.
    pub fn new(uid: &'a str, subtask: u32, checkpoint_id: u64) -> Self {
        Self { uid, subtask, checkpoint_id, complete: None, written: WrittenState::default(), first_bytes: [0; 4] }
    }

    /// The same, which may build on what was kept for this checkpoint.
    #[must_use]
    pub fn on(self, complete: Option<u64>) -> Self {
        Self { complete, ..self }
    }

    /// The checkpoint that it is for.
    pub fn checkpoint_id(&self) -> u64 {
        self.checkpoint_id
    }

    /// Adds what lies by key group: `write` puts each entry where [`Groups::of`] says.
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

    /// The checkpoint that what lies by key group may be written upon, as what has changed since: one that stands. None: all of
    /// it is written. So it is where more than half was touched since: that is no shorter, and one more part to read.
    pub(crate) fn base<K>(&self, changes: &Changes<K>) -> Option<Base> {
        self.complete.and_then(|complete| changes.base(complete))
    }

    /// Adds what lies by key group: what has changed since `base`, or all of it. What lies on disk is added as [`StatePieces`], and
    /// what is in memory as changes upon them.
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

    /// Adds pieces, as they come.
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

    /// Adds what is kept by key: all of it, or what has changed since a checkpoint that stands. `header` concerns all keys;
    /// `write` appends what is kept for one.
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

    /// The same of state that may be on disk in part.
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
            // It stands upon the pieces that come.
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

    /// The same where much is written while the task goes on, by [`write_on`](Self::write_on), which comes before what is
    /// added here.
    pub fn begin_large<V>(
        &mut self,
        name: &str,
        header: &[i64],
        state: &mut LargeState<V>,
        values: &impl Values<V>,
    ) -> Result<(), TaskError> {
        self.write_large(name, header, state, true, values)
    }

    /// Writes on what [`begin_large`](Self::begin_large) began, until all is written, which is added then, or `is_over` says
    /// that it is enough for now.
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

    /// Takes note of a key that is written.
    #[inline]
    pub(crate) fn note_key(&mut self, key: &[u8]) {
        let first = key.first().copied().unwrap_or_default();
        self.first_bytes[usize::from(first / 64)] |= 1 << (first % 64);
    }

    /// The bytes that keys began with which were written.
    pub(crate) fn first_bytes_of_keys(&self) -> impl Iterator<Item = u8> {
        let all = self.first_bytes;
        (0..=u8::MAX).filter(move |byte| all[usize::from(byte / 64)] & (1 << (byte % 64)) != 0)
    }

    /// Adds the timers of keys: all of them, or what has changed since a checkpoint that stands.
    pub fn add_timers(&mut self, name: &str, range: KeyGroupRange, timers: &mut KeptTimers) -> Result<(), TaskError> {
        let mut groups = Groups::new(range);
        let TimersSince { base, set, unset, on_disk } = timers.since(self.base(timers.changes()), range)?;
        // One that was taken back and set again is in both.
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

    /// Adds what belongs to no key.
    pub fn add_items<I: AsRef<[u8]>>(&mut self, name: &str, items: impl IntoIterator<Item = I>) {
        let mut bytes = vec![VERSION, OF_ITEMS];
        for item in items {
            put_block(&mut bytes, item.as_ref());
        }
        self.add(name, Share::All { subtask: self.subtask }, bytes);
    }

    /// All that was added.
    pub fn into_written(self) -> WrittenState {
        self.written
    }

    /// Whether nothing was added.
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
    /// What concerns all groups.
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

    /// Adds what is held. `is_of_changes`: it stands upon something. `look_at` sees a row of entries before each of it is written.
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

    /// Adds that keys are not held any more.
    fn put_removed<'k>(&mut self, removed: impl Iterator<Item = (u32, &'k [u8])>) -> Result<(), TaskError> {
        for (hash, key) in removed {
            let out = self.of(hash)?;
            put_key(out, key, None);
            out.push(REMOVED);
        }
        Ok(())
    }

    /// Adds a timer, and what became of it.
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

    /// Where the entries of a key with this hash go.
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

    /// All of them; none are left.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.range))
    }

    /// The part that has these entries: what is kept, or what has changed.
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

/// Whoever owns one of these.
fn share_of(range: KeyGroupRange) -> Share {
    Share::Groups { first: range.first().get(), last: range.last().get(), of: range.max_parallelism() }
}

/// Writes entries row by row, each of which is looked at as a whole first: what an entry refers to lies anywhere in memory, and
/// comes from there for many at once in the time that it takes for one.
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

/// Enough that the memory always has something to bring, and few enough that all they refer to stays in the nearest cache.
pub(crate) const ROW_ENTRIES: usize = 32;

/// Appends bytes behind their length.
pub fn put_block(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends an integer that may be negative.
pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, zigzag(value));
}

/// Appends an integer, or that there is none.
pub(crate) fn put_option(out: &mut Vec<u8>, value: Option<i64>) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put_signed(out, value);
    }
}

/// Appends a key, and the form it was given in where that is another than the canonical one.
pub fn put_key(out: &mut Vec<u8>, key: &[u8], given: Option<&[u8]>) {
    put_block(out, key);
    put_given(out, given);
}

/// The second half of that.
pub(crate) fn put_given(out: &mut Vec<u8>, given: Option<&[u8]>) {
    match given {
        None => out.push(0),
        Some(given) => {
            put_varint(out, given.len() as u64 + 1);
            out.extend_from_slice(given);
        }
    }
}
