//! Reads a stream of TLS records one by one.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::record::HEADER_BYTES;

/// TLS stream that is read up to the end of a record and never beyond it. After a complete record, its reader therefore
/// holds no byte of the next one.
#[derive(Debug)]
pub(crate) struct RecordReader<S> {
    stream: S,
    header: [u8; HEADER_BYTES],
    /// Bytes of the header that were read.
    have: usize,
    /// Bytes that are missing after the header.
    left: usize,
}

impl<S> RecordReader<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, header: [0; HEADER_BYTES], have: 0, left: 0 }
    }

    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    /// Returns the stream, if it is between two records.
    pub(super) fn into_stream(self) -> Option<S> {
        (self.have == 0).then_some(self.stream)
    }

    fn count(&mut self, read: &[u8]) {
        if self.left > 0 {
            self.left -= read.len();
        } else {
            self.header[self.have..self.have + read.len()].copy_from_slice(read);
            self.have += read.len();
            if self.have == HEADER_BYTES {
                self.left = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
            }
        }
        if self.have == HEADER_BYTES && self.left == 0 {
            self.have = 0;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for RecordReader<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, target: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let wanted = if self.left > 0 { self.left } else { HEADER_BYTES - self.have };
        let mut limited = ReadBuf::new(target.initialize_unfilled_to(wanted.min(target.remaining())));
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut limited))?;
        let read = limited.filled().len();
        self.count(limited.filled());
        target.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for RecordReader<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
