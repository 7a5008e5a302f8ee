//! Decodes and encodes frames. The layout is in [`frame`](super::frame).

use super::frame::{
    CHECKED_DATA_HEADER_BYTES, ControlFrame, DATA_HEADER_BYTES, DataHeader, ELEMENT_BYTES, ErrorCode, ErrorScope,
    FLAG_CRC32C, FLAG_PRIORITY, FrameHeader, FrameKind, HEADER_BYTES, MAX_CONTROL_BYTES, MAX_ERROR_MESSAGE_BYTES,
    PAIR_BYTES, PairCount, Pairs, WireLimits,
};
use crate::credit::{Backlog, Credit, EventsRead};
use crate::debloat::FillLimit;
use crate::error::WireError;
use crate::event::{Event, MAX_EVENT_BYTES};
use crate::ids::{ChannelId, PartitionId, SubpartitionIndex};
use crate::text::cut_at_character;

/// Most pairs of one frame; further ones go into another frame.
const MAX_PAIRS: usize = MAX_CONTROL_BYTES as usize / PAIR_BYTES;

/// Bytes of an ERROR body before its message.
const ERROR_BYTES: usize = 8;

/// Result of decoding the front of a byte slice.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DecodeResult<'a> {
    /// At least this many bytes are needed to decode anything.
    More {
        /// Number of bytes needed, counted from the front of the slice.
        needed: usize,
    },
    /// The header of a DATA frame. Its payload begins at `consumed` and may not have arrived yet.
    Data {
        /// The header.
        header: DataHeader,
        /// Bytes before the payload.
        consumed: usize,
    },
    /// A whole frame of any other kind.
    Control {
        /// The frame.
        frame: ControlFrame<'a>,
        /// Bytes of the frame, including its header.
        consumed: usize,
    },
}

/// Decodes the frame at the front of `bytes`. An error ends the connection, because the next frame cannot be found.
pub fn decode<'a>(bytes: &'a [u8], limits: &WireLimits) -> Result<DecodeResult<'a>, WireError> {
    let Some(header) = decode_header(bytes, limits)? else {
        return Ok(DecodeResult::More { needed: HEADER_BYTES });
    };
    if header.kind == FrameKind::Data {
        return decode_data(header, bytes);
    }
    let consumed = HEADER_BYTES + header.body_bytes as usize;
    match bytes.get(HEADER_BYTES..consumed) {
        Some(body) => Ok(DecodeResult::Control { frame: decode_control(header, body)?, consumed }),
        None => Ok(DecodeResult::More { needed: consumed }),
    }
}

/// Decodes the first 8 bytes of a frame and checks its length against the limits. Returns `None` if some are missing.
pub fn decode_header(bytes: &[u8], limits: &WireLimits) -> Result<Option<FrameHeader>, WireError> {
    let Some(&[code, flags, r0, r1, l0, l1, l2, l3]) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let kind = FrameKind::from_code(code).ok_or(WireError::UnknownKind(code))?;
    if flags & !kind.flags() != 0 {
        return Err(WireError::UnknownFlags { kind: code, flags });
    }
    match u16::from_le_bytes([r0, r1]) {
        0 => {}
        reserved => return Err(WireError::Reserved(reserved)),
    }
    let header = FrameHeader { kind, flags, body_bytes: u32::from_le_bytes([l0, l1, l2, l3]) };
    check_body_bytes(header, limits)?;
    Ok(Some(header))
}

fn check_body_bytes(header: FrameHeader, limits: &WireLimits) -> Result<(), WireError> {
    let FrameHeader { kind, flags, body_bytes } = header;
    let element = ELEMENT_BYTES as u32;
    // Shortest and longest body of the kind, and the size of the pieces of a longer one.
    let (min, max, step) = match kind {
        FrameKind::Data => {
            let front = if flags & FLAG_CRC32C == 0 { element } else { element + 4 };
            (front, limits.max_payload_bytes.saturating_add(front), 1)
        }
        FrameKind::Event => (element + 1, limits.max_control_bytes.min(element + MAX_EVENT_BYTES as u32), 1),
        FrameKind::Error => {
            let longest = (ERROR_BYTES + MAX_ERROR_MESSAGE_BYTES) as u32;
            (ERROR_BYTES as u32, limits.max_control_bytes.min(longest), 1)
        }
        FrameKind::Backlog | FrameKind::Credit | FrameKind::Fill | FrameKind::Events => {
            (PAIR_BYTES as u32, limits.max_control_bytes, PAIR_BYTES as u32)
        }
        FrameKind::Open => (20, 20, 1),
        FrameKind::Resume | FrameKind::Cancel => (4, 4, 1),
        FrameKind::Close => (0, 0, 1),
        FrameKind::Ping | FrameKind::Pong => (8, 8, 1),
    };
    if body_bytes > max {
        return Err(WireError::TooLong { kind: kind.code(), bytes: body_bytes, max_bytes: max });
    }
    if body_bytes < min || body_bytes % step != 0 {
        return Err(WireError::BodyLength { kind: kind.code(), bytes: body_bytes });
    }
    Ok(())
}

