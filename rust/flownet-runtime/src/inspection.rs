//! Shows the queues and credits of a task, to find out why a job does not progress.
//!
//! Expensive compared to [`MetricsSnapshot`](crate::MetricsSnapshot): it visits every channel. So a [`TaskInspection`]
//! of all tasks is made only on suspicion, and its lists are cut at [`LISTED`]: a task with thousands of channels still
//! fits into a small message. [`TaskChannels`] belong to one task, for people who view it, and have up to
//! [`MOST_CHANNELS`] in each direction.

use std::sync::Arc;
use std::time::Duration;

use flownet_core::partition::{PartitionHandle, SubpartitionStats};
use flownet_core::{Credit, InputGate};
use flownet_memory::BufferPool;
use serde::{Deserialize, Serialize};

use crate::input::ChannelCounts;
use crate::spec::{ChannelSpec, TaskSpec};
use crate::time_accounting::TimeState;

/// One task at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskInspection {
    /// The state of its thread; `None` once it has ended.
    pub state: Option<TimeState>,
    /// Buffers that it has taken from its input and not read yet.
    pub unread_buffers: u64,
    /// Outgoing edges, in the order of [`TaskSpec::outputs`].
    pub outputs: Vec<OutputInspection>,
    /// All incoming edges.
    pub input: InputInspection,
}

/// One partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputInspection {
    /// The pool of its segments.
    pub pool: PoolInspection,
    /// True if the task may write to it.
    pub is_available: bool,
    /// Elements in its subpartitions that a reader could take.
    pub readable: u64,
    /// The subpartitions with the most of these elements, and their number; at most [`LISTED`].
    pub fullest: Vec<(u32, u64)>,
}

/// All channels of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputInspection {
    /// The pool of the remote channels' segments; `None` without remote channels.
    pub pool: Option<PoolInspection>,
    /// Elements that the task could take now.
    pub readable: u64,
    /// Channels whose producer has no credit, by (partition, subpartition); at most [`LISTED`].
    pub without_credit: Vec<(u64, u32)>,
    /// Number of all such channels.
    pub channels_without_credit: u64,
}

/// One buffer pool, in segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolInspection {
    /// Segments that it holds, idle or in use.
    pub held: u64,
    /// Segments in use, not yet returned.
    pub in_use: u64,
    /// Segments that it may hold now.
    pub size: u64,
    /// Segments that it is guaranteed.
    pub guaranteed: u64,
}

/// The channels of one task at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskChannels {
    /// Age of the task, by its worker's clock; rates are computed from it.
    pub age: Duration,
    /// Incoming channels in the order of the task's inputs; at most [`MOST_CHANNELS`].
    pub inputs: Vec<InputChannel>,
    /// Outgoing channels in the order of the task's outputs and their subpartitions; at most [`MOST_CHANNELS`].
    pub outputs: Vec<OutputChannel>,
}

/// A channel into a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputChannel {
    /// The producer's partition.
    pub partition: u64,
    /// The subpartition that the channel reads.
    pub subpartition: u32,
    /// Elements that the task could take now.
    pub readable: u64,
    /// Buffers that the producer may still send; `None` if it needs no credit.
    pub credit: Option<u32>,
    /// Records that the task has read from it.
    pub records_in: u64,
    /// Bytes of the buffers that it has read or is reading, including length prefixes.
    pub bytes_in: u64,
}

/// A channel out of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputChannel {
    /// The partition.
    pub partition: u64,
    /// The subpartition.
    pub subpartition: u32,
    /// Buffers that wait for their reader, including the one being filled.
    pub buffers: u64,
    /// Bytes in these.
    pub bytes: u64,
    /// Records written to it.
    pub records_out: u64,
    /// Bytes written to it, including length prefixes.
    pub bytes_out: u64,
}

impl InputChannel {
    pub(crate) fn all(spec: &TaskSpec, gate: &InputGate, counts: &[Arc<ChannelCounts>]) -> Vec<Self> {
        let names = spec.inputs.iter().flat_map(|input| &input.channels);
        let channels = names.zip(gate.inspect()).zip(counts).map(|((name, channel), counts)| Self {
            partition: name.partition,
            subpartition: name.subpartition,
            readable: channel.readable as u64,
            credit: channel.credit.filter(|credit| !credit.is_unlimited()).map(Credit::get),
            records_in: counts.records(),
            bytes_in: counts.bytes(),
        });
        channels.take(MOST_CHANNELS).collect()
    }
}

impl OutputChannel {
    pub(crate) fn all(partitions: &[PartitionHandle]) -> Vec<Self> {
        let channels = partitions.iter().flat_map(|partition| {
            (0..).zip(partition.outgoing()).map(|(subpartition, outgoing)| {
                let SubpartitionStats { records: records_out, bytes: bytes_out, queued_buffers, queued_bytes } =
                    outgoing;
                let partition = partition.id().get();
                Self { partition, subpartition, buffers: queued_buffers, bytes: queued_bytes, records_out, bytes_out }
            })
        });
        channels.take(MOST_CHANNELS).collect()
    }
}

impl From<&BufferPool> for PoolInspection {
    fn from(pool: &BufferPool) -> Self {
        Self {
            held: pool.held() as u64,
            in_use: pool.in_use() as u64,
            size: pool.size() as u64,
            guaranteed: pool.guaranteed() as u64,
        }
    }
}

impl OutputInspection {
    pub(crate) fn of(partition: &PartitionHandle, pool: Option<&BufferPool>) -> Self {
        let cells = (0..).zip(partition.subpartitions());
        let mut fullest: Vec<(u32, u64)> = cells.map(|(index, cell)| (index, cell.readable() as u64)).collect();
        let readable = fullest.iter().map(|&(_, readable)| readable).sum();
        fullest.retain(|&(_, readable)| readable > 0);
        fullest.sort_by_key(|&(_, readable)| std::cmp::Reverse(readable));
        fullest.truncate(LISTED);
        let is_available = pool.is_none_or(BufferPool::is_available);
        Self { pool: pool.map(PoolInspection::from).unwrap_or_default(), is_available, readable, fullest }
    }
}

impl InputInspection {
    pub(crate) fn of(spec: &TaskSpec, gate: &InputGate, pool: Option<&BufferPool>) -> Self {
        let channels = gate.inspect();
        let names = spec.inputs.iter().flat_map(|input| &input.channels);
        let has_none = |credit: Option<Credit>| credit.is_some_and(Credit::is_zero);
        let starved = names.zip(&channels).filter(|(_, channel)| has_none(channel.credit));
        let starved: Vec<&ChannelSpec> = starved.map(|(name, _)| name).collect();
        Self {
            pool: pool.map(PoolInspection::from),
            readable: channels.iter().map(|channel| channel.readable as u64).sum(),
            without_credit: starved.iter().take(LISTED).map(|name| (name.partition, name.subpartition)).collect(),
            channels_without_credit: starved.len() as u64,
        }
    }
}

/// Longest list in an inspection.
pub const LISTED: usize = 16;

/// Most channels of a task, in each direction, that are shown to people.
pub const MOST_CHANNELS: usize = 10_000;
