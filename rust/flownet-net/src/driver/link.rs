//! The byte stream a driver moves frames over: a socket, or a pipe in tests.

use std::io::{self, IoSlice, IoSliceMut};
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::net::TcpStream;

/// A stream that is read and written with vectors, by whoever has something to move: hence `&self`.
pub(crate) trait Link: Send + Sync + 'static {
    /// Reads once, filling `first` before `second`. `Ready(Ok(0))` is the end of the stream, given that there is room.
    fn poll_read_two(&self, cx: &mut Context<'_>, first: &mut [u8], second: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Writes once. Only the last caller's waker is kept.
    fn poll_write(&self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;
}

impl Link for TcpStream {
    fn poll_read_two(&self, cx: &mut Context<'_>, first: &mut [u8], second: &mut [u8]) -> Poll<io::Result<usize>> {
        let wanted = first.len() + second.len();
        loop {
            ready!(self.poll_read_ready(cx))?;
            // A short read has emptied the socket. Saying "would block" then, in place of asking the kernel again only
            // to hear it, spares a system call a turn. Data that arrives meanwhile is a newer readiness event than the
            // one this closure runs under, and survives.
            let mut short = None;
            let result = self.try_io(Interest::READABLE, || {
                let read = self.try_read_vectored(&mut [IoSliceMut::new(first), IoSliceMut::new(second)])?;
                if 0 < read && read < wanted {
                    short = Some(read);
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Ok(read)
            });
            match (short, result) {
                (Some(read), _) => return Poll::Ready(Ok(read)),
                (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                (None, result) => return Poll::Ready(result),
            }
        }
    }

    fn poll_write(&self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_write_ready(cx))?;
            match self.try_write_vectored(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }
}

#[cfg(test)]
mod pipe {
    use std::pin::Pin;
    use std::sync::Mutex;

    use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

    use super::*;

    impl Link for Mutex<DuplexStream> {
        fn poll_read_two(&self, cx: &mut Context<'_>, first: &mut [u8], second: &mut [u8]) -> Poll<io::Result<usize>> {
            let mut target = ReadBuf::new(if first.is_empty() { second } else { first });
            ready!(Pin::new(&mut *self.lock().unwrap()).poll_read(cx, &mut target))?;
            Poll::Ready(Ok(target.filled().len()))
        }

        fn poll_write(&self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
            Pin::new(&mut *self.lock().unwrap()).poll_write_vectored(cx, slices)
        }
    }
}
