//! The body of a process that joins a crew: it waits for jobs and takes part in
//! one after the other, until the crew lets it go.

use std::net::{IpAddr, SocketAddr};

use flownet_net::Credentials;
use futures::{SinkExt, StreamExt};

use crate::{
    launcher::{Orders, Report},
    port,
    rpc::{self, ControlTransport},
    threads::control_runtime,
    worker::{FactoryBuilder, TasksLeft, WorkerError, take_part},
};

/// What a process needs to know to join a crew.
#[derive(Clone, Debug)]
pub struct Enlistment {
    /// Where the crew listens.
    pub crew: SocketAddr,
    /// What it asks for proof of.
    pub credentials: Credentials,
    /// The number to take, from 1; no two members share one.
    pub worker: u32,
    /// Where this process runs, in words for people.
    pub place: String,
    /// The address of this machine that the other workers reach: the data port
    /// of each job is bound to it.
    pub host: IpAddr,
}

/// How a membership ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MemberEnd {
    /// The crew let the process go, or went away. Nothing of any job is left;
    /// so many jobs it took part in.
    Dismissed {
        /// How many.
        jobs: u64,
    },
    /// Tasks of a job that ended early ignore being cancelled. Their threads are
    /// left: the process should end at once, without waiting for them.
    TasksLeft,
}

/// Joins a crew and serves its jobs until the crew goes. `build` gets the init
/// bytes of each job, as in [`run_worker`](crate::run_worker).
///
/// # Errors
/// If the process could not join. That a job failed is no error here.
pub fn serve_crew(enlistment: &Enlistment, build: &FactoryBuilder<'_>) -> Result<MemberEnd, WorkerError> {
    let runtime = control_runtime().map_err(WorkerError::Runtime)?;
    let mut link = runtime.block_on(enlist(enlistment))?;
    let mut jobs = 0;
    // An error of the connection is its end, as is the end.
    while let Some(Ok(orders)) = runtime.block_on(link.next()) {
        tracing::debug!(worker = orders.worker, coordinator = %orders.coordinator, "takes part in a job");
        let complaint = match take_part(&orders, &enlistment.credentials, enlistment.host, build) {
            Ok(TasksLeft(true)) => return Ok(MemberEnd::TasksLeft),
            Ok(TasksLeft(false)) => None,
            Err(error) => Some(error.to_string()),
        };
        jobs += 1;
        if runtime.block_on(link.send(Report::Done { complaint })).is_err() {
            break;
        }
    }
    Ok(MemberEnd::Dismissed { jobs })
}

async fn enlist(enlistment: &Enlistment) -> Result<Link, WorkerError> {
    let stream = port::dial(enlistment.crew, &enlistment.credentials).await?;
    let mut link: Link = rpc::transport(stream);
    let Enlistment { worker, place, .. } = enlistment.clone();
    link.send(Report::Enlisted { worker, pid: std::process::id(), place }).await.map_err(WorkerError::Enlist)?;
    Ok(link)
}

type Link = ControlTransport<Orders, Report>;
