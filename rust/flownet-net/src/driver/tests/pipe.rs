//! Stream within the process that behaves like a socket. It has edges that may be merged, short reads, an end that
//! comes with bytes or as a reset, and a descriptor without sleepers. Its ends are links of a driver, or streams of a
//! test that plays the peer.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::driver::link::{Event, Link, ReadOutcome, WriteOutcome};

/// Kind of a link between its users and the stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// Behaves like a socket.
    Plain,
    /// Behaves like an encrypting link. It takes all bytes of the stream and returns them in small pieces. It also
    /// accepts bytes for which the stream has no room.
    Buffering,
}

/// One end. Dropping it ends the stream in both directions.
pub(super) struct PipeEnd {
    pipe: Arc<Mutex<Pipe>>,
    side: usize,
    kind: Kind,
}

struct Pipe {
    /// Indexed by the writing side.
    lines: [Line; 2],
    sides: [Side; 2],
}

struct Line {
    bytes: VecDeque<u8>,
    capacity: usize,
    is_finished: bool,
    is_reset: bool,
}

/// Watched events and buffered bytes of one end.
#[derive(Default)]
struct Side {
    watches_bytes: bool,
    watches_room: bool,
    edge: bool,
    /// An edge reported the end.
    is_ending: bool,
    waker: Option<Waker>,
    buffered: VecDeque<u8>,
    unsent: VecDeque<u8>,
}

/// Creates two ends with room for `bytes` in each direction.
pub(super) fn pipe(kind: Kind, bytes: usize) -> (PipeEnd, PipeEnd) {
    let line = || Line { bytes: VecDeque::new(), capacity: bytes, is_finished: false, is_reset: false };
    let side = || Side { watches_bytes: true, ..Side::default() };
    let pipe = Arc::new(Mutex::new(Pipe { lines: [line(), line()], sides: [side(), side()] }));
    (PipeEnd { pipe: Arc::clone(&pipe), side: 0, kind }, PipeEnd { pipe, side: 1, kind })
}

impl PipeEnd {
    /// Ends the stream by a reset. Bytes that have arrived are not lost.
    pub(super) fn reset(self) {
        self.pipe.lock().unwrap().lines[self.side].is_reset = true;
    }

