//! Checkpoints, as a task knows them: what it is told, what it tells, and what it keeps of its operators.
//!
//! A task of a job with checkpoints is [started](crate::PreparedTask::start) with a [`Checkpointing`]: how barriers are
//! treated, the [`StatePart`]s to begin with, and whom it reports to. While it runs it gets a [`CheckpointOrder`] at a time
//! ([`TaskHandle::checkpoint`](crate::TaskHandle::checkpoint)) and answers with a [`CheckpointReport`].
//!
//! ```text
//! coordinator ---Trigger---> sources --barrier--> tasks behind them, each: align, snapshot, barrier on, Acknowledged
//!             <--Acknowledged(parts)-- every task
//!             ---Complete or Abort---> every task
//! ```
//!
//! # Format of a part
//! A `varint` is LEB128, a `signed` one of the zigzag-mapped 64-bit integer, a `block` a varint length and so many bytes.
//!
//! ```text
//! part   = version (01) | body
//! body   = 01 | header: block | group*          of key groups, in order
//!        | 02 | item: block, as often as there are any
//! group  = number: varint | entries: block      none without entries
//! entry  = as the state's owner says; most begin with a key
//! key    = canonical: block | 00, or varint length + 1 and the key as it was given
//! ```
//!
//! | operator | state | header | entry |
//! |---|---|---|---|
//! | running folds | `fold` | | key, value |
//! | windows of a grid | `slices` | clock, fired: signed | start: signed, key, value |
//! | other windows | `windows` | watermark, wall: signed | key, varint cells, each: start, end: signed, varint records, next: option, timers of the wall and of event time: varint count and signed each, value, kept |
//! | joins of intervals and as of a version | `join` | watermark: signed | key, of either side: varint records, each: time: signed, record: block |
//! | timers | `timers.*` | | time: signed, key |
//!
//! An option is `00`, or `01` and a signed. Values are of the medium: in Python blocks of the codec. The decoder is total:
//! any bytes give state or a [`SnapshotError`].
//!
//! # Invariants
//! - I1: a task snapshots between two records, before it forwards the barrier.
//! - I2: a task reports each checkpoint once at most: acknowledged or declined.
//! - I3: a task that has come to the end of its input stays until a checkpoint that it took after that end is complete.

mod progress;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;
use std::sync::Arc;

use flownet_core::event::Barrier;
use flownet_core::keygroup::group_range;
use serde::{Deserialize, Serialize};

pub(crate) use self::progress::Progress;
pub use self::read::{Input, KeyedPart, Restored, SnapshotError};
pub(crate) use self::write::put_option;
pub use self::write::{Groups, Snapshot, put_block, put_key, put_signed};
use crate::spec::{OperatorSpec, TaskSpec};

/// What barriers mean to a task with several channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointMode {
    /// A channel that brought its barrier waits for the others: after a recovery each record counts once.
    #[default]
    ExactlyOnce,
    /// Nobody waits: after a recovery some records may count again.
    AtLeastOnce,
}

/// What a task of a job with checkpoints is started with.
#[derive(Clone)]
pub struct Checkpointing {
    /// What barriers mean.
    pub mode: CheckpointMode,
    /// What to begin with; parts of other operators and of others' key groups are passed over. Empty: from nothing.
    pub restored: Vec<StatePart>,
    /// The task had [finished](CheckpointReport::Finished) before the checkpoint that it is restored from: it commits what
    /// was prepared, tells those behind it once more that time and data have ended, and ends as any other. Its input is
    /// passed over, and what its operators do at the end of an input is not done again.
    pub has_finished: bool,
    /// Called on the task's thread: must not block.
    pub report: Arc<dyn Fn(CheckpointReport) + Send + Sync>,
}

impl fmt::Debug for Checkpointing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, restored, has_finished, .. } = self;
        let mut shown = f.debug_struct("Checkpointing");
        shown.field("mode", mode).field("restored", &restored.len()).field("has_finished", has_finished);
        shown.finish_non_exhaustive()
    }
}

/// What a task is told of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointOrder {
    /// A source snapshots itself and sends this barrier; others pass it over: theirs come by their channels.
    Trigger(Barrier),
    /// The checkpoint stands: what was prepared for it may be committed.
    Complete(u64),
    /// The checkpoint will never stand.
    Abort(u64),
}

