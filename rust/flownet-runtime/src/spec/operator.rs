//! What operators do: the one list of kinds, each with its settings and their defaults.
//!
//! A kind says nothing of who runs it: those that take a function of the user find it in the operator's payload.

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
        /// It yields split marks among the records, which say of which split these are. Default: false.
        #[serde(default)]
        tells_splits: bool,
    },
    /// Source: splits that are read from any position, of an object of the user, which is the payload.
    FromSource,
    /// Source: records and event time as a script says, which is the payload.
    FromScript {
        /// Its records have times. Default: true.
        #[serde(default = "yes")]
        timestamps: bool,
    },
    /// Source: the lines of files, dealt out to the subtasks.
    ReadText {
        /// Files and folders.
        paths: Vec<FilePath>,
        /// What becomes of bytes that are not UTF-8. Default: strict.
        #[serde(default)]
        errors: InvalidUtf8,
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
        errors: InvalidUtf8,
    },
    /// One record for each.
    Map,
    /// Any number of records for each.
    FlatMap,
    /// One record for each, or any number, from calls that wait for others: several at a time.
    MapAsync {
        /// How many at a time, in each subtask.
        capacity: NonZeroU32,
        /// How long one may take, in milliseconds. Default: as long as it likes.
        #[serde(default)]
        timeout_ms: Option<u64>,
        /// Whether records leave in the order in which they came. Default: true.
        #[serde(default = "yes")]
        ordered: bool,
        /// Whether a call gives any number of records. Default: false, one.
        #[serde(default)]
        flat: bool,
    },
    /// The records that a predicate holds for.
    Filter,
    /// Gives records their times, and makes watermarks.
    AssignTimestamps {
        /// Where watermarks come from.
        watermarks: Watermarks,
        /// Without records for so long the subtask is idle. Default: never.
        #[serde(default)]
        idle_after_ms: Option<u64>,
        /// The sources that its source waits for. Default: none.
        #[serde(default)]
        alignment: Option<Alignment>,
        /// Records further ahead of the others of their split do not move event time. Default: all do.
        #[serde(default)]
        max_ahead_ms: Option<NonZeroU64>,
    },
    /// By key: one value from many records, given out for each.
    Fold(Fold),
    /// By key: one value from the records of a window.
    Window {
        /// What becomes of the records.
        fold: Fold,
        /// Which windows.
        window: WindowSpec,
    },
    /// By key: a function with state and timers.
    Process {
        /// Of what kind. Default: of one input.
        #[serde(default)]
        inputs: ProcessInputs,
    },
    /// By key: records of two inputs that are near in event time.
    IntervalJoin {
        /// How much later the second one is, at the least; earlier below 0.
        lower_ms: i64,
        /// And at the most; both ends are included.
        upper_ms: i64,
        /// The side outputs for late records of each input. Default: none, they are dropped and counted.
        #[serde(default)]
        late_tags: [Option<String>; 2],
    },
    /// By key: records of the first input with the newest version of the second at their time.
    AsOfJoin {
        /// Whether those for which there is none are emitted, too. Default: false.
        #[serde(default)]
        keeps_unmatched: bool,
        /// As of the interval join.
        #[serde(default)]
        late_tags: [Option<String>; 2],
    },
    /// A function with side outputs.
    ProcessAll {
        /// Of what kind. Default: of one input.
        #[serde(default)]
        inputs: ProcessInputs,
    },
    /// Where an iteration begins: takes what comes from before it, and what its end feeds back.
    IterationHead {
        /// Number of the iteration in the dataflow.
        iteration: u32,
    },
    /// Where it ends: records for which the function is true leave, others go round again; all do if there is no function.
    IterationTail {
        /// Number of the iteration in the dataflow.
        iteration: u32,
        /// What a subtask may take for what waits to go round, in memory.
        memory_bytes: u64,
        /// And then on disk.
        disk_bytes: u64,
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
    WriteFiles {
        /// The folder.
        path: FilePath,
        /// What a line looks like. Default: text.
        #[serde(default)]
        format: LineFormat,
        /// Line that each file begins with. Default: none.
        #[serde(default)]
        header: Option<String>,
    },
    /// Sink: to an object of the user.
    Sink,
    /// Something with rows that have a schema.
    Rows(RowsKind),
    /// What only the chain factory of an embedding engine knows.
    Custom {
        /// What it is called there.
        name: String,
        /// Its settings.
        settings: BTreeMap<String, String>,
    },
}

/// What the lines of a file are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineFormat {
    /// The text of the record.
    #[default]
    Text,
    /// JSON, by the function that the payload makes.
    Json,
    /// Comma-separated values, by the function that the payload makes.
    Csv,
}

impl LineFormat {
    /// How names of files end.
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

/// What a process function takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessInputs {
    /// Records of one input.
    #[default]
    One,
    /// Records of two.
    Two,
    /// Records of one by key, and of another that all subtasks get.
    Broadcast,
}

