//! Who goes on from what: a checkpoint that one plan took, dealt out to the tasks of another.
//!
//! State belongs to an operator, and an operator is known by its uid. So tasks may be chained otherwise, have other
//! subtasks and lie on other workers: each takes those parts of its operators that it owns something of.
//!
//! A dataflow *is as it was* if it has the same operators, by uid and kind. Then numbers that the plan gives, `#7`, will do
//! for uids. In one that was changed the same number may be another operator's: there whoever keeps state needs a uid of
//! the user's.
//!
//! # Invariants
//! - I1: every part of an operator that keeps state is taken by someone, or the user has said that it may be dropped.
//! - I2: a part is never taken by an operator of another kind.
//! - I3: what was on its way on a channel is taken by who reads that channel, once, if both of its ends have as many
//!   subtasks as they had. Where they have not, channels of keyed edges are dealt out by key group. Of other edges a channel
//!   goes as a whole to one subtask: to who read it, where the consumers are as many as they were, and else to any, where
//!   producers choose regardless of what a record is. Nothing was on its way on others. All operators are what they were.

use std::collections::{BTreeMap, BTreeSet};

use flownet_runtime::snapshot::{Share, is_incidental};
use flownet_runtime::spec::{OperatorKind, OperatorSpec, Partitioner, TaskSpec};
use flownet_store::{Manifest, OperatorEntry, PartRef};

use crate::error::quoted;
use crate::plan::{Plan, Wiring};
use crate::rpc::TaskRestore;

/// Why a dataflow cannot go on from a checkpoint.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreMismatch {
    /// The dataflow was changed, and nobody can tell whose state is whose.
    #[error(
        "the dataflow was changed, and in {whose} these operators keep state and have no uid: {}; give each a name that \
         stays, with .uid(\"...\"), before the dataflow is changed",
        quoted(.operators)
    )]
    NoUid {
        /// `the checkpoint` or `the dataflow`.
        whose: &'static str,
        /// Their names.
        operators: Vec<String>,
    },
    /// State of operators that are gone.
    #[error(
        "it has state of operators that the dataflow has no more: {}; bring them back, or drop their state with \
         allow_non_restored_state=True",
        quoted(.operators)
    )]
    Dropped {
        /// Their uids.
        operators: Vec<String>,
    },
    /// An operator does something else now.
    #[error(
        "operator '{uid}' was {was} and is {is} now, which cannot read its state; give it another uid, and drop the state \
         with allow_non_restored_state=True"
    )]
    Kind {
        /// Its uid.
        uid: String,
        /// What it did.
        was: String,
        /// What it does.
        is: String,
    },
    /// A sink writes to another place now.
    #[error(
        "operator '{operator}' wrote to {was} and writes to {is} now, and what it has prepared for the checkpoint can be \
         committed to {was} alone; let it write there, or give it another uid and drop what it has prepared with \
         allow_non_restored_state=True"
    )]
    Target {
        /// Its name, or its uid if it has one.
        operator: String,
        /// Where it wrote.
        was: String,
        /// Where it writes.
        is: String,
    },
    /// Records were on their way, and their ways have changed.
    #[error(
        "it was taken while records were on their way to or from {}, and those go other ways now: the dataflow was \
         changed, or the parallelism behind a broadcast or partition_custom, or so that two operators share a task that did \
         not; go on with what it was taken with, take a savepoint, in which nothing is on its way, and change the job from \
         that",
        quoted(.operators)
    )]
    InFlight {
        /// The operators to which, or from which, they were.
        operators: Vec<String>,
    },
    /// The job has another number of key groups, so keys would lie elsewhere.
    #[error("it has {was} key groups, the job {is}; set max_parallelism={was}")]
    KeyGroups {
        /// When it was taken.
        was: u32,
        /// Now.
        is: u32,
    },
}

impl RestoreMismatch {
    /// The operators to blame, if any are.
    #[must_use]
    pub fn operators(&self) -> &[String] {
        match self {
            Self::NoUid { operators, .. } | Self::Dropped { operators } | Self::InFlight { operators } => operators,
            Self::Kind { uid: operator, .. } | Self::Target { operator, .. } => std::slice::from_ref(operator),
            Self::KeyGroups { .. } => &[],
        }
    }
}

/// What each task goes on from, by its number in `plan`.
///
/// # Errors
/// What does not fit.
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

/// The names of operators that keep state and have no uid of the user's: what they keep is lost with the first change of the
/// dataflow.
pub(crate) fn without_uid(manifest: &Manifest) -> Vec<String> {
    let keeping = keeping(manifest);
    let nameless = manifest.operators.iter().filter(|operator| is_numbered(&operator.uid));
    nameless.filter(|operator| keeping.contains(operator.uid.as_str())).map(|operator| operator.name.clone()).collect()
}

/// The same of a plan, as far as its kinds of operators say it.
pub(crate) fn without_uid_in(plan: &Plan) -> Vec<String> {
    let keeping = operators(plan).into_iter().filter(|operator| operator.keeps_state && is_numbered(&operator.uid));
    keeping.map(|operator| operator.name).collect()
}

/// The operators of a plan, in the order of its tasks.
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
        // What is dropped anyway needs no name.
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

/// What a sink has prepared is committed where it was prepared.
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

/// What was on its way, as the tasks that there are now are to share it: I3.
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

/// What has become of an edge since a checkpoint.
#[derive(Default)]
struct EdgeChange {
    /// Subtasks that sent and that took, then and now.
    from: (u32, u32),
    to: (u32, u32),
    partitioner: Option<Partitioner>,
}

/// The edges of a plan by number, of a dataflow that is as it was.
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

/// Who gets what was on its way on a channel, if anybody can.
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
        // Each had got its copy, and acted on it, before others had, and a user's function may have counted on who is
        // where: neither is known of another subtask.
        Partitioner::Broadcast | Partitioner::Custom => (of == now).then_some(subpartition)?,
        // Where it was another of these then, whoever gets it is right.
        Partitioner::Forward | Partitioner::Rescale | Partitioner::Rebalance => {
            let reader = Wiring::new(&partitioner, way.from.0, of).reader(producer, subpartition);
            reader.unwrap_or(subpartition).checked_rem(now)?
        }
    };
    Some(Share::Moved { edge, producer, subpartition, to })
}

/// What an operator does, as far as its state depends on it.
fn kind(kind: &OperatorKind) -> String {
    match kind {
        OperatorKind::Window { fold, window, .. } => format!("{} of {}", fold.name(), window.kept_as()),
        OperatorKind::Rows(kind) => kind.of_state(),
        kind => kind.name().to_owned(),
    }
}

/// The uids of operators that keep something which would be missed: by their kind, or because they have.
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

/// Whether the place of this task in the operator had come to its end: this subtask, or where there were more or fewer, all.
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
