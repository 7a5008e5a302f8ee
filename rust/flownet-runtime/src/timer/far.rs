//! Timers that are far from being due, where a job's state may lie on disk: in leaves of their own, as what was done with them.
//!
//! Nothing is looked up: that a timer is set, or taken back, is written behind what was done before, and what comes of it is
//! found out when the leaf is the next to be due, or has grown. So a timer that is set costs no more than some bytes behind
//! others, in whatever order they are due, and one that is moved on with every record costs no look at the disk.
//!
//! In memory are the bounds of leaves, which of their pages lie where, and what was done lately.
//!
//! # Invariants
//! - F1: all timers of a leaf lie before the bound of the next, and at or behind their own; all before the first bound lie near.
//! - F2: behind [`make_room`](Far::make_room) what lies in memory of all leaves together is no more than there is room for.
//! - F3: no leaf is much longer than can be read at once, but for a few timers that are.
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

/// Timers that are far from being due.
pub(super) struct Far<K> {
    leaves: BTreeMap<(i64, K), Log>,
    /// Made when there is something to write.
    pages: Option<Pages>,
    about: DiskStateError,
    sizes: Sizes,
    /// Bytes in memory of what was done lately.
    tail_bytes: usize,
    /// Whether a leaf has grown so that it is time to look what of it still counts.
    has_grown: bool,
    /// What was taken back, and was found to be so since this was last [asked for](Self::take_unset).
    unset: Timers<K>,
    /// Timers of which nothing is set any more, but of which a snapshot may have them: taken back or fired.
    gone: Log,
    /// With more leaves near than this it is time to look how much room they take.
    look_at: usize,
}

/// How much memory there is for what.
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

/// What lay on disk at a snapshot.
pub(super) struct FarView {
    pub(super) reading: PageReader,
    /// What was taken back or fired.
    pub(super) gone: Option<LogRange>,
    pub(super) leaves: Vec<LogRange>,
    /// Of a file that cannot be read, or that says something else than was written.
    pub(super) about: DiskStateError,
}

impl<K: TimerOwner> Far<K> {
    /// None yet, with so much memory for timers near and far; `about` says what errors do.
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

    /// The same without any.
    pub(super) fn like(&self) -> Self {
        let mut like = Self::new(self.about.clone(), 0);
        like.sizes = self.sizes;
        like
    }

    /// Whether a timer belongs here.
    #[inline]
    pub(super) fn takes(&self, timer: &(i64, K)) -> bool {
        self.leaves.first_key_value().is_some_and(|(bound, _)| bound <= timer)
    }

