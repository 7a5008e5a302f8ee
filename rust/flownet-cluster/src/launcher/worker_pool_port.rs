//! Serves the port of a [`WorkerPool`](super::WorkerPool): registers workers and exchanges messages with each of them.

use std::{io, net::SocketAddr, sync::Arc};

use flownet_net::{Stream, handshake::DEFAULT_HANDSHAKE_TIMEOUT};
use futures::{SinkExt, StreamExt};
use serde::{Deserialize, Serialize};
use tokio::{
    net::TcpListener,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
};

use super::{
    Orders,
    worker_pool::{PoolWorker, WorkerRegistry},
};
use crate::{
    port,
    rpc::{self, ControlTransport},
};

/// Message to a worker.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum WorkerOrder {
    /// Take part in a job.
    Orders(Orders),
    /// Release of this worker alone: the pool waits for a replacement. If the connection ends without this message, all
    /// workers are released.
    Expelled,
}

/// Message from a worker.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Report {
    /// First message, sent once.
    Enlisted { worker: u32, attempt: u64, pid: u32, place: String },
    /// End of its part in the current job, with the reason: the connection ended, or the worker could not register.
    Done { reason: String },
}

/// Accepts workers that prove to belong to the pool, until the pool closes.
pub(super) async fn serve(listener: std::net::TcpListener, registry: &Arc<WorkerRegistry>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot listen for workers"),
    };
    let admitting = Arc::clone(registry);
    tokio::select! {
        () = registry.closing.notified() => {}
        () = port::accept_all(listener, registry.credentials.clone(), move |stream, peer| admit(stream, peer, Arc::clone(&admitting))) => {}
    }
}

async fn admit(stream: Stream, peer: SocketAddr, registry: Arc<WorkerRegistry>) {
    let mut link = rpc::transport(stream);
    let member = match enlistment(&mut link).await {
        Ok(member) => member,
        Err(error) => return tracing::warn!(%peer, %error, "a worker did not enlist"),
    };
    let (desk, orders) = unbounded_channel();
    let (worker, attempt) = (member.worker, member.attempt);
    if !registry.enlist(member, desk) {
        return tracing::warn!(%peer, worker, "a worker came whose number is taken");
    }
    tokio::spawn(async move {
        let reason = attend(worker, attempt, &mut link, orders, &registry).await;
        registry.left(worker, attempt, &reason);
    });
}

async fn enlistment(link: &mut Link) -> io::Result<PoolWorker> {
    let first = tokio::time::timeout(DEFAULT_HANDSHAKE_TIMEOUT, link.next()).await;
    match first.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))? {
        Some(Ok(Report::Enlisted { worker, attempt, pid, place })) => {
            Ok(PoolWorker { worker, attempt, pid, place: place.into() })
        }
        Some(Ok(report)) => Err(io::Error::other(format!("it began with {report:?}"))),
        Some(Err(error)) => Err(error),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Carries orders and reports until the connection ends. Returns the reason of the end.
async fn attend(
    worker: u32,
    attempt: u64,
    link: &mut Link,
    mut orders: UnboundedReceiver<Orders>,
    registry: &WorkerRegistry,
) -> String {
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(order) => if let Err(error) = link.send(WorkerOrder::Orders(order)).await {
                    return error.to_string();
                },
                None => return expel(link).await,
            },
            report = link.next() => match report {
                Some(Ok(Report::Done { reason })) => registry.done(worker, attempt, reason),
                Some(Ok(report)) => return format!("it said {report:?} out of turn"),
                Some(Err(error)) => return error.to_string(),
                None => return "it closed its connection".to_owned(),
            },
        }
    }
}

/// Waits until the worker has disconnected. Closing the connection while the worker still sends would discard the last
/// message to it.
async fn expel(link: &mut Link) -> String {
    if link.send(WorkerOrder::Expelled).await.is_ok() {
        while let Some(Ok(_)) = link.next().await {}
    }
    "it was dismissed".to_owned()
}

type Link = ControlTransport<Report, WorkerOrder>;
