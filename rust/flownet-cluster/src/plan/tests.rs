//! Tests of whole dataflows: their vertices, placement and channels.

use std::collections::BTreeSet;

use flownet_runtime::spec::{
    Fold, OperatorKind, Partitioner, Payload, RowsKind, StateBackend, Upstream, WindowAssigner, WindowSpec,
};
use flownet_runtime::time::Clock;
use flownet_runtime::watermark::{Alignment, Watermarks};
use serde_json::Value;

use super::*;
use crate::settings::StatePlace;

/// Builds dataflows in a line or two.
#[derive(Default)]
pub(crate) struct DataflowBuilder(pub(crate) Dataflow);

impl DataflowBuilder {
    pub(crate) fn operator(mut self, name: &str, parallelism: u32) -> Self {
        self.0.operators.push(LogicalOperator {
            id: self.0.operators.len() as u32,
            uid: None,
            name: name.to_owned(),
            kind: OperatorKind::Map,
            payload: Payload::None,
            rate_limit: None,
            brake: None,
            target: None,
            parallelism,
            chaining: ChainingPolicy::Always,
            on_driver: false,
            workers: Vec::new(),
        });
        self
    }

    pub(crate) fn edge(mut self, from: &str, to: &str, partitioner: Partitioner) -> Self {
        let edge = LogicalEdge {
            from: self.id(from),
            tag: None,
            to: self.id(to),
            side: 0,
            partitioner,
            payload: Payload::None,
            flow_control: None,
        };
        self.0.edges.push(edge);
        self
    }

    pub(crate) fn with(mut self, name: &str, change: impl FnOnce(&mut LogicalOperator)) -> Self {
        let id = self.id(name) as usize;
        change(&mut self.0.operators[id]);
        self
    }

    /// source -> words (forward, 2x), keyed to count -> print (2x).
    pub(crate) fn word_count() -> Self {
        Self::default()
            .operator("read_text", 2)
            .operator("flat_map", 2)
            .operator("count", 2)
            .operator("print", 2)
            .edge("read_text", "flat_map", Partitioner::Forward)
            .edge("flat_map", "count", Partitioner::KeyGroup)
            .edge("count", "print", Partitioner::Forward)
    }

    fn id(&self, name: &str) -> u32 {
        self.0.operators.iter().find(|operator| operator.name == name).expect("a known name").id
    }

    fn plan(&self, workers: u32) -> Plan {
        Plan::new(&self.0, &settings(workers)).expect("a sound dataflow")
    }

    fn refusal(&self) -> PlanError {
        Plan::new(&self.0, &settings(2)).expect_err("a dataflow that cannot run")
    }
}

fn settings(workers: u32) -> JobSettings {
    JobSettings { workers, ..JobSettings::default() }
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.vertices.iter().map(|vertex| vertex.name.as_str()).collect()
}

/// Checks that every subpartition of the plan has exactly one reader, on the worker where the reader expects it.
fn assert_wired(plan: &Plan) {
    let mut written = BTreeSet::new();
    for task in &plan.tasks {
        for output in &task.spec.outputs {
            for subpartition in 0..output.subpartitions {
                assert!(written.insert((task.worker, output.partition, subpartition)));
            }
        }
    }
    for task in &plan.tasks {
        for channel in task.spec.inputs.iter().flat_map(|input| &input.channels) {
            let read = (channel.producer_worker, channel.partition, channel.subpartition);
            assert!(written.remove(&read), "{read:?} is read twice or never written");
        }
    }
    assert!(written.is_empty(), "nobody reads {written:?}");
}

#[test]
fn forward_edges_of_equal_parallelism_make_one_vertex() {
    let plan = DataflowBuilder::word_count().plan(2);
    assert_eq!(names(&plan), ["read_text -> flat_map", "count -> print"]);
    assert_eq!(plan.tasks.len(), 4);
    assert_eq!(plan.exchanges[0].channels, 4);
    assert_wired(&plan);
    let count = &plan.tasks[2].spec;
    assert!(count.inputs[0].is_keyed());
    assert_eq!(count.inputs[0].to_operator, 2);
    let upstream = Upstream { operator: 2, tag: None };
    assert_eq!(count.operators[1].upstream, Some(upstream));
    assert_eq!(count.max_parallelism, 128);
    assert_eq!(plan.tasks[0].spec.outputs[0].flush_timeout_us, Some(100_000));
}

