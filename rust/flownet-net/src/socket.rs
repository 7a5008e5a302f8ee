//! What both ends of a data connection set on their socket and say in their hello.

use std::io;

use tokio::net::TcpStream;

use crate::handshake::{Features, Hello, Role};

/// The hello of a data connection.
pub(crate) const HELLO: Hello = Hello { role: Role::Data, features: Features::NONE };

/// Sends small frames at once. Nothing else: that a peer is gone is found by the frames it owes, see
/// [`liveness`](crate::driver).
///
/// The option is not needed to be correct, so a system that refuses it is not an error.
pub(crate) fn prepare(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "socket options refused");
    }
}

/// How an IO error is told to a task: as the peer's doing where it is.
pub(crate) fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "closed by the peer".into(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => "reset by the peer".into(),
        io::ErrorKind::ConnectionRefused => "connection refused: nothing listens there".into(),
        _ => error.to_string(),
    }
}
