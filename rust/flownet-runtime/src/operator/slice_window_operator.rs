//! Folds aligned windows of either clock, which begin and end for all keys alike and fire once, at their end.

mod on_disk;

use std::sync::Arc;

use flownet_core::keygroup::hash_key;

use super::fold::FoldValues;
use super::late_records::LateRecords;
use super::{Collector, EventTime, Fold, InspectedState, KeyedOperator, KeyedRecord, Operator, RecordFormat};
use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::snapshot::{Groups, RestoredState, Snapshot, in_rows, put_key, put_signed};
use crate::state::{KeyEntry, KeyGroupRange, Spill};
use crate::state_stats::StateStats;
use crate::time::{Clock, END_OF_TIME_MS, NO_TIMESTAMP};
use crate::window::{
    AlignedWindows, Pane, RollingWindow, SliceEntry, SlicePlacement, SliceRole, SlicedWindows, Sums, Window,
};
use crate::work::Work;

/// Number of results after which other threads may be attached: a window may have millions.
pub(super) const BREATH_RECORDS: usize = 1024;

/// A fold over aligned windows.
pub struct SliceWindowOperator<F, V> {
    fold: F,
    clock: Clock,
    /// Unused for windows of the wall clock.
    time: EventTime,
    windows: SlicedWindows<KeyEntry<V>>,
    /// Values that do not fit in memory, if the job stores them on disk.
    spill: Option<Box<Spill>>,
    /// The window that fired last, if the next one shares much of it.
    rolling: Option<RollingWindow<KeyEntry<V>>>,
    late: LateRecords,
    range: Option<KeyGroupRange>,
}

/// With fewer slices, merging all slices is as fast as updating the last window.
const FEW_SLICES: i64 = 3;

impl<F, V: Default> SliceWindowOperator<F, V> {
    /// `lateness_ms` is the time for which a fired window still accepts records. Later records go to the side output of
    /// their input's tag. Without a tag they are dropped and counted.
    pub fn new<M>(
        fold: F,
        clock: Clock,
        grid: AlignedWindows,
        lateness_ms: i64,
        late_tags: [Option<Arc<str>>; 2],
    ) -> Self
    where
        M: RecordFormat,
        F: Fold<M, Value = V>,
    {
        let lasts = fold.part(&V::default()) != SliceRole::Shared;
        let rolling = (lasts && grid.slices_a_window() >= FEW_SLICES).then(RollingWindow::new);
        Self {
            fold,
            clock,
            time: EventTime::new(),
            windows: SlicedWindows::new(grid, lateness_ms),
            spill: None,
            rolling,
            late: LateRecords::new(late_tags),
            range: None,
        }
    }
}

impl<F, V> SliceWindowOperator<F, V> {
    /// The time of a record on the clock of the windows. The wall clock never moves back here.
    #[inline]
    fn time_of(&self, record: &KeyedRecord<'_>, now_ms: i64) -> i64 {
        match self.clock {
            Clock::Event => record.timestamp_ms,
            // The millisecond before this one is over on this clock.
            Clock::Processing => now_ms.max(self.windows.clock_ms().saturating_add(1)),
        }
    }

