//! The two ends of an iteration. The head takes the input and the records that are fed back. The tail separates records
//! that may leave from those that go round again. [`crate::iteration`] describes how the end is detected.
//!
//! Event time does not advance within an iteration or downstream of it until the iteration is over, because no
//! watermark holds for circulating records. The head holds it. Records keep their timestamps on every lap.

use flownet_core::{ExchangeError, Round};

use super::{Collector, IterationEntry, IterationExit, Operator, RecordFormat, WaitingOperator};
use crate::chain::{AwaitedInput, TaskContext};
use crate::error::TaskError;
use crate::iteration::feedback::{FeedbackEnd, FeedbackItem};
use crate::iteration::rounds::{HeadRounds, Next};
use crate::iteration::{FeedbackReader, FeedbackWriter, IterationFailure, IterationFault};
use crate::mailbox::TaskWaker;
use crate::snapshot::{RestoredState, Snapshot};
use crate::time::TimeSignal;

/// Name of its state: circulating records, each with its timestamp and bytes.
const STATE: &str = "going round";

/// Number of records that are fed back before the task reads its mailbox.
const BATCH_RECORDS: usize = 64;

/// Decodes the records that a [`Goal`] encoded.
pub trait ReadBack<M: RecordFormat>: Send {
    /// Decodes the record of these bytes.
    fn decode<'m>(&mut self, token: M::Token<'m>, bytes: &[u8]) -> Result<M::Record<'m>, TaskError>;
}

/// Decides which records may leave, and encodes the others.
pub trait Goal<M: RecordFormat>: Send {
    /// Prepares the subtask.
    fn open(&mut self, token: M::Token<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        let _ = (token, cx);
        Ok(())
    }

    /// Returns true if the record may leave.
    fn is_reached(&mut self, token: M::Token<'_>, record: &M::Record<'_>) -> Result<bool, TaskError>;

    /// Appends a record that goes round again.
    fn encode(&mut self, token: M::Token<'_>, record: &M::Record<'_>, out: &mut Vec<u8>) -> Result<(), TaskError>;

    /// The input has reached its own end: emits remaining records.
    fn finish(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let _ = collector;
        Ok(())
    }

    /// Releases the resources that `open` acquired.
    fn close(&mut self, token: M::Token<'_>) -> Result<(), TaskError> {
        let _ = token;
        Ok(())
    }
}

/// Identifies the subtask and its iteration, for errors.
#[derive(Clone, Debug)]
struct IterationSubtask {
    operator: String,
    subtask: u32,
    parallelism: u32,
}

impl IterationSubtask {
    fn of(operator: &str, cx: &TaskContext) -> Self {
        Self { operator: operator.to_owned(), subtask: cx.subtask, parallelism: cx.parallelism }
    }

    #[cold]
    fn failed(&self, fault: IterationFault) -> TaskError {
        let Self { operator, subtask, parallelism } = self.clone();
        IterationFailure { operator, subtask, parallelism, fault }.into()
    }
}

/// The entry of an iteration. Heads a task.
pub struct IterationHead<R> {
    name: String,
    reader: FeedbackReader,
    read_back: R,
    rounds: HeadRounds,
    /// Watermark of the input from outside the iteration.
    watermark_ms: Option<i64>,
    awaited: AwaitedInput,
    takes_checkpoints: bool,
    open: Option<(IterationSubtask, TaskWaker)>,
}

impl<R> IterationHead<R> {
    /// The head of the iteration with this name.
    pub fn new(name: impl Into<String>, reader: FeedbackReader, read_back: R) -> Self {
        let rounds = HeadRounds::default();
        Self {
            name: name.into(),
            reader,
            read_back,
            rounds,
            watermark_ms: None,
            awaited: AwaitedInput::Nothing,
            takes_checkpoints: false,
            open: None,
        }
    }

    fn failed(&self, fault: IterationFault) -> TaskError {
        match &self.open {
            Some((place, _)) => place.failed(fault),
            None => TaskError::Config(fault.to_string()),
        }
    }

    /// Wakes the task again for the fed-back records that remain.
    fn ring_for_more(&self) {
        if let Some((_, bell)) = self.open.as_ref().filter(|_| self.reader.has_more()) {
            bell.ring();
        }
    }