fn decode_data(header: FrameHeader, bytes: &[u8]) -> Result<DecodeResult<'static>, WireError> {
    let has_checksum = header.flags & FLAG_CRC32C != 0;
    let consumed = if has_checksum { CHECKED_DATA_HEADER_BYTES } else { DATA_HEADER_BYTES };
    let Some(front) = bytes.get(HEADER_BYTES..consumed) else {
        return Ok(DecodeResult::More { needed: consumed });
    };
    let mut fields = Fields { header, rest: front };
    let data = DataHeader {
        channel: fields.channel()?,
        sequence: fields.u32()?,
        backlog: Backlog::new(fields.u32()?),
        payload_bytes: header.body_bytes - front.len() as u32,
        checksum: if has_checksum { Some(fields.u32()?) } else { None },
    };
    Ok(DecodeResult::Data { header: data, consumed })
}

fn decode_control(header: FrameHeader, body: &[u8]) -> Result<ControlFrame<'_>, WireError> {
    let mut fields = Fields { header, rest: body };
    Ok(match header.kind {
        FrameKind::Data => unreachable!("decode() never reads a DATA frame as a whole"),
        FrameKind::Event => ControlFrame::Event {
            channel: fields.channel()?,
            sequence: fields.u32()?,
            backlog: Backlog::new(fields.u32()?),
            priority: header.flags & FLAG_PRIORITY != 0,
            event: Event::decode(fields.rest)?,
        },
        FrameKind::Backlog => ControlFrame::Backlog(Pairs::new(body.as_chunks().0)),
        FrameKind::Error => decode_error(fields)?,
        FrameKind::Open => ControlFrame::Open {
            channel: fields.channel()?,
            partition: PartitionId::new(fields.u64()?),
            subpartition: SubpartitionIndex::new(fields.u32()?),
            initial_credit: Credit::new(fields.u32()?),
        },
        FrameKind::Credit => ControlFrame::Credit(Pairs::new(body.as_chunks().0)),
        FrameKind::Resume => ControlFrame::Resume { channel: fields.channel()? },
        FrameKind::Cancel => ControlFrame::Cancel { channel: fields.channel()? },
        FrameKind::Close => ControlFrame::Close,
        FrameKind::Fill => ControlFrame::Fill(Pairs::new(body.as_chunks().0)),
        FrameKind::Events => ControlFrame::Events(Pairs::new(body.as_chunks().0)),
        FrameKind::Ping => ControlFrame::Ping { token: fields.u64()? },
        FrameKind::Pong => ControlFrame::Pong { token: fields.u64()? },
    })
}

