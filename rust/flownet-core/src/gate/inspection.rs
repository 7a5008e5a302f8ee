//! What a gate's channels have and wait for, for whoever asks why a job does not move.

use super::{InputGate, Source};
use crate::credit::Credit;
use crate::ids::ChannelIndex;

/// One channel at one moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ChannelInspection {
    /// Which one.
    pub channel: ChannelIndex,
    /// Elements the task could take now: queued here, or readable at a local producer.
    pub readable: usize,
    /// Buffers promised to a remote producer and not yet come; none where no credit is given, or the channel has ended.
    pub credit: Option<Credit>,
}

impl InputGate {
    /// Looks at each channel, one after the other: for who looks now and then.
    #[must_use]
    pub fn inspect(&self) -> Vec<ChannelInspection> {
        // Producers and channels have locks of their own, which are not taken under the gate's.
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
