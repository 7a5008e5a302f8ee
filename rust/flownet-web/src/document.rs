//! Answers of the REST API: jobs as JSON, in the terms of flownet-cluster's reports.

use flownet_cluster::plan::Exchange;
use flownet_cluster::{Bottleneck, JobOutcome, JobSettings, JobState, JobStatus, SettingKind};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::jobs::ShownJob;

/// A job with the reports of all its tasks.
#[derive(Debug, Serialize)]
pub(crate) struct JobDocument {
    id: String,
    began_ms: u64,
    /// Number of worker processes; 0 if the job runs in the process that submitted it.
    workers: u32,
    /// Outcome of the job; none while it runs.
    outcome: Option<JobOutcome>,
    /// Reason for which it failed or was cancelled.
    error: Option<String>,
    exchanges: Vec<Exchange>,
    /// Index of the bottleneck in the list of tasks.
    bottleneck_task: Option<usize>,
    records: u64,
    records_per_second: f64,
    #[serde(flatten)]
    status: JobStatus,
}

/// Entry in the list of jobs.
#[derive(Debug, Serialize)]
pub(crate) struct JobEntry {
    id: String,
    name: String,
    state: JobState,
    workers: u32,
    seconds: f64,
    began_ms: u64,
    bottleneck: Option<String>,
    stalled: Option<String>,
    outcome: Option<JobOutcome>,
    error: Option<String>,
    restarted: u64,
    checkpoints_made: u64,
    records: u64,
    records_per_second: f64,
}

/// Plan of a job.
#[derive(Debug, Serialize)]
pub(crate) struct PlanDocument {
    explain: String,
    settings: Map<String, Value>,
}

impl JobDocument {
    pub(crate) fn of(job: &ShownJob) -> Self {
        let status = job.view.status();
        let (records, records_per_second) = moved(&status);
        Self {
            id: job.id.clone(),
            began_ms: job.began_ms,
            workers: job.view.settings().workers,
            outcome: job.view.outcome(),
            error: job.view.failure(),
            exchanges: status.exchanges.clone(),
            bottleneck_task: status.bottleneck.as_ref().map(|bottleneck| bottleneck.vertex),
            records,
            records_per_second,
            status,
        }
    }

    /// Returns true if the document will not change any more.
    pub(crate) fn is_last(&self) -> bool {
        self.status.state == JobState::Ended
    }
}

impl JobEntry {
    pub(crate) fn of(job: &ShownJob) -> Self {
        let status = job.view.status();
        let (records, records_per_second) = moved(&status);
        Self {
            id: job.id.clone(),
            workers: job.view.settings().workers,
            seconds: status.elapsed.as_secs_f64(),
            began_ms: job.began_ms,
            bottleneck: status.bottleneck.as_ref().map(Bottleneck::to_string),
            stalled: status.stall.as_ref().map(|stall| stall.headline()),
            outcome: job.view.outcome(),
            error: job.view.failure(),
            restarted: status.history.restarted,
            checkpoints_made: status.history.checkpoints_made,
            records,
            records_per_second,
            name: status.job_name,
            state: status.state,
        }
    }
}

impl PlanDocument {
    pub(crate) fn of(job: &ShownJob) -> Self {
        let explain = job.view.explanation().to_string().trim_end().to_owned();
        Self { explain, settings: settings_text(job.view.settings()) }
    }
}

/// Returns the records of the task that received most of them since it began, and its average records per second.
fn moved(status: &JobStatus) -> (u64, f64) {
    // Among equal tasks take the first, like Python's `max`.
    let Some(most) = status.vertices.iter().rev().max_by_key(|vertex| vertex.records_in) else { return (0, 0.0) };
    let seconds = status.elapsed.saturating_sub(most.began).as_secs_f64();
    (most.records_in, if seconds > 0.0 { most.records_in as f64 / seconds } else { 0.0 })
}

/// Returns all settings in the form in which users write them.
fn settings_text(settings: &JobSettings) -> Map<String, Value> {
    // Settings are plain data with string keys, so serialisation cannot fail.
    let Ok(Value::Object(values)) = serde_json::to_value(settings) else { return Map::new() };
    let text = |kind: SettingKind, value: &Value| match (kind, value) {
        (_, Value::Null) => "none".to_owned(),
        (SettingKind::Duration { .. }, Value::Number(micros)) => duration_text(micros.as_u64().unwrap_or(0)),
        (SettingKind::Size { .. }, Value::Number(bytes)) => size_text(bytes.as_u64().unwrap_or(0)),
        (_, Value::String(text)) => text.clone(),
        (_, other) => other.to_string(),
    };
    let shown = JobSettings::TABLE.iter().filter_map(|setting| {
        let value = values.get(setting.name)?;
        Some((setting.name.to_owned(), Value::String(text(setting.kind, value))))
    });
    shown.collect()
}

fn duration_text(micros: u64) -> String {
    match micros {
        micros if micros % 1_000_000 == 0 => format!("{}s", micros / 1_000_000),
        micros if micros % 1000 == 0 => format!("{}ms", micros / 1000),
        micros => format!("{micros}us"),
    }
}

fn size_text(bytes: u64) -> String {
    match bytes {
        bytes if bytes > 0 && bytes % (1 << 20) == 0 => format!("{}MiB", bytes >> 20),
        bytes if bytes > 0 && bytes % (1 << 10) == 0 => format!("{}KiB", bytes >> 10),
        bytes => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_read_as_users_write_them() {
        let text = settings_text(&JobSettings::default());
        let of = |name: &str| text.get(name).and_then(Value::as_str).map(str::to_owned);
        assert_eq!(of("buffer_timeout").as_deref(), Some("100ms"));
        assert_eq!(of("network_memory").as_deref(), Some("none"));
        assert_eq!(of("segment_size").as_deref(), Some("32KiB"));
        assert_eq!(of("checkpoint_interval").as_deref(), Some("none"));
        assert_eq!(of("flow_control").as_deref(), Some("credit"));
        assert_eq!(text.len(), JobSettings::TABLE.len());
    }
}
