//! What a job did and does, vertex by vertex.

use std::{fmt, time::Duration};

use flownet_runtime::state_stats::StateStats;
use serde::Serialize;

use crate::{
    bottleneck::Bottleneck,
    checkpoint::CheckpointPart,
    error::WorkerIdentity,
    explain::partitioner_name,
    latency::LatencyReport,
    machine::JobState,
    operators::OperatorReport,
    plan::Exchange,
    shown,
    stall::{Stall, StallHistory},
    time_parts::TimeParts,
    user_metrics::UserMetric,
};

/// A running job, as of its workers' last reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobStatus {
    /// Name from the settings.
    #[serde(rename = "name")]
    pub job_name: String,
    /// Where the job is.
    pub state: JobState,
    /// Time since it was submitted.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub elapsed: Duration,
    /// Workers that have registered; the submitting process only if it runs tasks.
    #[serde(skip)]
    pub workers: Vec<WorkerIdentity>,
    /// Vertices in topological order; rates and ratios over the last seconds.
    #[serde(rename = "tasks")]
    pub vertices: Vec<VertexReport>,
    /// Exchanges between them.
    #[serde(skip)]
    pub exchanges: Vec<Exchange>,
    /// Memory no process exceeds for the data plane.
    pub network_memory_bytes: usize,
    /// Which vertex holds the job up, if one stands out.
    #[serde(serialize_with = "shown::text")]
    pub bottleneck: Option<Bottleneck>,
    /// What the job waits for, if nothing moves although records wait.
    #[serde(rename = "stalled", serialize_with = "shown::headline")]
    pub stall: Option<Stall>,
    /// The checkpoint that was triggered and neither counts nor has failed.
    pub checkpoint_under_way: Option<CheckpointUnderWay>,
    /// What its functions count, over all subtasks.
    #[serde(rename = "metrics")]
    pub user_metrics: Vec<UserMetric>,
    /// Its checkpoints and restarts.
    #[serde(flatten)]
    pub history: History,
}

/// A job that has finished.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobReport {
    /// Name from the settings.
    #[serde(rename = "name")]
    pub job_name: String,
    /// From submission to the last worker's end.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub elapsed: Duration,
    /// Vertices in topological order; rates and ratios over each task's whole life.
    #[serde(rename = "tasks")]
    pub vertices: Vec<VertexReport>,
    /// Which vertex held the job up, if one stands out.
    #[serde(serialize_with = "shown::text")]
    pub bottleneck: Option<Bottleneck>,
    /// How often nothing moved although records waited, if ever.
    #[serde(rename = "stalled", serialize_with = "shown::text")]
    pub stalls: Option<StallHistory>,
    /// Memory no process exceeded for the data plane.
    pub network_memory_bytes: usize,
    /// What its functions count, over all subtasks.
    #[serde(rename = "metrics")]
    pub user_metrics: Vec<UserMetric>,
    /// Its checkpoints and restarts.
    #[serde(flatten)]
    pub history: History,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JobOutcome {
    /// Its sources ended, or it was stopped.
    Finished,
    /// Somebody cancelled it.
    Cancelled,
    /// Something failed, and nothing followed.
    Failed,
}

/// What has become of the attempts to run a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct History {
    /// The checkpoint of a run before that the first attempt went on from.
    pub resumed_from: Option<u64>,
    /// Checkpoints that count, of all attempts.
    pub checkpoints_made: u64,
    /// Those that failed.
    pub checkpoints_failed: u64,
    /// Why the last of these did.
    pub last_failed_checkpoint: Option<String>,
    /// The last 100 that count.
    pub checkpoints: Vec<CheckpointSummary>,
    /// Attempts that failed and were followed by another.
    pub restarted: u64,
    /// The last 100 of these.
    pub restarts: Vec<RestartSummary>,
}

/// A checkpoint that was triggered and neither counts nor has failed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointUnderWay {
    /// Its number.
    pub number: u64,
    /// Time since its trigger.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub elapsed: Duration,
    /// Tasks that have subtasks which have not answered. Empty while it is published.
    pub unanswered: Vec<UnansweredTask>,
}

