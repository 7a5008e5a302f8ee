//! Statistics of a checkpoint by task, for people who ask which task makes it large or slow.

use std::{collections::BTreeMap, time::Duration};

use flownet_store::TaskSnapshot;
use serde::Serialize;

use crate::shown;

/// Contribution of one task's subtasks to a checkpoint. Subtasks that had finished before are not included.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CheckpointPart {
    /// Index of the task in the job.
    pub task: u32,
    /// Subtasks that have acknowledged the checkpoint.
    pub subtasks: u32,
    /// Size of their state in bytes.
    pub bytes: u64,
    /// Bytes of the files that this checkpoint wrote.
    pub written_bytes: u64,
    /// Time from the trigger until the last subtask had written its snapshot.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub duration: Duration,
    /// Longest time between the first and the last barrier of a subtask.
    #[serde(rename = "aligned_seconds", serialize_with = "shown::seconds")]
    pub aligned: Duration,
    /// Longest single pause of a subtask to take its snapshot or to write some of it.
    #[serde(rename = "stood_still_seconds", serialize_with = "shown::seconds")]
    pub stood_still: Duration,
}

/// Times of one subtask's snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotTimes {
    /// Time from the trigger until the snapshot was written.
    pub(crate) after: Duration,
    /// Time from the first barrier to the last.
    pub(crate) aligned: Duration,
    /// Longest single pause of the subtask.
    pub(crate) stood_still: Duration,
}

/// Statistics of the checkpoint that is being taken, collected from the acknowledgements of its subtasks.
#[derive(Debug, Default)]
pub(crate) struct CheckpointParts(BTreeMap<u32, CheckpointPart>);

impl CheckpointParts {
    /// Adds the snapshot of a subtask of `task`.
    pub(crate) fn acknowledged(&mut self, task: u32, snapshot: &TaskSnapshot, times: SnapshotTimes) {
        let part = self.part(task);
        part.subtasks += 1;
        part.duration = part.duration.max(times.after);
        part.aligned = part.aligned.max(times.aligned);
        part.stood_still = part.stood_still.max(times.stood_still);
        part.add(snapshot);
    }

    /// Adds the in-flight data of a subtask of `task`.
    pub(crate) fn overtook(&mut self, task: u32, snapshot: &TaskSnapshot) {
        self.part(task).add(snapshot);
    }

    /// Removes and returns all statistics, ordered by task.
    pub(crate) fn take(&mut self) -> Vec<CheckpointPart> {
        std::mem::take(&mut self.0).into_values().collect()
    }

    /// Returns the longest alignment and the longest pause of any subtask.
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
        let times = |after, aligned, stood_still| SnapshotTimes {
            after: ms(after),
            aligned: ms(aligned),
            stood_still: ms(stood_still),
        };
        let mut parts = CheckpointParts::default();
        parts.acknowledged(1, &written(10), times(30, 5, 1));
        parts.overtook(1, &written(7));
        parts.acknowledged(0, &written(1), times(2, 0, 3));
        parts.acknowledged(1, &written(20), times(20, 6, 0));
        let taken = parts.take();
        let told = |part: &CheckpointPart| (part.task, part.subtasks, part.written_bytes, part.duration);
        assert_eq!(taken.iter().map(told).collect::<Vec<_>>(), [(0, 1, 1, ms(2)), (1, 2, 37, ms(30))]);
        assert_eq!(CheckpointParts::longest(&taken), (ms(6), ms(3)));
        assert_eq!(parts.take(), []);
    }
}
