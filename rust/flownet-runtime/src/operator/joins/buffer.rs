//! Buffers records of one key by time, as their bytes: a fraction of the memory of decoded records.
//!
//! The index stores milliseconds. Records of the same millisecond are ordered by their bytes (`nanos`), so millisecond
//! times cost nothing extra.

use std::collections::VecDeque;

use crate::error::TaskError;
use crate::snapshot::{Input, put_block, put_signed};
use crate::time::ExactTime;
use crate::varint::put_varint;

/// Records in the order of their times; those of equal time in order of arrival. Their bytes are contiguous, so a
/// record needs no allocation of its own, and records that leave together are stored together.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    records: VecDeque<RecordPlace>,
    /// Bytes in order of arrival, including deleted records until most are deleted.
    bytes: Vec<u8>,
    /// Bytes of deleted records.
    gone: usize,
}

/// Capacity that an empty buffer retains, so that records which come and go one by one cost no allocation.
const KEPT_BYTES: usize = 64;

/// Position of a record.
#[derive(Clone, Copy, Debug)]
struct RecordPlace {
    timestamp_ms: i64,
    start: usize,
    end: usize,
}

impl Buffer {
    /// Adds a record. Most are later than all others, which costs no search.
    #[inline]
    pub(super) fn insert(&mut self, timestamp_ms: i64, bytes: &[u8], nanos: impl Fn(&[u8]) -> u32) {
        let record = self.keep(timestamp_ms, bytes);
        let is_after = |last: RecordPlace| {
            last.timestamp_ms > timestamp_ms || last.timestamp_ms == timestamp_ms && nanos(self.at(last)) > nanos(bytes)
        };
        match self.records.back() {
            Some(last) if is_after(*last) => {
                let place = self.behind(ExactTime { ms: timestamp_ms, nanos: nanos(bytes) }, nanos);
                self.records.insert(place, record);
            }
            _ => self.records.push_back(record),
        }
    }

    /// Adds a record that is not before any other.
    fn push(&mut self, timestamp_ms: i64, bytes: &[u8]) {
        let record = self.keep(timestamp_ms, bytes);
        self.records.push_back(record);
    }

    #[inline]
    fn keep(&mut self, timestamp_ms: i64, bytes: &[u8]) -> RecordPlace {
        let start = self.bytes.len();
        // A key has one record, or many: after the first, reserve space for some at once.
        if start > 0 && self.bytes.capacity() - start < bytes.len() {
            self.bytes.reserve(start.max(bytes.len()).max(KEPT_BYTES));
        }
        self.bytes.extend_from_slice(bytes);
        RecordPlace { timestamp_ms, start, end: self.bytes.len() }
    }

    /// Returns the records from one time to another, both included.
    pub(super) fn between(
        &self,
        (from, to): (ExactTime, ExactTime),
        nanos: impl Fn(&[u8]) -> u32,
    ) -> impl Iterator<Item = (i64, &[u8])> {
        let end = self.behind(to, &nanos);
        // Bounds may be any distance apart, but a start after the end would panic in `range`.
        let start = from.before().map_or(0, |before| self.behind(before, &nanos)).min(end);
        self.records.range(start..end).map(|record| (record.timestamp_ms, self.at(*record)))
    }

    /// Returns all records.
    pub(super) fn all(&self) -> impl Iterator<Item = (i64, &[u8])> {
        self.records.iter().map(|record| (record.timestamp_ms, self.at(*record)))
    }

    /// Returns the last record that is not after this time.
    pub(super) fn newest(&self, at: ExactTime, nanos: impl Fn(&[u8]) -> u32) -> Option<&[u8]> {
        let place = self.behind(at, nanos).checked_sub(1)?;
        Some(self.at(self.records[place]))
    }

    /// The time of the record at this index.
    pub(super) fn time_of(&self, place: usize) -> Option<i64> {
        self.records.get(place).map(|record| record.timestamp_ms)
    }

