//! Maps columns to five physical types, so that code for many types is written once.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, Decimal128Array, Float64Array, Int64Array, ListArray,
    PrimitiveArray, UInt64Array,
};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field};

/// Machine type by which values of a column are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PhysicalType {
    /// Signed integers, bools, dates, times and durations: 64 bits.
    Int,
    /// Unsigned integers of 64 bits.
    Unsigned,
    /// Floats: 64 bits.
    Float,
    /// Decimals: 128 bits, all of one scale.
    Decimal,
    /// Strings and bytes.
    Bytes,
}

impl PhysicalType {
    /// Name of the type in error messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Int => "ints",
            Self::Unsigned => "uint64",
            Self::Float => "floats",
            Self::Decimal => "decimals",
            Self::Bytes => "bytes",
        }
    }

    /// Returns the physical type of `data_type`, if it has one.
    pub(crate) fn of(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::UInt64 => Self::Unsigned,
            DataType::Float32 | DataType::Float64 => Self::Float,
            DataType::Decimal128(..) => Self::Decimal,
            DataType::Utf8 | DataType::Binary => Self::Bytes,
            DataType::Boolean | DataType::Date32 | DataType::Time32(_) | DataType::Time64(_) => Self::Int,
            DataType::Timestamp(..) | DataType::Duration(_) => Self::Int,
            data_type if data_type.is_integer() => Self::Int,
            _ => return None,
        })
    }
}

/// Values of a column in their physical type.
#[derive(Clone, Debug)]
pub(crate) enum Values {
    Int(Int64Array),
    Unsigned(UInt64Array),
    Float(Float64Array),
    Decimal(Decimal128Array),
    Bytes(BinaryArray),
}

impl Values {
    /// Converts a column. Returns an error if its type has no physical type.
    pub(crate) fn of(array: &ArrayRef) -> Result<Self, ArrowError> {
        let none = || ArrowError::NotYetImplemented(format!("values of type {}", array.data_type()));
        let widened = |to: &DataType| cast(array, to);
        Ok(match PhysicalType::of(array.data_type()).ok_or_else(none)? {
            PhysicalType::Unsigned => Self::Unsigned(array.as_primitive::<UInt64Type>().clone()),
            PhysicalType::Float => Self::Float(widened(&DataType::Float64)?.as_primitive::<Float64Type>().clone()),
            PhysicalType::Decimal => Self::Decimal(array.as_primitive::<Decimal128Type>().clone()),
            PhysicalType::Bytes => Self::Bytes(widened(&DataType::Binary)?.as_binary::<i32>().clone()),
            PhysicalType::Int => Self::Int(match array.data_type() {
                DataType::Int64 | DataType::Time64(_) | DataType::Timestamp(..) | DataType::Duration(_) => {
                    reinterpreted::<Int64Type>(array)
                }
                DataType::Date32 | DataType::Time32(_) => {
                    let numbers: ArrayRef = Arc::new(reinterpreted::<arrow_array::types::Int32Type>(array));
                    cast(&numbers, &DataType::Int64)?.as_primitive::<Int64Type>().clone()
                }
                _ => widened(&DataType::Int64)?.as_primitive::<Int64Type>().clone(),
            }),
        })
    }
}

/// Returns the numbers that represent the values. `T` has as many bits as their type.
fn reinterpreted<T: ArrowPrimitiveType>(array: &ArrayRef) -> PrimitiveArray<T> {
    let data = array.to_data();
    let values = ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len());
    PrimitiveArray::new(values, array.nulls().cloned())
}

