//! A link that encrypts what it is given and decrypts what comes.
//!
//! What a thread writes it encrypts, under the sender's lock: one task pays for all whose buffers go along. What it reads
//! it decrypts, under the receiver's.
//!
//! # Invariants
//! - T1: records leave in the order in which they were encrypted, and are decrypted in the order in which they came. Who
//!   encrypts holds the sender's lock until the socket has the records or they are unsent; who decrypts holds the
//!   receiver's from the read on.
//! - T2: the session's own lock, which both take, is the innermost. Nobody waits under it, and its longest holder
//!   encrypts and writes [`RECORDS_PER_WRITE`] records, or decrypts one.
//! - T3: what the link holds is bounded: one read of the socket, the records decrypted and not yet taken of one step, and
//!   the records of one write.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use rustls::Connection;

use super::link::{Event, Link, Received, Sent};

/// See the [module docs](self).
pub(crate) struct TlsLink<L> {
    link: L,
    session: Mutex<Box<Connection>>,
    arrived: Mutex<Arrived>,
}

/// What was read and not decrypted. Under the receiver's lock.
struct Arrived {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// Decrypted bytes that the session holds.
    plaintext: usize,
    /// The peer has said that nothing follows.
    is_closed: bool,
}

impl<L: Link> TlsLink<L> {
    /// Goes on with a session whose handshake is over.
    pub(crate) fn new(link: L, mut session: Box<Connection>) -> io::Result<Self> {
        session.set_buffer_limit(Some(RECORDS_PER_WRITE * RECORD_BYTES));
        // What came along with the end of the handshake.
        let bytes = vec![0; READ_BYTES].into_boxed_slice();
        let mut arrived = Arrived { bytes, start: 0, end: 0, plaintext: 0, is_closed: false };
        arrived.process(&mut session)?;
        Ok(Self { link, session: Mutex::new(session), arrived: Mutex::new(arrived) })
    }

    #[cfg(test)]
    pub(super) fn renew_keys(&self) {
        self.session().refresh_traffic_keys().unwrap();
    }

    fn session(&self) -> MutexGuard<'_, Box<Connection>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arrived(&self) -> MutexGuard<'_, Arrived> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all records that were encrypted are the socket's.
    fn send(&self, session: &mut Connection) -> io::Result<bool> {
        while session.wants_write() {
            match session.write_tls(&mut Socket(&self.link)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl<L: Link> Link for TlsLink<L> {
    fn read(&self, first: &mut [u8], second: &mut [u8]) -> io::Result<Received> {
        let mut arrived = self.arrived();
        let (room, mut count) = (first.len() + second.len(), 0);
        let mut is_drained = false;
        loop {
            let mut session = self.session();
            count += arrived.take(&mut session, first, count)?;
            count += arrived.take(&mut session, second, count.saturating_sub(first.len()))?;
            if count == room {
                return Ok(Received::Bytes { count, is_drained: false });
            }
            if arrived.decrypt(&mut session)? {
                continue;
            }
            drop(session);
            if count > 0 {
                return Ok(Received::Bytes { count, is_drained });
            }
            if arrived.is_closed {
                return Ok(Received::Closed);
            }
            if is_drained {
                return Ok(Received::Drained);
            }
            match arrived.fill(&self.link)? {
                Received::Bytes { is_drained: is_all, .. } => is_drained = is_all,
                nothing => return Ok(nothing),
            }
        }
    }

    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<Sent> {
        let mut session = self.session();
        if !self.send(&mut session)? {
            return Ok(Sent::WantsRoom);
        }
        let accepted = session.writer().write_vectored(slices)?;
        self.send(&mut session)?;
        Ok(Sent::Accepted(accepted))
    }

    fn has_buffered(&self) -> bool {
        let arrived = self.arrived();
        arrived.plaintext > 0 || arrived.start < arrived.end
    }

    fn has_unsent(&self) -> bool {
        self.session().wants_write()
    }

    fn watch(&self, event: Event, is_watched: bool) -> io::Result<()> {
        self.link.watch(event, is_watched)
    }

    fn poll_event(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.link.poll_event(cx)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.descriptor()
    }

    fn close(&self) {
        self.link.close();
    }
}

impl Arrived {
    /// Moves decrypted bytes behind the first `filled` of `target`.
    fn take(&mut self, session: &mut Connection, target: &mut [u8], filled: usize) -> io::Result<usize> {
        let target = target.get_mut(filled..).unwrap_or_default();
        if self.plaintext == 0 || target.is_empty() {
            return Ok(0);
        }
        let taken = session.reader().read(target)?;
        self.plaintext -= taken;
        Ok(taken)
    }

    /// Decrypts what is complete of the next few bytes. `false` when there are none.
    fn decrypt(&mut self, session: &mut Connection) -> io::Result<bool> {
        let mut bytes = &self.bytes[self.start..self.end];
        if bytes.is_empty() || self.is_closed {
            return Ok(false);
        }
        self.start += session.read_tls(&mut bytes)?;
        self.process(session).map(|()| true)
    }

    fn process(&mut self, session: &mut Connection) -> io::Result<()> {
        let state = session.process_new_packets();
        let state = state.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        (self.plaintext, self.is_closed) = (state.plaintext_bytes_to_read(), state.peer_has_closed());
        Ok(())
    }

    /// Reads once. All that was there is decrypted.
    fn fill(&mut self, link: &impl Link) -> io::Result<Received> {
        let read = link.read(&mut self.bytes, &mut [])?;
        if let Received::Bytes { count, .. } = read {
            (self.start, self.end) = (0, count);
        }
        Ok(read)
    }
}

/// What takes records where a link waits for room.
struct Socket<'a, L>(&'a L);

impl<L: Link> Write for Socket<'_, L> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.0.write(slices)? {
            Sent::Accepted(count) => Ok(count),
            Sent::WantsRoom => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Of TLS: what one record carries at most.
const RECORD_BYTES: usize = 16 * flownet_memory::KIB;
const RECORDS_PER_WRITE: usize = 4;
/// As many records, with what encryption adds.
const READ_BYTES: usize = RECORDS_PER_WRITE * (RECORD_BYTES + 22);
