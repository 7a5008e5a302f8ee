//! Joins records of two inputs by key if their times differ by an interval: at least one bound, at most another.

use std::sync::Arc;

use super::buffer::Buffer;
use super::mini_batch::BatchRecords;
use super::{AsBytes, Buffers, LOOK_RECORDS, OnTime, Pairing, STATE, TIMERS, exact_time, meet, others};
use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::operator::{Collector, InspectedState, KeyedOperator, KeyedRecord, Operator, RecordFormat, StateKind};
use crate::snapshot::{RestoredState, Snapshot};
use crate::state::{KeyEntry, KeyGroupRange, LargeState};
use crate::state_stats::StateStats;
use crate::time::ExactTime;
use crate::timer::{TimerKey, TimerService};

/// The range of time by which a record of the second input is later than its match of the first, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The lower bound.
    pub lower_ms: i64,
    /// The upper bound.
    pub upper_ms: i64,
}

impl Interval {
    /// Returns the range of times of the other side's records that match a record of this side and time.
    fn of_partners(self, side: u8, timestamp_ms: i64) -> (i64, i64) {
        if side == 0 {
            (timestamp_ms.saturating_add(self.lower_ms), timestamp_ms.saturating_add(self.upper_ms))
        } else {
            (timestamp_ms.saturating_sub(self.upper_ms), timestamp_ms.saturating_sub(self.lower_ms))
        }
    }

    /// The same, to the nanosecond.
    fn of_exact_partners(self, side: u8, ExactTime { ms, nanos }: ExactTime) -> (ExactTime, ExactTime) {
        let (from_ms, to_ms) = self.of_partners(side, ms);
        (ExactTime { ms: from_ms, nanos }, ExactTime { ms: to_ms, nanos })
    }

    /// Returns the time of the latest possible match of a record, if that is after this watermark.
    #[inline]
    fn last_partner_ms(self, record: &KeyedRecord<'_>, watermark_ms: i64) -> Option<i64> {
        let last_ms = self.of_partners(record.side, record.timestamp_ms).1;
        (last_ms > watermark_ms).then_some(last_ms)
    }
}

/// The records of one key, by side, as long as they can match.
#[derive(Debug, Default)]
struct Sides {
    buffers: [Buffer; 2],
    /// True if the key has a timer.
    is_asked: bool,
}

impl Buffers for Sides {
    fn buffers(&self) -> [&Buffer; 2] {
        self.buffers.each_ref()
    }

    fn of(buffers: [Buffer; 2]) -> Self {
        Self { buffers, is_asked: true }
    }
}

impl Sides {
    /// Stores a record that can match until `last_ms`.
    fn keep<M: RecordFormat, P: Pairing<M>>(
        &mut self,
        record: &KeyedRecord<'_>,
        last_ms: i64,
        expiries: &mut TimerService<TimerKey>,
    ) {
        self.buffers[usize::from(record.side & 1)].insert(record.timestamp_ms, record.value(), P::nanos);
        if !std::mem::replace(&mut self.is_asked, true) {
            expiries.register(last_ms, TimerKey::of(record));
        }
    }

    /// Emits the pairs of a record, and stores it if it can still match later ones.
    fn take<M: RecordFormat, P: Pairing<M>>(
        &mut self,
        record: &KeyedRecord<'_>,
        (interval, last_ms): (Interval, Option<i64>),
        (pairing, expiries): (&mut P, &mut TimerService<TimerKey>),
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError> {
        let partners = interval.of_exact_partners(record.side, exact_time::<M, P>(record));
        meet(pairing, record, others(&self.buffers, record).between(partners, P::nanos), collector)?;
        last_ms.into_iter().for_each(|last_ms| self.keep::<M, P>(record, last_ms, expiries));
        Ok(())
    }

    /// The watermark at which the first record expires.
    fn next_ms(&self, interval: Interval) -> Option<i64> {
        let last_partner_ms =
            |side: u8| self.buffers[usize::from(side)].time_of(0).map(|at_ms| interval.of_partners(side, at_ms).1);
        last_partner_ms(0).into_iter().chain(last_partner_ms(1)).min()
    }

    /// Deletes all records that only records at or before the watermark could match.
    fn let_go(&mut self, interval: Interval, watermark_ms: i64) {
        for (side, buffer) in [0, 1].into_iter().zip(&mut self.buffers) {
            buffer.drop_while(|at_ms| interval.of_partners(side, at_ms).1 <= watermark_ms);
        }
    }
}

/// Emits each pair of an interval as soon as both records have arrived, at the later one's time.
pub struct IntervalJoin<P> {
    pairing: P,
    interval: Interval,
    keys: LargeState<Sides>,
    expiries: TimerService<TimerKey>,
    on_time: OnTime,
}

impl<P> IntervalJoin<P> {
    /// A join over the keys of these groups. Late records go to the side outputs of these tags, or are dropped and
    /// counted.
    pub fn new(pairing: P, interval: Interval, late_tags: [Option<Arc<str>>; 2], range: KeyGroupRange) -> Self {
        Self {
            pairing,
            interval,
            keys: LargeState::new(range),
            expiries: TimerService::new(),
            on_time: OnTime::new(late_tags),
        }
    }

