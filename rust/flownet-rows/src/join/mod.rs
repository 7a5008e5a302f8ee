//! Joins rows by key. Rows arrive [one by one](crate::keyed), and are matched as bytes.
//!
//! [`flownet_runtime::operator`] describes, for all record formats, which rows match and how long they are stored. A
//! row with a null in its key matches no row.

mod joined_batch;
mod pairs;
mod schemas;

pub(crate) use self::pairs::{PairColumns, RowPairs};
pub use self::schemas::{JoinColumns, JoinError, JoinSchemas};
