//! Decodes state from snapshots.

use std::collections::{BTreeMap, BTreeSet};

use flownet_core::KeyGroup;
use flownet_core::keygroup::{hash_key, key_group};
use serde::{Deserialize, Serialize};

use super::in_flight::medium_of_channel;
use super::write::{CHANGED, OF_CHANGES, OF_CHANNEL, OF_GROUPS, OF_ITEMS, OLDEST_VERSION, REMOVED, VERSION};
use super::{MEDIUM, Piece, RestoredPart, Share, StatePart, is_incidental};
use crate::error::TaskError;
use crate::operator::KeyedRecord;
use crate::state::{KeyEntry, KeyGroupRange, KeyedState, LargeState, Values};
use crate::timer::{KeptTimers, TimerKey};
use crate::varint::{take_varint, unzigzag};

/// The reason why saved state cannot be restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Another version of flownet wrote it.
    #[error("state '{state}' of operator '{uid}' is of format {found}, and this flownet reads formats 1 and 2")]
    Version {
        /// The operator.
        uid: String,
        /// Its state.
        state: String,
        /// The version found.
        found: u8,
    },
    /// The bytes do not have the format that flownet writes.
    #[error("state '{state}' of operator '{uid}' cannot be read: {what}")]
    Malformed {
        /// The operator.
        uid: String,
        /// Its state.
        state: String,
        /// The place where it breaks the format.
        what: String,
    },
    /// A part of it is damaged or missing.
    #[error("state '{state}' of operator '{uid}' cannot be read: {reason}")]
    Damaged {
        /// The operator.
        uid: String,
        /// Its state.
        state: String,
        /// The error of the store.
        reason: String,
    },
    /// It cannot be fetched from the store.
    #[error("state '{state}' of operator '{uid}' cannot be read: {reason}")]
    OutOfReach {
        /// The operator.
        uid: String,
        /// Its state.
        state: String,
        /// The error of the store.
        reason: String,
    },
    /// The operator has no such state.
    #[error("state '{state}' was kept of operator '{uid}', which has none: the checkpoint is of another dataflow")]
    Unknown {
        /// The operator.
        uid: String,
        /// Its state.
        state: String,
    },
    /// The operator cannot resume with it.
    #[error("operator '{uid}' cannot go on from the checkpoint: {reason}")]
    Refused {
        /// The operator.
        uid: String,
        /// The reason.
        reason: String,
    },
    /// The job now has another number of key groups, so keys would belong to other groups.
    #[error(
        "state '{state}' of operator '{uid}' lies in {written} key groups and the job has {now}: max_parallelism cannot \
         change once there is state"
    )]
    KeyGroups {
        /// The operator.
        uid: String,
        /// Its state.
        state: String,
        /// Number of key groups when it was written.
        written: u32,
        /// Number of key groups now.
        now: u32,
    },
}

impl SnapshotError {
    /// Returns true if another attempt may succeed, because the store may be reachable again.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::OutOfReach { .. })
    }
}

/// The saved state of one operator, for one of its subtasks.
#[derive(Clone, Debug)]
pub struct RestoredState<'a> {
    parts: Vec<&'a StatePart>,
    /// Pieces to be fetched one by one, each with the number of parts before it.
    pieces: Vec<(usize, &'a Piece)>,
    subtask: u32,
    range: KeyGroupRange,
}

/// The state that one subtask wrote, restricted to the key groups owned here.
#[derive(Debug)]
pub struct KeyedPart<'a> {
    /// Data for all groups.
    pub header: Input<'a>,
    /// The entries of each owned group.
    pub groups: Vec<Input<'a>>,
}

/// One part of a state by key group.
struct TrackedPart<'a> {
    /// The first key group of the subtask that wrote it.
    writer: u16,
    is_of_changes: bool,
    part: KeyedPart<'a>,
}

