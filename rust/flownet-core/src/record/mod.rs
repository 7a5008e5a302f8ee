//! Records on the byte stream of one channel.
//!
//! A record is its length as a `u32` (little-endian), then its bytes. Records follow each other without gap or
//! alignment and may be cut anywhere by the end of a segment, also inside the length. Events stand between records.

pub mod cutter;
pub mod reader;
pub mod writer;

pub use reader::RecordReader;
pub use writer::{Emit, FlushPolicy, RecordWriter};

/// Bytes of the length in front of every record.
pub const LENGTH_PREFIX_BYTES: usize = 4;

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
