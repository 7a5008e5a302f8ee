//! Operators fused into vertices: what runs in one task.
//!
//! An operator joins the vertex of its upstream when their edge is a forward
//! edge, it is the operator's only input, both have one parallelism and the
//! same places to run, and neither's [`Chaining`] forbids it. Since the only
//! input decides, a vertex is a tree of operators with one head.

use flownet_runtime::spec::Partitioner;

use super::dataflow::{Chaining, Checked, LogicalEdge, LogicalOperator};
use super::event_time::EventTime;

/// Vertices in topological order and the exchanges between them.
pub(super) struct JobGraph<'a> {
    pub(super) vertices: Vec<JobVertex<'a>>,
    pub(super) edges: Vec<JobEdge<'a>>,
}

/// Operators that run in one task.
pub(super) struct JobVertex<'a> {
    /// Head first, each after its upstream.
    pub(super) operators: Vec<ChainedOperator<'a>>,
    pub(super) parallelism: u32,
    pub(super) on_driver: bool,
    /// As [`LogicalOperator::workers`].
    pub(super) workers: &'a [u32],
}

/// An operator and the edge in its vertex that feeds it; none for the head.
pub(super) struct ChainedOperator<'a> {
    pub(super) operator: &'a LogicalOperator,
    pub(super) upstream: Option<&'a LogicalEdge>,
}

/// An exchange between two vertices.
pub(super) struct JobEdge<'a> {
    /// Position in the dataflow's edges.
    pub(super) id: u32,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) logical: &'a LogicalEdge,
    /// Whether records carry their timestamps.
    pub(super) timestamps: bool,
}

impl<'a> JobGraph<'a> {
    pub(super) fn new(checked: &Checked<'a>) -> Self {
        let mut vertices: Vec<JobVertex<'a>> = Vec::new();
        let mut vertex_of = vec![0; checked.dataflow.operators.len()];
        for &position in &checked.order {
            let operator = checked.operator(position);
            if let Some(edge) = chaining_edge(checked, position) {
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
        let times = EventTime::new(checked);
        let exchanges = (0_u32..).zip(&checked.dataflow.edges).zip(&checked.ends);
        let edges = exchanges
            .filter(|&(_, &(_, to))| chaining_edge(checked, to).is_none())
            .map(|((id, logical), &(from, to))| {
                let timestamps = times.are_carried(from, to);
                JobEdge { id, from: vertex_of[from], to: vertex_of[to], logical, timestamps }
            })
            .collect();
        Self { vertices, edges }
    }
}

impl JobVertex<'_> {
    /// `a -> b`, and `a -> (b, c -> d)` where a stream is used twice.
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

/// The operator whose vertex the one at `position` joins.
fn chaining_edge(checked: &Checked<'_>, position: usize) -> Option<usize> {
    let &[edge] = checked.incoming[position].as_slice() else { return None };
    let from = checked.ends[edge].0;
    let (upstream, operator) = (checked.operator(from), checked.operator(position));
    let joins = checked.dataflow.edges[edge].partitioner == Partitioner::Forward
        && upstream.parallelism == operator.parallelism
        && upstream.on_driver == operator.on_driver
        && upstream.workers == operator.workers
        && upstream.chaining != Chaining::Never
        && operator.chaining == Chaining::Always;
    joins.then_some(edge)
}
