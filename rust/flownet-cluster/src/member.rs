//! Runs a process that joins a worker pool: it takes part in one job after the other until the pool releases it.

use std::net::{IpAddr, SocketAddr};

use flownet_net::Credentials;
use futures::{SinkExt, StreamExt};

use crate::{
    launcher::{Report, WorkerOrder},
    port,
    rpc::{self, ControlTransport},
    threads::control_runtime,
    worker::{FactoryBuilder, WorkerError, take_part},
};

/// Information that a process needs to join a worker pool.
#[derive(Clone, Debug)]
pub struct Enlistment {
    /// Address of the worker pool.
    pub pool: SocketAddr,
    /// Credentials for the worker pool.
    pub credentials: Credentials,
    /// Number to take, from 1; no two workers share one.
    pub worker: u32,
    /// Attempt of the host to fill this number. The process replaces workers with a lower attempt. It is refused if
    /// there is one with the same or a higher attempt.
    pub attempt: u64,
    /// Place where this process runs, for people.
    pub place: String,
    /// Address of this machine that the other workers reach. The data port of each job is bound to it.
    pub host: IpAddr,
}

/// Reason why a worker has left its pool.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MemberEnd {
    /// The worker pool released the process, or ended. Nothing of any job is left.
    Dismissed {
        /// Number of jobs in which it took part.
        jobs: u64,
    },
    /// The worker pool released this process alone, or closed its connection, and waits for a replacement. Nothing of
    /// any job is left.
    Expelled {
        /// Number of jobs in which it took part.
        jobs: u64,
    },
    /// Tasks of a job that ended early ignore their cancellation. Their threads still run: the process should exit at
    /// once, without waiting for them.
    TasksLeft {
        /// Number of jobs in which it took part, including that one.
        jobs: u64,
    },
}

/// Joins a worker pool and serves its jobs until the pool ends. `build` gets the init bytes of each job, as in
/// [`run_worker`](crate::run_worker).
///
/// # Errors
/// Fails if the process could not join. A failed job is no error here.
pub fn serve_pool(enlistment: &Enlistment, build: &FactoryBuilder<'_>) -> Result<MemberEnd, WorkerError> {
    let runtime = control_runtime().map_err(WorkerError::Runtime)?;
    let mut link = runtime.block_on(enlist(enlistment))?;
    let mut jobs = 0;
    // An error of the connection ends it like its regular end.
    while let Some(Ok(told)) = runtime.block_on(link.next()) {
        let WorkerOrder::Orders(orders) = told else { return Ok(MemberEnd::Expelled { jobs }) };
        tracing::debug!(worker = orders.worker, coordinator = %orders.coordinator, "takes part in a job");
        let reason = match take_part(&orders, &enlistment.credentials, enlistment.host, build) {
            Ok(part) if part.has_tasks_left => return Ok(MemberEnd::TasksLeft { jobs: jobs + 1 }),
            Ok(part) => part.end.to_string(),
            Err(error) => error.to_string(),
        };
        jobs += 1;
        if runtime.block_on(link.send(Report::Done { reason })).is_err() {
            break;
        }
    }
    Ok(MemberEnd::Dismissed { jobs })
}

async fn enlist(enlistment: &Enlistment) -> Result<Link, WorkerError> {
    let stream = port::dial(enlistment.pool, &enlistment.credentials).await?;
    let mut link: Link = rpc::transport(stream);
    let Enlistment { worker, attempt, place, .. } = enlistment.clone();
    link.send(Report::Enlisted { worker, attempt, pid: std::process::id(), place })
        .await
        .map_err(WorkerError::Enlist)?;
    Ok(link)
}

type Link = ControlTransport<WorkerOrder, Report>;
