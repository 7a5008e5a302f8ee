//! Alignment: which channels of a task wait for a checkpoint, and when its snapshot is due. A machine without IO.
//!
//! A channel that brought the barrier of a checkpoint is *held*: its producer is blocked and goes on when it is resumed.
//! When all channels have brought theirs, what the task has taken in is exactly what came before the barriers.
//! [`Aligner`] is told what arrives and answers with a [`Step`], whose parts are to be done in their order.
//!
//! # Invariants
//! - A1: at most one checkpoint is aligned at a time; each is taken or aborted once, and their numbers grow.
//! - A2: a checkpoint is taken when every channel has brought its barrier or has ended, and not before.
//! - A3: only channels that brought the barrier of the checkpoint that is aligned are held; with that, all are resumed,
//!   each once. In [at-least-once](Aligner::at_least_once) none is held: each is resumed as it comes.
//! - A4: what is told of a checkpoint that is taken, aborted or older changes nothing, but that its channel is resumed.

#[cfg(test)]
mod tests;

use crate::event::Barrier;
use crate::ids::{ChannelIndex, CheckpointId};

/// The alignment of one task.
#[derive(Clone, Debug)]
pub struct Aligner {
    holds: bool,
    channels: Vec<Channel>,
    aligning: Option<Barrier>,
    /// The newest checkpoint that was taken or aborted.
    last_done: Option<CheckpointId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    Open,
    /// Has brought the barrier of the checkpoint that is aligned.
    Arrived,
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
    /// All have: the snapshot is due, and this barrier goes on.
    pub taken: Option<Barrier>,
    /// Channels that go on.
    pub resumed: Vec<ChannelIndex>,
}

impl Aligner {
    /// For so many channels, which wait for each other.
    #[must_use]
    pub fn exactly_once(channels: usize) -> Self {
        Self { holds: true, channels: vec![Channel::Open; channels], aligning: None, last_done: None }
    }

    /// For so many channels, which do not.
    #[must_use]
    pub fn at_least_once(channels: usize) -> Self {
        Self { holds: false, ..Self::exactly_once(channels) }
    }

    /// A channel brought a barrier, behind which it is blocked.
    pub fn on_barrier(&mut self, channel: ChannelIndex, barrier: Barrier) -> Step {
        let mut step = Step::default();
        let id = barrier.checkpoint_id;
        let is_obsolete = self.is_done(id) || self.aligning.is_some_and(|aligning| id < aligning.checkpoint_id);
        if is_obsolete || self.channels[channel.index()] == Channel::Ended {
            step.resumed.push(channel);
            return step;
        }
        if self.aligning.is_some_and(|aligning| aligning.checkpoint_id < id) {
            self.abort_into(&mut step);
        }
        if self.aligning.is_none() {
            self.aligning = Some(barrier);
            step.began = Some(id);
        }
        self.channels[channel.index()] = Channel::Arrived;
        if !self.holds {
            step.resumed.push(channel);
        }
        self.take_into(&mut step);
        step
    }

    /// A channel says that a checkpoint is off, or the coordinator does.
    pub fn on_cancel(&mut self, id: CheckpointId) -> Step {
        let mut step = Step::default();
        if self.is_done(id) || self.aligning.is_some_and(|aligning| id < aligning.checkpoint_id) {
            return step;
        }
        // An older one that is aligned will not come to its end either: its coordinator has gone on.
        self.abort_into(&mut step);
        self.last_done = Some(id);
        step.aborted = Some(id);
        step
    }

    /// A channel has ended: nobody waits for it.
    pub fn on_end(&mut self, channel: ChannelIndex) -> Step {
        let mut step = Step::default();
        self.channels[channel.index()] = Channel::Ended;
        self.take_into(&mut step);
        step
    }

    /// The checkpoint that is aligned.
    #[must_use]
    pub fn aligning(&self) -> Option<CheckpointId> {
        self.aligning.map(|barrier| barrier.checkpoint_id)
    }

    /// Whether the channel waits for others.
    #[must_use]
    pub fn is_held(&self, channel: ChannelIndex) -> bool {
        self.holds && self.channels[channel.index()] == Channel::Arrived
    }

    fn is_done(&self, id: CheckpointId) -> bool {
        self.last_done.is_some_and(|last_done| id <= last_done)
    }

    fn abort_into(&mut self, step: &mut Step) {
        if let Some(barrier) = self.aligning.take() {
            self.last_done = Some(barrier.checkpoint_id);
            step.aborted = Some(barrier.checkpoint_id);
            self.release_into(step);
        }
    }

    fn take_into(&mut self, step: &mut Step) {
        if self.aligning.is_some() && !self.channels.contains(&Channel::Open) {
            step.taken = self.aligning.take();
            self.last_done = step.taken.map(|barrier| barrier.checkpoint_id);
            self.release_into(step);
        }
    }

    fn release_into(&mut self, step: &mut Step) {
        for (index, channel) in (0..).map(ChannelIndex::new).zip(&mut self.channels) {
            if *channel == Channel::Arrived {
                *channel = Channel::Open;
                if self.holds {
                    step.resumed.push(index);
                }
            }
        }
    }
}
