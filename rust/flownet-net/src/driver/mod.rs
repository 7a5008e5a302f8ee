//! Moves frames between a socket and a connection machine. A driver decides nothing.
//!
//! Each end of a connection is one future, polled by one tokio task. It never awaits in the middle: all that is half
//! done (a frame half read, a vector half written) lies in the driver, so it can be woken by any of its sources and
//! dropped at any time. Both halves are shared with the threads of tasks: see [`sender`] and [`receiver`].
//!
//! # Invariants
//! - I1: reading never waits for writing, nor the reverse: each turn tries both.
//! - I2: a driver that returns `Pending` has left its waker with every source that could give it work.
//! - I3: a turn is bounded; then the task yields, so that one busy connection does not starve the others.
//! - I4: dropping a driver releases every channel of the connection.

pub(crate) mod consumer;
mod link;
mod liveness;
mod ownership;
pub(crate) mod producer;
mod receiver;
mod sender;
mod staging;
mod tls_link;

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

pub(crate) use liveness::Limits;
pub(crate) use ownership::ReaderId;

use flownet_core::{ProtocolError, WireError};

use self::link::SocketLink;
use self::tls_link::TlsLink;
use crate::stream::Stream;

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The peer closed it between two frames or said that it leaves.
    Closed,
    /// The socket failed, or the stream ended within a frame.
    Lost(io::Error),
    /// The peer owed something for so long: a sign of life, the rest of a frame, or room for what it asked for.
    Silent(Duration),
    /// The peer broke the protocol.
    Violation(ProtocolError),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

impl From<ProtocolError> for End {
    fn from(error: ProtocolError) -> Self {
        Self::Violation(error)
    }
}

impl From<WireError> for End {
    fn from(error: WireError) -> Self {
        Self::Violation(error.into())
    }
}

/// What [`End::Silent`] is to those who had to do with the peer.
fn describe_silence(owed_for: Duration) -> String {
    format!("silent for {owed_for:.1?}; if it was only slow, raise heartbeat_timeout")
}

/// A link over a stream whose ends have proved themselves.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
enum OpenedLink {
    Plain(SocketLink),
    Tls(TlsLink<SocketLink>),
}

/// To be called on the runtime that is to watch the socket.
fn open(stream: Stream) -> io::Result<OpenedLink> {
    let (tcp, session) = stream.into_parts()?;
    let socket = SocketLink::new(tcp.into_std()?.into())?;
    Ok(match session {
        None => OpenedLink::Plain(socket),
        Some((incoming, outgoing)) => OpenedLink::Tls(TlsLink::new(socket, incoming, outgoing)),
    })
}

/// One turn of a driver: rounds until nothing moves, the connection ends, or others should have a turn (I3).
fn poll_rounds(cx: &mut Context<'_>, mut round: impl FnMut(&mut Context<'_>) -> Result<bool, End>) -> Poll<End> {
    for _ in 0..ROUNDS_PER_TURN {
        match round(cx) {
            Ok(true) => {}
            Ok(false) => return Poll::Pending,
            Err(end) => return Poll::Ready(end),
        }
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// Rounds of reading and writing in one turn.
const ROUNDS_PER_TURN: usize = 16;

#[cfg(test)]
mod tests;
