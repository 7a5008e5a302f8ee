//! Converts records to lines of a file: their text, or the result of a function.

use flownet_runtime::TaskError;
use flownet_runtime::spec::LineFormat;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::chain::call::call1;
use crate::chain::failure::OperatorInfo;

/// Converts records to lines.
pub(in crate::chain) struct Lines {
    format: LineFormat,
    /// Called once, it returns a function that converts a record to its line. None: lines are `str(record)`.
    makes_line: Option<Py<PyAny>>,
    line: Option<Py<PyAny>>,
    header: Option<String>,
}

impl Lines {
    pub(in crate::chain) fn new(format: LineFormat, makes_line: Option<Py<PyAny>>, header: Option<String>) -> Self {
        Self { format, makes_line, line: None, header }
    }

    pub(super) fn open(&mut self, py: Python<'_>, info: &OperatorInfo) -> Result<(), TaskError> {
        let made = self.makes_line.as_ref().map(|makes_line| makes_line.call0(py)).transpose();
        self.line = made.map_err(|error| info.failed(py, &error, None))?;
        Ok(())
    }

    /// Suffix of the names of files.
    pub(super) fn suffix(&self) -> &'static str {
        self.format.suffix()
    }

    /// First line of each file.
    pub(super) fn header(&self) -> Option<&str> {
        self.header.as_deref()
    }

    /// Appends the line of a record, and a line end.
    #[inline]
    pub(super) fn put(
        &self,
        record: &Bound<'_, PyAny>,
        info: &OperatorInfo,
        text: &mut Vec<u8>,
    ) -> Result<(), TaskError> {
        let py = record.py();
        let failed = |error: PyErr| info.failed(py, &error, Some(record));
        let line = match &self.line {
            None => record.str().map_err(failed)?,
            Some(line) => {
                let line = call1(line.bind(py), record).map_err(failed)?;
                line.cast_into::<PyString>().map_err(|error| failed(error.into()))?
            }
        };
        match line.to_str() {
            Ok(line) => text.extend_from_slice(line.as_bytes()),
            // Lone surrogates are written as the codec of the file system writes them, so that file names
            // survive.
            Err(_) => {
                let bytes = line.call_method1("encode", ("utf-8", "surrogateescape"));
                let bytes = bytes.and_then(|bytes| Ok(bytes.cast_into::<PyBytes>()?)).map_err(failed)?;
                text.extend_from_slice(bytes.as_bytes());
            }
        }
        text.push(b'\n');
        Ok(())
    }
}