/// A task whose subtasks have not all answered a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnansweredTask {
    /// Names of its operators.
    pub name: String,
    /// Subtasks that have not answered.
    pub count: u64,
    /// The first ten of these.
    pub subtasks: Vec<u32>,
}

/// A checkpoint that counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointSummary {
    /// Its number; they grow over all attempts and runs.
    pub number: u64,
    /// When it came to count, since the job was submitted.
    #[serde(rename = "at_seconds", serialize_with = "shown::seconds")]
    pub at: Duration,
    /// State that it is made of.
    pub bytes: u64,
    /// Of this, what was written for it.
    pub written_bytes: u64,
    /// From its trigger until it counted.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub duration: Duration,
    /// The longest that a task waited from its first barrier to its last.
    #[serde(rename = "aligned_seconds", serialize_with = "shown::seconds")]
    pub aligned: Duration,
    /// The longest that a task stood still to take its snapshot, or to write some of it, at once.
    #[serde(rename = "stood_still_seconds", serialize_with = "shown::seconds")]
    pub stood_still: Duration,
    /// What it is made of, task by task: of the last few.
    pub parts: Vec<CheckpointPart>,
}

/// An attempt that failed and was followed by another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RestartSummary {
    /// When it failed, since the job was submitted.
    #[serde(rename = "at_seconds", serialize_with = "shown::seconds")]
    pub at: Duration,
    /// Why.
    pub cause: String,
    /// Python's traceback, if a user's function failed: of the last few restarts, and the end of a long one.
    pub traceback: Option<String>,
    /// The checkpoint that the next went on from; none: it began anew.
    pub resumed_from: Option<u64>,
    /// Those that began anew, where others ran on: what failed, and all that share an exchange with it. Empty: the whole job.
    pub tasks: Vec<String>,
}

/// One vertex, all its subtasks together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VertexReport {
    /// Names of its operators.
    pub name: String,
    /// Subtasks.
    pub parallelism: u32,
    /// Since when they count, since the job was submitted: its beginning, or when they began anew after a failure.
    #[serde(rename = "began_seconds", serialize_with = "shown::seconds")]
    pub began: Duration,
    /// Subtasks that have ended.
    #[serde(skip)]
    pub ended: u32,
    /// Records read, or produced by a source, since the start.
    pub records_in: u64,
    /// Records sent on, or taken by a sink, since the start.
    pub records_out: u64,
    /// Rows of the records read: an array has many.
    pub rows_in: u64,
    /// Rows of the records sent on, or taken.
    pub rows_out: u64,
    /// Records read, or produced, a second.
    pub records_per_second: f64,
    /// Bytes read from tasks of the same process since the start.
    pub bytes_local: u64,
    /// Bytes read over TCP since the start.
    pub bytes_tcp: u64,
    /// Share of the time at work, 0 to 1, mean over the subtasks.
    pub busy: f64,
    /// Share of the time waiting for what is downstream.
    pub back_pressured: f64,
    /// Share of the time without input.
    pub idle: f64,
    /// Share of the time waiting for the interpreter that the tasks of a process share.
    pub interpreter: f64,
    /// The part of `idle` that was spent waiting for calls of its functions, as
    /// many under way as it may have: it took no records meanwhile.
    pub awaiting: f64,
    /// The part of `idle` that a source spent waiting for those it is aligned
    /// with, which were behind in event time.
    pub aligning: f64,
    /// What these are made of.
    #[serde(flatten)]
    pub parts: TimeParts,
    /// `busy` of the busiest subtask: a hot key shows here and not in the mean.
    pub busiest: f64,
    /// Subtasks about as busy as the busiest.
    #[serde(skip)]
    pub busiest_subtasks: u32,
    /// How far its producers fill buffers, at least, so that no more is in flight
    /// to it than is allowed. None: not bounded, or full buffers are no more.
    #[serde(rename = "fill_limit")]
    pub fill_limit_bytes: Option<u64>,
    /// The work that was in flight to one of its subtasks, at most: now, or over
    /// its whole life in a report. Zero where it is not bounded.
    #[serde(rename = "in_flight_seconds", serialize_with = "shown::seconds")]
    pub in_flight: Duration,
    /// Records thrown away in front of it, where its exchange may.
    pub dropped_records: u64,
    /// Bytes of these.
    pub dropped_bytes: u64,
    /// Records that its windows dropped because they came too late.
    pub late_records: u64,
    /// Records that did not move event time, as they were further ahead of the others of their split than `max_ahead`.
    pub records_ahead: u64,
    /// Records that got their times in it.
    pub timed_records: u64,
    /// Of these, records that came later than the delay of its watermarks
    /// allows.
    pub out_of_order_records: u64,
    /// The most that one of them was behind earlier ones of its split, in
    /// milliseconds.
    pub out_of_order_ms: u64,
    /// The split of that record.
    pub out_of_order_split: Option<String>,
    /// How far event time has come in its subtask that is furthest behind, in
    /// milliseconds since the epoch; the greatest number when time has ended.
    /// None before the first watermark.
    pub watermark_ms: Option<i64>,
    /// How far the wall's clock was ahead of that, at the last report. None
    /// before the first watermark and when time has ended.
    #[serde(rename = "watermark_lag_seconds", serialize_with = "shown::milliseconds")]
    pub lag_ms: Option<i64>,
    /// What its operators hold and have before them, over all subtasks.
    #[serde(flatten)]
    pub tally: StateStats,
    /// Bytes of its state in the last checkpoint that counts, if one does.
    pub state_bytes: Option<u64>,
    /// How long markers took from the sources to it, if they were on: lately, or since the attempt began in a report.
    #[serde(flatten)]
    pub latency: LatencyReport,
    /// What went through each of its operators, upstream first, over all subtasks; none before they began.
    pub operators: Vec<OperatorReport>,
}

