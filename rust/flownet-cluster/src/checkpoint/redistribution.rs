//! Redistributes a checkpoint that one plan took to the tasks of another.
//!
//! State belongs to an operator, which its uid identifies. So tasks may have other chains, other subtasks and other
//! workers. Each task takes the parts of its operators that overlap with what it owns.
//!
//! A dataflow is *unchanged* if it has the same operators, by uid and kind. Then the numbers that the plan gives, such
//! as `#7`, serve as uids. In a changed dataflow the same number may belong to another operator. There every operator
//! with state needs a uid from the user.
//!
//! # Invariants
//! - I1: a task takes every part of an operator with state, unless the user allows to drop it.
//! - I2: an operator of another kind never takes a part.
//! - I3: the reader of a channel takes the channel's in-flight data, once, if both ends have as many subtasks as
//!   before. Otherwise channels of keyed edges are redistributed by key group. A channel of another edge goes as a
//!   whole to one subtask. That is its former reader, if the number of consumers is unchanged. Otherwise it is any
//!   subtask, if the producers choose independently of the record. Other channels must have no in-flight data. All
//!   operators must be unchanged.

use std::collections::{BTreeMap, BTreeSet};

use flownet_runtime::snapshot::{Share, is_incidental};
use flownet_runtime::spec::{OperatorKind, OperatorSpec, Partitioner, TaskSpec};
use flownet_store::{Manifest, OperatorEntry, PartRef};

use crate::error::quoted;
use crate::plan::{Plan, Wiring};
use crate::rpc::TaskRestore;

/// Reason why a dataflow cannot resume from a checkpoint.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreMismatch {
    /// The dataflow was changed, and operators with state cannot be matched without uids.
    #[error(
        "the dataflow was changed, and in {whose} these operators keep state and have no uid: {}; give each a name that \
         stays, with .uid(\"...\"), before the dataflow is changed",
        quoted(.operators)
    )]
    NoUid {
        /// `the checkpoint` or `the dataflow`.
        whose: &'static str,
        /// Names of the operators.
        operators: Vec<String>,
    },
    /// The checkpoint has state of operators that no longer exist.
    #[error(
        "it has state of operators that the dataflow has no more: {}; bring them back, or drop their state with \
         allow_non_restored_state=True",
        quoted(.operators)
    )]
    Dropped {
        /// Uids of the operators.
        operators: Vec<String>,
    },
    /// The kind of an operator has changed.
    #[error(
        "operator '{uid}' was {was} and is {is} now, which cannot read its state; give it another uid, and drop the state \
         with allow_non_restored_state=True"
    )]
    Kind {
        /// Uid of the operator.
        uid: String,
        /// Former kind.
        was: String,
        /// Current kind.
        is: String,
    },
    /// The target of a sink has changed.
    #[error(
        "operator '{operator}' wrote to {was} and writes to {is} now, and what it has prepared for the checkpoint can be \
         committed to {was} alone; let it write there, or give it another uid and drop what it has prepared with \
         allow_non_restored_state=True"
    )]
    Target {
        /// Uid of the sink, or its name if it has no uid.
        operator: String,
        /// Former target.
        was: String,
        /// Current target.
        is: String,
    },
    /// The checkpoint has in-flight data, and the edges of that data have changed.
    #[error(
        "it was taken while records were on their way to or from {}, and those go other ways now: the dataflow was \
         changed, or the parallelism behind a broadcast or partition_custom, or so that two operators share a task that did \
         not; go on with what it was taken with, take a savepoint, in which nothing is on its way, and change the job from \
         that",
        quoted(.operators)
    )]
    InFlight {
        /// Operators at either end of those edges.
        operators: Vec<String>,
    },
    /// The number of key groups has changed, so keys would belong to other groups.
    #[error("it has {was} key groups, the job {is}; set max_parallelism={was}")]
    KeyGroups {
        /// Number in the checkpoint.
        was: u32,
        /// Number in the job.
        is: u32,
    },
}

