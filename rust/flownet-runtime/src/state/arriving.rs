//! Gathers the restored state on its way to disk, as it was written, until there is enough to write it in order of
//! place.

use super::disk::{DiskPlace, StoredKey};
use crate::snapshot::put_given;

/// Bytes to gather, plus the entry that exceeds them.
const MOST_BYTES: usize = if cfg!(test) { 64 } else { 4 << 20 };

/// Some keys with their stored values. Their bytes are contiguous, so a key needs no allocation.
#[derive(Default)]
pub(super) struct ArrivingKeys {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

/// The positions of a key in the bytes: start of its place, start of its value, and end.
#[derive(Clone, Copy)]
struct Entry {
    start: usize,
    kept: usize,
    end: usize,
    /// True if the key has a value. False if it was removed after an earlier part had one.
    is_kept: bool,
}

impl ArrivingKeys {
    /// Adds a key with the form in which it was given, and its value as it was written. `None` if it was removed.
    pub(super) fn add(&mut self, place: DiskPlace<'_>, given: Option<&[u8]>, value: Option<&[u8]>) {
        let start = self.bytes.len();
        place.put(&mut self.bytes);
        let kept = self.bytes.len();
        if let Some(value) = value {
            StoredKey::put(0, &mut self.bytes);
            put_given(&mut self.bytes, given);
            self.bytes.extend_from_slice(value);
        }
        self.entries.push(Entry { start, kept, end: self.bytes.len(), is_kept: value.is_some() });
    }

    /// Returns true if there is enough to write.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= MOST_BYTES
    }

    /// Returns all keys in order of place, with their values. Those of one place stay in order of arrival.
    pub(super) fn in_order(&mut self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let Self { bytes, entries } = self;
        // Keys that come from disk are already in order, which the sort detects.
        entries.sort_by(|one, other| bytes[one.start..one.kept].cmp(&bytes[other.start..other.kept]));
        entries.iter().map(|entry| {
            let kept = entry.is_kept.then(|| &bytes[entry.kept..entry.end]);
            (&bytes[entry.start..entry.kept], kept)
        })
    }

    /// Removes all keys. The capacity stays.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }
}
