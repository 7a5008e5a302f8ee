//! The specification of a task, as data: planned by the cluster, sent to a worker, built there.
//!
//! Everything here serialises. The runtime reads the topology (inputs, outputs, placement of producers). It passes the
//! operators' definitions and payloads on to the [`ChainFactory`](crate::ChainFactory) that builds them.

mod operator;
mod rows;
mod window;

use std::path::PathBuf;

use flownet_core::PartitionId;
use flownet_core::channel::ChannelControl;
use serde::{Deserialize, Serialize};

pub use self::operator::{Codec, Field, FilePath, Fold, InvalidUtf8, LineFormat, OperatorKind, ProcessInputs};
pub use self::rows::{RowFormat, RowsJoin, RowsKind, RowsLate, RowsRank};
pub use self::window::{TriggerSpec, TriggerWhen, WindowAssigner, WindowSpec, zone_named};
use crate::source::RateLimit;

/// One subtask of one vertex of the job: a chain of operators with its inputs and outputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// Unique in the job.
    pub task_id: u32,
    /// The chained vertex of this subtask.
    pub vertex: u32,
    /// Name of the vertex, as shown to users.
    pub name: String,
    /// Index of this subtask, less than `parallelism`.
    pub subtask: u32,
    /// Number of subtasks of the vertex.
    pub parallelism: u32,
    /// Number of key groups of the job. Senders and receivers of a keyed edge must agree on it.
    pub max_parallelism: u32,
    /// Encoding of object records between tasks.
    pub codec: Codec,
    /// True if objects are passed on within the task without a copy, even if several operators hold them.
    pub object_reuse: bool,
    /// The place where keyed state is stored.
    pub state: StateBackend,
    /// Microseconds between two latency markers of a source. `None` if it emits none.
    pub latency_interval_us: Option<u64>,
    /// Operators of the chain, upstream first.
    pub operators: Vec<OperatorSpec>,
    /// Edges into the task; empty for a source.
    pub inputs: Vec<InputSpec>,
    /// Edges out of the task; empty for a sink.
    pub outputs: Vec<OutputSpec>,
}

impl TaskSpec {
    /// Returns true if the task has no inputs and is driven by its source operator.
    pub fn is_source(&self) -> bool {
        self.inputs.is_empty()
    }

    /// Returns true if fed-back records also arrive, ahead of those of the inputs.
    pub fn heads_iteration(&self) -> bool {
        self.operators.first().is_some_and(|head| matches!(head.kind, OperatorKind::IterationHead { .. }))
    }

    /// Returns true if it gets split signals about its records, before the first record of each split.
    pub fn has_splits(&self) -> bool {
        self.inputs.iter().any(|input| input.splits)
            || self.operators.first().is_some_and(|head| head.kind.tells_splits())
    }

    /// Returns true if some input is keyed, so that the subtasks share the key groups.
    pub fn is_keyed(&self) -> bool {
        self.inputs.iter().any(InputSpec::is_keyed)
    }

    /// Number of channels that the task reads from its own worker (`true`) or from other workers (`false`).
    pub fn channels(&self, worker: u32, local: bool) -> usize {
        let all = self.inputs.iter().flat_map(|input| &input.channels);
        all.filter(|channel| (channel.producer_worker == worker) == local).count()
    }
}

/// The place where keyed state is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StateBackend {
    /// In memory.
    #[default]
    Memory,
    /// In memory while there is room, the rest on disk, for operators whose [state
    /// can](OperatorKind::can_keep_on_disk).
    Disk {
        /// Approximate bytes of memory for the state of each subtask of such an operator.
        memory_bytes: usize,
        /// Folder for unnamed files. `None` for the process's folder for temporary files.
        folder: Option<PathBuf>,
    },
}

/// One operator of a chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorSpec {
    /// Unique in the job.
    pub id: u32,
    /// The user's stable name for its state, if given.
    pub uid: Option<String>,
    /// Name shown in errors and metrics.
    pub name: String,
    /// Its function. JSON in every format, because the contents are self-describing, and decoded in one place.
    #[serde(with = "as_json")]
    pub kind: OperatorKind,
    /// The user's function or data.
    pub payload: Payload,
    /// The most that a source emits, all its subtasks together.
    pub rate_limit: Option<RateLimit>,
    /// Records per second to which all subtasks of the operator together are slowed down; for demonstrations.
    pub brake: Option<f64>,
    /// Target of a sink that prepares output for checkpoints. `None` if no other component needs it.
    pub target: Option<String>,
    /// The operator of the same chain that feeds this one. `None` for the head.
    pub upstream: Option<Upstream>,
}

