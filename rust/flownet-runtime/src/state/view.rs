//! Reads the on-disk part of a state as it was at one moment, piece by piece, while the task continues.
//!
//! It is a read transaction: later writes go to other pages of the file. Keys that are held in memory appear as they
//! were when they last left it, so the held keys have to follow.

use std::sync::Arc;

use redb::{Database, Range, ReadOnlyTable};

use super::KeyGroupRange;
use super::disk::{DiskPlace, DiskStateError, StoredKey};
use crate::error::TaskError;
use crate::snapshot::{Groups, put_block, put_signed};

/// A piece has these many bytes, plus the entry that exceeds them.
pub(crate) const PIECE_BYTES: usize = if cfg!(test) { 64 } else { 4 << 20 };

/// The on-disk keys, on their way into a snapshot.
pub(crate) struct OnDisk {
    /// Returns the next piece, encoded as a part; `None` after the last one.
    pub(crate) piece: Box<dyn FnMut() -> Result<Option<Vec<u8>>, TaskError> + Send>,
    /// Approximate total bytes.
    pub(crate) bytes: usize,
    /// One bit for each byte that any key ever stored there began with.
    pub(crate) first_bytes: [u64; 4],
}

/// All keys, or those touched since a snapshot.
pub(super) struct View {
    pub(super) entries: Entries,
    pub(super) range: KeyGroupRange,
    /// True if keys belong to time slices.
    pub(super) is_sliced: bool,
    /// True if entries are changes to an earlier snapshot.
    pub(super) is_of_changes: bool,
    /// The error for a file that was changed or cannot be read.
    pub(super) about: DiskStateError,
    /// Held until the last piece is read.
    pub(super) _database: Arc<Database>,
}

/// Entries by place.
pub(super) type FullRange = Range<'static, &'static [u8], &'static [u8]>;

pub(super) enum Entries {
    All(FullRange),
    /// Keys by last touch and place.
    Touched {
        listed: Range<'static, &'static [u8], ()>,
        values: ReadOnlyTable<&'static [u8], &'static [u8]>,
    },
}

impl View {
    /// Returns the next piece, encoded as a part; `None` after the last one.
    pub(super) fn piece(&mut self) -> Result<Option<Vec<u8>>, TaskError> {
        let mut groups = Groups::new(self.range);
        let mut bytes = 0;
        while bytes < PIECE_BYTES {
            match self.add_next(&mut groups) {
                Ok(Some(added)) => bytes += added,
                Ok(None) => break,
                Err(reason) => return Err(DiskStateError { reason, ..self.about.clone() }.into()),
            }
        }
        Ok((bytes > 0).then(|| groups.into_bytes_of_keys(self.is_of_changes)))
    }

    /// Adds an entry and returns its size, which is 0 if it is out of date. `None` if there are no more.
    fn add_next(&mut self, groups: &mut Groups) -> Result<Option<usize>, String> {
        let broken = || "the file was changed by somebody else".to_owned();
        let failed = |error: redb::StorageError| error.to_string();
        let (range, is_sliced, is_of_changes) = (self.range, self.is_sliced, self.is_of_changes);
        let mut add = |place: &[u8], lying: &StoredKey<'_>| {
            let place = DiskPlace::of(place, is_sliced)
                .filter(|place| (range.first()..=range.last()).contains(&place.group))
                .ok_or_else(broken)?;
            let (given, value) = lying.written().ok_or_else(broken)?;
            let out = groups.at(place.group.get());
            let before = out.len();
            place.slice_ms.into_iter().for_each(|slice_ms| put_signed(out, slice_ms));
            put_block(out, place.key);
            out.extend_from_slice(given);
            // Single keys are never removed from slices.
            if is_of_changes && !is_sliced {
                out.push(crate::snapshot::CHANGED);
            }
            out.extend_from_slice(value);
            Ok(out.len() - before)
        };
        match &mut self.entries {
            Entries::All(all) => {
                let Some(entry) = all.next() else { return Ok(None) };
                let (place, bytes) = entry.map_err(failed)?;
                let lying = StoredKey::of(bytes.value()).ok_or_else(broken)?;
                add(place.value(), &lying).map(Some)
            }
            Entries::Touched { listed, values } => {
                let Some(entry) = listed.next() else { return Ok(None) };
                let (listed, _) = entry.map_err(failed)?;
                let (taken, place) = listed.value().split_first_chunk().ok_or_else(broken)?;
                let Some(bytes) = values.get(place).map_err(failed)? else { return Ok(Some(0)) };
                let lying = StoredKey::of(bytes.value()).ok_or_else(broken)?;
                // Otherwise it was touched again, and is listed once more.
                if lying.taken() == u32::from_be_bytes(*taken) { add(place, &lying).map(Some) } else { Ok(Some(0)) }
            }
        }
    }
}
