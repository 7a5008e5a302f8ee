//! Checkpoints from the view of a task: the orders it gets, the reports it sends, and the state of its operators.
//!
//! A task of a job with checkpoints is [started](crate::PreparedTask::start) with a [`CheckpointContext`]. It defines
//! the treatment of barriers, the [`StatePart`]s to restore, and the receiver of reports. While the task runs, it gets
//! one [`CheckpointOrder`] at a time ([`TaskHandle::checkpoint`](crate::TaskHandle::checkpoint)) and answers with a
//! [`CheckpointReport`].
//!
//! ```text
//! coordinator ---Trigger---> sources --barrier--> tasks behind them, each: align, snapshot, barrier on, Acknowledged
//!             <--Acknowledged(parts)-- every task
//!             ---Overtake---> every task, if that takes too long
//!             <--Overtook(parts)-- every task
//!             ---Complete or Abort---> every task
//! ```
//!
//! # Format of a part
//! A `varint` is LEB128. A `signed` is the varint of a zigzag-mapped 64-bit integer. A `block` is a varint length
//! followed by as many bytes.
//!
//! ```text
//! part   = version (02) | body                 01 where timers have no changes
//! body   = 01 | header: block | group*          of key groups, in order
//!        | 02 | item: block, as often as there are any
//!        | 03 | header: block | group*          of changes: after each key 00 (removed), or 01 and what is kept
//!        | 04 | shape | watermark: option | count: varint | medium: block, so many | piece*      of a channel
//! shape  = 00, with bit 0 of records with keys, with bit 1 of records with timestamps
//! piece  = 00 | records: block                  bytes of records, each behind its length (u32, little-endian); one may go on
//!                                               in the next piece, or in the other part of the channel
//!        | 01 | event: block                    as it travels
//! group  = number: varint | entries: block      none without entries
//! entry  = as the state's owner says; most begin with a key
//! key    = canonical: block | 00, or varint length + 1 and the key as it was given
//! ```
//!
//! | operator | state | header | entry |
//! |---|---|---|---|
//! | running folds | `fold` | | key, value |
//! | aligned windows | `slices` | clock, fired, for changes begin: signed | start: signed, key, value |
//! | other windows | `windows` | watermark, wall: signed | key, varint cells, each: start, end: signed, varint records, next: option, timers of the wall and of event time: varint count and signed each, value, trigger state |
//! | joins of intervals and as of a version | `join` | watermark: signed | key, for each side: varint records, each: time: signed, record: block |
//! | timers | `timers.*` | | time: signed, key; for changes, deleted timers before set ones |
//! | any of these with event time | `event_time` | | time: signed |
//!
//! A part of a channel holds its in-flight data when a checkpoint overtook it. `in_flight.input` holds the data that
//! had arrived at the consumer. `in_flight.output` holds the data that was queued at the producer, which comes next.
//! Timestamps of records refer to the last watermark before them, and at the beginning to that of the part. `medium` is
//! the data that is needed to decode them.
//!
//! State on disk, and state that is written while the task continues, comes in several parts: pieces without a header
//! ([`StatePieces`]). State that is written at once follows as changes to them.
//!
//! Changes build on the earlier parts of the same state and subtask, back to the last whole one. Keyed state is written
//! as changes if at most half of it was touched. Changes of slices have no byte after the key: all slices before
//! `begin` are deleted.
//!
//! Event time is that of the header, the watermark of the subtask that wrote it. It holds for all of its key groups
//! except those that `event_time` lists, which were ahead.
//!
//! An option is `00`, or `01` and a signed. Values are encoded by the record format: in Python as blocks of the codec.
//! The decoder is total: any bytes yield state or a [`SnapshotError`].
//!
//! # Invariants
//! - I1: a task snapshots between two records, before it forwards the barrier. State that it writes later has the
//!   values at that time. The data that is needed to decode it is written last.
//! - I2: a task reports each checkpoint at most once, as acknowledged or declined. It reports overtaking once for each
//!   order.
//! - I3: the state of a task builds only on a checkpoint that the task took and knows to be complete.
//! - I4: a task at the end of its input stays until a checkpoint that it took after that end is complete.

