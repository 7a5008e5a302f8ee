//! Hashes keys of rows to key groups. A row belongs to the same key group as an object with an equal key.

mod moment;
mod number;
mod plain;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Decimal128Type, Float32Type, Float64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType, Schema};
use flownet_core::keygroup::hash_key;
use flownet_runtime::canonical;

use self::moment::Moment;
use crate::physical_type::{PhysicalType, Scalar, Values};
use crate::type_names::type_name;

/// Hashes the keys of rows, one batch at a time.
#[derive(Debug)]
pub struct KeyHasher {
    columns: KeyColumns,
    hashes: Vec<u32>,
    /// Bytes of one key. Reused, to save allocations.
    bytes: Vec<u8>,
}

/// Reasons why a column cannot be a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoKey {
    /// The column does not exist.
    #[error("key_by: there is no column '{column}'; there are {columns}")]
    Missing {
        /// Name that was requested.
        column: String,
        /// Names that exist.
        columns: String,
    },
    /// Its type cannot be a key.
    #[error(
        "key_by: column '{column}' is of type {}; keys are ints, floats, bool, utf8, binary, dates, times, timestamps, durations \
         and decimals, of no negative scale: cast it before",
        type_name(.data_type)
    )]
    Type {
        /// Name of the column.
        column: String,
        /// Its type.
        data_type: DataType,
    },
    /// The key has no columns.
    #[error("key_by: a key needs at least one column")]
    Empty,
}

impl NoKey {
    /// Builds the error for a column that the schema does not have.
    pub(crate) fn missing(schema: &Schema, column: &str) -> Self {
        let columns = schema.fields().iter().map(|field| format!("'{}'", field.name())).collect::<Vec<_>>().join(", ");
        Self::Missing { column: column.to_owned(), columns }
    }
}

impl KeyHasher {
    /// Creates a hasher by these columns of a schema. One column is the key itself; several columns form a tuple.
    pub fn new(schema: &Schema, columns: &[String]) -> Result<Self, NoKey> {
        Ok(Self { columns: KeyColumns::new(schema, columns)?, hashes: Vec::new(), bytes: Vec::new() })
    }

    /// Returns the hash of each row's key.
    pub fn hash(&mut self, batch: &RecordBatch) -> Result<&[u32], ArrowError> {
        let keys = self.columns.of(batch)?;
        self.hashes.clear();
        match &keys {
            // Integers without nulls are encoded on the stack.
            Keys::Ints(array, IntKey::Number) if array.null_count() == 0 => {
                self.hashes.extend(array.values().iter().map(|value| {
                    let (bytes, len) = canonical::int(*value);
                    hash_key(&bytes[..len])
                }));
            }
            _ => self.hashes.extend((0..batch.num_rows()).map(|row| {
                self.bytes.clear();
                keys.put(row, &mut self.bytes);
                hash_key(&self.bytes)
            })),
        }
        Ok(&self.hashes)
    }
}

/// Key columns of rows.
#[derive(Clone, Debug)]
pub(crate) struct KeyColumns {
    columns: Vec<usize>,
}

/// Keys of a batch.
pub(crate) enum Keys {
    /// One column of 64-bit values.
    Ints(Int64Array, IntKey),
    /// One column of strings.
    Texts(StringArray),
    /// One column of another type.
    Other(ArrayRef),
    /// Several columns, whose types are resolved once rather than per row.
    Tuple(Vec<Self>),
}

/// Meaning of a 64-bit value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntKey {
    Number,
    Moment(Moment),
}

impl IntKey {
    fn of(data_type: &DataType) -> Option<Self> {
        match Moment::of(data_type) {
            Some(moment) => Some(Self::Moment(moment)),
            None => (PhysicalType::of(data_type) == Some(PhysicalType::Int)).then_some(Self::Number),
        }
    }

    /// Appends the canonical bytes of a value.
    #[inline]
    pub(crate) fn put(self, value: i64, out: &mut Vec<u8>) {
        match self {
            Self::Number => canonical::put_int(out, value),
            Self::Moment(moment) => moment.put(value, out),
        }
    }
}

impl KeyColumns {
    pub(crate) fn new(schema: &Schema, keys: &[String]) -> Result<Self, NoKey> {
        if keys.is_empty() {
            return Err(NoKey::Empty);
        }
        let columns = keys.iter().map(|key| place(schema, key)).collect::<Result<_, _>>()?;
        Ok(Self { columns })
    }

