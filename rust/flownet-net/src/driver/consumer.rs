//! Consumer's end of a connection: reads payloads straight into segments of their channels, and sends credit.

use std::future::poll_fn;
use std::io::IoSlice;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use flownet_core::exchange::consumer::{ConsumerConnection, PayloadSlot, ReceiveSlot};
use flownet_core::exchange::ready::ReadyList;
use flownet_core::wire::{DecodeResult, WireLimits, decode};
use flownet_core::{ChannelId, ExchangeError};

use super::link::Link;
use super::receiver::{FrameReader, ReadTask, Receiver};
use super::sender::{Sender, Transmit};
use super::staging::Staging;
use super::{End, OpenedLink, describe_silence, open, poll_rounds};
use crate::counters::NetCounters;
use crate::dialer::{OpenRequest, Requests, shut_down};
use crate::environment::EnvironmentShared;
use crate::inlets::Inlet;
use crate::socket;
use crate::stream::Stream;

/// Runs one dialed, authenticated connection until it ends. Its channels then fail.
pub(crate) async fn run(shared: Arc<EnvironmentShared>, stream: Stream, mut requests: Requests) {
    match open(stream) {
        Ok(OpenedLink::Plain(link)) => run_on(link, requests, shared).await,
        Ok(OpenedLink::Tls(link)) => run_on(link, requests, shared).await,
        Err(error) => {
            let reason = format!("the socket cannot be watched: {error}");
            requests.end(&ExchangeError::connection_lost(requests.peer().to_string(), reason));
        }
    }
}

async fn run_on(link: impl Link, requests: Requests, shared: Arc<EnvironmentShared>) {
    let peer = requests.peer();
    let mut driver = ConsumerDriver::new(link, requests, &shared);
    let end = driver.run().await;
    match &end {
        End::Violation(error) => {
            tracing::warn!(%peer, %error, "closed a data connection: the producer broke the protocol");
        }
        End::Closed | End::Lost(_) | End::Silent(_) => tracing::debug!(%peer, ?end, "data connection ended"),
    }
    driver.fail_because(&end);
}

/// Driver of one connection. It is generic over the byte stream so that tests can split it anywhere.
pub(crate) struct ConsumerDriver<L: Link> {
    receiver: Arc<Receiver<L, ConsumerFrameWriter, ConsumerFrameReader>>,
    read: ReadTask,
    requests: Requests,
}

/// Decodes the peer's frames: payloads, events, backlogs.
struct ConsumerFrameReader {
    staging: Staging,
    inbound: Inbound,
    limits: WireLimits,
}

/// Encodes frames to the peer: open and close channels, grant credit.
struct ConsumerFrameWriter {
    connection: ConsumerConnection,
    /// Encoded frames. The first `written` bytes are sent.
    frames: Vec<u8>,
    written: usize,
}

/// Destination of the next byte of the stream.
enum Inbound {
    Header,
    Payload {
        slot: ReceiveSlot,
        filled: usize,
    },
    Skip {
        left: usize,
    },
    /// A header that has to wait. It is handled again before anything more is read.
    Held,
}

impl<L: Link> ConsumerDriver<L> {
    pub(crate) fn new(link: L, requests: Requests, shared: &Arc<EnvironmentShared>) -> Self {
        let ready = ReadyList::new();
        let connection = ConsumerConnection::new(requests.peer().to_string(), Arc::clone(&ready));
        let outgoing = ConsumerFrameWriter { connection, frames: Vec::new(), written: 0 };
        let sender = Sender::new(link, outgoing, ready, Arc::clone(&shared.counters));
        let incoming =
            ConsumerFrameReader { staging: Staging::new(), inbound: Inbound::Header, limits: shared.wire_limits() };
        let receiver = Receiver::new(sender, incoming, shared.config.liveness());
        shared.heartbeat.watch(&receiver);
        Self { receiver, read: ReadTask::default(), requests }
    }

    pub(crate) async fn run(&mut self) -> End {
        poll_fn(|cx| self.poll_turn(cx)).await
    }

    /// Fails all channels of the ended connection, and those that were still to be opened.
    pub(crate) fn fail_because(&mut self, end: &End) {
        let reason = match end {
            End::Closed => "closed by the peer".into(),
            End::Lost(error) => socket::describe(error),
            End::Silent(owed_for) => describe_silence(*owed_for),
            End::Violation(error) => error.to_string(),
        };
        self.fail(&ExchangeError::connection_lost(self.requests.peer().to_string(), reason));
    }

    fn fail(&mut self, error: &ExchangeError) {
        self.requests.end(error);
        self.receiver.end(|outgoing| {
            outgoing.connection.connection_lost(error);
            outgoing.connection.close();
        });
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.receiver.sender.attend(cx.waker());
        self.receiver.sender.counters.add(&mut NetCounters { turns: 1, ..NetCounters::default() });
        poll_rounds(cx, |cx| self.round(cx))
    }

    /// Tries everything once. Returns `false` if nothing moved; every source then has our waker.
    fn round(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let has_read = self.receiver.read_for_task()?;
        let mut has_opened = false;
        while let Poll::Ready(Some(request)) = self.requests.poll_next(cx) {
            self.open(request);
            has_opened = true;
        }
        let has_sent = self.receiver.sender.poll_round()?;
        if has_read || has_opened || has_sent {
            return Ok(true);
        }
        match self.read.poll_event(cx, &self.receiver) {
            Poll::Ready(event) => event.map(|()| true),
            Poll::Pending => Ok(false),
        }
    }

    fn open(&self, request: OpenRequest) {
        let OpenRequest { partition, subpartition, channel, inlets } = request;
        if let Some(inlets) = inlets.upgrade() {
            let receiver: Arc<dyn Inlet> = Arc::clone(&self.receiver) as _;
            inlets.add(Arc::downgrade(&receiver));
        }
        self.receiver.sender.with(|outgoing| outgoing.connection.open(channel, partition, subpartition));
    }
}

