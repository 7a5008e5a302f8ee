//! The byte stream a driver moves frames over: a socket, or a pipe in tests.
//!
//! # What a link promises
//! - L1: what an outcome says, it says in words. Nobody infers from a length that nothing is left or that nothing fits:
//!   after [`ReadOutcome::Drained`], `is_drained`, and [`WriteOutcome::WantsRoom`] there is an [`Event`] to come, and only then.
//! - L2: events are edges, and those of the same time may be one: bytes and the stream's end, and both for two chunks.
//!   Who was told reads until the link is drained or closed, and writes until it has nothing or the link wants room.
//! - L3: the end is told once all bytes before it are read, and then with each read.
//! - L4: a link may hold bytes of its own on either side, as one that encrypts does: what its descriptor does not show
//!   any more ([`Link::has_buffered`]), and what it took and its descriptor has not ([`Link::has_unsent`]). Drained is
//!   only who has no buffered bytes, so nobody sleeps on a descriptor over them; who hands the reading over asks.
//! - L5: reading never waits for writing. A read may leave something to be written, an answer of the link's own: that is
//!   unsent, and written as soon as there is room, whether frames wait or not.
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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use rustix::event::{Timespec, epoll};
use rustix::io::{Errno, readv, retry_on_intr, writev};
use rustix::net::{Shutdown, shutdown};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A stream that is read and written with vectors, by whoever has something to move: hence `&self`. Nothing waits. One
/// reads at a time, under the lock of the [`Receiver`](super::receiver::Receiver), and one writes, under that of the
/// [`Sender`](super::sender::Sender); one of each at the same time.
pub(crate) trait Link: Send + Sync + 'static {
    /// Reads, filling `first` before `second`, which have room together.
    fn read(&self, first: &mut [u8], second: &mut [u8]) -> io::Result<ReadOutcome>;

    /// Takes of `slices` what it has room for, and writes what it has [unsent](Self::has_unsent), which is all it does
    /// if they are empty.
    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<WriteOutcome>;

    /// Whether it holds bytes that were not read, and of which no event and no descriptor tells. Asked under the
    /// receiver's lock.
    fn has_buffered(&self) -> bool;

    /// Whether it holds bytes that still have to be written. Asked under the sender's lock.
    fn has_unsent(&self) -> bool;

    /// Says whether [`poll_event`](Self::poll_event) is to tell of this. At first it tells of bytes, not of room. What
    /// is there already when that begins is an event.
    fn watch(&self, event: Event, is_watched: bool) -> io::Result<()>;

    /// Ready when what is watched has happened since the last time it was ready: then try. Pending otherwise, and the
    /// connection's task is woken when it does. Which event it was is not said.
    fn poll_event(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// What a thread can sleep on, if it can, when it has been told to wait for an event.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Ends it, both ways and at once, whoever still holds it: the peer is told, behind what was written, and who sleeps
    /// on the descriptor wakes up.
    fn close(&self);
}

/// What a read came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReadOutcome {
    /// So many bytes, one at least. If that did not drain the link there may be more, which only a read can tell.
    Bytes { count: usize, is_drained: bool },
    /// Nothing: whatever comes is an event.
    Drained,
    /// The peer has closed its side: nothing comes any more.
    Closed,
}

/// What a write came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WriteOutcome {
    /// So many bytes are the link's, one at least if there were any; it may have room for more.
    Accepted(usize),
    /// None: there is room with the next event.
    WantsRoom,
}

/// What a link can tell of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Event {
    /// There are bytes to read, or the stream's end, or its failure.
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
    /// An event told of the stream's end as well, for which there will not be another.
    is_ending: AtomicBool,
}

impl SocketLink {
    /// Takes over a socket that no reactor watches. To be called on the runtime that is to watch it.
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
            // As epoll(7) has it: less than there was room for is all of it, and what comes later is a new edge. Not so
            // the end, if the edge that told of these bytes told of it too.
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
        // What happens from now on is a newer event than the one that is forgotten here.
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
        // It fails where the peer was quicker.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

/// Of interest to who reads.
const BYTES: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::RDHUP);
/// The stream has ended, or failed, which the kernel tells of whatever is of interest.
const ENDS: epoll::EventFlags = epoll::EventFlags::RDHUP.union(epoll::EventFlags::HUP).union(epoll::EventFlags::ERR);

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    /// A link, and the socket of its peer.
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
        // The end may have come with an event of its own.
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
