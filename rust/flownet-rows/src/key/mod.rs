//! Which key group a row belongs to: that of the same key of an object.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType, Schema};
use flownet_core::keygroup::hash_key;
use flownet_runtime::canonical;

use crate::lane::{Lane, Values};
use crate::type_names::type_name;

/// Hashes the keys of rows, a batch at a time.
#[derive(Debug)]
pub struct KeyHasher {
    columns: Vec<usize>,
    hashes: Vec<u32>,
    /// Of one key, kept for its allocation.
    bytes: Vec<u8>,
}

/// A column that is no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoKey {
    /// There is none of the name.
    #[error("key_by: there is no column '{column}'; there are {columns}")]
    Missing {
        /// What was asked for.
        column: String,
        /// What there is.
        columns: String,
    },
    /// Its type makes no keys.
    #[error(
        "key_by: column '{column}' is of type {}; keys are ints, floats, bool, utf8 and binary: cast it before",
        type_name(.data_type)
    )]
    Type {
        /// The column.
        column: String,
        /// Its type.
        data_type: DataType,
    },
    /// No column at all.
    #[error("key_by: a key needs at least one column")]
    Empty,
}

impl NoKey {
    /// Of a column that a schema does not have.
    pub(crate) fn missing(schema: &Schema, column: &str) -> Self {
        let columns = schema.fields().iter().map(|field| format!("'{}'", field.name())).collect::<Vec<_>>().join(", ");
        Self::Missing { column: column.to_owned(), columns }
    }
}

impl KeyHasher {
    /// By these columns of a schema. One column is the key itself, several are a tuple.
    pub fn new(schema: &Schema, columns: &[String]) -> Result<Self, NoKey> {
        if columns.is_empty() {
            return Err(NoKey::Empty);
        }
        let columns = columns.iter().map(|column| place(schema, column)).collect::<Result<_, _>>()?;
        Ok(Self { columns, hashes: Vec::new(), bytes: Vec::new() })
    }

    /// The hash of each row's key.
    pub fn hash(&mut self, batch: &RecordBatch) -> &[u32] {
        self.hashes.clear();
        self.hashes.reserve(batch.num_rows());
        match self.columns[..] {
            [column] => self.hash_column(batch.column(column)),
            _ => self.hash_rows(batch),
        }
        &self.hashes
    }

    /// Of the commonest type without looking at it again for each row.
    fn hash_column(&mut self, array: &ArrayRef) {
        match array.data_type() {
            DataType::Int64 if array.null_count() == 0 => {
                self.hashes.extend(array.as_primitive::<Int64Type>().values().iter().map(|value| {
                    let (bytes, len) = canonical::int(*value);
                    hash_key(&bytes[..len])
                }));
            }
            _ => {
                for row in 0..array.len() {
                    self.bytes.clear();
                    put_value(array, row, &mut self.bytes);
                    self.hashes.push(hash_key(&self.bytes));
                }
            }
        }
    }

    fn hash_rows(&mut self, batch: &RecordBatch) {
        for row in 0..batch.num_rows() {
            self.bytes.clear();
            canonical::put_tuple(&mut self.bytes, self.columns.len());
            for column in &self.columns {
                put_value(batch.column(*column), row, &mut self.bytes);
            }
            self.hashes.push(hash_key(&self.bytes));
        }
    }
}

/// Columns that are the key of rows.
#[derive(Clone, Debug)]
pub(crate) struct KeyColumns {
    columns: Vec<usize>,
}

/// The keys of a batch.
pub(crate) enum Keys {
    /// One column of integers.
    Ints(Int64Array),
    /// One column of texts.
    Texts(StringArray),
    /// One column of another type.
    Other(ArrayRef),
    /// Several columns: what they are is looked at once, and not for each row.
    Tuple(Vec<Self>),
}

