//! The wire codec.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use flownet_benches::SEGMENT_BYTES;
use flownet_core::wire::{ControlFrame, DataHeader, DecodeResult, WireLimits, decode, encode_credits};
use flownet_core::{Backlog, ChannelId, Credit, Event};

/// The header of a data frame, without and with a checksum over its payload.
pub(crate) fn headers(c: &mut Criterion) {
    let header = DataHeader {
        channel: ChannelId::new(3),
        sequence: 4,
        backlog: Backlog::new(5),
        payload_bytes: SEGMENT_BYTES as u32,
        checksum: None,
    };
    let mut group = c.benchmark_group("wire");
    group.throughput(Throughput::Elements(1));
    group.bench_function("data_header/encode_decode", |b| {
        b.iter(|| {
            let bytes = black_box(header).encode();
            matches!(decode(&bytes, &LIMITS), Ok(DecodeResult::Data { .. }))
        });
    });
    let payload = vec![7; SEGMENT_BYTES];
    group.throughput(Throughput::Bytes(SEGMENT_BYTES as u64));
    group.bench_function(format!("checksum/payload_bytes={SEGMENT_BYTES}"), |b| {
        b.iter(|| black_box(header).with_checksum(black_box(&payload)).checksum);
    });
    group.finish();
}

/// Frames of credit for many channels, and events.
pub(crate) fn control(c: &mut Criterion) {
    let mut group = c.benchmark_group("wire");
    let mut bytes = Vec::new();
    for channels in [1, 64, 1000] {
        let credits: Vec<_> = (0..channels).map(|channel| (ChannelId::new(channel), Credit::new(1))).collect();
        group.throughput(Throughput::Elements(channels.into()));
        group.bench_function(format!("credit/encode_decode/channels={channels}"), |b| {
            b.iter(|| {
                bytes.clear();
                encode_credits(credits.iter().copied(), &mut bytes);
                match decode(&bytes, &LIMITS) {
                    Ok(DecodeResult::Control { frame: ControlFrame::Credit(pairs), .. }) => {
                        pairs.map(|(_, credit)| credit.get()).sum()
                    }
                    _ => 0,
                }
            });
        });
    }
    group.throughput(Throughput::Elements(1));
    group.bench_function("event/encode_decode", |b| {
        b.iter(|| {
            bytes.clear();
            let event = Event::Watermark { timestamp_ms: black_box(1_700_000_000_000) };
            let (channel, backlog) = (ChannelId::new(3), Backlog::ZERO);
            ControlFrame::Event { channel, sequence: 4, backlog, priority: false, event }.encode(&mut bytes);
            matches!(decode(&bytes, &LIMITS), Ok(DecodeResult::Control { .. }))
        });
    });
    group.finish();
}

const LIMITS: WireLimits = WireLimits::for_segments(SEGMENT_BYTES as u32);
