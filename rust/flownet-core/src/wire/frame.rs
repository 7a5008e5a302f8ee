//! Frame layout, byte by byte. All numbers are little-endian.
//!
//! Every frame begins with a header of 8 bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | kind |
//! | 1 | 1 | flags, by kind; all others zero |
//! | 2 | 2 | reserved, zero |
//! | 4 | 4 | body_bytes: bytes after the header |
//!
//! | kind | frame | sent by | body |
//! |---|---|---|---|
//! | 1 | DATA | producer | channel u32, sequence u32, backlog u32, \[crc32c u32 if flag 0x01\], payload |
//! | 2 | EVENT | producer | channel u32, sequence u32, backlog u32, event bytes (flag 0x02: it overtook data) |
//! | 3 | BACKLOG | producer | one or more pairs: channel u32, backlog u32 |
//! | 4 | ERROR | producer | scope u8 (0 channel, 1 connection), zero u8, code u16, channel u32 (0 for a connection), message in UTF-8 |
//! | 16 | OPEN | consumer | channel u32, partition u64, subpartition u32, initial credit u32 |
//! | 17 | CREDIT | consumer | one or more pairs: channel u32, credit u32 |
//! | 18 | RESUME | consumer | channel u32: resumes after a blocking event; credit given before is void |
//! | 19 | CANCEL | consumer | channel u32 |
//! | 20 | CLOSE | consumer | — |
//! | 21 | FILL | consumer | one or more pairs: channel u32, bytes u32: buffers begun from now on are closed by the record that reaches them; 2^32 - 1: when they are full |
//! | 22 | EVENTS | consumer | one or more pairs: channel u32, events u32: read since the last such frame, so that as many may follow |
//! | 32 | PING | either | token u64 |
//! | 33 | PONG | either | the token of the PING |
//!
//! The checksum covers the first 20 bytes of the frame (header, channel, sequence, backlog), then the payload.

use crate::credit::{Backlog, Credit, EventsRead};
use crate::debloat::FillLimit;
use crate::error::PeerViolation;
use crate::event::{Event, MAX_EVENT_BYTES};
use crate::ids::{ChannelId, PartitionId, SubpartitionIndex};

/// Bytes of the header of every frame.
pub const HEADER_BYTES: usize = 8;

/// Bytes of channel, sequence and backlog, with which the body of DATA and EVENT begins.
pub const ELEMENT_BYTES: usize = 12;

/// Bytes before a DATA payload without a checksum.
pub const DATA_HEADER_BYTES: usize = HEADER_BYTES + ELEMENT_BYTES;

/// Bytes before a DATA payload with a checksum.
pub const CHECKED_DATA_HEADER_BYTES: usize = DATA_HEADER_BYTES + 4;

/// Longest message of an ERROR frame; a longer one is cut when it is encoded.
pub const MAX_ERROR_MESSAGE_BYTES: usize = 4096;

/// Longest body of any frame except DATA that this version sends, and the default limit for received ones.
pub const MAX_CONTROL_BYTES: u32 = 8192;

/// Flag of a DATA frame: a checksum precedes the payload.
pub const FLAG_CRC32C: u8 = 0x01;

/// Flag of an EVENT frame: the event overtook data that was queued before it.
pub const FLAG_PRIORITY: u8 = 0x02;

const _: () = assert!(ELEMENT_BYTES + MAX_EVENT_BYTES <= MAX_CONTROL_BYTES as usize);
const _: () = assert!(8 + MAX_ERROR_MESSAGE_BYTES <= MAX_CONTROL_BYTES as usize);

/// Limits on frames of a peer. Checked before a byte of a body is read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WireLimits {
    /// Longest payload of a DATA frame: the bytes of one segment, because the payload goes into one.
    pub max_payload_bytes: u32,
    /// Longest body of any other frame. At least [`MAX_CONTROL_BYTES`], or correct peers are refused.
    pub max_control_bytes: u32,
}

impl WireLimits {
    /// Returns the limits of an exchange with segments of this size.
    #[must_use]
    pub const fn for_segments(segment_bytes: u32) -> Self {
        Self { max_payload_bytes: segment_bytes, max_control_bytes: MAX_CONTROL_BYTES }
    }
}

/// Kind of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum FrameKind {
    /// A data buffer.
    Data = 1,
    /// An event.
    Event = 2,
    /// Backlogs of channels that have no credit.
    Backlog = 3,
    /// A channel or the connection failed.
    Error = 4,
    /// Requests a subpartition.
    Open = 16,
    /// New credit of channels.
    Credit = 17,
    /// Resumes a channel after a blocking event.
    Resume = 18,
    /// The consumer cancels a channel.
    Cancel = 19,
    /// The consumer leaves.
    Close = 20,
    /// Fill limits of channels.
    Fill = 21,
    /// Events that the task has read.
    Events = 22,
    /// Requests a sign of life.
    Ping = 32,
    /// The sign of life.
    Pong = 33,
}

