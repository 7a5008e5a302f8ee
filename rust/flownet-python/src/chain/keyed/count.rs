//! `count`: the record's value is never looked at.

use flownet_runtime::TaskError;
use flownet_runtime::window::Window;
use pyo3::prelude::*;
use pyo3::types::PyInt;

use super::KeyedBase;
use super::fold::{Fold, RunningFold};
use crate::chain::record::KeyedRecord;
use crate::chain::stage::Flow;

/// `(key, records)`.
pub(in crate::chain) struct Count(pub(in crate::chain) KeyedBase);

impl Fold for Count {
    type Value = u64;

    #[inline]
    fn absorb(&self, _: &KeyedRecord<'_>, records: &mut u64) -> bool {
        *records += 1;
        true
    }

    #[inline]
    fn fold(&self, _: Python<'_>, record: &KeyedRecord<'_>, records: &mut u64) -> Result<(), TaskError> {
        self.absorb(record, records);
        Ok(())
    }

    fn emit(&self, _: Window, key: &[u8], records: u64, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        self.emit_so_far(key, &records, flow)
    }
}

impl RunningFold for Count {
    fn emit_so_far(&self, key: &[u8], records: &u64, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let count = PyInt::new(flow.py, *records).into_any();
        flow.emit(self.0.pair(flow.py, key, count)?)
    }
}
