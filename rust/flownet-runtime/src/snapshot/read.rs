//! Bytes to state.

use flownet_core::KeyGroup;
use flownet_core::keygroup::{hash_key, key_group};
use serde::{Deserialize, Serialize};

use super::write::{OF_GROUPS, OF_ITEMS, VERSION};
use super::{Share, StatePart};
use crate::error::TaskError;
use crate::operator::KeyedRecord;
use crate::state::{Held, KeyGroupRange, KeyedState};
use crate::timer::{TimerKey, TimerService};
use crate::varint::{take_varint, unzigzag};

/// Why state that was kept cannot be read back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Another version of flownet wrote it.
    #[error("state '{state}' of operator '{uid}' is of format {found}, and this flownet reads format 1")]
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

/// What was kept of one operator, for one of its subtasks.
#[derive(Clone, Debug)]
pub struct Restored<'a> {
    parts: Vec<&'a StatePart>,
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

impl<'a> Restored<'a> {
    /// Of `parts`, those of the operator with this uid.
    pub fn of(uid: &str, parts: &'a [StatePart], subtask: u32, range: KeyGroupRange) -> Self {
        Self { parts: parts.iter().filter(|part| part.uid == uid).collect(), subtask, range }
    }

    /// Whether nothing was kept.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether some subtask kept something under this name.
    pub fn has(&self, name: &str) -> bool {
        self.named(name).next().is_some()
    }

    /// What lies by key group under this name.
    pub fn groups(&self, name: &str) -> Result<Vec<KeyedPart<'a>>, TaskError> {
        self.named(name).filter_map(|part| self.keyed_part(part).transpose()).collect()
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

    /// Of the items of a name, those that this subtask takes where each is to be taken by one: its own where it wrote some
    /// and there are as many subtasks as before, else each in turn.
    pub fn dealt_items(&self, name: &str, parallelism: u32) -> Result<Vec<Input<'a>>, TaskError> {
        let items = self.items(name)?;
        let before = self.named(name).filter(|part| matches!(part.share, Share::All { .. })).count();
        let is_same = before == parallelism as usize;
        let turns = (0..parallelism).cycle();
        let mine =
            |(turn, (subtask, _)): &(u32, (u32, Input<'a>))| self.subtask == if is_same { *subtask } else { *turn };
        Ok(turns.zip(items).filter(mine).map(|(_, (_, input))| input).collect())
    }

    /// Puts back what [`Snapshot::add_keyed`](super::Snapshot::add_keyed) wrote.
    pub fn read_keyed<V>(
        &self,
        name: &str,
        state: &mut KeyedState<Held<V>>,
        mut read: impl FnMut(&mut Input<'a>) -> Result<V, TaskError>,
    ) -> Result<(), TaskError> {
        for part in self.groups(name)? {
            for mut entries in part.groups {
                while !entries.is_empty() {
                    let record = entries.key()?;
                    let value = read(&mut entries)?;
                    state.insert(record.key, record.hash, Held::new(&record, value))?;
                }
            }
        }
        Ok(())
    }

    /// Puts back what [`Snapshot::add_timers`](super::Snapshot::add_timers) wrote.
    pub fn read_timers(&self, name: &str, timers: &mut TimerService<TimerKey>) -> Result<(), TaskError> {
        for part in self.groups(name)? {
            for mut entries in part.groups {
                while !entries.is_empty() {
                    let timestamp_ms = entries.signed()?;
                    timers.register(timestamp_ms, TimerKey::of(&entries.key()?));
                }
            }
        }
        Ok(())
    }

    fn named(&self, name: &str) -> impl Iterator<Item = &'a StatePart> {
        self.parts.iter().copied().filter(move |part| part.name == name)
    }

    /// None if nothing of it is owned here.
    fn keyed_part(&self, part: &'a StatePart) -> Result<Option<KeyedPart<'a>>, TaskError> {
        let Share::Groups { first, last, of } = part.share else { return Ok(None) };
        let now = self.range.max_parallelism();
        if of != now {
            let (uid, state) = (part.uid.clone(), part.name.clone());
            return Err(SnapshotError::KeyGroups { uid, state, written: of, now }.into());
        }
        let (own_first, own_last) = (self.range.first().get(), self.range.last().get());
        if last < own_first || own_last < first {
            return Ok(None);
        }
        let mut input = Input::body(part, OF_GROUPS)?;
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
            VERSION => {}
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

    /// Whether all was read.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
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
        let given = match self.varint()? {
            0 => None,
            more => Some(self.take(more - 1)?),
        };
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
