//! Tests of redistribution: a checkpoint of one plan, and the state that tasks of another plan take from it.

use flownet_runtime::snapshot::Share;
use flownet_runtime::spec::{Fold, Partitioner};
use flownet_store::TaskEntry;

use super::*;
use crate::checkpoint::tests::part;
use crate::plan::ChainingPolicy;
use crate::plan::tests::DataflowBuilder;
use crate::settings::JobSettings;

const GROUPS: u32 = 128;

/// Dataflow with two subtasks that count words and write nothing.
struct Shape {
    source: u32,
    count: u32,
    uid: Option<&'static str>,
    /// Partitioner between the source and its consumer.
    between: Partitioner,
    chaining: ChainingPolicy,
    kind: OperatorKind,
    extra: bool,
}

impl Default for Shape {
    fn default() -> Self {
        let kind = OperatorKind::Fold(Fold::Count);
        let between = Partitioner::Forward;
        Self { source: 2, count: 2, uid: Some("counts"), between, chaining: ChainingPolicy::Always, kind, extra: false }
    }
}

impl Shape {
    fn plan(&self) -> Plan {
        let mut flow = DataflowBuilder::default();
        if self.extra {
            // The extra operator takes the number of the downstream operator.
            flow = flow.operator("extra", 1).operator("void", 1).edge("extra", "void", Partitioner::Rebalance);
        }
        let Self { source, count, .. } = *self;
        let flow = flow
            .operator("read", source)
            .operator("words", source)
            .operator("count", count)
            .operator("show", count)
            .edge("read", "words", self.between)
            .edge("words", "count", Partitioner::KeyGroup)
            .edge("count", "show", Partitioner::Forward)
            .with("words", |operator| operator.chaining = self.chaining)
            .with("count", |operator| {
                operator.kind = self.kind.clone();
                operator.uid = self.uid.map(str::to_owned);
            });
        let settings = JobSettings { workers: 2, max_parallelism: Some(GROUPS), ..JobSettings::default() };
        Plan::new(&flow.0, &settings).expect("a sound dataflow")
    }

    /// Returns a checkpoint: a position for each source subtask, and the key groups of each counting subtask.
    fn checkpoint(&self) -> Manifest {
        let plan = self.plan();
        let entry = |task: &TaskSpec| {
            let mut parts = Vec::new();
            for operator in &task.operators {
                let uid = operator.state_uid();
                if operator.name == "count" {
                    let range = flownet_core::keygroup::group_range(task.subtask, GROUPS, task.parallelism);
                    let share = Share::Groups { first: *range.start(), last: *range.end(), of: GROUPS };
                    parts.push(part(&uid, "fold", share));
                } else if operator.name == "read" {
                    parts.push(part(&uid, "watermark", Share::All { subtask: task.subtask }));
                }
            }
            let uids = task.operators.iter().map(OperatorSpec::state_uid).collect();
            TaskEntry { uids, subtask: task.subtask, has_finished: false, parts }
        };
        Manifest {
            generation: 1,
            checkpoint: 7,
            job: "job".into(),
            origin: None,
            triggered_ms: 0,
            duration_ms: 0,
            max_parallelism: GROUPS,
            operators: operators(&plan),
            tasks: plan.tasks.iter().map(|task| entry(&task.spec)).collect(),
        }
    }

    /// Returns the number of parts of the counts that each counting subtask takes.
    fn counts_taken(&self, of: &Manifest) -> Vec<usize> {
        let plan = self.plan();
        let assigned = assign(of, &plan, false).expect("it fits");
        let counts = plan.tasks.iter().filter(|task| task.spec.operators.iter().any(|one| one.name == "count"));
        counts
            .map(|task| assigned[&task.spec.task_id].parts.iter().filter(|part| part.name == "fold").count())
            .collect()
    }
}

#[test]
fn each_subtask_takes_the_parts_that_it_owns_groups_of_whatever_the_parallelism_was() {
    for uid in [None, Some("counts")] {
        let before = Shape { uid, ..Shape::default() }.checkpoint();
        let taken = |count| Shape { count, uid, ..Shape::default() }.counts_taken(&before);
        assert_eq!((taken(1), taken(2), taken(3)), (vec![2], vec![1, 1], vec![1, 2, 1]));
        assert_eq!(taken(128).iter().sum::<usize>(), 128);
    }
}

