//! Accepts data connections and serves those that authenticate.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use crate::driver::producer;
use crate::environment::EnvironmentShared;
use crate::error::HandshakeError;
use crate::pending::{PendingHandshake, PendingHandshakes};
use crate::socket;

/// Accepts connections until the environment drops the future, which closes the port.
///
/// Unauthenticated connections can neither pile up nor keep a peer out: see [`PendingHandshakes`].
pub(crate) async fn serve(shared: Arc<EnvironmentShared>, listener: TcpListener) {
    let pending = PendingHandshakes::new(shared.config.max_pending_handshakes);
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let place = pending.enter(peer.ip());
                shared.spawn(welcome(Arc::clone(&shared), stream, peer, place));
                // Yield, so that the new connection's task can record that its peer has already sent bytes. Otherwise
                // the next connection might displace it.
                tokio::task::yield_now().await;
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                // Usually out of file descriptors. An immediate retry would spin. Close an unauthenticated connection,
                // which may free a descriptor.
                tracing::warn!(%error, "cannot accept data connections");
                pending.give_up_one();
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

async fn welcome(shared: Arc<EnvironmentShared>, stream: TcpStream, peer: SocketAddr, place: PendingHandshake) {
    socket::prepare(&stream);
    let timeout = shared.config.handshake_timeout;
    let accept = |stream| shared.credentials.accept(stream, socket::HELLO, timeout);
    match place.prove(stream, timeout, accept).await {
        Ok(stream) => producer::serve(shared, stream, peer).await,
        Err(error @ HandshakeError::Displaced) => tracing::debug!(%peer, %error, "refused a data connection"),
        Err(error) => tracing::warn!(%peer, %error, "refused a data connection"),
    }
}

const ACCEPT_RETRY: Duration = Duration::from_millis(100);
