//! Stores windows that begin and end for all keys alike, and fire at their end.
//!
//! Time is cut into slices, the largest spans of which all windows are composed. A record goes to one slice, however
//! many windows it is in, and a window is merged from its slices when it fires.
//!
//! The store has a clock that only moves forward: the watermark, or for windows of the wall clock the last millisecond
//! that is over. A window is due when the clock has reached its last millisecond.
//!
//! # Invariants
//! - I1: each window with records fires once, in order of time, however the clock moves. After that it fires only for a
//!   record within the allowed lateness, once for each.
//! - I2: a slice lives until its last window is over and the allowed lateness has passed. Memory is bounded by the keys
//!   of live slices. A record without a live window is late and is not stored.
//! - I3: a clock that steps back opens no fired window again.

use std::collections::{BTreeSet, VecDeque};

use super::assign::{AlignedWindows, Window};
use super::pane::Pane;
use crate::state::{Base, Changes, IdleKey, KeyEntry, Resident};

/// One value for each key and slice.
#[derive(Debug)]
pub struct SlicedWindows<V> {
    grid: AlignedWindows,
    lateness_ms: i64,
    clock_ms: i64,
    /// All windows that were due by this time have fired.
    fired_ms: i64,
    /// By start, in order of time. None is empty, counting values on disk.
    slices: VecDeque<(i64, Pane<V>)>,
    /// Number of values in memory, over all slices.
    held: usize,
    changes: Changes,
}

/// The start of a slice, a key, its hash and its value.
pub(crate) type SliceEntry<'a, V> = (i64, &'a [u8], u32, &'a V);