    /// Sets a timer that belongs here, or takes it back.
    pub(super) fn push(&mut self, timer: (i64, K), is_set: bool) {
        let Self { leaves, sizes, tail_bytes, has_grown, .. } = self;
        if let Some(last) = leaves.last_entry()
            && *last.key() <= timer
            && last.get().bytes() >= sizes.leaf
            && last.get().last_ms() < timer.0
            && is_set
        {
            // They are set as they are due: nothing of the leaf has to be looked at.
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

    /// Whether there is something to do to have [room](Self::make_room).
    #[inline]
    pub(super) fn is_to_look(&self, near_leaves: usize) -> bool {
        near_leaves > self.look_at || self.tail_bytes > self.sizes.tails || self.has_grown
    }

    /// Writes to disk what has no room in memory, and looks through leaves that have grown.
    pub(super) fn make_room(&mut self) -> Result<(), TaskError> {
        if self.has_grown {
            self.look_through()?;
        }
        if self.tail_bytes > self.sizes.tails { self.flush() } else { Ok(()) }
    }

    /// Takes in what lay near, in order; all of it is due before what is here.
    pub(super) fn take_in(&mut self, bound: (i64, K), timers: Timers<K>) -> Result<(), TaskError> {
        debug_assert!(timers.is_sorted() && timers.first() >= Some(&bound), "F1");
        debug_assert!(self.leaves.first_key_value().is_none_or(|(first, _)| timers.last() < Some(first)), "F1");
        let log = self.sizes.log(bound.0);
        self.put_down(bound, log, timers)
    }

    /// So many bytes of timers that lie near is room for.
    pub(super) fn near_bytes(&self) -> usize {
        self.sizes.near
    }

    /// Timers for a leaf take so many bytes at least.
    pub(super) fn least_leaf_bytes(&self) -> usize {
        self.sizes.leaf / 2
    }

    /// With more leaves near it is to be looked again.
    pub(super) fn look_again_at(&mut self, near_leaves: usize) {
        self.look_at = near_leaves;
    }

    /// The timers of the first leaf that has some, in order: they lie here no more.
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

    /// What comes of what was done. Who lists what was taken back is told later.
    fn settle(&mut self, done: Vec<DoneTimer<K>>) -> Timers<K> {
        let (set, unset) = settled(done);
        if K::IS_LISTED {
            self.unset.extend(unset);
        }
        set
    }

    /// The timers here, in order, leaf by leaf.
    pub(super) fn each<E: From<TaskError>>(&self, mut each: impl FnMut(i64, &K) -> Result<(), E>) -> Result<(), E> {
        for log in self.leaves.values() {
            let (set, _) = settled(self.read(log)?);
            set.iter().try_for_each(|(timestamp_ms, key)| each(*timestamp_ms, key))?;
        }
        Ok(())
    }

    /// How many are set, about: one that was set twice, or taken back without being set, is reckoned wrong until its leaf is
    /// looked through.
    pub(super) fn len(&self) -> usize {
        self.leaves.values().map(Log::len).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// What was taken back, and was found to be so since this was last asked.
    #[inline]
    pub(super) fn take_unset(&mut self) -> Option<Timers<K>> {
        (!self.unset.is_empty()).then(|| std::mem::take(&mut self.unset))
    }

    /// A timer that a snapshot may have is set no longer.
    pub(super) fn on_gone(&mut self, timer: &(i64, K)) {
        self.tail_bytes += self.gone.push(timer, false);
    }

    /// So many of these there are, about.
    pub(super) fn gone(&self) -> usize {
        self.gone.unset()
    }

    /// Nobody asks any more what is gone since earlier than behind so many snapshots; none: nor since any.
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

    /// How many were set or taken back after so many snapshots and more, about.
    pub(super) fn len_since(&self, taken: u32) -> usize {
        self.leaves.values().map(|log| log.len_since(taken)).sum()
    }

    /// What lies on disk now: all that is set, or what was done after so many snapshots and more; none if that is nothing. And
    /// what is gone since, where that lies in memory, and nothing on disk has to come behind it.
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

    /// Looks what of the leaves that have grown still counts. One that is too long becomes several.
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

    /// Puts down timers that take so many bytes, in one leaf or in several with room to grow.
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

    /// Writes a leaf. Those that were set behind more snapshots follow, so that who asks for them reads no others.
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

    /// Some more than where one that is due behind all others begins a leaf of its own.
    fn look_bytes(self) -> usize {
        self.leaf + self.leaf / 4
    }
}

/// Why a file cannot be read that was changed by somebody else.
pub(super) const DAMAGED: &str = "the file was changed by somebody else";
/// The part of the memory for timers that those take which are near.
const NEAR_PART: usize = 2;
/// The part that what was done lately with others takes.
const TAILS_PART: usize = 8;
/// The part that a leaf takes on disk; read, it takes some five times as much.
const LEAF_PART: usize = 32;
/// And no more than this: a task that reads it does nothing else meanwhile.
const MOST_LEAF_BYTES: usize = 1 << 20;
/// The least memory for timers.
const LEAST_BYTES: usize = if cfg!(test) { 1 } else { 64 << 10 };
/// A leaf that is too long becomes so many, about, of which each has room to grow.
const PARTS: usize = 4;
