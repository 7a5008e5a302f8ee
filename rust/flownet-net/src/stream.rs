//! A connection whose ends have proved themselves, with TLS or without.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustls::Connection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// A connection that [`Credentials`](crate::Credentials) made.
///
/// Under TLS the end of the stream is an end also where the peer did not announce it: what travels here says itself
/// whether it is complete.
#[derive(Debug)]
pub struct Stream(Inner);

#[derive(Debug)]
enum Inner {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    pub(crate) fn plain(stream: TcpStream) -> Self {
        Self(Inner::Plain(stream))
    }

    pub(crate) fn tls(stream: TlsStream<TcpStream>) -> Self {
        Self(Inner::Tls(Box::new(stream)))
    }

    /// The connection under it, for its options.
    pub fn tcp(&self) -> &TcpStream {
        match &self.0 {
            Inner::Plain(stream) => stream,
            Inner::Tls(stream) => stream.get_ref().0,
        }
    }

    /// The connection and the session, which may hold bytes that were read already.
    pub(crate) fn into_parts(self) -> (TcpStream, Option<Box<Connection>>) {
        match self.0 {
            Inner::Plain(stream) => (stream, None),
            Inner::Tls(stream) => match *stream {
                TlsStream::Client(stream) => {
                    let (tcp, session) = stream.into_inner();
                    (tcp, Some(Box::new(session.into())))
                }
                TlsStream::Server(stream) => {
                    let (tcp, session) = stream.into_inner();
                    (tcp, Some(Box::new(session.into())))
                }
            },
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, target: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Inner::Plain(stream) => Pin::new(stream).poll_read(cx, target),
            Inner::Tls(stream) => match Pin::new(stream).poll_read(cx, target) {
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
            Inner::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Inner::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Inner::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Inner::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Inner::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
