//! Values of a subexpression: a column, or one value for all rows.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Datum, DurationMicrosecondArray, Float64Array, Int64Array,
    NullArray, Scalar, StringArray, TimestampMicrosecondArray, UInt32Array,
};
use arrow_select::take::take;

use super::{EvalError, Literal, decimal};

/// Values of an expression.
#[derive(Clone, Debug)]
pub(super) enum Values {
    /// One value per row.
    Column(ArrayRef),
    /// One value for all rows.
    One(Scalar<ArrayRef>),
}

impl Values {
    /// Creates one value for all rows from the first value of an array.
    pub(super) fn one(array: ArrayRef) -> Self {
        Self::One(Scalar::new(array))
    }

    /// Returns the values in the form that kernels take.
    pub(super) fn datum(&self) -> &dyn Datum {
        match self {
            Self::Column(array) => array,
            Self::One(scalar) => scalar,
        }
    }

    /// Returns the values as an array: one value, or one per row.
    pub(super) fn array(&self) -> ArrayRef {
        match self {
            Self::Column(array) => Arc::clone(array),
            Self::One(scalar) => scalar.clone().into_inner(),
        }
    }

    /// Returns other values of the same shape.
    pub(super) fn with(&self, array: ArrayRef) -> Self {
        match self {
            Self::Column(_) => Self::Column(array),
            Self::One(_) => Self::one(array),
        }
    }

    /// Returns an array with one value for each of `rows` rows.
    pub(super) fn into_array(self, rows: usize) -> Result<ArrayRef, EvalError> {
        match self {
            Self::Column(array) => Ok(array),
            Self::One(scalar) => {
                let first = UInt32Array::from(vec![0; rows]);
                take(&scalar.into_inner(), &first, None).map_err(|error| EvalError::of_arrow("a value", &error))
            }
        }
    }

    /// Returns the values of `rows` rows from `start`.
    pub(super) fn slice(&self, start: usize, rows: usize) -> Self {
        match self {
            Self::Column(array) => Self::Column(array.slice(start, rows)),
            Self::One(_) => self.clone(),
        }
    }
}

impl Literal {
    /// Returns an array of one value, of the type that such literals have.
    pub(super) fn to_array(&self) -> ArrayRef {
        match self {
            Self::Null => Arc::new(NullArray::new(1)),
            Self::Bool(value) => Arc::new(BooleanArray::from(vec![*value])),
            Self::Int(value) => Arc::new(Int64Array::from(vec![*value])),
            Self::Float(bits) => Arc::new(Float64Array::from(vec![f64::from_bits(*bits)])),
            Self::Decimal { high, low, scale } => decimal::written(*high, *low, *scale),
            Self::Text(text) => Arc::new(StringArray::from(vec![text.as_str()])),
            Self::Bytes(bytes) => Arc::new(BinaryArray::from(vec![bytes.as_slice()])),
            Self::Date(days) => Arc::new(Date32Array::from(vec![*days])),
            Self::Timestamp { us, zoned: false } => Arc::new(TimestampMicrosecondArray::from(vec![*us])),
            Self::Timestamp { us, zoned: true } => {
                Arc::new(TimestampMicrosecondArray::from(vec![*us]).with_timezone("UTC"))
            }
            Self::Duration(us) => Arc::new(DurationMicrosecondArray::from(vec![*us])),
        }
    }
}

/// Formats one value of an array, for errors.
pub(super) fn shown(array: &dyn Array, row: usize) -> String {
    try_shown(array, row).unwrap_or_else(|| "?".to_owned())
}

/// Formats one value of an array. Returns none for a time outside the calendar.
pub(crate) fn try_shown(array: &dyn Array, row: usize) -> Option<String> {
    let options = arrow_cast::display::FormatOptions::default().with_null("None");
    let formatter = arrow_cast::display::ArrayFormatter::try_new(array, &options);
    formatter.ok()?.value(row).try_to_string().ok()
}
