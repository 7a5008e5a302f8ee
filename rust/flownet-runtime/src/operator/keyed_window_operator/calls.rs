//! What windows of each key are told by their user: which there are, when they fire, and what functions say of them.

use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::operator::{Collector, InspectedState, KeyedRecord, RecordFormat};
use crate::snapshot::Input;
use crate::time::Clock;
use crate::window::{AlignedWindows, BuiltIn, TriggerResult, Window};

/// Which windows a record belongs to.
#[derive(Clone, Copy, Debug)]
pub enum Assigner {
    /// Those of a grid.
    Grid(AlignedWindows),
    /// One that begins with it and lasts until a gap; those that overlap become one. No gap: the [`Calls`] know.
    Session(Option<i64>),
    /// One for all of time.
    Global,
}

impl Assigner {
    /// Whether all records of a key are in one window, whatever their times.
    pub(super) fn spans_all_time(self) -> bool {
        match self {
            Self::Grid(grid) => grid.spans_all_time(),
            Self::Session(_) => false,
            Self::Global => true,
        }
    }
}

/// When a window's result goes out, and whether its records are then forgotten.
#[derive(Clone, Copy, Debug)]
pub struct Trigger {
    /// When.
    pub when: FiringRule,
    /// Whether firing purges.
    pub purges: bool,
}

/// Who says when.
#[derive(Clone, Copy, Debug)]
pub enum FiringRule {
    /// A trigger of the product.
    BuiltIn(BuiltIn),
    /// The [`Calls`].
    Own,
}

/// What users' functions say of windows.
pub trait Calls<M: RecordFormat>: Send {
    /// What a trigger keeps for a window.
    type TriggerState: Default + Send;

    /// How long the session of this record lasts without another.
    fn gap_ms(&mut self, record: &KeyedRecord<'_>, collector: &mut Collector<'_, '_, M>) -> Result<i64, TaskError>;

    /// The trigger is asked.
    fn trigger(
        &mut self,
        call: TriggerCall<'_>,
        at: &mut TriggeredWindow<'_, Self::TriggerState>,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<TriggerResult, TaskError>;

    /// Windows have become one: the second's state goes to the first's.
    fn merge_kept(
        &mut self,
        window: Window,
        kept: &mut Self::TriggerState,
        other: Self::TriggerState,
        token: M::Token<'_>,
    ) -> Result<(), TaskError>;

    /// Shows what a trigger keeps for a window.
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

    /// Writes out what a trigger keeps. `key` decodes to its key, for errors.
    fn write_kept(
        &self,
        token: M::Token<'_>,
        key: &[u8],
        kept: &Self::TriggerState,
        out: &mut Vec<u8>,
    ) -> Result<(), TaskError>;

    /// Reads back what [`write_kept`](Self::write_kept) wrote, and no more.
    fn read_kept(&self, token: M::Token<'_>, input: &mut Input<'_>) -> Result<Self::TriggerState, TaskError>;

    /// Goes past that, as [`Values::pass`](crate::state::Values::pass) does.
    fn pass_kept(&self, token: M::Token<'_>, input: &mut Input<'_>) -> Result<(), TaskError> {
        self.read_kept(token, input).map(drop)
    }

    /// Prepares the subtask.
    fn open(&mut self, token: M::Token<'_>, cx: &TaskContext) -> Result<(), TaskError>;
}

/// What a trigger is asked about.
#[derive(Clone, Copy, Debug)]
pub enum TriggerCall<'a> {
    /// A record has come.
    Record(&'a KeyedRecord<'a>),
    /// A clock has come to a time it asked for.
    Time(Clock, i64),
    /// Its window covers others now.
    Merged,
    /// Its window is forgotten.
    Clear,
}

/// The window that a trigger is asked about.
#[derive(Debug)]
pub struct TriggeredWindow<'a, K> {
    /// Which one.
    pub window: Window,
    /// What the trigger keeps for it.
    pub kept: &'a mut K,
    /// The watermark.
    pub watermark_ms: i64,
    /// Times that it asks for, and those it asks for no more: by which clock, and whether it does.
    pub timers: Vec<(Clock, i64, bool)>,
}
