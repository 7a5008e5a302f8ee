//! Partitions the tasks of a job into regions that fail and restart together.
//!
//! Tasks that share an exchange belong to one region. If one of them fails, the records that the other has sent are
//! lost, so both return to the same checkpoint. Tasks of different regions share nothing that a restart would
//! interrupt.
//!
//! # Invariants
//! - R1: both ends of every exchange and of every feedback belong to one region.
//! - R2: all subtasks of a task belong to one region. The state of an operator, such as splits of a source and items of
//!   a list, is redistributed as a whole whenever it resumes. So some subtasks alone would take state of others, or
//!   leave state without an owner.
//! - R3: if the whole job decides the rate of its sources (`storm`, `pid`), there is one region.
//! - R4: regions are numbered by their first task, without gaps.

use flownet_runtime::spec::FlowControl;

use super::Plan;
use crate::settings::JobSettings;

/// Regions of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Regions {
    /// Region of each vertex.
    of_vertex: Vec<u32>,
    /// Region of each task.
    of_task: Vec<u32>,
}

impl Regions {
    pub(crate) fn of(plan: &Plan, settings: &JobSettings) -> Self {
        let mut joined = DisjointSets((0..plan.vertices.len()).collect());
        if matches!(settings.flow_control, FlowControl::Storm | FlowControl::Pid) {
            (1..plan.vertices.len()).for_each(|vertex| joined.join(0, vertex));
        }
        plan.exchanges.iter().for_each(|exchange| joined.join(exchange.from, exchange.to));
        plan.feedback.iter().for_each(|feedback| joined.join(feedback.from, feedback.to));
        Self::numbered(plan, joined)
    }

    /// Returns all tasks as one region, so that no part restarts on its own.
    pub(crate) fn one(plan: &Plan) -> Self {
        Self { of_vertex: vec![0; plan.vertices.len()], of_task: vec![0; plan.tasks.len()] }
    }

    /// Returns the regions of tasks whose regions are given.
    #[cfg(test)]
    pub(crate) fn of_tasks(of_task: &[u32]) -> Self {
        Self { of_vertex: of_task.to_vec(), of_task: of_task.to_vec() }
    }

    /// Returns the number of regions, at least one.
    pub(crate) fn count(&self) -> u32 {
        self.of_vertex.iter().max().map_or(1, |last| last + 1)
    }

    /// Returns the region of a task, by its number.
    pub(crate) fn of_task(&self, task: u32) -> Option<u32> {
        self.of_task.get(task as usize).copied()
    }

    /// Returns the tasks of a region, by their numbers.
    pub(crate) fn tasks(&self, region: u32) -> impl Iterator<Item = u32> {
        (0..).zip(&self.of_task).filter(move |(_, of)| **of == region).map(|(task, _)| task)
    }

    /// Returns the indices of a region's vertices.
    pub(crate) fn vertices(&self, region: u32) -> impl Iterator<Item = usize> {
        self.of_vertex.iter().enumerate().filter(move |(_, of)| **of == region).map(|(vertex, _)| vertex)
    }

    fn numbered(plan: &Plan, mut joined: DisjointSets) -> Self {
        let roots: Vec<usize> = (0..plan.vertices.len()).map(|vertex| joined.root(vertex)).collect();
        let mut firsts: Vec<usize> = Vec::new();
        let mut number = |root: usize| match firsts.iter().position(|first| *first == root) {
            Some(number) => number as u32,
            None => {
                firsts.push(root);
                firsts.len() as u32 - 1
            }
        };
        let of_vertex: Vec<u32> = roots.into_iter().map(&mut number).collect();
        let of_task = plan.tasks.iter().map(|task| of_vertex[task.spec.vertex as usize]).collect();
        Self { of_vertex, of_task }
    }
}

/// Disjoint sets as a forest: each member points to another, and the root to itself.
struct DisjointSets(Vec<usize>);

impl DisjointSets {
    fn root(&mut self, mut at: usize) -> usize {
        while self.0[at] != at {
            // Path halving keeps later walks short.
            self.0[at] = self.0[self.0[at]];
            at = self.0[at];
        }
        at
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        self.0[one.max(other)] = one.min(other);
    }
}

#[cfg(test)]
mod tests {
    use flownet_runtime::spec::{OperatorKind, Partitioner};
    use proptest::prelude::*;

    use super::*;
    use crate::plan::tests::DataflowBuilder;

    fn regions(flow: &DataflowBuilder, settings: &JobSettings) -> Regions {
        let plan = Plan::new(&flow.0, settings).expect("a sound dataflow");
        Regions::of(&plan, settings)
    }

