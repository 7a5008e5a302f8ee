//! Stores timers far from due, if the job stores state on disk: in separate leaves, each as a log of its changes.
//!
//! There are no look-ups: setting or deleting a timer appends an entry to the log of its leaf. The result of the
//! entries is computed when the leaf is the next one due, or has grown. So a new timer costs only some appended bytes,
//! in whatever order timers are due. A timer that moves with every record costs no disk access.
//!
//! Memory holds the bounds of the leaves, the places of their pages, and recent changes.
//!
//! # Invariants
//! - F1: all timers of a leaf are before the bound of the next leaf, and at or after its own bound. All timers before
//!   the first bound are near.
//! - F2: after [`make_room`](Far::make_room), the entries in memory of all leaves together take no more than there is
//!   room for.
//! - F3: no leaf is much longer than can be read at once, except for a few timers that are themselves long.
//! - D1 of [`Disk`](crate::state) holds for the file.

#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::Arc;

use super::log::{DoneTimer, Log, LogRange, Timers, settled};
use super::packed::TimerOwner;
use super::pages::{PAGE_BYTES, PageReader, Pages};
use crate::error::TaskError;
use crate::state::{DiskStateError, unnamed_file};

/// Timers far from due.
pub(super) struct Far<K> {
    leaves: BTreeMap<(i64, K), Log>,
    /// Created by the first write.
    pages: Option<Pages>,
    about: DiskStateError,
    sizes: Sizes,
    /// Bytes in memory of recent changes.
    tail_bytes: usize,
    /// True if a leaf has grown to a size at which it should be compacted.
    has_grown: bool,
    /// Deletions that were found since the last call of [`take_unset`](Self::take_unset).
    unset: Timers<K>,
    /// Timers that are no longer set, but may be in a snapshot: deleted or fired.
    gone: Log,
    /// Number of near leaves at which their memory is checked.
    look_at: usize,
}

/// The limits of memory for each use.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    near: usize,
    tails: usize,
    leaf: usize,
}

impl Sizes {
    fn of(memory_bytes: usize) -> Self {
        let memory_bytes = memory_bytes.max(LEAST_BYTES);
        let leaf = (memory_bytes / LEAF_PART).clamp(PAGE_BYTES, MOST_LEAF_BYTES);
        Self { near: memory_bytes / NEAR_PART, tails: memory_bytes / TAILS_PART, leaf }
    }
}

/// The on-disk timers at the time of a snapshot.
pub(super) struct FarView {
    pub(super) reading: PageReader,
    /// Deleted or fired timers.
    pub(super) gone: Option<LogRange>,
    pub(super) leaves: Vec<LogRange>,
    /// The error for a file that cannot be read or was changed.
    pub(super) about: DiskStateError,
}

impl<K: TimerOwner> Far<K> {
    /// No timers, with this much memory for near and far ones. `about` has the names for errors.
    pub(super) fn new(about: DiskStateError, memory_bytes: usize) -> Self {
        let sizes = Sizes::of(memory_bytes);
        Self {
            leaves: BTreeMap::new(),
            pages: None,
            about,
            sizes,
            tail_bytes: 0,
            has_grown: false,
            unset: Vec::new(),
            gone: Log::new(0, usize::MAX),
            look_at: 0,
        }
    }

    /// The same without timers.
    pub(super) fn like(&self) -> Self {
        let mut like = Self::new(self.about.clone(), 0);
        like.sizes = self.sizes;
        like
    }

    /// Returns true if a timer belongs here.
    #[inline]
    pub(super) fn takes(&self, timer: &(i64, K)) -> bool {
        self.leaves.first_key_value().is_some_and(|(bound, _)| bound <= timer)
    }

    /// Sets or deletes a timer that belongs here.
    pub(super) fn push(&mut self, timer: (i64, K), is_set: bool) {
        let Self { leaves, sizes, tail_bytes, has_grown, .. } = self;
        if let Some(last) = leaves.last_entry()
            && *last.key() <= timer
            && last.get().bytes() >= sizes.leaf
            && last.get().last_ms() < timer.0
            && is_set
        {
            // Timers are set in the order in which they are due, so the leaf need not be compacted.
            let mut log = sizes.log(timer.0);
            *tail_bytes += log.push(&timer, is_set);
            leaves.insert(timer, log);
            return;
        }
        let leaf = leaves.range_mut((Bound::Unbounded, Bound::Included(&timer))).next_back();
        let (_, leaf) = leaf.expect("it was asked whether the timer belongs here");
        *tail_bytes += leaf.push(&timer, is_set);
        *has_grown |= leaf.bytes() > leaf.look_bytes();
    }

    /// Returns true if [`make_room`](Self::make_room) has work to do.
    #[inline]
    pub(super) fn is_to_look(&self, near_leaves: usize) -> bool {
        near_leaves > self.look_at || self.tail_bytes > self.sizes.tails || self.has_grown
    }

    /// Writes entries that do not fit in memory to disk, and compacts leaves that have grown.
    pub(super) fn make_room(&mut self) -> Result<(), TaskError> {
        if self.has_grown {
            self.look_through()?;
        }
        if self.tail_bytes > self.sizes.tails { self.flush() } else { Ok(()) }
    }