mod in_flight;
mod in_flight_rescaling;
mod progress;
mod read;
mod state_pieces;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;
use std::sync::Arc;

use flownet_core::event::Barrier;
use flownet_core::keygroup::group_range;
use serde::{Deserialize, Serialize};

pub(crate) use self::in_flight::{Edges, InFlightChannel, InFlightElement, Replay, ReplayedElement, kept};
pub(crate) use self::progress::Progress;
pub use self::read::{Input, KeyedPart, RestoredState, SnapshotError, medium_items};
pub use self::state_pieces::{FetchError, IsOver, Piece, RestoredPart, StatePieces, WrittenState};
pub(crate) use self::write::{CHANGED, REMOVED, ROW_ENTRIES, in_rows, put_given, put_option};
pub use self::write::{Groups, Snapshot, put_block, put_key, put_signed};
use crate::error::TaskError;
use crate::root_cause::RootCause;
use crate::spec::{OperatorSpec, TaskSpec, partition_id};

/// Names of state that any operator may have: data to decode its values, the end of its input, and kinds of keys.
pub(crate) const MEDIUM: &str = "medium";
pub(crate) const FINISHED: &str = "finished";
pub(crate) const KEY_KINDS: &str = "key kinds";

/// The treatment of barriers in a task with several channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointMode {
    /// A channel with its barrier waits for the others: after a recovery, each record counts once.
    #[default]
    ExactlyOnce,
    /// No channel waits: after a recovery, some records may count again.
    AtLeastOnce,
}

/// The settings of a task in a job with checkpoints.
#[derive(Clone)]
pub struct CheckpointContext {
    /// The treatment of barriers.
    pub mode: CheckpointMode,
    /// True if barriers may overtake queued data. Otherwise the task refuses unaligned barriers.
    pub overtakes: bool,
    /// The state to restore. Parts of other operators and of other subtasks' key groups are skipped. Empty for a start
    /// without state.
    pub restored: Vec<RestoredPart>,
    /// The task had [finished](CheckpointReport::Finished) before the checkpoint that it is restored from. It commits
    /// its prepared output, reports the end of time and data downstream once more, and ends like any other task. It
    /// skips its input, and its operators do not repeat their work at the end of input.
    pub has_finished: bool,
    /// Called on the task's thread, so it must not block.
    pub report: Arc<dyn Fn(CheckpointReport) + Send + Sync>,
}

impl fmt::Debug for CheckpointContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, overtakes, restored, has_finished, .. } = self;
        let mut shown = f.debug_struct("Checkpointing");
        shown
            .field("mode", mode)
            .field("overtakes", overtakes)
            .field("restored", &restored.len())
            .field("has_finished", has_finished);
        shown.finish_non_exhaustive()
    }
}

/// An order to a task about a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckpointOrder {
    /// A source takes its snapshot and sends this barrier. Other tasks skip the order, because barriers reach them by
    /// their channels.
    Trigger(Barrier),
    /// The checkpoint was delayed by queued data for too long, whether this task has seen its barrier or not. The task
    /// takes it at once, and the barrier overtakes queued data.
    Overtake(Barrier),
    /// The checkpoint is complete: its prepared output may be committed.
    Complete(u64),
    /// The checkpoint will never complete.
    Abort(u64),
}

