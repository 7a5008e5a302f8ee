//! What operators do: the one list of kinds, each with its settings and their defaults.
//!
//! A kind says nothing of who runs it: those that take a function of the user find it in the operator's payload.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::num::{NonZeroU16, NonZeroU64};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::source::TextSplit;

/// What one operator does.
///
/// It serialises as its name, or as a map from its name to its settings: `map`, `{"socket_text": {"host": "h", "port": 1}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum OperatorKind {
    /// Source: the values of an encoded list, which is the payload.
    FromCollection,
    /// Source: what an iterator yields, which is the payload.
    FromIterable {
        /// The payload is a function that makes what each subtask iterates over. Default: false.
        #[serde(default)]
        makes_its_own: bool,
    },
    /// Source: the lines of files, dealt out to the subtasks.
    ReadText {
        /// Files and folders.
        paths: Vec<FilePath>,
        /// What becomes of bytes that are not UTF-8. Default: strict.
        #[serde(default)]
        errors: Undecodable,
        /// What of the files one subtask reads: dealt out when the job is submitted, so that all go by one listing.
        #[serde(default)]
        splits: Vec<TextSplit>,
    },
    /// Source: the lines that a server sends.
    SocketText {
        /// Its name or address.
        host: String,
        /// Its port.
        port: NonZeroU16,
        /// What becomes of bytes that are not UTF-8. Default: strict.
        #[serde(default)]
        errors: Undecodable,
    },
    /// One record for each.
    Map,
    /// Any number of records for each.
    FlatMap,
    /// The records that a predicate holds for.
    Filter,
    /// By key: one value from many records.
    Fold {
        /// How records become that value.
        fold: Fold,
        /// None: the value so far, for each record. Else once for each window. Default: none.
        #[serde(default)]
        window: Option<WindowSpec>,
    },
    /// By key: a function with state and timers.
    Process,
    /// By key: a function over all records of a window.
    WindowProcess {
        /// How time is cut.
        window: WindowSpec,
    },
    /// Sink: to standard output.
    Print {
        /// Written in front of each line. Default: nothing.
        #[serde(default)]
        prefix: Option<String>,
    },
    /// Sink: to the process of the caller.
    Collect,
    /// Sink: lines to files in a folder.
    WriteText {
        /// The folder.
        path: FilePath,
    },
    /// Sink: to an object of the user.
    Sink,
    /// What only the chain factory of an embedding engine knows.
    Custom {
        /// What it is called there.
        name: String,
        /// Its settings.
        settings: BTreeMap<String, String>,
    },
}

/// How the records of a key become one value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fold {
    /// By the function in the payload, two at a time.
    Reduce,
    /// By counting them.
    Count,
    /// By adding them up.
    Sum {
        /// Of each record. Default: none, the record itself.
        field: Option<Field>,
    },
    /// The least.
    Min {
        /// Of each record. Default: none, the record itself.
        field: Option<Field>,
    },
    /// The greatest.
    Max {
        /// Of each record. Default: none, the record itself.
        field: Option<Field>,
    },
}

/// Part of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Field {
    /// An item of a sequence; those below 0 count from its end.
    Index(i64),
    /// An item of a mapping.
    Name(String),
}

/// Windows of one length, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowSpec {
    /// Their length.
    pub size_ms: NonZeroU64,
}

/// The bytes of a path, which need not be text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePath(#[serde(with = "serde_bytes")] Vec<u8>);

impl FilePath {
    /// As the system takes it.
    pub fn to_path(&self) -> PathBuf {
        OsStr::from_bytes(&self.0).into()
    }
}

/// What becomes of bytes that are not UTF-8 where text is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undecodable {
    /// The job fails, with the line.
    #[default]
    Strict,
    /// U+FFFD takes their place.
    Replace,
    /// They are left out.
    Ignore,
}

/// How objects travel between tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Codec {
    /// Values of the types that the codec knows.
    #[default]
    Typed,
    /// Anything that can be pickled.
    Pickle,
}

impl Codec {
    /// How users write them.
    pub const NAMES: [&'static str; 2] = ["typed", "pickle"];
}

impl OperatorKind {
    /// What users call it.
    pub fn name(&self) -> &str {
        match self {
            Self::FromCollection => "from_collection",
            Self::FromIterable { .. } => "from_iterable",
            Self::ReadText { .. } => "read_text",
            Self::SocketText { .. } => "socket_text",
            Self::Map => "map",
            Self::FlatMap => "flat_map",
            Self::Filter => "filter",
            Self::Fold { fold, .. } => fold.name(),
            Self::Process | Self::WindowProcess { .. } => "process",
            Self::Print { .. } => "print",
            Self::Collect => "collect",
            Self::WriteText { .. } => "write_text",
            Self::Sink => "sink_to",
            Self::Custom { name, .. } => name,
        }
    }
}

impl Fold {
    /// What users call it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Reduce => "reduce",
            Self::Count => "count",
            Self::Sum { .. } => "sum",
            Self::Min { .. } => "min",
            Self::Max { .. } => "max",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kind_is_its_name_or_its_name_with_settings_whose_defaults_may_be_left_out() {
        let read = |given| serde_json::from_value::<OperatorKind>(given).unwrap();
        assert_eq!(read(json!("flat_map")), OperatorKind::FlatMap);
        assert_eq!(read(json!({"print": {}})), OperatorKind::Print { prefix: None });
        let fold = read(json!({"fold": {"fold": {"sum": {"field": "price"}}, "window": {"size_ms": 5000}}}));
        let window = Some(WindowSpec { size_ms: NonZeroU64::new(5000).unwrap() });
        let field = Some(Field::Name("price".into()));
        assert_eq!(fold, OperatorKind::Fold { fold: Fold::Sum { field }, window });
    }

    #[test]
    fn what_no_kind_has_is_refused_by_name() {
        for (given, culprit) in [
            (json!("flat"), "flat"),
            (json!({"socket_text": {"host": "h", "port": 0}}), "nonzero"),
            (json!({"print": {"prefx": "a"}}), "prefx"),
            (json!({"fold": {"fold": "count", "window": {"size_ms": 0}}}), "nonzero"),
            (json!({"read_text": {"paths": [], "errors": "loose"}}), "loose"),
        ] {
            let error = serde_json::from_value::<OperatorKind>(given).unwrap_err().to_string();
            assert!(error.contains(culprit), "{error}");
        }
    }
}
