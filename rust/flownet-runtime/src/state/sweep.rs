//! What of state in memory is written for a snapshot while the task goes on, as it was at the snapshot.
//!
//! At the snapshot nothing is written and nothing is copied. Each key says by when it was last touched whether it is awaited:
//! whoever is about to change one writes it first, and the others are written row by row between two batches. So the task
//! stands still for a row, and not for all there is.
//!
//! ```text
//! touched after   ... oldest | oldest ... newest | newest + 1      | newest + 2 ...
//!                 passed over| awaited           | written since   | touched since
//! ```
//!
//! # Invariants
//! - W1: a key is awaited from the snapshot on until it is written; it is written once, as it was at the snapshot.
//! - W2: what is touched, removed, or comes afterwards is not awaited. So there is an end.
//! - W3: `left` is the number of keys that are awaited, in the table and among those that were removed.

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
    /// After how many snapshots those were last touched that it is to have.
    awaited: RangeInclusive<u32>,
    is_of_changes: bool,
    left: usize,
    /// Where the look for them goes on: the group, counted from the first, and the place in it.
    at: (usize, usize),
    /// Keys that were awaited as they were removed.
    removed: Vec<(KeyGroup, Slot<KeyEntry<V>>)>,
    /// What is written, as long as it is too little for a piece; and its bytes, about.
    groups: Groups,
    bytes: usize,
    done: SweepResult,
    failed: Option<TaskError>,
}

/// What was written.
#[derive(Debug, Default)]
pub(crate) struct SweepResult {
    /// Pieces, as parts have them, the first one first.
    pub(crate) pieces: VecDeque<Vec<u8>>,
    /// Of the keys a bit for each byte that one began with.
    pub(crate) first_bytes: [u64; 4],
    /// Of all pieces.
    pub(crate) bytes: usize,
}

impl<V> Sweep<V> {
    /// Of all that is held, or of so many keys that were touched since `base`; the next snapshot has not been taken yet.
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

    /// Whether a key that was touched then is still to be written.
    #[inline]
    pub(super) fn awaits(&self, touched: Stamp) -> bool {
        self.awaited.contains(&touched.taken())
    }

    /// A key is about to be touched: it is written first, if it is awaited. What cannot be written fails the checkpoint, and not
    /// who touches it.
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

    /// A key was removed.
    #[cold]
    pub(super) fn keep_removed(&mut self, (group, slot): (KeyGroup, Slot<KeyEntry<V>>)) {
        if self.awaits(slot.touched) {
            self.removed.push((group, slot));
        }
    }

    /// Writes until all is written, which this says, or `is_over` does. Asked behind each row.
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

    /// Whether there were any.
    fn write_removed(&mut self, values: &impl Values<V>) -> Result<bool, TaskError> {
        let from = self.removed.len().saturating_sub(ROW_ENTRIES);
        let row = self.removed.split_off(from);
        let slots: Vec<_> = row.iter().map(|(group, slot)| (*group, slot)).collect();
        self.put(&slots, values)?;
        Ok(!row.is_empty())
    }

    /// Writes some keys of the group that the look is at, or of the next that has any. Whether there were any: a group is done
    /// when a look at all of it, in one go, finds nothing, as keys may change their places in between.
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
