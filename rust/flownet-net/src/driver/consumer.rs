//! The consumer's end: payloads come in, straight into the segments of their channels, and credit goes out.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll};

use flownet_core::exchange::consumer::{ConsumerConnection, PayloadSlot, ReceiveSlot};
use flownet_core::exchange::ready::ReadyList;
use flownet_core::wire::{Decoded, WireLimits, decode};
use flownet_core::{ChannelId, ExchangeError};
use tokio::net::TcpStream;

use super::link::Link;
use super::sender::{Sender, Transmit};
use super::staging::Staging;
use super::{End, poll_rounds};
use crate::counters::NetCounters;
use crate::dialer::{Requests, shut_down};
use crate::environment::Shared;
use crate::socket;

/// Runs one dialed connection that has proved itself, until it ends; its channels then fail.
pub(crate) async fn run(shared: Arc<Shared>, stream: TcpStream, requests: Requests) {
    let peer = requests.peer();
    let mut driver = ConsumerDriver::new(stream, requests, shared);
    let end = driver.run().await;
    match &end {
        End::Violation(error) => {
            tracing::warn!(%peer, %error, "closed a data connection: the producer broke the protocol");
        }
        End::Closed | End::Lost(_) => tracing::debug!(%peer, ?end, "data connection ended"),
    }
    driver.fail_because(&end);
}

/// One connection, generic over its byte stream so that tests can split it anywhere.
pub(crate) struct ConsumerDriver<L: Link> {
    sender: Arc<Sender<L, Outgoing>>,
    requests: Requests,
    staging: Staging,
    inbound: Inbound,
    limits: WireLimits,
    shared: Arc<Shared>,
    turn: NetCounters,
    has_ended: bool,
}

/// What the peer is told: channels opened and closed, credit.
struct Outgoing {
    connection: ConsumerConnection,
    /// Encoded frames; what lies before `written` is out.
    frames: Vec<u8>,
    written: usize,
}

/// What the next byte of the stream belongs to.
enum Inbound {
    Header,
    Payload {
        slot: ReceiveSlot,
        filled: usize,
    },
    Skip {
        left: usize,
    },
    /// A header that was told to wait: it is asked about again before anything more is read.
    Held,
}

impl<L: Link> ConsumerDriver<L> {
    pub(crate) fn new(link: L, requests: Requests, shared: Arc<Shared>) -> Self {
        let ready = ReadyList::new();
        let connection = ConsumerConnection::new(requests.peer().to_string(), Arc::clone(&ready));
        let outgoing = Outgoing { connection, frames: Vec::new(), written: 0 };
        Self {
            sender: Sender::new(link, outgoing, ready, Arc::clone(&shared.counters)),
            requests,
            staging: Staging::new(),
            inbound: Inbound::Header,
            limits: shared.wire_limits(),
            shared,
            turn: NetCounters::default(),
            has_ended: false,
        }
    }

    pub(crate) async fn run(&mut self) -> End {
        poll_fn(|cx| self.poll_turn(cx)).await
    }

    /// The connection ended: so do its channels, and those that were still to be opened.
    pub(crate) fn fail_because(&mut self, end: &End) {
        let reason = match end {
            End::Closed => "closed by the peer".into(),
            End::Lost(error) => socket::describe(error),
            End::Violation(error) => error.to_string(),
        };
        self.fail(ExchangeError::connection_lost(self.requests.peer().to_string(), reason));
    }

    fn fail(&mut self, error: ExchangeError) {
        self.has_ended = true;
        self.inbound = Inbound::Header;
        self.requests.end(&error);
        self.sender.lock().machine.connection.connection_lost(&error);
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.turn.turns += 1;
        self.sender.attend(cx.waker());
        let outcome = poll_rounds(cx, |cx| self.round(cx));
        self.shared.counters.add(&mut self.turn);
        outcome
    }

