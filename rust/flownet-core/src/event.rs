//! Events: elements that travel in order between the records of a channel and cost no credit.
//!
//! An event has its own small bound, [`MAX_EVENT_BYTES`], so that free elements cannot grow without limit.
//!
//! # Encoding
//! One tag byte, then fixed little-endian fields, and no bytes after them.
//!
//! | tag | event | fields |
//! |---|---|---|
//! | 1 | watermark | timestamp_ms i64 |
//! | 2 | watermark status | idle u8 (0 or 1) |
//! | 3 | barrier | checkpoint u64, timestamp_ms i64, kind u8 (0 aligned, 1 unaligned, 2 aligned with timeout) |
//! | 4 | cancel barrier | checkpoint u64 |
//! | 5 | latency marker | timestamp_ns u64, task u32, subtask u32 |
//! | 6 | end of data | drain u8 (0 or 1) |
//! | 7 | end of partition | — |
//! | 8 | custom | kind u16, payload: the rest |
//! | 9 | round | number u64, is_quiet u8 (0 or 1) |
//!
//! The decoder is total: any bytes give an event or an [`EventError`]. A decoded event encodes to the same bytes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::CheckpointId;

/// Longest encoding of any event.
pub const MAX_EVENT_BYTES: usize = 4096;

const WATERMARK: u8 = 1;
const WATERMARK_STATUS: u8 = 2;
const BARRIER: u8 = 3;
const CANCEL_BARRIER: u8 = 4;
const LATENCY_MARKER: u8 = 5;
const END_OF_DATA: u8 = 6;
const END_OF_PARTITION: u8 = 7;
const CUSTOM: u8 = 8;
const ROUND: u8 = 9;

/// Element with a fixed place between the records of a channel, except that a priority event may overtake records.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// No record with an earlier event time follows.
    Watermark {
        /// Event time in milliseconds since the epoch.
        timestamp_ms: i64,
    },
    /// Activity of the channel: an idle channel does not delay event time.
    WatermarkStatus {
        /// True if the channel became idle, false if it is active again.
        idle: bool,
    },
    /// Cut of a checkpoint through the stream.
    Barrier(Barrier),
    /// The checkpoint is aborted: do not wait for its barriers.
    CancelBarrier {
        /// The aborted checkpoint.
        checkpoint_id: CheckpointId,
    },
    /// Measures the time that a record needs from its source to here.
    LatencyMarker {
        /// Time at which the source emitted it, nanoseconds since the epoch.
        timestamp_ns: u64,
        /// The source: its index among the tasks of the job.
        task: u32,
        /// Subtask of the source.
        subtask: u32,
    },
    /// No record follows.
    EndOfData {
        /// True if the stream has reached its own end, so that pending results are emitted; false if it was stopped.
        drain: bool,
    },
    /// The last element of a subpartition.
    EndOfPartition,
    /// Event defined by a higher layer.
    Custom(CustomEvent),
    /// Passes once through all channels of a loop, after the records that entered it before.
    Round(Round),
}

/// One lap through a loop, to detect the end of the loop.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Round {
    /// Number of the lap, from 0.
    pub number: u64,
    /// Whether no record entered the loop between this lap and the previous one, as far as the lap has got.
    pub is_quiet: bool,
}

/// A checkpoint barrier.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Barrier {
    /// Checkpoint of the barrier.
    pub checkpoint_id: CheckpointId,
    /// Time at which the checkpoint was triggered, milliseconds since the epoch.
    pub timestamp_ms: i64,
    /// How the barrier travels.
    pub kind: BarrierKind,
}

/// How a barrier travels.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum BarrierKind {
    /// In order; the channel is silent after it until the checkpoint is taken.
    Aligned,
    /// Ahead of the queued data.
    Unaligned,
    /// Aligned at first, unaligned if it takes too long.
    AlignedWithTimeout,
}

/// Event of a higher layer. Its size is within the bound of all events by construction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CustomEvent {
    kind: u16,
    payload: Arc<[u8]>,
}

