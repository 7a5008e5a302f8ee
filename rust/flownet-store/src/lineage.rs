//! Completes incremental snapshots of one task with the parts that they build on.

use std::collections::BTreeMap;

use crate::error::StoreError;
use crate::files::{CheckpointStore, PartRef, SnapshotName, TaskSnapshot};

/// Parts that one task stored for each of its checkpoints that later ones may build on.
#[derive(Debug, Default)]
pub struct Lineage {
    kept: BTreeMap<u64, Vec<PartRef>>,
}

impl Lineage {
    /// Inserts the parts of checkpoint `base` before each incremental part that builds on them. Forgets checkpoints
    /// older than `base`, because they are not requested again.
    ///
    /// # Errors
    /// Returns [`StoreError::Baseless`] if the parts that an incremental part builds on are unknown.
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
            // A part of the same snapshot is the first base. So only the first incremental part of a state needs the
            // older parts, and the following ones build on those too.
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
    /// Returns true if both parts belong to one state of one subtask.
    fn is_of_same(&self, other: &Self) -> bool {
        (&self.uid, &self.name, self.share) == (&other.uid, &other.name, other.share)
    }
}
