//! Tests drivers over real TCP sockets. The test plays the peer, and sends and closes as it likes.
//!
//! All tests run on one thread. A driver runs only while the test waits, so the connection stands still between two
//! waits.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use flownet_core::channel::{ChannelControl, RemoteChannel};
use flownet_core::gate::InputGate;
use flownet_core::partition::ResultPartition;
use flownet_core::record::writer::{Emit, FlushPolicy, RecordWriter};
use flownet_core::wire::{ControlFrame, DataHeader, DecodeResult, WireLimits, decode, encode_credits};
use flownet_core::{
    Backlog, ChannelId, ChannelIndex, Credit, Event, ExchangeError, PartitionId, Selector, SubpartitionIndex, Target,
};
use flownet_memory::SegmentPool;
use socket2::SockRef;
use tokio::task::JoinHandle;

use crate::dialer::{OpenRequest, Requests};
use crate::driver::End;
use crate::driver::consumer::ConsumerDriver;
use crate::driver::link::{Link, SocketLink};
use crate::driver::producer::ProducerDriver;
use crate::parker::ThreadParker;
use crate::{Inlets, NetworkConfig, NetworkEnvironment, Secret};

/// The test's end of a connection.
pub(super) struct Peer {
    pub(super) socket: TcpStream,
    bytes: Vec<u8>,
}

/// Way in which a peer leaves.
#[derive(Clone, Copy, Debug)]
pub(super) enum LeavingSide {
    WithFin,
    WithReset,
}

/// A consumer's end, its peer and its gate.
type Consumer = (Peer, RunningDriver<SocketLink>, Arc<InputGate>);

/// A consumer's end, and its result.
type RunningDriver<L> = JoinHandle<(End, ConsumerDriver<L>)>;

pub(super) const INTERVAL: Duration = Duration::from_millis(10);
pub(super) const TIMEOUT: Duration = Duration::from_millis(100);

pub(super) struct Rig {
    pub(super) env: NetworkEnvironment,
    pub(super) segments: Arc<SegmentPool>,
}

impl Rig {
    pub(super) async fn new(segments: usize, segment_bytes: usize) -> Self {
        Self::with_config(segments, segment_bytes, NetworkConfig::default()).await
    }

    /// Creates a rig with short timeouts.
    pub(super) async fn impatient() -> Self {
        let (heartbeat_interval, heartbeat_timeout) = (INTERVAL, TIMEOUT);
        Self::with_config(8, 1024, NetworkConfig { heartbeat_interval, heartbeat_timeout, ..NetworkConfig::default() })
            .await
    }

    pub(super) async fn with_config(segments: usize, segment_bytes: usize, config: NetworkConfig) -> Self {
        let segments = SegmentPool::new(segments, segment_bytes).unwrap();
        let env = NetworkEnvironment::bind(config, Secret::from_bytes([1; 32]), Arc::clone(&segments)).await.unwrap();
        Self { env, segments }
    }

    /// Returns a producer's end that sleeps without work.
    pub(super) fn producer(&self) -> (Peer, JoinHandle<End>) {
        let (link, peer) = connect();
        let mut driver = ProducerDriver::new(link, Arc::clone(self.env.shared()));
        (peer, tokio::spawn(async move { driver.run().await }))
    }

    /// Returns a consumer's end with one channel. Its reader polls and never sleeps at its inlets.
    pub(super) fn consumer(&self) -> (Peer, JoinHandle<End>, Arc<InputGate>) {
        let (peer, running, gate) = self.consumer_of(1, ChannelControl::Credit, &Inlets::new());
        let end = async move { running.await.unwrap().0 };
        (peer, tokio::spawn(end), gate)
    }

    /// Returns a consumer's end with several channels of one gate. Its reader waits at `inlets`.
    pub(super) fn consumer_of(&self, channels: u32, control: ChannelControl, inlets: &Inlets) -> Consumer {
        let (link, peer) = connect();
        let (running, gate) = self.consumer_over(link, channels, control, inlets);
        (peer, running, gate)
    }

