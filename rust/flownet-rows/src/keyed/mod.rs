//! Operators on single rows by key. Each row travels to its operator as a row block of its own.
//!
//! ```text
//! row by key = varint key bytes | canonical key | run of one row
//! ranked     = varint key bytes | canonical key | varint rank bytes | rank | run of one row
//! ```

mod best;
mod deduplicate;
mod deduplicate_by_time;
mod key_rows;
mod top_n;

pub(crate) use self::deduplicate::Deduplicate;
pub(crate) use self::deduplicate_by_time::DeduplicateByTime;
pub(crate) use self::key_rows::KeyRows;
pub(crate) use self::top_n::TopN;
