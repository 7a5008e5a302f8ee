//! Stores the windows of one key: sessions, windows with their own triggers, windows without end.
//!
//! # Invariants
//! - I1: no two windows overlap, if windows merge.
//! - I2: a window is deleted once its clock has passed its last millisecond plus the allowed lateness. Until then, its
//!   trigger is called once for each time that it registered.

use super::assign::Window;
use super::trigger::{BuiltIn, TriggerProgress, TriggerResult};
use crate::error::TaskError;
use crate::snapshot::{Input, put_signed};
use crate::varint::put_varint;

/// The open windows of one key, in order of time.
#[derive(Debug)]
pub struct WindowsOfKey<V, T> {
    cells: Vec<Cell<V, T>>,
    /// The next due time of the key for which a timer is registered, for each clock.
    pub asked_ms: [Option<i64>; 2],
}

/// One open window.
#[derive(Debug)]
pub struct Cell<V, T> {
    /// Its span.
    pub window: Window,
    /// The folded value of its records.
    pub value: V,
    /// State of a trigger of the user.
    pub kept: T,
    built_in: TriggerProgress,
    /// Times that a trigger of the user has registered, for each clock.
    timers: [Vec<i64>; 2],
}

impl<V, T> Default for WindowsOfKey<V, T> {
    fn default() -> Self {
        Self { cells: Vec::new(), asked_ms: [None; 2] }
    }
}

impl<V: Default, T: Default> WindowsOfKey<V, T> {
    /// Returns true if no window is open.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The open windows, for reading.
    pub fn iter(&self) -> impl Iterator<Item = &Cell<V, T>> + Clone {
        self.cells.iter()
    }

    /// The open windows, for changes.
    pub fn cells(&mut self) -> &mut [Cell<V, T>] {
        &mut self.cells
    }

    /// Returns the index of a window, and opens it if it does not exist.
    pub fn open(&mut self, window: Window) -> usize {
        let at = self.cells.partition_point(|cell| cell.window < window);
        if self.cells.get(at).is_none_or(|cell| cell.window != window) {
            let cell = Cell {
                window,
                value: V::default(),
                kept: T::default(),
                built_in: TriggerProgress::default(),
                timers: [vec![], vec![]],
            };
            self.cells.insert(at, cell);
        }
        at
    }

    /// Returns the span of a window after merging with those that it overlaps.
    pub fn cover(&self, window: Window) -> Window {
        self.overlapping(window).fold(window, |cover, cell| cover.cover(cell.window))
    }

    /// Merges the windows that this one [covers](Self::cover), and returns the index of the result. `merge` adds the
    /// second value to the first. It is not called if no merge is needed.
    pub fn merge<E>(
        &mut self,
        cover: Window,
        built_in: BuiltIn,
        mut merge: impl FnMut(&mut Cell<V, T>, Cell<V, T>) -> Result<(), E>,
    ) -> Result<usize, E> {
        let from = self.cells.partition_point(|cell| cell.window.end_ms <= cover.start_ms);
        let to = from + self.cells[from..].iter().take_while(|cell| cell.window.overlaps(cover)).count();
        if from == to {
            return Ok(self.open(cover));
        }
        let others: Vec<_> = self.cells.drain(from + 1..to).collect();
        let cell = &mut self.cells[from];
        let before = std::mem::replace(&mut cell.window, cover);
        let is_new = before != cover;
        for mut other in others {
            for (timers, others) in cell.timers.iter_mut().zip(&mut other.timers) {
                timers.append(others);
            }
            built_in.on_merge(&mut cell.built_in, other.built_in, cover.max_ms());
            merge(cell, other)?;
        }
        if is_new {
            let kept = TriggerProgress::default();
            built_in.on_merge(&mut cell.built_in, kept, cover.max_ms());
        }
        Ok(from)
    }