#[test]
fn a_stream_used_twice_makes_a_tree_in_one_vertex() {
    let flow = DataflowBuilder::default()
        .operator("source", 3)
        .operator("left", 3)
        .operator("right", 3)
        .operator("sink", 3)
        .edge("source", "left", Partitioner::Forward)
        .edge("source", "right", Partitioner::Forward)
        .edge("right", "sink", Partitioner::Forward);
    let plan = flow.plan(0);
    assert_eq!(names(&plan), ["source -> (left, right -> sink)"]);
    let upstream = plan.tasks[0].spec.operators.iter().map(|operator| operator.upstream.as_ref());
    let fed_by: Vec<_> = upstream.map(|upstream| upstream.map(|upstream| upstream.operator)).collect();
    assert_eq!(fed_by, [None, Some(0), Some(0), Some(2)]);
}

#[test]
fn a_union_begins_a_vertex_with_one_input_an_edge() {
    let flow = DataflowBuilder::default()
        .operator("a", 2)
        .operator("b", 2)
        .operator("union", 2)
        .edge("a", "union", Partitioner::Forward)
        .edge("b", "union", Partitioner::Forward);
    let plan = flow.plan(2);
    assert_eq!(names(&plan), ["a", "b", "union"]);
    assert_eq!(plan.tasks[4].spec.inputs.len(), 2);
    assert_wired(&plan);
}

#[test]
fn a_stream_united_with_itself_arrives_twice() {
    let flow = DataflowBuilder::default().operator("a", 2).operator("b", 2).edge("a", "b", Partitioner::Forward).edge(
        "a",
        "b",
        Partitioner::Forward,
    );
    let plan = flow.plan(0);
    assert_eq!(plan.tasks[0].spec.outputs.len(), 2);
    assert_wired(&plan);
}

#[test]
fn chaining_flags_cut_a_chain() {
    let line = || {
        let flow = DataflowBuilder::default().operator("a", 1).operator("b", 1).operator("c", 1);
        flow.edge("a", "b", Partitioner::Forward).edge("b", "c", Partitioner::Forward)
    };
    assert_eq!(names(&line().with("b", |b| b.chaining = ChainingPolicy::Head).plan(0)), ["a", "b -> c"]);
    assert_eq!(names(&line().with("b", |b| b.chaining = ChainingPolicy::Never).plan(0)), ["a", "b", "c"]);
    assert_eq!(names(&line().with("a", |a| a.chaining = ChainingPolicy::Head).plan(0)), ["a -> b -> c"]);
    assert_eq!(names(&line().with("c", |c| c.on_driver = true).plan(0)), ["a -> b", "c"]);
}

#[test]
fn other_partitioners_never_chain() {
    for partitioner in [Partitioner::Rebalance, Partitioner::Rescale, Partitioner::Broadcast, Partitioner::Custom] {
        let flow = DataflowBuilder::default().operator("a", 2).operator("b", 2).edge("a", "b", partitioner);
        let plan = flow.plan(2);
        assert_eq!(names(&plan), ["a", "b"], "{partitioner:?}");
        assert_wired(&plan);
    }
}

#[test]
fn subtasks_go_round_the_workers_and_equal_indices_meet() {
    let plan = DataflowBuilder::word_count().with("print", |print| print.chaining = ChainingPolicy::Head).plan(3);
    let placed: Vec<_> = plan.tasks.iter().map(|task| (task.spec.subtask, task.worker)).collect();
    assert_eq!(placed, [(0, 1), (1, 2), (0, 1), (1, 2), (0, 1), (1, 2)]);
    assert_eq!(plan.tasks_on(3).count(), 0);
}

#[test]
fn a_placed_operator_goes_round_its_workers_and_leaves_the_chain() {
    let flow = DataflowBuilder::word_count().with("count", |count| count.workers = vec![3]);
    let plan = flow.with("flat_map", |flat_map| flat_map.workers = vec![3, 2]).plan(3);
    assert_eq!(names(&plan), ["read_text", "flat_map", "count", "print"]);
    let placed: Vec<_> = plan.tasks.iter().map(|task| task.worker).collect();
    assert_eq!(placed, [1, 2, 3, 2, 3, 3, 1, 2]);
    assert_wired(&plan);
    let together = |operator: &mut LogicalOperator| operator.workers = vec![2];
    let plan = DataflowBuilder::word_count().with("count", together).with("print", together).plan(2);
    assert_eq!(names(&plan), ["read_text -> flat_map", "count -> print"]);
}

