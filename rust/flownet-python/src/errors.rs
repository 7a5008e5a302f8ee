//! Converts errors to Python exceptions: each variant to its class of `flownet.errors`, with its numbers as
//! attributes.
//!
//! The classes are defined in Python and are looked up when the first error is raised.

use flownet_bench::BenchError;
use flownet_cluster::{ClusterError, PlanError, RestoreMismatch, SettingsError, StoreError, WorkerIdentity, way_out};
use flownet_runtime::error::{ExchangeFailure, ExchangeFailureKind};
use flownet_runtime::iteration::{IterationFailure, IterationFault};
use flownet_runtime::source::SourceError;
use flownet_runtime::state::DiskStateError;
use flownet_runtime::{OperatorFailure, TaskError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::chain::{CALL_TIMEOUT_ERROR, CODEC_ERROR, RETRACTION_ERROR, seconds_in};
use crate::codec::CodecError;

/// An error that is receiving its attributes.
struct RaisedError<'py> {
    py: Python<'py>,
    class: &'static str,
    message: String,
    details: Bound<'py, PyDict>,
}

impl<'py> RaisedError<'py> {
    fn new(py: Python<'py>, class: &'static str, message: impl Into<String>) -> Self {
        Self { py, class, message: message.into(), details: PyDict::new(py) }
    }

    /// Sets an attribute. If its value cannot be built, the class's default remains: the error itself matters
    /// more.
    fn with(self, name: &str, value: impl IntoPyObject<'py>) -> Self {
        let _ = self.details.set_item(name, value);
        self
    }

    fn into_err(self) -> PyErr {
        let build = || {
            let class = self.py.import("flownet.errors")?.getattr(self.class)?;
            class.call((&self.message,), Some(&self.details))
        };
        build().map_or_else(|error| error, PyErr::from_value)
    }
}

/// The base class, for errors without a class of their own.
pub(crate) fn flownet(py: Python<'_>, message: &str) -> PyErr {
    RaisedError::new(py, "FlownetError", message).into_err()
}

/// An invalid setting.
pub(crate) fn config(py: Python<'_>, setting: &str, message: &str) -> PyErr {
    RaisedError::new(py, "ConfigError", message).with("setting", setting).into_err()
}

/// Error of a bench without figures.
pub(crate) fn bench(py: Python<'_>, error: BenchError) -> PyErr {
    let message = error.to_string();
    match error {
        BenchError::Invalid { setting, .. } => config(py, setting, &message),
        BenchError::Launch { .. } => RaisedError::new(py, "LaunchError", message).into_err(),
        _ => flownet(py, &message),
    }
}

/// An error of the codec. An exception that Python raised within becomes its cause.
pub(crate) fn codec(py: Python<'_>, error: CodecError) -> PyErr {
    let message = error.to_string();
    match error {
        CodecError::Python(cause) => {
            let error = RaisedError::new(py, "CodecError", message).into_err();
            error.set_cause(py, Some(cause));
            error
        }
        CodecError::Unsupported { type_name, .. } | CodecError::UnsupportedKey { type_name, .. } => {
            RaisedError::new(py, "CodecError", message).with("type_name", type_name).into_err()
        }
        _ => RaisedError::new(py, "CodecError", message).into_err(),
    }
}

