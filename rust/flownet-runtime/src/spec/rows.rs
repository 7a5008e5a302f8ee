//! What operators do with rows, as far as a plan has to know; schemas, expressions and aggregates are flownet-rows' to read.

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::operator::{FilePath, LineFormat};
use super::window::WindowSpec;
use crate::time::Clock;
use crate::watermark::Watermarks;

/// What an operator does with rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RowsKind {
    /// Source: the batches of Arrow streams, which is the payload.
    FromArrow {
        /// Of the batches.
        schema: Value,
        /// The payload is a function that makes the stream of each subtask. Default: false.
        #[serde(default)]
        makes_its_own: bool,
        /// The same batches come again when it is read again. Default: false.
        #[serde(default)]
        repeatable: bool,
        /// A column of event times, of a table that is in memory as a whole: its times ahead bound event time. Default: none.
        #[serde(default)]
        time_column: Option<String>,
    },
    /// Source: the rows of files, in splits that subtasks share; the payload says which, and reads them.
    ReadFiles {
        /// Of what they hold.
        schema: Value,
        /// What they are files of.
        format: RowFormat,
    },
    /// Columns from columns, and which rows stay.
    Project {
        /// Of what comes.
        input: Value,
        /// One after the other.
        steps: Value,
    },
    /// A function of the user from batch to batch, which is the payload.
    MapBatches {
        /// Of what comes.
        input: Value,
        /// Of what it returns.
        output: Value,
    },
    /// Gives rows their times, and makes watermarks.
    AssignTimestamps {
        /// Of what comes.
        input: Value,
        /// Where times are.
        column: String,
        /// Where watermarks come from.
        watermarks: Watermarks,
        /// Without rows for so long the subtask is idle. Default: never.
        #[serde(default)]
        idle_after_ms: Option<u64>,
        /// Rows further ahead of the others of their split do not move event time. Default: all do.
        #[serde(default)]
        max_ahead_ms: Option<NonZeroU64>,
    },
    /// By key, in front of the exchange: what rows of one key, and of one piece of time, come to.
    Partial {
        /// Of what comes.
        input: Value,
        /// Columns that are the key.
        keys: Vec<String>,
        /// What becomes of the rows.
        aggregates: Value,
        /// The windows that its parts are for. Default: none.
        #[serde(default)]
        window: Option<WindowSpec>,
        /// What it keeps for each of them, as the other half does.
        #[serde(default)]
        kept: Vec<String>,
    },
    /// By key, behind it: what the parts come to, of a window or so far.
    Aggregate {
        /// Of the rows that the parts are made of.
        input: Value,
        /// Columns that are the key.
        keys: Vec<String>,
        /// What becomes of the rows.
        aggregates: Value,
        /// Which windows. Default: none, all so far.
        #[serde(default)]
        window: Option<WindowSpec>,
        /// What it keeps for each of them: who goes on with it has to keep the same.
        #[serde(default)]
        kept: Vec<String>,
    },
    /// By key, in front of the exchange: rows one by one, for who keeps them.
    KeyRows {
        /// Of what comes.
        input: Value,
        /// Columns that are the key.
        keys: Vec<String>,
        /// Columns that go.
        carried: Vec<String>,
        /// Of what goes.
        output: Value,
        /// Whether rows go whose key has a value that is missing.
        keeps_null_keys: bool,
        /// What they are ranked by. Default: nothing.
        #[serde(default)]
        rank: Option<RowsRank>,
        /// Whether who keeps them takes those of one key together. Default: one by one.
        #[serde(default)]
        bundles: bool,
    },
    /// By key, behind it: the rows of two inputs that meet, side by side.
    Join {
        /// Of what comes from the first input.
        left: Value,
        /// Of what comes from the second.
        right: Value,
        /// Columns of the second that pairs have; others come for late rows alone.
        shown: Vec<String>,
        /// Of the pairs.
        output: Value,
        /// Which rows meet.
        by: RowsJoin,
        /// Where late rows of each input go. Default: nowhere, they are dropped and counted.
        #[serde(default)]
        late: Box<[Option<RowsLate>; 2]>,
        /// What it keeps of each of them: who goes on with it has to keep the same.
        kept: Vec<String>,
    },
    /// By key, behind it: the first row of each.
    Deduplicate {
        /// Of what comes.
        input: Value,
        /// For how long a key is known after its first row. Default: for ever.
        #[serde(default)]
        ttl_ms: Option<u64>,
        /// By which clock that is. Default: the wall's.
        #[serde(default)]
        clock: Clock,
        /// What it keeps: who goes on with it has to keep the same.
        kept: Vec<String>,
    },
    /// By key, behind it: the best rows of a window.
    TopN {
        /// Of what comes.
        input: Value,
        /// Which are the best.
        rank: RowsRank,
        /// What it keeps of each of them: who goes on with it has to keep the same.
        kept: Vec<String>,
    },
    /// Rows become records that are objects.
    ToObjects {
        /// Of what comes.
        input: Value,
        /// Whether they are dicts; else tuples. Default: true.
        #[serde(default = "yes")]
        as_dicts: bool,
    },
    /// Records that are objects become rows.
    ToRows {
        /// Of what they become.
        output: Value,
    },
    /// Sink: to the process of the caller.
    Collect {
        /// Of what comes.
        input: Value,
    },
    /// Sink: into files of a folder, which get their names when they are complete. What writes Parquet is the payload.
    WriteFiles {
        /// Of what comes.
        input: Value,
        /// The folder.
        path: FilePath,
        /// What they are.
        format: RowFormat,
        /// Of CSV: what is between two values.
        #[serde(default)]
        delimiter: Option<char>,
        /// Of CSV: what each file begins with.
        #[serde(default)]
        header: Option<String>,
        /// Columns whose values name folders below that one, outermost first.
        #[serde(default)]
        partition_by: Vec<String>,
    },
    /// Sink: to an object of the user, which is the payload.
    Sink {
        /// Of what comes.
        input: Value,
        /// As what it takes batches: a name that flownet's Python knows.
        format: String,
    },
}

