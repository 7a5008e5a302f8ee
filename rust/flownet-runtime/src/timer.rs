//! Timers of either clock: ordered, each at most once.
//!
//! The service holds no clock; who uses it passes the time in and asks what is due.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use flownet_core::keygroup::hash_key;

use crate::key::Key;
use crate::operator::KeyedRecord;

/// Whose timer it is: a key, and the form it was given in where that is another than the canonical one.
#[derive(Clone, Debug)]
pub struct TimerKey {
    key: Key,
    given: Option<Box<[u8]>>,
}

impl TimerKey {
    /// The key of a record.
    pub fn of(record: &KeyedRecord<'_>) -> Self {
        Self { key: record.key.into(), given: record.given().map(Into::into) }
    }

    /// Its canonical bytes.
    pub fn key(&self) -> &[u8] {
        self.key.as_slice()
    }

    /// The hash of these.
    pub fn hash(&self) -> u32 {
        hash_key(self.key())
    }

    /// The form it was given in, where that was another than the canonical one.
    pub fn given(&self) -> Option<&[u8]> {
        self.given.as_deref()
    }

    /// Bytes that decode to the key as it was given.
    pub fn key_value(&self) -> &[u8] {
        self.given.as_deref().unwrap_or(self.key())
    }
}

impl PartialEq for TimerKey {
    fn eq(&self, other: &Self) -> bool {
        self.key.is(other.key())
    }
}

impl Eq for TimerKey {}

impl PartialOrd for TimerKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TimerKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(other.key())
    }
}

/// The timers of one task. `K` says whose timer it is, usually the key's bytes.
#[derive(Clone, Debug)]
pub struct TimerService<K> {
    timers: BTreeSet<(i64, K)>,
}

impl<K: Ord> TimerService<K> {
    /// No timers.
    pub fn new() -> Self {
        Self { timers: BTreeSet::new() }
    }

    /// Sets a timer; `false` if the same one is set already.
    pub fn register(&mut self, timestamp_ms: i64, key: K) -> bool {
        self.timers.insert((timestamp_ms, key))
    }

    /// Takes a timer back; `false` if it was not set.
    pub fn delete(&mut self, timestamp_ms: i64, key: K) -> bool {
        self.timers.remove(&(timestamp_ms, key))
    }

    /// The earliest timer whose time has come. One at a time, because firing it may set or delete others.
    pub fn pop_due(&mut self, now_ms: i64) -> Option<(i64, K)> {
        if self.next_ms()? > now_ms {
            return None;
        }
        self.timers.pop_first()
    }

    /// When the earliest timer is due.
    pub fn next_ms(&self) -> Option<i64> {
        self.timers.first().map(|(timestamp_ms, _)| *timestamp_ms)
    }

    /// Those that are set, the earliest first.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &K)> {
        self.timers.iter().map(|(timestamp_ms, key)| (*timestamp_ms, key))
    }

    /// Timers set.
    pub fn len(&self) -> usize {
        self.timers.len()
    }

    /// Whether no timer is set.
    pub fn is_empty(&self) -> bool {
        self.timers.is_empty()
    }
}

impl<K: Ord> Default for TimerService<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_same_timer_set_twice_fires_once() {
        let mut timers = TimerService::new();
        assert!(timers.register(5, "a") && timers.register(5, "b") && !timers.register(5, "a"));
        assert_eq!(timers.pop_due(5), Some((5, "a")));
        assert_eq!(timers.pop_due(5), Some((5, "b")));
        assert_eq!(timers.pop_due(5), None);
    }

    #[test]
    fn a_deleted_timer_does_not_fire() {
        let mut timers = TimerService::new();
        timers.register(5, "a");
        assert!(timers.delete(5, "a") && !timers.delete(5, "a"));
        assert_eq!((timers.pop_due(i64::MAX), timers.next_ms()), (None, None));
    }

    #[test]
    fn a_timer_set_while_firing_is_seen() {
        let mut timers = TimerService::new();
        timers.register(1, 0);
        let mut fired = Vec::new();
        while let Some((timestamp_ms, generation)) = timers.pop_due(3) {
            fired.push(timestamp_ms);
            timers.register(timestamp_ms + 1, generation + 1);
        }
        assert_eq!((fired, timers.next_ms()), (vec![1, 2, 3], Some(4)));
    }

    proptest! {
        #[test]
        fn any_sequence_fires_what_a_sorted_list_would(
            ops in proptest::collection::vec((0u8..3, 0i64..20, 0u8..5), 0..200)
        ) {
            let mut timers = TimerService::new();
            let mut model: Vec<(i64, u8)> = Vec::new();
            for (op, at, key) in ops {
                match op {
                    0 => {
                        let fresh = !model.contains(&(at, key));
                        if fresh {
                            model.push((at, key));
                        }
                        prop_assert_eq!(timers.register(at, key), fresh);
                    }
                    1 => {
                        let held = model.iter().position(|timer| *timer == (at, key));
                        prop_assert_eq!(timers.delete(at, key), held.map(|at| model.swap_remove(at)).is_some());
                    }
                    _ => {
                        let mut due: Vec<_> = model.iter().copied().filter(|timer| timer.0 <= at).collect();
                        due.sort_unstable();
                        model.retain(|timer| timer.0 > at);
                        let fired: Vec<_> = std::iter::from_fn(|| timers.pop_due(at)).collect();
                        prop_assert_eq!(fired, due);
                    }
                }
                prop_assert_eq!(timers.len(), model.len());
                prop_assert_eq!(timers.next_ms(), model.iter().map(|timer| timer.0).min());
            }
        }
    }
}
