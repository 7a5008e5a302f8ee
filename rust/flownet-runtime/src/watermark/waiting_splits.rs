//! The splits of a source that are not being read: unread ones, and open ones between two turns.
//!
//! # Invariants
//! - I1: `by_due` holds exactly one entry for each generator, with its due watermark.

use std::collections::{BTreeMap, BTreeSet};

use super::Generator;

/// Generators by split, and in the order of their due watermarks. A source may have 100,000 splits, so no
/// operation of a batch or split walks over all of them.
#[derive(Debug, Default)]
pub(super) struct WaitingSplits {
    generators: BTreeMap<u32, Generator>,
    by_due: BTreeSet<(i64, u32)>,
}

impl WaitingSplits {
    pub(super) fn insert(&mut self, split: u32, generator: Generator) {
        self.remove(split);
        self.by_due.insert((generator.due_ms(), split));
        self.generators.insert(split, generator);
    }

    pub(super) fn remove(&mut self, split: u32) -> Option<Generator> {
        let generator = self.generators.remove(&split)?;
        self.by_due.remove(&(generator.due_ms(), split));
        Some(generator)
    }

    /// Removes the split with the least number.
    pub(super) fn pop_first(&mut self) -> Option<(u32, Generator)> {
        let split = *self.generators.first_key_value()?.0;
        self.remove(split).map(|generator| (split, generator))
    }

    pub(super) fn clear(&mut self) {
        (self.generators, self.by_due) = Default::default();
    }

    /// Changes the generator of a split, if it is here.
    pub(super) fn update(&mut self, split: u32, change: impl FnOnce(&mut Generator)) {
        if let Some(mut generator) = self.remove(split) {
            change(&mut generator);
            self.insert(split, generator);
        }
    }

    /// Changes all generators, in a way that leaves their due watermarks unchanged.
    pub(super) fn for_each(&mut self, mut change: impl FnMut(u32, &mut Generator)) {
        for (split, generator) in &mut self.generators {
            let due_ms = generator.due_ms();
            change(*split, generator);
            debug_assert_eq!(due_ms, generator.due_ms(), "I1");
        }
    }

    /// The split with the least watermark, and that watermark. Of several with equal watermarks, the first.
    pub(super) fn furthest_behind(&self) -> Option<(i64, u32)> {
        self.by_due.first().copied()
    }

    /// The least watermark of the splits that are not idle.
    pub(super) fn least_due_ms(&self) -> Option<i64> {
        let is_active = |split: &u32| self.generators.get(split).is_some_and(|generator| !generator.is_idle);
        self.by_due.iter().find(|(_, split)| is_active(split)).map(|(due_ms, _)| *due_ms)
    }
}
