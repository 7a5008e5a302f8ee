//! The frame decoder: any bytes are a frame, a request for more, or an error.

use flownet_core::credit::EventsRead;
use flownet_core::wire::{ControlFrame, DataHeader, DecodeResult, ErrorCode, ErrorScope, WireLimits, decode};
use flownet_core::wire::{encode_backlogs, encode_credits, encode_events_read, encode_fill_limits};
use flownet_core::{
    Backlog, Barrier, BarrierKind, ChannelId, CheckpointId, Credit, CustomEvent, Event, FillLimit, PartitionId,
    SubpartitionIndex,
};

/// Segments of the peers of all targets that speak frames.
pub(super) const SEGMENT_BYTES: u32 = 64;
pub(super) const LIMITS: WireLimits = WireLimits::for_segments(SEGMENT_BYTES);

pub(super) fn run(data: &[u8]) {
    let mut rest = data;
    while !rest.is_empty() {
        let consumed = match decode(rest, &LIMITS) {
            Ok(DecodeResult::More { needed }) => {
                assert!(needed > rest.len(), "asked for {needed} bytes, which are there");
                return;
            }
            Ok(DecodeResult::Data { header, consumed }) => {
                assert!(header.payload_bytes <= SEGMENT_BYTES);
                assert_eq!(&*header.encode(), &rest[..consumed], "a header is what it was");
                (consumed + header.payload_bytes as usize).min(rest.len())
            }
            Ok(DecodeResult::Control { frame, consumed }) => {
                check_again(&frame);
                consumed
            }
            Err(_) => return,
        };
        for cut in 0..consumed.min(24) {
            assert!(decode(&rest[..cut], &LIMITS).is_ok(), "what is there tells no error, {cut} bytes of it");
        }
        rest = &rest[consumed..];
    }
}

/// What was decoded is encoded to bytes that decode to the same.
fn check_again(frame: &ControlFrame<'_>) {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    let again = decode(&bytes, &LIMITS).expect("own frames are good");
    assert_eq!(again, DecodeResult::Control { frame: frame.clone(), consumed: bytes.len() });
}

pub(super) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mut all = Vec::new();
    let mut seeds: Vec<(&'static str, Vec<u8>)> = Vec::new();
    for (name, bytes) in frames() {
        all.extend_from_slice(&bytes);
        seeds.push((name, bytes));
    }
    seeds.push(("every-kind-in-a-row", all));
    seeds
}

/// One frame of each kind.
fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let channel = ChannelId::new(1);
    let control = |frame: ControlFrame<'_>| {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        bytes
    };
    let custom = CustomEvent::new(7, b"custom").expect("six bytes are few");
    let mut credit = Vec::new();
    encode_credits([(channel, Credit::new(2)), (ChannelId::new(2), Credit::new(1))], &mut credit);
    let mut backlog = Vec::new();
    encode_backlogs([(channel, Backlog::new(9))], &mut backlog);
    let mut fill = Vec::new();
    encode_fill_limits([(channel, FillLimit::new(300)), (ChannelId::new(2), FillLimit::NONE)], &mut fill);
    let mut events = Vec::new();
    encode_events_read([(channel, EventsRead::new(512)), (ChannelId::new(2), EventsRead::new(513))], &mut events);
    let scope = ErrorScope::Channel(channel);
    vec![
        ("data", data(channel, 0, 3, b"\x05\0\0\0hello", false)),
        ("data-checked", data(channel, 1, 0, b"\x05\0\0\0hello", true)),
        ("data-empty", data(channel, 2, 0, b"", false)),
        ("barrier", control(event(channel, 3, barrier(BarrierKind::Aligned)))),
        ("barrier-unaligned", control(event(channel, 4, barrier(BarrierKind::Unaligned)))),
        ("custom-event", control(event(channel, 5, Event::Custom(custom)))),
        ("end-of-data", control(event(channel, 6, Event::EndOfData { drain: true }))),
        ("end-of-partition", control(event(channel, 7, Event::EndOfPartition))),
        ("open", control(open(channel, 2))),
        ("credit", credit),
        ("backlog", backlog),
        ("fill", fill),
        ("events", events),
        ("resume", control(ControlFrame::Resume { channel })),
        ("cancel", control(ControlFrame::Cancel { channel })),
        ("error", control(ControlFrame::Error { scope, code: ErrorCode::ProducerFailed, message: "oops" })),
        ("ping", control(ControlFrame::Ping { token: 1 })),
        ("pong", control(ControlFrame::Pong { token: 1 })),
        ("close", control(ControlFrame::Close)),
    ]
}

pub(super) fn data(channel: ChannelId, sequence: u32, backlog: u32, payload: &[u8], is_checked: bool) -> Vec<u8> {
    let payload_bytes = u32::try_from(payload.len()).expect("a seed is short");
    let header = DataHeader { channel, sequence, backlog: Backlog::new(backlog), payload_bytes, checksum: None };
    let header = if is_checked { header.with_checksum(payload) } else { header };
    [&*header.encode(), payload].concat()
}

pub(super) fn event(channel: ChannelId, sequence: u32, event: Event) -> ControlFrame<'static> {
    ControlFrame::Event { channel, sequence, backlog: Backlog::ZERO, priority: event.is_priority(), event }
}

pub(super) fn open(channel: ChannelId, credit: u32) -> ControlFrame<'static> {
    let (partition, subpartition) = (PartitionId::new(0), SubpartitionIndex::new(channel.get() % 2));
    ControlFrame::Open { channel, partition, subpartition, initial_credit: Credit::new(credit) }
}

pub(super) fn barrier(kind: BarrierKind) -> Event {
    Event::Barrier(Barrier { checkpoint_id: CheckpointId::new(1), timestamp_ms: 0, kind })
}
