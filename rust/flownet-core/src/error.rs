//! Why an exchange, a connection, a frame or a record failed: whose fault, where, and the numbers.
//!
//! One enum a layer, converted upwards only: [`WireError`] and [`EventError`] say what is wrong with bytes,
//! [`PeerViolation`] what is wrong with a peer, [`ProtocolError`] why a connection ended, [`ExchangeError`] what a task
//! gets to see. The last one is handed to many readers at once and therefore clones cheaply.

use std::sync::Arc;

use flownet_memory::MemoryError;

use crate::event::EventError;
use crate::ids::{ChannelId, ChannelIndex, PartitionId, SubpartitionIndex};
use crate::keygroup::MAX_PARALLELISM_LIMIT;

/// What a task learns when its input or output fails.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The peer process or the path to it is gone. Seldom the root of a failure: look for what ended the peer.
    #[error("connection to {peer} lost: {reason}")]
    ConnectionLost {
        /// Address or name of the peer.
        peer: Arc<str>,
        /// What the socket or the protocol said.
        reason: Arc<str>,
    },
    /// The task that writes this partition failed.
    #[error("producer of partition {partition} failed: {cause}")]
    ProducerFailed {
        /// The partition that ends here.
        partition: PartitionId,
        /// The producer's own words.
        cause: Arc<str>,
    },
    /// No task of the peer registered this partition in time.
    #[error("partition {partition} not found")]
    PartitionNotFound {
        /// The partition asked for.
        partition: PartitionId,
    },
    /// The partition exists but has fewer subpartitions than asked for.
    #[error("partition {partition} has no subpartition {subpartition}")]
    SubpartitionNotFound {
        /// The partition asked for.
        partition: PartitionId,
        /// The index asked for.
        subpartition: SubpartitionIndex,
    },
    /// A subpartition is read once, by one reader.
    #[error("subpartition {subpartition} has a reader already")]
    AlreadyRead {
        /// The subpartition asked for.
        subpartition: SubpartitionIndex,
    },
    /// The partition was released before its reader came to its end.
    #[error("partition released before it was read to its end")]
    Released,
    /// The peer broke the protocol on this channel: it is another program than it should be, or has a bug.
    #[error(
        "{peer} broke the protocol on input channel {channel} (subpartition {subpartition} of partition {partition}): \
         {violation}"
    )]
    ProtocolViolation {
        /// Address or name of the peer.
        peer: Arc<str>,
        /// The partition it sends.
        partition: PartitionId,
        /// Which part of it.
        subpartition: SubpartitionIndex,
        /// The channel of the gate that reads it.
        channel: ChannelIndex,
        /// What the peer did.
        violation: PeerViolation,
    },
    /// A record larger than the exchange allows, refused before anything was allocated for it.
    #[error("record of {bytes} bytes, limit {max_bytes}")]
    RecordTooLarge {
        /// Length of the record.
        bytes: usize,
        /// The limit it broke.
        max_bytes: usize,
    },
    /// The stream of record bytes of one channel makes no sense.
    #[error(transparent)]
    Record(RecordError),
    /// An exchange without bound ran into its limit.
    #[error(
        "input channel {channel}: {queued_bytes} bytes are queued, receive_limit is {limit_bytes}: the task falls behind \
         and nothing holds its producers back; set flow_control to 'credit', slow the source by rate_limit, or raise \
         receive_limit"
    )]
    ReceiveLimit {
        /// The channel whose data was the last straw.
        channel: ChannelIndex,
        /// Bytes queued by all channels of the gate.
        queued_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// A reader that falls behind, or stands still, was sent more events than may wait for it.
    #[error(
        "subpartition {subpartition}: {limit} events wait to be read, no more are taken: its reader falls behind, and \
         events are not held back as records are; emit fewer, or after the records that the reader waits for"
    )]
    TooManyEvents {
        /// The subpartition that is full of them.
        subpartition: SubpartitionIndex,
        /// Events that may wait.
        limit: u32,
    },
    /// The selector could not say where a record goes.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The job was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The gate or partition was closed by its owner.
    #[error("closed")]
    Closed,
    /// The pool cannot give what the exchange needs, or is gone.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Called in an order our docs forbid: a bug on our side.
    #[error("misuse: {0}")]
    Misuse(&'static str),
}

impl ExchangeError {
    /// A lost connection, in the peer's name and the socket's words.
    pub fn connection_lost(peer: impl Into<Arc<str>>, reason: impl Into<Arc<str>>) -> Self {
        Self::ConnectionLost { peer: peer.into(), reason: reason.into() }
    }

