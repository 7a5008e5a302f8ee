//! What becomes of the records of a key: as they arrive, or in windows.

use super::{Collector, InspectedState, KeyedRecord, Operator, RecordFormat};
use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::snapshot::{Input, IsOver, RestoredState, Snapshot};
use crate::state::{KeyGroupRange, LargeState, Values};
use crate::state_stats::StateStats;
use crate::window::{SliceRole, Window};
use crate::work::Work;

/// What an operator makes of many records of one key.
pub trait Fold<M: RecordFormat>: Send {
    /// What is kept; its default stands before the first record.
    type Value: Default + Send;

    /// What it works on, but for what it encodes and decodes.
    fn work(&self) -> Work {
        M::WORK
    }

    /// Takes a record detached, if this record allows it; false leaves `value` as it was.
    fn absorb(&self, record: &KeyedRecord<'_>, value: &mut Self::Value) -> bool {
        let _ = (record, value);
        false
    }

    /// Takes a record that was not absorbed.
    fn fold(&self, token: M::Token<'_>, record: &KeyedRecord<'_>, value: &mut Self::Value) -> Result<(), TaskError>;

    /// Adds what became of later records to `value`.
    fn merge(&self, token: M::Token<'_>, value: &mut Self::Value, later: &Self::Value) -> Result<(), TaskError>;

    /// Takes the earliest of the values that were merged into `value` out again, all of which are [`SliceRole::Exact`]; false
    /// leaves `value` as it was, where what is left cannot be known.
    fn take_out(&self, value: &mut Self::Value, earliest: &Self::Value) -> bool {
        let _ = (value, earliest);
        false
    }

    /// What a value is to the windows that it is part of. Where all are [`SliceRole::Shared`], there is no use in keeping any
    /// from one window to the next.
    fn part(&self, value: &Self::Value) -> SliceRole {
        let _ = value;
        SliceRole::Shared
    }

    /// Whether `value` holds records: a value before its first record, and one that was purged, holds none. A window without
    /// records gives nothing out.
    fn has_records(&self, value: &Self::Value) -> bool;

    /// Gives out what became of the records of a window so far. `key` decodes to the key as it was given.
    fn emit(
        &mut self,
        window: Window,
        key: &[u8],
        value: &mut Self::Value,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError>;

    /// Gives out what became of the records so far, behind each of them.
    fn emit_so_far(
        &mut self,
        key: &[u8],
        value: &Self::Value,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError>;

    /// Hands on what it gathered of what it was to give out: a batch is over, or event time is about to pass.
    fn hand_on(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let _ = collector;
        Ok(())
    }

    /// Forgets the records of a window that goes on, and nothing else that is kept for it.
    fn purge(&self, value: &mut Self::Value) {
        *value = Self::Value::default();
    }

    /// A window is forgotten.
    fn clear(
        &mut self,
        window: Window,
        key: &[u8],
        value: Self::Value,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError> {
        let _ = (window, key, value, collector);
        Ok(())
    }

    /// Writes a value out. `key` decodes to its key, for errors.
    fn write(&self, token: M::Token<'_>, key: &[u8], value: &Self::Value, out: &mut Vec<u8>) -> Result<(), TaskError>;

    /// Looks at values that are written next, as [`Values::look_at`] does.
    fn look_at<'v>(&self, token: M::Token<'_>, values: impl Iterator<Item = &'v Self::Value> + Clone)
    where
        Self::Value: 'v,
    {
        let _ = (token, values);
    }

    /// Reads back what [`write`](Self::write) wrote, and no more.
    fn read(&self, token: M::Token<'_>, input: &mut Input<'_>) -> Result<Self::Value, TaskError>;

    /// Goes past a value, as [`Values::pass`] does.
    fn pass(&self, token: M::Token<'_>, input: &mut Input<'_>) -> Result<(), TaskError> {
        self.read(token, input).map(drop)
    }

    /// Writes out what it keeps beside the values; nothing, if there is nothing.
    fn snapshot(&mut self, token: M::Token<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError>;

    /// Begins with what [`snapshot`](Self::snapshot) wrote.
    fn restore(&mut self, token: M::Token<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        let _ = (token, from);
        Ok(())
    }

    /// Event time has come to `watermark_ms`; what is due fires next.
    fn on_watermark(&mut self, watermark_ms: i64) {
        let _ = watermark_ms;
    }

    /// How many records of the user this stands for, for counters.
    fn count(&self, record: &KeyedRecord<'_>) -> u64 {
        let _ = record;
        1
    }

    /// How much later than the record the last of those is that it stands for, which one session has.
    fn span_ms(&self, record: &KeyedRecord<'_>) -> i64 {
        let _ = record;
        0
    }

    /// Whether a record is still there for a side output: what was put together before anybody wanted it apart is not.
    fn is_apart(&self, record: &KeyedRecord<'_>) -> bool {
        let _ = record;
        true
    }

    /// The record itself, for a side output; asked for where [it is there](Self::is_apart).
    fn record<'m>(
        &self,
        record: &KeyedRecord<'_>,
        collector: &Collector<'_, 'm, M>,
    ) -> Result<M::Record<'m>, TaskError>;

    /// The error of a record that has no timestamp, where one is needed.
    fn without_timestamp(&self, token: M::Token<'_>, record: &KeyedRecord<'_>) -> TaskError;

    /// Shows what is kept of a key's records. `key` decodes to the key as it was given; no window: of all so far.
    fn inspect_value<'m>(
        &self,
        token: M::Token<'m>,
        (key, window): (&[u8], Option<Window>),
        value: &Self::Value,
        found: &mut InspectedState<M::Record<'m>>,
    ) -> Result<(), TaskError> {
        let _ = (token, key, window, value, found);
        Ok(())
    }

    /// Shows what is kept of none in particular.
    fn inspect<'m>(&self, token: M::Token<'m>, found: &mut InspectedState<M::Record<'m>>) -> Result<(), TaskError> {
        let _ = (token, found);
        Ok(())
    }

    /// Prepares the subtask.
    fn open(&mut self, token: M::Token<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        let _ = (token, cx);
        Ok(())
    }

    /// Gives back what `open` took.
    fn close(&mut self, token: M::Token<'_>) -> Result<(), TaskError> {
        let _ = token;
        Ok(())
    }
}

/// A fold whose value goes out with each record.
pub struct RunningFold<F, V> {
    fold: F,
    state: LargeState<V>,
}

impl<F, V> RunningFold<F, V> {
    /// For the keys of these groups.
    pub fn new(fold: F, range: KeyGroupRange) -> Self {
        Self { fold, state: LargeState::new(range) }
    }
}

/// The values of a fold, to those who write and read them.
pub(super) struct FoldValues<'a, 'm, M: RecordFormat, F> {
    pub(super) fold: &'a F,
    pub(super) token: M::Token<'m>,
}

impl<M: RecordFormat, F: Fold<M>> Values<F::Value> for FoldValues<'_, '_, M, F> {
    fn write(&self, key: &[u8], value: &F::Value, out: &mut Vec<u8>) -> Result<(), TaskError> {
        self.fold.write(self.token, key, value, out)
    }

    fn look_at<'v>(&self, values: impl Iterator<Item = &'v F::Value> + Clone)
    where
        F::Value: 'v,
    {
        self.fold.look_at(self.token, values);
    }

    fn read(&self, input: &mut Input<'_>) -> Result<F::Value, TaskError> {
        self.fold.read(self.token, input)
    }

    fn pass(&self, input: &mut Input<'_>) -> Result<(), TaskError> {
        self.fold.pass(self.token, input)
    }
}

impl<M: RecordFormat, F: Fold<M>> Operator<M> for RunningFold<F, F::Value> {
    fn work(&self) -> Work {
        self.fold.work()
    }

    fn open(&mut self, token: M::Token<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.state.open(STATE, cx)?;
        self.fold.open(token, cx)
    }

    fn process<'m>(&mut self, _: M::Record<'m>, collector: &mut Collector<'_, 'm, M>) -> Result<(), TaskError> {
        collector.refuse("takes records by key")
    }

    fn is_keyed(&self) -> bool {
        true
    }

    #[inline]
    fn process_keyed(
        &mut self,
        record: &KeyedRecord<'_>,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError> {
        let values = FoldValues::<M, F> { fold: &self.fold, token: collector.token };
        let held = self.state.get_or_insert_with(record, &values, F::Value::default)?;
        self.fold.fold(collector.token, record, &mut held.value)?;
        self.fold.emit_so_far(held.key_value(record.key), &held.value, collector)
    }

    fn end_batch(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        self.fold.hand_on(collector)?;
        self.state.end_batch(&FoldValues::<M, F> { fold: &self.fold, token: collector.token })
    }

    fn tally(&self, tally: &mut StateStats) {
        tally.add_keys(self.state.len());
    }

    fn inspect<'m>(&self, token: M::Token<'m>, found: &mut InspectedState<M::Record<'m>>) -> Result<(), TaskError> {
        self.state.each(&FoldValues::<M, F> { fold: &self.fold, token }, |key, held| {
            self.fold.inspect_value(token, (held.key_value(key), None), &held.value, found)
        })?;
        self.fold.inspect(token, found)
    }

    fn snapshot(&mut self, token: M::Token<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        to.begin_large(STATE, &[], &mut self.state, &FoldValues::<M, F> { fold: &self.fold, token })?;
        self.fold.snapshot(token, to)
    }

    fn is_writing(&self) -> bool {
        self.state.is_writing()
    }

    fn write_on(&mut self, token: M::Token<'_>, to: &mut Snapshot<'_>, is_over: IsOver<'_>) -> Result<(), TaskError> {
        to.write_on(STATE, &mut self.state, &FoldValues::<M, F> { fold: &self.fold, token }, is_over)
    }

    fn abort(&mut self, _: M::Token<'_>, checkpoint_id: u64) -> Result<(), TaskError> {
        self.state.abort(checkpoint_id);
        Ok(())
    }

    fn restore(&mut self, token: M::Token<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        from.read_large(STATE, &mut self.state, &FoldValues::<M, F> { fold: &self.fold, token })?;
        self.fold.restore(token, from)
    }

    fn close(&mut self, token: M::Token<'_>) -> Result<(), TaskError> {
        self.fold.close(token)
    }
}

/// What its state is called.
const STATE: &str = "fold";
