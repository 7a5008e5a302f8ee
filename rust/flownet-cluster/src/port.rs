//! Opens and dials control ports, which authenticate every connection.

use std::{net::SocketAddr, time::Duration};

use flownet_net::{
    Credentials, HandshakeError, PendingHandshake, PendingHandshakes, Stream,
    handshake::{DEFAULT_HANDSHAKE_TIMEOUT, Features, Hello, Role},
    redial,
};
use tokio::net::{TcpListener, TcpStream};

use crate::settings::MAX_WORKERS;

/// Hello of both ends of a control connection.
pub(crate) const CONTROL_HELLO: Hello = Hello { role: Role::Control, features: Features::NONE };

/// Passes every authenticated connection to `admit`, until it is dropped. All others are logged in one line and closed.
/// They do not affect authenticated connections, in any number: see [`PendingHandshakes`].
pub(crate) async fn accept_all<F>(
    listener: TcpListener,
    credentials: Credentials,
    admit: impl Fn(Stream, SocketAddr) -> F + Clone + Send + 'static,
) where
    F: Future<Output = ()> + Send,
{
    let pending = PendingHandshakes::new(max_pending());
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let (credentials, admit, place) = (credentials.clone(), admit.clone(), pending.enter(peer.ip()));
                tokio::spawn(async move {
                    if let Some(stream) = prove(stream, peer, &credentials, place).await {
                        admit(stream, peer).await;
                    }
                });
                // A handshake that has begun is noticed before the next connection may replace it.
                tokio::task::yield_now().await;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a control connection");
                pending.give_up_one();
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn prove(
    stream: TcpStream,
    peer: SocketAddr,
    credentials: &Credentials,
    place: PendingHandshake,
) -> Option<Stream> {
    set_nodelay(&stream);
    let accept = |stream| credentials.accept(stream, CONTROL_HELLO, DEFAULT_HANDSHAKE_TIMEOUT);
    match place.prove(stream, DEFAULT_HANDSHAKE_TIMEOUT, accept).await {
        Ok(stream) => return Some(stream),
        Err(error @ HandshakeError::Displaced) => tracing::debug!(%peer, %error, "refused a control connection"),
        Err(error) => tracing::warn!(%peer, %error, "refused a control connection"),
    }
    None
}

/// Connects to a control port and authenticates there.
///
/// # Errors
/// Fails if the port does not answer, or if the two ends do not belong to one job.
pub(crate) async fn dial(port: SocketAddr, credentials: &Credentials) -> Result<Stream, DialError> {
    let is_hang_up = |error: &_| matches!(error, DialError::Handshake { error, .. } if error.is_hang_up());
    redial(port, is_hang_up, || dial_once(port, credentials)).await
}

async fn dial_once(port: SocketAddr, credentials: &Credentials) -> Result<Stream, DialError> {
    let connecting = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(port)).await;
    let connected = connecting.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
    let stream = connected.map_err(|error| DialError::Connect { port, error })?;
    set_nodelay(&stream);
    let proved = credentials.initiate(stream, CONTROL_HELLO, DEFAULT_HANDSHAKE_TIMEOUT).await;
    proved.map_err(|error| DialError::Handshake { port, error })
}

/// Sets `TCP_NODELAY`. Correctness does not depend on it, so an error is only logged.
fn set_nodelay(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
}

/// Reason why a control port could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// No answer.
    #[error("cannot connect to {port}: {error}")]
    Connect {
        /// Dialed address.
        port: SocketAddr,
        /// Error of the system.
        #[source]
        error: std::io::Error,
    },
    /// One of the two ends failed to authenticate.
    #[error("{port} was reached, but: {error}")]
    Handshake {
        /// Dialed address.
        port: SocketAddr,
        /// Error of the handshake.
        #[source]
        error: HandshakeError,
    },
}

/// Returns the number of connections that may be in their handshake at once. That is the largest number of workers of a
/// job, since all of them connect together. It is at most an eighth of the files that this process may open.
fn max_pending() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let share = files.map_or(MOST_PENDING, |files| usize::try_from(files / 8).unwrap_or(MOST_PENDING));
    share.clamp(LEAST_PENDING, MOST_PENDING)
}

const MOST_PENDING: usize = MAX_WORKERS as usize;
const LEAST_PENDING: usize = 64;
/// Pause after a failed accept, which is most often caused by too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Longest time to reach a port; a packet filter may not answer at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