impl<'a> TrackedPart<'a> {
    /// Visits each key with its value, which `take` has to skip, or `None` if the key was removed.
    fn each<E: From<TaskError>>(
        self,
        mut take: impl FnMut(&KeyedRecord<'a>, Option<&mut Input<'a>>) -> Result<(), E>,
    ) -> Result<(), E> {
        for mut entries in self.part.groups {
            while !entries.is_empty() {
                let record = entries.key()?;
                let is_held = !self.is_of_changes || entries.is_changed()?;
                take(&record, is_held.then_some(&mut entries))?;
            }
        }
        Ok(())
    }
}

const BASELESS: &str = "changes without what they build on";

impl<'a> RestoredState<'a> {
    /// Selects the parts of the operator with this uid.
    pub fn of(uid: &str, parts: &'a [StatePart], subtask: u32, range: KeyGroupRange) -> Self {
        let parts = parts.iter().filter(|part| part.uid == uid).collect();
        Self { parts, pieces: Vec::new(), subtask, range }
    }

    /// The same for parts that may be stored elsewhere.
    pub(crate) fn of_restored(uid: &str, all: &'a [RestoredPart], subtask: u32, range: KeyGroupRange) -> Self {
        let (mut parts, mut pieces) = (Vec::new(), Vec::new());
        for restored in all {
            match restored {
                RestoredPart::Here(part) if part.uid == uid => parts.push(part),
                RestoredPart::Piece(piece) if piece.uid == uid => pieces.push((parts.len(), piece)),
                _ => {}
            }
        }
        Self { parts, pieces, subtask, range }
    }

    /// Returns true if there is no state.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns an error if there is state for an operator that has none. State that any operator may have is ignored.
    pub(crate) fn refuse(&self) -> Result<(), TaskError> {
        match self.parts.iter().find(|part| !is_incidental(&part.name)) {
            None => Ok(()),
            Some(part) => Err(SnapshotError::Unknown { uid: part.uid.clone(), state: part.name.clone() }.into()),
        }
    }

    /// The error of an operator that cannot resume with the state.
    #[cold]
    pub fn refused(&self, operator: &str, reason: impl std::fmt::Display) -> TaskError {
        SnapshotError::Refused { uid: operator.to_owned(), reason: reason.to_string() }.into()
    }

    /// Returns true if some subtask wrote a state of this name.
    pub fn has(&self, name: &str) -> bool {
        self.named(name).next().is_some()
    }

