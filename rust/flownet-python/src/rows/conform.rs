//! Converts batches of other libraries to the schema of a stream.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use flownet_rows::{twice, type_name};

/// A schema in the form of row streams: one type each for strings, bytes and lists, no dictionaries, no
/// metadata.
pub(super) fn plain_schema(schema: &Schema) -> Schema {
    Schema::new(schema.fields().iter().map(|field| plain_field(field)).collect::<Vec<_>>())
}

fn plain_field(field: &Field) -> Field {
    Field::new(field.name(), plain_type(field.data_type()), field.is_nullable())
}

fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
        DataType::Dictionary(_, values) => plain_type(values),
        DataType::RunEndEncoded(_, values) => plain_type(values.data_type()),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => DataType::List(Arc::new(plain_field(item))),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(|field| plain_field(field)).collect()),
        DataType::Float16 => DataType::Float32,
        DataType::Date64 => DataType::Timestamp(arrow_schema::TimeUnit::Millisecond, None),
        data_type => data_type.clone(),
    }
}

/// Converts the columns of a batch to this schema. The error names the one that does not fit.
pub(super) fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, String> {
    let given = batch.schema();
    let names = |schema: &Schema| {
        schema.fields().iter().map(|field| format!("'{}'", field.name())).collect::<Vec<_>>().join(", ")
    };
    if let Some(other) = given.fields().iter().find(|field| schema.index_of(field.name()).is_err()) {
        return Err(format!("column '{}' is not in the schema, which has {}", other.name(), names(schema)));
    }
    if let Some(name) = twice(given.fields().iter().map(|field| field.name().as_str())) {
        return Err(format!("two columns are called '{name}'"));
    }
    let mut columns = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let Some(column) = batch.column_by_name(field.name()) else {
            return Err(format!("column '{}' of the schema is missing; there are {}", field.name(), names(&given)));
        };
        columns.push(fitting(column, field)?);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(|error| error.to_string())
}

fn fitting(column: &ArrayRef, field: &Field) -> Result<ArrayRef, String> {
    let (name, wanted, given) = (field.name(), field.data_type(), column.data_type());
    let fits = if given == wanted {
        Ok(Arc::clone(column))
    } else if plain_type(given) == *wanted || given.is_null() {
        cast(column, wanted).map_err(|error| format!("column '{name}': {error}"))
    } else {
        Err(format!("column '{name}' is of type {}, where the schema says {}", type_name(given), type_name(wanted)))
    }?;
    if !field.is_nullable() && fits.null_count() > 0 {
        let row = (0..fits.len()).find(|row| fits.is_null(*row)).unwrap_or(0);
        return Err(format!("column '{name}' has no value in row {row}, where the schema says that all are there"));
    }
    Ok(fits)
}