/// Error of a job that was refused, or did not finish.
pub fn cluster(py: Python<'_>, error: ClusterError) -> PyErr {
    let message = error.to_string();
    match error {
        ClusterError::Plan(error) => plan(py, error),
        ClusterError::Input(error) => {
            RaisedError::new(py, "InputError", message).with("path", input_of(error)).into_err()
        }
        ClusterError::Operator { failure, worker } => operator(py, *failure, worker),
        ClusterError::Task { task, error, .. } => self::task(py, &task, *error, message),
        ClusterError::WorkerLost { worker, how } => {
            let raised = RaisedError::new(py, "WorkerLostError", message).with("worker", worker.to_string());
            raised.with("pid", worker.pid).with("reason", how.to_string()).into_err()
        }
        ClusterError::HeartbeatTimeout { worker, silent_for } => {
            let raised = RaisedError::new(py, "WorkerLostError", message).with("worker", worker.to_string());
            raised.with("pid", worker.pid).with("reason", format!("silent for {silent_for:.1?}")).into_err()
        }
        ClusterError::WorkerFailed { worker, .. } => {
            RaisedError::new(py, "LaunchError", message).with("worker", worker.worker).into_err()
        }
        ClusterError::LaunchFailed { worker, .. } => {
            RaisedError::new(py, "LaunchError", message).with("worker", worker).into_err()
        }
        ClusterError::LaunchTimeout { workers, .. } => {
            RaisedError::new(py, "LaunchError", message).with("worker", workers.first().copied()).into_err()
        }
        ClusterError::StopTimeout { limit, tasks } => {
            let raised = RaisedError::new(py, "StopTimeoutError", message).with("seconds", limit.as_secs_f64());
            raised.with("tasks", PyTuple::new(py, tasks).ok()).into_err()
        }
        ClusterError::Checkpoint { checkpoint, .. } => {
            RaisedError::new(py, "CheckpointError", message).with("checkpoint", checkpoint).into_err()
        }
        ClusterError::Restore { checkpoint, storage, why } => {
            let class = match why {
                RestoreMismatch::NoUid { .. } => "MissingUidError",
                RestoreMismatch::Dropped { .. } => "DroppedStateError",
                _ => "RestoreError",
            };
            let raised = RaisedError::new(py, class, message).with("checkpoint", checkpoint).with("storage", storage);
            raised.with("operators", PyTuple::new(py, why.operators()).ok()).into_err()
        }
        ClusterError::MissingUid { operators } => RaisedError::new(py, "MissingUidError", message)
            .with("operators", PyTuple::new(py, operators).ok())
            .into_err(),
        ClusterError::NotTriggered { .. } => RaisedError::new(py, "CheckpointError", message).into_err(),
        ClusterError::Savepoint { .. } => RaisedError::new(py, "SavepointError", message).into_err(),
        ClusterError::OtherOrigin { storage, .. } => {
            RaisedError::new(py, "RestoreError", message).with("storage", storage).into_err()
        }
        ClusterError::Store(error) => store(py, error),
        ClusterError::Cancelled => RaisedError::new(py, "CancelledError", message).into_err(),
        ClusterError::Repeated { error, attempts, checkpoint } => {
            let raised = cluster(py, *error);
            // The error itself matters more than this attribute.
            let _ = raised.value(py).setattr("attempts", attempts);
            let _ = raised.value(py).setattr("_way_out", way_out(attempts, checkpoint));
            raised
        }
        _ => flownet(py, &message),
    }
}

/// Error of operator state that cannot be shown.
pub(crate) fn unreadable(py: Python<'_>, operator: &str, why: &str) -> PyErr {
    let raised =
        RaisedError::new(py, "RestoreError", format!("what operator '{operator}' keeps cannot be read: {why}"));
    raised.with("operators", PyTuple::new(py, [operator]).ok()).into_err()
}

/// Error of checkpoints that could not be written or read.
pub(crate) fn store(py: Python<'_>, error: StoreError) -> PyErr {
    let message = error.to_string();
    match error {
        StoreError::Url { url, .. } => RaisedError::new(py, "ConfigError", message)
            .with("setting", "checkpoint_storage")
            .with("value", url)
            .into_err(),
        StoreError::Fenced { url, .. } => RaisedError::new(py, "FencedError", message).with("storage", url).into_err(),
        StoreError::Savepoint { url } | StoreError::Taken { url } | StoreError::Empty { url } => {
            RaisedError::new(py, "ConfigError", message).with("value", url).into_err()
        }
        StoreError::Damaged { url, path, .. }
        | StoreError::Version { url, path, .. }
        | StoreError::Signature { url, path, .. } => {
            RaisedError::new(py, "RestoreError", message).with("storage", url).with("path", path).into_err()
        }
        StoreError::Key { .. } => {
            RaisedError::new(py, "ConfigError", message).with("setting", "FLOWNET_STATE_KEY").into_err()
        }
        StoreError::Io { url, path, .. } => {
            RaisedError::new(py, "CheckpointError", message).with("storage", url).with("path", path).into_err()
        }
        _ => RaisedError::new(py, "CheckpointError", message).into_err(),
    }
}

