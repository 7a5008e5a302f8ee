//! Tracks the changes of keyed state since a snapshot, so that the next snapshot need not write state that an earlier
//! one holds.
//!
//! Each key stores the number of snapshots before its last touch, so there is no list of touched keys and no look-up in
//! one. Removed keys are listed while there is a snapshot to build on. The number is stored in a [`Stamp`]. The stamp
//! also shows the search for idle keys whether the key was touched since the last search.
//!
//! # Invariants
//! - I1: a held key that was not touched since a snapshot is as it was in that snapshot.
//! - I2: a key that was held in a snapshot that may be built on, and is no longer held, is listed as removed since.
//! - I3: the list of removed keys has at most half as many entries as there are held keys, and a few more.

use crate::key::Key;

/// Most snapshots of changes that build on a whole one. Each is one more part to read when the job resumes.
const MOST_IN_A_ROW: u32 = 16;
/// Number of keys that may be listed as removed, however few are held.
const FEW: usize = 1024;

/// The snapshots so far, and the keys of type `K` that were removed since.
#[derive(Debug)]
pub(crate) struct Changes<K = (u32, Key)> {
    /// Number of snapshots so far.
    taken: u32,
    /// The snapshots that may be built on, the oldest first.
    bases: Vec<Base>,
    removed: Vec<RemovedKeys<K>>,
}

impl<K> Default for Changes<K> {
    fn default() -> Self {
        Self { taken: 0, bases: Vec::new(), removed: Vec::new() }
    }
}

/// A snapshot that was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base {
    checkpoint_id: u64,
    /// Number of snapshots before it.
    before: u32,
    /// Number of snapshots of changes since the last whole one.
    in_a_row: u32,
    /// Bytes of that whole snapshot, and of the changes.
    whole_bytes: usize,
    changed_bytes: usize,
}

/// The last touch of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp(u32);

impl Stamp {
    const IS_RECENT: u32 = 1;

    /// Number of snapshots before the touch.
    #[inline]
    pub(crate) fn taken(self) -> u32 {
        self.0 >> 1
    }

    /// The same for a key that was just added: it has to be touched once more to stay in memory when others are
    /// spilled.
    #[inline]
    pub(crate) fn of_new(self) -> Self {
        Self(self.0 & !Self::IS_RECENT)
    }

    /// The same for a key that was written for a pending snapshot, see [`Changes::begin_sweep`].
    pub(crate) fn written(self, taken: u32) -> Self {
        Self(taken << 1 | self.0 & Self::IS_RECENT)
    }

    /// Returns true if the key was touched since the last call.
    pub(crate) fn take_is_recent(&mut self) -> bool {
        let is_recent = self.0 & Self::IS_RECENT != 0;
        self.0 &= !Self::IS_RECENT;
        is_recent
    }
}

impl Base {
    /// Returns true if a key that was touched after this number of snapshots may have changed since.
    #[inline]
    pub(crate) fn is_before(&self, touched: u32) -> bool {
        touched >= self.first_behind()
    }

    /// The least number of snapshots before a touch that may have changed a key.
    pub(crate) fn first_behind(&self) -> u32 {
        self.before + 1
    }
}

#[derive(Debug)]
struct RemovedKeys<K> {
    after: u32,
    key: K,
}

impl<K> Changes<K> {
    /// Number of snapshots so far.
    #[inline]
    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    /// The stamp for a key that is touched now.
    #[inline]
    pub(crate) fn now(&self) -> Stamp {
        Stamp(self.taken << 1 | Stamp::IS_RECENT)
    }

    /// The oldest snapshot that may be built on.
    pub(crate) fn oldest(&self) -> Option<Base> {
        self.bases.first().copied()
    }

    /// Lists a removed key. `held` is the number of other keys.
    #[inline]
    pub(crate) fn on_removed(&mut self, key: impl FnOnce() -> K, held: impl FnOnce() -> usize) {
        if !self.bases.is_empty() {
            self.list(key(), held());
        }
    }

    #[cold]
    fn list(&mut self, key: K, held: usize) {
        if self.removed.len() > held / 2 + FEW {
            self.forget();
        } else {
            self.removed.push(RemovedKeys { after: self.taken, key });
        }
    }

    /// Marks all earlier snapshots as not to be built on.
    pub(crate) fn forget(&mut self) {
        self.bases = Vec::new();
        self.removed = Vec::new();
    }

    /// Returns the snapshot of a checkpoint, if the next one may hold only the changes since.
    pub(crate) fn base(&self, checkpoint_id: u64) -> Option<Base> {
        let base = self.bases.iter().find(|base| base.checkpoint_id == checkpoint_id)?;
        (base.in_a_row < MOST_IN_A_ROW && base.changed_bytes <= base.whole_bytes).then_some(*base)
    }

    /// Returns the keys removed since. Some may be held again.
    pub(crate) fn removed_since(&self, base: Base) -> impl Iterator<Item = &K> {
        let first = self.removed.partition_point(|removed| !base.is_before(removed.after));
        self.removed[first..].iter().map(|removed| &removed.key)
    }

    /// Starts a snapshot that is written while the task continues. Returns the highest number of snapshots before the
    /// last touch of its keys. Keys that are written get that number plus one, which is still before the snapshot. Keys
    /// that are touched meanwhile get a greater number.
    pub(crate) fn begin_sweep(&mut self) -> u32 {
        self.taken += 1;
        self.taken - 1
    }

    /// Counts bytes that were written for a snapshot.
    pub(crate) fn on_written(&mut self, checkpoint_id: u64, bytes: usize) {
        // If it is not listed, nothing builds on it.
        let Some(base) = self.bases.iter_mut().find(|base| base.checkpoint_id == checkpoint_id) else { return };
        let written = if base.in_a_row == 0 { &mut base.whole_bytes } else { &mut base.changed_bytes };
        *written += bytes;
    }

    /// Reports a snapshot: of the changes since `base`, or whole. Snapshots older than `complete` are not built on
    /// again.
    pub(crate) fn on_taken(&mut self, checkpoint_id: u64, complete: Option<u64>, base: Option<Base>, bytes: usize) {
        let taken = match base {
            Some(Base { in_a_row, whole_bytes, changed_bytes, .. }) => {
                let (in_a_row, changed_bytes) = (in_a_row + 1, changed_bytes + bytes);
                Base { checkpoint_id, before: self.taken, in_a_row, whole_bytes, changed_bytes }
            }
            None => Base { checkpoint_id, before: self.taken, in_a_row: 0, whole_bytes: bytes, changed_bytes: 0 },
        };
        self.bases.retain(|base| complete.is_none_or(|complete| base.checkpoint_id >= complete));
        self.bases.push(taken);
        let oldest = self.bases[0];
        self.removed.retain(|removed| oldest.is_before(removed.after));
        self.taken += 1;
    }
}
