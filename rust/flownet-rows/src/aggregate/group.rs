//! What the rows of one place come to so far, by key.

use std::sync::Arc;

use flownet_core::keygroup::hash_key;

use super::cell::put_rows;
use super::function::{Aggregation, Cells, Input, Times};
use super::key::KeyTable;
use crate::key::Keys;
use crate::parts::Parts;

/// The groups of some rows.
pub(super) struct Groups {
    keys: KeyTable,
    /// Rows of each.
    rows: Vec<u64>,
    cells: Vec<Box<dyn Cells>>,
    /// What cells that grow have taken, at most.
    bytes: usize,
    /// Of each row of the batch; kept for its allocation.
    of_row: Vec<u32>,
}

/// What a batch has for its groups.
pub(super) struct Columns {
    pub(super) keys: Keys,
    /// Of each aggregate.
    pub(super) inputs: Vec<Option<Input>>,
}

impl Groups {
    pub(super) fn new(aggregates: &Arc<[Aggregation]>) -> Self {
        let cells = aggregates.iter().map(Aggregation::cells).collect();
        Self { keys: KeyTable::default(), rows: Vec::new(), cells, bytes: 0, of_row: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Memory that depends on more than how many groups there are.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds rows that follow each other, which are of these times.
    pub(super) fn add(&mut self, columns: &Columns, start: usize, rows: usize, times: Times<'_>) {
        let Self { keys, rows: counts, cells, bytes, of_row } = self;
        keys.groups(&columns.keys, start, rows, of_row);
        counts.resize(keys.len(), 0);
        of_row.iter().for_each(|group| counts[*group as usize] += 1);
        for (cells, input) in cells.iter_mut().zip(&columns.inputs) {
            cells.grow(keys.len());
            cells.update(of_row, input.as_ref(), start, times);
            *bytes += cells.bytes_of(input.as_ref(), start, rows);
        }
    }

    /// Hands out all groups as parts of this time; none is left.
    pub(super) fn drain<E>(
        &mut self,
        timestamp_ms: i64,
        mut give: impl FnMut(Parts) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut parts = Parts::default();
        for group in 0..self.len() {
            self.put(group, timestamp_ms, &mut parts);
            if parts.is_full() {
                give(std::mem::take(&mut parts))?;
            }
        }
        self.clear();
        if parts.is_empty() { Ok(()) } else { give(parts) }
    }

    /// All groups as parts of this time.
    pub(super) fn parts(&self, timestamp_ms: i64) -> Parts {
        let mut parts = Parts::default();
        (0..self.len()).for_each(|group| self.put(group, timestamp_ms, &mut parts));
        parts
    }

    fn put(&self, group: usize, timestamp_ms: i64, parts: &mut Parts) {
        let key = self.keys.key(group);
        parts.push(timestamp_ms, hash_key(key), key, |out| {
            put_rows(out, self.rows[group]);
            self.cells.iter().for_each(|cells| cells.write(group, out));
        });
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.rows.clear();
        self.bytes = 0;
        self.cells.iter_mut().for_each(|cells| cells.clear());
    }
}

/// Hands out each row as a part of its own, of its own time.
pub(super) fn row_by_row<E>(
    aggregates: &Arc<[Aggregation]>,
    columns: &Columns,
    (rows, times): (usize, Option<&[i64]>),
    mut give: impl FnMut(Parts) -> Result<(), E>,
) -> Result<(), E> {
    let of_row: Vec<u32> = (0..rows as u32).collect();
    let mut cells: Vec<_> = aggregates.iter().map(Aggregation::cells).collect();
    for (cells, input) in cells.iter_mut().zip(&columns.inputs) {
        cells.grow(rows);
        cells.update(&of_row, input.as_ref(), 0, Times(times));
    }
    let (mut parts, mut key) = (Parts::default(), Vec::new());
    for row in 0..rows {
        key.clear();
        columns.keys.put(row, &mut key);
        parts.push(times.map_or(0, |times| times[row]), hash_key(&key), &key, |out| {
            put_rows(out, 1);
            cells.iter().for_each(|cells| cells.write(row, out));
        });
        if parts.is_full() {
            give(std::mem::take(&mut parts))?;
        }
    }
    if parts.is_empty() { Ok(()) } else { give(parts) }
}
