//! Kinds of operators: the only list of them, each with its settings and their defaults.
//!
//! A kind does not determine the code that runs it. Kinds with a user's function find it in the operator's
//! payload.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::num::{NonZeroU16, NonZeroU32, NonZeroU64};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::rows::RowsKind;
use super::window::WindowSpec;
use crate::source::TextSplit;
use crate::time::Clock;
use crate::watermark::{Alignment, Watermarks};

/// Kind of one operator.
///
/// It serialises as its name, or as a map from its name to its settings: `map`, `{"socket_text": {"host":
/// "h", "port": 1}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum OperatorKind {
    /// Source: the values of an encoded list, which is the payload.
    FromCollection,
    /// Source: the items of an iterator, which is the payload.
    FromIterable {
        /// True if the payload is a function that returns each subtask's iterable. Default: false.
        #[serde(default)]
        makes_its_own: bool,
        /// True if it yields split marks among the records, which name their splits. Default: false.
        #[serde(default)]
        tells_splits: bool,
    },
    /// Source: splits of a user's source, which is the payload. They can be read from any position.
    FromSource,
    /// Source: records and event time from a script, which is the payload.
    FromScript {
        /// True if its records have times. Default: true.
        #[serde(default = "yes")]
        timestamps: bool,
    },
    /// Source: the lines of files, which are distributed to the subtasks.
    ReadText {
        /// Files and folders.
        paths: Vec<FilePath>,
        /// Treatment of bytes that are not UTF-8. Default: strict.
        #[serde(default)]
        errors: InvalidUtf8,
        /// Splits of one subtask. They are assigned when the job is submitted, so that all subtasks use one
        /// listing.
        #[serde(default)]
        splits: Vec<TextSplit>,
    },
    /// Source: the lines that a server sends.
    SocketText {
        /// Name or address of the server.
        host: String,
        /// Port of the server.
        port: NonZeroU16,
        /// Treatment of bytes that are not UTF-8. Default: strict.
        #[serde(default)]
        errors: InvalidUtf8,
    },
    /// One record for each.
    Map,
    /// Any number of records for each.
    FlatMap,
    /// One record for each, or any number, from asynchronous calls, several of which run at a time.
    MapAsync {
        /// Most concurrent calls of each subtask.
        capacity: NonZeroU32,
        /// Timeout of a call, in milliseconds. Default: none.
        #[serde(default)]
        timeout_ms: Option<u64>,
        /// True if records leave in the order in which they came. Default: true.
        #[serde(default = "yes")]
        ordered: bool,
        /// True if a call returns any number of records. Default: false, one.
        #[serde(default)]
        flat: bool,
    },
    /// Records for which a predicate is true.
    Filter,
    /// Assigns times to records, and generates watermarks.
    AssignTimestamps {
        /// Kind of watermarks.
        watermarks: Watermarks,
        /// Time without records after which the subtask is idle. Default: never.
        #[serde(default)]
        idle_after_ms: Option<u64>,
        /// Alignment of its source with others. Default: none.
        #[serde(default)]
        alignment: Option<Alignment>,
        /// Records that are further ahead of the others of their split do not advance event time. Default:
        /// all do.
        #[serde(default)]
        max_ahead_ms: Option<NonZeroU64>,
    },
    /// By key: folds records into one value, and emits it for each record.
    Fold(Fold),
    /// By key: folds the records of a window into one value.
    Window {
        /// The fold.
        fold: Fold,
        /// The windows.
        window: WindowSpec,
    },
    /// By key: a function with state and timers.
    Process {
        /// Kind of inputs. Default: one input.
        #[serde(default)]
        inputs: ProcessInputs,
    },
    /// By key: joins records of two inputs that are near in event time.
    IntervalJoin {
        /// Least difference by which the second record is later; earlier if below 0.
        lower_ms: i64,
        /// Greatest difference; both bounds are inclusive.
        upper_ms: i64,
        /// The side outputs for late records of each input. Default: none, they are dropped and counted.
        #[serde(default)]
        late_tags: [Option<String>; 2],
    },
    /// By key: joins records of the first input with the newest version of the second at their time.
    AsOfJoin {
        /// True if records without a version are emitted, too. Default: false.
        #[serde(default)]
        keeps_unmatched: bool,
        /// See the interval join.
        #[serde(default)]
        late_tags: [Option<String>; 2],
    },
    /// A function with side outputs.
    ProcessAll {
        /// Kind of inputs. Default: one input.
        #[serde(default)]
        inputs: ProcessInputs,
    },
    /// Begin of an iteration: takes the records of its input, and those that its end feeds back.
    IterationHead {
        /// Number of the iteration in the dataflow.
        iteration: u32,
    },
    /// End of an iteration. Records for which the function is true leave, and others go round again. Without
    /// a function, all go round again.
    IterationTail {
        /// Number of the iteration in the dataflow.
        iteration: u32,
        /// Memory that a subtask may use for records that wait for another round.
        memory_bytes: u64,
        /// Disk space for further ones.
        disk_bytes: u64,
    },
    /// Sink: to standard output.
    Print {
        /// Prefix of each line. Default: none.
        #[serde(default)]
        prefix: Option<String>,
    },
    /// Sink: to the process of the caller.
    Collect,
    /// Sink: lines to files in a folder.
    WriteFiles {
        /// The folder.
        path: FilePath,
        /// Format of a line. Default: text.
        #[serde(default)]
        format: LineFormat,
        /// First line of each file. Default: none.
        #[serde(default)]
        header: Option<String>,
    },
    /// Sink: to a user's object.
    Sink,
    /// An operator on rows with a schema.
    Rows(RowsKind),
    /// A kind that only the chain factory of an embedding engine knows.
    Custom {
        /// Its name there.
        name: String,
        /// Its settings.
        settings: BTreeMap<String, String>,
    },
}