    /// Returns a consumer's end over `link`. An ended driver is not dropped.
    pub(super) fn consumer_over<L: Link>(
        &self,
        link: L,
        channels: u32,
        control: ChannelControl,
        inlets: &Inlets,
    ) -> (RunningDriver<L>, Arc<InputGate>) {
        let gate = InputGate::new(channels);
        let pool = self.env.create_gate_pool(channels).unwrap();
        let (requests, receiver) = Requests::unlisted(Arc::clone(self.env.shared()), "192.0.2.1:7".parse().unwrap());
        let mut driver = ConsumerDriver::new(link, receiver, self.env.shared());
        for index in (0..channels).map(ChannelIndex::new) {
            let channel = RemoteChannel::with_control(Arc::clone(&gate), index, Arc::clone(&pool), 2, control);
            let (partition, subpartition) = (PartitionId::new(1), SubpartitionIndex::new(0));
            let inlets = inlets.connected();
            assert!(requests.send(OpenRequest { partition, subpartition, channel, inlets }).is_ok());
        }
        let run = async move {
            // The requests' sender lives as long as the driver.
            let _requests = requests;
            let end = driver.run().await;
            driver.fail_because(&end);
            (end, driver)
        };
        (tokio::spawn(run), gate)
    }

    pub(super) fn partition(&self, id: u64, inlets: &Inlets) -> RecordWriter {
        let pool = self.env.create_partition_pool(1).unwrap();
        let partition = ResultPartition::new(PartitionId::new(id), pool, 1);
        self.env.register_partition(partition.handle(), None, inlets);
        RecordWriter::new(partition, Selector::Forward, FlushPolicy::WhenFull, 1 << 26)
    }

    pub(super) async fn finish_and_assert_all_segments_home(self) {
        self.env.shutdown().await;
        assert_eq!(self.segments.available(), self.segments.total(), "every segment is home");
    }
}

pub(super) fn connect() -> (SocketLink, Peer) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    for socket in [&ours, &peer] {
        SockRef::from(socket).set_send_buffer_size(1 << 14).unwrap();
        SockRef::from(socket).set_recv_buffer_size(1 << 14).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_nonblocking(true).unwrap();
    }
    (SocketLink::new(ours.into()).unwrap(), Peer { socket: peer, bytes: Vec::new() })
}

impl Peer {
    pub(super) fn send(&mut self, frame: &ControlFrame<'_>) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.socket.write_all(&bytes).unwrap();
    }

    pub(super) fn open(&mut self, channel: u32, partition: u64, credit: u32) {
        self.send(&ControlFrame::Open {
            channel: ChannelId::new(channel),
            partition: PartitionId::new(partition),
            subpartition: SubpartitionIndex::new(0),
            initial_credit: Credit::new(credit),
        });
    }

