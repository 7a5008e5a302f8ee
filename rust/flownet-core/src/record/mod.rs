//! Encoding of records in the byte stream of one channel.
//!
//! A record is its length as a `u32` (little-endian), then its bytes. Records follow each other without gap or
//! alignment. The end of a segment may cut them anywhere, also inside the length. Events are placed between records.

pub mod cutter;
pub mod reader;
pub mod writer;

pub use reader::RecordReader;
pub use writer::{Emit, FlushPolicy, RecordWriter};

/// Bytes of the length before every record.
pub const LENGTH_PREFIX_BYTES: usize = 4;

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
