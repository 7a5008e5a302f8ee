//! Kernels of functions, and the arguments that they take: columns, or one value for all rows.

use std::fmt::{Debug, Formatter};
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Float64Array, Int64Array, PrimitiveArray, StringArray};
use arrow_schema::ArrowError;

use crate::expr::EvalError;
use crate::expr::values::Values;

type Run = dyn Fn(&Arguments<'_>) -> Result<ArrayRef, ArrowError> + Send + Sync;

/// Kernel of a call: computes a column from columns. It returns as many values as [`Arguments::rows`].
pub(in crate::expr) struct Kernel(Box<Run>);

impl Kernel {
    pub(super) fn new(run: impl Fn(&Arguments<'_>) -> Result<ArrayRef, ArrowError> + Send + Sync + 'static) -> Self {
        Self(Box::new(run))
    }

    /// Creates a kernel of one array.
    pub(super) fn of_array(run: impl Fn(&ArrayRef) -> Result<ArrayRef, ArrowError> + Send + Sync + 'static) -> Self {
        Self::new(move |arguments| run(&arguments.array(0)))
    }

    /// Creates a kernel of one 64-bit float.
    pub(super) fn of_float(run: impl Fn(f64) -> f64 + Send + Sync + 'static) -> Self {
        Self::of_array(move |array| Ok(Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(&run))))
    }

    /// Creates a kernel of two 64-bit floats.
    pub(super) fn of_floats(run: impl Fn(f64, f64) -> f64 + Send + Sync + 'static) -> Self {
        Self::new(move |arguments| {
            let (left, right) = (arguments.numbers::<Float64Type>(0), arguments.numbers::<Float64Type>(1));
            let found = arguments.each(|row| Some(run(left.get(row)?, right.get(row)?)));
            Ok(Arc::new(found.collect::<Float64Array>()))
        })
    }

    /// Creates a kernel that writes a string for each string.
    pub(super) fn of_text(run: impl Fn(&str, &mut String) + Send + Sync + 'static) -> Self {
        Self::new(move |arguments| {
            let texts = arguments.texts(0);
            arguments.strings(|row, out| {
                run(texts.get(row)?, out);
                Some(())
            })
        })
    }

    /// Creates a kernel that returns a boolean for each string.
    pub(super) fn of_truth(run: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |arguments| {
            let texts = arguments.texts(0);
            Ok(Arc::new(arguments.each(|row| texts.get(row).map(&run)).collect::<BooleanArray>()))
        })
    }

    /// Creates a kernel that returns an integer for each string.
    pub(super) fn of_count(run: impl Fn(&str) -> usize + Send + Sync + 'static) -> Self {
        Self::new(move |arguments| {
            let texts = arguments.texts(0);
            let found = arguments.each(|row| texts.get(row).map(|text| run(text) as i64));
            Ok(Arc::new(found.collect::<Int64Array>()))
        })
    }

    pub(in crate::expr) fn run(&self, arguments: &Arguments<'_>) -> Result<ArrayRef, ArrowError> {
        (self.0)(arguments)
    }
}

impl Debug for Kernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kernel")
    }
}

/// Columns of a call. Constants are not among them: kernels capture these.
pub(in crate::expr) struct Arguments<'a> {
    values: &'a [Values],
    rows: usize,
}

impl<'a> Arguments<'a> {
    pub(in crate::expr) fn new(values: &'a [Values], rows: usize) -> Self {
        Self { values, rows }
    }

    /// Returns the number of values to compute.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns the values of a column: one, or one per row.
    pub(super) fn array(&self, index: usize) -> ArrayRef {
        self.values[index].array()
    }

    /// Returns one value per row of a column.
    pub(super) fn full_array(&self, index: usize) -> Result<ArrayRef, ArrowError> {
        let error = |error: EvalError| ArrowError::ComputeError(error.message);
        self.values[index].clone().into_array(self.rows).map_err(error)
    }

    /// Returns the values of a column.
    pub(super) fn values(&self, index: usize) -> &Values {
        &self.values[index]
    }

    /// Returns a column of strings.
    pub(super) fn texts(&self, index: usize) -> Texts {
        Texts { array: self.array(index).as_string::<i32>().clone(), is_one: self.is_one(index) }
    }

    /// Returns a column of numbers of a type.
    pub(super) fn numbers<T: ArrowPrimitiveType>(&self, index: usize) -> Numbers<T> {
        Numbers { array: self.array(index).as_primitive::<T>().clone(), is_one: self.is_one(index) }
    }

    /// Computes a value for each row.
    pub(super) fn each<T>(&self, value: impl Fn(usize) -> Option<T>) -> impl Iterator<Item = Option<T>> {
        (0..self.rows).map(value)
    }

    /// Writes a string for each row. None makes it null.
    pub(super) fn strings(&self, write: impl Fn(usize, &mut String) -> Option<()>) -> Result<ArrayRef, ArrowError> {
        self.try_strings(|row, out| Ok(write(row, out)))
    }

    /// Writes a string for each row, unless one fails. None makes it null.
    pub(super) fn try_strings(
        &self,
        write: impl Fn(usize, &mut String) -> Result<Option<()>, ArrowError>,
    ) -> Result<ArrayRef, ArrowError> {
        let mut builder = StringBuilder::with_capacity(self.rows, self.rows * 16);
        let mut scratch = String::new();
        for row in 0..self.rows {
            scratch.clear();
            if write(row, &mut scratch)?.is_none() {
                builder.append_null();
                continue;
            }
            check_bytes(builder.values_slice().len() + scratch.len())?;
            builder.append_value(&scratch);
        }
        Ok(Arc::new(builder.finish()))
    }

    fn is_one(&self, index: usize) -> bool {
        matches!(self.values[index], Values::One(_))
    }
}

/// Fails if a column of strings cannot hold this number of bytes.
pub(super) fn check_bytes(bytes: usize) -> Result<(), ArrowError> {
    if i32::try_from(bytes).is_ok() {
        return Ok(());
    }
    Err(ArrowError::ComputeError(format!("it makes {bytes} bytes of text, and a batch holds {} at most", i32::MAX)))
}

/// Column of strings.
pub(super) struct Texts {
    array: StringArray,
    is_one: bool,
}

impl Texts {
    #[inline]
    pub(super) fn get(&self, row: usize) -> Option<&str> {
        let row = if self.is_one { 0 } else { row };
        self.array.is_valid(row).then(|| self.array.value(row))
    }
}

/// Column of numbers.
pub(super) struct Numbers<T: ArrowPrimitiveType> {
    array: PrimitiveArray<T>,
    is_one: bool,
}

impl<T: ArrowPrimitiveType> Numbers<T> {
    #[inline]
    pub(super) fn get(&self, row: usize) -> Option<T::Native> {
        let row = if self.is_one { 0 } else { row };
        self.array.is_valid(row).then(|| self.array.value(row))
    }
}
