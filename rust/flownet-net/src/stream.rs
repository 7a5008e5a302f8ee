//! Authenticated connection, with or without TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::tls::{IncomingRecords, OutgoingRecords, Session};

/// Authenticated connection that [`Credentials`](crate::Credentials) established.
///
/// Under TLS, the stream may also end without an announcement of the peer. Our protocols detect incomplete data
/// themselves.
#[derive(Debug)]
pub struct Stream(Inner);

#[derive(Debug)]
enum Inner {
    Plain(TcpStream),
    Tls(Box<Session>),
}

impl Stream {
    pub(crate) fn plain(stream: TcpStream) -> Self {
        Self(Inner::Plain(stream))
    }

    pub(crate) fn tls(session: Session) -> Self {
        Self(Inner::Tls(Box::new(session)))
    }

    /// Returns the underlying connection, for its options.
    pub fn tcp(&self) -> &TcpStream {
        match &self.0 {
            Inner::Plain(stream) => stream,
            Inner::Tls(session) => session.stream.get_ref().0.stream(),
        }
    }

    /// Returns the connection and, under TLS, the halves that open and seal its records from now on.
    pub(crate) fn into_parts(self) -> io::Result<(TcpStream, Option<(IncomingRecords, OutgoingRecords)>)> {
        match self.0 {
            Inner::Plain(stream) => Ok((stream, None)),
            Inner::Tls(session) => {
                let (stream, incoming, outgoing) = session.take_over()?;
                Ok((stream, Some((incoming, outgoing))))
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, target: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Inner::Plain(stream) => Pin::new(stream).poll_read(cx, target),
            Inner::Tls(session) => match Pin::new(&mut session.stream).poll_read(cx, target) {
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                read => read,
            },
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Inner::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Inner::Tls(session) => Pin::new(&mut session.stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Inner::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Inner::Tls(session) => Pin::new(&mut session.stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Inner::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Inner::Tls(session) => Pin::new(&mut session.stream).poll_shutdown(cx),
        }
    }
}
