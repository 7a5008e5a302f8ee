//! Producer's end of a connection: sends subpartitions and receives credit.

use std::future::poll_fn;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use flownet_core::exchange::outbox::Outbox;
use flownet_core::exchange::producer::{PartitionLookup, ProducerConnection, ProducerSettings, Watermarks};
use flownet_core::exchange::ready::ReadyList;
use flownet_core::partition::PartitionHandle;
use flownet_core::wire::{DecodeResult, ErrorCode, FrameKind, WireLimits, decode};
use flownet_core::{ChannelId, PartitionId, PeerViolation, ProtocolError};
use tokio::time::{Instant, Sleep};

use super::link::Link;
use super::receiver::{FrameReader, ReadTask, Receiver};
use super::sender::{Sender, Transmit};
use super::staging::Staging;
use super::{End, OpenedLink, describe_silence, open, poll_rounds};
use crate::counters::NetCounters;
use crate::environment::EnvironmentShared;
use crate::inlets::Inlet;
use crate::stream::Stream;

/// Serves one accepted, authenticated connection until it ends.
pub(crate) async fn serve(shared: Arc<EnvironmentShared>, stream: Stream, peer: SocketAddr) {
    let end = match open(stream) {
        Ok(OpenedLink::Plain(link)) => ProducerDriver::new(link, shared).run().await,
        Ok(OpenedLink::Tls(link)) => ProducerDriver::new(link, shared).run().await,
        Err(error) => End::Lost(error),
    };
    match end {
        End::Closed => tracing::debug!(%peer, "data connection closed by its consumer"),
        End::Lost(error) => tracing::debug!(%peer, %error, "data connection lost"),
        End::Silent(owed_for) => tracing::warn!(%peer, ?owed_for, "closed a data connection: the consumer was silent"),
        End::Violation(error) => {
            tracing::warn!(%peer, %error, "closed a data connection: the consumer broke the protocol")
        }
    }
}

/// Driver of one connection. It is generic over the byte stream so that tests can split it anywhere.
pub(crate) struct ProducerDriver<L: Link> {
    receiver: Arc<Receiver<L, ProducerFrameWriter, ProducerFrameReader>>,
    read: ReadTask,
    lookup: Arc<Lookup>,
    registry_seen: u64,
    tick: Option<Pin<Box<Sleep>>>,
    tick_interval: Duration,
    started: Instant,
}

/// Encodes frames to the peer.
struct ProducerFrameWriter {
    connection: ProducerConnection,
    outbox: Outbox,
}

/// Decodes the peer's requests: open and close channels, grant credit.
struct ProducerFrameReader {
    staging: Staging,
    limits: WireLimits,
    lookup: Arc<Lookup>,
}

/// Finds partitions for a connection. Their writers may read the connection while they wait for the peer.
struct Lookup {
    shared: Arc<EnvironmentShared>,
    connection: OnceLock<Weak<dyn Inlet>>,
}

impl<L: Link> ProducerDriver<L> {
    pub(crate) fn new(link: L, shared: Arc<EnvironmentShared>) -> Self {
        let settings = ProducerSettings {
            checksums: shared.config.checksums,
            request_timeout_ms: u64::try_from(shared.config.partition_timeout.as_millis()).unwrap_or(u64::MAX),
            watermarks: Watermarks::for_segments(shared.pool.segment_bytes()),
        };
        let ready = ReadyList::new();
        let connection = ProducerConnection::new(Arc::clone(&ready), settings);
        let outgoing = ProducerFrameWriter { connection, outbox: Outbox::new() };
        let sender = Sender::new(link, outgoing, ready, Arc::clone(&shared.counters));
        let limits = shared.wire_limits();
        let lookup = Arc::new(Lookup { shared, connection: OnceLock::new() });
        let incoming = ProducerFrameReader { staging: Staging::new(), limits, lookup: Arc::clone(&lookup) };
        let receiver = Receiver::new(sender, incoming, lookup.shared.config.liveness());
        lookup.shared.heartbeat.watch(&receiver);
        let inlet: Arc<dyn Inlet> = Arc::clone(&receiver) as _;
        lookup.connection.get_or_init(|| Arc::downgrade(&inlet));
        Self {
            receiver,
            read: ReadTask::default(),
            registry_seen: 0,
            tick: None,
            tick_interval: Duration::from_millis(settings.request_timeout_ms / TICKS_PER_TIMEOUT).max(SHORTEST_TICK),
            started: Instant::now(),
            lookup,
        }
    }

