//! Byte stream that carries a driver's frames: a socket, or a pipe in tests.
//!
//! # Guarantees of a link
//! - L1: outcomes are explicit. No caller infers from a length that the link is drained or full. An [`Event`] follows
//!   [`ReadOutcome::Drained`], `is_drained` and [`WriteOutcome::WantsRoom`], and no other outcome.
//! - L2: events are edges, and simultaneous ones may be merged: bytes and the stream's end, or the bytes of two chunks.
//!   After an event, read until the link is drained or closed, and write until nothing is left or the link wants room.
//! - L3: the link reports the end once all bytes before it are read, and again with each later read.
//! - L4: a link may buffer bytes in either direction, as an encrypting one does. [`Link::has_buffered`] reports bytes
//!   that its descriptor no longer shows. [`Link::has_unsent`] reports bytes that the link accepted and its descriptor
//!   did not. A link with buffered bytes is not drained, so no thread sleeps on the descriptor while some remain. A
//!   thread that hands over reading checks `has_buffered`.
//! - L5: reading never waits for writing. A read may leave bytes to write, such as an answer of the link itself. Those
//!   are unsent, and are written as soon as there is room, even if no frames wait.
//!
//! # Why each socket has its own epoll instance
//! tokio registers a socket once, for edges in both directions. Each arrival would then wake its thread, even while
//! another thread reads. Here tokio watches an epoll instance that contains only that socket. One short system call
//! changes the instance's interest. The instance fires at once if an event of the new interest is already pending.
//!
//! The kernel then fires only if the socket is not already on that instance's ready list. The inner registration is
//! therefore edge-triggered too: an edge leaves the list when it is taken. [`SocketLink::poll_event`] takes each edge
//! that it is woken for.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use rustix::event::{Timespec, epoll};
use rustix::io::{Errno, readv, retry_on_intr, writev};
use rustix::net::{Shutdown, shutdown};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Stream that any thread with work may read and write with vectors; hence `&self`. No call waits.
///
/// At most one thread reads at a time, under the lock of the [`Receiver`](super::receiver::Receiver). At most one
/// writes, under the lock of the [`Sender`](super::sender::Sender). Reading and writing may overlap.
pub(crate) trait Link: Send + Sync + 'static {
    /// Reads bytes and fills `first` before `second`. At least one of the two has room.
    fn read(&self, first: &mut [u8], second: &mut [u8]) -> io::Result<ReadOutcome>;

    /// Accepts as many bytes of `slices` as it has room for, and writes its [unsent](Self::has_unsent) bytes. With
    /// empty `slices` it only writes the unsent ones.
    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<WriteOutcome>;

    /// Returns true if it holds unread bytes that no event and no descriptor reports. Called under the receiver's lock.
    fn has_buffered(&self) -> bool;

    /// Returns true if it holds bytes that it still has to write. Called under the sender's lock.
    fn has_unsent(&self) -> bool;

    /// Starts or stops reporting of `event` by [`poll_event`](Self::poll_event). Initially it reports bytes, not room.
    /// A state that already holds when watching begins counts as an event.
    fn watch(&self, event: Event, is_watched: bool) -> io::Result<()>;

    /// Returns ready if a watched event has happened since the last ready result; the caller then tries both
    /// directions. Otherwise returns pending, and the event wakes the connection's task. The result does not say which
    /// event it was.
    fn poll_event(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Descriptor that a thread can sleep on after an outcome announced an event, if the link has one.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Ends the stream in both directions at once, even if other owners remain. The peer learns of it after all bytes
    /// written so far. Threads that sleep on the descriptor wake up.
    fn close(&self);
}

/// Outcome of a read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReadOutcome {
    /// Number of bytes read, at least one. If `is_drained` is false, there may be more, which only another read can
    /// show.
    Bytes { count: usize, is_drained: bool },
    /// No bytes. Later bytes raise an event.
    Drained,
    /// The peer has closed its side. No more bytes follow.
    Closed,
}

/// Outcome of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WriteOutcome {
    /// Number of bytes accepted, at least one unless there were none. The link may have room for more.
    Accepted(usize),
    /// No bytes accepted. The next event of the link announces room.
    WantsRoom,
}

/// Event that a link can report.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Event {
    /// Bytes to read, the stream's end, or its failure.
    Bytes,
    /// Room to write.
    Room,
}

/// Connected, non-blocking stream socket.
#[derive(Debug)]
pub(crate) struct SocketLink {
    socket: OwnedFd,
    watcher: AsyncFd<OwnedFd>,
    watched: Mutex<epoll::EventFlags>,
    /// An event reported the stream's end too. No second event will report it.
    is_ending: AtomicBool,
}

impl SocketLink {
    /// Takes over a socket that no reactor watches. Call it on the runtime that will watch it.
    #[expect(
        deprecated,
        reason = "what replaces it is unsafe; for an `OwnedFd`, which keeps its promises, both are sound"
    )]
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        let watcher = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let watched = epoll::EventFlags::ET | BYTES;
        epoll::add(&watcher, &socket, epoll::EventData::new_u64(0), watched)?;
        let watcher = AsyncFd::with_interest(watcher, Interest::READABLE)?;
        Ok(Self { socket, watcher, watched: Mutex::new(watched), is_ending: AtomicBool::new(false) })
    }
}

