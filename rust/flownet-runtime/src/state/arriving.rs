//! What a job goes on with, on its way to disk: as it was kept, gathered until there is enough to be written in order of place.

use super::disk::{DiskPlace, StoredKey};
use crate::snapshot::put_given;

/// So much is gathered, and the entry that goes beyond it.
const MOST_BYTES: usize = if cfg!(test) { 64 } else { 4 << 20 };

/// Some keys with what was kept of them. Their bytes lie side by side, so that a key costs no allocation.
#[derive(Default)]
pub(super) struct ArrivingKeys {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

/// Where the place of a key begins among the bytes, where what lies there does, and where that ends.
#[derive(Clone, Copy)]
struct Entry {
    start: usize,
    kept: usize,
    end: usize,
    /// Whether something is kept of the key. What is removed was kept by what came before.
    is_kept: bool,
}

impl ArrivingKeys {
    /// Adds what was kept of a key, which was given in this form: the value as it was written, or that there is none any more.
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

    /// Whether there is enough.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= MOST_BYTES
    }

    /// All of them in order of place, with what is to lie there; those of one place in the order in which they came.
    pub(super) fn in_order(&mut self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let Self { bytes, entries } = self;
        // What comes from disk is in order as it is, which the sort finds out.
        entries.sort_by(|one, other| bytes[one.start..one.kept].cmp(&bytes[other.start..other.kept]));
        entries.iter().map(|entry| {
            let kept = entry.is_kept.then(|| &bytes[entry.kept..entry.end]);
            (&bytes[entry.start..entry.kept], kept)
        })
    }

    /// Nothing any more, with room for as much again.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }
}
