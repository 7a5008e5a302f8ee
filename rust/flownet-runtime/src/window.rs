//! Tumbling windows on processing time.
//!
//! # Invariants
//! - I1: a window is fired once for each of its keys: the clock may step back, a window that fired never opens again.
//!   Until the clock has caught up, records go to the newest window, so results are late rather than doubled.
//! - I2: memory is bounded by the keys of open windows; what fires is gone.

use std::collections::{VecDeque, vec_deque};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::error::TaskError;
use crate::key::Key;
use crate::state::spread;

/// A span of time: from `start_ms`, included, to `end_ms`, excluded; milliseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window {
    /// First millisecond inside.
    pub start_ms: i64,
    /// First millisecond after.
    pub end_ms: i64,
}

/// Cuts time into windows of equal size, aligned to the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tumbling {
    size_ms: i64,
    offset_ms: i64,
}

impl Tumbling {
    /// Windows of `size_ms` that begin at `offset_ms` past each multiple of the size.
    pub fn new(size_ms: i64, offset_ms: i64) -> Result<Self, TaskError> {
        if size_ms <= 0 || offset_ms.checked_abs().is_none_or(|offset| offset >= size_ms) {
            return Err(TaskError::Config(format!(
                "a tumbling window needs a size above 0 and an offset below its size, not {size_ms} ms and {offset_ms} ms"
            )));
        }
        Ok(Self { size_ms, offset_ms })
    }

    /// The window that `timestamp_ms` falls into.
    #[inline]
    pub fn window_of(&self, timestamp_ms: i64) -> Window {
        let into = timestamp_ms.wrapping_sub(self.offset_ms).rem_euclid(self.size_ms);
        let start_ms = timestamp_ms.saturating_sub(into);
        Window { start_ms, end_ms: start_ms.saturating_add(self.size_ms) }
    }

    /// Length of each window in milliseconds.
    pub fn size_ms(&self) -> i64 {
        self.size_ms
    }
}

/// One value for each key and open window of a subtask.
#[derive(Debug)]
pub struct WindowState<V> {
    assigner: Tumbling,
    // The latest time seen; earlier times count as this one (I1). Records therefore only ever go to the newest window.
    now_ms: i64,
    // In order of time.
    open: VecDeque<(Window, Pane<V>)>,
}

/// What one window holds, found by hash. The table holds the entries themselves: a record costs one look at memory.
#[derive(Debug)]
struct Pane<V>(HashTable<PaneEntry<V>>);

#[derive(Debug)]
struct PaneEntry<V> {
    hash: u32,
    /// Entries that came before; they are told apart up to the first 2^32.
    order: u32,
    key: Key,
    value: V,
}

impl<V> WindowState<V> {
    /// No open windows.
    pub fn new(assigner: Tumbling) -> Self {
        Self { assigner, now_ms: i64::MIN, open: VecDeque::new() }
    }

    /// The value of a key in the window of `now_ms`, made by `default` if this is the key's first record there.
    ///
    /// `hash` is the key's hash, which the caller already has.
    #[inline]
    pub fn add(&mut self, key: &[u8], hash: u32, now_ms: i64, default: impl FnOnce() -> V) -> &mut V {
        self.now_ms = self.now_ms.max(now_ms);
        if self.open.back().is_none_or(|(newest, _)| newest.end_ms <= self.now_ms) {
            self.open.push_back((self.assigner.window_of(self.now_ms), Pane::default()));
        }
        let (_, pane) = self.open.back_mut().expect("a window was opened above if there was none");
        pane.value_of(key, hash, default)
    }

    /// Takes every window whose end has come, earliest first, keys in order of arrival.
    pub fn fire_due(&mut self, now_ms: i64) -> Fired<V> {
        self.now_ms = self.now_ms.max(now_ms);
        let due = self.open.partition_point(|(window, _)| window.end_ms <= self.now_ms);
        let still_open = self.open.split_off(due);
        Fired::new(std::mem::replace(&mut self.open, still_open))
    }

    /// Takes every window, ended or not: the input has ended.
    pub fn fire_all(&mut self) -> Fired<V> {
        Fired::new(std::mem::take(&mut self.open))
    }

