//! Manages the connections of this process to its producers. Each peer address and channel control has one connection,
//! shared by all their channels.
//!
//! # Invariants
//! - I1: a request is sent only under the table's lock and only to an entry in the table. An entry leaves the table
//!   before its receiver is closed. So no request is ever sent to a connection that has ended.
//! - I2: an entry leaves the table when its connection ends, for any reason, and before any channel learns of it.
//!   Failures are not remembered: a caller that retries after a failure dials anew.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use flownet_core::channel::{ChannelControl, RemoteChannel};
use flownet_core::{ExchangeError, PartitionId, SubpartitionIndex};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::driver::consumer;
use crate::environment::EnvironmentShared;
use crate::error::HandshakeError;
use crate::inlets::ConnectedInlets;
use crate::redial::redial;
use crate::socket;
use crate::stream::Stream;

/// Request to open a channel on a connection.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    pub(crate) partition: PartitionId,
    pub(crate) subpartition: SubpartitionIndex,
    pub(crate) channel: Arc<RemoteChannel>,
    /// Inlets at which the task that reads the channel waits.
    pub(crate) inlets: Weak<ConnectedInlets>,
}

/// Table of dialed connections.
#[derive(Debug, Default)]
pub(crate) struct Dialer {
    entries: Mutex<HashMap<Line, mpsc::UnboundedSender<OpenRequest>>>,
}

/// Key of a connection. Channels of different controls never share a socket, because a TCP-controlled socket may stop.
type Line = (SocketAddr, ChannelControl);

impl Dialer {
    /// Passes the request to the connection to `peer`, which is dialed first if there is none.
    pub(crate) fn open(&self, shared: &Arc<EnvironmentShared>, peer: SocketAddr, request: OpenRequest) {
        let dialed = {
            let mut entries = self.lock();
            let line = (peer, request.channel.control());
            let mut first_requests = None;
            let entry = entries.entry(line).or_insert_with(|| {
                let (sender, receiver) = mpsc::unbounded_channel();
                first_requests = Some(receiver);
                sender
            });
            // I1: the receiver lives as long as the entry.
            let _sent = entry.send(request);
            (line, first_requests)
        };
        if let (line, Some(receiver)) = dialed {
            let requests = Requests { line, receiver, shared: Arc::clone(shared) };
            shared.spawn(dial(requests));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Line, mpsc::UnboundedSender<OpenRequest>>> {
        // No foreign code runs under this lock, so a poisoned map is still consistent.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Receiving half of an entry. Dropping it removes the entry.
#[derive(Debug)]
pub(crate) struct Requests {
    line: Line,
    receiver: mpsc::UnboundedReceiver<OpenRequest>,
    shared: Arc<EnvironmentShared>,
}

impl Requests {
    /// Returns requests of a connection that is not in the table, and their sender.
    #[cfg(test)]
    pub(crate) fn unlisted(
        shared: Arc<EnvironmentShared>,
        peer: SocketAddr,
    ) -> (mpsc::UnboundedSender<OpenRequest>, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (sender, Self { line: (peer, ChannelControl::Credit), receiver, shared })
    }

    /// Returns the next channel to open. Never `None` while the entry is in the table.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<OpenRequest>> {
        self.receiver.poll_recv(cx)
    }

    /// Removes the entry of the ended connection from the table and fails pending requests.
    pub(crate) fn end(&mut self, error: &ExchangeError) {
        if self.receiver.is_closed() {
            return;
        }
        self.shared.dialer.lock().remove(&self.line);
        self.receiver.close();
        while let Ok(request) = self.receiver.try_recv() {
            request.channel.fail(error.clone());
        }
    }

    /// Address of the producer.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.line.0
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.end(&shut_down(self.peer()));
    }
}

/// Error of channels whose own environment shuts down.
pub(crate) fn shut_down(peer: SocketAddr) -> ExchangeError {
    ExchangeError::connection_lost(peer.to_string(), "the network of this process was shut down")
}

async fn dial(mut requests: Requests) {
    let shared = Arc::clone(&requests.shared);
    let peer = requests.peer();
    match connect(&shared, peer).await {
        Ok(stream) => consumer::run(shared, stream, requests).await,
        Err(reason) => {
            tracing::debug!(%peer, reason, "no data connection");
            requests.end(&ExchangeError::connection_lost(peer.to_string(), reason));
        }
    }
}

async fn connect(shared: &EnvironmentShared, peer: SocketAddr) -> Result<Stream, String> {
    // The semaphore is never closed, so there will always be a permit.
    let _permit = shared.dials.acquire().await;
    let is_hang_up = |error: &_| matches!(error, NoConnection::Handshake(error) if error.is_hang_up());
    redial(peer, is_hang_up, || connect_once(shared, peer)).await.map_err(|error| error.to_string())
}

async fn connect_once(shared: &EnvironmentShared, peer: SocketAddr) -> Result<Stream, NoConnection> {
    let config = &shared.config;
    let stream = timeout(config.connect_timeout, TcpStream::connect(peer))
        .await
        .map_err(|_| format!("no connection within {} ms", config.connect_timeout.as_millis()))
        .and_then(|connected| connected.map_err(|error| socket::describe(&error)))
        .map_err(NoConnection::Unreachable)?;
    socket::prepare(&stream);
    Ok(shared.credentials.initiate(stream, socket::HELLO, config.handshake_timeout).await?)
}

#[derive(Debug, thiserror::Error)]
enum NoConnection {
    #[error("{0}")]
    Unreachable(String),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}
