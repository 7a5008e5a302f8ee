//! Fuses operators into vertices, each of which runs as one task per subtask.
//!
//! An operator joins the vertex of its upstream operator when:
//! - their edge is a forward edge,
//! - it is the operator's only input,
//! - both have the same parallelism and the same placement, and
//! - the [`ChainingPolicy`] of neither forbids it.
//!
//! Since the only input decides, a vertex is a tree of operators with one head. An aligned source and the operator that
//! aligns it are fused regardless of placement and policy. Operators on rows join a vertex of objects only if they
//! assign the times of rows (`row_times.rs`). The head of an iteration begins its own task, because it must know when
//! its input ends.

use std::collections::BTreeSet;

use flownet_runtime::spec::{OperatorKind, Partitioner};

use super::alignment::fused_edges;
use super::dataflow::{ChainingPolicy, CheckedDataflow, LogicalEdge, LogicalOperator};
use super::error::PlanError;
use super::event_time::EventTime;
use super::iteration::Iterations;
use super::row_times::edges_among_objects;
use super::split_signals::SplitSignals;

/// Vertices in topological order and the exchanges between them.
pub(super) struct JobGraph<'a> {
    pub(super) vertices: Vec<JobVertex<'a>>,
    pub(super) edges: Vec<JobEdge<'a>>,
}

/// Operators that run in one task.
pub(super) struct JobVertex<'a> {
    /// Operators, head first, each after its upstream.
    pub(super) operators: Vec<ChainedOperator<'a>>,
    pub(super) parallelism: u32,
    pub(super) on_driver: bool,
    /// As [`LogicalOperator::workers`].
    pub(super) workers: &'a [u32],
}

/// Operator and the edge in its vertex that feeds it; none for the head.
pub(super) struct ChainedOperator<'a> {
    pub(super) operator: &'a LogicalOperator,
    pub(super) upstream: Option<&'a LogicalEdge>,
}

/// Exchange between two vertices.
pub(super) struct JobEdge<'a> {
    /// Index of the edge in the dataflow.
    pub(super) id: u32,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) logical: &'a LogicalEdge,
    /// Whether records carry their timestamps.
    pub(super) timestamps: bool,
    /// Whether the exchange is within an iteration.
    pub(super) in_iteration: bool,
    /// Whether the exchange carries split signals.
    pub(super) splits: bool,
}

impl<'a> JobGraph<'a> {
    pub(super) fn new(checked: &CheckedDataflow<'a>, iterations: &Iterations) -> Result<Self, PlanError> {
        let (fused, among_objects) = (fused_edges(checked)?, edges_among_objects(checked));
        let mut vertices: Vec<JobVertex<'a>> = Vec::new();
        let mut vertex_of = vec![0; checked.dataflow.operators.len()];
        let mut inner = BTreeSet::new();
        for &position in &checked.order {
            let operator = checked.operator(position);
            let joins = |edge: &usize| {
                let vertex = &vertices[vertex_of[checked.ends[*edge].0]];
                joins(checked, *edge, vertex, &fused, &among_objects)
            };
            if let Some(edge) = only_input(checked, position).filter(joins) {
                inner.insert(edge);
                let vertex = vertex_of[checked.ends[edge].0];
                let upstream = Some(&checked.dataflow.edges[edge]);
                vertices[vertex].operators.push(ChainedOperator { operator, upstream });
                vertex_of[position] = vertex;
            } else {
                vertex_of[position] = vertices.len();
                vertices.push(JobVertex {
                    operators: vec![ChainedOperator { operator, upstream: None }],
                    parallelism: operator.parallelism,
                    on_driver: operator.on_driver,
                    workers: &operator.workers,
                });
            }
        }
        let (times, splits) = (EventTime::new(checked, iterations), SplitSignals::new(checked));
        let exchanges = (0_u32..).zip(&checked.dataflow.edges).zip(&checked.ends);
        let edges = exchanges
            .filter(|((id, _), _)| !inner.contains(&(*id as usize)))
            .map(|((id, logical), &(from, to))| {
                let timestamps = times.are_carried(from, to);
                let in_iteration = iterations.has_edge(id as usize);
                let splits = splits.are_carried(id as usize);
                JobEdge { id, from: vertex_of[from], to: vertex_of[to], logical, timestamps, in_iteration, splits }
            })
            .collect();
        Ok(Self { vertices, edges })
    }
}

impl JobVertex<'_> {
    /// Whether its task has objects as records; otherwise it has rows.
    fn is_of_objects(&self) -> bool {
        self.operators.first().is_some_and(|head| head.operator.kind.takes_objects())
    }

    /// Returns `a -> b`, or `a -> (b, c -> d)` if a stream is used twice.
    pub(super) fn name(&self) -> String {
        self.operators.first().map(|head| self.name_from(head)).unwrap_or_default()
    }

    fn name_from(&self, chained: &ChainedOperator<'_>) -> String {
        let name = &chained.operator.name;
        let downstream: Vec<String> = self
            .operators
            .iter()
            .filter(|other| other.upstream.is_some_and(|edge| edge.from == chained.operator.id))
            .map(|other| self.name_from(other))
            .collect();
        match downstream.as_slice() {
            [] => name.clone(),
            [only] => format!("{name} -> {only}"),
            several => format!("{name} -> ({})", several.join(", ")),
        }
    }
}

fn only_input(checked: &CheckedDataflow<'_>, position: usize) -> Option<usize> {
    match checked.incoming[position].as_slice() {
        &[edge] => Some(edge),
        _ => None,
    }
}

/// Whether the downstream operator of an edge joins `vertex`, which contains the upstream operator.
fn joins(
    checked: &CheckedDataflow<'_>,
    edge: usize,
    vertex: &JobVertex<'_>,
    fused: &BTreeSet<usize>,
    among_objects: &BTreeSet<usize>,
) -> bool {
    let (from, to) = checked.ends[edge];
    let (upstream, operator) = (checked.operator(from), checked.operator(to));
    let may_join = vertex.on_driver == operator.on_driver
        && vertex.workers == operator.workers
        && upstream.chaining != ChainingPolicy::Never
        && operator.chaining == ChainingPolicy::Always;
    checked.dataflow.edges[edge].partitioner == Partitioner::Forward
        && upstream.parallelism == operator.parallelism
        && (may_join || fused.contains(&edge))
        && !matches!(operator.kind, OperatorKind::IterationHead { .. })
        // Records convert between objects and rows at the exchange, so both ends must have the same format.
        && (among_objects.contains(&edge)
            || (vertex.is_of_objects() == operator.kind.takes_objects()
                && upstream.kind.gives_objects() == operator.kind.takes_objects()))
}