/// Format of the lines of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineFormat {
    /// The text of the record.
    #[default]
    Text,
    /// JSON, by the function that the payload returns.
    Json,
    /// Comma-separated values, by the function that the payload returns.
    Csv,
}

impl LineFormat {
    /// Suffix of file names.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Text => "txt",
            Self::Json => "jsonl",
            Self::Csv => "csv",
        }
    }
}

fn yes() -> bool {
    true
}

/// Inputs of a process function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessInputs {
    /// Records of one input.
    #[default]
    One,
    /// Records of two inputs.
    Two,
    /// Records of one input by key, and of another that is broadcast to all subtasks.
    Broadcast,
}

/// Folds the records of a key into one value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fold {
    /// With a function of two values.
    Reduce,
    /// With an accumulator of the user.
    Aggregate,
    /// Collects all records, for a function over a window.
    Collect,
    /// With a function of each pair of records of two inputs.
    Pairs,
    /// Counts records.
    Count,
    /// Adds values.
    Sum {
        /// The field of each record. Default: none, the record itself.
        field: Option<Field>,
    },
    /// The least value.
    Min {
        /// The field of each record. Default: none, the record itself.
        field: Option<Field>,
    },
    /// The greatest value.
    Max {
        /// The field of each record. Default: none, the record itself.
        field: Option<Field>,
    },
    /// The sum divided by the number of values.
    Mean {
        /// The field of each record. Default: none, the record itself.
        field: Option<Field>,
    },
    /// The record with the least value.
    MinBy {
        /// The field of each record. Default: none, the record itself.
        field: Option<Field>,
    },
    /// The record with the greatest value.
    MaxBy {
        /// The field of each record. Default: none, the record itself.
        field: Option<Field>,
    },
}

/// Part of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Field {
    /// An item of a sequence; an index below 0 counts from its end.
    Index(i64),
    /// An item of a mapping.
    Name(String),
}

/// The bytes of a path, which need not be text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePath(#[serde(with = "serde_bytes")] Vec<u8>);

impl FilePath {
    /// The path in the system's form.
    pub fn to_path(&self) -> PathBuf {
        OsStr::from_bytes(&self.0).into()
    }
}

/// Treatment of bytes that are not UTF-8 in text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InvalidUtf8 {
    /// The job fails, with the line in the error.
    #[default]
    Strict,
    /// U+FFFD replaces them.
    Replace,
    /// They are omitted.
    Ignore,
}

