//! Explains the resources of a plan before it runs: tasks, exchanges, channels, buffers.
//!
//! The function that sizes the pools at deployment also counts the buffers here. So the explanation matches the
//! deployment.

use std::{collections::BTreeMap, fmt, time::Duration};

use flownet_net::{NetworkConfig, ReceiveBounds};
use flownet_runtime::{
    buffers_needed,
    spec::{FlowControl, Partitioner},
};

use crate::{
    plan::{Dataflow, Exchange, Feedback, Plan, PlanError, Vertex},
    settings::JobSettings,
};

/// Resources of a plan. `Display` writes them as text for users.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Explanation {
    /// The tasks, in topological order.
    pub tasks: Vec<Vertex>,
    /// The exchanges between them.
    pub exchanges: Vec<Exchange>,
    /// Feedback of the iterations.
    pub feedback: Vec<Feedback>,
    /// Buffers of each process that runs tasks.
    pub demands: Vec<WorkerDemand>,
    /// Bytes per buffer.
    pub segment_bytes: usize,
    /// Longest time that a record waits in a buffer.
    pub buffer_timeout: Option<Duration>,
    /// Time in which a task should process its in-flight data.
    pub max_in_flight_time: Option<Duration>,
    /// Bytes that credit allows in flight on a long link, if that was set.
    pub bandwidth_delay_bytes: Option<usize>,
    /// Reason why the job would be refused, if it would.
    pub refusal: Option<PlanError>,
}

/// Buffers of one process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WorkerDemand {
    /// The worker; 0 is the submitting process.
    pub worker: u32,
    /// Fewest buffers with which its tasks can make progress.
    pub needed: usize,
    /// Number of buffers above which more would not be used.
    pub wanted: usize,
    /// Number of buffers that it has.
    pub total: usize,
}

/// Explains `dataflow` with `settings`. Also explains a plan that does not fit its memory, with the reason why it would
/// be refused.
///
/// # Errors
/// Fails if there is no plan to explain.
pub fn explain(dataflow: &Dataflow, settings: &JobSettings) -> Result<Explanation, PlanError> {
    Ok(Explanation::of(&Plan::new(dataflow, settings)?, settings))
}

impl Plan {
    /// Returns the buffers of every process that runs tasks, by worker.
    pub fn demands(&self, settings: &JobSettings) -> Vec<WorkerDemand> {
        let config = network_config(settings);
        let mut demands: BTreeMap<u32, WorkerDemand> = BTreeMap::new();
        for task in &self.tasks {
            let worker = task.worker;
            let buffers = buffers_needed(&task.spec, worker, &config);
            let demand = demands.entry(worker).or_insert(WorkerDemand { worker, needed: 0, wanted: 0, total: 0 });
            demand.needed += buffers.min;
            demand.wanted += buffers.max;
        }
        for demand in demands.values_mut() {
            demand.total = settings.segments(demand.needed);
        }
        demands.into_values().collect()
    }

    /// Returns the network memory of the process that has most.
    pub(crate) fn network_memory_bytes(&self, settings: &JobSettings) -> usize {
        let largest = self.demands(settings).iter().map(|demand| demand.total).max();
        largest.unwrap_or_else(|| settings.segments(0)).saturating_mul(settings.segment_bytes)
    }

    /// Checks that the minimum of every process fits its memory.
    ///
    /// # Errors
    /// [`PlanError::InsufficientBuffers`] for the process that lacks most.
    pub fn check_buffers(&self, settings: &JobSettings) -> Result<(), PlanError> {
        let demands = self.demands(settings);
        let Some(largest) = demands.iter().rev().max_by_key(|demand| demand.needed) else { return Ok(()) };
        if largest.needed <= largest.total {
            return Ok(());
        }
        Err(PlanError::InsufficientBuffers {
            worker: largest.worker,
            needed: largest.needed,
            total: largest.total,
            segment_bytes: settings.segment_bytes,
            memory_bytes: largest.needed.saturating_mul(settings.segment_bytes),
        })
    }
}

/// Returns the settings of the data plane, for the plan and for the workers.
pub(crate) fn network_config(settings: &JobSettings) -> NetworkConfig {
    let config = NetworkConfig {
        exclusive_buffers: settings.exclusive_buffers,
        floating_buffers: settings.floating_buffers,
        receive_buffers: settings.receive_buffer_bytes.map(|bytes| buffers_of(bytes, settings.segment_bytes)),
        receive_bounds: ReceiveBounds {
            queue_bytes: settings.receive_buffer_bytes,
            limit_bytes: settings.receive_limit_bytes,
        },
        max_in_flight_time: settings.max_in_flight_time,
        heartbeat_interval: settings.heartbeat_interval,
        heartbeat_timeout: settings.heartbeat_timeout,
        ..NetworkConfig::default()
    };
    match settings.bandwidth_delay_bytes {
        Some(bytes) => config.with_bandwidth_delay(bytes, settings.segment_bytes),
        None => config,
    }
}