    /// Tries everything once. `false` when nothing moved: then every source has our waker.
    fn round(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let has_read = self.read(cx)?;
        let mut has_opened = false;
        while let Poll::Ready(Some(request)) = self.requests.poll_next(cx) {
            let mut state = self.sender.lock();
            state.machine.connection.open(request.channel, request.partition, request.subpartition);
            has_opened = true;
        }
        let has_sent = self.sender.poll_round(cx)?;
        Ok(has_read || has_opened || has_sent)
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        if matches!(self.inbound, Inbound::Held) {
            let has_advanced = self.advance(cx)?;
            while self.advance(cx)? {}
            if !has_advanced || matches!(self.inbound, Inbound::Held) {
                return Ok(has_advanced);
            }
        }
        let spare = self.staging.spare();
        let (direct, staged) = match &mut self.inbound {
            Inbound::Payload { slot, filled } => {
                let rest = &mut slot.as_mut_slice()[*filled..];
                // Behind a large payload, only enough of the next frame to learn where *its* payload goes: whatever
                // else came along would have to be copied.
                let staged = if rest.len() >= LARGE_PAYLOAD_BYTES { &mut spare[..LOOK_AHEAD_BYTES] } else { spare };
                (rest, staged)
            }
            Inbound::Header | Inbound::Skip { .. } | Inbound::Held => (&mut [][..], spare),
        };
        let direct_len = direct.len();
        let read = match self.sender.link.poll_read_two(cx, direct, staged) {
            Poll::Ready(read) => read?,
            Poll::Pending => return Ok(false),
        };
        self.turn.reads += 1;
        self.turn.bytes_in += read as u64;
        if read == 0 {
            let is_between_frames = matches!(self.inbound, Inbound::Header) && self.staging.unread().is_empty();
            return Err(if is_between_frames {
                End::Closed
            } else {
                io::Error::from(io::ErrorKind::UnexpectedEof).into()
            });
        }
        let direct_read = read.min(direct_len);
        if let Inbound::Payload { filled, .. } = &mut self.inbound {
            *filled += direct_read;
        }
        self.staging.filled(read - direct_read);
        while self.advance(cx)? {}
        Ok(true)
    }

    /// Takes one step through what was read; `false` when more bytes are needed for the next.
    fn advance(&mut self, cx: &Context<'_>) -> Result<bool, End> {
        match std::mem::replace(&mut self.inbound, Inbound::Header) {
            Inbound::Header | Inbound::Held => self.next_frame(cx),
            Inbound::Payload { mut slot, filled } => {
                let rest = &mut slot.as_mut_slice()[filled..];
                let unread = self.staging.unread();
                let copied = rest.len().min(unread.len());
                rest[..copied].copy_from_slice(&unread[..copied]);
                let is_full = copied == rest.len();
                self.staging.consume(copied);
                if is_full {
                    self.sender.lock().machine.connection.handle_payload(slot)?;
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

    fn next_frame(&mut self, cx: &Context<'_>) -> Result<bool, End> {
        let consumed = match decode(self.staging.unread(), &self.limits)? {
            Decoded::More { .. } => return Ok(false),
            Decoded::Data { header, consumed } => {
                self.inbound = match self.sender.lock().machine.connection.handle_header(header, cx.waker())? {
                    PayloadSlot::Segment(slot) => Inbound::Payload { slot, filled: 0 },
                    PayloadSlot::Skip(left) => Inbound::Skip { left },
                    PayloadSlot::Wait => {
                        self.inbound = Inbound::Held;
                        return Ok(false);
                    }
                };
                consumed
            }
            Decoded::Control { frame, consumed } => {
                self.sender.lock().machine.connection.handle_frame(frame)?;
                consumed
            }
        };
        self.staging.consume(consumed);
        self.turn.frames_in += 1;
        Ok(true)
    }
}

impl Transmit for Outgoing {
    fn on_ready(&mut self, channel: ChannelId) {
        self.connection.on_ready(channel);
    }

    fn fill<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        if self.is_flushed() {
            self.frames.clear();
            self.written = 0;
            self.connection.poll_transmit(&mut self.frames);
        }
        if self.is_flushed() {
            return 0;
        }
        slices[0] = IoSlice::new(&self.frames[self.written..]);
        1
    }

    fn advance(&mut self, bytes: usize) {
        self.written += bytes;
    }

    fn is_flushed(&self) -> bool {
        self.written == self.frames.len()
    }
}

impl<L: Link> Drop for ConsumerDriver<L> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.fail(shut_down(self.requests.peer()));
            self.sender.say_goodbye(|outgoing| outgoing.connection.close());
        }
    }
}

/// From here on a payload is worth a read of its own.
const LARGE_PAYLOAD_BYTES: usize = 8 * flownet_memory::KIB;
/// Enough for the header of the next frame.
const LOOK_AHEAD_BYTES: usize = 64;