    /// Takes near timers, sorted. All of them are due before the timers here.
    pub(super) fn take_in(&mut self, bound: (i64, K), timers: Timers<K>) -> Result<(), TaskError> {
        debug_assert!(timers.is_sorted() && timers.first() >= Some(&bound), "F1");
        debug_assert!(self.leaves.first_key_value().is_none_or(|(first, _)| timers.last() < Some(first)), "F1");
        let log = self.sizes.log(bound.0);
        self.put_down(bound, log, timers)
    }

    /// Bytes of memory for near timers.
    pub(super) fn near_bytes(&self) -> usize {
        self.sizes.near
    }

    /// Least bytes of timers for a leaf.
    pub(super) fn least_leaf_bytes(&self) -> usize {
        self.sizes.leaf / 2
    }

    /// Sets the number of near leaves at which memory is checked again.
    pub(super) fn look_again_at(&mut self, near_leaves: usize) {
        self.look_at = near_leaves;
    }

    /// Removes the first leaf with timers, and returns them sorted.
    pub(super) fn give_back(&mut self) -> Result<Timers<K>, TaskError> {
        while let Some((_, log)) = self.leaves.first_key_value() {
            let done = self.read(log)?;
            if let Some((_, log)) = self.leaves.pop_first() {
                self.leave(log);
            }
            let timers = self.settle(done);
            if !timers.is_empty() {
                return Ok(timers);
            }
        }
        Ok(Vec::new())
    }

    /// Returns the net effect of entries. Deletions are stored for later, if they are listed.
    fn settle(&mut self, done: Vec<DoneTimer<K>>) -> Timers<K> {
        let (set, unset) = settled(done);
        if K::IS_LISTED {
            self.unset.extend(unset);
        }
        set
    }

    /// Visits the timers here, sorted, leaf by leaf.
    pub(super) fn each<E: From<TaskError>>(&self, mut each: impl FnMut(i64, &K) -> Result<(), E>) -> Result<(), E> {
        for log in self.leaves.values() {
            let (set, _) = settled(self.read(log)?);
            set.iter().try_for_each(|(timestamp_ms, key)| each(*timestamp_ms, key))?;
        }
        Ok(())
    }

