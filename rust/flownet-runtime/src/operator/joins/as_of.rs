//! Joins each record of one input with the version of the other, by key, that was valid at its time.

use std::sync::Arc;

use super::buffer::Buffer;
use super::{AsBytes, Buffers, LOOK_RECORDS, OnTime, Pairing, STATE, TIMERS};
use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::operator::{Collector, InspectedState, KeyedOperator, KeyedRecord, Operator, RecordFormat, StateKind};
use crate::snapshot::{RestoredState, Snapshot};
use crate::state::{KeyEntry, KeyGroupRange, LargeState};
use crate::state_stats::StateStats;
use crate::time::ExactTime;
use crate::timer::{TimerKey, TimerService};

/// State of one key.
#[derive(Debug, Default)]
struct History {
    /// Records for which a version may still arrive.
    waiting: Buffer,
    /// The newest version at or before the watermark, and all versions after it.
    versions: Buffer,
    /// The watermark of the key's timer.
    asked_ms: Option<i64>,
}

impl Buffers for History {
    fn buffers(&self) -> [&Buffer; 2] {
        [&self.waiting, &self.versions]
    }

    fn of([waiting, versions]: [Buffer; 2]) -> Self {
        let mut history = Self { waiting, versions, asked_ms: None };
        history.asked_ms = history.next_ms();
        history
    }
}

impl History {
    /// The watermark at which a record can leave, or the oldest version is no longer valid for any record.
    fn next_ms(&self) -> Option<i64> {
        self.waiting.time_of(0).into_iter().chain(self.versions.time_of(1)).min()
    }

    /// Registers a timer for the next watermark that the key waits for, if it has none so early.
    fn ask(&mut self, queue: &mut TimerService<TimerKey>, owner: impl FnOnce() -> TimerKey) {
        if let Some(next_ms) = self.next_ms()
            && self.asked_ms.is_none_or(|asked_ms| next_ms < asked_ms)
        {
            self.asked_ms = Some(next_ms);
            queue.register(next_ms, owner());
        }
    }

    /// Deletes the versions before the newest one at or before the watermark.
    fn let_go(&mut self, watermark_ms: i64) {
        while self.versions.time_of(1).is_some_and(|second_ms| second_ms <= watermark_ms) {
            self.versions.drop_first();
        }
    }
}

/// Pairs each record of the first input with the newest version at or before its time. It emits records in the order of
/// their times, each at its own time, once the watermark shows that no other version can arrive.
pub struct AsOfJoin<P> {
    pairing: P,
    keeps_unmatched: bool,
    keys: LargeState<History>,
    queue: TimerService<TimerKey>,
    on_time: OnTime,
}

impl<P> AsOfJoin<P> {
    /// A join over the keys of these groups. A record without a version is paired with none, or dropped. Late records
    /// go to the side outputs of these tags, or are dropped and counted.
    pub fn new(pairing: P, keeps_unmatched: bool, late_tags: [Option<Arc<str>>; 2], range: KeyGroupRange) -> Self {
        Self {
            pairing,
            keeps_unmatched,
            keys: LargeState::new(range),
            queue: TimerService::new(),
            on_time: OnTime::new(late_tags),
        }
    }

    /// Emits the records of a key that need not wait any more, and deletes the versions that are no longer valid.
    fn look_at<M>(&mut self, owner: TimerKey, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError>
    where
        M: RecordFormat,
        P: Pairing<M>,
    {
        let watermark_ms = self.on_time.time.of(owner.hash());
        let held = self.keys.get_mut(owner.key(), owner.hash(), &AsBytes)?;
        let Some(KeyEntry { value: history, .. }) = held else { return Ok(()) };
        // If the key also has a timer at a later time, it is visited once more then.
        history.asked_ms = None;
        for number in 1_usize.. {
            let Some((at_ms, bytes)) = history.waiting.first_until(watermark_ms) else { break };
            if number.is_multiple_of(LOOK_RECORDS) {
                collector.cancel().check()?;
            }
            let at = ExactTime { ms: at_ms, nanos: P::nanos(bytes) };
            let version = history.versions.newest(at, P::nanos);
            if version.is_some() || self.keeps_unmatched {
                let right = version.map(|version| self.pairing.met(version, collector)).transpose()?;
                collector.timestamp_ms = at_ms;
                let left = self.pairing.met(bytes, collector)?;
                self.pairing.pair(left, right, at.nanos, collector)?;
            }
            history.waiting.drop_first();
        }
        history.let_go(watermark_ms);
        if history.waiting.is_empty() && history.versions.is_empty() {
            self.keys.remove(owner.key(), owner.hash())?;
        } else {
            history.ask(&mut self.queue, || owner);
        }
        self.keys.make_room(&AsBytes)
    }
}

impl<M: RecordFormat, P: Pairing<M>> Operator<M> for AsOfJoin<P> {
    fn open(&mut self, _: M::Token<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.on_time.open(cx);
        self.keys.open_beside_timers(STATE, cx)?;
        self.queue.open(TIMERS, 1, cx);
        Ok(())
    }

