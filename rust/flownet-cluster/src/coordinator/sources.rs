//! Controls the sources of a job: limits their rate and event time, and distributes the splits that they discover.
//!
//! [`FlowLoop`] decides the rate and [`AlignmentMachine`] the limits of event time. [`Sources`] sends their orders to
//! the workers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use super::{job::Job, workers::Workers};
use crate::{alignment::AlignmentMachine, flow::FlowLoop, rpc::StatusReport};

/// New splits of a source.
#[derive(Debug)]
pub(super) struct FoundSplits {
    pub(super) operator: u32,
    /// Attempt that the splits are for, as the number of restarts before it.
    pub(super) restarted: u64,
    /// Splits as the operator encodes them.
    pub(super) splits: Vec<u8>,
}

/// Sources of a job in the current attempt.
pub(super) struct Sources {
    job: Arc<Job>,
    flow: FlowLoop,
    alignment: AlignmentMachine,
    /// Number of orders so far. A worker follows the order with the highest number.
    orders: u64,
}

impl Sources {
    pub(super) fn new(job: Arc<Job>) -> Self {
        let (flow, alignment) = (flow_loop(&job), AlignmentMachine::new(&job.plan));
        Self { job, flow, alignment, orders: 0 }
    }

    /// Begins an attempt of the job.
    pub(super) fn begin_attempt(&mut self) {
        self.flow = flow_loop(&self.job);
        self.alignment = AlignmentMachine::new(&self.job.plan);
    }

    /// Resets the progress of tasks that restart.
    pub(super) fn restart(&mut self, tasks: &[u32]) {
        self.alignment.begin_again(tasks);
    }

    /// Handles a report of a worker about tasks of the current attempt.
    pub(super) fn on_report(&mut self, worker: u32, report: &StatusReport) {
        self.flow.on_congestion(worker, report.is_congested);
        for (task, metrics) in &report.metrics {
            self.flow.on_metrics(*task, metrics);
            self.alignment.on_metrics(*task, metrics);
        }
    }

    /// Sends the orders that are due at `now`.
    pub(super) fn on_time(&mut self, now: Duration, workers: &Workers) {
        self.flow.on_time(now);
        self.send_rate(workers);
        self.alignment.on_time(now);
        self.send_limits(workers);
    }

    /// Returns the time of the next call of [`Self::on_time`].
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        [self.flow.poll_timeout(), self.alignment.poll_timeout()].into_iter().flatten().min()
    }

    /// Sends the rate limit to every worker with sources, if it has changed.
    fn send_rate(&mut self, workers: &Workers) {
        let Some(order) = self.flow.poll_order() else { return };
        tracing::debug!(job = self.job.settings.job_name, ?order);
        self.orders += 1;
        let number = self.orders;
        let sources = self.job.plan.tasks.iter().filter(|task| task.spec.is_source());
        for worker in sources.map(|task| task.worker).collect::<BTreeSet<_>>() {
            workers.call(worker, async move |link| link.order(number, order).await.map(|()| None));
        }
    }

    /// Sends the limits of event time to the aligned sources, if they have changed.
    fn send_limits(&mut self, workers: &Workers) {
        let Some(limits) = self.alignment.poll_limits() else { return };
        tracing::debug!(job = self.job.settings.job_name, ?limits);
        self.orders += 1;
        let (generation, number) = (workers.generation(), self.orders);
        let mut by_worker: BTreeMap<u32, Vec<(u32, i64)>> = BTreeMap::new();
        for (task, limit_ms) in limits {
            by_worker.entry(self.job.plan.tasks[task as usize].worker).or_default().push((task, limit_ms));
        }
        for (worker, limits) in by_worker {
            workers.call(worker, async move |link| link.align(generation, number, limits).await.map(|()| None));
        }
    }

    /// Sends new splits to all subtasks of their source. A lister outside the job serves all subtasks and sends each
    /// attempt the complete list. Every subtask takes the splits that are its own and new. So repeated splits do no
    /// harm, and splits that arrive while no attempt runs need not be stored.
    pub(super) fn add_splits(&self, found: &FoundSplits, workers: &Workers) {
        let FoundSplits { operator, splits, .. } = found;
        let (generation, operator) = (workers.generation(), *operator);
        let tasks = self.job.plan.tasks.iter();
        let readers = tasks.filter(|task| task.spec.operators.first().is_some_and(|head| head.id == operator));
        for worker in readers.map(|task| task.worker).collect::<BTreeSet<_>>() {
            let splits = splits.clone();
            workers.call(worker, async move |link| link.add_splits(generation, operator, splits).await.map(|()| None));
        }
    }
}

fn flow_loop(job: &Job) -> FlowLoop {
    FlowLoop::new(job.settings.flow_control, job.plan.tasks.iter().map(|task| &task.spec))
}
