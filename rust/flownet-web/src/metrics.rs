//! Defines the metrics of jobs: name, meaning and source of each. Prometheus and OpenTelemetry export them; metric
//! names are defined nowhere else.
//!
//! Names and units follow Prometheus' conventions: base units, and `_total` for counters, which the Prometheus exporter
//! adds. Labels are job, task, subtask and worker, or operator. The number of points is thus bounded by the number of
//! subtasks and operators, plus the bounded metrics of users' functions. It does not depend on the data. Channels have
//! no metrics of their own, because there are many.

use std::borrow::Cow;
use std::time::Duration;

use flownet_cluster::{
    JobSample, JobState, JobStatus, JobView, OperatorReport, TaskSample, UserMetric, VertexReport, WorkerSample,
};
use flownet_runtime::time_accounting::TimeShares;
use flownet_runtime::user_metrics::DistributionSnapshot;

use crate::latency::{self, LatencySpread};
use crate::user_metrics;

/// Status and samples of a job at one moment.
#[derive(Debug)]
pub struct MeasuredJob {
    labels: Labels,
    status: JobStatus,
    sample: JobSample,
    /// Labels of each task, its operators, each subtask and each process of the sample.
    tasks: Vec<Labels>,
    operators: Vec<Labels>,
    subtasks: Vec<Labels>,
    workers: Vec<Labels>,
    latencies: Vec<LatencySpread>,
}

/// Labels of a point: names and values.
pub type Labels = Vec<(&'static str, String)>;

/// One metric with all its points.
#[derive(Debug)]
pub struct Family<'a> {
    /// Name without the common prefix `flownet_`.
    pub name: Cow<'static, str>,
    /// Description of the metric.
    pub help: &'static str,
    /// Kind of the metric.
    pub kind: Kind,
    /// Measured points.
    pub points: Vec<Point<'a>>,
}

/// Kind of a metric.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Value that only grows. It restarts from zero with each attempt of a job.
    Counter,
    /// Value that goes up and down.
    Gauge,
    /// Distribution of values in buckets by size.
    Histogram,
}

/// Point of a metric.
#[derive(Debug)]
pub struct Point<'a> {
    /// Labels of the measured object.
    pub labels: &'a Labels,
    /// Additional label that only this metric has.
    pub own: Option<(&'static str, &'a str)>,
    /// Value of the point.
    pub value: Value<'a>,
}

/// Value of a point.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// Integer, of counted things.
    Whole(u64),
    /// Real number.
    Real(f64),
    /// Histogram.
    Spread(&'a DistributionSnapshot),
}

/// Returns all metrics of `jobs`. Includes families without points, except those of users' functions.
pub fn families(jobs: &[MeasuredJob]) -> Vec<Family<'_>> {
    let each = || jobs.iter().map(|job| (&job.labels, &job.status));
    let subtasks = || jobs.iter().flat_map(MeasuredJob::subtasks);
    let workers = || jobs.iter().flat_map(MeasuredJob::workers);
    let mut families = Vec::new();
    families.extend(OF_JOBS.iter().map(|counter| counted(counter, each())));
    families.extend(OF_JOBS_NOW.iter().map(|gauge| measured(gauge, Kind::Gauge, each())));
    let tasks = || jobs.iter().flat_map(MeasuredJob::tasks);
    families.extend(OF_TASKS_NOW.iter().map(|gauge| measured(gauge, Kind::Gauge, tasks())));
    let operators = || jobs.iter().flat_map(MeasuredJob::operators);
    families.extend(OF_OPERATORS.iter().map(|count| measured(count, Kind::Counter, operators())));
    families.push(bottlenecks(jobs));
    families.push(latency::family(jobs.iter().flat_map(|job| &job.latencies)));
    families.extend(OF_SUBTASKS.iter().map(|counter| counted(counter, subtasks())));
    families.extend(OF_SUBTASKS_NOW.iter().map(|gauge| measured(gauge, Kind::Gauge, subtasks())));
    families.extend(TIMES.iter().map(|time| spent(time, subtasks())));
    families.extend(user_metrics::families(jobs.iter().flat_map(MeasuredJob::user_metrics)));
    families.extend(OF_WORKERS.iter().map(|sum| measured(sum, Kind::Counter, workers())));
    families.extend(OF_WORKERS_NOW.iter().map(|gauge| measured(gauge, Kind::Gauge, workers())));
    families
}

