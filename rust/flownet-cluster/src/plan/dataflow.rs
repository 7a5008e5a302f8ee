//! What the user wrote: operators and the edges between them.

use std::collections::{BTreeSet, HashMap};

use flownet_runtime::{
    source::RateLimit,
    spec::{FlowControl, OperatorKind, Partitioner, Payload},
};
use serde::Deserialize;

use super::error::PlanError;
use crate::settings::MAX_PARALLELISM;

/// A dataflow before any decision: a graph of operators.
#[derive(Clone, Debug, Default)]
pub struct Dataflow {
    /// The operators, in the order they were written; ids need not be dense.
    pub operators: Vec<LogicalOperator>,
    /// The edges. An edge is known by its position here.
    pub edges: Vec<LogicalEdge>,
}

/// One operator of a [`Dataflow`].
#[derive(Clone, Debug)]
pub struct LogicalOperator {
    /// Identity within the dataflow.
    pub id: u32,
    /// Stable identity given by the user; unique in the dataflow.
    pub uid: Option<String>,
    /// Name shown to people.
    pub name: String,
    /// What it does.
    pub kind: OperatorKind,
    /// The user's function or object.
    pub payload: Payload,
    /// The most that a source emits, all its subtasks together.
    pub rate_limit: Option<RateLimit>,
    /// Records a second to which it is slowed down, all its subtasks together.
    pub brake: Option<f64>,
    /// Where a sink writes that prepares output for checkpoints; none if it is nobody's to know.
    pub target: Option<String>,
    /// Subtasks, 1 to 32768.
    pub parallelism: u32,
    /// Whether it may share a task with its neighbours.
    pub chaining: ChainingPolicy,
    /// Whether it runs in the process that submits the job.
    pub on_driver: bool,
    /// Workers its subtasks go round, from 1; all of them if empty.
    pub workers: Vec<u32>,
}

/// Whether an operator may share a task with its neighbours.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum ChainingPolicy {
    /// With upstream and downstream.
    #[default]
    Always,
    /// Begins a task; downstream may join.
    Head,
    /// Has a task of its own.
    Never,
}

/// Records of `from` go to `to`.
#[derive(Clone, Debug)]
pub struct LogicalEdge {
    /// Id of the operator that emits.
    pub from: u32,
    /// Which side output of it; none for what it emits otherwise.
    pub tag: Option<String>,
    /// Id of the operator that receives.
    pub to: u32,
    /// Which input of it, from 0.
    pub side: u8,
    /// Which subtask a record goes to.
    pub partitioner: Partitioner,
    /// Key selector or custom partitioner; called where `from` runs.
    pub payload: Payload,
    /// What controls its flow between workers; none: as the job's settings say.
    pub flow_control: Option<FlowControl>,
}

/// A [`Dataflow`] found sound: ids resolved to positions, no cycle.
pub(super) struct CheckedDataflow<'a> {
    pub(super) dataflow: &'a Dataflow,
    /// Positions of the operators, each after everything upstream of it.
    pub(super) order: Vec<usize>,
    /// Per operator position: positions of its incoming edges.
    pub(super) incoming: Vec<Vec<usize>>,
    /// Per edge: positions of the two operators.
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

/// Kahn's algorithm, always taking the operator written first, so that equal
/// dataflows give equal plans.
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

/// The operators of one cycle, in the order of the edges. Every operator left
/// over by the sort waits for another one left over, so walking upstream must
/// come back to where it has been.
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