    /// A failed producer and its cause.
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

/// Why one connection of an exchange ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The peer broke the protocol on one channel. The connection closes, the process lives.
    #[error("peer violation on channel {channel}: {violation}")]
    Peer {
        /// The channel it happened on.
        channel: ChannelId,
        /// What the peer did.
        violation: PeerViolation,
    },
    /// The peer sent bytes that are no frame, so no channel can be named.
    #[error("peer sent a bad frame: {0}")]
    Wire(#[from] WireError),
    /// Called in an order our docs forbid: a bug on our side.
    #[error("misuse: {0}")]
    Misuse(&'static str),
}

/// What a peer did that no correct peer does.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerViolation {
    /// More data buffers than credits.
    #[error("data buffer sent with no credit left")]
    CreditOverdrawn,
    /// A sum of credits that no memory can back.
    #[error("credit beyond 2^32 - 1")]
    CreditOverflow,
    /// A lost, doubled or reordered element.
    #[error("sequence number {got}, expected {expected}")]
    Reordered {
        /// The next number in order.
        expected: u32,
        /// The number that came.
        got: u32,
    },
    /// A payload that does not fit the segment it was promised.
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
    /// More events than the window of a channel takes, which no correct producer sends.
    #[error("more than {limit} events that were not read")]
    TooManyEvents {
        /// Events that may be under way or queued.
        limit: u32,
    },
    /// More requests than any correct peer has waiting for an answer.
    #[error("more than {limit} requests wait for an answer")]
    TooManyRequests {
        /// Requests of one peer that may wait.
        limit: u32,
    },
    /// An element behind a blocking event, before the RESUME.
    #[error("element behind a blocking event that was not resumed")]
    Blocked,
    /// More events read than were sent.
    #[error("more events read than were sent")]
    EventsNotSent,
    /// A frame that only the other side may send.
    #[error("frame of kind {kind} from the wrong side")]
    WrongSide {
        /// Its kind byte.
        kind: u8,
    },
    /// Payload and checksum disagree.
    #[error("checksum {got:#010x}, expected {expected:#010x}")]
    Checksum {
        /// The checksum of the frame as it arrived.
        expected: u32,
        /// The checksum it carried.
        got: u32,
    },
}

/// Why bytes are no frame. The stream cannot be followed any further.
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
    /// A length beyond the limit, refused before anything is read or allocated for it.
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
    /// An ERROR frame that concerns neither a channel nor the connection.
    #[error("unknown error scope {0}")]
    UnknownScope(u8),
    /// Text that is not UTF-8.
    #[error("error message is not UTF-8")]
    NotUtf8,
    /// Event bytes that are no event.
    #[error("bad event: {0}")]
    Event(#[from] EventError),
}

/// Why the byte stream of one channel gives no more records.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RecordError {
    /// A length prefix beyond the limit, seen before anything was allocated for it.
    #[error("record of {bytes} bytes, limit {max_bytes}")]
    TooLarge {
        /// Length named by the prefix.
        bytes: usize,
        /// The limit it broke.
        max_bytes: usize,
    },
    /// An event or the end of the stream where the rest of a record should be.
    #[error("stream cut inside a record, after {have_bytes} bytes of it (length prefix included)")]
    Cut {
        /// Bytes of the record that did arrive, its length prefix included.
        have_bytes: usize,
    },
}

/// Why a selector cannot say where a record goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SelectError {
    /// A custom partitioner named a subpartition that does not exist.
    #[error("partitioner chose subpartition {chosen} of {subpartitions}")]
    OutOfRange {
        /// What it chose.
        chosen: u32,
        /// How many there are.
        subpartitions: u32,
    },
    /// A key-group edge was given a record without the hash of its key.
    #[error("this exchange selects by key: emit with the hash of the key")]
    NeedsKeyHash,
    /// A custom-partitioned edge was given a record without its subpartition.
    #[error("this exchange selects by a partitioner: emit with the subpartition it chose")]
    NeedsSubpartition,
    /// Key groups cannot be spread over this many subtasks.
    #[error(
        "max_parallelism {max_parallelism} with {subpartitions} subpartitions: must be at least that and at most {max}",
        max = MAX_PARALLELISM_LIMIT
    )]
    MaxParallelism {
        /// Number of key groups asked for.
        max_parallelism: u32,
        /// How many subpartitions there are.
        subpartitions: u32,
    },
}