    /// Returns the first byte of the next frame, which is its kind, if it has arrived.
    pub(super) fn try_frame(&mut self) -> Option<u8> {
        let limits = WireLimits::for_segments(1 << 26);
        loop {
            let whole = match decode(&self.bytes, &limits).unwrap() {
                DecodeResult::Data { header, consumed } => Some(consumed + header.payload_bytes as usize),
                DecodeResult::Control { consumed, .. } => Some(consumed),
                DecodeResult::More { .. } => None,
            };
            if let Some(whole) = whole.filter(|whole| *whole <= self.bytes.len()) {
                return self.bytes.drain(..whole).next();
            }
            let mut more = [0; 4096];
            match self.socket.read(&mut more) {
                Ok(0) => panic!("the connection was closed"),
                Ok(read) => self.bytes.extend_from_slice(&more[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(super) async fn frame(&mut self) -> u8 {
        loop {
            if let Some(kind) = self.try_frame() {
                return kind;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Returns the kind of the next frame without running the drivers.
    pub(super) fn frame_from_a_thread(&mut self) -> u8 {
        loop {
            if let Some(kind) = self.try_frame() {
                return kind;
            }
            thread::yield_now();
        }
    }

    pub(super) fn leave(self, how: LeavingSide) {
        if let LeavingSide::WithReset = how {
            SockRef::from(&self.socket).set_linger(Some(Duration::ZERO)).unwrap();
        }
    }
}

#[tokio::test]
async fn an_end_that_comes_with_the_last_bytes_is_found_by_the_connections_task() {
    for how in [LeavingSide::WithFin, LeavingSide::WithReset] {
        let rig = Rig::new(8, 1024).await;
        let (mut peer, driver, gate) = rig.consumer();
        assert_eq!(peer.frame().await, 16, "its OPEN; then it sleeps");
        let (sequence, backlog, priority) = (0, Backlog::ZERO, false);
        let event = Event::EndOfData { drain: true };
        peer.send(&ControlFrame::Event { channel: ChannelId::new(0), sequence, backlog, priority, event });
        peer.leave(how);
        let end = driver.await.unwrap();
        match how {
            LeavingSide::WithFin => assert!(matches!(end, End::Closed), "{end:?}"),
            LeavingSide::WithReset => {
                assert!(matches!(&end, End::Lost(error) if error.kind() == io::ErrorKind::ConnectionReset), "{end:?}");
            }
        }
        drop(gate);
        rig.finish_and_assert_all_segments_home().await;
    }
}

#[tokio::test]
async fn a_writer_that_waits_for_segments_has_them_back_when_its_consumer_is_killed() {
    for how in [LeavingSide::WithFin, LeavingSide::WithReset] {
        let rig = Rig::new(2, 1 << 17).await;
        let (mut peer, driver) = rig.producer();
        let inlets = Inlets::new();
        let mut writer = rig.partition(1, &inlets);
        peer.open(0, 1, 0);
        peer.send(&ControlFrame::Ping { token: 5 });
        assert_eq!(peer.frame().await, 33, "it is open: the writer may read for it");
        let waits = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&waits);
        let writing = thread::spawn(move || {
            for _ in 0..16 {
                let mut emitted = writer.try_emit(Target::Any, &[7; 1 << 18]).unwrap();
                while emitted == Emit::Blocked {
                    inlets
                        .wait_until(|waker| {
                            counted.fetch_add(1, Ordering::SeqCst);
                            writer.poll_ready(waker)
                        })
                        .unwrap();
                    emitted = writer.resume().unwrap();
                }
            }
        });
        while rig.segments.available() > 0 || waits.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        // Both segments are full. Once there is credit, they wait for a socket that does not accept them.
        let mut credit = Vec::new();
        encode_credits([(ChannelId::new(0), Credit::new(2))], &mut credit);
        peer.socket.write_all(&credit).unwrap();
        while peer.socket.peek(&mut [0]).is_err() {
            tokio::task::yield_now().await;
        }
        peer.leave(how);
        let _ = driver.await.unwrap();
        tokio::task::spawn_blocking(|| writing.join().unwrap()).await.unwrap();
        rig.finish_and_assert_all_segments_home().await;
    }
}

#[tokio::test]
async fn a_request_that_a_task_s_thread_read_too_early_is_served_when_its_partition_comes() {
    let rig = Rig::new(16, 1024).await;
    let (mut peer, driver) = rig.producer();
    let inlets = Inlets::new();
    let mut early = rig.partition(1, &inlets);
    early.broadcast_event(&Event::EndOfData { drain: true }).unwrap();
    peer.open(0, 1, 2);
    assert_eq!(peer.frame().await, 2, "the event; from now on the thread that waits at the inlets may read");
    let (give, given) = std::sync::mpsc::channel();
    let reading = thread::spawn(move || {
        let parker = ThreadParker::current();
        give.send(parker.waker().clone()).unwrap();
        inlets.park(&parker, None);
    });
    peer.open(1, 2, 2);
    peer.send(&ControlFrame::Ping { token: 5 });
    assert_eq!(peer.frame_from_a_thread(), 33, "nobody else can have answered");

    let mut late = rig.partition(2, &Inlets::new());
    late.broadcast_event(&Event::EndOfData { drain: true }).unwrap();
    assert_eq!(peer.frame().await, 2);

    given.recv().unwrap().wake();
    tokio::task::spawn_blocking(|| reading.join().unwrap()).await.unwrap();
    drop((peer, early, late));
    let _ = driver.await.unwrap();
    rig.finish_and_assert_all_segments_home().await;
}

pub(super) fn error_in(gate: &InputGate) -> ExchangeError {
    let mut batch = Vec::new();
    match gate.poll_batch(8, &mut batch, Waker::noop()) {
        Poll::Ready(Err(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_peer_that_stops_in_the_middle_of_a_frame_is_lost_and_named() {
    let header = DataHeader {
        channel: ChannelId::new(0),
        sequence: 0,
        backlog: Backlog::ZERO,
        payload_bytes: 40,
        checksum: None,
    };
    // Stop within a header, and within a payload.
    for sent in [7, 30] {
        let rig = Rig::impatient().await;
        let (mut peer, driver, gate) = rig.consumer();
        assert_eq!(peer.frame().await, 16);
        let bytes: Vec<u8> = header.encode().iter().copied().chain([7; 40]).take(sent).collect();
        peer.socket.write_all(&bytes).unwrap();
        assert!(matches!(driver.await.unwrap(), End::Silent(owed_for) if owed_for >= TIMEOUT));
        let error = error_in(&gate).to_string();
        assert!(error.contains("192.0.2.1:7 lost: silent for") && error.contains("heartbeat_timeout"), "{error}");
        assert_eq!([peer.frame().await, peer.frame().await], [32, 20], "it was asked, and told in the end");
        drop(gate);
        rig.finish_and_assert_all_segments_home().await;
    }
}

#[tokio::test]
async fn a_peer_that_gives_a_byte_now_and_then_is_lost() {
    let rig = Rig::impatient().await;
    let (mut peer, driver, gate) = rig.consumer();
    assert_eq!(peer.frame().await, 16);
    let header = DataHeader {
        channel: ChannelId::new(0),
        sequence: 0,
        backlog: Backlog::ZERO,
        payload_bytes: 900,
        checksum: None,
    };
    let mut bytes = header.encode().iter().copied().chain([7; 900]).collect::<Vec<u8>>().into_iter();
    while !driver.is_finished() {
        let byte = bytes.next().expect("it is given up before the frame is whole");
        // The last byte may be sent too late.
        let _ = peer.socket.write(&[byte]);
        tokio::time::sleep(INTERVAL / 2).await;
    }
    assert!(matches!(driver.await.unwrap(), End::Silent(_)));
    drop(gate);
    rig.finish_and_assert_all_segments_home().await;
}

#[tokio::test]
async fn a_consumer_that_answers_nothing_is_lost_and_releases_its_partition() {
    let rig = Rig::impatient().await;
    let (mut peer, driver) = rig.producer();
    let mut writer = rig.partition(1, &Inlets::new());
    peer.open(0, 1, 2);
    assert!(matches!(driver.await.unwrap(), End::Silent(_)));
    assert_eq!([peer.frame().await, peer.frame().await], [32, 4], "it was asked, and told in the end");
    writer.broadcast_event(&Event::EndOfData { drain: true }).unwrap();
    drop(writer);
    rig.finish_and_assert_all_segments_home().await;
}

#[tokio::test]
async fn idle_peers_that_answer_are_kept() {
    let rig = Rig::impatient().await;
    let (mut peer, driver, gate) = rig.consumer();
    assert_eq!(peer.frame().await, 16);
    let began = std::time::Instant::now();
    while began.elapsed() < 5 * TIMEOUT {
        assert_eq!(peer.frame().await, 32);
        peer.send(&ControlFrame::Pong { token: 0 });
    }
    assert!(!driver.is_finished());
    drop((peer, gate));
    let _ = driver.await.unwrap();
    rig.finish_and_assert_all_segments_home().await;
}
