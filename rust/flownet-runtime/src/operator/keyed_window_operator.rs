//! Folds windows that belong to a single key: sessions, windows with a trigger of the user or without end, and those
//! whose values cannot be merged from slices.
//!
//! # Invariants
//! - I1: each key with an open window has an entry in the queue of each clock. The entry is no later than the first
//!   time at which one of its windows is due by that clock.
//! - I2: lateness is decided after windows have merged.

mod at;
mod calls;
mod plan;

use std::hint::black_box;
use std::sync::Arc;

use self::at::{WindowScope, index};
pub use self::calls::{Assigner, Calls, FiringRule, Trigger, TriggerCall, TriggeredWindow};
pub use self::plan::{over_windows, over_windows_of_two};
use super::late_records::LateRecords;
use super::slice_window_operator::BREATH_RECORDS;
use super::{Collector, EventTime, Fold, InspectedState, KeyedOperator, KeyedRecord, Operator, RecordFormat};
use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::snapshot::{Input, IsOver, RestoredState, Snapshot};
use crate::state::{KeyGroupRange, LargeState, Values};
use crate::state_stats::StateStats;
use crate::time::{Clock, END_OF_TIME_MS, NO_TIMESTAMP};
use crate::timer::{TimerKey, TimerService};
use crate::window::{BuiltIn, Window, WindowsOfKey};
use crate::work::Work;

/// A fold over windows of each key.
pub struct KeyedWindowOperator<F, V, C, T> {
    fold: F,
    calls: C,
    clock: Clock,
    assigner: Assigner,
    trigger: Trigger,
    lateness_ms: i64,
    late: LateRecords,
    keys: LargeState<WindowsOfKey<V, T>>,
    /// Keys with due times, by clock.
    queues: [TimerService<TimerKey>; 2],
    time: EventTime,
    /// The last millisecond that is over on the wall clock.
    wall_ms: i64,
    scratch: Vec<Window>,
}

impl<F, V, C, T> KeyedWindowOperator<F, V, C, T> {
    /// An operator for the keys of these groups. Lateness and its tags are as in
    /// [`SliceWindowOperator`](super::SliceWindowOperator).
    pub fn new(
        (fold, calls): (F, C),
        (assigner, trigger, clock): (Assigner, Trigger, Clock),
        (lateness_ms, late_tags): (i64, [Option<Arc<str>>; 2]),
        range: KeyGroupRange,
    ) -> Self {
        Self {
            fold,
            calls,
            clock,
            assigner,
            trigger,
            lateness_ms,
            late: LateRecords::new(late_tags),
            keys: LargeState::new(range),
            queues: [TimerService::new(), TimerService::new()],
            time: EventTime::new(),
            wall_ms: i64::MIN,
            scratch: Vec::new(),
        }
    }

    /// Time on the clock of the windows, for the keys of this hash.
    fn clock_ms(&self, hash: u32) -> i64 {
        match self.clock {
            Clock::Event => self.time.of(hash),
            Clock::Processing => self.wall_ms,
        }
    }
}

/// Encodes and decodes the windows of keys.
struct WindowValues<'a, 'm, M: RecordFormat, F, C> {
    fold: &'a F,
    calls: &'a C,
    token: M::Token<'m>,
    clock: Clock,
    lateness_ms: i64,
}

