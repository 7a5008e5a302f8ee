//! Metric objects for users' functions, with the members that `flownet.metrics` promises.

use std::sync::Arc;

use flownet_runtime::TaskMetrics;
use flownet_runtime::user_metrics::{Count, Distribution, Level, UserKind, UserMetric};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::failure::OperatorInfo;

/// The metrics of an operator in one subtask.
#[pyclass(frozen, name = "Metrics", module = "flownet._flownet")]
#[derive(Clone, Debug)]
pub struct PyMetrics {
    operator: String,
    task: Arc<TaskMetrics>,
}

impl PyMetrics {
    pub(super) fn new(info: &OperatorInfo, task: &Arc<TaskMetrics>) -> Self {
        Self { operator: info.operator.clone(), task: Arc::clone(task) }
    }

    fn get(&self, name: &str, kind: UserKind) -> PyResult<UserMetric> {
        self.task.users().get(&self.operator, name, kind).map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

#[pymethods]
impl PyMetrics {
    fn counter(&self, name: &str) -> PyResult<PyCounter> {
        self.get(name, UserKind::Counter).map(PyCounter)
    }

    fn meter(&self, name: &str) -> PyResult<PyMeter> {
        self.get(name, UserKind::Meter).map(PyMeter)
    }

    fn gauge(&self, name: &str) -> PyResult<PyGauge> {
        self.get(name, UserKind::Gauge).map(PyGauge)
    }

    #[pyo3(signature = (name, buckets = None))]
    fn histogram(&self, name: &str, buckets: Option<Vec<f64>>) -> PyResult<PyHistogram> {
        let buckets = buckets.unwrap_or_else(|| SECONDS.to_vec());
        self.get(name, UserKind::Histogram(buckets)).map(PyHistogram)
    }
}

/// A number that only grows.
#[pyclass(frozen, name = "Counter", module = "flownet._flownet")]
#[derive(Debug)]
pub struct PyCounter(UserMetric);

#[pymethods]
impl PyCounter {
    #[pyo3(signature = (by = 1))]
    fn inc(&self, by: i64) -> PyResult<()> {
        grow(&self.0, by)
    }

    #[getter]
    fn value(&self) -> u64 {
        self.0.as_count().map_or(0, Count::get)
    }

    fn __repr__(&self) -> String {
        format!("<Counter {:?}: {}>", self.0.name(), self.value())
    }
}

/// The same, which is shown with its rate.
#[pyclass(frozen, name = "Meter", module = "flownet._flownet")]
#[derive(Debug)]
pub struct PyMeter(UserMetric);

#[pymethods]
impl PyMeter {
    #[pyo3(signature = (by = 1))]
    fn mark(&self, by: i64) -> PyResult<()> {
        grow(&self.0, by)
    }

    #[getter]
    fn value(&self) -> u64 {
        self.0.as_count().map_or(0, Count::get)
    }

    fn __repr__(&self) -> String {
        format!("<Meter {:?}: {}>", self.0.name(), self.value())
    }
}

/// What something is now.
#[pyclass(frozen, name = "Gauge", module = "flownet._flownet")]
#[derive(Debug)]
pub struct PyGauge(UserMetric);

#[pymethods]
impl PyGauge {
    fn set(&self, to: f64) {
        self.0.as_level().inspect(|level| level.set(to));
    }

    #[pyo3(signature = (by = 1.0))]
    fn inc(&self, by: f64) {
        self.0.as_level().inspect(|level| level.add(by));
    }

    #[pyo3(signature = (by = 1.0))]
    fn dec(&self, by: f64) {
        self.inc(-by);
    }

    #[getter]
    fn value(&self) -> Option<f64> {
        self.0.as_level().map(Level::get).filter(|level| !level.is_nan())
    }

    fn __repr__(&self) -> String {
        let value = self.value().map_or("not set".to_owned(), |value| value.to_string());
        format!("<Gauge {:?}: {value}>", self.0.name())
    }
}

/// How numbers are spread.
#[pyclass(frozen, name = "Histogram", module = "flownet._flownet")]
#[derive(Debug)]
pub struct PyHistogram(UserMetric);

#[pymethods]
impl PyHistogram {
    fn observe(&self, value: f64) {
        self.0.as_distribution().inspect(|distribution| distribution.observe(value));
    }

    #[getter]
    fn count(&self) -> u64 {
        self.0.as_distribution().map(Distribution::snapshot).map_or(0, |held| held.count)
    }

    #[getter]
    fn sum(&self) -> f64 {
        self.0.as_distribution().map(Distribution::snapshot).map_or(0.0, |held| held.sum)
    }

    fn __repr__(&self) -> String {
        format!("<Histogram {:?}: {} of sum {}>", self.0.name(), self.count(), self.sum())
    }
}

fn grow(metric: &UserMetric, by: i64) -> PyResult<()> {
    let Ok(by) = u64::try_from(by) else {
        let text = format!("{:?} only grows, and {by} would take from it: a gauge goes up and down", metric.name());
        return Err(PyValueError::new_err(text));
    };
    metric.as_count().inspect(|count| count.add(by));
    Ok(())
}

/// Prometheus' usual buckets, for durations in seconds.
const SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
