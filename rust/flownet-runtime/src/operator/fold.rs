//! Folds the records of a key into one value: a running one, or one per window.

use super::{Collector, InspectedState, KeyedOperator, KeyedRecord, Operator, RecordFormat};
use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::snapshot::{Input, IsOver, RestoredState, Snapshot};
use crate::state::{KeyGroupRange, LargeState, Values};
use crate::state_stats::StateStats;
use crate::window::{SliceRole, Window};
use crate::work::Work;

/// Combines the records of one key into a value.
pub trait Fold<M: RecordFormat>: Send {
    /// The state per key or window. Its default is the value before the first record.
    type Value: Default + Send;

    /// The kind of work that it does, except encoding and decoding.
    fn work(&self) -> Work {
        M::WORK
    }

    /// Adds a record while detached, if the record allows it. Returns false if it left `value` unchanged.
    fn absorb(&self, record: &KeyedRecord<'_>, value: &mut Self::Value) -> bool {
        let _ = (record, value);
        false
    }

    /// Adds a record that was not absorbed.
    fn fold(&self, token: M::Token<'_>, record: &KeyedRecord<'_>, value: &mut Self::Value) -> Result<(), TaskError>;

    /// Merges the value of later records into `value`.
    fn merge(&self, token: M::Token<'_>, value: &mut Self::Value, later: &Self::Value) -> Result<(), TaskError>;

    /// Removes the earliest of the values that were merged into `value`, all of which are [`SliceRole::Exact`]. Returns
    /// false, with `value` unchanged, if the remaining value cannot be computed.
    fn take_out(&self, value: &mut Self::Value, earliest: &Self::Value) -> bool {
        let _ = (value, earliest);
        false
    }

    /// The role of a value in the windows that it is part of. If all are [`SliceRole::Shared`], it is useless to retain
    /// any from one window to the next.
    fn part(&self, value: &Self::Value) -> SliceRole {
        let _ = value;
        SliceRole::Shared
    }

    /// Returns true if `value` holds records. A value before its first record holds none, nor does a purged one. A
    /// window without records emits nothing.
    fn has_records(&self, value: &Self::Value) -> bool;

    /// Emits the result of a window so far. `key` decodes to the key as it was given.
    fn emit(
        &mut self,
        window: Window,
        key: &[u8],
        value: &mut Self::Value,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError>;

    /// Emits the result so far, after each record.
    fn emit_so_far(
        &mut self,
        key: &[u8],
        value: &Self::Value,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError>;

    /// Emits gathered results: the batch is over, or event time is about to advance.
    fn hand_on(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let _ = collector;
        Ok(())
    }

    /// Deletes the records of a window that stays open, and none of its other state.
    fn purge(&self, value: &mut Self::Value) {
        *value = Self::Value::default();
    }

    /// Deletes a window and its state.
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

    /// Encodes a value. `key` decodes to its key, for errors.
    fn write(&self, token: M::Token<'_>, key: &[u8], value: &Self::Value, out: &mut Vec<u8>) -> Result<(), TaskError>;

    /// Observes the values that are written next, see [`Values::look_at`].
    fn look_at<'v>(&self, token: M::Token<'_>, values: impl Iterator<Item = &'v Self::Value> + Clone)
    where
        Self::Value: 'v,
    {
        let _ = (token, values);
    }

    /// Decodes a value that [`write`](Self::write) wrote, and reads no further.
    fn read(&self, token: M::Token<'_>, input: &mut Input<'_>) -> Result<Self::Value, TaskError>;

    /// Skips a value, see [`Values::pass`].
    fn pass(&self, token: M::Token<'_>, input: &mut Input<'_>) -> Result<(), TaskError> {
        self.read(token, input).map(drop)
    }

    /// Writes its state other than the values, or nothing if there is none.
    fn snapshot(&mut self, token: M::Token<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError>;

    /// Loads the state that [`snapshot`](Self::snapshot) wrote.
    fn restore(&mut self, token: M::Token<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        let _ = (token, from);
        Ok(())
    }

    /// Event time has reached `watermark_ms`. Due windows fire after this call.
    fn on_watermark(&mut self, watermark_ms: i64) {
        let _ = watermark_ms;
    }

    /// The number of records of the user that this record represents, for counters.
    fn count(&self, record: &KeyedRecord<'_>) -> u64 {
        let _ = record;
        1
    }

    /// The time from the record to the last of the records that it represents, all of one session.
    fn span_ms(&self, record: &KeyedRecord<'_>) -> i64 {
        let _ = record;
        0
    }

    /// Returns true if the record still exists for a side output. Records that upstream combined into a partial
    /// aggregate do not.
    fn is_apart(&self, record: &KeyedRecord<'_>) -> bool {
        let _ = record;
        true
    }

    /// Decodes the record for a side output. Called only if it [still exists](Self::is_apart).
    fn record<'m>(
        &self,
        record: &KeyedRecord<'_>,
        collector: &Collector<'_, 'm, M>,
    ) -> Result<M::Record<'m>, TaskError>;

    /// Returns the error for a record without the timestamp that it needs.
    fn without_timestamp(&self, token: M::Token<'_>, record: &KeyedRecord<'_>) -> TaskError;

    /// Shows the value of a key. `key` decodes to the key as it was given. Without a window, the value covers all
    /// records so far.
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

    /// Shows the state that belongs to no key.
    fn inspect<'m>(&self, token: M::Token<'m>, found: &mut InspectedState<M::Record<'m>>) -> Result<(), TaskError> {
        let _ = (token, found);
        Ok(())
    }

    /// Prepares the subtask.
    fn open(&mut self, token: M::Token<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        let _ = (token, cx);
        Ok(())
    }

    /// Releases the resources that `open` acquired.
    fn close(&mut self, token: M::Token<'_>) -> Result<(), TaskError> {
        let _ = token;
        Ok(())
    }
}

/// A fold that emits its value after each record.
pub struct RunningFold<F, V> {
    fold: F,
    state: LargeState<V>,
}

impl<F, V> RunningFold<F, V> {
    /// A fold over the keys of these groups.
    pub fn new(fold: F, range: KeyGroupRange) -> Self {
        Self { fold, state: LargeState::new(range) }
    }
}

/// Encodes and decodes the values of a fold.
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

impl<M: RecordFormat, F: Fold<M>> KeyedOperator<M> for RunningFold<F, F::Value> {
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

    fn is_writing(&self) -> bool {
        self.state.is_writing()
    }

    fn write_on(&mut self, token: M::Token<'_>, to: &mut Snapshot<'_>, is_over: IsOver<'_>) -> Result<(), TaskError> {
        to.write_on(STATE, &mut self.state, &FoldValues::<M, F> { fold: &self.fold, token }, is_over)
    }
}

/// Name of its state.
const STATE: &str = "fold";
