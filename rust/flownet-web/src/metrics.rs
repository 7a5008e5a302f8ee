//! The jobs as Prometheus reads them.
//!
//! Names and units are by its conventions: base units, `_total` for what only grows. Labels are job, task, subtask and worker,
//! so there are as many lines as the jobs have subtasks (and functions' own metrics, which are bounded) and no more, whatever
//! goes through them. A job that has ended is there
//! for some minutes, so that its last numbers are scraped, too.

use std::fmt;
use std::time::Duration;

use flownet_cluster::{JobSample, JobState, JobStatus, TaskSample, UserMetric, VertexReport, WorkerSample};
use flownet_runtime::ledger::TimeShares;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;

use crate::jobs::{Jobs, ShownJob, now_ms};
use crate::user_metrics;

/// What the text is.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of now.
pub(crate) fn text(jobs: &Jobs) -> String {
    let jobs = jobs.all();
    let scraped = jobs.iter().filter_map(|job| ScrapedJob::of(job));
    let mut registry = Registry::with_prefix("flownet");
    registry.register_collector(Box::new(Scrape { jobs: scraped.collect() }));
    let mut text = String::new();
    // Writing to a text cannot fail.
    let _ = encode(&mut text, &registry);
    text
}

/// What is known at one moment.
#[derive(Debug)]
struct Scrape {
    jobs: Vec<ScrapedJob>,
}

#[derive(Debug)]
struct ScrapedJob {
    labels: Labels,
    status: JobStatus,
    sample: JobSample,
    /// Of each task, of each subtask and of each process of the sample.
    tasks: Vec<Labels>,
    subtasks: Vec<Labels>,
    workers: Vec<Labels>,
}

