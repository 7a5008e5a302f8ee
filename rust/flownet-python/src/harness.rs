//! Runs the tasks of a job on the caller's thread, under control of `flownet.testing`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use flownet_cluster::plan::Plan;
use flownet_cluster::{ClusterError, UserMetric, WorkerIdentity};
use flownet_runtime::deploy::{Harness, HarnessStop};
use flownet_runtime::operator::StateKind;
use flownet_runtime::snapshot::StatePart;
use flownet_runtime::time::Clock;
use flownet_runtime::window::Window;
use flownet_runtime::{MetricsSnapshot, TaskChain, TaskError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::chain::{Objects, PythonChainFactory, PythonFormat};
use crate::convert::to_dict;
use crate::errors;
use crate::graph::{PyEdge, PyOperator, dataflow};
use crate::settings::job_settings;

/// The tasks of a job, which take their steps when they are told to.
#[pyclass(frozen, name = "Harness", module = "flownet._flownet")]
pub(crate) struct PyHarness(Mutex<Option<Harness>>);

/// What operators of a harness kept, for another one to begin with.
#[pyclass(frozen, name = "HarnessState", module = "flownet._flownet")]
pub(crate) struct PyHarnessState(Vec<StatePart>);

/// A value of an operator's state: the operator, the kind of state, the key, the window, and the value.
type PyKept<'py> = (String, &'static str, Option<Bound<'py, PyAny>>, Option<(i64, i64)>, Bound<'py, PyAny>);

/// A timer: the operator, its clock, the time at which it is due, the key, and the window.
type PyTimer<'py> = (String, &'static str, i64, Option<Bound<'py, PyAny>>, Option<(i64, i64)>);

impl PyHarness {
    /// Locks the harness. Functions run under the lock, so one that calls its own harness would wait for
    /// itself.
    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Option<Harness>>> {
        match self.0.try_lock() {
            Ok(held) => Ok(held),
            Err(TryLockError::Poisoned(held)) => Ok(held.into_inner()),
            Err(TryLockError::WouldBlock) => {
                Err(errors::flownet(py, "the harness is at work: call it from the test, not from what it runs"))
            }
        }
    }

    /// Takes steps. A failed step ends the harness: open operators are closed, and nothing runs any more.
    fn drive(&self, py: Python<'_>, steps: impl FnOnce(&mut Harness) -> Result<(), HarnessStop>) -> PyResult<()> {
        let mut held = self.lock(py)?;
        let Some(harness) = held.as_mut() else { return Err(closed(py)) };
        let Err(stopped) = steps(harness) else { return Ok(()) };
        drop(held.take());
        Err(failed(py, stopped))
    }

    fn look<R>(&self, py: Python<'_>, look: impl FnOnce(&mut Harness) -> PyResult<R>) -> PyResult<R> {
        match self.lock(py)?.as_mut() {
            Some(harness) => look(harness),
            None => Err(closed(py)),
        }
    }
}

#[pymethods]
impl PyHarness {
    /// Plans the job as if it ran in this process, and opens its operators. `objects` are what they use directly.
    #[new]
    #[pyo3(signature = (operators, edges, settings, objects, now_ms, restored=None))]
    fn new(
        py: Python<'_>,
        operators: Vec<PyOperator>,
        edges: Vec<PyEdge>,
        settings: &Bound<'_, PyDict>,
        objects: HashMap<u32, Py<PyAny>>,
        now_ms: i64,
        restored: Option<&Bound<'_, PyHarnessState>>,
    ) -> PyResult<Self> {
        let settings = job_settings(settings)?;
        let plan = Plan::new(&dataflow(operators, edges), &settings);
        let plan = plan.map_err(|error| errors::cluster(py, error.into()))?;
        let factory = PythonChainFactory::of_callers_thread(Arc::new(Objects::new(objects)));
        let refused = |error: TaskError| {
            failed(py, HarnessStop { task: "harness".to_owned(), subtask: 0, parallelism: 1, error })
        };
        let mut tasks = Vec::with_capacity(plan.tasks.len());
        for task in plan.tasks {
            let chain: TaskChain = if flownet_rows::is_of_rows(&task.spec) {
                factory.rows_chain(&task.spec).map_err(refused)?.into()
            } else {
                factory.chain(py, &task.spec).map_err(refused)?.into()
            };
            tasks.push((task.spec, chain));
        }
        let harness = Harness::new(tasks, now_ms, settings.max_record_bytes).map_err(refused)?;
        let made = Self(Mutex::new(Some(harness)));
        let restored = restored.map_or_else(Vec::new, |restored| restored.get().0.clone());
        made.drive(py, |harness| harness.open(&restored))?;
        Ok(made)
    }

    /// Takes every step that can be taken now.
    fn run(&self, py: Python<'_>) -> PyResult<()> {
        self.drive(py, Harness::run)
    }

    /// Moves the clock.
    fn advance_to(&self, py: Python<'_>, now_ms: i64) -> PyResult<()> {
        self.drive(py, |harness| harness.advance_to(now_ms))
    }