    /// Approximate number of timers. A timer that was set twice, or deleted without being set, is counted wrong until
    /// its leaf is compacted.
    pub(super) fn len(&self) -> usize {
        self.leaves.values().map(Log::len).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// Returns the deletions that were found since the last call.
    #[inline]
    pub(super) fn take_unset(&mut self) -> Option<Timers<K>> {
        (!self.unset.is_empty()).then(|| std::mem::take(&mut self.unset))
    }

    /// Lists a timer that is no longer set, but may be in a snapshot.
    pub(super) fn on_gone(&mut self, timer: &(i64, K)) {
        self.tail_bytes += self.gone.push(timer, false);
    }

    /// Approximate number of these.
    pub(super) fn gone(&self) -> usize {
        self.gone.unset()
    }

    /// Deletes entries from before this number of snapshots from that list; with `None`, all entries.
    pub(super) fn forget_gone(&mut self, before: Option<u32>) {
        let tail_bytes = self.gone.tail_bytes();
        let pages = match before {
            Some(taken) => self.gone.forget_before(taken),
            None => self.gone.clear(),
        };
        self.tail_bytes -= tail_bytes - self.gone.tail_bytes();
        if let Some(all) = &mut self.pages {
            all.leave(pages);
        }
    }

    /// Approximate number of changes after at least `taken` snapshots.
    pub(super) fn len_since(&self, taken: u32) -> usize {
        self.leaves.values().map(|log| log.len_since(taken)).sum()
    }

    /// Returns the timers on disk now: all set ones, or the changes after at least `since` snapshots; `None` if there
    /// are none. Also returns the timers gone since, if these are in memory and nothing on disk has to follow them.
    pub(super) fn view(&mut self, since: Option<u32>) -> Result<(Option<FarView>, Timers<K>), TaskError> {
        if !self.is_empty() {
            self.flush()?;
        }
        let leaves: Vec<_> = self.leaves.values().filter_map(|log| log.lying(since)).collect();
        let has_gone = since.is_some_and(|taken| self.gone.lying(Some(taken)).is_some());
        if leaves.is_empty() && !has_gone {
            let Some(taken) = since else { return Ok((None, Vec::new())) };
            let gone = self.read_tail_of_gone()?;
            let timers = gone.into_iter().map(|done| done.timer).filter(|(_, key)| key.taken() >= taken);
            return Ok((None, timers.collect()));
        }
        self.flush()?;
        let gone = since.and_then(|taken| self.gone.lying(Some(taken)));
        let about = self.about();
        Ok((Some(FarView { reading: self.pages()?.begin_to_read(), gone, leaves, about }), Vec::new()))
    }

    fn read_tail_of_gone(&self) -> Result<Vec<DoneTimer<K>>, TaskError> {
        self.gone.tail().ok_or_else(|| self.damaged())
    }

    /// Compacts the leaves that have grown. Splits a leaf that is too long.
    fn look_through(&mut self) -> Result<(), TaskError> {
        let grown = self.leaves.iter().filter(|(_, log)| log.bytes() > log.look_bytes());
        let grown: Vec<_> = grown.map(|(bound, _)| bound.clone()).collect();
        for bound in grown {
            let Some(log) = self.leaves.get(&bound) else { continue };
            let (done, bytes) = (self.read(log)?, log.bytes());
            let all = done.len();
            if let Some(log) = self.leaves.remove(&bound) {
                self.leave(log);
            }
            let timers = self.settle(done);
            let bytes = bytes * timers.len() / all.max(1);
            self.put_apart(bound, timers, bytes)?;
        }
        self.has_grown = false;
        Ok(())
    }

    /// Writes timers of this many bytes to one leaf, or to several with room to grow.
    fn put_apart(&mut self, bound: (i64, K), mut timers: Timers<K>, bytes: usize) -> Result<(), TaskError> {
        let parts = if bytes > self.sizes.leaf / 2 { bytes.div_ceil(self.sizes.leaf / PARTS) } else { 1 };
        let each = timers.len().div_ceil(parts).max(1);
        while timers.len() > each {
            let later = timers.split_off((timers.len() - 1) / each * each);
            let bound = later[0].clone();
            let log = self.sizes.log(bound.0);
            self.put_down(bound, log, later)?;
        }
        if timers.is_empty() {
            return Ok(());
        }
        let log = self.sizes.log(bound.0);
        self.put_down(bound, log, timers)
    }

    /// Writes a leaf. Timers that were set after more snapshots come last, so that a reader of those need not read
    /// others.
    fn put_down(&mut self, bound: (i64, K), mut log: Log, mut timers: Timers<K>) -> Result<(), TaskError> {
        if K::IS_LISTED {
            timers.sort_by_key(|(_, key)| key.taken());
        }
        for timer in &timers {
            log.push(timer, true);
        }
        drop(timers);
        let flushed = log.flush(self.pages()?);
        log.look_behind(self.sizes.look_bytes());
        self.leaves.insert(bound, log);
        flushed.map_err(|error| self.failed(&error))
    }

    fn flush(&mut self) -> Result<(), TaskError> {
        self.pages()?;
        let Self { leaves, gone, pages: Some(pages), .. } = self else { return Ok(()) };
        let flushed = leaves.values_mut().chain([gone]).try_for_each(|log| log.flush(pages));
        self.tail_bytes = 0;
        flushed.map_err(|error| self.failed(&error))
    }

    fn read(&self, log: &Log) -> Result<Vec<DoneTimer<K>>, TaskError> {
        let read = log.read(self.pages.as_ref()).map_err(|error| self.failed(&error))?;
        read.ok_or_else(|| self.damaged())
    }

    fn leave(&mut self, log: Log) {
        self.tail_bytes -= log.tail_bytes().min(self.tail_bytes);
        if let Some(pages) = &mut self.pages {
            pages.leave(log.into_pages());
        }
    }

    fn pages(&mut self) -> Result<&mut Pages, TaskError> {
        if self.pages.is_none() {
            let file = unnamed_file(&self.about.folder).map_err(|error| self.failed(&error))?;
            self.pages = Some(Pages::new(Arc::new(file)));
        }
        Ok(self.pages.as_mut().expect("it was just made"))
    }

    fn about(&self) -> DiskStateError {
        let disk_bytes = self.pages.as_ref().map_or(0, Pages::file_bytes);
        DiskStateError { disk_bytes, keys: self.len() as u64, ..self.about.clone() }
    }

    #[cold]
    fn failed(&self, error: &io::Error) -> TaskError {
        DiskStateError { reason: error.to_string(), ..self.about() }.into()
    }

    #[cold]
    fn damaged(&self) -> TaskError {
        DiskStateError { reason: DAMAGED.to_owned(), ..self.about() }.into()
    }
}

impl Sizes {
    fn log(self, base_ms: i64) -> Log {
        Log::new(base_ms, self.look_bytes())
    }

    /// Somewhat more than the size at which a timer due after all others starts its own leaf.
    fn look_bytes(self) -> usize {
        self.leaf + self.leaf / 4
    }
}

/// The reason why a file cannot be read that another process changed.
pub(super) const DAMAGED: &str = "the file was changed by somebody else";
/// Divisor of the memory: the part for near timers.
const NEAR_PART: usize = 2;
/// Divisor of the memory: the part for recent changes to far timers.
const TAILS_PART: usize = 8;
/// Divisor of the memory: the part for a leaf on disk. Decoded, a leaf takes about five times as much.
const LEAF_PART: usize = 32;
/// The limit of that size, because the task does nothing else while it reads a leaf.
const MOST_LEAF_BYTES: usize = 1 << 20;
/// Least memory for timers.
const LEAST_BYTES: usize = if cfg!(test) { 1 } else { 64 << 10 };
/// Approximate number of leaves into which a long one is split. Each has room to grow.
const PARTS: usize = 4;
