//! Splits one batch into row blocks for many targets: orders rows by target, then picks them column by column.

use std::sync::Arc;

use arrow_array::RecordBatch;

use crate::column::Rows;
use crate::layout::Layout;
use crate::row_block::RunWriter;

/// Makes row blocks of batches.
#[derive(Debug)]
pub struct Scatter {
    layout: Arc<Layout>,
    /// Limit of a row block in bytes, unless it has only one row.
    run_bytes: usize,
    targets: Targets,
    run: Vec<u8>,
}

/// Targets of the rows of one batch.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    /// Target of each row.
    pub(crate) of_row: Vec<u32>,
    /// For each target, the index in `order` at which its rows begin; then the total number of rows.
    starts: Vec<u32>,
    /// All rows, those of one target side by side.
    order: Vec<u32>,
}

impl Targets {
    /// Groups the rows by target, in their original order. A counting sort: count, prefix sums, place.
    pub(crate) fn sort(&mut self, targets: usize) {
        self.starts.clear();
        self.starts.resize(targets + 1, 0);
        for target in &self.of_row {
            self.starts[*target as usize] += 1;
        }
        let mut sum = 0;
        for start in &mut self.starts {
            (*start, sum) = (sum, sum + *start);
        }
        self.order.clear();
        self.order.resize(self.of_row.len(), 0);
        for (row, target) in (0..).zip(&self.of_row) {
            let place = &mut self.starts[*target as usize];
            self.order[*place as usize] = row;
            *place += 1;
        }
        // Placing moved each start to the start of the next target.
        self.starts.rotate_right(1);
        self.starts[0] = 0;
    }

    /// Returns the rows of each target, from the first on. Call [`sort`](Self::sort) before.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &[u32]> {
        self.starts.windows(2).map(|ends| &self.order[ends[0] as usize..ends[1] as usize])
    }
}

impl Scatter {
    /// Creates a scatter for batches of the layout's schema, with at most `run_bytes` per row block.
    pub fn new(layout: Arc<Layout>, run_bytes: usize) -> Self {
        Self { layout, run_bytes, targets: Targets::default(), run: Vec::new() }
    }

    /// Cuts a batch whose row `i` goes to the `i`th target of `of_row`. All targets are below `targets`. Calls `send`
    /// with each row block and its target, lowest target first.
    pub fn by_target<E>(
        &mut self,
        batch: &RecordBatch,
        of_row: impl Iterator<Item = u32>,
        targets: usize,
        mut send: impl FnMut(u32, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        // A single target needs no sorting.
        if targets == 1 {
            return self.whole(batch, |run| send(0, run));
        }
        self.targets.of_row.clear();
        self.targets.of_row.extend(of_row);
        self.targets.sort(targets);
        let Self { layout, targets, run, run_bytes } = self;
        let writer = RunWriter::new(layout, batch);
        for (target, rows) in (0..).zip(targets.rows()) {
            cut(&writer, Rows::Picked(rows), *run_bytes, run, |run| send(target, run))?;
        }
        Ok(())
    }

    /// Cuts a batch that has only one target.
    pub fn whole<E>(&mut self, batch: &RecordBatch, send: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let rows = Rows::Range { start: 0, end: batch.num_rows() };
        cut(&RunWriter::new(&self.layout, batch), rows, self.run_bytes, &mut self.run, send)
    }
}

#[inline]
fn cut<E>(
    writer: &RunWriter,
    mut rows: Rows<'_>,
    run_bytes: usize,
    run: &mut Vec<u8>,
    mut send: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    while !rows.is_empty() {
        let (first, others) = rows.split_at(writer.fitting(rows, run_bytes));
        run.clear();
        writer.write(first, run);
        send(run)?;
        rows = others;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use arrow_array::{ArrayRef, Int64Array};
    use arrow_schema::{DataType, Field, Schema};
    use proptest::prelude::*;

    use super::*;
    use crate::row_block::Gather;

    fn batch(values: Vec<i64>) -> RecordBatch {
        let schema = Schema::new(vec![Field::new("value", DataType::Int64, false)]);
        RecordBatch::try_new(Arc::new(schema), vec![Arc::new(Int64Array::from(values)) as ArrayRef]).unwrap()
    }

    proptest! {
        #[test]
        fn each_row_comes_to_its_target_once_and_in_order(of_row in proptest::collection::vec(0u32..9, 0..300), run_bytes in 1usize..400) {
            let batch = batch((0..of_row.len() as i64).collect());
            let layout = Arc::new(Layout::new(batch.schema()).unwrap());
            let mut gathers: Vec<_> = (0..9).map(|_| Gather::new(Arc::clone(&layout))).collect();
            let mut scatter = Scatter::new(layout, run_bytes);
            // Twice: nothing of the first batch may be left.
            for _ in 0..2 {
                scatter.by_target::<Infallible>(&batch, of_row.iter().copied(), 9, |target, run| {
                    gathers[target as usize].push(run).unwrap();
                    Ok(())
                }).unwrap();
                for (target, gather) in (0..).zip(&mut gathers) {
                    let expected = (0..).zip(&of_row).filter(|(_, of)| **of == target).map(|(row, _)| row).collect();
                    prop_assert_eq!(gather.take().unwrap(), self::batch(expected));
                }
            }
        }
    }

    #[test]
    fn a_batch_that_goes_one_way_is_cut_where_runs_are_full() {
        let batch = batch((0..100).collect());
        let mut scatter = Scatter::new(Arc::new(Layout::new(batch.schema()).unwrap()), 90);
        let mut rows = Vec::new();
        scatter
            .whole::<Infallible>(&batch, |run| {
                rows.push(run[0]);
                Ok(())
            })
            .unwrap();
        assert_eq!(rows, [10; 10]);
    }
}