#[test]
fn a_worker_that_is_not_there_is_refused_by_number_and_ignored_without_workers() {
    let flow = DataflowBuilder::word_count().with("print", |print| print.workers = vec![2, 3]);
    let expected = PlanError::UnknownWorker { operator: "print".into(), worker: 3, workers: 2 };
    assert_eq!(flow.refusal(), expected);
    assert!(flow.plan(0).tasks.iter().all(|task| task.worker == 0));
}

#[test]
fn slots_are_counted_on_the_workers_of_the_operator() {
    let settings = JobSettings { slots_per_worker: Some(1), ..settings(2) };
    assert!(Plan::new(&DataflowBuilder::word_count().0, &settings).is_ok());
    let flow = DataflowBuilder::word_count().with("print", |print| print.workers = vec![2]);
    let error = Plan::new(&flow.0, &settings).expect_err("two subtasks, one slot of one worker");
    assert_eq!(error, PlanError::InsufficientSlots { parallelism: 2, needed: 2, available: 1 });
}

#[test]
fn everything_runs_on_the_driver_without_workers_and_pinned_operators_always() {
    assert!(DataflowBuilder::word_count().plan(0).tasks.iter().all(|task| task.worker == 0));
    let pinned = DataflowBuilder::word_count().with("print", |print| {
        print.on_driver = true;
        print.payload = Payload::Local(7);
    });
    let plan = pinned.plan(2);
    assert_eq!(names(&plan), ["read_text -> flat_map", "count", "print"]);
    assert_eq!(plan.tasks_on(0).count(), 2);
    assert_wired(&plan);
}

#[test]
fn a_change_of_parallelism_wires_every_subpartition_once() {
    for partitioner in [Partitioner::Rescale, Partitioner::Rebalance, Partitioner::KeyGroup] {
        for (up, down) in [(1, 4), (4, 1), (3, 5), (5, 3)] {
            let flow = DataflowBuilder::default().operator("a", up).operator("b", down).edge("a", "b", partitioner);
            assert_wired(&flow.plan(2));
        }
    }
}

#[test]
fn operators_may_be_written_in_any_order() {
    let flow = DataflowBuilder::default().operator("sink", 1).operator("source", 1).edge(
        "source",
        "sink",
        Partitioner::Forward,
    );
    assert_eq!(names(&flow.plan(0)), ["source -> sink"]);
}

#[test]
fn a_cycle_is_refused_with_its_operators_in_order() {
    let flow = DataflowBuilder::default()
        .operator("source", 1)
        .operator("b", 1)
        .operator("c", 1)
        .operator("sink", 1)
        .edge("source", "b", Partitioner::Forward)
        .edge("b", "c", Partitioner::Rebalance)
        .edge("c", "b", Partitioner::Rebalance)
        .edge("c", "sink", Partitioner::Forward);
    let text = flow.refusal().to_string();
    let expected = ["the dataflow has a cycle: 'b' -> 'c' -> 'b'", "the dataflow has a cycle: 'c' -> 'b' -> 'c'"];
    assert!(expected.contains(&text.as_str()), "{text}");
    let itself = DataflowBuilder::default().operator("a", 1).edge("a", "a", Partitioner::Forward);
    assert_eq!(itself.refusal(), PlanError::Cycle { operators: vec!["a".into()] });
}

#[test]
fn parallelism_out_of_range_is_refused_by_name() {
    for parallelism in [0, 32_769] {
        let flow = DataflowBuilder::word_count().with("count", |count| count.parallelism = parallelism);
        assert_eq!(flow.refusal(), PlanError::Parallelism { operator: "count".into(), parallelism });
    }
}

#[test]
fn a_forward_edge_needs_equal_parallelism() {
    let flow = DataflowBuilder::default().operator("a", 2).operator("b", 3).edge("a", "b", Partitioner::Forward);
    let text = flow.refusal().to_string();
    assert!(text.starts_with("forward edge from 'a' (parallelism 2) to 'b' (parallelism 3): "), "{text}");
}

