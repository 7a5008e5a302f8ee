//! The producer's end: subpartitions go out, credit comes in.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use flownet_core::ChannelId;
use flownet_core::exchange::outbox::Outbox;
use flownet_core::exchange::producer::{ProducerConnection, ProducerSettings, Watermarks};
use flownet_core::exchange::ready::ReadyList;
use flownet_core::wire::{Decoded, FrameKind, WireLimits, decode};
use flownet_core::{PeerViolation, ProtocolError};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::link::Link;
use super::sender::{Sender, Transmit};
use super::staging::Staging;
use super::{End, poll_rounds};
use crate::counters::NetCounters;
use crate::environment::Shared;

/// Serves one accepted connection that has proved itself, until it ends.
pub(crate) async fn serve(shared: Arc<Shared>, stream: TcpStream, peer: SocketAddr) {
    match ProducerDriver::new(stream, shared).run().await {
        End::Closed => tracing::debug!(%peer, "data connection closed by its consumer"),
        End::Lost(error) => tracing::debug!(%peer, %error, "data connection lost"),
        End::Violation(error) => {
            tracing::warn!(%peer, %error, "closed a data connection: the consumer broke the protocol")
        }
    }
}

/// One connection, generic over its byte stream so that tests can split it anywhere.
pub(crate) struct ProducerDriver<L: Link> {
    sender: Arc<Sender<L, Outgoing>>,
    staging: Staging,
    limits: WireLimits,
    shared: Arc<Shared>,
    registry_seen: u64,
    tick: Option<Pin<Box<Sleep>>>,
    tick_interval: Duration,
    started: Instant,
    turn: NetCounters,
    has_ended: bool,
}

/// What the peer reads, as frames.
struct Outgoing {
    connection: ProducerConnection,
    outbox: Outbox,
}

impl<L: Link> ProducerDriver<L> {
    pub(crate) fn new(link: L, shared: Arc<Shared>) -> Self {
        let settings = ProducerSettings {
            checksums: shared.config.checksums,
            request_timeout_ms: u64::try_from(shared.config.partition_timeout.as_millis()).unwrap_or(u64::MAX),
            watermarks: Watermarks::for_segments(shared.pool.segment_bytes()),
        };
        let ready = ReadyList::new();
        let connection = ProducerConnection::new(Arc::clone(&ready), settings);
        let outgoing = Outgoing { connection, outbox: Outbox::new() };
        Self {
            sender: Sender::new(link, outgoing, ready, Arc::clone(&shared.counters)),
            staging: Staging::new(),
            limits: shared.wire_limits(),
            registry_seen: 0,
            tick: None,
            tick_interval: Duration::from_millis(settings.request_timeout_ms / TICKS_PER_TIMEOUT).max(SHORTEST_TICK),
            started: Instant::now(),
            shared,
            turn: NetCounters::default(),
            has_ended: false,
        }
    }

    pub(crate) async fn run(&mut self) -> End {
        let end = poll_fn(|cx| self.poll_turn(cx)).await;
        self.has_ended = true;
        end
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
        self.serve_parked(cx);
        let has_sent = self.sender.poll_round(cx)?;
        Ok(has_read || has_sent)
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let read = match self.sender.link.poll_read_two(cx, &mut [], self.staging.spare()) {
            Poll::Ready(read) => read?,
            Poll::Pending => return Ok(false),
        };
        self.turn.reads += 1;
        self.turn.bytes_in += read as u64;
        if read == 0 {
            let is_between_frames = self.staging.unread().is_empty();
            return Err(if is_between_frames {
                End::Closed
            } else {
                io::Error::from(io::ErrorKind::UnexpectedEof).into()
            });
        }
        self.staging.filled(read);
        self.handle_frames()?;
        if self.sender.lock().machine.connection.is_closed() { Err(End::Closed) } else { Ok(true) }
    }

    fn handle_frames(&mut self) -> Result<(), End> {
        let mut state = self.sender.lock();
        loop {
            let consumed = match decode(self.staging.unread(), &self.limits)? {
                Decoded::More { .. } => return Ok(()),
                Decoded::Data { header, .. } => {
                    let violation = PeerViolation::WrongSide { kind: FrameKind::Data.code() };
                    return Err(ProtocolError::Peer { channel: header.channel, violation }.into());
                }
                Decoded::Control { frame, consumed } => {
                    state.machine.connection.handle_frame(frame, &self.shared.registry)?;
                    consumed
                }
            };
            self.staging.consume(consumed);
            self.turn.frames_in += 1;
        }
    }

    /// Looks again for partitions that were asked for too early, and gives up on those that do not come.
    fn serve_parked(&mut self, cx: &mut Context<'_>) {
        if self.sender.lock().machine.connection.parked_requests() == 0 {
            self.tick = None;
            return;
        }
        while self.shared.registry.has_changed(&mut self.registry_seen, cx.waker()) {
            self.sender.lock().machine.connection.retry_parked(&self.shared.registry);
        }
        loop {
            let tick = self.tick.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.tick_interval)));
            let is_due = tick.as_mut().poll(cx).is_ready();
            let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.sender.lock().machine.connection.expire_parked(now_ms);
            if !is_due {
                return;
            }
            self.tick = None;
        }
    }
}

impl Transmit for Outgoing {
    fn on_ready(&mut self, channel: ChannelId) {
        self.connection.on_ready(channel);
    }

    fn fill<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        if self.outbox.queued_bytes() < OUTBOX_BYTES {
            self.connection.poll_transmit(&mut self.outbox, BUFFERS_PER_TRANSMIT);
        }
        self.outbox.io_slices(slices)
    }

    fn advance(&mut self, bytes: usize) {
        self.outbox.advance(bytes);
    }

    fn is_flushed(&self) -> bool {
        self.outbox.is_empty()
    }
}

impl<L: Link> Drop for ProducerDriver<L> {
    fn drop(&mut self) {
        if self.has_ended {
            self.sender.lock().machine.connection.connection_lost();
        } else {
            // Our process leaves. One attempt to say so: what the socket does not take now is not worth waiting for.
            self.sender.say_goodbye(|outgoing| {
                outgoing.connection.leave("the network of the producing process was shut down");
            });
        }
    }
}

/// Above this the outbox takes nothing more before some of it is written.
const OUTBOX_BYTES: usize = 512 * flownet_memory::KIB;
const BUFFERS_PER_TRANSMIT: usize = 32;
const TICKS_PER_TIMEOUT: u64 = 8;
const SHORTEST_TICK: Duration = Duration::from_millis(10);
