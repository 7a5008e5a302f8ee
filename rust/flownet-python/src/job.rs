//! Plans and runs jobs: `explain`, `submit` and the handle of a job.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flownet_cluster::{Coordinator, JobHandle, JobState, JobView, WorkerCommand};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::chain::{Objects, PythonChainFactory, TaskThreads};
use crate::convert::{to_dict, to_python};
use crate::door::{Origin, enter, enter_until};
use crate::errors;
use crate::garbage;
use crate::graph::{PyEdge, PyOperator, dataflow};
use crate::log::PyJobLog;
use crate::logging;
use crate::settings::job_settings;
use crate::worker_pool::PyWorkerPool;

/// What a job will take, as text; where its memory would not do, the last line says so.
#[pyfunction]
pub(crate) fn explain(
    py: Python<'_>,
    operators: Vec<PyOperator>,
    edges: Vec<PyEdge>,
    settings: &Bound<'_, PyDict>,
) -> PyResult<String> {
    let settings = job_settings(settings)?;
    let dataflow = dataflow(operators, edges);
    let explained = py.detach(|| flownet_cluster::explain(&dataflow, &settings));
    let text = explained.map_err(|error| errors::cluster(py, error.into()))?.to_string();
    Ok(text.trim_end().to_owned())
}

/// Raise what `submit` would raise of the plan, without starting anything.
#[pyfunction]
pub(crate) fn check(
    py: Python<'_>,
    operators: Vec<PyOperator>,
    edges: Vec<PyEdge>,
    settings: &Bound<'_, PyDict>,
) -> PyResult<()> {
    let settings = job_settings(settings)?;
    let dataflow = dataflow(operators, edges);
    let checked = py.detach(|| Coordinator::check(&dataflow, &settings));
    checked.map_err(|error| errors::cluster(py, error))
}

/// Start a job. Its workers are those of `pool`, or processes that run `command`; they are given `init`. `objects` are what
/// operators of this process use directly.
#[pyfunction]
#[pyo3(signature = (operators, edges, settings, objects, command, init, pool))]
#[expect(clippy::too_many_arguments, reason = "called from one place in Python, where each has its name")]
pub(crate) fn submit(
    py: Python<'_>,
    operators: Vec<PyOperator>,
    edges: Vec<PyEdge>,
    settings: &Bound<'_, PyDict>,
    objects: HashMap<u32, Py<PyAny>>,
    command: Vec<String>,
    init: Vec<u8>,
    pool: Option<&PyWorkerPool>,
) -> PyResult<PyJobHandle> {
    logging::install();
    garbage::install(py)?;
    let settings = job_settings(settings)?;
    let workers = settings.workers;
    let dataflow = dataflow(operators, edges);
    let factory = Arc::new(PythonChainFactory::new(Arc::new(Objects::new(objects))));
    let threads = factory.threads();
    let launcher = match pool {
        Some(pool) => pool.launcher(init),
        None => worker_command(command, init).into(),
    };
    let submitted = py.detach(|| Coordinator::submit(&dataflow, settings, launcher, factory));
    let handle = submitted.map_err(|error| errors::cluster(py, error))?;
    Ok(PyJobHandle::new(handle, workers, threads))
}

fn worker_command(command: Vec<String>, init: Vec<u8>) -> WorkerCommand {
    let mut words = command.into_iter().map(Into::into);
    let env = hash_seed().map(|seed| (HASH_SEED.into(), seed.into())).into_iter().collect();
    WorkerCommand { program: words.next().unwrap_or_default(), args: words.collect(), env, init }
}

/// The seed of `hash()` for all workers of a job, unless they inherit one: a string must have the same hash
/// in all of them.
fn hash_seed() -> Option<String> {
    let inherited = std::env::var(HASH_SEED).is_ok_and(|seed| seed.parse::<u32>().is_ok());
    // As hard to guess as the seeds of the standard library's own hash maps.
    (!inherited).then(|| (RandomState::new().hash_one(HASH_SEED) as u32).to_string())
}

/// Environment variable from which Python reads the seed.
const HASH_SEED: &str = "PYTHONHASHSEED";

/// A job that was submitted. When the handle is closed or collected, nothing of the job is left.
#[pyclass(frozen, name = "JobHandle", module = "flownet._flownet")]
pub(crate) struct PyJobHandle {
    view: JobView,
    /// The job, until it is closed. Dropping the last reference waits for its tasks, which may need the
    /// interpreter to end. So drop it detached only.
    handle: Mutex<Option<Arc<JobHandle>>>,
    workers: u32,
    threads: Arc<TaskThreads>,
    origin: Origin,
}

impl PyJobHandle {
    fn new(handle: JobHandle, workers: u32, threads: Arc<TaskThreads>) -> Self {
        let view = JobView::clone(&handle);
        Self { view, handle: Mutex::new(Some(Arc::new(handle))), workers, threads, origin: Origin::here() }
    }

    /// A view of the job, for displays.
    pub(crate) fn view(&self) -> JobView {
        self.view.clone()
    }

