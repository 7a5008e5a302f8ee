//! What a checkpoint is made of, task by task, for people who ask which of them makes it large or slow.

use std::{collections::BTreeMap, time::Duration};

use flownet_store::TaskSnapshot;
use serde::Serialize;

use crate::shown;

/// What the subtasks of one task kept in a checkpoint. Those that had finished before have no part in it any more.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CheckpointPart {
    /// Position of the task among the job's.
    pub task: u32,
    /// Subtasks that have kept something, or nothing to keep.
    pub subtasks: u32,
    /// Their state.
    pub bytes: u64,
    /// Bytes of the files that were written for it.
    pub written_bytes: u64,
    /// From its trigger until the last of them was written.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub duration: Duration,
    /// The longest that one waited from its first barrier to its last.
    #[serde(rename = "aligned_seconds", serialize_with = "shown::seconds")]
    pub aligned: Duration,
    /// The longest that one stood still to take its snapshot, or to write some of it, at once.
    #[serde(rename = "stood_still_seconds", serialize_with = "shown::seconds")]
    pub stood_still: Duration,
}

/// Those of the checkpoint that is being taken, as its subtasks tell of them.
#[derive(Debug, Default)]
pub(crate) struct CheckpointParts(BTreeMap<u32, CheckpointPart>);

impl CheckpointParts {
    /// A subtask of `task` has written what it keeps, so long after the trigger.
    pub(crate) fn acknowledged(
        &mut self,
        task: u32,
        snapshot: &TaskSnapshot,
        (after, aligned, stood_still): (Duration, Duration, Duration),
    ) {
        let part = self.part(task);
        part.subtasks += 1;
        part.duration = part.duration.max(after);
        part.aligned = part.aligned.max(aligned);
        part.stood_still = part.stood_still.max(stood_still);
        part.add(snapshot);
    }

    /// A subtask of `task` has written what its checkpoint has overtaken.
    pub(crate) fn overtook(&mut self, task: u32, snapshot: &TaskSnapshot) {
        self.part(task).add(snapshot);
    }

    /// All of them, by their tasks.
    pub(crate) fn take(&mut self) -> Vec<CheckpointPart> {
        std::mem::take(&mut self.0).into_values().collect()
    }

    /// The longest that a subtask of any waited from its first barrier to its last, and stood still.
    pub(crate) fn longest(parts: &[CheckpointPart]) -> (Duration, Duration) {
        let longest = |of: fn(&CheckpointPart) -> Duration| parts.iter().map(of).max().unwrap_or_default();
        (longest(|part| part.aligned), longest(|part| part.stood_still))
    }

    fn part(&mut self, task: u32) -> &mut CheckpointPart {
        self.0.entry(task).or_insert(CheckpointPart { task, ..CheckpointPart::default() })
    }
}

impl CheckpointPart {
    fn add(&mut self, snapshot: &TaskSnapshot) {
        self.bytes += snapshot.parts.iter().map(|part| part.bytes).sum::<u64>();
        self.written_bytes += snapshot.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtasks_add_up_and_the_longest_counts() {
        let ms = Duration::from_millis;
        let written = |bytes| TaskSnapshot { parts: Vec::new(), bytes };
        let mut parts = CheckpointParts::default();
        parts.acknowledged(1, &written(10), (ms(30), ms(5), ms(1)));
        parts.overtook(1, &written(7));
        parts.acknowledged(0, &written(1), (ms(2), ms(0), ms(3)));
        parts.acknowledged(1, &written(20), (ms(20), ms(6), ms(0)));
        let taken = parts.take();
        let told = |part: &CheckpointPart| (part.task, part.subtasks, part.written_bytes, part.duration);
        assert_eq!(taken.iter().map(told).collect::<Vec<_>>(), [(0, 1, 1, ms(2)), (1, 2, 37, ms(30))]);
        assert_eq!(CheckpointParts::longest(&taken), (ms(6), ms(3)));
        assert_eq!(parts.take(), []);
    }
}
