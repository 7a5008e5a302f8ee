//! Socket options and hello, common to both ends of a data connection.

use std::io;

use tokio::net::TcpStream;

use crate::handshake::{Features, Hello, Role};

/// Hello of a data connection.
pub(crate) const HELLO: Hello = Hello { role: Role::Data, features: Features::NONE };

/// Disables Nagle's algorithm, so that small frames are sent at once. No other option is set: a lost peer is detected
/// by the frames that it owes, see [`liveness`](crate::driver).
///
/// Correctness does not depend on the option, so a refusal by the system is not an error.
pub(crate) fn prepare(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "socket options refused");
    }
}

/// Describes an IO error to a task, attributing it to the peer if the peer caused it.
pub(crate) fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "closed by the peer".into(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => "reset by the peer".into(),
        io::ErrorKind::ConnectionRefused => "connection refused: nothing listens there".into(),
        _ => error.to_string(),
    }
}
