//! Reports the metrics of users' functions.

use std::sync::Arc;

use flownet_runtime::user_metrics::{DistributionSnapshot, UserMetricSnapshot, UserValue};
use serde::{Serialize, Serializer};

/// Metric of a function in one subtask.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UserMetric {
    /// Name of the function's operator.
    pub operator: Arc<str>,
    /// Name of the metric.
    pub name: Arc<str>,
    /// Value of the metric.
    #[serde(flatten, serialize_with = "shown")]
    pub value: UserValue,
    /// For a meter, its growth per second since the previous report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
}

impl UserMetric {
    /// Returns the metrics of a task's functions from `now`, and those of `seconds` ago in `before`.
    pub fn all(now: &[UserMetricSnapshot], before: &[UserMetricSnapshot], seconds: f64) -> Vec<Self> {
        let each = now.iter().enumerate().map(|(position, metric)| {
            let UserMetricSnapshot { operator, name, value } = metric.clone();
            // Metrics are registered one after the other and stay, so equal indices mean equal metrics.
            let per_second = match (&value, before.get(position).map(|metric| &metric.value)) {
                (UserValue::Meter(now), Some(UserValue::Meter(before))) if seconds > 0.0 => {
                    Some(now.saturating_sub(*before) as f64 / seconds)
                }
                (UserValue::Meter(_), _) => Some(0.0),
                _ => None,
            };
            Self { operator, name, value, per_second }
        });
        each.collect()
    }

    /// Sums the metrics of all tasks by operator and name. Levels do not add up, so gauges are omitted. Rates exist
    /// only for single tasks.
    pub(crate) fn sums<'a>(all: impl Iterator<Item = &'a UserMetricSnapshot>) -> Vec<Self> {
        let mut sums: Vec<Self> = Vec::new();
        for UserMetricSnapshot { operator, name, value } in all {
            let of_same = sums.iter_mut().filter(|sum| (&sum.operator, &sum.name) == (operator, name));
            let is_counted = of_same.into_iter().any(|sum| add(&mut sum.value, value));
            if !is_counted && !matches!(value, UserValue::Gauge(_)) {
                let (operator, name) = (Arc::clone(operator), Arc::clone(name));
                sums.push(Self { operator, name, value: value.clone(), per_second: None });
            }
        }
        sums
    }
}

/// Adds a value of the same kind. Returns whether the kinds match.
fn add(sum: &mut UserValue, more: &UserValue) -> bool {
    match (sum, more) {
        (UserValue::Counter(sum), UserValue::Counter(more)) | (UserValue::Meter(sum), UserValue::Meter(more)) => {
            *sum = sum.saturating_add(*more);
            true
        }
        (UserValue::Histogram(sum), UserValue::Histogram(more)) if sum.bounds == more.bounds => {
            sum.count = sum.count.saturating_add(more.count);
            sum.sum += more.sum;
            sum.max = sum.max.into_iter().chain(more.max).reduce(f64::max);
            let buckets = sum.buckets.iter_mut().zip(&more.buckets);
            buckets.for_each(|(sum, more)| *sum = sum.saturating_add(*more));
            true
        }
        _ => false,
    }
}

/// Parts of a value that are shown, and their names.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum MetricParts<'a> {
    Counter {
        value: u64,
    },
    Meter {
        value: u64,
    },
    /// None if the gauge was never set.
    Gauge {
        value: Option<f64>,
    },
    Histogram {
        count: u64,
        sum: f64,
        max: Option<f64>,
        bounds: &'a [f64],
        buckets: &'a [u64],
    },
}

fn shown<S: Serializer>(value: &UserValue, serializer: S) -> Result<S::Ok, S::Error> {
    let shown = match value {
        UserValue::Counter(value) => MetricParts::Counter { value: *value },
        UserValue::Meter(value) => MetricParts::Meter { value: *value },
        UserValue::Gauge(value) => MetricParts::Gauge { value: Some(*value).filter(|value| !value.is_nan()) },
        UserValue::Histogram(DistributionSnapshot { count, sum, max, bounds, buckets }) => {
            MetricParts::Histogram { count: *count, sum: *sum, max: *max, bounds, buckets }
        }
    };
    shown.serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(name: &str, value: UserValue) -> UserMetricSnapshot {
        UserMetricSnapshot { operator: "map".into(), name: name.into(), value }
    }

    fn json(metric: &UserMetric) -> String {
        serde_json::to_string(metric).expect("nothing in it that JSON has not")
    }

    #[test]
    fn what_they_are_is_one_object_each() {
        let distribution =
            DistributionSnapshot { count: 2, sum: 3.5, max: Some(3.0), bounds: [1.0].into(), buckets: vec![1, 1] };
        let now = [
            metric("bad", UserValue::Counter(3)),
            metric("open", UserValue::Gauge(f64::NAN)),
            metric("sizes", UserValue::Histogram(distribution)),
        ];
        let told: Vec<String> = UserMetric::all(&now, &[], 1.0).iter().map(json).collect();
        assert_eq!(told[0], r#"{"operator":"map","name":"bad","kind":"counter","value":3}"#);
        assert_eq!(told[1], r#"{"operator":"map","name":"open","kind":"gauge","value":null}"#);
        let sizes = r#""kind":"histogram","count":2,"sum":3.5,"max":3.0,"bounds":[1.0],"buckets":[1,1]}"#;
        assert!(told[2].ends_with(sizes), "{}", told[2]);
    }

    #[test]
    fn tasks_counts_add_up_and_levels_do_not() {
        let sizes = |count, max| {
            let (bounds, buckets) = ([1.0].into(), vec![count, 1]);
            UserValue::Histogram(DistributionSnapshot { count: count + 1, sum: 2.0, max, bounds, buckets })
        };
        let all = [
            metric("bad", UserValue::Counter(3)),
            metric("open", UserValue::Gauge(1.0)),
            metric("sizes", sizes(2, None)),
            metric("bad", UserValue::Counter(4)),
            metric("sizes", sizes(5, Some(3.0))),
            metric("bad", UserValue::Meter(1)),
        ];
        let told: Vec<String> = UserMetric::sums(all.iter()).iter().map(json).collect();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].ends_with(r#""kind":"counter","value":7}"#), "{}", told[0]);
        assert!(told[1].ends_with(r#""count":9,"sum":4.0,"max":3.0,"bounds":[1.0],"buckets":[7,2]}"#), "{}", told[1]);
        assert!(told[2].ends_with(r#""kind":"meter","value":1}"#), "another subtask thinks otherwise: {}", told[2]);
    }

    #[test]
    fn a_meter_has_a_rate_from_its_second_report_on() {
        let (before, now) = ([metric("seen", UserValue::Meter(10))], [metric("seen", UserValue::Meter(40))]);
        let rate = |before: &[_], seconds| UserMetric::all(&now, before, seconds)[0].per_second;
        assert_eq!(rate(&[], 0.5), Some(0.0));
        assert_eq!(rate(&before, 0.5), Some(60.0));
        assert_eq!(rate(&before, 0.0), Some(0.0));
    }
}
