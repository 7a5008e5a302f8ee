//! Expands vertices into tasks, places them on workers and connects them.

use flownet_runtime::spec::{
    ChannelSpec, InputSpec, OperatorSpec, OutputSpec, Partitioner, Payload, StateBackend, TaskSpec, Upstream,
    partition_id,
};

use super::{
    error::PlanError,
    job_graph::{JobEdge, JobGraph, JobVertex},
    state_place,
    wiring::Wiring,
};
use crate::settings::JobSettings;

/// Task and its worker; worker 0 is the submitting process.
#[derive(Clone, Debug)]
pub struct PlacedTask {
    /// Worker that runs the task.
    pub worker: u32,
    /// Specification of the task.
    pub spec: TaskSpec,
}

/// Numbers, places and connects the tasks of `graph`.
pub(super) struct Expansion<'a> {
    graph: &'a JobGraph<'a>,
    settings: &'a JobSettings,
    max_parallelism: u32,
}

impl<'a> Expansion<'a> {
    pub(super) fn new(graph: &'a JobGraph<'a>, settings: &'a JobSettings) -> Result<Self, PlanError> {
        let parallelism = graph.vertices.iter().map(|vertex| vertex.parallelism).max().unwrap_or(1);
        let chosen = settings.max_parallelism;
        // The whole job has one number of key groups: the two ends of a keyed edge must agree, and state moves only
        // between jobs with the same number.
        let max_parallelism = chosen.unwrap_or_else(|| flownet_core::keygroup::default_max_parallelism(parallelism));
        let expansion = Self { graph, settings, max_parallelism };
        graph.vertices.iter().try_for_each(|vertex| expansion.check_place(vertex))?;
        for edge in &graph.edges {
            expansion.check_edge(edge)?;
        }
        for vertex in &graph.vertices {
            expansion.check_objects(vertex)?;
        }
        Ok(expansion)
    }

    pub(super) fn tasks(&self) -> Vec<PlacedTask> {
        let subtasks = self.graph.vertices.iter().enumerate().flat_map(|(vertex, described)| {
            (0..described.parallelism).map(move |subtask| (vertex, described, subtask))
        });
        let mut tasks: Vec<_> = (0_u32..)
            .zip(subtasks)
            .map(|(task_id, (vertex, described, subtask))| PlacedTask {
                worker: self.worker_of(described, subtask),
                spec: TaskSpec {
                    task_id,
                    vertex: vertex as u32,
                    name: described.name(),
                    subtask,
                    parallelism: described.parallelism,
                    max_parallelism: self.max_parallelism,
                    codec: self.settings.codec,
                    object_reuse: self.settings.object_reuse,
                    state: StateBackend::Memory,
                    latency_interval_us: self.settings.latency_interval.map(|interval| interval.as_micros() as u64),
                    operators: operator_specs(described),
                    inputs: self.inputs(vertex, subtask),
                    outputs: self.outputs(vertex, subtask),
                },
            })
            .collect();
        state_place::put_on_disk(&mut tasks, self.graph, self.settings);
        tasks
    }

    /// Returns the worker of a subtask. By slot sharing, subtask `i` of every vertex goes to the same worker, so that
    /// forward neighbours stay together, unless the user has placed the vertex.
    fn worker_of(&self, vertex: &JobVertex<'_>, subtask: u32) -> u32 {
        match vertex.workers {
            _ if self.runs_on_driver(vertex) => 0,
            [] => 1 + subtask % self.settings.workers,
            chosen => chosen[subtask as usize % chosen.len()],
        }
    }

    fn runs_on_driver(&self, vertex: &JobVertex<'_>) -> bool {
        vertex.on_driver || self.settings.workers == 0
    }

    fn wiring(&self, edge: &JobEdge<'_>) -> Wiring {
        let parallelism = |vertex: usize| self.graph.vertices[vertex].parallelism;
        Wiring::new(&edge.logical.partitioner, parallelism(edge.from), parallelism(edge.to))
    }

    fn inputs(&self, vertex: usize, subtask: u32) -> Vec<InputSpec> {
        let incoming = self.graph.edges.iter().filter(|edge| edge.to == vertex);
        incoming
            .map(|edge| InputSpec {
                edge: edge.id,
                to_operator: edge.logical.to,
                side: edge.logical.side,
                timestamps: edge.timestamps,
                in_iteration: edge.in_iteration,
                splits: edge.splits,
                partitioner: edge.logical.partitioner,
                flow_control: edge.logical.flow_control.unwrap_or(self.settings.flow_control),
                channels: self.channels(edge, subtask),
            })
            .collect()
    }

