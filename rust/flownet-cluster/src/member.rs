//! The body of a process that joins a worker pool: it waits for jobs and takes part in
//! one after the other, until the worker pool lets it go.

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

/// What a process needs to know to join a worker pool.
#[derive(Clone, Debug)]
pub struct Enlistment {
    /// Where the worker pool listens.
    pub pool: SocketAddr,
    /// What it asks for proof of.
    pub credentials: Credentials,
    /// The number to take, from 1; no two members share one.
    pub worker: u32,
    /// Which attempt of the host to fill this number the process is: it takes the place of those with a lower one, and
    /// is refused where there is the same or a higher one.
    pub attempt: u64,
    /// Where this process runs, in words for people.
    pub place: String,
    /// The address of this machine that the other workers reach: the data port
    /// of each job is bound to it.
    pub host: IpAddr,
}

/// How a membership ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MemberEnd {
    /// The worker pool let the process go, or went away. Nothing of any job is left;
    /// so many jobs it took part in.
    Dismissed {
        /// How many.
        jobs: u64,
    },
    /// The worker pool let go of this process alone, or of its connection, and waits for another in its place. Nothing of any
    /// job is left.
    Expelled {
        /// How many there were.
        jobs: u64,
    },
    /// Tasks of a job that ended early ignore being cancelled. Their threads are
    /// left: the process should end at once, without waiting for them.
    TasksLeft {
        /// How many there were, with that one.
        jobs: u64,
    },
}

/// Joins a worker pool and serves its jobs until the worker pool goes. `build` gets the init
/// bytes of each job, as in [`run_worker`](crate::run_worker).
///
/// # Errors
/// If the process could not join. That a job failed is no error here.
pub fn serve_pool(enlistment: &Enlistment, build: &FactoryBuilder<'_>) -> Result<MemberEnd, WorkerError> {
    let runtime = control_runtime().map_err(WorkerError::Runtime)?;
    let mut link = runtime.block_on(enlist(enlistment))?;
    let mut jobs = 0;
    // An error of the connection is its end, as is the end.
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