fn buffers_of(bytes: usize, segment_bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(segment_bytes.max(1))).unwrap_or(u32::MAX)
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.tasks.iter().map(|task| task.name.chars().count()).max().unwrap_or(0) + NAME_GAP;
        let (driver, workers): (Vec<_>, Vec<_>) = self.demands.iter().partition(|demand| demand.worker == 0);
        for (position, task) in self.tasks.iter().enumerate() {
            for exchange in self.exchanges.iter().filter(|exchange| exchange.to == position) {
                self.write_exchange(f, exchange)?;
            }
            for feedback in self.feedback.iter().filter(|feedback| feedback.to == position) {
                self.write_feedback(f, feedback)?;
            }
            // Without workers everything runs on the driver, so the place is omitted.
            let place = if workers.is_empty() { String::new() } else { place_text(task) };
            writeln!(f, "task {}  {:width$}parallelism {}{place}", position + 1, task.name, task.parallelism)?;
        }
        self.write_demand(f, &workers, "a worker")?;
        self.write_demand(f, &driver, "in this process")?;
        match &self.refusal {
            Some(refusal) => write!(f, "refused: {refusal}"),
            None => Ok(()),
        }
    }
}

impl Explanation {
    /// Explains a plan with the settings that it was made with.
    pub(crate) fn of(plan: &Plan, settings: &JobSettings) -> Self {
        Self {
            tasks: plan.vertices.clone(),
            exchanges: plan.exchanges.clone(),
            feedback: plan.feedback.clone(),
            demands: plan.demands(settings),
            segment_bytes: settings.segment_bytes,
            buffer_timeout: settings.buffer_timeout,
            max_in_flight_time: settings.max_in_flight_time,
            bandwidth_delay_bytes: settings.bandwidth_delay_bytes,
            refusal: plan.check_buffers(settings).err(),
        }
    }

    fn write_exchange(&self, f: &mut fmt::Formatter<'_>, exchange: &Exchange) -> fmt::Result {
        let Exchange { from, to, partitioner, channels, flow_control } = exchange;
        let kind = partitioner_name(*partitioner);
        write!(f, "   | {kind}, ")?;
        if from + 1 != *to {
            write!(f, "from task {}, ", from + 1)?;
        }
        let (producers, consumers) = (self.tasks[*from].parallelism, self.tasks[*to].parallelism);
        match partitioner {
            Partitioner::Forward | Partitioner::Rescale => write!(f, "{channels}")?,
            _ => write!(f, "{producers} x {consumers} = {channels}")?,
        }
        let plural = if *channels == 1 { "" } else { "s" };
        let (timeout, on_the_way) = (timeout_text(self.buffer_timeout), self.on_the_way_text(*flow_control));
        let in_flight = self.in_flight_text(*flow_control);
        writeln!(f, " channel{plural}, {}{on_the_way}{in_flight}, {timeout}", flow_control.name())
    }

    fn write_feedback(&self, f: &mut fmt::Formatter<'_>, feedback: &Feedback) -> fmt::Result {
        let Feedback { from, to, memory_bytes, disk_bytes } = feedback;
        let queues = self.tasks[*to].parallelism;
        let plural = if queues == 1 { "" } else { "s" };
        let (memory, disk) = (bytes_text(*memory_bytes), bytes_text(*disk_bytes));
        writeln!(f, "   | feedback, from task {}, {queues} queue{plural} of {memory}, then {disk} on disk", from + 1)
    }

    fn on_the_way_text(&self, flow_control: FlowControl) -> String {
        match (flow_control, self.bandwidth_delay_bytes) {
            (FlowControl::Credit, Some(bytes)) => format!(" for {} KiB on the way", bytes.div_ceil(1024)),
            _ => String::new(),
        }
    }

    fn in_flight_text(&self, flow_control: FlowControl) -> String {
        match (flow_control, self.max_in_flight_time) {
            (FlowControl::Credit, Some(time)) => format!(", up to {} in flight", time_text(time)),
            _ => String::new(),
        }
    }

    fn write_demand(&self, f: &mut fmt::Formatter<'_>, demands: &[&WorkerDemand], place: &str) -> fmt::Result {
        let most = |part: fn(&WorkerDemand) -> usize| demands.iter().map(|demand| part(demand)).max();
        let (Some(needed), Some(wanted)) = (most(|demand| demand.needed), most(|demand| demand.wanted)) else {
            return Ok(());
        };
        let size = match self.segment_bytes {
            bytes if bytes % 1024 == 0 => format!("{} KiB", bytes / 1024),
            bytes => format!("{bytes} bytes"),
        };
        // Workers with more tasks may have more.
        let (total, least) = (most(|demand| demand.total), demands.iter().map(|demand| demand.total).min());
        let (total, least) = (total.unwrap_or(0), least.unwrap_or(0));
        let totals = if least < total { format!("{least} to {total}") } else { total.to_string() };
        let memory = memory_text(total.saturating_mul(self.segment_bytes));
        writeln!(f, "buffers: needs {needed}, wants {wanted} of {totals} ({size} each, {memory}) {place}")
    }
}

