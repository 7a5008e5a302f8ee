//! Errors of users' functions, in a form that can be sent to another process.

use std::time::Duration;

use flownet_core::text::cut_at_character;
use flownet_runtime::snapshot::SnapshotError;
use flownet_runtime::{OperatorFailure, TaskError};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::codec::CodecError;
use crate::shown;

/// `error_type` of failures of the codec; the driver raises its own class for them.
pub(crate) const CODEC_ERROR: &str = "flownet.errors.CodecError";

/// `error_type` of a row that cannot be retracted; the driver raises flownet's own class for it.
pub(crate) const RETRACTION_ERROR: &str = "flownet.errors.RetractionError";

/// `error_type` of calls that took too long; the driver raises its own class for them.
pub(crate) const CALL_TIMEOUT_ERROR: &str = "flownet.errors.CallTimeoutError";

/// Longest `repr` of a record in an error, in characters.
const RECORD_CHARS: usize = 200;

/// Longest text of an exception, and of its traceback, in bytes. An error travels to the coordinator, to
/// every peer and to the user's screen. A text too long to read must not prevent its delivery.
const TEXT_BYTES: usize = 64 << 10;

/// Identity of an operator, for errors and contexts.
#[derive(Clone, Debug)]
pub(crate) struct OperatorInfo {
    pub(super) operator: String,
    pub(super) subtask: u32,
    pub(super) parallelism: u32,
}

impl OperatorInfo {
    /// From the identity of an operator on rows.
    pub(crate) fn of_rows(info: &flownet_rows::OperatorInfo) -> Self {
        let flownet_rows::OperatorInfo { operator, subtask, parallelism } = info.clone();
        Self { operator, subtask, parallelism }
    }

    /// As the identity of an operator on rows.
    pub(crate) fn to_rows(&self) -> flownet_rows::OperatorInfo {
        let Self { operator, subtask, parallelism } = self.clone();
        flownet_rows::OperatorInfo { operator, subtask, parallelism }
    }

    /// Index of the subtask.
    pub(crate) fn subtask(&self) -> u32 {
        self.subtask
    }

    /// Number of subtasks.
    pub(crate) fn parallelism(&self) -> u32 {
        self.parallelism
    }

    /// The user's name of the operator.
    pub(crate) fn name(&self) -> &str {
        &self.operator
    }

    /// The user's exception, with the record on which it was raised.
    #[cold]
    pub(crate) fn failed(&self, py: Python<'_>, error: &PyErr, record: Option<&Bound<'_, PyAny>>) -> TaskError {
        let failure = OperatorFailure {
            operator: self.operator.clone(),
            subtask: self.subtask,
            parallelism: self.parallelism,
            record: record.map(short_repr),
            error_type: type_name(py, error),
            message: shortened(text(error.value(py).str())),
            traceback: format_traceback(py, error).map(shortened),
            is_transient: is_transient(py, error),
        };
        failure.into()
    }

    /// An exception that a call of the user's function raised. Python shows no frame if the function was
    /// never entered or returned an unusable value. Then the function itself takes the place of a frame.
    /// `given` describes its arguments.
    #[cold]
    pub(super) fn call_failed(
        &self,
        py: Python<'_>,
        error: &PyErr,
        function: &Bound<'_, PyAny>,
        given: &str,
        record: Option<&Bound<'_, PyAny>>,
    ) -> TaskError {
        let failed = self.failed(py, error, record);
        let (TaskError::Operator(mut failure), None, true) =
            (failed, error.traceback(py), error.is_instance_of::<PyTypeError>(py))
        else {
            return self.failed(py, error, record);
        };
        if is_about_arguments(&failure.message) {
            failure.message = format!("{}; it is called with {given}", failure.message);
        }
        failure.traceback = place_of(function).ok().map(|place| {
            let OperatorFailure { error_type, message, .. } = &*failure;
            format!("Traceback (most recent call last):\n{place}\n{error_type}: {message}\n")
        });
        TaskError::Operator(failure)
    }

    /// A value that cannot be encoded, or bytes that cannot be decoded.
    #[cold]
    pub(super) fn codec_failed(
        &self,
        py: Python<'_>,
        error: CodecError,
        record: Option<&Bound<'_, PyAny>>,
    ) -> TaskError {
        match error {
            CodecError::Python(error) => self.failed(py, &error, record),
            CodecError::NotRestored { reason } => SnapshotError::Refused { uid: self.operator.clone(), reason }.into(),
            error => self.refused(CODEC_ERROR, error.to_string(), record),
        }
    }

