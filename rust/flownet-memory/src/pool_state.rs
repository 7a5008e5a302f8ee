//! What a buffer pool knows about its segments. A plain machine: no lock, no
//! calls to the outside.
//!
//! # Invariants
//! - I3: a pool holds its idle segments and those in use, and nothing else.
//! - I4: idle segments are within the pool's size; excess is never idle.
//! - I5: a listener waits only while nothing is idle.
//! - I6: a pool below its size with nothing idle waits for the segment pool.
//!   Hence "nothing idle" means "nothing to be had without overdraft".
//! - I7: `lanes_at_quota` counts the lanes that use their quota or more, `lanes_in_use`
//!   those that use any.
//! - I8: a task waits for any one segment only while its lanes use all they may, or
//!   nothing is idle and, if the pool may hold more (overdraft included), the pool
//!   waits for the segment pool.
//! - I9: a destroyed pool has nothing idle and nobody waiting.
//! - I12: `min <= guarantee <= size`, the pool holds what it is guaranteed, and what
//!   stands is guaranteed with one more, if the size allows.
//!   Hence what is promised to a pool is there, whatever others hold, and segments that
//!   may never come back are always within it: excess circulates, and so does at least
//!   one segment of every pool that is short.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use crate::region::Slot;
use crate::{BufferPoolSettings, SegmentListener};

/// The lane of a segment that counts towards no quota.
pub(crate) const NO_LANE: usize = usize::MAX;

pub(crate) struct PoolState {
    /// Segments the pool may hold without overdraft.
    pub(crate) size: usize,
    /// Segments idle or in use. Above `size` by overdraft, or until a shrunken pool's segments come back.
    pub(crate) held: usize,
    pub(crate) idle: Vec<Slot>,
    pub(crate) listeners: VecDeque<Arc<dyn SegmentListener>>,
    /// Tasks that wait for the pool to be available.
    pub(crate) available_waiters: Vec<Waker>,
    /// Tasks that wait for any one segment.
    pub(crate) take_waiters: Vec<Waker>,
    /// The pool stands in the segment pool's queue, or a segment from there is on its way.
    pub(crate) awaits_global: bool,
    pub(crate) destroyed: bool,
    /// Segments that their holders may keep unused for as long as they like.
    pub(crate) standing: usize,
    /// What the pool never holds less of. Raised with the registry locked, and with the segments in hand.
    pub(crate) guarantee: usize,
    min: usize,
    max: Option<usize>,
    max_overdraft: usize,
    max_per_lane: usize,
    in_use_by_lane: Box<[usize]>,
    lanes_at_quota: usize,
    lanes_in_use: usize,
    /// Segments in use by lanes; others count towards no limit.
    in_lanes: usize,
}

impl PoolState {
    /// A pool that holds nothing yet, not even its minimum.
    pub(crate) fn new(settings: &BufferPoolSettings) -> Self {
        Self {
            size: 0,
            held: 0,
            idle: Vec::new(),
            listeners: VecDeque::new(),
            available_waiters: Vec::new(),
            take_waiters: Vec::new(),
            awaits_global: false,
            destroyed: false,
            standing: 0,
            guarantee: 0,
            min: settings.min,
            max: settings.max,
            max_overdraft: settings.max_overdraft,
            max_per_lane: settings.max_per_lane,
            in_use_by_lane: vec![0; settings.lanes].into_boxed_slice(),
            lanes_at_quota: 0,
            lanes_in_use: 0,
            in_lanes: 0,
        }
    }

    /// Counts a segment that goes into use by `lane`.
    pub(crate) fn enter_lane(&mut self, lane: usize) {
        if let Some(in_use) = self.in_use_by_lane.get_mut(lane) {
            self.lanes_in_use += usize::from(*in_use == 0);
            *in_use += 1;
            self.in_lanes += 1;
            self.lanes_at_quota += usize::from(*in_use == self.max_per_lane);
        }
    }

    /// Counts a segment that `lane` no longer uses.
    pub(crate) fn leave_lane(&mut self, lane: usize) {
        if let Some(in_use) = self.in_use_by_lane.get_mut(lane) {
            self.lanes_at_quota -= usize::from(*in_use == self.max_per_lane);
            *in_use -= 1;
            self.in_lanes -= 1;
            self.lanes_in_use -= usize::from(*in_use == 0);
        }
    }

    /// Segments that the lanes in use may use together: their part of the maximum, and
    /// one quota more. A maximum made for many idle lanes is no use to a few busy ones.
    fn working_limit(&self) -> usize {
        let part = self.max.map(|max| max.div_ceil(self.in_use_by_lane.len()).saturating_mul(self.lanes_in_use));
        part.map_or(usize::MAX, |part| part.saturating_add(self.max_per_lane))
    }

    /// Whether one more segment may go into use without overdraft, if there is one.
    fn is_within_limit(&self) -> bool {
        self.in_lanes < self.working_limit()
    }

    /// Whether one more segment may go into use, if need be as overdraft.
    pub(crate) fn may_use_more(&self) -> bool {
        self.in_lanes < self.working_limit().saturating_add(self.max_overdraft)
    }

    /// Whether the next take needs no overdraft, no lane is at its quota, and those in
    /// use do not use all they may.
    pub(crate) fn is_available(&self) -> bool {
        !self.idle.is_empty() && self.lanes_at_quota == 0 && self.is_within_limit()
    }

    /// Whether it is segments that the pool lacks: it has less than it could use, nothing idle, and its lanes are below
    /// what they may use. Otherwise who waits does so for those who have what the lanes use.
    pub(crate) fn lacks_segments(&self) -> bool {
        let is_starved = self.held < self.size || self.is_short();
        is_starved && self.idle.is_empty() && self.lanes_at_quota == 0 && self.is_within_limit()
    }

