//! Frames survive the wire, however they are cut; invalid bytes do not.

use proptest::collection::vec;
use proptest::prelude::*;

use super::frame::{
    CHECKED_DATA_HEADER_BYTES, DATA_HEADER_BYTES, HEADER_BYTES, MAX_CONTROL_BYTES, MAX_ERROR_MESSAGE_BYTES,
};
use super::*;
use crate::credit::{Backlog, Credit, EventsRead};
use crate::debloat::FillLimit;
use crate::error::{PeerViolation, WireError};
use crate::event::{CustomEvent, Event, EventError, MAX_EVENT_BYTES};
use crate::ids::{ChannelId, PartitionId, SubpartitionIndex};

const LIMITS: WireLimits = WireLimits::for_segments(1024);

/// A frame with owned data, to compare a stream of frames with the sent ones.
#[derive(Clone, Debug, PartialEq)]
enum SentFrame {
    Data { channel: u32, sequence: u32, backlog: u32, payload: Vec<u8>, checked: bool },
    Event { channel: u32, sequence: u32, backlog: u32, priority: bool, event: Event },
    Backlogs(Vec<(u32, u32)>),
    Credits(Vec<(u32, u32)>),
    FillLimits(Vec<(u32, u32)>),
    EventsRead(Vec<(u32, u32)>),
    Error { channel: Option<u32>, code: u16, message: String },
    Open { channel: u32, partition: u64, subpartition: u32, credit: u32 },
    Resume(u32),
    Cancel(u32),
    Close,
    Ping(u64),
    Pong(u64),
}

impl SentFrame {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Data { channel, sequence, backlog, payload, checked } => {
                let header = data_header(*channel, *sequence, *backlog, payload.len() as u32);
                let header = if *checked { header.with_checksum(payload) } else { header };
                out.extend_from_slice(&header.encode());
                out.extend_from_slice(payload);
            }
            Self::Backlogs(pairs) => {
                encode_backlogs(pairs.iter().map(|&(c, n)| (ChannelId::new(c), Backlog::new(n))), out);
            }
            Self::Credits(pairs) => {
                encode_credits(pairs.iter().map(|&(c, n)| (ChannelId::new(c), Credit::new(n))), out);
            }
            Self::FillLimits(pairs) => {
                encode_fill_limits(pairs.iter().map(|&(c, n)| (ChannelId::new(c), FillLimit::new(n))), out);
            }
            Self::EventsRead(pairs) => {
                encode_events_read(pairs.iter().map(|&(c, n)| (ChannelId::new(c), EventsRead::new(n))), out);
            }
            other => other.as_control().encode(out),
        }
    }

    fn as_control(&self) -> ControlFrame<'_> {
        match self {
            Self::Event { channel, sequence, backlog, priority, event } => ControlFrame::Event {
                channel: ChannelId::new(*channel),
                sequence: *sequence,
                backlog: Backlog::new(*backlog),
                priority: *priority,
                event: event.clone(),
            },
            Self::Error { channel, code, message } => ControlFrame::Error {
                scope: channel.map_or(ErrorScope::Connection, |c| ErrorScope::Channel(ChannelId::new(c))),
                code: ErrorCode::from_number(*code),
                message,
            },
            Self::Open { channel, partition, subpartition, credit } => ControlFrame::Open {
                channel: ChannelId::new(*channel),
                partition: PartitionId::new(*partition),
                subpartition: SubpartitionIndex::new(*subpartition),
                initial_credit: Credit::new(*credit),
            },
            Self::Resume(channel) => ControlFrame::Resume { channel: ChannelId::new(*channel) },
            Self::Cancel(channel) => ControlFrame::Cancel { channel: ChannelId::new(*channel) },
            Self::Close => ControlFrame::Close,
            Self::Ping(token) => ControlFrame::Ping { token: *token },
            Self::Pong(token) => ControlFrame::Pong { token: *token },
            Self::Data { .. } | Self::Backlogs(_) | Self::Credits(_) | Self::FillLimits(_) | Self::EventsRead(_) => {
                panic!("encoded by functions of their own")
            }
        }
    }

    fn from_control(frame: ControlFrame<'_>) -> Self {
        match frame {
            ControlFrame::Event { channel, sequence, backlog, priority, event } => {
                Self::Event { channel: channel.get(), sequence, backlog: backlog.get(), priority, event }
            }
            ControlFrame::Backlog(pairs) => Self::Backlogs(pairs.map(|(c, n)| (c.get(), n.get())).collect()),
            ControlFrame::Credit(pairs) => Self::Credits(pairs.map(|(c, n)| (c.get(), n.get())).collect()),
            ControlFrame::Fill(pairs) => Self::FillLimits(pairs.map(|(c, n)| (c.get(), n.get())).collect()),
            ControlFrame::Events(pairs) => Self::EventsRead(pairs.map(|(c, n)| (c.get(), n.get())).collect()),
            ControlFrame::Error { scope, code, message } => {
                let channel = match scope {
                    ErrorScope::Channel(channel) => Some(channel.get()),
                    ErrorScope::Connection => None,
                };
                Self::Error { channel, code: code.get(), message: message.to_owned() }
            }
            ControlFrame::Open { channel, partition, subpartition, initial_credit } => Self::Open {
                channel: channel.get(),
                partition: partition.get(),
                subpartition: subpartition.get(),
                credit: initial_credit.get(),
            },
            ControlFrame::Resume { channel } => Self::Resume(channel.get()),
            ControlFrame::Cancel { channel } => Self::Cancel(channel.get()),
            ControlFrame::Close => Self::Close,
            ControlFrame::Ping { token } => Self::Ping(token),
            ControlFrame::Pong { token } => Self::Pong(token),
        }
    }
}

