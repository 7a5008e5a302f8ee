//! What a source finds to read while the job runs, on its way to its subtasks.
//!
//! Who lists is outside, once for all subtasks, and tells each attempt of all that there is. Every subtask is told of
//! everything, and takes what is its own and what it does not know: so what is told twice does no harm, and what comes while no
//! attempt runs need not be kept.

use std::collections::BTreeSet;

use super::driver::{Driver, Event};
use crate::machine::JobState;

/// More to read for a source.
#[derive(Debug)]
pub(super) struct FoundSplits {
    pub(super) operator: u32,
    /// The attempt that is told, by how many were before it.
    pub(super) restarted: u64,
    /// As the operator writes them.
    pub(super) splits: Vec<u8>,
}

impl Driver {
    /// Tells all subtasks of the source, if they still are those of that attempt.
    pub(super) fn deal(&mut self, found: FoundSplits) {
        let FoundSplits { operator, restarted, splits } = found;
        if self.machine.state() != JobState::Running || self.board.status().history.restarted != restarted {
            return;
        }
        let tasks = self.job.plan.tasks.iter();
        let readers = tasks.filter(|task| task.spec.operators.first().is_some_and(|head| head.id == operator));
        let generation = self.generation;
        for worker in readers.map(|task| task.worker).collect::<BTreeSet<_>>() {
            let splits = splits.clone();
            self.call(worker, async move |link| {
                link.add_splits(generation, operator, splits).await.map(|()| Event::Done)
            });
        }
    }
}
