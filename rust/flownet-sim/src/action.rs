//! What can happen in a world, one decision at a time.
//!
//! A schedule is a list of these. An action that does not apply where it stands changes nothing, so that any part of a
//! schedule can be left out.

use std::fmt;

/// An end of a connection: data leaves at its producer, credit at its consumer.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Side {
    /// Where the subpartitions are.
    Producer,
    /// Where the gates are.
    Consumer,
}

/// Somebody who is awake: something woke it, or it has not come to the end of its work.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Turn {
    /// This producer may go on with the record that it has begun.
    Write(usize),
    /// This consumer may look at its gate.
    Read(usize),
    /// This end has something to transmit.
    Send(usize, Side),
    /// Bytes have arrived at this end.
    Receive(usize, Side),
}

/// One decision.
#[expect(missing_docs, reason = "fields are called what they are")]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// A producer writes a record of this many bytes for one consumer.
    Write { producer: usize, consumer: usize, bytes: usize },
    /// A producer writes a record of this many bytes for all.
    Broadcast { producer: usize, bytes: usize },
    /// A producer that waited for a segment goes on.
    Continue { producer: usize },
    /// What a producer has written may be seen.
    Flush { producer: usize },
    /// A watermark for one consumer.
    Watermark { producer: usize, consumer: usize },
    /// A barrier for all.
    Barrier { producer: usize, is_aligned: bool },
    /// A producer comes to its end.
    Finish { producer: usize },
    /// A partition that was not there yet can be found.
    Register { producer: usize },
    /// A consumer reads up to so many elements and keeps their buffers.
    Read { consumer: usize, elements: usize },
    /// A consumer is done with its oldest buffers.
    Drop { consumer: usize, buffers: usize },
    /// A consumer is done with the blocking event that it read first.
    Resume { consumer: usize },
    /// A consumer says how far buffers are to be filled for it: anything that a task may draw from what it measures.
    Limit { consumer: usize, bytes: u32 },
    /// One end of a connection transmits; its socket takes up to so many bytes.
    Send { connection: usize, side: Side, bytes: usize },
    /// One end of a connection reads up to so many bytes.
    Receive { connection: usize, side: Side, bytes: usize },
    /// Time goes on to the next arrival.
    Wait,
    /// A consumer lets go of one channel.
    Release { consumer: usize, producer: usize },
    /// A consumer closes its gate.
    CloseGate { consumer: usize },
    /// A producer fails.
    Fail { producer: usize },
    /// A producer is gone without a word.
    Vanish { producer: usize },
    /// A connection breaks.
    Lose { connection: usize },
    /// The producing process says that it leaves.
    Leave { connection: usize },
    /// The consuming process says that it leaves.
    Close { connection: usize },
    /// Requests for partitions that are not there are given up.
    Expire { connection: usize },
    /// A process dies.
    Kill { worker: usize },
}

impl Action {
    /// Whether somebody gets less than everything from here on.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        matches!(
            self,
            Self::Release { .. }
                | Self::CloseGate { .. }
                | Self::Fail { .. }
                | Self::Vanish { .. }
                | Self::Lose { .. }
                | Self::Leave { .. }
                | Self::Close { .. }
                | Self::Expire { .. }
                | Self::Kill { .. }
        )
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Producer => "producing",
            Self::Consumer => "consuming",
        })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Write { producer, consumer, bytes } => {
                write!(f, "producer {producer} writes {bytes} bytes for consumer {consumer}")
            }
            Self::Broadcast { producer, bytes } => write!(f, "producer {producer} writes {bytes} bytes for all"),
            Self::Continue { producer } => write!(f, "producer {producer} goes on with its record"),
            Self::Flush { producer } => write!(f, "producer {producer} is flushed"),
            Self::Watermark { producer, consumer } => {
                write!(f, "producer {producer} emits a watermark for consumer {consumer}")
            }
            Self::Barrier { producer, is_aligned: true } => write!(f, "producer {producer} emits an aligned barrier"),
            Self::Barrier { producer, .. } => write!(f, "producer {producer} emits an unaligned barrier"),
            Self::Finish { producer } => write!(f, "producer {producer} finishes"),
            Self::Register { producer } => write!(f, "the partition of producer {producer} is registered"),
            Self::Read { consumer, elements } => write!(f, "consumer {consumer} reads up to {elements} elements"),
            Self::Drop { consumer, buffers } => write!(f, "consumer {consumer} drops up to {buffers} buffers"),
            Self::Resume { consumer } => write!(f, "consumer {consumer} resumes a blocked channel"),
            Self::Limit { consumer, bytes } => {
                write!(f, "consumer {consumer} wants buffers filled up to {bytes} bytes")
            }
            Self::Send { connection, side, bytes } => {
                write!(f, "the {side} end of connection {connection} sends up to {}", Limit(bytes))
            }
            Self::Receive { connection, side, bytes } => {
                write!(f, "the {side} end of connection {connection} receives up to {}", Limit(bytes))
            }
            Self::Wait => f.write_str("time passes"),
            Self::Release { consumer, producer } => {
                write!(f, "consumer {consumer} releases its channel to producer {producer}")
            }
            Self::CloseGate { consumer } => write!(f, "consumer {consumer} closes its gate"),
            Self::Fail { producer } => write!(f, "producer {producer} fails"),
            Self::Vanish { producer } => write!(f, "producer {producer} vanishes"),
            Self::Lose { connection } => write!(f, "connection {connection} breaks"),
            Self::Leave { connection } => write!(f, "the producing end of connection {connection} leaves"),
            Self::Close { connection } => write!(f, "the consuming end of connection {connection} leaves"),
            Self::Expire { connection } => write!(f, "the requests parked on connection {connection} expire"),
            Self::Kill { worker } => write!(f, "worker {worker} dies"),
        }
    }
}

struct Limit(usize);

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == usize::MAX { f.write_str("all there is") } else { write!(f, "{} bytes", self.0) }
    }
}