impl CustomEvent {
    /// Longest payload of a custom event.
    pub const MAX_PAYLOAD_BYTES: usize = MAX_EVENT_BYTES - 3;

    /// Creates an event of this kind. Refuses a payload longer than [`Self::MAX_PAYLOAD_BYTES`].
    pub fn new(kind: u16, payload: &[u8]) -> Result<Self, EventError> {
        if payload.len() > Self::MAX_PAYLOAD_BYTES {
            return Err(EventError::TooLong { bytes: payload.len(), max_bytes: Self::MAX_PAYLOAD_BYTES });
        }
        Ok(Self { kind, payload: payload.into() })
    }

    /// Returns the kind, which the higher layer defines.
    #[must_use]
    pub fn kind(&self) -> u16 {
        self.kind
    }

    /// Returns the payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }
}

/// Error of decoding or creating an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EventError {
    /// No bytes at all.
    #[error("no bytes")]
    Empty,
    /// A tag outside the table.
    #[error("unknown event tag {0}")]
    UnknownTag(u8),
    /// A length that this event cannot have.
    #[error("event of tag {tag} cannot have {bytes} bytes")]
    Length {
        /// The event's tag byte.
        tag: u8,
        /// Number of bytes, including the tag.
        bytes: usize,
    },
    /// A field with an invalid value.
    #[error("event of tag {tag} has a field of value {value}")]
    Field {
        /// The event's tag byte.
        tag: u8,
        /// The value found.
        value: u8,
    },
    /// More bytes than an event may have.
    #[error("{bytes} bytes, limit {max_bytes}")]
    TooLong {
        /// Number of bytes.
        bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
}

impl Event {
    /// Decodes one event that fills `bytes` exactly.
    pub fn decode(bytes: &[u8]) -> Result<Self, EventError> {
        if bytes.len() > MAX_EVENT_BYTES {
            return Err(EventError::TooLong { bytes: bytes.len(), max_bytes: MAX_EVENT_BYTES });
        }
        let (&tag, body) = bytes.split_first().ok_or(EventError::Empty)?;
        let mut fields = Fields { tag, total_bytes: bytes.len(), rest: body };
        let event = match tag {
            WATERMARK => Self::Watermark { timestamp_ms: fields.i64()? },
            WATERMARK_STATUS => Self::WatermarkStatus { idle: fields.bool()? },
            BARRIER => Self::Barrier(Barrier {
                checkpoint_id: CheckpointId::new(fields.u64()?),
                timestamp_ms: fields.i64()?,
                kind: fields.barrier_kind()?,
            }),
            CANCEL_BARRIER => Self::CancelBarrier { checkpoint_id: CheckpointId::new(fields.u64()?) },
            LATENCY_MARKER => {
                Self::LatencyMarker { timestamp_ns: fields.u64()?, task: fields.u32()?, subtask: fields.u32()? }
            }
            END_OF_DATA => Self::EndOfData { drain: fields.bool()? },
            END_OF_PARTITION => Self::EndOfPartition,
            CUSTOM => Self::Custom(CustomEvent { kind: fields.u16()?, payload: fields.take_rest().into() }),
            ROUND => Self::Round(Round { number: fields.u64()?, is_quiet: fields.bool()? }),
            other => return Err(EventError::UnknownTag(other)),
        };
        fields.end()?;
        Ok(event)
    }

