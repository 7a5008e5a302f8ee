//! Counters of the drivers of one environment.

use std::sync::atomic::{AtomicU64, Ordering};

/// Sums over all connections of an environment since it was bound.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct NetCounters {
    /// Bytes read from sockets, including frame headers but not handshakes.
    pub bytes_in: u64,
    /// Bytes written to sockets, including frame headers but not handshakes.
    pub bytes_out: u64,
    /// Decoded frames.
    pub frames_in: u64,
    /// Read system calls.
    pub reads: u64,
    /// Write system calls.
    pub writes: u64,
    /// Turns of the drivers: each is one wake-up or one yield.
    pub turns: u64,
}

/// Atomic counters of [`NetCounters`]. A driver adds to them once per turn, not once per frame.
#[derive(Debug, Default)]
pub(crate) struct SharedCounters {
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    frames_in: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    turns: AtomicU64,
}

impl SharedCounters {
    /// Adds the counts of one turn to the sums and resets `turn` to zero.
    pub(crate) fn add(&self, turn: &mut NetCounters) {
        let turn = std::mem::take(turn);
        for (sum, more) in [
            (&self.bytes_in, turn.bytes_in),
            (&self.bytes_out, turn.bytes_out),
            (&self.frames_in, turn.frames_in),
            (&self.reads, turn.reads),
            (&self.writes, turn.writes),
            (&self.turns, turn.turns),
        ] {
            if more > 0 {
                sum.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    /// Returns the current sums. Each is exact, but together they may straddle a turn.
    pub(crate) fn snapshot(&self) -> NetCounters {
        NetCounters {
            bytes_in: self.bytes_in.load(Ordering::Relaxed),
            bytes_out: self.bytes_out.load(Ordering::Relaxed),
            frames_in: self.frames_in.load(Ordering::Relaxed),
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            turns: self.turns.load(Ordering::Relaxed),
        }
    }
}
