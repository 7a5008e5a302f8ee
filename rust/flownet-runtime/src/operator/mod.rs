//! The operator model: what runs inside of a task, whatever records are made of.
//!
//! A [`RecordFormat`] says what a record is to the operators of a chain and what it takes to work on one: objects of an
//! interpreter in flownet-python, bytes in the tests here. Everything else is the same for all of them and lives here:
//! [`Operator`] and [`Source`], the tree they form ([`OperatorChain`]), the way records and event time take through it
//! ([`Collector`]), folds, windows, timers and state.
//!
//! # Invariants
//! - I1: the medium is attached at most once a batch, and never while waiting: for a buffer, for input, for a rate.
//! - I2: a batch adds no waiting. Stages that gather records (sinks) hand them on when the batch ends, and before the
//!   chain waits for anything that may take long.
//! - I3: `close` reaches every stage that `open` reached, whatever failed.
//! - I4: what an operator is handed is its own, unless the link to it says otherwise.
//! - I5: a watermark leaves a stage after all that it fired there, and nothing follows the last one, which is
//!   [`END_OF_TIME_MS`](crate::time::END_OF_TIME_MS).

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
mod late_records;
mod record;
mod record_pacer;
mod slice_window_operator;
mod stage;

use std::sync::Arc;

use flownet_core::{CustomEvent, Round};

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
pub(crate) use self::record::take_stamp;
pub use self::record::{KEY_AS_GIVEN, KeyedRecord, MalformedRecord, put_stamp};
pub use self::record_pacer::RecordPacer;
pub use self::slice_window_operator::SliceWindowOperator;
pub use self::stage::{Kind, Link, Links, OutputEdge, Stage, Target};
use crate::chain::{AwaitedInput, SourceStatus, TaskContext};
use crate::error::TaskError;
use crate::outputs::Outputs;
use crate::snapshot::{IsOver, RestoredState, Snapshot};
use crate::state_stats::StateStats;
use crate::time::TimeSignal;
use crate::watermark::SplitSignal;
use crate::work::Work;

/// What records are to the operators of a chain, and what it takes to work on them.
pub trait RecordFormat: Send + Sized + 'static {
    /// Shows that records may be touched: the interpreter is attached, for one.
    type Token<'m>: Copy;
    /// A record inside of the chain.
    type Record<'m>;
    /// Who an operator is, to errors and contexts.
    type Info: Send;
    /// Turns records into bytes and finds where they go.
    type Serializer: OutputSerializer<Self>;

    /// What most of its operators work on.
    const WORK: Work = Work::Rust;

    /// Prepares the task's thread.
    fn open(&mut self) -> Result<(), TaskError>;

    /// Takes back [`open`](Self::open), if it was called.
    fn close(&mut self);

    /// Runs `work` attached.
    fn attach<R>(work: impl for<'m> FnOnce(Self::Token<'m>) -> R) -> R;

    /// Runs `work` attached; the wait for it is not the task's work.
    fn attached<R>(out: &mut Outputs, work: impl for<'m> FnOnce(Self::Token<'m>, &mut Outputs) -> R) -> R;

    /// Runs `work`, which may wait, while others may be attached.
    fn detached<R: Send>(token: Self::Token<'_>, out: &mut Outputs, work: impl FnOnce(&mut Outputs) -> R + Send) -> R;

    /// The record that arrived as these bytes.
    fn decode<'m>(
        &self,
        token: Self::Token<'m>,
        bytes: &[u8],
        info: &Self::Info,
    ) -> Result<Self::Record<'m>, TaskError>;

    /// Takes the record of these bytes, to hand it on with others as one; false: it is [decoded](Self::decode) by itself.
    fn gather(&mut self, bytes: &[u8], info: &Self::Info) -> Result<bool, TaskError> {
        let _ = (bytes, info);
        Ok(false)
    }

    /// What was gathered, if anything: asked where there is enough of it, and where a batch ends.
    fn gathered<'m>(
        &mut self,
        token: Self::Token<'m>,
        info: &Self::Info,
    ) -> Result<Option<Self::Record<'m>>, TaskError> {
        let _ = (token, info);
        Ok(None)
    }

    /// Whether there is enough of what was gathered.
    fn has_gathered_enough(&self) -> bool {
        false
    }

    /// How many rows a record of these bytes has; `None` for what is one row.
    fn rows(&self, bytes: &[u8]) -> Option<u64> {
        let _ = bytes;
        None
    }

    /// How many rows a record is.
    fn rows_of(record: &Self::Record<'_>) -> u64 {
        let _ = record;
        1
    }

    /// Of which kind a key is that begins with this byte, below 64: keys of different kinds are never equal. 0 for one of which
    /// that cannot be said.
    fn key_kind(first_byte: u8) -> u8 {
        let _ = first_byte;
        0
    }

    /// What users call a kind of keys.
    fn kind_name(kind: u8) -> &'static str {
        let _ = kind;
        "another type"
    }

    /// The same record for one more receiver.
    fn share<'m>(record: &Self::Record<'m>) -> Self::Record<'m>;

    /// A record that is equal and nobody else's. `info` is of who gets it.
    fn isolate<'m>(
        token: Self::Token<'m>,
        record: Self::Record<'m>,
        info: &Self::Info,
    ) -> Result<Self::Record<'m>, TaskError>;

    /// An event of the exit at the other end of an edge. `head` is of the operator behind it.
    fn on_custom(&mut self, event: &CustomEvent, head: &Self::Info) -> Result<(), TaskError> {
        let _ = (event, head);
        Ok(())
    }

    /// What it takes to read the records and values of this task elsewhere, for snapshots; none for nothing.
    fn snapshot(&self, token: Self::Token<'_>, info: &Self::Info) -> Result<Vec<Vec<u8>>, TaskError> {
        let _ = (token, info);
        Ok(Vec::new())
    }

    /// Takes one of what [`snapshot`](Self::snapshot) gave, before any value that needs it.
    fn restore(&self, token: Self::Token<'_>, kept: &[u8], info: &Self::Info) -> Result<(), TaskError> {
        let _ = (token, kept, info);
        Ok(())
    }

    /// What users call the operator.
    fn name(info: &Self::Info) -> &str;
}

