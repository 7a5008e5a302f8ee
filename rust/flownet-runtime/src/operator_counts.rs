//! What goes into each operator of a task, and out of it.
//!
//! Only what is taken is counted: by each operator, and by each way out of the task. An operator has handed out what the first
//! of its ways took, for all ways of one tag are given the same; so a record costs one addition for each operator that it goes
//! through, and none for those who look.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::metrics::bump;

/// What one operator, or one way out of the task, was given. The task's thread writes it, anyone may read it.
#[derive(Debug, Default)]
pub(crate) struct InputCounts {
    records: AtomicU64,
    /// Beyond one for each record; below zero it wraps.
    more_rows: AtomicU64,
}

impl InputCounts {
    /// One more record, of so many rows.
    #[inline]
    pub(crate) fn add(&self, rows: u64) {
        bump(&self.records, 1);
        if rows != 1 {
            bump(&self.more_rows, rows.wrapping_sub(1));
        }
    }

    /// Whether nothing has come.
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
    /// One for each operator, upstream first.
    operators: Vec<OperatorCounter>,
}

#[derive(Debug)]
pub(crate) struct OperatorCounter {
    pub(crate) taken: Arc<InputCounts>,
    /// The first way of each tag, and of those without one.
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

/// What one operator of a task has taken and given so far.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct OperatorCounts {
    /// What it was given by those before it; nothing of a source.
    pub taken: EdgeCounts,
    /// What it handed to those behind it; none of an operator that nobody is behind.
    pub given: Option<EdgeCounts>,
}

/// What has gone one way.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct EdgeCounts {
    /// Records. In a stream of rows each is some rows.
    pub records: u64,
    /// Rows of these: an array has many, most objects are one.
    pub rows: u64,
}

impl EdgeCounts {
    /// What went this way and another.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { records: self.records.saturating_add(other.records), rows: self.rows.saturating_add(other.rows) }
    }

    /// What went since then.
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
