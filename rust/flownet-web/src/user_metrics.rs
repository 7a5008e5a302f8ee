//! What users' functions count, among the metrics.
//!
//! A family is of a name and a kind, whoever counts, which the labels say. The kind is in front of the name, so that operators
//! of different minds about a name do not spoil the whole answer.

use std::borrow::Cow;
use std::collections::BTreeMap;

use flownet_cluster::UserMetric;
use flownet_runtime::user_metrics::UserValue;

use crate::metrics::{Family, Kind, Labels, Point, Value};

/// The metrics of all subtasks, by their names.
pub(crate) fn families<'a>(
    all: impl Iterator<Item = (&'a Labels, &'a UserMetric)>,
) -> impl Iterator<Item = Family<'a>> {
    let mut families: BTreeMap<String, Family<'a>> = BTreeMap::new();
    for (labels, metric) in all {
        let (what_was_done, kind) = told(&metric.value);
        let name = format!("{what_was_done}_{}", metric.name);
        let new = || Family { name: Cow::Owned(name.clone()), help: HELP, kind, points: Vec::new() };
        let family = families.entry(name.clone()).or_insert_with(new);
        let own = Some(("operator", &*metric.operator));
        family.points.extend(value(&metric.value).map(|value| Point { labels, own, value }));
    }
    families.into_values()
}

fn told(value: &UserValue) -> (&'static str, Kind) {
    match value {
        UserValue::Counter(_) | UserValue::Meter(_) => ("counted", Kind::Counter),
        UserValue::Gauge(_) => ("gauged", Kind::Gauge),
        UserValue::Histogram(_) => ("observed", Kind::Histogram),
    }
}

fn value(value: &UserValue) -> Option<Value<'_>> {
    match value {
        UserValue::Counter(count) | UserValue::Meter(count) => Some(Value::Whole(*count)),
        // One that was not set shows nothing.
        UserValue::Gauge(level) => (!level.is_nan()).then_some(Value::Real(*level)),
        UserValue::Histogram(spread) => Some(Value::Spread(spread)),
    }
}

const HELP: &str = "Counted by functions of the job";
