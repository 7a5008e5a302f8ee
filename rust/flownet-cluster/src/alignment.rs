//! Sources that wait for each other, so that none is far ahead of the others in event time. No IO, no clock.
//!
//! The driver tells [`AlignmentMachine`] what workers report and what time it is, and sends every limit that
//! [`AlignmentMachine::poll_limits`] gives to the tasks it is for. A source that has come further than its limit waits;
//! see [`SplitWatermarks`](flownet_runtime::watermark::SplitWatermarks).
//!
//! ```text
//! least of the group's times + what they may drift  ->  limit of all of them: at once after a step of the drift, else once an
//!                                                       interval
//! ```
//!
//! Sources report when they have moved by a [step](Alignment::step_ms), so a replay goes on as fast as its slowest source
//! reads, however short the drift.
//!
//! # Invariants
//! - A1: no limit is beyond the least time that was reported of the group's sources by more than they may drift. A source
//!   that has reported nothing has come nowhere; one that is idle or has ended is not counted.
//! - A2: who has the least time is never held for good: what is reported becomes the limit after one interval at most.
//! - A3: limits of a group follow each other only where they differ, and by no less than its interval unless they rise by a
//!   step of the drift.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use flownet_runtime::{
    MetricsSnapshot,
    time::{END_OF_TIME_MS, NO_TIMESTAMP},
    watermark::Alignment,
};

use crate::plan::Plan;

/// The groups of one job.
#[derive(Debug, Default)]
pub(crate) struct AlignmentMachine {
    groups: Vec<Group>,
    /// A limit has changed since they were last asked for.
    is_news: bool,
}

#[derive(Debug)]
struct Group {
    max_drift_ms: i64,
    /// A limit that rises by so much is sent at once.
    step_ms: u64,
    interval: Duration,
    /// How far each subtask of its sources has come.
    reached_ms: BTreeMap<u32, i64>,
    limit_ms: i64,
    /// When the next limit may be told.
    due: Duration,
}

impl AlignmentMachine {
    /// Sources wait until their first limit is told.
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut groups: BTreeMap<&str, Group> = BTreeMap::new();
        for (task, alignment) in aligned(plan) {
            let group = groups.entry(&alignment.group).or_insert_with(|| Group {
                max_drift_ms: i64::try_from(alignment.max_drift_ms.get()).unwrap_or(i64::MAX),
                step_ms: alignment.step_ms(),
                interval: Duration::from_millis(alignment.update_interval_ms.get()),
                reached_ms: BTreeMap::new(),
                limit_ms: NO_TIMESTAMP,
                due: Duration::ZERO,
            });
            group.reached_ms.insert(task, NO_TIMESTAMP);
        }
        Self { groups: groups.into_values().collect(), is_news: false }
    }

    /// The shortest of the groups' intervals, if there are any.
    pub(crate) fn shortest_interval(plan: &Plan) -> Option<Duration> {
        aligned(plan).map(|(_, alignment)| Duration::from_millis(alignment.update_interval_ms.get())).min()
    }

    /// These begin anew: they have come nowhere.
    pub(crate) fn begin_again(&mut self, tasks: &[u32]) {
        for task in tasks {
            self.reached(*task, NO_TIMESTAMP);
        }
    }

    /// A worker says how far a task has come.
    pub(crate) fn on_metrics(&mut self, task: u32, metrics: &MetricsSnapshot) {
        self.reached(task, metrics.event_time.aligned_ms.unwrap_or(NO_TIMESTAMP));
    }

    /// Time has passed: tells the limits that are due.
    pub(crate) fn on_time(&mut self, now: Duration) {
        for group in self.groups.iter_mut().filter(|group| group.due().is_some_and(|due| now >= due)) {
            group.limit_ms = group.next_limit_ms();
            group.due = now + group.interval;
            self.is_news = true;
        }
    }

    /// When to call [`Self::on_time`].
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        self.groups.iter().filter_map(Group::due).min()
    }

    /// How far tasks may go from now on, once for each change.
    pub(crate) fn poll_limits(&mut self) -> Option<BTreeMap<u32, i64>> {
        if !std::mem::take(&mut self.is_news) {
            return None;
        }
        // All of them: a worker keeps what it was told last, for tasks that start later.
        let limits = self.groups.iter().flat_map(|group| group.reached_ms.keys().map(|task| (*task, group.limit_ms)));
        Some(limits.collect())
    }

    fn reached(&mut self, task: u32, reached_ms: i64) {
        for group in &mut self.groups {
            if let Some(reached) = group.reached_ms.get_mut(&task) {
                *reached = reached_ms;
            }
        }
    }
}

impl Group {
    /// When the next limit is to be sent, if it is another one.
    fn due(&self) -> Option<Duration> {
        let next_ms = self.next_limit_ms();
        let is_step = next_ms > self.limit_ms && next_ms.abs_diff(self.limit_ms) >= self.step_ms;
        (next_ms != self.limit_ms).then_some(if is_step { Duration::ZERO } else { self.due })
    }

    fn next_limit_ms(&self) -> i64 {
        match self.reached_ms.values().min() {
            None | Some(&END_OF_TIME_MS) => END_OF_TIME_MS,
            Some(&NO_TIMESTAMP) => NO_TIMESTAMP,
            // Short of the end of time: that is nobody's.
            Some(least_ms) => least_ms.saturating_add(self.max_drift_ms).min(END_OF_TIME_MS - 1),
        }
    }
}

/// The tasks of aligned sources; the planner has seen to it that there is one alignment in each.
fn aligned(plan: &Plan) -> impl Iterator<Item = (u32, &Alignment)> {
    plan.tasks.iter().flat_map(|task| {
        let alignments = task.spec.operators.iter().filter_map(|operator| operator.kind.alignment());
        alignments.map(|alignment| (task.spec.task_id, alignment))
    })
}