fn data_header(channel: u32, sequence: u32, backlog: u32, payload_bytes: u32) -> DataHeader {
    DataHeader {
        channel: ChannelId::new(channel),
        sequence,
        backlog: Backlog::new(backlog),
        payload_bytes,
        checksum: None,
    }
}

fn any_sent() -> impl Strategy<Value = SentFrame> {
    let element = (any::<u32>(), any::<u32>(), any::<u32>(), any::<bool>());
    prop_oneof![
        (element, vec(any::<u8>(), 0..60)).prop_map(|((channel, sequence, backlog, checked), payload)| {
            SentFrame::Data { channel, sequence, backlog, payload, checked }
        }),
        (element, any::<i64>()).prop_map(|((channel, sequence, backlog, priority), timestamp_ms)| {
            SentFrame::Event { channel, sequence, backlog, priority, event: Event::Watermark { timestamp_ms } }
        }),
        vec(any::<(u32, u32)>(), 1..5).prop_map(SentFrame::Backlogs),
        vec(any::<(u32, u32)>(), 1..5).prop_map(SentFrame::Credits),
        vec(any::<(u32, u32)>(), 1..5).prop_map(SentFrame::FillLimits),
        vec(any::<(u32, u32)>(), 1..5).prop_map(SentFrame::EventsRead),
        (any::<Option<u32>>(), 0u16..10, "\\PC{0,12}").prop_map(|(channel, code, message)| SentFrame::Error {
            channel,
            code,
            message
        }),
        any::<(u32, u64, u32, u32)>().prop_map(|(channel, partition, subpartition, credit)| SentFrame::Open {
            channel,
            partition,
            subpartition,
            credit
        }),
        any::<u32>().prop_map(SentFrame::Resume),
        any::<u32>().prop_map(SentFrame::Cancel),
        Just(SentFrame::Close),
        any::<u64>().prop_map(SentFrame::Ping),
        any::<u64>().prop_map(SentFrame::Pong),
    ]
}

/// Decodes as a driver does: bytes arrive in pieces, and a payload is taken when its header is known.
#[derive(Default)]
struct Receiver {
    staged: Vec<u8>,
    payload_of: Option<DataHeader>,
    frames: Vec<SentFrame>,
}