impl KeyColumns {
    pub(crate) fn new(schema: &Schema, keys: &[String]) -> Result<Self, NoKey> {
        if keys.is_empty() {
            return Err(NoKey::Empty);
        }
        let columns = keys.iter().map(|key| place(schema, key)).collect::<Result<_, _>>()?;
        Ok(Self { columns })
    }

    /// Where a value of the key is missing.
    pub(crate) fn nulls(&self, batch: &RecordBatch) -> Option<NullBuffer> {
        NullBuffer::union_many(self.columns.iter().map(|column| batch.column(*column).nulls()))
    }

    pub(crate) fn of(&self, batch: &RecordBatch) -> Result<Keys, ArrowError> {
        match self.columns[..] {
            [column] => Keys::of_column(batch.column(column)),
            _ => {
                let columns = self.columns.iter().map(|column| Keys::of_column(batch.column(*column)));
                Ok(Keys::Tuple(columns.collect::<Result<_, _>>()?))
            }
        }
    }
}

impl Keys {
    fn of_column(array: &ArrayRef) -> Result<Self, ArrowError> {
        let data_type = array.data_type();
        if data_type.is_integer()
            && Lane::of(data_type) == Some(Lane::Int)
            && let Values::Int(values) = Values::of(array)?
        {
            return Ok(Self::Ints(values));
        }
        Ok(array.as_string_opt::<i32>().map_or_else(|| Self::Other(array.clone()), |texts| Self::Texts(texts.clone())))
    }

    /// Whether the key of a row, which is not the first, is that of the one before. No is no more than that it is not known.
    #[inline]
    pub(crate) fn is_as_before(&self, row: usize) -> bool {
        let before = row - 1;
        match self {
            Self::Ints(array) => array.is_null(row) == array.is_null(before) && array.value(row) == array.value(before),
            Self::Texts(texts) => {
                texts.is_null(row) == texts.is_null(before) && texts.value(row) == texts.value(before)
            }
            Self::Other(_) => false,
            Self::Tuple(columns) => columns.iter().all(|column| column.is_as_before(row)),
        }
    }

    /// Appends the canonical key of a row.
    pub(crate) fn put(&self, row: usize, out: &mut Vec<u8>) {
        match self {
            Self::Ints(array) if array.is_null(row) => out.push(canonical::NONE),
            Self::Ints(array) => canonical::put_int(out, array.value(row)),
            Self::Texts(texts) if texts.is_null(row) => out.push(canonical::NONE),
            Self::Texts(texts) => canonical::put_text(out, texts.value(row).as_bytes()),
            Self::Other(array) => put_value(array, row, out),
            Self::Tuple(columns) => {
                canonical::put_tuple(out, columns.len());
                columns.iter().for_each(|column| column.put(row, out));
            }
        }
    }
}

/// Where a column is that makes keys.
pub(crate) fn place(schema: &Schema, column: &str) -> Result<usize, NoKey> {
    let Ok(place) = schema.index_of(column) else { return Err(NoKey::missing(schema, column)) };
    let data_type = schema.field(place).data_type();
    if !makes_keys(data_type) {
        return Err(NoKey::Type { column: column.to_owned(), data_type: data_type.clone() });
    }
    Ok(place)
}

fn makes_keys(data_type: &DataType) -> bool {
    let is_number = data_type.is_integer() || matches!(data_type, DataType::Float32 | DataType::Float64);
    let is_bytes = matches!(data_type, DataType::Utf8 | DataType::Binary | DataType::FixedSizeBinary(_));
    is_number || is_bytes || *data_type == DataType::Boolean
}

