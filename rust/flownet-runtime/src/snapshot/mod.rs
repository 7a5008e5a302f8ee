//! Checkpoints, as a task knows them: what it is told, what it tells, and what it keeps of its operators.
//!
//! A task of a job with checkpoints is [started](crate::PreparedTask::start) with a [`Checkpointing`]: how barriers are
//! treated, the [`StatePart`]s to begin with, and whom it reports to. While it runs it gets a [`CheckpointOrder`] at a time
//! ([`TaskHandle::checkpoint`](crate::TaskHandle::checkpoint)) and answers with a [`CheckpointReport`].
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
//! A `varint` is LEB128, a `signed` one of the zigzag-mapped 64-bit integer, a `block` a varint length and so many bytes.
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
//! | windows of a grid | `slices` | clock, fired, of changes begin: signed | start: signed, key, value |
//! | other windows | `windows` | watermark, wall: signed | key, varint cells, each: start, end: signed, varint records, next: option, timers of the wall and of event time: varint count and signed each, value, kept |
//! | joins of intervals and as of a version | `join` | watermark: signed | key, of either side: varint records, each: time: signed, record: block |
//! | timers | `timers.*` | | time: signed, key; of changes those that are gone before those that were set |
//! | any of these with event time | `event_time` | | time: signed |
//!
//! A part of a channel holds what was on its way when a checkpoint overtook it: `in_flight.input` what had come to the
//! consumer, `in_flight.output` what lay at the producer, which follows. Timestamps of records refer to the last watermark
//! before them, at the beginning to that of the part; `medium` is what it takes to read them.
//!
//! What lies on disk, and what is written while the task goes on, comes in several parts, in pieces without a header ([`StatePieces`]), and what is
//! written at once behind them as changes upon them.
//!
//! Changes build on the parts of the same state and subtask before them, as far back as the last that is whole. What is kept
//! by key is written so if no more than half of it was touched. Those of slices have no byte after the key: what
//! is gone are all slices before `begin`.
//!
//! Event time is that of the header, the watermark of the subtask that wrote it, for all of its key groups but those that
//! `event_time` names: these were further.
//!
//! An option is `00`, or `01` and a signed. Values are of the medium: in Python blocks of the codec. The decoder is total:
//! any bytes give state or a [`SnapshotError`].
//!
//! # Invariants
//! - I1: a task snapshots between two records, before it forwards the barrier. What it writes later is as it was then, and what
//!   it takes to read it is written last.
//! - I2: a task reports each checkpoint once at most: acknowledged or declined; and that it overtook, once for each order.
//! - I3: what it keeps builds on nothing but a checkpoint that it took and that it knows to stand.
//! - I4: a task that has come to the end of its input stays until a checkpoint that it took after that end is complete.

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

/// Names of what is kept of every operator that keeps something: the medium's, and that its input has ended.
pub(crate) const MEDIUM: &str = "medium";
pub(crate) const FINISHED: &str = "finished";
pub(crate) const KEY_KINDS: &str = "key kinds";

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
pub struct CheckpointContext {
    /// What barriers mean.
    pub mode: CheckpointMode,
    /// Whether they may overtake what is queued; those that do are refused otherwise.
    pub overtakes: bool,
    /// What to begin with; parts of other operators and of others' key groups are passed over. Empty: from nothing.
    pub restored: Vec<RestoredPart>,
    /// The task had [finished](CheckpointReport::Finished) before the checkpoint that it is restored from: it commits what
    /// was prepared, tells those behind it once more that time and data have ended, and ends as any other. Its input is
    /// passed over, and what its operators do at the end of an input is not done again.
    pub has_finished: bool,
    /// Called on the task's thread: must not block.
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

/// What a task is told of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointOrder {
    /// A source snapshots itself and sends this barrier; others pass it over: theirs come by their channels.
    Trigger(Barrier),
    /// The checkpoint has waited in line for too long, whether this task has seen its barrier or not: it is taken at once, and
    /// overtakes what is queued.
    Overtake(Barrier),
    /// The checkpoint stands: what was prepared for it may be committed.
    Complete(u64),
    /// The checkpoint will never stand.
    Abort(u64),
}