impl RestoreMismatch {
    /// Returns the operators that cause the mismatch, if any.
    #[must_use]
    pub fn operators(&self) -> &[String] {
        match self {
            Self::NoUid { operators, .. } | Self::Dropped { operators } | Self::InFlight { operators } => operators,
            Self::Kind { uid: operator, .. } | Self::Target { operator, .. } => std::slice::from_ref(operator),
            Self::KeyGroups { .. } => &[],
        }
    }
}

/// Returns the state that each task restores, by its number in `plan`.
///
/// # Errors
/// Returns the first mismatch between the checkpoint and the plan.
pub(crate) fn assign(
    manifest: &Manifest,
    plan: &Plan,
    may_drop: bool,
) -> Result<BTreeMap<u32, TaskRestore>, RestoreMismatch> {
    let groups = plan.tasks.first().map_or(1, |task| task.spec.max_parallelism);
    if manifest.max_parallelism != groups {
        return Err(RestoreMismatch::KeyGroups { was: manifest.max_parallelism, is: groups });
    }
    let is_as_it_was = known(&manifest.operators) == known(&operators(plan));
    if !is_as_it_was {
        check_change(manifest, plan, may_drop)?;
    }
    check_targets(manifest, plan, is_as_it_was)?;
    let on_their_way = in_flight(manifest, plan, is_as_it_was)?;
    let is_named = |part: &&PartRef| is_as_it_was || !is_numbered(&part.uid);
    let state = manifest.tasks.iter().flat_map(|task| &task.parts).filter(|part| !part.share.is_in_flight());
    let parts: Vec<&PartRef> = state.filter(is_named).chain(&on_their_way).collect();
    let of = |task: &TaskSpec| TaskRestore {
        parts: parts.iter().copied().filter(|part| part.share.is_for(&part.uid, task)).cloned().collect(),
        has_finished: task.operators.first().is_some_and(|head| has_finished(manifest, head, task)),
    };
    Ok(plan.tasks.iter().map(|task| (task.spec.task_id, of(&task.spec))).collect())
}

/// Returns the names of operators that have state but no uid from the user. The first change of the dataflow loses
/// their state.
pub(crate) fn without_uid(manifest: &Manifest) -> Vec<String> {
    let keeping = keeping(manifest);
    let nameless = manifest.operators.iter().filter(|operator| is_numbered(&operator.uid));
    nameless.filter(|operator| keeping.contains(operator.uid.as_str())).map(|operator| operator.name.clone()).collect()
}

/// Returns the same for a plan, judged by the kinds of its operators.
pub(crate) fn without_uid_in(plan: &Plan) -> Vec<String> {
    let keeping = operators(plan).into_iter().filter(|operator| operator.keeps_state && is_numbered(&operator.uid));
    keeping.map(|operator| operator.name).collect()
}

/// Returns the operators of a plan in the order of its tasks.
pub(crate) fn operators(plan: &Plan) -> Vec<OperatorEntry> {
    let first = plan.tasks.iter().filter(|task| task.spec.subtask == 0);
    let operators = first.flat_map(|task| task.spec.operators.iter().map(move |operator| (task, operator)));
    operators
        .map(|(task, operator)| OperatorEntry {
            uid: operator.state_uid(),
            name: operator.name.clone(),
            kind: kind(&operator.kind),
            parallelism: task.spec.parallelism,
            keeps_state: operator.kind.keeps_state(),
            target: operator.target.clone(),
        })
        .collect()
}

