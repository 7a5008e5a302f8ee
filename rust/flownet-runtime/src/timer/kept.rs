//! Timers of keys that are part of snapshots, which write only the changes since an earlier snapshot.
//!
//! Each timer stores the number of snapshots before it was set. Timers that are no longer set are listed, while there
//! is a snapshot to build on that may have them. If timers may be on disk, the list may be too.
//!
//! # Invariants
//! - K1: a timer that is in a snapshot which may be built on, and is no longer set, is listed as deleted since. Or it
//!   is far, and was deleted there.
//! - K2: a timer that is set, and stores that it was set before a snapshot, is in that snapshot or in the one that it
//!   builds on.
//! - K3: a listed deletion precedes all entries of that timer among the far ones, where it was set again.

#[cfg(test)]
mod tests;
mod view;

use std::cmp::Ordering;

use self::view::View;
use super::{TimerKey, TimerOwner, TimerService};
use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::state::{Base, Changes, KeyGroupRange, OnDisk};
use crate::varint::{put_varint, take_varint};

/// The timers of keys.
#[derive(Default)]
pub struct KeptTimers {
    timers: TimerService<Owner>,
    changes: Changes<(i64, TimerKey)>,
}

/// The owner of a timer, and the number of snapshots before it was set, which is not part of its identity.
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

    fn read(bytes: &[u8]) -> Option<Self> {
        let (taken, key) = take_varint(bytes).ok()?;
        Some(Self { key: TimerKey::read(key)?, taken: u32::try_from(taken).ok()? })
    }

    fn taken(&self) -> u32 {
        self.taken
    }

    const IS_LISTED: bool = true;

    fn bytes_elsewhere(&self) -> usize {
        self.key.bytes_elsewhere()
    }
}

/// The timers that a snapshot writes.
pub(crate) struct TimersSince {
    /// The snapshot that it builds on, if it contains changes only.
    pub(crate) base: Option<Base>,
    /// Near timers that were set since; `None` if all timers are written.
    pub(crate) set: Option<Vec<(i64, TimerKey)>>,
    /// Timers that a snapshot had, or may have had, and that were deleted or fired since. Some may be set again.
    pub(crate) unset: Vec<(i64, TimerKey)>,
    /// A view of the far timers, to be read while the task continues: all, or the changes since, deleted and fired ones
    /// first. Near timers are changes to it.
    pub(crate) on_disk: Option<OnDisk>,
}

impl KeptTimers {
    /// Returns an instance without timers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets timers that do not fit in memory go to disk, see [`TimerService::open`].
    pub fn open(&mut self, state: &str, among: usize, cx: &TaskContext) {
        self.timers.open(state, among, cx);
    }

    /// Moves all timers out. They are in no snapshot.
    #[must_use]
    pub fn take(&mut self) -> Self {
        self.changes = Changes::default();
        Self { timers: self.timers.take(), changes: Changes::default() }
    }

    /// Sets a timer. If it is set already, it stays as it is.
    #[inline]
    pub fn register(&mut self, timestamp_ms: i64, key: TimerKey) {
        self.timers.register(timestamp_ms, Owner { key, taken: self.changes.taken() });
    }

    /// Deletes a timer, if it is set.
    ///
    /// # Errors
    /// See [`TimerService::delete`].
    pub fn delete(&mut self, timestamp_ms: i64, key: TimerKey) -> Result<(), TaskError> {
        let owner = Owner { key, taken: self.changes.taken() };
        if let Some(owner) = self.timers.delete(timestamp_ms, owner)? {
            self.list(timestamp_ms, &owner);
        }
        self.list_unset();
        Ok(())
    }

    /// Takes the earliest due timer. Returns one at a time, because firing it may set or delete others.
    ///
    /// # Errors
    /// See [`TimerService::pop_due`].
    pub fn pop_due(&mut self, now_ms: i64) -> Result<Option<(i64, TimerKey)>, TaskError> {
        let Some((timestamp_ms, owner)) = self.timers.pop_due(now_ms)? else { return Ok(None) };
        self.list(timestamp_ms, &owner);
        self.list_unset();
        Ok(Some((timestamp_ms, owner.key)))
    }

    /// Writes timers that do not fit in memory to disk, see [`TimerService::make_room`].
    ///
    /// # Errors
    /// They cannot be written.
    #[inline]
    pub fn make_room(&mut self) -> Result<(), TaskError> {
        let made = self.timers.make_room();
        self.list_unset();
        made
    }

    /// A timer that was set after the last snapshot is in none.
    #[inline]
    fn list(&mut self, timestamp_ms: i64, owner: &Owner) {
        if owner.taken >= self.changes.taken() {
            return;
        }
        if self.timers.far.is_some() {
            self.list_on_disk(timestamp_ms, owner.key.clone(), self.changes.taken());
        } else {
            self.changes.on_removed(|| (timestamp_ms, owner.key.clone()), || self.timers.most());
        }
    }

