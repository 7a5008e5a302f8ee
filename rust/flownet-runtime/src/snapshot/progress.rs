//! Tracks the checkpoints of a task.

use std::sync::Arc;

use super::{CheckpointContext, CheckpointReport};

/// Checkpoint progress of a task.
pub(crate) struct Progress {
    report: Arc<dyn Fn(CheckpointReport) + Send + Sync>,
    /// The newest checkpoint that it took or declined.
    last_seen: Option<u64>,
    /// The newest checkpoint that it knows to be complete.
    complete: Option<u64>,
    end: Option<End>,
}

/// State of a task at the end of its input.
#[derive(Default)]
struct End {
    /// The first checkpoint that it took or declined since the end. With unaligned barriers, an earlier checkpoint may
    /// complete only after the end, and contains nothing of the output at the end.
    first_taken: Option<u64>,
    /// True if one of these is complete.
    is_kept: bool,
}

impl Progress {
    pub(crate) fn new(checkpointing: &CheckpointContext) -> Self {
        Self { report: Arc::clone(&checkpointing.report), last_seen: None, complete: None, end: None }
    }

    /// Returns true if this checkpoint was neither taken nor declined.
    pub(crate) fn is_news(&self, checkpoint_id: u64) -> bool {
        self.last_seen.is_none_or(|last_seen| last_seen < checkpoint_id)
    }

    /// The same for a checkpoint that is taken now.
    pub(crate) fn begin(&mut self, checkpoint_id: u64) -> bool {
        let is_new = self.is_news(checkpoint_id);
        if is_new {
            self.last_seen = Some(checkpoint_id);
            if let Some(end) = &mut self.end {
                end.first_taken.get_or_insert(checkpoint_id);
            }
        }
        is_new
    }

    pub(crate) fn report(&self, report: CheckpointReport) {
        (self.report)(report);
    }

    /// The input has ended and the operators have finished.
    pub(crate) fn on_end(&mut self, drain: bool) {
        if self.end.is_none() {
            self.end = Some(End::default());
            (self.report)(CheckpointReport::Finished { drain });
        }
    }

    /// The newest complete checkpoint, as far as the task knows.
    pub(crate) fn complete(&self) -> Option<u64> {
        self.complete
    }

    pub(crate) fn on_complete(&mut self, checkpoint_id: u64) {
        self.complete = self.complete.max(Some(checkpoint_id));
        if let Some(end) = &mut self.end {
            end.is_kept |= end.first_taken.is_some_and(|first| first <= checkpoint_id);
        }
    }

    /// Returns true if all work of the task is in a complete checkpoint (I4).
    pub(crate) fn may_end(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.is_kept)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::{CheckpointMode, TaskState};
    use super::*;

    #[test]
    fn a_task_may_end_once_a_checkpoint_stands_that_it_took_after_its_end() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let report = Arc::clone(&told);
        let mut progress = Progress::new(&CheckpointContext {
            mode: CheckpointMode::ExactlyOnce,
            overtakes: false,
            restored: vec![],
            has_finished: false,
            report: Arc::new(move |said| report.lock().unwrap().push(said)),
        });
        let taken = |checkpoint_id| CheckpointReport::Acknowledged {
            checkpoint_id,
            state: TaskState::default(),
            end: None,
            aligned_us: 0,
            snapshot_us: 0,
        };
        assert!(progress.begin(1) && !progress.begin(1));
        progress.on_end(true);
        progress.on_end(true);
        progress.report(taken(1));
        progress.on_complete(1);
        assert!(!progress.may_end(), "of before the end, though its last barrier came behind it");
        assert!(progress.begin(2));
        progress.report(taken(2));
        progress.on_complete(1);
        assert!(!progress.may_end());
        assert!(progress.begin(3));
        progress.report(taken(3));
        progress.on_complete(3);
        assert!(progress.may_end());
        let told = told.lock().unwrap();
        assert_eq!(told.iter().filter(|said| **said == CheckpointReport::Finished { drain: true }).count(), 1);
    }
}
