//! Finds the iterations of a dataflow: the ends of each, and the edges within it.
//!
//! The detection of an iteration's end (`flownet_runtime::iteration`) has one precondition. Every subtask of the tail
//! must be reachable either from all subtasks of the head or only from its own. Any combination of all-to-all and
//! one-to-one edges satisfies this. Edges between some subtasks and some others do not, and are refused.

use std::collections::BTreeMap;

use flownet_runtime::spec::{OperatorKind, Partitioner};

use super::dataflow::CheckedDataflow;
use super::error::PlanError;

/// Iterations of a dataflow.
pub(super) struct Iterations {
    /// Indices of head and tail of each iteration, ordered by iteration number.
    pub(super) ends: Vec<(usize, usize)>,
    /// Whether each edge of the dataflow is on a path from a head to its tail.
    within: Vec<bool>,
}

impl Iterations {
    pub(super) fn new(checked: &CheckedDataflow<'_>) -> Result<Self, PlanError> {
        let ends = ends(checked)?;
        let mut within = vec![false; checked.ends.len()];
        for &(head, tail) in &ends {
            let inside = LoopBody::new(checked, head, tail);
            inside.check(checked, head, tail)?;
            for (edge, &(from, to)) in checked.ends.iter().enumerate() {
                if inside.has(from) && inside.has(to) {
                    within[edge] = true;
                    check_edge(checked, edge, tail)?;
                }
            }
        }
        Ok(Self { ends, within })
    }

    /// Whether an edge of the dataflow is within an iteration.
    pub(super) fn has_edge(&self, edge: usize) -> bool {
        self.within[edge]
    }
}

/// Returns head and tail of each iteration.
fn ends(checked: &CheckedDataflow<'_>) -> Result<Vec<(usize, usize)>, PlanError> {
    let mut found: BTreeMap<u32, [Vec<usize>; 2]> = BTreeMap::new();
    for (position, operator) in checked.dataflow.operators.iter().enumerate() {
        match operator.kind {
            OperatorKind::IterationHead { iteration } => found.entry(iteration).or_default()[0].push(position),
            OperatorKind::IterationTail { iteration, .. } => found.entry(iteration).or_default()[1].push(position),
            _ => {}
        }
    }
    let pair = |ends: &[Vec<usize>; 2]| match (ends[0].as_slice(), ends[1].as_slice()) {
        (&[head], &[tail]) => Ok((head, tail)),
        _ => {
            let one = ends.iter().flatten().next().map(|&position| checked.operator(position).name.clone());
            Err(PlanError::IterationEnds { operator: one.unwrap_or_default() })
        }
    };
    found.values().map(pair).collect()
}

/// Operators on the paths from a head to its tail, including both.
struct LoopBody(Vec<bool>);

impl LoopBody {
    fn new(checked: &CheckedDataflow<'_>, head: usize, tail: usize) -> Self {
        let count = checked.dataflow.operators.len();
        let (mut behind, mut before) = (vec![false; count], vec![false; count]);
        (behind[head], before[tail]) = (true, true);
        for &position in &checked.order {
            let mut upstream = checked.incoming[position].iter().map(|&edge| checked.ends[edge].0);
            behind[position] |= upstream.any(|from| behind[from]);
        }
        for &position in checked.order.iter().rev().filter(|&&position| position != head) {
            if before[position] {
                checked.incoming[position].iter().for_each(|&edge| before[checked.ends[edge].0] = true);
            }
        }
        Self(behind.into_iter().zip(before).map(|(behind, before)| behind && before).collect())
    }

    fn has(&self, position: usize) -> bool {
        self.0[position]
    }

    fn check(&self, checked: &CheckedDataflow<'_>, head: usize, tail: usize) -> Result<(), PlanError> {
        let (first, last) = (checked.operator(head), checked.operator(tail));
        if !self.has(tail) {
            return Err(PlanError::IterationApart { operator: last.name.clone() });
        }
        if first.parallelism != last.parallelism || first.workers != last.workers || first.on_driver != last.on_driver {
            return Err(PlanError::IterationPlaces { operator: last.name.clone() });
        }
        let is_end = |position: usize| {
            let kind = &checked.operator(position).kind;
            matches!(kind, OperatorKind::IterationHead { .. } | OperatorKind::IterationTail { .. })
        };
        let mut others = (0..self.0.len()).filter(|&position| position != head && position != tail);
        match others.find(|&position| self.has(position) && is_end(position)) {
            None => Ok(()),
            Some(inner) => Err(PlanError::NestedIteration {
                operator: last.name.clone(),
                inner: checked.operator(inner).name.clone(),
            }),
        }
    }
}

fn check_edge(checked: &CheckedDataflow<'_>, edge: usize, tail: usize) -> Result<(), PlanError> {
    let (from, to) = checked.ends[edge];
    let (from, to) = (checked.operator(from), checked.operator(to));
    let partitioner = checked.dataflow.edges[edge].partitioner;
    if partitioner != Partitioner::Rescale || from.parallelism == to.parallelism {
        return Ok(());
    }
    Err(PlanError::IterationRescale {
        operator: checked.operator(tail).name.clone(),
        from: from.name.clone(),
        to: to.name.clone(),
    })
}
