//! Aggregates the workers' samples to rates, ratios and sums. No I/O, no clock.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use flownet_runtime::{
    MetricsSnapshot, latency::Latency, operator_counts::OperatorCounts, spec::TaskSpec, state_stats::StateStats,
    user_metrics::UserMetricSnapshot,
};

use crate::{
    bottleneck::{ABOUT_EQUAL, Bottleneck},
    error::WorkerIdentity,
    latency::{LatencyReport, LatencySamples},
    machine::JobState,
    operators::OperatorReport,
    plan::{Exchange, Plan},
    report::{
        CheckpointSummary, CheckpointUnderWay, History, JobReport, JobStatus, RestartSummary, UnansweredTask,
        VertexReport,
    },
    sample::{FunctionCounts, JobSample, TaskPlace, TaskSample, WorkerSample},
    settings::JobSettings,
    stall::{Stall, StallHistory},
    time_parts::TimeParts,
    user_metrics::UserMetric,
};

/// Samples of one job, as far as they are still needed.
#[derive(Debug)]
pub(crate) struct Tracker {
    job_name: String,
    vertices: Vec<(String, u32)>,
    exchanges: Vec<Exchange>,
    network_memory_bytes: usize,
    segment_bytes: u64,
    tasks: Vec<TaskSamples>,
    workers: BTreeMap<u32, WorkerSample>,
    stalls: Stalls,
    history: History,
    checkpoint: Option<PendingCheckpoint>,
}

/// Checkpoint that is under way.
#[derive(Debug)]
struct PendingCheckpoint {
    number: u64,
    triggered_at: Duration,
    unanswered: BTreeSet<u32>,
}

/// Tasks that restart while others run.
#[derive(Debug)]
pub(crate) struct FailedTasks<'a> {
    pub(crate) tasks: &'a [u32],
    /// Names of their vertices for users.
    pub(crate) names: Vec<String>,
}

/// Stalls of the job.
#[derive(Debug, Default)]
struct Stalls {
    /// Current stall.
    now: Option<Stall>,
    /// Last stall reported to users, and the number of these reports.
    told: Option<(u32, Stall)>,
    /// Finished stalls, if there were any.
    over: Option<StallHistory>,
}

impl Tracker {
    pub(crate) fn new(settings: &JobSettings, plan: &Plan) -> Self {
        let vertices = plan.vertices.iter().map(|vertex| (vertex.name.clone(), vertex.parallelism));
        let tasks = plan.tasks.iter().map(|task| TaskSamples::new(&task.spec, task.worker));
        Self {
            job_name: settings.job_name.clone(),
            vertices: vertices.collect(),
            exchanges: plan.exchanges.clone(),
            network_memory_bytes: plan.network_memory_bytes(settings),
            segment_bytes: settings.segment_bytes as u64,
            tasks: tasks.collect(),
            workers: BTreeMap::new(),
            stalls: Stalls::default(),
            history: History::default(),
            checkpoint: None,
        }
    }

    /// Begins an attempt: the counters of its tasks start at 0. The first attempt counts from the submission of the
    /// job.
    pub(crate) fn begin_attempt(&mut self, now: Duration) {
        let began = if self.history.restarted == 0 { Duration::ZERO } else { now };
        self.tasks.iter_mut().for_each(|task| task.begin_attempt(began));
        self.checkpoint = None;
    }

    /// Begins attempts of these tasks only.
    pub(crate) fn begin_again(&mut self, tasks: &[u32], names: Vec<String>, now: Duration) {
        for task in tasks {
            if let Some(task) = self.tasks.get_mut(*task as usize) {
                task.begin_attempt(now);
            }
        }
        if let Some(restart) = self.history.restarts.last_mut() {
            restart.tasks = names;
        }
    }

    /// Records the checkpoint that the attempt resumes from, if any.
    pub(crate) fn resumed(&mut self, checkpoint: Option<u64>) {
        match self.history.restarts.last_mut() {
            Some(restart) => restart.resumed_from = checkpoint,
            None => self.history.resumed_from = checkpoint,
        }
    }

