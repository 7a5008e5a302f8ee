//! Partial aggregates in transit: records of keyed edges, made of rows.

use std::sync::Arc;

use flownet_runtime::TaskError;
use flownet_runtime::operator::MiniBatch;
use flownet_runtime::varint::take_varint;

use crate::record_format::{Collector, RowRecord};

/// Records by key: partial aggregates of one key each, or rows, one by one or as mini-batches.
#[derive(Debug, Default)]
pub struct Parts {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// Number of rows beyond one per record.
    more_rows: usize,
}

#[derive(Debug)]
struct Entry {
    timestamp_ms: i64,
    hash: u32,
    /// End of the key, where the value begins.
    key_end: u32,
    end: u32,
}

/// Partial aggregate of some rows of one key, or one row, or a mini-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartialAggregate<'a> {
    /// Time of the rows, or of their slice.
    pub(crate) timestamp_ms: i64,
    /// Hash of the key.
    pub(crate) hash: u32,
    /// Canonical form of the key.
    pub(crate) key: &'a [u8],
    /// Encoded value, for the operator that merges or buffers it.
    pub(crate) value: &'a [u8],
}

impl Parts {
    /// Appends a record.
    pub(crate) fn push(&mut self, timestamp_ms: i64, hash: u32, key: &[u8], value: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len() as u32;
        value(&mut self.bytes);
        self.entries.push(Entry { timestamp_ms, hash, key_end, end: self.bytes.len() as u32 });
    }

    /// Appends a mini-batch of rows of one key, and leaves `bundle` empty. `hash` is the hash of the key.
    pub(crate) fn push_bundle(&mut self, hash: u32, key: &[u8], bundle: &mut MiniBatch) {
        self.more_rows += bundle.records().saturating_sub(1);
        self.push(bundle.timestamp_ms(), hash, key, |out| bundle.take(out));
    }

    /// Returns the number of rows. A partial aggregate counts as one.
    pub fn rows(&self) -> usize {
        self.len() + self.more_rows
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there are no records.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns true if there are enough records to emit.
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= FULL_PARTS || self.bytes.len() >= FULL_BYTES
    }

    /// Returns all records, in the order in which they were added.
    pub(crate) fn iter(&self) -> impl Iterator<Item = PartialAggregate<'_>> {
        let mut start = 0;
        self.entries.iter().map(move |entry| {
            let (key, value) = self.bytes[start..entry.end as usize].split_at(entry.key_end as usize - start);
            start = entry.end as usize;
            PartialAggregate { timestamp_ms: entry.timestamp_ms, hash: entry.hash, key, value }
        })
    }
}

/// Emits the records. Each has its own time, so they are emitted at time 0.
pub(crate) fn hand_on(parts: Parts, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
    collector.cancel().check()?;
    collector.emit_at(0, RowRecord::Parts(Arc::new(parts)))
}

/// Takes length-prefixed bytes off the front. Returns none if there are too few.
pub(crate) fn take_block<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = take_varint(bytes).ok()?;
    let (block, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
    *bytes = rest;
    Some(block)
}

const FULL_PARTS: usize = 4096;
const FULL_BYTES: usize = 1 << 20;
