//! Joins by key of two inputs: of all records there ever are, of those that are near in event time, and of records with the
//! newest version before them.
//!
//! # Invariants
//! - I1: what is kept lies in keyed state, by key group, as bytes; timers follow from it.
//! - I2: a key is asked for no later than the watermark lets go of any of its records, and while it keeps something that time can free.
//! - I3: where time counts, a record at or before the watermark is late: it meets nobody, is counted, or goes to the side output of its input.

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

/// What becomes of records of two inputs that meet.
pub trait Pairing<M: RecordFormat>: Send {
    /// A record that has met another, of the bytes that it is kept as.
    type JoinRecord<'b, 'm>;

    /// Whether its records may come as [bundles](Bundle): none begins as those do.
    const MAY_BE_BUNDLED: bool = false;

    /// The record of these bytes, for a receiver of its own.
    fn met<'b, 'm>(
        &self,
        bytes: &'b [u8],
        collector: &Collector<'_, 'm, M>,
    ) -> Result<Self::JoinRecord<'b, 'm>, TaskError>;

    /// The same record for one more receiver; the bytes are the same.
    fn again<'b, 'm>(
        &self,
        record: &Self::JoinRecord<'b, 'm>,
        bytes: &'b [u8],
        collector: &Collector<'_, 'm, M>,
    ) -> Result<Self::JoinRecord<'b, 'm>, TaskError>;

    /// Reads the nanoseconds within its millisecond from the bytes of a record. Called only for records of one millisecond.
    #[inline]
    fn nanos(bytes: &[u8]) -> u32 {
        let _ = bytes;
        0
    }

    /// Emits the result of a record of the first input and one of the second, if there is one. Its time is the collector's
    /// millisecond and these nanoseconds.
    fn pair<'m>(
        &mut self,
        left: Self::JoinRecord<'_, 'm>,
        right: Option<Self::JoinRecord<'_, 'm>>,
        nanos: u32,
        collector: &mut Collector<'_, 'm, M>,
    ) -> Result<(), TaskError>;

    /// Hands on what it gathered of what it was to give out: a batch is over, or event time is about to pass.
    fn hand_on(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let _ = collector;
        Ok(())
    }

    /// A record that meets nobody, for a side output.
    fn record<'m>(
        &self,
        record: &KeyedRecord<'_>,
        collector: &Collector<'_, 'm, M>,
    ) -> Result<M::Record<'m>, TaskError>;

    /// The error of a record that has no timestamp.
    fn without_timestamp(&self, token: M::Token<'_>, record: &KeyedRecord<'_>) -> TaskError;
}

/// What the state of a join is called.
const STATE: &str = "join";
/// And what those are called, for errors, by which keys are looked at.
const TIMERS: &str = "timers of join";

/// Records after which a task looks whether it is told to stop.
const LOOK_RECORDS: usize = 1024;

/// What is kept of one key: the records of either side.
trait Buffers {
    /// They, the first side's first.
    fn buffers(&self) -> [&Buffer; 2];

    /// These, of a key that is asked for.
    fn of(buffers: [Buffer; 2]) -> Self;
}

/// What is kept of the side that a record is not of.
fn others<'a>([left, right]: &'a [Buffer; 2], record: &KeyedRecord<'_>) -> &'a Buffer {
    if record.side == 0 { right } else { left }
}

/// The time of a record, to the nanosecond.
#[inline]
fn exact_time<M: RecordFormat, P: Pairing<M>>(record: &KeyedRecord<'_>) -> ExactTime {
    ExactTime { ms: record.timestamp_ms, nanos: P::nanos(record.value()) }
}

/// Gives out a pair of a record and each of these of the other side, at the later one's time.
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

/// What is kept of keys, to those who write and read it.
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

/// Room of a buffer with few records.
const BUFFER_BYTES: usize = 96;
/// A record takes 24 bytes beside its own, of which three or more are written; either may have as much room again.
const RESIDENT_PER_WRITTEN: usize = 4;

/// Which records come too late, and what becomes of them.
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

    /// Adds the buffers of each key, under the watermark.
    fn keep<B: Buffers>(&self, to: &mut Snapshot<'_>, keys: &mut LargeState<B>) -> Result<(), TaskError> {
        to.add_large(STATE, &[self.time.kept_ms()], keys, &AsBytes)?;
        self.time.snapshot(to)
    }

    /// Reads them back.
    fn restore<B: Buffers>(&mut self, from: &RestoredState<'_>, keys: &mut LargeState<B>) -> Result<(), TaskError> {
        from.read_large(STATE, keys, &AsBytes)?;
        self.time.restore(from, STATE, keys.range())
    }

    /// Whether a record is to be taken.
    #[inline]
    fn is(&self, record: &KeyedRecord<'_>) -> bool {
        // Who has no timestamp is never after a watermark.
        record.timestamp_ms > self.time.of(record.hash) && record.timestamp_ms != NO_TIMESTAMP
    }

    /// A record is not.
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
