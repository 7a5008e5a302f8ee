//! Barrier alignment: decides which channels of a task wait for a checkpoint, when its snapshot is due, and which
//! channel data belongs to it. State machines without IO.
//!
//! A channel whose barrier has arrived is *held*: its producer is blocked until the channel is resumed. When the
//! barriers of all channels have arrived, the task has read exactly the elements before the barriers.
//!
//! An [unaligned barrier](Event::is_priority) does not wait for other channels. The first one makes the snapshot due,
//! ahead of elements that arrived and were not read. These elements are *captured*, together with elements that other
//! channels bring before their own barriers ([`Capture`]). When all barriers have arrived, the checkpoint is complete.
//! A barrier that is [aligned with a timeout](BarrierKind::AlignedWithTimeout) starts as an aligned one. It becomes
//! unaligned in one of two ways: the coordinator reports that the checkpoint is late, or an unaligned barrier arrives
//! from a task that received this report. The report has the effect of a barrier, even if no barrier has arrived at the
//! task.
//!
//! The caller passes arrivals to the [`Aligner`], which returns a [`Step`]. The caller carries out the parts of the
//! step in their order.
//!
//! # Invariants
//! - A1: at most one checkpoint is under way at a time. Each is taken at most once, then completed or aborted once, and
//!   their numbers grow.
//! - A2: a checkpoint is complete when every channel has brought its barrier or has ended, and not before. An aligned
//!   one is also taken at that time. An unaligned one is taken with its first barrier, or when it has taken too long.
//! - A3: only channels that brought the barrier of a checkpoint that is not taken are held. When it is taken, all of
//!   them are resumed, each once. In [at-least-once](Aligner::at_least_once) mode no channel is held: each is resumed
//!   as its barrier arrives.
//! - A4: input for a checkpoint that is complete, aborted or older changes nothing, except that its channel is resumed.
//! - A5: a channel is captured from the time when the checkpoint is taken until it brings its barrier or ends.

mod capture;
#[cfg(test)]
#[cfg(not(loom))]
mod capture_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod model;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

pub use self::capture::{Capture, CapturedChannels};
#[cfg(doc)]
use crate::event::Event;
use crate::event::{Barrier, BarrierKind};
use crate::ids::{ChannelIndex, CheckpointId};

/// Barrier alignment of one task.
#[derive(Clone, Debug)]
pub struct Aligner {
    holds: bool,
    channels: Vec<Channel>,
    current: Option<Current>,
    /// The newest checkpoint that is complete or aborted.
    last_done: Option<CheckpointId>,
    /// Checkpoint that the coordinator has triggered and no channel has brought.
    asked: Option<Barrier>,
}

/// Checkpoint that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Current {
    barrier: Barrier,
    is_taken: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    Open,
    /// The barrier of the current checkpoint has arrived. The channel may be held until the others have theirs.
    Arrived {
        is_held: bool,
    },
    Ended,
}

/// Actions for the caller, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Step {
    /// Aborted checkpoint: downstream tasks must not wait for it.
    pub aborted: Option<CheckpointId>,
    /// Checkpoint whose first barrier has arrived.
    pub began: Option<CheckpointId>,
    /// Barrier whose snapshot is due. The task forwards the barrier with this kind.
    pub taken: Option<Barrier>,
    /// Completed checkpoint, which waits for no channel any more. It consists of the snapshot and the captured data.
    pub completed: Option<CheckpointId>,
    /// Channels to resume.
    pub resumed: Vec<ChannelIndex>,
}

impl Aligner {
    /// Creates the alignment of `channels` channels that wait for each other.
    #[must_use]
    pub fn exactly_once(channels: usize) -> Self {
        Self { holds: true, channels: vec![Channel::Open; channels], current: None, last_done: None, asked: None }
    }

    /// Creates the alignment of `channels` channels that do not wait for each other.
    #[must_use]
    pub fn at_least_once(channels: usize) -> Self {
        Self { holds: false, ..Self::exactly_once(channels) }
    }

    /// Handles a barrier of a channel. An aligned barrier has blocked the channel.
    pub fn on_barrier(&mut self, channel: ChannelIndex, barrier: Barrier) -> Step {
        let mut step = Step::default();
        let id = barrier.checkpoint_id;
        let (overtakes, was) = (barrier.kind == BarrierKind::Unaligned, self.channels[channel.index()]);
        // A4: a barrier of a finished or older checkpoint, or a repeated one, only resumes its channel.
        if !self.is_news(id) || was != Channel::Open && self.under_way() == Some(id) || was == Channel::Ended {
            if !overtakes && was != (Channel::Arrived { is_held: true }) {
                step.resumed.push(channel);
            }
            return step;
        }
        if self.under_way().is_some_and(|under_way| under_way < id) {
            self.abort_into(&mut step);
        }
        let current = *self.current.get_or_insert_with(|| {
            step.began = Some(id);
            Current { barrier, is_taken: false }
        });
        let is_held = self.holds && !overtakes && !current.is_taken;
        self.channels[channel.index()] = Channel::Arrived { is_held };
        if !overtakes && !is_held {
            step.resumed.push(channel);
        }
        if overtakes {
            self.overtake_into(&mut step);
        }
        self.complete_into(&mut step);
        step
    }

