//! Deduplicates by key: passes only the first row of each key.

use arrow_schema::SchemaRef;
use flownet_runtime::operator::{KeyedOperator, KeyedRecord, Operator};
use flownet_runtime::snapshot::{Input, RestoredState, Snapshot, put_signed};
use flownet_runtime::state::{KeyEntry, KeyGroupRange, LargeState, Values};
use flownet_runtime::state_stats::StateStats;
use flownet_runtime::timer::{TimerKey, TimerService};
use flownet_runtime::{TaskContext, TaskError};

use crate::gathered_rows::GatheredRows;
use crate::layout::Layout;
use crate::record_format::{Collector, OperatorInfo, RowRecord, RowsFormat};

/// Passes a row if its key is new. With a time to live, a key is new again after it, in processing time.
pub(crate) struct Deduplicate {
    /// Time at which the row of each remembered key passed, in milliseconds of the wall clock.
    seen: LargeState<i64>,
    /// Timers that remove expired keys.
    expiries: TimerService<TimerKey>,
    ttl_ms: Option<i64>,
    passed: GatheredRows,
}

struct SeenValues;

impl Values<i64> for SeenValues {
    fn write(&self, _: &[u8], time_ms: &i64, out: &mut Vec<u8>) -> Result<(), TaskError> {
        put_signed(out, *time_ms);
        Ok(())
    }

    fn read(&self, input: &mut Input<'_>) -> Result<i64, TaskError> {
        input.signed()
    }

    /// The value is stored inline in the table.
    fn resident_bytes(&self, _: usize) -> usize {
        0
    }
}

impl Deduplicate {
    /// Creates the operator for rows of this schema and keys of these key groups. A key expires `ttl_ms` after its
    /// first row.
    pub(crate) fn new(
        schema: SchemaRef,
        ttl_ms: Option<i64>,
        range: KeyGroupRange,
        info: OperatorInfo,
    ) -> Result<Self, TaskError> {
        let layout = Layout::new(schema).map_err(|error| TaskError::Config(error.to_string()))?;
        let (seen, passed) = (LargeState::new(range), GatheredRows::new(layout, info));
        Ok(Self { seen, expiries: TimerService::new(), ttl_ms, passed })
    }

    /// Removes expired keys.
    fn expire(&mut self, now_ms: i64) -> Result<(), TaskError> {
        while let Some((_, owner)) = self.expiries.pop_due(now_ms)? {
            self.seen.remove(owner.key(), owner.hash())?;
        }
        Ok(())
    }
}

impl Operator<RowsFormat> for Deduplicate {
    fn open(&mut self, (): (), cx: &TaskContext) -> Result<(), TaskError> {
        if self.ttl_ms.is_none() {
            return self.seen.open(STATE, cx);
        }
        self.expiries.open(EXPIRIES, 1, cx);
        self.seen.open_beside_timers(STATE, cx)
    }

    fn process<'m>(&mut self, _: RowRecord, collector: &mut Collector<'_, 'm>) -> Result<(), TaskError> {
        collector.refuse("takes records by key")
    }

    fn end_batch(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.passed.hand_on(collector)?;
        self.expiries.make_room()?;
        self.seen.end_batch(&SeenValues)
    }

    fn on_watermark(&mut self, _: i64, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.passed.hand_on(collector)
    }

    fn next_timer_ms(&self) -> Option<i64> {
        self.expiries.next_ms()
    }

    fn on_timer(&mut self, now_ms: i64, _: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.expire(now_ms)
    }

    fn tally(&self, tally: &mut StateStats) {
        tally.add_keys(self.seen.len());
        tally.add_timers(self.expiries.len());
    }

    fn snapshot(&mut self, (): (), to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        to.add_large(STATE, &[], &mut self.seen, &SeenValues)
    }

    fn restore(&mut self, (): (), from: &RestoredState<'_>) -> Result<(), TaskError> {
        let Self { seen, expiries, ttl_ms, .. } = self;
        from.read_large(STATE, seen, &SeenValues)?;
        let Some(ttl_ms) = *ttl_ms else { return Ok(()) };
        seen.each(&SeenValues, |key, held: &KeyEntry<i64>| {
            expiries.register(held.value.saturating_add(ttl_ms), TimerKey::held(key, held.given()));
            expiries.make_room()
        })
    }
}

impl KeyedOperator<RowsFormat> for Deduplicate {
    fn process_keyed(&mut self, record: &KeyedRecord<'_>, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        if self.seen.get_mut(record.key, record.hash, &SeenValues)?.is_some() {
            return Ok(());
        }
        let now_ms = collector.now_ms;
        self.seen.get_or_insert_with(record, &SeenValues, || now_ms)?;
        if let Some(ttl_ms) = self.ttl_ms {
            self.expiries.register(now_ms.saturating_add(ttl_ms), TimerKey::of(record));
        }
        self.seen.make_room(&SeenValues)?;
        self.passed.add(record.value(), record.timestamp_ms, collector)
    }
}

/// Name of the state.
const STATE: &str = "seen";
/// Name of the timers that remove keys, for errors.
const EXPIRIES: &str = "timers of seen";
