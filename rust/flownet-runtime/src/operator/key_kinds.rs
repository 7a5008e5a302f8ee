//! Remembers the kinds of keys of an operator, such as text or number. If a resumed job yields keys of another kind, it
//! would never find any of its restored state.
//!
//! A checkpoint records the kinds of all keys in it while it is written. In a resumed job, the first key of each
//! subtask decides. Later keys are not checked.

use super::RecordFormat;
use crate::error::TaskError;
use crate::snapshot::{KEY_KINDS, RestoredState, Snapshot, SnapshotError};
use crate::varint::put_varint;

/// Kinds of keys, one bit each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyKinds {
    /// Kinds of all keys that were written.
    seen: u64,
    /// Kinds in the checkpoint that the job resumes from, until a key of one of these kinds arrives.
    kept: u64,
}

impl KeyKinds {
    /// Returns true if the next key is to be checked.
    #[inline]
    pub(super) fn is_unsure(&self) -> bool {
        self.kept != 0
    }

    /// Checks the first key of a resumed job.
    #[cold]
    pub(super) fn check<M: RecordFormat>(&mut self, key: &[u8], info: &M::Info) -> Result<(), TaskError> {
        let kind = M::key_kind(key.first().copied().unwrap_or_default());
        if kind == 0 || self.kept & (1 << (kind % 64)) != 0 {
            // A key of unknown kind decides nothing: the next key is checked.
            self.kept = if kind == 0 { self.kept } else { 0 };
            return Ok(());
        }
        Err(changed::<M>(kind, self.kept, info))
    }

    /// Adds the kinds of all keys so far, including those that were just written.
    pub(super) fn snapshot<M: RecordFormat>(&mut self, to: &mut Snapshot<'_>) {
        let kinds = to.first_bytes_of_keys().map(M::key_kind).filter(|kind| *kind > 0);
        self.seen |= kinds.fold(0, |seen, kind| seen | 1 << (kind % 64));
        if self.seen != 0 {
            let mut seen = Vec::new();
            put_varint(&mut seen, self.seen);
            to.add_items(KEY_KINDS, [seen]);
        }
    }

    pub(super) fn restore(&mut self, from: &RestoredState<'_>) -> Result<(), TaskError> {
        for (_, mut kinds) in from.items(KEY_KINDS)? {
            self.kept |= kinds.varint()?;
        }
        self.seen = self.kept;
        Ok(())
    }
}

#[cold]
fn changed<M: RecordFormat>(kind: u8, kept: u64, info: &M::Info) -> TaskError {
    let before: Vec<_> = (1..64).filter(|kind| kept & (1 << kind) != 0).map(M::kind_name).collect();
    let reason = format!(
        "its keys are of type {} now, and what was kept is of keys of type {}, so that it would find nothing of it: let key_by \
         give what it gave before; or give the operator another uid, with allow_non_restored_state=True, to begin without",
        M::kind_name(kind),
        before.join(" or "),
    );
    SnapshotError::Refused { uid: M::name(info).to_owned(), reason }.into()
}