    /// Handles the coordinator's report that a checkpoint is late. Takes it at once, even if no barrier has arrived.
    pub fn on_timeout(&mut self, barrier: Barrier) -> Step {
        let mut step = Step::default();
        let id = barrier.checkpoint_id;
        if !self.is_news(id) {
            return step;
        }
        if self.under_way().is_some_and(|under_way| under_way < id) {
            self.abort_into(&mut step);
        }
        if self.current.is_none() {
            step.began = Some(id);
            self.current = Some(Current { barrier, is_taken: false });
        }
        self.overtake_into(&mut step);
        self.complete_into(&mut step);
        step
    }

    /// Handles the coordinator's trigger of a checkpoint. If all channels have ended, takes the checkpoint. Otherwise
    /// the remaining channels bring its barrier, or end.
    pub fn on_trigger(&mut self, barrier: Barrier) -> Step {
        let mut step = Step::default();
        let id = barrier.checkpoint_id;
        if self.is_news(id) {
            if self.under_way().is_some_and(|under_way| under_way < id) {
                self.abort_into(&mut step);
            }
            self.asked = Some(barrier);
            self.answer_into(&mut step);
        }
        step
    }

    /// Handles the abort of a checkpoint, reported by a channel or by the coordinator.
    pub fn on_cancel(&mut self, id: CheckpointId) -> Step {
        let mut step = Step::default();
        if !self.is_news(id) {
            return step;
        }
        // An older checkpoint under way will not complete either: the coordinator has moved on to the next one.
        self.abort_into(&mut step);
        self.last_done = Some(id);
        step.aborted = Some(id);
        step
    }

    /// Handles the end of a channel: no checkpoint waits for it any more.
    pub fn on_end(&mut self, channel: ChannelIndex) -> Step {
        let mut step = Step::default();
        self.channels[channel.index()] = Channel::Ended;
        self.complete_into(&mut step);
        self.answer_into(&mut step);
        step
    }

    /// Returns the checkpoint that is under way.
    #[must_use]
    pub fn under_way(&self) -> Option<CheckpointId> {
        self.current.map(|current| current.barrier.checkpoint_id)
    }

    /// Returns whether any channel is held.
    #[must_use]
    pub fn holds_any(&self) -> bool {
        self.current.is_some() && self.channels.contains(&Channel::Arrived { is_held: true })
    }

    /// Returns whether the channel is held.
    #[must_use]
    pub fn is_held(&self, channel: ChannelIndex) -> bool {
        self.channels[channel.index()] == Channel::Arrived { is_held: true }
    }

    /// Returns whether elements of the channel belong to a checkpoint that is taken.
    #[must_use]
    pub fn is_captured(&self, channel: ChannelIndex) -> bool {
        self.is_capturing() && self.channels[channel.index()] == Channel::Open
    }

    /// Returns whether a checkpoint is taken and not complete.
    #[must_use]
    pub fn is_capturing(&self) -> bool {
        self.current.is_some_and(|current| current.is_taken)
    }

    /// Returns whether the checkpoint, or a newer one, is complete or aborted.
    #[must_use]
    pub fn is_done(&self, id: CheckpointId) -> bool {
        self.last_done.is_some_and(|last_done| id <= last_done)
    }

    fn is_news(&self, id: CheckpointId) -> bool {
        !self.is_done(id) && self.under_way().is_none_or(|under_way| under_way <= id)
    }

    fn abort_into(&mut self, step: &mut Step) {
        if let Some(current) = self.current.take() {
            let id = current.barrier.checkpoint_id;
            self.last_done = Some(id);
            step.aborted = Some(id);
            self.release_into(step);
            self.open();
        }
    }

    /// Takes the current checkpoint as unaligned (A5) and resumes held channels (A3).
    fn overtake_into(&mut self, step: &mut Step) {
        let Some(current) = self.current.as_mut().filter(|current| !current.is_taken) else { return };
        current.is_taken = true;
        step.taken = Some(Barrier { kind: BarrierKind::Unaligned, ..current.barrier });
        self.release_into(step);
    }

    fn complete_into(&mut self, step: &mut Step) {
        let Some(current) = self.current.filter(|_| !self.channels.contains(&Channel::Open)) else { return };
        let id = current.barrier.checkpoint_id;
        self.current = None;
        self.last_done = Some(id);
        if !current.is_taken {
            step.taken = Some(current.barrier);
        }
        step.completed = Some(id);
        self.release_into(step);
        self.open();
    }

    fn answer_into(&mut self, step: &mut Step) {
        let Some(barrier) = self.asked else { return };
        if self.is_done(barrier.checkpoint_id) {
            self.asked = None;
        } else if self.channels.iter().all(|channel| *channel == Channel::Ended) {
            self.asked = None;
            self.last_done = Some(barrier.checkpoint_id);
            step.began = Some(barrier.checkpoint_id);
            step.taken = Some(barrier);
            step.completed = Some(barrier.checkpoint_id);
        }
    }

    fn release_into(&mut self, step: &mut Step) {
        for (index, channel) in (0..).map(ChannelIndex::new).zip(&mut self.channels) {
            if *channel == (Channel::Arrived { is_held: true }) {
                *channel = Channel::Arrived { is_held: false };
                step.resumed.push(index);
            }
        }
    }

    fn open(&mut self) {
        for channel in self.channels.iter_mut().filter(|channel| **channel != Channel::Ended) {
            *channel = Channel::Open;
        }
    }
}
