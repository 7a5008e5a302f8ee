//! The operator model: the traits and types that run inside a task, independent of the record format.
//!
//! A [`RecordFormat`] defines the records of a chain and the operations on them: interpreter objects in flownet-python,
//! bytes in the tests of this crate. All other parts are common to every format and live here: [`Operator`] and
//! [`Source`], the tree that they form ([`OperatorChain`]), the path of records and event time through it
//! ([`Collector`]), folds, windows, timers and state.
//!
//! # Invariants
//! - I1: the record format is attached at most once per batch, and never while the task waits: for a buffer, for input,
//!   or for a rate.
//! - I2: a batch adds no waiting. Stages that gather records (sinks) emit them when the batch ends, and before the
//!   chain waits for anything that may take long.
//! - I3: `close` reaches every stage that `open` reached, whatever failed.
//! - I4: an operator owns the records that it receives, unless the link to it says otherwise.
//! - I5: a stage emits a watermark after all output that the watermark fired there. No output follows the last
//!   watermark, which is [`END_OF_TIME_MS`](crate::time::END_OF_TIME_MS).

mod chain;
mod collector;
mod event_time;
mod fold;
mod in_flight;
mod inspect;
mod iteration;
mod joins;
mod key_kinds;
mod keyed_window_operator;
mod kind;
mod late_records;
mod record;
mod record_pacer;
mod slice_window_operator;
mod stage;

use std::sync::Arc;

use flownet_core::CustomEvent;

pub use self::chain::{Entry, OperatorChain, OperatorInspection};
pub use self::collector::Collector;
pub use self::event_time::EventTime;
pub use self::fold::{Fold, RunningFold};
pub use self::in_flight::{InFlight, InFlightItem, ReadyItem, Ticket};
pub use self::inspect::{InspectedState, Inspection, PendingTimer, StateEntry, StateKind};
pub use self::iteration::{Goal, IterationHead, IterationTail, ReadBack};
pub use self::joins::{AsOfJoin, BatchRecords, BothSides, Interval, IntervalJoin, MiniBatch, Pairing, RegularJoin};
pub use self::keyed_window_operator::{
    Assigner, Calls, FiringRule, KeyedWindowOperator, Trigger, TriggerCall, TriggeredWindow, over_windows,
    over_windows_of_two,
};
pub use self::kind::{IterationEntry, IterationExit, KeyedOperator, Kind, TimestampAssigner, WaitingOperator};
pub(crate) use self::record::take_stamp;
pub use self::record::{KEY_AS_GIVEN, KeyedRecord, MalformedRecord, put_stamp};
pub use self::record_pacer::RecordPacer;
pub use self::slice_window_operator::SliceWindowOperator;
pub use self::stage::{Link, Links, OutputEdge, Stage, Target};
use crate::chain::{SourceStatus, TaskContext};
use crate::error::TaskError;
use crate::outputs::Outputs;
use crate::snapshot::{RestoredState, Snapshot};
use crate::state_stats::StateStats;
use crate::watermark::SplitSignal;
use crate::work::Work;

