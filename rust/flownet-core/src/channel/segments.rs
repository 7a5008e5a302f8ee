//! Where a channel's segments come from and go to: asked of the gate's pool, passed on by other channels, kept as
//! standing, given back.

use std::task::{Poll, Waker};

use flownet_memory::{MemorySegment, Recycler, SegmentListener, planted};

use super::state::State;
use super::{Phase, RemoteChannel};

impl RemoteChannel {
    /// I3: one thread at a time asks, until nothing is wanted or the channel waits in the pool's queue.
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
            // Refused because a segment became idle: ask again. Or because the pool is gone: give up.
            if let Poll::Ready(Err(_)) = self.pool.poll_available(Waker::noop()) {
                return;
            }
        }
    }

    /// Ends the wait with this segment, or gives it back when nothing is wanted any more.
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

    /// Books what the channel opens with. All channels ask for the same part, so none comes too late for it.
    pub(super) fn book_standing(&self) -> u32 {
        let share = self.pool.standing_share(self.exclusive as usize);
        // No more than `exclusive`, which is a u32.
        (0..share).take_while(|_| self.pool.try_stand()).count() as u32
    }

    pub(super) fn end_standing(&self, count: u32) {
        if count > 0 {
            self.pool.end_standing(count as usize);
        }
    }

    /// Finds a segment that the task is done with its place. What of it is to go to the pool is returned.
    fn keep_or_return(&self, segment: MemorySegment) -> Option<MemorySegment> {
        let is_claimed = self.pool.claims_standing();
        let mut state = self.state.lock();
        if state.phase == Phase::Open && state.owned <= state.standing && !is_claimed {
            state.keep(segment);
            self.finish_change(state, false);
            return None;
        }
        if state.phase == Phase::Open && state.owned <= state.standing {
            // Somebody waits for a segment, and this channel has no data for it.
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

    /// Whether to ask the pool for one that stands at all: [`Self::keep_as_standing`] looks again.
    fn may_grow(&self, state: &State, is_claimed: bool) -> bool {
        state.phase == Phase::Open && state.standing < self.exclusive && !is_claimed
    }

    /// A channel that was active keeps a segment beyond those it has, if the pool can spare it.
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