/// The origin of the records of an operator downstream of a chain's head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upstream {
    /// The operator.
    pub operator: u32,
    /// Its side output. `None` for its main output.
    pub tag: Option<String>,
}

/// A user's object on its way to the operator that runs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Payload {
    /// No object.
    #[default]
    None,
    /// Serialised, for the chain factory to decode.
    Bytes(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Stored in the driver process under this number. Such an operator runs only there.
    Local(u32),
}

/// The rule by which records of an edge choose their subpartition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Partitioner {
    /// To the subtask of the same index.
    Forward,
    /// Round-robin over all subtasks.
    Rebalance,
    /// Round-robin over the nearby subtasks.
    Rescale,
    /// To every subtask.
    Broadcast,
    /// By the key group of the record's key.
    KeyGroup,
    /// By a user's function, called by the chain.
    Custom,
}

/// The mechanism that limits the producers of an exchange between workers to the pace of their consumers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowControl {
    /// Credit of each channel's receiver: a slow consumer slows its own producers only.
    #[default]
    Credit,
    /// TCP's flow control: a consumer without buffers stops the socket that all channels of the exchange between two
    /// workers share.
    Tcp,
    /// As in Storm: queues grow, and a monitor with two watermarks stops all sources of the job.
    Storm,
    /// As in Spark Streaming: queues grow, and a rate estimator sets the rate of all sources of the job.
    Pid,
    /// None: records that do not fit are dropped.
    Drop,
    /// None: queues grow up to a limit at which the job fails.
    Unbounded,
}

impl FlowControl {
    /// All mechanisms.
    pub const ALL: [Self; 6] = [Self::Credit, Self::Tcp, Self::Storm, Self::Pid, Self::Drop, Self::Unbounded];

    /// Their names in the API, in the same order.
    pub const NAMES: [&'static str; 6] = ["credit", "tcp", "storm", "pid", "drop", "unbounded"];

    /// Its name in the API.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Returns true if it acts on the sources of a job, and so on all exchanges of the job.
    pub fn is_of_the_job(self) -> bool {
        matches!(self, Self::Storm | Self::Pid)
    }

    /// Returns its effect on the channels of one exchange.
    pub fn of_channels(self, exchange: u32) -> ChannelControl {
        match self {
            Self::Credit => ChannelControl::Credit,
            Self::Tcp => ChannelControl::Tcp { exchange },
            Self::Drop => ChannelControl::Drop,
            Self::Storm | Self::Pid | Self::Unbounded => ChannelControl::Unbounded,
        }
    }
}

/// One edge out of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputSpec {
    /// The edge in the job graph.
    pub edge: u32,
    /// The operator whose records leave here.
    pub from_operator: u32,
    /// Its side output. `None` for its main output.
    pub tag: Option<String>,
    /// True if records carry their timestamps.
    pub timestamps: bool,
    /// True if it is part of an iteration, on a path from its head to its tail: it transports rounds.
    pub in_iteration: bool,
    /// True if it transports split signals. It is then a one-to-one edge from a source with splits to an operator that
    /// makes watermarks per split.
    pub splits: bool,
    /// The rule by which records choose their subpartition.
    pub partitioner: Partitioner,
    /// Key selector or custom partitioner, for the chain to run.
    pub payload: Payload,
    /// The partition that this output writes; see [`partition_id`].
    pub partition: u64,
    /// Number of subpartitions, one for each consuming subtask.
    pub subpartitions: u32,
    /// Microseconds that a record may wait for its buffer to fill. `None`: only full buffers leave. `Some(0)`: each
    /// record leaves at once.
    pub flush_timeout_us: Option<u64>,
}

impl OutputSpec {
    /// The partition that this output writes.
    pub fn partition_id(&self) -> PartitionId {
        PartitionId::new(self.partition)
    }
}