/// The format of records in a chain, and the operations on them.
pub trait RecordFormat: Send + Sized + 'static {
    /// Proof that records may be touched, for example that the thread is attached to the interpreter.
    type Token<'m>: Copy;
    /// A record inside the chain.
    type Record<'m>;
    /// Identity of an operator, for errors and contexts.
    type Info: Send;
    /// Encodes records and chooses their subpartition.
    type Serializer: OutputSerializer<Self>;

    /// The kind of work that most of its operators do.
    const WORK: Work = Work::Rust;

    /// Prepares the task's thread.
    fn open(&mut self) -> Result<(), TaskError>;

    /// Undoes [`open`](Self::open), if it was called.
    fn close(&mut self);

    /// Runs `work` attached.
    fn attach<R>(work: impl for<'m> FnOnce(Self::Token<'m>) -> R) -> R;

    /// Runs `work` attached. The wait for the attachment does not count as work of the task.
    fn attached<R>(out: &mut Outputs, work: impl for<'m> FnOnce(Self::Token<'m>, &mut Outputs) -> R) -> R;

    /// Runs `work`, which may block, while other threads may be attached.
    fn detached<R: Send>(token: Self::Token<'_>, out: &mut Outputs, work: impl FnOnce(&mut Outputs) -> R + Send) -> R;

    /// Takes the record that arrived as these bytes. The format may gather it, to pass it on with others as one record.
    fn receive<'m>(
        &mut self,
        token: Self::Token<'m>,
        bytes: &[u8],
        info: &Self::Info,
    ) -> Result<ReceiveOutcome<Self::Record<'m>>, TaskError>;

    /// Returns gathered records as one, until none are left. Called once enough are gathered, and when a batch ends.
    fn take_gathered<'m>(
        &mut self,
        token: Self::Token<'m>,
        info: &Self::Info,
    ) -> Result<Option<Self::Record<'m>>, TaskError> {
        let _ = (token, info);
        Ok(None)
    }

    /// Returns the number of rows in a record of these bytes, `None` for a single row.
    fn rows(&self, bytes: &[u8]) -> Option<u64> {
        let _ = bytes;
        None
    }

    /// Returns the number of rows in a record.
    fn rows_of(record: &Self::Record<'_>) -> u64 {
        let _ = record;
        1
    }

    /// Returns the kind of a key that begins with this byte, below 64. Keys of different kinds are never equal. 0 if
    /// the byte does not determine the kind.
    fn key_kind(first_byte: u8) -> u8 {
        let _ = first_byte;
        0
    }

    /// The user's name for a kind of keys.
    fn kind_name(kind: u8) -> &'static str {
        let _ = kind;
        "another type"
    }

    /// Returns the same record for one more receiver.
    fn share<'m>(record: &Self::Record<'m>) -> Self::Record<'m>;

    /// Returns an equal record that no other receiver shares. `info` describes the receiver.
    fn isolate<'m>(
        token: Self::Token<'m>,
        record: Self::Record<'m>,
        info: &Self::Info,
    ) -> Result<Self::Record<'m>, TaskError>;

    /// Handles an event of the output serializer at the other end of an edge. `head` describes the operator that this
    /// edge leads to.
    fn on_custom(&mut self, event: &CustomEvent, head: &Self::Info) -> Result<(), TaskError> {
        let _ = (event, head);
        Ok(())
    }

    /// Returns the data that another process needs to read the records and values of this task, for snapshots. Empty if
    /// it needs none.
    fn snapshot(&self, token: Self::Token<'_>, info: &Self::Info) -> Result<Vec<Vec<u8>>, TaskError> {
        let _ = (token, info);
        Ok(Vec::new())
    }

    /// Restores one item of [`snapshot`](Self::snapshot), before any value that needs it.
    fn restore(&self, token: Self::Token<'_>, kept: &[u8], info: &Self::Info) -> Result<(), TaskError> {
        let _ = (token, kept, info);
        Ok(())
    }

    /// The user's name of the operator.
    fn name(info: &Self::Info) -> &str;
}

/// The outcome of [`RecordFormat::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveOutcome<R> {
    /// The record, decoded.
    Record(R),
    /// The format has gathered it, and possibly enough records to [take](RecordFormat::take_gathered).
    Gathered {
        /// True if the gathered records should be taken now.
        is_enough: bool,
    },
}

/// Encodes records that leave the task, chooses their subpartition and gives them to an output.
pub trait OutputSerializer<M: RecordFormat>: Send {
    /// Sends a record. Waits, detached, while there is no buffer for it. `stamp` precedes the record, see `record.rs`.
    fn emit(
        &mut self,
        token: M::Token<'_>,
        record: &M::Record<'_>,
        stamp: Option<i64>,
        out: &mut Outputs,
    ) -> Result<(), TaskError>;

    /// Describes the operator whose records leave here.
    fn info(&self) -> &M::Info;
}

/// A source: the head of a task without inputs.
pub trait Source<M: RecordFormat>: Send {
    /// The kind of work that it does while it emits.
    fn work(&self) -> Work {
        M::WORK
    }

