//! Latency metrics: one histogram per task and source, measured by latency markers.

use std::borrow::Cow;

use flownet_cluster::JobStatus;
use flownet_runtime::latency::{LATENCY_BOUNDS, Latency};
use flownet_runtime::user_metrics::DistributionSnapshot;

use crate::metrics::{Family, Kind, Labels, Point, Value};

/// Labels of a task and source, and the latencies of markers between them.
pub(crate) type LatencySpread = (Labels, DistributionSnapshot);

/// Returns the latencies of each task of a job and each source. `tasks` are the labels of the tasks.
pub(crate) fn spreads(status: &JobStatus, tasks: &[Labels]) -> Vec<LatencySpread> {
    let each = tasks.iter().zip(&status.vertices);
    let each = each.flat_map(|(labels, task)| task.latency.by_source.iter().map(move |latency| (labels, latency)));
    each.filter_map(|(labels, latency)| {
        let source = status.vertices.get(latency.source as usize)?;
        let source = vec![("source", source.name.clone()), ("source_id", latency.source.to_string())];
        Some(([labels.clone(), source].concat(), spread(latency)))
    })
    .collect()
}

/// Returns the metric family of all latencies.
pub(crate) fn family<'a>(all: impl Iterator<Item = &'a LatencySpread>) -> Family<'a> {
    let points = all.map(|(labels, spread)| Point { labels, own: None, value: Value::Spread(spread) });
    Family { name: Cow::Borrowed("task_latency_seconds"), help: HELP, kind: Kind::Histogram, points: points.collect() }
}

fn spread(latency: &Latency) -> DistributionSnapshot {
    DistributionSnapshot {
        count: latency.count(),
        sum: latency.sum.as_secs_f64(),
        max: Some(latency.max.as_secs_f64()),
        bounds: LATENCY_BOUNDS.into(),
        buckets: latency.buckets.clone(),
    }
}

const HELP: &str =
    "Age of markers when they had come to the task, since their source emitted them, where latency_interval is set";
