//! Windows, as they are planned.

use serde::{Deserialize, Serialize};

use crate::time::Clock;

/// Which windows there are, and when they give out what they hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowSpec {
    /// How time is cut.
    pub assign: WindowAssign,
    /// By which clock. Default: the wall's.
    #[serde(default)]
    pub clock: Clock,
    /// When results go out. Default: none, which is once, at the end of the window.
    #[serde(default)]
    pub trigger: Option<TriggerSpec>,
    /// How long after its end a window still takes records of event time, in milliseconds. Default: 0.
    #[serde(default)]
    pub lateness_ms: u64,
    /// The side output for those that come later. Default: none, they are dropped and counted.
    #[serde(default)]
    pub late_tag: Option<String>,
    /// Whether results carry their key. Default: false.
    #[serde(default)]
    pub with_key: bool,
    /// Whether results carry their window. Default: false.
    #[serde(default)]
    pub with_window: bool,
    /// Whether values of one window cannot be put together from values of parts of it. Default: false.
    #[serde(default)]
    pub is_whole: bool,
}

impl WindowSpec {
    /// Whether what is kept lies by time, for all keys: in a grid, where windows fire once, at their end. All others lie by key.
    pub fn lies_by_time(&self) -> bool {
        matches!(self.assign, WindowAssign::Grid { .. }) && self.trigger.is_none() && !self.is_whole
    }

    /// Whether evictors and triggers of the user look at the event times of records. In windows of all of time they do on
    /// either clock.
    pub fn uses_timestamps(&self) -> bool {
        let is_looked_at = self.is_whole || self.trigger.is_some_and(|trigger| trigger.when == TriggerWhen::Own);
        self.clock == Clock::Event || self.assign.spans_all_time() && is_looked_at
    }

    /// As what it is known to who goes on with it: what lies in one of these ways is not found in the other.
    pub fn kept_as(&self) -> &'static str {
        if self.lies_by_time() { "windows" } else { "windows by key" }
    }
}

/// How time is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WindowAssign {
    /// Windows of one size that begin at regular times.
    Grid {
        /// Their size.
        size_ms: i64,
        /// From one beginning to the next.
        slide_ms: i64,
        /// Beginnings are so much after multiples of the slide.
        #[serde(default)]
        offset_ms: i64,
    },
    /// Records with no gap between them.
    Session {
        /// The gap. None: a function of the user says, for each record.
        #[serde(default)]
        gap_ms: Option<i64>,
    },
    /// One window for all of time.
    Global,
}

impl WindowAssign {
    /// Whether all records of a key are in one window, whatever their times.
    pub fn spans_all_time(&self) -> bool {
        match self {
            Self::Grid { size_ms, .. } => *size_ms == i64::MAX,
            Self::Session { .. } => false,
            Self::Global => true,
        }
    }
}

/// When results of a window go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TriggerSpec {
    /// When.
    pub when: TriggerWhen,
    /// Whether the window then forgets its records. Default: false.
    #[serde(default)]
    pub purges: bool,
}

/// When results of a window go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TriggerWhen {
    /// At its end.
    AtEnd,
    /// After so many records.
    Count(u64),
    /// Every so many milliseconds.
    Every(i64),
    /// Never.
    Never,
    /// A trigger of the user says.
    Own,
}
