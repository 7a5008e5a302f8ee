//! What both ends of a data connection set on their socket and say in their hello.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::handshake::{Features, Hello, Role};

/// The hello of a data connection.
pub(crate) const HELLO: Hello = Hello { role: Role::Data, features: Features::NONE };

/// Sends small frames at once, and notices in the end when the machine of an idle peer is gone.
///
/// Neither option is needed to be correct, so a system that refuses one is not an error.
pub(crate) fn prepare(stream: &TcpStream) {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    let set = stream.set_nodelay(true).and_then(|()| SockRef::from(stream).set_tcp_keepalive(&keepalive));
    if let Err(error) = set {
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

const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
