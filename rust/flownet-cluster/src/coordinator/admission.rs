//! Accepts workers on the coordinator's control port.

use std::net::SocketAddr;

use flownet_net::{Credentials, Stream, handshake::DEFAULT_HANDSHAKE_TIMEOUT};
use tokio::{net::TcpListener, sync::mpsc::UnboundedSender};

use super::events::{Event, WorkerEvent};
use crate::{
    port,
    rpc::{self, WorkerClient, within},
};

/// Accepts connections that prove to belong to the job, until the task is aborted.
pub(super) async fn admit_workers(listener: TcpListener, credentials: Credentials, events: UnboundedSender<Event>) {
    port::accept_all(listener, credentials, move |stream, peer| admit(stream, peer, events.clone())).await;
}

async fn admit(stream: Stream, peer: SocketAddr, events: UnboundedSender<Event>) {
    let client = WorkerClient::new(tarpc::client::Config::default(), rpc::transport(stream)).spawn();
    match client.introduce(within(DEFAULT_HANDSHAKE_TIMEOUT)).await {
        Ok(introduction) => {
            // The driver may be gone. Then the job has ended, and the link ends with it.
            let _ = events.send(Event::Worker(WorkerEvent::Introduced { introduction, client }));
        }
        Err(error) => tracing::warn!(%peer, %error, "a worker did not introduce itself"),
    }
}
