//! Names of the splits of a source, and the split with the latest record.
//!
//! Sources name their splits once. The operator that assigns timestamps knows splits by number. Names are looked up
//! when a report is read.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The splits of one subtask.
#[derive(Debug)]
pub struct LateSplits {
    /// Names by split number.
    names: Mutex<Vec<String>>,
    latest: AtomicU32,
}

impl Default for LateSplits {
    fn default() -> Self {
        Self { names: Mutex::default(), latest: AtomicU32::new(NONE) }
    }
}

impl LateSplits {
    /// Names splits. The first of them has the number `first`, and the others follow.
    pub fn name(&self, first: usize, names: impl IntoIterator<Item = String>) {
        let mut known = self.names();
        known.truncate(first);
        known.extend(names);
    }

    /// Stores the split of the record that was the latest so far.
    pub(crate) fn set_latest(&self, split: u32) {
        self.latest.store(split, Ordering::Relaxed);
    }

    /// Returns the split of the latest record. A split without a name is called by its number and the subtask.
    pub fn latest(&self, subtask: u32) -> Option<String> {
        let split = Some(self.latest.load(Ordering::Relaxed)).filter(|split| *split != NONE)?;
        let name = self.names().get(split as usize).cloned();
        Some(name.unwrap_or_else(|| format!("split {split} of subtask {subtask}")))
    }

    fn names(&self) -> MutexGuard<'_, Vec<String>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_are_called_by_their_names_or_by_number_and_subtask() {
        let splits = LateSplits::default();
        assert_eq!(splits.latest(3), None);
        splits.set_latest(1);
        assert_eq!(splits.latest(3).as_deref(), Some("split 1 of subtask 3"));
        splits.name(0, ["a".to_owned()]);
        splits.name(1, ["b".to_owned(), "c".to_owned()]);
        assert_eq!(splits.latest(3).as_deref(), Some("b"));
    }
}
