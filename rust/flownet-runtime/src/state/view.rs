//! What lay on disk of a state at one moment, read piece by piece while the task goes on.
//!
//! It is a read transaction: what is written afterwards goes to other pages of the file. Keys that are held in memory come as they were
//! when they left it last, so what is in memory has to follow.

use std::sync::Arc;

use redb::{Database, Range, ReadOnlyTable};

use super::KeyGroupRange;
use super::disk::{DiskStateError, Lying, split_place};
use crate::error::TaskError;
use crate::snapshot::{Groups, put_block};

/// A piece is as long as this, and as the entry that goes beyond it.
const PIECE_BYTES: usize = if cfg!(test) { 64 } else { 4 << 20 };

/// Everything, or what was touched since a snapshot.
pub(crate) struct View {
    pub(super) entries: Entries,
    pub(super) range: KeyGroupRange,
    /// Whether what is said of a key stands upon what an earlier snapshot says.
    pub(super) is_of_changes: bool,
    /// Of a file that says something else than was written, or that cannot be read.
    pub(super) about: DiskStateError,
    /// Held until the last piece was read.
    pub(super) _database: Arc<Database>,
}

/// By place.
pub(super) type All = Range<'static, &'static [u8], &'static [u8]>;

pub(super) enum Entries {
    All(All),
    /// By when it was touched, and place.
    Touched {
        listed: Range<'static, &'static [u8], ()>,
        values: ReadOnlyTable<&'static [u8], &'static [u8]>,
    },
}

impl View {
    /// The next piece, as a part has it; none if that were all.
    pub(crate) fn piece(&mut self) -> Result<Option<Vec<u8>>, TaskError> {
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

    /// Adds an entry, and says how long it is: 0 if it is out of date. None: there is no more.
    fn add_next(&mut self, groups: &mut Groups) -> Result<Option<usize>, String> {
        let broken = || "the file was changed by somebody else".to_owned();
        let failed = |error: redb::StorageError| error.to_string();
        let is_of_changes = self.is_of_changes;
        let range = self.range;
        let mut add = |place: &[u8], lying: &Lying<'_>| {
            let (group, key) = split_place(place)
                .filter(|(group, _)| (range.first()..=range.last()).contains(group))
                .ok_or_else(broken)?;
            let (given, value) = lying.written().ok_or_else(broken)?;
            let out = groups.at(group.get());
            let before = out.len();
            put_block(out, key);
            out.extend_from_slice(given);
            if is_of_changes {
                out.push(crate::snapshot::CHANGED);
            }
            out.extend_from_slice(value);
            Ok(out.len() - before)
        };
        match &mut self.entries {
            Entries::All(all) => {
                let Some(entry) = all.next() else { return Ok(None) };
                let (place, bytes) = entry.map_err(failed)?;
                let lying = Lying::of(bytes.value()).ok_or_else(broken)?;
                add(place.value(), &lying).map(Some)
            }
            Entries::Touched { listed, values } => {
                let Some(entry) = listed.next() else { return Ok(None) };
                let (listed, _) = entry.map_err(failed)?;
                let (taken, place) = listed.value().split_first_chunk().ok_or_else(broken)?;
                let Some(bytes) = values.get(place).map_err(failed)? else { return Ok(Some(0)) };
                let lying = Lying::of(bytes.value()).ok_or_else(broken)?;
                // Otherwise it was touched again, and is listed once more.
                if lying.taken() == u32::from_be_bytes(*taken) { add(place, &lying).map(Some) } else { Ok(Some(0)) }
            }
        }
    }
}