impl Receiver {
    fn receive(&mut self, piece: &[u8]) -> Result<(), WireError> {
        self.staged.extend_from_slice(piece);
        loop {
            let consumed = match self.payload_of {
                Some(header) => {
                    let payload_bytes = header.payload_bytes as usize;
                    if self.staged.len() < payload_bytes {
                        return Ok(());
                    }
                    let payload = self.staged[..payload_bytes].to_vec();
                    assert_eq!(header.verify(&payload), Ok(()));
                    self.payload_of = None;
                    self.frames.push(SentFrame::Data {
                        channel: header.channel.get(),
                        sequence: header.sequence,
                        backlog: header.backlog.get(),
                        payload,
                        checked: header.checksum.is_some(),
                    });
                    payload_bytes
                }
                None => match decode(&self.staged, &LIMITS)? {
                    DecodeResult::More { needed } => {
                        assert!(needed > self.staged.len(), "asks for more than it was given");
                        return Ok(());
                    }
                    DecodeResult::Data { header, consumed } => {
                        self.payload_of = Some(header);
                        consumed
                    }
                    DecodeResult::Control { frame, consumed } => {
                        self.frames.push(SentFrame::from_control(frame));
                        consumed
                    }
                },
            };
            self.staged.drain(..consumed);
        }
    }
}