#[test]
fn what_a_sink_has_prepared_is_committed_where_it_was_prepared() {
    let writing_to = |target: Option<&str>| {
        let mut plan = Shape::default().plan();
        let shown = plan.tasks.iter_mut().flat_map(|task| &mut task.spec.operators).filter(|one| one.name == "show");
        shown.for_each(|one| one.target = target.map(str::to_owned));
        plan
    };
    let mut before = Shape::default().checkpoint();
    before.operators = operators(&writing_to(Some("/out")));
    for (target, fits) in [(Some("/out"), true), (None, true), (Some("/other"), false)] {
        let assigned = assign(&before, &writing_to(target), true);
        let refused = RestoreMismatch::Target { operator: "show".into(), was: "/out".into(), is: "/other".into() };
        assert_eq!(assigned.err(), (!fits).then_some(refused), "{target:?}");
    }
}

#[test]
fn chaining_changes_nothing() {
    for uid in [None, Some("counts")] {
        let before = Shape { uid, ..Shape::default() }.checkpoint();
        let now = Shape { uid, chaining: ChainingPolicy::Never, ..Shape::default() };
        assert_ne!(now.plan().tasks.len(), before.tasks.len());
        assert_eq!(now.counts_taken(&before), [1, 1]);
        assert_eq!(Shape { uid, ..Shape::default() }.counts_taken(&now.checkpoint()), [1, 1]);
    }
}

#[test]
fn in_a_changed_dataflow_state_goes_by_uids_and_numbers_say_nothing() {
    let now = Shape { extra: true, count: 3, ..Shape::default() };
    let before = Shape::default().checkpoint();
    assert_eq!(now.counts_taken(&before), [1, 2, 1]);
    // The source has no uid, and its number belongs to another operator now.
    let assigned = assign(&before, &now.plan(), false).expect("it fits");
    assert!(assigned.values().flat_map(|restored| &restored.parts).all(|part| part.uid == "counts"));
    let nameless = Shape { uid: None, ..Shape::default() }.checkpoint();
    let error = assign(&nameless, &now.plan(), false).expect_err("nobody can tell");
    assert_eq!(error, RestoreMismatch::NoUid { whose: "the checkpoint", operators: vec!["count".into()] });
    let now = Shape { extra: true, uid: None, ..Shape::default() };
    let error = assign(&before, &now.plan(), false).expect_err("nobody can tell");
    assert_eq!(error, RestoreMismatch::NoUid { whose: "the dataflow", operators: vec!["count".into()] });
    assert_eq!(without_uid(&nameless), ["count"]);
    assert!(without_uid(&before).is_empty());
}

#[test]
fn state_of_an_operator_that_is_gone_is_refused_unless_it_may_be_dropped() {
    let before = Shape::default().checkpoint();
    let now = Shape { uid: Some("others"), ..Shape::default() }.plan();
    let error = assign(&before, &now, false).expect_err("it would be lost");
    assert_eq!(error, RestoreMismatch::Dropped { operators: vec!["counts".into()] });
    assert!(
        error.to_string().contains("'counts'; bring them back, or drop their state with allow_non_restored_state=True")
    );
    let assigned = assign(&before, &now, true).expect("it may go");
    assert!(assigned.values().all(|restored| restored.parts.is_empty()));
}

#[test]
fn an_operator_that_does_something_else_gets_nothing_of_it() {
    let before = Shape::default().checkpoint();
    let now = Shape { kind: OperatorKind::Fold(Fold::Reduce), ..Shape::default() }.plan();
    let error = assign(&before, &now, true).expect_err("other state");
    assert_eq!(error, RestoreMismatch::Kind { uid: "counts".into(), was: "count".into(), is: "reduce".into() });
    assert_eq!(error.operators(), ["counts"]);
}

#[test]
fn key_groups_are_as_they_were() {
    let mut before = Shape::default().checkpoint();
    before.max_parallelism = 64;
    let error = assign(&before, &Shape::default().plan(), true).expect_err("keys would lie elsewhere");
    assert_eq!(error.to_string(), "it has 64 key groups, the job 128; set max_parallelism=64");
}

#[test]
fn a_subtask_has_finished_if_it_had_or_where_there_were_others_if_all_had() {
    let mut before = Shape::default().checkpoint();
    let finished = |before: &Manifest, source| {
        let plan = Shape { source, ..Shape::default() }.plan();
        let assigned = assign(before, &plan, false).expect("it fits");
        let sources = plan.tasks.iter().filter(|task| task.spec.operators[0].name == "read");
        sources.map(|task| assigned[&task.spec.task_id].has_finished).collect::<Vec<_>>()
    };
    let read = before.tasks.iter_mut().filter(|task| task.uids.contains(&"#0".to_owned()));
    read.take(1).for_each(|task| task.has_finished = true);
    assert_eq!((finished(&before, 2), finished(&before, 1)), (vec![true, false], vec![false]));
    before.tasks.iter_mut().for_each(|task| task.has_finished = true);
    assert_eq!(finished(&before, 3), [true, true, true]);
}

