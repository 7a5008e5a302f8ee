//! Finds numbers that JSON has no form for.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, RecordBatch, StructArray, make_array};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;

/// Returns the first column with a NaN or infinite value at any depth, and the value.
pub fn not_finite(batch: &RecordBatch) -> Option<(String, f64)> {
    let schema = batch.schema();
    let mut columns = schema.fields().iter().zip(batch.columns());
    columns.find_map(|(field, column)| Some((field.name().clone(), first_of(column.as_ref())?)))
}

fn first_of(array: &dyn Array) -> Option<f64> {
    match array.data_type() {
        DataType::Float16 => of_numbers::<Float16Type>(array, f64::from),
        DataType::Float32 => of_numbers::<Float32Type>(array, f64::from),
        DataType::Float64 => of_numbers::<Float64Type>(array, |value| value),
        DataType::Struct(_) => {
            let rows = array.as_struct();
            // A field of a null struct may hold any value, so the nulls of the struct apply to its fields.
            let columns = rows.columns().iter();
            columns.map(|column| with_nulls_of(rows, column)).find_map(|column| first_of(column.as_ref()))
        }
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            (0..lists.len()).filter(|row| lists.is_valid(*row)).find_map(|row| first_of(lists.value(row).as_ref()))
        }
        _ => None,
    }
}

fn with_nulls_of(rows: &StructArray, column: &ArrayRef) -> ArrayRef {
    let nulls = NullBuffer::union(rows.nulls(), column.nulls());
    match column.to_data().into_builder().nulls(nulls).build() {
        Ok(data) => make_array(data),
        // Cannot happen: the null buffer has the length of the column.
        Err(_) => Arc::clone(column),
    }
}

fn of_numbers<T: ArrowPrimitiveType>(array: &dyn Array, number: impl Fn(T::Native) -> f64) -> Option<f64> {
    array.as_primitive::<T>().iter().flatten().map(number).find(|value| !value.is_finite())
}

#[cfg(test)]
mod tests {
    use arrow_array::{Float32Array, Float64Array, Int64Array, ListArray};
    use arrow_schema::{Field, Fields};

    use super::*;

    fn found(column: ArrayRef) -> Option<f64> {
        not_finite(&RecordBatch::try_from_iter([("it", column)]).unwrap()).map(|(_, value)| value)
    }

    #[test]
    fn numbers_are_found_at_any_depth_and_not_in_what_is_null() {
        assert_eq!(found(Arc::new(Int64Array::from(vec![1]))), None);
        assert_eq!(found(Arc::new(Float64Array::from(vec![Some(f64::MAX), None]))), None);
        assert_eq!(found(Arc::new(Float32Array::from(vec![1.0, f32::NEG_INFINITY]))), Some(f64::NEG_INFINITY));
        let lists = ListArray::from_iter_primitive::<Float64Type, _, _>([Some(vec![Some(1.0)]), None]);
        assert_eq!(found(Arc::new(lists)), None);
        let lists = ListArray::from_iter_primitive::<Float64Type, _, _>([Some(vec![Some(1.0), Some(f64::NAN)])]);
        assert!(found(Arc::new(lists)).unwrap().is_nan());
        let fields = Fields::from(vec![Field::new("x", DataType::Float64, true)]);
        let numbers: ArrayRef = Arc::new(Float64Array::from(vec![1.0, f64::INFINITY]));
        let valid = StructArray::new(fields.clone(), vec![Arc::clone(&numbers)], None);
        assert_eq!(found(Arc::new(valid)), Some(f64::INFINITY));
        let null = StructArray::new(fields, vec![numbers], Some(vec![true, false].into()));
        assert_eq!(found(Arc::new(null)), None);
    }
}
