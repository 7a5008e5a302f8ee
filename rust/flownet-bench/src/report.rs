//! What a run found, as a line of JSON and as a row of a table.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::role::NetFigures;
use crate::spec::{ExchangeSpec, LatencySpec, Partitioner};
use crate::stats::Spread;

/// One run. What a bench does not measure is null.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct BenchRun {
    /// What was run.
    #[serde(flatten)]
    pub workload: Workload,
    /// From the first record sent to the end of every channel, seen by the receiver.
    pub seconds: f64,
    /// Records that arrived, by `seconds`. A broadcast record counts once a channel.
    pub records_per_s: f64,
    /// Bytes of these records, each with the 4 bytes of its length, by `seconds`.
    pub bytes_per_s: f64,
    /// CPU time, user and system, of all threads of both processes, for each record that arrived.
    pub cpu_ns_per_record: Option<f64>,
    /// The same CPU time by `seconds`: 1 is one core.
    pub cpu_cores: f64,
    /// Most memory in RAM, interpreter included, of both processes added.
    pub peak_rss_mb: f64,
    /// Half of the records took no longer from emission to the reading thread.
    pub p50_us: Option<f64>,
    /// 99 of 100 took no longer.
    pub p99_us: Option<f64>,
    /// 999 of 1000 took no longer.
    pub p999_us: Option<f64>,
    /// The slowest.
    pub max_us: Option<f64>,
    /// The raw twin's records by its own time.
    pub raw_tcp_records_per_s: Option<f64>,
    /// Throughput: `records_per_s / raw_tcp_records_per_s`, at best about 1. Latency: `p50_us` by what the machine needs
    /// at least, which is half a ping-pong plus one wake-up of a thread; 1 would be an exchange that costs nothing.
    pub ratio_to_raw_tcp: Option<f64>,
    /// What helps to explain the figures.
    pub details: Details,
    /// Where it ran.
    pub machine: Machine,
    /// What ran.
    pub versions: BTreeMap<String, String>,
}

/// What was run, and how.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "bench", content = "settings", rename_all = "lowercase")]
pub enum Workload {
    /// Throughput.
    Exchange(ExchangeSpec),
    /// Latency.
    Latency(LatencySpec),
}

/// What helps to explain the figures of a run.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Details {
    /// Size of the pools of both sides; what of it was touched counts as RSS.
    pub network_memory_mb: f64,
    /// CPU time of the raw twin, as `cpu_ns_per_record`.
    pub raw_tcp_cpu_ns_per_record: Option<f64>,
    /// Records whose latency was counted.
    pub samples: Option<u64>,
    /// These latencies, in nanoseconds: an HdrHistogram, V2, deflated, in base64. Histograms of several runs can be added.
    pub histogram: Option<String>,
    /// One-way latency of the raw twin, one write a record, at the same rate.
    pub raw_tcp: Option<LatencyFigures>,
    /// Half the time of round trips of the same size over a raw socket, back to back.
    pub half_ping_pong: Option<LatencyFigures>,
    /// From waking a thread of one's own process to its first instruction.
    pub wake_up: Option<LatencyFigures>,
    /// Network thread of the sender.
    pub sender: NetFigures,
    /// Network thread of the receiver.
    pub receiver: NetFigures,
}

/// Quantiles of a latency, in microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct LatencyFigures {
    /// How many were counted.
    pub samples: u64,
    /// Half took no longer.
    pub p50_us: f64,
    /// 99 of 100 took no longer.
    pub p99_us: f64,
    /// 999 of 1000 took no longer.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Workload {
    /// Settings in one line, as a row of a table is called.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::Exchange(spec) => exchange_label(spec),
            Self::Latency(spec) => {
                let timeout = timeout_label(spec.buffer_timeout_us);
                let channels = count(spec.channels.into(), "channel");
                format!("{channels}, {timeout}, {} B, {:.0}/s", spec.record_bytes, spec.rate)
            }
        }
    }

    pub(crate) fn record_bytes(&self) -> usize {
        match self {
            Self::Exchange(spec) => spec.record_bytes,
            Self::Latency(spec) => spec.record_bytes,
        }
    }
}