impl MeasuredJob {
    /// Measures a job now. All points of the job get `labels` and its name.
    pub fn now(view: &JobView, labels: Labels) -> Self {
        let (status, sample) = (view.status(), view.sample());
        let labels = [vec![("job", status.job_name.clone())], labels].concat();
        let with = |more: Labels| [labels.clone(), more].concat();
        let task = |name: &str, position: usize| vec![("task", name.to_owned()), ("task_id", position.to_string())];
        let tasks = status.vertices.iter().enumerate().map(|(position, vertex)| with(task(&vertex.name, position)));
        let tasks: Vec<Labels> = tasks.collect();
        let operators = tasks.iter().zip(&status.vertices).flat_map(|(of_task, vertex)| {
            let named = vertex.operators.iter().enumerate();
            named.map(|(position, OperatorReport { name, .. })| {
                let operator = vec![("operator", name.to_string()), ("operator_id", position.to_string())];
                [of_task.clone(), operator].concat()
            })
        });
        let operators = operators.collect();
        let subtasks = sample.tasks.iter().map(|subtask| {
            let place = vec![("subtask", subtask.subtask.to_string()), ("worker", subtask.worker.to_string())];
            with([task(&subtask.name, subtask.vertex as usize), place].concat())
        });
        let workers = sample.workers.iter().map(|worker| with(vec![("worker", worker.worker.to_string())]));
        let (subtasks, workers) = (subtasks.collect(), workers.collect());
        let latencies = latency::spreads(&status, &tasks);
        Self { labels, status, sample, tasks, operators, subtasks, workers, latencies }
    }

    /// Returns the status of the job.
    pub fn status(&self) -> &JobStatus {
        &self.status
    }

    fn tasks(&self) -> impl Iterator<Item = (&Labels, &VertexReport)> {
        self.tasks.iter().zip(&self.status.vertices)
    }

    fn operators(&self) -> impl Iterator<Item = (&Labels, &OperatorReport)> {
        self.operators.iter().zip(self.status.vertices.iter().flat_map(|vertex| &vertex.operators))
    }

    fn subtasks(&self) -> impl Iterator<Item = (&Labels, &TaskSample)> {
        self.subtasks.iter().zip(&self.sample.tasks)
    }

    fn user_metrics(&self) -> impl Iterator<Item = (&Labels, &UserMetric)> {
        self.subtasks().flat_map(|(labels, subtask)| subtask.user_metrics.iter().map(move |metric| (labels, metric)))
    }

    fn workers(&self) -> impl Iterator<Item = (&Labels, &WorkerSample)> {
        self.workers.iter().zip(&self.sample.workers)
    }
}

fn counted<'a, T: 'a>((name, help, count): &Counter<T>, each: impl Iterator<Item = (&'a Labels, &'a T)>) -> Family<'a> {
    let points = each.map(|(labels, of)| Point { labels, own: None, value: Value::Whole(count(of)) });
    Family { name: Cow::Borrowed(name), help, kind: Kind::Counter, points: points.collect() }
}

fn measured<'a, T: 'a>(
    (name, help, measure): &Gauge<T>,
    kind: Kind,
    each: impl Iterator<Item = (&'a Labels, &'a T)>,
) -> Family<'a> {
    let points = each.filter_map(|(labels, of)| {
        let value = Value::Real(measure(of)?);
        Some(Point { labels, own: None, value })
    });
    Family { name: Cow::Borrowed(name), help, kind, points: points.collect() }
}

