//! Records of one key by time, as their bytes: a fraction of the memory of what they decode to.

use std::collections::VecDeque;

use crate::error::TaskError;
use crate::snapshot::{Input, put_block, put_signed};
use crate::varint::put_varint;

/// Records in the order of their times; those of one time in the order in which they came.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Buffer {
    records: VecDeque<(i64, Box<[u8]>)>,
}

impl Buffer {
    /// Adds a record. One that is later than all others, as most are, costs no search.
    pub(super) fn insert(&mut self, timestamp_ms: i64, bytes: &[u8]) {
        let place = match self.records.back() {
            Some((last_ms, _)) if *last_ms > timestamp_ms => self.behind(timestamp_ms),
            _ => self.records.len(),
        };
        self.records.insert(place, (timestamp_ms, bytes.into()));
    }

    /// Those from one time to another, both included.
    pub(super) fn between(&self, from_ms: i64, to_ms: i64) -> impl Iterator<Item = (i64, &[u8])> {
        let end = self.behind(to_ms);
        // Bounds may be as far apart as one likes, but not the wrong way round.
        let start = self.records.partition_point(|(at_ms, _)| *at_ms < from_ms).min(end);
        self.records.range(start..end).map(|(at_ms, bytes)| (*at_ms, &**bytes))
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = (i64, &[u8])> {
        self.records.iter().map(|(at_ms, bytes)| (*at_ms, &**bytes))
    }

    /// The last one that is not after this time.
    pub(super) fn newest(&self, timestamp_ms: i64) -> Option<&[u8]> {
        let place = self.behind(timestamp_ms).checked_sub(1)?;
        Some(&self.records[place].1)
    }

    /// The time of the one at this place.
    pub(super) fn time_of(&self, place: usize) -> Option<i64> {
        self.records.get(place).map(|(at_ms, _)| *at_ms)
    }

    /// Takes the first one out, if it is not after this time.
    pub(super) fn pop_until(&mut self, timestamp_ms: i64) -> Option<(i64, Box<[u8]>)> {
        if self.time_of(0)? > timestamp_ms {
            return None;
        }
        let first = self.records.pop_front();
        // What a burst has filled is given back.
        if self.records.len() < self.records.capacity() / 4 {
            self.records.shrink_to(self.records.len() * 2);
        }
        first
    }

    /// Writes all of them out: varint how many, and each: time: signed, record: block.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        put_varint(out, self.records.len() as u64);
        for (timestamp_ms, bytes) in &self.records {
            put_signed(out, *timestamp_ms);
            put_block(out, bytes);
        }
    }

    /// Reads back what [`write`](Self::write) wrote.
    pub(super) fn read(input: &mut Input<'_>) -> Result<Self, TaskError> {
        let mut buffer = Self::default();
        for _ in 0..input.varint()? {
            buffer.insert(input.signed()?, input.block()?);
        }
        Ok(buffer)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The place behind all that are not after this time.
    fn behind(&self, timestamp_ms: i64) -> usize {
        self.records.partition_point(|(at_ms, _)| *at_ms <= timestamp_ms)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_buffer_is_a_list_sorted_by_time(
            times in proptest::collection::vec(-20i64..20, 0..60),
            (from_ms, to_ms, until_ms) in (-25i64..25, -25i64..25, -25i64..25),
        ) {
            let mut buffer = Buffer::default();
            let mut model: Vec<(i64, u8)> = Vec::new();
            for (number, at_ms) in (0u8..).zip(times) {
                buffer.insert(at_ms, &[number]);
                model.push((at_ms, number));
            }
            model.sort_by_key(|(at_ms, _)| *at_ms);
            let between: Vec<_> = buffer.between(from_ms, to_ms).map(|(at_ms, bytes)| (at_ms, bytes[0])).collect();
            let expected: Vec<_> = model.iter().copied().filter(|(at_ms, _)| (from_ms..=to_ms).contains(at_ms)).collect();
            prop_assert_eq!(between, expected);
            let newest = model.iter().rev().find(|(at_ms, _)| *at_ms <= until_ms).map(|(_, number)| *number);
            prop_assert_eq!(buffer.newest(until_ms).map(|bytes| bytes[0]), newest);
            while buffer.pop_until(until_ms).is_some() {}
            model.retain(|(at_ms, _)| *at_ms > until_ms);
            let left: Vec<_> = buffer.between(i64::MIN, i64::MAX).map(|(at_ms, bytes)| (at_ms, bytes[0])).collect();
            prop_assert_eq!(buffer.time_of(0), model.first().map(|(at_ms, _)| *at_ms));
            prop_assert_eq!((left, buffer.is_empty()), (model.clone(), model.is_empty()));
        }
    }

    #[test]
    fn a_buffer_that_empties_gives_its_memory_back() {
        let mut buffer = Buffer::default();
        for at_ms in 0..10_000 {
            buffer.insert(at_ms, &[]);
        }
        while buffer.pop_until(9_990).is_some() {}
        assert!(buffer.records.capacity() < 100, "{}", buffer.records.capacity());
    }
}
