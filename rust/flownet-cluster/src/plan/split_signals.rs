//! Decides which exchanges carry split signals: one-to-one exchanges between a source with splits and an operator that
//! makes watermarks. All operators between them must keep the records of a split together. Other exchanges have no
//! overhead.

use flownet_runtime::spec::Partitioner;

use super::dataflow::CheckedDataflow;

/// Edges that carry split signals, by their indices.
pub(super) struct SplitSignals {
    are_carried: Vec<bool>,
}

impl SplitSignals {
    pub(super) fn new(checked: &CheckedDataflow<'_>) -> Self {
        let operators = checked.dataflow.operators.len();
        let is_one_to_one = |edge: usize| {
            let to = checked.ends[edge].1;
            checked.dataflow.edges[edge].partitioner == Partitioner::Forward && checked.incoming[to] == [edge]
        };
        let (mut comes, mut wanted) = (vec![false; operators], vec![false; operators]);
        for &position in &checked.order {
            let kind = &checked.operator(position).kind;
            let mut incoming = checked.incoming[position].iter();
            let comes_in = incoming.any(|&edge| is_one_to_one(edge) && comes[checked.ends[edge].0]);
            comes[position] = kind.tells_splits() || (comes_in && kind.keeps_splits_apart());
        }
        for &position in checked.order.iter().rev() {
            let kind = &checked.operator(position).kind;
            let goes_out = (0..checked.ends.len())
                .any(|edge| checked.ends[edge].0 == position && is_one_to_one(edge) && wanted[checked.ends[edge].1]);
            wanted[position] = kind.assigns_timestamps() || (goes_out && kind.keeps_splits_apart());
        }
        let are_carried = (0..checked.ends.len()).map(|edge| {
            let (from, to) = checked.ends[edge];
            is_one_to_one(edge) && comes[from] && wanted[to]
        });
        Self { are_carried: are_carried.collect() }
    }

    /// Whether an edge carries split signals.
    pub(super) fn are_carried(&self, edge: usize) -> bool {
        self.are_carried[edge]
    }
}
