//! `sum`, `min` and `max`, of the record or of one of its fields.

use flownet_runtime::TaskError;
use flownet_runtime::operator::KeyedRecord;
use flownet_runtime::snapshot::Input;
use flownet_runtime::window::SliceRole;
use flownet_runtime::work::Work;
use pyo3::prelude::*;

use super::accumulate::{Accumulate, VALUE};
use super::number::Value;
use super::{FieldOf, KeyedBase};

/// Kind of aggregate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::chain) enum Aggregation {
    Sum,
    Min,
    Max,
}

/// Finds values in records and folds them.
pub(in crate::chain) struct Aggregate {
    fold: Aggregation,
    field: FieldOf,
}

impl Aggregate {
    pub(in crate::chain) fn new(fold: Aggregation, field: FieldOf) -> Self {
        Self { fold, field }
    }
}

impl Accumulate for Aggregate {
    type Value = Option<Value>;

    const WORK: Work = Work::Rust;

    #[inline]
    fn absorb(&self, record: &KeyedRecord<'_>, held: &mut Option<Value>) -> bool {
        let Some(next) = self.field.native(record) else { return false };
        match held {
            Some(so_far) => so_far.fold_native(self.fold, &next),
            first => {
                *first = Some(next);
                true
            }
        }
    }

    fn add(
        &self,
        py: Python<'_>,
        base: &KeyedBase,
        record: &KeyedRecord<'_>,
        held: &mut Option<Value>,
    ) -> Result<(), TaskError> {
        let next = self.field.of(py, base, record)?;
        Value::fold(py, self.fold, held, next).map_err(|error| base.failed(py, &error, record))
    }

    fn merge(
        &self,
        py: Python<'_>,
        base: &KeyedBase,
        held: &mut Option<Value>,
        later: &Option<Value>,
    ) -> Result<(), TaskError> {
        let Some(later) = later else { return Ok(()) };
        Value::fold(py, self.fold, held, later.clone_ref(py)).map_err(|error| base.info.failed(py, &error, None))
    }

    fn write(
        &self,
        py: Python<'_>,
        base: &KeyedBase,
        key: &[u8],
        held: &Option<Value>,
        out: &mut Vec<u8>,
    ) -> Result<(), TaskError> {
        base.put_number(py, (VALUE, key), held.as_ref(), out)
    }

    fn read(&self, py: Python<'_>, base: &KeyedBase, input: &mut Input<'_>) -> Result<Option<Value>, TaskError> {
        base.take_number(py, input)
    }

    #[inline]
    fn take_out(&self, held: &mut Option<Value>, earliest: &Option<Value>) -> bool {
        match (held, earliest) {
            (_, None) => true,
            (None, _) => false,
            (Some(held), Some(earliest)) => held.take_out(self.fold, earliest),
        }
    }

    #[inline]
    fn part(&self, held: &Option<Value>) -> SliceRole {
        held.as_ref().map_or(SliceRole::Exact, |value| value.part(self.fold))
    }

    fn has_records(&self, held: &Option<Value>) -> bool {
        held.is_some()
    }

    #[inline]
    fn result<'py>(
        &self,
        py: Python<'py>,
        _: &KeyedBase,
        held: &Option<Value>,
    ) -> Result<Option<Bound<'py, PyAny>>, TaskError> {
        Ok(held.as_ref().map(|value| value.to_object(py)))
    }
}
