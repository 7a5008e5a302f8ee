//! Encodes values of keys for snapshots, and decodes them.

use flownet_runtime::TaskError;
use flownet_runtime::snapshot::{Input, RestoredState, Snapshot, put_block, put_signed};
use flownet_runtime::state::{KeyEntry, KeyedState, RESIDENT_PER_WRITTEN, Values};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::KeyedBase;
use super::number::Value;
use crate::chain::failure::{CODEC_ERROR, OperatorInfo, short_repr};
use crate::codec::{SentClasses, encode, look_at};

/// Encoder of stored values. The snapshot contains the classes of the values, so no definitions are sent.
pub(in crate::chain) struct KeptValues {
    classes: SentClasses,
    bytes: Vec<u8>,
}

impl KeptValues {
    pub(in crate::chain) fn new(classes: SentClasses) -> Self {
        Self { classes, bytes: Vec::new() }
    }

    /// Appends a value that belongs to no key, as a block.
    pub(in crate::chain) fn put(
        &mut self,
        (info, state): (&OperatorInfo, &str),
        value: &Bound<'_, PyAny>,
        out: &mut Vec<u8>,
    ) -> Result<(), TaskError> {
        self.put_block(value, out).map_err(|reason| {
            let message = format!("state '{state}' cannot be kept in a checkpoint: {reason}");
            info.refused(CODEC_ERROR, message, Some(value))
        })
    }

    fn put_block(&mut self, value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> Result<(), String> {
        self.bytes.clear();
        encode(value, &mut self.classes, &mut self.bytes).map_err(|error| error.to_string())?;
        self.classes.take_news();
        put_block(out, &self.bytes);
        Ok(())
    }
}

impl KeyedBase {
    /// Appends a value of a key. `key` decodes to the key.
    pub(super) fn put(
        &self,
        py: Python<'_>,
        (state, key): (&str, &[u8]),
        value: &Bound<'_, PyAny>,
        out: &mut Vec<u8>,
    ) -> Result<(), TaskError> {
        let put = self.kept.borrow_mut().put_block(value, out);
        put.map_err(|reason| {
            let key = self.decode(py, key).map_or_else(|_| "?".to_owned(), |key| short_repr(&key));
            let message = format!("state '{state}' of key {key} cannot be kept in a checkpoint or on disk: {reason}");
            self.info.refused(CODEC_ERROR, message, Some(value))
        })
    }

    /// Decodes a value that [`put`](Self::put) wrote.
    pub(super) fn take<'py>(&self, py: Python<'py>, input: &mut Input<'_>) -> Result<Bound<'py, PyAny>, TaskError> {
        self.decode(py, input.block()?)
    }

    pub(super) fn take_dict(&self, py: Python<'_>, input: &mut Input<'_>) -> Result<Py<PyDict>, TaskError> {
        let value = self.take(py, input)?;
        value.cast_into::<PyDict>().map(Bound::unbind).map_err(|_| input.broken("a value where a dict is expected"))
    }

    /// Appends an optional value.
    pub(super) fn put_option(
        &self,
        py: Python<'_>,
        of: (&str, &[u8]),
        value: Option<&Bound<'_, PyAny>>,
        out: &mut Vec<u8>,
    ) -> Result<(), TaskError> {
        out.push(u8::from(value.is_some()));
        value.map_or(Ok(()), |value| self.put(py, of, value, out))
    }