pub(crate) type Labels = Vec<(&'static str, String)>;

/// A number that something has.
type Counter<T> = (&'static str, &'static str, fn(&T) -> u64);
/// One that may go down, or is not there.
type Gauge<T> = (&'static str, &'static str, fn(&T) -> Option<f64>);

const OF_JOBS: &[Counter<JobStatus>] = &[
    ("job_restarts", "Attempts that failed and were followed by another", |job| job.history.restarted),
    ("job_checkpoints", "Checkpoints that count", |job| job.history.checkpoints_made),
    ("job_checkpoints_failed", "Checkpoints that failed", |job| job.history.checkpoints_failed),
];

const OF_JOBS_NOW: &[Gauge<JobStatus>] = &[
    ("job_running", "1 while tasks run, else 0", |job| Some(f64::from(u8::from(job.state == JobState::Running)))),
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
    ("subtask_watermark_seconds", "How far event time has come, since the epoch", |task| {
        let time = task.metrics.event_time;
        time.lag_ms.and(time.watermark_ms).map(|ms| ms as f64 / 1000.0)
    }),
    ("subtask_watermark_lag_seconds", "How far that is behind the wall clock", |task| {
        task.metrics.event_time.lag_ms.map(|ms| ms as f64 / 1000.0)
    }),
];

const OF_WORKERS_NOW: &[Gauge<WorkerSample>] = &[
    ("worker_resident_memory_bytes", "Memory of the process that is in RAM", |worker| {
        worker.resident_bytes.map(|bytes| bytes as f64)
    }),
    ("worker_network_segments", "Segments of its network memory", |worker| Some(worker.segments as f64)),
    ("worker_network_segments_used", "Those that pools have taken", |worker| Some(worker.segments_used as f64)),
];

/// What time is spent on, and how much of it.
type State = (&'static str, fn(&TimeShares) -> Duration);

/// What a subtask's time is made of: these sum to all of it.
const STATES: [State; 7] = [
    ("busy", |time| time.busy),
    ("soft_back_pressured", |time| time.soft_back_pressured),
    ("hard_back_pressured", |time| time.hard_back_pressured),
    ("idle", |time| time.idle.saturating_sub(time.awaiting + time.aligning)),
    ("awaiting", |time| time.awaiting),
    ("aligning", |time| time.aligning),
    ("interpreter", |time| time.interpreter),
];

impl ScrapedJob {
    fn of(job: &ShownJob) -> Option<Self> {
        let (status, sample) = (job.view.status(), job.view.sample());
        let ended_ms = job.began_ms + status.elapsed.as_millis() as u64;
        if status.state == JobState::Ended && ended_ms + ENDED_FOR_MS < now_ms() {
            return None;
        }
        let labels = vec![("job", status.job_name.clone()), ("job_id", job.id.clone())];
        let with = |more: Labels| [labels.clone(), more].concat();
        let task = |name: &str, position: usize| vec![("task", name.to_owned()), ("task_id", position.to_string())];
        let tasks = status.vertices.iter().enumerate().map(|(position, vertex)| with(task(&vertex.name, position)));
        let subtasks = sample.tasks.iter().map(|subtask| {
            let place = vec![("subtask", subtask.subtask.to_string()), ("worker", subtask.worker.to_string())];
            with([task(&subtask.name, subtask.vertex as usize), place].concat())
        });
        let workers = sample.workers.iter().map(|worker| with(vec![("worker", worker.worker.to_string())]));
        let (tasks, subtasks, workers) = (tasks.collect(), subtasks.collect(), workers.collect());
        Some(Self { labels, status, sample, tasks, subtasks, workers })
    }

    fn tasks(&self) -> impl Iterator<Item = (&Labels, &VertexReport)> {
        self.tasks.iter().zip(&self.status.vertices)
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

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let jobs = || self.jobs.iter().map(|job| (&job.labels, &job.status));
        counters(&mut encoder, OF_JOBS, jobs)?;
        gauges(&mut encoder, OF_JOBS_NOW, jobs)?;
        gauges(&mut encoder, OF_TASKS_NOW, || self.jobs.iter().flat_map(ScrapedJob::tasks))?;
        self.encode_bottlenecks(&mut encoder)?;
        counters(&mut encoder, OF_SUBTASKS, || self.jobs.iter().flat_map(ScrapedJob::subtasks))?;
        gauges(&mut encoder, OF_SUBTASKS_NOW, || self.jobs.iter().flat_map(ScrapedJob::subtasks))?;
        self.encode_time(&mut encoder)?;
        user_metrics::encode(&mut encoder, self.jobs.iter().flat_map(ScrapedJob::user_metrics))?;
        gauges(&mut encoder, OF_WORKERS_NOW, || self.jobs.iter().flat_map(ScrapedJob::workers))
    }
}

impl Scrape {
    fn encode_bottlenecks(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "1 for the task that holds up the others, else 0";
        let mut family = encoder.encode_descriptor("task_bottleneck", help, None, MetricType::Gauge)?;
        for job in &self.jobs {
            let named = job.status.bottleneck.as_ref().map(|bottleneck| bottleneck.vertex);
            for (position, labels) in job.tasks.iter().enumerate() {
                family.encode_family(labels)?.encode_gauge(&u32::from(named == Some(position)))?;
            }
        }
        Ok(())
    }

    fn encode_time(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Time of the subtask by what it was spent on; the states sum to all of it";
        let mut family = encoder.encode_descriptor("subtask_time_seconds", help, None, MetricType::Counter)?;
        for (labels, subtask) in self.jobs.iter().flat_map(ScrapedJob::subtasks) {
            for (state, spent) in STATES {
                let seconds = spent(&subtask.metrics.time).as_secs_f64();
                encode_counter(&mut family, &(labels.as_slice(), [("state", state)]), &seconds)?;
            }
        }
        Ok(())
    }
}

fn counters<'a, T: 'a, I: Iterator<Item = (&'a Labels, &'a T)>>(
    encoder: &mut DescriptorEncoder<'_>,
    table: &[Counter<T>],
    each: impl Fn() -> I,
) -> fmt::Result {
    for (name, help, count) in table {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, of) in each() {
            encode_counter(&mut family, labels, &count(of))?;
        }
    }
    Ok(())
}

fn gauges<'a, T: 'a, I: Iterator<Item = (&'a Labels, &'a T)>>(
    encoder: &mut DescriptorEncoder<'_>,
    table: &[Gauge<T>],
    each: impl Fn() -> I,
) -> fmt::Result {
    for (name, help, value) in table {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, of) in each() {
            if let Some(value) = value(of) {
                family.encode_family(labels)?.encode_gauge(&value)?;
            }
        }
    }
    Ok(())
}

pub(crate) fn encode_counter(
    family: &mut MetricEncoder<'_>,
    labels: &impl EncodeLabelSet,
    count: &impl prometheus_client::encoding::EncodeCounterValue,
) -> fmt::Result {
    family.encode_family(labels)?.encode_counter::<Labels, _, f64>(count, NO_EXEMPLAR)
}

const NO_EXEMPLAR: Option<&Exemplar<Labels, f64>> = None;
/// How long a job that has ended is still scraped.
const ENDED_FOR_MS: u64 = 5 * 60 * 1000;