/// What a task tells of checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointReport {
    /// It has taken its snapshot and sent the barrier on, and all is written that it wrote meanwhile.
    Acknowledged {
        /// The checkpoint.
        checkpoint_id: u64,
        /// All that its operators keep, but for what lies on disk.
        parts: Vec<StatePart>,
        /// That, which comes before the parts.
        pieces: Vec<StatePieces>,
        /// The checkpoint that parts [of changes](StatePart::is_of_changes) build on: the newest that it knew to stand.
        base: Option<u64>,
        /// `drain` of the end of its input, if the task had [finished](Self::Finished) when it took the snapshot.
        end: Option<bool>,
        /// From the first barrier to the last, microseconds; 0 at a source.
        aligned_us: u64,
        /// The longest that the task stood still for its snapshot, at once, microseconds.
        snapshot_us: u64,
    },
    /// It has been told that this checkpoint is to overtake: no barrier of it is left in line at its outputs. What was
    /// acknowledged before, or is yet to be, stands beside it.
    Overtook {
        /// The checkpoint.
        checkpoint_id: u64,
        /// What its barriers have overtaken that were in line.
        parts: Vec<StatePart>,
    },
    /// It cannot take this checkpoint. The task goes on.
    Declined {
        /// The checkpoint.
        checkpoint_id: u64,
        /// Why, for people: names operator, state and key.
        reason: String,
        /// What is to be recognised if it fails like this again.
        root_cause: Option<RootCause>,
    },
    /// Its input has ended and its operators have finished; it waits for one more checkpoint, and then ends.
    Finished {
        /// Whether the input came to its own end. After a stop without draining it goes on when the job does.
        drain: bool,
    },
}

impl CheckpointReport {
    pub(crate) fn declined(checkpoint_id: u64, error: &TaskError) -> Self {
        Self::Declined { checkpoint_id, reason: error.to_string(), root_cause: error.root_cause() }
    }
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
    /// Whoever reads this channel: it holds what was on its way.
    Channel {
        /// The edge in the job graph.
        edge: u32,
        /// The subtask that fills the partition.
        producer: u32,
        /// The subpartition of it.
        subpartition: u32,
    },
    /// Whoever owns a key group of those that this channel of a keyed edge led to, each its own. No checkpoint says so: it
    /// is what becomes of a channel where the parallelism is another.
    Dealt {
        /// The edge in the job graph.
        edge: u32,
        /// The subtask that filled the partition.
        producer: u32,
        /// The subpartition of it: who read it.
        subpartition: u32,
        /// How many there were to read.
        of: u32,
    },
    /// One subtask, all of it, of a channel of an edge without keys. No checkpoint says so either.
    Moved {
        /// The edge in the job graph.
        edge: u32,
        /// The subtask that filled the partition.
        producer: u32,
        /// The subpartition of it.
        subpartition: u32,
        /// The subtask that takes it now.
        to: u32,
    },
}

impl Share {
    /// Whether it is of a channel: what was on its way, and no state.
    pub fn is_in_flight(&self) -> bool {
        matches!(self, Self::Channel { .. } | Self::Dealt { .. } | Self::Moved { .. })
    }

    /// Whether this task takes something of a part that is shared so, of the operator with this uid.
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
    /// Whether it holds just what has changed since the checkpoint that it builds on.
    pub fn is_of_changes(&self) -> bool {
        self.bytes.get(1) == Some(&write::OF_CHANGES)
    }
}

/// Whether a part says what it takes to read values, whatever else is in it: [`medium_items`].
pub fn has_medium(name: &str, share: &Share) -> bool {
    name == MEDIUM || share.is_in_flight()
}

/// Whether what is kept under this name is nothing that anybody would miss: it comes again by itself.
pub fn is_incidental(name: &str) -> bool {
    [FINISHED, MEDIUM, KEY_KINDS, STATE_KINDS, WATERMARK, EVENT_TIME].contains(&name)
}

/// Of which kind the typed states of a function are, such as a value or a list, by their names.
pub const STATE_KINDS: &str = "state kinds";

/// How far key groups had come in event time, of operators that keep state by key.
pub(crate) const EVENT_TIME: &str = "event_time";

/// How far event time had come, of operators that keep it apart from their state.
pub const WATERMARK: &str = "watermark";

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
