//! Timers of keys that are part of snapshots, which write just what changed since an earlier one.
//!
//! Each timer says after how many snapshots it was set. Those that are set no longer are listed, as long as there is a
//! snapshot to build on which may have them.
//!
//! # Invariants
//! - K1: a timer that is in a snapshot which may be built on, and no longer set, is listed as taken back since.
//! - K2: one that is set, and says that it was before a snapshot, is in that snapshot, or in what that builds on.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use super::{TimerKey, TimerOwner, TimerService};
use crate::state::{Base, Changes};
use crate::varint::{put_varint, take_varint};

/// The timers of keys.
#[derive(Debug, Default)]
pub struct KeptTimers {
    timers: TimerService<Owner>,
    changes: Changes<(i64, TimerKey)>,
}

/// Whose timer it is, and after how many snapshots it was set, which makes no other timer of it.
#[derive(Clone, Debug)]
struct Owner {
    key: TimerKey,
    taken: u32,
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Owner {}

impl PartialOrd for Owner {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Owner {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

impl TimerOwner for Owner {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.taken.into());
        self.key.put(out);
    }

    fn read(bytes: &[u8]) -> Self {
        let (taken, key) = take_varint(bytes).expect("bytes of its own");
        Self { key: TimerKey::read(key), taken: u32::try_from(taken).expect("a number of snapshots") }
    }

    fn taken(&self) -> u32 {
        self.taken
    }
}

impl KeptTimers {
    /// No timers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a timer; one that is set already stays as it is.
    #[inline]
    pub fn register(&mut self, timestamp_ms: i64, key: TimerKey) {
        self.timers.register(timestamp_ms, Owner { key, taken: self.changes.taken() });
    }

    /// Takes a timer back, if it is set.
    pub fn delete(&mut self, timestamp_ms: i64, key: TimerKey) {
        let owner = Owner { key, taken: self.changes.taken() };
        if let Some(owner) = self.timers.delete(timestamp_ms, owner) {
            self.list(timestamp_ms, &owner);
        }
    }

    /// The earliest timer whose time has come. One at a time, because firing it may set or delete others.
    pub fn pop_due(&mut self, now_ms: i64) -> Option<(i64, TimerKey)> {
        let (timestamp_ms, owner) = self.timers.pop_due(now_ms)?;
        self.list(timestamp_ms, &owner);
        Some((timestamp_ms, owner.key))
    }

    /// One that was set after the last snapshot is in none.
    #[inline]
    fn list(&mut self, timestamp_ms: i64, owner: &Owner) {
        if owner.taken < self.changes.taken() {
            self.changes.on_removed(|| (timestamp_ms, owner.key.clone()), || self.timers.most());
        }
    }

    /// When the earliest timer is due.
    pub fn next_ms(&self) -> Option<i64> {
        self.timers.next_ms()
    }

    /// Those that are set, the earliest first.
    pub fn iter(&self) -> impl Iterator<Item = (i64, TimerKey)> {
        self.timers.iter().map(|(timestamp_ms, owner)| (timestamp_ms, owner.key))
    }

    /// How many are set; where they are many, about.
    pub fn len(&self) -> usize {
        self.timers.len()
    }

    /// Whether no timer is set.
    pub fn is_empty(&self) -> bool {
        self.timers.is_empty()
    }

    /// Those that were set since a snapshot, in no order; some that were set before may be among them.
    pub(crate) fn set_since(&self, base: Base) -> Vec<(i64, TimerKey)> {
        let mut set = Vec::new();
        self.timers.each_since(base.first_behind(), |timestamp_ms, owner| {
            if base.is_before(owner.taken) {
                set.push((timestamp_ms, owner.key.clone()));
            }
        });
        set
    }

    /// Those that a snapshot had, or may have had, and that were taken back or fired since; some may be set again.
    pub(crate) fn unset_since(&self, base: Base) -> impl Iterator<Item = (i64, &TimerKey)> {
        self.changes.removed_since(base).map(|(timestamp_ms, key)| (*timestamp_ms, key))
    }

    /// What has changed since snapshots.
    pub(crate) fn changes(&self) -> &Changes<(i64, TimerKey)> {
        &self.changes
    }

    /// The same, to be told of a snapshot.
    pub(crate) fn changes_mut(&mut self) -> &mut Changes<(i64, TimerKey)> {
        &mut self.changes
    }
}
