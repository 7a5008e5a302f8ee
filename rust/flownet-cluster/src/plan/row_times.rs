//! Finds operators on rows that share a task with objects: those that assign timestamps after a `to_rows` in the task
//! of a source. There the splits of the source are known. So watermarks are made per split, and the source learns which
//! split to read next. Neither is possible between two tasks.

use std::collections::BTreeSet;

use flownet_runtime::spec::{OperatorKind, Partitioner, RowsKind};

use super::dataflow::CheckedDataflow;

/// Returns the edges, by their indices, on paths from a `to_rows` after a source to an operator that assigns timestamps
/// to rows.
pub(super) fn edges_among_objects(checked: &CheckedDataflow<'_>) -> BTreeSet<usize> {
    let says_times = |position: &&usize| {
        matches!(checked.operator(**position).kind, OperatorKind::Rows(RowsKind::AssignTimestamps { .. }))
    };
    checked
        .order
        .iter()
        .filter(says_times)
        .filter_map(|&position| way_to_objects(checked, position))
        .flatten()
        .collect()
}

/// Walks upstream along forward edges over operators that only pass rows through. Returns `None` if that does not lead
/// to a source of objects.
fn way_to_objects(checked: &CheckedDataflow<'_>, position: usize) -> Option<Vec<usize>> {
    let (mut at, mut way) = (position, Vec::new());
    loop {
        let edge = only_forward_edge(checked, at)?;
        way.push(edge);
        at = checked.ends[edge].0;
        match &checked.operator(at).kind {
            OperatorKind::Rows(RowsKind::Project { .. } | RowsKind::AssignTimestamps { .. }) => {}
            OperatorKind::Rows(RowsKind::ToRows { .. }) => break,
            _ => return None,
        }
    }
    while !checked.incoming[at].is_empty() {
        at = checked.ends[only_forward_edge(checked, at)?].0;
    }
    Some(way)
}

fn only_forward_edge(checked: &CheckedDataflow<'_>, position: usize) -> Option<usize> {
    let &[edge] = checked.incoming[position].as_slice() else { return None };
    (checked.dataflow.edges[edge].partitioner == Partitioner::Forward).then_some(edge)
}
