//! Encrypting link: encrypts written bytes and decrypts read bytes.
//!
//! A thread encrypts the bytes that it writes, under the sender's lock. It thereby also encrypts for all other tasks
//! whose buffers are sent along. A thread decrypts the bytes that it reads, under the receiver's lock. The two
//! directions share only flags.
//!
//! # Invariants
//! - T1: records leave in the order in which they were sealed, and are opened in the order in which they arrived. The
//!   sealing thread holds the sender's lock until the socket has the records or they are stored as unsent. The opening
//!   thread holds the receiver's lock from the read onward.
//! - T2: the locks of the two directions are the innermost ones. No thread waits while it holds one.
//! - T3: the link buffers a bounded amount: one read of the socket, and as many records.
//! - T4: a reader that owes the peer a new key or an alert sets a flag. The next writer sends it.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use rustls::{AlertDescription, Error};

use super::link::{Event, Link, ReadOutcome, WriteOutcome};
use crate::tls::{IncomingRecords, OutgoingRecords, RemainingSlices, breach, complaint};

/// Link that encrypts a link `L`. See the [module docs](self).
pub(crate) struct TlsLink<L> {
    link: L,
    arrived: Mutex<ReceivedBytes>,
    outgoing: Mutex<OutgoingRecords>,
    /// Whether records are unsent. Mirrors `outgoing`, but is read without its lock.
    has_records: AtomicBool,
    /// A key update is owed to the peer (T4).
    owes_key: AtomicBool,
    /// Alert to send when the link closes (T4).
    goodbye: Mutex<Option<AlertDescription>>,
}

/// Received bytes, under the receiver's lock.
struct ReceivedBytes {
    incoming: IncomingRecords,
    /// The read that brought the remaining bytes drained the socket, which was not reported to the caller yet.
    is_drained: bool,
}

impl<L: Link> TlsLink<L> {
    /// Continues a session whose ends have authenticated each other.
    pub(crate) fn new(link: L, incoming: IncomingRecords, outgoing: OutgoingRecords) -> Self {
        Self {
            link,
            arrived: Mutex::new(ReceivedBytes { incoming, is_drained: false }),
            outgoing: Mutex::new(outgoing),
            has_records: AtomicBool::new(false),
            owes_key: AtomicBool::new(false),
            goodbye: Mutex::new(Some(AlertDescription::CloseNotify)),
        }
    }

    #[cfg(test)]
    pub(super) fn allow_records_per_key(&self, records: u64) {
        lock(&self.outgoing).allow_records_per_key(records);
    }

    #[cfg(test)]
    pub(super) fn ask_for_next_key(&self) {
        let mut outgoing = lock(&self.outgoing);
        outgoing.ask_for_next_key();
        self.send(&mut outgoing).unwrap();
    }

    /// Sends unsent records. Returns true if the socket has accepted all of them.
    fn send(&self, outgoing: &mut OutgoingRecords) -> io::Result<bool> {
        loop {
            let unsent = outgoing.unsent();
            self.has_records.store(!unsent.is_empty(), Ordering::Release);
            if unsent.is_empty() {
                return Ok(true);
            }
            match self.link.write(&[IoSlice::new(unsent)])? {
                WriteOutcome::Accepted(count) => outgoing.advance(count),
                WriteOutcome::WantsRoom => return Ok(false),
            }
        }
    }

    /// Turns a TLS error into an IO error, and stores the alert for the peer.
    fn refuse(&self, error: Error) -> io::Error {
        *lock(&self.goodbye) = complaint(&error);
        breach(error)
    }
}

impl<L: Link> Link for TlsLink<L> {
    fn read(&self, first: &mut [u8], second: &mut [u8]) -> io::Result<ReadOutcome> {
        let mut arrived = lock(&self.arrived);
        let mut is_drained = std::mem::take(&mut arrived.is_drained);
        loop {
            let taken = arrived.incoming.take(first, second).map_err(|error| self.refuse(error))?;
            if arrived.incoming.take_key_request() {
                self.owes_key.store(true, Ordering::Release);
            }
            if taken > 0 {
                // L4 of `link`: not drained before the remaining content is taken.
                arrived.is_drained = is_drained && arrived.incoming.has_some();
                return Ok(ReadOutcome::Bytes { count: taken, is_drained: is_drained && !arrived.is_drained });
            }
            if arrived.incoming.is_closed() {
                return Ok(ReadOutcome::Closed);
            }
            if is_drained {
                return Ok(ReadOutcome::Drained);
            }
            match self.link.read(arrived.incoming.room(), &mut [])? {
                ReadOutcome::Bytes { count, is_drained: is_all } => {
                    arrived.incoming.filled(count);
                    is_drained = is_all;
                }
                ReadOutcome::Closed if !arrived.incoming.is_between_records() => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                nothing => return Ok(nothing),
            }
        }
    }

    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<WriteOutcome> {
        let mut outgoing = lock(&self.outgoing);
        // T1: records that are unsent leave first.
        if !self.send(&mut outgoing)? {
            return Ok(WriteOutcome::WantsRoom);
        }
        if self.owes_key.swap(false, Ordering::AcqRel) {
            outgoing.renew_keys().map_err(breach)?;
        }
        // Seal as much as the socket has room for, so that the writer finishes as soon as it would without TLS.
        let mut rest = RemainingSlices::new(slices);
        loop {
            outgoing.seal(&mut rest).map_err(breach)?;
            if !self.send(&mut outgoing)? || rest.is_empty() {
                return Ok(WriteOutcome::Accepted(rest.taken()));
            }
        }
    }

    fn has_buffered(&self) -> bool {
        lock(&self.arrived).incoming.has_some()
    }

    fn has_unsent(&self) -> bool {
        self.has_records.load(Ordering::Acquire) || self.owes_key.load(Ordering::Acquire)
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
        let mut outgoing = lock(&self.outgoing);
        // The peer could not decode an alert that follows half a record.
        if outgoing.unsent().is_empty()
            && let Some(why) = lock(&self.goodbye).take()
        {
            let _said = outgoing.say_goodbye(why).is_ok_and(|()| self.send(&mut outgoing).is_ok());
        }
        self.link.close();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