    /// Records a failed attempt that another follows: of some tasks, or of the whole job. These tasks make no progress
    /// until it begins.
    pub(crate) fn restarting(
        &mut self,
        cause: String,
        traceback: Option<&str>,
        some: Option<FailedTasks<'_>>,
        now: Duration,
    ) {
        self.history.restarted += 1;
        let tasks = match some {
            None => {
                self.tasks.iter_mut().for_each(TaskSamples::fail);
                Vec::new()
            }
            Some(FailedTasks { tasks, names }) => {
                for task in tasks {
                    if let Some(task) = self.tasks.get_mut(*task as usize) {
                        task.fail();
                    }
                }
                names
            }
        };
        let traceback = traceback.map(last_of);
        keep_last(&mut self.history.restarts, RestartSummary { at: now, cause, traceback, resumed_from: None, tasks });
        let older = self.history.restarts.iter_mut().rev().skip(MOST_TRACEBACKS);
        older.for_each(|restart| restart.traceback = None);
    }

    /// Records a published checkpoint. `bytes` is the size of each task's state in it.
    pub(crate) fn checkpoint_made(&mut self, checkpoint: CheckpointSummary, bytes: &[u64]) {
        self.tasks.iter_mut().zip(bytes).for_each(|(task, bytes)| task.state_bytes = Some(*bytes));
        self.history.checkpoints_made += 1;
        keep_last(&mut self.history.checkpoints, checkpoint);
        let older = self.history.checkpoints.iter_mut().rev().skip(MOST_IN_PARTS);
        older.for_each(|checkpoint| checkpoint.parts = Vec::new());
    }

    /// Records that a checkpoint is under way and waits for these tasks.
    pub(crate) fn checkpoint_waits_for(&mut self, number: u64, tasks: Vec<u32>, now: Duration) {
        let unanswered = tasks.into_iter().collect();
        let pending = self.checkpoint.take().filter(|pending| pending.number == number);
        let triggered_at = pending.map_or(now, |pending| pending.triggered_at);
        self.checkpoint = Some(PendingCheckpoint { number, triggered_at, unanswered });
    }

    /// Records that the checkpoint under way no longer waits for this task.
    pub(crate) fn checkpoint_answered(&mut self, task: u32) {
        if let Some(pending) = &mut self.checkpoint {
            pending.unanswered.remove(&task);
        }
    }

    pub(crate) fn no_checkpoint_under_way(&mut self) {
        self.checkpoint = None;
    }

    pub(crate) fn checkpoint_failed(&mut self, reason: &str) {
        self.history.checkpoints_failed += 1;
        self.history.last_failed_checkpoint = Some(reason.to_owned());
    }

    /// Stores the counters of a task's operators for the next sample.
    pub(crate) fn count_operators(&mut self, task: u32, operators: &[OperatorCounts]) {
        if let Some(task) = self.tasks.get_mut(task as usize) {
            task.operators = operators.into();
        }
    }

    /// Adds a sample of a task, taken `now` after the job's beginning.
    pub(crate) fn sample(&mut self, task: u32, metrics: MetricsSnapshot, now: Duration) {
        if let Some(task) = self.tasks.get_mut(task as usize) {
            let operators = Arc::clone(&task.operators);
            task.sample(Sample { at: now, metrics, operators });
        }
    }

    /// Stores the metrics of a task's functions that belong to the last sample.
    pub(crate) fn sample_users(&mut self, task: u32, metrics: &[UserMetricSnapshot]) {
        if let Some(TaskSamples { counted, .. }) = self.tasks.get_mut(task as usize) {
            counted.previous = std::mem::replace(&mut counted.latest, metrics.to_vec());
        }
    }

    /// Stores the latencies of markers to a task, as of now.
    pub(crate) fn sample_latencies(&mut self, task: u32, latencies: &[Latency], now: Duration) {
        let vertices = self.vertices.len();
        if let Some(TaskSamples { latency, .. }) = self.tasks.get_mut(task as usize) {
            let of_sources = latencies.iter().filter(|latency| (latency.source as usize) < vertices);
            latency.sample(now, of_sources.cloned().collect());
        }
    }

    /// Stores the split of the latest record of a task.
    pub(crate) fn latest_split(&mut self, task: u32, split: &str) {
        if let Some(samples) = self.tasks.get_mut(task as usize) {
            samples.latest_split = Some(split.to_owned());
        }
    }

    /// Stores the report of a worker about its process.
    pub(crate) fn worker(&mut self, sample: WorkerSample) {
        self.workers.insert(sample.worker, sample);
    }

    /// Returns the last report of every task.
    pub(crate) fn job_sample(&self, state: JobState, elapsed: Duration) -> JobSample {
        let tasks = self.tasks.iter().map(|task| task.sample_now());
        let workers = self.workers.values().copied().collect();
        JobSample { state, elapsed, tasks: tasks.collect(), workers, stall: self.stalls.as_of(elapsed) }
    }