    fn fire<M>(&mut self, window: Window, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError>
    where
        M: RecordFormat,
        F: Fold<M, Value = V>,
        V: Default + Send,
    {
        collector.timestamp_ms = window.max_ms();
        if let Some(pane) = self.windows.take(window) {
            self.give_out_taken(window, &pane, collector)?;
            return give_out(&mut self.fold, (window, &self.time), pane, collector);
        }
        if self.is_in_part_on_disk(window) {
            self.rolling.iter_mut().for_each(RollingWindow::clear);
            return self.give_out_merged(window, collector);
        }
        // A window without end is the only window, so no other one can reuse it.
        if let Some(rolling) = self.rolling.as_mut().filter(|_| window.end_ms < i64::MAX) {
            rolling.roll_to(window, self.windows.slices(), &mut FoldOf::new(&self.fold, collector))?;
            return give_out_rolling(&mut self.fold, window, &self.time, rolling, collector);
        }
        let (token, mut merged) = (collector.token, 0);
        let whole = self.put_together(window, token, || breathe_now_and_then(&mut merged, collector))?;
        give_out(&mut self.fold, (window, &self.time), whole, collector)
    }

    /// Merges the slices of a window.
    fn put_together<M>(
        &self,
        window: Window,
        token: M::Token<'_>,
        mut between: impl FnMut() -> Result<(), TaskError>,
    ) -> Result<Pane<KeyEntry<V>>, TaskError>
    where
        M: RecordFormat,
        F: Fold<M, Value = V>,
        V: Default + Send,
    {
        let mut whole: Pane<KeyEntry<V>> = Pane::default();
        for (_, slice) in self.windows.slices_of(window) {
            for (key, hash, held) in slice.entries() {
                between()?;
                let merged = whole.value_of(key, hash, || held.of_same_key(V::default()));
                self.fold.merge(token, &mut merged.value, &held.value)?;
            }
        }
        Ok(whole)
    }

    fn fire_due<M>(&mut self, clock_ms: i64, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError>
    where
        M: RecordFormat,
        F: Fold<M, Value = V>,
        V: Default + Send,
    {
        self.windows.advance(clock_ms);
        while let Some(window) = self.windows.next_due() {
            self.fire(window, collector)?;
        }
        while let Some((start_ms, slice)) = self.windows.pop_expired() {
            if let Some(spill) = &mut self.spill {
                spill.disk_mut().forget_slice(start_ms, slice.on_disk());
            }
            if let Some(rolling) = &mut self.rolling {
                rolling.leave(start_ms, &slice, &mut FoldOf::new(&self.fold, collector));
            }
        }
        if self.windows.is_empty() {
            self.rolling.iter_mut().for_each(RollingWindow::clear);
        }
        Ok(())
    }

    /// A slice has received a record.
    #[inline]
    fn touch(&mut self, record: &KeyedRecord<'_>) {
        if let Some(rolling) = &mut self.rolling {
            rolling.touch(record.key, record.hash, record.timestamp_ms);
        }
    }

    /// Emits the windows of a late record again, with this record in them.
    fn fire_again<M>(&mut self, record: &KeyedRecord<'_>, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError>
    where
        M: RecordFormat,
        F: Fold<M, Value = V>,
        V: Default + Send,
    {
        let clock_ms = self.time.ahead_of(record.hash).unwrap_or(self.windows.clock_ms());
        if self.clock == Clock::Event {
            self.fold.on_watermark(clock_ms);
        }
        let again: Vec<_> = self.windows.firing_again(record.timestamp_ms, clock_ms).collect();
        for window in again {
            let mut whole: Option<KeyEntry<V>> = None;
            for (start_ms, slice) in self.windows.slices_of(window) {
                let read;
                let held = match (slice.get(record.key, record.hash), &self.spill) {
                    (None, Some(spill)) if slice.on_disk() > 0 => {
                        let values = FoldValues::<M, F> { fold: &self.fold, token: collector.token };
                        read = spill.look_up((Some(*start_ms), record.key, record.hash), &values)?;
                        read.as_ref()
                    }
                    (held, _) => held,
                };
                if let Some(held) = held {
                    let merged = whole.get_or_insert_with(|| held.of_same_key(V::default()));
                    self.fold.merge(collector.token, &mut merged.value, &held.value)?;
                }
            }
            if let Some(mut whole) = whole {
                let before = std::mem::replace(&mut collector.timestamp_ms, window.max_ms());
                let KeyEntry { value, .. } = &mut whole;
                self.fold.emit(window, record.key_value(), value, collector)?;
                collector.timestamp_ms = before;
            }
        }
        Ok(())
    }
}

/// Returns true if a window has already fired for a key, because the key is ahead of the watermark.
#[inline]
fn has_fired(window: Window, time: &EventTime, key: &[u8]) -> bool {
    time.has_ahead() && time.ahead_of(hash_key(key)).is_some_and(|time_ms| window.max_ms() <= time_ms)
}

/// Returns the value that a record belongs to.
#[inline]
fn add<'a, V: Default>(
    windows: &'a mut SlicedWindows<KeyEntry<V>>,
    time: &EventTime,
    record: &KeyedRecord<'_>,
) -> SlicePlacement<'a, KeyEntry<V>> {
    let (key, hash, timestamp_ms) = (record.key, record.hash, record.timestamp_ms);
    let empty = || KeyEntry::new(record, V::default());
    match time.ahead_of(hash) {
        None => windows.add(key, hash, timestamp_ms, empty),
        Some(clock_ms) => windows.add_ahead(clock_ms, key, hash, timestamp_ms, empty),
    }
}

fn give_out<M: RecordFormat, F: Fold<M>>(
    fold: &mut F,
    (window, time): (Window, &EventTime),
    pane: Pane<KeyEntry<F::Value>>,
    collector: &mut Collector<'_, '_, M>,
) -> Result<(), TaskError> {
    for (number, (key, held)) in (1_usize..).zip(pane.into_entries()) {
        collector.cancel().check()?;
        if number.is_multiple_of(BREATH_RECORDS) {
            collector.yield_token();
        }
        let key = key.as_slice();
        if has_fired(window, time, key) {
            continue;
        }
        let (given, mut value) = held.into_parts();
        fold.emit(window, given.as_deref().unwrap_or(key), &mut value, collector)?;
    }
    Ok(())
}

/// The same for the window that was rolled forward.
fn give_out_rolling<M: RecordFormat, F: Fold<M>>(
    fold: &mut F,
    window: Window,
    time: &EventTime,
    rolling: &mut RollingWindow<KeyEntry<F::Value>>,
    collector: &mut Collector<'_, '_, M>,
) -> Result<(), TaskError> {
    let mut number = 0_usize;
    rolling.each(|key, held| {
        collector.cancel().check()?;
        number += 1;
        if number.is_multiple_of(BREATH_RECORDS) {
            collector.yield_token();
        }
        if !has_fired(window, time, key) {
            let (key, value) = held.shown(key);
            fold.emit(window, key, value, collector)?;
        }
        Ok(fold.part(&held.value))
    })
}

/// Checks for a cancel and lets other threads attach from time to time, because a window may have millions of keys.
#[inline]
fn breathe_now_and_then<M: RecordFormat>(
    merged: &mut usize,
    collector: &mut Collector<'_, '_, M>,
) -> Result<(), TaskError> {
    *merged += 1;
    if merged.is_multiple_of(BREATH_RECORDS) {
        collector.cancel().check()?;
        collector.yield_token();
    }
    Ok(())
}

/// A fold that merges the slices of windows.
struct FoldOf<'a, 'f, 'm, M: RecordFormat, F> {
    fold: &'a F,
    collector: &'a mut Collector<'f, 'm, M>,
    merged: usize,
}