/// One edge into a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputSpec {
    /// The edge in the job graph.
    pub edge: u32,
    /// The operator that takes the records.
    pub to_operator: u32,
    /// The input of that operator, counted from 0.
    pub side: u8,
    /// True if records carry their timestamps.
    pub timestamps: bool,
    /// As in the output at its other end.
    pub in_iteration: bool,
    /// As in the output at its other end.
    pub splits: bool,
    /// The rule by which its producers choose the consumer of a record.
    pub partitioner: Partitioner,
    /// The mechanism that limits its producers on other workers.
    pub flow_control: FlowControl,
    /// The channels to read.
    pub channels: Vec<ChannelSpec>,
}

impl InputSpec {
    /// Returns true if records start with their key.
    pub fn is_keyed(&self) -> bool {
        self.partitioner == Partitioner::KeyGroup
    }
}

/// One subpartition that a task reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelSpec {
    /// Worker on which the producer runs.
    pub producer_worker: u32,
    /// The producer's partition.
    pub partition: u64,
    /// The subpartition to read.
    pub subpartition: u32,
}

impl ChannelSpec {
    /// The producer's partition.
    pub fn partition_id(&self) -> PartitionId {
        PartitionId::new(self.partition)
    }
}

/// The unique number of a partition in a job: edge in the upper half, producing subtask in the lower.
pub fn partition_id(edge: u32, producer_subtask: u32) -> u64 {
    (u64::from(edge) << 32) | u64::from(producer_subtask)
}

/// Embeds a self-describing format, JSON, in formats that are not.
mod as_json {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::Error as _};

    use super::OperatorKind;

    pub(super) fn serialize<S: Serializer>(kind: &OperatorKind, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::to_string(kind).map_err(S::Error::custom)?.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OperatorKind, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut json = serde_json::Deserializer::from_str(&text);
        // Expressions may be nested, but not deeper than the code that wrote them.
        json.disable_recursion_limit();
        let kind = OperatorKind::deserialize(&mut json).map_err(D::Error::custom)?;
        json.end().map_err(D::Error::custom)?;
        Ok(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_operator_does_arrives_as_it_was_to_the_last_digit() {
        let awkward = 0.104_905_984_283_944_85; // a quick parser takes it for its neighbour
        let deep = (0..500).fold(serde_json::Value::Null, |inner, _| serde_json::json!([inner]));
        let kind = OperatorKind::Rows(RowsKind::Project {
            input: serde_json::json!([["n", "int64"]]),
            steps: serde_json::json!([{ "literal": awkward }, { "literal": u64::MAX }, { "literal": null }, deep]),
        });
        let spec = OperatorSpec {
            id: 1,
            uid: None,
            name: "project".into(),
            kind,
            payload: Payload::None,
            rate_limit: None,
            brake: None,
            target: None,
            upstream: None,
        };
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<OperatorSpec>(&text).unwrap(), spec);
        assert!(serde_json::from_str::<OperatorSpec>(&text.replace("project", "projekt")).is_err());
    }

    #[test]
    fn partitions_of_different_edges_and_subtasks_never_share_a_number() {
        let ids = [partition_id(0, 0), partition_id(0, 1), partition_id(1, 0), partition_id(1, 1)];
        let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
    }

    #[test]
    fn ways_to_control_flow_are_called_as_they_serialise() {
        for control in FlowControl::ALL {
            assert_eq!(serde_json::to_value(control).unwrap(), control.name());
        }
    }

    #[test]
    fn channels_are_counted_by_where_their_producer_runs() {
        let channel = |producer_worker| ChannelSpec { producer_worker, partition: 1, subpartition: 0 };
        let input = |channels| InputSpec {
            edge: 0,
            to_operator: 0,
            side: 0,
            timestamps: false,
            in_iteration: false,
            splits: false,
            partitioner: Partitioner::Rebalance,
            flow_control: FlowControl::Credit,
            channels,
        };
        let task = TaskSpec {
            task_id: 0,
            vertex: 0,
            name: "sink".into(),
            subtask: 0,
            parallelism: 1,
            max_parallelism: 128,
            codec: Codec::Typed,
            object_reuse: false,
            state: StateBackend::Memory,
            latency_interval_us: None,
            operators: vec![],
            inputs: vec![input(vec![channel(1), channel(2)]), input(vec![channel(2)])],
            outputs: vec![],
        };
        assert_eq!((task.channels(2, true), task.channels(2, false)), (2, 1));
        assert!(!task.is_source());
    }
}
