//! Decides which exchanges carry the timestamps of records. An exchange does if upstream assigns timestamps and
//! downstream uses them, also through the feedback of an iteration. Other exchanges have no overhead.

use super::dataflow::CheckedDataflow;
use super::iteration::Iterations;

/// Use of timestamps by each operator index.
pub(super) struct EventTime {
    /// Whether the operator's output has timestamps.
    has: Vec<bool>,
    /// Whether the operator or its downstream uses the timestamps of its input.
    needs: Vec<bool>,
}

impl EventTime {
    pub(super) fn new(checked: &CheckedDataflow<'_>, iterations: &Iterations) -> Self {
        let count = checked.dataflow.operators.len();
        let mut times = Self { has: vec![false; count], needs: vec![false; count] };
        times.spread(checked);
        // Feedback may bring timestamps to, or need them from, operators that otherwise have none.
        while iterations.ends.iter().any(|&(head, tail)| times.go_round(head, tail)) {
            times.spread(checked);
        }
        times
    }

    fn spread(&mut self, checked: &CheckedDataflow<'_>) {
        let Self { has, needs } = self;
        // In topological order, so that upstream operators are known first.
        for &position in &checked.order {
            let kind = &checked.operator(position).kind;
            let mut upstream = checked.incoming[position].iter().map(|&edge| checked.ends[edge].0);
            has[position] |= kind.makes_timestamps() || (kind.keeps_timestamps() && upstream.any(|from| has[from]));
        }
        // In reverse order, so that downstream operators are known first.
        for &position in checked.order.iter().rev() {
            let kind = &checked.operator(position).kind;
            let mut downstream = checked.ends.iter().filter(|&&(from, _)| from == position).map(|&(_, to)| to);
            needs[position] |= kind.uses_timestamps() || (kind.keeps_timestamps() && downstream.any(|to| needs[to]));
        }
    }

    /// Passes both properties through the feedback of an iteration. Returns whether either changed.
    fn go_round(&mut self, head: usize, tail: usize) -> bool {
        let before = (self.has[head], self.needs[tail]);
        self.has[head] |= self.has[tail];
        self.needs[tail] |= self.needs[head];
        before != (self.has[head], self.needs[tail])
    }

    pub(super) fn are_carried(&self, from: usize, to: usize) -> bool {
        self.has[from] && self.needs[to]
    }
}
