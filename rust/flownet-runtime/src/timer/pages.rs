//! Room in a file, page by page: for timers that are far from being due.
//!
//! # Invariants
//! - P1: a page belongs to one log, or is free, or is left, or was never used.
//! - P2: what somebody may still read is not overwritten: a page that was left is taken again when all are gone who began to
//!   read before that. What is appended to a page goes behind all that they read.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Weak};

/// Bytes of a page.
pub(super) const PAGE_BYTES: usize = if cfg!(test) { 64 } else { 16 << 10 };

/// Where bytes lie.
pub(super) trait Room: Send + Sync {
    /// Fills `out` with what lies from there on.
    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes what is to lie from there on.
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
}

impl Room for File {
    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(out, at)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }
}

/// A file without a name, or none yet.
pub(super) struct Pages {
    room: Arc<dyn Room>,
    /// Pages from here on were never used.
    next: u32,
    free: Vec<u32>,
    /// Pages that were left, behind so many who had begun to read.
    left: VecDeque<(u64, Vec<u32>)>,
    /// Who reads, by number.
    readers: VecDeque<(u64, Weak<()>)>,
    begun: u64,
}

/// Somebody who reads what lay there when this began, as long as it is held.
pub(super) struct PageReader {
    room: Arc<dyn Room>,
    _held: Arc<()>,
}

impl Pages {
    pub(super) fn new(room: Arc<dyn Room>) -> Self {
        let (free, left, readers) = (Vec::new(), VecDeque::new(), VecDeque::new());
        Self { room, next: 0, free, left, readers, begun: 0 }
    }

    /// Bytes of the file.
    pub(super) fn file_bytes(&self) -> u64 {
        u64::from(self.next) * PAGE_BYTES as u64
    }

    /// A page to write to.
    pub(super) fn take(&mut self) -> io::Result<u32> {
        if self.free.is_empty() {
            self.take_back();
        }
        if let Some(page) = self.free.pop() {
            return Ok(page);
        }
        let page = self.next;
        self.next = page.checked_add(1).ok_or_else(|| io::Error::other("there are no more pages in one file"))?;
        Ok(page)
    }

    /// Nobody needs these any more but who has begun to read.
    pub(super) fn leave(&mut self, pages: Vec<u32>) {
        if pages.is_empty() {
            return;
        }
        self.left.push_back((self.begun, pages));
        self.take_back();
    }

    fn take_back(&mut self) {
        self.readers.retain(|(_, reader)| reader.strong_count() > 0);
        let oldest = self.readers.front().map_or(u64::MAX, |(number, _)| *number);
        let old = self.left.partition_point(|(begun, _)| *begun < oldest);
        self.free.extend(self.left.drain(..old).flat_map(|(_, pages)| pages));
    }

    /// Writes behind what lies in a page up to there.
    pub(super) fn write(&self, page: u32, from: usize, bytes: &[u8]) -> io::Result<()> {
        debug_assert!(from + bytes.len() <= PAGE_BYTES);
        self.room.write(u64::from(page) * PAGE_BYTES as u64 + from as u64, bytes)
    }

    /// What lies in these pages, one behind the other, between two places.
    pub(super) fn read(&self, pages: &[u32], from: usize, to: usize) -> io::Result<Vec<u8>> {
        read(&*self.room, pages, from, to)
    }

    /// Begins to read.
    pub(super) fn begin_to_read(&mut self) -> PageReader {
        let held = Arc::new(());
        self.begun += 1;
        self.readers.push_back((self.begun, Arc::downgrade(&held)));
        PageReader { room: Arc::clone(&self.room), _held: held }
    }

    /// Pages in use, for who looks whether room is used again.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.next as usize - self.free.len() - self.left.iter().map(|(_, pages)| pages.len()).sum::<usize>()
    }
}

impl PageReader {
    /// As [`Pages::read`].
    pub(super) fn read(&self, pages: &[u32], from: usize, to: usize) -> io::Result<Vec<u8>> {
        read(&*self.room, pages, from, to)
    }
}

/// Pages that lie one behind the other in the file are read at once.
fn read(room: &dyn Room, pages: &[u32], from: usize, to: usize) -> io::Result<Vec<u8>> {
    let mut out = vec![0; to.saturating_sub(from)];
    let (mut at, mut rest) = (from, &mut out[..]);
    while !rest.is_empty() {
        let first = at / PAGE_BYTES;
        let row = pages[first..].windows(2).take_while(|two| two[0].checked_add(1) == Some(two[1])).count() + 1;
        let bytes = rest.len().min(row * PAGE_BYTES - at % PAGE_BYTES);
        let (now, later) = rest.split_at_mut(bytes);
        room.read(u64::from(pages[first]) * PAGE_BYTES as u64 + (at % PAGE_BYTES) as u64, now)?;
        (at, rest) = (at + bytes, later);
    }
    Ok(out)
}
