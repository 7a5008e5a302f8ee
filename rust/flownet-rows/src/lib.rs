//! Streams of rows with a schema.
//!
//! Operators work on columns ([`RowBatch`], the Arrow layout): they are those of flownet-runtime's operator model, for a
//! medium whose records are batches ([`RowsMedium`]). [`expr`] is what users say of columns, [`Steps`] takes rows through
//! it, [`Aggregate`]s make *parts* of rows in front of an exchange and put these together behind it, joins have rows meet there. What is of another
//! language comes from who embeds this ([`Foreign`]).
//!
//! The wire carries *runs*: a few to some thousand rows of one channel, as one record of the exchange. [`RunWriter`] and
//! [`Scatter`] make runs of a batch, [`Gather`] and [`Arriving`] make batches of runs. Nothing is done per record of the
//! exchange that could be done per run, nor per row that could be done per column.
//!
//! # Invariants
//! - I1: the rows of a run are of one schema, which both ends know: nothing on the wire says it.
//! - I2: rows that go to one target keep their order.
//! - I3: any bytes are a run or an error; no run that was taken leaves columns of different lengths.

#![forbid(unsafe_code)]

mod aggregate;
mod batch;
mod build;
mod column;
mod csv;
mod event_time;
mod exit;
pub mod expr;
mod finite;
mod floats;
mod gathered;
mod join;
mod json_depth;
mod key;
mod keyed;
mod lane;
mod layout;
mod medium;
mod mistaken_unit;
mod names;
mod partition;
mod parts;
mod pieces;
mod run;
mod scatter;
mod steps;
mod time_bounds;
mod time_units;
mod timestamps;
mod type_levels;
mod type_names;

pub use self::aggregate::{
    Aggregate, AggregateColumn, AggregationError, Aggregations, Function, Grouped, OwnAggregate, OwnAggregation,
    OwnFunctions, output_schema,
};
pub use self::batch::RowBatch;
pub use self::build::{Foreign, batch_by_batch, chain, is_of_rows, schema};
pub use self::column::Rows;
pub use self::csv::{CsvBlock, CsvFault, csv_records, csv_starts, write_csv};
pub use self::exit::RowsExit;
pub use self::finite::not_finite;
pub use self::join::{Carried, JoinError, JoinSchemas};
pub use self::json_depth::json_too_deep;
pub use self::key::{KeyHasher, NoKey};
pub use self::layout::{Layout, UnsupportedType};
pub use self::medium::{
    Arriving, BATCH_ROWS, CarriesRows, Flow, OperatorInfo, RowRecord, RowsChain, RowsMedium, TaskThread,
};
pub use self::mistaken_unit::{MistakenUnit, mistaken_unit};
pub use self::names::twice;
pub use self::partition::{PartitionError, Partitions};
pub use self::parts::Parts;
pub use self::run::{Gather, MalformedRun, RunWriter};
pub use self::scatter::Scatter;
pub use self::steps::{Column, Step, StepError, Steps};
pub use self::time_bounds::TimeBounds;
pub use self::timestamps::{NoTimes, time_column};
pub use self::type_levels::{MOST_TYPE_LEVELS, TypeTooDeep, check_name_levels, check_type_levels};
pub use self::type_names::{kept_columns, named_type, type_name};