    fn finish(&self) {
        let mut pipe = self.pipe.lock().unwrap();
        pipe.lines.iter_mut().for_each(|line| line.is_finished = true);
        // The other end may read earlier bytes. Our end reads nothing more.
        pipe.lines[1 - self.side].bytes.clear();
        let wakers = [pipe.tell(1 - self.side, Event::Bytes), pipe.tell(self.side, Event::Bytes)];
        drop(pipe);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// Takes bytes off the stream. Returns `None` if there are none.
    fn receive(&self, room: usize) -> io::Result<Option<Vec<u8>>> {
        let mut pipe = self.pipe.lock().unwrap();
        let line = &mut pipe.lines[1 - self.side];
        let count = line.bytes.len().min(room);
        let taken: Vec<u8> = line.bytes.drain(..count).collect();
        if !taken.is_empty() {
            let waker = pipe.tell(1 - self.side, Event::Room);
            drop(pipe);
            waker.into_iter().for_each(Waker::wake);
            return Ok(Some(taken));
        }
        match (line.is_reset, line.is_finished) {
            (true, _) => Err(io::ErrorKind::ConnectionReset.into()),
            (false, true) => Ok(Some(taken)),
            (false, false) => Ok(None),
        }
    }

    /// Puts bytes on the stream, as many as there is room for.
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut pipe = self.pipe.lock().unwrap();
        let line = &mut pipe.lines[self.side];
        if line.is_finished {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let count = bytes.len().min(line.capacity - line.bytes.len());
        line.bytes.extend(&bytes[..count]);
        let waker = if count > 0 { pipe.tell(1 - self.side, Event::Bytes) } else { None };
        drop(pipe);
        waker.into_iter().for_each(Waker::wake);
        Ok(count)
    }

    fn with_side<R>(&self, work: impl FnOnce(&mut Side) -> R) -> R {
        work(&mut self.pipe.lock().unwrap().sides[self.side])
    }

    fn flush(&self) -> io::Result<()> {
        let unsent = self.with_side(|side| side.unsent.make_contiguous().to_vec());
        let sent = self.send(&unsent)?;
        self.with_side(|side| drop(side.unsent.drain(..sent)));
        Ok(())
    }

    /// Registers the waker of a test that plays the peer, if the stream is not ready.
    fn wait_with(&self, cx: &Context<'_>) {
        self.with_side(|side| {
            (side.watches_bytes, side.watches_room) = (true, true);
            side.waker = Some(cx.waker().clone());
        });
    }
}

impl Pipe {
    /// Raises an edge if `side` watches for this event.
    fn tell(&mut self, side: usize, event: Event) -> Option<Waker> {
        let side = &mut self.sides[side];
        let is_watched = match event {
            Event::Bytes => side.watches_bytes,
            Event::Room => side.watches_room,
        };
        side.edge |= is_watched;
        if is_watched { side.waker.take() } else { None }
    }
}

impl Link for PipeEnd {
    fn read(&self, first: &mut [u8], second: &mut [u8]) -> io::Result<ReadOutcome> {
        let room = first.len() + second.len();
        let taken = match self.kind {
            Kind::Plain => self.receive(room)?,
            Kind::Buffering => {
                if !self.has_buffered()
                    && let Some(taken) = self.receive(usize::MAX)?
                {
                    if taken.is_empty() {
                        return Ok(ReadOutcome::Closed);
                    }
                    self.with_side(|side| side.buffered.extend(taken));
                }
                let given = |side: &mut Side| side.buffered.drain(..side.buffered.len().min(room).min(GIVEN)).collect();
                Some(self.with_side(given)).filter(|given: &Vec<u8>| !given.is_empty())
            }
        };
        let Some(taken) = taken else { return Ok(ReadOutcome::Drained) };
        if taken.is_empty() {
            return Ok(ReadOutcome::Closed);
        }
        let count = taken.len();
        let split = count.min(first.len());
        first[..split].copy_from_slice(&taken[..split]);
        second[..count - split].copy_from_slice(&taken[split..]);
        let is_ending = self.with_side(|side| side.is_ending);
        Ok(ReadOutcome::Bytes { count, is_drained: self.kind == Kind::Plain && count < room && !is_ending })
    }

    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<WriteOutcome> {
        let mut bytes = Vec::new();
        for slice in slices {
            bytes.extend_from_slice(&slice[..slice.len().min(MOST_WRITTEN - bytes.len())]);
        }
        if self.kind == Kind::Plain {
            let sent = self.send(&bytes)?;
            return Ok(if sent > 0 { WriteOutcome::Accepted(sent) } else { WriteOutcome::WantsRoom });
        }
        self.flush()?;
        if self.has_unsent() {
            return Ok(WriteOutcome::WantsRoom);
        }
        let taken = bytes.len().min(TAKEN);
        self.with_side(|side| side.unsent.extend(&bytes[..taken]));
        self.flush()?;
        Ok(WriteOutcome::Accepted(taken))
    }

    fn has_buffered(&self) -> bool {
        self.with_side(|side| !side.buffered.is_empty())
    }

    fn has_unsent(&self) -> bool {
        self.with_side(|side| !side.unsent.is_empty())
    }

    fn watch(&self, event: Event, is_watched: bool) -> io::Result<()> {
        let mut pipe = self.pipe.lock().unwrap();
        let (inbound, outbound) = (&pipe.lines[1 - self.side], &pipe.lines[self.side]);
        let has_happened = match event {
            Event::Bytes => !inbound.bytes.is_empty() || inbound.is_finished,
            Event::Room => outbound.bytes.len() < outbound.capacity,
        };
        match event {
            Event::Bytes => pipe.sides[self.side].watches_bytes = is_watched,
            Event::Room => pipe.sides[self.side].watches_room = is_watched,
        }
        let waker = if has_happened { pipe.tell(self.side, event) } else { None };
        drop(pipe);
        waker.into_iter().for_each(Waker::wake);
        Ok(())
    }

    fn poll_event(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.pipe.lock().unwrap();
        let is_finished = pipe.lines[1 - self.side].is_finished;
        let side = &mut pipe.sides[self.side];
        if std::mem::take(&mut side.edge) {
            side.is_ending |= is_finished;
            return Poll::Ready(Ok(()));
        }
        side.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn close(&self) {
        self.finish();
    }
}

impl AsyncRead for PipeEnd {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.wait_with(cx);
        match self.receive(buf.remaining())? {
            Some(bytes) => {
                buf.put_slice(&bytes);
                Poll::Ready(Ok(()))
            }
            None => Poll::Pending,
        }
    }
}

impl AsyncWrite for PipeEnd {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.wait_with(cx);
        match self.send(bytes)? {
            0 => Poll::Pending,
            sent => Poll::Ready(Ok(sent)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.finish();
        Poll::Ready(Ok(()))
    }
}

impl Drop for PipeEnd {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Most bytes that any link accepts in one write.
pub(super) const MOST_WRITTEN: usize = 4 * flownet_memory::KIB;
/// Bytes that a buffering link returns in one read, and accepts in one write.
const GIVEN: usize = 7;
const TAKEN: usize = 11;
