//! Runs: rows of one channel as one record of the exchange.
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
//! All numbers are little-endian. What a value that is not there has in its place means nothing.

mod gather;
mod write;

pub use self::gather::{Gather, MalformedRun};
pub use self::write::RunWriter;

/// The most rows of a run, whose columns may have no bytes at all.
pub(crate) const MOST_ROWS: usize = 1 << 20;
/// No nulls in this column of this run.
const ALL_THERE: u8 = 0;
/// A bitmap follows.
const SOME_MISSING: u8 = 1;

#[cfg(test)]
mod tests;