/// A table of runs: a row for each workload, with the median and the range of its runs.
#[must_use]
pub fn table(runs: &[BenchRun]) -> String {
    let mut rows: Vec<(&Workload, Vec<&BenchRun>)> = Vec::new();
    for run in runs {
        match rows.iter_mut().find(|(workload, _)| *workload == &run.workload) {
            Some((_, runs)) => runs.push(run),
            None => rows.push((&run.workload, vec![run])),
        }
    }
    let of_kind = |is_exchange: bool| {
        rows.iter().filter(move |(workload, _)| matches!(workload, Workload::Exchange(_)) == is_exchange)
    };
    let exchange: Vec<Vec<String>> = of_kind(true).map(|(workload, runs)| exchange_row(workload, runs)).collect();
    let latency: Vec<Vec<String>> = of_kind(false).map(|(workload, runs)| latency_row(workload, runs)).collect();
    let tables = [aligned(&EXCHANGE_COLUMNS, exchange), aligned(&LATENCY_COLUMNS, latency)];
    tables.into_iter().filter(|table| !table.is_empty()).collect::<Vec<_>>().join("\n\n")
}

const EXCHANGE_COLUMNS: [&str; 7] =
    ["exchange", "M records/s", "of raw TCP", "raw M/s", "CPU-ns/record", "MB/s", "RSS MB"];
const LATENCY_COLUMNS: [&str; 9] =
    ["latency", "p50 us", "p99 us", "p99.9 us", "max us", "raw p50/p99/p99.9", "limit us", "of limit", "CPU cores"];

fn exchange_row(workload: &Workload, runs: &[&BenchRun]) -> Vec<String> {
    vec![
        workload.label(),
        spread(runs, 1, |run| Some(run.records_per_s / 1e6)),
        spread(runs, 2, |run| run.ratio_to_raw_tcp),
        middle(runs, 1, |run| run.raw_tcp_records_per_s.map(|rate| rate / 1e6)),
        spread(runs, 1, |run| run.cpu_ns_per_record),
        middle(runs, 0, |run| Some(run.bytes_per_s / 1e6)),
        middle(runs, 0, |run| Some(run.peak_rss_mb)),
    ]
}

fn latency_row(workload: &Workload, runs: &[&BenchRun]) -> Vec<String> {
    let raw = |of: fn(LatencyFigures) -> f64| middle(runs, 0, |run| run.details.raw_tcp.map(of));
    let limit = |run: &BenchRun| Some(run.details.half_ping_pong?.p50_us + run.details.wake_up?.p50_us);
    vec![
        workload.label(),
        spread(runs, 0, |run| run.p50_us),
        spread(runs, 0, |run| run.p99_us),
        spread(runs, 0, |run| run.p999_us),
        middle(runs, 0, |run| run.max_us),
        [raw(|raw| raw.p50_us), raw(|raw| raw.p99_us), raw(|raw| raw.p999_us)].join("/"),
        middle(runs, 0, limit),
        middle(runs, 2, |run| run.ratio_to_raw_tcp),
        middle(runs, 3, |run| Some(run.cpu_cores)),
    ]
}

fn exchange_label(spec: &ExchangeSpec) -> String {
    let partitioner = match spec.partitioner {
        Partitioner::Rr => "rr",
        Partitioner::Hash => "hash",
        Partitioner::Broadcast => "broadcast",
        Partitioner::Skewed => "skewed",
    };
    let writers = count(spec.writers.into(), "writer");
    let channels = count(spec.channels.into(), "channel");
    let active = spec.active_channels.map(|active| format!(" ({active} active)")).unwrap_or_default();
    let timeout = timeout_label(spec.buffer_timeout_us);
    let local = if spec.local { ", local" } else { "" };
    let tls = if spec.network.tls { ", TLS" } else { "" };
    format!("{writers} x {channels}{active}, {timeout}, {} B, {partitioner}{local}{tls}", spec.record_bytes)
}

