//! Entry points of `flownet bench` to flownet-bench. Settings and results cross as JSON, in the terms of that
//! crate.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use flownet_bench::{BenchRun, ExchangeSpec, LatencySpec, Launcher, ProcessCommand, Stop, Workload};
use pyo3::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::door::{Origin, enter_until};
use crate::errors;

/// Play the role that the bench at the other end of standard input gives.
#[pyfunction]
pub(crate) fn bench_party(py: Python<'_>) -> PyResult<()> {
    // The party has reported a failure to the bench, which raises it.
    let _ = py.detach(flownet_bench::run_party);
    py.import("os")?.call_method1("_exit", (0,))?;
    Ok(())
}

/// Settings of a bench of this kind (`exchange` or `latency`) where `given` leaves them out, checked.
#[pyfunction]
pub(crate) fn bench_settings(py: Python<'_>, kind: &str, given: &str) -> PyResult<String> {
    let checked = match workload(py, kind, given)? {
        Workload::Exchange(spec) => spec.validate().map(|()| to_json(&spec)),
        Workload::Latency(spec) => spec.validate().map(|()| to_json(&spec)),
    };
    checked.map_err(|error| errors::bench(py, error))
}

/// Settings of each row of the grid of Flink's own network benchmarks, on top of `given`.
#[pyfunction]
pub(crate) fn bench_grid(py: Python<'_>, given: &str) -> PyResult<Vec<String>> {
    let base: ExchangeSpec = from_json(py, given)?;
    Ok(flownet_bench::flink_grid(&base).iter().map(to_json).collect())
}

/// How runs with these settings are called in a table.
#[pyfunction]
pub(crate) fn bench_label(py: Python<'_>, kind: &str, settings: &str) -> PyResult<String> {
    workload(py, kind, settings).map(|workload| workload.label())
}

/// Measure one pair, twin and exchange, in processes that run `command`. Returns the run.
#[pyfunction]
pub(crate) fn bench_run(py: Python<'_>, kind: &str, settings: &str, command: Vec<String>) -> PyResult<String> {
    let workload = workload(py, kind, settings)?;
    let mut words = command.into_iter().map(Into::into);
    let command = ProcessCommand { program: words.next().unwrap_or_default(), args: words.collect() };
    let launcher = Launcher::Processes(command);
    let run = interruptible(py, move |stop| match &workload {
        Workload::Exchange(spec) => flownet_bench::run_exchange(spec, &launcher, stop),
        Workload::Latency(spec) => flownet_bench::run_latency(spec, &launcher, stop),
    })?;
    run.map(|run| to_json(&run)).map_err(|error| errors::bench(py, error))
}

/// A table of runs, a row for each kind and settings.
#[pyfunction]
pub(crate) fn bench_table(py: Python<'_>, runs: Vec<String>) -> PyResult<String> {
    let runs = runs.iter().map(|run| from_json(py, run)).collect::<PyResult<Vec<BenchRun>>>()?;
    Ok(flownet_bench::table(&runs))
}

/// Runs `work` on a thread of its own. A signal that raises in Python stops it; the call then waits until it
/// has ended.
fn interruptible<R: Send>(py: Python<'_>, work: impl FnOnce(&Stop) -> R + Send) -> PyResult<R> {
    let stop = Stop::default();
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let worker = stop.clone();
        scope.spawn(move || sender.send(work(&worker)));
        let receiver = Mutex::new(receiver);
        let poll = |slice| match receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(slice) {
            Ok(result) => Some(Ok(result)),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(())),
        };
        let outcome = loop {
            match enter_until(py, Origin::here(), SLICE, poll) {
                Ok(None) => {}
                Ok(Some(result)) => break result.map_err(|()| errors::flownet(py, "the bench ended without a result")),
                Err(interrupt) => break Err(interrupt),
            }
        };
        stop.stop();
        // The scope waits for the worker, which may take a moment. Release the interpreter for that.
        py.detach(|| while receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().is_ok() {});
        outcome
    })
}

fn workload(py: Python<'_>, kind: &str, settings: &str) -> PyResult<Workload> {
    match kind {
        "exchange" => from_json::<ExchangeSpec>(py, settings).map(Workload::Exchange),
        "latency" => from_json::<LatencySpec>(py, settings).map(Workload::Latency),
        other => Err(errors::flownet(py, &format!("there is no bench {other}"))),
    }
}

fn from_json<T: DeserializeOwned>(py: Python<'_>, json: &str) -> PyResult<T> {
    serde_json::from_str(json).map_err(|error| errors::config(py, "bench", &format!("settings of a bench: {error}")))
}

fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain structs with text keys have a JSON form")
}

/// Long enough to cost nothing. Signals are handled sooner, see `door`.
const SLICE: Duration = Duration::from_secs(3600);
