//! Passes log records of a running job between Python and Rust: functions write them, and Python reads those
//! of the job.

use std::sync::Arc;
use std::time::Duration;

use flownet_cluster::{JobLogEntry, JobView, LogLevel, LogPrinter, LogQuery};
use flownet_core::text::cut_at_character;
use flownet_runtime::log::{self, LogEntry, LogKind, MOST_TEXT_BYTES};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::convert::{Plain, to_python};
use crate::door::{Origin, enter, enter_until};

/// Say a line as the calling thread: on the standard output, or on standard error. Waits for room. False where nobody hears it,
/// as in a process that is no worker.
#[pyfunction]
pub(crate) fn say_line(py: Python<'_>, text: &str, is_error: bool) -> bool {
    let kind = if is_error { LogKind::Stderr } else { LogKind::Stdout };
    log::is_in_process() && say(py, kind, text)
}

/// Say a record of `logging` as the calling thread, of a level as `logging` has them. Waits for room in a worker process; else,
/// where the record has its own way, it does not. False where nobody hears it.
#[pyfunction]
pub(crate) fn say_record(py: Python<'_>, text: &str, level: i64, logger: &str) -> bool {
    let level = match level {
        ..20 => LogLevel::Debug,
        20..30 => LogLevel::Info,
        30..40 => LogLevel::Warning,
        40..50 => LogLevel::Error,
        50.. => LogLevel::Critical,
    };
    say(py, LogKind::Python { level, logger: logger.to_owned() }, text)
}

/// Sends the output of `print` to the process that submitted the job. Returns false if this process prints
/// for itself.
pub(crate) fn say_output(py: Python<'_>, text: &str) -> bool {
    log::is_in_process() && pieces(text).all(|piece| say(py, LogKind::Output, piece))
}

/// Splits a text into pieces that fit into an entry, of whole lines if these fit.
fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let end = cut_at_character(text, MOST_TEXT_BYTES).len();
        let whole_lines = if end < text.len() { text[..end].rfind('\n').map(|at| at + 1) } else { None };
        let (piece, rest) = text.split_at(whole_lines.unwrap_or(end));
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

fn say(py: Python<'_>, kind: LogKind, text: &str) -> bool {
    let Some((log, speaker)) = log::here() else { return false };
    let entry = LogEntry::now(speaker, kind, text);
    if log::is_in_process() {
        py.detach(|| log.say_when_there_is_room(entry));
    } else {
        log.say(entry);
    }
    true
}

/// What was said in a job. It keeps nothing of the job alive.
#[pyclass(frozen, name = "JobLog", module = "flownet._flownet")]
pub(crate) struct PyJobLog {
    view: JobView,
    printer: LogPrinter,
    origin: Origin,
}

impl PyJobLog {
    pub(crate) fn new(view: JobView) -> Self {
        let printer = view.log_printer();
        Self { view, printer, origin: Origin::here() }
    }
}

#[pymethods]
impl PyJobLog {
    /// What is kept of it after a number, of records of a level or worse if one is given; the newest, at most so many.
    #[pyo3(signature = (after, most, level))]
    fn entries<'py>(
        &self,
        py: Python<'py>,
        after: u64,
        most: usize,
        level: Option<Plain<LogLevel>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let query = LogQuery { after, most, is_newest: true, level: level.map(|Plain(level)| level) };
        let page = enter(py, self.origin, || self.view.log(query))?;
        shown(py, &page.entries)
    }

    /// What workers said and was not printed yet, after a wait of at most so long; None when there will be no more.
    fn unprinted<'py>(&self, py: Python<'py>, timeout_ms: u64) -> PyResult<Option<Bound<'py, PyAny>>> {
        let timeout = Duration::from_millis(timeout_ms);
        let has_some = |next: &Option<Vec<_>>| next.as_ref().is_none_or(|entries| !entries.is_empty());
        let next = |slice| Some(self.printer.next(slice)).filter(has_some);
        match enter_until(py, self.origin, timeout, next)? {
            None => Ok(Some(shown(py, &[])?)),
            Some(None) => Ok(None),
            Some(Some(entries)) => Ok(Some(shown(py, &entries)?)),
        }
    }
}

fn shown<'py>(py: Python<'py>, entries: &[Arc<JobLogEntry>]) -> PyResult<Bound<'py, PyAny>> {
    to_python(py, &entries).map_err(|error| PyValueError::new_err(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_goes_in_pieces_of_whole_lines_where_that_can_be() {
        let short = "short\n".to_owned();
        assert_eq!(pieces(&short).collect::<Vec<_>>(), [short.as_str()]);
        assert_eq!(pieces("").count(), 0);
        let lines = format!("{}\n", "x".repeat(1000)).repeat(100);
        let cut: Vec<&str> = pieces(&lines).collect();
        assert!(cut.len() > 5 && cut.iter().all(|piece| piece.ends_with('\n') && piece.len() <= MOST_TEXT_BYTES));
        assert_eq!(cut.concat(), lines);
        let one_line = "ä".repeat(MOST_TEXT_BYTES);
        let cut: Vec<&str> = pieces(&one_line).collect();
        assert_eq!((cut.len(), cut.concat()), (2, one_line.clone()));
    }
}
