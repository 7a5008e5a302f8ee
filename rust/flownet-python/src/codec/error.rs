//! Errors of encoding and decoding.

use flownet_runtime::varint::VarintError;
use pyo3::PyErr;
use pyo3::prelude::*;

/// An error of the object codec.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The value's type is outside the codec's set.
    #[error(
        "values of type {type_name} cannot cross an exchange{reason}: use built-in types, tuples, lists, dicts, dataclasses, \
         NamedTuples, Enums, attrs and pydantic classes, datetimes or numpy values, or opt in to pickle with \
         Environment(codec=\"pickle\")"
    )]
    Unsupported {
        /// Qualified name of the type.
        type_name: String,
        /// Reason, in brackets; empty if there is no more to say.
        reason: String,
    },
    /// The class of an instance was not sent before it.
    #[error("an instance of a class that was not sent before it ({0:016x})")]
    UnknownClass(u64),
    /// A class differs from the one at the sender.
    #[error(
        "class {type_name} has other fields, members or slots here than where its instances come from: all processes must \
         run the same code"
    )]
    ClassDiffers {
        /// Qualified name of the class.
        type_name: String,
    },
    /// Values of an earlier run have a class that the program lacks, or whose fields do not fit.
    #[error("{reason}")]
    NotRestored {
        /// The class, and the mismatch.
        reason: String,
    },
    /// State has values of two classes that have the same name.
    #[error(
        "its state has instances of two classes named {type_name}: the next run could not tell them apart; give each a \
         name of its own, at the top level of a module or script"
    )]
    SameName {
        /// Qualified name of the classes.
        type_name: String,
    },
    /// More classes than a job may move.
    #[error("class {type_name} is one more than the {limit} classes a job can move: is it made anew for each record?")]
    TooManyClasses {
        /// Qualified name of the class.
        type_name: String,
        /// Highest number of classes.
        limit: usize,
    },
    /// A class of the script, with all that it refers to, cannot be pickled.
    #[error(
        "class {type_name} cannot be sent to other processes by value: {error}; put it into a module that they can import"
    )]
    ClassNotSent {
        /// Qualified name of the class.
        type_name: String,
        /// Cause of the failure.
        error: PyErr,
    },
    /// A class of the script, with all that it refers to, is too large.
    #[error(
        "class {type_name} of the script takes {bytes} bytes to send, with all that it refers to, and may take {}: put it \
         into a module",
        super::class::MAX_DEFINITION_BYTES
    )]
    ClassTooLarge {
        /// Qualified name of the class.
        type_name: String,
        /// Bytes of its definition.
        bytes: usize,
    },
    /// The value cannot be a key.
    #[error("{type_name} cannot be a key: {reason}")]
    UnsupportedKey {
        /// Qualified name of the type.
        type_name: String,
        /// Requirement for keys.
        reason: String,
    },
    /// The value nests deeper than [`super::MAX_DEPTH`], or contains itself.
    #[error(
        "the value nests more than {limit} levels deep, or contains itself: flatten it, as into a list of nodes, or send it as \
         bytes or text that your functions read"
    )]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// A container changed while it was encoded, by code that a pickled value ran.
    #[error("a {0} changed its size while it was encoded")]
    Changed(&'static str),
    /// The bytes end too early.
    #[error("the bytes end too early: {needed} needed, {left} left")]
    Truncated {
        /// Bytes (at least) that the value needs from here.
        needed: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// No value begins with this byte.
    #[error("unknown tag {0:#04x}")]
    UnknownTag(u8),
    /// The body of a value breaks its own rules.
    #[error("malformed value: {0}")]
    Malformed(&'static str),
    /// Bytes follow the value.
    #[error("{0} bytes follow the value")]
    Trailing(usize),
    /// A pickled value arrived although pickle was not enabled.
    #[error("a pickled value, and pickle is not opted in (Environment(codec=\"pickle\"))")]
    PickleRefused,
    /// Python refused to build or to read a value.
    #[error("{0}")]
    Python(#[from] PyErr),
}

impl From<VarintError> for CodecError {
    fn from(error: VarintError) -> Self {
        match error {
            VarintError::Truncated => Self::Truncated { needed: 1, left: 0 },
            VarintError::TooLong => Self::Malformed("a varint of more than 64 bits"),
        }
    }
}

impl CodecError {
    /// The type that an [`Unsupported`](Self::Unsupported) error is about, read from its text: errors cross
    /// processes as text.
    pub fn type_name_in(message: &str) -> Option<&str> {
        message.split_once("values of type ")?.1.split_once(" cannot cross an exchange").map(|(name, _)| name)
    }

    pub(super) fn unsupported(value: &Bound<'_, PyAny>) -> Self {
        Self::unsupported_class(value, "")
    }

    pub(super) fn unsupported_class(value: &Bound<'_, PyAny>, reason: &str) -> Self {
        let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        Self::Unsupported { type_name: type_name(value), reason }
    }

    pub(super) fn unsupported_key(value: &Bound<'_, PyAny>, reason: impl Into<String>) -> Self {
        Self::UnsupportedKey { type_name: type_name(value), reason: reason.into() }
    }
}

/// The type's name as a user would write it: qualified, except for built-in types.
fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().fully_qualified_name().map_or_else(|_| "an unnamed type".to_owned(), |name| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_is_found_in_the_text_that_names_it() {
        let text =
            CodecError::Unsupported { type_name: "app.Point".to_owned(), reason: " (why)".to_owned() }.to_string();
        assert_eq!(CodecError::type_name_in(&text), Some("app.Point"));
        assert_eq!(CodecError::type_name_in(&CodecError::PickleRefused.to_string()), None);
    }
}
