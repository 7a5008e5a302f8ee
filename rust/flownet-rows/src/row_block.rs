//! Encodes rows of one channel, by column, as one record of the exchange: a row block, also called run.
//!
//! ```text
//! run    = varint rows | column of each field of the schema
//! column = nulls? | values
//! nulls  = 00                                     all values are there
//!        | 01 | bitmap                            bit i, from the lowest of the first byte: whether value i is there
//!                                                 where the schema declares the column nullable, and nowhere else
//! values = rows x width bytes                     numbers and times, as Arrow has them
//!        | bitmap                                 bools
//!        | rows x u32 length | heap               texts and bytes
//!        | rows x u32 length | column of the items
//!        | column of each field                   structs
//! ```
//!
//! All numbers are little-endian. The value of a null has no meaning.

mod gather;
mod write;

pub use self::gather::{Gather, MalformedRun};
pub use self::write::RunWriter;

/// Limit of rows per row block. It is needed because columns may have no bytes at all.
pub(crate) const MOST_ROWS: usize = 1 << 20;
/// The column has no nulls in this row block.
const ALL_THERE: u8 = 0;
/// A bitmap of nulls follows.
const SOME_MISSING: u8 = 1;

#[cfg(test)]
mod tests;
