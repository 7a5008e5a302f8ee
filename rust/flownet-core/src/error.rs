//! Error types of exchanges, connections, frames and records: the party at fault, the place, and the numbers.
//!
//! One enum per layer, converted only upwards. [`WireError`] and [`EventError`] describe invalid bytes,
//! [`PeerViolation`] an invalid action of a peer. [`ProtocolError`] is the reason why a connection ended.
//! [`ExchangeError`] is the error that a task receives. Many readers receive it at once, so it is cheap to clone.

use std::sync::Arc;

use flownet_memory::MemoryError;

use crate::event::EventError;
use crate::ids::{ChannelId, ChannelIndex, PartitionId, SubpartitionIndex};
use crate::keygroup::MAX_PARALLELISM_LIMIT;

/// Failure of a task's input or output.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The peer process or the path to it is gone. Rarely the root cause: find out why the peer ended.
    #[error("connection to {peer} lost: {reason}")]
    ConnectionLost {
        /// Address or name of the peer.
        peer: Arc<str>,
        /// Message of the socket or the protocol.
        reason: Arc<str>,
    },
    /// The task that writes this partition failed.
    #[error("producer of partition {partition} failed: {cause}")]
    ProducerFailed {
        /// Partition that ends here.
        partition: PartitionId,
        /// Error message of the producer.
        cause: Arc<str>,
    },
    /// No task of the peer registered this partition in time.
    #[error("partition {partition} not found")]
    PartitionNotFound {
        /// Requested partition.
        partition: PartitionId,
    },
    /// The partition exists but has fewer subpartitions than requested.
    #[error("partition {partition} has no subpartition {subpartition}")]
    SubpartitionNotFound {
        /// Requested partition.
        partition: PartitionId,
        /// Requested index.
        subpartition: SubpartitionIndex,
    },
    /// A subpartition is read once, by one reader.
    #[error("subpartition {subpartition} has a reader already")]
    AlreadyRead {
        /// Requested subpartition.
        subpartition: SubpartitionIndex,
    },
    /// The partition was released before its reader reached the end.
    #[error("partition released before it was read to its end")]
    Released,
    /// The peer violated the protocol on this channel: it is not the expected program, or has a bug.
    #[error(
        "{peer} broke the protocol on input channel {channel} (subpartition {subpartition} of partition {partition}): \
         {violation}"
    )]
    ProtocolViolation {
        /// Address or name of the peer.
        peer: Arc<str>,
        /// Partition that the peer sends.
        partition: PartitionId,
        /// Subpartition of it.
        subpartition: SubpartitionIndex,
        /// Channel of the gate that reads it.
        channel: ChannelIndex,
        /// Violation by the peer.
        violation: PeerViolation,
    },
    /// A record larger than the exchange allows, refused before any memory was allocated for it.
    #[error("record of {bytes} bytes, limit {max_bytes}")]
    RecordTooLarge {
        /// Length of the record.
        bytes: usize,
        /// Limit that it exceeded.
        max_bytes: usize,
    },
    /// The record bytes of one channel are not a valid stream.
    #[error(transparent)]
    Record(RecordError),
    /// An exchange without credit reached its limit.
    #[error(
        "input channel {channel}: {queued_bytes} bytes are queued, receive_limit is {limit_bytes}: the task falls behind \
         and nothing holds its producers back; set flow_control to 'credit', slow the source by rate_limit, or raise \
         receive_limit"
    )]
    ReceiveLimit {
        /// Channel whose data exceeded the limit.
        channel: ChannelIndex,
        /// Bytes queued by all channels of the gate.
        queued_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// A slow or stopped reader was sent more events than may wait for it.
    #[error(
        "subpartition {subpartition}: {limit} events wait to be read, no more are taken: its reader falls behind, and \
         events are not held back as records are; emit fewer, or after the records that the reader waits for"
    )]
    TooManyEvents {
        /// Subpartition with too many events.
        subpartition: SubpartitionIndex,
        /// Most events that may wait.
        limit: u32,
    },
    /// The selector found no subpartition for a record.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The job was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The gate or partition was closed by its owner.
    #[error("closed")]
    Closed,
    /// The pool cannot provide enough segments, or is gone.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A call in an order that the docs forbid: a bug in flownet.
    #[error("misuse: {0}")]
    Misuse(&'static str),
}

impl ExchangeError {
    /// Creates the error of a lost connection from the peer's name and the socket's message.
    pub fn connection_lost(peer: impl Into<Arc<str>>, reason: impl Into<Arc<str>>) -> Self {
        Self::ConnectionLost { peer: peer.into(), reason: reason.into() }
    }

    /// Creates the error of a failed producer from its cause.
    pub fn producer_failed(partition: PartitionId, cause: impl Into<Arc<str>>) -> Self {
        Self::ProducerFailed { partition, cause: cause.into() }
    }
}

impl From<RecordError> for ExchangeError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::TooLarge { bytes, max_bytes } => Self::RecordTooLarge { bytes, max_bytes },
            cut @ RecordError::Cut { .. } => Self::Record(cut),
        }
    }
}

