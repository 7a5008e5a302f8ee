//! Folds the rows of one slice into partial aggregates by key.

use arrow_array::RecordBatch;
use flownet_core::keygroup::hash_key;
use flownet_runtime::TaskError;

use super::cell::put_rows;
use super::columns::Aggregations;
use super::function::{Aggregation, Cells, Input, Times};
use super::key::KeyTable;
use super::span::put_span;
use super::user_aggregate::{OwnCells, OwnFront};
use super::whole::put_whole;
use crate::column::Rows;
use crate::event_time::put_nanos;
use crate::key::Keys;
use crate::partial_aggregate::Parts;
use crate::row_block::RunWriter;

/// Groups of the rows of one slice, one per key.
pub(super) struct Groups {
    keys: KeyTable,
    /// Number of rows of each group.
    rows: Vec<u64>,
    cells: Vec<Box<dyn Cells>>,
    /// Cells of the user aggregates.
    own: Vec<OwnCells>,
    /// Times of the first and the last row of each group, if partial aggregates carry their span.
    spans: Option<Vec<(i64, i64)>>,
    /// Upper bound of the bytes that growing cells have taken.
    bytes: usize,
    /// Group of each row of the batch. Reused, to save allocations.
    of_row: Vec<u32>,
}

/// Columns of a batch that its groups need.
pub(super) struct Columns {
    pub(super) keys: Keys,
    /// Input of each built-in aggregate.
    pub(super) inputs: Vec<Option<Input>>,
    /// Input of each user aggregate.
    pub(super) own: Vec<RecordBatch>,
}

impl Groups {
    pub(super) fn new(aggregates: &Aggregations) -> Self {
        let cells = aggregates.built_in.iter().map(Aggregation::cells).collect();
        let own = aggregates.own.iter().map(|_| OwnCells::default()).collect();
        Self { keys: KeyTable::default(), rows: Vec::new(), cells, own, spans: None, bytes: 0, of_row: Vec::new() }
    }

    /// Creates groups whose partial aggregates have the time of their first row and carry the span to their last.
    pub(super) fn with_spans(aggregates: &Aggregations) -> Self {
        Self { spans: Some(Vec::new()), ..Self::new(aggregates) }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns the memory that depends on more than the number of groups.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.own.iter().map(OwnCells::bytes).sum::<usize>()
    }

    /// Returns the cells of the user aggregates.
    pub(super) fn own_mut(&mut self) -> &mut [OwnCells] {
        &mut self.own
    }

    /// Adds consecutive rows with these times. User aggregates only record the rows, until [`OwnFront::settle`].
    pub(super) fn add(&mut self, columns: &Columns, start: usize, rows: usize, times: Times<'_>) {
        let Self { keys, rows: counts, cells, own, spans, bytes, of_row } = self;
        keys.groups(&columns.keys, start, rows, of_row);
        counts.resize(keys.len(), 0);
        of_row.iter().for_each(|group| counts[*group as usize] += 1);
        if let Some(spans) = spans {
            spans.resize(keys.len(), (i64::MAX, i64::MIN));
            for (row, group) in of_row.iter().enumerate() {
                let (first_ms, last_ms) = &mut spans[*group as usize];
                (*first_ms, *last_ms) = ((*first_ms).min(times.ms(row)), (*last_ms).max(times.ms(row)));
            }
        }
        for (cells, input) in cells.iter_mut().zip(&columns.inputs) {
            cells.grow(keys.len());
            cells.update(of_row, input.as_ref(), start, times);
            *bytes += cells.bytes_of(input.as_ref(), start, rows);
        }
        own.iter_mut().for_each(|own| own.add(keys.len(), of_row, start));
    }

    /// Drains all groups as partial aggregates of this time, or of their own time if they have one.
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

    /// Returns all groups as partial aggregates of this time.
    pub(super) fn parts(&self, timestamp_ms: i64) -> Parts {
        let mut parts = Parts::default();
        (0..self.len()).for_each(|group| self.put(group, timestamp_ms, &mut parts));
        parts
    }

    fn put(&self, group: usize, timestamp_ms: i64, parts: &mut Parts) {
        let key = self.keys.key(group);
        let span = self.spans.as_ref().map(|spans| spans[group]);
        let (first_ms, last_ms) = span.unwrap_or((timestamp_ms, timestamp_ms));
        parts.push(first_ms, hash_key(key), key, |out| {
            put_span(out, last_ms.abs_diff(first_ms));
            put_rows(out, self.rows[group]);
            self.own.iter().for_each(|own| own.write(group, out));
            self.cells.iter().for_each(|cells| cells.write(group, out));
        });
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.rows.clear();
        self.spans.iter_mut().for_each(Vec::clear);
        self.bytes = 0;
        self.own.iter_mut().for_each(OwnCells::clear);
        self.cells.iter_mut().for_each(|cells| cells.clear());
    }
}

/// Emits each row as a partial aggregate of its own, with its own time. Carries the row itself if `whole` is given.
pub(super) fn row_by_row(
    (aggregates, front): (&Aggregations, Option<&OwnFront>),
    columns: &Columns,
    whole: Option<&RunWriter>,
    (rows, times): (usize, Times<'_>),
    mut give: impl FnMut(Parts) -> Result<(), TaskError>,
) -> Result<(), TaskError> {
    let of_row: Vec<u32> = (0..rows as u32).collect();
    let mut cells: Vec<_> = aggregates.built_in.iter().map(Aggregation::cells).collect();
    for (cells, input) in cells.iter_mut().zip(&columns.inputs) {
        cells.grow(rows);
        cells.update(&of_row, input.as_ref(), 0, times);
    }
    let mut own: Vec<_> = aggregates.own.iter().map(|_| OwnCells::default()).collect();
    own.iter_mut().for_each(|own| own.add(rows, &of_row, 0));
    if let Some(front) = front {
        front.settle(own.iter_mut().map(|own| vec![own]).collect(), &columns.own)?;
    }
    let (mut parts, mut key, mut run) = (Parts::default(), Vec::new(), Vec::new());
    for row in 0..rows {
        key.clear();
        columns.keys.put(row, &mut key);
        let at = times.of(row);
        parts.push(at.ms, hash_key(&key), &key, |out| {
            if let Some(whole) = whole {
                run.clear();
                put_nanos(at.nanos, &mut run);
                whole.write(Rows::Range { start: row, end: row + 1 }, &mut run);
                put_whole(out, &run);
            }
            put_rows(out, 1);
            own.iter().for_each(|own| own.write(row, out));
            cells.iter().for_each(|cells| cells.write(row, out));
        });
        if parts.is_full() {
            give(std::mem::take(&mut parts))?;
        }
    }
    if parts.is_empty() { Ok(()) } else { give(parts) }
}
