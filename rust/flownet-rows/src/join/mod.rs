//! Joins by key: rows leave for who keeps them one by one, each as a run of its own, and meet as bytes.
//!
//! ```text
//! row by key = varint key bytes | canonical key | run of one row
//! ```
//!
//! Which rows meet, what is kept and when it is let go is said where it is for all media, in [`flownet_runtime::operator`].
//! A row whose key has a value that is missing meets nobody.

mod by_key;
mod pairs;
mod schemas;

pub(crate) use self::by_key::KeyRows;
pub(crate) use self::pairs::RowPairs;
pub use self::schemas::{Carried, JoinError, JoinSchemas};