/// Reason why one connection of an exchange ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The peer violated the protocol on one channel. The connection closes; the process continues.
    #[error("peer violation on channel {channel}: {violation}")]
    Peer {
        /// Channel of the violation.
        channel: ChannelId,
        /// Violation by the peer.
        violation: PeerViolation,
    },
    /// The peer sent bytes that are not a frame, so no channel can be named.
    #[error("peer sent a bad frame: {0}")]
    Wire(#[from] WireError),
    /// A call in an order that the docs forbid: a bug in flownet.
    #[error("misuse: {0}")]
    Misuse(&'static str),
}

/// Violation of the protocol, which no correct peer commits.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerViolation {
    /// More data buffers than credits.
    #[error("data buffer sent with no credit left")]
    CreditOverdrawn,
    /// A sum of credits that exceeds any memory.
    #[error("credit beyond 2^32 - 1")]
    CreditOverflow,
    /// A lost, duplicated or reordered element.
    #[error("sequence number {got}, expected {expected}")]
    Reordered {
        /// Next number in order.
        expected: u32,
        /// Received number.
        got: u32,
    },
    /// A payload longer than the segment promised for it.
    #[error("payload of {len_bytes} bytes, limit {max_bytes}")]
    PayloadTooLong {
        /// Bytes announced by the header.
        len_bytes: u32,
        /// Bytes of one segment.
        max_bytes: u32,
    },
    /// A frame for a channel that was never opened.
    #[error("channel was never opened")]
    UnknownChannel,
    /// OPEN for an id already in use.
    #[error("channel is open already")]
    ChannelReopened,
    /// RESUME for a subpartition that is not blocked.
    #[error("resumed a channel that is not blocked")]
    NotBlocked,
    /// An element after the end of the partition.
    #[error("element after the end of the partition")]
    AfterEnd,
    /// More unread events than the window of a channel allows, which no correct producer sends.
    #[error("more than {limit} events that were not read")]
    TooManyEvents {
        /// Most events that may be in transit or queued.
        limit: u32,
    },
    /// More unanswered requests than any correct peer has.
    #[error("more than {limit} requests wait for an answer")]
    TooManyRequests {
        /// Most requests of one peer that may wait.
        limit: u32,
    },
    /// An element after a blocking event, before the RESUME.
    #[error("element behind a blocking event that was not resumed")]
    Blocked,
    /// More events reported as read than were sent.
    #[error("more events read than were sent")]
    EventsNotSent,
    /// A frame that only the other side may send.
    #[error("frame of kind {kind} from the wrong side")]
    WrongSide {
        /// Kind byte of the frame.
        kind: u8,
    },
    /// Checksum that does not match the payload.
    #[error("checksum {got:#010x}, expected {expected:#010x}")]
    Checksum {
        /// Checksum of the frame as it arrived.
        expected: u32,
        /// Checksum in the frame.
        got: u32,
    },
}

/// Reason why bytes are not a frame. The stream cannot be decoded any further.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A kind byte outside the table.
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    /// A flag that this kind of frame does not have.
    #[error("flags {flags:#04x} on a frame of kind {kind}")]
    UnknownFlags {
        /// The frame's kind byte.
        kind: u8,
        /// The frame's flags byte.
        flags: u8,
    },
    /// Reserved bytes are zero in this version.
    #[error("reserved bytes are {0:#06x}, must be zero")]
    Reserved(u16),
    /// A length beyond the limit, refused before any byte is read or memory allocated for it.
    #[error("frame of kind {kind} with {bytes} bytes, limit {max_bytes}")]
    TooLong {
        /// The frame's kind byte.
        kind: u8,
        /// Body bytes announced by the header.
        bytes: u32,
        /// The limit for this kind.
        max_bytes: u32,
    },
    /// A length that no frame of this kind can have.
    #[error("frame of kind {kind} cannot have a body of {bytes} bytes")]
    BodyLength {
        /// The frame's kind byte.
        kind: u8,
        /// Body bytes announced by the header.
        bytes: u32,
    },
    /// An ERROR frame whose scope is neither a channel nor the connection.
    #[error("unknown error scope {0}")]
    UnknownScope(u8),
    /// Text that is not UTF-8.
    #[error("error message is not UTF-8")]
    NotUtf8,
    /// Event bytes that are not an event.
    #[error("bad event: {0}")]
    Event(#[from] EventError),
}

/// Reason why the byte stream of one channel yields no more records.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RecordError {
    /// A length prefix beyond the limit, detected before any memory was allocated for it.
    #[error("record of {bytes} bytes, limit {max_bytes}")]
    TooLarge {
        /// Length in the prefix.
        bytes: usize,
        /// Limit that it exceeded.
        max_bytes: usize,
    },
    /// An event or the end of the stream in place of the rest of a record.
    #[error("stream cut inside a record, after {have_bytes} bytes of it (length prefix included)")]
    Cut {
        /// Bytes of the record that arrived, including its length prefix.
        have_bytes: usize,
    },
}

/// Reason why a selector found no subpartition for a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SelectError {
    /// A custom partitioner chose a subpartition that does not exist.
    #[error("partitioner chose subpartition {chosen} of {subpartitions}")]
    OutOfRange {
        /// Chosen subpartition.
        chosen: u32,
        /// Number of subpartitions.
        subpartitions: u32,
    },
    /// A record without the hash of its key was emitted to a key-group edge.
    #[error("this exchange selects by key: emit with the hash of the key")]
    NeedsKeyHash,
    /// A record without its subpartition was emitted to a custom-partitioned edge.
    #[error("this exchange selects by a partitioner: emit with the subpartition it chose")]
    NeedsSubpartition,
    /// Key groups cannot be distributed over this many subtasks.
    #[error(
        "max_parallelism {max_parallelism} with {subpartitions} subpartitions: must be at least that and at most {max}",
        max = MAX_PARALLELISM_LIMIT
    )]
    MaxParallelism {
        /// Requested number of key groups.
        max_parallelism: u32,
        /// Number of subpartitions.
        subpartitions: u32,
    },
}
