//! Alignment: which channels of a task wait for a checkpoint, when its snapshot is due, and what of the channels belongs to
//! it. Machines without IO.
//!
//! A channel that brought the barrier of a checkpoint is *held*: its producer is blocked and goes on when it is resumed.
//! When all channels have brought theirs, what the task has taken in is exactly what came before the barriers.
//!
//! A barrier that [overtakes](Event::is_priority) waits for nobody: with the first one the snapshot is due, ahead of what
//! has come and was not read. That is *captured*, with what other channels bring until their barriers have come
//! ([`Capture`]); then the checkpoint is complete. One that is [aligned with a timeout](BarrierKind::AlignedWithTimeout)
//! is the former until the coordinator says that it has taken too long, or a barrier from a task that was told so
//! overtakes, and then the latter. Being told is as good as a barrier: the task need not have seen any.
//!
//! [`Aligner`] is told what arrives and answers with a [`Step`], whose parts are to be done in their order.
//!
//! # Invariants
//! - A1: at most one checkpoint is under way at a time; each is taken at most once, then completed or aborted once, and
//!   their numbers grow.
//! - A2: a checkpoint is complete when every channel has brought its barrier or has ended, and not before. One that does
//!   not overtake is taken then, too; one that does is taken with its first barrier, or when it has taken too long.
//! - A3: only channels that brought the barrier of a checkpoint that is not taken are held; with that, all are resumed,
//!   each once. In [at-least-once](Aligner::at_least_once) none is held: each is resumed as it comes.
//! - A4: what is told of a checkpoint that is complete, aborted or older changes nothing, but that its channel is resumed.
//! - A5: a channel is captured from the moment in which the checkpoint is taken until it brings its barrier or ends.

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

/// The alignment of one task.
#[derive(Clone, Debug)]
pub struct Aligner {
    holds: bool,
    channels: Vec<Channel>,
    current: Option<Current>,
    /// The newest checkpoint that is complete or aborted.
    last_done: Option<CheckpointId>,
    /// One that the coordinator has asked for, and no channel has brought.
    asked: Option<Barrier>,
}

/// The checkpoint that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Current {
    barrier: Barrier,
    is_taken: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    Open,
    /// Has brought the barrier of the checkpoint that is under way, and waits for others or does not.
    Arrived {
        is_held: bool,
    },
    Ended,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Step {
    /// This checkpoint is off: those behind the task are not to wait for it.
    pub aborted: Option<CheckpointId>,
    /// The first barrier of this checkpoint has come.
    pub began: Option<CheckpointId>,
    /// The snapshot is due, and this barrier goes on, of the kind in which it is to.
    pub taken: Option<Barrier>,
    /// Nobody is waited for any more: the snapshot, with what was captured, is all there is of it.
    pub completed: Option<CheckpointId>,
    /// Channels that go on.
    pub resumed: Vec<ChannelIndex>,
}

impl Aligner {
    /// For so many channels, which wait for each other.
    #[must_use]
    pub fn exactly_once(channels: usize) -> Self {
        Self { holds: true, channels: vec![Channel::Open; channels], current: None, last_done: None, asked: None }
    }

    /// For so many channels, which do not.
    #[must_use]
    pub fn at_least_once(channels: usize) -> Self {
        Self { holds: false, ..Self::exactly_once(channels) }
    }

    /// A channel brought a barrier. Behind one that does not overtake it is blocked.
    pub fn on_barrier(&mut self, channel: ChannelIndex, barrier: Barrier) -> Step {
        let mut step = Step::default();
        let id = barrier.checkpoint_id;
        let (overtakes, was) = (barrier.kind == BarrierKind::Unaligned, self.channels[channel.index()]);
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

    /// The coordinator has waited for a checkpoint for too long: it is taken at once, whatever has come of it.
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

    /// The coordinator asks for a checkpoint. That of a task whose channels have all ended is taken for it; channels that
    /// have not bring it, or end.
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

    /// A channel says that a checkpoint is off, or the coordinator does.
    pub fn on_cancel(&mut self, id: CheckpointId) -> Step {
        let mut step = Step::default();
        if !self.is_news(id) {
            return step;
        }
        // An older one that is under way will not come to its end either: its coordinator has gone on.
        self.abort_into(&mut step);
        self.last_done = Some(id);
        step.aborted = Some(id);
        step
    }

    /// A channel has ended: nobody waits for it.
    pub fn on_end(&mut self, channel: ChannelIndex) -> Step {
        let mut step = Step::default();
        self.channels[channel.index()] = Channel::Ended;
        self.complete_into(&mut step);
        self.answer_into(&mut step);
        step
    }

    /// The checkpoint that is under way.
    #[must_use]
    pub fn under_way(&self) -> Option<CheckpointId> {
        self.current.map(|current| current.barrier.checkpoint_id)
    }

    /// Whether any channel waits for others.
    #[must_use]
    pub fn holds_any(&self) -> bool {
        self.current.is_some() && self.channels.contains(&Channel::Arrived { is_held: true })
    }

    /// Whether the channel waits for others.
    #[must_use]
    pub fn is_held(&self, channel: ChannelIndex) -> bool {
        self.channels[channel.index()] == Channel::Arrived { is_held: true }
    }

    /// Whether what the channel brings belongs to a checkpoint that is taken.
    #[must_use]
    pub fn is_captured(&self, channel: ChannelIndex) -> bool {
        self.is_capturing() && self.channels[channel.index()] == Channel::Open
    }

    /// Whether a checkpoint is taken and not complete.
    #[must_use]
    pub fn is_capturing(&self) -> bool {
        self.current.is_some_and(|current| current.is_taken)
    }

    /// Whether the checkpoint, or a newer one, is complete or aborted.
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

    /// A5, A3.
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
