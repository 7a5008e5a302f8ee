//! Joins: emits each pair of matching records, or the result of a user's function of them.

use flownet_runtime::TaskError;
use flownet_runtime::operator::{BothSides, Fold, KeyedRecord, Pairing};
use flownet_runtime::snapshot::{Input, Snapshot};
use flownet_runtime::window::Window;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::KeyedBase;
use crate::chain::call::call2;
use crate::chain::record_format::{Collector, PythonFormat};
use crate::codec::Decoder;

/// Result of two records that match.
pub(in crate::chain) struct Pairs {
    base: KeyedBase,
    /// None: the result is a tuple of both.
    function: Option<Py<PyAny>>,
}

impl Pairs {
    pub(in crate::chain) fn new(base: KeyedBase, function: Option<Py<PyAny>>) -> Self {
        Self { base, function }
    }

    fn give<'py>(
        &self,
        left: Bound<'py, PyAny>,
        right: Option<Bound<'py, PyAny>>,
        collector: &mut Collector<'_, 'py>,
    ) -> Result<(), TaskError> {
        let py = collector.token;
        let right = right.unwrap_or_else(|| py.None().into_bound(py));
        let Some(function) = &self.function else {
            let pair = PyTuple::new(py, [left, right]).map_err(|error| self.base.info.failed(py, &error, None))?;
            return collector.emit(pair.into_any());
        };
        let (function, given) = (function.bind(py), "a record of each stream");
        let result = call2(function, &left, &right)
            .map_err(|error| self.base.info.call_failed(py, &error, function, given, Some(&left)))?;
        // Drop our references first. Then the receiver may hold the only reference to the result, and need
        // not copy it.
        drop((left, right));
        collector.emit(result)
    }
}

impl Pairing<PythonFormat> for Pairs {
    type JoinRecord<'b, 'py> = Bound<'py, PyAny>;

    #[inline]
    fn met<'py>(&self, bytes: &[u8], collector: &Collector<'_, 'py>) -> Result<Bound<'py, PyAny>, TaskError> {
        self.base.decode(collector.token, bytes)
    }

    #[inline]
    fn again<'py>(
        &self,
        record: &Bound<'py, PyAny>,
        _: &[u8],
        collector: &Collector<'_, 'py>,
    ) -> Result<Bound<'py, PyAny>, TaskError> {
        self.base.own(collector.token, record.clone())
    }

    fn pair<'py>(
        &mut self,
        left: Bound<'py, PyAny>,
        right: Option<Bound<'py, PyAny>>,
        _: u32,
        collector: &mut Collector<'_, 'py>,
    ) -> Result<(), TaskError> {
        self.give(left, right, collector)
    }

    fn record<'py>(
        &self,
        record: &KeyedRecord<'_>,
        collector: &Collector<'_, 'py>,
    ) -> Result<Bound<'py, PyAny>, TaskError> {
        self.base.decode(collector.token, record.value())
    }

    fn without_timestamp(&self, py: Python<'_>, record: &KeyedRecord<'_>) -> TaskError {
        let message = "a join by event time got a record without a timestamp: call \
                       assign_timestamps_and_watermarks() on both streams before key_by()";
        self.base.info.refused("ValueError", message.to_owned(), self.base.decode(py, record.value()).ok().as_ref())
    }
}

impl Fold<PythonFormat> for Pairs {
    type Value = BothSides;

    #[inline]
    fn absorb(&self, record: &KeyedRecord<'_>, records: &mut BothSides) -> bool {
        records.add(record);
        true
    }

    fn fold(&self, _: Python<'_>, record: &KeyedRecord<'_>, records: &mut BothSides) -> Result<(), TaskError> {
        records.add(record);
        Ok(())
    }

    fn merge(&self, _: Python<'_>, records: &mut BothSides, later: &BothSides) -> Result<(), TaskError> {
        records.merge(later);
        Ok(())
    }

    fn write(&self, _: Python<'_>, _: &[u8], records: &BothSides, out: &mut Vec<u8>) -> Result<(), TaskError> {
        records.write(out);
        Ok(())
    }

    fn read(&self, _: Python<'_>, input: &mut Input<'_>) -> Result<BothSides, TaskError> {
        BothSides::read(input)
    }

    fn snapshot(&mut self, _: Python<'_>, _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }

    fn has_records(&self, records: &BothSides) -> bool {
        !records.is_empty()
    }

    /// Emits each record of one side with each record of the other.
    fn emit(
        &mut self,
        _: Window,
        _: &[u8],
        records: &mut BothSides,
        collector: &mut Collector<'_, '_>,
    ) -> Result<(), TaskError> {
        let [lefts, rights] = records.get();
        if rights.is_empty() {
            return Ok(());
        }
        let py = collector.token;
        let failed = |error| self.base.info.codec_failed(py, error, None);
        let mut left_decoder = Decoder::new(lefts, &self.base.classes);
        while !left_decoder.is_empty() {
            let left = left_decoder.next_value(py).map_err(failed)?;
            let mut right_decoder = Decoder::new(rights, &self.base.classes);
            while !right_decoder.is_empty() {
                let right = right_decoder.next_value(py).map_err(failed)?;
                self.give(self.base.own(py, left.clone())?, Some(right), collector)?;
            }
            collector.cancel().check()?;
        }
        Ok(())
    }

    fn emit_so_far(&mut self, _: &[u8], _: &BothSides, _: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        Err(TaskError::Config("a join of windows was given none".into()))
    }

    fn record<'py>(
        &self,
        record: &KeyedRecord<'_>,
        collector: &Collector<'_, 'py>,
    ) -> Result<Bound<'py, PyAny>, TaskError> {
        self.base.decode(collector.token, record.value())
    }

    fn without_timestamp(&self, py: Python<'_>, record: &KeyedRecord<'_>) -> TaskError {
        self.base.without_timestamp(py, record)
    }
}
