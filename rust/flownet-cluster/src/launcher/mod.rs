//! Provides the workers of a job: processes started for it, or a [`WorkerPool`] of processes that registered on their
//! own.
//!
//! The coordinator launches each worker through its [`Launcher`], with its [`Orders`]. It watches and ends either kind
//! as a [`LaunchedWorker`].

mod greeting;
mod process;
mod worker_pool;
mod worker_pool_port;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use flownet_net::{Credentials, Secret};
use serde::{Deserialize, Serialize};

pub(crate) use self::{
    greeting::Greeting,
    worker_pool_port::{Report, WorkerOrder},
};
pub use self::{
    process::WorkerCommand,
    worker_pool::{PoolWorker, Refill, WorkerPool},
};
use self::{process::WorkerProcess, worker_pool::Assignment};
use crate::{
    error::{ClusterError, WorkerExit},
    plan::PlanError,
    settings::SettingsError,
    tls::Tls,
};

/// Source of a job's workers.
#[derive(Clone, Debug)]
pub enum Launcher {
    /// Processes on this machine that are started for the job and end with it.
    Processes(WorkerCommand),
    /// Processes that were started elsewhere, on this or other machines, and stay for the next job.
    WorkerPool {
        /// Registry of these processes.
        pool: Arc<WorkerPool>,
        /// Bytes passed to each worker's factory builder; at most 256 MiB.
        init: Vec<u8>,
    },
}

/// Information for a worker about its job.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Orders {
    /// Address of the coordinator.
    pub(crate) coordinator: SocketAddr,
    /// Number of the worker.
    pub(crate) worker: u32,
    /// Silence of the coordinator after which the worker ends its tasks.
    pub(crate) silence_limit: Duration,
    /// Time that the tasks have to end then.
    pub(crate) cancel_timeout: Duration,
    #[serde(with = "serde_bytes")]
    pub(crate) init: Vec<u8>,
}

/// Worker of a job. Dropping it ends the worker's part in the job.
#[derive(Debug)]
pub(crate) enum LaunchedWorker {
    Process(WorkerProcess),
    Member(Assignment),
}

impl Launcher {
    /// Returns the address of this machine that the workers reach.
    pub(crate) fn host(&self) -> IpAddr {
        match self {
            Self::Processes(_) => Ipv4Addr::LOCALHOST.into(),
            Self::WorkerPool { pool, .. } => pool.address().ip(),
        }
    }

    /// Returns the credentials for the workers of a new job. The workers of a pool use the pool's credentials for all
    /// jobs, so these never cross the wire.
    pub(crate) fn credentials(&self, tls: &Tls) -> Result<Credentials, ClusterError> {
        match self {
            Self::Processes(_) => {
                let secret = Secret::generate().map_err(|error| ClusterError::Setup { message: error.to_string() })?;
                Ok(tls.credentials(secret, self.host()).map_err(PlanError::from)?)
            }
            Self::WorkerPool { pool, .. } if tls.is_met_by(pool.tls(), pool.credentials().has_tls()) => {
                Ok(pool.credentials().clone())
            }
            Self::WorkerPool { pool, .. } => {
                let mismatch = SettingsError::WorkerPoolTls { job: tls.clone(), pool: pool.tls().clone() };
                Err(PlanError::from(mismatch).into())
            }
        }
    }

    /// Returns the bytes that every worker prepares itself with.
    pub(crate) fn init(&self) -> &[u8] {
        match self {
            Self::Processes(command) => &command.init,
            Self::WorkerPool { init, .. } => init,
        }
    }

    /// Whether a job can continue with this number of workers although some may be lost.
    pub(crate) fn has_or_gets(&self, workers: u32) -> bool {
        match self {
            Self::Processes(_) => true,
            Self::WorkerPool { pool, .. } => pool.has(workers) || pool.refill().is_some(),
        }
    }

    /// Whether each attempt of a job gets new workers.
    pub(crate) fn renews(&self) -> bool {
        matches!(self, Self::WorkerPool { pool, .. } if pool.renews())
    }

    /// Releases workers that were part of an attempt of the job.
    pub(crate) fn expel_used(&self) {
        if let Self::WorkerPool { pool, .. } = self {
            pool.expel_used();
        }
    }

    /// Returns how long to wait for workers that have not joined yet.
    pub(crate) fn patience(&self, workers: u32) -> Duration {
        match self {
            Self::WorkerPool { pool, .. } if !pool.has(workers) => pool.refill().unwrap_or_default(),
            Self::Processes(_) | Self::WorkerPool { .. } => Duration::ZERO,
        }
    }

    /// Launches a worker, which then connects to the coordinator and authenticates.
    pub(crate) fn launch(&self, orders: Orders, credentials: &Credentials) -> io::Result<LaunchedWorker> {
        match self {
            Self::Processes(command) => {
                let greeting = Greeting { credentials: credentials.to_text(), orders };
                WorkerProcess::spawn(command, greeting.encode()?).map(LaunchedWorker::Process)
            }
            Self::WorkerPool { pool, .. } => pool.assign(orders).map(LaunchedWorker::Member),
        }
    }
}

impl From<WorkerCommand> for Launcher {
    fn from(command: WorkerCommand) -> Self {
        Self::Processes(command)
    }
}

impl LaunchedWorker {
    /// Returns the worker's place, unless it is a process that was started on this machine.
    pub(crate) fn place(&self) -> Option<Arc<str>> {
        match self {
            Self::Process(_) => None,
            Self::Member(assignment) => Some(assignment.place()),
        }
    }

    /// Returns how the worker's part in the job ended, if it has.
    pub(crate) fn try_exit(&mut self) -> Option<WorkerExit> {
        match self {
            Self::Process(process) => process.try_exit(),
            Self::Member(assignment) => assignment.try_exit(),
        }
    }

    /// Ends the worker by force; [`try_exit`](Self::try_exit) reports when it is gone.
    pub(crate) fn kill(&mut self) {
        match self {
            Self::Process(process) => process.kill(),
            Self::Member(assignment) => assignment.dismiss(),
        }
    }
}