    fn channels(&self, edge: &JobEdge<'_>, consumer: u32) -> Vec<ChannelSpec> {
        let channels = self.wiring(edge).channels(consumer).into_iter();
        channels
            .map(|(producer, subpartition)| ChannelSpec {
                producer_worker: self.worker_of(&self.graph.vertices[edge.from], producer),
                partition: partition_id(edge.id, producer),
                subpartition,
            })
            .collect()
    }

    fn outputs(&self, vertex: usize, subtask: u32) -> Vec<OutputSpec> {
        let outgoing = self.graph.edges.iter().filter(|edge| edge.from == vertex);
        outgoing
            .map(|edge| OutputSpec {
                edge: edge.id,
                from_operator: edge.logical.from,
                tag: edge.logical.tag.clone(),
                timestamps: edge.timestamps,
                in_iteration: edge.in_iteration,
                splits: edge.splits,
                partitioner: edge.logical.partitioner,
                payload: edge.logical.payload.clone(),
                partition: partition_id(edge.id, subtask),
                subpartitions: self.wiring(edge).subpartitions(subtask),
                flush_timeout_us: self.settings.buffer_timeout.map(|timeout| timeout.as_micros() as u64),
            })
            .collect()
    }

    /// Checks that the workers of a vertex exist and have slots for its subtasks.
    fn check_place(&self, vertex: &JobVertex<'_>) -> Result<(), PlanError> {
        let (parallelism, workers) = (vertex.parallelism, self.settings.workers);
        let is_missing = |worker: &&u32| !(1..=workers).contains(worker);
        if workers > 0
            && let Some(&worker) = vertex.workers.iter().find(is_missing)
        {
            return Err(PlanError::UnknownWorker { operator: vertex.name(), worker, workers });
        }
        let Some(available) = self.settings.slots_per_worker else { return Ok(()) };
        let places = if vertex.workers.is_empty() { workers } else { vertex.workers.len() as u32 };
        let needed = parallelism.div_ceil(places.max(1));
        if needed <= available {
            return Ok(());
        }
        Err(PlanError::InsufficientSlots { parallelism, needed, available })
    }

    fn check_edge(&self, edge: &JobEdge<'_>) -> Result<(), PlanError> {
        let (from, to) = (&self.graph.vertices[edge.from], &self.graph.vertices[edge.to]);
        if edge.logical.partitioner == Partitioner::KeyGroup && to.parallelism > self.max_parallelism {
            return Err(PlanError::KeyGroups {
                operator: to.name(),
                parallelism: to.parallelism,
                max_parallelism: self.max_parallelism,
            });
        }
        let channels = self.wiring(edge).channel_count();
        if channels > MAX_CHANNELS {
            let max_channels = MAX_CHANNELS;
            return Err(PlanError::TooManyChannels { from: from.name(), to: to.name(), channels, max_channels });
        }
        Ok(())
    }

    /// Checks that only tasks of this process use objects of this process.
    fn check_objects(&self, vertex: &JobVertex<'_>) -> Result<(), PlanError> {
        if self.runs_on_driver(vertex) {
            return Ok(());
        }
        let is_local = |payload: &Payload| matches!(payload, Payload::Local(_));
        for chained in &vertex.operators {
            let operator = chained.operator;
            let mut leaving = self.graph.edges.iter().filter(|edge| edge.logical.from == operator.id);
            if is_local(&operator.payload) || leaving.any(|edge| is_local(&edge.logical.payload)) {
                return Err(PlanError::NotShippable { operator: operator.name.clone() });
            }
        }
        Ok(())
    }
}

fn operator_specs(vertex: &JobVertex<'_>) -> Vec<OperatorSpec> {
    let operators = vertex.operators.iter();
    operators
        .map(|chained| OperatorSpec {
            id: chained.operator.id,
            uid: chained.operator.uid.clone(),
            name: chained.operator.name.clone(),
            kind: chained.operator.kind.clone(),
            payload: chained.operator.payload.clone(),
            rate_limit: chained.operator.rate_limit,
            brake: chained.operator.brake,
            target: chained.operator.target.clone(),
            upstream: chained.upstream.map(|edge| Upstream { operator: edge.from, tag: edge.tag.clone() }),
        })
        .collect()
}

/// Limit beyond which a plan would need gigabytes before its buffers are counted.
const MAX_CHANNELS: u64 = 4_000_000;
