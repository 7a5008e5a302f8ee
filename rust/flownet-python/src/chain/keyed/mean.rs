//! `mean`, of the record or of one of its fields.

use flownet_runtime::TaskError;
use flownet_runtime::operator::KeyedRecord;
use flownet_runtime::snapshot::Input;
use flownet_runtime::varint::put_varint;
use flownet_runtime::window::SliceRole;
use flownet_runtime::work::Work;
use pyo3::prelude::*;

use super::accumulate::{Accumulate, VALUE};
use super::number::Value;
use super::{Aggregation, FieldOf, KeyedBase};

/// The sum divided by the number of values.
pub(in crate::chain) struct Mean(pub(in crate::chain) FieldOf);

/// Parts of a mean.
#[derive(Default)]
pub(in crate::chain) struct Parts {
    sum: Option<Value>,
    count: u64,
}

impl Accumulate for Mean {
    type Value = Parts;

    const WORK: Work = Work::Rust;

    #[inline]
    fn absorb(&self, record: &KeyedRecord<'_>, parts: &mut Parts) -> bool {
        let Some(next) = self.0.native(record) else { return false };
        let is_taken = match &mut parts.sum {
            Some(so_far) => so_far.fold_native(Aggregation::Sum, &next),
            first => {
                *first = Some(next);
                true
            }
        };
        parts.count += u64::from(is_taken);
        is_taken
    }

    fn add(
        &self,
        py: Python<'_>,
        base: &KeyedBase,
        record: &KeyedRecord<'_>,
        parts: &mut Parts,
    ) -> Result<(), TaskError> {
        let next = self.0.of(py, base, record)?;
        Value::fold(py, Aggregation::Sum, &mut parts.sum, next).map_err(|error| base.failed(py, &error, record))?;
        parts.count += 1;
        Ok(())
    }

    fn merge(&self, py: Python<'_>, base: &KeyedBase, parts: &mut Parts, later: &Parts) -> Result<(), TaskError> {
        if let Some(sum) = &later.sum {
            Value::fold(py, Aggregation::Sum, &mut parts.sum, sum.clone_ref(py))
                .map_err(|error| base.info.failed(py, &error, None))?;
        }
        parts.count += later.count;
        Ok(())
    }

    fn take_out(&self, parts: &mut Parts, earliest: &Parts) -> bool {
        let is_out = match (&mut parts.sum, &earliest.sum) {
            (Some(sum), Some(earliest)) => sum.take_out(Aggregation::Sum, earliest),
            _ => false,
        };
        parts.count -= if is_out { earliest.count } else { 0 };
        is_out
    }

    fn part(&self, parts: &Parts) -> SliceRole {
        parts.sum.as_ref().map_or(SliceRole::Exact, |sum| sum.part(Aggregation::Sum))
    }

    fn write(
        &self,
        py: Python<'_>,
        base: &KeyedBase,
        key: &[u8],
        parts: &Parts,
        out: &mut Vec<u8>,
    ) -> Result<(), TaskError> {
        put_varint(out, parts.count);
        base.put_number(py, (VALUE, key), parts.sum.as_ref(), out)
    }

    fn read(&self, py: Python<'_>, base: &KeyedBase, input: &mut Input<'_>) -> Result<Parts, TaskError> {
        Ok(Parts { count: input.varint()?, sum: base.take_number(py, input)? })
    }

    fn has_records(&self, parts: &Parts) -> bool {
        parts.count > 0
    }

    fn result<'py>(
        &self,
        py: Python<'py>,
        base: &KeyedBase,
        parts: &Parts,
    ) -> Result<Option<Bound<'py, PyAny>>, TaskError> {
        let Some(sum) = &parts.sum else { return Ok(None) };
        let mean = sum.to_object(py).div(parts.count);
        mean.map(Some).map_err(|error| base.info.failed(py, &error, None))
    }
}
