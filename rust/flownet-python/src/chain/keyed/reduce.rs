//! `reduce` with a user's function.

use flownet_runtime::TaskError;
use flownet_runtime::operator::KeyedRecord;
use flownet_runtime::snapshot::Input;
use pyo3::prelude::*;

use super::KeyedBase;
use super::accumulate::{Accumulate, VALUE};
use super::mapping_values::pass_option;
use crate::chain::call::call2;
use crate::codec::look_at;

/// The user's function of two values.
pub(in crate::chain) struct Reduce(pub(in crate::chain) Py<PyAny>);

impl Reduce {
    fn reduce(
        &self,
        py: Python<'_>,
        base: &KeyedBase,
        held: &mut Option<Py<PyAny>>,
        next: Bound<'_, PyAny>,
    ) -> Result<(), TaskError> {
        let reduced = match held {
            None => next.unbind(),
            Some(so_far) => {
                let (function, given) = (self.0.bind(py), "the value so far and the next one");
                let reduced = call2(function, so_far.bind(py), &next)
                    .map_err(|error| base.info.call_failed(py, &error, function, given, Some(&next)))?;
                reduced.unbind()
            }
        };
        *held = Some(reduced);
        Ok(())
    }
}

impl Accumulate for Reduce {
    /// None before the first record.
    type Value = Option<Py<PyAny>>;

    #[inline]
    fn add(
        &self,
        py: Python<'_>,
        base: &KeyedBase,
        record: &KeyedRecord<'_>,
        held: &mut Option<Py<PyAny>>,
    ) -> Result<(), TaskError> {
        let value = base.decode(py, record.value())?;
        self.reduce(py, base, held, value)
    }

    fn merge(
        &self,
        py: Python<'_>,
        base: &KeyedBase,
        held: &mut Option<Py<PyAny>>,
        later: &Option<Py<PyAny>>,
    ) -> Result<(), TaskError> {
        match later {
            // The function may change its arguments, and the slice belongs to other windows, too.
            Some(later) => self.reduce(py, base, held, base.own(py, later.bind(py).clone())?),
            None => Ok(()),
        }
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

    #[inline]
    fn result<'py>(
        &self,
        py: Python<'py>,
        _: &KeyedBase,
        held: &Option<Py<PyAny>>,
    ) -> Result<Option<Bound<'py, PyAny>>, TaskError> {
        Ok(held.as_ref().map(|value| value.bind(py).clone()))
    }
}
