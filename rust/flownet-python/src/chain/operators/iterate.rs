//! `iterate`: decides which records leave a loop, and decodes the others for the next round.

use flownet_runtime::operator::{Goal, ReadBack, RecordFormat};
use flownet_runtime::{TaskContext, TaskError};
use pyo3::prelude::*;

use crate::chain::call::call1;
use crate::chain::failure::OperatorInfo;
use crate::chain::function::Function;
use crate::chain::record_format::{Collector, PythonFormat};
use crate::codec::{self, KnownClasses, SentClasses, encode};

/// Decodes records of the previous round.
pub(in crate::chain) struct FeedbackDecoder {
    classes: KnownClasses,
    info: OperatorInfo,
}

impl FeedbackDecoder {
    pub(in crate::chain) fn new(classes: KnownClasses, info: OperatorInfo) -> Self {
        Self { classes, info }
    }
}

impl ReadBack<PythonFormat> for FeedbackDecoder {
    #[inline]
    fn decode<'py>(
        &mut self,
        py: <PythonFormat as RecordFormat>::Token<'py>,
        bytes: &[u8],
    ) -> Result<<PythonFormat as RecordFormat>::Record<'py>, TaskError> {
        codec::decode(py, bytes, &self.classes).map_err(|error| self.info.codec_failed(py, error, None))
    }
}

/// The user's predicate.
pub(in crate::chain) struct UntilPredicate {
    /// None: no record leaves.
    predicate: Option<Function>,
    classes: SentClasses,
    info: OperatorInfo,
}

impl UntilPredicate {
    pub(in crate::chain) fn new(predicate: Option<Function>, classes: SentClasses, info: OperatorInfo) -> Self {
        Self { predicate, classes, info }
    }
}

impl Goal<PythonFormat> for UntilPredicate {
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.predicate.as_ref().map_or(Ok(()), |predicate| predicate.open(py, &self.info, cx))
    }

    #[inline]
    fn is_reached(&mut self, py: Python<'_>, record: &Bound<'_, PyAny>) -> Result<bool, TaskError> {
        let Some(predicate) = &self.predicate else { return Ok(false) };
        let predicate = predicate.bind(py);
        let answer = call1(predicate, record).and_then(|answer| answer.is_truthy());
        answer.map_err(|error| self.info.call_failed(py, &error, predicate, "one record", Some(record)))
    }

    #[inline]
    fn encode(&mut self, py: Python<'_>, record: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> Result<(), TaskError> {
        let encoded = encode(record, &mut self.classes, out);
        // The reader has the same table.
        if self.classes.has_news() {
            self.classes.take_news();
        }
        encoded.map_err(|error| self.info.codec_failed(py, error, Some(record)))
    }

    fn finish(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.predicate.as_ref().map_or(Ok(()), |predicate| predicate.finish(&self.info, collector))
    }

    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        self.predicate.as_ref().map_or(Ok(()), |predicate| predicate.close(py, &self.info))
    }
}
