//! Columns of an aggregation: built-in and user aggregates, in the order that the user requested.

use std::sync::Arc;

use arrow_schema::{Field, Schema};
use serde::{Deserialize, Serialize};

use super::function::{Aggregate, Aggregation, AggregationError};
use super::user_aggregate::{OwnAggregate, OwnAggregation};

/// One aggregate column of a result, as users write it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AggregateColumn {
    /// Built-in aggregate.
    BuiltIn(Aggregate),
    /// User aggregate.
    Own(Box<OwnAggregate>),
}

impl AggregateColumn {
    /// Returns true for a user aggregate.
    pub fn is_own(&self) -> bool {
        matches!(self, Self::Own(_))
    }
}

/// All columns of a result except keys and windows, checked against the schema of the rows.
#[derive(Clone, Debug)]
pub struct Aggregations {
    pub(super) built_in: Arc<[Aggregation]>,
    pub(super) own: Arc<[OwnAggregation]>,
    /// Whether each column is the next user aggregate.
    are_own: Vec<bool>,
}

impl Aggregations {
    /// Checks names and types against the schema of the rows.
    pub fn new(columns: &[AggregateColumn], schema: &Schema) -> Result<Self, AggregationError> {
        let (mut built_in, mut own) = (Vec::new(), Vec::new());
        for column in columns {
            match column {
                AggregateColumn::BuiltIn(aggregate) => built_in.push(Aggregation::new(aggregate, schema)?),
                AggregateColumn::Own(aggregate) => own.push(OwnAggregation::new(aggregate, own.len(), schema)?),
            }
        }
        let are_own = columns.iter().map(AggregateColumn::is_own).collect();
        Ok(Self { built_in: built_in.into(), own: own.into(), are_own })
    }

    /// Describes the state of a group, one entry per column. Checkpoints are interchangeable if the descriptions are
    /// equal.
    pub fn kept(&self) -> Vec<String> {
        self.in_order(self.built_in.iter().map(Aggregation::kept), self.own.iter().map(OwnAggregation::kept).collect())
    }

    pub(super) fn fields(&self) -> Vec<Field> {
        let (built_in, own) =
            (self.built_in.iter().map(Aggregation::field), self.own.iter().map(OwnAggregation::field));
        self.in_order(built_in.cloned(), own.cloned().collect())
    }

    /// Interleaves items of built-in and user aggregates in the order of the columns.
    pub(super) fn in_order<T>(&self, built_in: impl IntoIterator<Item = T>, own: Vec<T>) -> Vec<T> {
        let (mut built_in, mut own) = (built_in.into_iter(), own.into_iter());
        self.are_own.iter().filter_map(|is_own| if *is_own { own.next() } else { built_in.next() }).collect()
    }
}