    /// Prepares the subtask.
    fn open(&mut self, token: M::Token<'_>, cx: &TaskContext) -> Result<(), TaskError>;

    /// Waits for input and reads it, detached. A returned status ends this poll; `None` asks for `emit`.
    fn fill(&mut self, out: &mut Outputs) -> Result<Option<SourceStatus>, TaskError> {
        let _ = out;
        Ok(None)
    }

    /// Emits a bounded number of records.
    fn emit<'m>(&mut self, collector: &mut Collector<'_, 'm, M>) -> Result<SourceStatus, TaskError>;

    /// Adds splits to read, as the source's own enumeration encodes them. The same splits may come more than once.
    fn add_splits(&mut self, splits: &Arc<[u8]>) {
        let _ = splits;
    }

    /// Adds the size of its remaining input, as far as that costs nothing to find out.
    fn tally(&self, tally: &mut StateStats) {
        let _ = tally;
    }

    /// Writes its read position, up to the records that it has emitted. A non-replayable source writes nothing.
    fn snapshot(&mut self, token: M::Token<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError>;

    /// Returns to the position at which [`snapshot`](Self::snapshot) was called. Called after `open`.
    fn restore(&mut self, token: M::Token<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        let _ = token;
        from.refuse()
    }

    /// Reports that the checkpoint is complete.
    fn complete(&mut self, token: M::Token<'_>, checkpoint_id: u64) -> Result<(), TaskError> {
        let _ = (token, checkpoint_id);
        Ok(())
    }

    /// Releases the resources that `open` acquired.
    fn close(&mut self, token: M::Token<'_>) -> Result<(), TaskError> {
        let _ = token;
        Ok(())
    }
}

/// An operator, sinks included.
///
/// The chain calls `open` first, then `restore` if there is state to load. Then it calls any mix of `process`,
/// `on_watermark`, `on_split`, `on_timer`, `end_batch` and the methods of the operator's [`Kind`]. If the input reaches
/// its own end, `on_watermark` and `finish` follow for the end of time. Then it calls `commit`, and always `close`.
pub trait Operator<M: RecordFormat>: Send {
    /// The kind of work that it does, except encoding and decoding.
    fn work(&self) -> Work {
        M::WORK
    }

    /// Prepares the subtask. Its key groups are known at this point.
    fn open(&mut self, token: M::Token<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        let _ = (token, cx);
        Ok(())
    }

    /// Processes one record. At the head of a task, [`Collector::side`] returns the input that the record came from.
    fn process<'m>(&mut self, record: M::Record<'m>, collector: &mut Collector<'_, 'm, M>) -> Result<(), TaskError>;

    /// Event time has reached `timestamp_ms`: fires due timers and windows.
    fn on_watermark(&mut self, timestamp_ms: i64, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let _ = (timestamp_ms, collector);
        Ok(())
    }

    /// Handles a signal of the source about its splits. The chain passes the signal on afterwards, unless the operator
    /// [holds](WaitingOperator::hold_split) it.
    fn on_split(&mut self, signal: SplitSignal, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let _ = (signal, collector);
        Ok(())
    }

    /// Wall-clock time at which it wants `on_timer`.
    fn next_timer_ms(&self) -> Option<i64> {
        None
    }

    /// Wall-clock time has reached `next_timer_ms`: fires due timers.
    fn on_timer(&mut self, now_ms: i64, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let _ = (now_ms, collector);
        Ok(())
    }

    /// Ends the batch: emits gathered records.
    fn end_batch(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let _ = collector;
        Ok(())
    }

    /// The input and event time have reached their end: fires the timers of the wall clock.
    fn finish(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let _ = collector;
        Ok(())
    }

    /// The input has ended and the last batch is over: commits the results.
    fn commit(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let _ = collector;
        Ok(())
    }

    /// Adds the number of its keys and timers. Called between two other calls, a few times a second.
    fn tally(&self, tally: &mut StateStats) {
        let _ = tally;
    }

    /// Shows its state. Called between two other calls.
    fn inspect<'m>(&self, token: M::Token<'m>, found: &mut InspectedState<M::Record<'m>>) -> Result<(), TaskError> {
        let _ = (token, found);
        Ok(())
    }

    /// Writes all state that it holds between records, or nothing if it is stateless. A sink also prepares the output
    /// to commit with this checkpoint. That output is state: all records that the sink received and has not committed.
    fn snapshot(&mut self, token: M::Token<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError>;

    /// Loads the state that [`snapshot`](Self::snapshot) wrote, in any number of subtasks. Called after `open`. A sink
    /// commits its prepared output, because the checkpoint was complete.
    fn restore(&mut self, token: M::Token<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        let _ = token;
        from.refuse()
    }

    /// The checkpoint is complete: a sink commits the output that it prepared for it and for earlier ones. May be
    /// called more than once.
    fn complete(&mut self, token: M::Token<'_>, checkpoint_id: u64) -> Result<(), TaskError> {
        let _ = (token, checkpoint_id);
        Ok(())
    }

    /// The checkpoint will never complete. A sink commits its prepared output with the next checkpoint. State that is
    /// not yet written for it is not written.
    fn abort(&mut self, token: M::Token<'_>, checkpoint_id: u64) -> Result<(), TaskError> {
        let _ = (token, checkpoint_id);
        Ok(())
    }

    /// Releases the resources that `open` acquired.
    fn close(&mut self, token: M::Token<'_>) -> Result<(), TaskError> {
        let _ = token;
        Ok(())
    }
}
