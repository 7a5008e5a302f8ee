//! A log of the timers that were set and deleted. Its end is in memory, and all earlier entries are in pages of a file.
//!
//! # Invariants
//! - G1: the entries of one timer are in the order in which they were made.
//! - G2: entries that were made after at least a number of snapshots are at the first mark with at least that number,
//!   or after it.

use std::io;

use super::packed::TimerOwner;
use super::pages::{PAGE_BYTES, PageReader, Pages};
use crate::varint::{put_varint, take_varint};

/// Some timers.
pub(super) type Timers<K> = Vec<(i64, K)>;

/// A log of the timers that were set and deleted.
#[derive(Debug)]
pub(super) struct Log {
    /// The base of encoded times.
    base_ms: i64,
    pages: Vec<u32>,
    /// Offsets of the start of the log and of the end of its pages, counted from the first byte of the first page.
    begin: usize,
    end: usize,
    tail: Vec<u8>,
    set: usize,
    unset: usize,
    /// The time of the latest set timer.
    last_ms: i64,
    marks: Vec<Mark>,
    /// Size in bytes at which the log should be compacted.
    look_bytes: usize,
}

/// From this offset on, entries were made after this number of snapshots; see G2.
#[derive(Clone, Copy, Debug)]
struct Mark {
    taken: u32,
    at: usize,
}

/// One entry of the log.
#[derive(Clone, Debug)]
pub(super) struct DoneTimer<K> {
    pub(super) timer: (i64, K),
    pub(super) is_set: bool,
}

/// Some bytes in a file, to be read while the log continues.
#[derive(Debug)]
pub(super) struct LogRange {
    base_ms: i64,
    pages: Vec<u32>,
    from: usize,
    to: usize,
}

/// More marks than there are snapshots to build on at a time.
const MOST_MARKS: usize = 24;

impl Log {
    /// An empty log, for timers that are usually due after `base_ms`.
    pub(super) fn new(base_ms: i64, look_bytes: usize) -> Self {
        let (pages, tail, marks) = (Vec::new(), Vec::new(), Vec::new());
        Self { base_ms, pages, begin: 0, end: 0, tail, set: 0, unset: 0, last_ms: i64::MIN, marks, look_bytes }
    }

    /// Adds an entry, and returns its bytes of memory.
    pub(super) fn push<K: TimerOwner>(&mut self, (at_ms, key): &(i64, K), is_set: bool) -> usize {
        let before = self.tail.len();
        let taken = key.taken();
        if self.marks.last().is_none_or(|mark| mark.taken < taken) {
            self.mark(Mark { taken, at: self.end + before });
        }
        put_varint(&mut self.tail, at_ms.wrapping_sub(self.base_ms).cast_unsigned());
        put_sized(&mut self.tail, is_set, key);
        if is_set {
            self.set += 1;
            self.last_ms = self.last_ms.max(*at_ms);
        } else {
            self.unset += 1;
        }
        self.tail.len() - before
    }

    fn mark(&mut self, mark: Mark) {
        if self.marks.len() == MOST_MARKS {
            let first = self.marks.remove(0);
            self.marks[0].at = first.at;
        }
        self.marks.push(mark);
    }

    pub(super) fn unset(&self) -> usize {
        self.unset
    }

    /// Number of set entries minus deleted ones. It is not exact, because an entry may repeat an earlier one.
    pub(super) fn len(&self) -> usize {
        self.set.saturating_sub(self.unset)
    }

    pub(super) fn last_ms(&self) -> i64 {
        self.last_ms
    }

    /// Total bytes of the log.
    pub(super) fn bytes(&self) -> usize {
        self.end - self.begin + self.tail.len()
    }

    /// Bytes of the log in memory.
    pub(super) fn tail_bytes(&self) -> usize {
        self.tail.len()
    }

    pub(super) fn look_bytes(&self) -> usize {
        self.look_bytes
    }

    /// Sets the size for the next compaction: this size, or twice the current one.
    pub(super) fn look_behind(&mut self, bytes: usize) {
        self.look_bytes = bytes.max(2 * self.bytes());
    }

    /// The entries in memory; `None` if the bytes are invalid.
    pub(super) fn tail<K: TimerOwner>(&self) -> Option<Vec<DoneTimer<K>>> {
        LogEntries::new(self.base_ms, &self.tail).collect()
    }