    /// A round has come back: sends the next one, or ends the loop.
    fn on_return<M: RecordFormat>(
        &mut self,
        round: Round,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError> {
        match self.rounds.on_return(round) {
            Err(unexpected) => Err(self.failed(IterationFault::Round(unexpected.to_string()))),
            Ok(Next::Send(round)) => collector.emit_round(round),
            Ok(Next::End) => {
                // Ended first, so that records emitted by the end of time cannot go round.
                self.reader.end(FeedbackEnd::Over);
                match self.watermark_ms.take() {
                    Some(timestamp_ms) => collector.emit_time(TimeSignal::Watermark(timestamp_ms)),
                    None => Ok(()),
                }
            }
        }
    }
}

impl<M: RecordFormat, R: ReadBack<M>> Operator<M> for IterationHead<R> {
    fn open(&mut self, _: M::Token<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.open = Some((IterationSubtask::of(&self.name, cx), cx.bell.clone()));
        self.takes_checkpoints = cx.takes_checkpoints;
        self.reader.set_bell(cx.bell.clone());
        Ok(())
    }

    #[inline]
    fn process<'m>(&mut self, record: M::Record<'m>, collector: &mut Collector<'_, 'm, M>) -> Result<(), TaskError> {
        collector.emit(record)
    }

    /// The tail writes the circulating records, together with those within the step.
    fn snapshot(&mut self, _: M::Token<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        self.reader.keep(to.checkpoint_id());
        Ok(())
    }
}

impl<M: RecordFormat, R: ReadBack<M>> WaitingOperator<M> for IterationHead<R> {
    /// Fed-back records go first, so the head is full while there are any. Except if the task still awaits input before
    /// a barrier or a stop, or if the loop was given up.
    fn is_full(&self) -> bool {
        self.reader.has_more() && self.awaited == AwaitedInput::Nothing && !self.rounds.is_given_up()
    }

    fn on_arrived(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        // Circulating records are about to be given up or written to a checkpoint. Another lap would only delay the
        // step's other input before the end, which may be much.
        if self.awaited == AwaitedInput::Stop {
            return Ok(());
        }
        for _ in 0..BATCH_RECORDS {
            if !collector.is_available() {
                break;
            }
            collector.cancel().check()?;
            match self.reader.next() {
                Err(fault) => return Err(self.failed(fault)),
                Ok(None) => return Ok(()),
                Ok(Some(FeedbackItem::Record { timestamp_ms, bytes })) => {
                    self.rounds.on_feed();
                    let record = self.read_back.decode(collector.token, bytes)?;
                    collector.emit_at(timestamp_ms, record)?;
                }
                Ok(Some(FeedbackItem::Round(round))) => self.on_return(round, collector)?,
            }
        }
        self.ring_for_more();
        Ok(())
    }

    fn hold(&mut self, signal: TimeSignal) -> bool {
        if self.rounds.is_over() || self.rounds.is_given_up() {
            return false;
        }
        if let TimeSignal::Watermark(timestamp_ms) = signal {
            self.watermark_ms = Some(timestamp_ms);
        }
        true
    }
}

impl<M: RecordFormat, R: ReadBack<M>> IterationEntry<M> for IterationHead<R> {
    fn end_input(&mut self, drain: bool, collector: &mut Collector<'_, '_, M>) -> Result<Option<bool>, TaskError> {
        if self.rounds.is_over() {
            return Ok(Some(true));
        }
        // A stop gives up the whole loop. A head whose own input has ended is no exception: after the job resumes,
        // records of other heads reach it.
        if !drain || self.awaited == AwaitedInput::Stop {
            self.rounds.give_up();
            if self.takes_checkpoints {
                self.reader.leave();
            } else {
                self.reader.end(FeedbackEnd::GivenUp);
            }
            return Ok(Some(false));
        }
        if let Some(round) = self.rounds.on_input_end() {
            collector.emit_round(round)?;
            // A stop may have left records there that arrived after the end of the sources.
            self.ring_for_more();
        }
        Ok(None)
    }