impl FrameKind {
    /// Returns the kind with this code, if there is one.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Data,
            2 => Self::Event,
            3 => Self::Backlog,
            4 => Self::Error,
            16 => Self::Open,
            17 => Self::Credit,
            18 => Self::Resume,
            19 => Self::Cancel,
            20 => Self::Close,
            21 => Self::Fill,
            22 => Self::Events,
            32 => Self::Ping,
            33 => Self::Pong,
            _ => return None,
        })
    }

    /// Returns the byte on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    pub(crate) const fn flags(self) -> u8 {
        match self {
            Self::Data => FLAG_CRC32C,
            Self::Event => FLAG_PRIORITY,
            _ => 0,
        }
    }
}

/// The first 8 bytes of a frame, checked against the limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FrameHeader {
    /// Kind of the frame.
    pub kind: FrameKind,
    /// Flags of this kind.
    pub flags: u8,
    /// Bytes that follow the header.
    pub body_bytes: u32,
}

/// All fields before the payload of a DATA frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DataHeader {
    /// The channel it belongs to.
    pub channel: ChannelId,
    /// Sequence number of the element in the channel; events count too.
    pub sequence: u32,
    /// Data buffers that wait after this one.
    pub backlog: Backlog,
    /// Bytes of the payload. May be zero: the buffer then only returns a credit.
    pub payload_bytes: u32,
    /// CRC32C over the first 20 bytes of the frame and the payload.
    pub checksum: Option<u32>,
}

impl DataHeader {
    /// Returns the same header with a checksum over it and this payload.
    #[must_use]
    pub fn with_checksum(self, payload: &[u8]) -> Self {
        let marked = Self { checksum: Some(0), ..self };
        Self { checksum: Some(marked.checksum_over(payload)), ..self }
    }

    /// Compares the payload with the checksum, if the frame carries one.
    pub fn verify(&self, payload: &[u8]) -> Result<(), PeerViolation> {
        match self.checksum {
            Some(got) => {
                let expected = self.checksum_over(payload);
                if got == expected { Ok(()) } else { Err(PeerViolation::Checksum { expected, got }) }
            }
            None => Ok(()),
        }
    }

    /// Returns the bytes to write before the payload.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> EncodedDataHeader {
        let (flags, len) = match self.checksum {
            Some(_) => (FLAG_CRC32C, CHECKED_DATA_HEADER_BYTES),
            None => (0, DATA_HEADER_BYTES),
        };
        let body_bytes = self.payload_bytes + (len - HEADER_BYTES) as u32;
        let mut bytes = [0; CHECKED_DATA_HEADER_BYTES];
        bytes[0] = FrameKind::Data.code();
        bytes[1] = flags;
        bytes[4..8].copy_from_slice(&body_bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.channel.get().to_le_bytes());
        bytes[12..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.backlog.get().to_le_bytes());
        bytes[20..24].copy_from_slice(&self.checksum.unwrap_or(0).to_le_bytes());
        EncodedDataHeader { bytes, len: len as u8 }
    }

    fn checksum_over(&self, payload: &[u8]) -> u32 {
        let head = crc32c::crc32c(&self.encode().bytes[..DATA_HEADER_BYTES]);
        crc32c::crc32c_append(head, payload)
    }
}

/// An encoded [`DataHeader`], stored by value so that a vectored write can reference it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EncodedDataHeader {
    bytes: [u8; CHECKED_DATA_HEADER_BYTES],
    len: u8,
}

