//! State of user aggregates: the rows stored for one group, and those of many groups as one batch.

use std::sync::Arc;

use arrow_array::RecordBatch;
use flownet_runtime::snapshot::put_block;
use flownet_runtime::varint::take_varint;

use super::RowGroups;
use crate::layout::Layout;
use crate::partial_aggregate::take_block;
use crate::row_block::{Gather, MalformedRun};

/// Rows stored for a group, as row blocks, each preceded by its length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupRows {
    rows: u64,
    runs: Vec<u8>,
}

impl GroupRows {
    /// Takes encoded rows off the front. Returns none if the bytes are not row blocks. Their columns are checked when
    /// they are gathered.
    pub(crate) fn take(bytes: &mut &[u8]) -> Option<Self> {
        let runs = take_block(bytes)?;
        let (mut rows, mut rest) = (0_u64, runs);
        while !rest.is_empty() {
            let (of_run, _) = take_varint(take_block(&mut rest)?).ok()?;
            rows = rows.saturating_add(of_run);
        }
        Some(Self { rows, runs: runs.to_vec() })
    }

    /// Appends the encoded rows.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put_block(out, &self.runs);
    }

    /// Returns the number of rows, by the headers of the row blocks.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the size of the row blocks in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.runs.len()
    }

    /// Appends a row block of `rows` rows.
    pub(crate) fn push(&mut self, rows: usize, run: &[u8]) {
        put_block(&mut self.runs, run);
        self.rows = self.rows.saturating_add(rows as u64);
    }

    /// Appends the state of later rows.
    pub(crate) fn extend(&mut self, later: &Self) {
        self.runs.extend_from_slice(&later.runs);
        self.rows = self.rows.saturating_add(later.rows);
    }

    /// Replaces the first rows, `rows` in `bytes` bytes, with the single row in `run`.
    pub(crate) fn replace(&mut self, (rows, bytes): (u64, usize), run: &[u8]) {
        let mut first = Vec::with_capacity(run.len() + 1);
        put_block(&mut first, run);
        self.runs.splice(..bytes, first);
        self.rows = self.rows - rows + 1;
    }
}

/// State of many groups, gathered as the input of a user function.
pub(crate) struct GatheredGroups {
    rows: Gather,
    groups: RowGroups,
}

impl GatheredGroups {
    pub(crate) fn new(layout: &Arc<Layout>) -> Self {
        Self { rows: Gather::new(Arc::clone(layout)), groups: RowGroups { of_row: Vec::new(), count: 0 } }
    }

    /// Adds the next group: the rows in the first `bytes` bytes of its row blocks.
    pub(crate) fn add(&mut self, kept: &GroupRows, bytes: usize) -> Result<(), MalformedRun> {
        let before = self.rows.rows();
        let mut rest = &kept.runs[..bytes];
        while let Some(run) = take_block(&mut rest) {
            self.rows.push(run)?;
        }
        let of_group = self.rows.rows() - before;
        if of_group == 0 {
            // A user function gets only groups with rows.
            return Err(MalformedRun::NoRows);
        }
        let group = self.groups.count as u32;
        self.groups.of_row.extend(std::iter::repeat_n(group, of_group));
        self.groups.count += 1;
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.groups.count == 0
    }

    /// Returns true if each group has one row.
    pub(crate) fn are_single(&self) -> bool {
        self.groups.count == self.groups.of_row.len()
    }

    pub(crate) fn take(mut self) -> Result<(RecordBatch, RowGroups), MalformedRun> {
        Ok((self.rows.take()?, self.groups))
    }
}
