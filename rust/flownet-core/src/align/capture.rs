//! What of the channels of a task belongs to a checkpoint that overtook it.

use super::{Aligner, Step};
use crate::event::{Barrier, BarrierKind};
use crate::ids::{ChannelIndex, CheckpointId};

/// An [`Aligner`], and what its checkpoint keeps of the channels: elements of type `E`, in their order.
///
/// # Invariants
/// - C1: what is captured of a channel is what came before its barrier and was not read when the snapshot was due: each
///   element once, in order.
/// - C2: of a checkpoint that is aborted nothing is left.
#[derive(Clone, Debug)]
pub struct Capture<E> {
    aligner: Aligner,
    pub(super) kept: Vec<Vec<E>>,
}

/// What a checkpoint keeps of each channel of which it keeps anything.
pub type CapturedChannels<E> = Vec<(ChannelIndex, Vec<E>)>;

impl<E> Capture<E> {
    /// For as many channels as the aligner has.
    #[must_use]
    pub fn new(aligner: Aligner) -> Self {
        let kept = aligner.channels.iter().map(|_| Vec::new()).collect();
        Self { aligner, kept }
    }

    /// Which channels wait, and for what.
    #[must_use]
    pub fn aligner(&self) -> &Aligner {
        &self.aligner
    }

    /// A channel brought a barrier, ahead of what it `overtook`. `unread` gives what a channel brought before that and
    /// nobody has read: asked once of each channel if the snapshot is due, and of none otherwise.
    pub fn on_barrier(
        &mut self,
        channel: ChannelIndex,
        barrier: Barrier,
        overtaken: impl IntoIterator<Item = E>,
        unread: impl FnMut(ChannelIndex) -> Vec<E>,
    ) -> Step {
        // Of a barrier that nobody waits for, nothing is kept of what it overtook.
        let is_wanted = self.aligner.is_news(barrier.checkpoint_id);
        let was_captured = self.aligner.is_captured(channel) && self.aligner.under_way() == Some(barrier.checkpoint_id);
        let step = self.aligner.on_barrier(channel, barrier);
        self.follow(&step, unread);
        if is_wanted && (was_captured || Self::keeps(&step)) {
            self.kept[channel.index()].extend(overtaken);
        }
        step
    }

    /// As [`Aligner::on_timeout`].
    pub fn on_timeout(&mut self, barrier: Barrier, unread: impl FnMut(ChannelIndex) -> Vec<E>) -> Step {
        let step = self.aligner.on_timeout(barrier);
        self.follow(&step, unread);
        step
    }

    /// As [`Aligner::on_trigger`]: nothing is left of the channels then.
    pub fn on_trigger(&mut self, barrier: Barrier) -> Step {
        let step = self.aligner.on_trigger(barrier);
        self.follow(&step, |_| Vec::new());
        step
    }

    /// As [`Aligner::on_cancel`].
    pub fn on_cancel(&mut self, id: CheckpointId) -> Step {
        let step = self.aligner.on_cancel(id);
        self.follow(&step, |_| Vec::new());
        step
    }

    /// As [`Aligner::on_end`].
    pub fn on_end(&mut self, channel: ChannelIndex) -> Step {
        self.aligner.on_end(channel)
    }

    /// A channel brought something else, to be read after all that was brought before.
    pub fn on_element(&mut self, channel: ChannelIndex, element: impl FnOnce() -> Option<E>) {
        if self.aligner.is_captured(channel) {
            self.kept[channel.index()].extend(element());
        }
    }

    /// What was captured for the checkpoint that has just been completed.
    pub fn take(&mut self) -> CapturedChannels<E> {
        let kept = (0..).map(ChannelIndex::new).zip(&mut self.kept);
        kept.map(|(index, kept)| (index, std::mem::take(kept))).filter(|(_, kept)| !kept.is_empty()).collect()
    }

    fn keeps(step: &Step) -> bool {
        step.taken.is_some_and(|barrier| barrier.kind == BarrierKind::Unaligned)
    }

    fn follow(&mut self, step: &Step, mut unread: impl FnMut(ChannelIndex) -> Vec<E>) {
        if step.aborted.is_some() {
            self.kept.iter_mut().for_each(Vec::clear);
        }
        if Self::keeps(step) {
            for (index, kept) in (0..).map(ChannelIndex::new).zip(&mut self.kept) {
                *kept = unread(index);
            }
        }
    }
}