    /// An invalid key, and its record.
    #[cold]
    pub(super) fn key_failed(
        &self,
        py: Python<'_>,
        error: CodecError,
        key: &Bound<'_, PyAny>,
        record: &Bound<'_, PyAny>,
    ) -> TaskError {
        match error {
            CodecError::Python(_) => self.codec_failed(py, error, Some(record)),
            error if key.is(record) => self.codec_failed(py, error, Some(record)),
            error => self.refused(CODEC_ERROR, format!("its key is {}: {error}", short_repr(key)), Some(record)),
        }
    }

    /// A call that exceeded its timeout.
    #[cold]
    pub(super) fn timed_out(&self, timeout: Duration, record: Option<&Bound<'_, PyAny>>) -> TaskError {
        let message = format!(
            "the call did not return within {} s; raise its timeout, or let the coroutine itself give up before, with \
             asyncio.timeout()",
            timeout.as_secs_f64()
        );
        self.refused(CALL_TIMEOUT_ERROR, message, record)
    }

    /// A failure that flownet itself detects, in the user's terms.
    #[cold]
    pub(crate) fn refused(&self, error_type: &str, message: String, record: Option<&Bound<'_, PyAny>>) -> TaskError {
        let failure = OperatorFailure {
            operator: self.operator.clone(),
            subtask: self.subtask,
            parallelism: self.parallelism,
            record: record.map(short_repr),
            error_type: error_type.to_owned(),
            message: shortened(message),
            traceback: None,
            is_transient: error_type == CALL_TIMEOUT_ERROR,
        };
        failure.into()
    }
}

/// Reads the time that the message of [`OperatorInfo::timed_out`] names.
pub(crate) fn seconds_in(message: &str) -> Option<f64> {
    let behind = message.split_once("within ")?.1;
    behind.split_once(" s")?.0.parse().ok()
}

/// Returns true if the interpreter complains about the number of arguments of a call.
fn is_about_arguments(message: &str) -> bool {
    message.contains("argument") && ["given", "missing", "expected", "got"].iter().any(|word| message.contains(word))
}

/// Place of a function's definition, as a line of a traceback.
fn place_of(function: &Bound<'_, PyAny>) -> PyResult<String> {
    let code = function.getattr(intern!(function.py(), "__code__"))?;
    let (file, line): (String, u32) =
        (code.getattr("co_filename")?.extract()?, code.getattr("co_firstlineno")?.extract()?);
    Ok(format!("  File \"{file}\", line {line}, in {}", code.getattr("co_name")?.str()?.to_string_lossy()))
}

/// `repr(record)`, shortened. A `repr` that raises does not hide the error that is being reported.
pub(super) fn short_repr(record: &Bound<'_, PyAny>) -> String {
    let repr = shown::repr(record);
    match repr.char_indices().nth(RECORD_CHARS) {
        Some((at, _)) => format!("{}...", &repr[..at]),
        None => repr,
    }
}

/// Beginning and end of a text that is too long, with the length of the omitted part.
fn shortened(text: String) -> String {
    if text.len() <= TEXT_BYTES {
        return text;
    }
    let boundary = |at: usize| cut_at_character(&text, at).len();
    let (front, back) = (boundary(TEXT_BYTES / 2), boundary(text.len() - TEXT_BYTES / 2));
    format!("{}\n... [{} bytes left out] ...\n{}", &text[..front], back - front, &text[back..])
}

/// The class as tracebacks print it, without the module if that is `builtins` or `__main__`.
fn type_name(py: Python<'_>, error: &PyErr) -> String {
    let class = error.get_type(py);
    let name = text(class.qualname());
    match class.module().map(|module| module.to_string_lossy().into_owned()) {
        Ok(module) if module != "builtins" && module != "__main__" => format!("{module}.{name}"),
        _ => name,
    }
}

/// Returns true if a retry may help. If that cannot be determined, the exception counts as an error of the
/// program.
fn is_transient(py: Python<'_>, error: &PyErr) -> bool {
    let ask = || {
        py.import(intern!(py, "flownet.connectors.transient"))?
            .call_method1(intern!(py, "is_transient"), (error.value(py),))
    };
    ask().and_then(|answer| answer.extract()).unwrap_or(false)
}

/// The frames of the user's code: flownet's own functions are Rust and have none.
fn format_traceback(py: Python<'_>, error: &PyErr) -> Option<String> {
    let lines = py
        .import(intern!(py, "traceback"))
        .ok()?
        .call_method1(intern!(py, "format_exception"), (error.get_type(py), error.value(py), error.traceback(py)));
    // Line by line, and lossy: a message may hold text that is not valid UTF-8.
    let lines = lines.ok()?.cast_into::<PyList>().ok()?;
    lines.iter().map(|line| Some(line.cast::<PyString>().ok()?.to_string_lossy().into_owned())).collect()
}

fn text<'py>(string: PyResult<Bound<'py, PyString>>) -> String {
    string.map_or_else(|_| "<unprintable>".to_owned(), |string| string.to_string_lossy().into_owned())
}
