//! Tests that a connection serves its channels in adverse conditions: large payloads cut anywhere, a socket that
//! accepts nothing, a partition that never appears, a protocol violation.

use std::cell::Cell;
use std::time::Duration;

use flownet_core::wire::frame::FrameKind;
use flownet_core::wire::{ControlFrame, DataHeader, DecodeResult, WireLimits, decode};
use flownet_core::{Backlog, ChannelId, Credit, Event, ExchangeError, PartitionId, PeerViolation};
use flownet_core::{SubpartitionIndex, Target};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::rig::{PARTITION, Rig, numbered};

/// Segment size of the product.
const SEGMENT_BYTES: usize = 32 * flownet_memory::KIB;
const LIMITS: WireLimits = WireLimits::for_segments(SEGMENT_BYTES as u32);
/// Length of an OPEN frame.
const OPEN_BYTES: usize = 28;

/// Returns records that fill whole segments, cross them, or leave a few bytes in one.
fn large_and_small() -> Vec<Vec<u8>> {
    let lengths = [0, 5, 32_764, 1, 100_000, 8_188, 8_187, 3, 40_000, 65_532, 70, 9_000, 32_768];
    (0..).zip(lengths).map(|(number, len)| (0..len).map(|at| (at / 7 + at + number) as u8).collect()).collect()
}

/// Returns the encoded bytes of these records, including length prefixes.
pub(super) fn stream_of(records: &[Vec<u8>]) -> Vec<u8> {
    records.iter().flat_map(|record| [&(record.len() as u32).to_le_bytes()[..], record].concat()).collect()
}

/// Returns a generator of pseudo-random numbers.
fn noise(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |bound| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) as usize % bound
    }
}

#[tokio::test(start_paused = true)]
async fn segments_of_full_size_arrive_through_pipes_of_every_width() {
    for pipe_bytes in [500, 8_191, 8_192, 8_193, 8_212, 32_767, 32_768, 32_788, 32_852, 1 << 20] {
        let rig = Rig::with_segments(pipe_bytes, SEGMENT_BYTES).await;
        let writer = rig.writer(1);
        let reader = rig.open(0);
        let records = large_and_small();
        let (received, ()) = rig.drive(async { tokio::join!(reader.read_all(), writer.emit_all(&records)) }).await;
        assert!(received.unwrap() == records, "pipe of {pipe_bytes} bytes");
        rig.finish_and_assert_all_segments_home().await;
    }
}

fn data(channel: u32, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let header = DataHeader {
        channel: ChannelId::new(channel),
        sequence,
        backlog: Backlog::new(1),
        payload_bytes: payload.len() as u32,
        checksum: None,
    };
    [&header.encode()[..], payload].concat()
}

fn end(channel: u32, sequence: u32) -> Vec<u8> {
    let (channel, event) = (ChannelId::new(channel), Event::EndOfPartition);
    let mut bytes = Vec::new();
    ControlFrame::Event { channel, sequence, backlog: Backlog::ZERO, priority: false, event }.encode(&mut bytes);
    bytes
}

/// Encodes the frames of a producer: these records on channel 0, in payloads of all sizes. Payloads on channel 1, which
/// was cancelled, come in between.
fn frames_of(records: &[Vec<u8>], below: &mut impl FnMut(usize) -> usize) -> Vec<Vec<u8>> {
    let (mut frames, mut wanted, mut unwanted) = (Vec::new(), 0, 0);
    let stream = stream_of(records);
    let mut rest = &stream[..];
    while !rest.is_empty() {
        let most = [200, 8_192, SEGMENT_BYTES][below(3)].min(rest.len());
        let (payload, behind) = rest.split_at(if below(4) == 0 { most } else { 1 + below(most) });
        frames.push(data(0, wanted, payload));
        (rest, wanted) = (behind, wanted + 1);
        if below(3) == 0 {
            frames.push(data(1, unwanted, &vec![0xdd; below(SEGMENT_BYTES)]));
            unwanted += 1;
        }
    }
    frames.push(end(0, wanted));
    frames
}

/// Credit of channel 0.
struct Credits {
    left: u32,
    unread: Vec<u8>,
}

