//! Joins two inputs by key: all records ever, records close in event time, or records with the newest version before
//! them.
//!
//! # Invariants
//! - I1: all state is keyed state, by key group, encoded as bytes. Timers are derived from it.
//! - I2: a key that holds anything that time can free has a timer. It fires no later than the watermark at which its
//!   first record expires.
//! - I3: in joins by time, a record at or before the watermark is late. It matches no other record; it is counted, or
//!   goes to the side output of its input.

mod as_of;
mod both_sides;
mod buffer;
mod interval;
mod mini_batch;
mod regular;

use std::sync::Arc;

pub use self::as_of::AsOfJoin;
pub use self::both_sides::BothSides;
use self::buffer::Buffer;
pub use self::interval::{Interval, IntervalJoin};
pub use self::mini_batch::{BatchRecords, MiniBatch};
pub use self::regular::RegularJoin;
use super::late_records::LateRecords;
use super::{Collector, EventTime, KeyedRecord, RecordFormat};
use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::snapshot::{Input, RestoredState, Snapshot};
use crate::state::{LargeState, Values};
use crate::time::{ExactTime, NO_TIMESTAMP};

/// Combines matching records of two inputs.
pub trait Pairing<M: RecordFormat>: Send {
    /// A matched record, decoded from its stored bytes.
    type JoinRecord<'b, 'm>;

    /// True if records may come as [mini-batches](MiniBatch). No record starts with the first byte of a mini-batch.
    const MAY_BE_BUNDLED: bool = false;

    /// Decodes the record of these bytes, as a copy for one receiver.
    fn met<'b, 'm>(
        &self,
        bytes: &'b [u8],
        collector: &Collector<'_, 'm, M>,
    ) -> Result<Self::JoinRecord<'b, 'm>, TaskError>;

    /// Returns the same record for one more receiver. The bytes are the same.
    fn again<'b, 'm>(
        &self,
        record: &Self::JoinRecord<'b, 'm>,
        bytes: &'b [u8],
        collector: &Collector<'_, 'm, M>,
    ) -> Result<Self::JoinRecord<'b, 'm>, TaskError>;

    /// Reads the nanoseconds within its millisecond from the bytes of a record. Called only for records of the same
    /// millisecond.
    #[inline]
    fn nanos(bytes: &[u8]) -> u32 {
        let _ = bytes;
        0
    }

    /// Emits the result of a record of the first input and one of the second, if there is one. Its time is the
    /// collector's millisecond plus these nanoseconds.
    fn pair<'m>(
        &mut self,
        left: Self::JoinRecord<'_, 'm>,
        right: Option<Self::JoinRecord<'_, 'm>>,
        nanos: u32,
        collector: &mut Collector<'_, 'm, M>,
    ) -> Result<(), TaskError>;

    /// Emits gathered results: the batch is over, or event time is about to advance.
    fn hand_on(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let _ = collector;
        Ok(())
    }

    /// Decodes a record that matches no other one, for a side output.
    fn record<'m>(
        &self,
        record: &KeyedRecord<'_>,
        collector: &Collector<'_, 'm, M>,
    ) -> Result<M::Record<'m>, TaskError>;

    /// Returns the error for a record without a timestamp.
    fn without_timestamp(&self, token: M::Token<'_>, record: &KeyedRecord<'_>) -> TaskError;
}

/// Name of a join's state.
const STATE: &str = "join";
/// Name of the timers by which keys are due, for errors.
const TIMERS: &str = "timers of join";

/// Number of records after which a task checks for a cancel.
const LOOK_RECORDS: usize = 1024;

/// State of one key: the buffered records of either side.
trait Buffers {
    /// The buffers, the first side's first.
    fn buffers(&self) -> [&Buffer; 2];

    /// Creates the state from buffers, for a key that has a timer.
    fn of(buffers: [Buffer; 2]) -> Self;
}

/// Returns the buffer of the other side of a record.
fn others<'a>([left, right]: &'a [Buffer; 2], record: &KeyedRecord<'_>) -> &'a Buffer {
    if record.side == 0 { right } else { left }
}

/// Returns the time of a record, to the nanosecond.
#[inline]
fn exact_time<M: RecordFormat, P: Pairing<M>>(record: &KeyedRecord<'_>) -> ExactTime {
    ExactTime { ms: record.timestamp_ms, nanos: P::nanos(record.value()) }
}

