//! Fuses each aligned source with the operator that aligns it into one task, regardless of chaining policy and
//! placement. So the source waits between two records, where it still handles barriers and mail.

use std::collections::{BTreeMap, BTreeSet};

use flownet_runtime::spec::{OperatorKind, Partitioner};
use flownet_runtime::watermark::{Alignment, Watermarks};

use super::dataflow::{CheckedDataflow, LogicalOperator};
use super::error::PlanError;

/// Returns the edges between each aligned source and the operator that aligns it, by their indices.
pub(super) fn fused_edges(checked: &CheckedDataflow<'_>) -> Result<BTreeSet<usize>, PlanError> {
    let mut fused = BTreeSet::new();
    let mut aligned_by: BTreeMap<usize, &LogicalOperator> = BTreeMap::new();
    let mut groups: BTreeMap<&str, (&LogicalOperator, &Alignment)> = BTreeMap::new();
    for &position in &checked.order {
        let operator = checked.operator(position);
        let Some(alignment) = operator.kind.alignment() else { continue };
        if let OperatorKind::AssignTimestamps { watermarks: Watermarks::Never, .. } = operator.kind {
            return Err(PlanError::AlignedWithoutWatermarks { operator: operator.name.clone() });
        }
        let (first, same) = groups.entry(&alignment.group).or_insert((operator, alignment));
        if *same != alignment {
            return Err(PlanError::AlignmentDiffers {
                group: alignment.group.clone(),
                first: first.name.clone(),
                second: operator.name.clone(),
            });
        }
        let source = way_to_source(checked, position, &mut fused)?;
        if let Some(other) = aligned_by.insert(source, operator) {
            return Err(PlanError::AlignedTwice {
                source_name: checked.operator(source).name.clone(),
                first: other.name.clone(),
                second: operator.name.clone(),
            });
        }
    }
    Ok(fused)
}

/// Walks upstream along forward edges to the source, and adds these edges to `fused`.
fn way_to_source(
    checked: &CheckedDataflow<'_>,
    position: usize,
    fused: &mut BTreeSet<usize>,
) -> Result<usize, PlanError> {
    let refuse = |found: String| PlanError::NotAtSource { operator: checked.operator(position).name.clone(), found };
    let mut at = position;
    loop {
        match checked.incoming[at].as_slice() {
            [] if at == position => return Err(refuse("has no input".to_owned())),
            [] => return Ok(at),
            &[edge] => {
                let logical = &checked.dataflow.edges[edge];
                if logical.partitioner != Partitioner::Forward {
                    let (from, to) = (checked.operator(checked.ends[edge].0), checked.operator(at));
                    return Err(refuse(format!("records change subtasks between '{}' and '{}'", from.name, to.name)));
                }
                fused.insert(edge);
                at = checked.ends[edge].0;
            }
            edges => {
                let count = edges.len();
                return Err(refuse(format!("'{}' has {count} inputs", checked.operator(at).name)));
            }
        }
    }
}
