//! The producer's end: subpartitions go out, credit comes in.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use flownet_core::ChannelId;
use flownet_core::exchange::outbox::Outbox;
use flownet_core::exchange::producer::{ProducerConnection, ProducerSettings};
use flownet_core::exchange::ready::ReadyList;
use flownet_core::wire::{Decoded, FrameKind, WireLimits, decode};
use flownet_core::{PeerViolation, ProtocolError};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::link::Link;
use super::staging::Staging;
use super::{End, poll_rounds};
use crate::counters::{NetCounters, SharedCounters};
use crate::environment::Shared;
use crate::registry::Registry;

/// Serves one accepted connection that has proved itself, until it ends.
pub(crate) async fn serve(shared: Arc<Shared>, stream: TcpStream, peer: SocketAddr) {
    let settings = ProducerSettings {
        checksums: shared.config.checksums,
        request_timeout_ms: u64::try_from(shared.config.partition_timeout.as_millis()).unwrap_or(u64::MAX),
    };
    let mut driver = ProducerDriver::new(stream, settings, shared.wire_limits(), &shared.registry, &shared.counters);
    match driver.run().await {
        End::Closed => tracing::debug!(%peer, "data connection closed by its consumer"),
        End::Lost(error) => tracing::debug!(%peer, %error, "data connection lost"),
        End::Violation(error) => {
            tracing::warn!(%peer, %error, "closed a data connection: the consumer broke the protocol")
        }
    }
}

/// One connection, generic over its byte stream so that tests can split it anywhere.
pub(crate) struct ProducerDriver<'a, L: Link> {
    link: L,
    machine: ProducerConnection,
    ready: Arc<ReadyList>,
    drained: Vec<ChannelId>,
    outbox: Outbox,
    staging: Staging,
    limits: WireLimits,
    registry: &'a Registry,
    registry_seen: u64,
    tick: Option<Pin<Box<Sleep>>>,
    tick_interval: Duration,
    started: Instant,
    counters: &'a SharedCounters,
    turn: NetCounters,
    has_ended: bool,
}

impl<'a, L: Link> ProducerDriver<'a, L> {
    pub(crate) fn new(
        link: L,
        settings: ProducerSettings,
        limits: WireLimits,
        registry: &'a Registry,
        counters: &'a SharedCounters,
    ) -> Self {
        let ready = ReadyList::new();
        Self {
            link,
            machine: ProducerConnection::new(Arc::clone(&ready), settings),
            ready,
            drained: Vec::new(),
            outbox: Outbox::new(),
            staging: Staging::new(),
            limits,
            registry,
            registry_seen: 0,
            tick: None,
            tick_interval: Duration::from_millis(settings.request_timeout_ms / TICKS_PER_TIMEOUT).max(SHORTEST_TICK),
            started: Instant::now(),
            counters,
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
        let outcome = poll_rounds(cx, |cx| self.round(cx));
        self.counters.add(&mut self.turn);
        outcome
    }

    /// Tries everything once. `false` when nothing moved: then every source has our waker.
    fn round(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let has_read = self.read(cx)?;
        self.serve_parked(cx);
        let has_news = self.ready.poll_drain(&mut self.drained, cx.waker()).is_ready();
        for channel in self.drained.drain(..) {
            self.machine.on_ready(channel);
        }
        if self.outbox.queued_bytes() < OUTBOX_BYTES {
            self.machine.poll_transmit(&mut self.outbox, BUFFERS_PER_TRANSMIT);
        }
        let has_written = self.write(cx)?;
        Ok(has_read || has_news || has_written)
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let read = match self.link.poll_read_two(cx, &mut [], self.staging.spare()) {
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
        if self.machine.is_closed() { Err(End::Closed) } else { Ok(true) }
    }

    fn handle_frames(&mut self) -> Result<(), End> {
        loop {
            let consumed = match decode(self.staging.unread(), &self.limits)? {
                Decoded::More { .. } => return Ok(()),
                Decoded::Data { header, .. } => {
                    let violation = PeerViolation::WrongSide { kind: FrameKind::Data.code() };
                    return Err(ProtocolError::Peer { channel: header.channel, violation }.into());
                }
                Decoded::Control { frame, consumed } => {
                    self.machine.handle_frame(frame, self.registry)?;
                    consumed
                }
            };
            self.staging.consume(consumed);
            self.turn.frames_in += 1;
        }
    }

    /// Looks again for partitions that were asked for too early, and gives up on those that do not come.
    fn serve_parked(&mut self, cx: &mut Context<'_>) {
        if self.machine.parked_requests() == 0 {
            self.tick = None;
            return;
        }
        while self.registry.has_changed(&mut self.registry_seen, cx.waker()) {
            self.machine.retry_parked(self.registry);
        }
        loop {
            let tick = self.tick.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.tick_interval)));
            let is_due = tick.as_mut().poll(cx).is_ready();
            let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.machine.expire_parked(now_ms);
            if !is_due {
                return;
            }
            self.tick = None;
        }
    }

    fn write(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        if self.outbox.is_empty() {
            return Ok(false);
        }
        let mut slices = [IoSlice::new(&[]); SLICES_PER_WRITE];
        let filled = self.outbox.io_slices(&mut slices);
        match Pin::new(&mut self.link).poll_write_vectored(cx, &slices[..filled]) {
            Poll::Ready(Ok(0)) => Err(io::Error::from(io::ErrorKind::WriteZero).into()),
            Poll::Ready(written) => {
                let written = written?;
                // Segments go home here, as soon as the kernel has their bytes.
                self.outbox.advance(written);
                self.turn.writes += 1;
                self.turn.bytes_out += written as u64;
                Ok(true)
            }
            Poll::Pending => Ok(false),
        }
    }
}

impl<L: Link> Drop for ProducerDriver<'_, L> {
    fn drop(&mut self) {
        if !self.has_ended {
            // Our process leaves. One attempt to say so: what the socket does not take now is not worth waiting for,
            // the closed connection says the same.
            self.machine.leave("the network of the producing process was shut down");
            self.machine.poll_transmit(&mut self.outbox, 0);
            let _ = self.write(&mut Context::from_waker(Waker::noop()));
        }
    }
}

/// Above this the outbox takes nothing more before some of it is written.
const OUTBOX_BYTES: usize = 512 * flownet_memory::KIB;
const BUFFERS_PER_TRANSMIT: usize = 32;
const SLICES_PER_WRITE: usize = 64;
const TICKS_PER_TIMEOUT: u64 = 8;
const SHORTEST_TICK: Duration = Duration::from_millis(10);