    /// Writes the entries in memory to pages, after those that are there.
    pub(super) fn flush(&mut self, pages: &mut Pages) -> io::Result<()> {
        let (mut end, mut rest) = (self.end, &self.tail[..]);
        while !rest.is_empty() {
            if end == self.pages.len() * PAGE_BYTES {
                self.pages.push(pages.take()?);
            }
            let (page, from) = (self.pages[end / PAGE_BYTES], end % PAGE_BYTES);
            let (now, later) = rest.split_at(rest.len().min(PAGE_BYTES - from));
            pages.write(page, from, now)?;
            (end, rest) = (end + now.len(), later);
        }
        (self.end, self.tail) = (end, Vec::new());
        Ok(())
    }

    /// All entries, in order; `None` if the bytes are invalid.
    pub(super) fn read<K: TimerOwner>(&self, pages: Option<&Pages>) -> io::Result<Option<Vec<DoneTimer<K>>>> {
        let mut bytes = match pages {
            Some(pages) => pages.read(&self.pages, self.begin, self.end)?,
            None => Vec::new(),
        };
        bytes.extend_from_slice(&self.tail);
        let mut all = Vec::with_capacity(self.set + self.unset);
        all.extend(LogEntries::new(self.base_ms, &bytes).map_while(|done| done));
        Ok((all.len() == self.set + self.unset).then_some(all))
    }

    /// The range in pages: all, or entries made after at least this number of snapshots, and some others. `None` if it
    /// is empty.
    pub(super) fn lying(&self, since: Option<u32>) -> Option<LogRange> {
        let from = match since {
            None => self.begin,
            Some(taken) => self.marks.iter().find(|mark| mark.taken >= taken)?.at.max(self.begin),
        };
        let first = from / PAGE_BYTES;
        (from < self.end).then(|| LogRange {
            base_ms: self.base_ms,
            pages: self.pages[first..].to_vec(),
            from: from - first * PAGE_BYTES,
            to: self.end - first * PAGE_BYTES,
        })
    }

    /// Approximate number of entries made after at least `taken` snapshots.
    pub(super) fn len_since(&self, taken: u32) -> usize {
        let Some(mark) = self.marks.iter().find(|mark| mark.taken >= taken) else { return 0 };
        let bytes = self.end + self.tail.len() - mark.at.max(self.begin);
        // In 128 bits, because the product of two such numbers may exceed 64.
        ((self.set + self.unset) as u128 * bytes as u128).div_ceil(self.bytes().max(1) as u128) as usize
    }

    /// Deletes entries made before `taken` snapshots, as far as whole pages contain nothing else. The number of the
    /// remaining entries is then an estimate.
    pub(super) fn forget_before(&mut self, taken: u32) -> Vec<u32> {
        let at = self.marks.iter().find(|mark| mark.taken >= taken).map_or(self.end + self.tail.len(), |mark| mark.at);
        if at >= self.end + self.tail.len() {
            return self.clear();
        }
        // Entries in memory will be written where they belong.
        let at = at.min(self.end).max(self.begin);
        let gone = self.pages.drain(..at / PAGE_BYTES).collect::<Vec<_>>();
        let bytes = gone.len() * PAGE_BYTES;
        let before = self.bytes();
        (self.begin, self.end) = (at - bytes, self.end - bytes);
        self.marks.retain(|mark| mark.taken >= taken);
        self.marks.iter_mut().for_each(|mark| mark.at -= bytes.min(mark.at));
        self.unset = (self.unset as u128 * self.bytes() as u128).div_ceil(before.max(1) as u128) as usize;
        gone
    }

    /// Deletes all entries, and returns the pages.
    pub(super) fn clear(&mut self) -> Vec<u32> {
        std::mem::replace(self, Self::new(self.base_ms, self.look_bytes)).into_pages()
    }

    /// Returns its pages.
    pub(super) fn into_pages(self) -> Vec<u32> {
        self.pages
    }
}

impl LogRange {
    /// Number of bytes.
    pub(super) fn bytes(&self) -> usize {
        self.to - self.from
    }