impl<'a, 'f, 'm, M: RecordFormat, F: Fold<M>> FoldOf<'a, 'f, 'm, M, F> {
    fn new(fold: &'a F, collector: &'a mut Collector<'f, 'm, M>) -> Self {
        Self { fold, collector, merged: 0 }
    }
}

impl<M: RecordFormat, F: Fold<M>> Sums<KeyEntry<F::Value>> for FoldOf<'_, '_, '_, M, F> {
    type Error = TaskError;

    fn empty(&self, part: &KeyEntry<F::Value>) -> KeyEntry<F::Value> {
        part.of_same_key(F::Value::default())
    }

    #[inline]
    fn add(&mut self, to: &mut KeyEntry<F::Value>, part: &KeyEntry<F::Value>) -> Result<(), TaskError> {
        breathe_now_and_then(&mut self.merged, self.collector)?;
        self.fold.merge(self.collector.token, &mut to.value, &part.value)
    }

    #[inline]
    fn take_out(&self, from: &mut KeyEntry<F::Value>, part: &KeyEntry<F::Value>) -> bool {
        self.fold.take_out(&mut from.value, &part.value)
    }

    #[inline]
    fn part(&self, held: &KeyEntry<F::Value>) -> SliceRole {
        match self.fold.part(&held.value) {
            // A window shows the key in the form that its first slice got. Only the slices themselves know which form
            // that is.
            SliceRole::Exact if held.given().is_some() => SliceRole::Fixed,
            part => part,
        }
    }
}

