//! Streams of rows with a schema.
//!
//! Operators work on columns ([`RecordBatch`](arrow_array::RecordBatch)es, the Arrow layout), the wire carries *runs*: a few
//! to some thousand rows of one channel, as one record of the exchange. [`Scatter`] makes runs of a batch, [`Gather`] makes
//! batches of runs. Nothing is done per record of the exchange that could be done per run, nor per row that could be done
//! per column.
//!
//! # Invariants
//! - I1: the rows of a run are of one schema, which both ends know: nothing on the wire says it.
//! - I2: rows that go to one target keep their order.
//! - I3: any bytes are a run or an error; no run that was taken leaves columns of different lengths.

#![forbid(unsafe_code)]

mod column;
mod key;
mod layout;
mod run;
mod scatter;

pub use self::column::Rows;
pub use self::key::{KeyHasher, NoKey};
pub use self::layout::{Layout, UnsupportedType};
pub use self::run::{Gather, MalformedRun, RunWriter};
pub use self::scatter::Scatter;
