//! Streams of rows between Python and [`flownet_rows`]: Arrow data over the PyCapsule interface, without
//! copies, and the operators that call Python once a batch.

mod arrow;
mod building;
mod collect;
mod conform;
mod encoding;
mod export;
mod foreign;
mod map_batches;
mod own_aggregates;
mod plan;
mod reader;
mod sink;
mod source;
mod splits;
mod text_blocks;
mod to_objects;
mod to_rows;
mod type_levels;
mod write_files;

pub(crate) use self::arrow::{PyRowBatch, PyRowSchema};
pub(crate) use self::export::rows_of;
pub(crate) use self::foreign::PythonForeign;
pub(crate) use self::plan::{
    rows_after_agg, rows_after_join, rows_after_steps, rows_functions, rows_kept, rows_schema, rows_time,
};
pub(crate) use self::text_blocks::{csv_records, csv_starts, json_fault};
pub(crate) use self::to_objects::ToObjects;
pub(crate) use self::to_rows::ToRows;