impl fmt::Display for JobStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workers = self.workers.iter().filter(|worker| worker.worker > 0).count();
        let tasks: u32 = self.vertices.iter().map(|vertex| vertex.parallelism).sum();
        write!(
            f,
            "{}  {}  {}  {}",
            self.job_name,
            self.state,
            count(workers as u64, "worker"),
            count(tasks.into(), "task")
        )?;
        let exchanges: Vec<String> = self.exchanges.iter().map(exchange_text).collect();
        write!(f, "  {}", count(exchanges.len() as u64, "exchange"))?;
        if !exchanges.is_empty() {
            write!(f, " ({})", exchanges.join("; "))?;
        }
        let mebibytes = self.network_memory_bytes as f64 / f64::from(1 << 20);
        writeln!(f, "  memory bound {mebibytes:.0} MiB/worker")?;
        write_vertices(f, &self.vertices, self.bottleneck.as_ref())?;
        match &self.stall {
            Some(stall) => writeln!(f, "  {stall}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for JobReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |part: fn(&VertexReport) -> u64| self.vertices.iter().map(part).sum::<u64>() as f64;
        let (local, tcp) = (sum(|vertex| vertex.bytes_local), sum(|vertex| vertex.bytes_tcp));
        let seconds = self.elapsed.as_secs_f64();
        let (name, local, tcp) = (&self.job_name, bytes_text(local), bytes_text(tcp));
        writeln!(f, "{name}  FINISHED  {seconds:.1} s  {local} moved locally  {tcp} over TCP")?;
        write_vertices(f, &self.vertices, self.bottleneck.as_ref())?;
        match &self.stalls {
            Some(stalls) => writeln!(f, "  stalled: {stalls}"),
            None => Ok(()),
        }
    }
}

