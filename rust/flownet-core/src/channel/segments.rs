//! Segment life cycle of a channel: requested from the gate's pool, offered by other channels, retained as standing,
//! returned.

use std::task::{Poll, Waker};

use flownet_memory::{MemorySegment, Recycler, SegmentListener, planted};

use super::state::State;
use super::{Phase, RemoteChannel};

impl RemoteChannel {
    /// Requests segments until the channel wants none or waits in the pool's queue. One thread at a time does so (I3).
    pub(super) fn request_segments(&self) {
        loop {
            {
                let mut state = self.state.lock();
                if !state.wants_segment() || state.is_waiting {
                    return;
                }
                state.is_waiting = true;
            }
            if let Some(segment) = self.pool.try_take(0) {
                drop(self.accept(segment));
                continue;
            }
            let Some(me) = self.me.upgrade() else { return };
            if self.pool.offer_to(me) {
                return;
            }
            self.state.lock().is_waiting = false;
            // The pool refused because a segment became idle, so try again. If the pool is gone, give up.
            if let Poll::Ready(Err(_)) = self.pool.poll_available(Waker::noop()) {
                return;
            }
        }
    }

    /// Ends the wait with this segment. Returns the segment if the channel wants none any more.
    fn accept(&self, segment: MemorySegment) -> Option<MemorySegment> {
        let mut state = self.state.lock();
        state.is_waiting = false;
        if !state.wants_segment() && !planted!(LentAfterRelease) {
            return Some(segment);
        }
        state.owned += 1;
        state.free.push(segment);
        state.unannounced.earn_one();
        self.finish_change(state, false);
        None
    }

    /// Books the channel's initial standing segments. All channels ask for the same share, so late ones still get
    /// theirs.
    pub(super) fn book_standing(&self) -> u32 {
        let share = self.pool.standing_share(self.exclusive as usize);
        // At most `exclusive`, which is a u32.
        (0..share).take_while(|_| self.pool.try_stand()).count() as u32
    }

    pub(super) fn end_standing(&self, count: u32) {
        if count > 0 {
            self.pool.end_standing(count as usize);
        }
    }

    /// Retains a segment that the task has read, or returns it to the caller to give to the pool.
    fn keep_or_return(&self, segment: MemorySegment) -> Option<MemorySegment> {
        // A hint, read without the pool's lock: an outdated one does no harm.
        let is_claimed = self.pool.claims_standing();
        let mut state = self.state.lock();
        if state.phase == Phase::Open && state.owned <= state.standing && !is_claimed {
            state.keep(segment);
            self.finish_change(state, false);
            return None;
        }
        if state.phase == Phase::Open && state.owned <= state.standing {
            // Another channel waits for a segment, and this channel has no data for it.
            state.standing -= 1;
            state.owned -= 1;
            self.finish_change(state, false);
            self.end_standing(1);
            return Some(segment);
        }
        if !self.may_grow(&state, is_claimed) {
            state.owned -= 1;
            self.finish_change(state, false);
            return Some(segment);
        }
        drop(state);
        self.keep_as_standing(segment)
    }

    /// Returns whether to try to book another standing segment. [`Self::keep_as_standing`] checks the state again.
    fn may_grow(&self, state: &State, is_claimed: bool) -> bool {
        state.phase == Phase::Open && state.standing < self.exclusive && !is_claimed
    }

    /// Retains one more standing segment for an active channel, if the pool can spare it.
    fn keep_as_standing(&self, segment: MemorySegment) -> Option<MemorySegment> {
        let is_booked = self.pool.try_stand();
        let mut state = self.state.lock();
        let is_kept = is_booked && state.phase == Phase::Open && state.standing < self.exclusive;
        let surplus = if is_kept {
            state.standing += 1;
            state.keep(segment);
            None
        } else {
            state.owned -= 1;
            Some(segment)
        };
        self.finish_change(state, false);
        if is_booked && !is_kept {
            self.end_standing(1);
        }
        surplus
    }
}

impl Recycler for RemoteChannel {
    fn recycle(&self, segment: MemorySegment) {
        drop(self.keep_or_return(segment));
    }
}

impl SegmentListener for RemoteChannel {
    fn on_segment(&self, segment: MemorySegment) -> Option<MemorySegment> {
        let refused = self.accept(segment);
        if refused.is_none() {
            self.request_segments();
        }
        refused
    }
}
