//! Window assigners and triggers of keyed windows, and the interface to functions of the user.

use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::operator::{Collector, InspectedState, KeyedRecord, RecordFormat};
use crate::snapshot::Input;
use crate::time::Clock;
use crate::window::{AlignedWindows, BuiltIn, TriggerResult, Window};

/// Assigns windows to records.
#[derive(Clone, Copy, Debug)]
pub enum Assigner {
    /// Aligned windows, the same for every key.
    Grid(AlignedWindows),
    /// A window that starts with the record and lasts until a gap. Overlapping windows merge. Without a gap, [`Calls`]
    /// returns one for each record.
    Session(Option<i64>),
    /// One window for all of time.
    Global,
}

impl Assigner {
    /// Returns true if all records of a key share one window, whatever their timestamps.
    pub(super) fn spans_all_time(self) -> bool {
        match self {
            Self::Grid(grid) => grid.spans_all_time(),
            Self::Session(_) => false,
            Self::Global => true,
        }
    }
}

/// Decides when a window emits its result, and whether its records are then deleted.
#[derive(Clone, Copy, Debug)]
pub struct Trigger {
    /// The rule that decides when it fires.
    pub when: FiringRule,
    /// True if firing purges the records.
    pub purges: bool,
}

/// The source of the firing decision.
#[derive(Clone, Copy, Debug)]
pub enum FiringRule {
    /// A built-in trigger.
    BuiltIn(BuiltIn),
    /// A trigger of the user, called by [`Calls`].
    Own,
}

/// Calls the user's functions about windows.
pub trait Calls<M: RecordFormat>: Send {
    /// State of a trigger for one window.
    type TriggerState: Default + Send;

    /// Returns the duration of this record's session without another record.
    fn gap_ms(&mut self, record: &KeyedRecord<'_>, collector: &mut Collector<'_, '_, M>) -> Result<i64, TaskError>;

    /// Calls the trigger.
    fn trigger(
        &mut self,
        call: TriggerCall<'_>,
        at: &mut TriggeredWindow<'_, Self::TriggerState>,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<TriggerResult, TaskError>;

    /// Merges trigger state after windows merged: adds the second window's state to the first's.
    fn merge_kept(
        &mut self,
        window: Window,
        kept: &mut Self::TriggerState,
        other: Self::TriggerState,
        token: M::Token<'_>,
    ) -> Result<(), TaskError>;

    /// Shows the state of a trigger for a window.
    fn inspect<'m>(
        &self,
        token: M::Token<'m>,
        of: (&[u8], Option<Window>),
        kept: &Self::TriggerState,
        found: &mut InspectedState<M::Record<'m>>,
    ) -> Result<(), TaskError> {
        let _ = (token, of, kept, found);
        Ok(())
    }

    /// Encodes the state of a trigger. `key` decodes to its key, for errors.
    fn write_kept(
        &self,
        token: M::Token<'_>,
        key: &[u8],
        kept: &Self::TriggerState,
        out: &mut Vec<u8>,
    ) -> Result<(), TaskError>;

    /// Decodes state that [`write_kept`](Self::write_kept) wrote, and reads no further.
    fn read_kept(&self, token: M::Token<'_>, input: &mut Input<'_>) -> Result<Self::TriggerState, TaskError>;

    /// Skips that state, see [`Values::pass`](crate::state::Values::pass).
    fn pass_kept(&self, token: M::Token<'_>, input: &mut Input<'_>) -> Result<(), TaskError> {
        self.read_kept(token, input).map(drop)
    }

    /// Prepares the subtask.
    fn open(&mut self, token: M::Token<'_>, cx: &TaskContext) -> Result<(), TaskError>;
}

/// The event that a trigger is called for.
#[derive(Clone, Copy, Debug)]
pub enum TriggerCall<'a> {
    /// A record has arrived.
    Record(&'a KeyedRecord<'a>),
    /// A clock has reached a time that the trigger registered.
    Time(Clock, i64),
    /// Its window now covers other windows too.
    Merged,
    /// Its window is deleted.
    Clear,
}

/// The window that a trigger is called for.
#[derive(Debug)]
pub struct TriggeredWindow<'a, K> {
    /// The window itself.
    pub window: Window,
    /// State of the trigger for it.
    pub kept: &'a mut K,
    /// The watermark.
    pub watermark_ms: i64,
    /// Timers to register or to delete: the clock, the time, and true to register.
    pub timers: Vec<(Clock, i64, bool)>,
}