/// Appends the canonical bytes of one value, of a type that makes keys.
pub(crate) fn put_value(array: &ArrayRef, row: usize, out: &mut Vec<u8>) {
    if array.is_null(row) {
        return out.push(canonical::NONE);
    }
    match array.data_type() {
        DataType::Int8 => canonical::put_int(out, number::<Int8Type>(array, row).into()),
        DataType::Int16 => canonical::put_int(out, number::<Int16Type>(array, row).into()),
        DataType::Int32 => canonical::put_int(out, number::<Int32Type>(array, row).into()),
        DataType::Int64 => canonical::put_int(out, number::<Int64Type>(array, row)),
        DataType::UInt8 => canonical::put_int(out, number::<UInt8Type>(array, row).into()),
        DataType::UInt16 => canonical::put_int(out, number::<UInt16Type>(array, row).into()),
        DataType::UInt32 => canonical::put_int(out, number::<UInt32Type>(array, row).into()),
        DataType::UInt64 => canonical::put_unsigned(out, number::<UInt64Type>(array, row)),
        DataType::Float32 => canonical::put_float_key(out, number::<Float32Type>(array, row).into()),
        DataType::Float64 => canonical::put_float_key(out, number::<Float64Type>(array, row)),
        DataType::Boolean => canonical::put_int(out, array.as_boolean().value(row).into()),
        DataType::Utf8 => canonical::put_text(out, array.as_string::<i32>().value(row).as_bytes()),
        DataType::Binary => canonical::put_bytes(out, array.as_binary::<i32>().value(row)),
        DataType::FixedSizeBinary(_) => canonical::put_bytes(out, array.as_fixed_size_binary().value(row)),
        // Checked when the hasher was made.
        _ => out.push(canonical::NONE),
    }
}

#[inline]
fn number<T: ArrowPrimitiveType>(array: &ArrayRef, row: usize) -> T::Native {
    array.as_primitive::<T>().value(row)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Float64Array, Int32Array, Int64Array, StringArray, UInt64Array};
    use arrow_schema::Field;

    use super::*;

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        let fields: Vec<_> =
            columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.into_iter().map(|(_, array)| array).collect())
            .unwrap()
    }

    fn hashes(batch: &RecordBatch, columns: &[&str]) -> Vec<u32> {
        let columns: Vec<_> = columns.iter().map(|&column| column.to_owned()).collect();
        KeyHasher::new(&batch.schema(), &columns).unwrap().hash(batch).to_vec()
    }

    #[test]
    fn numbers_that_are_equal_are_one_key_whatever_their_type() {
        let values = [0i64, 1, 63, 64, -1, 1 << 53];
        let of = |array| hashes(&batch(vec![("key", array)]), &["key"]);
        let ints = of(Arc::new(Int64Array::from(values.to_vec())));
        assert_eq!(ints, of(Arc::new(Float64Array::from(values.map(|value| value as f64).to_vec()))));
        assert_eq!(ints[..3], of(Arc::new(Int32Array::from(vec![0, 1, 63])))[..]);
        assert_eq!(ints, of(Arc::new(values.map(Some).into_iter().chain([None]).collect::<Int64Array>()))[..6]);
        let large = 1u64 << 63;
        assert_eq!(of(Arc::new(UInt64Array::from(vec![large]))), of(Arc::new(Float64Array::from(vec![large as f64]))));
    }

    #[test]
    fn several_columns_are_a_tuple() {
        let both = batch(vec![
            ("text", Arc::new(StringArray::from(vec!["a", "b"]))),
            ("number", Arc::new(Int64Array::from(vec![1, 2]))),
        ]);
        // ("a", 1) as the codec of objects has it.
        assert_eq!(hashes(&both, &["text", "number"])[0], hash_key(&[0x10, 2, 0x81, b'a', 0xc1]));
        assert_ne!(hashes(&both, &["text", "number"]), hashes(&both, &["number", "text"]));
    }

    #[test]
    fn what_is_no_key_is_refused_by_name() {
        let both = batch(vec![("text", Arc::new(StringArray::from(vec!["a"])))]);
        let error = |columns: &[String]| KeyHasher::new(&both.schema(), columns).unwrap_err().to_string();
        assert_eq!(error(&["test".into()]), "key_by: there is no column 'test'; there are 'text'");
        assert_eq!(error(&[]), "key_by: a key needs at least one column");
    }
}
