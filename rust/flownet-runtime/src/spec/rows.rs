//! Kinds of operators on rows, as far as a plan needs them. flownet-rows interprets schemas, expressions and
//! aggregates.

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::operator::{FilePath, LineFormat};
use super::window::WindowSpec;
use crate::time::Clock;
use crate::watermark::Watermarks;

/// Kind of an operator on rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RowsKind {
    /// Source: the batches of Arrow streams, which is the payload.
    FromArrow {
        /// Schema of the batches.
        schema: Value,
        /// True if the payload is a function that returns the stream of each subtask. Default: false.
        #[serde(default)]
        makes_its_own: bool,
        /// True if another reading returns the same batches. Default: false.
        #[serde(default)]
        repeatable: bool,
        /// A column of event times, for a table that is entirely in memory: its later times bound event time.
        /// Default: none.
        #[serde(default)]
        time_column: Option<String>,
    },
    /// Source: the rows of files, in splits that subtasks share. The payload names the files and reads them.
    ReadFiles {
        /// Schema of the files.
        schema: Value,
        /// Format of the files.
        format: RowFormat,
    },
    /// Projections and filters.
    Project {
        /// Schema of the input.
        input: Value,
        /// Steps that run one after the other.
        steps: Value,
    },
    /// A user's function of batches, which is the payload.
    MapBatches {
        /// Schema of the input.
        input: Value,
        /// Schema of the function's results.
        output: Value,
    },
    /// Assigns times to rows, and generates watermarks.
    AssignTimestamps {
        /// Schema of the input.
        input: Value,
        /// Column of the times.
        column: String,
        /// Kind of watermarks.
        watermarks: Watermarks,
        /// Time without rows after which the subtask is idle. Default: never.
        #[serde(default)]
        idle_after_ms: Option<u64>,
        /// Rows that are further ahead of the others of their split do not advance event time. Default: all
        /// do.
        #[serde(default)]
        max_ahead_ms: Option<NonZeroU64>,
    },
    /// By key, upstream of the exchange: partial aggregates of the rows of each key and slice.
    Partial {
        /// Schema of the input.
        input: Value,
        /// Columns of the key.
        keys: Vec<String>,
        /// The aggregates.
        aggregates: Value,
        /// The windows of its partial aggregates. Default: none.
        #[serde(default)]
        window: Option<WindowSpec>,
        /// State of each aggregate, the same as downstream of the exchange.
        #[serde(default)]
        kept: Vec<String>,
    },
    /// By key, downstream of the exchange: merges partial aggregates, for each window or so far.
    Aggregate {
        /// Schema of the rows that were aggregated.
        input: Value,
        /// Columns of the key.
        keys: Vec<String>,
        /// The aggregates.
        aggregates: Value,
        /// The windows. Default: none, all rows so far.
        #[serde(default)]
        window: Option<WindowSpec>,
        /// State of each aggregate: a job can resume only with the same state.
        #[serde(default)]
        kept: Vec<String>,
    },
    /// By key, upstream of the exchange: single rows, for a downstream operator that stores them.
    KeyRows {
        /// Schema of the input.
        input: Value,
        /// Columns of the key.
        keys: Vec<String>,
        /// Columns that are sent.
        carried: Vec<String>,
        /// Schema of the output.
        output: Value,
        /// True if rows whose key has a null value are sent.
        keeps_null_keys: bool,
        /// The ranking of rows. Default: none.
        #[serde(default)]
        rank: Option<RowsRank>,
        /// True if the downstream operator takes mini-batches of rows of one key. Default: one by one.
        #[serde(default)]
        bundles: bool,
    },
    /// By key, downstream of the exchange: pairs of matching rows of two inputs, side by side.
    Join {
        /// Schema of the first input.
        left: Value,
        /// Schema of the second input.
        right: Value,
        /// Columns of the second input in pairs. Others are sent for late rows only.
        shown: Vec<String>,
        /// Schema of the pairs.
        output: Value,
        /// The rule by which rows match.
        by: RowsJoin,
        /// Side output for late rows of each input. Default: none, they are dropped and counted.
        #[serde(default)]
        late: Box<[Option<RowsLate>; 2]>,
        /// State of each input: a job can resume only with the same state.
        kept: Vec<String>,
    },
    /// By key, downstream of the exchange: the first row of each key.
    Deduplicate {
        /// Schema of the input.
        input: Value,
        /// Time for which a key is remembered after its first row. Default: for ever.
        #[serde(default)]
        ttl_ms: Option<u64>,
        /// The clock of that time. Default: the wall clock.
        #[serde(default)]
        clock: Clock,
        /// Its state: a job can resume only with the same state.
        kept: Vec<String>,
    },
    /// By key, downstream of the exchange: the best rows of a window.
    TopN {
        /// Schema of the input.
        input: Value,
        /// The ranking.
        rank: RowsRank,
        /// State of each row: a job can resume only with the same state.
        kept: Vec<String>,
    },
    /// Converts rows to records that are objects.
    ToObjects {
        /// Schema of the input.
        input: Value,
        /// True if the objects are dicts, false if they are tuples. Default: true.
        #[serde(default = "yes")]
        as_dicts: bool,
    },
    /// Converts records that are objects to rows.
    ToRows {
        /// Schema of the rows.
        output: Value,
    },
    /// Sink: to the process of the caller.
    Collect {
        /// Schema of the input.
        input: Value,
    },
    /// Sink: into files of a folder, which get their final names when they are complete. The payload writes
    /// Parquet.
    WriteFiles {
        /// Schema of the input.
        input: Value,
        /// The folder.
        path: FilePath,
        /// Format of the files.
        format: RowFormat,
        /// For CSV: the delimiter of values.
        #[serde(default)]
        delimiter: Option<char>,
        /// For CSV: the first line of each file.
        #[serde(default)]
        header: Option<String>,
        /// Columns whose values name folders below that one, outermost first.
        #[serde(default)]
        partition_by: Vec<String>,
    },
    /// Sink: to a user's object, which is the payload.
    Sink {
        /// Schema of the input.
        input: Value,
        /// Type of the batches that it receives: a name that flownet's Python knows.
        format: String,
    },
}

