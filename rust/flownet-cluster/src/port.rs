//! A control port: who may speak to the coordinator's process at all.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use flownet_net::{
    Secret,
    handshake::{self, DEFAULT_HANDSHAKE_TIMEOUT, Features, Hello, Role},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

/// What both ends of a control connection say.
pub(crate) const CONTROL_HELLO: Hello = Hello { role: Role::Control, features: Features::NONE };

/// Hands every connection that proves to know the secret to `admit`, until it
/// is dropped. Everybody else is logged in one line and shut out; nobody else
/// notices. `admit` should be over soon: it counts as pending until then.
pub(crate) async fn accept_all<F>(
    listener: TcpListener,
    secret: Secret,
    admit: impl Fn(TcpStream, SocketAddr) -> F + Clone + Send + 'static,
) where
    F: Future<Output = ()> + Send,
{
    let places = Arc::new(Semaphore::new(MAX_PENDING));
    loop {
        // A stranger who opens connections and says nothing takes places, not memory.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let (secret, admit) = (secret.clone(), admit.clone());
                tokio::spawn(async move {
                    if let Some(stream) = prove(stream, peer, &secret).await {
                        admit(stream, peer).await;
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a control connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn prove(mut stream: TcpStream, peer: SocketAddr, secret: &Secret) -> Option<TcpStream> {
    let hello = handshake::accept(&mut stream, secret, CONTROL_HELLO, DEFAULT_HANDSHAKE_TIMEOUT).await;
    if let Err(error) = hello {
        tracing::warn!(%peer, %error, "refused a control connection");
        return None;
    }
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "cannot set TCP_NODELAY");
    }
    Some(stream)
}

/// Dials a control port and proves itself there.
///
/// # Errors
/// If nobody listens there, or the two ends do not know the same secret.
pub(crate) async fn dial(port: SocketAddr, secret: &Secret) -> Result<TcpStream, DialError> {
    let connecting = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(port)).await;
    let connected = connecting.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
    let mut stream = connected.map_err(|error| DialError::Connect { port, error })?;
    handshake::initiate(&mut stream, secret, CONTROL_HELLO, DEFAULT_HANDSHAKE_TIMEOUT)
        .await
        .map_err(|error| DialError::Handshake { port, error })?;
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%port, %error, "cannot set TCP_NODELAY");
    }
    Ok(stream)
}

/// Why a control port could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// Nobody answered.
    #[error("cannot connect to {port}: {error}")]
    Connect {
        /// What was dialed.
        port: SocketAddr,
        /// What the system said.
        #[source]
        error: std::io::Error,
    },
    /// One of the two could not prove itself.
    #[error("{port} was reached, but: {error}")]
    Handshake {
        /// What was dialed.
        port: SocketAddr,
        /// What went wrong.
        #[source]
        error: flownet_net::HandshakeError,
    },
}

/// Connections that may be in their handshake at once.
const MAX_PENDING: usize = 64;
/// Pause after a failed accept: most often too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long the system may try to reach a port; a packet filter may say nothing at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