impl<M: RecordFormat, F: Fold<M>> Operator<M> for SliceWindowOperator<F, F::Value> {
    fn work(&self) -> Work {
        self.fold.work()
    }

    fn open(&mut self, token: M::Token<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.late.open(cx);
        self.range = Some(cx.key_group_range);
        self.open_on_disk(cx)?;
        self.fold.open(token, cx)
    }

    fn process<'m>(&mut self, _: M::Record<'m>, collector: &mut Collector<'_, 'm, M>) -> Result<(), TaskError> {
        collector.refuse("takes records by key")
    }

    fn on_watermark(&mut self, timestamp_ms: i64, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let watermark_ms = timestamp_ms.max(self.time.watermark_ms());
        self.fold.on_watermark(watermark_ms);
        if self.clock == Clock::Event {
            self.fire_due(watermark_ms, collector)?;
        }
        // Until here, `time` still shows for which keys these windows have fired.
        self.time.advance(watermark_ms);
        self.fold.hand_on(collector)
    }

    fn end_batch(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        self.fold.hand_on(collector)?;
        if self.spill.is_some() { self.make_room_behind_batch::<M>(collector.token) } else { Ok(()) }
    }

    fn next_timer_ms(&self) -> Option<i64> {
        if self.clock == Clock::Event {
            return None;
        }
        // A window of the wall clock is over one millisecond after its last one.
        self.windows.next_due_ms().map(|due_ms| due_ms.saturating_add(1))
    }

    fn on_timer(&mut self, now_ms: i64, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        if self.clock == Clock::Processing { self.fire_due(now_ms.saturating_sub(1), collector) } else { Ok(()) }
    }

    fn finish(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        let clock_ms = match self.clock {
            Clock::Event => self.time.kept_ms(),
            Clock::Processing => self.windows.clock_ms(),
        };
        self.fire_due(END_OF_TIME_MS, collector)?;
        // State stores the clock and not the end of time, because a resumed job may have more input.
        self.windows.set_time(clock_ms, clock_ms);
        self.fold.hand_on(collector)
    }

    fn tally(&self, tally: &mut StateStats) {
        tally.add_keys(self.windows.len() + self.windows.on_disk());
    }

    fn inspect<'m>(&self, token: M::Token<'m>, found: &mut InspectedState<M::Record<'m>>) -> Result<(), TaskError> {
        for window in self.windows.open_windows() {
            let mut show = |key: &[u8], held: &KeyEntry<F::Value>| {
                self.fold.inspect_value(token, (held.key_value(key), Some(window)), &held.value, found)
            };
            if self.is_in_part_on_disk(window) {
                self.each_merged(window, token, show)?;
            } else {
                let whole = self.put_together(window, token, || Ok(()))?;
                whole.entries().try_for_each(|(key, _, held)| show(key, held))?;
            }
            if self.windows.is_pending(window) {
                found.add_timer(self.clock, window.max_ms(), None, Some(window));
            }
        }
        self.fold.inspect(token, found)
    }

    fn snapshot(&mut self, token: M::Token<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        let Some(range) = self.range else { return Ok(()) };
        let touched = to
            .base(self.windows.changes())
            .and_then(|base| Some((base, on_disk::few_touched_since(&self.windows, self.spill.as_deref(), base)?)));
        let base = touched.as_ref().map(|(base, _)| *base);
        let oldest = self.windows.changes().oldest();
        let on_disk = self.spill.as_mut().map_or(Ok(None), |spill| spill.view(base, oldest))?;
        let mut groups = Groups::new(range);
        put_signed(&mut groups.header, self.windows.clock_ms());
        put_signed(&mut groups.header, self.windows.fired_ms());
        if base.is_some() || on_disk.is_some() {
            put_signed(&mut groups.header, self.windows.begin_ms());
        }
        let look_at = |row: &[SliceEntry<'_, KeyEntry<F::Value>>]| {
            self.fold.look_at(token, row.iter().map(|(.., held)| &held.value));
        };
        let write = |(start_ms, key, hash, held): &SliceEntry<'_, KeyEntry<F::Value>>| {
            to.note_key(key);
            let out = groups.of(*hash)?;
            put_signed(out, *start_ms);
            put_key(out, key, held.given());
            self.fold.write(token, held.key_value(key), &held.value, out)
        };
        match touched {
            None => in_rows(self.windows.all(), look_at, write)?,
            Some((_, touched)) => in_rows(touched.into_iter(), look_at, write)?,
        }
        to.add_upon(base, on_disk, STATE, groups, self.windows.changes_mut());
        if self.clock == Clock::Event {
            self.time.snapshot(to)?;
        }
        self.fold.snapshot(token, to)
    }

    /// If the former subtasks had reached different wall-clock times, the earliest counts: nothing is lost.
    fn restore(&mut self, token: M::Token<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        let time = self.put_back::<M>(token, from)?;
        if let Some((clock_ms, fired_ms)) = time {
            self.windows.set_time(clock_ms, fired_ms);
        }
        if let Some(range) = self.range.filter(|_| self.clock == Clock::Event) {
            self.time.restore(from, STATE, range)?;
            // All keys of this subtask may be ahead of the subtask that wrote their state.
            let watermark_ms = self.time.watermark_ms();
            if watermark_ms > self.windows.clock_ms() {
                self.windows.set_time(watermark_ms, watermark_ms);
            }
        }
        self.fold.restore(token, from)
    }

    fn close(&mut self, token: M::Token<'_>) -> Result<(), TaskError> {
        self.fold.close(token)
    }
}

