//! Encodes instances of classes as keys.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet, PyTuple};

use super::class::{Class, KeyRule, Kind};
use super::encode::Encoder;
use super::exact::exact;
use super::key::SUPPORTED;
use super::object::in_slot;
use super::{CodecError, tag};

/// Encodes the canonical form of an instance. It never decodes to the key itself.
pub(super) fn encode(
    encoder: &mut Encoder<'_>,
    key: &Bound<'_, PyAny>,
    class: &Arc<Class>,
    depth: usize,
) -> Result<bool, CodecError> {
    let py = key.py();
    match &class.key {
        KeyRule::Refused(_) if matches!(class.kind, Kind::Opaque { .. }) => {
            return Err(CodecError::unsupported_key(key, SUPPORTED));
        }
        KeyRule::Refused(reason) => return Err(CodecError::unsupported_key(key, reason)),
        KeyRule::Items => {
            encoder.tuple_key(key.cast::<PyTuple>().map_err(PyErr::from)?, depth)?;
        }
        KeyRule::Members(plain) => match &plain[class.place(key)? as usize] {
            Some(plain) => {
                encoder.key(plain.bind(py), depth)?;
            }
            None => {
                encoder.blob(tag::CLASS_KEY, class.name.as_bytes());
                encoder.key(&key.getattr("_name_")?, depth)?;
            }
        },
        KeyRule::Value => {
            encoder.key(&key.getattr("_value_")?, depth)?;
        }
        KeyRule::NamedValue => {
            encoder.blob(tag::CLASS_KEY, class.name.as_bytes());
            encoder.key(&key.getattr("_value_")?, depth)?;
        }
        KeyRule::Attributes(names) => {
            encoder.blob(tag::CLASS_KEY, class.name.as_bytes());
            for name in names {
                let missing = || CodecError::unsupported_key(key, "one of its fields is not set");
                let name = name.bind(py);
                let mut attribute = in_slot(key, name)?.ok_or_else(missing)?;
                // A model compares its extra and private attributes as a dict.
                if name.to_str()?.starts_with("__pydantic_")
                    && let Some(dict) = exact::<PyDict>(&attribute)
                {
                    attribute = PyFrozenSet::new(py, dict.items())?.into_any();
                }
                encoder.key(&attribute, depth + 1)?;
            }
        }
    }
    Ok(false)
}
