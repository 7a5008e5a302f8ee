//! Snapshot of a gate's channels, to diagnose a job that makes no progress.

use super::{InputGate, Source};
use crate::credit::Credit;
use crate::ids::ChannelIndex;

/// State of one channel at one moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ChannelInspection {
    /// Index of the channel.
    pub channel: ChannelIndex,
    /// Elements that the task could take now: queued here, or readable at a local producer.
    pub readable: usize,
    /// Buffers promised to a remote producer that have not arrived. `None` without credit, or if the channel has ended.
    pub credit: Option<Credit>,
}

impl InputGate {
    /// Inspects the channels one after the other, not atomically. Visits every channel, so do not call it often.
    #[must_use]
    pub fn inspect(&self) -> Vec<ChannelInspection> {
        // Producers and channels have locks of their own, which must not be taken under the gate's lock.
        let seen: Vec<(usize, Source)> =
            self.state.lock().channels.iter().map(|channel| (channel.queue.len(), channel.source.share())).collect();
        let inspect = |(channel, (queued, source)): (u32, (usize, Source))| {
            let (readable, credit) = match source {
                Source::Unset => (queued, None),
                Source::Local(cell) => (cell.readable(), None),
                Source::Remote(remote) => (queued, remote.upgrade().and_then(|remote| remote.credit_given())),
            };
            ChannelInspection { channel: ChannelIndex::new(channel), readable, credit }
        };
        (0..).zip(seen).map(inspect).collect()
    }
}