#[test]
fn a_uid_used_twice_is_refused_with_both_names() {
    let uid = |operator: &mut LogicalOperator| operator.uid = Some("same".into());
    let flow = DataflowBuilder::word_count().with("count", uid).with("print", uid);
    let expected = PlanError::DuplicateUid { uid: "same".into(), first: "count".into(), second: "print".into() };
    assert_eq!(flow.refusal(), expected);
}

#[test]
fn ids_must_be_unique_and_known() {
    let mut flow = DataflowBuilder::word_count();
    flow.0.edges[1].to = 99;
    assert_eq!(flow.refusal(), PlanError::UnknownOperator { edge: 1, id: 99 });
    let mut flow = DataflowBuilder::word_count();
    flow.0.operators[3].id = 0;
    assert_eq!(flow.refusal(), PlanError::DuplicateId { id: 0 });
}

#[test]
fn an_empty_dataflow_and_a_lone_operator_are_refused() {
    assert_eq!(DataflowBuilder::default().refusal(), PlanError::Empty);
    let flow = DataflowBuilder::word_count().operator("forgotten", 1);
    assert_eq!(flow.refusal(), PlanError::Unconnected { operator: "forgotten".into() });
}

#[test]
fn an_object_of_this_process_is_refused_where_it_cannot_go() {
    let flow = DataflowBuilder::word_count().with("flat_map", |op| op.payload = Payload::Local(1));
    assert_eq!(flow.refusal(), PlanError::NotShippable { operator: "flat_map".into() });
    assert!(Plan::new(&flow.0, &settings(0)).is_ok());
    let mut flow = DataflowBuilder::word_count();
    flow.0.edges[1].payload = Payload::Local(1);
    assert_eq!(flow.refusal(), PlanError::NotShippable { operator: "flat_map".into() });
}

#[test]
fn a_keyed_vertex_cannot_have_more_subtasks_than_key_groups() {
    let settings = JobSettings { max_parallelism: Some(1), ..settings(2) };
    let error = Plan::new(&DataflowBuilder::word_count().0, &settings).expect_err("two subtasks, one key group");
    assert!(matches!(error, PlanError::KeyGroups { parallelism: 2, max_parallelism: 1, .. }), "{error}");
}

#[test]
fn too_few_slots_are_refused_with_the_numbers() {
    let settings = JobSettings { slots_per_worker: Some(1), ..settings(1) };
    let error = Plan::new(&DataflowBuilder::word_count().0, &settings).expect_err("two subtasks, one slot");
    assert_eq!(error, PlanError::InsufficientSlots { parallelism: 2, needed: 2, available: 1 });
}

#[test]
fn an_exchange_too_large_to_plan_is_refused_before_it_is_expanded() {
    let flow =
        DataflowBuilder::default().operator("a", 32_768).operator("b", 32_768).edge("a", "b", Partitioner::Broadcast);
    assert!(matches!(flow.refusal(), PlanError::TooManyChannels { channels: 1_073_741_824, .. }));
}

#[test]
fn more_data_than_a_message_holds_is_refused_before_it_is_shipped() {
    let large = |operator: &mut LogicalOperator| operator.payload = Payload::Bytes(vec![0; 100 << 20]);
    let flow = DataflowBuilder::word_count().with("count", large);
    assert!(Plan::new(&flow.0, &settings(2)).is_ok(), "one subtask a worker");
    let flow = flow.with("flat_map", |operator| operator.payload = Payload::Bytes(vec![0; 1 << 20]));
    let error = Plan::new(&flow.0, &settings(1)).expect_err("two subtasks on one worker");
    let expected = PlanError::TooLargeToShip {
        operator: "count".into(),
        operator_bytes: 200 << 20,
        worker: 1,
        bytes: 202 << 20,
        max_bytes: 192 << 20,
    };
    assert_eq!(error, expected);
    assert!(Plan::new(&flow.0, &settings(0)).is_ok(), "nothing is shipped");
}

