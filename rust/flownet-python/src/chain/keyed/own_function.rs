//! `aggregate` with a user's `AggregateFunction`.

use flownet_runtime::TaskError;
use flownet_runtime::operator::KeyedRecord;
use flownet_runtime::snapshot::Input;
use pyo3::intern;
use pyo3::prelude::*;

use super::KeyedBase;
use super::accumulate::{Accumulate, VALUE};
use super::mapping_values::pass_option;
use crate::codec::look_at;

/// The user's function, or one of flownet's.
pub(in crate::chain) struct OwnFunction {
    function: Py<PyAny>,
    /// True if it also receives the time of each record, as flownet's own functions may require.
    takes_time: bool,
}

impl OwnFunction {
    pub(in crate::chain) fn new(py: Python<'_>, function: Py<PyAny>) -> Self {
        let takes_time = function.bind(py).getattr(intern!(py, "_takes_time"));
        Self { takes_time: takes_time.is_ok_and(|takes_time| takes_time.is_truthy().unwrap_or(false)), function }
    }

    fn accumulator<'py>(
        &self,
        py: Python<'py>,
        base: &KeyedBase,
        held: &Option<Py<PyAny>>,
    ) -> Result<Bound<'py, PyAny>, TaskError> {
        match held {
            Some(held) => Ok(held.bind(py).clone()),
            None => self
                .function
                .bind(py)
                .call_method0(intern!(py, "create_accumulator"))
                .map_err(|error| base.info.failed(py, &error, None)),
        }
    }
}

impl Accumulate for OwnFunction {
    /// None before the first record.
    type Value = Option<Py<PyAny>>;

    fn add(
        &self,
        py: Python<'_>,
        base: &KeyedBase,
        record: &KeyedRecord<'_>,
        held: &mut Option<Py<PyAny>>,
    ) -> Result<(), TaskError> {
        let (value, accumulator) = (base.decode(py, record.value())?, self.accumulator(py, base, held)?);
        let (function, add) = (self.function.bind(py), intern!(py, "add"));
        let added = if self.takes_time {
            function.call_method1(add, (&value, accumulator, record.timestamp_ms))
        } else {
            function.call_method1(add, (&value, accumulator))
        };
        *held = Some(added.map_err(|error| base.info.failed(py, &error, Some(&value)))?.unbind());
        Ok(())
    }

    fn merge(
        &self,
        py: Python<'_>,
        base: &KeyedBase,
        held: &mut Option<Py<PyAny>>,
        later: &Option<Py<PyAny>>,
    ) -> Result<(), TaskError> {
        let Some(later) = later else { return Ok(()) };
        let later = base.own(py, later.bind(py).clone())?;
        let merged = match held {
            None => later,
            Some(held) => {
                let merged = self.function.bind(py).call_method1(intern!(py, "merge"), (held.bind(py), later));
                merged.map_err(|error| base.info.failed(py, &error, None))?
            }
        };
        *held = Some(merged.unbind());
        Ok(())
    }

    fn look_at<'v>(&self, py: Python<'_>, values: impl Iterator<Item = &'v Option<Py<PyAny>>> + Clone) {
        look_at(values.flatten().map(|value| value.bind_borrowed(py)));
    }

    fn write(
        &self,
        py: Python<'_>,
        base: &KeyedBase,
        key: &[u8],
        held: &Option<Py<PyAny>>,
        out: &mut Vec<u8>,
    ) -> Result<(), TaskError> {
        base.put_option(py, (VALUE, key), held.as_ref().map(|held| held.bind(py)), out)
    }

    fn read(&self, py: Python<'_>, base: &KeyedBase, input: &mut Input<'_>) -> Result<Option<Py<PyAny>>, TaskError> {
        Ok(base.take_option(py, input)?.map(Bound::unbind))
    }

    fn pass(&self, _: Python<'_>, _: &KeyedBase, input: &mut Input<'_>) -> Result<(), TaskError> {
        pass_option(input)
    }

    fn has_records(&self, held: &Option<Py<PyAny>>) -> bool {
        held.is_some()
    }

    fn result<'py>(
        &self,
        py: Python<'py>,
        base: &KeyedBase,
        held: &Option<Py<PyAny>>,
    ) -> Result<Option<Bound<'py, PyAny>>, TaskError> {
        let accumulator = self.accumulator(py, base, held)?;
        let result = self.function.bind(py).call_method1(intern!(py, "get_result"), (accumulator,));
        result.map(Some).map_err(|error| base.info.failed(py, &error, None))
    }
}