fn check_change(manifest: &Manifest, plan: &Plan, may_drop: bool) -> Result<(), RestoreMismatch> {
    for (whose, operators) in [("the checkpoint", without_uid(manifest)), ("the dataflow", without_uid_in(plan))] {
        // State that is dropped anyway needs no uid.
        let is_needed = !may_drop || whose == "the dataflow";
        if is_needed && !operators.is_empty() {
            return Err(RestoreMismatch::NoUid { whose, operators });
        }
    }
    let now = operators(plan);
    let keeping = keeping(manifest);
    let mut dropped = Vec::new();
    for theirs in manifest.operators.iter().filter(|theirs| keeping.contains(theirs.uid.as_str())) {
        match now.iter().find(|ours| ours.uid == theirs.uid && !is_numbered(&ours.uid)) {
            Some(ours) if ours.kind != theirs.kind => {
                let (uid, was, is) = (theirs.uid.clone(), theirs.kind.clone(), ours.kind.clone());
                return Err(RestoreMismatch::Kind { uid, was, is });
            }
            Some(_) => {}
            None => dropped.push(theirs.uid.clone()),
        }
    }
    if dropped.is_empty() || may_drop { Ok(()) } else { Err(RestoreMismatch::Dropped { operators: dropped }) }
}

/// Checks that sinks commit their prepared output to the target where they prepared it.
fn check_targets(manifest: &Manifest, plan: &Plan, is_as_it_was: bool) -> Result<(), RestoreMismatch> {
    let now = operators(plan);
    for theirs in manifest.operators.iter().filter(|theirs| is_as_it_was || !is_numbered(&theirs.uid)) {
        let ours = now.iter().find(|ours| ours.uid == theirs.uid && ours.kind == theirs.kind);
        let targets = ours.and_then(|ours| theirs.target.as_ref().zip(ours.target.as_ref()));
        if let Some((was, is)) = targets.filter(|(was, is)| was != is) {
            let operator = if is_numbered(&theirs.uid) { &theirs.name } else { &theirs.uid };
            return Err(RestoreMismatch::Target { operator: operator.clone(), was: was.clone(), is: is.clone() });
        }
    }
    Ok(())
}

/// Returns the in-flight data as the current tasks share it (I3).
fn in_flight(manifest: &Manifest, plan: &Plan, is_as_it_was: bool) -> Result<Vec<PartRef>, RestoreMismatch> {
    let ways = if is_as_it_was { ways(manifest, plan) } else { BTreeMap::new() };
    let is_taken = |part: &PartRef| plan.tasks.iter().any(|task| part.share.is_for(&part.uid, &task.spec));
    let (mut shared, mut lost) = (Vec::new(), BTreeSet::new());
    let parts = manifest.tasks.iter().flat_map(|task| &task.parts).filter(|part| part.share.is_in_flight());
    for part in parts {
        let share = shared_now(part.share, &ways, manifest.max_parallelism);
        match share.map(|share| PartRef { share, ..part.clone() }).filter(is_taken) {
            Some(part) => shared.push(part),
            None => _ = lost.insert(&*part.uid),
        }
    }
    if lost.is_empty() {
        return Ok(shared);
    }
    let named = manifest.operators.iter().filter(|operator| lost.contains(operator.uid.as_str()));
    Err(RestoreMismatch::InFlight { operators: named.map(|operator| operator.name.clone()).collect() })
}

/// Change of an edge since a checkpoint.
#[derive(Default)]
struct EdgeChange {
    /// Producer subtasks and consumer subtasks, each before and now.
    from: (u32, u32),
    to: (u32, u32),
    partitioner: Option<Partitioner>,
}

/// Returns the edges of a plan by number, for an unchanged dataflow.
fn ways(manifest: &Manifest, plan: &Plan) -> BTreeMap<u32, EdgeChange> {
    let was: BTreeMap<&str, u32> =
        manifest.operators.iter().map(|operator| (&*operator.uid, operator.parallelism)).collect();
    let subtasks = |task: &TaskSpec, id: u32| {
        let operator = task.operators.iter().find(|operator| operator.id == id);
        let then = operator.and_then(|operator| was.get(&*operator.state_uid()));
        (then.copied().unwrap_or(0), task.parallelism)
    };
    let mut ways = BTreeMap::<u32, EdgeChange>::new();
    for task in plan.tasks.iter().map(|task| &task.spec).filter(|task| task.subtask == 0) {
        for output in &task.outputs {
            ways.entry(output.edge).or_default().from = subtasks(task, output.from_operator);
        }
        for input in &task.inputs {
            let way = ways.entry(input.edge).or_default();
            (way.to, way.partitioner) = (subtasks(task, input.to_operator), Some(input.partitioner));
        }
    }
    ways
}

