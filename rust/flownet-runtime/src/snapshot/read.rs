//! Bytes to state.

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

/// Why state that was kept cannot be read back.
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
        /// What it says.
        found: u8,
    },
    /// The bytes are not what flownet writes.
    #[error("state '{state}' of operator '{uid}' cannot be read: {what}")]
    Malformed {
        /// The operator.
        uid: String,
        /// Its state.
        state: String,
        /// Where it breaks the format.
        what: String,
    },
    /// A part of it is damaged or gone.
    #[error("state '{state}' of operator '{uid}' cannot be read: {reason}")]
    Damaged {
        /// The operator.
        uid: String,
        /// Its state.
        state: String,
        /// What the store said.
        reason: String,
    },
    /// It cannot be fetched from where it is kept.
    #[error("state '{state}' of operator '{uid}' cannot be read: {reason}")]
    OutOfReach {
        /// The operator.
        uid: String,
        /// Its state.
        state: String,
        /// What the store said.
        reason: String,
    },
    /// The operator keeps nothing of the kind.
    #[error("state '{state}' was kept of operator '{uid}', which has none: the checkpoint is of another dataflow")]
    Unknown {
        /// The operator.
        uid: String,
        /// Its state.
        state: String,
    },
    /// The operator cannot go on with it.
    #[error("operator '{uid}' cannot go on from the checkpoint: {reason}")]
    Refused {
        /// The operator.
        uid: String,
        /// Why.
        reason: String,
    },
    /// The job has another number of key groups now, so keys would lie elsewhere.
    #[error(
        "state '{state}' of operator '{uid}' lies in {written} key groups and the job has {now}: max_parallelism cannot \
         change once there is state"
    )]
    KeyGroups {
        /// The operator.
        uid: String,
        /// Its state.
        state: String,
        /// When it was written.
        written: u32,
        /// Now.
        now: u32,
    },
}

impl SnapshotError {
    /// Whether the same may be read another time: what is kept elsewhere may be in reach again.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::OutOfReach { .. })
    }
}

/// What was kept of one operator, for one of its subtasks.
#[derive(Clone, Debug)]
pub struct RestoredState<'a> {
    parts: Vec<&'a StatePart>,
    /// What is read piece by piece, each behind so many of the parts.
    pieces: Vec<(usize, &'a Piece)>,
    subtask: u32,
    range: KeyGroupRange,
}

/// What one subtask wrote of a state, as far as its key groups are owned here now.
#[derive(Debug)]
pub struct KeyedPart<'a> {
    /// What concerns all groups.
    pub header: Input<'a>,
    /// The entries of each group that is owned.
    pub groups: Vec<Input<'a>>,
}

/// One part of what lies by key group.
struct TrackedPart<'a> {
    /// The first key group of the subtask that wrote it.
    writer: u16,
    is_of_changes: bool,
    part: KeyedPart<'a>,
}

impl<'a> TrackedPart<'a> {
    /// Each key with what is kept of it, to be gone past, or nothing where that is no more.
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
    /// Of `parts`, those of the operator with this uid.
    pub fn of(uid: &str, parts: &'a [StatePart], subtask: u32, range: KeyGroupRange) -> Self {
        let parts = parts.iter().filter(|part| part.uid == uid).collect();
        Self { parts, pieces: Vec::new(), subtask, range }
    }

    /// The same where some of it may be elsewhere.
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

    /// Whether nothing was kept.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// For who keeps nothing: there must be nothing, but for what a stage keeps of any operator.
    pub(crate) fn refuse(&self) -> Result<(), TaskError> {
        match self.parts.iter().find(|part| !is_incidental(&part.name)) {
            None => Ok(()),
            Some(part) => Err(SnapshotError::Unknown { uid: part.uid.clone(), state: part.name.clone() }.into()),
        }
    }

    /// The error of an operator that cannot go on with what was kept.
    #[cold]
    pub fn refused(&self, operator: &str, reason: impl std::fmt::Display) -> TaskError {
        SnapshotError::Refused { uid: operator.to_owned(), reason: reason.to_string() }.into()
    }

    /// Whether some subtask kept something under this name.
    pub fn has(&self, name: &str) -> bool {
        self.named(name).next().is_some()
    }