/// A report of a task about checkpoints. A task reports its state as a [`TaskState`]. Its worker writes the state, and
/// reports the location as `S` to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckpointReport<S = TaskState> {
    /// It has taken its snapshot and forwarded the barrier. State that it wrote while it continued is complete.
    Acknowledged {
        /// The checkpoint.
        checkpoint_id: u64,
        /// State of its operators.
        state: S,
        /// `drain` of the end of its input, if the task had [finished](Self::Finished) before the snapshot.
        end: Option<bool>,
        /// Time from the first barrier to the last, in microseconds; 0 at a source.
        aligned_us: u64,
        /// The longest single pause of the task for its snapshot, in microseconds.
        snapshot_us: u64,
    },
    /// It got the order to overtake with this checkpoint: no barrier of it is queued at its outputs any more. The
    /// acknowledgement, earlier or later, is a separate report.
    Overtook {
        /// The checkpoint.
        checkpoint_id: u64,
        /// The queued data that its barriers have overtaken.
        state: S,
    },
    /// It cannot take this checkpoint. The task continues.
    Declined {
        /// The checkpoint.
        checkpoint_id: u64,
        /// The reason, for people: it names operator, state and key.
        reason: String,
        /// The root cause, to recognise a failure that repeats.
        root_cause: Option<RootCause>,
    },
    /// Its input has ended and its operators have finished. It waits for one more checkpoint, and then ends.
    Finished {
        /// True if the input reached its own end. After a stop without draining, the task continues when the job
        /// resumes.
        drain: bool,
    },
}

/// The state of a task at a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskState {
    /// The state, in memory and on disk.
    pub written: WrittenState,
    /// The checkpoint that parts [of changes](StatePart::is_of_changes) build on: the newest one that the task knew to
    /// be complete.
    pub base: Option<u64>,
}

impl CheckpointReport {
    pub(crate) fn declined(checkpoint_id: u64, error: &TaskError) -> Self {
        Self::Declined { checkpoint_id, reason: error.to_string(), root_cause: error.root_cause() }
    }
}

/// One named state of one subtask of an operator.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatePart {
    /// The operator: [`OperatorSpec::state_uid`].
    pub uid: String,
    /// The state, among those of the operator.
    pub name: String,
    /// The subtasks that restore it.
    pub share: Share,
    /// Encoded as the module docs describe.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// The subtasks that restore a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Share {
    /// The owners of these key groups, each its own groups.
    Groups {
        /// The first group.
        first: u16,
        /// The last group, included.
        last: u16,
        /// Number of key groups of the job.
        of: u32,
    },
    /// Every subtask; each one takes its own share.
    All {
        /// The subtask that wrote it.
        subtask: u32,
    },
    /// The reader of this channel: the part holds in-flight data.
    Channel {
        /// The edge in the job graph.
        edge: u32,
        /// The subtask that writes the partition.
        producer: u32,
        /// Its subpartition.
        subpartition: u32,
    },
    /// The owners of the key groups that this channel of a keyed edge led to, each its own groups. No checkpoint
    /// contains this variant: a channel becomes one when the parallelism changes.
    Dealt {
        /// The edge in the job graph.
        edge: u32,
        /// The subtask that wrote the partition.
        producer: u32,
        /// Its subpartition, and so its former reader.
        subpartition: u32,
        /// Former number of readers.
        of: u32,
    },
    /// One subtask, which takes the whole channel of an unkeyed edge. No checkpoint contains this variant either.
    Moved {
        /// The edge in the job graph.
        edge: u32,
        /// The subtask that wrote the partition.
        producer: u32,
        /// Its subpartition.
        subpartition: u32,
        /// The subtask that takes it now.
        to: u32,
    },
}

impl Share {
    /// Returns true for in-flight data of a channel, false for state.
    pub fn is_in_flight(&self) -> bool {
        matches!(self, Self::Channel { .. } | Self::Dealt { .. } | Self::Moved { .. })
    }