fn bottlenecks(jobs: &[MeasuredJob]) -> Family<'_> {
    let points = jobs.iter().flat_map(|job| {
        let named = job.status.bottleneck.as_ref().map(|bottleneck| bottleneck.vertex);
        job.tasks.iter().enumerate().map(move |(position, labels)| {
            let value = Value::Real(f64::from(u8::from(named == Some(position))));
            Point { labels, own: None, value }
        })
    });
    let help = "1 for the task that holds up the others, else 0";
    Family { name: Cow::Borrowed("task_bottleneck"), help, kind: Kind::Gauge, points: points.collect() }
}

fn spent<'a>(
    (name, help, label, parts): &'static Time,
    subtasks: impl Iterator<Item = (&'a Labels, &'a TaskSample)>,
) -> Family<'a> {
    let points = subtasks.flat_map(|(labels, subtask)| {
        parts.iter().map(move |(part, spent)| {
            let value = Value::Real(spent(&subtask.metrics.time).as_secs_f64());
            Point { labels, own: Some((*label, *part)), value }
        })
    });
    Family { name: Cow::Borrowed(name), help, kind: Kind::Counter, points: points.collect() }
}

/// Counter: name, help, and function that reads its value.
type Counter<T> = (&'static str, &'static str, fn(&T) -> u64);
/// Metric with a real value, which may be missing: name, help, and function that reads it.
type Gauge<T> = (&'static str, &'static str, fn(&T) -> Option<f64>);

const OF_JOBS: &[Counter<JobStatus>] = &[
    ("job_restarts", "Attempts that failed and were followed by another", |job| job.history.restarted),
    ("job_checkpoints", "Checkpoints that count", |job| job.history.checkpoints_made),
    ("job_checkpoints_failed", "Checkpoints that failed", |job| job.history.checkpoints_failed),
];

const OF_JOBS_NOW: &[Gauge<JobStatus>] = &[
    ("job_running", "1 while tasks run and none begin anew, else 0", |job| {
        Some(f64::from(u8::from(job.state == JobState::Running)))
    }),
    ("job_uptime_seconds", "Time since the job was submitted, until its end", |job| Some(job.elapsed.as_secs_f64())),
    ("job_stalled", "1 while nothing moves although records wait, else 0", |job| {
        Some(f64::from(u8::from(job.stall.is_some())))
    }),
    ("job_workers", "Processes that have registered", |job| Some(job.workers.len() as f64)),
    ("job_last_checkpoint_number", "Number of the last checkpoint that counts", |job| {
        job.history.checkpoints.last().map(|last| last.number as f64)
    }),
    ("job_last_checkpoint_at_seconds", "When it came to count, since the job was submitted", |job| {
        job.history.checkpoints.last().map(|last| last.at.as_secs_f64())
    }),
    ("job_last_checkpoint_duration_seconds", "From its trigger until it counted", |job| {
        job.history.checkpoints.last().map(|last| last.duration.as_secs_f64())
    }),
    ("job_last_checkpoint_aligned_seconds", "The longest that a subtask waited for its barriers", |job| {
        job.history.checkpoints.last().map(|last| last.aligned.as_secs_f64())
    }),
    ("job_last_checkpoint_size_bytes", "State that it is made of", |job| {
        job.history.checkpoints.last().map(|last| last.bytes as f64)
    }),
    ("job_last_checkpoint_written_bytes", "What of this was written for it", |job| {
        job.history.checkpoints.last().map(|last| last.written_bytes as f64)
    }),
];