/// Encoding of objects between tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Codec {
    /// Values of the types that the codec knows.
    #[default]
    Typed,
    /// All values that can be pickled.
    Pickle,
}

impl Codec {
    /// Users' names of the codecs.
    pub const NAMES: [&'static str; 2] = ["typed", "pickle"];
}

impl OperatorKind {
    /// Returns true if it creates the times of the records that it emits.
    pub fn makes_timestamps(&self) -> bool {
        match self {
            Self::AssignTimestamps { .. } => true,
            Self::FromScript { timestamps } => *timestamps,
            Self::Window { window, .. } => window.clock == Clock::Event,
            Self::Rows(kind) => kind.makes_timestamps(),
            _ => false,
        }
    }

    /// Returns true if it assigns times to records and generates watermarks.
    pub fn assigns_timestamps(&self) -> bool {
        matches!(self, Self::AssignTimestamps { .. } | Self::Rows(RowsKind::AssignTimestamps { .. }))
    }

    /// Returns true if it is a source that distinguishes the splits of its input.
    pub fn tells_splits(&self) -> bool {
        let is_told = matches!(self, Self::FromIterable { tells_splits: true, .. });
        is_told || matches!(self, Self::FromSource | Self::ReadText { .. } | Self::Rows(RowsKind::ReadFiles { .. }))
    }

    /// Returns true if records leave it in their order, in the subtask that received them. So records of one
    /// split stay together, and split signals of the source may pass.
    pub fn keeps_splits_apart(&self) -> bool {
        match self {
            Self::Map | Self::FlatMap | Self::Filter | Self::MapAsync { .. } | Self::ProcessAll { .. } => true,
            Self::Rows(RowsKind::Project { .. } | RowsKind::MapBatches { .. }) => true,
            Self::Rows(RowsKind::ToRows { .. } | RowsKind::ToObjects { .. }) => true,
            kind => kind.assigns_timestamps(),
        }
    }

    /// Returns true if its input is objects. Operators on rows receive other bytes, and share no task with
    /// these.
    pub fn takes_objects(&self) -> bool {
        if let Self::Rows(kind) = self { kind.takes_objects() } else { true }
    }

    /// Returns true if it emits objects.
    pub fn gives_objects(&self) -> bool {
        if let Self::Rows(kind) = self { kind.gives_objects() } else { true }
    }

    /// Returns true if its state by key may be on disk, if the job enables that.
    pub fn can_keep_on_disk(&self) -> bool {
        match self {
            Self::Fold(_) | Self::Process { .. } | Self::Window { .. } => true,
            Self::IntervalJoin { .. } | Self::AsOfJoin { .. } => true,
            Self::Rows(kind) => kind.can_keep_on_disk(),
            _ => false,
        }
    }

    /// Alignment of the source of its task.
    pub fn alignment(&self) -> Option<&Alignment> {
        match self {
            Self::AssignTimestamps { alignment, .. } => alignment.as_ref(),
            _ => None,
        }
    }

    /// Returns true if it reads the times of records.
    pub fn uses_timestamps(&self) -> bool {
        match self {
            Self::Window { window, .. } => window.uses_timestamps(),
            Self::Process { .. } | Self::ProcessAll { .. } | Self::AssignTimestamps { .. } => true,
            Self::IntervalJoin { .. } | Self::AsOfJoin { .. } => true,
            Self::Rows(kind) => kind.uses_timestamps(),
            _ => false,
        }
    }

    /// Returns true if a source is replayable, that is if it emits the same records again from a position.
    /// Operators that are not sources count as replayable.
    pub fn can_be_repeated(&self) -> bool {
        match self {
            Self::FromIterable { .. } | Self::FromScript { .. } | Self::SocketText { .. } => false,
            Self::Rows(kind) => kind.can_be_repeated(),
            _ => true,
        }
    }