fn plan(py: Python<'_>, error: PlanError) -> PyErr {
    let message = error.to_string();
    let about = |class, operator: String| RaisedError::new(py, class, message.clone()).with("operator", operator);
    match error {
        PlanError::DuplicateUid { uid, second, .. } => about("DuplicateUidError", second).with("uid", uid).into_err(),
        PlanError::Cycle { operators } => {
            let first = operators.first().cloned().unwrap_or_default();
            about("CycleError", first).with("operators", PyTuple::new(py, operators).ok()).into_err()
        }
        PlanError::NotShippable { operator } => about("NotShippableError", operator).into_err(),
        PlanError::Parallelism { operator, .. }
        | PlanError::ForwardParallelism { to: operator, .. }
        | PlanError::Unconnected { operator }
        | PlanError::UnknownWorker { operator, .. }
        | PlanError::NonReplayable { operator, .. }
        | PlanError::NotAtSource { operator, .. }
        | PlanError::AlignedWithoutWatermarks { operator }
        | PlanError::AlignedTwice { second: operator, .. }
        | PlanError::AlignmentDiffers { second: operator, .. }
        | PlanError::OvertakenIteration { operator }
        | PlanError::IterationEnds { operator }
        | PlanError::IterationApart { operator }
        | PlanError::IterationPlaces { operator }
        | PlanError::NestedIteration { operator, .. }
        | PlanError::IterationRescale { operator, .. }
        | PlanError::TooManyChannels { to: operator, .. }
        | PlanError::TooLargeToShip { operator, .. }
        | PlanError::KeyGroups { operator, .. } => about("PlanError", operator).into_err(),
        PlanError::InsufficientBuffers { worker, needed, total, segment_bytes, .. } => {
            let raised = RaisedError::new(py, "InsufficientBuffersError", message).with("worker", worker);
            raised.with("needed", needed).with("total", total).with("segment_bytes", segment_bytes).into_err()
        }
        PlanError::Settings(error) => config(py, setting_name(&error), &message),
        _ => RaisedError::new(py, "PlanError", message).into_err(),
    }
}

fn setting_name(error: &SettingsError) -> &'static str {
    match error {
        SettingsError::OutOfRange { setting, .. } | SettingsError::TimeOutOfRange { setting, .. } => setting,
        SettingsError::HeartbeatTooTight { .. } => "heartbeat_timeout",
        SettingsError::NoStorage => "checkpoint_storage",
        SettingsError::NoCheckpoints => "restore_from",
        SettingsError::NoRestoreFrom => "restore_checkpoint",
        SettingsError::Tls(_) | SettingsError::WorkerPoolTls { .. } => "tls",
        _ => "settings",
    }
}

fn operator(py: Python<'_>, failure: OperatorFailure, worker: WorkerIdentity) -> PyErr {
    if failure.error_type == CODEC_ERROR {
        let type_name = CodecError::type_name_in(&failure.message).map(str::to_owned);
        let record = failure.record.as_ref().map(|record| format!(" on record {record}")).unwrap_or_default();
        let OperatorFailure { operator, subtask, parallelism, message, .. } = failure;
        let place = format!("operator '{operator}' (subtask {} of {parallelism}) failed{record}", subtask + 1);
        let raised = RaisedError::new(py, "CodecError", format!("{place}: {message}"));
        return raised.with("operator", operator).with("type_name", type_name).into_err();
    }
    if failure.error_type == RETRACTION_ERROR {
        let OperatorFailure { operator, subtask, parallelism, message, record, .. } = failure;
        let text = format!("operator '{operator}' (subtask {} of {parallelism}): {message}", subtask + 1);
        return RaisedError::new(py, "RetractionError", text)
            .with("operator", operator)
            .with("record", record)
            .into_err();
    }
    // None means the process of the caller.
    let worker = (worker.worker != 0).then(|| name_of(&worker));
    let raised = if failure.error_type == CALL_TIMEOUT_ERROR {
        let seconds = seconds_in(&failure.message);
        RaisedError::new(py, "CallTimeoutError", failure.message).with("seconds", seconds)
    } else if let Some(class) = of_connector(&failure.error_type) {
        RaisedError::new(py, class, failure.message)
    } else {
        RaisedError::new(py, "OperatorError", failure.message)
    };
    raised
        .with("operator", failure.operator)
        .with("subtask", failure.subtask)
        .with("parallelism", failure.parallelism)
        .with("worker", worker)
        .with("record", failure.record)
        .with("error_type", failure.error_type)
        .with("traceback", failure.traceback)
        .into_err()
}

/// The class of an error that a built-in source or sink has raised in a worker, if it has one.
fn of_connector(error_type: &str) -> Option<&'static str> {
    let name = error_type.strip_prefix("flownet.errors.")?;
    CONNECTOR_ERRORS.iter().find(|class| **class == name).copied()
}

