//! Calls a worker in the same way, whether it is a process or part of this one.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use flownet_runtime::{
    CheckpointOrder,
    flame::{Flame, FlameOrder},
    inspection::TaskChannels,
    source::SourceOrder,
};
use tarpc::client::RpcError;

use crate::{
    agent::Agent,
    rpc::{Attempt, Deployment, Inspection, StatusReport, WorkerClient, WorkerFault, within},
};

/// Connection to a worker. Clones call the same worker.
#[derive(Clone)]
pub(super) enum WorkerLink {
    /// Agent of this process, called without a socket.
    Local(Arc<Agent>),
    /// Worker process.
    Remote(WorkerClient),
}

/// Calls have no timeout of their own: the machine, which sees all workers, decides how long a worker may take.
impl WorkerLink {
    pub(super) async fn deploy(&self, deployment: Deployment) -> Result<Result<SocketAddr, WorkerFault>, RpcError> {
        match self {
            Self::Local(agent) => Ok(agent.deploy(deployment).await),
            Self::Remote(client) => client.deploy(within(NEVER), deployment).await,
        }
    }

    pub(super) async fn start(
        &self,
        attempt: Attempt,
        peers: BTreeMap<u32, SocketAddr>,
    ) -> Result<Result<(), WorkerFault>, RpcError> {
        match self {
            Self::Local(agent) => Ok(agent.start(attempt, &peers).await),
            Self::Remote(client) => client.start(within(NEVER), attempt, peers).await,
        }
    }

    pub(super) async fn poll(&self, wait: Duration, log_room: u64) -> Result<StatusReport, RpcError> {
        match self {
            Self::Local(agent) => Ok(agent.poll(wait, log_room).await),
            Self::Remote(client) => client.poll(within(NEVER), wait, log_room).await,
        }
    }

    pub(super) async fn order(&self, number: u64, order: SourceOrder) -> Result<(), RpcError> {
        match self {
            Self::Local(agent) => {
                agent.order(number, order);
                Ok(())
            }
            Self::Remote(client) => client.order(within(NEVER), number, order).await,
        }
    }

    pub(super) async fn align(&self, generation: u64, number: u64, limits: Vec<(u32, i64)>) -> Result<(), RpcError> {
        match self {
            Self::Local(agent) => {
                agent.align(generation, number, limits);
                Ok(())
            }
            Self::Remote(client) => client.align(within(NEVER), generation, number, limits).await,
        }
    }

    pub(super) async fn add_splits(&self, generation: u64, operator: u32, splits: Vec<u8>) -> Result<(), RpcError> {
        match self {
            Self::Local(agent) => {
                agent.add_splits(generation, operator, splits);
                Ok(())
            }
            Self::Remote(client) => client.add_splits(within(NEVER), generation, operator, splits).await,
        }
    }

    pub(super) async fn end_sources(&self, attempt: Attempt, drain: bool) -> Result<(), RpcError> {
        match self {
            Self::Local(agent) => {
                agent.end_sources(attempt, drain);
                Ok(())
            }
            Self::Remote(client) => client.end_sources(within(NEVER), attempt, drain).await,
        }
    }

    pub(super) async fn checkpoint(
        &self,
        generation: u64,
        latest: u64,
        order: CheckpointOrder,
    ) -> Result<(), RpcError> {
        match self {
            Self::Local(agent) => {
                agent.checkpoint(generation, latest, order);
                Ok(())
            }
            Self::Remote(client) => client.checkpoint(within(NEVER), generation, latest, order).await,
        }
    }

    pub(super) async fn inspect(&self) -> Result<Inspection, RpcError> {
        match self {
            Self::Local(agent) => Ok(agent.inspect()),
            Self::Remote(client) => client.inspect(within(NEVER)).await,
        }
    }

    pub(super) async fn channels(&self, task: u32) -> Result<Option<TaskChannels>, RpcError> {
        match self {
            Self::Local(agent) => Ok(agent.channels(task)),
            Self::Remote(client) => client.channels(within(NEVER), task).await,
        }
    }

    pub(super) async fn flame(&self, task: u32, order: FlameOrder) -> Result<Result<Option<Flame>, String>, RpcError> {
        match self {
            Self::Local(agent) => Ok(agent.flame(task, order).await),
            Self::Remote(client) => client.flame(within(NEVER), task, order).await,
        }
    }

    pub(super) async fn stop(&self, region: u32) -> Result<StatusReport, RpcError> {
        match self {
            Self::Local(agent) => Ok(agent.stop(region).await),
            Self::Remote(client) => client.stop(within(NEVER), region).await,
        }
    }
}

const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);