/// What makes a row better than another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowsRank {
    /// The column.
    pub by: String,
    /// Whether the greatest is the best.
    pub descending: bool,
    /// How many are wanted of each key and window: of a batch no more go, and of a window no more come.
    pub count: NonZeroU64,
    /// Whether those that are equal to the last one are wanted, too.
    pub ties: bool,
    /// Which windows.
    pub window: WindowSpec,
}

/// A side output for rows that come late.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowsLate {
    /// Its tag.
    pub tag: String,
    /// Of the rows, as they were before they went by key.
    pub schema: Value,
}

/// Which rows of one key meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RowsJoin {
    /// All.
    Regular {},
    /// Those that are near in event time.
    Interval {
        /// How much later the second one is, at the least; earlier below 0.
        lower_ms: i64,
        /// And at the most; both ends are included.
        upper_ms: i64,
    },
    /// Each of the first input and the newest version of the second at its time.
    AsOf {
        /// Whether those for which there is none are emitted, too.
        keeps_unmatched: bool,
    },
    /// Those in one window.
    Window {
        /// Which windows.
        window: WindowSpec,
    },
}

/// What files of rows are.
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
    /// How names of files end.
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
    /// Whether it is at home among operators on objects, though rows come to it, or leave.
    pub(super) fn takes_objects(&self) -> bool {
        matches!(self, Self::ToObjects { .. } | Self::ToRows { .. })
    }

    pub(super) fn gives_objects(&self) -> bool {
        matches!(self, Self::ToObjects { .. })
    }

    /// What users call it.
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

    /// What it does, as far as its state depends on it.
    pub fn of_state(&self) -> String {
        match self {
            // That of a window keeps something else.
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
            // `first`, `last`, `collect` and ties go by the times of rows, in any window and without one.
            Self::Partial { .. } => true,
            Self::KeyRows { rank, .. } => rank.is_some(),
            Self::Deduplicate { clock, .. } => *clock == Clock::Event,
            _ => self.event_window(),
        }
    }

    /// The parts of a window leave with times in it; results have times of their own.
    pub(super) fn keeps_timestamps(&self) -> bool {
        match self {
            Self::AssignTimestamps { .. } => false,
            Self::Aggregate { window, .. } => window.is_none(),
            Self::Join { by: RowsJoin::Window { .. }, .. } | Self::TopN { .. } => false,
            _ => true,
        }
    }

    /// Whether what it keeps by key may lie on disk where the job says so.
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
