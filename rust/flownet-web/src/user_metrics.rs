//! Metrics that users' functions register, as metric families.
//!
//! A family has one name and one kind. Labels distinguish the functions that report it. Its name starts with its kind,
//! so that operators that use one name for different kinds do not make the whole answer invalid.

use std::borrow::Cow;
use std::collections::BTreeMap;

use flownet_cluster::UserMetric;
use flownet_runtime::user_metrics::UserValue;

use crate::metrics::{Family, Kind, Labels, Point, Value};

/// Returns the metrics of all subtasks, sorted by name.
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
        // A gauge that was never set has no point.
        UserValue::Gauge(level) => (!level.is_nan()).then_some(Value::Real(*level)),
        UserValue::Histogram(spread) => Some(Value::Spread(spread)),
    }
}

const HELP: &str = "Counted by functions of the job";