    fn two_pipelines() -> DataflowBuilder {
        DataflowBuilder::default()
            .operator("a", 2)
            .operator("b", 2)
            .operator("a sink", 3)
            .operator("b sink", 2)
            .edge("a", "a sink", Partitioner::KeyGroup)
            .edge("b", "b sink", Partitioner::Forward)
    }

    #[test]
    fn pipelines_that_share_no_exchange_are_regions_of_their_own() {
        let settings = JobSettings { workers: 2, ..JobSettings::default() };
        let two = regions(&two_pipelines(), &settings);
        assert_eq!(two.count(), 2);
        assert_eq!(two.of_vertex, [0, 1, 0]);
        assert_eq!(two.tasks(1).collect::<Vec<_>>(), [2, 3]);
        let joined = two_pipelines().operator("c", 1).edge("b sink", "c", Partitioner::Rebalance);
        let joined = joined.edge("a", "c", Partitioner::Broadcast);
        assert_eq!(regions(&joined, &settings).count(), 1);
    }

    #[test]
    fn subtasks_of_one_task_stay_together_and_so_do_all_whose_rate_the_job_decides() {
        let settings = JobSettings { workers: 2, ..JobSettings::default() };
        let alone = DataflowBuilder::default().operator("source", 4).operator("sink", 4).edge(
            "source",
            "sink",
            Partitioner::Forward,
        );
        assert_eq!(regions(&alone, &settings).count(), 1);
        for flow_control in [FlowControl::Storm, FlowControl::Pid] {
            let settings = JobSettings { flow_control, ..settings.clone() };
            assert_eq!(regions(&two_pipelines(), &settings).count(), 1);
        }
    }

    #[test]
    fn both_ends_of_an_iteration_are_together() {
        let flow = DataflowBuilder::default()
            .operator("head", 2)
            .operator("tail", 2)
            .operator("other", 1)
            .operator("sink", 1)
            .with("head", |head| head.kind = OperatorKind::IterationHead { iteration: 0 })
            .with("tail", |tail| {
                tail.kind = OperatorKind::IterationTail { iteration: 0, memory_bytes: 1 << 20, disk_bytes: 1 << 20 };
            })
            .edge("head", "tail", Partitioner::Forward)
            .edge("other", "sink", Partitioner::Rebalance);
        let settings = JobSettings { workers: 2, ..JobSettings::default() };
        assert_eq!(regions(&flow, &settings).count(), 2);
    }

    proptest! {
        /// Two vertices belong to one region exactly if a path connects them, in any direction of its edges.
        #[test]
        fn regions_are_what_is_connected(
            count in 1_usize..9,
            edges in proptest::collection::vec((0_usize..9, 0_usize..9), 0..10),
        ) {
            let mut flow = DataflowBuilder::default();
            for vertex in 0..count {
                let (name, sink, parallelism) = (vertex.to_string(), format!("to {vertex}"), 1 + vertex as u32 % 3);
                flow = flow.operator(&name, parallelism).operator(&sink, parallelism);
                flow = flow.edge(&name, &sink, Partitioner::Forward);
            }
            let edges: Vec<(usize, usize)> = edges
                .into_iter()
                .map(|(a, b)| (a % count, b % count))
                .filter(|(a, b)| a != b)
                .map(|(a, b)| (a.min(b), a.max(b)))
                .collect();
            for (from, to) in &edges {
                flow = flow.edge(&from.to_string(), &to.to_string(), Partitioner::Rebalance);
            }
            let settings = JobSettings { workers: 2, ..JobSettings::default() };
            let plan = Plan::new(&flow.0, &settings).expect("a sound dataflow");
            let regions = Regions::of(&plan, &settings);
            let mut reached: Vec<Vec<bool>> = (0..count).map(|at| (0..count).map(|to| at == to).collect()).collect();
            for _ in 0..count {
                for (from, to) in &edges {
                    for start in &mut reached {
                        let either = start[*from] || start[*to];
                        (start[*from], start[*to]) = (either, either);
                    }
                }
            }
            let of = |name: usize| {
                let name = name.to_string();
                let mut vertices = plan.vertices.iter();
                let vertex = vertices.position(|vertex| vertex.name.split(' ').next() == Some(&name)).expect("one each");
                regions.of_vertex[vertex]
            };
            for (a, reached) in reached.iter().enumerate() {
                for (b, is_reached) in reached.iter().enumerate() {
                    prop_assert_eq!(of(a) == of(b), *is_reached);
                }
            }
            let mut all: Vec<u32> = (0..regions.count()).flat_map(|region| regions.tasks(region)).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..plan.tasks.len() as u32).collect::<Vec<_>>());
        }
    }
}