    /// Whether a segment should be fetched ahead of the next take.
    pub(crate) fn wants_segment(&self) -> bool {
        !self.destroyed && self.idle.is_empty() && self.held < self.size
    }

    /// Whether another segment may be held, if need be as overdraft.
    pub(crate) fn may_hold_more(&self) -> bool {
        !self.destroyed && self.held < self.size.saturating_add(self.max_overdraft)
    }

    /// Whether somebody who waits for any one segment should ask again: there may be one.
    pub(crate) fn can_serve_hard_wait(&self) -> bool {
        self.may_use_more() && (!self.idle.is_empty() || self.may_hold_more() && !self.awaits_global)
    }

    /// Whether a segment that comes back now must leave the pool.
    pub(crate) fn has_excess(&self) -> bool {
        self.destroyed || self.held > self.size
    }

    /// Whether the pool is smaller than its users would like, as far as it knows.
    pub(crate) fn is_short(&self) -> bool {
        self.max.is_none_or(|max| self.size < max)
    }

    /// Segments that must not stand: they serve whoever has data. A maximum is taken
    /// to cover all holders, so a pool that has it keeps back nothing.
    fn reserve(&self) -> usize {
        if self.is_short() { (self.size / RESERVED_PART).max(1) } else { 0 }
    }

    /// Whether one more segment may stand.
    pub(crate) fn can_stand(&self) -> bool {
        !self.destroyed && self.standing + self.reserve() < self.size
    }

    /// What must be guaranteed for as many standing segments.
    pub(crate) fn guarantee_for(&self, standing: usize) -> usize {
        let backed = if standing == 0 { 0 } else { self.size.min(standing + 1) };
        self.min.max(backed)
    }

    /// Whether standing segments that come back should not be kept.
    pub(crate) fn claims_standing(&self) -> bool {
        self.is_short() && (!self.listeners.is_empty() || self.standing + self.reserve() > self.size)
    }

    /// How many of `wanted` standing segments each holder can have if `max` was made
    /// for all of them to have as many.
    pub(crate) fn standing_share(&self, wanted: usize) -> usize {
        match self.max {
            Some(max) if self.size < max => wanted.saturating_mul(self.size.saturating_sub(self.reserve())) / max,
            _ => wanted,
        }
    }

    /// The most that one holder should ask for on account of its data. Never all there is: it may have none, whatever
    /// it says, and what it got it would keep.
    pub(crate) fn lend_limit(&self) -> usize {
        let lent = if self.is_short() { self.size / LENT_PART } else { self.size.saturating_sub(1) };
        lent.max(1)
    }

    pub(crate) fn assert_invariants(&self) {
        if !cfg!(any(debug_assertions, loom)) {
            return;
        }
        assert!(self.idle.len() <= self.held, "I3: idle segments are held segments");
        assert!(self.idle.is_empty() || self.held <= self.size, "I4: excess segments are not kept idle");
        assert!(self.idle.is_empty() || self.listeners.is_empty(), "I5: a listener waits only while nothing is idle");
        assert!(!self.wants_segment() || self.awaits_global, "I6: a short pool waits for the segment pool");
        let at_quota = self.in_use_by_lane.iter().filter(|in_use| **in_use >= self.max_per_lane).count();
        assert_eq!(at_quota, self.lanes_at_quota, "I7: lanes at quota are counted");
        let lanes_in_use = self.in_use_by_lane.iter().filter(|in_use| **in_use > 0).count();
        assert_eq!(lanes_in_use, self.lanes_in_use, "I7: lanes in use are counted");
        let in_use_by_lanes: usize = self.in_use_by_lane.iter().sum();
        assert_eq!(in_use_by_lanes, self.in_lanes, "I7: segments in use by lanes are counted");
        assert!(in_use_by_lanes <= self.held - self.idle.len(), "I3: lanes use no more segments than are in use");
        assert!(
            self.take_waiters.is_empty() || !self.can_serve_hard_wait(),
            "I8: a hard wait is for what is not there"
        );
        let nobody_waits =
            self.listeners.is_empty() && self.available_waiters.is_empty() && self.take_waiters.is_empty();
        assert!(!self.destroyed || self.idle.is_empty() && nobody_waits, "I9: a destroyed pool keeps nothing");
        let is_guaranteed = self.min <= self.guarantee && self.guarantee <= self.size;
        assert!(self.destroyed || is_guaranteed, "I12: a pool may hold what it is guaranteed");
        let is_in_hand = self.guarantee <= self.held || planted!(LazyPromise);
        assert!(self.destroyed || is_in_hand, "I12: a pool holds what it is guaranteed");
        let is_backed = self.guarantee_for(self.standing) <= self.guarantee;
        assert!(self.destroyed || is_backed, "I12: what stands is guaranteed");
    }
}

impl fmt::Display for PoolState {
    /// All that decides what the pool does next, but for who its listeners are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} idle of {} held, size {}", self.idle.len(), self.held, self.size)?;
        write!(f, ", {} standing, {} guaranteed", self.standing, self.guarantee)?;
        if self.max_per_lane < usize::MAX {
            write!(f, ", in use {:?}", self.in_use_by_lane)?;
        }
        write!(f, ", takers {:?}, waiters {:?}", self.take_waiters, self.available_waiters)?;
        f.write_str(if self.awaits_global { ", awaits the segment pool" } else { "" })?;
        f.write_str(if self.destroyed { ", destroyed" } else { "" })
    }
}

/// A short pool keeps one part in so many from standing: enough for active holders to work with, and most of it for
/// holders that may become active.
const RESERVED_PART: usize = 4;
/// No holder is lent more than one part in so many of a short pool.
const LENT_PART: usize = 4;
