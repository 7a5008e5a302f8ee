//! Writes state in memory for a snapshot while the task continues, as it was at the snapshot.
//!
//! At the time of the snapshot, nothing is written and nothing is copied. The last touch of a key shows whether the
//! snapshot still awaits it. A caller that is about to change an awaited key writes it first. The other keys are
//! written row by row between two batches. So the task pauses for one row, and not for all state.
//!
//! ```text
//! touched after   ... oldest | oldest ... newest | newest + 1      | newest + 2 ...
//!                 passed over| awaited           | written since   | touched since
//! ```
//!
//! # Invariants
//! - W1: a key is awaited from the snapshot on until it is written. It is written once, as it was at the snapshot.
//! - W2: a key that is touched, removed or added afterwards is not awaited. So the sweep ends.
//! - W3: `left` is the number of awaited keys, in the table and among the removed ones.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use flownet_core::KeyGroup;

use super::view::PIECE_BYTES;
use super::{Base, KeyEntry, KeyedState, Slot, Stamp, Values};
use crate::error::TaskError;
use crate::snapshot::{Groups, IsOver, ROW_ENTRIES};

/// Fewer keys than these are written at once.
pub(super) const LEAST_KEYS: usize = if cfg!(test) { 6 } else { 1024 };

/// A snapshot that is being written.
pub(crate) struct Sweep<V> {
    checkpoint_id: u64,
    /// Number of snapshots before the last touch, for the keys that it includes.
    awaited: RangeInclusive<u32>,
    is_of_changes: bool,
    left: usize,
    /// Position of the search for awaited keys: the group, counted from the first, and the index in it.
    at: (usize, usize),
    /// Keys that were awaited when they were removed.
    removed: Vec<(KeyGroup, Slot<KeyEntry<V>>)>,
    /// Encoded keys that are too few for a piece yet, and their approximate bytes.
    groups: Groups,
    bytes: usize,
    done: SweepResult,
    failed: Option<TaskError>,
}

/// The result of a sweep.
#[derive(Debug, Default)]
pub(crate) struct SweepResult {
    /// Encoded pieces, the first one first.
    pub(crate) pieces: VecDeque<Vec<u8>>,
    /// One bit for each byte that any of the keys begins with.
    pub(crate) first_bytes: [u64; 4],
    /// Total bytes of all pieces.
    pub(crate) bytes: usize,
}

impl<V> Sweep<V> {
    /// Sweeps all held keys, or the `keys` ones that were touched since `base`. Call it before the next snapshot is
    /// taken.
    pub(super) fn new(checkpoint_id: u64, base: Option<Base>, keys: usize, held: &mut KeyedState<KeyEntry<V>>) -> Self {
        let newest = held.changes_mut().begin_sweep();
        Self {
            checkpoint_id,
            awaited: base.map_or(0, |base| base.first_behind())..=newest,
            is_of_changes: base.is_some(),
            left: keys,
            at: (0, 0),
            removed: Vec::new(),
            groups: Groups::new(held.range()),
            bytes: 0,
            done: SweepResult::default(),
            failed: None,
        }
    }

    pub(super) fn checkpoint_id(&self) -> u64 {
        self.checkpoint_id
    }

    /// Returns true if a key with this last touch is still to be written.
    #[inline]
    pub(super) fn awaits(&self, touched: Stamp) -> bool {
        self.awaited.contains(&touched.taken())
    }

    /// Writes a key that is about to be touched, if it is awaited. An error fails the checkpoint, and not the caller.
    #[cold]
    pub(super) fn save(&mut self, (group, slot): (KeyGroup, &mut Slot<KeyEntry<V>>), values: &impl Values<V>) {
        if self.failed.is_some() || !self.awaits(slot.touched) {
            return;
        }
        match self.put(&[(group, &*slot)], values) {
            Ok(()) => slot.touched = self.written(slot.touched),
            Err(error) => self.failed = Some(error),
        }
    }

