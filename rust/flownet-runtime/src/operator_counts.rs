//! Counts the input and output of each operator of a task.
//!
//! Only input is counted: by each operator, and by each output edge of the task. The output of an operator is the input
//! that the first link of each tag counted, because all links of one tag get the same records. So a record costs one
//! addition for each operator that it passes through, and reading the counters costs the task nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::metrics::bump;

/// Input of one operator, or of one output edge. The task's thread writes it, any thread may read it.
#[derive(Debug, Default)]
pub(crate) struct InputCounts {
    records: AtomicU64,
    /// Rows in excess of one per record; wraps below zero.
    more_rows: AtomicU64,
}

impl InputCounts {
    /// Adds a record with this number of rows.
    #[inline]
    pub(crate) fn add(&self, rows: u64) {
        bump(&self.records, 1);
        if rows != 1 {
            bump(&self.more_rows, rows.wrapping_sub(1));
        }
    }

    /// Returns true if no record has arrived.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.load(Ordering::Relaxed) == 0
    }

    fn read(&self) -> EdgeCounts {
        let records = self.records.load(Ordering::Relaxed);
        let more_rows = self.more_rows.load(Ordering::Relaxed).cast_signed();
        EdgeCounts { records, rows: records.saturating_add_signed(more_rows) }
    }
}

/// The counters of a task's operators.
#[derive(Debug)]
pub(crate) struct OperatorCounters {
    /// The counters of each operator, upstream first.
    operators: Vec<OperatorCounter>,
}

#[derive(Debug)]
pub(crate) struct OperatorCounter {
    pub(crate) taken: Arc<InputCounts>,
    /// The first link of each tag, and the first without one.
    pub(crate) ways: Vec<Arc<InputCounts>>,
}

impl OperatorCounters {
    pub(crate) fn new(operators: Vec<OperatorCounter>) -> Self {
        Self { operators }
    }

    pub(crate) fn read(&self) -> Vec<OperatorCounts> {
        self.operators.iter().map(OperatorCounter::read).collect()
    }
}

impl OperatorCounter {
    fn read(&self) -> OperatorCounts {
        let taken = self.taken.read();
        let given = self.ways.iter().map(|way| way.read()).reduce(EdgeCounts::and);
        OperatorCounts { taken, given }
    }
}

/// Input and output of one operator of a task so far.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct OperatorCounts {
    /// Input from upstream operators; nothing for a source.
    pub taken: EdgeCounts,
    /// Output to downstream operators; `None` if it has none.
    pub given: Option<EdgeCounts>,
}

/// Records that have passed along one edge.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct EdgeCounts {
    /// Number of records. In a stream of rows, each record is a batch.
    pub records: u64,
    /// Rows in these records: an array has many, most objects are one.
    pub rows: u64,
}

impl EdgeCounts {
    /// Adds the counts of another edge.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { records: self.records.saturating_add(other.records), rows: self.rows.saturating_add(other.rows) }
    }

    /// The counts since an earlier moment.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self { records: self.records.saturating_sub(before.records), rows: self.rows.saturating_sub(before.rows) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flowed(records: u64, rows: u64) -> EdgeCounts {
        EdgeCounts { records, rows }
    }

    #[test]
    fn a_record_of_many_rows_or_none_is_one_record() {
        let taken = InputCounts::default();
        [1, 0, 1000].into_iter().for_each(|rows| taken.add(rows));
        assert_eq!(taken.read(), flowed(3, 1001));
    }

    #[test]
    fn an_operator_gives_what_the_first_way_of_each_tag_took() {
        let [head, next, late, sink]: [Arc<InputCounts>; 4] = Default::default();
        let counter = |taken: &Arc<InputCounts>, ways: &[&Arc<InputCounts>]| OperatorCounter {
            taken: Arc::clone(taken),
            ways: ways.iter().map(|way| Arc::clone(way)).collect(),
        };
        let counters = OperatorCounters::new(vec![counter(&head, &[&next, &late]), counter(&sink, &[])]);
        head.add(10);
        next.add(4);
        late.add(5);
        sink.add(1);
        let expected = [
            OperatorCounts { taken: flowed(1, 10), given: Some(flowed(2, 9)) },
            OperatorCounts { taken: flowed(1, 1), given: None },
        ];
        assert_eq!(counters.read(), expected);
    }
}