    /// The state of this name, by key group.
    pub fn groups(&self, name: &str) -> Result<Vec<KeyedPart<'a>>, TaskError> {
        self.named(name).filter_map(|part| self.keyed_part(part, OF_GROUPS).transpose()).collect()
    }

    /// The headers of parts with this name and key groups owned here, with the first and the last group of each.
    pub(crate) fn headers(&self, name: &str) -> Result<Vec<(u16, u16, Input<'a>)>, TaskError> {
        let mut headers = Vec::new();
        for part in self.named(name) {
            let Share::Groups { first, last, .. } = part.share else { continue };
            let kind = if part.is_of_changes() { OF_CHANGES } else { OF_GROUPS };
            headers.extend(self.keyed_part(part, kind)?.map(|keyed| (first, last, keyed.header)));
        }
        Ok(headers)
    }

    /// Returns the number that this subtask wrote under this name, if the parallelism is unchanged. Otherwise returns
    /// the least number of any subtask.
    pub fn own_or_least(&self, name: &str, parallelism: u32) -> Result<Option<i64>, TaskError> {
        let mut all = Vec::new();
        for (subtask, mut item) in self.items(name)? {
            all.push((subtask, item.signed()?));
        }
        let is_same = self.is_of_as_many(name, parallelism);
        let mine = all.into_iter().filter(|(subtask, _)| !is_same || *subtask == self.subtask);
        Ok(mine.map(|(_, number)| number).min())
    }

    /// The items of this name, which belong to no key, ordered by the subtask that wrote them.
    pub fn items(&self, name: &str) -> Result<Vec<(u32, Input<'a>)>, TaskError> {
        let mut items = Vec::new();
        for part in self.named(name) {
            let Share::All { subtask } = part.share else { continue };
            let mut input = Input::body(part, OF_ITEMS)?;
            while !input.is_empty() {
                items.push((subtask, input.nested()?));
            }
        }
        items.sort_by_key(|(subtask, _)| *subtask);
        Ok(items)
    }

    /// Returns true if the items of this name are from as many subtasks as there are now, so that each may take its
    /// own.
    pub fn is_of_as_many(&self, name: &str, parallelism: u32) -> bool {
        let writers = self.named(name).filter_map(|part| match part.share {
            Share::All { subtask } => Some(subtask),
            Share::Groups { .. } | Share::Channel { .. } | Share::Dealt { .. } | Share::Moved { .. } => None,
        });
        let mut count = 0;
        writers.inspect(|_| count += 1).all(|subtask| subtask < parallelism) && count == parallelism
    }

    /// Returns the items of a name that this subtask takes, if one subtask takes each item. If the parallelism is
    /// unchanged, each takes its own. Otherwise they are distributed round-robin.
    pub fn dealt_items(&self, name: &str, parallelism: u32) -> Result<Vec<Input<'a>>, TaskError> {
        let items = self.items(name)?;
        let is_same = self.is_of_as_many(name, parallelism);
        let turns = (0..parallelism).cycle();
        let mine =
            |(turn, (subtask, _)): &(u32, (u32, Input<'a>))| self.subtask == if is_same { *subtask } else { *turn };
        Ok(turns.zip(items).filter(mine).map(|(_, (_, input))| input).collect())
    }

    /// Returns the items of a name that this subtask takes, if the items of one former subtask belong together. One
    /// subtask takes all of them in their order, and each former subtask that still exists takes its own.
    pub fn dealt_lists(&self, name: &str, parallelism: u32) -> Result<Vec<Input<'a>>, TaskError> {
        let mine = self.items(name)?.into_iter().filter(|(subtask, _)| subtask % parallelism == self.subtask);
        Ok(mine.map(|(_, input)| input).collect())
    }

    /// Restores the state that [`Snapshot::add_keyed`](super::Snapshot::add_keyed) wrote, changes after the state that
    /// they build on. Returns the header of each subtask that wrote some of it, as of its last snapshot.
    pub fn read_keyed<V, E: From<TaskError>>(
        &self,
        name: &str,
        state: &mut KeyedState<KeyEntry<V>>,
        read: impl FnMut(&mut Input<'a>) -> Result<V, E>,
    ) -> Result<Vec<Input<'a>>, E> {
        self.read_each(name, read, |record, value| {
            match value {
                Some(value) => {
                    let put = state.insert(record.key, record.hash, KeyEntry::new(record, value));
                    drop(put.map_err(TaskError::from)?);
                }
                None => drop(state.remove(record.key, record.hash)),
            }
            Ok(())
        })
    }

    /// The same for [`Snapshot::add_large`](super::Snapshot::add_large), with the same format. Pieces are fetched one
    /// after the other.
    pub fn read_large<V>(
        &self,
        name: &str,
        state: &mut LargeState<V>,
        values: &impl Values<V>,
    ) -> Result<Vec<Input<'a>>, TaskError> {
        self.each_tracked(name, |tracked| tracked.each(|record, input| state.take_up(record, input, values)))?;
        state.end_taking_up()?;
        Ok(self.last_headers(name)?.into_values().map(|(header, _)| header).collect())
    }

    /// Visits the parts of a state by key group, changes after the state that they build on. Pieces are fetched in
    /// their turn, one after the other.
    fn each_tracked<E: From<TaskError>>(
        &self,
        name: &str,
        mut each: impl FnMut(TrackedPart<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut pieces = self.pieces.iter().filter(|(_, piece)| piece.name == name).peekable();
        // The subtasks with a whole part so far.
        let mut writers = BTreeSet::new();
        let mut take = |part: &StatePart| {
            let Some(tracked) = self.tracked_part(part)? else { return Ok(()) };
            if !tracked.is_of_changes {
                writers.insert(tracked.writer);
            } else if !writers.contains(&tracked.writer) {
                return Err(tracked.part.header.broken(BASELESS).into());
            }
            each(tracked)
        };
        for at in 0..=self.parts.len() {
            while let Some((_, piece)) = pieces.next_if(|(behind, _)| *behind == at) {
                if self.owns_some(piece.share) {
                    take(&piece.fetched()?)?;
                }
            }
            if let Some(part) = self.parts.get(at).filter(|part| part.name == name) {
                take(part)?;
            }
        }
        Ok(())
    }

    /// The header of each subtask that wrote some of it, as of its last snapshot, with true if that is of changes.
    fn last_headers(&self, name: &str) -> Result<BTreeMap<u16, (Input<'a>, bool)>, TaskError> {
        let mut headers = BTreeMap::new();
        for part in self.named(name) {
            let Some(TrackedPart { writer, is_of_changes, part }) = self.tracked_part(part)? else { continue };
            headers.insert(writer, (part.header, is_of_changes));
        }
        Ok(headers)
    }

    /// Decodes each key's value, or `None` for a removed key, in order of arrival.
    fn read_each<V, E: From<TaskError>>(
        &self,
        name: &str,
        mut read: impl FnMut(&mut Input<'a>) -> Result<V, E>,
        mut put: impl FnMut(&KeyedRecord<'a>, Option<V>) -> Result<(), E>,
    ) -> Result<Vec<Input<'a>>, E> {
        let mut headers: BTreeMap<u16, Input<'a>> = BTreeMap::new();
        for tracked in self.tracked(name)? {
            headers.insert(tracked.writer, tracked.part.header);
            tracked.each(|record, input| put(record, input.map(&mut read).transpose()?))?;
        }
        Ok(headers.into_values().collect())
    }

    /// Restores the values of time slices, changes after the state that they build on. A value may come again with
    /// later contents. Returns the clock, and the time up to which windows have fired: the least of all subtasks. Both
    /// closures have to read past the value.
    pub fn read_slices<E: From<TaskError>>(
        &self,
        name: &str,
        mut pass: impl FnMut(&mut Input<'_>) -> Result<(), E>,
        mut put_back: impl FnMut(i64, &KeyedRecord<'_>, &mut Input<'_>) -> Result<(), E>,
    ) -> Result<Option<(i64, i64)>, E> {
        // The last report of each subtask: the clock, the fired time, and the start of its first slice.
        let mut times = BTreeMap::new();
        for (writer, (mut header, is_of_changes)) in self.last_headers(name)? {
            let (clock_ms, fired_ms) = (header.signed()?, header.signed()?);
            let begin_ms = if is_of_changes { header.signed()? } else { i64::MIN };
            times.insert(writer, (clock_ms, fired_ms, begin_ms));
        }
        self.each_tracked::<E>(name, |TrackedPart { writer, part, .. }| {
            let Some((.., begin_ms)) = times.get(&writer) else {
                return Err(part.header.broken("pieces without what follows them").into());
            };
            for mut entries in part.groups {
                while !entries.is_empty() {
                    let start_ms = entries.signed()?;
                    let record = entries.key()?;
                    // A slice that has been emitted and deleted since is still part of the state that changes build on.
                    if start_ms >= *begin_ms {
                        put_back(start_ms, &record, &mut entries)?;
                    } else {
                        pass(&mut entries)?;
                    }
                }
            }
            Ok(())
        })?;
        let times = times.into_values().map(|(clock_ms, fired_ms, _)| (clock_ms, fired_ms));
        Ok(times.reduce(|one, other| (one.0.min(other.0), one.1.min(other.1))))
    }

    /// Restores the timers that [`Snapshot::add_timers`](super::Snapshot::add_timers) wrote, changes after the state
    /// that they build on.
    pub fn read_timers(&self, name: &str, timers: &mut KeptTimers) -> Result<(), TaskError> {
        self.each_tracked(name, |TrackedPart { is_of_changes, part, .. }| {
            for mut entries in part.groups {
                while !entries.is_empty() {
                    let (timestamp_ms, owner) = (entries.signed()?, TimerKey::of(&entries.key()?));
                    if !is_of_changes || entries.is_changed()? {
                        timers.register(timestamp_ms, owner);
                    } else {
                        timers.delete(timestamp_ms, owner)?;
                    }
                    timers.make_room()?;
                }
            }
            Ok(())
        })
    }

    /// The parts of this name by key group, changes after the state that they build on.
    fn tracked(&self, name: &str) -> Result<Vec<TrackedPart<'a>>, TaskError> {
        let mut all: Vec<TrackedPart<'a>> = Vec::new();
        for part in self.named(name) {
            let Some(tracked) = self.tracked_part(part)? else { continue };
            if tracked.is_of_changes && all.iter().all(|before| before.writer != tracked.writer) {
                return Err(tracked.part.header.broken(BASELESS));
            }
            all.push(tracked);
        }
        Ok(all)
    }

    /// Returns `None` if no group of it is owned here, or if it is not stored by key group.
    fn tracked_part<'p>(&self, part: &'p StatePart) -> Result<Option<TrackedPart<'p>>, TaskError> {
        let (is_of_changes, Share::Groups { first: writer, .. }) = (part.is_of_changes(), part.share) else {
            return Ok(None);
        };
        let kind = if is_of_changes { OF_CHANGES } else { OF_GROUPS };
        Ok(self.keyed_part(part, kind)?.map(|part| TrackedPart { writer, is_of_changes, part }))
    }

    /// Returns true if one of these key groups is owned here, or if the part has to be refused because of its number of
    /// groups.
    fn owns_some(&self, share: Share) -> bool {
        let Share::Groups { first, last, of } = share else { return false };
        let (own_first, own_last) = (self.range.first().get(), self.range.last().get());
        of != self.range.max_parallelism() || (first <= own_last && own_first <= last)
    }

    fn named(&self, name: &str) -> impl Iterator<Item = &'a StatePart> {
        self.parts.iter().copied().filter(move |part| part.name == name)
    }

    /// Returns `None` if no group of it is owned here.
    fn keyed_part<'p>(&self, part: &'p StatePart, kind: u8) -> Result<Option<KeyedPart<'p>>, TaskError> {
        let Share::Groups { first, last, of } = part.share else { return Ok(None) };
        let now = self.range.max_parallelism();
        if of != now {
            let (uid, state) = (part.uid.clone(), part.name.clone());
            return Err(SnapshotError::KeyGroups { uid, state, written: of, now }.into());
        }
        let (own_first, own_last) = (self.range.first().get(), self.range.last().get());
        if !self.owns_some(part.share) {
            return Ok(None);
        }
        let mut input = Input::body(part, kind)?;
        let header = input.nested()?;
        let mut groups = Vec::new();
        while !input.is_empty() {
            let group = input.varint()?;
            let entries = input.nested()?;
            match u16::try_from(group) {
                Ok(group) if (first..=last).contains(&group) => {
                    if (own_first..=own_last).contains(&group) {
                        groups.push(Input { group: Some((KeyGroup::new(group), of)), ..entries });
                    }
                }
                _ => return Err(input.broken(format_args!("key group {group}, beyond {first} to {last}"))),
            }
        }
        Ok(Some(KeyedPart { header, groups }))
    }
}