proptest! {
    #[test]
    fn any_cut_of_a_stream_decodes_the_same(sent in vec(any_sent(), 1..8), cuts in vec(1usize..40, 1..20)) {
        let mut stream = Vec::new();
        sent.iter().for_each(|frame| frame.encode(&mut stream));

        let mut receiver = Receiver::default();
        let mut rest = &stream[..];
        for cut in cuts.iter().cycle() {
            let (piece, tail) = rest.split_at((*cut).min(rest.len()));
            receiver.receive(piece).unwrap();
            rest = tail;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(&receiver.frames, &sent);
        prop_assert!(receiver.staged.is_empty());
    }

    #[test]
    fn every_single_cut_of_a_stream_decodes_the_same(sent in vec(any_sent(), 1..4)) {
        let mut stream = Vec::new();
        sent.iter().for_each(|frame| frame.encode(&mut stream));
        for cut in 0..=stream.len() {
            let mut receiver = Receiver::default();
            receiver.receive(&stream[..cut]).unwrap();
            receiver.receive(&stream[cut..]).unwrap();
            prop_assert_eq!(&receiver.frames, &sent);
        }
    }

    #[test]
    fn any_bytes_are_a_frame_or_a_request_or_an_error(bytes in vec(any::<u8>(), 0..80)) {
        check_total(&bytes);
    }

    #[test]
    fn bytes_that_begin_like_a_frame_are_too(
        kind in prop_oneof![0u8..5, 16u8..22, 31u8..35],
        flags in prop_oneof![9 => 0u8..4, 1 => any::<u8>()],
        body_bytes in prop_oneof![9 => 0u32..48, 1 => any::<u32>()],
        body in vec(prop_oneof![0u8..4, any::<u8>()], 0..64),
    ) {
        let mut bytes = vec![kind, flags, 0, 0];
        bytes.extend_from_slice(&body_bytes.to_le_bytes());
        bytes.extend_from_slice(&body);
        check_total(&bytes);
    }

    #[test]
    fn a_flipped_bit_anywhere_breaks_the_checksum_or_the_frame(
        payload in vec(any::<u8>(), 0..40),
        position in any::<proptest::sample::Index>(),
        bit in 0u8..8,
    ) {
        let mut bytes = data_header(3, 9, 2, payload.len() as u32).with_checksum(&payload).encode().to_vec();
        bytes.extend_from_slice(&payload);
        bytes[position.index(CHECKED_DATA_HEADER_BYTES + payload.len())] ^= 1 << bit;

        // A flipped length or flag shows as an incomplete payload, or as a different header.
        if let Ok(DecodeResult::Data { header, consumed }) = decode(&bytes, &LIMITS)
            && header.checksum.is_some()
            && let Some(payload) = bytes.get(consumed..consumed + header.payload_bytes as usize)
        {
            let broken = matches!(header.verify(payload), Err(PeerViolation::Checksum { .. }));
            prop_assert!(broken);
        }
    }
}

fn check_total(bytes: &[u8]) {
    match decode(bytes, &LIMITS) {
        Ok(DecodeResult::More { needed }) => {
            let longest = HEADER_BYTES + LIMITS.max_control_bytes as usize;
            assert!(needed > bytes.len() && needed <= longest, "a request stays within the limits");
        }
        Ok(DecodeResult::Data { header, consumed }) => {
            assert!(header.payload_bytes <= LIMITS.max_payload_bytes);
            assert_eq!(&*header.encode(), &bytes[..consumed]);
        }
        Ok(DecodeResult::Control { frame, consumed }) => {
            let mut again = Vec::new();
            frame.encode(&mut again);
            assert_eq!(again, bytes[..consumed]);
        }
        Err(_) => {}
    }
}

fn header_of(kind: FrameKind, flags: u8, body_bytes: u32) -> Vec<u8> {
    let mut bytes = vec![kind.code(), flags, 0, 0];
    bytes.extend_from_slice(&body_bytes.to_le_bytes());
    bytes
}

#[test]
fn a_giant_length_is_refused_by_its_header_alone() {
    let codes = 0..=u8::MAX;
    for kind in codes.filter_map(FrameKind::from_code) {
        for body_bytes in [LIMITS.max_control_bytes + 1, 1 << 31, u32::MAX] {
            let header = header_of(kind, 0, body_bytes);
            let refused = decode(&header, &LIMITS);
            assert!(matches!(refused, Err(WireError::TooLong { bytes, .. }) if bytes == body_bytes), "{kind:?}");
        }
    }
}

#[test]
fn an_event_or_error_longer_than_any_is_refused_by_its_header_alone_whatever_other_frames_may_be() {
    let limits = WireLimits { max_control_bytes: u32::MAX, ..LIMITS };
    for (kind, longest) in [(FrameKind::Event, 12 + MAX_EVENT_BYTES), (FrameKind::Error, 8 + MAX_ERROR_MESSAGE_BYTES)] {
        let longest = longest as u32;
        assert!(matches!(decode(&header_of(kind, 0, longest), &limits), Ok(DecodeResult::More { .. })), "{kind:?}");
        let header = header_of(kind, 0, longest + 1);
        let refused = decode(&header, &limits);
        assert!(matches!(refused, Err(WireError::TooLong { max_bytes, .. }) if max_bytes == longest), "{refused:?}");
    }
}

#[test]
fn a_payload_may_fill_a_segment_but_not_more() {
    let full = data_header(1, 0, 0, LIMITS.max_payload_bytes);
    for header in [full, full.with_checksum(&[0; 1024])] {
        assert!(matches!(decode(&header.encode(), &LIMITS), Ok(DecodeResult::Data { .. })));
    }
    let over = data_header(1, 0, 0, LIMITS.max_payload_bytes + 1);
    assert!(matches!(decode(&over.encode(), &LIMITS), Err(WireError::TooLong { max_bytes: 1036, .. })));
    assert!(matches!(
        decode(&header_of(FrameKind::Data, 0, u32::MAX), &WireLimits { max_payload_bytes: u32::MAX, ..LIMITS }),
        Ok(DecodeResult::More { needed: DATA_HEADER_BYTES })
    ));
}

#[test]
fn an_empty_payload_is_a_frame() {
    let header = data_header(1, 7, 0, 0);
    assert_eq!(decode(&header.encode(), &LIMITS), Ok(DecodeResult::Data { header, consumed: DATA_HEADER_BYTES }));
}

#[test]
fn kinds_flags_and_reserved_bytes_outside_the_table_are_errors() {
    assert_eq!(decode(&[5, 0, 0, 0, 0, 0, 0, 0], &LIMITS), Err(WireError::UnknownKind(5)));
    assert_eq!(
        decode(&header_of(FrameKind::Close, 1, 0), &LIMITS),
        Err(WireError::UnknownFlags { kind: 20, flags: 1 })
    );
    assert_eq!(decode(&[20, 0, 0, 1, 0, 0, 0, 0], &LIMITS), Err(WireError::Reserved(0x100)));
}

#[test]
fn bodies_that_no_frame_of_the_kind_can_have_are_errors() {
    for (kind, body_bytes) in [
        (FrameKind::Data, 11),
        (FrameKind::Event, 12),
        (FrameKind::Backlog, 0),
        (FrameKind::Credit, 12),
        (FrameKind::Error, 7),
        (FrameKind::Open, 19),
        (FrameKind::Resume, 3),
        (FrameKind::Ping, 7),
    ] {
        let header = header_of(kind, 0, body_bytes);
        let refused = decode(&header, &LIMITS);
        assert_eq!(refused, Err(WireError::BodyLength { kind: kind.code(), bytes: body_bytes }));
    }
}

#[test]
fn bad_events_scopes_and_texts_are_errors() {
    let mut event = header_of(FrameKind::Event, 0, 13);
    event.extend_from_slice(&[0; 12]);
    event.push(99);
    assert_eq!(decode(&event, &LIMITS), Err(WireError::Event(EventError::UnknownTag(99))));

    let error = |body: &[u8]| [header_of(FrameKind::Error, 0, body.len() as u32), body.to_vec()].concat();
    assert_eq!(decode(&error(&[2, 0, 1, 0, 0, 0, 0, 0]), &LIMITS), Err(WireError::UnknownScope(2)));
    assert_eq!(decode(&error(&[1, 0, 1, 0, 5, 0, 0, 0]), &LIMITS), Err(WireError::UnknownScope(1)));
    assert_eq!(decode(&error(&[0, 0, 1, 0, 5, 0, 0, 0, 0xff]), &LIMITS), Err(WireError::NotUtf8));
}

#[test]
fn the_longest_event_fits_its_frame() {
    let event = Event::Custom(CustomEvent::new(1, &[1; CustomEvent::MAX_PAYLOAD_BYTES]).unwrap());
    let sent = SentFrame::Event { channel: 1, sequence: 2, backlog: 3, priority: false, event };
    let mut bytes = Vec::new();
    sent.encode(&mut bytes);
    assert_eq!(bytes.len(), HEADER_BYTES + 12 + MAX_EVENT_BYTES);
    let mut receiver = Receiver::default();
    receiver.receive(&bytes).unwrap();
    assert_eq!(receiver.frames, [sent]);
}

#[test]
fn a_long_error_message_is_cut_between_characters() {
    let message = "ä".repeat(MAX_ERROR_MESSAGE_BYTES);
    let mut bytes = Vec::new();
    SentFrame::Error { channel: Some(1), code: 4, message: format!("x{message}") }.encode(&mut bytes);
    let mut receiver = Receiver::default();
    receiver.receive(&bytes).unwrap();
    let [SentFrame::Error { message: received, .. }] = &receiver.frames[..] else { panic!("one error frame expected") };
    assert_eq!(received.len(), MAX_ERROR_MESSAGE_BYTES - 1);
}

#[test]
fn many_credits_go_into_few_frames_and_none_into_none() {
    let pairs: Vec<(u32, u32)> = (0..2_500).map(|n| (n, n + 1)).collect();
    let mut bytes = Vec::new();
    SentFrame::Credits(pairs.clone()).encode(&mut bytes);
    let mut receiver = Receiver::default();
    receiver.receive(&bytes).unwrap();
    assert_eq!(receiver.frames.len(), pairs.len().div_ceil(MAX_CONTROL_BYTES as usize / 8));
    let received: Vec<(u32, u32)> = receiver
        .frames
        .into_iter()
        .flat_map(|frame| match frame {
            SentFrame::Credits(pairs) => pairs,
            other => panic!("credits expected, got {other:?}"),
        })
        .collect();
    assert_eq!(received, pairs);

    let mut nothing = Vec::new();
    encode_credits([], &mut nothing);
    assert!(nothing.is_empty());
}

#[test]
fn a_frame_of_pairs_says_how_many_there_are() {
    let mut bytes = Vec::new();
    encode_credits((1..=3).map(|id| (ChannelId::new(id), Credit::new(id))), &mut bytes);
    let Ok(DecodeResult::Control { frame: ControlFrame::Credit(mut pairs), .. }) = decode(&bytes, &LIMITS) else {
        panic!()
    };
    assert_eq!((pairs.len(), pairs.next().is_some(), pairs.len()), (3, true, 2));
}