const CONNECTOR_ERRORS: [&str; 5] =
    ["KafkaError", "KafkaUnreachableError", "KafkaTopicError", "KafkaRightsError", "KafkaTransactionError"];

/// Name of a worker. For a worker on this machine, the address suffices.
fn name_of(worker: &WorkerIdentity) -> String {
    match (worker.address, &worker.place) {
        (Some(address), None) => address.to_string(),
        (Some(address), Some(place)) => format!("{} at {address} on {place}", worker.worker),
        _ => worker.to_string(),
    }
}

fn task(py: Python<'_>, task: &str, error: TaskError, message: String) -> PyErr {
    match error {
        TaskError::Source(error) => {
            RaisedError::new(py, "InputError", message).with("path", input_of(error)).into_err()
        }
        TaskError::Exchange(failure) => exchange(py, task, failure, message),
        TaskError::Iteration(failure) => iteration(py, *failure),
        TaskError::InsufficientBuffers { required, total, .. } => {
            let raised = RaisedError::new(py, "InsufficientBuffersError", message);
            raised.with("operator", task).with("needed", required).with("total", total).into_err()
        }
        TaskError::Cancelled => RaisedError::new(py, "CancelledError", message).into_err(),
        TaskError::DiskState(error) => disk_state(py, *error),
        TaskError::Snapshot(_) => RaisedError::new(py, "RestoreError", message).into_err(),
        _ => flownet(py, &message),
    }
}

fn disk_state(py: Python<'_>, error: DiskStateError) -> PyErr {
    let raised = RaisedError::new(py, "DiskStateError", error.to_string());
    let DiskStateError { task, subtask, parallelism, state, folder, disk_bytes, keys, .. } = error;
    let raised = raised.with("operator", task).with("subtask", subtask).with("parallelism", parallelism);
    let raised = raised.with("state", state).with("folder", folder.display().to_string());
    raised.with("bytes", disk_bytes).with("keys", keys).into_err()
}

fn iteration(py: Python<'_>, failure: IterationFailure) -> PyErr {
    let raised = RaisedError::new(py, "IterationError", failure.to_string());
    let IterationFailure { operator, subtask, parallelism, fault } = failure;
    let raised = raised.with("operator", operator).with("subtask", subtask).with("parallelism", parallelism);
    match fault {
        IterationFault::Full { records, bytes, memory_bytes, disk_bytes } => {
            let raised = raised.with("records", records).with("bytes", bytes);
            raised.with("max_bytes", memory_bytes.saturating_add(disk_bytes)).into_err()
        }
        _ => raised.into_err(),
    }
}

fn exchange(py: Python<'_>, task: &str, failure: ExchangeFailure, message: String) -> PyErr {
    match failure.kind {
        ExchangeFailureKind::RecordTooLarge { bytes, max_bytes } => {
            let message = format!("{message}; raise max_record_size, or emit smaller records");
            let raised = RaisedError::new(py, "RecordTooLargeError", message).with("operator", task);
            raised.with("bytes", bytes).with("max_bytes", max_bytes).into_err()
        }
        ExchangeFailureKind::ReceiveLimit { queued_bytes, limit_bytes } => {
            let raised = RaisedError::new(py, "ReceiveLimitError", message).with("operator", task);
            raised.with("queued_bytes", queued_bytes).with("limit_bytes", limit_bytes).into_err()
        }
        ExchangeFailureKind::ConnectionLost { peer } => {
            let raised = RaisedError::new(py, "ConnectionLostError", message).with("peer", peer);
            raised.with("reason", failure.message).into_err()
        }
        ExchangeFailureKind::ProtocolViolation { peer, partition, channel } => {
            let raised =
                RaisedError::new(py, "ProtocolViolationError", message).with("peer", peer).with("operator", task);
            raised.with("partition", partition).with("channel", channel).with("reason", failure.message).into_err()
        }
        _ => flownet(py, &message),
    }
}

fn input_of(error: SourceError) -> Option<String> {
    match error {
        SourceError::Missing { path }
        | SourceError::Unreadable { path, .. }
        | SourceError::NotAFile { path }
        | SourceError::Changed { path, .. }
        | SourceError::Followed { path, .. }
        | SourceError::LineTooLong { input: path, .. }
        | SourceError::NotUtf8 { input: path, .. }
        | SourceError::Connect { address: path, .. }
        | SourceError::Broken { address: path, .. } => Some(path),
        _ => None,
    }
}
