//! Aligns sources in event time, so that none gets far ahead of the others. No I/O, no clock.
//!
//! The driver passes workers' reports and the time to [`AlignmentMachine`]. It sends the limits that
//! [`AlignmentMachine::poll_limits`] returns to their tasks. A source beyond its limit waits; see
//! [`SplitWatermarks`](flownet_runtime::watermark::SplitWatermarks).
//!
//! ```text
//! least time of the group + allowed drift  ->  limit of the group: at once after a step of the drift, else once an
//!                                              interval
//! ```
//!
//! Sources report when they have advanced by a [step](Alignment::step_ms). So a replay is as fast as its slowest source
//! reads, however short the drift.
//!
//! # Invariants
//! - A1: no limit exceeds the least reported time of the group's sources by more than the allowed drift. A source
//!   without a report blocks the group. An idle or ended source does not count.
//! - A2: the source with the least time is never held permanently: its reported time becomes the limit after at most
//!   one interval.
//! - A3: consecutive limits of a group differ. They are at least an interval apart, unless they rise by a step of the
//!   drift.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use flownet_runtime::{
    MetricsSnapshot,
    time::{END_OF_TIME_MS, NO_TIMESTAMP},
    watermark::Alignment,
};

use crate::plan::Plan;

/// State machine of a job's alignment groups.
#[derive(Debug, Default)]
pub(crate) struct AlignmentMachine {
    groups: Vec<Group>,
    /// Whether a limit has changed since the last poll.
    is_news: bool,
}

#[derive(Debug)]
struct Group {
    max_drift_ms: i64,
    /// Increase of a limit that is sent at once.
    step_ms: u64,
    interval: Duration,
    /// Event time that each subtask of its sources has reached.
    reached_ms: BTreeMap<u32, i64>,
    limit_ms: i64,
    /// Earliest time for the next limit.
    due: Duration,
}

impl AlignmentMachine {
    /// Creates the machine of a plan. Sources wait until they receive their first limit.
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

    /// Returns the shortest interval of the groups, if there are any.
    pub(crate) fn shortest_interval(plan: &Plan) -> Option<Duration> {
        aligned(plan).map(|(_, alignment)| Duration::from_millis(alignment.update_interval_ms.get())).min()
    }

    /// Resets the progress of tasks that restart.
    pub(crate) fn begin_again(&mut self, tasks: &[u32]) {
        for task in tasks {
            self.reached(*task, NO_TIMESTAMP);
        }
    }

    /// Records the event time that a task has reported.
    pub(crate) fn on_metrics(&mut self, task: u32, metrics: &MetricsSnapshot) {
        self.reached(task, metrics.event_time.aligned_ms.unwrap_or(NO_TIMESTAMP));
    }

    /// Updates the limits that are due at `now`.
    pub(crate) fn on_time(&mut self, now: Duration) {
        for group in self.groups.iter_mut().filter(|group| group.due().is_some_and(|due| now >= due)) {
            group.limit_ms = group.next_limit_ms();
            group.due = now + group.interval;
            self.is_news = true;
        }
    }

    /// Returns the time of the next call of [`Self::on_time`].
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        self.groups.iter().filter_map(Group::due).min()
    }

    /// Returns the new limits by task, once for each change.
    pub(crate) fn poll_limits(&mut self) -> Option<BTreeMap<u32, i64>> {
        if !std::mem::take(&mut self.is_news) {
            return None;
        }
        // All limits: a worker stores the last ones for tasks that start later.
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
    /// Returns the time of the next limit, if it differs from the current one.
    fn due(&self) -> Option<Duration> {
        let next_ms = self.next_limit_ms();
        let is_step = next_ms > self.limit_ms && next_ms.abs_diff(self.limit_ms) >= self.step_ms;
        (next_ms != self.limit_ms).then_some(if is_step { Duration::ZERO } else { self.due })
    }

    fn next_limit_ms(&self) -> i64 {
        match self.reached_ms.values().min() {
            None | Some(&END_OF_TIME_MS) => END_OF_TIME_MS,
            Some(&NO_TIMESTAMP) => NO_TIMESTAMP,
            // Below the end of time, which no record reaches.
            Some(least_ms) => least_ms.saturating_add(self.max_drift_ms).min(END_OF_TIME_MS - 1),
        }
    }
}

/// Returns the tasks of aligned sources. The planner has ensured that each has one alignment.
fn aligned(plan: &Plan) -> impl Iterator<Item = (u32, &Alignment)> {
    plan.tasks.iter().flat_map(|task| {
        let alignments = task.spec.operators.iter().filter_map(|operator| operator.kind.alignment());
        alignments.map(|alignment| (task.spec.task_id, alignment))
    })
}