/// One value of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scalar<'a> {
    None,
    Int(i64),
    Unsigned(u64),
    Float(f64),
    Decimal(i128),
    Bytes(&'a [u8]),
    List(&'a [Self]),
}

/// Builds a column value by value.
#[derive(Debug)]
pub(crate) struct ColumnBuilder {
    data_type: DataType,
    values: PhysicalBuilder,
}

#[derive(Debug)]
enum PhysicalBuilder {
    Int(Vec<Option<i64>>),
    Unsigned(Vec<Option<u64>>),
    Float(Vec<Option<f64>>),
    Decimal(Vec<Option<i128>>),
    Bytes(arrow_array::builder::BinaryBuilder),
    List { items: Box<ColumnBuilder>, lengths: Vec<usize> },
}

impl ColumnBuilder {
    /// Creates a builder for a type with a physical type, for fixed-size binary, or for lists of these.
    pub(crate) fn new(data_type: &DataType) -> Self {
        let values = match (PhysicalType::of(data_type), data_type) {
            (_, DataType::List(item)) => {
                PhysicalBuilder::List { items: Box::new(Self::new(item.data_type())), lengths: Vec::new() }
            }
            (Some(PhysicalType::Unsigned), _) => PhysicalBuilder::Unsigned(Vec::new()),
            (Some(PhysicalType::Float), _) => PhysicalBuilder::Float(Vec::new()),
            (Some(PhysicalType::Decimal), _) => PhysicalBuilder::Decimal(Vec::new()),
            (Some(PhysicalType::Bytes), _) | (None, DataType::FixedSizeBinary(_)) => {
                PhysicalBuilder::Bytes(arrow_array::builder::BinaryBuilder::new())
            }
            (Some(PhysicalType::Int) | None, _) => PhysicalBuilder::Int(Vec::new()),
        };
        Self { data_type: data_type.clone(), values }
    }

    /// Appends a value. A value of another physical type becomes null, unless it is a number that both can represent.
    pub(crate) fn push(&mut self, value: Scalar<'_>) {
        match (&mut self.values, value) {
            (PhysicalBuilder::Int(values), Scalar::Int(value)) => values.push(Some(value)),
            (PhysicalBuilder::Int(values), Scalar::Unsigned(value)) => values.push(i64::try_from(value).ok()),
            (PhysicalBuilder::Int(values), _) => values.push(None),
            (PhysicalBuilder::Unsigned(values), Scalar::Unsigned(value)) => values.push(Some(value)),
            (PhysicalBuilder::Unsigned(values), Scalar::Int(value)) => values.push(u64::try_from(value).ok()),
            (PhysicalBuilder::Unsigned(values), _) => values.push(None),
            (PhysicalBuilder::Float(values), Scalar::Float(value)) => values.push(Some(value)),
            (PhysicalBuilder::Float(values), Scalar::Int(value)) => values.push(Some(value as f64)),
            (PhysicalBuilder::Float(values), Scalar::Unsigned(value)) => values.push(Some(value as f64)),
            (PhysicalBuilder::Float(values), _) => values.push(None),
            (PhysicalBuilder::Decimal(values), Scalar::Decimal(value)) => values.push(Some(value)),
            (PhysicalBuilder::Decimal(values), _) => values.push(None),
            (PhysicalBuilder::Bytes(values), Scalar::Bytes(value)) => values.append_value(value),
            (PhysicalBuilder::Bytes(values), _) => values.append_null(),
            (PhysicalBuilder::List { items, lengths }, value) => {
                let Scalar::List(values) = value else { return lengths.push(0) };
                values.iter().for_each(|value| items.push(*value));
                lengths.push(values.len());
            }
        }
    }

    /// Returns the appended values as a column of the type, and clears the builder.
    pub(crate) fn take(&mut self) -> Result<ArrayRef, ArrowError> {
        let array: ArrayRef = match &mut self.values {
            PhysicalBuilder::Int(values) => Arc::new(Int64Array::from(std::mem::take(values))),
            PhysicalBuilder::Unsigned(values) => Arc::new(UInt64Array::from(std::mem::take(values))),
            PhysicalBuilder::Float(values) => Arc::new(Float64Array::from(std::mem::take(values))),
            // No check of the precision: sums were checked before, and other values come from a column of this type.
            PhysicalBuilder::Decimal(values) => {
                Arc::new(Decimal128Array::from(std::mem::take(values)).with_data_type(self.data_type.clone()))
            }
            PhysicalBuilder::Bytes(values) => Arc::new(values.finish()),
            PhysicalBuilder::List { items, lengths } => {
                let (items, lengths) = (items.take()?, std::mem::take(lengths));
                // An Arrow list array has 32-bit offsets, which limit the number of items.
                i32::try_from(items.len()).map_err(|_| ArrowError::OffsetOverflowError(items.len()))?;
                let item = Arc::new(Field::new_list_field(items.data_type().clone(), true));
                Arc::new(ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), items, None)?)
            }
        };
        match &self.data_type {
            DataType::Date32 | DataType::Time32(_) => cast(&cast(&array, &DataType::Int32)?, &self.data_type),
            data_type if array.data_type() == data_type => Ok(array),
            data_type => cast(&array, data_type),
        }
    }
}
