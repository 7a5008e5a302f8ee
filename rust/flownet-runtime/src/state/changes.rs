//! What of state by key has changed since a snapshot of it, so that the next need not write what an earlier one holds.
//!
//! Each key says after how many snapshots it was last touched: no list of these keys is kept, and none is looked up.
//! Keys that were removed are listed, as long as there is a snapshot to build on. What says so is a [`Stamp`], which also
//! tells who looks for keys that can leave memory whether the key was touched since he last looked.
//!
//! # Invariants
//! - I1: a key that is held and was not touched since a snapshot is as it was in that snapshot.
//! - I2: a key that was held in a snapshot that may be built on, and no longer is, is listed as removed since.
//! - I3: the list of the removed is no longer than half of what is held, and a little more.

use crate::key::Key;

/// How many snapshots of changes build on a whole one, at most: each is one more part to read for whoever goes on from it.
const MOST_IN_A_ROW: u32 = 16;
/// So many keys may be listed as removed, however few are held.
const FEW: usize = 1024;

/// Which snapshots there were, and what was removed since: `K` says what.
#[derive(Debug)]
pub(crate) struct Changes<K = (u32, Key)> {
    /// Snapshots so far.
    taken: u32,
    /// Those that may be built on, the oldest first.
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
    /// How many there were before it.
    before: u32,
    /// How many of changes there are since the last whole one.
    in_a_row: u32,
    /// Bytes of that whole one, and of the changes.
    whole_bytes: usize,
    changed_bytes: usize,
}

/// When a key was last touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp(u32);

impl Stamp {
    const IS_RECENT: u32 = 1;

    /// After how many snapshots.
    #[inline]
    pub(crate) fn taken(self) -> u32 {
        self.0 >> 1
    }

    /// The same, of a key that has just come: it has to be touched once more to stay in memory where others have to leave.
    #[inline]
    pub(crate) fn of_new(self) -> Self {
        Self(self.0 & !Self::IS_RECENT)
    }

    /// The same, of a key that was written for a snapshot that is being written, as [`Changes::begin_sweep`] says.
    pub(crate) fn written(self, taken: u32) -> Self {
        Self(taken << 1 | self.0 & Self::IS_RECENT)
    }

    /// Whether it was touched since this was last asked.
    pub(crate) fn take_is_recent(&mut self) -> bool {
        let is_recent = self.0 & Self::IS_RECENT != 0;
        self.0 &= !Self::IS_RECENT;
        is_recent
    }
}

impl Base {
    /// Whether a key that was touched after so many snapshots may be otherwise now.
    #[inline]
    pub(crate) fn is_before(&self, touched: u32) -> bool {
        touched >= self.first_behind()
    }

    /// What is touched after so many snapshots, and after more, may be otherwise.
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
    /// Snapshots so far.
    #[inline]
    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    /// What to write into a key that is touched now.
    #[inline]
    pub(crate) fn now(&self) -> Stamp {
        Stamp(self.taken << 1 | Stamp::IS_RECENT)
    }

    /// The oldest snapshot that may be built on.
    pub(crate) fn oldest(&self) -> Option<Base> {
        self.bases.first().copied()
    }

    /// A key is held no longer; so many others are.
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

    /// Nothing may be built on what there was.
    pub(crate) fn forget(&mut self) {
        self.bases = Vec::new();
        self.removed = Vec::new();
    }

    /// The snapshot of a checkpoint, if the next may hold just what has changed since.
    pub(crate) fn base(&self, checkpoint_id: u64) -> Option<Base> {
        let base = self.bases.iter().find(|base| base.checkpoint_id == checkpoint_id)?;
        (base.in_a_row < MOST_IN_A_ROW && base.changed_bytes <= base.whole_bytes).then_some(*base)
    }

    /// Keys removed since; some may be held again.
    pub(crate) fn removed_since(&self, base: Base) -> impl Iterator<Item = &K> {
        let first = self.removed.partition_point(|removed| !base.is_before(removed.after));
        self.removed[first..].iter().map(|removed| &removed.key)
    }

    /// The next snapshot is written while the task goes on. Says after how many there were what it is to have was last touched,
    /// at most. Keys that are written say one more, which is before the snapshot, and those that are touched then more than that.
    pub(crate) fn begin_sweep(&mut self) -> u32 {
        self.taken += 1;
        self.taken - 1
    }

    /// So many bytes more were written for a snapshot.
    pub(crate) fn on_written(&mut self, checkpoint_id: u64, bytes: usize) {
        // None: nothing may be built on it.
        let Some(base) = self.bases.iter_mut().find(|base| base.checkpoint_id == checkpoint_id) else { return };
        let written = if base.in_a_row == 0 { &mut base.whole_bytes } else { &mut base.changed_bytes };
        *written += bytes;
    }

    /// A snapshot was taken: of what changed since `base`, or whole. What is older than `complete` is not built on again.
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
