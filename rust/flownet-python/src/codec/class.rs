//! Describes classes to the codec: how instances are encoded, and which form they have as keys.
//!
//! Python inspects the class once (`flownet.internal.record_classes`) and reports the result here.

use std::sync::OnceLock;

use hashbrown::HashMap;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple, PyType};
use xxhash_rust::xxh3::xxh3_64;

use super::CodecError;
use flownet_runtime::varint::{put_varint, take_varint};

/// Longest definition of a class: a class of a script travels with all that it refers to.
pub(super) const MAX_DEFINITION_BYTES: usize = 1 << 20;

/// A class whose instances a job moves.
#[derive(Debug)]
pub struct Class {
    pub(super) class: Py<PyType>,
    pub(super) kind: Kind,
    /// Attributes in the dict of an instance, or fields of a NamedTuple; interned.
    pub(super) in_dict: Vec<Py<PyString>>,
    /// Attributes in slots.
    pub(super) in_slots: Vec<Py<PyString>>,
    pub(super) has_dict: bool,
    /// Module and qualified name, the same in every process and run.
    pub(super) identity: String,
    /// Name of the class in keys.
    pub(super) name: String,
    pub(super) key: KeyRule,
    /// Its definition for readers, made before it is first sent.
    definition: OnceLock<Definition>,
}

/// How instances are encoded.
#[derive(Debug)]
pub(super) enum Kind {
    /// By their items.
    Tuple,
    /// By their place among the members.
    Enum { members: Vec<Py<PyAny>>, places: HashMap<usize, u32> },
    /// By their value.
    Flag,
    /// By their attributes.
    Attributes,
    /// By their attributes. The first slot is the set of fields that were given.
    Model,
    /// By pickle alone.
    Opaque { refusal: String },
}

/// Form of instances as keys.
#[derive(Debug)]
pub(super) enum KeyRule {
    /// They cannot be keys, for this reason.
    Refused(String),
    /// The tuple of their items.
    Items,
    /// The value that each member of an Enum equals. `None`: it equals only itself.
    Members(Vec<Option<Py<PyAny>>>),
    /// The value of a Flag, which is an int.
    Value,
    /// The class and the value.
    NamedValue,
    /// The class and these attributes.
    Attributes(Vec<Py<PyString>>),
}

#[derive(Debug)]
struct Definition {
    number: u64,
    bytes: Vec<u8>,
}

/// A decoded definition: the format of instances, and the class as cloudpickle wrote it.
#[derive(Debug)]
pub(crate) struct Layout<'a> {
    pub(crate) identity: &'a str,
    /// See [`Kind::code`].
    kind: u8,
    /// Fields of a NamedTuple, attributes in the dict, or members of an Enum.
    pub(crate) in_dict: Vec<&'a str>,
    pub(crate) in_slots: Vec<&'a str>,
    /// Empty if the class is found by its name alone.
    pub(crate) pickled: &'a [u8],
}

impl Class {
    pub(super) fn describe(class: &Bound<'_, PyType>) -> Result<Self, CodecError> {
        let py = class.py();
        let described = py.import("flownet.internal.record_classes")?.call_method1("describe", (class,))?;
        let kind: String = described.getattr("kind")?.extract()?;
        let in_dict: Vec<String> = described.getattr("in_dict")?.extract()?;
        let kind = match kind.as_str() {
            "tuple" => Kind::Tuple,
            "enum" => {
                let members: Vec<Py<PyAny>> = described.getattr("members")?.extract()?;
                let places = (0..).zip(&members).map(|(place, member)| (member.as_ptr() as usize, place)).collect();
                Kind::Enum { members, places }
            }
            "flag" => Kind::Flag,
            "attributes" => Kind::Attributes,
            "model" => Kind::Model,
            _ => Kind::Opaque { refusal: described.getattr("refusal")?.extract()? },
        };
        let key = KeyRule::read(&kind, &described.getattr("key")?)?;
        Ok(Self {
            class: class.clone().unbind(),
            kind,
            in_dict: interned(py, in_dict),
            in_slots: interned(py, described.getattr("in_slots")?.extract()?),
            has_dict: described.getattr("has_dict")?.is_truthy()?,
            identity: described.getattr("identity")?.extract()?,
            name: described.getattr("name")?.extract()?,
            key,
            definition: OnceLock::new(),
        })
    }

    /// The number by which encoded instances name the class. It is the hash of the definition, so all
    /// processes agree on it.
    pub(super) fn number(&self, py: Python<'_>) -> Result<u64, CodecError> {
        self.definition(py).map(|definition| definition.number)
    }

    /// The definition, which a reader needs before the first instance.
    pub fn definition_bytes(&self, py: Python<'_>) -> Result<(u64, &[u8]), CodecError> {
        self.definition(py).map(|definition| (definition.number, &*definition.bytes))
    }

    fn definition(&self, py: Python<'_>) -> Result<&Definition, CodecError> {
        if let Some(definition) = self.definition.get() {
            return Ok(definition);
        }
        let mut bytes = self.outline(py)?;
        put_name(&mut bytes, &self.identity);
        let pickled = py.import("flownet.internal.record_classes")?.call_method1("dump_class", (&self.class,));
        let pickled = pickled.map_err(|error| CodecError::ClassNotSent { type_name: self.type_name(py), error })?;
        bytes.extend_from_slice(pickled.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes());
        if bytes.len() > MAX_DEFINITION_BYTES {
            return Err(CodecError::ClassTooLarge { type_name: self.type_name(py), bytes: bytes.len() });
        }
        // Two threads may get here. One of the two definitions is stored.
        Ok(self.definition.get_or_init(|| Definition { number: definition_number(&bytes), bytes }))
    }

