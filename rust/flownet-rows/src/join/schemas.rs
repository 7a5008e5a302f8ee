//! Computes the schemas of a join.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::key::{NoKey, place};
use crate::layout::{Layout, UnsupportedType};
use crate::type_names::{kept_columns, type_name};

/// Columns of the two sides of a join, and of their pairs.
#[derive(Clone, Debug, PartialEq)]
pub struct JoinSchemas {
    /// All columns of the first side.
    pub left: JoinColumns,
    /// Columns of the second side except its key, which the first side has. All columns if late rows are requested.
    pub right: JoinColumns,
    /// Columns of the second side that pairs have.
    pub shown: Vec<String>,
    /// Columns of a pair: those of the first side, then those of the second.
    pub output: SchemaRef,
    /// Description of the stored rows of each side. A job that resumes must store the same columns.
    pub kept: Vec<String>,
}

/// Columns of one side that the join receives.
#[derive(Clone, Debug, PartialEq)]
pub struct JoinColumns {
    /// Names upstream of the join.
    pub columns: Vec<String>,
    /// Names and types downstream of the join.
    pub schema: SchemaRef,
}

/// Reasons why rows cannot be joined.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum JoinError {
    /// A column cannot be a key.
    #[error(transparent)]
    Key(#[from] NoKey),
    /// The keys have different numbers of columns.
    #[error(
        "join: the keys have {left} and {right} columns, and would never be equal: say as many of each in key_by()"
    )]
    KeySizes {
        /// Number of key columns of the first side.
        left: usize,
        /// Number of key columns of the second side.
        right: usize,
    },
    /// The types of the keys are never equal.
    #[error(
        "join: key column '{left}' is of type {left_type} and '{right}' of type {right_type}, which are never equal: cast one \
         of them before"
    )]
    KeyTypes {
        /// Key column of the first side.
        left: String,
        /// Its type.
        left_type: String,
        /// Matching key column of the second side.
        right: String,
        /// Its type.
        right_type: String,
    },
    /// Two columns of the result have the same name.
    #[error(
        "join: two columns of the result are called '{column}': say another suffix=, or rename() one of them before key_by()"
    )]
    Twice {
        /// Name of both columns.
        column: String,
    },
    /// A column has a type that rows cannot have.
    #[error("join: {0}")]
    Type(#[from] UnsupportedType),
}

impl JoinSchemas {
    /// Computes the schemas of a join of sides with these columns and keys. A column of the second side whose name the
    /// first side has, too, gets the `suffix`. Set `right_may_miss` if a row may be unmatched, and `right_is_whole` if
    /// late rows of the second side are requested.
    pub fn new(
        (left, left_keys): (&Schema, &[String]),
        (right, right_keys): (&Schema, &[String]),
        suffix: &str,
        right_may_miss: bool,
        right_is_whole: bool,
    ) -> Result<Self, JoinError> {
        check_keys(left, left_keys, right, right_keys)?;
        let mut fields: Vec<Field> = left.fields().iter().map(|field| field.as_ref().clone()).collect();
        let mut carried = Vec::new();
        for field in right.fields().iter().filter(|field| !right_keys.contains(field.name())) {
            let is_taken = left.column_with_name(field.name()).is_some();
            let name = if is_taken { format!("{}{suffix}", field.name()) } else { field.name().clone() };
            if fields.iter().any(|other| *other.name() == name) {
                return Err(JoinError::Twice { column: name });
            }
            fields.push(field.as_ref().clone().with_name(name).with_nullable(field.is_nullable() || right_may_miss));
            carried.push(field.name().clone());
        }
        let output = Arc::new(Schema::new(fields));
        Layout::new(Arc::clone(&output))?;
        let (lefts, rights) = output.fields().split_at(left.fields().len());
        let of = |columns, fields: &[_]| JoinColumns { columns, schema: Arc::new(Schema::new(fields.to_vec())) };
        let left = of(names(left), lefts);
        let (right, shown) = if right_is_whole {
            let may_miss = |field: &Field| field.clone().with_nullable(field.is_nullable() || right_may_miss);
            let fields: Vec<_> = right.fields().iter().map(|field| Arc::new(may_miss(field))).collect();
            (of(names(right), &fields), carried)
        } else {
            let right = of(carried, rights);
            let shown = names(&right.schema);
            (right, shown)
        };
        let kept = [&left, &right].map(|side| kept_columns(&side.schema)).to_vec();
        Ok(Self { left, right, shown, output, kept })
    }
}