    /// Returns the rows in which a value of the key is null.
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
        if let Some(kind) = IntKey::of(array.data_type())
            && let Values::Int(values) = Values::of(array)?
        {
            return Ok(Self::Ints(values, kind));
        }
        Ok(array.as_string_opt::<i32>().map_or_else(|| Self::Other(array.clone()), |texts| Self::Texts(texts.clone())))
    }

    /// Returns true if the key of `row`, which is not the first row, equals the previous one. False may also mean
    /// unknown.
    #[inline]
    pub(crate) fn is_as_before(&self, row: usize) -> bool {
        let before = row - 1;
        match self {
            Self::Ints(array, _) => {
                array.is_null(row) == array.is_null(before) && array.value(row) == array.value(before)
            }
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
            Self::Ints(array, _) if array.is_null(row) => out.push(canonical::NONE),
            Self::Ints(array, kind) => kind.put(array.value(row), out),
            Self::Texts(texts) if texts.is_null(row) => out.push(canonical::NONE),
            Self::Texts(texts) => canonical::put_text(out, texts.value(row).as_bytes()),
            Self::Other(array) => put_other(array, row, out),
            Self::Tuple(columns) => {
                canonical::put_tuple(out, columns.len());
                columns.iter().for_each(|column| column.put(row, out));
            }
        }
    }
}

/// Form in which the values of a column are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyForm {
    /// Numbers, strings and bytes of any type.
    Plain,
    Moment(Moment),
    Decimal {
        scale: u32,
    },
}

impl KeyForm {
    pub(crate) fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Decimal128(_, scale) => Self::Decimal { scale: scale.unsigned_abs().into() },
            data_type => Moment::of(data_type).map_or(Self::Plain, Self::Moment),
        }
    }

    /// Takes a value off the front. Returns none if the bytes are not a value of this form.
    pub(crate) fn take(self, bytes: &[u8]) -> Option<(Scalar<'_>, &[u8])> {
        match self {
            _ if bytes.first() == Some(&canonical::NONE) => Some((Scalar::None, &bytes[1..])),
            Self::Plain => plain::take(bytes),
            Self::Moment(moment) => moment.take(bytes).map(|(value, rest)| (Scalar::Int(value), rest)),
            Self::Decimal { scale } => {
                number::take_decimal(bytes, scale).map(|(digits, rest)| (Scalar::Decimal(digits), rest))
            }
        }
    }
}

/// Returns the index of a column, if its type can be a key.
pub(crate) fn place(schema: &Schema, column: &str) -> Result<usize, NoKey> {
    let Ok(place) = schema.index_of(column) else { return Err(NoKey::missing(schema, column)) };
    let data_type = schema.field(place).data_type();
    if !makes_keys(data_type) {
        return Err(NoKey::Type { column: column.to_owned(), data_type: data_type.clone() });
    }
    Ok(place)
}

fn makes_keys(data_type: &DataType) -> bool {
    match data_type {
        // Negative scales are not in use, and their integers may be of any size.
        DataType::Decimal128(_, scale) => *scale >= 0,
        DataType::FixedSizeBinary(_) => true,
        data_type => PhysicalType::of(data_type).is_some(),
    }
}

/// Appends the canonical bytes of one value of a key column that is neither 64-bit values nor strings.
fn put_other(array: &ArrayRef, row: usize, out: &mut Vec<u8>) {
    if array.is_null(row) {
        return out.push(canonical::NONE);
    }
    match array.data_type() {
        DataType::UInt64 => canonical::put_wide_int(out, value_of::<UInt64Type>(array, row).into()),
        DataType::Float32 => canonical::put_float_key(out, value_of::<Float32Type>(array, row).into()),
        DataType::Float64 => canonical::put_float_key(out, value_of::<Float64Type>(array, row)),
        DataType::Decimal128(_, scale) => {
            number::put_decimal(value_of::<Decimal128Type>(array, row), scale.unsigned_abs().into(), out);
        }
        DataType::Binary => canonical::put_bytes(out, array.as_binary::<i32>().value(row)),
        DataType::FixedSizeBinary(_) => canonical::put_bytes(out, array.as_fixed_size_binary().value(row)),
        // Unreachable: `place` checked the types.
        _ => out.push(canonical::NONE),
    }
}

#[inline]
fn value_of<T: ArrowPrimitiveType>(array: &ArrayRef, row: usize) -> T::Native {
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
        KeyHasher::new(&batch.schema(), &columns).unwrap().hash(batch).unwrap().to_vec()
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
        // The tuple ("a", 1), as the codec of objects encodes it.
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