/// Returns the data of a task to decode its values. Empty for a part [without it](super::has_medium).
pub fn medium_items(part: &StatePart) -> Result<Vec<&[u8]>, TaskError> {
    if part.share.is_in_flight() {
        return medium_of_channel(part);
    }
    let mut items = Vec::new();
    if part.name == MEDIUM {
        let mut input = Input::body(part, OF_ITEMS)?;
        while !input.is_empty() {
            items.push(input.block()?);
        }
    }
    Ok(items)
}

/// Bytes of a part that is restored. Every step is checked: invalid bytes yield an error that names the state.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    part: &'a StatePart,
    bytes: &'a [u8],
    /// The key group of these entries, and the number of groups.
    group: Option<(KeyGroup, u32)>,
}

impl<'a> Input<'a> {
    fn body(part: &'a StatePart, kind: u8) -> Result<Self, TaskError> {
        let mut input = Self { part, bytes: &part.bytes, group: None };
        match input.byte()? {
            OLDEST_VERSION..=VERSION => {}
            found => {
                let (uid, state) = (part.uid.clone(), part.name.clone());
                return Err(SnapshotError::Version { uid, state, found }.into());
            }
        }
        match input.byte()? {
            found if found == kind => Ok(input),
            found => Err(input.broken(format_args!("a body of kind {found}"))),
        }
    }