    /// What the operators behind its sources keep.
    fn snapshot(&self, py: Python<'_>) -> PyResult<PyHarnessState> {
        let mut kept = Vec::new();
        self.drive(py, |harness| harness.snapshot().map(|parts| kept = parts))?;
        Ok(PyHarnessState(kept))
    }

    /// What the clock shows.
    fn now_ms(&self, py: Python<'_>) -> PyResult<i64> {
        self.look(py, |harness| Ok(harness.now_ms()))
    }

    /// Whether every input has ended.
    fn has_ended(&self, py: Python<'_>) -> PyResult<bool> {
        self.look(py, |harness| Ok(harness.has_ended()))
    }

    /// Everything that operators keep.
    fn kept<'py>(&self, py: Python<'py>) -> PyResult<Vec<PyKept<'py>>> {
        self.look(py, |harness| {
            let mut all = Vec::new();
            for (operator, looked) in looked(py, harness)? {
                all.extend(
                    looked.kept.into_iter().map(|kept| {
                        (operator.clone(), name_of(kept.what), kept.key, kept.window.map(ends), kept.value)
                    }),
                );
            }
            Ok(all)
        })
    }

    /// Every timer that is set.
    fn timers<'py>(&self, py: Python<'py>) -> PyResult<Vec<PyTimer<'py>>> {
        self.look(py, |harness| {
            let mut all = Vec::new();
            for (operator, looked) in looked(py, harness)? {
                all.extend(looked.timers.into_iter().map(|timer| {
                    let clock = if timer.clock == Clock::Event { "event" } else { "processing" };
                    (operator.clone(), clock, timer.timestamp_ms, timer.key, timer.window.map(ends))
                }));
            }
            Ok(all)
        })
    }

    /// Records that came too late, over all tasks, and the watermark of each task with inputs.
    fn counters(&self, py: Python<'_>) -> PyResult<(u64, Vec<Option<i64>>)> {
        self.look(py, |harness| {
            let (mut late, mut watermarks) = (0, Vec::new());
            for (spec, MetricsSnapshot { event_time, .. }) in harness.metrics() {
                late += event_time.late_records;
                if !spec.is_source() {
                    watermarks.push(event_time.watermark_ms);
                }
            }
            Ok((late, watermarks))
        })
    }

    /// What functions count, each as a `flownet.UserMetric` takes it.
    fn user_metrics<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.look(py, |harness| {
            let all: Vec<_> = harness.user_metrics().collect();
            UserMetric::all(&all, &[], 0.0).iter().map(|metric| to_dict(py, metric)).collect()
        })
    }

    /// Closes what is open. Harmless when it was done.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let harness = self.lock(py)?.take();
        let Some(mut harness) = harness else { return Ok(()) };
        harness.close().map_err(|stopped| failed(py, stopped))
    }
}

impl Drop for PyHarness {
    fn drop(&mut self) {
        let held = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        Python::attach(|_| drop(held));
    }
}

/// State of an operator.
type ChainInspection<'py> = flownet_runtime::operator::Inspection<Bound<'py, PyAny>, Bound<'py, PyAny>>;

/// The state of all operators with their names. State of rows does not consist of objects.
fn looked<'py>(py: Python<'py>, harness: &Harness) -> PyResult<Vec<(String, ChainInspection<'py>)>> {
    let mut all = Vec::new();
    for (spec, chain) in harness.chains::<PythonFormat>() {
        let decode = |format: &PythonFormat, bytes: &[u8], info: &_| format.decode(py, bytes, info);
        let inspected = chain.inspect(py, decode, |info, found| all.push((info.name().to_owned(), found)));
        inspected.map_err(|error| {
            let (subtask, parallelism) = (spec.subtask, spec.parallelism);
            failed(py, HarnessStop { task: spec.name.clone(), subtask, parallelism, error })
        })?;
    }
    Ok(all)
}

fn ends(window: Window) -> (i64, i64) {
    (window.start_ms, window.end_ms)
}

fn name_of(what: StateKind) -> &'static str {
    match what {
        StateKind::State => "state",
        StateKind::Value => "value",
        StateKind::Left => "left",
        StateKind::Right => "right",
        StateKind::BroadcastState => "broadcast_state",
        StateKind::Window => "window",
        StateKind::WindowState => "window_state",
        StateKind::GlobalState => "global_state",
        StateKind::TriggerState => "trigger_state",
    }
}

/// The error with which a job would have ended.
fn failed(py: Python<'_>, HarnessStop { task, subtask, parallelism, error }: HarnessStop) -> PyErr {
    let worker = WorkerIdentity { worker: 0, address: None, pid: None, place: None };
    errors::cluster(
        py,
        match error {
            TaskError::Operator(failure) => ClusterError::Operator { failure, worker },
            error => ClusterError::Task { task, subtask, parallelism, worker, error: Box::new(error) },
        },
    )
}

fn closed(py: Python<'_>) -> PyErr {
    errors::flownet(py, "the harness is closed, or a function in it has failed: make a new one")
}
