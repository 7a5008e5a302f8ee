//! User aggregates upstream of the exchange: state of the groups of all slices, updated in one call per batch.

use std::sync::Arc;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;
use flownet_runtime::TaskError;

use super::kept::{GatheredGroups, GroupRows};
use super::{MANY_STATES, OwnAggregation, OwnFunctions, RowGroups};
use crate::column::Rows;
use crate::record_format::OperatorInfo;
use crate::row_block::{MOST_ROWS, MalformedRun, RunWriter};

/// State of one user aggregate in the groups of one slice.
#[derive(Debug, Default)]
pub(crate) struct OwnCells {
    kept: Vec<GroupRows>,
    bytes: usize,
    /// Rows of the last added batch, and their groups.
    pending: Vec<(u32, u32)>,
    /// Number of each group across all slices. Reused, to save allocations.
    numbers: Vec<u32>,
}

/// Marks a group without a number.
const NONE: u32 = u32::MAX;

impl OwnCells {
    /// Resizes to `groups` groups, and records their rows from `start` on. Their state is updated when
    /// [`OwnFront::settle`] returns.
    pub(crate) fn add(&mut self, groups: usize, of_row: &[u32], start: usize) {
        self.kept.resize_with(groups, GroupRows::default);
        self.pending.extend((start as u32..).zip(of_row.iter().copied()));
    }

    /// Returns the memory beyond that of a group, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends the state of a group.
    pub(crate) fn write(&self, group: usize, out: &mut Vec<u8>) {
        self.kept[group].write(out);
    }

    /// Removes all groups.
    pub(crate) fn clear(&mut self) {
        self.kept.clear();
        self.pending.clear();
        self.bytes = 0;
    }

    fn change<R>(&mut self, group: u32, change: impl FnOnce(&mut GroupRows) -> R) -> R {
        let kept = &mut self.kept[group as usize];
        let before = kept.bytes();
        let changed = change(kept);
        self.bytes = self.bytes - before + kept.bytes();
        changed
    }
}

/// Rows of a batch, with their groups numbered across several slices.
struct NumberedGroups {
    rows: Vec<u32>,
    groups: Vec<u32>,
    /// Slice and group of each number.
    targets: Vec<(usize, u32)>,
}

impl NumberedGroups {
    fn of(cells: &mut [&mut OwnCells]) -> Self {
        let (mut rows, mut groups, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        for (place, cells) in cells.iter_mut().enumerate().filter(|(_, cells)| !cells.pending.is_empty()) {
            let OwnCells { kept, pending, numbers, .. } = &mut **cells;
            numbers.clear();
            numbers.resize(kept.len(), NONE);
            for (row, group) in pending.drain(..) {
                let number = &mut numbers[group as usize];
                if *number == NONE {
                    *number = targets.len() as u32;
                    targets.push((place, group));
                }
                rows.push(row);
                groups.push(*number);
            }
        }
        Self { rows, groups, targets }
    }

    /// Sorts the rows by number, in stable order. The rows of number `n` end at `ends[n]`.
    fn by_number(&self) -> (Vec<u32>, Vec<usize>) {
        let mut ends = vec![0_usize; self.targets.len()];
        self.groups.iter().for_each(|number| ends[*number as usize] += 1);
        let mut next = 0;
        let mut starts = Vec::with_capacity(ends.len());
        for end in &mut ends {
            starts.push(next);
            next += *end;
            *end = next;
        }
        let mut sorted = vec![0; self.rows.len()];
        for (row, number) in self.rows.iter().zip(&self.groups) {
            let place = &mut starts[*number as usize];
            sorted[*place] = *row;
            *place += 1;
        }
        (sorted, ends)
    }
}

/// User aggregates upstream of the exchange.
pub(crate) struct OwnFront {
    aggregations: Arc<[OwnAggregation]>,
    functions: Box<dyn OwnFunctions>,
    info: OperatorInfo,
}

impl OwnFront {
    pub(crate) fn new(
        aggregations: Arc<[OwnAggregation]>,
        functions: Box<dyn OwnFunctions>,
        info: OperatorInfo,
    ) -> Self {
        Self { aggregations, functions, info }
    }

    /// Processes the recorded rows. `cells` are those of each slice, by aggregate; `values` are the batch's, by
    /// aggregate.
    pub(crate) fn settle(&self, mut cells: Vec<Vec<&mut OwnCells>>, values: &[RecordBatch]) -> Result<(), TaskError> {
        self.with_functions(|aggregation| {
            let (cells, values) = (&mut *cells[aggregation.place], &values[aggregation.place]);
            let numbered = NumberedGroups::of(cells);
            if numbered.rows.is_empty() {
                return Ok(());
            }
            if !aggregation.merges {
                keep(aggregation, &numbered, values, cells);
                return Ok(());
            }
            self.accumulate(aggregation, &numbered, values, cells)?;
            let NumberedGroups { targets, .. } = numbered;
            let is_many = |(place, group): &(usize, u32)| cells[*place].kept[*group as usize].rows() >= MANY_STATES;
            let many = targets.into_iter().filter(is_many).collect();
            self.merge(aggregation, many, cells)
        })
    }

