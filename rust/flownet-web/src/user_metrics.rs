//! What users' functions count, as Prometheus reads it.
//!
//! A family is of a name and a kind, whoever counts, which the labels say. The kind is in front of the name, so that operators
//! of different minds about a name do not spoil the whole answer.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use flownet_cluster::UserMetric;
use flownet_runtime::user_metrics::{DistributionSnapshot, UserValue};
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;

use crate::metrics::{Labels, encode_counter};

/// Writes the metrics of all subtasks, family by family.
pub(crate) fn encode<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    all: impl Iterator<Item = (&'a Labels, &'a UserMetric)>,
) -> fmt::Result {
    let mut families: BTreeMap<String, Vec<(&Labels, &UserMetric)>> = BTreeMap::new();
    for (labels, metric) in all {
        families.entry(family(metric)).or_default().push((labels, metric));
    }
    for (name, members) in families {
        let Some((_, first)) = members.first() else { continue };
        let mut family = encoder.encode_descriptor(&name, HELP, None, kind(&first.value))?;
        for (labels, metric) in members {
            encode_one(&mut family, labels, metric)?;
        }
    }
    Ok(())
}

fn encode_one(family: &mut MetricEncoder<'_>, labels: &Labels, metric: &UserMetric) -> fmt::Result {
    let labels = (labels.as_slice(), [("operator", &*metric.operator)]);
    match &metric.value {
        UserValue::Counter(count) | UserValue::Meter(count) => encode_counter(family, &labels, count),
        // One that was not set shows nothing.
        UserValue::Gauge(level) if level.is_nan() => Ok(()),
        UserValue::Gauge(level) => family.encode_family(&labels)?.encode_gauge(level),
        UserValue::Histogram(DistributionSnapshot { count, sum, bounds, buckets, .. }) => {
            let bounds = bounds.iter().copied().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(buckets.iter().copied()).collect();
            family.encode_family(&labels)?.encode_histogram(*sum, *count, &buckets, NO_EXEMPLARS)
        }
    }
}

fn family(metric: &UserMetric) -> String {
    let what_was_done = match metric.value {
        UserValue::Counter(_) | UserValue::Meter(_) => "counted",
        UserValue::Gauge(_) => "gauged",
        UserValue::Histogram(_) => "observed",
    };
    format!("{what_was_done}_{}", metric.name)
}

fn kind(value: &UserValue) -> MetricType {
    match value {
        UserValue::Counter(_) | UserValue::Meter(_) => MetricType::Counter,
        UserValue::Gauge(_) => MetricType::Gauge,
        UserValue::Histogram(_) => MetricType::Histogram,
    }
}

const NO_EXEMPLARS: Option<&HashMap<usize, Exemplar<Labels, f64>>> = None;
const HELP: &str = "Counted by functions of the job";
