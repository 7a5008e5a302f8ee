//! Accepts data connections and lets only those through that prove themselves.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::driver::producer;
use crate::environment::Shared;
use crate::handshake;
use crate::socket;

/// Accepts for ever; the environment ends it by dropping the future, which closes the port.
///
/// A connection holds one of a limited number of permits until its handshake is over, so strangers cannot pile up:
/// beyond the limit they wait in the system's backlog until one of the earlier ones ran into its deadline.
pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener) {
    let permits = Arc::new(Semaphore::new(shared.config.max_pending_handshakes));
    while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, peer)) => shared.spawn(welcome(Arc::clone(&shared), stream, peer, permit)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                // Out of file descriptors, as a rule: trying again at once would spin.
                tracing::warn!(%error, "cannot accept data connections");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

async fn welcome(shared: Arc<Shared>, mut stream: TcpStream, peer: SocketAddr, permit: OwnedSemaphorePermit) {
    socket::prepare(&stream);
    let accepted = handshake::accept(&mut stream, &shared.secret, socket::HELLO, shared.config.handshake_timeout).await;
    drop(permit);
    match accepted {
        Ok(_) => producer::serve(shared, stream, peer).await,
        Err(error) => tracing::warn!(%peer, %error, "refused a data connection"),
    }
}

const ACCEPT_RETRY: Duration = Duration::from_millis(100);
