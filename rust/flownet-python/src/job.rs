//! Planning and running jobs: `explain`, `submit` and the handle on a job.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flownet_cluster::{
    ClusterError, Coordinator, JobHandle, JobReport, JobSample, JobState, JobStatus, Launcher, Stall, TaskSample,
    VertexReport, WorkerCommand, WorkerSample,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::chain::{Objects, PythonChainFactory, TaskThreads};
use crate::crew::PyCrew;
use crate::door::{Origin, enter, enter_until};
use crate::errors;
use crate::graph::{PyEdge, PyOperator, dataflow};
use crate::logging;
use crate::settings::Settings;

/// What a job will take, as text; where its memory would not do, the last line says so.
#[pyfunction]
pub(crate) fn explain(
    py: Python<'_>,
    operators: Vec<PyOperator>,
    edges: Vec<PyEdge>,
    settings: &Bound<'_, PyDict>,
) -> PyResult<String> {
    let settings = Settings::from_dict(settings)?;
    let dataflow = dataflow(operators, edges, settings.pickle)?;
    let explained = py.detach(|| flownet_cluster::explain(&dataflow, &settings.job));
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
    let settings = Settings::from_dict(settings)?;
    let dataflow = dataflow(operators, edges, settings.pickle)?;
    let checked = py.detach(|| Coordinator::check(&dataflow, &settings.job));
    checked.map_err(|error| errors::cluster(py, error))
}

/// Start a job. Its workers are those of `crew`, or processes that run `command`; they are given `init`. `objects` are what
/// operators of this process use directly.
#[pyfunction]
#[pyo3(signature = (operators, edges, settings, objects, command, init, crew))]
#[expect(clippy::too_many_arguments, reason = "called from one place in Python, where each has its name")]
pub(crate) fn submit(
    py: Python<'_>,
    operators: Vec<PyOperator>,
    edges: Vec<PyEdge>,
    settings: &Bound<'_, PyDict>,
    objects: HashMap<u32, Py<PyAny>>,
    command: Vec<String>,
    init: Vec<u8>,
    crew: Option<&PyCrew>,
) -> PyResult<PyJobHandle> {
    logging::install();
    let settings = Settings::from_dict(settings)?;
    let workers = settings.job.workers;
    let dataflow = dataflow(operators, edges, settings.pickle)?;
    let factory = Arc::new(PythonChainFactory::new(Arc::new(Objects::new(objects))));
    let threads = factory.threads();
    let launcher = match crew {
        Some(crew) => Launcher::Crew { crew: crew.share(), init },
        None => worker_command(command, init).into(),
    };
    let submitted = py.detach(|| Coordinator::submit(&dataflow, settings.job, launcher, factory));
    let handle = submitted.map_err(|error| errors::cluster(py, error))?;
    Ok(PyJobHandle::new(handle, workers, threads))
}

fn worker_command(command: Vec<String>, init: Vec<u8>) -> WorkerCommand {
    let mut words = command.into_iter().map(Into::into);
    WorkerCommand { program: words.next().unwrap_or_default(), args: words.collect(), env: Vec::new(), init }
}

/// A job that was submitted. When the handle is closed or collected, nothing of the job is left.
#[pyclass(frozen, name = "JobHandle", module = "flownet._flownet")]
pub(crate) struct PyJobHandle {
    phase: Mutex<Phase>,
    workers: u32,
    threads: Arc<TaskThreads>,
    origin: Origin,
}

/// Dropping the last reference to a job waits for its tasks, which may need the interpreter to end: always detached.
enum Phase {
    Live(Arc<JobHandle>),
    /// Nothing of the job is left but how it ended.
    Closed(Arc<Ended>),
}

struct Ended {
    result: Option<Result<JobReport, ClusterError>>,
    status: JobStatus,
    sample: JobSample,
}

impl PyJobHandle {
    fn new(handle: JobHandle, workers: u32, threads: Arc<TaskThreads>) -> Self {
        Self { phase: Mutex::new(Phase::Live(Arc::new(handle))), workers, threads, origin: Origin::here() }
    }

    /// Asks the job if it is still there, or what is known of its end. Call detached.
    fn ask<R>(&self, live: impl FnOnce(&JobHandle) -> R, ended: impl FnOnce(&Ended) -> R) -> R {
        let phase = match &*self.lock() {
            Phase::Live(handle) => Ok(Arc::clone(handle)),
            Phase::Closed(end) => Err(Arc::clone(end)),
        };
        match phase {
            Ok(handle) => live(&handle),
            Err(end) => ended(&end),
        }
    }

