//! Controls the rate of a job's sources for the whole job: two historic methods, for comparison with credit. No I/O, no
//! clock.
//!
//! The driver passes workers' reports to [`FlowLoop`]. It sends the orders of [`FlowLoop::poll_order`] to all workers
//! that run sources.
//!
//! ```text
//! storm   queue over 0.9 -> worker's report -> flag up -> sources stop
//!         queues all under 0.4 ............. flag down -> sources continue
//! pid     once a batch: delays of the batch -> estimator -> sources' rate
//! ```

mod meter;
mod pid;

use std::{collections::BTreeSet, time::Duration};

use flownet_runtime::{
    MetricsSnapshot,
    source::SourceOrder,
    spec::{FlowControl, TaskSpec},
};

use self::{
    meter::{Batch, BatchMeter},
    pid::PidEstimator,
};

/// Control loop of one job.
#[derive(Debug)]
pub(crate) struct FlowLoop {
    kind: Kind,
    order: SourceOrder,
    is_news: bool,
}

#[derive(Debug)]
enum Kind {
    /// No loop: every exchange controls itself.
    None,
    Storm {
        /// Workers with a congested queue.
        congested: BTreeSet<u32>,
    },
    Pid(Box<Batches>),
}

#[derive(Debug)]
struct Batches {
    meter: BatchMeter,
    estimator: PidEstimator,
    sources: u32,
    due: Duration,
}

impl FlowLoop {
    pub(crate) fn new<'a>(control: FlowControl, tasks: impl Iterator<Item = &'a TaskSpec> + Clone) -> Self {
        let kind = match control {
            FlowControl::Storm => Kind::Storm { congested: BTreeSet::new() },
            FlowControl::Pid => Kind::Pid(Box::new(Batches {
                sources: tasks.clone().filter(|task| task.is_source()).count() as u32,
                meter: BatchMeter::new(tasks.map(TaskSpec::is_source)),
                estimator: PidEstimator::new(BATCH_INTERVAL),
                due: BATCH_INTERVAL,
            })),
            FlowControl::Credit | FlowControl::Tcp | FlowControl::Drop | FlowControl::Unbounded => Kind::None,
        };
        Self { kind, order: SourceOrder::default(), is_news: false }
    }

    /// Records whether one of a worker's queues is congested.
    pub(crate) fn on_congestion(&mut self, worker: u32, is_congested: bool) {
        let Kind::Storm { congested } = &mut self.kind else { return };
        if is_congested {
            congested.insert(worker);
        } else {
            congested.remove(&worker);
        }
        let is_stopped = !congested.is_empty();
        self.is_news |= is_stopped != self.order.is_stopped;
        self.order.is_stopped = is_stopped;
    }

    /// Stores the counters of a task.
    pub(crate) fn on_metrics(&mut self, task: u32, metrics: &MetricsSnapshot) {
        if let Kind::Pid(batches) = &mut self.kind {
            batches.meter.see(task, metrics);
        }
    }

    /// Ends a batch if it is due at `now`.
    pub(crate) fn on_time(&mut self, now: Duration) {
        let Kind::Pid(batches) = &mut self.kind else { return };
        if now < batches.due {
            return;
        }
        batches.due = now + BATCH_INTERVAL;
        let Some(Batch { elements, processing, scheduling }) = batches.meter.end_batch() else { return };
        if let Some(rate) = batches.estimator.compute(now, elements, processing, scheduling) {
            self.order.records_per_second = Some(rate / f64::from(batches.sources.max(1)));
            self.is_news = true;
        }
    }

    /// Returns the time of the next call of [`Self::on_time`].
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        match &self.kind {
            Kind::Pid(batches) => Some(batches.due),
            Kind::None | Kind::Storm { .. } => None,
        }
    }

    /// Returns the new order for all source subtasks, once for each change.
    pub(crate) fn poll_order(&mut self) -> Option<SourceOrder> {
        std::mem::take(&mut self.is_news).then_some(self.order)
    }
}

/// Spark Streaming lets the job choose; its examples use one second.
const BATCH_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::{Plan, tests::DataflowBuilder},
        settings::JobSettings,
    };

    fn flow_loop(control: FlowControl) -> FlowLoop {
        let plan = Plan::new(&DataflowBuilder::word_count().0, &JobSettings::default()).expect("a sound dataflow");
        FlowLoop::new(control, plan.tasks.iter().map(|task| &task.spec))
    }

    #[test]
    fn sources_stop_with_the_first_congested_worker_and_go_on_after_the_last() {
        let mut flow = flow_loop(FlowControl::Storm);
        let mut orders = Vec::new();
        for (worker, is_congested) in [(1, false), (1, true), (2, true), (1, true), (1, false), (2, false), (2, false)]
        {
            flow.on_congestion(worker, is_congested);
            orders.push(flow.poll_order().map(|order| order.is_stopped));
        }
        assert_eq!(orders, [None, Some(true), None, None, None, Some(false), None]);
        assert_eq!(flow.poll_timeout(), None, "nothing happens by the clock");
    }

    #[test]
    fn where_exchanges_control_themselves_no_order_is_given() {
        for control in [FlowControl::Credit, FlowControl::Tcp, FlowControl::Drop, FlowControl::Unbounded] {
            let mut flow = flow_loop(control);
            flow.on_congestion(1, true);
            flow.on_time(Duration::from_secs(100));
            assert_eq!((flow.poll_order(), flow.poll_timeout()), (None, None));
        }
    }

    /// A source at its maximum rate, before a consumer of 1000 records of 10 bytes per second.
    #[test]
    fn the_rate_settles_at_what_the_consumer_takes_and_the_queue_empties() {
        let mut flow = flow_loop(FlowControl::Pid);
        let (mut queue, mut produced, mut consumed, mut rate) = (0.0_f64, 0.0, 0.0, 5000.0);
        let mut busy = Duration::ZERO;
        for second in 1..=60_u64 {
            let taken = (queue + rate).min(1000.0);
            queue += rate - taken;
            produced += rate;
            consumed += taken;
            busy += Duration::from_secs_f64(taken / 1000.0);
            for source in [0, 1] {
                flow.on_metrics(source, &meter::tests::source(produced as u64 / 2));
            }
            flow.on_metrics(2, &meter::tests::consumer(consumed as u64 * 10, queue as u64 * 10, busy));
            flow.on_time(Duration::from_secs(second));
            if let Some(order) = flow.poll_order() {
                rate = order.records_per_second.expect("a rate") * 2.0;
            }
        }
        assert!((900.0..=1100.0).contains(&rate), "{rate}");
        assert!(queue < 1000.0, "{queue} records are queued");
    }
}
