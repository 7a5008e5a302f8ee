//! What rows of a key come to, in two steps: in front of the exchange to *parts*, behind it to results.
//!
//! A part says what some rows of one key, and of one slice of time, come to: a cell for each aggregate. It travels as a
//! record of a keyed edge, so that windows, sessions, state and rescaling are those of objects, and only folds are of rows:
//!
//! ```text
//! part  = varint key bytes | canonical key | value
//! value = varint of 2 n + 1, of the n rows that it stands for | what is kept of each of the user's | cell of each other
//! ```
//!
//! A part of one row that may be wanted whole has it [in front](whole), one of several rows of a session over
//! [how long a time](span) they are.

mod cell;
mod collected;
mod columns;
mod distinct;
mod fold;
mod function;
mod group;
mod key;
mod partial;
mod quantile;
mod span;
mod user_aggregate;
mod whole;

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use flownet_runtime::spec::WindowSpec;

pub use self::columns::{AggregateColumn, Aggregations};
pub(crate) use self::fold::{AggregateFold, NoCalls};
pub use self::function::{Aggregate, AggregationError, Function};
pub(crate) use self::key::KeyTable;
pub(crate) use self::partial::Partial;
pub(crate) use self::user_aggregate::UserAggregateFold;
pub use self::user_aggregate::{OwnAggregate, OwnAggregation, OwnFunctions, RowGroups};
use crate::key::NoKey;

/// The time zone in which results say which window they are of. That of all rows there are, which fires when the input
/// ends, says nothing.
pub(crate) fn window_zone(window: &WindowSpec) -> Option<&'static str> {
    (!window.assign.spans_all_time()).then(|| window.assign.zone())
}

/// What comes of rows of this schema, aggregated so: the keys, the window in its zone if there is one, and a column for each aggregate.
pub fn output_schema(
    input: &Schema,
    keys: &[String],
    aggregates: &Aggregations,
    window_zone: Option<&str>,
) -> Result<SchemaRef, AggregationError> {
    let mut fields: Vec<Field> = Vec::new();
    for key in keys {
        let (_, field) = input.column_with_name(key).ok_or_else(|| NoKey::missing(input, key))?;
        fields.push(field.clone());
    }
    if let Some(zone) = window_zone {
        let time = DataType::Timestamp(TimeUnit::Millisecond, Some(zone.into()));
        fields.extend(["window_start", "window_end"].map(|name| Field::new(name, time.clone(), false)));
    }
    fields.extend(aggregates.fields());
    for (at, field) in fields.iter().enumerate() {
        if fields[..at].iter().any(|other| other.name() == field.name()) {
            return Err(AggregationError::Twice { column: field.name().clone() });
        }
    }
    Ok(Arc::new(Schema::new(fields)))
}
