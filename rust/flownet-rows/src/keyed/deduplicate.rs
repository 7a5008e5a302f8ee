//! The first row of each key, and no other.

use arrow_schema::SchemaRef;
use flownet_runtime::operator::{KeyedRecord, Operator};
use flownet_runtime::snapshot::{Input, Restored, Snapshot, put_signed};
use flownet_runtime::state::{Held, KeyGroupRange, LargeState, Values};
use flownet_runtime::tally::Tally;
use flownet_runtime::time::{Clock, END_OF_TIME_MS, NO_TIMESTAMP};
use flownet_runtime::timer::{TimerKey, TimerService};
use flownet_runtime::varint::put_varint;
use flownet_runtime::{TaskContext, TaskError};
use smallvec::SmallVec;

use crate::gathered::Gathered;
use crate::layout::Layout;
use crate::medium::{Flow, OperatorInfo, RowRecord, RowsMedium};

/// Lets a row pass whose key is new.
///
/// By event time, rows of a key may come in another order than that of their times. So a row passes if no other of its key
/// that passed is nearer than the time to live, before or after it.
pub(crate) struct Deduplicate {
    /// The times of those rows of each key that passed and are remembered; by the wall clock one.
    seen: LargeState<Passed>,
    /// When keys are forgotten.
    expiries: TimerService<TimerKey>,
    ttl_ms: Option<i64>,
    /// By which clock.
    clock: Clock,
    passed: Gathered,
}

/// Times in milliseconds, the earliest first; none before the first row.
type Passed = SmallVec<[i64; 1]>;

/// By the wall clock a key has one time, which is then all that is written.
struct SeenValues(Clock);

impl Values<Passed> for SeenValues {
    fn write(&self, _: &[u8], times: &Passed, out: &mut Vec<u8>) -> Result<(), TaskError> {
        if self.0 == Clock::Processing {
            put_signed(out, times.first().copied().unwrap_or(i64::MIN));
            return Ok(());
        }
        put_varint(out, times.len() as u64);
        times.iter().for_each(|time_ms| put_signed(out, *time_ms));
        Ok(())
    }

    fn read(&self, input: &mut Input<'_>) -> Result<Passed, TaskError> {
        let count = if self.0 == Clock::Processing { 1 } else { input.varint()? };
        (0..count).map(|_| input.signed()).collect()
    }

    /// The first lies in the table.
    fn resident_bytes(&self, _: usize) -> usize {
        0
    }
}

impl Deduplicate {
    /// Of rows of this schema, for the keys of these groups, which are forgotten so long after their first row, by a clock.
    pub(crate) fn new(
        schema: SchemaRef,
        (ttl_ms, clock): (Option<i64>, Clock),
        range: KeyGroupRange,
        info: OperatorInfo,
    ) -> Result<Self, TaskError> {
        let layout = Layout::new(schema).map_err(|error| TaskError::Config(error.to_string()))?;
        let (seen, passed) = (LargeState::new(range), Gathered::new(layout, info));
        Ok(Self { seen, expiries: TimerService::new(), ttl_ms, clock, passed })
    }
}

impl Deduplicate {
    /// When a row is, by the clock that keys are forgotten by.
    fn time_of(&self, record: &KeyedRecord<'_>, now_ms: i64) -> Result<i64, TaskError> {
        match self.clock {
            Clock::Processing => Ok(now_ms),
            Clock::Event if record.timestamp_ms != NO_TIMESTAMP => Ok(record.timestamp_ms),
            Clock::Event => {
                let advice = "deduplicate(ttl=...) got a row without an event time, where others have one: say event_time= \
                              where rows begin, or call assign_timestamps() on all streams before key_by()";
                Err(self.passed.info().failed("ValueError", advice, None))
            }
        }
    }

    /// Forgets what is due.
    fn expire(&mut self, time_ms: i64) -> Result<(), TaskError> {
        let (Some(ttl_ms), values) = (self.ttl_ms, SeenValues(self.clock)) else { return Ok(()) };
        while let Some((_, owner)) = self.expiries.pop_due(time_ms)? {
            let Some(held) = self.seen.get_mut(owner.key(), owner.hash(), &values)? else { continue };
            let due = held.value.partition_point(|at_ms| at_ms.saturating_add(ttl_ms) <= time_ms);
            held.value.drain(..due);
            if held.value.is_empty() {
                self.seen.remove(owner.key(), owner.hash())?;
            }
        }
        Ok(())
    }
}