fn names(schema: &Schema) -> Vec<String> {
    schema.fields().iter().map(|field| field.name().clone()).collect()
}

fn check_keys(left: &Schema, left_keys: &[String], right: &Schema, right_keys: &[String]) -> Result<(), JoinError> {
    if left_keys.len() != right_keys.len() {
        return Err(JoinError::KeySizes { left: left_keys.len(), right: right_keys.len() });
    }
    for (one, other) in left_keys.iter().zip(right_keys) {
        let left_type = left.field(place(left, one)?).data_type();
        let right_type = right.field(place(right, other)?).data_type();
        if Family::of(left_type) != Family::of(right_type) {
            let (left, right) = (one.clone(), other.clone());
            let (left_type, right_type) = (type_name(left_type), type_name(right_type));
            return Err(JoinError::KeyTypes { left, left_type, right, right_type });
        }
    }
    Ok(())
}

/// Families of types whose values may be equal.
#[derive(Debug, PartialEq, Eq)]
enum Family {
    Texts,
    Bytes,
    Numbers,
    Dates,
    Times,
    Timestamps { have_zone: bool },
    Durations,
}

impl Family {
    fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Utf8 => Self::Texts,
            DataType::Binary | DataType::FixedSizeBinary(_) => Self::Bytes,
            DataType::Date32 => Self::Dates,
            DataType::Time32(_) | DataType::Time64(_) => Self::Times,
            DataType::Timestamp(_, zone) => Self::Timestamps { have_zone: zone.is_some() },
            DataType::Duration(_) => Self::Durations,
            _ => Self::Numbers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(fields: &[(&str, DataType)]) -> Schema {
        Schema::new(
            fields.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), false)).collect::<Vec<_>>(),
        )
    }

    fn joined(
        left: &[(&str, DataType)],
        right: &[(&str, DataType)],
        keys: (&[&str], &[&str]),
        may_miss: bool,
    ) -> Result<JoinSchemas, String> {
        let [left_keys, right_keys] =
            [keys.0, keys.1].map(|keys| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>());
        JoinSchemas::new((&schema(left), &left_keys), (&schema(right), &right_keys), "_right", may_miss, false)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_second_side_comes_without_its_key_and_names_that_are_taken_get_a_suffix() {
        let left = [("user", DataType::Int64), ("at", DataType::Int64)];
        let right = [("at", DataType::Utf8), ("id", DataType::Int32), ("price", DataType::Float64)];
        let joined = joined(&left, &right, (&["user"], &["id"]), true).unwrap();
        let shown: Vec<_> =
            joined.output.fields().iter().map(|field| (field.name().as_str(), field.is_nullable())).collect();
        assert_eq!(shown, [("user", false), ("at", false), ("at_right", true), ("price", true)]);
        assert_eq!(joined.right.columns, ["at", "price"]);
        assert_eq!(joined.kept, ["(user int64!, at int64!)", "(at_right utf8, price float64)"]);
    }

    #[test]
    fn keys_that_are_never_equal_and_names_that_come_twice_are_refused() {
        let [text, number, two] = [
            vec![("a", DataType::Utf8)],
            vec![("a", DataType::UInt8)],
            vec![("a", DataType::Utf8), ("b", DataType::Utf8)],
        ];
        let error = joined(&text, &number, (&["a"], &["a"]), false).unwrap_err();
        assert!(error.contains("'a' is of type utf8 and 'a' of type uint8, which are never equal"), "{error}");
        let error = joined(&two, &text, (&["a", "b"], &["a"]), false).unwrap_err();
        assert!(error.contains("2 and 1 columns"), "{error}");
        let error = joined(&text, &text, (&["a"], &["z"]), false).unwrap_err();
        assert_eq!(error, "key_by: there is no column 'z'; there are 'a'");
        let three = [("a", DataType::Utf8), ("b_right", DataType::Utf8), ("b", DataType::Utf8)];
        let error = joined(&two, &three, (&["a"], &["a"]), false).unwrap_err();
        assert!(error.contains("are called 'b_right'"), "{error}");
        assert!(joined(&number, &[("a", DataType::Float32)], (&["a"], &["a"]), false).is_ok(), "1 is 1.0");
    }
}