    /// Deletions among the far timers are listed when their leaf is compacted, because they are then no longer in it.
    #[inline]
    fn list_unset(&mut self) {
        if let Some(far) = &mut self.timers.far
            && let Some(unset) = far.take_unset()
        {
            for (timestamp_ms, owner) in unset {
                self.list_on_disk(timestamp_ms, owner.key, owner.taken);
            }
        }
    }

    /// Lists a timer that was deleted after `taken` snapshots.
    #[cold]
    fn list_on_disk(&mut self, timestamp_ms: i64, key: TimerKey, taken: u32) {
        let Some(far) = &mut self.timers.far else { return };
        if self.changes.oldest().is_none_or(|oldest| !oldest.is_before(taken)) {
            return;
        }
        far.on_gone(&(timestamp_ms, Owner { key, taken }));
        if far.gone().is_multiple_of(FEW) && far.gone() > self.timers.len() / 2 + FEW {
            self.forget();
        }
    }

    /// Marks all earlier snapshots as not to be built on.
    fn forget(&mut self) {
        self.changes.forget();
        if let Some(far) = &mut self.timers.far {
            far.forget_gone(None);
        }
    }

    /// The time at which the earliest timer is due.
    pub fn next_ms(&self) -> Option<i64> {
        self.timers.next_ms()
    }

    /// Visits all set timers, the earliest first.
    ///
    /// # Errors
    /// See [`TimerService::each`].
    pub fn each<E: From<TaskError>>(&self, mut each: impl FnMut(i64, &TimerKey) -> Result<(), E>) -> Result<(), E> {
        self.timers.each(|timestamp_ms, owner| each(timestamp_ms, &owner.key))
    }

    /// The near timers among them.
    pub(crate) fn near(&self) -> impl Iterator<Item = (i64, TimerKey)> {
        self.timers.near().map(|(timestamp_ms, owner)| (timestamp_ms, owner.key))
    }

    /// Number of timers, approximate if there are many.
    pub fn len(&self) -> usize {
        self.timers.len()
    }

    /// Returns true if no timer is set.
    pub fn is_empty(&self) -> bool {
        self.timers.is_empty()
    }

    /// Returns the changes since `base` if they affect at most half of the timers, else all timers.
    pub(crate) fn since(&mut self, base: Option<Base>, range: KeyGroupRange) -> Result<TimersSince, TaskError> {
        let changed = base.map(|base| (base, self.set_since(base))).filter(|(base, set)| {
            let far = self.timers.far.as_ref().map_or(0, |far| far.len_since(base.first_behind()));
            2 * (set.len() + far) <= self.len()
        });
        let (base, set) = changed.map_or((None, None), |(base, set)| (Some(base), Some(set)));
        let listed = base.map(|base| self.changes.removed_since(base).cloned());
        let mut unset: Vec<_> = listed.into_iter().flatten().collect();
        let Some(far) = &mut self.timers.far else { return Ok(TimersSince { base, set, unset, on_disk: None }) };
        let since = base.map(|base| base.first_behind());
        let (far, gone) = far.view(since)?;
        unset.extend(gone.into_iter().map(|(timestamp_ms, owner)| (timestamp_ms, owner.key)));
        let on_disk = far.map(|far| {
            let mut view = View::new(far, range, since);
            let bytes = view.bytes();
            OnDisk { piece: Box::new(move || view.piece()), bytes, first_bytes: [0; 4] }
        });
        Ok(TimersSince { base, set, unset, on_disk })
    }

    /// The near timers that were set since a snapshot, unsorted.
    fn set_since(&self, base: Base) -> Vec<(i64, TimerKey)> {
        let mut set = Vec::new();
        self.timers.each_since(base.first_behind(), |timestamp_ms, owner| {
            if base.is_before(owner.taken) {
                set.push((timestamp_ms, owner.key.clone()));
            }
        });
        set
    }

    /// Reports a snapshot. Deletions are dropped from the list if no snapshot that may have the timers is built on
    /// again.
    pub(crate) fn on_taken(&mut self) {
        if let Some(far) = &mut self.timers.far {
            far.forget_gone(self.changes.oldest().map(|oldest| oldest.first_behind()));
        }
    }

    /// The changes since snapshots.
    pub(crate) fn changes(&self) -> &Changes<(i64, TimerKey)> {
        &self.changes
    }

    /// The same, to report a snapshot to.
    pub(crate) fn changes_mut(&mut self) -> &mut Changes<(i64, TimerKey)> {
        &mut self.changes
    }
}

/// Number of timers that may be listed as deleted, however few are set.
const FEW: usize = 1024;