    pub(super) fn take_option<'py>(
        &self,
        py: Python<'py>,
        input: &mut Input<'_>,
    ) -> Result<Option<Bound<'py, PyAny>>, TaskError> {
        match input.byte()? {
            0 => Ok(None),
            1 => self.take(py, input).map(Some),
            other => Err(input.broken(format_args!("{other} where 0 or 1 is expected"))),
        }
    }

    pub(super) fn take_optional_dict(
        &self,
        py: Python<'_>,
        input: &mut Input<'_>,
    ) -> Result<Option<Py<PyDict>>, TaskError> {
        match input.byte()? {
            0 => Ok(None),
            1 => self.take_dict(py, input).map(Some),
            other => Err(input.broken(format_args!("{other} where 0 or 1 is expected"))),
        }
    }

    /// Appends an optional value under aggregation: `00`, `01` and a signed, `02` and 8 bytes of a float,
    /// `03` and a value.
    pub(super) fn put_number(
        &self,
        py: Python<'_>,
        of: (&str, &[u8]),
        value: Option<&Value>,
        out: &mut Vec<u8>,
    ) -> Result<(), TaskError> {
        match value {
            None => out.push(0),
            Some(Value::Int(int)) => {
                out.push(1);
                put_signed(out, *int);
            }
            Some(Value::Float(float)) => {
                out.push(2);
                out.extend(float.to_le_bytes());
            }
            Some(Value::Object(object)) => {
                out.push(3);
                self.put(py, of, object.bind(py), out)?;
            }
        }
        Ok(())
    }

    pub(super) fn take_number(&self, py: Python<'_>, input: &mut Input<'_>) -> Result<Option<Value>, TaskError> {
        take_number(input, |input| self.take(py, input))
    }

    /// Adds the mapping of each key. `header` applies to all of them.
    pub(super) fn add_mappings(
        &self,
        py: Python<'_>,
        to: &mut Snapshot<'_>,
        name: &str,
        state: &mut KeyedState<KeyEntry<Py<PyDict>>>,
        header: &[i64],
    ) -> Result<(), TaskError> {
        let write = |key: &[u8], held: &KeyEntry<Py<PyDict>>, out: &mut Vec<u8>| {
            self.put(py, (name, key), held.value.bind(py).as_any(), out)
        };
        to.add_keyed(name, header, state, write)
    }

    /// Restores mappings.
    pub(super) fn read_mappings(
        &self,
        py: Python<'_>,
        from: &RestoredState<'_>,
        name: &str,
        state: &mut KeyedState<KeyEntry<Py<PyDict>>>,
    ) -> Result<(), TaskError> {
        from.read_keyed(name, state, |input| self.take_dict(py, input)).map(drop)
    }
}

/// The mappings of keys, for code that writes and reads them.
pub(super) struct Mappings<'a, 'py> {
    pub(super) base: &'a KeyedBase,
    pub(super) py: Python<'py>,
    /// Name of the state.
    pub(super) name: &'static str,
}

impl Values<Py<PyDict>> for Mappings<'_, '_> {
    fn write(&self, key: &[u8], mapping: &Py<PyDict>, out: &mut Vec<u8>) -> Result<(), TaskError> {
        self.base.put(self.py, (self.name, key), mapping.bind(self.py).as_any(), out)
    }

    fn look_at<'v>(&self, mappings: impl Iterator<Item = &'v Py<PyDict>> + Clone) {
        look_at(mappings.map(|mapping| mapping.as_any().bind_borrowed(self.py)));
    }

    fn read(&self, input: &mut Input<'_>) -> Result<Py<PyDict>, TaskError> {
        self.base.take_dict(self.py, input)
    }

    fn pass(&self, input: &mut Input<'_>) -> Result<(), TaskError> {
        input.block().map(drop)
    }

    fn resident_bytes(&self, written: usize) -> usize {
        DICT_BYTES + RESIDENT_PER_WRITTEN * written
    }
}

/// Skips a value that [`KeyedBase::put_option`] wrote.
pub(super) fn pass_option(input: &mut Input<'_>) -> Result<(), TaskError> {
    match input.byte()? {
        0 => Ok(()),
        1 => input.block().map(drop),
        other => Err(input.broken(format_args!("{other} where 0 or 1 is expected"))),
    }
}

/// Size of a dict with few entries, without the entries.
const DICT_BYTES: usize = 280;

/// Decodes a value that [`KeyedBase::put_number`] wrote, as a Python object. `object` reads a value of
/// another kind.
pub(crate) fn take_number_object<'a, 'py, E: From<TaskError>>(
    py: Python<'py>,
    input: &mut Input<'a>,
    object: impl FnOnce(&mut Input<'a>) -> Result<Bound<'py, PyAny>, E>,
) -> Result<Option<Bound<'py, PyAny>>, E> {
    Ok(take_number(input, object)?.map(|value| value.to_object(py)))
}

fn take_number<'a, 'py, E: From<TaskError>>(
    input: &mut Input<'a>,
    object: impl FnOnce(&mut Input<'a>) -> Result<Bound<'py, PyAny>, E>,
) -> Result<Option<Value>, E> {
    Ok(Some(match input.byte()? {
        0 => return Ok(None),
        1 => Value::Int(input.signed()?),
        2 => {
            let mut bytes = [0; 8];
            for byte in &mut bytes {
                *byte = input.byte()?;
            }
            Value::Float(f64::from_le_bytes(bytes))
        }
        3 => Value::Object(object(input)?.unbind()),
        other => return Err(input.broken(format_args!("a number of kind {other}")).into()),
    }))
}