    /// Ends the job and waits until its last thread is gone. Call detached.
    fn end(&self) {
        let handle = match &*self.lock() {
            Phase::Live(handle) => Arc::clone(handle),
            Phase::Closed(_) => return,
        };
        handle.cancel();
        let result = handle.wait(Some(CANCEL_COURTESY)).or_else(|| {
            Python::attach(|py| self.threads.interrupt(py));
            handle.wait(None)
        });
        // A thread that is still there was given up by the job. One that still runs Python code when Python ends would take
        // the process down.
        Python::attach(|py| self.threads.interrupt(py));
        self.threads.wait_until_left(INTERRUPT_LIMIT);
        let ended = Arc::new(Ended { result, status: handle.status(), sample: handle.sample() });
        let before = std::mem::replace(&mut *self.lock(), Phase::Closed(ended));
        drop((before, handle));
    }

    fn lock(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report_dict<'py>(&self, py: Python<'py>, report: &JobReport) -> PyResult<Bound<'py, PyDict>> {
        let JobReport { job_name, elapsed, vertices, bottleneck, stalls } = report;
        let dict = self.dict(py, job_name, JobState::Ended, *elapsed, vertices)?;
        dict.set_item("bottleneck", bottleneck.as_ref().map(ToString::to_string))?;
        dict.set_item("stalled", stalls.as_ref().map(ToString::to_string))?;
        Ok(dict)
    }

    fn dict<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        state: JobState,
        elapsed: Duration,
        vertices: &[VertexReport],
    ) -> PyResult<Bound<'py, PyDict>> {
        let tasks = PyList::empty(py);
        for vertex in vertices {
            tasks.append(task_dict(py, vertex)?)?;
        }
        let dict = PyDict::new(py);
        dict.set_item("name", name)?;
        dict.set_item("state", state_name(state))?;
        dict.set_item("workers", self.workers)?;
        dict.set_item("seconds", elapsed.as_secs_f64())?;
        dict.set_item("tasks", tasks)?;
        Ok(dict)
    }
}

#[pymethods]
impl PyJobHandle {
    /// Wait for the end; None when the time is over first. Raises what ended the job.
    fn wait<'py>(&self, py: Python<'py>, timeout_ms: u64) -> PyResult<Option<Bound<'py, PyDict>>> {
        let timeout = Duration::from_millis(timeout_ms);
        let answer = enter_until(py, self.origin, timeout, |slice| {
            self.ask(|job| job.wait(Some(slice)), |ended| ended.result.clone())
        })?;
        match answer {
            None => Ok(None),
            Some(Ok(report)) => self.report_dict(py, &report).map(Some),
            Some(Err(error)) => Err(errors::cluster(py, error)),
        }
    }

    /// Where the job is, at this moment.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let status = enter(py, self.origin, || self.ask(JobHandle::status, |ended| ended.status.clone()))?;
        let JobStatus { job_name, state, elapsed, vertices, bottleneck, stall, .. } = status;
        let dict = self.dict(py, &job_name, state, elapsed, &vertices)?;
        dict.set_item("bottleneck", bottleneck.map(|bottleneck| bottleneck.to_string()))?;
        dict.set_item("stalled", stall.map(|stall| stall.headline()))?;
        Ok(dict)
    }

    /// Every subtask and process, as last reported.
    fn sample<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let JobSample { state, elapsed, tasks, workers, stall } =
            enter(py, self.origin, || self.ask(JobHandle::sample, |ended| ended.sample.clone()))?;
        let dict = PyDict::new(py);
        dict.set_item("state", state_name(state))?;
        dict.set_item("seconds", elapsed.as_secs_f64())?;
        let tasks: Vec<_> = tasks.iter().map(|task| task_sample(py, task)).collect::<PyResult<_>>()?;
        dict.set_item("tasks", tasks)?;
        let workers: Vec<_> = workers.iter().map(|worker| worker_sample(py, worker)).collect::<PyResult<_>>()?;
        dict.set_item("workers", workers)?;
        dict.set_item("stalled", stall.map(|stall| stall.headline()))?;
        Ok(dict)
    }

    /// When the job was last found to stand still, if that is news to who knows of `after` times.
    fn stall<'py>(&self, py: Python<'py>, after: u32) -> PyResult<Option<Bound<'py, PyDict>>> {
        let asked = enter(py, self.origin, || {
            self.ask(|job| job.stall_after(after).map(|told| (told, job.status().job_name)), |_| None)
        })?;
        asked.map(|((number, stall), job)| stall_dict(py, number, &stall, &job)).transpose()
    }

    /// Ask the job to end. Returns at once.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        enter(py, self.origin, || self.ask(JobHandle::cancel, |_| ()))
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
        } else if let Phase::Live(handle) = &*self.lock() {
            // After a fork: the threads to wait for are the parent's.
            std::mem::forget(Arc::clone(handle));
        }
    }
}

