//! Describes a user's dataflow: operators and the edges between them.

use std::collections::{BTreeSet, HashMap};

use flownet_runtime::{
    source::RateLimit,
    spec::{FlowControl, OperatorKind, Partitioner, Payload},
};
use serde::Deserialize;

use super::error::PlanError;
use crate::settings::MAX_PARALLELISM;

/// Graph of operators as the user wrote it, before any planning.
#[derive(Clone, Debug, Default)]
pub struct Dataflow {
    /// Operators, in the order they were written; ids need not be dense.
    pub operators: Vec<LogicalOperator>,
    /// Edges. The index of an edge here identifies it.
    pub edges: Vec<LogicalEdge>,
}

/// Operator of a [`Dataflow`].
#[derive(Clone, Debug)]
pub struct LogicalOperator {
    /// Identity within the dataflow.
    pub id: u32,
    /// Stable identity that the user gave; unique in the dataflow.
    pub uid: Option<String>,
    /// Name shown to users.
    pub name: String,
    /// Kind of the operator.
    pub kind: OperatorKind,
    /// The user's function or object.
    pub payload: Payload,
    /// Rate limit of a source, for all its subtasks together.
    pub rate_limit: Option<RateLimit>,
    /// Rate to which the operator is slowed down, in records per second for all its subtasks together.
    pub brake: Option<f64>,
    /// Target of a sink that prepares output for checkpoints; none if it must not be shown.
    pub target: Option<String>,
    /// Number of subtasks, 1 to 32768.
    pub parallelism: u32,
    /// Whether the operator may share a task with its neighbours.
    pub chaining: ChainingPolicy,
    /// Whether the operator runs in the process that submits the job.
    pub on_driver: bool,
    /// Workers, from 1, over which the subtasks are distributed in turn; all workers if empty.
    pub workers: Vec<u32>,
}

/// Whether an operator may share a task with its neighbours.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum ChainingPolicy {
    /// May share a task with upstream and downstream operators.
    #[default]
    Always,
    /// Begins a task; downstream operators may join it.
    Head,
    /// Has its own task.
    Never,
}

/// Edge that carries the records of `from` to `to`.
#[derive(Clone, Debug)]
pub struct LogicalEdge {
    /// Id of the producer.
    pub from: u32,
    /// Side output of the producer; none for its main output.
    pub tag: Option<String>,
    /// Id of the consumer.
    pub to: u32,
    /// Input of the consumer, from 0.
    pub side: u8,
    /// Rule that chooses the subtask for a record.
    pub partitioner: Partitioner,
    /// Key selector or custom partitioner; called where `from` runs.
    pub payload: Payload,
    /// Flow control between workers; none uses the job's setting.
    pub flow_control: Option<FlowControl>,
}

/// Valid [`Dataflow`]: ids are resolved to indices, and there is no cycle.
pub(super) struct CheckedDataflow<'a> {
    pub(super) dataflow: &'a Dataflow,
    /// Indices of the operators in topological order.
    pub(super) order: Vec<usize>,
    /// Indices of the incoming edges, by operator index.
    pub(super) incoming: Vec<Vec<usize>>,
    /// Indices of the two operators, by edge index.
    pub(super) ends: Vec<(usize, usize)>,
}

impl<'a> CheckedDataflow<'a> {
    pub(super) fn new(dataflow: &'a Dataflow) -> Result<Self, PlanError> {
        if dataflow.operators.is_empty() {
            return Err(PlanError::Empty);
        }
        let positions = operator_positions(dataflow)?;
        let mut incoming = vec![Vec::new(); dataflow.operators.len()];
        let mut ends = Vec::with_capacity(dataflow.edges.len());
        for (position, edge) in dataflow.edges.iter().enumerate() {
            let resolve =
                |id: u32| positions.get(&id).copied().ok_or(PlanError::UnknownOperator { edge: position, id });
            let (from, to) = (resolve(edge.from)?, resolve(edge.to)?);
            incoming[to].push(position);
            ends.push((from, to));
        }
        let checked = Self { order: topological_order(dataflow, &ends)?, dataflow, incoming, ends };
        checked.check_operators()?;
        checked.check_edges()?;
        Ok(checked)
    }