    /// Ends the job and waits until its last thread has ended. Call detached.
    fn end(&self) {
        let Some(handle) = self.lock().clone() else { return };
        handle.cancel();
        if handle.wait(Some(CANCEL_COURTESY)).is_none() {
            Python::attach(|py| self.threads.interrupt(py));
            let _ = handle.wait(None);
        }
        // The job has abandoned threads that are still running. If one still runs Python code when Python
        // ends, it would crash the process.
        Python::attach(|py| self.threads.interrupt(py));
        self.threads.wait_until_left(INTERRUPT_LIMIT);
        let ours = self.lock().take();
        drop((ours, handle));
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<JobHandle>>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyJobHandle {
    /// Wait for the end; None when the time is over first. Raises what ended the job.
    fn wait<'py>(&self, py: Python<'py>, timeout_ms: u64) -> PyResult<Option<Bound<'py, PyDict>>> {
        let timeout = Duration::from_millis(timeout_ms);
        let answer = enter_until(py, self.origin, timeout, |slice| self.view.wait(Some(slice)))?;
        match answer {
            None => Ok(None),
            Some(Ok(report)) => {
                let report = to_dict(py, &report)?;
                report.set_item("state", to_python(py, &JobState::Ended)?)?;
                report.set_item("workers", self.workers)?;
                Ok(Some(report))
            }
            Some(Err(error)) => Err(errors::cluster(py, error)),
        }
    }

    /// Where the job is, at this moment.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let status = enter(py, self.origin, || self.view.status())?;
        let status = to_dict(py, &status)?;
        status.set_item("workers", self.workers)?;
        Ok(status)
    }

    /// Every subtask and process, as last reported.
    fn sample<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let sample = enter(py, self.origin, || self.view.sample())?;
        to_dict(py, &sample)
    }

    /// When the job was last found to stand still, if that is news to who knows of `after` times.
    fn stall<'py>(&self, py: Python<'py>, after: u32) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some((number, stall)) = enter(py, self.origin, || self.view.stall_after(after))? else { return Ok(None) };
        let job = &self.view.settings().job_name;
        let dict = to_dict(py, &stall)?;
        dict.set_item("number", number)?;
        dict.set_item("text", format!("job {job:?}: {stall}"))?;
        dict.set_item("job", job)?;
        Ok(Some(dict))
    }

    /// Ask the job to end well, with what waits for time if `drain`, and for a savepoint of its end. Returns at once.
    #[pyo3(signature = (drain, savepoint))]
    fn stop(&self, py: Python<'_>, drain: bool, savepoint: Option<&str>) -> PyResult<()> {
        let Some(url) = savepoint else { return enter(py, self.origin, || self.view.stop(drain)) };
        let stopped = enter(py, self.origin, || self.view.stop_with_savepoint(drain, url))?;
        stopped.map_err(|error| errors::cluster(py, error))
    }

    /// Ask for a checkpoint now. Returns at once.
    fn trigger_checkpoint(&self, py: Python<'_>) -> PyResult<()> {
        let triggered = enter(py, self.origin, || self.view.trigger_checkpoint())?;
        triggered.map_err(|error| errors::cluster(py, error))
    }

    /// Take a savepoint and wait until it is written; None when the time is over first.
    fn savepoint<'py>(&self, py: Python<'py>, url: &str, timeout_ms: u64) -> PyResult<Option<Bound<'py, PyDict>>> {
        let asked = enter(py, self.origin, || self.view.savepoint(url))?;
        let pending = Mutex::new(asked.map_err(|error| errors::cluster(py, error))?);
        let timeout = Duration::from_millis(timeout_ms);
        let answer = enter_until(py, self.origin, timeout, |slice| {
            pending.lock().unwrap_or_else(PoisonError::into_inner).wait(slice)
        })?;
        let saved = answer.transpose().map_err(|error| errors::cluster(py, error))?;
        saved.map(|saved| to_dict(py, &saved)).transpose()
    }

    /// Tell a source that there is more to read, as a list of `(turn, split, position)`, encoded, if the attempt behind so many
    /// restarts still runs.
    fn add_splits(&self, py: Python<'_>, operator: u32, restarted: u64, splits: Vec<u8>) -> PyResult<()> {
        enter(py, self.origin, || self.view.add_splits(operator, restarted, splits))
    }

    /// What was said in it; its workers wait for whoever has that to print it. Called once.
    fn log(&self) -> PyJobLog {
        PyJobLog::new(self.view())
    }

    /// Ask the job to end. Returns at once.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        enter(py, self.origin, || self.view.cancel())
    }

    /// End the job if it still runs, and wait until nothing of it is left.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        enter(py, self.origin, || self.end())
    }
}

impl Drop for PyJobHandle {
    fn drop(&mut self) {
        if self.origin.is_here() {
            Python::attach(|py| py.detach(|| self.end()));
        } else {
            // After a fork, the threads to wait for belong to the parent.
            std::mem::forget(self.lock().take());
        }
    }
}

/// Wait until no function of any job in this process runs any more; false if some still do when the time is over. They are
/// interrupted: what waits inside a call notices when the call returns.
#[pyfunction]
pub(crate) fn end_functions(py: Python<'_>, timeout_ms: u64) -> bool {
    let threads = TaskThreads::of_all_jobs();
    threads.interrupt(py);
    py.detach(|| threads.wait_until_left(Duration::from_millis(timeout_ms)))
}

/// How long functions in this process may continue after their job is closed, before they are interrupted.
const CANCEL_COURTESY: Duration = Duration::from_secs(1);
/// How long an interrupted thread may take to leave. A thread that sleeps does not notice the interrupt.
const INTERRUPT_LIMIT: Duration = Duration::from_millis(200);