fn write_vertices(
    f: &mut fmt::Formatter<'_>,
    vertices: &[VertexReport],
    bottleneck: Option<&Bottleneck>,
) -> fmt::Result {
    let width = vertices.iter().map(|vertex| vertex.name.chars().count()).max().unwrap_or(0);
    for vertex in vertices {
        let percent = |share: f64| share * 100.0;
        writeln!(
            f,
            "  {:width$}  {:>3}x  {:>13}   busy {:3.0} %  pressured {:3.0} %  idle {:3.0} %  interpreter {:3.0} %",
            vertex.name,
            vertex.parallelism,
            rate_text(vertex.records_per_second),
            percent(vertex.busy),
            percent(vertex.back_pressured),
            percent(vertex.idle),
            percent(vertex.interpreter),
        )?;
    }
    for vertex in vertices {
        if let Some(lag_ms) = vertex.lag_ms {
            let (name, seconds) = (&vertex.name, lag_ms as f64 / 1000.0);
            writeln!(f, "  event time at {name}: {seconds:.1} s behind the wall clock")?;
        }
        if vertex.aligning > NOTICEABLE_ALIGNING {
            let share = vertex.aligning * 100.0;
            writeln!(f, "  {} waits for the sources it is aligned with, {share:.0} % of the time", vertex.name)?;
        }
        if vertex.late_records > 0 {
            writeln!(f, "  late at {}: {} records, dropped", vertex.name, vertex.late_records)?;
        }
        if vertex.records_ahead > 0 {
            let (name, records) = (&vertex.name, vertex.records_ahead);
            writeln!(f, "  ahead of the others at {name}: {records} records, which did not move event time")?;
        }
        if let LatencyReport { p50: Some(p50), p99: Some(p99), max: Some(max), .. } = &vertex.latency {
            let name = &vertex.name;
            writeln!(f, "  latency to {name}: {p50:.1?} median, {p99:.1?} for 99 %, {max:.1?} at most")?;
        }
        if let Some(text) = in_flight_text(vertex) {
            writeln!(f, "  {text}")?;
        }
    }
    match bottleneck {
        Some(bottleneck) => writeln!(f, "  bottleneck: {bottleneck}"),
        None => Ok(()),
    }
}

/// What was done about records in flight to a vertex, where that was anything and they wait long enough to be noticed.
fn in_flight_text(vertex: &VertexReport) -> Option<String> {
    let limit = vertex.fill_limit_bytes.filter(|_| vertex.in_flight >= NOTICEABLE_WAIT)?;
    let (name, seconds) = (&vertex.name, vertex.in_flight.as_secs_f64());
    Some(format!("in flight to {name}: {seconds:.1} s at most, in buffers filled up to {}", bytes_text(limit as f64)))
}

fn exchange_text(exchange: &Exchange) -> String {
    format!("{}, {}", partitioner_name(exchange.partitioner), count(exchange.channels, "channel"))
}

/// `1 worker`, `2 workers`.
fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// `950 rec/s`, `1.9 M rec/s`.
fn rate_text(per_second: f64) -> String {
    match scaled(per_second) {
        (number, "") => format!("{number} rec/s"),
        (number, prefix) => format!("{number} {prefix} rec/s"),
    }
}

/// `950 B`, `1.9 MB`.
fn bytes_text(bytes: f64) -> String {
    let (number, prefix) = scaled(bytes);
    format!("{number} {prefix}B")
}

/// An amount in at most three digits before the point, and the prefix of its unit.
fn scaled(amount: f64) -> (String, &'static str) {
    let mut amount = amount;
    for prefix in ["", "k", "M", "G"] {
        if amount < 999.5 {
            let digits = if prefix.is_empty() || amount >= 99.95 { 0 } else { 1 };
            return (format!("{amount:.digits$}"), prefix);
        }
        amount /= 1000.0;
    }
    (format!("{amount:.0}"), "T")
}

/// Share of the time that a source waits for others from which it is said.
const NOTICEABLE_ALIGNING: f64 = 0.05;
/// Records that wait for less are no news.
const NOTICEABLE_WAIT: Duration = Duration::from_millis(100);

#[cfg(test)]
pub(crate) mod tests {
    use flownet_runtime::spec::{FlowControl, Partitioner};