/// Where records leave the task: encoded, addressed and given to an output.
pub trait OutputSerializer<M: RecordFormat>: Send {
    /// Sends a record; waits, detached, while there is no buffer for it. `stamp` goes in front of it, as `record.rs` says.
    fn emit(
        &mut self,
        token: M::Token<'_>,
        record: &M::Record<'_>,
        stamp: Option<i64>,
        out: &mut Outputs,
    ) -> Result<(), TaskError>;

    /// The operator whose records leave here.
    fn info(&self) -> &M::Info;
}

/// A source: the head of a task without inputs.
pub trait Source<M: RecordFormat>: Send {
    /// What it works on while it emits.
    fn work(&self) -> Work {
        M::WORK
    }

    /// Prepares the subtask.
    fn open(&mut self, token: M::Token<'_>, cx: &TaskContext) -> Result<(), TaskError>;

    /// Waits for input and reads it, detached. A status ends this poll; `None` asks for `emit`.
    fn fill(&mut self, out: &mut Outputs) -> Result<Option<SourceStatus>, TaskError> {
        let _ = out;
        Ok(None)
    }

    /// Emits a bounded number of records.
    fn emit<'m>(&mut self, collector: &mut Collector<'_, 'm, M>) -> Result<SourceStatus, TaskError>;

    /// There is more to read, as its own listing writes it. It may have been told of the same before.
    fn add_splits(&mut self, splits: &Arc<[u8]>) {
        let _ = splits;
    }

    /// Adds what it has before it, as far as it knows that at no cost.
    fn tally(&self, tally: &mut StateStats) {
        let _ = tally;
    }

    /// Writes out how far it has come with what it emits. One that cannot be repeated writes nothing.
    fn snapshot(&mut self, token: M::Token<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError>;

    /// Goes back to where [`snapshot`](Self::snapshot) was called. Called behind `open`.
    fn restore(&mut self, token: M::Token<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        let _ = token;
        from.refuse()
    }

    /// The checkpoint stands.
    fn complete(&mut self, token: M::Token<'_>, checkpoint_id: u64) -> Result<(), TaskError> {
        let _ = (token, checkpoint_id);
        Ok(())
    }

    /// Gives back what `open` took.
    fn close(&mut self, token: M::Token<'_>) -> Result<(), TaskError> {
        let _ = token;
        Ok(())
    }
}

/// An operator, sinks included.
///
/// The chain calls, in this order: `open`, and `restore` if there is something to begin with; then any mix of `process` or `process_keyed`, `on_watermark`, `on_timer`,
/// `on_arrived` and `end_batch`; then, if the input came to its own end, `on_watermark` and `finish` for the end of time; `commit`; and
/// `close`, always.
pub trait Operator<M: RecordFormat>: Send {
    /// What it works on, but for what it encodes and decodes.
    fn work(&self) -> Work {
        M::WORK
    }

    /// Prepares the subtask; its key groups are known now.
    fn open(&mut self, token: M::Token<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        let _ = (token, cx);
        Ok(())
    }

    /// Takes one record. Which input of a task's head it is of, [`Collector::side`] says.
    fn process<'m>(&mut self, record: M::Record<'m>, collector: &mut Collector<'_, 'm, M>) -> Result<(), TaskError>;

    /// Whether it takes records of keyed edges as bytes with their key; else they come decoded, to `process`.
    fn is_keyed(&self) -> bool {
        false
    }

    /// Takes a record of a keyed edge detached, if operator and record allow it; false leaves it untouched.
    fn absorb(&mut self, record: &KeyedRecord<'_>, now_ms: i64) -> Result<bool, TaskError> {
        let _ = (record, now_ms);
        Ok(false)
    }

    /// Takes a record of a keyed edge.
    fn process_keyed(
        &mut self,
        record: &KeyedRecord<'_>,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError> {
        let _ = record;
        collector.refuse("takes no records by key")
    }

    /// Event time has come to `timestamp_ms`: fires what is due.
    fn on_watermark(&mut self, timestamp_ms: i64, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let _ = (timestamp_ms, collector);
        Ok(())
    }

    /// Keeps a signal of event time until what it works on has left, and passes it on then; false: it may pass now. Asked
    /// behind `on_watermark`, and behind `finish` at the end of time, which has to find nothing left.
    fn hold(&mut self, signal: TimeSignal) -> bool {
        let _ = signal;
        false
    }

    /// A round of an iteration comes by, behind all records before it: keeps it until what came of them has left, and passes
    /// it on then; false: it may pass now.
    fn hold_round(&mut self, round: Round, collector: &mut Collector<'_, '_, M>) -> Result<bool, TaskError> {
        let _ = (round, collector);
        Ok(false)
    }

    /// Of the head of a task: its input has ended, `drain` if it came to its own end. If nothing comes by other ways, either,
    /// the head answers with its own `drain`. Otherwise it is asked again behind each [`on_arrived`](Self::on_arrived).
    fn end_input(&mut self, drain: bool, collector: &mut Collector<'_, '_, M>) -> Result<Option<bool>, TaskError> {
        let _ = collector;
        Ok(Some(drain))
    }

    /// Whether it may be [full](Self::is_full) at times; asked once.
    fn may_be_full(&self) -> bool {
        false
    }

    /// Whether it takes no more records for now, because of what it waits for outside of the exchange. What comes all the
    /// same, of a stage before it that emits several at once, it has to wait for.
    fn is_full(&self) -> bool {
        false
    }

    /// Of the head of a task: what is yet to come by the input.
    fn await_input(&mut self, awaited: AwaitedInput) {
        let _ = awaited;
    }

    /// Whether it only looks at records and hands them on, and nobody else's code sees them meanwhile: they need not be its
    /// own; asked once.
    fn is_passthrough(&self) -> bool {
        false
    }

    /// Of one that [only looks](Self::only_looks): the time of a record that came at `timestamp_ms`, if that is all there is
    /// to do for it. Whoever has the record then hands it on, which costs less than to come back for it. None leaves it
    /// untouched, to be processed.
    fn observe(&mut self, record: &M::Record<'_>, timestamp_ms: i64) -> Option<i64> {
        let _ = (record, timestamp_ms);
        None
    }

    /// Whether the source of the task may have to wait for others, because this aligns it with them; asked once.
    fn is_aligned(&self) -> bool {
        false
    }

    /// The source may go so far in event time.
    fn align(&mut self, limit_ms: i64) {
        let _ = limit_ms;
    }

    /// Whether it has come further.
    fn is_ahead(&self) -> bool {
        false
    }

    /// Something may have come for it from outside of the exchange: hands on what has.
    fn on_arrived(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let _ = collector;
        Ok(())
    }

    /// Whether event time goes through it. False for those that make their own.
    fn passes_time(&self) -> bool {
        true
    }

    /// The source says something of the parts of its input. It is passed on behind this, unless it is
    /// [held](Self::hold_split).
    fn on_split(&mut self, signal: SplitSignal, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let _ = (signal, collector);
        Ok(())
    }

    /// Keeps what the source says of its parts until the records before it have left, and passes it on then; false: it may
    /// pass now. Asked behind `on_split`.
    fn hold_split(&mut self, signal: SplitSignal) -> bool {
        let _ = signal;
        false
    }

    /// The part of its input that the source had better read next.
    fn wanted_split(&self) -> Option<u32> {
        None
    }

    /// When `on_timer` is wanted, in wall-clock time.
    fn next_timer_ms(&self) -> Option<i64> {
        None
    }

    /// Wall-clock time has come to `next_timer_ms`: fires what is due.
    fn on_timer(&mut self, now_ms: i64, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let _ = (now_ms, collector);
        Ok(())
    }

    /// The batch is over: hands on what was gathered.
    fn end_batch(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let _ = collector;
        Ok(())
    }

    /// The input has come to its own end, and time with it: fires what waits for the wall clock.
    fn finish(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let _ = collector;
        Ok(())
    }

    /// The input has ended and the last batch is over: makes the results final.
    fn commit(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let _ = collector;
        Ok(())
    }

    /// Adds how many keys and timers it has, between two calls. Asked a few times a second.
    fn tally(&self, tally: &mut StateStats) {
        let _ = tally;
    }

    /// Shows what it keeps, between two calls.
    fn inspect<'m>(&self, token: M::Token<'m>, found: &mut InspectedState<M::Record<'m>>) -> Result<(), TaskError> {
        let _ = (token, found);
        Ok(())
    }