    pub(super) fn operator(&self, position: usize) -> &'a LogicalOperator {
        &self.dataflow.operators[position]
    }

    fn check_operators(&self) -> Result<(), PlanError> {
        let mut uids: HashMap<&str, &str> = HashMap::new();
        let read: BTreeSet<usize> = self.ends.iter().map(|&(from, _)| from).collect();
        for (position, operator) in self.dataflow.operators.iter().enumerate() {
            if !(1..=MAX_PARALLELISM).contains(&operator.parallelism) {
                return Err(PlanError::Parallelism {
                    operator: operator.name.clone(),
                    parallelism: operator.parallelism,
                });
            }
            if let Some(uid) = &operator.uid
                && let Some(first) = uids.insert(uid, &operator.name)
            {
                return Err(PlanError::DuplicateUid {
                    uid: uid.clone(),
                    first: first.to_owned(),
                    second: operator.name.clone(),
                });
            }
            if self.incoming[position].is_empty() && !read.contains(&position) {
                return Err(PlanError::Unconnected { operator: operator.name.clone() });
            }
        }
        Ok(())
    }

    fn check_edges(&self) -> Result<(), PlanError> {
        for (edge, &(from, to)) in self.dataflow.edges.iter().zip(&self.ends) {
            let (from, to) = (self.operator(from), self.operator(to));
            if edge.partitioner == Partitioner::Forward && from.parallelism != to.parallelism {
                return Err(PlanError::ForwardParallelism {
                    from: from.name.clone(),
                    from_parallelism: from.parallelism,
                    to: to.name.clone(),
                    to_parallelism: to.parallelism,
                });
            }
        }
        Ok(())
    }
}

fn operator_positions(dataflow: &Dataflow) -> Result<HashMap<u32, usize>, PlanError> {
    let mut positions = HashMap::with_capacity(dataflow.operators.len());
    for (position, operator) in dataflow.operators.iter().enumerate() {
        if positions.insert(operator.id, position).is_some() {
            return Err(PlanError::DuplicateId { id: operator.id });
        }
    }
    Ok(positions)
}

/// Sorts operators by Kahn's algorithm. It always takes the operator written first, so that equal dataflows give equal
/// plans.
fn topological_order(dataflow: &Dataflow, ends: &[(usize, usize)]) -> Result<Vec<usize>, PlanError> {
    let count = dataflow.operators.len();
    let mut waiting_for = vec![0_usize; count];
    for &(_, to) in ends {
        waiting_for[to] += 1;
    }
    let mut ready: BTreeSet<usize> = (0..count).filter(|&position| waiting_for[position] == 0).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(position) = ready.pop_first() {
        order.push(position);
        for &(_, to) in ends.iter().filter(|&&(from, _)| from == position) {
            waiting_for[to] -= 1;
            if waiting_for[to] == 0 {
                ready.insert(to);
            }
        }
    }
    if order.len() == count {
        return Ok(order);
    }
    let operators = cycle(&waiting_for, ends).into_iter().map(|at| dataflow.operators[at].name.clone()).collect();
    Err(PlanError::Cycle { operators })
}

/// Returns the operators of one cycle, in the order of the edges. Every operator that the sort leaves waits for another
/// one that it leaves. So a walk upstream must return to an operator that it has visited.
fn cycle(waiting_for: &[usize], ends: &[(usize, usize)]) -> Vec<usize> {
    let left = |position: usize| waiting_for[position] > 0;
    let mut path: Vec<usize> = (0..waiting_for.len()).filter(|&position| left(position)).take(1).collect();
    while let Some(&last) = path.last() {
        let Some(&(from, _)) = ends.iter().find(|&&(from, to)| to == last && left(from)) else { break };
        if let Some(start) = path.iter().position(|&seen| seen == from) {
            path.drain(..start);
            break;
        }
        path.push(from);
    }
    path.reverse();
    path
}
