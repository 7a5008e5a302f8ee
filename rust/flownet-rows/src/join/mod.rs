//! Joins by key: rows [go there one by one](crate::keyed), and meet as bytes.
//!
//! Which rows meet, what is kept and when it is let go is said where it is for all media, in [`flownet_runtime::operator`].
//! A row whose key has a value that is missing meets nobody.

mod joined_batch;
mod pairs;
mod schemas;

pub(crate) use self::pairs::{PairColumns, RowPairs};
pub use self::schemas::{JoinColumns, JoinError, JoinSchemas};