/// source -> assign -> (keyed) window -> (rebalance) after, and source -> (keyed) other.
fn with_event_time(clock: Clock) -> Plan {
    let window = OperatorKind::Window {
        fold: Fold::Count,
        window: WindowSpec {
            assign: WindowAssigner::Global,
            clock,
            trigger: None,
            lateness_ms: 0,
            late_tag: None,
            with_key: true,
            with_window: false,
            is_whole: false,
        },
    };
    DataflowBuilder::default()
        .operator("source", 2)
        .operator("assign", 2)
        .operator("window", 3)
        .operator("after", 2)
        .operator("other", 3)
        .edge("source", "assign", Partitioner::Forward)
        .edge("assign", "window", Partitioner::KeyGroup)
        .edge("window", "after", Partitioner::Rebalance)
        .edge("source", "other", Partitioner::KeyGroup)
        .with("assign", |operator| {
            operator.kind = OperatorKind::AssignTimestamps {
                watermarks: Watermarks::Never,
                idle_after_ms: None,
                alignment: None,
                max_ahead_ms: None,
            };
        })
        .with("window", |operator| operator.kind = window)
        .plan(0)
}

#[test]
fn timestamps_travel_where_somebody_looks_at_them_and_nowhere_else() {
    let carried = |plan: &Plan| -> Vec<(String, bool)> {
        let tasks = plan.tasks.iter().filter(|task| task.spec.subtask == 0);
        tasks.flat_map(|task| task.spec.inputs.iter().map(|input| (task.spec.name.clone(), input.timestamps))).collect()
    };
    let edges = |window: bool| {
        [("window".to_owned(), window), ("after".to_owned(), false), ("other".to_owned(), false)].to_vec()
    };
    assert_eq!(carried(&with_event_time(Clock::Event)), edges(true));
    assert_eq!(carried(&with_event_time(Clock::Processing)), edges(false), "windows of the wall clock need none");
    for task in with_event_time(Clock::Event).tasks.iter().filter(|task| task.spec.name.starts_with("source")) {
        let leaving: Vec<_> = task.spec.outputs.iter().map(|output| output.timestamps).collect();
        assert_eq!(leaving, [true, false]);
    }
}

fn aligned(group: &str, drift_ms: u64) -> OperatorKind {
    let alignment = Alignment {
        group: group.to_owned(),
        max_drift_ms: drift_ms.try_into().expect("above zero"),
        update_interval_ms: 1000.try_into().expect("above zero"),
    };
    let watermarks = Watermarks::Bounded { delay_ms: 0 };
    OperatorKind::AssignTimestamps { watermarks, idle_after_ms: None, alignment: Some(alignment), max_ahead_ms: None }
}

/// Two sources, the first with a step between it and the operator that aligns it.
fn two_aligned(parse: impl FnOnce(&mut LogicalOperator)) -> DataflowBuilder {
    DataflowBuilder::default()
        .operator("source", 2)
        .operator("parse", 2)
        .operator("assign", 2)
        .operator("after", 2)
        .operator("other", 1)
        .operator("assign other", 1)
        .operator("join", 2)
        .edge("source", "parse", Partitioner::Forward)
        .edge("parse", "assign", Partitioner::Forward)
        .edge("assign", "after", Partitioner::Forward)
        .edge("after", "join", Partitioner::KeyGroup)
        .edge("other", "assign other", Partitioner::Forward)
        .edge("assign other", "join", Partitioner::KeyGroup)
        .with("assign", |operator| operator.kind = aligned("g", 5))
        .with("assign other", |operator| operator.kind = aligned("g", 5))
        .with("parse", parse)
}

#[test]
fn an_aligned_source_shares_a_task_with_who_aligns_it_whatever_is_said_of_chaining_and_places() {
    let mut flow = two_aligned(|_| {});
    flow.0.operators.iter_mut().for_each(|operator| operator.chaining = ChainingPolicy::Never);
    let plan = flow.plan(0);
    assert_eq!(names(&plan), ["source -> parse -> assign", "after", "other -> assign other", "join"]);
    assert_wired(&plan);

    let flow = two_aligned(|_| {}).with("source", |source| source.on_driver = true);
    let plan = flow.plan(2);
    assert_eq!(names(&plan), ["source -> parse -> assign", "after", "other -> assign other", "join"]);
    assert!(plan.vertices[0].on_driver && !plan.vertices[1].on_driver, "who is behind it need not be where it is");
    assert_wired(&plan);
}

