//! From what the user wrote to what runs where. No IO, no clock: equal
//! dataflows and settings give equal plans.
//!
//! ```text
//! Dataflow    operators and edges               checked: ids, uids, cycles, parallelism
//! job graph   chained vertices and exchanges    who shares a task
//! tasks       one TaskSpec a subtask            where it runs, which channels it reads
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

/// Everything a job is made of: tasks placed on workers.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Vertices in topological order; a task's `vertex` is a position here.
    pub vertices: Vec<Vertex>,
    /// Exchanges between them.
    pub exchanges: Vec<Exchange>,
    /// What goes round within them.
    pub feedback: Vec<Feedback>,
    /// All tasks; a task's id is its position here.
    pub tasks: Vec<PlacedTask>,
}

/// A chain of operators that runs as `parallelism` tasks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Vertex {
    /// Names of its operators, joined by arrows.
    pub name: String,
    /// Subtasks.
    pub parallelism: u32,
    /// Whether it is pinned to the submitting process.
    pub on_driver: bool,
    /// Workers it was placed on; all of them if empty.
    pub workers: Vec<u32>,
}

/// All channels of one edge between two vertices.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Exchange {
    /// Position of the emitting vertex.
    pub from: usize,
    /// Position of the receiving vertex.
    pub to: usize,
    /// How records choose their subtask.
    #[serde(serialize_with = "shown::partitioner")]
    pub partitioner: Partitioner,
    /// Channels between the subtasks.
    pub channels: u64,
    /// What controls those between workers.
    pub flow_control: FlowControl,
}

/// What goes from the end of an iteration back to its beginning: a queue for each subtask, in its process.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Feedback {
    /// Position of the vertex at the end.
    pub from: usize,
    /// Position of the vertex at the beginning.
    pub to: usize,
    /// Bytes that each queue takes in memory at the most.
    pub memory_bytes: u64,
    /// And on disk.
    pub disk_bytes: u64,
}

impl Plan {
    /// Checks `dataflow` and `settings` and expands them.
    ///
    /// # Errors
    /// The first thing found wrong, named as the user wrote it. Whether the
    /// buffers suffice is not asked here but by
    /// [`Plan::check_buffers`], so that a plan that does not fit can be explained.
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

    /// Specifications of the tasks that run on `worker`.
    pub fn tasks_on(&self, worker: u32) -> impl Iterator<Item = &TaskSpec> {
        self.tasks.iter().filter(move |task| task.worker == worker).map(|task| &task.spec)
    }

    /// Everything for one worker travels in one message, which has a limit.
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

/// With checkpoints operators go back to where they were, sources too unless the user does without.
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

/// What one operator of a task adds to the message of its worker.
struct OperatorPayload<'a> {
    id: u32,
    name: &'a str,
    bytes: usize,
}

/// The operators of a task, each with its function and those of the edges that leave it.
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

/// Leaves room in a frame of the control connection for all that is not payload.
const MAX_SHIPMENT_BYTES: usize = MAX_FRAME_BYTES / 4 * 3;