/// A ranking of rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowsRank {
    /// The column.
    pub by: String,
    /// True if the greatest is the best.
    pub descending: bool,
    /// Number of best rows of each key and window. Upstream sends no more of a batch, and downstream emits no
    /// more of a window.
    pub count: NonZeroU64,
    /// True if rows that are equal to the last one are included.
    pub ties: bool,
    /// The windows.
    pub window: WindowSpec,
}

/// A side output for late rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowsLate {
    /// Its tag.
    pub tag: String,
    /// Schema of the rows, as they were before the exchange by key.
    pub schema: Value,
}

/// The rule by which rows of one key match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RowsJoin {
    /// All rows match.
    Regular {},
    /// Rows that are near in event time.
    Interval {
        /// Least difference by which the second row is later; earlier if below 0.
        lower_ms: i64,
        /// Greatest difference; both bounds are inclusive.
        upper_ms: i64,
    },
    /// Each row of the first input and the newest version of the second at its time.
    AsOf {
        /// True if rows without a version are emitted, too.
        keeps_unmatched: bool,
    },
    /// Rows in one window.
    Window {
        /// The windows.
        window: WindowSpec,
    },
}

/// Format of files of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowFormat {
    /// Parquet.
    Parquet,
    /// Comma-separated values.
    Csv,
    /// A line of JSON for each row.
    Json,
}

impl RowFormat {
    /// Suffix of file names.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Csv => LineFormat::Csv.suffix(),
            Self::Json => LineFormat::Json.suffix(),
        }
    }
}

fn yes() -> bool {
    true
}

impl RowsKind {
    /// Returns true if it belongs to operators on objects, although its input or output is rows.
    pub(super) fn takes_objects(&self) -> bool {
        matches!(self, Self::ToObjects { .. } | Self::ToRows { .. })
    }

    pub(super) fn gives_objects(&self) -> bool {
        matches!(self, Self::ToObjects { .. })
    }