    fn await_input(&mut self, awaited: AwaitedInput) {
        self.awaited = awaited;
    }
}

/// The exit of an iteration: records leave here or go round again.
pub struct IterationTail<G> {
    name: String,
    writer: FeedbackWriter,
    goal: G,
    takes_checkpoints: bool,
    open: Option<(IterationSubtask, usize)>,
}

impl<G> IterationTail<G> {
    /// The tail of the iteration with this name.
    pub fn new(name: impl Into<String>, writer: FeedbackWriter, goal: G) -> Self {
        Self { name: name.into(), writer, goal, takes_checkpoints: false, open: None }
    }

    fn failed(&self, fault: IterationFault) -> TaskError {
        match &self.open {
            Some((place, _)) => place.failed(fault),
            None => TaskError::Config(fault.to_string()),
        }
    }
}

/// An error of a write: of the loop, or of a single record.
enum RefusedWrite {
    Fault(IterationFault),
    Record(TaskError),
}

impl From<IterationFault> for RefusedWrite {
    fn from(fault: IterationFault) -> Self {
        Self::Fault(fault)
    }
}

impl<M: RecordFormat, G: Goal<M>> Operator<M> for IterationTail<G> {
    fn open(&mut self, token: M::Token<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.open = Some((IterationSubtask::of(&self.name, cx), cx.max_record_bytes));
        self.takes_checkpoints = cx.takes_checkpoints;
        self.goal.open(token, cx)
    }

    fn process<'m>(&mut self, record: M::Record<'m>, collector: &mut Collector<'_, 'm, M>) -> Result<(), TaskError> {
        if self.goal.is_reached(collector.token, &record)? {
            return collector.emit(record);
        }
        let Self { writer, goal, open, .. } = self;
        let max_bytes = open.as_ref().map_or(usize::MAX, |(_, max_bytes)| *max_bytes);
        let encode = |out: &mut Vec<u8>| goal.encode(collector.token, &record, out).map_err(RefusedWrite::Record);
        let too_large = |bytes| RefusedWrite::Record(ExchangeError::RecordTooLarge { bytes, max_bytes }.into());
        match writer.push(collector.timestamp_ms, max_bytes, encode, too_large) {
            Ok(()) => Ok(()),
            Err(RefusedWrite::Record(error)) => Err(error),
            Err(RefusedWrite::Fault(fault)) => Err(self.failed(fault)),
        }
    }

    fn end_batch(&mut self, _: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        self.writer.flush().map_err(|fault| self.failed(fault))
    }

    fn finish(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        self.goal.finish(collector)
    }

    fn commit(&mut self, _: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let records = self.writer.given_up();
        if records > 0 && !self.takes_checkpoints {
            let Self { name, open, .. } = self;
            let subtask = open.as_ref().map_or(0, |(place, _)| place.subtask + 1);
            tracing::warn!(operator = name, subtask, records, "the job was stopped: what went round was given up");
        }
        Ok(())
    }

    fn snapshot(&mut self, _: M::Token<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        let kept = self.writer.kept(to.checkpoint_id()).map_err(|fault| self.failed(fault))?;
        to.add_items(STATE, kept);
        Ok(())
    }

    fn restore(&mut self, _: M::Token<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        let parallelism = self.open.as_ref().map_or(1, |(place, _)| place.parallelism);
        for mut record in from.dealt_items(STATE, parallelism)? {
            self.writer.restore(record.rest()).map_err(|fault| self.failed(fault))?;
        }
        self.writer.flush().map_err(|fault| self.failed(fault))
    }

    fn abort(&mut self, _: M::Token<'_>, checkpoint_id: u64) -> Result<(), TaskError> {
        self.writer.forget(checkpoint_id);
        Ok(())
    }

    fn close(&mut self, token: M::Token<'_>) -> Result<(), TaskError> {
        self.goal.close(token)
    }
}

impl<M: RecordFormat, G: Goal<M>> IterationExit<M> for IterationTail<G> {
    fn return_round(&mut self, round: Round) -> Result<(), TaskError> {
        self.writer.round(round).map_err(|fault| self.failed(fault))
    }
}