/// Emits a pair of a record and each of these from the other side, at the later one's time.
fn meet<'b, M: RecordFormat, P: Pairing<M>>(
    pairing: &mut P,
    record: &KeyedRecord<'_>,
    others: impl Iterator<Item = (i64, &'b [u8])>,
    collector: &mut Collector<'_, '_, M>,
) -> Result<(), TaskError> {
    let mut others = others.peekable();
    let at = exact_time::<M, P>(record);
    let mut waiting = if others.peek().is_some() { Some(pairing.met(record.value(), collector)?) } else { None };
    let mut number = 0_usize;
    while let (Some((other_ms, bytes)), Some(one)) = (others.next(), waiting.take()) {
        number += 1;
        if number.is_multiple_of(LOOK_RECORDS) {
            collector.cancel().check()?;
        }
        if others.peek().is_some() {
            waiting = Some(pairing.again(&one, record.value(), collector)?);
        }
        let other = pairing.met(bytes, collector)?;
        let later = at.max(ExactTime { ms: other_ms, nanos: P::nanos(bytes) });
        collector.timestamp_ms = later.ms;
        let (left, right) = if record.side == 0 { (one, other) } else { (other, one) };
        pairing.pair(left, Some(right), later.nanos, collector)?;
    }
    Ok(())
}

/// Encodes and decodes the state of keys.
struct AsBytes;

impl<B: Buffers> Values<B> for AsBytes {
    fn write(&self, _: &[u8], kept: &B, out: &mut Vec<u8>) -> Result<(), TaskError> {
        kept.buffers().into_iter().for_each(|buffer| buffer.write(out));
        Ok(())
    }

    fn read(&self, input: &mut Input<'_>) -> Result<B, TaskError> {
        Ok(B::of([Buffer::read(input)?, Buffer::read(input)?]))
    }

    fn pass(&self, input: &mut Input<'_>) -> Result<(), TaskError> {
        Buffer::pass(input)?;
        Buffer::pass(input)
    }

    fn resident_bytes(&self, written: usize) -> usize {
        BUFFER_BYTES + RESIDENT_PER_WRITTEN * written
    }
}

/// Memory of a buffer with few records.
const BUFFER_BYTES: usize = 96;
/// A record takes 24 bytes in addition to its own, and its encoding adds at least three. The capacity of either vector
/// may be twice as large.
const RESIDENT_PER_WRITTEN: usize = 4;

/// Decides which records are late, and handles those.
struct OnTime {
    time: EventTime,
    late: LateRecords,
}

impl OnTime {
    fn new(late_tags: [Option<Arc<str>>; 2]) -> Self {
        Self { time: EventTime::new(), late: LateRecords::new(late_tags) }
    }

    fn open(&mut self, cx: &TaskContext) {
        self.late.open(cx);
    }

    /// Writes the buffers of each key, together with the watermark.
    fn keep<B: Buffers>(&self, to: &mut Snapshot<'_>, keys: &mut LargeState<B>) -> Result<(), TaskError> {
        to.add_large(STATE, &[self.time.kept_ms()], keys, &AsBytes)?;
        self.time.snapshot(to)
    }

    /// Restores them.
    fn restore<B: Buffers>(&mut self, from: &RestoredState<'_>, keys: &mut LargeState<B>) -> Result<(), TaskError> {
        from.read_large(STATE, keys, &AsBytes)?;
        self.time.restore(from, STATE, keys.range())
    }

    /// Returns true if a record is on time.
    #[inline]
    fn is(&self, record: &KeyedRecord<'_>) -> bool {
        // A record without a timestamp is never after a watermark.
        record.timestamp_ms > self.time.of(record.hash) && record.timestamp_ms != NO_TIMESTAMP
    }

    /// Handles a late record, or returns the error for one without a timestamp.
    #[cold]
    fn refuse<M: RecordFormat>(
        &self,
        pairing: &impl Pairing<M>,
        record: &KeyedRecord<'_>,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError> {
        if record.timestamp_ms == NO_TIMESTAMP {
            return Err(pairing.without_timestamp(collector.token, record));
        }
        self.late.take((record.side, 1), collector, |collector| pairing.record(record, collector))
    }
}