    /// Bytes that were stored outside a part. `part` names the state.
    pub(crate) fn kept(part: &'a StatePart, bytes: &'a [u8]) -> Self {
        Self { part, bytes, group: None }
    }

    /// The key group of these entries.
    pub(crate) fn group(&self) -> Option<u16> {
        self.group.map(|(group, _)| group.get())
    }

    pub(super) fn of_channel(part: &'a StatePart) -> Result<Self, TaskError> {
        Self::body(part, OF_CHANNEL)
    }

    /// Returns true if all bytes were read.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads past the bytes that `pass` reads, and returns them.
    pub(crate) fn passed(
        &mut self,
        pass: impl FnOnce(&mut Self) -> Result<(), TaskError>,
    ) -> Result<&'a [u8], TaskError> {
        let before = self.bytes;
        pass(self)?;
        Ok(&before[..before.len() - self.bytes.len()])
    }

    /// Takes all remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    /// Reads one byte.
    pub fn byte(&mut self) -> Result<u8, TaskError> {
        match self.bytes.split_first() {
            Some((byte, rest)) => {
                self.bytes = rest;
                Ok(*byte)
            }
            None => Err(self.broken("it ends too early")),
        }
    }

    /// Reads whether a key among changes is held.
    fn is_changed(&mut self) -> Result<bool, TaskError> {
        match self.byte()? {
            REMOVED => Ok(false),
            CHANGED => Ok(true),
            other => Err(self.broken(format_args!("{other} where 0 or 1 is expected"))),
        }
    }

    /// Reads an unsigned integer.
    pub fn varint(&mut self) -> Result<u64, TaskError> {
        let (value, rest) = take_varint(self.bytes).map_err(|error| self.broken(error))?;
        self.bytes = rest;
        Ok(value)
    }

    /// Reads an integer that may be negative.
    pub fn signed(&mut self) -> Result<i64, TaskError> {
        self.varint().map(unzigzag)
    }

    /// Reads an optional integer.
    pub(crate) fn option(&mut self) -> Result<Option<i64>, TaskError> {
        match self.byte()? {
            0 => Ok(None),
            1 => self.signed().map(Some),
            other => Err(self.broken(format_args!("{other} where 0 or 1 is expected"))),
        }
    }

    /// Reads bytes after their length.
    pub fn block(&mut self) -> Result<&'a [u8], TaskError> {
        let len = self.varint()?;
        self.take(len)
    }

    /// The same, as an input to read from.
    pub fn nested(&mut self) -> Result<Self, TaskError> {
        Ok(Self { bytes: self.block()?, ..*self })
    }

    /// Reads a key, as a record of that key without a value.
    pub fn key(&mut self) -> Result<KeyedRecord<'a>, TaskError> {
        let key = self.block()?;
        let given = self.given()?;
        let hash = hash_key(key);
        if let Some((group, of)) = self.group
            && key_group(hash, of) != group
        {
            return Err(
                self.broken(format_args!("a key of group {} among those of group {group}", key_group(hash, of)))
            );
        }
        Ok(KeyedRecord::of_key(key, hash, given))
    }

    /// Reads the form in which a key was given, if that is not the canonical one.
    pub(crate) fn given(&mut self) -> Result<Option<&'a [u8]>, TaskError> {
        match self.varint()? {
            0 => Ok(None),
            more => self.take(more - 1).map(Some),
        }
    }

    /// The error of bytes that break the format here.
    #[cold]
    pub fn broken(&self, what: impl std::fmt::Display) -> TaskError {
        let (uid, state) = (self.part.uid.clone(), self.part.name.clone());
        SnapshotError::Malformed { uid, state, what: what.to_string() }.into()
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], TaskError> {
        let taken = usize::try_from(len).ok().and_then(|len| self.bytes.split_at_checked(len));
        let Some((taken, rest)) = taken else {
            return Err(self.broken(format_args!("{len} bytes are announced and {} are there", self.bytes.len())));
        };
        self.bytes = rest;
        Ok(taken)
    }
}