    /// Records that the job is stalled; `is_new` if users are notified.
    pub(crate) fn stalled(&mut self, stall: Stall, is_new: bool) {
        if is_new {
            let number = self.stalls.told.as_ref().map_or(0, |(number, _)| *number) + 1;
            self.stalls.told = Some((number, stall.clone()));
        }
        self.stalls.now = Some(stall);
    }

    /// Records that the job makes progress again, `now` after its beginning.
    pub(crate) fn moves_again(&mut self, now: Duration) {
        self.stalls.over = self.stalls.history(now);
        self.stalls.now = None;
    }

    /// Returns the last stall reported to users, if its number is above `after`.
    pub(crate) fn stall_after(&self, after: u32) -> Option<(u32, Stall)> {
        self.stalls.told.as_ref().filter(|(number, _)| *number > after).cloned()
    }

    /// Marks a task as ended. Its last sample stays.
    pub(crate) fn ended(&mut self, task: u32) {
        if let Some(task) = self.tasks.get_mut(task as usize) {
            task.ended = true;
        }
    }

    pub(crate) fn status(&self, state: JobState, elapsed: Duration, workers: Vec<WorkerIdentity>) -> JobStatus {
        let spent = if state == JobState::Ended { TaskSamples::altogether } else { TaskSamples::lately };
        let vertices = self.vertices(spent);
        JobStatus {
            job_name: self.job_name.clone(),
            state,
            elapsed,
            workers,
            bottleneck: self.bottleneck(&vertices),
            vertices,
            exchanges: self.exchanges.clone(),
            network_memory_bytes: self.network_memory_bytes,
            stall: self.stalls.as_of(elapsed),
            checkpoint_under_way: self.checkpoint.as_ref().map(|pending| self.shown(pending, elapsed)),
            user_metrics: self.user_metrics(),
            history: self.history.clone(),
        }
    }

    pub(crate) fn report(&self, elapsed: Duration) -> JobReport {
        let vertices = self.vertices(TaskSamples::altogether);
        let bottleneck = self.bottleneck(&vertices);
        let stalls = self.stalls.history(elapsed);
        let history = self.history.clone();
        let user_metrics = self.user_metrics();
        JobReport {
            job_name: self.job_name.clone(),
            elapsed,
            vertices,
            bottleneck,
            stalls,
            network_memory_bytes: self.network_memory_bytes,
            user_metrics,
            history,
        }
    }

    fn shown(&self, pending: &PendingCheckpoint, elapsed: Duration) -> CheckpointUnderWay {
        let mut by_vertex = BTreeMap::<u32, UnansweredTask>::new();
        for task in pending.unanswered.iter().filter_map(|task| self.tasks.get(*task as usize)) {
            let TaskPlace { name, vertex, subtask, .. } = &task.place;
            let of_vertex = by_vertex.entry(*vertex).or_insert_with(|| UnansweredTask {
                name: name.clone(),
                count: 0,
                subtasks: Vec::new(),
            });
            of_vertex.count += 1;
            if of_vertex.subtasks.len() < MOST_UNANSWERED {
                of_vertex.subtasks.push(*subtask);
            }
        }
        CheckpointUnderWay {
            number: pending.number,
            elapsed: elapsed.saturating_sub(pending.triggered_at),
            unanswered: by_vertex.into_values().collect(),
        }
    }

    fn user_metrics(&self) -> Vec<UserMetric> {
        UserMetric::sums(self.tasks.iter().flat_map(|task| &task.counted.latest))
    }

    fn bottleneck(&self, vertices: &[VertexReport]) -> Option<Bottleneck> {
        let edges: Vec<_> = self.exchanges.iter().map(|exchange| (exchange.from, exchange.to)).collect();
        Bottleneck::find(vertices, &edges)
    }

    fn vertices(&self, spent: fn(&TaskSamples) -> TaskRates) -> Vec<VertexReport> {
        let vertices = self.vertices.iter().enumerate();
        vertices
            .map(|(position, (name, parallelism))| {
                let tasks: Vec<&TaskSamples> =
                    self.tasks.iter().filter(|task| task.place.vertex as usize == position).collect();
                vertex_report(name, *parallelism, &tasks, self.segment_bytes, spent)
            })
            .collect()
    }
}

impl Stalls {
    fn as_of(&self, now: Duration) -> Option<Stall> {
        self.now.clone().map(|stall| Stall { still_for: now.saturating_sub(stall.since), ..stall })
    }

    /// Returns all stalls, including the current one.
    fn history(&self, now: Duration) -> Option<StallHistory> {
        let Some(last) = self.as_of(now) else { return self.over.clone() };
        let (times, total) = self.over.as_ref().map_or((0, Duration::ZERO), |over| (over.times, over.total));
        Some(StallHistory { times: times + 1, total: total + last.still_for, last })
    }
}

