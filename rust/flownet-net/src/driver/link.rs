//! The byte stream a driver moves frames over: a socket, or a pipe in tests.
//!
//! # Why a socket lies in an epoll instance of its own
//! tokio registers a socket once, for edges in both directions: each arrival would wake its thread, even while another
//! thread reads. What tokio watches here is an epoll instance with that one socket in it, whose interest is changed by
//! one short system call, and which fires at once if what is now of interest is there already.
//!
//! The kernel fires then only if the socket is not on that instance's own list of what is ready. Hence the edges there
//! as well, which leave the list when they are taken, and [`SocketLink::poll_event`] takes each one it is woken for.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use rustix::event::{Timespec, epoll};
use rustix::io::{readv, writev};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A stream that is read and written with vectors, by whoever has something to move: hence `&self`. Nothing waits:
/// where there is nothing to be done the error is [`WouldBlock`](io::ErrorKind::WouldBlock).
pub(crate) trait Link: Send + Sync + 'static {
    /// Reads once, filling `first` before `second`. Zero is the end of the stream, given that there is room.
    fn read(&self, first: &mut [u8], second: &mut [u8]) -> io::Result<usize>;

    /// Writes once.
    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Says whether [`poll_event`](Self::poll_event) is to tell of this. At first it tells of bytes, not of room.
    fn watch(&self, event: Event, is_watched: bool) -> io::Result<()>;

    /// Ready when what is watched has happened since the last time it was ready: then try. Pending otherwise, and the
    /// connection's task is woken when it does. Which event it was is not said.
    fn poll_event(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// What a thread can sleep on, if it can.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// What a link can tell of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Event {
    /// There are bytes to read, or the stream's end.
    Bytes,
    /// There is room to write.
    Room,
}

/// A connected stream socket that does not block.
#[derive(Debug)]
pub(crate) struct SocketLink {
    socket: OwnedFd,
    watcher: AsyncFd<OwnedFd>,
    watched: Mutex<epoll::EventFlags>,
}

impl SocketLink {
    /// Takes over a socket that no reactor watches. To be called on the runtime that is to watch it.
    #[expect(
        deprecated,
        reason = "what replaces it is unsafe; for an `OwnedFd`, which keeps its promises, both are sound"
    )]
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        let watcher = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let watched = epoll::EventFlags::ET | epoll::EventFlags::IN;
        epoll::add(&watcher, &socket, epoll::EventData::new_u64(0), watched)?;
        let watcher = AsyncFd::with_interest(watcher, Interest::READABLE)?;
        Ok(Self { socket, watcher, watched: Mutex::new(watched) })
    }
}

impl Link for SocketLink {
    fn read(&self, first: &mut [u8], second: &mut [u8]) -> io::Result<usize> {
        Ok(readv(&self.socket, &mut [IoSliceMut::new(first), IoSliceMut::new(second)])?)
    }

    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(writev(&self.socket, slices)?)
    }

    fn watch(&self, event: Event, is_watched: bool) -> io::Result<()> {
        let flag = match event {
            Event::Bytes => epoll::EventFlags::IN,
            Event::Room => epoll::EventFlags::OUT,
        };
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = if is_watched { *watched | flag } else { *watched - flag };
        if wanted != *watched {
            epoll::modify(self.watcher.get_ref(), &self.socket, epoll::EventData::new_u64(0), wanted)?;
            *watched = wanted;
        }
        Ok(())
    }

    fn poll_event(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // What happens from now on is a newer event than the one that is forgotten here.
        ready!(self.watcher.poll_read_ready(cx))?.clear_ready();
        let mut taken = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        epoll::wait(self.watcher.get_ref(), &mut taken, Some(&Timespec::default()))?;
        Poll::Ready(Ok(()))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

#[cfg(test)]
pub(crate) mod pipe {
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Wake, Waker};

    use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

    use super::*;

    /// One end of a pipe within the process.
    pub(crate) struct PipeLink {
        stream: Mutex<DuplexStream>,
        relay: Arc<Relay>,
    }

    /// Turns the wakers of a pipe, which are left by reads and writes that find nothing, into events.
    #[derive(Default)]
    struct Relay {
        has_fired: AtomicBool,
        task: Mutex<Option<Waker>>,
    }

    impl PipeLink {
        pub(crate) fn new(stream: DuplexStream) -> Self {
            Self { stream: Mutex::new(stream), relay: Arc::default() }
        }

        fn poll<T>(
            &self,
            poll: impl FnOnce(Pin<&mut DuplexStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
        ) -> io::Result<T> {
            let waker = Waker::from(Arc::clone(&self.relay));
            match poll(Pin::new(&mut *self.stream.lock().unwrap()), &mut Context::from_waker(&waker)) {
                Poll::Ready(result) => {
                    // No waker was left, so the next wait must not be for one.
                    self.relay.has_fired.store(true, Ordering::SeqCst);
                    result
                }
                Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            }
        }
    }

    impl Link for PipeLink {
        fn read(&self, first: &mut [u8], second: &mut [u8]) -> io::Result<usize> {
            let mut target = ReadBuf::new(if first.is_empty() { second } else { first });
            self.poll(|stream, cx| stream.poll_read(cx, &mut target))?;
            Ok(target.filled().len())
        }

        fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            self.poll(|stream, cx| stream.poll_write_vectored(cx, slices))
        }

        fn watch(&self, _event: Event, _is_watched: bool) -> io::Result<()> {
            Ok(())
        }

        fn poll_event(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            *self.relay.task.lock().unwrap() = Some(cx.waker().clone());
            if self.relay.has_fired.swap(false, Ordering::SeqCst) { Poll::Ready(Ok(())) } else { Poll::Pending }
        }

        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }

    impl Wake for Relay {
        fn wake(self: Arc<Self>) {
            self.has_fired.store(true, Ordering::SeqCst);
            let task = self.task.lock().unwrap().take();
            if let Some(task) = task {
                task.wake();
            }
        }
    }
}
