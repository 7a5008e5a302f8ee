//! Reads on-disk timers as they were at one moment, piece by piece, while the task continues.

use std::io;

use super::Owner;
use crate::error::TaskError;
use crate::snapshot::{CHANGED, Groups, REMOVED};
use crate::state::{DiskStateError, KeyGroupRange, PIECE_BYTES};
use crate::timer::far::{DAMAGED, FarView};
use crate::timer::log::{DoneTimer, LogRange, settled};

/// All timers, or the changes since a snapshot.
pub(super) struct View {
    far: FarView,
    range: KeyGroupRange,
    /// Number of snapshots before the wanted changes; `None` for all set timers.
    since: Option<u32>,
    has_begun: bool,
}

impl View {
    pub(super) fn new(mut far: FarView, range: KeyGroupRange, since: Option<u32>) -> Self {
        // Deleted timers come first, because some may be set again. Ranges are taken from the end.
        far.leaves.reverse();
        far.leaves.extend(far.gone.take());
        Self { far, range, since, has_begun: false }
    }

    /// Total bytes.
    pub(super) fn bytes(&self) -> usize {
        self.far.leaves.iter().map(LogRange::bytes).sum()
    }

    /// Returns the next piece, encoded as a part; `None` after the last one. A view of all set timers has at least one
    /// piece, so that the timers in memory can build on it.
    pub(super) fn piece(&mut self) -> Result<Option<Vec<u8>>, TaskError> {
        let mut groups = Groups::new(self.range);
        let mut bytes = 0;
        while bytes < PIECE_BYTES
            && let Some(lying) = self.far.leaves.pop()
        {
            bytes += self.add(lying, &mut groups)?;
        }
        let is_one = bytes > 0 || (self.since.is_none() && !self.has_begun);
        self.has_begun = true;
        Ok(is_one.then(|| groups.into_bytes_of_keys(self.since.is_some())))
    }

    /// Adds a leaf, or as many changes as fit in a piece. Returns the number of their bytes.
    fn add(&mut self, mut lying: LogRange, groups: &mut Groups) -> Result<usize, TaskError> {
        let (before, reading) = (lying.bytes(), &self.far.reading);
        let Some(since) = self.since else {
            let (set, _) = settled(self.done(lying.read(reading))?);
            for (at_ms, owner) in &set {
                groups.put_timer(*at_ms, &owner.key, None)?;
            }
            return Ok(before);
        };
        for DoneTimer { timer: (at_ms, owner), is_set } in self.done(lying.read_some(PIECE_BYTES, reading))? {
            if owner.taken >= since {
                groups.put_timer(at_ms, &owner.key, Some(if is_set { CHANGED } else { REMOVED }))?;
            }
        }
        let added = before - lying.bytes();
        if lying.bytes() > 0 {
            self.far.leaves.push(lying);
        }
        Ok(added)
    }

    fn done(&self, read: io::Result<Option<Vec<DoneTimer<Owner>>>>) -> Result<Vec<DoneTimer<Owner>>, TaskError> {
        let done = read.map_err(|error| self.failed(error.to_string()))?;
        done.ok_or_else(|| self.failed(DAMAGED.to_owned()))
    }

    #[cold]
    fn failed(&self, reason: String) -> TaskError {
        DiskStateError { reason, ..self.far.about.clone() }.into()
    }
}