/// Returns a checkpoint of the default shape with in-flight data on an edge, stored under `uid`.
fn overtaking(shape: &Shape, uid: &str, edge_to: &str) -> Manifest {
    let mut before = shape.checkpoint();
    let plan = shape.plan();
    let takes = |task: &&crate::plan::PlacedTask| task.spec.operators[0].name == edge_to;
    let edge = plan.tasks.iter().find(takes).expect("a task").spec.inputs[0].edge;
    // Channel from the second subtask to the first.
    let share = Share::Channel { edge, producer: 1, subpartition: 0 };
    before.tasks[2].parts.push(part(uid, "in_flight.input", share));
    before
}

/// Returns the subtasks that take in-flight data, and their share.
fn takers(before: &Manifest, shape: &Shape) -> Result<Vec<(u32, Share)>, RestoreMismatch> {
    let plan = shape.plan();
    let assigned = assign(before, &plan, false)?;
    let parts = plan
        .tasks
        .iter()
        .flat_map(|task| assigned[&task.spec.task_id].parts.iter().map(move |part| (task.spec.subtask, part.share)));
    Ok(parts.filter(|(_, share)| share.is_in_flight()).collect())
}

#[test]
fn what_was_on_its_way_is_taken_by_who_reads_its_channel() {
    let before = overtaking(&Shape::default(), "counts", "count");
    let taken = takers(&before, &Shape::default()).expect("it fits");
    assert!(matches!(taken[..], [(0, Share::Channel { producer: 1, subpartition: 0, .. })]), "{taken:?}");
    let refused = takers(&before, &Shape { extra: true, ..Shape::default() }).expect_err("it goes other ways");
    assert_eq!(refused, RestoreMismatch::InFlight { operators: vec!["count".into()] });
    assert!(refused.to_string().contains("savepoint"), "{refused}");
}

#[test]
fn what_was_on_its_way_by_key_is_dealt_out_to_all_who_own_its_groups_now() {
    let before = overtaking(&Shape::default(), "counts", "count");
    // The first of two subtasks had the groups up to 63.
    for (source, count, expected) in [(2, 3, vec![0, 1]), (2, 4, vec![0, 1]), (2, 1, vec![0]), (3, 2, vec![0])] {
        let taken = takers(&before, &Shape { source, count, ..Shape::default() }).expect("it fits");
        assert_eq!(taken.iter().map(|(subtask, _)| *subtask).collect::<Vec<_>>(), expected);
        for (_, share) in taken {
            assert!(matches!(share, Share::Dealt { producer: 1, subpartition: 0, of: 2, .. }), "{share:?}");
        }
    }
}

#[test]
fn what_was_on_its_way_without_a_key_goes_to_one_subtask_a_channel() {
    let never = |between| Shape { chaining: ChainingPolicy::Never, between, ..Shape::default() };
    // Channel from the second subtask to the first.
    let before = overtaking(&never(Partitioner::Rebalance), "#1", "words");
    for (source, to) in [(1, 0), (3, 0), (5, 0)] {
        let taken = takers(&before, &Shape { source, ..never(Partitioner::Rebalance) }).expect("it fits");
        assert!(
            matches!(taken[..], [(taker, Share::Moved { producer: 1, subpartition: 0, .. })] if taker == to),
            "{taken:?}"
        );
    }
    // Channel from the second subtask to the second.
    let before = overtaking(&never(Partitioner::Forward), "#1", "words");
    for (source, to) in [(1, 0), (3, 1), (5, 1)] {
        let taken = takers(&before, &Shape { source, ..never(Partitioner::Forward) }).expect("it fits");
        assert!(matches!(taken[..], [(taker, Share::Moved { producer: 1, .. })] if taker == to), "{taken:?}");
    }
    let refused = takers(&before, &Shape::default()).expect_err("the exchange is gone");
    assert_eq!(refused, RestoreMismatch::InFlight { operators: vec!["words".into()] });
}

#[test]
fn a_copy_that_was_on_its_way_and_what_a_user_directed_need_as_many_consumers_as_there_were() {
    for between in [Partitioner::Broadcast, Partitioner::Custom] {
        let shape = || Shape { chaining: ChainingPolicy::Never, between, ..Shape::default() };
        let before = overtaking(&shape(), "#1", "words");
        assert_eq!(takers(&before, &Shape { count: 3, ..shape() }).expect("its ends are as they were").len(), 1);
        let refused = takers(&before, &Shape { source: 3, ..shape() }).expect_err("who is to have it?");
        assert_eq!(refused, RestoreMismatch::InFlight { operators: vec!["words".into()] });
        assert!(refused.to_string().contains("savepoint"), "{refused}");
    }
}