    /// Returns true if it has state that a resumed job needs, for any user function. For a `process` without
    /// keys and for a user's sink, only their stored state tells.
    pub fn keeps_state(&self) -> bool {
        match self {
            Self::FromCollection
            | Self::FromSource
            | Self::ReadText { .. }
            | Self::MapAsync { .. }
            | Self::WriteFiles { .. } => true,
            Self::Fold(_) | Self::Window { .. } | Self::Process { .. } => true,
            Self::IntervalJoin { .. } | Self::AsOfJoin { .. } => true,
            Self::FromIterable { .. } | Self::FromScript { .. } | Self::SocketText { .. } => false,
            Self::Map | Self::FlatMap | Self::Filter | Self::AssignTimestamps { .. } | Self::ProcessAll { .. } => false,
            Self::IterationTail { .. } => true,
            // The tail stores circulating records.
            Self::IterationHead { .. } => false,
            Self::Rows(kind) => kind.keeps_state(),
            Self::Print { .. } | Self::Collect | Self::Sink | Self::Custom { .. } => false,
        }
    }

    /// Returns true if the records that it emits have the times of its input.
    pub fn keeps_timestamps(&self) -> bool {
        match self {
            Self::Window { .. } | Self::AssignTimestamps { .. } => false,
            Self::Rows(kind) => kind.keeps_timestamps(),
            _ => true,
        }
    }

    /// The user's name of it.
    pub fn name(&self) -> &str {
        match self {
            Self::FromCollection => "from_collection",
            Self::FromIterable { .. } => "from_iterable",
            Self::FromSource => "from_source",
            Self::FromScript { .. } => "from_script",
            Self::ReadText { .. } => "read_text",
            Self::SocketText { .. } => "socket_text",
            Self::Map => "map",
            Self::FlatMap => "flat_map",
            Self::MapAsync { flat: false, .. } => "map_async",
            Self::MapAsync { flat: true, .. } => "flat_map_async",
            Self::Filter => "filter",
            Self::AssignTimestamps { .. } => "assign_timestamps_and_watermarks",
            Self::Fold(fold) | Self::Window { fold, .. } => fold.name(),
            Self::Process { .. } | Self::ProcessAll { .. } => "process",
            Self::IntervalJoin { .. } => "interval_join",
            Self::AsOfJoin { .. } => "as_of_join",
            Self::IterationHead { .. } | Self::IterationTail { .. } => "iterate",
            Self::Print { .. } => "print",
            Self::Collect => "collect",
            Self::WriteFiles { format: LineFormat::Text, .. } => "write_text",
            Self::WriteFiles { format: LineFormat::Json, .. } => "write_json",
            Self::WriteFiles { format: LineFormat::Csv, .. } => "write_csv",
            Self::Sink => "sink_to",
            Self::Rows(kind) => kind.name(),
            Self::Custom { name, .. } => name,
        }
    }
}

impl Fold {
    /// The user's name of it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Reduce => "reduce",
            Self::Aggregate => "aggregate",
            Self::Collect => "process",
            Self::Pairs => "join",
            Self::Mean { .. } => "mean",
            Self::MinBy { .. } => "min_by",
            Self::MaxBy { .. } => "max_by",
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
        let fold = read(json!({"window": {"fold": {"sum": {"field": "price"}}, "window": {"assign": "global"}}}));
        let field = Some(Field::Name("price".into()));
        let OperatorKind::Window { fold, window } = fold else { panic!("{fold:?}") };
        assert_eq!((fold, window.clock, window.trigger), (Fold::Sum { field }, Clock::Processing, None));
    }

    #[test]
    fn what_no_kind_has_is_refused_by_name() {
        for (given, culprit) in [
            (json!("flat"), "flat"),
            (json!({"socket_text": {"host": "h", "port": 0}}), "nonzero"),
            (json!({"print": {"prefx": "a"}}), "prefx"),
            (json!({"window": {"fold": "count", "window": {"assign": {"grid": {"size": 1}}}}}), "size"),
            (json!({"read_text": {"paths": [], "errors": "loose"}}), "loose"),
        ] {
            let error = serde_json::from_value::<OperatorKind>(given).unwrap_err().to_string();
            assert!(error.contains(culprit), "{error}");
        }
    }
}