#[test]
fn what_cannot_be_aligned_is_refused_with_what_is_in_the_way() {
    let behind_exchange = two_aligned(|_| {});
    let mut edges = behind_exchange.0.edges.clone();
    edges[1].partitioner = Partitioner::Rebalance;
    let dataflow = Dataflow { edges, ..behind_exchange.0 };
    let found = "records change subtasks between 'parse' and 'assign'".to_owned();
    assert_eq!(DataflowBuilder(dataflow).refusal(), PlanError::NotAtSource { operator: "assign".into(), found });

    let union = two_aligned(|_| {}).operator("third", 2).edge("third", "parse", Partitioner::Forward);
    let found = "'parse' has 2 inputs".to_owned();
    assert_eq!(union.refusal(), PlanError::NotAtSource { operator: "assign".into(), found });

    let differs = two_aligned(|_| {}).with("assign other", |operator| operator.kind = aligned("g", 6));
    let [first, second] = ["assign", "assign other"].map(str::to_owned);
    assert!(matches!(differs.refusal(), PlanError::AlignmentDiffers { .. }));
    two_aligned(|_| {}).with("assign other", |operator| operator.kind = aligned("h", 6)).plan(0);

    let twice = two_aligned(|parse| parse.kind = aligned("h", 5));
    let refusal = PlanError::AlignedTwice { source_name: "source".into(), first: "parse".into(), second: first };
    assert_eq!(twice.refusal(), refusal);

    let never = two_aligned(|_| {}).with("assign other", |operator| {
        let OperatorKind::AssignTimestamps { watermarks, .. } = &mut operator.kind else { unreachable!() };
        *watermarks = Watermarks::Never;
    });
    assert_eq!(never.refusal(), PlanError::AlignedWithoutWatermarks { operator: second });
}

/// source -> head, keyed to step -> tail -> print; a side output of the step goes to its own sink.
fn iteration() -> DataflowBuilder {
    let flow = DataflowBuilder::default()
        .operator("source", 2)
        .operator("head", 2)
        .operator("step", 2)
        .operator("tail", 2)
        .operator("print", 2)
        .operator("beside", 3)
        .edge("source", "head", Partitioner::Forward)
        .edge("head", "step", Partitioner::KeyGroup)
        .edge("step", "tail", Partitioner::Forward)
        .edge("tail", "print", Partitioner::Forward)
        .edge("step", "beside", Partitioner::Rebalance);
    let flow = flow.with("head", |head| head.kind = OperatorKind::IterationHead { iteration: 7 });
    let limits = (1 << 20, 1 << 30);
    let (memory_bytes, disk_bytes) = limits;
    flow.with("tail", |tail| tail.kind = OperatorKind::IterationTail { iteration: 7, memory_bytes, disk_bytes })
}

#[test]
fn an_iteration_begins_a_task_and_rounds_go_by_the_ways_to_its_end_alone() {
    let plan = iteration().plan(2);
    assert_eq!(names(&plan), ["source", "head", "step -> tail -> print", "beside"]);
    assert_wired(&plan);
    let flags = |vertex: u32| {
        let task = &plan.tasks.iter().find(|task| task.spec.vertex == vertex).unwrap().spec;
        let inputs: Vec<_> = task.inputs.iter().map(|input| input.in_iteration).collect();
        (inputs, task.outputs.iter().map(|output| output.in_iteration).collect::<Vec<_>>())
    };
    assert_eq!(flags(0), (vec![], vec![false]));
    assert_eq!(flags(1), (vec![false], vec![true]));
    assert_eq!(flags(2), (vec![true], vec![false]));
    assert_eq!(flags(3), (vec![false], vec![]));
    let feedback = Feedback { from: 2, to: 1, memory_bytes: 1 << 20, disk_bytes: 1 << 30 };
    assert_eq!(plan.feedback, [feedback]);
}

#[test]
fn an_iteration_whose_end_could_not_be_found_is_refused_by_name() {
    let apart = iteration().with("step", |step| step.kind = OperatorKind::IterationHead { iteration: 8 });
    assert_eq!(apart.refusal(), PlanError::IterationEnds { operator: "step".into() });
    let places = iteration().with("head", |head| head.workers = vec![1]);
    assert_eq!(places.refusal(), PlanError::IterationPlaces { operator: "tail".into() });
    let mut rescaled = iteration().with("step", |step| step.parallelism = 3);
    (rescaled.0.edges[1].partitioner, rescaled.0.edges[2].partitioner) = (Partitioner::Rescale, Partitioner::Rebalance);
    let refusal = PlanError::IterationRescale { operator: "tail".into(), from: "head".into(), to: "step".into() };
    assert_eq!(rescaled.refusal(), refusal);
    let mut cut = iteration();
    cut.0.edges[1].from = 0;
    assert!(
        matches!(cut.refusal(), PlanError::Unconnected { .. } | PlanError::IterationApart { .. }),
        "{:?}",
        cut.refusal()
    );
}

