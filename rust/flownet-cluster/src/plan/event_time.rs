//! Which exchanges carry the timestamps of records: those between an operator behind which records have times and one that
//! looks at them, or hands them on to one that does. All others pay nothing.

use super::dataflow::Checked;

/// What is known of timestamps, for each operator by its position.
pub(super) struct EventTime {
    /// Whether what it emits has times.
    has: Vec<bool>,
    /// Whether the times of what it is given are looked at, by it or behind it.
    needs: Vec<bool>,
}

impl EventTime {
    pub(super) fn new(checked: &Checked<'_>) -> Self {
        let count = checked.dataflow.operators.len();
        let (mut has, mut needs) = (vec![false; count], vec![false; count]);
        for &position in &checked.order {
            let kind = &checked.operator(position).kind;
            let mut upstream = checked.incoming[position].iter().map(|&edge| checked.ends[edge].0);
            has[position] = kind.makes_timestamps() || (kind.keeps_timestamps() && upstream.any(|from| has[from]));
        }
        for &position in checked.order.iter().rev() {
            let kind = &checked.operator(position).kind;
            let mut downstream = checked.ends.iter().filter(|&&(from, _)| from == position).map(|&(_, to)| to);
            needs[position] = kind.uses_timestamps() || (kind.keeps_timestamps() && downstream.any(|to| needs[to]));
        }
        Self { has, needs }
    }

    pub(super) fn are_carried(&self, from: usize, to: usize) -> bool {
        self.has[from] && self.needs[to]
    }
}
