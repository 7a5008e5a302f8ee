//! The kinds of operators in a chain, and their traits beyond [`Operator`].
//!
//! [`Stage`](super::Stage) matches on the kind. So a call costs one virtual call, and no operator has methods that
//! another kind of operator needs.

use flownet_core::Round;

use super::{Collector, KeyedRecord, Operator, RecordFormat, Source};
use crate::chain::AwaitedInput;
use crate::error::TaskError;
use crate::snapshot::{IsOver, Snapshot};
use crate::time::TimeSignal;
use crate::watermark::{SplitSignal, SplitWatermarks};
use crate::work::Work;

/// The operator of a stage.
pub enum Kind<M: RecordFormat> {
    /// Emits records: the head of a task without inputs.
    Source(Box<dyn Source<M>>),
    /// Processes decoded records.
    Operator(Box<dyn Operator<M>>),
    /// Processes records of keyed edges as bytes.
    Keyed(Box<dyn KeyedOperator<M>>),
    /// Gives timestamps to records and makes watermarks.
    Timestamps(Box<dyn TimestampAssigner<M>>),
    /// Awaits something outside the exchange.
    Waiting(Box<dyn WaitingOperator<M>>),
    /// The entry of an iteration.
    IterationEntry(Box<dyn IterationEntry<M>>),
    /// The exit of an iteration.
    IterationExit(Box<dyn IterationExit<M>>),
}