    /// Returns the time of the latest possible match of a record, if that is still to come.
    fn last_partner_ms(&self, record: &KeyedRecord<'_>) -> Option<i64> {
        self.interval.last_partner_ms(record, self.on_time.time.of(record.hash))
    }

    /// Processes the records of one mini-batch in their order, with one look-up of the key.
    fn process_bundled<M>(
        &mut self,
        of_all: &KeyedRecord<'_>,
        mut bundled: BatchRecords<'_>,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError>
    where
        M: RecordFormat,
        P: Pairing<M>,
    {
        // The latest record is on time and can match for the longest. So if any record is stored, the latest one is.
        let Some(latest_ms) = bundled.latest_ms()? else { return Ok(()) };
        let latest = of_all.at(latest_ms, of_all.side);
        let is_kept = self.on_time.is(&latest) && self.last_partner_ms(&latest).is_some();
        let mut sides = Self::sides(&mut self.keys, of_all, is_kept)?;
        while let Some((timestamp_ms, value)) = bundled.next()? {
            let record = of_all.bundled(timestamp_ms, value);
            if !self.on_time.is(&record) {
                self.on_time.refuse(&self.pairing, &record, collector)?;
            } else if let Some(sides) = &mut sides {
                let last_ms = self.interval.last_partner_ms(&record, self.on_time.time.of(record.hash));
                sides.take(&record, (self.interval, last_ms), (&mut self.pairing, &mut self.expiries), collector)?;
            }
        }
        self.keys.make_room(&AsBytes)
    }

    /// Returns the state of the record's key. Creates it if the record is to be stored, so that a key is looked up
    /// once.
    fn sides<'a>(
        keys: &'a mut LargeState<Sides>,
        record: &KeyedRecord<'_>,
        is_kept: bool,
    ) -> Result<Option<&'a mut Sides>, TaskError> {
        let held = if is_kept {
            Some(keys.get_or_insert_with(record, &AsBytes, Sides::default)?)
        } else {
            keys.range().check(record.hash)?;
            keys.get_mut(record.key, record.hash, &AsBytes)?
        };
        Ok(held.map(|held| &mut held.value))
    }
}

impl<M: RecordFormat, P: Pairing<M>> Operator<M> for IntervalJoin<P> {
    fn open(&mut self, _: M::Token<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.on_time.open(cx);
        self.keys.open_beside_timers(STATE, cx)?;
        self.expiries.open(TIMERS, 1, cx);
        Ok(())
    }

    fn process<'m>(&mut self, _: M::Record<'m>, collector: &mut Collector<'_, 'm, M>) -> Result<(), TaskError> {
        collector.refuse("takes records by key")
    }

    fn on_watermark(&mut self, timestamp_ms: i64, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let timestamp_ms = self.on_time.time.advance(timestamp_ms);
        for number in 1_usize.. {
            let Some((_, owner)) = self.expiries.pop_due(timestamp_ms)? else { break };
            if number.is_multiple_of(LOOK_RECORDS) {
                collector.cancel().check()?;
                collector.yield_token();
            }
            let held = self.keys.get_mut(owner.key(), owner.hash(), &AsBytes)?;
            let Some(KeyEntry { value: sides, .. }) = held else { continue };
            sides.let_go(self.interval, timestamp_ms);
            match sides.next_ms(self.interval) {
                Some(next_ms) => self.expiries.register(next_ms, owner),
                None => self.keys.remove(owner.key(), owner.hash())?,
            }
            self.expiries.make_room()?;
            self.keys.make_room(&AsBytes)?;
        }
        self.pairing.hand_on(collector)
    }

    fn end_batch(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        self.pairing.hand_on(collector)?;
        self.expiries.make_room()?;
        self.keys.end_batch(&AsBytes)
    }

    fn snapshot(&mut self, _: M::Token<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        self.on_time.keep(to, &mut self.keys)
    }

    fn restore(&mut self, _: M::Token<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        let Self { keys, expiries, on_time, interval, .. } = self;
        on_time.restore(from, keys)?;
        keys.each(&AsBytes, |key, held: &KeyEntry<Sides>| {
            if let Some(next_ms) = held.value.next_ms(*interval) {
                expiries.register(next_ms, TimerKey::held(key, held.given()));
            }
            expiries.make_room()
        })
    }

    fn tally(&self, tally: &mut StateStats) {
        tally.add_keys(self.keys.len());
        tally.add_timers(self.expiries.len());
    }

    fn inspect<'m>(&self, _: M::Token<'m>, found: &mut InspectedState<M::Record<'m>>) -> Result<(), TaskError> {
        self.keys.each(&AsBytes, |key, held: &KeyEntry<Sides>| {
            let key = held.key_value(key);
            for (what, buffer) in [StateKind::Left, StateKind::Right].into_iter().zip(&held.value.buffers) {
                buffer.all().for_each(|(_, record)| found.add_encoded(what, key, record));
            }
            Ok(())
        })
    }
}

