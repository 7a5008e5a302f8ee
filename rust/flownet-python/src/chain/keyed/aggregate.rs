//! `sum`, `min` and `max`, running and for windows, of the record or of one of its fields.

use flownet_runtime::TaskError;
use flownet_runtime::window::Window;
use pyo3::prelude::*;

use super::KeyedBase;
use super::fold::{Fold, RunningFold};
use super::number::Value;
use crate::chain::record::KeyedRecord;
use crate::chain::stage::Flow;
use crate::codec::{Number, item_bytes, number};

/// Which aggregate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::chain) enum Aggregation {
    Sum,
    Min,
    Max,
}

/// How values are found in records and folded.
pub(in crate::chain) struct Aggregate {
    base: KeyedBase,
    fold: Aggregation,
    /// Index or key of the field; `None` takes the record itself.
    field: Option<Py<PyAny>>,
    /// The field, if it is an index that can be found without decoding the record.
    index: Option<usize>,
}

impl Aggregate {
    pub(in crate::chain) fn new(base: KeyedBase, fold: Aggregation, field: Option<Bound<'_, PyAny>>) -> Self {
        let index = field.as_ref().and_then(|field| field.extract().ok());
        Self { base, fold, index, field: field.map(Bound::unbind) }
    }

    /// The value, if it is a plain number that can be read from the bytes.
    #[inline]
    fn native_value(&self, record: &KeyedRecord<'_>) -> Option<Value> {
        let bytes = match (&self.field, self.index) {
            (None, _) => record.value(),
            (Some(_), Some(index)) => item_bytes(record.value(), index)?,
            (Some(_), None) => return None,
        };
        Some(match number(bytes)? {
            Number::Int(int) => Value::Int(int),
            Number::Float(float) => Value::Float(float),
        })
    }

    fn value(&self, py: Python<'_>, record: &KeyedRecord<'_>) -> Result<Value, TaskError> {
        if let Some(value) = self.native_value(record) {
            return Ok(value);
        }
        let decoded = self.base.decode(py, record.value())?;
        let Some(field) = &self.field else { return Ok(Value::of(&decoded)) };
        match decoded.get_item(field.bind(py)) {
            Ok(item) => Ok(Value::of(&item)),
            Err(error) => Err(self.base.info.failed(py, &error, Some(&decoded))),
        }
    }

    fn fold_into(
        &self,
        py: Python<'_>,
        record: &KeyedRecord<'_>,
        held: &mut Option<Value>,
        next: Value,
    ) -> Result<(), TaskError> {
        let Some(so_far) = held else {
            *held = Some(next);
            return Ok(());
        };
        if so_far.fold_native(self.fold, &next) {
            return Ok(());
        }
        so_far.fold_python(py, self.fold, &next).map_err(|error| {
            let decoded = self.base.decode(py, record.value()).ok();
            self.base.info.failed(py, &error, decoded.as_ref())
        })
    }
}

/// `(key, value)`.
impl Fold for Aggregate {
    type Value = Option<Value>;

    #[inline]
    fn absorb(&self, record: &KeyedRecord<'_>, held: &mut Option<Value>) -> bool {
        let Some(next) = self.native_value(record) else { return false };
        match held {
            Some(so_far) => so_far.fold_native(self.fold, &next),
            first => {
                *first = Some(next);
                true
            }
        }
    }

    fn fold(&self, py: Python<'_>, record: &KeyedRecord<'_>, held: &mut Option<Value>) -> Result<(), TaskError> {
        let next = self.value(py, record)?;
        self.fold_into(py, record, held, next)
    }

    fn emit(&self, _: Window, key: &[u8], held: Option<Value>, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        self.emit_so_far(key, &held, flow)
    }
}

impl RunningFold for Aggregate {
    fn emit_so_far(&self, key: &[u8], held: &Option<Value>, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let Some(value) = held else { return Ok(()) };
        flow.emit(self.base.pair(flow.py, key, value.to_object(flow.py))?)
    }
}
