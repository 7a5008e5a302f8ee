//! State to bytes.

use flownet_core::keygroup::key_group;

use super::{Share, StatePart};
use crate::error::TaskError;
use crate::state::{Held, KeyGroupRange, KeyedState, StateError};
use crate::timer::{TimerKey, TimerService};
use crate::varint::{put_varint, zigzag};

pub(super) const VERSION: u8 = 1;
pub(super) const OF_GROUPS: u8 = 1;
pub(super) const OF_ITEMS: u8 = 2;

/// What one subtask of an operator keeps, as it is written out.
#[derive(Debug)]
pub struct Snapshot<'a> {
    uid: &'a str,
    subtask: u32,
    checkpoint_id: u64,
    parts: Vec<StatePart>,
}

impl<'a> Snapshot<'a> {
    /// Nothing yet, of a subtask of the operator with this uid.
    pub fn new(uid: &'a str, subtask: u32, checkpoint_id: u64) -> Self {
        Self { uid, subtask, checkpoint_id, parts: Vec::new() }
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
        let (first, last) = (range.first().get(), range.last().get());
        let share = Share::Groups { first, last, of: range.max_parallelism() };
        self.add(name, share, groups.into_bytes());
        Ok(())
    }

    /// Adds a value for each key.
    pub fn add_keyed<V>(
        &mut self,
        name: &str,
        state: &KeyedState<Held<V>>,
        mut write: impl FnMut(&[u8], &V, &mut Vec<u8>) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        self.add_groups(name, state.range(), |groups| {
            for (group, key, held) in state.iter() {
                let out = groups.at(group.get());
                put_key(out, key, held.given());
                write(held.key_value(key), &held.value, out)?;
            }
            Ok(())
        })
    }

    /// Adds the timers of keys.
    pub fn add_timers(
        &mut self,
        name: &str,
        range: KeyGroupRange,
        timers: &TimerService<TimerKey>,
    ) -> Result<(), TaskError> {
        self.add_groups(name, range, |groups| {
            for (timestamp_ms, owner) in timers.iter() {
                let out = groups.of(owner.hash())?;
                put_signed(out, timestamp_ms);
                put_key(out, owner.key(), owner.given());
            }
            Ok(())
        })
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
    pub fn into_parts(self) -> Vec<StatePart> {
        self.parts
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    fn add(&mut self, name: &str, share: Share, bytes: Vec<u8>) {
        self.parts.push(StatePart { uid: self.uid.to_owned(), name: name.to_owned(), share, bytes });
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
    fn new(range: KeyGroupRange) -> Self {
        let groups = usize::from(range.last().get() - range.first().get()) + 1;
        Self { range, header: Vec::new(), entries: vec![Vec::new(); groups] }
    }

    /// Where the entries of a key with this hash go.
    pub fn of(&mut self, hash: u32) -> Result<&mut Vec<u8>, StateError> {
        self.range.check(hash)?;
        Ok(self.at(key_group(hash, self.range.max_parallelism()).get()))
    }

    fn at(&mut self, group: u16) -> &mut Vec<u8> {
        &mut self.entries[usize::from(group - self.range.first().get())]
    }

    fn into_bytes(self) -> Vec<u8> {
        let entries: usize = self.entries.iter().map(|entries| entries.len() + 8).sum();
        let mut bytes = Vec::with_capacity(entries + self.header.len() + 8);
        bytes.extend([VERSION, OF_GROUPS]);
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
    match given {
        None => out.push(0),
        Some(given) => {
            put_varint(out, given.len() as u64 + 1);
            out.extend_from_slice(given);
        }
    }
}
