//! `min_by` and `max_by`: the record with the least or greatest value, the first of equal ones.

use flownet_runtime::TaskError;
use flownet_runtime::operator::KeyedRecord;
use flownet_runtime::snapshot::{Input, put_block};
use flownet_runtime::window::SliceRole;
use flownet_runtime::work::Work;
use pyo3::prelude::*;

use super::accumulate::{Accumulate, VALUE};
use super::number::Value;
use super::{Aggregation, FieldOf, KeyedBase};

/// Stores one whole record.
pub(in crate::chain) struct Extreme {
    fold: Aggregation,
    field: FieldOf,
}

/// The best record so far, as bytes, and its value.
pub(in crate::chain) type ExtremeRecord = Option<(Value, Vec<u8>)>;

impl Extreme {
    /// `fold` is min or max.
    pub(in crate::chain) fn new(fold: Aggregation, field: FieldOf) -> Self {
        Self { fold, field }
    }

    fn take(&self, py: Python<'_>, best: &mut ExtremeRecord, next: Value, record: &[u8]) -> PyResult<()> {
        let Some((so_far, held)) = best else {
            *best = Some((next, record.to_vec()));
            return Ok(());
        };
        if next.is_beyond(py, self.fold, so_far)? {
            *so_far = next;
            held.clear();
            held.extend_from_slice(record);
        }
        Ok(())
    }
}

impl Accumulate for Extreme {
    type Value = ExtremeRecord;

    const WORK: Work = Work::Rust;

    fn add(
        &self,
        py: Python<'_>,
        base: &KeyedBase,
        record: &KeyedRecord<'_>,
        best: &mut ExtremeRecord,
    ) -> Result<(), TaskError> {
        let next = self.field.of(py, base, record)?;
        self.take(py, best, next, record.value()).map_err(|error| base.failed(py, &error, record))
    }

    fn merge(
        &self,
        py: Python<'_>,
        base: &KeyedBase,
        best: &mut ExtremeRecord,
        later: &ExtremeRecord,
    ) -> Result<(), TaskError> {
        let Some((value, record)) = later else { return Ok(()) };
        let taken = self.take(py, best, value.clone_ref(py), record);
        taken.map_err(|error| base.info.failed(py, &error, None))
    }

    fn take_out(&self, best: &mut ExtremeRecord, earliest: &ExtremeRecord) -> bool {
        match (best, earliest) {
            (Some((best, _)), Some((earliest, _))) => best.take_out(self.fold, earliest),
            _ => false,
        }
    }

    fn part(&self, best: &ExtremeRecord) -> SliceRole {
        // The record leaves as an object of its own, and its value stays here. So a value that is an object
        // is not shared.
        match best.as_ref().map_or(SliceRole::Exact, |(value, _)| value.part(self.fold)) {
            SliceRole::Shared => SliceRole::Fixed,
            part => part,
        }
    }

    fn write(
        &self,
        py: Python<'_>,
        base: &KeyedBase,
        key: &[u8],
        best: &ExtremeRecord,
        out: &mut Vec<u8>,
    ) -> Result<(), TaskError> {
        base.put_number(py, (VALUE, key), best.as_ref().map(|(value, _)| value), out)?;
        put_block(out, best.as_ref().map_or(&[], |(_, record)| record));
        Ok(())
    }

    fn read(&self, py: Python<'_>, base: &KeyedBase, input: &mut Input<'_>) -> Result<ExtremeRecord, TaskError> {
        let value = base.take_number(py, input)?;
        let record = input.block()?;
        Ok(value.map(|value| (value, record.to_vec())))
    }

    fn has_records(&self, best: &ExtremeRecord) -> bool {
        best.is_some()
    }

    fn result<'py>(
        &self,
        py: Python<'py>,
        base: &KeyedBase,
        best: &ExtremeRecord,
    ) -> Result<Option<Bound<'py, PyAny>>, TaskError> {
        best.as_ref().map(|(_, record)| base.decode(py, record)).transpose()
    }
}