    use super::*;

    pub(crate) fn vertex(name: &str, busy: f64, back_pressured: f64) -> VertexReport {
        VertexReport {
            name: name.into(),
            parallelism: 1,
            began: Duration::ZERO,
            ended: 0,
            records_in: 0,
            records_out: 0,
            rows_in: 0,
            rows_out: 0,
            records_per_second: 0.0,
            bytes_local: 0,
            bytes_tcp: 0,
            busy,
            back_pressured,
            idle: 1.0 - busy - back_pressured,
            interpreter: 0.0,
            awaiting: 0.0,
            aligning: 0.0,
            parts: TimeParts::default(),
            busiest: busy,
            busiest_subtasks: 1,
            fill_limit_bytes: None,
            in_flight: Duration::ZERO,
            dropped_records: 0,
            dropped_bytes: 0,
            late_records: 0,
            records_ahead: 0,
            timed_records: 0,
            out_of_order_records: 0,
            out_of_order_ms: 0,
            out_of_order_split: None,
            watermark_ms: None,
            lag_ms: None,
            tally: StateStats::default(),
            state_bytes: None,
            latency: LatencyReport::default(),
            operators: Vec::new(),
        }
    }

    pub(crate) const LINE: [(usize, usize); 2] = [(0, 1), (1, 2)];

    #[test]
    fn a_status_reads_like_a_table() {
        let mut vertices = vec![vertex("read -> split", 0.97, 0.02), vertex("count", 0.61, 0.0)];
        vertices[0].records_per_second = 1_900_000.0;
        let status = JobStatus {
            job_name: "wordcount".into(),
            state: JobState::Running,
            elapsed: Duration::ZERO,
            workers: vec![WorkerIdentity::unknown(1)],
            bottleneck: Bottleneck::find(&vertices, &LINE[..1]),
            vertices,
            exchanges: vec![Exchange {
                from: 0,
                to: 1,
                partitioner: Partitioner::KeyGroup,
                channels: 4,
                flow_control: FlowControl::Credit,
            }],
            network_memory_bytes: 64 << 20,
            stall: None,
            checkpoint_under_way: None,
            user_metrics: Vec::new(),
            history: History::default(),
        };
        let expected = "\
wordcount  RUNNING  1 worker  2 tasks  1 exchange (keyed, 4 channels)  memory bound 64 MiB/worker
  read -> split    1x    1.9 M rec/s   busy  97 %  pressured   2 %  idle   1 %  interpreter   0 %
  count            1x        0 rec/s   busy  61 %  pressured   0 %  idle  39 %  interpreter   0 %
  bottleneck: read -> split (97 % busy; downstream waits for it)
";
        assert_eq!(status.to_string(), expected);
    }

    #[test]
    fn what_waits_in_buffers_is_said_where_it_is_bounded_and_long_enough_to_notice() {
        let slow = VertexReport {
            fill_limit_bytes: Some(310),
            in_flight: Duration::from_millis(940),
            ..vertex("slow", 1.0, 0.0)
        };
        assert_eq!(in_flight_text(&slow).unwrap(), "in flight to slow: 0.9 s at most, in buffers filled up to 310 B");
        let full = VertexReport { fill_limit_bytes: None, ..slow.clone() };
        let fast = VertexReport { in_flight: Duration::from_millis(20), ..slow };
        assert_eq!((in_flight_text(&full), in_flight_text(&fast)), (None, None));
    }

    #[test]
    fn amounts_keep_three_digits_at_most_before_the_point() {
        let texts = [0.0, 999.0, 1000.0, 99_900.0, 120_000.0, 1.9e6, 2.5e9, 7e15].map(bytes_text);
        assert_eq!(texts, ["0 B", "999 B", "1.0 kB", "99.9 kB", "120 kB", "1.9 MB", "2.5 GB", "7000 TB"]);
        assert_eq!([950.0, 1.9e6].map(rate_text), ["950 rec/s", "1.9 M rec/s"]);
    }
}