    /// Appends the event's bytes, at most [`MAX_EVENT_BYTES`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Watermark { timestamp_ms } => {
                out.push(WATERMARK);
                out.extend_from_slice(&timestamp_ms.to_le_bytes());
            }
            Self::WatermarkStatus { idle } => out.extend_from_slice(&[WATERMARK_STATUS, u8::from(*idle)]),
            Self::Barrier(barrier) => {
                out.push(BARRIER);
                out.extend_from_slice(&barrier.checkpoint_id.get().to_le_bytes());
                out.extend_from_slice(&barrier.timestamp_ms.to_le_bytes());
                out.push(barrier.kind.code());
            }
            Self::CancelBarrier { checkpoint_id } => {
                out.push(CANCEL_BARRIER);
                out.extend_from_slice(&checkpoint_id.get().to_le_bytes());
            }
            Self::LatencyMarker { timestamp_ns, task, subtask } => {
                out.push(LATENCY_MARKER);
                out.extend_from_slice(&timestamp_ns.to_le_bytes());
                out.extend_from_slice(&task.to_le_bytes());
                out.extend_from_slice(&subtask.to_le_bytes());
            }
            Self::EndOfData { drain } => out.extend_from_slice(&[END_OF_DATA, u8::from(*drain)]),
            Self::EndOfPartition => out.push(END_OF_PARTITION),
            Self::Custom(custom) => {
                out.push(CUSTOM);
                out.extend_from_slice(&custom.kind.to_le_bytes());
                out.extend_from_slice(&custom.payload);
            }
            Self::Round(round) => {
                out.push(ROUND);
                out.extend_from_slice(&round.number.to_le_bytes());
                out.push(u8::from(round.is_quiet));
            }
        }
    }

    /// Returns true for a barrier that silences its channel until the consumer resumes it, so that alignment needs no
    /// buffers at the receiver.
    #[must_use]
    pub fn is_blocking(&self) -> bool {
        matches!(self, Self::Barrier(Barrier { kind: BarrierKind::Aligned | BarrierKind::AlignedWithTimeout, .. }))
    }

    /// Returns true for the barrier of this late checkpoint that must now overtake queued data.
    #[must_use]
    pub fn is_late_barrier(&self, checkpoint_id: CheckpointId) -> bool {
        let Self::Barrier(barrier) = self else { return false };
        barrier.kind == BarrierKind::AlignedWithTimeout && barrier.checkpoint_id == checkpoint_id
    }

    /// Returns true for an event that is dropped if many others are queued.
    #[must_use]
    pub fn is_marker(&self) -> bool {
        matches!(self, Self::LatencyMarker { .. })
    }

    /// Returns true for an event that overtakes queued data.
    #[must_use]
    pub fn is_priority(&self) -> bool {
        matches!(self, Self::Barrier(Barrier { kind: BarrierKind::Unaligned, .. }))
    }
}

impl BarrierKind {
    const fn code(self) -> u8 {
        match self {
            Self::Aligned => 0,
            Self::Unaligned => 1,
            Self::AlignedWithTimeout => 2,
        }
    }
}

