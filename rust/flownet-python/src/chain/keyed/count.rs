//! `count`: counts records without building an object.

use flownet_runtime::TaskError;
use flownet_runtime::operator::KeyedRecord;
use flownet_runtime::snapshot::Input;
use flownet_runtime::varint::put_varint;
use flownet_runtime::window::SliceRole;
use flownet_runtime::work::Work;
use pyo3::prelude::*;
use pyo3::types::PyInt;

use super::KeyedBase;
use super::accumulate::Accumulate;

/// Counts records.
pub(in crate::chain) struct Count;

impl Accumulate for Count {
    type Value = u64;

    const WORK: Work = Work::Rust;

    #[inline]
    fn absorb(&self, _: &KeyedRecord<'_>, count: &mut u64) -> bool {
        *count += 1;
        true
    }

    fn add(&self, _: Python<'_>, _: &KeyedBase, record: &KeyedRecord<'_>, count: &mut u64) -> Result<(), TaskError> {
        self.absorb(record, count);
        Ok(())
    }

    fn merge(&self, _: Python<'_>, _: &KeyedBase, count: &mut u64, later: &u64) -> Result<(), TaskError> {
        *count += later;
        Ok(())
    }

    fn take_out(&self, count: &mut u64, earliest: &u64) -> bool {
        *count -= earliest;
        true
    }

    fn part(&self, _: &u64) -> SliceRole {
        SliceRole::Exact
    }

    fn write(&self, _: Python<'_>, _: &KeyedBase, _: &[u8], count: &u64, out: &mut Vec<u8>) -> Result<(), TaskError> {
        put_varint(out, *count);
        Ok(())
    }

    fn read(&self, _: Python<'_>, _: &KeyedBase, input: &mut Input<'_>) -> Result<u64, TaskError> {
        input.varint()
    }

    fn has_records(&self, count: &u64) -> bool {
        *count > 0
    }

    #[inline]
    fn result<'py>(&self, py: Python<'py>, _: &KeyedBase, count: &u64) -> Result<Option<Bound<'py, PyAny>>, TaskError> {
        Ok(Some(PyInt::new(py, *count).into_any()))
    }
}
