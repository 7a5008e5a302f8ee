//! Capture of the in-flight data that an unaligned checkpoint overtook.

use super::{Aligner, Step};
use crate::event::{Barrier, BarrierKind};
use crate::ids::{ChannelIndex, CheckpointId};

/// An [`Aligner`] with the in-flight data of its checkpoint: elements of type `E` per channel, in their order.
///
/// # Invariants
/// - C1: the captured elements of a channel are those before its barrier that were not read when the snapshot was due:
///   each element once, in order.
/// - C2: an aborted checkpoint leaves no captured elements.
#[derive(Clone, Debug)]
pub struct Capture<E> {
    aligner: Aligner,
    pub(super) kept: Vec<Vec<E>>,
}

/// Captured elements of each channel that has any.
pub type CapturedChannels<E> = Vec<(ChannelIndex, Vec<E>)>;

impl<E> Capture<E> {
    /// Creates a capture with as many channels as the aligner has.
    #[must_use]
    pub fn new(aligner: Aligner) -> Self {
        let kept = aligner.channels.iter().map(|_| Vec::new()).collect();
        Self { aligner, kept }
    }

    /// Returns the alignment state.
    #[must_use]
    pub fn aligner(&self) -> &Aligner {
        &self.aligner
    }

    /// Handles a barrier of a channel that overtook the elements `overtaken`. `unread` returns the elements of a
    /// channel that came before the barrier and were not read. It is called once per channel if the snapshot is due,
    /// and not at all otherwise.
    pub fn on_barrier(
        &mut self,
        channel: ChannelIndex,
        barrier: Barrier,
        overtaken: impl IntoIterator<Item = E>,
        unread: impl FnMut(ChannelIndex) -> Vec<E>,
    ) -> Step {
        // The data overtaken by a barrier of a finished or older checkpoint is not captured.
        let is_wanted = self.aligner.is_news(barrier.checkpoint_id);
        let was_captured = self.aligner.is_captured(channel) && self.aligner.under_way() == Some(barrier.checkpoint_id);
        let step = self.aligner.on_barrier(channel, barrier);
        self.follow(&step, unread);
        if is_wanted && (was_captured || Self::keeps(&step)) {
            self.kept[channel.index()].extend(overtaken);
        }
        step
    }

    /// Like [`Aligner::on_timeout`].
    pub fn on_timeout(&mut self, barrier: Barrier, unread: impl FnMut(ChannelIndex) -> Vec<E>) -> Step {
        let step = self.aligner.on_timeout(barrier);
        self.follow(&step, unread);
        step
    }

    /// Like [`Aligner::on_trigger`]. A checkpoint taken here has no captured elements, because all channels have ended.
    pub fn on_trigger(&mut self, barrier: Barrier) -> Step {
        let step = self.aligner.on_trigger(barrier);
        self.follow(&step, |_| Vec::new());
        step
    }

    /// Like [`Aligner::on_cancel`].
    pub fn on_cancel(&mut self, id: CheckpointId) -> Step {
        let step = self.aligner.on_cancel(id);
        self.follow(&step, |_| Vec::new());
        step
    }

    /// Like [`Aligner::on_end`].
    pub fn on_end(&mut self, channel: ChannelIndex) -> Step {
        self.aligner.on_end(channel)
    }

    /// Handles any other element of a channel, which is read after all earlier ones.
    pub fn on_element(&mut self, channel: ChannelIndex, element: impl FnOnce() -> Option<E>) {
        if self.aligner.is_captured(channel) {
            self.kept[channel.index()].extend(element());
        }
    }

    /// Takes the elements captured for the checkpoint that has just been completed.
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
