//! Folds of Python values: how records change a value, independent of the shape of results.

use flownet_runtime::operator::{Fold, InspectedState, KeyedRecord, StateKind};
use flownet_runtime::snapshot::{Input, RestoredState, Snapshot};
use flownet_runtime::window::{SliceRole, Window};
use flownet_runtime::work::Work;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::prelude::*;

use super::KeyedBase;
use super::results::Results;
use crate::chain::record_format::{Collector, PythonFormat};

/// Folds many records of a key into one value.
pub(in crate::chain) trait Accumulate: Send {
    /// The stored value. Its default is the value before the first record.
    type Value: Default + Send;

    /// Kind of work that the fold does.
    const WORK: Work = Work::Python;

    /// Adds a record without the interpreter, if possible. Returns false, with `value` unchanged, if it is
    /// not.
    fn absorb(&self, record: &KeyedRecord<'_>, value: &mut Self::Value) -> bool {
        let _ = (record, value);
        false
    }

    /// Adds a record that was not absorbed.
    fn add(
        &self,
        py: Python<'_>,
        base: &KeyedBase,
        record: &KeyedRecord<'_>,
        value: &mut Self::Value,
    ) -> Result<(), TaskError>;

    /// Merges the value of later records.
    fn merge(
        &self,
        py: Python<'_>,
        base: &KeyedBase,
        value: &mut Self::Value,
        later: &Self::Value,
    ) -> Result<(), TaskError>;

    /// Removes the earliest of the merged values, see [`Fold::take_out`].
    fn take_out(&self, value: &mut Self::Value, earliest: &Self::Value) -> bool {
        let _ = (value, earliest);
        false
    }

    /// Role of a value in the windows that it is part of.
    fn part(&self, value: &Self::Value) -> SliceRole {
        let _ = value;
        SliceRole::Shared
    }

    /// Observes the values that are written next, see [`Fold::look_at`].
    fn look_at<'v>(&self, py: Python<'_>, values: impl Iterator<Item = &'v Self::Value> + Clone)
    where
        Self::Value: 'v,
    {
        let _ = (py, values);
    }

    /// Encodes a value, see [`Fold::write`].
    fn write(
        &self,
        py: Python<'_>,
        base: &KeyedBase,
        key: &[u8],
        value: &Self::Value,
        out: &mut Vec<u8>,
    ) -> Result<(), TaskError>;

    /// Decodes a value that `write` wrote.
    fn read(&self, py: Python<'_>, base: &KeyedBase, input: &mut Input<'_>) -> Result<Self::Value, TaskError>;

    /// Skips a value, see [`Fold::pass`].
    fn pass(&self, py: Python<'_>, base: &KeyedBase, input: &mut Input<'_>) -> Result<(), TaskError> {
        self.read(py, base, input).map(drop)
    }

    /// Returns true if records were added, see [`Fold::has_records`].
    fn has_records(&self, value: &Self::Value) -> bool;

    /// The current result; none if there is nothing to emit.
    fn result<'py>(
        &self,
        py: Python<'py>,
        base: &KeyedBase,
        value: &Self::Value,
    ) -> Result<Option<Bound<'py, PyAny>>, TaskError>;
}

/// A fold, and the shape of its results.
pub(in crate::chain) struct FoldWithResults<A> {
    base: KeyedBase,
    accumulate: A,
    results: Results,
}

impl<A> FoldWithResults<A> {
    pub(in crate::chain) fn new(base: KeyedBase, accumulate: A, results: Results) -> Self {
        Self { base, accumulate, results }
    }
}

impl<A: Accumulate> Fold<PythonFormat> for FoldWithResults<A> {
    type Value = A::Value;

    fn work(&self) -> Work {
        A::WORK
    }

    #[inline]
    fn absorb(&self, record: &KeyedRecord<'_>, value: &mut A::Value) -> bool {
        self.accumulate.absorb(record, value)
    }

    #[inline]
    fn fold(&self, py: Python<'_>, record: &KeyedRecord<'_>, value: &mut A::Value) -> Result<(), TaskError> {
        self.accumulate.add(py, &self.base, record, value)
    }

    fn merge(&self, py: Python<'_>, value: &mut A::Value, later: &A::Value) -> Result<(), TaskError> {
        self.accumulate.merge(py, &self.base, value, later)
    }

    #[inline]
    fn take_out(&self, value: &mut A::Value, earliest: &A::Value) -> bool {
        self.accumulate.take_out(value, earliest)
    }

    #[inline]
    fn part(&self, value: &A::Value) -> SliceRole {
        self.accumulate.part(value)
    }

    fn has_records(&self, value: &A::Value) -> bool {
        self.accumulate.has_records(value)
    }

    fn emit(
        &mut self,
        window: Window,
        key: &[u8],
        value: &mut A::Value,
        collector: &mut Collector<'_, '_>,
    ) -> Result<(), TaskError> {
        match self.accumulate.result(collector.token, &self.base, value)? {
            Some(result) => self.results.give_out(&self.base, (window, key), result, collector),
            None => Ok(()),
        }
    }

    #[inline]
    fn emit_so_far(
        &mut self,
        key: &[u8],
        value: &A::Value,
        collector: &mut Collector<'_, '_>,
    ) -> Result<(), TaskError> {
        match self.accumulate.result(collector.token, &self.base, value)? {
            Some(result) => self.results.give_out_so_far(&self.base, key, result, collector),
            None => Ok(()),
        }
    }

    fn write(&self, py: Python<'_>, key: &[u8], value: &A::Value, out: &mut Vec<u8>) -> Result<(), TaskError> {
        self.accumulate.write(py, &self.base, key, value, out)
    }

    fn look_at<'v>(&self, py: Python<'_>, values: impl Iterator<Item = &'v A::Value> + Clone)
    where
        A::Value: 'v,
    {
        self.accumulate.look_at(py, values);
    }

    fn read(&self, py: Python<'_>, input: &mut Input<'_>) -> Result<A::Value, TaskError> {
        self.accumulate.read(py, &self.base, input)
    }

    fn pass(&self, py: Python<'_>, input: &mut Input<'_>) -> Result<(), TaskError> {
        self.accumulate.pass(py, &self.base, input)
    }

    fn snapshot(&mut self, py: Python<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        self.results.snapshot(py, &self.base, to)
    }

    fn restore(&mut self, py: Python<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        self.results.restore(py, &self.base, from)
    }

    fn on_watermark(&mut self, watermark_ms: i64) {
        self.results.set_watermark(watermark_ms);
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

    fn inspect_value<'py>(
        &self,
        py: Python<'py>,
        (key, window): (&[u8], Option<Window>),
        value: &A::Value,
        found: &mut InspectedState<Bound<'py, PyAny>>,
    ) -> Result<(), TaskError> {
        if let Some(result) = self.accumulate.result(py, &self.base, value)? {
            found.add(if window.is_some() { StateKind::Window } else { StateKind::Value }, Some(key), window, result);
        }
        Ok(())
    }

    fn inspect<'py>(&self, py: Python<'py>, found: &mut InspectedState<Bound<'py, PyAny>>) -> Result<(), TaskError> {
        self.results.inspect(py, found);
        Ok(())
    }

    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.results.open(py, &self.base, cx)
    }

    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        self.results.close(py, &self.base)
    }
}

/// Name of a fold's values in errors.
pub(super) const VALUE: &str = "value";