    fn process<'m>(&mut self, _: M::Record<'m>, collector: &mut Collector<'_, 'm, M>) -> Result<(), TaskError> {
        collector.refuse("takes records by key")
    }

    fn on_watermark(&mut self, timestamp_ms: i64, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let timestamp_ms = self.on_time.time.advance(timestamp_ms);
        for number in 1_usize.. {
            let Some((_, owner)) = self.queue.pop_due(timestamp_ms)? else { break };
            collector.cancel().check()?;
            if number.is_multiple_of(LOOK_RECORDS) {
                collector.yield_token();
            }
            self.look_at(owner, collector)?;
            self.queue.make_room()?;
        }
        self.pairing.hand_on(collector)
    }

    fn end_batch(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        self.pairing.hand_on(collector)?;
        self.queue.make_room()?;
        self.keys.end_batch(&AsBytes)
    }

    fn snapshot(&mut self, _: M::Token<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        self.on_time.keep(to, &mut self.keys)
    }

    fn restore(&mut self, _: M::Token<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        let Self { keys, queue, on_time, .. } = self;
        on_time.restore(from, keys)?;
        keys.each(&AsBytes, |key, held: &KeyEntry<History>| {
            let asked_ms = held.value.asked_ms.into_iter();
            asked_ms.for_each(|at_ms| queue.register(at_ms, TimerKey::held(key, held.given())));
            queue.make_room()
        })
    }

    fn tally(&self, tally: &mut StateStats) {
        tally.add_keys(self.keys.len());
        tally.add_timers(self.queue.len());
    }

    fn inspect<'m>(&self, _: M::Token<'m>, found: &mut InspectedState<M::Record<'m>>) -> Result<(), TaskError> {
        self.keys.each(&AsBytes, |key, held: &KeyEntry<History>| {
            let (key, history) = (held.key_value(key), &held.value);
            history.waiting.all().for_each(|(_, record)| found.add_encoded(StateKind::Left, key, record));
            history.versions.all().for_each(|(_, record)| found.add_encoded(StateKind::Right, key, record));
            Ok(())
        })
    }
}

impl<M: RecordFormat, P: Pairing<M>> KeyedOperator<M> for AsOfJoin<P> {
    fn process_keyed(
        &mut self,
        record: &KeyedRecord<'_>,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError> {
        if KeyedOperator::<M>::process_detached(self, record, collector.now_ms)? {
            return Ok(());
        }
        self.on_time.refuse(&self.pairing, record, collector)
    }

    /// Records are paired only when the watermark arrives.
    fn process_detached(&mut self, record: &KeyedRecord<'_>, _: i64) -> Result<bool, TaskError> {
        if !self.on_time.is(record) {
            return Ok(false);
        }
        let held = self.keys.get_or_insert_with(record, &AsBytes, History::default)?;
        let history = &mut held.value;
        let buffer = if record.side == 0 { &mut history.waiting } else { &mut history.versions };
        buffer.insert(record.timestamp_ms, record.value(), P::nanos);
        history.ask(&mut self.queue, || TimerKey::of(record));
        self.keys.make_room(&AsBytes)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn of_the_versions_before_the_watermark_one_is_kept(
            times in proptest::collection::vec(-20i64..20, 0..40),
            watermark_ms in -25i64..25,
        ) {
            let mut history = History::default();
            for (number, &at_ms) in (0u8..).zip(&times) {
                history.versions.insert(at_ms, &[number], |_| 0);
            }
            let newest = |history: &History| {
                history.versions.newest(ExactTime::of_ms(watermark_ms), |_| 0).map(<[u8]>::to_vec)
            };
            let valid = newest(&history);
            history.let_go(watermark_ms);
            let left: Vec<_> = history.versions.all().map(|(at_ms, _)| at_ms).collect();
            let after = times.iter().filter(|&&at_ms| at_ms > watermark_ms).count();
            prop_assert_eq!(left.len(), after + usize::from(after < times.len()));
            prop_assert_eq!(newest(&history), valid);
            prop_assert!(history.next_ms().is_none_or(|next_ms| next_ms > watermark_ms));
        }
    }
}