    /// What lies by key group under this name.
    pub fn groups(&self, name: &str) -> Result<Vec<KeyedPart<'a>>, TaskError> {
        self.named(name).filter_map(|part| self.keyed_part(part, OF_GROUPS).transpose()).collect()
    }

    /// The header of each part under this name that is of key groups owned here, with the first and the last of its groups.
    pub(crate) fn headers(&self, name: &str) -> Result<Vec<(u16, u16, Input<'a>)>, TaskError> {
        let mut headers = Vec::new();
        for part in self.named(name) {
            let Share::Groups { first, last, .. } = part.share else { continue };
            let kind = if part.is_of_changes() { OF_CHANGES } else { OF_GROUPS };
            headers.extend(self.keyed_part(part, kind)?.map(|keyed| (first, last, keyed.header)));
        }
        Ok(headers)
    }

    /// What this subtask kept under this name as one number, if there are as many subtasks as before; else the least that
    /// any of them kept.
    pub fn own_or_least(&self, name: &str, parallelism: u32) -> Result<Option<i64>, TaskError> {
        let mut all = Vec::new();
        for (subtask, mut item) in self.items(name)? {
            all.push((subtask, item.signed()?));
        }
        let is_same = self.is_of_as_many(name, parallelism);
        let mine = all.into_iter().filter(|(subtask, _)| !is_same || *subtask == self.subtask);
        Ok(mine.map(|(_, number)| number).min())
    }

    /// What belongs to no key under this name: by subtask that wrote it, in order.
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

    /// Whether what belongs to no key under this name is of the subtasks that there are now, so that each may take its own.
    pub fn is_of_as_many(&self, name: &str, parallelism: u32) -> bool {
        let writers = self.named(name).filter_map(|part| match part.share {
            Share::All { subtask } => Some(subtask),
            Share::Groups { .. } | Share::Channel { .. } | Share::Dealt { .. } | Share::Moved { .. } => None,
        });
        let mut count = 0;
        writers.inspect(|_| count += 1).all(|subtask| subtask < parallelism) && count == parallelism
    }

    /// Of the items of a name, those that this subtask takes where each is to be taken by one: its own where it wrote some
    /// and there are as many subtasks as before, else each in turn.
    pub fn dealt_items(&self, name: &str, parallelism: u32) -> Result<Vec<Input<'a>>, TaskError> {
        let items = self.items(name)?;
        let is_same = self.is_of_as_many(name, parallelism);
        let turns = (0..parallelism).cycle();
        let mine =
            |(turn, (subtask, _)): &(u32, (u32, Input<'a>))| self.subtask == if is_same { *subtask } else { *turn };
        Ok(turns.zip(items).filter(mine).map(|(_, (_, input))| input).collect())
    }

    /// Of the items of a name, those that this subtask takes where each is to be taken by one, and where those of one
    /// subtask belong together: they come to one subtask, in their order, and its own to itself if it is still there.
    pub fn dealt_lists(&self, name: &str, parallelism: u32) -> Result<Vec<Input<'a>>, TaskError> {
        let mine = self.items(name)?.into_iter().filter(|(subtask, _)| subtask % parallelism == self.subtask);
        Ok(mine.map(|(_, input)| input).collect())
    }

    /// Puts back what [`Snapshot::add_keyed`](super::Snapshot::add_keyed) wrote, changes upon what they build on. Gives the
    /// header of each subtask that wrote some of it, as of its last snapshot.
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

    /// The same for what [`Snapshot::add_large`](super::Snapshot::add_large) wrote, which is one form; pieces are fetched one after
    /// the other.
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

    /// Goes through the parts of what lies by key group, changes behind what they build on; pieces are fetched when their turn
    /// comes, one after the other.
    fn each_tracked<E: From<TaskError>>(
        &self,
        name: &str,
        mut each: impl FnMut(TrackedPart<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut pieces = self.pieces.iter().filter(|(_, piece)| piece.name == name).peekable();
        // The subtasks of which something came.
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

    /// The header of each subtask that wrote some of it, as of its last snapshot, and whether that is of changes.
    fn last_headers(&self, name: &str) -> Result<BTreeMap<u16, (Input<'a>, bool)>, TaskError> {
        let mut headers = BTreeMap::new();
        for part in self.named(name) {
            let Some(TrackedPart { writer, is_of_changes, part }) = self.tracked_part(part)? else { continue };
            headers.insert(writer, (part.header, is_of_changes));
        }
        Ok(headers)
    }

    /// Reads what is kept of each key, or that nothing is any more, as it comes.
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

    /// Puts back the values of slices of time, changes upon what they build on: each may come again, as it was later. Gives how
    /// far time had come, and up to when windows had fired: the least that any subtask said. Both go past the value.
    pub fn read_slices<E: From<TaskError>>(
        &self,
        name: &str,
        mut pass: impl FnMut(&mut Input<'_>) -> Result<(), E>,
        mut put_back: impl FnMut(i64, &KeyedRecord<'_>, &mut Input<'_>) -> Result<(), E>,
    ) -> Result<Option<(i64, i64)>, E> {
        // Of each subtask as it said last: how far time had come, and when the first of its slices begins.
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
                    // What has been given out and forgotten since is still part of what changes build on.
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

    /// Puts back what [`Snapshot::add_timers`](super::Snapshot::add_timers) wrote, changes upon what they build on.
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

    /// What lies by key group under this name, changes behind what they build on.
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

    /// None if nothing of it is owned here, or if it does not lie by key group.
    fn tracked_part<'p>(&self, part: &'p StatePart) -> Result<Option<TrackedPart<'p>>, TaskError> {
        let (is_of_changes, Share::Groups { first: writer, .. }) = (part.is_of_changes(), part.share) else {
            return Ok(None);
        };
        let kind = if is_of_changes { OF_CHANGES } else { OF_GROUPS };
        Ok(self.keyed_part(part, kind)?.map(|part| TrackedPart { writer, is_of_changes, part }))
    }

    /// Whether one of these key groups is owned here, or it takes a look at the bytes to refuse them.
    fn owns_some(&self, share: Share) -> bool {
        let Share::Groups { first, last, of } = share else { return false };
        let (own_first, own_last) = (self.range.first().get(), self.range.last().get());
        of != self.range.max_parallelism() || (first <= own_last && own_first <= last)
    }

    fn named(&self, name: &str) -> impl Iterator<Item = &'a StatePart> {
        self.parts.iter().copied().filter(move |part| part.name == name)
    }

    /// None if nothing of it is owned here.
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

/// What the medium of a task kept to read its values by; nothing of a part [without it](super::has_medium).
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

/// Bytes of a part on their way back. Every step is checked: what is no state is an error that says whose.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    part: &'a StatePart,
    bytes: &'a [u8],
    /// Whose entries these are, out of how many groups.
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

    /// What was kept elsewhere than in a part; `part` says of which state.
    pub(crate) fn kept(part: &'a StatePart, bytes: &'a [u8]) -> Self {
        Self { part, bytes, group: None }
    }

    /// The key group whose entries these are.
    pub(crate) fn group(&self) -> Option<u16> {
        self.group.map(|(group, _)| group.get())
    }

    pub(super) fn of_channel(part: &'a StatePart) -> Result<Self, TaskError> {
        Self::body(part, OF_CHANNEL)
    }

    /// Whether all was read.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Goes past what `pass` does, and gives the bytes of that.
    pub(crate) fn passed(
        &mut self,
        pass: impl FnOnce(&mut Self) -> Result<(), TaskError>,
    ) -> Result<&'a [u8], TaskError> {
        let before = self.bytes;
        pass(self)?;
        Ok(&before[..before.len() - self.bytes.len()])
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    /// One byte.
    pub fn byte(&mut self) -> Result<u8, TaskError> {
        match self.bytes.split_first() {
            Some((byte, rest)) => {
                self.bytes = rest;
                Ok(*byte)
            }
            None => Err(self.broken("it ends too early")),
        }
    }

    /// Whether a key among changes is held.
    fn is_changed(&mut self) -> Result<bool, TaskError> {
        match self.byte()? {
            REMOVED => Ok(false),
            CHANGED => Ok(true),
            other => Err(self.broken(format_args!("{other} where 0 or 1 is expected"))),
        }
    }

    /// An unsigned integer.
    pub fn varint(&mut self) -> Result<u64, TaskError> {
        let (value, rest) = take_varint(self.bytes).map_err(|error| self.broken(error))?;
        self.bytes = rest;
        Ok(value)
    }

    /// An integer that may be negative.
    pub fn signed(&mut self) -> Result<i64, TaskError> {
        self.varint().map(unzigzag)
    }

    /// An integer, if there is one.
    pub(crate) fn option(&mut self) -> Result<Option<i64>, TaskError> {
        match self.byte()? {
            0 => Ok(None),
            1 => self.signed().map(Some),
            other => Err(self.broken(format_args!("{other} where 0 or 1 is expected"))),
        }
    }

    /// Bytes behind their length.
    pub fn block(&mut self) -> Result<&'a [u8], TaskError> {
        let len = self.varint()?;
        self.take(len)
    }

    /// The same, to be read on.
    pub fn nested(&mut self) -> Result<Self, TaskError> {
        Ok(Self { bytes: self.block()?, ..*self })
    }

    /// A key, as the record without a value that would bring it.
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

    /// The form that a key was given in, where that was another than the canonical one.
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
