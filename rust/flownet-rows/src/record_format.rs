//! The record format of rows: operators of a chain exchange batches of rows.
//!
//! ```text
//! record on an edge without keys = 00 | run                     rows without times
//!                                = 01 | run with times          as one more column, of i64
//!                                = 02 | run with exact times    and their nanoseconds as another, of u32
//! ```
//!
//! On edges with stamps the stamp precedes this record. It carries no information, because the row block holds the
//! times.

use std::collections::VecDeque;
use std::sync::Arc;

use flownet_runtime::operator::{BatchRecords, OperatorChain, ReceiveOutcome, RecordFormat};
use flownet_runtime::time::NO_TIMESTAMP;
use flownet_runtime::work::{ThreadWork, Work};
use flownet_runtime::{OperatorFailure, Outputs, TaskError};

use crate::batch::{RowBatch, with_times};
use crate::expr::EvalError;
use crate::layout::Layout;
use crate::partial_aggregate::Parts;
use crate::row_block::{Gather, MalformedRun};
use crate::serializer::RowsSerializer;

/// First byte of a record: row block without times.
pub(crate) const WITHOUT_TIMES: u8 = 0;
/// First byte of a record: row block whose last column holds the times.
pub(crate) const WITH_TIMES: u8 = 1;
/// First byte of a record: the last two columns hold the times and their nanoseconds within the millisecond.
pub(crate) const WITH_NANOS: u8 = 2;

/// Number of rows at which batches are gathered or cut.
pub const BATCH_ROWS: usize = 8192;

/// Chain of the operators of one task.
pub type RowsChain = OperatorChain<RowsFormat>;

/// Collector that an operator emits rows to.
pub type Collector<'a, 'm> = flownet_runtime::operator::Collector<'a, 'm, RowsFormat>;

/// Record that one operator passes to the next.
#[derive(Clone, Debug)]
pub enum RowRecord {
    /// Batch of rows.
    Batch(RowBatch),
    /// Partial aggregates, rows by key, or mini-batches, for the downstream operator that merges or buffers them.
    Parts(Arc<Parts>),
}

impl RowRecord {
    /// Returns the batch, or an error for records by key.
    pub fn into_batch(self) -> Result<RowBatch, TaskError> {
        match self {
            Self::Batch(batch) => Ok(batch),
            Self::Parts(_) => Err(TaskError::Config("rows by key came to who takes rows".into())),
        }
    }
}

/// Record format that can carry batches of rows. Operators that need only one batch at a time run in chains of any such
/// format. So rows made of objects get their times in the source's task, which knows the splits.
pub trait CarriesRows: RecordFormat {
    /// Takes the batch out of a record.
    fn into_batch(record: Self::Record<'_>) -> Result<RowBatch, TaskError>;

    /// Wraps a batch in a record.
    fn from_batch<'m>(token: Self::Token<'m>, batch: RowBatch) -> Result<Self::Record<'m>, TaskError>;
}

impl CarriesRows for RowsFormat {
    fn into_batch(record: RowRecord) -> Result<RowBatch, TaskError> {
        record.into_batch()
    }

    fn from_batch<'m>((): Self::Token<'m>, batch: RowBatch) -> Result<Self::Record<'m>, TaskError> {
        Ok(RowRecord::Batch(batch))
    }
}

/// Identity of an operator in error messages.
#[derive(Clone, Debug)]
pub struct OperatorInfo {
    /// Name that users give the operator.
    pub operator: String,
    /// Index of the subtask.
    pub subtask: u32,
    /// Number of subtasks.
    pub parallelism: u32,
}

impl OperatorInfo {
    /// Builds the error for invalid user input, with the class that Python raises for it.
    #[cold]
    pub fn failed(&self, error_type: &str, message: impl Into<String>, record: Option<String>) -> TaskError {
        let Self { operator, subtask, parallelism } = self.clone();
        let (error_type, message) = (error_type.to_owned(), message.into());
        let (traceback, is_transient) = (None, false);
        let failure =
            OperatorFailure { operator, subtask, parallelism, record, error_type, message, traceback, is_transient };
        failure.into()
    }

