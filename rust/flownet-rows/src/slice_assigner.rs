//! In front of the exchange: which rows will be of the same windows behind it.

use flownet_runtime::TaskError;
use flownet_runtime::spec::{WindowAssigner, WindowSpec};
use flownet_runtime::time::Clock;
use flownet_runtime::window::AlignedWindows;

/// Which rows of a key are of the same windows, so that one thing may stand for them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SliceAssigner {
    /// Those of one slice of all windows.
    Slices(AlignedWindows),
    /// Those of one slice that are not late: as slices are no longer than the gap of sessions, they are of one session.
    Sessions(AlignedWindows),
    /// Those of one batch.
    Batches,
    /// All.
    All,
    /// None of them: windows are to see each.
    Rows,
}

impl SliceAssigner {
    /// Windows that fire once, at the end of time that all keys have in common, are made of slices, and so are sessions. All that looks at single
    /// rows, gives them out when they are late, or looks at times of its own, gets them one by one, and who waits for the wall
    /// clock what has come.
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

    /// The slices of time, if it is by them.
    pub(crate) fn grid(self) -> Option<AlignedWindows> {
        match self {
            Self::Slices(grid) | Self::Sessions(grid) => Some(grid),
            Self::Batches | Self::All | Self::Rows => None,
        }
    }
}