    /// Retains a removed key, if it is awaited.
    #[cold]
    pub(super) fn keep_removed(&mut self, (group, slot): (KeyGroup, Slot<KeyEntry<V>>)) {
        if self.awaits(slot.touched) {
            self.removed.push((group, slot));
        }
    }

    /// Writes until all is written, and then returns true, or until `is_over` returns true. `is_over` is called after
    /// each row.
    pub(super) fn go_on(
        &mut self,
        held: &mut KeyedState<KeyEntry<V>>,
        values: &impl Values<V>,
        is_over: IsOver<'_>,
    ) -> Result<bool, TaskError> {
        loop {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            if !self.write_removed(values)? && !self.write_row(held, values)? {
                debug_assert_eq!(self.left, 0, "all that was awaited is written (W3)");
                self.end_piece();
                return Ok(true);
            }
            if is_over() {
                return Ok(false);
            }
        }
    }

    pub(super) fn into_swept(self) -> SweepResult {
        self.done
    }

    /// Writes some removed keys. Returns true if there were any.
    fn write_removed(&mut self, values: &impl Values<V>) -> Result<bool, TaskError> {
        let from = self.removed.len().saturating_sub(ROW_ENTRIES);
        let row = self.removed.split_off(from);
        let slots: Vec<_> = row.iter().map(|(group, slot)| (*group, slot)).collect();
        self.put(&slots, values)?;
        Ok(!row.is_empty())
    }

    /// Writes some keys of the current group, or of the next group that has any. Returns true if there were any. A
    /// group is done when one pass over all of it finds nothing, because keys may move in between.
    fn write_row(&mut self, held: &mut KeyedState<KeyEntry<V>>, values: &impl Values<V>) -> Result<bool, TaskError> {
        while self.at.0 < held.groups() {
            let (group, from) = self.at;
            let row = held.some_of_group(group, from, ROW_ENTRIES, |touched| self.awaits(touched));
            match row.last() {
                Some(last) => {
                    self.at.1 = last + 1;
                    let slots: Vec<_> = row.iter().filter_map(|at| held.slot_at(group, *at)).collect();
                    self.put(&slots, values)?;
                    row.iter().for_each(|at| held.mark_at(group, *at, |touched| self.written(touched)));
                    return Ok(true);
                }
                None if from > 0 => self.at.1 = 0,
                None => self.at = (group + 1, 0),
            }
        }
        Ok(false)
    }

    fn put(&mut self, row: &[(KeyGroup, &Slot<KeyEntry<V>>)], values: &impl Values<V>) -> Result<(), TaskError> {
        let Self { groups, bytes, done, is_of_changes, .. } = self;
        let look_at = |row: &[(KeyGroup, &Slot<KeyEntry<V>>)]| {
            values.look_at(row.iter().map(|(_, slot)| &slot.value().value));
        };
        groups.put_held(row.iter().copied(), *is_of_changes, look_at, |key, held, out| {
            let first = key.first().copied().unwrap_or_default();
            done.first_bytes[usize::from(first / 64)] |= 1 << (first % 64);
            let before = out.len();
            values.write(held.key_value(key), &held.value, out)?;
            *bytes += out.len() - before + key.len() + held.given().map_or(0, <[u8]>::len);
            Ok(())
        })?;
        self.left -= row.len();
        if self.bytes >= PIECE_BYTES {
            self.end_piece();
        }
        Ok(())
    }

    fn end_piece(&mut self) {
        if std::mem::take(&mut self.bytes) == 0 {
            return;
        }
        let groups = self.groups.take();
        let piece = groups.into_bytes_of_keys(self.is_of_changes);
        self.done.bytes += piece.len();
        self.done.pieces.push_back(piece);
    }

    fn written(&self, touched: Stamp) -> Stamp {
        touched.written(*self.awaited.end() + 1)
    }
}
