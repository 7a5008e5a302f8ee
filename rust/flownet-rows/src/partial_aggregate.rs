//! Parts on their way: records of keyed edges, made of rows.

use std::sync::Arc;

use flownet_runtime::TaskError;
use flownet_runtime::operator::MiniBatch;
use flownet_runtime::varint::take_varint;

use crate::record_format::{Collector, RowRecord};

/// What rows of some keys come to, one part for each, or the rows themselves, one by one or bundled by key.
#[derive(Debug, Default)]
pub struct Parts {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// How many rows they are beyond one each.
    more_rows: usize,
}

#[derive(Debug)]
struct Entry {
    timestamp_ms: i64,
    hash: u32,
    /// Where the key ends, and the value behind it.
    key_end: u32,
    end: u32,
}

/// What some rows of one key come to, or one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartialAggregate<'a> {
    /// Of the rows, or of the slice that they are in.
    pub(crate) timestamp_ms: i64,
    /// Of the key.
    pub(crate) hash: u32,
    /// In its canonical form.
    pub(crate) key: &'a [u8],
    /// For who puts parts together, or keeps rows.
    pub(crate) value: &'a [u8],
}

impl Parts {
    /// Appends a part.
    pub(crate) fn push(&mut self, timestamp_ms: i64, hash: u32, key: &[u8], value: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len() as u32;
        value(&mut self.bytes);
        self.entries.push(Entry { timestamp_ms, hash, key_end, end: self.bytes.len() as u32 });
    }

    /// Appends a bundle of rows of one key, whose hash this is. It is empty then.
    pub(crate) fn push_bundle(&mut self, hash: u32, key: &[u8], bundle: &mut MiniBatch) {
        self.more_rows += bundle.records().saturating_sub(1);
        self.push(bundle.timestamp_ms(), hash, key, |out| bundle.take(out));
    }

    /// How many rows they are; those of which a part is what they come to are one.
    pub fn rows(&self) -> usize {
        self.len() + self.more_rows
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether there are enough of them to be handed on.
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= FULL_PARTS || self.bytes.len() >= FULL_BYTES
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = PartialAggregate<'_>> {
        let mut start = 0;
        self.entries.iter().map(move |entry| {
            let (key, value) = self.bytes[start..entry.end as usize].split_at(entry.key_end as usize - start);
            start = entry.end as usize;
            PartialAggregate { timestamp_ms: entry.timestamp_ms, hash: entry.hash, key, value }
        })
    }
}

/// Lets parts leave. Times of parts are their own.
pub(crate) fn hand_on(parts: Parts, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
    collector.cancel().check()?;
    collector.emit_at(0, RowRecord::Parts(Arc::new(parts)))
}

/// Takes bytes that lie behind their length off the front; none, if there are too few.
pub(crate) fn take_block<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = take_varint(bytes).ok()?;
    let (block, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
    *bytes = rest;
    Some(block)
}

const FULL_PARTS: usize = 4096;
const FULL_BYTES: usize = 1 << 20;
