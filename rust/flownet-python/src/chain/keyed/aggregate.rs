//! `sum`, `min` and `max`, running and for windows, of the record or of one of its fields.

use flownet_runtime::window::Fired;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::prelude::*;

use super::KeyedBase;
use super::number::Value;
use super::state::{Held, State};
use super::window::{WindowSettings, Windows};
use crate::chain::record::KeyedRecord;
use crate::chain::stage::{Flow, KeyedOperator};
use crate::codec::{Number, item_bytes, number};

/// Which aggregate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::chain) enum Fold {
    Sum,
    Min,
    Max,
}

/// How values are found in records and folded.
pub(in crate::chain) struct Aggregate {
    base: KeyedBase,
    fold: Fold,
    /// Index or key of the field; `None` takes the record itself.
    field: Option<Py<PyAny>>,
    /// The field, if it is an index that can be found without decoding the record.
    index: Option<usize>,
}

impl Aggregate {
    pub(in crate::chain) fn new(base: KeyedBase, fold: Fold, field: Option<Bound<'_, PyAny>>) -> Self {
        let index = field.as_ref().and_then(|field| field.extract().ok());
        Self { base, fold, index, field: field.map(Bound::unbind) }
    }

    /// `sum`, `min` and `max` as records arrive.
    pub(in crate::chain) fn running(self) -> impl KeyedOperator {
        RunningAggregate { aggregate: self, state: State::new() }
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

/// `(key, value so far)` for each record.
struct RunningAggregate {
    aggregate: Aggregate,
    state: State<Option<Value>>,
}

impl KeyedOperator for RunningAggregate {
    fn open(&mut self, _: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.state.open(cx.key_group_range);
        Ok(())
    }

    fn push(&mut self, record: &KeyedRecord<'_>, _: i64, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let next = self.aggregate.value(flow.py, record)?;
        let held = self.state.entry(record, || None)?;
        self.aggregate.fold_into(flow.py, record, &mut held.value, next)?;
        emit_pair(&self.aggregate.base, record.key, held, flow)
    }
}

/// `(key, value)` for each key and window.
pub(in crate::chain) struct WindowAggregate {
    aggregate: Aggregate,
    windows: Windows<Option<Value>>,
}

impl WindowAggregate {
    pub(in crate::chain) fn new(aggregate: Aggregate, window: WindowSettings) -> Result<Self, TaskError> {
        Ok(Self { aggregate, windows: Windows::new(window)? })
    }

    fn emit(&self, fired: Fired<Held<Option<Value>>>, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        for (_, key, held) in fired {
            flow.cancel().check()?;
            emit_pair(&self.aggregate.base, &key, &held, flow)?;
        }
        Ok(())
    }
}

impl KeyedOperator for WindowAggregate {
    fn open(&mut self, _: Python<'_>, _: &TaskContext) -> Result<(), TaskError> {
        Ok(())
    }

    #[inline]
    fn absorb(&mut self, record: &KeyedRecord<'_>, now_ms: i64) -> Result<bool, TaskError> {
        let Some(next) = self.aggregate.native_value(record) else { return Ok(false) };
        match self.windows.entry(record, now_ms, || None) {
            Some(so_far) => Ok(so_far.fold_native(self.aggregate.fold, &next)),
            first => {
                *first = Some(next);
                Ok(true)
            }
        }
    }

    fn push(&mut self, record: &KeyedRecord<'_>, now_ms: i64, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let next = self.aggregate.value(flow.py, record)?;
        let held = self.windows.entry(record, now_ms, || None);
        self.aggregate.fold_into(flow.py, record, held, next)
    }

    fn next_timer_ms(&self) -> Option<i64> {
        self.windows.next_timer_ms()
    }

    fn on_timer(&mut self, now_ms: i64, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let fired = self.windows.fire_due(now_ms);
        self.emit(fired, flow)
    }

    fn finish(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let fired = self.windows.fire_all();
        self.emit(fired, flow)
    }
}

fn emit_pair(
    base: &KeyedBase,
    key: &[u8],
    held: &Held<Option<Value>>,
    flow: &mut Flow<'_, '_>,
) -> Result<(), TaskError> {
    let Some(value) = &held.value else { return Ok(()) };
    flow.emit(base.pair(flow.py, held.key_value(key), value.to_object(flow.py))?)
}