    /// When the next window ends; `None` also for one that ends with the input alone.
    #[inline]
    pub fn next_fire_ms(&self) -> Option<i64> {
        self.open.front().map(|(window, _)| window.end_ms).filter(|end_ms| *end_ms < i64::MAX)
    }

    /// Values held, over all open windows.
    pub fn len(&self) -> usize {
        self.open.iter().map(|(_, pane)| pane.0.len()).sum()
    }

    /// Whether no window is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

impl<V> Default for Pane<V> {
    fn default() -> Self {
        Self(HashTable::new())
    }
}

impl<V> Pane<V> {
    #[inline]
    fn value_of(&mut self, key: &[u8], hash: u32, default: impl FnOnce() -> V) -> &mut V {
        let order = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        let found = self.0.entry(spread(hash), |held| held.hash == hash && held.key.is(key), |held| spread(held.hash));
        match found {
            Entry::Occupied(held) => &mut held.into_mut().value,
            Entry::Vacant(free) => {
                &mut free.insert(PaneEntry { hash, order, key: key.into(), value: default() }).into_mut().value
            }
        }
    }

    /// In order of arrival.
    fn into_entries(self) -> std::vec::IntoIter<PaneEntry<V>> {
        let mut entries: Vec<_> = self.0.into_iter().collect();
        entries.sort_unstable_by_key(|entry| entry.order);
        entries.into_iter()
    }
}

/// Windows taken out of a [`WindowState`], value by value. What is not taken is dropped.
#[derive(Debug)]
pub struct Fired<V> {
    panes: vec_deque::IntoIter<(Window, Pane<V>)>,
    current: Option<(Window, std::vec::IntoIter<PaneEntry<V>>)>,
}

impl<V> Fired<V> {
    fn new(panes: VecDeque<(Window, Pane<V>)>) -> Self {
        Self { panes: panes.into_iter(), current: None }
    }
}

impl<V> Iterator for Fired<V> {
    type Item = (Window, Box<[u8]>, V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((window, entries)) = &mut self.current
                && let Some(entry) = entries.next()
            {
                return Some((*window, entry.key.into(), entry.value));
            }
            let (window, pane) = self.panes.next()?;
            self.current = Some((window, pane.into_entries()));
        }
    }
}

#[cfg(test)]
mod tests {
    use flownet_core::keygroup::hash_key;
    use proptest::prelude::*;

    use super::*;

    fn count(state: &mut WindowState<u32>, key: &str, now_ms: i64) {
        *state.add(key.as_bytes(), hash_key(key.as_bytes()), now_ms, || 0) += 1;
    }

    fn shown(fired: Fired<u32>) -> Vec<(i64, String, u32)> {
        fired.map(|(window, key, n)| (window.start_ms, String::from_utf8(key.into()).unwrap(), n)).collect()
    }

    #[test]
    fn the_longest_window_ends_with_the_input_alone() {
        let mut windows = WindowState::new(Tumbling::new(i64::MAX, 0).unwrap());
        *windows.add(b"a", 0, 1_760_000_000_000, || 0) += 1;
        assert_eq!(windows.next_fire_ms(), None);
        assert_eq!(windows.fire_due(i64::MAX - 1).count(), 0);
        assert_eq!(windows.fire_all().count(), 1);
    }

    #[test]
    fn windows_are_aligned_to_the_epoch_also_before_it() {
        let five = Tumbling::new(5, 0).unwrap();
        assert_eq!(five.window_of(0), Window { start_ms: 0, end_ms: 5 });
        assert_eq!(five.window_of(4), Window { start_ms: 0, end_ms: 5 });
        assert_eq!(five.window_of(5), Window { start_ms: 5, end_ms: 10 });
        assert_eq!(five.window_of(-1), Window { start_ms: -5, end_ms: 0 });
        assert_eq!(Tumbling::new(5, 2).unwrap().window_of(1), Window { start_ms: -3, end_ms: 2 });
        assert_eq!(Tumbling::new(5, -1).unwrap().window_of(4), Window { start_ms: 4, end_ms: 9 });
    }

