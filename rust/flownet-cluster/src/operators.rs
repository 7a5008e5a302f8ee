//! Reports the records and rows through each operator of a task.

use std::sync::Arc;

use flownet_runtime::operator_counts::{EdgeCounts, OperatorCounts};
use serde::Serialize;

/// Input and output counters of one operator.
///
/// Records between the operators of a task are not encoded, so bytes are counted for the task only.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperatorReport {
    /// Name of the operator.
    pub name: Arc<str>,
    /// Records that it received; 0 for a source. In a stream of rows each record has several rows.
    pub records_in: u64,
    /// Rows of these records. A numpy array has as many as its first dimension; any other object is one.
    pub rows_in: u64,
    /// Records that it emitted to downstream operators, in its task or in others, each counted once. Includes side
    /// outputs that are read. None for a sink.
    pub records_out: Option<u64>,
    /// Rows of these records.
    pub rows_out: Option<u64>,
    /// Rate of `rows_in`, per second. The rate of `records_in` if records are objects.
    pub rows_in_per_second: f64,
    /// Rate of `rows_out`, per second.
    pub rows_out_per_second: Option<f64>,
}

impl OperatorReport {
    /// Creates the report of one operator from its counters `now`, and those of `seconds` ago in `before`.
    fn new(name: &Arc<str>, now: OperatorCounts, before: OperatorCounts, seconds: f64) -> Self {
        let rate = |now: EdgeCounts, before| if seconds > 0.0 { now.since(before).rows as f64 / seconds } else { 0.0 };
        Self {
            name: Arc::clone(name),
            records_in: now.taken.records,
            rows_in: now.taken.rows,
            records_out: now.given.map(|given| given.records),
            rows_out: now.given.map(|given| given.rows),
            rows_in_per_second: rate(now.taken, before.taken),
            rows_out_per_second: now.given.map(|given| rate(given, before.given.unwrap_or_default())),
        }
    }

    /// Returns the reports of a task's operators, upstream first; empty if the task has reported nothing yet.
    pub(crate) fn all(
        names: &[Arc<str>],
        now: &[OperatorCounts],
        before: &[OperatorCounts],
        seconds: f64,
    ) -> Vec<Self> {
        let before = before.iter().copied().chain(std::iter::repeat(OperatorCounts::default()));
        let each = names.iter().zip(now).zip(before);
        each.map(|((name, now), before)| Self::new(name, *now, before, seconds)).collect()
    }

    /// Sums the reports of all subtasks of a vertex, which have the same operators.
    pub(crate) fn sums(subtasks: impl IntoIterator<Item = Vec<Self>>) -> Vec<Self> {
        let mut sums: Vec<Self> = Vec::new();
        for operators in subtasks {
            let known = sums.len().min(operators.len());
            sums.iter_mut().zip(&operators).for_each(|(sum, more)| sum.add(more));
            sums.extend(operators.into_iter().skip(known));
        }
        sums
    }

    fn add(&mut self, more: &Self) {
        let both = |sum: &mut Option<u64>, more: Option<u64>| {
            *sum = sum.iter().copied().chain(more).reduce(u64::saturating_add);
        };
        self.records_in = self.records_in.saturating_add(more.records_in);
        self.rows_in = self.rows_in.saturating_add(more.rows_in);
        both(&mut self.records_out, more.records_out);
        both(&mut self.rows_out, more.rows_out);
        self.rows_in_per_second += more.rows_in_per_second;
        self.rows_out_per_second =
            self.rows_out_per_second.iter().copied().chain(more.rows_out_per_second).reduce(|a, b| a + b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flowed(records: u64, rows: u64) -> EdgeCounts {
        EdgeCounts { records, rows }
    }

    #[test]
    fn operators_of_subtasks_add_up_and_a_sink_hands_nothing_on() {
        let names: [Arc<str>; 2] = ["map".into(), "print".into()];
        let counts = |taken, given| OperatorCounts { taken, given };
        let before = [counts(flowed(1, 10), Some(flowed(2, 2))), counts(flowed(2, 2), None)];
        let now = [counts(flowed(3, 30), Some(flowed(6, 6))), counts(flowed(6, 6), None)];
        let one = OperatorReport::all(&names, &now, &before, 2.0);
        assert_eq!((one[0].rows_in_per_second, one[0].rows_out_per_second), (10.0, Some(2.0)));
        // One subtask that has not begun, and one that has just begun.
        let sums = OperatorReport::sums([Vec::new(), one, OperatorReport::all(&names, &now, &[], 0.0)]);
        let map = &sums[0];
        assert_eq!((&*map.name, map.records_in, map.rows_in), ("map", 6, 60));
        assert_eq!((map.records_out, map.rows_out, map.rows_out_per_second), (Some(12), Some(12), Some(2.0)));
        let print = &sums[1];
        assert_eq!((print.records_in, print.records_out, print.rows_out_per_second), (12, None, None));
    }
}
