//! `print`: writes `str(record)` to the standard output of the process that submitted the job, in whole lines
//! only.

use flownet_runtime::operator::Operator;
use flownet_runtime::snapshot::Snapshot;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::{GATHER_RECORDS, WriteCounter};
use crate::chain::failure::OperatorInfo;
use crate::chain::record_format::{Collector, PythonFormat};
use crate::log;

/// Makes one call for each batch, so that lines of several subtasks do not mix.
pub(in crate::chain) struct Print {
    /// Prefix of each line: `prefix> `, `2> ` or `prefix:2> `.
    lead: String,
    info: OperatorInfo,
    text: String,
    records: usize,
    written: WriteCounter,
}

impl Print {
    pub(in crate::chain) fn new(prefix: Option<&str>, info: OperatorInfo) -> Self {
        let subtask = (info.parallelism > 1).then(|| (info.subtask + 1).to_string());
        let lead = match (prefix.filter(|prefix| !prefix.is_empty()), subtask) {
            (Some(prefix), Some(subtask)) => format!("{prefix}:{subtask}> "),
            (Some(prefix), None) => format!("{prefix}> "),
            (None, Some(subtask)) => format!("{subtask}> "),
            (None, None) => String::new(),
        };
        Self { lead, info, text: String::new(), records: 0, written: WriteCounter::default() }
    }

    /// Writes the text. A worker sends it unchanged to the process that submitted the job, which may run
    /// elsewhere.
    fn write(&self, py: Python<'_>) -> PyResult<()> {
        if log::say_output(py, &self.text) {
            return Ok(());
        }
        let stdout = py.import(intern!(py, "sys"))?.getattr(intern!(py, "stdout"))?;
        // None if the process has no standard output; print() does nothing then, too.
        if stdout.is_none() {
            return Ok(());
        }
        stdout.call_method1(intern!(py, "write"), (PyString::new(py, &self.text),))?;
        stdout.call_method0(intern!(py, "flush"))?;
        Ok(())
    }
}

impl Operator<PythonFormat> for Print {
    fn open(&mut self, _: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.written.open(cx);
        Ok(())
    }

    fn process<'py>(&mut self, record: Bound<'py, PyAny>, collector: &mut Collector<'_, 'py>) -> Result<(), TaskError> {
        let line = record.str().map_err(|error| self.info.failed(collector.token, &error, Some(&record)))?;
        self.text.push_str(&self.lead);
        // Lone surrogates cannot be written; they are shown as U+FFFD.
        self.text.push_str(&line.to_string_lossy());
        self.text.push('\n');
        self.records += 1;
        if self.records < GATHER_RECORDS { Ok(()) } else { self.end_batch(collector) }
    }

    fn end_batch(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        if self.records == 0 {
            return Ok(());
        }
        self.written.add(std::mem::take(&mut self.records));
        let written = self.write(collector.token);
        self.text.clear();
        written.map_err(|error| self.info.failed(collector.token, &error, None))
    }

    /// The sink is stateless: gathered text leaves with its batch.
    fn snapshot(&mut self, _: Python<'_>, _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}
