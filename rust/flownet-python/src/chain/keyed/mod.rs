//! Operators downstream of a keyed edge. They call users' functions for records, windows and timers. The
//! operators themselves are in flownet-runtime; these modules contain their Python parts.
//!
//! The canonical bytes of a key are the index of its state. If a key arrives in several forms, the state
//! stores the form of the key's first record, as a `dict` does.

mod accumulate;
mod aggregate;
mod calls;
mod collect;
mod count;
mod extreme;
mod mapping_values;
mod mean;
mod number;
mod own_function;
mod pairs;
mod process;
mod reduce;
mod results;

pub(super) use accumulate::{Accumulate, FoldWithResults};
pub(super) use aggregate::{Aggregate, Aggregation};
pub(super) use calls::WindowCalls;
pub(super) use collect::{Collect, Evictor};
pub(super) use count::Count;
pub(super) use extreme::Extreme;
pub(super) use mapping_values::KeptValues;
pub(crate) use mapping_values::take_number_object;
pub(super) use mean::Mean;
pub(super) use own_function::OwnFunction;
pub(super) use pairs::Pairs;
pub(super) use process::Process;
pub(super) use reduce::Reduce;
pub(super) use results::{EmitSides, OfWindow, Results};

use std::cell::RefCell;

use flownet_core::keygroup::hash_key;
use flownet_runtime::TaskError;
use flownet_runtime::operator::KeyedRecord;
use pyo3::prelude::*;

use super::failure::OperatorInfo;
use super::isolate::{is_immutable, isolate};
use crate::codec::{self, KnownClasses, Number, item_bytes, number};
use number::Value;

/// Converts bytes to objects and identifies the operator, for every keyed operator.
pub(super) struct KeyedBase {
    pub(super) info: OperatorInfo,
    pub(super) classes: KnownClasses,
    /// True if objects are passed on as they are, even if other code refers to them.
    pub(super) object_reuse: bool,
    /// Encoder of values for snapshots.
    pub(super) kept: RefCell<KeptValues>,
}

impl KeyedBase {
    fn decode<'py>(&self, py: Python<'py>, bytes: &[u8]) -> Result<Bound<'py, PyAny>, TaskError> {
        codec::decode(py, bytes, &self.classes).map_err(|error| self.info.codec_failed(py, error, None))
    }

    /// Error of the user's code at a record.
    #[cold]
    fn failed(&self, py: Python<'_>, error: &PyErr, record: &KeyedRecord<'_>) -> TaskError {
        self.info.failed(py, error, self.decode(py, record.value()).ok().as_ref())
    }

    /// Error of a record without a timestamp where one is needed.
    #[cold]
    fn without_timestamp(&self, py: Python<'_>, record: &KeyedRecord<'_>) -> TaskError {
        let message = "a window of event time got a record without a timestamp: call \
                       assign_timestamps_and_watermarks() on the stream before key_by(), or say time=\"processing\"";
        self.info.refused("ValueError", message.to_owned(), self.decode(py, record.value()).ok().as_ref())
    }

    /// Index of state: the canonical bytes of a key, and their hash.
    fn index(&self, key: &Bound<'_, PyAny>) -> Result<(Vec<u8>, u32), TaskError> {
        let bytes = codec::canonical_key(key).map_err(|error| self.info.codec_failed(key.py(), error, Some(key)))?;
        let hash = hash_key(&bytes);
        Ok((bytes, hash))
    }

    /// Returns an object that the caller may change and store.
    fn own<'py>(&self, py: Python<'py>, object: Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>, TaskError> {
        if self.object_reuse || is_immutable(&object) {
            return Ok(object);
        }
        isolate(object).map_err(|error| self.info.failed(py, &error, None))
    }
}

/// Finds a value in a record.
pub(super) struct FieldOf {
    /// Index or key; `None` takes the record itself.
    field: Option<Py<PyAny>>,
    /// The field, if it is an index that can be found without decoding the record.
    index: Option<usize>,
}

impl FieldOf {
    pub(super) fn new(field: Option<Bound<'_, PyAny>>) -> Self {
        let index = field.as_ref().and_then(|field| field.extract().ok());
        Self { index, field: field.map(Bound::unbind) }
    }

    /// The value, if it is a plain number that can be read from the bytes.
    #[inline]
    fn native(&self, record: &KeyedRecord<'_>) -> Option<Value> {
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

    fn of(&self, py: Python<'_>, base: &KeyedBase, record: &KeyedRecord<'_>) -> Result<Value, TaskError> {
        if let Some(value) = self.native(record) {
            return Ok(value);
        }
        let decoded = base.decode(py, record.value())?;
        let Some(field) = &self.field else { return Ok(Value::of(&decoded)) };
        match decoded.get_item(field.bind(py)) {
            Ok(item) => Ok(Value::of(&item)),
            Err(error) => Err(base.info.failed(py, &error, Some(&decoded))),
        }
    }
}