    /// Builds the error for an expression that has no value for a row.
    #[cold]
    pub(crate) fn evaluation_failed(&self, error: &EvalError) -> TaskError {
        self.failed("ValueError", error.to_string(), None)
    }

    /// Builds the error for bytes of a peer that are not a row block.
    #[cold]
    pub(crate) fn malformed(&self, error: &MalformedRun) -> TaskError {
        self.failed("flownet.errors.CodecError", error.to_string(), None)
    }
}

/// Setup that the thread of a chain with external operators needs.
pub trait TaskThread: Send {
    /// Prepares the thread. Called on the thread, before all operators are opened.
    fn enter(&mut self) -> Result<(), TaskError>;

    /// Undoes [`enter`](Self::enter).
    fn leave(&mut self);
}

/// Gathers rows of arriving row blocks until they fill a batch, or until no more have arrived.
#[derive(Debug)]
pub struct RowInput {
    /// One gatherer per value of a record's first byte.
    gathers: [Gather; 3],
    /// First byte of the records being gathered.
    kind: u8,
    /// Earlier batches, of other kinds.
    before: VecDeque<RowBatch>,
    /// Accounts the decoding time to the receiving thread.
    work: ThreadWork,
}

impl RowInput {
    /// Creates an input for row blocks of `layout`, with or without times.
    pub fn new(layout: &Layout) -> Result<Self, TaskError> {
        let timed = |has_nanos| {
            let timed = Layout::new(Arc::new(with_times(layout.schema(), has_nanos)));
            timed.map(|layout| Gather::new(Arc::new(layout))).map_err(|error| TaskError::Config(error.to_string()))
        };
        let gathers = [Gather::new(Arc::new(layout.clone())), timed(false)?, timed(true)?];
        Ok(Self { gathers, kind: WITHOUT_TIMES, before: VecDeque::new(), work: ThreadWork::default() })
    }

    /// Adds the rows of a record.
    pub fn push(&mut self, record: &[u8]) -> Result<(), MalformedRun> {
        let Some((&kind, run)) = record.split_first().filter(|(kind, _)| **kind <= WITH_NANOS) else {
            return Err(MalformedRun::Truncated { missing: 1 });
        };
        if kind != self.kind {
            // A change of kind ends the batch, so that rows of one channel keep their order.
            let before = self.take_gathered()?;
            self.before.extend(before);
            self.kind = kind;
        }
        let _serialising = self.work.during(Work::Serialising);
        self.gathers[usize::from(kind)].push(run)
    }

    /// Returns some of the added rows, or none if none are left. Rows of one channel keep their order.
    pub fn take(&mut self) -> Result<Option<RowBatch>, MalformedRun> {
        match self.before.pop_front() {
            Some(batch) => Ok(Some(batch)),
            None => self.take_gathered(),
        }
    }

    fn take_gathered(&mut self) -> Result<Option<RowBatch>, MalformedRun> {
        let gather = &mut self.gathers[usize::from(self.kind)];
        if gather.rows() == 0 {
            return Ok(None);
        }
        let rows = gather.take()?;
        Ok(Some(match self.kind {
            WITHOUT_TIMES => RowBatch::new(rows),
            kind => RowBatch::from_times_as_column(rows, kind == WITH_NANOS),
        }))
    }

    /// Returns true if there are enough rows for a batch.
    pub fn is_full(&self) -> bool {
        let before: usize = self.before.iter().map(RowBatch::len).sum();
        before + self.gathers[usize::from(self.kind)].rows() >= BATCH_ROWS
    }

    /// Returns the number of rows in an encoded record.
    pub fn rows(record: &[u8]) -> Option<u64> {
        let (&kind, run) = record.split_first()?;
        let (rows, _) = flownet_runtime::varint::take_varint(run).ok()?;
        (kind <= WITH_NANOS).then_some(rows)
    }
}

