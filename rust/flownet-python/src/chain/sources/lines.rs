//! Converts lines of text to `str`: gathers them without the interpreter, and decodes them in one attachment.

use std::ffi::CStr;
use std::sync::Arc;

use flownet_runtime::source::SourceError;
use flownet_runtime::spec::InvalidUtf8;
use flownet_runtime::{TaskContext, TaskError, TaskMetrics};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::POLL_RECORDS;
use crate::chain::failure::{OperatorInfo, short_repr};
use crate::chain::meter::Meter;
use crate::chain::record_format::Collector;

/// Lines of one poll end with this many bytes: they are copied once, and should stay in the cache.
const POLL_BYTES: usize = 64 * 1024;

/// Lines that were read and not yet emitted.
pub(in crate::chain) struct LineDecoder {
    undecodable: InvalidUtf8,
    info: OperatorInfo,
    metrics: Option<Arc<TaskMetrics>>,
    bytes: Vec<u8>,
    /// End of each line in `bytes`.
    ends: Vec<usize>,
    /// Inputs of the lines, each with the index of its first line in `ends`, for error texts.
    inputs: Vec<(usize, String)>,
    /// Number of lines that were emitted already.
    emitted: usize,
    meter: Meter,
}

impl LineDecoder {
    pub(in crate::chain) fn new(undecodable: InvalidUtf8, meter: Meter, info: OperatorInfo) -> Self {
        Self {
            undecodable,
            info,
            metrics: None,
            bytes: Vec::new(),
            ends: Vec::new(),
            inputs: Vec::new(),
            emitted: 0,
            meter,
        }
    }

    pub(super) fn open(&mut self, cx: &TaskContext) {
        self.metrics = Some(Arc::clone(&cx.metrics));
    }

    /// Adds a line. Returns false as soon as there are enough for a poll.
    #[inline]
    pub(super) fn add(&mut self, line: &[u8]) -> bool {
        self.bytes.extend_from_slice(line);
        self.ends.push(self.bytes.len());
        self.ends.len() < POLL_RECORDS && self.bytes.len() < POLL_BYTES
    }

    /// Sets the input of the last added line and the following ones.
    pub(super) fn begin_input(&mut self, name: String) {
        self.inputs.push((self.ends.len().saturating_sub(1), name));
    }

    /// Number of lines of this poll that were emitted; none if no poll is cut off.
    pub(super) fn cut_off_at(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.emitted as u64)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Emits the lines as far as the source's rate limit allows, and retains the rest.
    pub(super) fn emit(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let mut start = if self.emitted == 0 { 0 } else { self.ends[self.emitted - 1] };
        while let Some(&end) = self.ends.get(self.emitted) {
            let line = self.decode(collector.token, &self.bytes[start..end], self.emitted)?;
            start = end;
            self.emitted += 1;
            if let Some(metrics) = &self.metrics {
                metrics.add_records_in(1);
            }
            if !self.meter.emit(line, collector)? && self.emitted < self.ends.len() {
                return Ok(());
            }
        }
        self.emitted = 0;
        self.bytes.clear();
        self.ends.clear();
        if let Some((_, input)) = self.inputs.pop() {
            self.inputs.clear();
            self.inputs.push((0, input));
        }
        Ok(())
    }

    fn decode<'py>(&self, py: Python<'py>, line: &[u8], index: usize) -> Result<Bound<'py, PyAny>, TaskError> {
        // SAFETY: pointer and length are the slice's, the handler is a C string, and the result is a new
        // reference or null with an exception set. PyO3 wraps this call for `str` objects from objects only.
        let decoded = unsafe {
            let (start, len) = (line.as_ptr().cast(), line.len().cast_signed());
            Bound::from_owned_ptr_or_err(py, ffi::PyUnicode_DecodeUTF8(start, len, handler(self.undecodable).as_ptr()))
        };
        decoded.map_err(|error| match std::str::from_utf8(line) {
            Err(invalid) => self.not_utf8(py, line, invalid.valid_up_to(), index).into(),
            // Out of memory and the like.
            Ok(_) => self.info.failed(py, &error, None),
        })
    }

    #[cold]
    fn not_utf8(&self, py: Python<'_>, line: &[u8], at: usize, index: usize) -> SourceError {
        let input = self.inputs.iter().rfind(|(first, _)| *first <= index).map(|(_, name)| name.clone());
        let line = short_repr(PyBytes::new(py, line).as_any());
        SourceError::NotUtf8 { input: input.unwrap_or_else(|| self.info.operator.clone()), line, at }
    }
}

/// Python's name of the error handler.
fn handler(undecodable: InvalidUtf8) -> &'static CStr {
    match undecodable {
        InvalidUtf8::Strict => c"strict",
        InvalidUtf8::Replace => c"replace",
        InvalidUtf8::Ignore => c"ignore",
    }
}