/// How long functions in this process may go on undisturbed when their job is closed.
const CANCEL_COURTESY: Duration = Duration::from_secs(1);
/// How long an interrupted thread may take to leave; one that sleeps does not hear of it.
const INTERRUPT_LIMIT: Duration = Duration::from_millis(200);

fn task_dict<'py>(py: Python<'py>, vertex: &VertexReport) -> PyResult<Bound<'py, PyDict>> {
    let task = PyDict::new(py);
    task.set_item("name", &vertex.name)?;
    task.set_item("parallelism", vertex.parallelism)?;
    task.set_item("records_in", vertex.records_in)?;
    task.set_item("records_out", vertex.records_out)?;
    task.set_item("records_per_second", vertex.records_per_second)?;
    task.set_item("bytes_local", vertex.bytes_local)?;
    task.set_item("bytes_tcp", vertex.bytes_tcp)?;
    task.set_item("busy", vertex.busy)?;
    task.set_item("back_pressured", vertex.back_pressured)?;
    task.set_item("idle", vertex.idle)?;
    task.set_item("busiest", vertex.busiest)?;
    task.set_item("fill_limit", vertex.fill_limit_bytes)?;
    task.set_item("in_flight_seconds", vertex.in_flight.as_secs_f64())?;
    task.set_item("dropped_records", vertex.dropped_records)?;
    task.set_item("dropped_bytes", vertex.dropped_bytes)?;
    Ok(task)
}

fn task_sample<'py>(py: Python<'py>, sample: &TaskSample) -> PyResult<Bound<'py, PyDict>> {
    let TaskSample { name, metrics, .. } = sample;
    let queues = &metrics.queues;
    let task = PyDict::new(py);
    task.set_item("name", name)?;
    task.set_item("task", sample.vertex)?;
    task.set_item("subtask", sample.subtask)?;
    task.set_item("worker", sample.worker)?;
    task.set_item("ended", sample.has_ended)?;
    task.set_item("seconds", sample.at.as_secs_f64())?;
    task.set_item("records_in", metrics.records_in)?;
    task.set_item("records_out", metrics.records_out)?;
    task.set_item("records_in_per_second", sample.records_in_per_second)?;
    task.set_item("records_out_per_second", sample.records_out_per_second)?;
    task.set_item("bytes_local", metrics.bytes_in_local)?;
    task.set_item("bytes_tcp", metrics.bytes_in_remote)?;
    task.set_item("bytes_out", metrics.bytes_out)?;
    task.set_item("dropped_records", metrics.dropped_records)?;
    task.set_item("dropped_bytes", metrics.dropped_bytes)?;
    task.set_item("send_buffers", queues.send_buffers)?;
    task.set_item("send_bytes", queues.send_bytes)?;
    task.set_item("receive_buffers", queues.receive_buffers)?;
    task.set_item("receive_bytes", queues.receive_bytes)?;
    task.set_item("pool_used", queues.pool_used)?;
    task.set_item("pool_size", queues.pool_size)?;
    task.set_item("busy", sample.busy)?;
    task.set_item("back_pressured", sample.back_pressured)?;
    task.set_item("idle", sample.idle)?;
    Ok(task)
}

fn stall_dict<'py>(py: Python<'py>, number: u32, stall: &Stall, job: &str) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("number", number)?;
    dict.set_item("text", format!("job {job:?}: {stall}"))?;
    dict.set_item("job", job)?;
    dict.set_item("seconds", stall.still_for.as_secs_f64())?;
    dict.set_item("since", stall.since.as_secs_f64())?;
    dict.set_item("cause", stall.cause.name())?;
    dict.set_item("summary", &stall.summary)?;
    dict.set_item("chain", PyTuple::new(py, &stall.chain)?)?;
    dict.set_item("waiting", stall.waiting)?;
    Ok(dict)
}

fn worker_sample<'py>(py: Python<'py>, sample: &WorkerSample) -> PyResult<Bound<'py, PyDict>> {
    let worker = PyDict::new(py);
    worker.set_item("worker", sample.worker)?;
    worker.set_item("seconds", sample.at.as_secs_f64())?;
    worker.set_item("resident_bytes", sample.resident_bytes)?;
    worker.set_item("segments_used", sample.segments_used)?;
    worker.set_item("segments", sample.segments)?;
    Ok(worker)
}

fn state_name(state: JobState) -> &'static str {
    match state {
        JobState::Created => "created",
        JobState::Launching => "launching",
        JobState::Deploying => "deploying",
        JobState::Running => "running",
        JobState::Finishing => "finishing",
        JobState::Failing => "failing",
        JobState::Cancelling => "cancelling",
        JobState::Ended => "ended",
    }
}
