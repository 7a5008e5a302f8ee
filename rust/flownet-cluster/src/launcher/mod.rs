//! Where the workers of a job come from: processes that are started for it, or
//! a [`Crew`] of processes that came by themselves.
//!
//! The coordinator launches each worker through its [`Launcher`], with its
//! [`Orders`], and watches and ends the [`LaunchedWorker`] it gets, whichever it is.

mod crew;
mod crew_port;
mod greeting;
mod process;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use flownet_net::{Credentials, Secret};
use serde::{Deserialize, Serialize};

use self::{crew::Assignment, process::WorkerProcess};
pub use self::{
    crew::{Crew, CrewMember, Refill},
    process::WorkerCommand,
};
pub(crate) use self::{
    crew_port::{Report, Told},
    greeting::Greeting,
};
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
    Crew {
        /// Who there is.
        crew: Arc<Crew>,
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
            Self::Crew { crew, .. } => crew.address().ip(),
        }
    }

    /// What the workers of a new job prove themselves with. The members of a
    /// crew have the same for all jobs of the crew: it never crosses the wire.
    pub(crate) fn credentials(&self, tls: &Tls) -> Result<Credentials, ClusterError> {
        match self {
            Self::Processes(_) => {
                let secret = Secret::generate().map_err(|error| ClusterError::Setup { message: error.to_string() })?;
                Ok(tls.credentials(secret, self.host()).map_err(PlanError::from)?)
            }
            Self::Crew { crew, .. } if tls.is_met_by(crew.tls(), crew.credentials().has_tls()) => {
                Ok(crew.credentials().clone())
            }
            Self::Crew { crew, .. } => {
                let mismatch = SettingsError::CrewTls { job: tls.clone(), crew: crew.tls().clone() };
                Err(PlanError::from(mismatch).into())
            }
        }
    }

    /// What every worker gets to prepare itself with.
    pub(crate) fn init(&self) -> &[u8] {
        match self {
            Self::Processes(command) => &command.init,
            Self::Crew { init, .. } => init,
        }
    }

    /// Whether a job can go on with so many workers, some of which it may have lost.
    pub(crate) fn has_or_gets(&self, workers: u32) -> bool {
        match self {
            Self::Processes(_) => true,
            Self::Crew { crew, .. } => crew.has(workers) || crew.refill().is_some(),
        }
    }

    /// Whether each attempt of a job gets other workers.
    pub(crate) fn renews(&self) -> bool {
        matches!(self, Self::Crew { crew, .. } if crew.renews())
    }

    /// Lets workers go that had a part in an attempt of the job.
    pub(crate) fn expel_used(&self) {
        if let Self::Crew { crew, .. } = self {
            crew.expel_used();
        }
    }

    /// How long to wait for those of the workers that are still to come.
    pub(crate) fn patience(&self, workers: u32) -> Duration {
        match self {
            Self::Crew { crew, .. } if !crew.has(workers) => crew.refill().unwrap_or_default(),
            Self::Processes(_) | Self::Crew { .. } => Duration::ZERO,
        }
    }

    /// Has a worker begin; it will dial the coordinator and prove itself.
    pub(crate) fn launch(&self, orders: Orders, credentials: &Credentials) -> io::Result<LaunchedWorker> {
        match self {
            Self::Processes(command) => {
                let greeting = Greeting { credentials: credentials.to_text(), orders };
                WorkerProcess::spawn(command, greeting.encode()?).map(LaunchedWorker::Process)
            }
            Self::Crew { crew, .. } => crew.assign(orders).map(LaunchedWorker::Member),
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