/// Reads fixed-width fields from the front. A missing or surplus byte is an error that names the event.
struct Fields<'a> {
    tag: u8,
    total_bytes: usize,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], EventError> {
        let (field, rest) = self.rest.split_first_chunk().ok_or(self.length_error())?;
        self.rest = rest;
        Ok(*field)
    }

    fn u8(&mut self) -> Result<u8, EventError> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Result<u16, EventError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, EventError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, EventError> {
        self.array().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Result<i64, EventError> {
        self.array().map(i64::from_le_bytes)
    }

    fn bool(&mut self) -> Result<bool, EventError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(EventError::Field { tag: self.tag, value }),
        }
    }

    fn barrier_kind(&mut self) -> Result<BarrierKind, EventError> {
        match self.u8()? {
            0 => Ok(BarrierKind::Aligned),
            1 => Ok(BarrierKind::Unaligned),
            2 => Ok(BarrierKind::AlignedWithTimeout),
            value => Err(EventError::Field { tag: self.tag, value }),
        }
    }

    fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    fn end(&self) -> Result<(), EventError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.length_error()) }
    }

    fn length_error(&self) -> EventError {
        EventError::Length { tag: self.tag, bytes: self.total_bytes }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_event() -> impl Strategy<Value = Event> {
        let kind = prop_oneof![
            Just(BarrierKind::Aligned),
            Just(BarrierKind::Unaligned),
            Just(BarrierKind::AlignedWithTimeout)
        ];
        prop_oneof![
            any::<i64>().prop_map(|timestamp_ms| Event::Watermark { timestamp_ms }),
            any::<(u64, bool)>().prop_map(|(number, is_quiet)| Event::Round(Round { number, is_quiet })),
            any::<bool>().prop_map(|idle| Event::WatermarkStatus { idle }),
            (any::<u64>(), any::<i64>(), kind).prop_map(|(id, timestamp_ms, kind)| Event::Barrier(Barrier {
                checkpoint_id: CheckpointId::new(id),
                timestamp_ms,
                kind
            })),
            any::<u64>().prop_map(|id| Event::CancelBarrier { checkpoint_id: CheckpointId::new(id) }),
            (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(timestamp_ns, task, subtask)| Event::LatencyMarker {
                timestamp_ns,
                task,
                subtask
            }),
            any::<bool>().prop_map(|drain| Event::EndOfData { drain }),
            Just(Event::EndOfPartition),
            (any::<u16>(), proptest::collection::vec(any::<u8>(), 0..64))
                .prop_map(|(kind, payload)| Event::Custom(CustomEvent::new(kind, &payload).unwrap())),
        ]
    }

    proptest! {
        #[test]
        fn every_event_survives_its_encoding(event in any_event()) {
            let mut bytes = Vec::new();
            event.encode(&mut bytes);
            prop_assert!(bytes.len() <= MAX_EVENT_BYTES);
            prop_assert_eq!(Event::decode(&bytes), Ok(event));
        }

        #[test]
        fn any_bytes_are_an_event_or_an_error(tag in 0u8..12, rest in proptest::collection::vec(0u8..4, 0..24)) {
            let bytes = [&[tag][..], &rest].concat();
            if let Ok(event) = Event::decode(&bytes) {
                let mut again = Vec::new();
                event.encode(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }

        #[test]
        fn an_event_cut_short_or_too_long_is_an_error(event in any_event()) {
            prop_assume!(!matches!(event, Event::Custom(_)));
            let mut bytes = Vec::new();
            event.encode(&mut bytes);
            for cut in 0..bytes.len() {
                prop_assert!(Event::decode(&bytes[..cut]).is_err());
            }
            bytes.push(0);
            let length_error = matches!(Event::decode(&bytes), Err(EventError::Length { .. }));
            prop_assert!(length_error);
        }
    }

    #[test]
    fn an_event_beyond_the_bound_is_refused_on_both_sides() {
        let longest = vec![7; CustomEvent::MAX_PAYLOAD_BYTES];
        let mut bytes = Vec::new();
        Event::Custom(CustomEvent::new(1, &longest).unwrap()).encode(&mut bytes);
        assert_eq!(bytes.len(), MAX_EVENT_BYTES);
        assert!(Event::decode(&bytes).is_ok());

        bytes.push(7);
        assert!(matches!(Event::decode(&bytes), Err(EventError::TooLong { .. })));
        assert!(matches!(CustomEvent::new(1, &bytes), Err(EventError::TooLong { .. })));
    }

    #[test]
    fn barriers_block_unless_they_overtake() {
        let barrier = |kind| Event::Barrier(Barrier { checkpoint_id: CheckpointId::new(1), timestamp_ms: 0, kind });
        for kind in [BarrierKind::Aligned, BarrierKind::AlignedWithTimeout] {
            assert!(barrier(kind).is_blocking() && !barrier(kind).is_priority());
        }
        let unaligned = barrier(BarrierKind::Unaligned);
        assert!(unaligned.is_priority() && !unaligned.is_blocking());
        assert!(!Event::EndOfPartition.is_blocking() && !Event::EndOfPartition.is_priority());
    }

    #[test]
    fn a_custom_event_has_what_it_was_made_of() {
        let event = CustomEvent::new(5, b"ab").unwrap();
        assert_eq!((event.kind(), event.payload()), (5, &b"ab"[..]));
    }
}