    /// The entries, in order; `None` if the bytes are invalid.
    pub(super) fn read<K: TimerOwner>(&self, from: &PageReader) -> io::Result<Option<Vec<DoneTimer<K>>>> {
        let bytes = from.read(&self.pages, self.from, self.to)?;
        Ok(LogEntries::new(self.base_ms, &bytes).collect())
    }

    /// Takes the next entries, of about this many bytes and at least one. `None` if the bytes are invalid.
    pub(super) fn read_some<K: TimerOwner>(
        &mut self,
        most_bytes: usize,
        from: &PageReader,
    ) -> io::Result<Option<Vec<DoneTimer<K>>>> {
        let mut most_bytes = most_bytes;
        loop {
            let to = self.to.min(self.from.saturating_add(most_bytes));
            let bytes = from.read(&self.pages, self.from, to)?;
            let mut each = LogEntries::new(self.base_ms, &bytes);
            let (mut done, mut rest) = (Vec::new(), bytes.len());
            while let Some(Some(next)) = each.next() {
                done.push(next);
                rest = each.rest.map_or(0, <[u8]>::len);
            }
            // The last entry may continue after the bytes that were read.
            self.from = to - rest;
            if !done.is_empty() || to == self.to {
                return Ok((to < self.to || rest == 0).then_some(done));
            }
            most_bytes = most_bytes.saturating_mul(2).max(PAGE_BYTES);
        }
    }
}

/// Appends the owner of a timer, after its length and whether it is set.
fn put_sized<K: TimerOwner>(out: &mut Vec<u8>, is_set: bool, key: &K) {
    let at = out.len();
    out.push(0);
    key.put(out);
    let size = |len: usize| (len as u64) << 1 | u64::from(is_set);
    match u8::try_from(size(out.len() - at - 1)) {
        // The length as a one-byte varint.
        Ok(size @ 0..0x80) => out[at] = size,
        _ => {
            let long = out.split_off(at + 1);
            out.pop();
            put_varint(out, size(long.len()));
            out.extend(long);
        }
    }
}

/// Iterates over entries. Yields `None` for invalid bytes, and then ends.
struct LogEntries<'a, K> {
    rest: Option<&'a [u8]>,
    base_ms: i64,
    of: std::marker::PhantomData<K>,
}

impl<'a, K: TimerOwner> LogEntries<'a, K> {
    fn new(base_ms: i64, bytes: &'a [u8]) -> Self {
        Self { rest: Some(bytes), base_ms, of: std::marker::PhantomData }
    }

    fn split(base_ms: i64, bytes: &'a [u8]) -> Option<(DoneTimer<K>, &'a [u8])> {
        let (after, rest) = take_varint(bytes).ok()?;
        let (size, rest) = take_varint(rest).ok()?;
        let (owner, rest) = rest.split_at_checked(usize::try_from(size >> 1).ok()?)?;
        let timer = (base_ms.wrapping_add_unsigned(after), K::read(owner)?);
        Some((DoneTimer { timer, is_set: size & 1 == 1 }, rest))
    }
}

impl<K: TimerOwner> Iterator for LogEntries<'_, K> {
    type Item = Option<DoneTimer<K>>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.rest.take().filter(|rest| !rest.is_empty())?;
        Some(Self::split(self.base_ms, bytes).map(|(done, rest)| {
            self.rest = Some(rest);
            done
        }))
    }
}

/// Returns the net effect of entries: the timers that are set, in order, and those that were last deleted. Of a timer
/// that was set twice, the first entry counts, unless it was deleted in between.
pub(super) fn settled<K: TimerOwner>(mut all: Vec<DoneTimer<K>>) -> (Timers<K>, Timers<K>) {
    all.sort_by(|one, other| one.timer.cmp(&other.timer));
    let (mut set, mut unset): (Timers<K>, Timers<K>) = (Vec::with_capacity(all.len()), Vec::new());
    for DoneTimer { timer, is_set } in all {
        match (set.last() == Some(&timer), is_set) {
            (true, true) => {}
            (false, true) => {
                unset.pop_if(|last| *last == timer);
                set.push(timer);
            }
            (was_set, false) => {
                if was_set {
                    set.pop();
                }
                if unset.last() != Some(&timer) {
                    unset.push(timer);
                } else if let Some(last) = unset.last_mut() {
                    // The last deletion counts.
                    *last = timer;
                }
            }
        }
    }
    (set, unset)
}