impl std::ops::Deref for EncodedDataHeader {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Every frame except DATA, decoded. Borrows lists and text from the received bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ControlFrame<'a> {
    /// An event in its place among the elements of a channel.
    Event {
        /// The channel it belongs to.
        channel: ChannelId,
        /// Sequence number of the element in the channel.
        sequence: u32,
        /// Data buffers that wait after the event.
        backlog: Backlog,
        /// True if the event overtook data.
        priority: bool,
        /// The event.
        event: Event,
    },
    /// Data waits without credit.
    Backlog(Pairs<'a, Backlog>),
    /// A channel or the connection failed.
    Error {
        /// Scope of the failure.
        scope: ErrorScope,
        /// Cause, for machines.
        code: ErrorCode,
        /// Cause, for people.
        message: &'a str,
    },
    /// Requests a subpartition.
    Open {
        /// Id that the consumer assigns to the channel.
        channel: ChannelId,
        /// Requested partition.
        partition: PartitionId,
        /// Requested subpartition.
        subpartition: SubpartitionIndex,
        /// Buffers the channel owns already.
        initial_credit: Credit,
    },
    /// New credit.
    Credit(Pairs<'a, Credit>),
    /// The consumer has handled the blocking event of this channel.
    Resume {
        /// Channel to resume. Earlier credit is void: the consumer promised no segments while the channel was blocked.
        channel: ChannelId,
    },
    /// The consumer cancels this channel.
    Cancel {
        /// Channel to release.
        channel: ChannelId,
    },
    /// The consumer leaves.
    Close,
    /// Fill limits of channels.
    Fill(Pairs<'a, FillLimit>),
    /// Events that the task has read.
    Events(Pairs<'a, EventsRead>),
    /// Requests a sign of life.
    Ping {
        /// Number to send back.
        token: u64,
    },
    /// The sign of life.
    Pong {
        /// The token of the PING.
        token: u64,
    },
}

impl ControlFrame<'_> {
    /// Returns the kind of the frame.
    #[must_use]
    pub const fn kind(&self) -> FrameKind {
        match self {
            Self::Event { .. } => FrameKind::Event,
            Self::Backlog(_) => FrameKind::Backlog,
            Self::Error { .. } => FrameKind::Error,
            Self::Open { .. } => FrameKind::Open,
            Self::Credit(_) => FrameKind::Credit,
            Self::Resume { .. } => FrameKind::Resume,
            Self::Cancel { .. } => FrameKind::Cancel,
            Self::Close => FrameKind::Close,
            Self::Fill(_) => FrameKind::Fill,
            Self::Events(_) => FrameKind::Events,
            Self::Ping { .. } => FrameKind::Ping,
            Self::Pong { .. } => FrameKind::Pong,
        }
    }
}

/// Scope of an ERROR frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ErrorScope {
    /// One channel; the others continue.
    Channel(ChannelId),
    /// Everything on this connection.
    Connection,
}

/// Cause of an ERROR frame, for machines. Codes of later versions are preserved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ErrorCode {
    /// 1: no such partition was registered in time.
    PartitionNotFound,
    /// 2: the partition has no such subpartition.
    SubpartitionNotFound,
    /// 3: the subpartition has a reader already.
    AlreadyRead,
    /// 4: the producer's task failed; the message is its cause.
    ProducerFailed,
    /// 5: the partition was released before its end.
    Released,
    /// 6: the consumer violated the protocol.
    Protocol,
    /// 7: the producer's process is leaving.
    Leaving,
    /// Any other number.
    Other(u16),
}

impl ErrorCode {
    /// Returns the number on the wire.
    #[must_use]
    pub const fn get(self) -> u16 {
        match self {
            Self::PartitionNotFound => 1,
            Self::SubpartitionNotFound => 2,
            Self::AlreadyRead => 3,
            Self::ProducerFailed => 4,
            Self::Released => 5,
            Self::Protocol => 6,
            Self::Leaving => 7,
            Self::Other(code) => code,
        }
    }

    /// Returns the code with this number.
    #[must_use]
    pub const fn from_number(code: u16) -> Self {
        match code {
            1 => Self::PartitionNotFound,
            2 => Self::SubpartitionNotFound,
            3 => Self::AlreadyRead,
            4 => Self::ProducerFailed,
            5 => Self::Released,
            6 => Self::Protocol,
            7 => Self::Leaving,
            other => Self::Other(other),
        }
    }
}

/// A count that CREDIT, BACKLOG, FILL and EVENTS frames list by channel.
pub trait PairCount: Copy {
    /// Converts the number on the wire.
    fn from_number(number: u32) -> Self;
    /// Returns the number on the wire.
    fn number(self) -> u32;
}

impl PairCount for Credit {
    fn from_number(number: u32) -> Self {
        Self::new(number)
    }

    fn number(self) -> u32 {
        self.get()
    }
}

impl PairCount for Backlog {
    fn from_number(number: u32) -> Self {
        Self::new(number)
    }

    fn number(self) -> u32 {
        self.get()
    }
}

impl PairCount for EventsRead {
    fn from_number(number: u32) -> Self {
        Self::new(number)
    }

    fn number(self) -> u32 {
        self.get()
    }
}

/// Bytes of one pair.
pub const PAIR_BYTES: usize = 8;

/// The (channel, count) pairs of a frame, read in place.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pairs<'a, T> {
    rest: &'a [[u8; PAIR_BYTES]],
    count: std::marker::PhantomData<T>,
}

impl<'a, T> Pairs<'a, T> {
    pub(crate) fn new(pairs: &'a [[u8; PAIR_BYTES]]) -> Self {
        Self { rest: pairs, count: std::marker::PhantomData }
    }
}

impl<T: PairCount> Iterator for Pairs<'_, T> {
    type Item = (ChannelId, T);

    fn next(&mut self) -> Option<Self::Item> {
        let ([c0, c1, c2, c3, n0, n1, n2, n3], rest) = self.rest.split_first()?;
        self.rest = rest;
        let channel = ChannelId::new(u32::from_le_bytes([*c0, *c1, *c2, *c3]));
        Some((channel, T::from_number(u32::from_le_bytes([*n0, *n1, *n2, *n3]))))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.rest.len(), Some(self.rest.len()))
    }
}

impl<T: PairCount> ExactSizeIterator for Pairs<'_, T> {}
