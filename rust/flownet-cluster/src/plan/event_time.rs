//! Which exchanges carry the timestamps of records: those between an operator behind which records have times and one that
//! looks at them, or hands them on to one that does, also by the way back to the beginning of an iteration. All others pay
//! nothing.

use super::dataflow::CheckedDataflow;
use super::iteration::Iterations;

/// What is known of timestamps, for each operator by its position.
pub(super) struct EventTime {
    /// Whether what it emits has times.
    has: Vec<bool>,
    /// Whether the times of what it is given are looked at, by it or behind it.
    needs: Vec<bool>,
}

impl EventTime {
    pub(super) fn new(checked: &CheckedDataflow<'_>, iterations: &Iterations) -> Self {
        let count = checked.dataflow.operators.len();
        let mut times = Self { has: vec![false; count], needs: vec![false; count] };
        times.spread(checked);
        // What goes round may bring times, and need them, where nothing else does.
        while iterations.ends.iter().any(|&(head, tail)| times.go_round(head, tail)) {
            times.spread(checked);
        }
        times
    }

    fn spread(&mut self, checked: &CheckedDataflow<'_>) {
        let Self { has, needs } = self;
        for &position in &checked.order {
            let kind = &checked.operator(position).kind;
            let mut upstream = checked.incoming[position].iter().map(|&edge| checked.ends[edge].0);
            has[position] |= kind.makes_timestamps() || (kind.keeps_timestamps() && upstream.any(|from| has[from]));
        }
        for &position in checked.order.iter().rev() {
            let kind = &checked.operator(position).kind;
            let mut downstream = checked.ends.iter().filter(|&&(from, _)| from == position).map(|&(_, to)| to);
            needs[position] |= kind.uses_timestamps() || (kind.keeps_timestamps() && downstream.any(|to| needs[to]));
        }
    }

    /// Whether that is news to one of the ends.
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
