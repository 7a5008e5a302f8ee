//! Plans a job: from the user's dataflow to placed tasks. No I/O and no clock: equal dataflows and settings give equal
//! plans.
//!
//! ```text
//! Dataflow    operators and edges               checked: ids, uids, cycles, parallelism
//! job graph   chained vertices and exchanges    operators fused into tasks
//! tasks       one TaskSpec per subtask          placed on a worker, channels assigned
//! ```

mod alignment;
mod dataflow;
mod error;
mod event_time;
mod execution;
mod iteration;
mod job_graph;
mod regions;
mod row_times;
mod split_signals;
mod state_place;
mod wiring;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;

use flownet_runtime::spec::{FlowControl, OperatorKind, Partitioner, Payload, TaskSpec};
use serde::Serialize;

pub(crate) use self::regions::Regions;
pub(crate) use self::wiring::Wiring;
use self::{dataflow::CheckedDataflow, execution::Expansion, iteration::Iterations, job_graph::JobGraph};
pub use self::{
    dataflow::{ChainingPolicy, Dataflow, LogicalEdge, LogicalOperator},
    error::PlanError,
    execution::PlacedTask,
};
use crate::{rpc::MAX_FRAME_BYTES, settings::JobSettings, shown};

/// All parts of a job: tasks placed on workers.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Vertices in topological order; `vertex` of a task is an index here.
    pub vertices: Vec<Vertex>,
    /// Exchanges between the vertices.
    pub exchanges: Vec<Exchange>,
    /// Feedback of the iterations.
    pub feedback: Vec<Feedback>,
    /// All tasks; the id of a task is its index here.
    pub tasks: Vec<PlacedTask>,
}

/// A chain of operators that runs as `parallelism` tasks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Vertex {
    /// Names of its operators, joined by arrows.
    pub name: String,
    /// Number of subtasks.
    pub parallelism: u32,
    /// Whether it is pinned to the submitting process.
    pub on_driver: bool,
    /// Workers of its placement; all workers if empty.
    pub workers: Vec<u32>,
}

/// All channels of one edge between two vertices.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Exchange {
    /// Index of the producing vertex.
    pub from: usize,
    /// Index of the consuming vertex.
    pub to: usize,
    /// Rule that chooses the subtask for a record.
    #[serde(serialize_with = "shown::partitioner")]
    pub partitioner: Partitioner,
    /// Number of channels between the subtasks.
    pub channels: u64,
    /// Flow control of channels between workers.
    pub flow_control: FlowControl,
}

/// Feedback from the end of an iteration to its beginning: one in-process queue per subtask.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Feedback {
    /// Index of the vertex at the end.
    pub from: usize,
    /// Index of the vertex at the beginning.
    pub to: usize,
    /// Memory limit of each queue in bytes.
    pub memory_bytes: u64,
    /// Disk limit of each queue in bytes.
    pub disk_bytes: u64,
}

impl Plan {
    /// Checks `dataflow` and `settings` and expands them.
    ///
    /// # Errors
    /// Returns the first error found, in the user's terms. [`Plan::check_buffers`] checks separately whether the
    /// buffers suffice, so that a plan that does not fit can be explained.
    pub fn new(dataflow: &Dataflow, settings: &JobSettings) -> Result<Self, PlanError> {
        settings.validate()?;
        let checked = CheckedDataflow::new(dataflow)?;
        check_kept(dataflow, settings)?;
        let iterations = Iterations::new(&checked)?;
        let graph = JobGraph::new(&checked, &iterations)?;
        let tasks = Expansion::new(&graph, settings)?.tasks();
        let (exchanges, feedback) = (exchanges(&graph, settings), feedback(&graph));
        let plan = Self { vertices: vertices(&graph), exchanges, feedback, tasks };
        plan.check_shipment(settings.workers)?;
        Ok(plan)
    }

    /// Returns the specifications of the tasks on `worker`.
    pub fn tasks_on(&self, worker: u32) -> impl Iterator<Item = &TaskSpec> {
        self.tasks.iter().filter(move |task| task.worker == worker).map(|task| &task.spec)
    }

