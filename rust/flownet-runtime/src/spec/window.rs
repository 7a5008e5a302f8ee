//! Windows of a plan.

use std::borrow::Cow;

use chrono_tz::Tz;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::TaskError;
use crate::time::Clock;
use crate::window::{AlignedWindows, CalendarUnit};

/// The windows, and the time of their results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowSpec {
    /// Assigns windows to records.
    pub assign: WindowAssigner,
    /// The clock. Default: the wall clock.
    #[serde(default)]
    pub clock: Clock,
    /// When results are emitted. Default: none, which is once, at the end of the window.
    #[serde(default)]
    pub trigger: Option<TriggerSpec>,
    /// Time after its end in which a window still accepts records, in event time, in milliseconds. Default:
    /// 0.
    #[serde(default)]
    pub lateness_ms: u64,
    /// The side output for later records. Default: none, they are dropped and counted.
    #[serde(default)]
    pub late_tag: Option<String>,
    /// True if results contain their key. Default: false.
    #[serde(default)]
    pub with_key: bool,
    /// True if results contain their window. Default: false.
    #[serde(default)]
    pub with_window: bool,
    /// True if the value of a window cannot be merged from the values of its slices. Default: false.
    #[serde(default)]
    pub is_whole: bool,
}

impl WindowSpec {
    /// Returns true if state is ordered by time, for all keys: for aligned windows that fire once, at their
    /// end. For all others, state is ordered by key.
    pub fn lies_by_time(&self) -> bool {
        matches!(self.assign, WindowAssigner::Grid { .. } | WindowAssigner::Calendar { .. })
            && self.trigger.is_none()
            && !self.is_whole
    }

    /// Returns true if event times of records are read: by windows of event time, and by evictors and custom
    /// triggers of global windows on either clock.
    pub fn uses_timestamps(&self) -> bool {
        let is_looked_at = self.is_whole || self.trigger.is_some_and(|trigger| trigger.when == TriggerWhen::Own);
        self.clock == Clock::Event || self.assign.spans_all_time() && is_looked_at
    }

    /// Description of the windows, as far as their state depends on them. A checkpoint contains it, and a job
    /// with other windows is refused. Otherwise it would find state in another place, or put records of one
    /// time into windows that were cut in two ways.
    pub fn kept_as(&self) -> String {
        let place = if self.lies_by_time() { "windows" } else { "windows by key" };
        let clock = match self.clock {
            Clock::Event => "",
            Clock::Processing => " by processing time",
        };
        match self.assign {
            WindowAssigner::Grid { size_ms: i64::MAX, .. } => format!("{place} to the end of the input"),
            WindowAssigner::Grid { size_ms, slide_ms, offset_ms } => {
                let slide = if slide_ms == size_ms { String::new() } else { format!(" every {slide_ms} ms") };
                let offset = if offset_ms == 0 { String::new() } else { format!(" at {offset_ms} ms") };
                format!("{place} of {size_ms} ms{slide}{offset}{clock}")
            }
            WindowAssigner::Calendar { zone, unit, count, offset_ms } => {
                let offset = if offset_ms == 0 { String::new() } else { format!(" at {offset_ms} ms") };
                let unit = format!("{unit:?}").to_lowercase();
                format!("{place} of {count} {unit} in {}{offset}{clock}", zone.name())
            }
            // With another gap, records of a session still belong together.
            WindowAssigner::Session { .. } => format!("{place} by sessions{clock}"),
            WindowAssigner::Global => format!("{place} over all time{clock}"),
        }
    }
}

/// Assigns windows to records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WindowAssigner {
    /// Windows of one size that begin at regular times.
    Grid {
        /// Their size.
        size_ms: i64,
        /// Time from one begin to the next.
        slide_ms: i64,
        /// Distance of window begins from multiples of the slide.
        #[serde(default)]
        offset_ms: i64,
    },
    /// Days, weeks or months of a time zone.
    Calendar {
        /// The time zone.
        #[serde(serialize_with = "write_zone", deserialize_with = "read_zone")]
        zone: Tz,
        /// The calendar unit.
        unit: CalendarUnit,
        /// Number of units.
        count: u32,
        /// Local time that has passed since the beginning of the unit when a window begins.
        #[serde(default)]
        offset_ms: i64,
    },
    /// Records with no gap between them.
    Session {
        /// The gap. None: a user's function returns it for each record.
        #[serde(default)]
        gap_ms: Option<i64>,
    },
    /// One window for all of time.
    Global,
}

impl WindowAssigner {
    /// Returns true if all records of a key are in one window, regardless of their times.
    pub fn spans_all_time(&self) -> bool {
        match self {
            Self::Grid { size_ms, .. } => *size_ms == i64::MAX,
            Self::Calendar { .. } | Self::Session { .. } => false,
            Self::Global => true,
        }
    }

    /// The windows, if they begin and end at the same times for all keys.
    pub fn grid(&self) -> Result<Option<AlignedWindows>, TaskError> {
        match *self {
            Self::Grid { size_ms, slide_ms, offset_ms } => AlignedWindows::new(size_ms, slide_ms, offset_ms).map(Some),
            Self::Calendar { zone, unit, count, offset_ms } => {
                AlignedWindows::of_calendar(zone, unit, count, offset_ms).map(Some)
            }
            Self::Session { .. } | Self::Global => Ok(None),
        }
    }

    /// The time zone in which its windows begin.
    pub fn zone(&self) -> &'static str {
        if let Self::Calendar { zone, .. } = self { zone.name() } else { "UTC" }
    }
}

/// The time zone of this name in the tz database.
pub fn zone_named(name: &str) -> Option<Tz> {
    name.parse().ok()
}

fn write_zone<S: Serializer>(zone: &Tz, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(zone.name())
}

fn read_zone<'de, D: Deserializer<'de>>(from: D) -> Result<Tz, D::Error> {
    let name = Cow::<str>::deserialize(from)?;
    zone_named(&name).ok_or_else(|| serde::de::Error::custom(format!("there is no time zone {name:?}")))
}

/// When results of a window are emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TriggerSpec {
    /// The condition.
    pub when: TriggerWhen,
    /// True if the window then drops its records. Default: false.
    #[serde(default)]
    pub purges: bool,
}

/// When results of a window are emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TriggerWhen {
    /// At its end.
    AtEnd,
    /// After this number of records.
    Count(u64),
    /// At this interval, in milliseconds.
    Every(i64),
    /// Never.
    Never,
    /// A custom trigger decides.
    Own,
}