/// Record format of rows in one task.
pub struct RowsFormat {
    /// None in a task without inputs of rows.
    arriving: Option<RowInput>,
    /// Whether the task receives rows by key, which may arrive as mini-batches.
    takes_bundles: bool,
    thread: Option<Box<dyn TaskThread>>,
    has_entered: bool,
}

impl RowsFormat {
    /// Creates the format of a task that receives rows of layout `arriving` and needs `thread` as setup.
    pub fn new(arriving: Option<&Layout>, thread: Option<Box<dyn TaskThread>>) -> Result<Self, TaskError> {
        let arriving = arriving.map(RowInput::new).transpose()?;
        Ok(Self { arriving, takes_bundles: false, thread, has_entered: false })
    }

    /// Sets whether the head of the task takes mini-batches.
    pub fn with_bundles(self, takes_bundles: bool) -> Self {
        Self { takes_bundles, ..self }
    }
}

impl RecordFormat for RowsFormat {
    type Token<'m> = ();
    type Record<'m> = RowRecord;
    type Info = OperatorInfo;
    type Serializer = RowsSerializer;

    fn open(&mut self) -> Result<(), TaskError> {
        let Some(thread) = &mut self.thread else { return Ok(()) };
        self.has_entered = true;
        thread.enter()
    }

    fn close(&mut self) {
        // Calls `leave` only after `enter`, and only once.
        if std::mem::take(&mut self.has_entered)
            && let Some(thread) = &mut self.thread
        {
            thread.leave();
        }
    }

    fn attach<R>(work: impl for<'m> FnOnce(()) -> R) -> R {
        work(())
    }

    fn attached<R>(out: &mut Outputs, work: impl for<'m> FnOnce((), &mut Outputs) -> R) -> R {
        work((), out)
    }

    fn detached<R: Send>((): (), out: &mut Outputs, work: impl FnOnce(&mut Outputs) -> R + Send) -> R {
        work(out)
    }

    fn receive<'m>(
        &mut self,
        (): Self::Token<'m>,
        bytes: &[u8],
        info: &OperatorInfo,
    ) -> Result<ReceiveOutcome<Self::Record<'m>>, TaskError> {
        let Some(arriving) = &mut self.arriving else {
            let message = format!("rows came to operator '{}', which heads no task of rows", info.operator);
            return Err(TaskError::Config(message));
        };
        arriving.push(bytes).map_err(|error| info.malformed(&error))?;
        Ok(ReceiveOutcome::Gathered { is_enough: arriving.is_full() })
    }

    fn take_gathered<'m>(
        &mut self,
        (): Self::Token<'m>,
        info: &OperatorInfo,
    ) -> Result<Option<Self::Record<'m>>, TaskError> {
        let Some(arriving) = &mut self.arriving else { return Ok(None) };
        let batch = arriving.take().map_err(|error| info.malformed(&error))?;
        Ok(batch.map(RowRecord::Batch))
    }

    fn rows(&self, bytes: &[u8]) -> Option<u64> {
        if self.arriving.is_some() {
            return RowInput::rows(bytes);
        }
        let bundled = if self.takes_bundles { BatchRecords::of(bytes, NO_TIMESTAMP).ok()? } else { None };
        bundled.map(|bundled| bundled.records())
    }

    fn rows_of(record: &RowRecord) -> u64 {
        match record {
            RowRecord::Batch(batch) => batch.len() as u64,
            RowRecord::Parts(parts) => parts.rows() as u64,
        }
    }

    fn share<'m>(record: &Self::Record<'m>) -> Self::Record<'m> {
        record.clone()
    }

    /// Needs no copy: no operator changes columns in place.
    fn isolate<'m>(
        (): Self::Token<'m>,
        record: Self::Record<'m>,
        _: &OperatorInfo,
    ) -> Result<Self::Record<'m>, TaskError> {
        Ok(record)
    }

    fn name(info: &OperatorInfo) -> &str {
        &info.operator
    }
}
