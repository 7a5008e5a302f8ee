//! Decides, upstream of the exchange, which rows of a key share all their windows downstream.

use flownet_runtime::TaskError;
use flownet_runtime::spec::{WindowAssigner, WindowSpec};
use flownet_runtime::time::Clock;
use flownet_runtime::window::AlignedWindows;

/// Rule by which rows of a key share one partial aggregate: they belong to the same windows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SliceAssigner {
    /// Rows of the same slice of aligned windows.
    Slices(AlignedWindows),
    /// Rows of the same slice that are not late. A slice is no longer than the session gap, so they share a session.
    Sessions(AlignedWindows),
    /// Rows of the same batch.
    Batches,
    /// All rows.
    All,
    /// No rows: the windows need each row on its own.
    Rows,
}

impl SliceAssigner {
    /// Chooses the rule for a window, or for a running aggregate if there is none.
    ///
    /// Windows that fire once, at an end that all keys share, are made of slices, and so are sessions with a fixed gap.
    /// Windows with a trigger or a late output, and all other sessions, get rows one by one. Aligned windows on
    /// processing time get the rows of a batch together.
    pub(crate) fn of(window: Option<&WindowSpec>) -> Result<Self, TaskError> {
        let Some(window) = window else { return Ok(Self::Batches) };
        Ok(match (window.assign.grid()?, window.assign, window.clock) {
            _ if window.trigger.is_some() || window.late_tag.is_some() => Self::Rows,
            (Some(grid), _, Clock::Event) => Self::Slices(grid),
            (Some(grid), _, Clock::Processing) if !grid.spans_all_time() => Self::Batches,
            (None, WindowAssigner::Session { gap_ms: Some(gap_ms) }, Clock::Event) => {
                Self::Sessions(AlignedWindows::new(gap_ms, gap_ms, 0)?)
            }
            (None, WindowAssigner::Session { .. }, _) => Self::Rows,
            _ => Self::All,
        })
    }

    /// Returns the time slices, if the rule uses them.
    pub(crate) fn grid(self) -> Option<AlignedWindows> {
        match self {
            Self::Slices(grid) | Self::Sessions(grid) => Some(grid),
            Self::Batches | Self::All | Self::Rows => None,
        }
    }
}
