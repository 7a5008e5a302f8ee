//! Where the workers of a job come from: processes that are started for it, or
//! a [`WorkerPool`] of processes that came by themselves.
//!
//! The coordinator launches each worker through its [`Launcher`], with its
//! [`Orders`], and watches and ends the [`LaunchedWorker`] it gets, whichever it is.

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

/// Where the workers of a job come from.
#[derive(Clone, Debug)]
pub enum Launcher {
    /// Processes on this machine, started for the job and gone with it.
    Processes(WorkerCommand),
    /// Processes that somebody else started, here or elsewhere, and that stay
    /// for the next job.
    WorkerPool {
        /// Who there is.
        pool: Arc<WorkerPool>,
        /// Bytes handed to each worker's factory builder; at most 256 MiB.
        init: Vec<u8>,
    },
}

/// What a worker is told about the job it is to take part in.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Orders {
    /// Where to dial.
    pub(crate) coordinator: SocketAddr,
    /// Its number.
    pub(crate) worker: u32,
    /// Silence of the coordinator after which the worker ends its tasks.
    pub(crate) silence_limit: Duration,
    /// Time they have to end when it does.
    pub(crate) cancel_timeout: Duration,
    #[serde(with = "serde_bytes")]
    pub(crate) init: Vec<u8>,
}

/// A worker at work. Dropped, it works no longer.
#[derive(Debug)]
pub(crate) enum LaunchedWorker {
    Process(WorkerProcess),
    Member(Assignment),
}

impl Launcher {
    /// The address of this machine that the workers reach.
    pub(crate) fn host(&self) -> IpAddr {
        match self {
            Self::Processes(_) => Ipv4Addr::LOCALHOST.into(),
            Self::WorkerPool { pool, .. } => pool.address().ip(),
        }
    }

    /// What the workers of a new job prove themselves with. The members of a
    /// worker pool have the same for all jobs of the worker pool: it never crosses the wire.
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

    /// What every worker gets to prepare itself with.
    pub(crate) fn init(&self) -> &[u8] {
        match self {
            Self::Processes(command) => &command.init,
            Self::WorkerPool { init, .. } => init,
        }
    }

    /// Whether a job can go on with so many workers, some of which it may have lost.
    pub(crate) fn has_or_gets(&self, workers: u32) -> bool {
        match self {
            Self::Processes(_) => true,
            Self::WorkerPool { pool, .. } => pool.has(workers) || pool.refill().is_some(),
        }
    }

    /// Whether each attempt of a job gets other workers.
    pub(crate) fn renews(&self) -> bool {
        matches!(self, Self::WorkerPool { pool, .. } if pool.renews())
    }

    /// Lets workers go that had a part in an attempt of the job.
    pub(crate) fn expel_used(&self) {
        if let Self::WorkerPool { pool, .. } = self {
            pool.expel_used();
        }
    }

    /// How long to wait for those of the workers that are still to come.
    pub(crate) fn patience(&self, workers: u32) -> Duration {
        match self {
            Self::WorkerPool { pool, .. } if !pool.has(workers) => pool.refill().unwrap_or_default(),
            Self::Processes(_) | Self::WorkerPool { .. } => Duration::ZERO,
        }
    }

    /// Has a worker begin; it will dial the coordinator and prove itself.
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
    /// Where it runs, if not on this machine by our hand.
    pub(crate) fn place(&self) -> Option<Arc<str>> {
        match self {
            Self::Process(_) => None,
            Self::Member(assignment) => Some(assignment.place()),
        }
    }

    /// How its part in the job ended, if it has.
    pub(crate) fn try_exit(&mut self) -> Option<WorkerExit> {
        match self {
            Self::Process(process) => process.try_exit(),
            Self::Member(assignment) => assignment.try_exit(),
        }
    }

    /// Ends it by force; [`try_exit`](Self::try_exit) tells when it is gone.
    pub(crate) fn kill(&mut self) {
        match self {
            Self::Process(process) => process.kill(),
            Self::Member(assignment) => assignment.dismiss(),
        }
    }
}