impl FrameReader<ConsumerFrameWriter> for ConsumerFrameReader {
    fn targets(&mut self) -> (&mut [u8], &mut [u8]) {
        let spare = self.staging.spare();
        match &mut self.inbound {
            Inbound::Payload { slot, filled } => {
                let rest = &mut slot.as_mut_slice()[*filled..];
                // After a large payload, read only enough of the next frame to find the segment of its payload. Any
                // further staged bytes would have to be copied.
                let staged = if rest.len() >= LARGE_PAYLOAD_BYTES { &mut spare[..LOOK_AHEAD_BYTES] } else { spare };
                (rest, staged)
            }
            Inbound::Header | Inbound::Skip { .. } | Inbound::Held => (&mut [], spare),
        }
    }

    fn filled(&mut self, bytes: usize) {
        let mut direct = 0;
        if let Inbound::Payload { slot, filled } = &mut self.inbound {
            direct = bytes.min(slot.as_mut_slice().len() - *filled);
            *filled += direct;
        }
        self.staging.filled(bytes - direct);
    }

    fn handle(&mut self, machine: &mut ConsumerFrameWriter, resume: &Waker) -> Result<u64, End> {
        let mut frames = 0;
        while self.advance(&mut machine.connection, &mut frames, resume)? {}
        Ok(frames)
    }

    fn is_held(&self) -> bool {
        matches!(self.inbound, Inbound::Held)
    }

    fn is_between_frames(&self) -> bool {
        matches!(self.inbound, Inbound::Header) && self.staging.unread().is_empty()
    }

    fn clear(&mut self) {
        self.inbound = Inbound::Header;
    }
}

impl ConsumerFrameReader {
    /// Processes one step of the bytes read. Returns `false` if the next step needs more bytes.
    fn advance(&mut self, connection: &mut ConsumerConnection, frames: &mut u64, resume: &Waker) -> Result<bool, End> {
        match std::mem::replace(&mut self.inbound, Inbound::Header) {
            Inbound::Header | Inbound::Held => self.next_frame(connection, frames, resume),
            Inbound::Payload { mut slot, filled } => {
                let rest = &mut slot.as_mut_slice()[filled..];
                let unread = self.staging.unread();
                let copied = rest.len().min(unread.len());
                rest[..copied].copy_from_slice(&unread[..copied]);
                let is_full = copied == rest.len();
                self.staging.consume(copied);
                if is_full {
                    connection.handle_payload(slot)?;
                } else {
                    self.inbound = Inbound::Payload { slot, filled: filled + copied };
                }
                Ok(is_full)
            }
            Inbound::Skip { left } => {
                let skipped = left.min(self.staging.unread().len());
                self.staging.consume(skipped);
                if skipped < left {
                    self.inbound = Inbound::Skip { left: left - skipped };
                }
                Ok(skipped == left)
            }
        }
    }

    fn next_frame(
        &mut self,
        connection: &mut ConsumerConnection,
        frames: &mut u64,
        resume: &Waker,
    ) -> Result<bool, End> {
        let consumed = match decode(self.staging.unread(), &self.limits)? {
            DecodeResult::More { .. } => return Ok(false),
            DecodeResult::Data { header, consumed } => {
                self.inbound = match connection.handle_header(header, resume)? {
                    PayloadSlot::Segment(slot) => Inbound::Payload { slot, filled: 0 },
                    PayloadSlot::Skip(left) => Inbound::Skip { left },
                    PayloadSlot::Wait => {
                        self.inbound = Inbound::Held;
                        return Ok(false);
                    }
                };
                consumed
            }
            DecodeResult::Control { frame, consumed } => {
                connection.handle_frame(frame)?;
                consumed
            }
        };
        self.staging.consume(consumed);
        *frames += 1;
        Ok(true)
    }
}

impl Transmit for ConsumerFrameWriter {
    fn on_ready(&mut self, channel: ChannelId) {
        self.connection.on_ready(channel);
    }

    fn fill<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        if self.written == self.frames.len() {
            self.frames.clear();
            self.written = 0;
            self.connection.poll_transmit(&mut self.frames);
        }
        if self.frames.is_empty() {
            return 0;
        }
        slices[0] = IoSlice::new(&self.frames[self.written..]);
        1
    }

    fn advance(&mut self, bytes: usize) {
        self.written += bytes;
    }

    fn patience(&self) -> usize {
        (self.connection.open_channels() / CHANNELS_PER_LISTED).clamp(1, MOST_LISTED)
    }

    fn ping(&mut self, token: u64) {
        self.connection.ping(token);
    }

    fn pong(&mut self, token: u64) {
        self.connection.pong(token);
    }

    fn may_be_stopped(&self) -> bool {
        // A producer reads frames at any time, even while it has data to write.
        false
    }

    fn end(&mut self) {
        self.frames = Vec::new();
        self.written = 0;
    }
}

impl<L: Link> Drop for ConsumerDriver<L> {
    fn drop(&mut self) {
        // The connection has not ended yet, so our process is shutting down.
        self.fail(&shut_down(self.requests.peer()));
    }
}

/// Payloads of at least this size justify a read of their own.
const LARGE_PAYLOAD_BYTES: usize = 8 * flownet_memory::KIB;
/// With few open channels, the next buffer is probably for another channel, so announce credit early.
const CHANNELS_PER_LISTED: usize = 4;
/// Upper bound: a separate write for the credit of each buffer would cost as much as reading the buffer.
const MOST_LISTED: usize = 16;
/// Enough bytes for the header of the next frame.
const LOOK_AHEAD_BYTES: usize = 64;