/// Returns the name of an exchange for users.
pub(crate) fn partitioner_name(partitioner: Partitioner) -> &'static str {
    match partitioner {
        Partitioner::Forward => "forward",
        Partitioner::Rebalance => "rebalance",
        Partitioner::Rescale => "rescale",
        Partitioner::Broadcast => "broadcast",
        Partitioner::KeyGroup => "keyed",
        Partitioner::Custom => "custom",
    }
}

fn place_text(task: &Vertex) -> String {
    match task.workers.as_slice() {
        _ if task.on_driver => "  on the driver".to_owned(),
        [] => String::new(),
        [worker] => format!("  on worker {worker}"),
        several => format!("  on workers {}", several.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    }
}

fn timeout_text(timeout: Option<Duration>) -> String {
    match timeout {
        None => "full buffers only".to_owned(),
        Some(Duration::ZERO) => "each record at once".to_owned(),
        Some(timeout) => format!("buffer timeout {}", time_text(timeout)),
    }
}

fn bytes_text(bytes: u64) -> String {
    match bytes {
        bytes if bytes > 0 && bytes % (1 << 30) == 0 => format!("{} GiB", bytes >> 30),
        bytes if bytes > 0 && bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
        bytes if bytes > 0 && bytes % (1 << 10) == 0 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} bytes"),
    }
}

/// Returns an approximate size for users.
fn memory_text(bytes: usize) -> String {
    match bytes.div_ceil(1 << 20) {
        0 | 1 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        mebibytes => format!("{mebibytes} MiB"),
    }
}

fn time_text(time: Duration) -> String {
    match time.as_micros() {
        micros if micros % 1_000_000 == 0 => format!("{} s", micros / 1_000_000),
        micros if micros % 1000 == 0 => format!("{} ms", micros / 1000),
        micros => format!("{micros} us"),
    }
}