impl<M, F, C> Values<WindowsOfKey<F::Value, C::TriggerState>> for WindowValues<'_, '_, M, F, C>
where
    M: RecordFormat,
    F: Fold<M>,
    C: Calls<M>,
{
    fn write(
        &self,
        key: &[u8],
        windows: &WindowsOfKey<F::Value, C::TriggerState>,
        out: &mut Vec<u8>,
    ) -> Result<(), TaskError> {
        windows.write(out, |cell, out| {
            self.fold.write(self.token, key, &cell.value, out)?;
            self.calls.write_kept(self.token, key, &cell.kept, out)
        })
    }

    /// Loads the window list of each key first, and then the values that the windows refer to.
    fn look_at<'v>(&self, values: impl Iterator<Item = &'v WindowsOfKey<F::Value, C::TriggerState>> + Clone)
    where
        F::Value: 'v,
        C::TriggerState: 'v,
    {
        for windows in values.clone() {
            black_box(windows.iter().next().map(|cell| cell.window));
        }
        self.fold.look_at(self.token, values.flat_map(|windows| windows.iter().map(|cell| &cell.value)));
    }

    /// The key was queued when its windows were spilled, or is queued when they are restored. Either time is early
    /// enough (I1).
    fn read(&self, input: &mut Input<'_>) -> Result<WindowsOfKey<F::Value, C::TriggerState>, TaskError> {
        let mut windows = WindowsOfKey::read(input, |input| {
            Ok::<_, TaskError>((self.fold.read(self.token, input)?, self.calls.read_kept(self.token, input)?))
        })?;
        windows.asked_ms = [0, 1].map(|clock| windows.next_ms(clock, index(self.clock), self.lateness_ms));
        Ok(windows)
    }

    fn pass(&self, input: &mut Input<'_>) -> Result<(), TaskError> {
        let pass = |input: &mut Input<'_>| {
            self.fold.pass(self.token, input)?;
            self.calls.pass_kept(self.token, input).map(|()| ((), ()))
        };
        WindowsOfKey::read::<TaskError>(input, pass).map(drop)
    }
}

impl<'a, 'm, M: RecordFormat, F, C> WindowValues<'a, 'm, M, F, C> {
    fn new((fold, calls): (&'a F, &'a C), (clock, lateness_ms): (Clock, i64), token: M::Token<'m>) -> Self {
        Self { fold, calls, token, clock, lateness_ms }
    }
}

impl<F, V, C, T> KeyedWindowOperator<F, V, C, T> {
    /// Returns the time of a record. For global windows that is its event time, if it has one. For others it is the
    /// time of their clock.
    fn time_of(&mut self, record: &KeyedRecord<'_>, now_ms: i64) -> i64 {
        match self.clock {
            Clock::Event => record.timestamp_ms,
            Clock::Processing => {
                self.wall_ms = self.wall_ms.max(now_ms.saturating_sub(1));
                let has_own_time = self.assigner.spans_all_time() && record.timestamp_ms != NO_TIMESTAMP;
                if has_own_time { record.timestamp_ms } else { self.wall_ms.saturating_add(1) }
            }
        }
    }