/// How the records of a key become one value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fold {
    /// By a function, two at a time.
    Reduce,
    /// By an accumulator of the user.
    Aggregate,
    /// By keeping all, for a function over a window.
    Collect,
    /// By a function of each pair of records of two inputs.
    Pairs,
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
    /// The sum over the number.
    Mean {
        /// Of each record. Default: none, the record itself.
        field: Option<Field>,
    },
    /// The record with the least.
    MinBy {
        /// Of each record. Default: none, the record itself.
        field: Option<Field>,
    },
    /// The record with the greatest.
    MaxBy {
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
pub enum InvalidUtf8 {
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
    /// Whether what it emits has times of its own making.
    pub fn makes_timestamps(&self) -> bool {
        match self {
            Self::AssignTimestamps { .. } => true,
            Self::FromScript { timestamps } => *timestamps,
            Self::Window { window, .. } => window.clock == Clock::Event,
            Self::Rows(kind) => kind.makes_timestamps(),
            _ => false,
        }
    }

    /// Whether it says when records are, and makes watermarks.
    pub fn assigns_timestamps(&self) -> bool {
        matches!(self, Self::AssignTimestamps { .. } | Self::Rows(RowsKind::AssignTimestamps { .. }))
    }

    /// Whether it is a source that tells the splits of its input apart.
    pub fn tells_splits(&self) -> bool {
        let is_told = matches!(self, Self::FromIterable { tells_splits: true, .. });
        is_told || matches!(self, Self::FromSource | Self::ReadText { .. } | Self::Rows(RowsKind::ReadFiles { .. }))
    }

    /// Whether records leave it in the order in which they came, in the subtask to which they came: so those of one split stay
    /// together, and what a source says of its splits may pass.
    pub fn keeps_splits_apart(&self) -> bool {
        match self {
            Self::Map | Self::FlatMap | Self::Filter | Self::MapAsync { .. } | Self::ProcessAll { .. } => true,
            Self::Rows(RowsKind::Project { .. } | RowsKind::MapBatches { .. }) => true,
            Self::Rows(RowsKind::ToRows { .. } | RowsKind::ToObjects { .. }) => true,
            kind => kind.assigns_timestamps(),
        }
    }

    /// Whether it works on objects. Those that work on rows get them in other bytes, and share no task with these.
    pub fn takes_objects(&self) -> bool {
        if let Self::Rows(kind) = self { kind.takes_objects() } else { true }
    }

    /// Whether what it emits are objects.
    pub fn gives_objects(&self) -> bool {
        if let Self::Rows(kind) = self { kind.gives_objects() } else { true }
    }

    /// Whether what it keeps by key may lie on disk where the job says so.
    pub fn can_keep_on_disk(&self) -> bool {
        match self {
            Self::Fold(_) | Self::Process { .. } | Self::Window { .. } => true,
            Self::IntervalJoin { .. } | Self::AsOfJoin { .. } => true,
            Self::Rows(kind) => kind.can_keep_on_disk(),
            _ => false,
        }
    }

    /// What it aligns the source of its task by.
    pub fn alignment(&self) -> Option<&Alignment> {
        match self {
            Self::AssignTimestamps { alignment, .. } => alignment.as_ref(),
            _ => None,
        }
    }

    /// Whether it looks at the times of records.
    pub fn uses_timestamps(&self) -> bool {
        match self {
            Self::Window { window, .. } => window.uses_timestamps(),
            Self::Process { .. } | Self::ProcessAll { .. } | Self::AssignTimestamps { .. } => true,
            Self::IntervalJoin { .. } | Self::AsOfJoin { .. } => true,
            Self::Rows(kind) => kind.uses_timestamps(),
            _ => false,
        }
    }

    /// Whether a source brings the same again when it goes on from where it was. Others are no sources, or are.
    pub fn can_be_repeated(&self) -> bool {
        match self {
            Self::FromIterable { .. } | Self::FromScript { .. } | Self::SocketText { .. } => false,
            Self::Rows(kind) => kind.can_be_repeated(),
            _ => true,
        }
    }

    /// Whether it keeps what a job that goes on would miss, whatever its function is. Of a `process` without keys and of a
    /// sink of the user only what they kept tells.
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
            // The tail keeps what goes round.
            Self::IterationHead { .. } => false,
            Self::Rows(kind) => kind.keeps_state(),
            Self::Print { .. } | Self::Collect | Self::Sink | Self::Custom { .. } => false,
        }
    }

    /// Whether what it emits has the times of what it was given.
    pub fn keeps_timestamps(&self) -> bool {
        match self {
            Self::Window { .. } | Self::AssignTimestamps { .. } => false,
            Self::Rows(kind) => kind.keeps_timestamps(),
            _ => true,
        }
    }

    /// What users call it.
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
    /// What users call it.
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