/// Samples of one task.
#[derive(Debug)]
struct TaskSamples {
    place: TaskPlace,
    /// Time at which its counters began.
    began: Duration,
    ended: bool,
    /// Whether its attempt has failed and the next one has not begun. It makes no progress then, regardless of late
    /// reports.
    has_failed: bool,
    /// Start of the period for rates: one to two windows before `latest`.
    base: Sample,
    /// Becomes the base when it is one window old.
    next_base: Sample,
    latest: Sample,
    /// Sample before `latest`.
    previous: Sample,
    /// Counters of its operators.
    operators: Arc<[OperatorCounts]>,
    counted: FunctionCounts,
    latency: LatencySamples,
    /// Split of its latest record.
    latest_split: Option<String>,
    /// Size of its state in the last checkpoint.
    state_bytes: Option<u64>,
}

/// Counters at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    pub(crate) metrics: MetricsSnapshot,
    /// Counters of its operators, once they are open.
    pub(crate) operators: Arc<[OperatorCounts]>,
}

/// Rates and shares of a task over a period.
struct TaskRates {
    in_flight: Duration,
    /// Whether the task's clock ran at all.
    has_run: bool,
    records_per_second: f64,
    busy: f64,
    back_pressured: f64,
    idle: f64,
    interpreter: f64,
    awaiting: f64,
    aligning: f64,
    latencies: Vec<Latency>,
    parts: TimeParts,
    operators: Vec<OperatorReport>,
}

impl TaskSamples {
    fn new(spec: &TaskSpec, worker: u32) -> Self {
        let operators = spec.operators.iter().map(|operator| operator.name.as_str().into()).collect();
        let place =
            TaskPlace { name: spec.name.clone(), vertex: spec.vertex, subtask: spec.subtask, worker, operators };
        Self {
            place,
            began: Duration::ZERO,
            ended: false,
            has_failed: false,
            base: Sample::default(),
            next_base: Sample::default(),
            latest: Sample::default(),
            previous: Sample::default(),
            operators: Arc::default(),
            counted: FunctionCounts::default(),
            latency: LatencySamples::default(),
            latest_split: None,
            state_bytes: None,
        }
    }

    fn begin_attempt(&mut self, began: Duration) {
        (self.began, self.ended, self.has_failed) = (began, false, false);
        for sample in [&mut self.base, &mut self.next_base, &mut self.latest, &mut self.previous] {
            *sample = Sample::default();
        }
        (self.operators, self.counted, self.latency) =
            (Arc::default(), FunctionCounts::default(), LatencySamples::default());
        self.latest_split = None;
    }

    /// Marks the attempt as failed: counters stay, rates end.
    fn fail(&mut self) {
        self.has_failed = true;
        self.latency = LatencySamples::default();
        self.stand_still();
    }

    fn stand_still(&mut self) {
        for sample in [&mut self.base, &mut self.next_base, &mut self.previous] {
            *sample = self.latest.clone();
        }
        self.counted.previous = self.counted.latest.clone();
    }

    fn sample(&mut self, sample: Sample) {
        // Late reports of a failed attempt change counters, not rates.
        if self.has_failed {
            self.latest = sample;
            self.stand_still();
            return;
        }
        if sample.at >= self.next_base.at + WINDOW {
            self.base = std::mem::replace(&mut self.next_base, sample.clone());
        }
        self.previous = std::mem::replace(&mut self.latest, sample);
    }

    fn sample_now(&self) -> TaskSample {
        self.place.sample(&self.previous, &self.latest, &self.counted, self.ended, self.state_bytes)
    }

    fn lately(&self) -> TaskRates {
        let spent = self.spent_since(&self.base, self.latest.metrics.in_flight.time);
        TaskRates { latencies: self.latency.lately(), ..spent }
    }

    fn altogether(&self) -> TaskRates {
        let spent = self.spent_since(&Sample::default(), self.latest.metrics.in_flight.longest);
        TaskRates { latencies: self.latency.altogether().to_vec(), ..spent }
    }

    fn spent_since(&self, earlier: &Sample, in_flight: Duration) -> TaskRates {
        TaskRates::between(&self.place.operators, earlier, &self.latest, in_flight)
    }
}