    /// Merges the states of each group to one. Called when the groups are about to leave.
    pub(crate) fn merge_all(&self, mut cells: Vec<Vec<&mut OwnCells>>) -> Result<(), TaskError> {
        let merging = self.aggregations.iter().filter(|aggregation| aggregation.merges);
        let several = merging.map(|aggregation| (aggregation, several(&cells[aggregation.place])));
        let mut several: Vec<_> = several.filter(|(_, targets)| !targets.is_empty()).collect();
        if several.is_empty() {
            return Ok(());
        }
        self.functions.attached(&mut || {
            several
                .drain(..)
                .try_for_each(|(aggregation, targets)| self.merge(aggregation, targets, &mut cells[aggregation.place]))
        })
    }

    /// Calls `each` for each aggregate. If only values are stored, no user function is called, so the thread is not
    /// prepared.
    fn with_functions(&self, mut each: impl FnMut(&OwnAggregation) -> Result<(), TaskError>) -> Result<(), TaskError> {
        if self.aggregations.iter().any(|aggregation| aggregation.merges) {
            return self.functions.attached(&mut || self.aggregations.iter().try_for_each(&mut each));
        }
        self.aggregations.iter().try_for_each(each)
    }

    fn accumulate(
        &self,
        aggregation: &OwnAggregation,
        numbered: &NumberedGroups,
        values: &RecordBatch,
        cells: &mut [&mut OwnCells],
    ) -> Result<(), TaskError> {
        let are_all = numbered.rows.len() == values.num_rows() && (0..).zip(&numbered.rows).all(|(at, row)| at == *row);
        let values = if are_all {
            values.clone()
        } else {
            let taken = take_record_batch(values, &UInt32Array::from(numbered.rows.clone()));
            taken.map_err(|error| TaskError::Config(error.to_string()))?
        };
        let groups = RowGroups { of_row: numbered.groups.clone(), count: numbered.targets.len() };
        let states = self.functions.accumulate(aggregation, values, groups)?;
        each_row(aggregation, &states, |number, run| {
            let (place, group) = numbered.targets[number];
            cells[place].change(group, |kept| kept.push(1, run));
        });
        Ok(())
    }

    fn merge(
        &self,
        aggregation: &OwnAggregation,
        targets: Vec<(usize, u32)>,
        cells: &mut [&mut OwnCells],
    ) -> Result<(), TaskError> {
        if targets.is_empty() {
            return Ok(());
        }
        let malformed = |error: MalformedRun| self.info.malformed(&error);
        let mut gathered = GatheredGroups::new(&aggregation.layout);
        for (place, group) in &targets {
            let kept = &cells[*place].kept[*group as usize];
            gathered.add(kept, kept.bytes()).map_err(malformed)?;
        }
        let (states, groups) = gathered.take().map_err(malformed)?;
        let states = self.functions.merge(aggregation, states, groups)?;
        each_row(aggregation, &states, |number, run| {
            let (place, group) = targets[number];
            cells[place].change(group, |kept| kept.replace((kept.rows(), kept.bytes()), run));
        });
        Ok(())
    }
}

/// Returns slice and group of the groups with several states.
fn several(cells: &[&mut OwnCells]) -> Vec<(usize, u32)> {
    let groups = cells.iter().enumerate().flat_map(|(place, cells)| {
        (0..).zip(&cells.kept).filter(|(_, kept)| kept.rows() > 1).map(move |(group, _)| (place, group))
    });
    groups.collect()
}

/// Calls `give` for each row, as a row block of its own.
pub(super) fn each_row(aggregation: &OwnAggregation, rows: &RecordBatch, mut give: impl FnMut(usize, &[u8])) {
    let (writer, mut run) = (RunWriter::new(&aggregation.layout, rows), Vec::new());
    for row in 0..rows.num_rows() {
        run.clear();
        writer.write(Rows::Range { start: row, end: row + 1 }, &mut run);
        give(row, &run);
    }
}

/// Stores the values of each group as row blocks.
fn keep(aggregation: &OwnAggregation, numbered: &NumberedGroups, values: &RecordBatch, cells: &mut [&mut OwnCells]) {
    let (writer, mut run) = (RunWriter::new(&aggregation.layout, values), Vec::new());
    let (rows, ends) = numbered.by_number();
    let mut start = 0;
    for (end, (place, group)) in ends.into_iter().zip(&numbered.targets) {
        for rows in rows[start..end].chunks(MOST_ROWS) {
            run.clear();
            writer.write(Rows::Picked(rows), &mut run);
            cells[*place].change(*group, |kept| kept.push(rows.len(), &run));
        }
        start = end;
    }
}