    /// Checks that the message with everything for one worker is within its limit.
    fn check_shipment(&self, workers: u32) -> Result<(), PlanError> {
        for worker in 1..=workers {
            let mut by_operator: BTreeMap<u32, (usize, &str)> = BTreeMap::new();
            for operator in self.tasks_on(worker).flat_map(shipped) {
                let (bytes, _) = by_operator.entry(operator.id).or_insert((0, operator.name));
                *bytes += operator.bytes;
            }
            let bytes = by_operator.values().map(|(bytes, _)| bytes).sum();
            if bytes <= MAX_SHIPMENT_BYTES {
                continue;
            }
            let (operator_bytes, operator) = by_operator.into_values().max().unwrap_or_default();
            let operator = operator.to_owned();
            return Err(PlanError::TooLargeToShip {
                operator,
                operator_bytes,
                worker,
                bytes,
                max_bytes: MAX_SHIPMENT_BYTES,
            });
        }
        Ok(())
    }
}

/// Checks that all operators can restore their state if the job takes checkpoints, and all sources unless the user
/// allows non-replayable ones.
fn check_kept(dataflow: &Dataflow, settings: &JobSettings) -> Result<(), PlanError> {
    if settings.checkpoint_interval.is_none() {
        return Ok(());
    }
    for LogicalOperator { name, kind, .. } in &dataflow.operators {
        if !settings.allow_non_replayable && !kind.can_be_repeated() {
            return Err(PlanError::NonReplayable { operator: name.clone(), kind: kind.name().to_owned() });
        }
        if settings.overtakes() && matches!(kind, OperatorKind::IterationTail { .. }) {
            return Err(PlanError::OvertakenIteration { operator: name.clone() });
        }
    }
    Ok(())
}

/// Size that one operator of a task adds to the message of its worker.
struct OperatorPayload<'a> {
    id: u32,
    name: &'a str,
    bytes: usize,
}

/// Returns the operators of a task, each with the size of its function and of the functions of its outgoing edges.
fn shipped(task: &TaskSpec) -> impl Iterator<Item = OperatorPayload<'_>> {
    task.operators.iter().map(|operator| {
        let outputs = task.outputs.iter().filter(|output| output.from_operator == operator.id);
        let leaving: usize = outputs.map(|output| payload_bytes(&output.payload)).sum();
        OperatorPayload { id: operator.id, name: &operator.name, bytes: payload_bytes(&operator.payload) + leaving }
    })
}

fn payload_bytes(payload: &Payload) -> usize {
    match payload {
        Payload::Bytes(bytes) => bytes.len(),
        Payload::None | Payload::Local(_) => 0,
    }
}

fn vertices(graph: &JobGraph<'_>) -> Vec<Vertex> {
    let vertices = graph.vertices.iter();
    vertices
        .map(|vertex| Vertex {
            name: vertex.name(),
            parallelism: vertex.parallelism,
            on_driver: vertex.on_driver,
            workers: vertex.workers.to_vec(),
        })
        .collect()
}

fn exchanges(graph: &JobGraph<'_>, settings: &JobSettings) -> Vec<Exchange> {
    let parallelism = |vertex: usize| graph.vertices[vertex].parallelism;
    let edges = graph.edges.iter();
    edges
        .map(|edge| {
            let partitioner = edge.logical.partitioner;
            let wiring = Wiring::new(&partitioner, parallelism(edge.from), parallelism(edge.to));
            Exchange {
                from: edge.from,
                to: edge.to,
                partitioner,
                channels: wiring.channel_count(),
                flow_control: edge.logical.flow_control.unwrap_or(settings.flow_control),
            }
        })
        .collect()
}

fn feedback(graph: &JobGraph<'_>) -> Vec<Feedback> {
    let operators = || {
        let vertices = graph.vertices.iter().enumerate();
        vertices.flat_map(|(at, vertex)| vertex.operators.iter().map(move |chained| (at, &chained.operator.kind)))
    };
    let head_of = |wanted: u32| {
        let is_head = |kind: &OperatorKind| *kind == OperatorKind::IterationHead { iteration: wanted };
        operators().find(|(_, kind)| is_head(kind)).map(|(at, _)| at)
    };
    let edge = |(from, kind): (usize, &OperatorKind)| match *kind {
        OperatorKind::IterationTail { iteration, memory_bytes, disk_bytes } => {
            Some(Feedback { from, to: head_of(iteration)?, memory_bytes, disk_bytes })
        }
        _ => None,
    };
    operators().filter_map(edge).collect()
}

/// Leaves room in a frame of the control connection for everything that is not payload.
const MAX_SHIPMENT_BYTES: usize = MAX_FRAME_BYTES / 4 * 3;
