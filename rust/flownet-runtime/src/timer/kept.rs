//! Timers of keys that are part of snapshots, which write just what changed since an earlier one.
//!
//! Each timer says after how many snapshots it was set. Those that are set no longer are listed, as long as there is a
//! snapshot to build on which may have them. Where timers may lie on disk that list does, too.
//!
//! # Invariants
//! - K1: a timer that is in a snapshot which may be built on, and no longer set, is listed as taken back since, or lies far off
//!   and was taken back there.
//! - K2: one that is set, and says that it was before a snapshot, is in that snapshot, or in what that builds on.
//! - K3: what is listed of a timer was before all that lies far off of it: there it was set again.

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

/// What of timers is written into a snapshot.
pub(crate) struct TimersSince {
    /// The snapshot that it is written upon, as what has changed since.
    pub(crate) base: Option<Base>,
    /// Of those near what was set since; none where all of them are written.
    pub(crate) set: Option<Vec<(i64, TimerKey)>>,
    /// Those that a snapshot had, or may have had, and that were taken back or fired since; some may be set again.
    pub(crate) unset: Vec<(i64, TimerKey)>,
    /// What lies far off now, to be read while the task goes on: all, or what was done since, what was taken back or fired
    /// first. What is near has to be put upon it.
    pub(crate) on_disk: Option<OnDisk>,
}

impl KeptTimers {
    /// No timers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets what has no room in memory lie where the job says, as [`TimerService::open`].
    pub fn open(&mut self, state: &str, among: usize, cx: &TaskContext) {
        self.timers.open(state, among, cx);
    }

    /// All of them, which lie here no more, and are in no snapshot.
    #[must_use]
    pub fn take(&mut self) -> Self {
        self.changes = Changes::default();
        Self { timers: self.timers.take(), changes: Changes::default() }
    }

    /// Sets a timer; one that is set already stays as it is.
    #[inline]
    pub fn register(&mut self, timestamp_ms: i64, key: TimerKey) {
        self.timers.register(timestamp_ms, Owner { key, taken: self.changes.taken() });
    }

    /// Takes a timer back, if it is set.
    ///
    /// # Errors
    /// As [`TimerService::delete`].
    pub fn delete(&mut self, timestamp_ms: i64, key: TimerKey) -> Result<(), TaskError> {
        let owner = Owner { key, taken: self.changes.taken() };
        if let Some(owner) = self.timers.delete(timestamp_ms, owner)? {
            self.list(timestamp_ms, &owner);
        }
        self.list_unset();
        Ok(())
    }

    /// The earliest timer whose time has come. One at a time, because firing it may set or delete others.
    ///
    /// # Errors
    /// As [`TimerService::pop_due`].
    pub fn pop_due(&mut self, now_ms: i64) -> Result<Option<(i64, TimerKey)>, TaskError> {
        let Some((timestamp_ms, owner)) = self.timers.pop_due(now_ms)? else { return Ok(None) };
        self.list(timestamp_ms, &owner);
        self.list_unset();
        Ok(Some((timestamp_ms, owner.key)))
    }

    /// Writes to disk what has no room in memory, as [`TimerService::make_room`].
    ///
    /// # Errors
    /// It cannot be written.
    #[inline]
    pub fn make_room(&mut self) -> Result<(), TaskError> {
        let made = self.timers.make_room();
        self.list_unset();
        made
    }

    /// One that was set after the last snapshot is in none.
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

    /// What was taken back far off is listed when that is looked through, and lies there no more.
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

    /// One that was taken back after so many snapshots.
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

    /// Nothing may be built on what there was.
    fn forget(&mut self) {
        self.changes.forget();
        if let Some(far) = &mut self.timers.far {
            far.forget_gone(None);
        }
    }

    /// When the earliest timer is due.
    pub fn next_ms(&self) -> Option<i64> {
        self.timers.next_ms()
    }

    /// Those that are set, the earliest first.
    ///
    /// # Errors
    /// As [`TimerService::each`].
    pub fn each<E: From<TaskError>>(&self, mut each: impl FnMut(i64, &TimerKey) -> Result<(), E>) -> Result<(), E> {
        self.timers.each(|timestamp_ms, owner| each(timestamp_ms, &owner.key))
    }

    /// Those of them that are not far off.
    pub(crate) fn near(&self) -> impl Iterator<Item = (i64, TimerKey)> {
        self.timers.near().map(|(timestamp_ms, owner)| (timestamp_ms, owner.key))
    }

    /// How many are set; where they are many, about.
    pub fn len(&self) -> usize {
        self.timers.len()
    }

    /// Whether no timer is set.
    pub fn is_empty(&self) -> bool {
        self.timers.is_empty()
    }

    /// What has changed since `base`, if that is no more than half of them, or all of them.
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

    /// Those near that were set since a snapshot, in no order.
    fn set_since(&self, base: Base) -> Vec<(i64, TimerKey)> {
        let mut set = Vec::new();
        self.timers.each_since(base.first_behind(), |timestamp_ms, owner| {
            if base.is_before(owner.taken) {
                set.push((timestamp_ms, owner.key.clone()));
            }
        });
        set
    }

    /// A snapshot was taken: what older ones may have is forgotten where nothing is built on them again.
    pub(crate) fn on_taken(&mut self) {
        if let Some(far) = &mut self.timers.far {
            far.forget_gone(self.changes.oldest().map(|oldest| oldest.first_behind()));
        }
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

/// So many may be listed as taken back, however few are set.
const FEW: usize = 1024;