    #[test]
    fn a_window_without_size_or_with_too_large_an_offset_is_refused() {
        for (size, offset) in [(0, 0), (-1, 0), (5, 5), (5, -5), (5, i64::MIN)] {
            assert!(matches!(Tumbling::new(size, offset), Err(TaskError::Config(_))), "{size} {offset}");
        }
    }

    #[test]
    fn a_window_fires_when_its_end_passes_and_only_then() {
        let mut state = WindowState::new(Tumbling::new(10, 0).unwrap());
        for (key, now) in [("b", 1), ("a", 2), ("b", 9)] {
            count(&mut state, key, now);
        }
        assert_eq!(shown(state.fire_due(9)), []);
        count(&mut state, "b", 10);
        assert_eq!((state.next_fire_ms(), state.len()), (Some(10), 3));
        assert_eq!(shown(state.fire_due(10)), [(0, "b".into(), 2), (0, "a".into(), 1)]);
        assert_eq!((state.next_fire_ms(), state.len()), (Some(20), 1));
    }

    #[test]
    fn keys_fire_in_the_order_in_which_they_came_however_many() {
        let mut state = WindowState::new(Tumbling::new(10, 0).unwrap());
        let keys: Vec<String> = (0..1000).map(|n| format!("{}{}", n * 7919 % 1000, "-".repeat(n % 40))).collect();
        for key in keys.iter().chain(&keys) {
            count(&mut state, key, 1);
        }
        let expected: Vec<_> = keys.into_iter().map(|key| (0, key, 2)).collect();
        assert_eq!(shown(state.fire_all()), expected);
    }

    #[test]
    fn a_clock_that_steps_back_opens_no_fired_window_again() {
        let mut state = WindowState::new(Tumbling::new(10, 0).unwrap());
        count(&mut state, "a", 5);
        assert_eq!(shown(state.fire_due(12)).len(), 1);
        count(&mut state, "a", 7);
        assert_eq!(state.next_fire_ms(), Some(20));
        assert_eq!(shown(state.fire_all()), [(10, "a".into(), 1)]);
    }

    #[test]
    fn the_end_of_input_fires_everything_earliest_first() {
        let mut state = WindowState::new(Tumbling::new(10, 0).unwrap());
        for (key, now) in [("a", 5), ("b", 15), ("a", 16), ("c", 25)] {
            count(&mut state, key, now);
        }
        let expected = [(0, "a".into(), 1), (10, "b".into(), 1), (10, "a".into(), 1), (20, "c".into(), 1)];
        assert_eq!(shown(state.fire_all()), expected);
        assert!(state.is_empty());
    }

    proptest! {
        #[test]
        fn every_timestamp_lies_in_its_window(at in any::<i64>(), size in 1i64..1 << 40, offset in any::<i64>()) {
            let assigner = Tumbling::new(size, offset % size).unwrap();
            // Away from the ends of time, where bounds are clamped.
            let at = at / 4;
            let window = assigner.window_of(at);
            prop_assert!(window.start_ms <= at && at < window.end_ms);
            prop_assert_eq!(window.end_ms - window.start_ms, size);
            prop_assert_eq!((window.start_ms - offset % size).rem_euclid(size), 0);
        }

        #[test]
        fn whatever_the_clock_does_every_record_is_counted_once(
            records in proptest::collection::vec((0u8..4, 0i64..100, any::<bool>()), 0..200)
        ) {
            let mut state = WindowState::new(Tumbling::new(7, 3).unwrap());
            let mut fired = Vec::new();
            for (key, now, fire) in &records {
                count(&mut state, &key.to_string(), *now);
                if *fire {
                    fired.extend(shown(state.fire_due(*now)));
                }
            }
            fired.extend(shown(state.fire_all()));
            prop_assert_eq!(fired.iter().map(|(.., n)| *n as usize).sum::<usize>(), records.len());
            let mut keys: Vec<_> = fired.iter().map(|(start, key, _)| (*start, key.clone())).collect();
            keys.sort();
            keys.dedup();
            prop_assert_eq!(keys.len(), fired.len());
        }
    }
}