    pub(crate) async fn run(&mut self) -> End {
        let end = poll_fn(|cx| self.poll_turn(cx)).await;
        self.receiver.end(|outgoing| match &end {
            End::Violation(error) => outgoing.connection.leave(ErrorCode::Protocol, &error.to_string()),
            End::Silent(owed_for) => outgoing.connection.leave(ErrorCode::Leaving, &describe_silence(*owed_for)),
            End::Closed | End::Lost(_) => {}
        });
        end
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.receiver.sender.attend(cx.waker());
        self.receiver.sender.counters.add(&mut NetCounters { turns: 1, ..NetCounters::default() });
        poll_rounds(cx, |cx| self.round(cx))
    }

    /// Tries everything once. Returns `false` if nothing moved; every source then has our waker.
    fn round(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let has_read = self.receiver.read_for_task()?;
        self.serve_parked(cx);
        if self.receiver.sender.poll_round()? || has_read {
            return Ok(true);
        }
        match self.read.poll_event(cx, &self.receiver) {
            Poll::Ready(event) => event.map(|()| true),
            Poll::Pending => Ok(false),
        }
    }

    /// Retries requests for partitions that were not registered yet, and gives up on expired ones.
    fn serve_parked(&mut self, cx: &mut Context<'_>) {
        let sender = &self.receiver.sender;
        if sender.with(|outgoing| outgoing.connection.parked_requests()) == 0 {
            self.tick = None;
            return;
        }
        while self.lookup.shared.registry.has_changed(&mut self.registry_seen, cx.waker()) {
            sender.with(|outgoing| outgoing.connection.retry_parked(&*self.lookup));
        }
        loop {
            let tick = self.tick.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.tick_interval)));
            let is_due = tick.as_mut().poll(cx).is_ready();
            let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
            sender.with(|outgoing| outgoing.connection.expire_parked(now_ms));
            if !is_due {
                return;
            }
            self.tick = None;
        }
    }
}

impl FrameReader<ProducerFrameWriter> for ProducerFrameReader {
    fn targets(&mut self) -> (&mut [u8], &mut [u8]) {
        (&mut [], self.staging.spare())
    }

    fn filled(&mut self, bytes: usize) {
        self.staging.filled(bytes);
    }

    fn handle(&mut self, machine: &mut ProducerFrameWriter, resume: &Waker) -> Result<u64, End> {
        let mut frames = 0;
        let parked = machine.connection.parked_requests();
        loop {
            let consumed = match decode(self.staging.unread(), &self.limits)? {
                DecodeResult::More { .. } if machine.connection.is_closed() => return Err(End::Closed),
                DecodeResult::More { .. } => {
                    if machine.connection.parked_requests() > parked {
                        // Only the connection's task waits for partitions, so call it.
                        resume.wake_by_ref();
                    }
                    return Ok(frames);
                }
                DecodeResult::Data { header, .. } => {
                    let violation = PeerViolation::WrongSide { kind: FrameKind::Data.code() };
                    return Err(ProtocolError::Peer { channel: header.channel, violation }.into());
                }
                DecodeResult::Control { frame, consumed } => {
                    machine.connection.handle_frame(frame, &*self.lookup)?;
                    consumed
                }
            };
            self.staging.consume(consumed);
            frames += 1;
        }
    }

    fn is_held(&self) -> bool {
        false
    }

    fn is_between_frames(&self) -> bool {
        self.staging.unread().is_empty()
    }

    fn clear(&mut self) {}
}

impl PartitionLookup for Lookup {
    fn find(&self, id: PartitionId) -> Option<PartitionHandle> {
        let (partition, inlets) = self.shared.registry.find(id)?;
        if let (Some(inlets), Some(connection)) = (inlets.upgrade(), self.connection.get()) {
            inlets.add(Weak::clone(connection));
        }
        Some(partition)
    }
}

impl Transmit for ProducerFrameWriter {
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

    fn patience(&self) -> usize {
        1
    }

    fn ping(&mut self, token: u64) {
        self.connection.ping(token);
    }

    fn pong(&mut self, token: u64) {
        self.connection.pong(token);
    }

    fn may_be_stopped(&self) -> bool {
        self.connection.is_uncontrolled()
    }

    fn end(&mut self) {
        self.connection.connection_lost();
        self.outbox.clear();
    }
}

impl<L: Link> Drop for ProducerDriver<L> {
    fn drop(&mut self) {
        // The connection has not ended yet, so our process is shutting down.
        self.receiver.end(|outgoing| {
            outgoing.connection.leave(ErrorCode::Leaving, "the network of the producing process was shut down");
        });
    }
}

/// The outbox accepts no more while it holds at least this many bytes.
const OUTBOX_BYTES: usize = 512 * flownet_memory::KIB;
const BUFFERS_PER_TRANSMIT: usize = 32;
const TICKS_PER_TIMEOUT: u64 = 8;
const SHORTEST_TICK: Duration = Duration::from_millis(10);