/// The placement of a record.
#[derive(Debug)]
pub enum SlicePlacement<'a, V> {
    /// It belongs to this value.
    Open(&'a mut V),
    /// It belongs to this value. Some of its windows have fired already, and fire [again](SlicedWindows::firing_again).
    FiredBefore(&'a mut V),
    /// It is late: its windows are over.
    Late,
    /// It is in a gap between two windows.
    Between,
}

/// The slice of a record.
enum RecordSlice {
    At(usize),
    Between,
    Late,
}

impl<V> SlicedWindows<V> {
    /// No open windows.
    pub fn new(grid: AlignedWindows, lateness_ms: i64) -> Self {
        Self {
            grid,
            lateness_ms,
            clock_ms: i64::MIN,
            fired_ms: i64::MIN,
            slices: VecDeque::new(),
            held: 0,
            changes: Changes::default(),
        }
    }

    /// The windows that it stores.
    pub fn grid(&self) -> &AlignedWindows {
        &self.grid
    }

    /// The time on its clock.
    pub fn clock_ms(&self) -> i64 {
        self.clock_ms
    }

    /// Returns the value of a key in the slice of `timestamp_ms`, and creates it with `default` for the key's first
    /// record there.
    ///
    /// `hash` is the key's hash, which the caller already has.
    #[inline]
    pub fn add(
        &mut self,
        key: &[u8],
        hash: u32,
        timestamp_ms: i64,
        default: impl FnOnce() -> V,
    ) -> SlicePlacement<'_, V> {
        // Nearly all records belong to the newest slice, and are far from late.
        let at = match self.slices.back() {
            Some((newest, _)) if self.grid.is_in_slice(timestamp_ms, *newest) => self.slices.len() - 1,
            _ => match self.place_for(timestamp_ms, self.clock_ms) {
                RecordSlice::At(at) => at,
                RecordSlice::Between => return SlicePlacement::Between,
                RecordSlice::Late => return SlicePlacement::Late,
            },
        };
        // Without lateness, no window fires twice.
        let fired_before =
            self.lateness_ms > 0 && self.clock_ms != i64::MIN && self.has_fired(timestamp_ms, self.clock_ms);
        let value = self.touch(at, key, hash, default);
        if fired_before { SlicePlacement::FiredBefore(value) } else { SlicePlacement::Open(value) }
    }

    /// The same for a key that is ahead of the clock, at `clock_ms`.
    #[cold]
    pub fn add_ahead(
        &mut self,
        clock_ms: i64,
        key: &[u8],
        hash: u32,
        timestamp_ms: i64,
        default: impl FnOnce() -> V,
    ) -> SlicePlacement<'_, V> {
        let at = match self.place_for(timestamp_ms, clock_ms) {
            RecordSlice::At(at) => at,
            RecordSlice::Between => return SlicePlacement::Between,
            RecordSlice::Late => return SlicePlacement::Late,
        };
        let fired_before = self.has_fired(timestamp_ms, clock_ms);
        let value = self.touch(at, key, hash, default);
        if fired_before { SlicePlacement::FiredBefore(value) } else { SlicePlacement::Open(value) }
    }

    #[inline]
    fn touch(&mut self, at: usize, key: &[u8], hash: u32, default: impl FnOnce() -> V) -> &mut V {
        let Self { slices, held, changes, .. } = self;
        slices[at].1.touch(key, hash, changes.now(), || {
            *held += 1;
            default()
        })
    }

    /// Moves the clock forward. Fire all windows that [`next_due`](Self::next_due) then returns before the next record.
    pub fn advance(&mut self, clock_ms: i64) {
        self.clock_ms = self.clock_ms.max(clock_ms);
    }

    /// Returns the earliest window that is due and has not fired. It counts as fired from then on.
    pub fn next_due(&mut self) -> Option<Window> {
        let due = self.next_window().filter(|window| window.max_ms() <= self.clock_ms);
        self.fired_ms = due.map_or(self.clock_ms, Window::max_ms);
        due
    }

    /// The time at which the next window is due. `None` if only the end of time ends it.
    pub fn next_due_ms(&self) -> Option<i64> {
        self.next_window().map(Window::max_ms).filter(|due_ms| *due_ms < i64::MAX)
    }

    /// Takes the values of a fired window that no other window needs, if these are all of its values.
    pub fn take(&mut self, window: Window) -> Option<Pane<V>> {
        // Otherwise another window or a late record may still need the slice.
        let is_all = self.grid.is_tumbling() && self.lateness_ms == 0;
        let is_first = self.slices.front().is_some_and(|(start_ms, _)| *start_ms == window.start_ms);
        if is_all && is_first { self.pop_first().map(|(_, pane)| pane) } else { None }
    }

    fn pop_first(&mut self) -> Option<(i64, Pane<V>)> {
        let first = self.slices.pop_front();
        self.held -= first.as_ref().map_or(0, |(_, pane)| pane.len());
        first
    }

    /// The slices of a window, by their start, in order of time.
    pub fn slices_of(&self, window: Window) -> impl Iterator<Item = &(i64, Pane<V>)> {
        let from = self.slices.partition_point(|(start_ms, _)| *start_ms < window.start_ms);
        let in_window = move |(start_ms, _): &&(i64, Pane<V>)| *start_ms < window.end_ms || window.end_ms == i64::MAX;
        self.slices.range(from..).take_while(in_window)
    }

    /// The windows of a record that have fired by `clock_ms`, and fire again because it is within the allowed lateness.
    pub fn firing_again(&self, timestamp_ms: i64, clock_ms: i64) -> impl Iterator<Item = Window> + use<'_, V> {
        let is_fired = move |window: &Window| window.max_ms() <= clock_ms && !self.is_over(*window, clock_ms);
        self.grid.windows_of(timestamp_ms).filter(is_fired)
    }

    /// Removes the earliest slice, with its start, if no window needs it any more.
    pub fn pop_expired(&mut self) -> Option<(i64, Pane<V>)> {
        let &(start_ms, _) = self.slices.front()?;
        let is_expired = self.grid.last_window_of(start_ms).is_none_or(|last| self.is_over(last, self.clock_ms));
        if is_expired { self.pop_first() } else { None }
    }

    /// All slices, by their start.
    pub fn slices(&self) -> &VecDeque<(i64, Pane<V>)> {
        &self.slices
    }

    /// The windows with values that may still fire, in order of time.
    pub fn open_windows(&self) -> impl Iterator<Item = Window> {
        let windows = self.slices.iter().flat_map(|(start_ms, _)| self.grid.windows_of(*start_ms));
        windows.filter(|window| !self.is_over(*window, self.clock_ms)).collect::<BTreeSet<_>>().into_iter()
    }

    /// Returns true if a window has not fired for the first time yet.
    pub fn is_pending(&self, window: Window) -> bool {
        window.max_ms() > self.clock_ms
    }

    /// The time up to which all windows have fired.
    pub fn fired_ms(&self) -> i64 {
        self.fired_ms
    }

    /// Sets the clock, and the time up to which all windows have fired.
    pub fn set_time(&mut self, clock_ms: i64, fired_ms: i64) {
        (self.clock_ms, self.fired_ms) = (clock_ms, fired_ms);
    }

    /// Returns the start of the slice of `timestamp_ms`, if part of it may be on disk and this key of it is not held.
    pub(crate) fn missing(&self, key: &[u8], hash: u32, timestamp_ms: i64) -> Option<i64> {
        let start_ms = self.grid.slice_of(timestamp_ms);
        let pane = self.slice(start_ms)?;
        (pane.on_disk() > 0 && pane.get(key, hash).is_none()).then_some(start_ms)
    }

    /// Returns true if a key of a slice is in memory.
    pub(crate) fn is_held(&self, start_ms: i64, key: &[u8], hash: u32) -> bool {
        self.slice(start_ms).is_some_and(|pane| pane.get(key, hash).is_some())
    }

    /// Counts a key of the slice that begins at `start_ms` as no longer on disk.
    pub(crate) fn give_back(&mut self, start_ms: i64) {
        let at = self.place_of(start_ms);
        self.slices[at].1.give_back(1);
    }

    /// Counts a key of the slice that begins at `start_ms` as newly on disk.
    pub(crate) fn lies_on_disk(&mut self, start_ms: i64) {
        let at = self.place_of(start_ms);
        self.slices[at].1.lies_on_disk();
    }

    /// Sets the value of a key in the slice that begins at `start_ms`, whatever the clock is.
    pub fn put_back(&mut self, start_ms: i64, key: &[u8], hash: u32, value: V) {
        let at = self.place_of(self.grid.slice_of(start_ms));
        let mut value = Some(value);
        let held = self.touch(at, key, hash, || value.take().expect("default is called at most once"));
        if let Some(value) = value {
            *held = value;
        }
    }

    /// The start of the first slice. Earlier slices have been deleted.
    pub(crate) fn begin_ms(&self) -> i64 {
        self.slices.front().map_or(i64::MAX, |(start_ms, _)| *start_ms)
    }

    /// The changes since snapshots.
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// The same, to report a snapshot to.
    pub(crate) fn changes_mut(&mut self) -> &mut Changes {
        &mut self.changes
    }

    /// The values in memory that were touched since a snapshot, or `None` if they are more than `most`.
    pub(crate) fn touched_since(&self, base: Base, most: usize) -> Option<Vec<SliceEntry<'_, V>>> {
        let touched = self.slices.iter().flat_map(|(start_ms, pane)| {
            pane.touched_since(base).map(|(key, hash, value)| (*start_ms, key, hash, value))
        });
        let touched: Vec<_> = touched.take(most.saturating_add(1)).collect();
        (touched.len() <= most).then_some(touched)
    }

    /// The values in memory, slice by slice.
    pub(crate) fn all(&self) -> impl Iterator<Item = SliceEntry<'_, V>> {
        self.slices
            .iter()
            .flat_map(|(start_ms, pane)| pane.entries().map(|(key, hash, value)| (*start_ms, key, hash, value)))
    }

    /// Number of values in memory, over all slices.
    pub fn len(&self) -> usize {
        self.held
    }

    /// Number of values that are only on disk.
    pub(crate) fn on_disk(&self) -> usize {
        self.slices.iter().map(|(_, pane)| pane.on_disk()).sum()
    }

    /// Returns true if there are no slices.
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// Returns true if the window does not fire any more by `clock_ms`, not even for late records.
    fn is_over(&self, window: Window, clock_ms: i64) -> bool {
        window.max_ms().saturating_add(self.lateness_ms) <= clock_ms
    }

    fn slice(&self, start_ms: i64) -> Option<&Pane<V>> {
        let at = self.slices.binary_search_by_key(&start_ms, |(start_ms, _)| *start_ms).ok()?;
        Some(&self.slices[at].1)
    }

    #[inline]
    fn has_fired(&self, timestamp_ms: i64, clock_ms: i64) -> bool {
        let first = self.grid.first_window_around_or_after(timestamp_ms);
        first.max_ms() <= clock_ms && self.firing_again(timestamp_ms, clock_ms).next().is_some()
    }

    fn place_for(&mut self, timestamp_ms: i64, clock_ms: i64) -> RecordSlice {
        match self.grid.last_window_of(timestamp_ms) {
            None => RecordSlice::Between,
            Some(last) if self.is_over(last, clock_ms) => RecordSlice::Late,
            Some(_) => RecordSlice::At(self.place_of(self.grid.slice_of(timestamp_ms))),
        }
    }

    fn place_of(&mut self, slice: i64) -> usize {
        let at = self.slices.partition_point(|(start_ms, _)| *start_ms < slice);
        if self.slices.get(at).is_none_or(|(start_ms, _)| *start_ms != slice) {
            self.slices.insert(at, (slice, Pane::default()));
        }
        at
    }

    /// The earliest window with records that has not fired.
    fn next_window(&self) -> Option<Window> {
        let (first, _) = self.slices.front()?;
        let mut window = self.grid.first_window_around_or_after(self.fired_ms.checked_add(1)?.max(*first));
        loop {
            let from = self.slices.partition_point(|(start_ms, _)| *start_ms < window.start_ms);
            let (slice, _) = self.slices.get(from)?;
            if *slice < window.end_ms || window.end_ms == i64::MAX {
                return Some(window);
            }
            window = self.grid.first_window_around_or_after(*slice);
        }
    }
}

