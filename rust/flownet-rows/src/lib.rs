//! Streams of rows with a schema.
//!
//! Operators work on columns ([`RowBatch`], the Arrow layout). They are operators of flownet-runtime's model, for a
//! record format whose records are batches ([`RowsFormat`]). [`expr`] holds the expressions over columns that users
//! write, and [`BoundSteps`] applies them to rows. [`Aggregate`]s fold rows into *partial aggregates* upstream of an
//! exchange and merge them downstream. Joins match rows downstream of an exchange. The embedding crate provides
//! operators of another language ([`ExternalOperators`]).
//!
//! The wire carries *row blocks*, which identifiers call runs: a few to some thousand rows of one channel, as one
//! record of the exchange. [`RunWriter`] and [`Scatter`] split a batch into row blocks; [`Gather`] and [`RowInput`]
//! join row blocks to batches. All work that can be done per row block or per column is done there, not per record or
//! per row.
//!
//! # Invariants
//! - I1: all rows of a row block have one schema, which both ends know; the wire does not carry it.
//! - I2: rows with the same target keep their order.
//! - I3: any bytes are a row block or an error; all columns of an accepted row block have the same length.

#![forbid(unsafe_code)]

mod aggregate;
mod batch;
mod build;
mod calc;
mod column;
mod csv;
mod event_time;
pub mod expr;
mod finite;
mod floats;
mod gathered_rows;
mod join;
mod json_depth;
mod key;
mod keyed;
mod layout;
mod mistaken_unit;
mod names;
mod partial_aggregate;
mod partition;
mod physical_type;
mod record_format;
mod row_block;
mod scatter;
mod serializer;
mod slice_assigner;
mod time_bounds;
mod time_units;
mod timestamps;
mod type_levels;
mod type_names;

pub use self::aggregate::{
    Aggregate, AggregateColumn, AggregationError, Aggregations, Function, OwnAggregate, OwnAggregation, OwnFunctions,
    RowGroups, output_schema,
};
pub use self::batch::RowBatch;
pub use self::build::{ExternalOperators, batch_by_batch, chain, is_of_rows, schema};
pub use self::calc::{BoundSteps, Column, Step, StepError};
pub use self::column::Rows;
pub use self::csv::{CsvBlock, CsvFault, csv_records, csv_starts, write_csv};
pub use self::finite::not_finite;
pub use self::join::{JoinColumns, JoinError, JoinSchemas};
pub use self::json_depth::json_too_deep;
pub use self::key::{KeyHasher, NoKey};
pub use self::layout::{Layout, UnsupportedType};
pub use self::mistaken_unit::{MistakenUnit, mistaken_unit};
pub use self::names::twice;
pub use self::partial_aggregate::Parts;
pub use self::partition::{PartitionError, Partitions};
pub use self::record_format::{
    BATCH_ROWS, CarriesRows, Collector, OperatorInfo, RowInput, RowRecord, RowsChain, RowsFormat, TaskThread,
};
pub use self::row_block::{Gather, MalformedRun, RunWriter};
pub use self::scatter::Scatter;
pub use self::serializer::RowsSerializer;
pub use self::time_bounds::TimeBounds;
pub use self::timestamps::{NoTimes, time_column};
pub use self::type_levels::{MOST_TYPE_LEVELS, TypeTooDeep, check_name_levels, check_type_levels};
pub use self::type_names::{kept_columns, named_type, type_name};