/// A source or an operator of any kind.
pub(super) enum Role<'a, M: RecordFormat> {
    Source(&'a mut dyn Source<M>),
    Operator(&'a mut dyn Operator<M>),
}

/// An operator that takes records of keyed edges as bytes with their key. Records of other edges come decoded, to
/// [`process`](Operator::process).
pub trait KeyedOperator<M: RecordFormat>: Operator<M> {
    /// Processes a record of a keyed edge.
    fn process_keyed(
        &mut self,
        record: &KeyedRecord<'_>,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError>;

    /// Processes a record of a keyed edge while detached, if operator and record allow it. Returns false if it left the
    /// record untouched.
    fn process_detached(&mut self, record: &KeyedRecord<'_>, now_ms: i64) -> Result<bool, TaskError> {
        let _ = (record, now_ms);
        Ok(false)
    }

    /// Returns true if part of the snapshot is yet to be written, with the values at the time of the snapshot. Large
    /// state is written while the task continues.
    ///
    /// Called once per batch until all is written, so it must be cheap.
    fn is_writing(&self) -> bool {
        false
    }

    /// Continues to write, until all is written or `is_over` ends this turn. An error fails the checkpoint, and nothing
    /// more is to be written for it.
    fn write_on(&mut self, token: M::Token<'_>, to: &mut Snapshot<'_>, is_over: IsOver<'_>) -> Result<(), TaskError> {
        let _ = (token, to, is_over);
        Ok(())
    }
}

/// An operator that gives timestamps to records and makes watermarks. Event time from upstream ends at it, except the
/// end of time.
pub trait TimestampAssigner<M: RecordFormat>: Operator<M> {
    /// The watermarks that it makes.
    fn watermarks(&self) -> &SplitWatermarks;

    /// The same, to align the source with others.
    fn watermarks_mut(&mut self) -> &mut SplitWatermarks;

    /// Returns true if the operator only observes records and forwards them unchanged. No user code sees the records
    /// meanwhile, so the runtime skips the defensive copy. Called once.
    fn is_passthrough(&self) -> bool {
        false
    }

    /// Observes a record of a [passthrough](Self::is_passthrough) that came at `timestamp_ms`. Returns its new
    /// timestamp if nothing else is to be done. The caller then forwards the record itself, which is cheaper than
    /// another call. Returns `None`, with the record untouched, if it has to be processed.
    fn observe(&mut self, record: &M::Record<'_>, timestamp_ms: i64) -> Option<i64> {
        let _ = (record, timestamp_ms);
        None
    }
}

/// An operator that awaits something outside the exchange, such as the results of asynchronous calls.
pub trait WaitingOperator<M: RecordFormat>: Operator<M> {
    /// Returns true if it takes no more records for now. An upstream stage that emits several records at once may still
    /// send some. The operator has to block for those.
    fn is_full(&self) -> bool;

    /// Emits records that arrived from outside the exchange, if there are any.
    fn on_arrived(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError>;

    /// Holds a signal of event time until pending records have left, and emits it then. Returns false if the signal may
    /// pass now. Called after `on_watermark`, and after `finish` at the end of time, when no record may be pending.
    fn hold(&mut self, signal: TimeSignal) -> bool;

    /// Holds a split signal until the records before it have left, and emits it then. Returns false if the signal may
    /// pass now. Called after `on_split`.
    fn hold_split(&mut self, signal: SplitSignal) -> bool {
        let _ = signal;
        false
    }

    /// Holds a round of an iteration until the output of the records before it has left, and emits it then. Returns
    /// false if the round may pass now.
    fn hold_round(&mut self, round: Round) -> bool {
        let _ = round;
        false
    }
}

/// The entry of an iteration: the head of a task, which also gets records that come back.
pub trait IterationEntry<M: RecordFormat>: WaitingOperator<M> {
    /// Reports that its input has ended, with `drain` if it reached its own end. If no records come back either, it
    /// returns its own `drain`. Otherwise the chain calls this again after each
    /// [`on_arrived`](WaitingOperator::on_arrived).
    fn end_input(&mut self, drain: bool, collector: &mut Collector<'_, '_, M>) -> Result<Option<bool>, TaskError>;

    /// Reports which input is yet to come.
    fn await_input(&mut self, awaited: AwaitedInput);
}

/// The exit of an iteration: records leave there or go back to the entry.
pub trait IterationExit<M: RecordFormat>: Operator<M> {
    /// Sends a round back to the entry, after all records before it. The round goes no further downstream.
    fn return_round(&mut self, round: Round) -> Result<(), TaskError>;
}

impl<M: RecordFormat> Kind<M> {
    #[inline]
    pub(super) fn operator(&self) -> Option<&dyn Operator<M>> {
        match self {
            Self::Source(_) => None,
            Self::Operator(operator) => Some(operator.as_ref()),
            Self::Keyed(operator) => Some(operator.as_ref()),
            Self::Timestamps(operator) => Some(operator.as_ref()),
            Self::Waiting(operator) => Some(operator.as_ref()),
            Self::IterationEntry(operator) => Some(operator.as_ref()),
            Self::IterationExit(operator) => Some(operator.as_ref()),
        }
    }

    #[inline]
    pub(super) fn operator_mut(&mut self) -> Option<&mut dyn Operator<M>> {
        match self.role() {
            Role::Source(_) => None,
            Role::Operator(operator) => Some(operator),
        }
    }

    #[inline]
    pub(super) fn role(&mut self) -> Role<'_, M> {
        match self {
            Self::Source(source) => Role::Source(source.as_mut()),
            Self::Operator(operator) => Role::Operator(operator.as_mut()),
            Self::Keyed(operator) => Role::Operator(operator.as_mut()),
            Self::Timestamps(operator) => Role::Operator(operator.as_mut()),
            Self::Waiting(operator) => Role::Operator(operator.as_mut()),
            Self::IterationEntry(operator) => Role::Operator(operator.as_mut()),
            Self::IterationExit(operator) => Role::Operator(operator.as_mut()),
        }
    }

    pub(super) fn waiting(&self) -> Option<&dyn WaitingOperator<M>> {
        match self {
            Self::Waiting(operator) => Some(operator.as_ref()),
            Self::IterationEntry(operator) => Some(operator.as_ref()),
            _ => None,
        }
    }

    pub(super) fn waiting_mut(&mut self) -> Option<&mut dyn WaitingOperator<M>> {
        match self {
            Self::Waiting(operator) => Some(operator.as_mut()),
            Self::IterationEntry(operator) => Some(operator.as_mut()),
            _ => None,
        }
    }

    /// The watermarks that the operator makes, if it makes any.
    pub(super) fn watermarks(&self) -> Option<&SplitWatermarks> {
        if let Self::Timestamps(operator) = self { Some(operator.watermarks()) } else { None }
    }

    pub(super) fn work(&self) -> Work {
        match self {
            Self::Source(source) => source.work(),
            _ => self.operator().map_or(M::WORK, |operator| operator.work()),
        }
    }
}
