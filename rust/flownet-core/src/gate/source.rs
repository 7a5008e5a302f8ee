//! Source of a channel's elements: a remote channel, or the subpartition of a local producer.

use std::sync::{Arc, Weak};
use std::task::Wake;

use super::InputGate;
use crate::channel::RemoteChannel;
use crate::ids::ChannelIndex;
use crate::partition::SubpartitionCell;

#[derive(Debug, Default)]
pub(super) enum Source {
    #[default]
    Unset,
    Remote(Weak<RemoteChannel>),
    Local(Arc<SubpartitionCell>),
}

impl Source {
    pub(super) fn share(&self) -> Self {
        match self {
            Self::Unset => Self::Unset,
            Self::Remote(remote) => Self::Remote(Weak::clone(remote)),
            Self::Local(cell) => Self::Local(Arc::clone(cell)),
        }
    }

    pub(super) fn buffers_in_use(&self) -> usize {
        match self {
            Self::Unset => 0,
            Self::Remote(remote) => remote.upgrade().map_or(0, |remote| remote.buffers_in_use()),
            Self::Local(cell) => cell.queued_buffers() as usize,
        }
    }

    pub(super) fn release(self) {
        match self {
            Self::Unset => {}
            Self::Remote(remote) => {
                if let Some(remote) = remote.upgrade() {
                    remote.release();
                }
            }
            Self::Local(cell) => cell.release(),
        }
    }
}

/// Wakes the gate when a local producer has elements again after a poll found none.
pub(super) struct LocalWaker {
    pub(super) gate: Weak<InputGate>,
    pub(super) channel: ChannelIndex,
}

impl Wake for LocalWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(gate) = self.gate.upgrade() {
            gate.on_local_ready(self.channel);
        }
    }
}
