//! Metrics of a job for export from Python: those of `flownet_web`, as plain values.

use std::collections::HashMap;
use std::time::Duration;

use flownet_cluster::JobView;
use flownet_runtime::user_metrics::DistributionSnapshot;
use flownet_web::{Kind, Labels, MeasuredJob, Point, Value, families};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::door::{Origin, enter, enter_until};
use crate::job::PyJobHandle;

/// Measures a job, also when it has ended. Nothing of the job is kept alive by it.
#[pyclass(frozen, name = "JobMetrics", module = "flownet._flownet")]
pub(crate) struct PyJobMetrics {
    view: JobView,
    origin: Origin,
}

/// A metric: its name, its description, its kind, and its points.
type Family<'py> = (String, &'static str, &'static str, Vec<(Bound<'py, PyDict>, Bound<'py, PyAny>)>);

#[pymethods]
impl PyJobMetrics {
    #[new]
    fn new(job: &PyJobHandle) -> Self {
        Self { view: job.view(), origin: Origin::here() }
    }

    /// Wait for the end of the job, and say whether it has come.
    fn wait(&self, py: Python<'_>, timeout_ms: u64) -> PyResult<bool> {
        let timeout = Duration::from_millis(timeout_ms);
        let ended = enter_until(py, self.origin, timeout, |slice| self.view.wait(Some(slice)))?;
        Ok(ended.is_some())
    }

    /// How long ago the job was submitted, since when each of its tasks counts, in seconds since then, and all metrics. A
    /// point is labels and a number; of a histogram `(count, sum, max, bounds, buckets)`.
    fn now<'py>(&self, py: Python<'py>) -> PyResult<(f64, Vec<f64>, Vec<Family<'py>>)> {
        let measured = enter(py, self.origin, || [MeasuredJob::now(&self.view, Vec::new())])?;
        let status = measured[0].status();
        let began = status.vertices.iter().map(|vertex| vertex.began.as_secs_f64()).collect();
        let mut known = LabelCache::default();
        let families = families(&measured).into_iter().map(|family| {
            let points = family.points.iter().map(|point| Ok((known.labels(py, point)?, number(py, point.value)?)));
            Ok((family.name.into_owned(), family.help, kind(family.kind), points.collect::<PyResult<_>>()?))
        });
        Ok((status.elapsed.as_secs_f64(), began, families.collect::<PyResult<_>>()?))
    }
}

/// Shares one dict among all points with the same labels.
#[derive(Default)]
struct LabelCache<'py>(HashMap<*const Labels, Bound<'py, PyDict>>);

impl<'py> LabelCache<'py> {
    fn labels(&mut self, py: Python<'py>, point: &Point<'_>) -> PyResult<Bound<'py, PyDict>> {
        let shared = self.0.entry(point.labels).or_insert_with(|| PyDict::new(py)).clone();
        if shared.is_empty() {
            point.labels.iter().try_for_each(|(name, value)| shared.set_item(name, value))?;
        }
        let Some((name, value)) = point.own else { return Ok(shared) };
        let own = shared.copy()?;
        own.set_item(name, value)?;
        Ok(own)
    }
}

fn number<'py>(py: Python<'py>, value: Value<'_>) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::Whole(count) => count.into_bound_py_any(py),
        Value::Real(real) => real.into_bound_py_any(py),
        Value::Spread(DistributionSnapshot { count, sum, max, bounds, buckets }) => {
            (*count, *sum, *max, bounds.to_vec(), buckets.clone()).into_bound_py_any(py)
        }
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    }
}