impl Link for SocketLink {
    fn read(&self, first: &mut [u8], second: &mut [u8]) -> io::Result<ReadOutcome> {
        let room = first.len() + second.len();
        match retry_on_intr(|| readv(&self.socket, &mut [IoSliceMut::new(first), IoSliceMut::new(second)])) {
            Ok(0) => Ok(ReadOutcome::Closed),
            // epoll(7): a read shorter than its room has drained the socket, and later bytes raise a new edge. The end
            // does not, if the edge that reported these bytes also reported the end.
            Ok(count) => {
                let is_drained = count < room && !self.is_ending.load(Ordering::Relaxed);
                Ok(ReadOutcome::Bytes { count, is_drained })
            }
            Err(Errno::AGAIN) => Ok(ReadOutcome::Drained),
            Err(error) => Err(error.into()),
        }
    }

    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<WriteOutcome> {
        match retry_on_intr(|| writev(&self.socket, slices)) {
            Ok(0) if !slices.is_empty() => Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => Ok(WriteOutcome::Accepted(count)),
            Err(Errno::AGAIN) => Ok(WriteOutcome::WantsRoom),
            Err(error) => Err(error.into()),
        }
    }

    fn has_buffered(&self) -> bool {
        false
    }

    fn has_unsent(&self) -> bool {
        false
    }

    fn watch(&self, event: Event, is_watched: bool) -> io::Result<()> {
        let flag = match event {
            Event::Bytes => BYTES,
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
        // Clear before taking the edge: an event from now on is newer than the one cleared here.
        ready!(self.watcher.poll_read_ready(cx))?.clear_ready();
        let mut taken = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        epoll::wait(self.watcher.get_ref(), &mut taken, Some(&Timespec::default()))?;
        let flags = taken[0].flags;
        if flags.intersects(ENDS) {
            self.is_ending.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn close(&self) {
        // Shutdown fails if the peer has already closed the connection.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

/// Interest of a reader.
const BYTES: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::RDHUP);
/// The stream has ended or failed. The kernel reports this regardless of the interest.
const ENDS: epoll::EventFlags = epoll::EventFlags::RDHUP.union(epoll::EventFlags::HUP).union(epoll::EventFlags::ERR);

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    /// Returns a link and the socket of its peer.
    fn link() -> (SocketLink, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        (SocketLink::new(socket.into()).unwrap(), peer)
    }

    async fn event(link: &SocketLink) {
        std::future::poll_fn(|cx| link.poll_event(cx)).await.unwrap();
    }

    #[tokio::test]
    async fn a_read_that_has_room_left_has_all_there_is_until_the_end_has_come() {
        let (link, mut peer) = link();
        peer.write_all(&[7; 10]).unwrap();
        event(&link).await;
        let (mut first, mut second) = ([0; 4], [0; 4]);
        let read = |first: &mut [u8], second: &mut [u8]| link.read(first, second).unwrap();
        let all = read(&mut first, &mut second);
        assert!(matches!(all, ReadOutcome::Bytes { count: 8, is_drained: false }), "there was no more room: {all:?}");
        let rest = read(&mut first, &mut second);
        assert!(matches!(rest, ReadOutcome::Bytes { count: 2, is_drained: true }), "{rest:?}");
        peer.write_all(&[7; 3]).unwrap();
        drop(peer);
        event(&link).await;
        // The end may come with an event of its own.
        while !link.is_ending.load(Ordering::Relaxed) {
            event(&link).await;
        }
        let last = read(&mut first, &mut second);
        assert!(matches!(last, ReadOutcome::Bytes { count: 3, is_drained: false }), "the end is behind it: {last:?}");
        assert!(matches!(read(&mut first, &mut second), ReadOutcome::Closed));
    }

    #[tokio::test]
    async fn what_is_written_is_sent_and_nothing_is_no_error() {
        let (link, mut peer) = link();
        assert!(matches!(link.write(&[IoSlice::new(b"ab"), IoSlice::new(b"c")]), Ok(WriteOutcome::Accepted(3))));
        assert!(matches!(link.write(&[]), Ok(WriteOutcome::Accepted(0))));
        assert!(!link.has_buffered() && !link.has_unsent());
        let mut sent = [0; 3];
        peer.read_exact(&mut sent).unwrap();
        assert_eq!(&sent, b"abc");
    }

    #[tokio::test]
    async fn what_is_watched_for_is_watched_until_it_is_no_longer() {
        let (link, _peer) = link();
        let room = epoll::EventFlags::OUT;
        let watched = [(true, true), (true, true), (false, false), (false, false), (true, true)];
        for (is_watched, has_room) in watched {
            link.watch(Event::Room, is_watched).unwrap();
            assert_eq!(link.watched.lock().unwrap().contains(room), has_room);
            assert!(link.watched.lock().unwrap().contains(BYTES), "and bytes all the time");
        }
        event(&link).await;
    }
}