    /// The outline that both ends must agree on: format and kind, then a count and names in the dict, and the
    /// same for slots.
    fn outline(&self, py: Python<'_>) -> Result<Vec<u8>, CodecError> {
        let members;
        let names = match &self.kind {
            Kind::Enum { members: all, .. } => {
                let name = |member: &Py<PyAny>| member.bind(py).getattr("_name_").and_then(|name| name.extract());
                members = all.iter().map(name).collect::<PyResult<Vec<String>>>()?;
                members
            }
            _ => texts(py, &self.in_dict)?,
        };
        let mut bytes = vec![DEFINITION_FORMAT, self.kind.code()];
        for names in [names, texts(py, &self.in_slots)?] {
            put_varint(&mut bytes, names.len() as u64);
            names.iter().for_each(|name| put_name(&mut bytes, name));
        }
        Ok(bytes)
    }

    /// Returns true if this class matches the outline of a definition.
    pub(super) fn agrees_with(&self, py: Python<'_>, definition: &[u8]) -> Result<bool, CodecError> {
        Ok(definition.starts_with(&self.outline(py)?))
    }

    pub(super) fn type_name(&self, py: Python<'_>) -> String {
        let name = self.class.bind(py).fully_qualified_name();
        name.map_or_else(|_| "an unnamed type".to_owned(), |name| name.to_string())
    }
}

impl Kind {
    fn code(&self) -> u8 {
        match self {
            Self::Tuple => 1,
            Self::Enum { .. } => 2,
            Self::Flag => 3,
            Self::Attributes => 4,
            Self::Model => 5,
            Self::Opaque { .. } => 6,
        }
    }
}

impl KeyRule {
    fn read(kind: &Kind, key: &Bound<'_, PyAny>) -> Result<Self, CodecError> {
        if let Ok(refusal) = key.extract::<String>() {
            return Ok(Self::Refused(refusal));
        }
        Ok(match kind {
            Kind::Opaque { .. } => Self::Refused(String::new()),
            Kind::Tuple => Self::Items,
            Kind::Flag if key.is_none() => Self::NamedValue,
            Kind::Flag => Self::Value,
            Kind::Enum { members, .. } => {
                let plain = key.cast::<PyTuple>().map_err(PyErr::from)?;
                let plain =
                    plain.iter().zip(members).map(|(plain, member)| (!plain.is(member)).then(|| plain.unbind()));
                Self::Members(plain.collect())
            }
            Kind::Attributes | Kind::Model => Self::Attributes(interned(key.py(), key.extract()?)),
        })
    }
}

/// The number of a class with this definition.
pub(super) fn definition_number(definition: &[u8]) -> u64 {
    xxh3_64(definition)
}

impl<'a> Layout<'a> {
    pub(crate) fn read(definition: &'a [u8]) -> Result<Self, CodecError> {
        let [DEFINITION_FORMAT, kind, rest @ ..] = definition else {
            return Err(CodecError::Malformed("the definition of a class, which no flownet of this version wrote"));
        };
        let mut rest = rest;
        let mut lists = [Vec::new(), Vec::new()];
        for list in &mut lists {
            let (count, after) = take_varint(rest)?;
            rest = after;
            for _ in 0..count {
                let (name, after) = take_name(rest)?;
                rest = after;
                list.push(name);
            }
        }
        let [in_dict, in_slots] = lists;
        let (identity, pickled) = take_name(rest)?;
        Ok(Self { identity, kind: *kind, in_dict, in_slots, pickled })
    }

    /// The kind, in Python's terms.
    pub(crate) fn kind(&self) -> Result<&'static str, CodecError> {
        let kinds = ["tuple", "enum", "flag", "attributes", "model", "opaque"];
        let kind = usize::from(self.kind).checked_sub(1).and_then(|place| kinds.get(place));
        kind.copied().ok_or(CodecError::Malformed("a class of an unknown kind"))
    }
}

fn put_name(bytes: &mut Vec<u8>, name: &str) {
    put_varint(bytes, name.len() as u64);
    bytes.extend_from_slice(name.as_bytes());
}

fn take_name(bytes: &[u8]) -> Result<(&str, &[u8]), CodecError> {
    let (len, rest) = take_varint(bytes)?;
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let cut_short = CodecError::Truncated { needed: len, left: rest.len() };
    let (name, rest) = rest.split_at_checked(len).ok_or(cut_short)?;
    let name = str::from_utf8(name).map_err(|_| CodecError::Malformed("the name of a class or field is no UTF-8"))?;
    Ok((name, rest))
}

fn interned(py: Python<'_>, names: Vec<String>) -> Vec<Py<PyString>> {
    names.iter().map(|name| PyString::intern(py, name).unbind()).collect()
}

fn texts(py: Python<'_>, names: &[Py<PyString>]) -> PyResult<Vec<String>> {
    names.iter().map(|name| name.extract(py)).collect()
}

/// First byte of a definition.
const DEFINITION_FORMAT: u8 = 0x81;