    /// The user's name of it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::FromArrow { .. } => "from_arrow",
            Self::ReadFiles { format: RowFormat::Parquet, .. } => "read_parquet",
            Self::ReadFiles { format: RowFormat::Csv, .. } => "read_csv",
            Self::ReadFiles { format: RowFormat::Json, .. } => "read_json",
            Self::Project { .. } => "select",
            Self::MapBatches { .. } => "map_batches",
            Self::AssignTimestamps { .. } => "assign_timestamps",
            Self::Partial { .. } => "partial agg",
            Self::Aggregate { .. } => "agg",
            Self::KeyRows { .. } => "key_by",
            Self::Join { by: RowsJoin::Regular {} | RowsJoin::Window { .. }, .. } => "join",
            Self::Join { by: RowsJoin::Interval { .. }, .. } => "interval_join",
            Self::Join { by: RowsJoin::AsOf { .. }, .. } => "as_of_join",
            Self::Deduplicate { .. } => "deduplicate",
            Self::TopN { .. } => "top_n",
            Self::ToObjects { .. } => "to_objects",
            Self::ToRows { .. } => "to_rows",
            Self::Collect { .. } => "collect",
            Self::WriteFiles { format: RowFormat::Parquet, .. } => "write_parquet",
            Self::WriteFiles { format: RowFormat::Csv, .. } => "write_csv",
            Self::WriteFiles { format: RowFormat::Json, .. } => "write_json",
            Self::Sink { .. } => "sink_to",
        }
    }

    /// Description of the operator, as far as its state depends on it.
    pub fn of_state(&self) -> String {
        match self {
            // A window join has other state.
            Self::Join { by: RowsJoin::Regular {}, kept, .. } => format!("regular join of {}", kept.join(", ")),
            Self::Partial { kept, .. }
            | Self::Aggregate { kept, .. }
            | Self::Join { kept, .. }
            | Self::Deduplicate { kept, .. }
            | Self::TopN { kept, .. } => {
                let windows = self.window().map(WindowSpec::kept_as);
                let kept: Vec<_> = kept.iter().cloned().chain(windows).collect();
                format!("{} of {}", self.name(), kept.join(", "))
            }
            _ => self.name().to_owned(),
        }
    }

    fn window(&self) -> Option<&WindowSpec> {
        match self {
            Self::Partial { window, .. } | Self::Aggregate { window, .. } => window.as_ref(),
            Self::Join { by: RowsJoin::Window { window }, .. } | Self::TopN { rank: RowsRank { window, .. }, .. } => {
                Some(window)
            }
            _ => None,
        }
    }

    fn event_window(&self) -> bool {
        self.window().is_some_and(|window| window.clock == Clock::Event)
    }

    pub(super) fn makes_timestamps(&self) -> bool {
        match self {
            Self::AssignTimestamps { .. } => true,
            Self::Aggregate { .. } | Self::Join { .. } | Self::TopN { .. } => self.event_window(),
            _ => false,
        }
    }

    pub(super) fn uses_timestamps(&self) -> bool {
        match self {
            Self::AssignTimestamps { .. } => true,
            Self::Join { by: RowsJoin::Interval { .. } | RowsJoin::AsOf { .. }, .. } => true,
            // `first`, `last`, `collect` and ties use the times of rows, in any window and without one.
            Self::Partial { .. } => true,
            Self::KeyRows { rank, .. } => rank.is_some(),
            Self::Deduplicate { clock, .. } => *clock == Clock::Event,
            _ => self.event_window(),
        }
    }

    /// Returns true if its output has the times of its input. Partial aggregates of a window contain times;
    /// results have times of their own.
    pub(super) fn keeps_timestamps(&self) -> bool {
        match self {
            Self::AssignTimestamps { .. } => false,
            Self::Aggregate { window, .. } => window.is_none(),
            Self::Join { by: RowsJoin::Window { .. }, .. } | Self::TopN { .. } => false,
            _ => true,
        }
    }

    /// Returns true if its state by key may be on disk, if the job enables that.
    pub(super) fn can_keep_on_disk(&self) -> bool {
        matches!(self, Self::Aggregate { .. } | Self::Join { .. } | Self::Deduplicate { .. } | Self::TopN { .. })
    }

    pub(super) fn keeps_state(&self) -> bool {
        matches!(
            self,
            Self::FromArrow { .. }
                | Self::ReadFiles { .. }
                | Self::Partial { .. }
                | Self::Aggregate { .. }
                | Self::Join { .. }
                | Self::Deduplicate { .. }
                | Self::TopN { .. }
                | Self::WriteFiles { .. }
        )
    }

    pub(super) fn can_be_repeated(&self) -> bool {
        !matches!(self, Self::FromArrow { repeatable: false, .. })
    }
}
