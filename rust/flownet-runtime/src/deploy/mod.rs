//! Turns a [`TaskSpec`] into a running task: prepare, connect, start.
//!
//! All tasks of a job are prepared before any is connected, and all connected before any is started. So every
//! channel finds its partition.
//!
//! # Invariants
//! - I1: a task takes exactly as many buffers as [`buffers_needed`] returns: the same functions size the
//!   pools and the prediction.
//! - I2: partitions stay registered, and readable, until the [`TaskHandle`] is dropped: consumers on other
//!   workers may ask for them after the task has ended.

mod handle;
mod harness;
mod prepared;

use flownet_core::partition::PartitionHandle;
use flownet_memory::BufferPoolSettings;
use flownet_net::{NetworkConfig, NetworkEnvironment};
use serde::{Deserialize, Serialize};

pub use self::handle::TaskHandle;
pub use self::harness::{Harness, HarnessStop};
pub use self::prepared::PreparedTask;
use crate::spec::TaskSpec;

/// Buffers of a worker that a task is guaranteed, and those that it may use at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferNeed {
    /// The task is refused if these are not available.
    pub min: usize,
    /// It takes no more than these, apart from overdraft.
    pub max: usize,
}

impl std::ops::Add for BufferNeed {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { min: self.min + other.min, max: self.max + other.max }
    }
}

impl std::iter::Sum for BufferNeed {
    fn sum<I: Iterator<Item = Self>>(needs: I) -> Self {
        needs.fold(Self::default(), std::ops::Add::add)
    }
}

impl From<BufferPoolSettings> for BufferNeed {
    fn from(settings: BufferPoolSettings) -> Self {
        Self { min: settings.min, max: settings.max.unwrap_or(usize::MAX) }
    }
}

/// The buffers that `spec` takes when it runs on `worker`.
pub fn buffers_needed(spec: &TaskSpec, worker: u32, config: &NetworkConfig) -> BufferNeed {
    let outputs = spec.outputs.iter().map(|output| config.sizing().partition(output.subpartitions));
    outputs.chain(gate_settings(spec, worker, config)).map(BufferNeed::from).sum()
}

/// A gate with local channels only holds its producers' buffers and needs none of its own.
fn gate_settings(spec: &TaskSpec, worker: u32, config: &NetworkConfig) -> Option<BufferPoolSettings> {
    let remote = u32::try_from(spec.channels(worker, false)).unwrap_or(u32::MAX);
    (remote > 0).then(|| config.sizing().gate(remote))
}

/// Partitions registered in the environment. Dropping removes and releases them.
#[derive(Debug)]
struct RegisteredPartitions {
    environment: NetworkEnvironment,
    partitions: Vec<PartitionHandle>,
}

impl Drop for RegisteredPartitions {
    fn drop(&mut self) {
        for partition in &self.partitions {
            self.environment.release_partition(partition.id());
            partition.release();
        }
    }
}
