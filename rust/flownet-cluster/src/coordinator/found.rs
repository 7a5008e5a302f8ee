//! Distributes splits that a source discovers while the job runs to its subtasks.
//!
//! A lister outside the job serves all subtasks and sends each attempt the complete list. Every subtask receives all
//! splits and takes those that are its own and new. So repeated splits do no harm, and splits that arrive while no
//! attempt runs need not be stored.

use std::collections::BTreeSet;

use super::driver::Driver;
use crate::machine::JobState;

/// New splits of a source.
#[derive(Debug)]
pub(super) struct FoundSplits {
    pub(super) operator: u32,
    /// Attempt that the splits are for, as the number of restarts before it.
    pub(super) restarted: u64,
    /// Splits as the operator encodes them.
    pub(super) splits: Vec<u8>,
}

impl Driver {
    /// Sends the splits to all subtasks of the source, if the attempt still runs.
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
            self.workers
                .call(worker, async move |link| link.add_splits(generation, operator, splits).await.map(|()| None));
        }
    }
}