impl Operator<RowsMedium> for Deduplicate {
    fn open(&mut self, (): (), cx: &TaskContext) -> Result<(), TaskError> {
        if self.ttl_ms.is_none() {
            return self.seen.open(STATE, cx);
        }
        self.expiries.open(EXPIRIES, 1, cx);
        self.seen.open_beside_timers(STATE, cx)
    }

    fn process<'m>(&mut self, _: RowRecord, flow: &mut Flow<'_, 'm>) -> Result<(), TaskError> {
        flow.refuse("takes records by key")
    }

    fn is_keyed(&self) -> bool {
        true
    }

    fn process_keyed(&mut self, record: &KeyedRecord<'_>, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let (time_ms, values) = (self.time_of(record, flow.now_ms)?, SeenValues(self.clock));
        let known = self.seen.get_mut(record.key, record.hash, &values)?;
        if known.is_some_and(|held| is_known((self.clock, self.ttl_ms), &held.value, time_ms)) {
            return Ok(());
        }
        let passed = &mut self.seen.get_or_insert_with(record, &values, Passed::new)?.value;
        passed.insert(passed.partition_point(|at_ms| *at_ms < time_ms), time_ms);
        if let Some(ttl_ms) = self.ttl_ms {
            self.expiries.register(time_ms.saturating_add(ttl_ms), TimerKey::of(record));
        }
        self.seen.make_room(&values)?;
        self.passed.add(record.value(), record.timestamp_ms, flow)
    }

    fn end_batch(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        self.passed.hand_on(flow)?;
        self.expiries.make_room()?;
        self.seen.end_batch(&SeenValues(self.clock))
    }

    fn on_watermark(&mut self, timestamp_ms: i64, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        // At the end of the input nothing is new any more, and a job that goes on from here finds all keys.
        if self.clock == Clock::Event && timestamp_ms < END_OF_TIME_MS {
            self.expire(timestamp_ms)?;
        }
        self.passed.hand_on(flow)
    }

    fn next_timer_ms(&self) -> Option<i64> {
        if self.clock == Clock::Processing { self.expiries.next_ms() } else { None }
    }

    fn on_timer(&mut self, now_ms: i64, _: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        if self.clock == Clock::Processing { self.expire(now_ms) } else { Ok(()) }
    }

    fn tally(&self, tally: &mut Tally) {
        tally.add_keys(self.seen.len());
        tally.add_timers(self.expiries.len());
    }

    fn snapshot(&mut self, (): (), to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        to.add_large((STATE, &[]), &mut self.seen, &SeenValues(self.clock))
    }

    fn restore(&mut self, (): (), from: &Restored<'_>) -> Result<(), TaskError> {
        let Self { seen, expiries, ttl_ms, clock, .. } = self;
        let values = SeenValues(*clock);
        from.read_large(STATE, seen, &values)?;
        let Some(ttl_ms) = *ttl_ms else { return Ok(()) };
        seen.each(&values, |key, held: &Held<Passed>| {
            for at_ms in &held.value {
                expiries.register(at_ms.saturating_add(ttl_ms), TimerKey::held(key, held.given()));
            }
            expiries.make_room()
        })
    }
}

/// Whether a row that passed is near enough for one of this time to be no new one.
fn is_known((clock, ttl_ms): (Clock, Option<i64>), passed: &Passed, time_ms: i64) -> bool {
    match (clock, ttl_ms) {
        (Clock::Event, Some(ttl_ms)) => {
            let next = passed.partition_point(|at_ms| *at_ms < time_ms);
            let mut nearest = passed[next.saturating_sub(1)..].iter().take(2);
            nearest.any(|at_ms| at_ms.abs_diff(time_ms) < ttl_ms.unsigned_abs())
        }
        _ => !passed.is_empty(),
    }
}

/// What its state is called.
const STATE: &str = "seen";
/// And what the timers are called that forget keys, for errors.
const EXPIRIES: &str = "timers of seen";