const OF_TASKS_NOW: &[Gauge<VertexReport>] = &[
    ("task_parallelism", "Subtasks", |task| Some(f64::from(task.parallelism))),
    ("task_back_pressured_ratio", "Share of the last seconds that it waited for what is downstream", |task| {
        Some(task.back_pressured)
    }),
    ("task_busy_ratio", "Share of the last seconds at work, mean over its subtasks", |task| Some(task.busy)),
    ("task_in_flight_seconds", "How long one of its subtasks takes for what is in flight to it, at most", |task| {
        Some(task.in_flight.as_secs_f64())
    }),
];

const OF_OPERATORS: &[Gauge<OperatorReport>] = &[
    ("operator_records_in", "Records that it was given, over all subtasks; none of a source", |operator| {
        Some(operator.records_in as f64)
    }),
    ("operator_records_out", "Records that it handed to those behind it; a sink has none", |operator| {
        operator.records_out.map(|records| records as f64)
    }),
    ("operator_rows_in", "Rows of the records that it was given", |operator| Some(operator.rows_in as f64)),
    ("operator_rows_out", "Rows of the records that it handed on", |operator| {
        operator.rows_out.map(|rows| rows as f64)
    }),
];

const OF_SUBTASKS: &[Counter<TaskSample>] = &[
    ("subtask_records_in", "Records taken from upstream; of a source, read", |task| task.metrics.records_in),
    ("subtask_records_out", "Records handed downstream; of a sink, written", |task| task.metrics.records_out),
    ("subtask_rows_in", "Rows of the records taken", |task| task.metrics.rows_in),
    ("subtask_rows_out", "Rows of the records handed downstream or written", |task| task.metrics.rows_out),
    ("subtask_local_bytes_in", "Bytes read from tasks of the same process", |task| task.metrics.bytes_in_local),
    ("subtask_tcp_bytes_in", "Bytes read over TCP", |task| task.metrics.bytes_in_remote),
    ("subtask_bytes_out", "Bytes handed downstream", |task| task.metrics.bytes_out),
    ("subtask_dropped_records", "Records dropped in front of it, where its exchange may", |task| {
        task.metrics.dropped_records
    }),
    ("subtask_dropped_bytes", "Bytes of these", |task| task.metrics.dropped_bytes),
    ("subtask_late_records", "Records that came too late for their windows", |task| {
        task.metrics.event_time.late_records
    }),
    (
        "subtask_records_ahead",
        "Records that did not move event time, as they were too far ahead of the others",
        |task| task.metrics.event_time.records_ahead,
    ),
];

const OF_SUBTASKS_NOW: &[Gauge<TaskSample>] = &[
    ("subtask_send_queue_buffers", "Buffers that nobody downstream has taken yet", |task| {
        Some(task.metrics.queues.send_buffers as f64)
    }),
    ("subtask_send_queue_bytes", "Bytes in these", |task| Some(task.metrics.queues.send_bytes as f64)),
    ("subtask_receive_queue_buffers", "Buffers that have arrived and were not read yet", |task| {
        Some(task.metrics.queues.receive_buffers as f64)
    }),
    ("subtask_receive_queue_bytes", "Bytes in these", |task| Some(task.metrics.queues.receive_bytes as f64)),
    ("subtask_pool_used_segments", "Segments that its pools have given out", |task| {
        Some(task.metrics.queues.pool_used as f64)
    }),
    ("subtask_pool_size_segments", "Segments that its pools may hold", |task| {
        Some(task.metrics.queues.pool_size as f64)
    }),
    ("subtask_in_pool_usage_ratio", "Share of what the pool of its inputs may hold that is given out", |task| {
        task.metrics.queues.in_pool_usage()
    }),
    ("subtask_out_pool_usage_ratio", "The same of the pools of its outputs", |task| {
        task.metrics.queues.out_pool_usage()
    }),
    ("subtask_watermark_seconds", "How far event time has come, since the epoch", |task| {
        let time = task.metrics.event_time;
        time.lag_ms.and(time.watermark_ms).map(|ms| ms as f64 / 1000.0)
    }),
    ("subtask_watermark_lag_seconds", "How far that is behind the wall clock", |task| {
        task.metrics.event_time.lag_ms.map(|ms| ms as f64 / 1000.0)
    }),
    ("subtask_state_keys", "Keys for which it keeps something, one for each slice of time of a window", |task| {
        task.metrics.tally.state_keys.map(|keys| keys as f64)
    }),
    ("subtask_state_bytes", "Bytes of its state in the last checkpoint that counts", |task| {
        task.state_bytes.map(|bytes| bytes as f64)
    }),
    ("subtask_timers", "Timers that wait, those by which windows fire and joins forget among them", |task| {
        task.metrics.tally.timers.map(|timers| timers as f64)
    }),
    ("subtask_source_lag_bytes", "Bytes that a source knows of and has not read", |task| {
        task.metrics.tally.source_lag_bytes.map(|bytes| bytes as f64)
    }),
    ("subtask_source_lag_records", "Records that a source knows of and has not read", |task| {
        task.metrics.tally.source_lag_records.map(|records| records as f64)
    }),
];