    /// Returns the window that this one only extends: the only one that it overlaps, which starts no later.
    #[inline]
    pub fn longer(&mut self, window: Window) -> Option<&mut Cell<V, T>> {
        // Records arrive roughly in order of time, so nearly all belong to the latest window.
        let (last, before) = self.cells.split_last_mut()?;
        let is_only = last.window.overlaps(window) && last.window.start_ms <= window.start_ms;
        (is_only && before.last().is_none_or(|cell| !cell.window.overlaps(window))).then_some(last)
    }

    /// Removes a window.
    pub fn close(&mut self, at: usize) -> Cell<V, T> {
        self.cells.remove(at)
    }

    /// The next time at which a window is due, by the clock with this index.
    pub fn next_ms(&self, clock: usize, window_clock: usize, lateness_ms: i64) -> Option<i64> {
        let of_cell = |cell: &Cell<V, T>| {
            let asked = cell.timers[clock].iter().copied().min();
            let own = (clock == window_clock).then(|| {
                cell.built_in.next_ms().map_or(cell.over_ms(lateness_ms), |at| at.min(cell.over_ms(lateness_ms)))
            });
            asked.into_iter().chain(own).min()
        };
        self.cells.iter().filter_map(of_cell).min()
    }

    /// Encodes the windows. `write` appends the value of one, and the state of its trigger.
    pub(crate) fn write(
        &self,
        out: &mut Vec<u8>,
        mut write: impl FnMut(&Cell<V, T>, &mut Vec<u8>) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        put_varint(out, self.cells.len() as u64);
        for cell in &self.cells {
            put_signed(out, cell.window.start_ms);
            put_signed(out, cell.window.end_ms);
            cell.built_in.write(out);
            for timers in &cell.timers {
                put_varint(out, timers.len() as u64);
                timers.iter().for_each(|time_ms| put_signed(out, *time_ms));
            }
            write(cell, out)?;
        }
        Ok(())
    }

    /// Decodes windows that `write` wrote. No timer is registered for the key.
    pub fn read<'a, E: From<TaskError>>(
        input: &mut Input<'a>,
        mut read: impl FnMut(&mut Input<'a>) -> Result<(V, T), E>,
    ) -> Result<Self, E> {
        let mut windows = Self::default();
        for _ in 0..input.varint()? {
            let window = Window { start_ms: input.signed()?, end_ms: input.signed()? };
            if windows.cells.last().is_some_and(|before| window <= before.window) || window.end_ms <= window.start_ms {
                return Err(input
                    .broken(format_args!("a window {window:?} that is out of order or has no length"))
                    .into());
            }
            let built_in = TriggerProgress::read(input)?;
            let mut timers = [vec![], vec![]];
            for timers in &mut timers {
                for _ in 0..input.varint()? {
                    timers.push(input.signed()?);
                }
            }
            let (value, kept) = read(input)?;
            windows.cells.push(Cell { window, value, kept, built_in, timers });
        }
        Ok(windows)
    }

    fn overlapping(&self, window: Window) -> impl Iterator<Item = &Cell<V, T>> {
        self.cells.iter().filter(move |cell| cell.window.overlaps(window))
    }
}

impl<V, T> Cell<V, T> {
    /// The time at which it is deleted.
    pub fn over_ms(&self, lateness_ms: i64) -> i64 {
        self.window.max_ms().saturating_add(lateness_ms)
    }

    /// Extends the window to this end, for a record. It fires at its end.
    #[inline]
    pub fn lengthen(&mut self, end_ms: i64) {
        self.window.end_ms = self.window.end_ms.max(end_ms);
        self.built_in = TriggerProgress::at(self.window.max_ms());
    }

    /// Calls the built-in trigger for a record.
    pub fn on_record(&mut self, trigger: BuiltIn, timestamp_ms: i64, clock_ms: i64) -> TriggerResult {
        trigger.on_record(&mut self.built_in, self.window.max_ms(), timestamp_ms, clock_ms)
    }

