//! The byte stream a driver moves frames over: a socket, or a pipe in tests.

use std::io::{self, IoSliceMut};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncWrite, Interest};
use tokio::net::TcpStream;

/// A stream that is written with vectors, as tokio's are, and read with them too, as tokio's are not.
pub(crate) trait Link: AsyncWrite + Unpin {
    /// Reads once, filling `first` before `second`. `Ready(Ok(0))` is the end of the stream, given that there is room.
    fn poll_read_two(&mut self, cx: &mut Context<'_>, first: &mut [u8], second: &mut [u8]) -> Poll<io::Result<usize>>;
}

impl Link for TcpStream {
    fn poll_read_two(&mut self, cx: &mut Context<'_>, first: &mut [u8], second: &mut [u8]) -> Poll<io::Result<usize>> {
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
}

#[cfg(test)]
impl Link for tokio::io::DuplexStream {
    fn poll_read_two(&mut self, cx: &mut Context<'_>, first: &mut [u8], second: &mut [u8]) -> Poll<io::Result<usize>> {
        use tokio::io::{AsyncRead, ReadBuf};

        let mut target = ReadBuf::new(if first.is_empty() { second } else { first });
        ready!(std::pin::Pin::new(self).poll_read(cx, &mut target))?;
        Poll::Ready(Ok(target.filled().len()))
    }
}