    /// Returns true if this task restores something of such a part, of the operator with this uid.
    pub fn is_for(self, uid: &str, task: &TaskSpec) -> bool {
        let is_shared = match self {
            Self::Channel { edge, producer, subpartition } => {
                let partition = partition_id(edge, producer);
                let mut channels =
                    task.inputs.iter().filter(|input| input.edge == edge).flat_map(|input| &input.channels);
                return channels.any(|read| (read.partition, read.subpartition) == (partition, subpartition));
            }
            Self::Dealt { edge, subpartition, of, .. } => {
                let groups = group_range(subpartition, task.max_parallelism, of);
                let own = group_range(task.subtask, task.max_parallelism, task.parallelism);
                return task.inputs.iter().any(|input| input.edge == edge && input.is_keyed())
                    && groups.start() <= own.end()
                    && own.start() <= groups.end();
            }
            Self::Moved { edge, to, .. } => {
                let mut inputs = task.inputs.iter();
                return task.subtask == to && inputs.any(|input| input.edge == edge && !input.is_keyed());
            }
            Self::All { .. } => true,
            Self::Groups { first, last, of } => {
                of != task.max_parallelism || task.subtask >= task.parallelism || task.parallelism > of || {
                    let own = group_range(task.subtask, of, task.parallelism);
                    first <= *own.end() && *own.start() <= last
                }
            }
        };
        is_shared && task.operators.iter().any(|operator| operator.is_called(uid))
    }
}

impl fmt::Debug for StatePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uid, name, share, bytes } = self;
        write!(f, "StatePart({uid}/{name}, {share:?}, {} bytes)", bytes.len())
    }
}

impl StatePart {
    /// Returns true if the part holds only the changes since the checkpoint that it builds on.
    pub fn is_of_changes(&self) -> bool {
        self.bytes.get(1) == Some(&write::OF_CHANGES)
    }
}

/// Returns true if a part holds data to decode values, besides any other contents: [`medium_items`].
pub fn has_medium(name: &str, share: &Share) -> bool {
    name == MEDIUM || share.is_in_flight()
}

/// Returns true if the state of this name can be lost without harm, because it is created again.
pub fn is_incidental(name: &str) -> bool {
    [FINISHED, MEDIUM, KEY_KINDS, STATE_KINDS, WATERMARK, EVENT_TIME].contains(&name)
}

/// Name of the kinds of a function's typed states, such as value or list.
pub const STATE_KINDS: &str = "state kinds";

/// Event time of key groups that are ahead, in operators with keyed state.
pub(crate) const EVENT_TIME: &str = "event_time";

/// Event time of operators that store it apart from their state.
pub const WATERMARK: &str = "watermark";

impl OperatorSpec {
    /// Name of its state: the user's uid, or its number in the plan. Another program would give that number to another
    /// operator.
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
    use crate::spec::{Codec, OperatorKind, Payload, StateBackend};

    fn task(subtask: u32, parallelism: u32, uid: Option<&str>) -> TaskSpec {
        let operator = OperatorSpec {
            id: 7,
            uid: uid.map(str::to_owned),
            name: "count".into(),
            kind: OperatorKind::Map,
            payload: Payload::None,
            rate_limit: None,
            brake: None,
            target: None,
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
            state: StateBackend::Memory,
            latency_interval_us: None,
            operators: vec![operator],
            inputs: vec![],
            outputs: vec![],
        }
    }

    #[test]
    fn a_part_goes_to_those_who_own_one_of_its_groups() {
        let half = Share::Groups { first: 0, last: 63, of: 128 };
        let takes = |parallelism| -> Vec<_> {
            (0..parallelism).filter(|subtask| half.is_for("#7", &task(*subtask, parallelism, None))).collect()
        };
        assert_eq!((takes(1), takes(2), takes(3), takes(4)), (vec![0], vec![0], vec![0, 1], vec![0, 1]));
        assert!((0..3).all(|subtask| Share::All { subtask: 5 }.is_for("#7", &task(subtask, 3, None))));
    }

    #[test]
    fn a_part_is_of_the_operator_that_has_its_name() {
        let all = Share::All { subtask: 0 };
        assert!(all.is_for("#7", &task(0, 1, None)) && !all.is_for("#8", &task(0, 1, None)));
        assert!(all.is_for("mine", &task(0, 1, Some("mine"))));
        assert!(!all.is_for("#7", &task(0, 1, Some("mine"))));
        assert_eq!(task(0, 1, None).operators[0].state_uid(), "#7");
    }
}