impl TaskRates {
    /// Computes rates and shares between two samples. Time is the task's own, whose clock runs only from its start to
    /// its end.
    fn between(operators: &[Arc<str>], earlier: &Sample, later: &Sample, in_flight: Duration) -> Self {
        let (counted, counted_before) = (&later.operators, &earlier.operators);
        let (earlier, later) = (&earlier.metrics, &later.metrics);
        let time = later.time.since(&earlier.time);
        let seconds = time.total().as_secs_f64();
        let per_second = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        Self {
            in_flight,
            has_run: seconds > 0.0,
            records_per_second: per_second(later.records_in.saturating_sub(earlier.records_in) as f64),
            busy: per_second(time.busy.as_secs_f64()),
            back_pressured: per_second(time.back_pressured().as_secs_f64()),
            idle: per_second(time.idle.as_secs_f64()),
            interpreter: per_second(time.interpreter.as_secs_f64()),
            awaiting: per_second(time.awaiting.as_secs_f64()),
            aligning: per_second(time.aligning.as_secs_f64()),
            latencies: Vec::new(),
            parts: TimeParts::of(&time),
            operators: OperatorReport::all(operators, counted, counted_before, seconds),
        }
    }
}

fn vertex_report(
    name: &str,
    parallelism: u32,
    tasks: &[&TaskSamples],
    segment_bytes: u64,
    spent: fn(&TaskSamples) -> TaskRates,
) -> VertexReport {
    let mut spent: Vec<TaskRates> = tasks.iter().map(|task| spent(task)).collect();
    let operators = OperatorReport::sums(spent.iter_mut().map(|task| std::mem::take(&mut task.operators)));
    // Ended subtasks spend no time. If they were counted, the shares would not add up to the whole.
    let running = spent.iter().filter(|task| task.has_run).count().max(1);
    let mean = |part: fn(&TaskRates) -> f64| spent.iter().map(part).sum::<f64>() / running as f64;
    let busiest = spent.iter().map(|task| task.busy).fold(0.0, f64::max);
    let sum = |part: fn(&MetricsSnapshot) -> u64| tasks.iter().map(|task| part(&task.latest.metrics)).sum();
    let latest = tasks.iter().max_by_key(|task| task.latest.metrics.event_time.out_of_order_ms);
    VertexReport {
        name: name.to_owned(),
        parallelism,
        began: tasks.iter().map(|task| task.began).max().unwrap_or_default(),
        ended: tasks.iter().filter(|task| task.ended).count() as u32,
        records_in: sum(|metrics| metrics.records_in),
        records_out: sum(|metrics| metrics.records_out),
        rows_in: sum(|metrics| metrics.rows_in),
        rows_out: sum(|metrics| metrics.rows_out),
        records_per_second: spent.iter().map(|task| task.records_per_second).sum(),
        bytes_local: sum(|metrics| metrics.bytes_in_local),
        bytes_tcp: sum(|metrics| metrics.bytes_in_remote),
        busy: mean(|task| task.busy),
        back_pressured: mean(|task| task.back_pressured),
        idle: mean(|task| task.idle),
        interpreter: mean(|task| task.interpreter),
        awaiting: mean(|task| task.awaiting),
        aligning: mean(|task| task.aligning),
        parts: TimeParts::mean(spent.iter().map(|task| task.parts), running),
        dropped_records: sum(|metrics| metrics.dropped_records),
        dropped_bytes: sum(|metrics| metrics.dropped_bytes),
        late_records: sum(|metrics| metrics.event_time.late_records),
        records_ahead: sum(|metrics| metrics.event_time.records_ahead),
        timed_records: sum(|metrics| metrics.event_time.timed_records),
        out_of_order_records: sum(|metrics| metrics.event_time.out_of_order_records),
        out_of_order_ms: latest.map_or(0, |task| task.latest.metrics.event_time.out_of_order_ms),
        out_of_order_split: latest.and_then(|task| task.latest_split.clone()),
        watermark_ms: tasks.iter().filter_map(|task| task.latest.metrics.event_time.watermark_ms).min(),
        lag_ms: tasks.iter().filter_map(|task| task.latest.metrics.event_time.lag_ms).max(),
        fill_limit_bytes: smallest_fill_limit(tasks, segment_bytes),
        in_flight: spent.iter().map(|task| task.in_flight).max().unwrap_or_default(),
        tally: tallied(tasks),
        state_bytes: tasks.iter().filter_map(|task| task.state_bytes).reduce(u64::saturating_add),
        latency: LatencyReport::of(
            spent.iter().flat_map(|task| &task.latencies),
            tasks.iter().flat_map(|task| task.latency.altogether()),
        ),
        busiest,
        busiest_subtasks: spent.iter().filter(|task| busiest - task.busy <= ABOUT_EQUAL).count() as u32,
        operators,
    }
}