const NAME_GAP: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::DataflowBuilder;

    fn settings() -> JobSettings {
        JobSettings { workers: 2, buffer_timeout: Some(Duration::from_millis(10)), ..JobSettings::default() }
    }

    #[test]
    fn a_word_count_is_explained_in_four_lines() {
        let text = explain(&DataflowBuilder::word_count().0, &settings()).unwrap().to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "task 1  read_text -> flat_map    parallelism 2");
        assert_eq!(lines[1], "   | keyed, 2 x 2 = 4 channels, credit, up to 1 s in flight, buffer timeout 10 ms");
        assert_eq!(lines[2], "task 2  count -> print           parallelism 2");
        assert!(
            lines[3].starts_with("buffers: needs ") && lines[3].ends_with(" of 2048 (32 KiB each, 64 MiB) a worker")
        );
        assert_eq!(lines.len(), 4, "{text}");
    }

    #[test]
    fn what_a_long_link_holds_is_said_and_wanted() {
        let explained = |settings| explain(&DataflowBuilder::word_count().0, &settings).unwrap();
        let long = JobSettings { bandwidth_delay_bytes: Some(1_250_000), ..settings() };
        let (short, long) = (explained(settings()), explained(long));
        assert!(
            long.to_string()
                .contains("channels, credit for 1221 KiB on the way, up to 1 s in flight, buffer timeout 10 ms\n"),
            "{long}"
        );
        // Each worker has a partition and a gate, each with room for the link instead of its floating buffers.
        assert_eq!(long.demands[0].wanted, short.demands[0].wanted + 2 * (39 + 16 - 8));
        assert_eq!(long.demands[0].needed, short.demands[0].needed);
    }

    #[test]
    fn an_exchange_that_skips_a_task_says_where_it_comes_from() {
        let flow = DataflowBuilder::default()
            .operator("a", 1)
            .operator("b", 1)
            .operator("union", 1)
            .edge("a", "union", Partitioner::Rebalance)
            .edge("b", "union", Partitioner::Rescale)
            .with("union", |union| union.on_driver = true);
        let settings = JobSettings { buffer_timeout: None, max_in_flight_time: None, ..settings() };
        let text = explain(&flow.0, &settings).unwrap().to_string();
        assert!(text.contains("   | rebalance, from task 1, 1 x 1 = 1 channel, credit, full buffers only\n"), "{text}");
        assert!(text.contains("   | rescale, 1 channel, credit, full buffers only\n"), "{text}");
        assert!(text.contains("task 3  union    parallelism 1  on the driver\n"), "{text}");
        assert!(text.contains(" in this process\n"), "{text}");
    }

    #[test]
    fn where_an_operator_was_placed_is_said_unless_there_are_no_workers() {
        let flow = DataflowBuilder::word_count().with("count", |count| count.workers = vec![1, 2]);
        let flow = flow.with("print", |print| print.workers = vec![2]);
        let text = explain(&flow.0, &settings()).unwrap().to_string();
        assert!(text.contains("parallelism 2  on workers 1, 2\n"), "{text}");
        assert!(text.contains("parallelism 2  on worker 2\n"), "{text}");
        let text = explain(&flow.0, &JobSettings { workers: 0, ..settings() }).unwrap().to_string();
        assert!(!text.contains("worker"), "{text}");
    }

    #[test]
    fn what_does_not_fit_is_refused_with_numbers_and_settings_but_still_explained() {
        let settings = JobSettings { network_memory_bytes: Some(2 * 32 * 1024), ..settings() };
        let explanation = explain(&DataflowBuilder::word_count().0, &settings).unwrap();
        let refusal = explanation.refusal.clone().expect("two buffers are not enough");
        let PlanError::InsufficientBuffers { needed, total: 2, memory_bytes, .. } = refusal else {
            panic!("{refusal}");
        };
        assert_eq!(memory_bytes, needed * 32 * 1024);
        let enough = JobSettings { network_memory_bytes: Some(memory_bytes), ..settings.clone() };
        assert_eq!(explain(&DataflowBuilder::word_count().0, &enough).unwrap().refusal, None);
        let text = explanation.to_string();
        for word in ["network_memory", "parallelism", "segment_size", "refused: worker 1 needs at least"] {
            assert!(text.contains(word), "{word} in {text}");
        }
    }

    #[test]
    fn a_plan_gets_the_memory_it_needs_unless_a_limit_is_set() {
        let flow = DataflowBuilder::default().operator("a", 1500).operator("b", 1500).operator("c", 1);
        let flow = flow.edge("a", "b", Partitioner::KeyGroup).edge("b", "c", Partitioner::Rebalance);
        let flow = flow.with("a", |task| task.workers = vec![1]).with("b", |task| task.workers = vec![1]);
        let flow = flow.with("c", |task| task.workers = vec![2]);
        let explanation = explain(&flow.0, &settings()).unwrap();
        let totals: Vec<_> = explanation.demands.iter().map(|demand| (demand.needed, demand.total)).collect();
        // Two for each partition, and one for the gate of the other worker, whose total is the default.
        assert_eq!((totals, explanation.refusal.clone()), (vec![(6000, 6000), (1, 2048)], None));
        let text = explanation.to_string();
        assert!(text.ends_with(" of 2048 to 6000 (32 KiB each, 188 MiB) a worker\n"), "{text}");
        let limited = JobSettings { network_memory_bytes: Some(64 << 20), ..settings() };
        let refused = explain(&flow.0, &limited).unwrap();
        assert!(matches!(
            refused.refusal,
            Some(PlanError::InsufficientBuffers {
                worker: 1,
                needed: 6000,
                total: 2048,
                memory_bytes: 196_608_000,
                ..
            })
        ));
    }

    #[test]
    fn four_hundred_workers_need_no_more_memory_than_four() {
        let explained = |workers| {
            let flow = DataflowBuilder::default().operator("a", workers).operator("b", workers).operator("c", workers);
            let flow = flow.edge("a", "b", Partitioner::KeyGroup).edge("b", "c", Partitioner::Rebalance);
            explain(&flow.0, &JobSettings { workers, ..settings() }).unwrap()
        };
        let (four, many) = (explained(4), explained(400));
        assert_eq!((many.demands.len(), &many.refusal), (400, &None));
        assert_eq!(many.demands[399].needed, four.demands[3].needed);
        assert!(many.demands.iter().all(|demand| demand.total == 2048));
        assert!(many.to_string().ends_with("(32 KiB each, 64 MiB) a worker\n"), "{many}");
    }

    #[test]
    fn tasks_need_buffers_and_channels_want_them() {
        let flow = |parallelism| {
            let flow = DataflowBuilder::default().operator("a", parallelism).operator("b", parallelism);
            flow.edge("a", "b", Partitioner::KeyGroup)
        };
        let demand = |parallelism| {
            let explanation = explain(&flow(parallelism).0, &settings()).unwrap();
            assert_eq!(explanation.refusal, None, "all to all of parallelism {parallelism} fits");
            *explanation.demands.iter().max_by_key(|demand| demand.needed).unwrap()
        };
        let (few, many) = (demand(8), demand(128));
        assert_eq!(many.needed, 16 * few.needed, "as many times as there are more tasks");
        assert!(many.wanted > 100 * few.wanted, "but channels go by the square: {few:?}, {many:?}");
    }
}
