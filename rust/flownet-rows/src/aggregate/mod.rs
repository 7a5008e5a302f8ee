//! Aggregates rows by key in two steps: partial aggregates upstream of the exchange, results downstream.
//!
//! A partial aggregate, called part in identifiers, covers some rows of one key and one time slice: one cell per
//! aggregate. It travels as a record of a keyed edge. So windows, sessions, state and rescaling are shared with
//! objects, and only the folds are specific to rows:
//!
//! ```text
//! part  = varint key bytes | canonical key | value
//! value = varint of 2 n + 1, of the n rows that it stands for | what is kept of each of the user's | cell of each other
//! ```
//!
//! A partial aggregate of one row that may be needed whole is preceded by [the row](whole). One of several rows of a
//! session is preceded by [the span](span) of their times.

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

/// Returns the time zone of the window columns of a result. A window over all rows, which fires at the end of the
/// input, has no window columns.
pub(crate) fn window_zone(window: &WindowSpec) -> Option<&'static str> {
    (!window.assign.spans_all_time()).then(|| window.assign.zone())
}

/// Returns the result schema: the keys, the window in its zone if there is one, and a column for each aggregate.
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