#[test]
fn times_that_are_looked_at_in_the_next_lap_are_carried_to_the_end_of_this_one() {
    let timed = OperatorKind::AssignTimestamps {
        watermarks: Watermarks::Never,
        idle_after_ms: None,
        alignment: None,
        max_ahead_ms: None,
    };
    let flow = iteration().with("source", |source| source.kind = timed);
    let flow = flow.with("step", |step| step.kind = OperatorKind::Process { inputs: Default::default() });
    let mut flow = flow.with("tail", |tail| tail.chaining = ChainingPolicy::Head);
    flow.0.edges[4].to = 4;
    flow.0.operators.retain(|operator| operator.name != "beside");
    let plan = flow.plan(2);
    let tail = &plan.tasks.iter().find(|task| task.spec.name.starts_with("tail")).unwrap().spec;
    assert!(tail.inputs[0].timestamps, "{tail:?}");
}

#[test]
fn state_on_disk_shares_the_memory_of_its_worker_and_other_tasks_have_none() {
    let flow = DataflowBuilder::word_count().with("count", |count| count.kind = OperatorKind::Fold(Fold::Count));
    let flow = flow.operator("again", 1).edge("read_text", "again", Partitioner::KeyGroup);
    let flow = flow.with("again", |again| again.kind = OperatorKind::Fold(Fold::Count));
    let memory = settings(2);
    let disk = JobSettings {
        state_backend: StatePlace::Disk,
        state_memory_bytes: 8000,
        state_dir: Some("/state".into()),
        ..settings(2)
    };
    let all_in_memory = Plan::new(&flow.0, &memory).expect("a sound dataflow").tasks;
    assert!(all_in_memory.iter().all(|task| task.spec.state == StateBackend::Memory));
    for task in Plan::new(&flow.0, &disk).expect("a sound dataflow").tasks {
        let keeps = task.spec.operators.iter().any(|operator| operator.kind.can_keep_on_disk());
        // The first worker has a subtask of both counts.
        let memory_bytes = if task.worker == 1 { 4000 } else { 8000 };
        let of_disk = StateBackend::Disk { memory_bytes, folder: Some("/state".into()) };
        assert_eq!(task.spec.state, if keeps { of_disk } else { StateBackend::Memory });
    }
}

#[test]
fn rows_without_a_promise_of_order_may_leave_memory_and_nothing_else_does() {
    let timed = |watermarks| {
        let column = "ms".to_owned();
        OperatorKind::Rows(RowsKind::AssignTimestamps {
            input: Value::Null,
            column,
            watermarks,
            idle_after_ms: None,
            max_ahead_ms: None,
        })
    };
    let summed = OperatorKind::Rows(RowsKind::Aggregate {
        input: Value::Null,
        keys: Vec::new(),
        aggregates: Value::Null,
        window: None,
        kept: Vec::new(),
    });
    let on_disk = |watermarks| {
        let flow = DataflowBuilder::word_count().with("count", |count| count.kind = OperatorKind::Fold(Fold::Count));
        let flow = flow.operator("timed", 1).edge("read_text", "timed", Partitioner::Rebalance);
        let flow = flow.operator("summed", 1).edge("timed", "summed", Partitioner::KeyGroup);
        let flow = flow.with("timed", |operator| operator.kind = timed(watermarks));
        let flow = flow.with("summed", |operator| operator.kind = summed.clone());
        let tasks = Plan::new(&flow.0, &settings(2)).expect("a sound dataflow").tasks;
        let on_disk = tasks.iter().filter(|task| task.spec.state != StateBackend::Memory);
        on_disk.map(|task| task.spec.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(on_disk(Watermarks::Bounded { delay_ms: 0 }), Vec::<String>::new());
    assert_eq!(on_disk(Watermarks::Unordered), ["summed"]);
}