impl<M: RecordFormat, P: Pairing<M>> KeyedOperator<M> for IntervalJoin<P> {
    fn process_keyed(
        &mut self,
        record: &KeyedRecord<'_>,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError> {
        if P::MAY_BE_BUNDLED
            && let Some(bundled) = BatchRecords::of(record.value(), record.timestamp_ms)?
        {
            return self.process_bundled(record, bundled, collector);
        }
        if !self.on_time.is(record) {
            return self.on_time.refuse(&self.pairing, record, collector);
        }
        let last_ms = self.last_partner_ms(record);
        let Some(sides) = Self::sides(&mut self.keys, record, last_ms.is_some())? else { return Ok(()) };
        sides.take(record, (self.interval, last_ms), (&mut self.pairing, &mut self.expiries), collector)?;
        self.keys.make_room(&AsBytes)
    }

    /// A record without a match is only stored, which needs no attachment.
    fn process_detached(&mut self, record: &KeyedRecord<'_>, _: i64) -> Result<bool, TaskError> {
        if !self.on_time.is(record) || P::MAY_BE_BUNDLED && BatchRecords::is(record.value()) {
            return Ok(false);
        }
        let last_ms = self.last_partner_ms(record);
        let Some(sides) = Self::sides(&mut self.keys, record, last_ms.is_some())? else { return Ok(true) };
        let partners = self.interval.of_exact_partners(record.side, exact_time::<M, P>(record));
        // Pairs are emitted attached, so they are left to `process_keyed`.
        if others(&sides.buffers, record).between(partners, P::nanos).next().is_some() {
            return Ok(false);
        }
        last_ms.into_iter().for_each(|last_ms| sides.keep::<M, P>(record, last_ms, &mut self.expiries));
        self.keys.make_room(&AsBytes).map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn who_can_be_met_no_more_is_let_go_and_nobody_else(
            records in proptest::collection::vec((0u8..2, -20i64..20), 0..40),
            bounds in (-10i64..10, -10i64..10),
            watermark_ms in -40i64..40,
        ) {
            let interval = Interval { lower_ms: bounds.0.min(bounds.1), upper_ms: bounds.0.max(bounds.1) };
            let mut sides = Sides::default();
            for &(side, at_ms) in &records {
                sides.buffers[usize::from(side)].insert(at_ms, &[], |_| 0);
            }
            sides.let_go(interval, watermark_ms);
            for side in [0, 1] {
                let left: Vec<_> = sides.buffers[usize::from(side)].all().map(|(at_ms, _)| at_ms).collect();
                // A record is on time if it is after the watermark.
                let meets = |at_ms: i64, other_ms: i64| {
                    let apart_ms = if side == 0 { other_ms - at_ms } else { at_ms - other_ms };
                    (interval.lower_ms..=interval.upper_ms).contains(&apart_ms)
                };
                let mut expected: Vec<_> = records.iter().filter(|record| record.0 == side).map(|record| record.1).collect();
                expected.retain(|&at_ms| (watermark_ms + 1..100).any(|other_ms| meets(at_ms, other_ms)));
                expected.sort_unstable();
                prop_assert_eq!(left, expected);
            }
            prop_assert!(sides.next_ms(interval).is_none_or(|next_ms| next_ms > watermark_ms));
        }
    }

    #[test]
    fn at_the_end_of_time_all_is_let_go_whatever_the_bounds() {
        let interval = Interval { lower_ms: i64::MIN, upper_ms: i64::MAX };
        let mut sides = Sides::default();
        for (side, at_ms) in [(0, 5), (0, i64::MAX), (1, i64::MIN + 1), (1, -5)] {
            sides.buffers[side].insert(at_ms, &[], |_| 0);
        }
        sides.let_go(interval, i64::MAX);
        assert_eq!(sides.next_ms(interval), None);
    }
}
