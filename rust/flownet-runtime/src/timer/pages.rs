//! Allocates pages of a file, for timers far from due.
//!
//! # Invariants
//! - P1: a page belongs to one log, or is free, or is released, or was never used.
//! - P2: bytes that a reader may still read are not overwritten. A released page is reused when all readers that
//!   started before the release are gone. Appended bytes go after all bytes that they read.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Weak};

/// Bytes of a page.
pub(super) const PAGE_BYTES: usize = if cfg!(test) { 64 } else { 16 << 10 };

/// The storage of pages.
pub(super) trait Room: Send + Sync {
    /// Fills `out` with the bytes from this offset on.
    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes bytes at this offset.
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

/// The pages of an unnamed file.
pub(super) struct Pages {
    room: Arc<dyn Room>,
    /// Pages from this number on were never used.
    next: u32,
    free: Vec<u32>,
    /// Released pages, each with the number of readers that had started by then.
    left: VecDeque<(u64, Vec<u32>)>,
    /// Current readers, by number.
    readers: VecDeque<(u64, Weak<()>)>,
    begun: u64,
}

/// A reader of the pages as they were at its start, as long as it is held.
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

    /// Takes a page to write to.
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

    /// Releases pages. Only readers that have started still need them.
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

    /// Writes to a page, after its first `from` bytes.
    pub(super) fn write(&self, page: u32, from: usize, bytes: &[u8]) -> io::Result<()> {
        debug_assert!(from + bytes.len() <= PAGE_BYTES);
        self.room.write(u64::from(page) * PAGE_BYTES as u64 + from as u64, bytes)
    }

    /// Reads these pages, as one sequence of bytes, between two offsets.
    pub(super) fn read(&self, pages: &[u32], from: usize, to: usize) -> io::Result<Vec<u8>> {
        read(&*self.room, pages, from, to)
    }

    /// Starts a reader.
    pub(super) fn begin_to_read(&mut self) -> PageReader {
        let held = Arc::new(());
        self.begun += 1;
        self.readers.push_back((self.begun, Arc::downgrade(&held)));
        PageReader { room: Arc::clone(&self.room), _held: held }
    }

    /// Number of pages in use, to test that pages are reused.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.next as usize - self.free.len() - self.left.iter().map(|(_, pages)| pages.len()).sum::<usize>()
    }
}

impl PageReader {
    /// See [`Pages::read`].
    pub(super) fn read(&self, pages: &[u32], from: usize, to: usize) -> io::Result<Vec<u8>> {
        read(&*self.room, pages, from, to)
    }
}

/// Pages that are adjacent in the file are read in one call.
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