    /// Returns the first record, if it is not after this time.
    pub(super) fn first_until(&self, timestamp_ms: i64) -> Option<(i64, &[u8])> {
        let first = *self.records.front().filter(|first| first.timestamp_ms <= timestamp_ms)?;
        Some((first.timestamp_ms, self.at(first)))
    }

    /// Deletes the first record.
    pub(super) fn drop_first(&mut self) {
        let mut is_first = true;
        self.drop_while(|_| std::mem::take(&mut is_first));
    }

    /// Deletes the first records while `is_over` holds for their times. Releases the memory of a burst, once for all of
    /// them.
    #[inline]
    pub(super) fn drop_while(&mut self, mut is_over: impl FnMut(i64) -> bool) {
        let before = self.records.len();
        while let Some(&RecordPlace { timestamp_ms, start, end }) = self.records.front()
            && is_over(timestamp_ms)
        {
            self.records.pop_front();
            self.gone += end - start;
        }
        if self.records.len() < before {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        if self.records.len() < self.records.capacity() / 4 {
            self.records.shrink_to(self.records.len() * 2);
        }
        if self.records.is_empty() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES);
            self.gone = 0;
        } else if self.gone > self.bytes.len() / 2 {
            self.compact();
        }
    }

    fn at(&self, record: RecordPlace) -> &[u8] {
        &self.bytes[record.start..record.end]
    }

    /// Moves live records together. At least half of the bytes are deleted ones, so each live byte moves once on
    /// average.
    fn compact(&mut self) {
        let live = self.bytes.len() - self.gone;
        // If they arrived in the order of their times, they move to the front in place.
        if self.records.iter().is_sorted_by_key(|record| record.start) {
            let mut end = 0;
            for record in &mut self.records {
                let start = end;
                end += record.end - record.start;
                self.bytes.copy_within(record.start..record.end, start);
                (record.start, record.end) = (start, end);
            }
            self.bytes.truncate(live);
            if self.bytes.capacity() > 4 * live.max(KEPT_BYTES) {
                self.bytes.shrink_to(2 * live);
            }
        } else {
            let mut bytes = Vec::with_capacity(2 * live);
            for record in &mut self.records {
                let start = bytes.len();
                bytes.extend_from_slice(&self.bytes[record.start..record.end]);
                (record.start, record.end) = (start, bytes.len());
            }
            self.bytes = bytes;
        }
        self.gone = 0;
    }

    /// Encodes all records: varint count, and for each: signed time, block of record.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        put_varint(out, self.records.len() as u64);
        for (timestamp_ms, bytes) in self.all() {
            put_signed(out, timestamp_ms);
            put_block(out, bytes);
        }
    }

    /// Decodes records that [`write`](Self::write) wrote.
    pub(super) fn read(input: &mut Input<'_>) -> Result<Self, TaskError> {
        let mut buffer = Self::default();
        for _ in 0..input.varint()? {
            // They were written in their order.
            buffer.push(input.signed()?, input.block()?);
        }
        Ok(buffer)
    }

    /// Skips them.
    pub(super) fn pass(input: &mut Input<'_>) -> Result<(), TaskError> {
        for _ in 0..input.varint()? {
            input.signed()?;
            input.block()?;
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the index after all records that are not after this time. It is near the end as a rule, so a galloping
    /// search from there doubles its step until it has gone too far.
    fn behind(&self, at: ExactTime, nanos: impl Fn(&[u8]) -> u32) -> usize {
        let is_after = |place: usize| {
            let record = self.records[place];
            record.timestamp_ms > at.ms || record.timestamp_ms == at.ms && nanos(self.at(record)) > at.nanos
        };
        let (mut start, mut end, mut step) = (self.records.len(), self.records.len(), 1);
        while start > 0 {
            start = end.saturating_sub(step);
            if !is_after(start) {
                break;
            }
            (end, step) = (start, 2 * step);
        }
        while start < end {
            let middle = start + (end - start) / 2;
            if is_after(middle) { end = middle } else { start = middle + 1 }
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(ExactTime, Vec<u8>),
        DropUntil(i64),
        DropWhile(i64),
    }

    fn nanos(bytes: &[u8]) -> u32 {
        bytes[0].into()
    }

    fn time() -> impl Strategy<Value = ExactTime> {
        (-20i64..20, 0u32..3).prop_map(|(ms, nanos)| ExactTime { ms, nanos })
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let bytes = proptest::collection::vec(any::<u8>(), 0..9);
        // The first byte of a record is its nanoseconds.
        let insert = (time(), bytes).prop_map(|(at, bytes)| Step::Insert(at, [vec![at.nanos as u8], bytes].concat()));
        let until = || -25i64..25;
        let step =
            prop_oneof![4 => insert, 1 => until().prop_map(Step::DropUntil), 1 => until().prop_map(Step::DropWhile)];
        proptest::collection::vec(step, 0..80)
    }

    proptest! {
        #[test]
        fn a_buffer_is_a_list_sorted_by_time(
            steps in steps(),
            (from, to, until) in (time(), time(), time()),
        ) {
            let mut buffer = Buffer::default();
            let mut model: Vec<(ExactTime, Vec<u8>)> = Vec::new();
            for step in steps {
                match step {
                    Step::Insert(at, bytes) => {
                        buffer.insert(at.ms, &bytes, nanos);
                        model.push((at, bytes));
                        model.sort_by_key(|(at, _)| *at);
                    }
                    Step::DropWhile(until_ms) => {
                        buffer.drop_while(|at_ms| at_ms <= until_ms);
                        model.retain(|(at, _)| at.ms > until_ms);
                    }
                    Step::DropUntil(until_ms) => {
                        while let Some((at_ms, bytes)) = buffer.first_until(until_ms) {
                            prop_assert_eq!((at_ms, bytes), (model[0].0.ms, &*model[0].1));
                            model.remove(0);
                            buffer.drop_first();
                        }
                        prop_assert!(model.first().is_none_or(|(at, _)| at.ms > until_ms));
                    }
                }
                let live: usize = model.iter().map(|(_, bytes)| bytes.len()).sum();
                prop_assert_eq!(buffer.bytes.len() - buffer.gone, live);
                prop_assert!(buffer.bytes.len() <= 2 * live + 1, "{} of {live}", buffer.bytes.len());
            }
            let between: Vec<_> = buffer.between((from, to), nanos).collect();
            let of = |found: &mut dyn Iterator<Item = &'_ (ExactTime, Vec<u8>)>| {
                found.map(|(at, bytes)| (at.ms, bytes.clone())).collect::<Vec<_>>()
            };
            let expected = of(&mut model.iter().filter(|(at, _)| (from..=to).contains(at)));
            prop_assert_eq!(between.iter().map(|(at_ms, bytes)| (*at_ms, bytes.to_vec())).collect::<Vec<_>>(), expected);
            let newest = model.iter().rev().find(|(at, _)| *at <= until).map(|(_, bytes)| &**bytes);
            prop_assert_eq!(buffer.newest(until, nanos), newest);
            prop_assert_eq!(buffer.time_of(0), model.first().map(|(at, _)| at.ms));
            let all: Vec<_> = buffer.all().map(|(at_ms, bytes)| (at_ms, bytes.to_vec())).collect();
            prop_assert_eq!(all, of(&mut model.iter()));
        }
    }

    #[test]
    fn a_buffer_that_empties_gives_its_memory_back() {
        let mut buffer = Buffer::default();
        for at_ms in 0..10_000 {
            buffer.insert(at_ms, &[7; 20], |_| 0);
        }
        while buffer.first_until(9_990).is_some() {
            buffer.drop_first();
        }
        assert!(buffer.records.capacity() < 100, "{}", buffer.records.capacity());
        assert!(buffer.bytes.capacity() < 2_000, "{}", buffer.bytes.capacity());
    }
}
