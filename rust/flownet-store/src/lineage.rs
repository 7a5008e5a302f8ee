//! What the parts of one task build on.

use std::collections::BTreeMap;

use crate::error::StoreError;
use crate::files::{CheckpointStore, PartRef, SnapshotName, TaskSnapshot};

/// What one task kept for each of its checkpoints that later ones may build on.
#[derive(Debug, Default)]
pub struct Lineage {
    kept: BTreeMap<u64, Vec<PartRef>>,
}

impl Lineage {
    /// Puts before each part of changes of a snapshot what it builds on: those of the checkpoint `base`. Nothing older is
    /// asked for again.
    ///
    /// # Errors
    /// [`StoreError::Baseless`]: nothing is known of what a part builds on.
    pub fn extend(
        &mut self,
        name: SnapshotName,
        base: Option<u64>,
        written: TaskSnapshot,
        store: &CheckpointStore,
    ) -> Result<TaskSnapshot, StoreError> {
        if let Some(base) = base {
            self.kept = self.kept.split_off(&base);
        }
        let older: &[PartRef] = base.and_then(|base| self.kept.get(&base)).map_or(&[], Vec::as_slice);
        let mut parts = Vec::with_capacity(written.parts.len());
        for part in written.parts {
            // What stands in the same snapshot is built on first, and with the first of changes comes what all of them build on.
            if part.is_of_changes && !parts.iter().any(|before: &PartRef| before.is_of_same(&part)) {
                let before = parts.len();
                parts.extend(older.iter().filter(|below| below.is_of_same(&part)).cloned());
                if parts.len() == before {
                    return Err(store.baseless(&part));
                }
            }
            parts.push(part);
        }
        self.kept.insert(name.checkpoint, parts.clone());
        Ok(TaskSnapshot { parts, bytes: written.bytes })
    }
}

impl PartRef {
    /// Whether both are of one state of one subtask.
    fn is_of_same(&self, other: &Self) -> bool {
        (&self.uid, &self.name, self.share) == (&other.uid, &other.name, other.share)
    }
}