fn decode_error(mut fields: Fields<'_>) -> Result<ControlFrame<'_>, WireError> {
    let [scope, zero] = fields.array()?;
    let code = ErrorCode::from_number(u16::from_le_bytes(fields.array()?));
    let channel = fields.channel()?;
    let scope = match (scope, zero, channel.get()) {
        (0, 0, _) => ErrorScope::Channel(channel),
        (1, 0, 0) => ErrorScope::Connection,
        _ => return Err(WireError::UnknownScope(scope)),
    };
    let message = std::str::from_utf8(fields.rest).map_err(|_| WireError::NotUtf8)?;
    Ok(ControlFrame::Error { scope, code, message })
}

impl ControlFrame<'_> {
    /// Appends the whole frame. An error message beyond the limit is cut between characters.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = begin_frame(self.kind(), out);
        match self {
            Self::Event { channel, sequence, backlog, priority, event } => {
                if *priority {
                    out[start + 1] |= FLAG_PRIORITY;
                }
                out.extend_from_slice(&channel.get().to_le_bytes());
                out.extend_from_slice(&sequence.to_le_bytes());
                out.extend_from_slice(&backlog.get().to_le_bytes());
                event.encode(out);
            }
            Self::Backlog(pairs) => extend_with_pairs(pairs.clone(), out),
            Self::Error { scope, code, message } => {
                let (scope, channel) = match scope {
                    ErrorScope::Channel(channel) => (0, channel.get()),
                    ErrorScope::Connection => (1, 0),
                };
                out.extend_from_slice(&[scope, 0]);
                out.extend_from_slice(&code.get().to_le_bytes());
                out.extend_from_slice(&channel.to_le_bytes());
                out.extend_from_slice(cut_at_character(message, MAX_ERROR_MESSAGE_BYTES).as_bytes());
            }
            Self::Open { channel, partition, subpartition, initial_credit } => {
                out.extend_from_slice(&channel.get().to_le_bytes());
                out.extend_from_slice(&partition.get().to_le_bytes());
                out.extend_from_slice(&subpartition.get().to_le_bytes());
                out.extend_from_slice(&initial_credit.get().to_le_bytes());
            }
            Self::Credit(pairs) => extend_with_pairs(pairs.clone(), out),
            Self::Resume { channel } | Self::Cancel { channel } => out.extend_from_slice(&channel.get().to_le_bytes()),
            Self::Close => {}
            Self::Fill(pairs) => extend_with_pairs(pairs.clone(), out),
            Self::Events(pairs) => extend_with_pairs(pairs.clone(), out),
            Self::Ping { token } | Self::Pong { token } => out.extend_from_slice(&token.to_le_bytes()),
        }
        end_frame(start, out);
    }
}

/// Appends CREDIT frames for these channels: one per 1,024 of them, none if there are none.
pub fn encode_credits(credits: impl IntoIterator<Item = (ChannelId, Credit)>, out: &mut Vec<u8>) {
    encode_pairs(FrameKind::Credit, credits, out);
}

/// Appends BACKLOG frames for these channels: one per 1,024 of them, none if there are none.
pub fn encode_backlogs(backlogs: impl IntoIterator<Item = (ChannelId, Backlog)>, out: &mut Vec<u8>) {
    encode_pairs(FrameKind::Backlog, backlogs, out);
}

/// Appends FILL frames for these channels: one per 1,024 of them, none if there are none.
pub fn encode_fill_limits(limits: impl IntoIterator<Item = (ChannelId, FillLimit)>, out: &mut Vec<u8>) {
    encode_pairs(FrameKind::Fill, limits, out);
}

/// Appends EVENTS frames for these channels: one per 1,024 of them, none if there are none.
pub fn encode_events_read(read: impl IntoIterator<Item = (ChannelId, EventsRead)>, out: &mut Vec<u8>) {
    encode_pairs(FrameKind::Events, read, out);
}

fn encode_pairs<T: PairCount>(kind: FrameKind, pairs: impl IntoIterator<Item = (ChannelId, T)>, out: &mut Vec<u8>) {
    let mut pairs = pairs.into_iter().peekable();
    while pairs.peek().is_some() {
        let start = begin_frame(kind, out);
        extend_with_pairs(pairs.by_ref().take(MAX_PAIRS), out);
        end_frame(start, out);
    }
}

fn extend_with_pairs<T: PairCount>(pairs: impl Iterator<Item = (ChannelId, T)>, out: &mut Vec<u8>) {
    for (channel, count) in pairs {
        out.extend_from_slice(&channel.get().to_le_bytes());
        out.extend_from_slice(&count.number().to_le_bytes());
    }
}

/// Appends a header whose length [`end_frame`] fills in. Returns its position.
fn begin_frame(kind: FrameKind, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[kind.code(), 0, 0, 0, 0, 0, 0, 0]);
    start
}

fn end_frame(start: usize, out: &mut [u8]) {
    // At most MAX_CONTROL_BYTES: events, messages and lists of pairs are all bounded.
    let body_bytes = (out.len() - start - HEADER_BYTES) as u32;
    out[start + 4..start + HEADER_BYTES].copy_from_slice(&body_bytes.to_le_bytes());
}

/// Reads fixed-width fields from the front of a body.
struct Fields<'a> {
    header: FrameHeader,
    rest: &'a [u8],
}

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let FrameHeader { kind, body_bytes, .. } = self.header;
        let too_short = WireError::BodyLength { kind: kind.code(), bytes: body_bytes };
        let (field, rest) = self.rest.split_first_chunk().ok_or(too_short)?;
        self.rest = rest;
        Ok(*field)
    }

    fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    fn channel(&mut self) -> Result<ChannelId, WireError> {
        self.u32().map(ChannelId::new)
    }
}
