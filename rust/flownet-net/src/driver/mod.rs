//! Moves frames between a socket and a connection machine. A driver makes no protocol decisions.
//!
//! Each end of a connection is one future, polled by one tokio task. It never awaits in the middle of its work. All
//! partial work (a frame half read, a vector half written) is stored in the driver. Any of its sources can therefore
//! wake it, and it can be dropped at any time. Both halves are shared with task threads: see [`sender`] and
//! [`receiver`].
//!
//! # Invariants
//! - I1: reading never waits for writing, nor the reverse: each turn tries both.
//! - I2: a driver that returns `Pending` has left its waker with every source that could give it work.
//! - I3: a turn is bounded. The task then yields, so that one busy connection does not starve the others.
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

/// Reason why a connection ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The peer closed the connection between two frames, or announced that it leaves.
    Closed,
    /// The socket failed, or the stream ended within a frame.
    Lost(io::Error),
    /// The peer owed something for this long: a sign of life, the rest of a frame, or room for data that it requested.
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

/// Describes [`End::Silent`] in error texts, for both sides of the connection.
fn describe_silence(owed_for: Duration) -> String {
    format!("silent for {owed_for:.1?}; if it was only slow, raise heartbeat_timeout")
}

/// Link over a stream whose ends have authenticated each other.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
enum OpenedLink {
    Plain(SocketLink),
    Tls(TlsLink<SocketLink>),
}

/// Turns a stream into a link. Call it on the runtime that will watch the socket.
fn open(stream: Stream) -> io::Result<OpenedLink> {
    let (tcp, session) = stream.into_parts()?;
    let socket = SocketLink::new(tcp.into_std()?.into())?;
    Ok(match session {
        None => OpenedLink::Plain(socket),
        Some((incoming, outgoing)) => OpenedLink::Tls(TlsLink::new(socket, incoming, outgoing)),
    })
}

/// Runs one turn of a driver: rounds until nothing moves, the connection ends, or the turn is used up (I3).
fn poll_rounds(cx: &mut Context<'_>, mut round: impl FnMut(&mut Context<'_>) -> Result<bool, End>) -> Poll<End> {
    for _ in 0..ROUNDS_PER_TURN {
        match round(cx) {
            Ok(true) => {}
            Ok(false) => return Poll::Pending,
            Err(end) => return Poll::Ready(end),
        }
    }
    // The rounds are used up but work may remain, so ask for another turn before yielding.
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// Rounds of reading and writing in one turn.
const ROUNDS_PER_TURN: usize = 16;

#[cfg(test)]
mod tests;