/// Returns the new share of a channel's in-flight data, or `None` if no subtask can take it.
fn shared_now(share: Share, ways: &BTreeMap<u32, EdgeChange>, groups: u32) -> Option<Share> {
    let Share::Channel { edge, producer, subpartition } = share else { return None };
    let way = ways.get(&edge)?;
    if way.from.0 == way.from.1 && way.to.0 == way.to.1 {
        return Some(share);
    }
    let (of, now) = way.to;
    let partitioner = way.partitioner?;
    let to = match partitioner {
        Partitioner::KeyGroup => {
            return (subpartition < of && of <= groups).then_some(Share::Dealt { edge, producer, subpartition, of });
        }
        // Each subtask had received its copy and acted on it before others had, and a user's function may depend on the
        // number of a subtask. Neither is known for another subtask.
        Partitioner::Broadcast | Partitioner::Custom => (of == now).then_some(subpartition)?,
        // If the edge had another of these partitioners then, any subtask may take the data.
        Partitioner::Forward | Partitioner::Rescale | Partitioner::Rebalance => {
            let reader = Wiring::new(&partitioner, way.from.0, of).reader(producer, subpartition);
            reader.unwrap_or(subpartition).checked_rem(now)?
        }
    };
    Some(Share::Moved { edge, producer, subpartition, to })
}

/// Returns the kind of an operator, as far as its state depends on it.
fn kind(kind: &OperatorKind) -> String {
    match kind {
        OperatorKind::Window { fold, window, .. } => format!("{} of {}", fold.name(), window.kept_as()),
        OperatorKind::Rows(kind) => kind.of_state(),
        kind => kind.name().to_owned(),
    }
}

/// Returns the uids of operators whose state must not be lost: by their kind, or because they have parts.
fn keeping(manifest: &Manifest) -> BTreeSet<&str> {
    let by_kind = manifest.operators.iter().filter(|operator| operator.keeps_state).map(|operator| &*operator.uid);
    let parts = manifest.tasks.iter().flat_map(|task| &task.parts);
    let is_state = |part: &&PartRef| !part.share.is_in_flight() && !is_incidental(&part.name);
    let by_parts = parts.filter(|part| part.bytes > NO_ITEMS_BYTES).filter(is_state).map(|part| &*part.uid);
    by_kind.chain(by_parts).collect()
}

/// Whether a uid is only the number that a plan gave.
fn is_numbered(uid: &str) -> bool {
    uid.strip_prefix('#').is_some_and(|number| number.parse::<u32>().is_ok())
}

fn known(operators: &[OperatorEntry]) -> BTreeSet<(&str, &str)> {
    operators.iter().map(|operator| (&*operator.uid, &*operator.kind)).collect()
}

/// Whether this task's share of the operator had finished: the same subtask, or all subtasks if their number has
/// changed.
fn has_finished(manifest: &Manifest, operator: &OperatorSpec, task: &TaskSpec) -> bool {
    let uid = operator.state_uid();
    let all: Vec<_> = manifest.tasks.iter().filter(|entry| entry.uids.contains(&uid)).collect();
    let is_same = all.len() == task.parallelism as usize;
    !all.is_empty()
        && all.iter().filter(|entry| !is_same || entry.subtask == task.subtask).all(|entry| entry.has_finished)
}

/// Length of a part without items.
const NO_ITEMS_BYTES: u64 = 2;

#[cfg(test)]
#[path = "assign_tests.rs"]
mod tests;
