//! Exports metrics of jobs to Prometheus as OpenMetrics text. Ended jobs remain for some minutes, so that their last
//! values are scraped too.

use std::collections::HashMap;
use std::fmt;

use flownet_cluster::JobState;
use flownet_runtime::user_metrics::DistributionSnapshot;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;

use crate::jobs::{Jobs, ShownJob, now_ms};
use crate::metrics::{Kind, Labels, MeasuredJob, Point, Value, families};

/// Content type of the text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns the current metrics of all jobs.
pub(crate) fn text(jobs: &Jobs) -> String {
    let scrape = Scrape { jobs: jobs.all().iter().filter_map(|job| scraped(job)).collect() };
    let mut registry = Registry::with_prefix("flownet");
    registry.register_collector(Box::new(scrape));
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut text, &registry);
    text
}

fn scraped(job: &ShownJob) -> Option<MeasuredJob> {
    let measured = MeasuredJob::now(&job.view, vec![("job_id", job.id.clone())]);
    let status = measured.status();
    let ended_ms = job.began_ms + status.elapsed.as_millis() as u64;
    (status.state != JobState::Ended || ended_ms + ENDED_FOR_MS >= now_ms()).then_some(measured)
}

#[derive(Debug)]
struct Scrape {
    jobs: Vec<MeasuredJob>,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in families(&self.jobs) {
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(&family.name, family.help, None, kind)?;
            for point in &family.points {
                match point.own {
                    None => encode_point(&mut metric, point.labels, family.kind, point)?,
                    Some(own) => encode_point(&mut metric, &(point.labels.as_slice(), [own]), family.kind, point)?,
                }
            }
        }
        Ok(())
    }
}

fn encode_point(
    metric: &mut MetricEncoder<'_>,
    labels: &impl EncodeLabelSet,
    kind: Kind,
    point: &Point<'_>,
) -> fmt::Result {
    let mut metric = metric.encode_family(labels)?;
    match (point.value, kind) {
        (Value::Whole(count), Kind::Counter) => metric.encode_counter::<Labels, _, f64>(&count, NO_EXEMPLAR),
        (Value::Real(sum), Kind::Counter) => metric.encode_counter::<Labels, _, f64>(&sum, NO_EXEMPLAR),
        (Value::Whole(count), _) => metric.encode_gauge(&count),
        (Value::Real(level), _) => metric.encode_gauge(&level),
        (Value::Spread(DistributionSnapshot { count, sum, bounds, buckets, .. }), _) => {
            let bounds = bounds.iter().copied().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(buckets.iter().copied()).collect();
            metric.encode_histogram(*sum, *count, &buckets, NO_EXEMPLARS)
        }
    }
}

const NO_EXEMPLAR: Option<&Exemplar<Labels, f64>> = None;
const NO_EXEMPLARS: Option<&HashMap<usize, Exemplar<Labels, f64>>> = None;
/// Time for which an ended job is still exported.
const ENDED_FOR_MS: u64 = 5 * 60 * 1000;