    /// Writes out all that it keeps from one record to the next; nothing, if it keeps nothing. A sink also prepares what it
    /// is to commit with this checkpoint, which is state: all that it was given so far and has not committed.
    fn snapshot(&mut self, token: M::Token<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError>;

    /// Whether some of that has yet to be written, as it was then: what may be much is written while the task goes on.
    ///
    /// Asked once a batch while there is any, so it must be cheap.
    fn is_writing(&self) -> bool {
        false
    }

    /// Writes on, until all is written or that is enough for now. An error is one of the checkpoint, for which nothing more is
    /// to be written then.
    fn write_on(&mut self, token: M::Token<'_>, to: &mut Snapshot<'_>, is_over: IsOver<'_>) -> Result<(), TaskError> {
        let _ = (token, to, is_over);
        Ok(())
    }

    /// Begins with what [`snapshot`](Self::snapshot) wrote, by any number of subtasks. Called behind `open`. A sink commits
    /// what had been prepared: the checkpoint stood.
    fn restore(&mut self, token: M::Token<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        let _ = token;
        from.refuse()
    }

    /// The checkpoint stands: a sink commits what it prepared for it and for those before. May come more than once.
    fn complete(&mut self, token: M::Token<'_>, checkpoint_id: u64) -> Result<(), TaskError> {
        let _ = (token, checkpoint_id);
        Ok(())
    }

    /// The checkpoint will never stand: what a sink prepared for it is to be committed with the next, and what is yet to be
    /// written for it is not.
    fn abort(&mut self, token: M::Token<'_>, checkpoint_id: u64) -> Result<(), TaskError> {
        let _ = (token, checkpoint_id);
        Ok(())
    }

    /// Gives back what `open` took.
    fn close(&mut self, token: M::Token<'_>) -> Result<(), TaskError> {
        let _ = token;
        Ok(())
    }
}
