//! State of a buffer pool and its segments. A plain state machine: no lock, no calls to other components.
//!
//! # Invariants
//! - I3: a pool holds its idle segments and those in use, and no others.
//! - I4: idle segments are within the pool's size; excess is never idle.
//! - I5: a listener waits only while no segment is idle.
//! - I6: a pool below its size without an idle segment waits for the segment pool. Hence "no idle segment" means "no
//!   segment available without overdraft".
//! - I7: `lanes_at_quota` counts the lanes that use their quota or more, `lanes_in_use` those that use any segment.
//! - I8: a task waits for any one segment only in two cases: its lanes use all they may, or no segment is idle. In the
//!   second case, if the pool may hold more (overdraft included), the pool waits for the segment pool.
//! - I9: a destroyed pool has no idle segment and no waiter.
//! - I12: `min <= guarantee <= size`, the pool holds as many segments as are guaranteed, and standing segments are
//!   guaranteed together with one more, if the size allows. Hence segments promised to a pool are there, whatever
//!   others hold. Segments that may never come back are always within the guarantee. Excess circulates, and so does at
//!   least one segment of every pool that is short.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use crate::region::Slot;
use crate::{BufferPoolSettings, SegmentListener};

/// Lane of a segment that counts towards no quota.
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
    /// The pool is in the segment pool's queue, or a segment from there is in transit to it.
    pub(crate) awaits_global: bool,
    pub(crate) destroyed: bool,
    /// Segments that their holders may leave unused for as long as they like.
    pub(crate) standing: usize,
    /// Least number of segments that the pool holds. Raised under the registry's lock, after the segments were taken.
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
    /// Creates a pool that holds no segments yet, not even its minimum.
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

    /// Counts a segment that `lane` takes into use.
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

    /// Returns how many segments the lanes in use may use together: their share of the maximum, and one quota more. A
    /// maximum meant for many idle lanes does not help a few busy ones.
    fn working_limit(&self) -> usize {
        let part = self.max.map(|max| max.div_ceil(self.in_use_by_lane.len()).saturating_mul(self.lanes_in_use));
        part.map_or(usize::MAX, |part| part.saturating_add(self.max_per_lane))
    }

    /// Returns whether one more segment, if there is one, may go into use without overdraft.
    fn is_within_limit(&self) -> bool {
        self.in_lanes < self.working_limit()
    }

    /// Returns whether one more segment may go into use, as overdraft if necessary.
    pub(crate) fn may_use_more(&self) -> bool {
        self.in_lanes < self.working_limit().saturating_add(self.max_overdraft)
    }

    /// Returns whether the next take needs no overdraft, no lane is at its quota, and the lanes in use are below their
    /// limit.
    pub(crate) fn is_available(&self) -> bool {
        !self.idle.is_empty() && self.lanes_at_quota == 0 && self.is_within_limit()
    }

    /// Returns whether the pool lacks segments: it has fewer than it could use, none is idle, and its lanes are below
    /// their limit. Otherwise waiters wait for the holders of the segments that the lanes use.
    pub(crate) fn lacks_segments(&self) -> bool {
        let is_starved = self.held < self.size || self.is_short();
        is_starved && self.idle.is_empty() && self.lanes_at_quota == 0 && self.is_within_limit()
    }

    /// Returns whether to fetch a segment ahead of the next take.
    pub(crate) fn wants_segment(&self) -> bool {
        !self.destroyed && self.idle.is_empty() && self.held < self.size
    }

    /// Returns whether the pool may hold another segment, as overdraft if necessary.
    pub(crate) fn may_hold_more(&self) -> bool {
        !self.destroyed && self.held < self.size.saturating_add(self.max_overdraft)
    }

    /// Returns whether a task that waits for any one segment should try again, because there may be one.
    pub(crate) fn can_serve_hard_wait(&self) -> bool {
        self.may_use_more() && (!self.idle.is_empty() || self.may_hold_more() && !self.awaits_global)
    }

    /// Returns whether a segment that comes back now must leave the pool.
    pub(crate) fn has_excess(&self) -> bool {
        self.destroyed || self.held > self.size
    }

    /// Returns whether the pool is smaller than its users would like, as far as it knows.
    pub(crate) fn is_short(&self) -> bool {
        self.max.is_none_or(|max| self.size < max)
    }

    /// Returns the number of segments that must not stand, so that they serve holders with data. A maximum is assumed
    /// to cover all holders, so a pool at its maximum reserves none.
    fn reserve(&self) -> usize {
        if self.is_short() { (self.size / RESERVED_PART).max(1) } else { 0 }
    }

    /// Returns whether one more segment may stand.
    pub(crate) fn can_stand(&self) -> bool {
        !self.destroyed && self.standing + self.reserve() < self.size
    }

    /// Returns the guarantee needed for this many standing segments.
    pub(crate) fn guarantee_for(&self, standing: usize) -> usize {
        let backed = if standing == 0 { 0 } else { self.size.min(standing + 1) };
        self.min.max(backed)
    }

    /// Returns whether holders should give up standing segments that come back.
    pub(crate) fn claims_standing(&self) -> bool {
        self.is_short() && (!self.listeners.is_empty() || self.standing + self.reserve() > self.size)
    }

    /// Returns how many of `wanted` standing segments each holder can have, if `max` allows for all holders to have as
    /// many.
    pub(crate) fn standing_share(&self, wanted: usize) -> usize {
        match self.max {
            Some(max) if self.size < max => wanted.saturating_mul(self.size.saturating_sub(self.reserve())) / max,
            _ => wanted,
        }
    }

    /// Returns the most segments that one holder should request for its data. Never the whole pool: a holder may
    /// announce data that it does not have, and would retain the segments it got.
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
    /// Writes all state that decides the pool's next action, except the identity of its listeners.
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

/// One segment in this many of a short pool must not stand. That is enough for active holders to work with, and leaves
/// most of the pool to holders that may become active.
const RESERVED_PART: usize = 4;
/// One holder may borrow one segment in this many of a short pool.
const LENT_PART: usize = 4;
