//! What the rows of one place come to so far, by key.

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

/// The groups of some rows.
pub(super) struct Groups {
    keys: KeyTable,
    /// Rows of each.
    rows: Vec<u64>,
    cells: Vec<Box<dyn Cells>>,
    /// Of the aggregates of the user's.
    own: Vec<OwnCells>,
    /// When the first and the last row of each is, where parts are to say so.
    spans: Option<Vec<(i64, i64)>>,
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
    /// Of each of the user's.
    pub(super) own: Vec<RecordBatch>,
}

impl Groups {
    pub(super) fn new(aggregates: &Aggregations) -> Self {
        let cells = aggregates.built_in.iter().map(Aggregation::cells).collect();
        let own = aggregates.own.iter().map(|_| OwnCells::default()).collect();
        Self { keys: KeyTable::default(), rows: Vec::new(), cells, own, spans: None, bytes: 0, of_row: Vec::new() }
    }

    /// The same, whose parts are of the time of their first row, and say when their last one is.
    pub(super) fn with_spans(aggregates: &Aggregations) -> Self {
        Self { spans: Some(Vec::new()), ..Self::new(aggregates) }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Memory that depends on more than how many groups there are.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.own.iter().map(OwnCells::bytes).sum::<usize>()
    }

    /// What the aggregates of the user's keep.
    pub(super) fn own_mut(&mut self) -> &mut [OwnCells] {
        &mut self.own
    }

    /// Adds rows that follow each other, which are of these times. Those of the user's aggregates note them.
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

    /// Hands out all groups as parts of this time, if they have none of their own; none is left.
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

/// Hands out each row as a part of its own, of its own time; with the row itself, where somebody may want it.
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