impl<M: RecordFormat, F: Fold<M>> KeyedOperator<M> for SliceWindowOperator<F, F::Value> {
    fn process_keyed(
        &mut self,
        record: &KeyedRecord<'_>,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError> {
        let timestamp_ms = self.time_of(record, collector.now_ms);
        if timestamp_ms == NO_TIMESTAMP {
            return Err(self.fold.without_timestamp(collector.token, record));
        }
        let record = &record.at(timestamp_ms, record.side);
        self.bring::<M>(record, collector.token)?;
        match add(&mut self.windows, &self.time, record) {
            SlicePlacement::Open(held) => {
                self.fold.fold(collector.token, record, &mut held.value)?;
                self.touch(record);
                Ok(())
            }
            SlicePlacement::FiredBefore(held) => {
                self.fold.fold(collector.token, record, &mut held.value)?;
                self.touch(record);
                self.fire_again(record, collector)
            }
            SlicePlacement::Late => self.late.take_from(&self.fold, record, collector),
            SlicePlacement::Between => Ok(()),
        }
    }

    #[inline]
    fn process_detached(&mut self, record: &KeyedRecord<'_>, now_ms: i64) -> Result<bool, TaskError> {
        let timestamp_ms = self.time_of(record, now_ms);
        if timestamp_ms == NO_TIMESTAMP {
            return Ok(false);
        }
        let record = &record.at(timestamp_ms, record.side);
        // Reading from disk is left to `process_keyed`.
        if !self.is_at_hand(record) {
            return Ok(false);
        }
        let added = add(&mut self.windows, &self.time, record);
        let is_taken = match added {
            SlicePlacement::Open(held) => self.fold.absorb(record, &mut held.value),
            SlicePlacement::Between => return Ok(true),
            SlicePlacement::FiredBefore(_) | SlicePlacement::Late => return Ok(false),
        };
        self.touch(record);
        Ok(is_taken)
    }
}

/// Name of its state.
const STATE: &str = "slices";
