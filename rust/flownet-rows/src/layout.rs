//! Layout of the columns of a schema in row blocks: a handful of shapes for all types.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema};

use crate::type_names::type_name;

/// Layout of the rows of a schema.
#[derive(Clone, Debug)]
pub struct Layout {
    schema: Arc<Schema>,
    columns: Vec<ColumnLayout>,
}

/// Layout of one column, or of a child of one.
#[derive(Clone, Debug)]
pub(crate) struct ColumnLayout {
    pub(crate) data_type: DataType,
    /// Whether row blocks carry nulls of the column.
    pub(crate) nullable: bool,
    pub(crate) shape: Shape,
}

/// Arrangement of the values in memory.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// `width` bytes per value.
    Fixed { width: usize },
    /// One bit per value.
    Bits,
    /// Any number of bytes per value.
    Bytes,
    /// Any number of child values per value.
    List(Box<ColumnLayout>),
    /// One value of each child per value.
    Struct(Vec<ColumnLayout>),
}

/// A column has a type that rows cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "column '{column}' is of type {}, which rows cannot have: they have ints, floats, bool, utf8, binary, dates, \
     times, timestamps, durations, decimal128, fixed-size binary, and lists and structs of these; cast it before",
    type_name(.data_type)
)]
pub struct UnsupportedType {
    /// Name of the column; for a child, the path of names to it.
    pub column: String,
    /// Its type.
    pub data_type: DataType,
}

impl Layout {
    /// Creates the layout of rows with this schema.
    pub fn new(schema: Arc<Schema>) -> Result<Self, UnsupportedType> {
        let columns = children(schema.fields(), "")?;
        Ok(Self { schema, columns })
    }

    /// Returns the schema.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    pub(crate) fn columns(&self) -> &[ColumnLayout] {
        &self.columns
    }
}

fn children(fields: &Fields, parent: &str) -> Result<Vec<ColumnLayout>, UnsupportedType> {
    fields.iter().map(|field| ColumnLayout::of(field, parent)).collect()
}

impl ColumnLayout {
    fn of(field: &Field, parent: &str) -> Result<Self, UnsupportedType> {
        let name = if parent.is_empty() { field.name().clone() } else { format!("{parent}.{}", field.name()) };
        // A value takes at least one bit, so a peer that claims many values must send them.
        let shape = match field.data_type() {
            DataType::Boolean => Shape::Bits,
            DataType::Utf8 | DataType::Binary => Shape::Bytes,
            DataType::FixedSizeBinary(width @ 1..) => Shape::Fixed { width: *width as usize },
            DataType::List(item) => Shape::List(Box::new(Self::of(item, &name)?)),
            DataType::Struct(fields) if !fields.is_empty() => Shape::Struct(children(fields, &name)?),
            data_type if is_plain(data_type) => Shape::Fixed { width: data_type.primitive_width().unwrap_or(0) },
            data_type => return Err(UnsupportedType { column: name, data_type: data_type.clone() }),
        };
        Ok(Self { data_type: field.data_type().clone(), nullable: field.is_nullable(), shape })
    }
}

/// Returns true if values are numbers, or times stored as numbers.
fn is_plain(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32
            | DataType::UInt64
            | DataType::Float32
            | DataType::Float64
            | DataType::Date32
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Timestamp(..)
            | DataType::Duration(_)
            | DataType::Decimal128(..)
    )
}