    /// Calls the built-in trigger for a time of the window's clock.
    pub fn on_time(&mut self, trigger: BuiltIn, time_ms: i64) -> TriggerResult {
        trigger.on_time(&mut self.built_in, self.window.max_ms(), time_ms)
    }

    /// Registers a timer of the user's trigger.
    pub fn set_timer(&mut self, clock: usize, time_ms: i64) {
        if !self.timers[clock].contains(&time_ms) {
            self.timers[clock].push(time_ms);
        }
    }

    /// Deletes such a timer.
    pub fn delete_timer(&mut self, clock: usize, time_ms: i64) {
        self.timers[clock].retain(|asked_ms| *asked_ms != time_ms);
    }

    /// Registered times of the user's trigger, by the clock with this index.
    pub fn timers(&self, clock: usize) -> &[i64] {
        &self.timers[clock]
    }

    /// Times at which the window fires or the user's trigger is called, by the clock with this index.
    pub fn pending(&self, clock: usize, window_clock: usize) -> impl Iterator<Item = i64> {
        let own = if clock == window_clock { self.built_in.next_ms() } else { None };
        self.timers[clock].iter().copied().chain(own)
    }

    /// Takes the earliest registered time that has come.
    pub fn take_timer(&mut self, clock: usize, now_ms: i64) -> Option<i64> {
        let due_ms = self.timers[clock].iter().copied().filter(|asked_ms| *asked_ms <= now_ms).min()?;
        self.delete_timer(clock, due_ms);
        Some(due_ms)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn session(start_ms: i64, gap_ms: i64) -> Window {
        Window { start_ms, end_ms: start_ms + gap_ms }
    }

    fn add(windows: &mut WindowsOfKey<u32, ()>, window: Window) {
        let cover = windows.cover(window);
        let at = windows.merge(cover, BuiltIn::AtEnd, |cell, other| {
            cell.value += other.value;
            Ok::<_, ()>(())
        });
        windows.cells()[at.unwrap()].value += 1;
    }

    #[test]
    fn a_record_between_two_sessions_makes_one_of_them() {
        let mut windows = WindowsOfKey::default();
        add(&mut windows, session(0, 10));
        add(&mut windows, session(18, 10));
        assert_eq!(windows.cells().len(), 2);
        add(&mut windows, session(9, 10));
        let all: Vec<_> = windows.cells().iter().map(|cell| (cell.window, cell.value)).collect();
        assert_eq!(all, [(Window { start_ms: 0, end_ms: 28 }, 3)]);
    }

    #[test]
    fn a_session_that_begins_where_another_ends_is_one_of_its_own() {
        let mut windows = WindowsOfKey::default();
        add(&mut windows, session(10, 10));
        add(&mut windows, session(20, 10));
        add(&mut windows, session(0, 10));
        let all: Vec<_> = windows.cells().iter().map(|cell| (cell.window, cell.value)).collect();
        assert_eq!(all, [(session(0, 10), 1), (session(10, 10), 1), (session(20, 10), 1)]);
    }

    proptest! {
        #[test]
        fn sessions_do_not_depend_on_the_order_of_records(times in proptest::collection::vec((0i64..300, 1i64..20), 1..60)) {
            let mut windows = WindowsOfKey::default();
            for &(at, gap) in &times {
                add(&mut windows, session(at, gap));
            }
            let mut sorted = times.clone();
            sorted.sort_unstable();
            let mut expected: Vec<(Window, u32)> = Vec::new();
            for (at, gap) in sorted {
                match expected.last_mut() {
                    Some((last, n)) if last.overlaps(session(at, gap)) => {
                        *last = last.cover(session(at, gap));
                        *n += 1;
                    }
                    _ => expected.push((session(at, gap), 1)),
                }
            }
            let all: Vec<_> = windows.cells().iter().map(|cell| (cell.window, cell.value)).collect();
            prop_assert_eq!(all, expected);
        }
    }
}
