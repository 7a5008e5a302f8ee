//! Deduplicates by key within a time to live, in event time.
//!
//! A row waits until the watermark reaches its time. Then no earlier row can arrive. The row passes if no row of its
//! key passed within the time to live before it. Among rows of one key and time, the one with the least bytes counts.
//!
//! # Invariants
//! - I1: the rows that pass depend on the rows alone, in any order of arrival, if no row is late.
//! - I2: a row that passed is remembered until event time is past it by the time to live.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use flownet_runtime::operator::{EventTime, KeyedOperator, KeyedRecord, Operator};
use flownet_runtime::snapshot::{Input, RestoredState, Snapshot, put_block, put_signed};
use flownet_runtime::state::{KeyEntry, KeyGroupRange, LargeState, Values};
use flownet_runtime::state_stats::StateStats;
use flownet_runtime::time::{END_OF_TIME_MS, NO_TIMESTAMP};
use flownet_runtime::timer::{TimerKey, TimerService};
use flownet_runtime::varint::put_varint;
use flownet_runtime::{TaskContext, TaskError, TaskMetrics};

use crate::gathered_rows::GatheredRows;
use crate::layout::Layout;
use crate::record_format::{Collector, OperatorInfo, RowRecord, RowsFormat};

/// Passes a row if its key is new at the row's time.
pub(crate) struct DeduplicateByTime {
    keys: LargeState<OfKey>,
    /// Timers of waiting rows.
    due: TimerService<TimerKey>,
    /// Timers that remove keys.
    expiries: TimerService<TimerKey>,
    ttl_ms: i64,
    time: EventTime,
    passed: GatheredRows,
    metrics: Option<Arc<TaskMetrics>>,
}

/// State of a key.
#[derive(Clone, Debug, Default)]
struct OfKey {
    /// Time of the row that passed last.
    last_ms: Option<i64>,
    /// Waiting rows, at most one per time.
    waiting: BTreeMap<i64, Box<[u8]>>,
}

/// Encodes the state of a key. First the number of remembered rows that passed, 0 or 1, and the time of that row. Then
/// the number of waiting rows, and for each the time and the row as a block.
struct KeyValues;

impl Values<OfKey> for KeyValues {
    fn write(&self, _: &[u8], key: &OfKey, out: &mut Vec<u8>) -> Result<(), TaskError> {
        put_varint(out, key.last_ms.is_some().into());
        key.last_ms.into_iter().for_each(|last_ms| put_signed(out, last_ms));
        put_varint(out, key.waiting.len() as u64);
        for (time_ms, row) in &key.waiting {
            put_signed(out, *time_ms);
            put_block(out, row);
        }
        Ok(())
    }

    fn read(&self, input: &mut Input<'_>) -> Result<OfKey, TaskError> {
        let last_ms = if input.varint()? == 0 { None } else { Some(input.signed()?) };
        let mut waiting = BTreeMap::new();
        for _ in 0..input.varint()? {
            waiting.insert(input.signed()?, input.block()?.into());
        }
        Ok(OfKey { last_ms, waiting })
    }
}

impl OfKey {
    /// Returns true if a row passed less than the time to live before `time_ms`, so that a row of this time is a
    /// duplicate.
    fn is_known(&self, time_ms: i64, ttl_ms: i64) -> bool {
        self.last_ms.is_some_and(|last_ms| time_ms.saturating_sub(last_ms) < ttl_ms)
    }

    fn is_empty(&self) -> bool {
        self.last_ms.is_none() && self.waiting.is_empty()
    }
}

impl DeduplicateByTime {
    /// Creates the operator for rows of this schema and keys of these key groups. A key expires `ttl_ms` after the last
    /// row that passed.
    pub(crate) fn new(
        schema: SchemaRef,
        ttl_ms: i64,
        range: KeyGroupRange,
        info: OperatorInfo,
    ) -> Result<Self, TaskError> {
        let layout = Layout::new(schema).map_err(|error| TaskError::Config(error.to_string()))?;
        Ok(Self {
            keys: LargeState::new(range),
            due: TimerService::new(),
            expiries: TimerService::new(),
            ttl_ms,
            time: EventTime::new(),
            passed: GatheredRows::new(layout, info),
            metrics: None,
        })
    }

    /// Passes the rows that have waited until this watermark.
    fn pass(&mut self, watermark_ms: i64, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        while let Some((due_ms, owner)) = self.due.pop_due(watermark_ms)? {
            collector.cancel().check()?;
            let Some(held) = self.keys.get_mut(owner.key(), owner.hash(), &KeyValues)? else { continue };
            let Some(row) = held.value.waiting.remove(&due_ms) else { continue };
            if held.value.is_known(due_ms, self.ttl_ms) {
                continue;
            }
            held.value.last_ms = Some(due_ms);
            self.expiries.register(due_ms.saturating_add(self.ttl_ms), owner);
            self.passed.add(&row, due_ms, collector)?;
            self.expiries.make_room()?;
            self.keys.make_room(&KeyValues)?;
        }
        Ok(())
    }

