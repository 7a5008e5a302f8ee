//! Values on their way through an expression: a column, or one value that stands for all rows.

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
    /// One for each row.
    Column(ArrayRef),
    /// One for all.
    One(Scalar<ArrayRef>),
}

impl Values {
    /// One value for all rows, which is the first of this array.
    pub(super) fn one(array: ArrayRef) -> Self {
        Self::One(Scalar::new(array))
    }

    /// To kernels.
    pub(super) fn datum(&self) -> &dyn Datum {
        match self {
            Self::Column(array) => array,
            Self::One(scalar) => scalar,
        }
    }

    /// The values that there are: one, or as many as rows.
    pub(super) fn array(&self) -> ArrayRef {
        match self {
            Self::Column(array) => Arc::clone(array),
            Self::One(scalar) => scalar.clone().into_inner(),
        }
    }

    /// The same shape with other values.
    pub(super) fn with(&self, array: ArrayRef) -> Self {
        match self {
            Self::Column(_) => Self::Column(array),
            Self::One(_) => Self::one(array),
        }
    }

    /// A value for each of so many rows.
    pub(super) fn into_array(self, rows: usize) -> Result<ArrayRef, EvalError> {
        match self {
            Self::Column(array) => Ok(array),
            Self::One(scalar) => {
                let first = UInt32Array::from(vec![0; rows]);
                take(&scalar.into_inner(), &first, None).map_err(|error| EvalError::of_arrow("a value", &error))
            }
        }
    }

    /// Those of some rows.
    pub(super) fn slice(&self, start: usize, rows: usize) -> Self {
        match self {
            Self::Column(array) => Self::Column(array.slice(start, rows)),
            Self::One(_) => self.clone(),
        }
    }
}

impl Literal {
    /// As an array of one value, of the type that literals of the kind have.
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

/// One value of an array, for errors.
pub(super) fn shown(array: &dyn Array, row: usize) -> String {
    try_shown(array, row).unwrap_or_else(|| "?".to_owned())
}

/// The same; none of a time that calendars do not have.
pub(crate) fn try_shown(array: &dyn Array, row: usize) -> Option<String> {
    let options = arrow_cast::display::FormatOptions::default().with_null("None");
    let formatter = arrow_cast::display::ArrayFormatter::try_new(array, &options);
    formatter.ok()?.value(row).try_to_string().ok()
}