impl<V> Resident<V> for SlicedWindows<KeyEntry<V>> {
    const ENTRY_BYTES: usize = Pane::<KeyEntry<V>>::ENTRY_BYTES;

    fn held(&self) -> usize {
        self.held
    }

    /// From the newest slice on, because its values are like those that arrive.
    fn some<'a>(&'a self, most: usize) -> impl Iterator<Item = (&'a [u8], &'a KeyEntry<V>)>
    where
        V: 'a,
    {
        self.slices.iter().rev().flat_map(|(_, pane)| pane.entries()).take(most).map(|(key, _, held)| (key, held))
    }

    /// From the oldest slice on, which usually gets no more records.
    fn take_idle(&mut self, most: usize) -> Vec<IdleKey<V>> {
        let mut idle = Vec::new();
        // Two rounds, because all keys may have been touched before the first one.
        for _ in 0..2 {
            for (start_ms, pane) in &mut self.slices {
                pane.take_idle(most - idle.len(), |hash, touched, key, held| {
                    idle.push(IdleKey { slice_ms: Some(*start_ms), hash, taken: touched.taken(), key, held });
                });
            }
        }
        self.held -= idle.len();
        idle
    }

    fn oldest(&self) -> Option<Base> {
        self.changes.oldest()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use flownet_core::keygroup::hash_key;
    use proptest::prelude::*;

    use super::*;

    fn windows(size_ms: i64, slide_ms: i64, lateness_ms: i64) -> SlicedWindows<u32> {
        SlicedWindows::new(AlignedWindows::new(size_ms, slide_ms, 0).unwrap(), lateness_ms)
    }

    fn count(windows: &mut SlicedWindows<u32>, key: &str, at_ms: i64) -> bool {
        match windows.add(key.as_bytes(), hash_key(key.as_bytes()), at_ms, || 0) {
            SlicePlacement::Open(value) | SlicePlacement::FiredBefore(value) => *value += 1,
            SlicePlacement::Late | SlicePlacement::Between => return false,
        }
        true
    }

    type ShownEntry = (i64, String, u32);

    fn put_together(windows: &mut SlicedWindows<u32>, window: Window) -> Vec<ShownEntry> {
        let merged = windows.take(window).unwrap_or_else(|| {
            let mut merged = Pane::default();
            for (_, slice) in windows.slices_of(window) {
                for (key, hash, value) in slice.entries() {
                    *merged.value_of(key, hash, || 0) += value;
                }
            }
            merged
        });
        merged
            .into_entries()
            .map(|(key, value)| (window.start_ms, String::from_utf8(key.as_slice().to_vec()).unwrap(), value))
            .collect()
    }

    fn fire(windows: &mut SlicedWindows<u32>, clock_ms: i64) -> Vec<ShownEntry> {
        windows.advance(clock_ms);
        let mut fired = Vec::new();
        while let Some(window) = windows.next_due() {
            fired.extend(put_together(windows, window));
        }
        while windows.pop_expired().is_some() {}
        fired
    }

    #[test]
    fn a_window_fires_when_its_end_passes_and_only_then() {
        let mut windows = windows(10, 10, 0);
        for (key, at) in [("b", 1), ("a", 2), ("b", 9)] {
            assert!(count(&mut windows, key, at));
        }
        assert_eq!(fire(&mut windows, 8), []);
        assert!(count(&mut windows, "b", 10));
        assert_eq!((windows.next_due_ms(), windows.len()), (Some(9), 3));
        assert_eq!(fire(&mut windows, 9), [(0, "b".into(), 2), (0, "a".into(), 1)]);
        assert_eq!((windows.next_due_ms(), windows.len()), (Some(19), 1));
        assert!(!count(&mut windows, "a", 9), "the window is over");
    }

    #[test]
    fn overlapping_windows_share_what_they_hold() {
        let mut windows = windows(30, 10, 0);
        for at in [5, 15, 25, 26] {
            count(&mut windows, "a", at);
        }
        assert_eq!(windows.len(), 3);
        let fired = fire(&mut windows, 39);
        assert_eq!(fired, [(-20, "a".into(), 1), (-10, "a".into(), 2), (0, "a".into(), 4), (10, "a".into(), 3)]);
        assert_eq!(windows.len(), 1);
        assert_eq!(fire(&mut windows, i64::MAX), [(20, "a".into(), 2)]);
        assert!(windows.is_empty());
    }

    #[test]
    fn a_record_within_the_allowed_lateness_names_the_windows_that_fire_again() {
        let mut windows = windows(20, 10, 5);
        count(&mut windows, "a", 12);
        assert_eq!(fire(&mut windows, 20), [(0, "a".into(), 1)]);
        let added = windows.add(b"a", hash_key(b"a"), 13, || 0);
        assert!(matches!(added, SlicePlacement::FiredBefore(_)));
        assert_eq!(windows.firing_again(13, 20).map(|window| window.start_ms).collect::<Vec<_>>(), [0]);
        assert_eq!(fire(&mut windows, 24), []);
        assert!(
            matches!(windows.add(b"a", hash_key(b"a"), 13, || 0), SlicePlacement::Open(_)),
            "of the next window still"
        );
        assert_eq!(fire(&mut windows, 34).len(), 1);
        assert!(matches!(windows.add(b"a", hash_key(b"a"), 13, || 0), SlicePlacement::Late));
    }

    #[test]
    fn keys_fire_in_the_order_in_which_they_came_however_many() {
        let mut windows = windows(10, 10, 0);
        let keys: Vec<String> = (0..1000).map(|n| format!("{}{}", n * 7919 % 1000, "-".repeat(n % 40))).collect();
        for key in keys.iter().chain(&keys) {
            count(&mut windows, key, 1);
        }
        let expected: Vec<_> = keys.into_iter().map(|key| (0, key, 2)).collect();
        assert_eq!(fire(&mut windows, i64::MAX), expected);
    }

    #[test]
    fn the_longest_window_ends_with_time_alone() {
        let mut windows = windows(i64::MAX, i64::MAX, 0);
        count(&mut windows, "a", 1_760_000_000_000);
        assert_eq!(windows.next_due_ms(), None);
        assert_eq!(fire(&mut windows, i64::MAX - 1), []);
        assert_eq!(fire(&mut windows, i64::MAX).len(), 1);
    }

    #[test]
    fn what_lies_between_windows_is_in_none() {
        let mut windows = windows(2, 5, 0);
        assert!(count(&mut windows, "a", 6) && !count(&mut windows, "a", 8));
        assert_eq!(fire(&mut windows, 100), [(5, "a".into(), 1)]);
    }

    proptest! {
        #[test]
        fn any_order_of_records_and_times_gives_what_the_rules_say(
            steps in proptest::collection::vec((0u8..3, 0i64..120, any::<bool>()), 0..200),
            (size, slide, lateness) in (1i64..40, 1i64..40, 0i64..30),
        ) {
            let mut windows = windows(size, slide, lateness);
            let grid = *windows.grid();
            let (mut clock, mut fired, mut expected) = (i64::MIN, Vec::new(), Vec::new());
            let mut model: BTreeMap<(Window, String), u32> = BTreeMap::new();
            let mut done: Vec<Window> = Vec::new();
            for (key, at, is_time) in steps {
                if is_time {
                    clock = clock.max(at);
                    fired.extend(fire(&mut windows, clock));
                    let due: Vec<Window> = model.keys().map(|(window, _)| *window).filter(|window| window.max_ms() <= clock).collect();
                    for window in due {
                        if !done.contains(&window) {
                            done.push(window);
                            expected.extend(model.range((window, String::new())..).take_while(|((of, _), _)| *of == window).map(|((of, key), n)| (of.start_ms, key.clone(), *n)));
                        }
                    }
                    continue;
                }
                let key = key.to_string();
                let open: Vec<Window> = grid.windows_of(at).filter(|window| window.max_ms().saturating_add(lateness) > clock).collect();
                let is_taken = count(&mut windows, &key, at);
                prop_assert_eq!(is_taken, !open.is_empty());
                // Windows that are over are deleted. A record within the lateness fires its windows again.
                let again: Vec<Window> = if is_taken { windows.firing_again(at, clock).collect() } else { vec![] };
                for window in open {
                    *model.entry((window, key.clone())).or_default() += 1;
                    if window.max_ms() <= clock {
                        prop_assert!(again.contains(&window));
                        let shown = put_together(&mut windows, window).into_iter().find(|(_, of, _)| *of == key).unwrap();
                        prop_assert_eq!(shown.2, model[&(window, key.clone())]);
                        if !done.contains(&window) { done.push(window); }
                    }
                }
                prop_assert!(again.iter().all(|window| window.max_ms() <= clock));
            }
            let due: Vec<_> = fired.iter().map(|(start, ..)| *start).collect();
            prop_assert!(due.is_sorted() || lateness > 0);
            fired.sort();
            expected.sort();
            prop_assert_eq!(fired, expected);
        }
    }
}