fn timeout_label(timeout_us: Option<u64>) -> String {
    match timeout_us {
        None => "no timeout".into(),
        Some(us) if us % 1000 == 0 => format!("{} ms", us / 1000),
        Some(us) => format!("{us} us"),
    }
}

fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

fn middle(runs: &[&BenchRun], digits: usize, of: impl Fn(&BenchRun) -> Option<f64>) -> String {
    let spread = Spread::of(runs.iter().filter_map(|run| of(run)));
    spread.map_or_else(|| "-".to_owned(), |spread| format!("{:.digits$}", spread.median))
}

/// `median [min-max]`, or the one value there is.
fn spread(runs: &[&BenchRun], digits: usize, of: impl Fn(&BenchRun) -> Option<f64>) -> String {
    match Spread::of(runs.iter().filter_map(|run| of(run))) {
        None => "-".to_owned(),
        Some(spread) if runs.len() == 1 => format!("{:.digits$}", spread.median),
        Some(Spread { median, min, max }) => format!("{median:.digits$} [{min:.digits$}-{max:.digits$}]"),
    }
}

/// The first column to the left, figures to the right. Empty without rows.
fn aligned(columns: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut lines = vec![columns.iter().map(ToString::to_string).collect()];
    lines.extend(rows);
    let widths: Vec<usize> =
        (0..columns.len()).map(|column| lines.iter().map(|line| line[column].len()).max().unwrap_or(0)).collect();
    let show = |line: &Vec<String>| {
        let cells = line.iter().zip(&widths).enumerate();
        let cells = cells.map(
            |(column, (cell, &width))| {
                if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            },
        );
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines.iter().map(show).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(workload: Workload, records_per_s: f64) -> BenchRun {
        BenchRun {
            workload,
            seconds: 1.0,
            records_per_s,
            bytes_per_s: records_per_s * 12.0,
            cpu_ns_per_record: Some(10.0),
            cpu_cores: 1.5,
            peak_rss_mb: 20.0,
            p50_us: None,
            p99_us: None,
            p999_us: None,
            max_us: None,
            raw_tcp_records_per_s: Some(200e6),
            ratio_to_raw_tcp: Some(records_per_s / 200e6),
            details: Details::default(),
            machine: Machine::default(),
            versions: BTreeMap::new(),
        }
    }

    #[test]
    fn a_line_of_json_comes_back_as_it_was() {
        for workload in [Workload::Exchange(ExchangeSpec::default()), Workload::Latency(LatencySpec::default())] {
            let before = run(workload, 1e6);
            let line = serde_json::to_string(&before).unwrap();
            assert_eq!(serde_json::from_str::<BenchRun>(&line).unwrap(), before);
        }
    }

    #[test]
    fn runs_of_one_workload_are_one_row_with_their_median() {
        let wide = Workload::Exchange(ExchangeSpec { writers: 4, channels: 100, ..ExchangeSpec::default() });
        let one = Workload::Exchange(ExchangeSpec::default());
        let rates = [(&one, 50e6), (&wide, 10e6), (&one, 150e6), (&one, 100e6)];
        let runs: Vec<BenchRun> = rates.map(|(workload, rate)| run(workload.clone(), rate)).into();
        let table = table(&runs);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 3, "{table}");
        assert!(lines[1].starts_with("1 writer x 1 channel, 100 ms, 8 B, rr "), "{table}");
        assert!(lines[1].contains("100.0 [50.0-150.0]  0.50 [0.25-0.75]    200.0"), "{table}");
        assert!(lines[2].starts_with("4 writers x 100 channels, 100 ms, 8 B, rr "), "{table}");
    }

    #[test]
    fn what_was_not_measured_is_a_dash() {
        let spec = LatencySpec { rate: 0.0, channels: 1000, ..LatencySpec::default() };
        let table = table(&[run(Workload::Latency(spec), 0.0)]);
        assert!(table.contains("1000 channels, 0 ms, 8 B, 0/s"), "{table}");
        assert!(table.contains(" -/-/- "), "{table}");
    }
}