    /// Absorbs a record that only extends a session. All other records take the slower path.
    #[inline]
    fn lengthen<M>(&mut self, record: &KeyedRecord<'_>, now_ms: i64) -> bool
    where
        M: RecordFormat,
        F: Fold<M, Value = V>,
        V: Default + Send,
        T: Default,
    {
        let (Assigner::Session(Some(gap_ms)), FiringRule::BuiltIn(BuiltIn::AtEnd)) = (self.assigner, self.trigger.when)
        else {
            return false;
        };
        let timestamp_ms = self.time_of(record, now_ms);
        if timestamp_ms == NO_TIMESTAMP {
            return false;
        }
        let clock_ms = self.clock_ms(record.hash);
        let last_ms = timestamp_ms.saturating_add(self.fold.span_ms(record));
        let window = Window { start_ms: timestamp_ms, end_ms: last_ms.saturating_add(gap_ms) };
        let held = self.keys.get_held_mut(record.key, record.hash);
        let Some(cell) = held.and_then(|held| held.value.longer(window)) else { return false };
        // A session that has fired has to fire again with this record, so it takes the slower path.
        if cell.window.max_ms() <= clock_ms || !self.fold.absorb(record, &mut cell.value) {
            return false;
        }
        // The key is due when the session would have ended without the record, which is early enough (I1).
        cell.lengthen(window.end_ms);
        true
    }

    /// Fires the windows of all keys that are due by a clock.
    fn fire_due<M>(&mut self, clock: Clock, time_ms: i64, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError>
    where
        M: RecordFormat,
        F: Fold<M, Value = V>,
        C: Calls<M, TriggerState = T>,
        V: Default + Send,
        T: Default + Send,
    {
        for number in 1_usize.. {
            let Some((due_ms, owner)) = self.queues[index(clock)].pop_due(time_ms)? else { break };
            collector.cancel().check()?;
            if number.is_multiple_of(BREATH_RECORDS) {
                collector.yield_token();
            }
            self.look_at(&owner, clock, due_ms.max(time_ms), collector)?;
            self.make_room_for_timers()?;
        }
        Ok(())
    }

    #[inline]
    fn make_room_for_timers(&mut self) -> Result<(), TaskError> {
        self.queues.iter_mut().try_for_each(TimerService::make_room)
    }

    fn look_at<M>(
        &mut self,
        owner: &TimerKey,
        clock: Clock,
        time_ms: i64,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError>
    where
        M: RecordFormat,
        F: Fold<M, Value = V>,
        C: Calls<M, TriggerState = T>,
        V: Default + Send,
        T: Default + Send,
    {
        let (hash, clock_ms, watermark_ms) = (owner.hash(), self.clock_ms(owner.hash()), self.time.of(owner.hash()));
        let values =
            WindowValues::<M, F, C>::new((&self.fold, &self.calls), (self.clock, self.lateness_ms), collector.token);
        let Some(held) = self.keys.get_mut(owner.key(), hash, &values)? else { return Ok(()) };
        self.fold.on_watermark(watermark_ms);
        let mut at = WindowScope {
            fold: &mut self.fold,
            calls: &mut self.calls,
            trigger: self.trigger,
            clock: self.clock,
            clock_ms,
            watermark_ms,
            key: owner.key_value(),
        };
        let windows = &mut held.value;
        windows.asked_ms[index(clock)] = None;
        let mut place = 0;
        while let Some(cell) = windows.cells().get_mut(place) {
            let over_ms = cell.over_ms(self.lateness_ms);
            if at.look(cell, (clock, time_ms, over_ms), collector)? {
                let mut cell = windows.close(place);
                at.ask(TriggerCall::Clear, &mut cell, collector)?;
                at.fold.clear(cell.window, owner.key_value(), cell.value, collector)?;
            } else {
                place += 1;
            }
        }
        if windows.is_empty() {
            self.keys.remove(owner.key(), hash)?;
        } else {
            ask_for(windows, &mut self.queues, self.clock, self.lateness_ms, || owner.clone());
        }
        self.keys.make_room(&WindowValues::<M, F, C>::new(
            (&self.fold, &self.calls),
            (self.clock, self.lateness_ms),
            collector.token,
        ))
    }

    /// Collects the windows of a record in `scratch`.
    fn assign<M>(
        &mut self,
        record: &KeyedRecord<'_>,
        timestamp_ms: i64,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError>
    where
        M: RecordFormat,
        F: Fold<M>,
        C: Calls<M>,
    {
        self.scratch.clear();
        match self.assigner {
            Assigner::Grid(grid) if grid.spans_all_time() => self.scratch.extend(grid.windows_of(0)),
            Assigner::Grid(grid) => self.scratch.extend(grid.windows_of(timestamp_ms)),
            Assigner::Global => self.scratch.push(Window::GLOBAL),
            Assigner::Session(gap_ms) => {
                let gap_ms = match gap_ms {
                    Some(gap_ms) => gap_ms,
                    None => self.calls.gap_ms(record, collector)?,
                };
                let last_ms = timestamp_ms.saturating_add(self.fold.span_ms(record));
                self.scratch.push(Window { start_ms: timestamp_ms, end_ms: last_ms.saturating_add(gap_ms) });
            }
        }
        Ok(())
    }
}

/// Queues a key for the next times at which its windows are due.
fn ask_for<V: Default, T: Default>(
    windows: &mut WindowsOfKey<V, T>,
    queues: &mut [TimerService<TimerKey>; 2],
    window_clock: Clock,
    lateness_ms: i64,
    owner: impl Fn() -> TimerKey,
) {
    for clock in [0, 1] {
        let Some(next_ms) = windows.next_ms(clock, index(window_clock), lateness_ms) else { continue };
        if windows.asked_ms[clock].is_none_or(|asked_ms| next_ms < asked_ms) {
            windows.asked_ms[clock] = Some(next_ms);
            queues[clock].register(next_ms, owner());
        }
    }
}

impl<M, F, C> Operator<M> for KeyedWindowOperator<F, F::Value, C, C::TriggerState>
where
    M: RecordFormat,
    F: Fold<M>,
    C: Calls<M>,
{
    fn work(&self) -> Work {
        self.fold.work()
    }

    fn open(&mut self, token: M::Token<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.late.open(cx);
        self.keys.open_beside_timers(STATE, cx)?;
        self.queues.iter_mut().for_each(|queue| queue.open(TIMERS, 2, cx));
        self.calls.open(token, cx)?;
        self.fold.open(token, cx)
    }

    fn process<'m>(&mut self, _: M::Record<'m>, collector: &mut Collector<'_, 'm, M>) -> Result<(), TaskError> {
        collector.refuse("takes records by key")
    }

    fn end_batch(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        self.fold.hand_on(collector)?;
        self.make_room_for_timers()?;
        self.keys.end_batch(&WindowValues::<M, F, C>::new(
            (&self.fold, &self.calls),
            (self.clock, self.lateness_ms),
            collector.token,
        ))
    }

    fn on_watermark(&mut self, timestamp_ms: i64, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let watermark_ms = self.time.advance(timestamp_ms);
        self.fold.on_watermark(watermark_ms);
        self.fire_due(Clock::Event, watermark_ms, collector)?;
        self.fold.hand_on(collector)
    }

    fn next_timer_ms(&self) -> Option<i64> {
        let next_ms = self.queues[index(Clock::Processing)].next_ms()?;
        (next_ms < i64::MAX).then(|| next_ms.saturating_add(1))
    }

    fn on_timer(&mut self, now_ms: i64, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        self.wall_ms = self.wall_ms.max(now_ms.saturating_sub(1));
        self.fire_due(Clock::Processing, self.wall_ms, collector)
    }

    fn finish(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let wall_ms = std::mem::replace(&mut self.wall_ms, END_OF_TIME_MS);
        self.fire_due(Clock::Processing, END_OF_TIME_MS, collector)?;
        // State stores the clock and not the end of time, because a resumed job may have more input.
        self.wall_ms = wall_ms;
        self.fold.hand_on(collector)
    }

    fn tally(&self, tally: &mut StateStats) {
        tally.add_keys(self.keys.len());
        tally.add_timers(self.queues.iter().map(TimerService::len).sum());
    }

    fn inspect<'m>(&self, token: M::Token<'m>, found: &mut InspectedState<M::Record<'m>>) -> Result<(), TaskError> {
        let values = WindowValues::<M, F, C>::new((&self.fold, &self.calls), (self.clock, self.lateness_ms), token);
        self.keys.each(&values, |key, held| {
            let key = held.key_value(key);
            for cell in held.value.iter() {
                let of = (key, Some(cell.window));
                self.fold.inspect_value(token, of, &cell.value, found)?;
                self.calls.inspect(token, of, &cell.kept, found)?;
                for clock in [Clock::Processing, Clock::Event] {
                    for at_ms in cell.pending(index(clock), index(self.clock)) {
                        found.add_timer(clock, at_ms, Some(key), Some(cell.window));
                    }
                }
            }
            Ok(())
        })?;
        self.fold.inspect(token, found)
    }

    fn snapshot(&mut self, token: M::Token<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        let values = WindowValues::<M, F, C>::new((&self.fold, &self.calls), (self.clock, self.lateness_ms), token);
        to.begin_large(STATE, &[self.time.kept_ms(), self.wall_ms], &mut self.keys, &values)?;
        self.time.snapshot(to)?;
        self.fold.snapshot(token, to)
    }

    fn abort(&mut self, _: M::Token<'_>, checkpoint_id: u64) -> Result<(), TaskError> {
        self.keys.abort(checkpoint_id);
        Ok(())
    }

    /// If the former subtasks had reached different wall-clock times, the earliest counts: nothing is lost.
    fn restore(&mut self, token: M::Token<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        let values = WindowValues::<M, F, C>::new((&self.fold, &self.calls), (self.clock, self.lateness_ms), token);
        let headers = from.read_large(STATE, &mut self.keys, &values)?;
        let mut wall_ms: Option<i64> = None;
        for mut header in headers {
            let (_, of_part) = (header.signed()?, header.signed()?);
            wall_ms = Some(wall_ms.map_or(of_part, |least_ms| least_ms.min(of_part)));
        }
        self.keys.each(&values, |key, held| {
            for (queue, asked_ms) in self.queues.iter_mut().zip(held.value.asked_ms) {
                asked_ms.into_iter().for_each(|at_ms| queue.register(at_ms, TimerKey::held(key, held.given())));
                queue.make_room()?;
            }
            Ok(())
        })?;
        self.wall_ms = wall_ms.unwrap_or(self.wall_ms);
        self.time.restore(from, STATE, self.keys.range())?;
        self.fold.on_watermark(self.time.watermark_ms());
        self.fold.restore(token, from)
    }

    fn close(&mut self, token: M::Token<'_>) -> Result<(), TaskError> {
        self.fold.close(token)
    }
}

impl<M, F, C> KeyedOperator<M> for KeyedWindowOperator<F, F::Value, C, C::TriggerState>
where
    M: RecordFormat,
    F: Fold<M>,
    C: Calls<M>,
{
    fn process_keyed(
        &mut self,
        record: &KeyedRecord<'_>,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError> {
        if self.lengthen(record, collector.now_ms) {
            return Ok(());
        }
        let timestamp_ms = self.time_of(record, collector.now_ms);
        if timestamp_ms == NO_TIMESTAMP {
            return Err(self.fold.without_timestamp(collector.token, record));
        }
        let record = &record.at(timestamp_ms, record.side);
        self.assign(record, timestamp_ms, collector)?;
        let (clock_ms, lateness_ms, watermark_ms) =
            (self.clock_ms(record.hash), self.lateness_ms, self.time.of(record.hash));
        let is_over =
            |window: Window| window.max_ms() != i64::MAX && window.max_ms().saturating_add(lateness_ms) <= clock_ms;
        let merges = matches!(self.assigner, Assigner::Session(_));
        let values =
            WindowValues::<M, F, C>::new((&self.fold, &self.calls), (self.clock, self.lateness_ms), collector.token);
        let held = self.keys.get_or_insert_with(record, &values, WindowsOfKey::default)?;
        let mut at = WindowScope {
            fold: &mut self.fold,
            calls: &mut self.calls,
            trigger: self.trigger,
            clock: self.clock,
            clock_ms,
            watermark_ms,
            key: record.key_value(),
        };
        let windows = &mut held.value;
        let (mut is_late, assigned) = (true, self.scratch.len());
        for window in self.scratch.drain(..) {
            // Lateness is decided for the merged window (I2).
            let window = if merges { windows.cover(window) } else { window };
            if is_over(window) {
                continue;
            }
            is_late = false;
            let place = if merges {
                let built_in = match at.trigger.when {
                    FiringRule::BuiltIn(trigger) => trigger,
                    FiringRule::Own => BuiltIn::Never,
                };
                let mut has_merged = false;
                let place = windows.merge(window, built_in, |cell, other| {
                    has_merged = true;
                    at.fold.merge(collector.token, &mut cell.value, &other.value)?;
                    at.calls.merge_kept(cell.window, &mut cell.kept, other.kept, collector.token)
                })?;
                if has_merged {
                    at.ask(TriggerCall::Merged, &mut windows.cells()[place], collector)?;
                }
                place
            } else {
                windows.open(window)
            };
            let cell = &mut windows.cells()[place];
            if !at.fold.absorb(record, &mut cell.value) {
                at.fold.fold(collector.token, record, &mut cell.value)?;
            }
            let result = at.ask(TriggerCall::Record(record), cell, collector)?;
            at.follow(result, cell, collector)?;
        }
        if windows.is_empty() {
            self.keys.remove(record.key, record.hash)?;
        } else {
            ask_for(windows, &mut self.queues, self.clock, lateness_ms, || TimerKey::of(record));
        }
        // A record in a gap between windows is not late.
        if !is_late || assigned == 0 {
            return Ok(());
        }
        self.late.take_from(&self.fold, record, collector)
    }

    #[inline]
    fn process_detached(&mut self, record: &KeyedRecord<'_>, now_ms: i64) -> Result<bool, TaskError> {
        Ok(self.lengthen(record, now_ms))
    }

    fn is_writing(&self) -> bool {
        self.keys.is_writing()
    }

    fn write_on(&mut self, token: M::Token<'_>, to: &mut Snapshot<'_>, is_over: IsOver<'_>) -> Result<(), TaskError> {
        let values = WindowValues::<M, F, C>::new((&self.fold, &self.calls), (self.clock, self.lateness_ms), token);
        to.write_on(STATE, &mut self.keys, &values, is_over)
    }
}

/// Name of its state.
const STATE: &str = "windows";
/// Name of the timers by which keys are due, for errors.
const TIMERS: &str = "timers of windows";