/// What a task tells of checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckpointReport {
    /// It has taken its snapshot and sent the barrier on.
    Acknowledged {
        /// The checkpoint.
        checkpoint_id: u64,
        /// All that its operators keep.
        parts: Vec<StatePart>,
        /// From the first barrier to the last, microseconds; 0 at a source.
        aligned_us: u64,
        /// How long the task stood still for its snapshot, microseconds.
        snapshot_us: u64,
    },
    /// It cannot take this checkpoint. The task goes on.
    Declined {
        /// The checkpoint.
        checkpoint_id: u64,
        /// Why, for people: names operator, state and key.
        reason: String,
    },
    /// Its input has ended and its operators have finished; it waits for one more checkpoint, and then ends.
    Finished {
        /// Whether the input came to its own end. After a stop without draining it goes on when the job does.
        drain: bool,
    },
}

/// What one subtask of an operator keeps under one name.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatePart {
    /// The operator: [`OperatorSpec::state_uid`].
    pub uid: String,
    /// The state, among those of the operator.
    pub name: String,
    /// Who gets it back.
    pub share: Share,
    /// As the module says.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// Who gets a part back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Share {
    /// Whoever owns one of these key groups, each its own.
    Groups {
        /// The first group.
        first: u16,
        /// The last one, included.
        last: u16,
        /// Key groups of the job.
        of: u32,
    },
    /// Every subtask, which takes of it what is its own.
    All {
        /// The subtask that wrote it.
        subtask: u32,
    },
}

impl fmt::Debug for StatePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uid, name, share, bytes } = self;
        write!(f, "StatePart({uid}/{name}, {share:?}, {} bytes)", bytes.len())
    }
}

impl StatePart {
    /// Whether some operator of this task takes something of it.
    pub fn is_for(&self, task: &TaskSpec) -> bool {
        let is_shared = match self.share {
            Share::All { .. } => true,
            Share::Groups { first, last, of } => {
                of != task.max_parallelism || task.subtask >= task.parallelism || task.parallelism > of || {
                    let own = group_range(task.subtask, of, task.parallelism);
                    first <= *own.end() && *own.start() <= last
                }
            }
        };
        is_shared && task.operators.iter().any(|operator| operator.is_called(&self.uid))
    }
}

impl OperatorSpec {
    /// What its state is called: the user's uid, or its number in the plan, which another program would give to another.
    pub fn state_uid(&self) -> String {
        self.uid.clone().unwrap_or_else(|| format!("#{}", self.id))
    }

    fn is_called(&self, uid: &str) -> bool {
        match &self.uid {
            Some(own) => own == uid,
            None => uid.strip_prefix('#').is_some_and(|number| number.parse() == Ok(self.id)),
        }
    }
}

#[cfg(test)]
mod shares {
    use super::*;
    use crate::spec::{Codec, OperatorKind, Payload};

    fn task(subtask: u32, parallelism: u32, uid: Option<&str>) -> TaskSpec {
        let operator = OperatorSpec {
            id: 7,
            uid: uid.map(str::to_owned),
            name: "count".into(),
            kind: OperatorKind::Map,
            payload: Payload::None,
            rate_limit: None,
            brake: None,
            upstream: None,
        };
        TaskSpec {
            task_id: 0,
            vertex: 0,
            name: "count".into(),
            subtask,
            parallelism,
            max_parallelism: 128,
            codec: Codec::Typed,
            object_reuse: false,
            operators: vec![operator],
            inputs: vec![],
            outputs: vec![],
        }
    }

    fn part(uid: &str, share: Share) -> StatePart {
        StatePart { uid: uid.into(), name: "state".into(), share, bytes: vec![] }
    }

    #[test]
    fn a_part_goes_to_those_who_own_one_of_its_groups() {
        let half = part("#7", Share::Groups { first: 0, last: 63, of: 128 });
        let takes = |parallelism| -> Vec<_> {
            (0..parallelism).filter(|subtask| half.is_for(&task(*subtask, parallelism, None))).collect()
        };
        assert_eq!((takes(1), takes(2), takes(3), takes(4)), (vec![0], vec![0], vec![0, 1], vec![0, 1]));
        assert!((0..3).all(|subtask| part("#7", Share::All { subtask: 5 }).is_for(&task(subtask, 3, None))));
    }

    #[test]
    fn a_part_is_of_the_operator_that_has_its_name() {
        let all = Share::All { subtask: 0 };
        assert!(part("#7", all).is_for(&task(0, 1, None)) && !part("#8", all).is_for(&task(0, 1, None)));
        assert!(part("mine", all).is_for(&task(0, 1, Some("mine"))));
        assert!(!part("#7", all).is_for(&task(0, 1, Some("mine"))));
        assert_eq!(task(0, 1, None).operators[0].state_uid(), "#7");
    }
}