    /// Removes expired keys.
    fn expire(&mut self, watermark_ms: i64) -> Result<(), TaskError> {
        while let Some((due_ms, owner)) = self.expiries.pop_due(watermark_ms)? {
            let Some(held) = self.keys.get_mut(owner.key(), owner.hash(), &KeyValues)? else { continue };
            held.value.last_ms.take_if(|last_ms| last_ms.saturating_add(self.ttl_ms) <= due_ms);
            if held.value.is_empty() {
                self.keys.remove(owner.key(), owner.hash())?;
            }
        }
        Ok(())
    }
}

impl Operator<RowsFormat> for DeduplicateByTime {
    fn open(&mut self, (): (), cx: &TaskContext) -> Result<(), TaskError> {
        self.metrics = Some(Arc::clone(&cx.metrics));
        self.due.open(DUE, 2, cx);
        self.expiries.open(EXPIRIES, 2, cx);
        self.keys.open_beside_timers(STATE, cx)
    }

    fn process<'m>(&mut self, _: RowRecord, collector: &mut Collector<'_, 'm>) -> Result<(), TaskError> {
        collector.refuse("takes records by key")
    }

    fn end_batch(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.passed.hand_on(collector)?;
        self.due.make_room()?;
        self.keys.end_batch(&KeyValues)
    }

    fn on_watermark(&mut self, timestamp_ms: i64, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let watermark_ms = self.time.advance(timestamp_ms);
        self.pass(watermark_ms, collector)?;
        // No row is new after the end of the input, and a job that resumes from here needs all keys.
        if watermark_ms < END_OF_TIME_MS {
            self.expire(watermark_ms)?;
        }
        self.passed.hand_on(collector)
    }

    fn tally(&self, tally: &mut StateStats) {
        tally.add_keys(self.keys.len());
        tally.add_timers(self.due.len() + self.expiries.len());
    }

    fn snapshot(&mut self, (): (), to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        to.add_large(STATE, &[self.time.kept_ms()], &mut self.keys, &KeyValues)?;
        self.time.snapshot(to)
    }

    fn restore(&mut self, (): (), from: &RestoredState<'_>) -> Result<(), TaskError> {
        let Self { keys, due, expiries, ttl_ms, time, .. } = self;
        from.read_large(STATE, keys, &KeyValues)?;
        time.restore(from, STATE, keys.range())?;
        keys.each(&KeyValues, |key, held: &KeyEntry<OfKey>| {
            for time_ms in held.value.waiting.keys() {
                due.register(*time_ms, TimerKey::held(key, held.given()));
            }
            if let Some(last_ms) = held.value.last_ms {
                expiries.register(last_ms.saturating_add(*ttl_ms), TimerKey::held(key, held.given()));
            }
            due.make_room()?;
            expiries.make_room()
        })
    }
}

impl KeyedOperator<RowsFormat> for DeduplicateByTime {
    fn process_keyed(&mut self, record: &KeyedRecord<'_>, _: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let time_ms = record.timestamp_ms;
        if time_ms == NO_TIMESTAMP {
            let advice = "deduplicate(ttl=...) got a row without an event time, where others have one: say event_time= \
                          where rows begin, or call assign_timestamps() on all streams before key_by()";
            return Err(self.passed.info().failed("ValueError", advice, None));
        }
        if time_ms <= self.time.of(record.hash) {
            self.metrics.iter().for_each(|metrics| metrics.add_late_records(1));
            return Ok(());
        }
        let key = &mut self.keys.get_or_insert_with(record, &KeyValues, OfKey::default)?.value;
        if key.is_known(time_ms, self.ttl_ms) {
            return Ok(());
        }
        // I1: among rows of one time the least bytes win, in any order of arrival.
        match key.waiting.entry(time_ms) {
            Entry::Occupied(mut other) if record.value() < &**other.get() => drop(other.insert(record.value().into())),
            Entry::Occupied(_) => {}
            Entry::Vacant(free) => {
                free.insert(record.value().into());
                self.due.register(time_ms, TimerKey::of(record));
            }
        }
        self.keys.make_room(&KeyValues)
    }
}

/// Name of the state.
const STATE: &str = "first_rows";
/// Names of the timers, for errors.
const DUE: &str = "timers of rows that wait";
const EXPIRIES: &str = "timers of first rows";
