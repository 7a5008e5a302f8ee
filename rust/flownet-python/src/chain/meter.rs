//! Measures the records of a source whose rate limit is in bytes.

use flownet_runtime::TaskError;
use pyo3::prelude::*;

use super::failure::OperatorInfo;
use super::record_format::Collector;
use crate::codec::{SentClasses, encode};

/// Encodes records to measure their length.
pub(super) struct Meter {
    /// Classes without a receiver: measured records are not sent.
    classes: SentClasses,
    info: OperatorInfo,
    bytes: Vec<u8>,
}

impl Meter {
    pub(super) fn new(classes: SentClasses, info: OperatorInfo) -> Self {
        Self { classes, info, bytes: Vec::new() }
    }

    /// Emits a record of a source. Returns false if it was the last one for this poll, as does
    /// [`emit_paced`](flownet_runtime::operator::Collector::emit_paced).
    #[inline]
    pub(super) fn emit<'py>(
        &mut self,
        record: Bound<'py, PyAny>,
        collector: &mut Collector<'_, 'py>,
    ) -> Result<bool, TaskError> {
        collector.emit_paced(record, |record| self.bytes_of(record))
    }

    fn bytes_of(&mut self, record: &Bound<'_, PyAny>) -> Result<usize, TaskError> {
        self.bytes.clear();
        let encoded = encode(record, &mut self.classes, &mut self.bytes);
        encoded.map_err(|error| self.info.codec_failed(record.py(), error, Some(record)))?;
        Ok(self.bytes.len())
    }
}