fn tallied(tasks: &[&TaskSamples]) -> StateStats {
    let mut tally = StateStats::default();
    tasks.iter().for_each(|task| tally.add(&task.latest.metrics.tally));
    tally
}

/// Returns the smallest fill limit of those below the size of a buffer.
fn smallest_fill_limit(tasks: &[&TaskSamples], segment_bytes: u64) -> Option<u64> {
    let limits = tasks.iter().map(|task| task.latest.metrics.in_flight.fill_limit_bytes);
    limits.filter(|limit| (1..segment_bytes).contains(limit)).min()
}

/// Adds to a list that holds only the last entries.
fn keep_last<T>(list: &mut Vec<T>, new: T) {
    if list.len() == MOST_KEPT {
        list.remove(0);
    }
    list.push(new);
}

/// Returns the end of a traceback, which has Python's error message.
fn last_of(traceback: &str) -> String {
    let letters = traceback.chars().count();
    let cut = letters.saturating_sub(MOST_LETTERS);
    let rest: String = traceback.chars().skip(cut).collect();
    if cut > 0 { format!("…{rest}") } else { rest }
}

/// Number of checkpoints with stored parts: every status contains them all, and is fetched often.
const MOST_IN_PARTS: usize = 10;
/// Number of restarts with stored tracebacks, for the same reason.
const MOST_TRACEBACKS: usize = 5;
/// Longest stored traceback, in characters.
const MOST_LETTERS: usize = 8000;
/// Number of subtasks of a task that are named if they have not answered a checkpoint.
const MOST_UNANSWERED: usize = 10;
/// Number of stored checkpoints and of stored restarts.
const MOST_KEPT: usize = 100;
/// Window of rates. The rates of a status cover one to two windows.
const WINDOW: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use flownet_runtime::InFlightSnapshot;
    use flownet_runtime::time_accounting::TimeShares;

    use super::*;
    use crate::{plan::tests::DataflowBuilder, stall::StallCause};

    const SECOND: Duration = Duration::from_secs(1);

    fn tracker() -> Tracker {
        let settings = JobSettings::default();
        let plan = Plan::new(&DataflowBuilder::word_count().0, &settings).expect("a sound dataflow");
        Tracker::new(&settings, &plan)
    }

    fn failed(tasks: &[u32]) -> Option<FailedTasks<'_>> {
        Some(FailedTasks { tasks, names: vec!["count".into()] })
    }

    fn metrics(records_in: u64, busy: Duration, idle: Duration) -> MetricsSnapshot {
        let time = TimeShares { busy, idle, ..TimeShares::default() };
        MetricsSnapshot { records_in, time, bytes_in_local: 10, bytes_in_remote: 20, ..MetricsSnapshot::default() }
    }

    #[test]
    fn a_status_shows_what_happens_lately_and_a_report_the_whole() {
        let mut tracker = tracker();
        // Ten idle seconds, then five busy ones with 1000 records each.
        for at in 1..=10 {
            tracker.sample(0, metrics(0, Duration::ZERO, SECOND * at), SECOND * at);
        }
        for busy in 1..=5 {
            tracker.sample(0, metrics(1000 * u64::from(busy), SECOND * busy, SECOND * 10), SECOND * (10 + busy));
        }
        let status = tracker.status(JobState::Running, SECOND * 15, Vec::new());
        let source = &status.vertices[0];
        assert_eq!((source.records_in, source.records_per_second.round()), (5000, 1000.0));
        assert_eq!((source.busiest, source.busy), (1.0, 1.0), "the second subtask has not run");
        let source = &tracker.report(SECOND * 15).vertices[0];
        assert_eq!(source.records_per_second.round(), 333.0);
        assert_eq!((source.busiest * 3.0).round(), 1.0);
    }

    #[test]
    fn the_tracebacks_of_the_last_restarts_are_kept_by_their_ends() {
        let mut tracker = tracker();
        let long = "ä".repeat(2 * MOST_LETTERS);
        for number in 0..=MOST_TRACEBACKS {
            tracker.restarting(number.to_string(), Some(&long), None, SECOND);
        }
        let restarts = tracker.status(JobState::Running, SECOND, Vec::new()).history.restarts;
        assert_eq!(restarts.len(), MOST_TRACEBACKS + 1);
        assert_eq!(restarts[0].traceback, None);
        let kept = restarts[1].traceback.as_deref().expect("one of the last");
        assert_eq!((kept.chars().count(), kept.chars().next()), (MOST_LETTERS + 1, Some('…')));
    }

    #[test]
    fn tasks_that_begin_anew_count_from_then_and_others_go_on() {
        let mut tracker = tracker();
        for task in 0..4 {
            tracker.sample(task, metrics(10, SECOND, SECOND), SECOND * 2);
        }
        tracker.restarting("lost".into(), None, failed(&[2]), SECOND * 3);
        tracker.begin_again(&[2, 3], vec!["count".into(), "print".into()], SECOND * 4);
        tracker.resumed(Some(7));
        let status = tracker.status(JobState::Running, SECOND * 4, Vec::new());
        let told: Vec<_> = status.vertices.iter().map(|vertex| (vertex.records_in, vertex.began)).collect();
        assert_eq!(told, [(20, Duration::ZERO), (0, SECOND * 4)]);
        let [restart] = status.history.restarts.as_slice() else { panic!("{:?}", status.history.restarts) };
        assert_eq!(
            (restart.tasks.len(), restart.resumed_from),
            (2, Some(7)),
            "who joined them meanwhile is named, too"
        );
    }

    #[test]
    fn between_two_attempts_counters_stay_and_rates_are_zero() {
        let mut tracker = tracker();
        for at in 1..=3 {
            tracker.sample(2, metrics(1000 * u64::from(at), SECOND * at, Duration::ZERO), SECOND * at);
            tracker.sample(0, metrics(1000 * u64::from(at), SECOND * at, Duration::ZERO), SECOND * at);
        }
        let told = |tracker: &Tracker| {
            let status = tracker.status(JobState::Restarting, SECOND * 6, Vec::new());
            let source = tracker.job_sample(JobState::Restarting, SECOND * 6).tasks[0].records_in_per_second;
            let of = |vertex: usize| (status.vertices[vertex].records_in, status.vertices[vertex].records_per_second);
            (of(0), of(1), source, status.bottleneck.is_some())
        };
        tracker.restarting("lost".into(), None, failed(&[2, 3]), SECOND * 4);
        assert_eq!(told(&tracker), ((3000, 1000.0), (3000, 0.0), 1000.0, true), "the source runs on");
        tracker.restarting("lost".into(), None, None, SECOND * 4);
        // Late reports of a worker change only counters.
        tracker.sample(0, metrics(3500, SECOND * 4, Duration::ZERO), SECOND * 5);
        assert_eq!(told(&tracker), ((3500, 0.0), (3000, 0.0), 0.0, false));
        tracker.begin_attempt(SECOND * 6);
        tracker.sample(0, metrics(500, SECOND, Duration::ZERO), SECOND * 7);
        let source = &tracker.status(JobState::Running, SECOND * 7, Vec::new()).vertices[0];
        assert_eq!((source.records_in, source.records_per_second, source.began), (500, 500.0, SECOND * 6));
    }

    #[test]
    fn a_checkpoint_under_way_names_the_subtasks_that_have_not_answered() {
        let mut tracker = tracker();
        let shown = |tracker: &Tracker, at: u32| {
            let under_way = tracker.status(JobState::Running, SECOND * at, Vec::new()).checkpoint_under_way?;
            let unanswered = under_way.unanswered.into_iter().map(|task| (task.count, task.subtasks));
            Some((under_way.number, under_way.elapsed, unanswered.collect::<Vec<_>>()))
        };
        assert_eq!(shown(&tracker, 1), None);
        tracker.checkpoint_waits_for(7, vec![0, 1, 2, 3], SECOND);
        tracker.checkpoint_answered(0);
        tracker.checkpoint_answered(1);
        tracker.checkpoint_answered(2);
        assert_eq!(shown(&tracker, 3), Some((7, SECOND * 2, vec![(1, vec![1])])));
        tracker.checkpoint_waits_for(7, vec![2, 3], SECOND * 3);
        assert_eq!(shown(&tracker, 4), Some((7, SECOND * 3, vec![(2, vec![0, 1])])), "it overtakes");
        tracker.no_checkpoint_under_way();
        assert_eq!(shown(&tracker, 5), None);
    }

    #[test]
    fn subtasks_add_up() {
        let mut tracker = tracker();
        tracker.sample(2, metrics(10, SECOND, SECOND), SECOND * 2);
        tracker.sample(3, metrics(30, SECOND * 2, Duration::ZERO), SECOND * 2);
        tracker.ended(3);
        let count = &tracker.report(SECOND * 2).vertices[1];
        assert_eq!((count.records_in, count.ended), (40, 1));
        assert_eq!((count.bytes_local, count.bytes_tcp), (20, 40));
        assert_eq!((count.busy, count.idle, count.busiest), (0.75, 0.25, 1.0));
        assert_eq!(count.records_per_second, 20.0);
    }

    #[test]
    fn a_status_says_what_is_in_flight_and_a_report_the_most_there_was() {
        let mut tracker = tracker();
        let found = |fill_limit_bytes, time, longest| MetricsSnapshot {
            in_flight: InFlightSnapshot { fill_limit_bytes, time, longest },
            ..metrics(1, SECOND, SECOND)
        };
        // One subtask has measured nothing, one has full buffers, two are limited.
        tracker.sample(1, found(32 * 1024, SECOND, SECOND), SECOND * 2);
        tracker.sample(2, found(300, SECOND / 2, SECOND * 2), SECOND * 2);
        tracker.sample(3, found(200, SECOND / 4, SECOND * 3), SECOND * 2);
        let status = tracker.status(JobState::Running, SECOND * 2, Vec::new());
        assert_eq!((status.vertices[0].fill_limit_bytes, status.vertices[1].fill_limit_bytes), (None, Some(200)));
        assert_eq!(status.vertices[1].in_flight, SECOND / 2);
        assert_eq!(tracker.report(SECOND * 2).vertices[1].in_flight, SECOND * 3);
    }

    #[test]
    fn the_shares_of_a_vertex_add_up_when_one_subtask_has_ended() {
        let mut tracker = tracker();
        for at in 1..=10 {
            tracker.sample(2, metrics(0, SECOND, Duration::ZERO), SECOND * at);
            tracker.sample(3, metrics(0, SECOND * at, SECOND * at), SECOND * at);
        }
        tracker.ended(2);
        let count = &tracker.status(JobState::Running, SECOND * 10, Vec::new()).vertices[1];
        assert_eq!((count.busy, count.back_pressured, count.idle), (0.5, 0.0, 0.5));
    }

    #[test]
    fn a_sample_shows_what_happened_between_the_last_two_reports() {
        let mut tracker = tracker();
        tracker.sample(2, metrics(10, SECOND, Duration::ZERO), SECOND);
        tracker.sample(2, metrics(40, SECOND * 2, SECOND), SECOND * 3);
        let sample = tracker.job_sample(JobState::Running, SECOND * 4);
        let task = &sample.tasks[2];
        assert_eq!((task.vertex, task.subtask, task.at), (1, 0, SECOND * 3));
        assert_eq!((task.metrics.records_in, task.records_in_per_second), (40, 15.0));
        assert_eq!((task.busy, task.idle), (0.5, 0.5));
        assert_eq!(sample.tasks.len(), 4, "those without a report are there too");
    }

    #[test]
    fn a_stall_is_shown_while_it_lasts_told_once_and_counted_at_the_end() {
        let stall = |since: u32| Stall {
            since: SECOND * since,
            still_for: SECOND * 10,
            cause: StallCause::Exchange,
            summary: "count waits".into(),
            chain: Vec::new(),
            waiting: 1,
        };
        let mut tracker = tracker();
        let shown = |tracker: &Tracker, at: u32| {
            let status = tracker.status(JobState::Running, SECOND * at, Vec::new()).stall;
            assert_eq!(tracker.job_sample(JobState::Running, SECOND * at).stall, status);
            status.map(|stall| stall.still_for)
        };
        assert_eq!((shown(&tracker, 1), tracker.report(SECOND).stalls), (None, None));
        tracker.stalled(stall(5), true);
        assert_eq!(shown(&tracker, 17), Some(SECOND * 12), "it goes on");
        assert_eq!(tracker.stall_after(0), Some((1, stall(5))));
        assert_eq!(tracker.stall_after(1), None);
        tracker.moves_again(SECOND * 20);
        assert_eq!(shown(&tracker, 21), None);

        tracker.stalled(stall(30), false);
        assert_eq!((shown(&tracker, 41), tracker.stall_after(1)), (Some(SECOND * 11), None));
        let stalls = tracker.report(SECOND * 50).stalls.expect("two stalls");
        assert_eq!(stalls.to_string(), "2 times, 35 s altogether; the last time: count waits");
    }

    #[test]
    fn a_sample_of_an_unknown_task_changes_nothing() {
        let mut tracker = tracker();
        tracker.sample(99, metrics(1, SECOND, SECOND), SECOND);
        tracker.ended(99);
        assert!(tracker.report(SECOND).vertices.iter().all(|vertex| vertex.records_in == 0));
    }
}