impl Credits {
    async fn spend_one(&mut self, consumer: &mut (impl AsyncRead + Unpin)) {
        while self.left == 0 {
            consumer.read_buf(&mut self.unread).await.unwrap();
            while let DecodeResult::Control { frame, consumed } = decode(&self.unread, &LIMITS).unwrap() {
                if let ControlFrame::Credit(credits) = frame {
                    let wanted = credits.filter(|(channel, _)| channel.get() == 0);
                    self.left += wanted.map(|(_, credit)| credit.get()).sum::<u32>();
                }
                self.unread.drain(..consumed);
            }
        }
        self.left -= 1;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_cut_anywhere_means_the_same_to_the_driver() {
    let records = large_and_small();
    for seed in 0..30 {
        let mut below = noise(seed);
        let mut rig = Rig::with_segments(64, SEGMENT_BYTES).await;
        let mut producer = rig.take_raw_producer_end();
        let reader = rig.open(0);
        let unwanted = rig.open(1);
        let received = rig
            .drive(async {
                producer.read_exact(&mut [0; 2 * OPEN_BYTES]).await.unwrap();
                drop(unwanted);
                let frames = frames_of(&records, &mut below);
                let (mut from_consumer, mut to_consumer) = tokio::io::split(producer);
                let send = async {
                    let mut credits = Credits { left: 2, unread: Vec::new() };
                    for frame in frames {
                        let [kind, .., channel] = frame[..9] else { unreachable!("no frame is as short") };
                        if (kind, channel) == (FrameKind::Data.code(), 0) {
                            credits.spend_one(&mut from_consumer).await;
                        }
                        let mut rest = &frame[..];
                        while !rest.is_empty() {
                            let longest = [3, 100, 50_000][below(3)].min(rest.len());
                            let piece = 1 + below(longest);
                            to_consumer.write_all(&rest[..piece]).await.unwrap();
                            rest = &rest[piece..];
                            // Wait until the driver has read it: the next read then begins where this piece ends.
                            if below(2) == 0 {
                                tokio::time::sleep(Duration::from_millis(1)).await;
                            }
                        }
                    }
                };
                tokio::join!(reader.read_all(), send).0
            })
            .await;
        assert!(received.unwrap() == records, "seed {seed}");
        rig.finish_and_assert_all_segments_home().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_socket_that_takes_nothing_is_given_nothing_more_until_it_does() {
    let mut rig = Rig::new(256).await;
    let mut consumer = rig.take_raw_consumer_end();
    let mut writer = rig.writer(1);
    let (records, emitted) = (numbered(40_000), Cell::new(0));
    rig.drive(async {
        let mut open = Vec::new();
        let frame = ControlFrame::Open {
            channel: ChannelId::new(0),
            partition: PartitionId::new(PARTITION),
            subpartition: SubpartitionIndex::new(0),
            initial_credit: Credit::new(1_000_000),
        };
        frame.encode(&mut open);
        consumer.write_all(&open).await.unwrap();
        let write = async {
            for record in &records {
                writer.emit(Target::Any, record).await;
                emitted.set(emitted.get() + 1);
            }
            writer.finish();
        };
        let read = async {
            // Time is paused: it advances only when no task can run.
            tokio::time::sleep(Duration::from_secs(1)).await;
            let stuck = emitted.get();
            let bytes = stream_of(&records[..stuck]).len();
            assert!(bytes < 600 * flownet_memory::KIB, "{bytes} bytes were taken for a socket that has room for 256");
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(emitted.get(), stuck, "nothing more is taken before the socket takes some");
            read_to_end_of_partition(&mut consumer).await
        };
        assert!(tokio::join!(write, read).1 == stream_of(&records));
    })
    .await;
    drop((writer, consumer));
    rig.drive_to_end().await;
    rig.finish_and_assert_all_segments_home().await;
}

/// Reads the payloads of channel 0.
pub(super) async fn read_to_end_of_partition(producer: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let (mut payloads, mut unread) = (Vec::new(), Vec::new());
    loop {
        let (consumed, payload_bytes) = match decode(&unread, &LIMITS).unwrap() {
            DecodeResult::Control { frame: ControlFrame::Event { event: Event::EndOfPartition, .. }, .. } => {
                return payloads;
            }
            DecodeResult::Control { consumed, .. } => (consumed, 0),
            DecodeResult::Data { header, consumed } => (consumed, header.payload_bytes as usize),
            DecodeResult::More { .. } => {
                assert_ne!(producer.read_buf(&mut unread).await.unwrap(), 0, "the connection has ended");
                continue;
            }
        };
        while unread.len() < consumed + payload_bytes {
            producer.read_buf(&mut unread).await.unwrap();
        }
        payloads.extend(unread.drain(..consumed + payload_bytes).skip(consumed));
    }
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_does_not_come_holds_up_nobody_else() {
    let rig = Rig::new(4096).await;
    let missing = rig.open_partition(PARTITION + 1, 0);
    let (first, second) = (rig.open(0), rig.open(1));
    let mut writer = rig.writer(2);
    let records = numbered(500);
    let before = tokio::time::Instant::now();
    rig.drive(async {
        let write = async {
            for record in &records {
                writer.emit(Target::Subpartition(0), record).await;
                writer.emit(Target::Subpartition(1), record).await;
            }
            writer.finish();
        };
        let (first, second, ()) = tokio::join!(first.read_all(), second.read_all(), write);
        assert_eq!((first.unwrap(), second.unwrap()), (records.clone(), records.clone()));
        assert!(before.elapsed() < Duration::from_secs(1), "while the third was waited for");
        let error = missing.read_all().await.unwrap_err();
        assert!(matches!(error, ExchangeError::PartitionNotFound { .. }), "{error}");
        assert!(before.elapsed() >= Duration::from_secs(10));
    })
    .await;
    drop(writer);
    rig.finish_and_assert_all_segments_home().await;
}

#[tokio::test(start_paused = true)]
async fn a_fault_of_one_channel_spares_the_others_and_a_fault_of_the_stream_spares_none() {
    let mut rig = Rig::new(4096).await;
    let mut producer = rig.take_raw_producer_end();
    let (wrong, right) = (rig.open(0), rig.open(1));
    let others = [rig.open(2), rig.open(3)];
    rig.drive(async {
        producer.read_exact(&mut [0; 4 * OPEN_BYTES]).await.unwrap();
        let records = [b"right".to_vec()];
        let frames = [data(0, 5, b"wrong"), data(1, 0, &stream_of(&records)), end(1, 1)];
        producer.write_all(&frames.concat()).await.unwrap();
        let error = wrong.read_all().await.unwrap_err();
        let expected = PeerViolation::Reordered { expected: 0, got: 5 };
        assert!(
            matches!(error, ExchangeError::ProtocolViolation { violation, .. } if violation == expected),
            "{error}"
        );
        assert_eq!(right.read_all().await.unwrap(), records);

        producer.write_all(&[0xff; 100]).await.unwrap();
        for other in others {
            let error = other.read_all().await.unwrap_err();
            assert!(matches!(error, ExchangeError::ConnectionLost { .. }), "{error}");
            assert!(
                error.to_string().contains("unknown frame kind") && error.to_string().contains(rig.peer()),
                "{error}"
            );
        }
    })
    .await;
    rig.finish_and_assert_all_segments_home().await;
}