const OF_WORKERS: &[Gauge<WorkerSample>] = &[
    ("worker_cpu_seconds", "Time of processors that the process took, in user and system mode", |worker| {
        Some(worker.cpu.as_secs_f64())
    }),
    ("worker_gc_collections", "Garbage collections of its interpreter, of all generations", |worker| {
        Some(worker.garbage.count as f64)
    }),
    ("worker_gc_seconds", "Time that these took", |worker| Some(worker.garbage.time.as_secs_f64())),
];

const OF_WORKERS_NOW: &[Gauge<WorkerSample>] = &[
    ("worker_resident_memory_bytes", "Memory of the process that is in RAM", |worker| {
        worker.resident_bytes.map(|bytes| bytes as f64)
    }),
    ("worker_threads", "Threads of the process", |worker| worker.threads.map(|threads| threads as f64)),
    ("worker_open_files", "Files, sockets and the like that the process has open", |worker| {
        worker.open_files.map(|files| files as f64)
    }),
    ("worker_network_segments", "Segments of its network memory", |worker| Some(worker.segments as f64)),
    ("worker_network_segments_used", "Those that pools have taken", |worker| Some(worker.segments_used as f64)),
];

/// State of a subtask, and function that reads the time spent in it.
type State = (&'static str, fn(&TimeShares) -> Duration);
/// Time metric: name, help, the label of its parts, and the parts.
type Time = (&'static str, &'static str, &'static str, &'static [State]);

/// States of a subtask. Their times sum to its total time.
const STATES: [State; 8] = [
    ("busy", |time| time.busy),
    ("soft_back_pressured", |time| time.soft_back_pressured),
    ("hard_back_pressured", |time| time.hard_back_pressured),
    ("idle", |time| time.idle.saturating_sub(time.awaiting + time.aligning + time.waiting_for_barrier)),
    ("awaiting", |time| time.awaiting),
    ("aligning", |time| time.aligning),
    ("waiting_for_barrier", |time| time.waiting_for_barrier),
    ("interpreter", |time| time.interpreter),
];

/// Parts of the busy state.
const WORKS: [State; 3] =
    [("python", |time| time.python), ("serialising", |time| time.serialising), ("rust", |time| time.rust)];

/// Parts of the back-pressured states.
const LACKS: [State; 2] = [("credit", |time| time.waiting_for_credit), ("pool", |time| time.waiting_for_pool)];

const TIMES: &[Time] = &[
    (
        "subtask_time_seconds",
        "Time of the subtask by what it was spent on; the states sum to all of it",
        "state",
        &STATES,
    ),
    (
        "subtask_busy_seconds",
        "Time of the busy state by what was worked on, found by looking a hundred times a second",
        "work",
        &WORKS,
    ),
    (
        "subtask_back_pressured_seconds",
        "Time of the back-pressured states by what was waited for",
        "waiting_for",
        &LACKS,
    ),
];
