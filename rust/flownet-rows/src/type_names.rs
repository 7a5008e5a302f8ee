//! What users call the types of columns.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, TimeUnit};

/// The name of a type; that of Arrow for one that rows cannot have.
pub fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Utf8 => "utf8".into(),
        DataType::Boolean => "bool".into(),
        DataType::Binary => "binary".into(),
        DataType::FixedSizeBinary(width) => format!("binary({width})"),
        DataType::Date32 => "date".into(),
        DataType::Time32(unit) | DataType::Time64(unit) => format!("time[{}]", unit_name(*unit)),
        DataType::Timestamp(unit, None) => format!("timestamp[{}]", unit_name(*unit)),
        DataType::Timestamp(unit, Some(zone)) => format!("timestamp[{}, {zone}]", unit_name(*unit)),
        DataType::Duration(unit) => format!("duration[{}]", unit_name(*unit)),
        DataType::Decimal128(precision, scale) => format!("decimal({precision}, {scale})"),
        DataType::List(item) => format!("list[{}]", type_name(item.data_type())),
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|field| format!("{}: {}", field.name(), type_name(field.data_type())));
            format!("struct[{}]", fields.collect::<Vec<_>>().join(", "))
        }
        data_type if data_type.is_numeric() => format!("{data_type:?}").to_lowercase(),
        data_type => data_type.to_string(),
    }
}

/// Columns of rows that are kept, as text: who goes on with them has to keep the same.
pub fn kept_columns(schema: &Schema) -> String {
    let shown = schema.fields().iter().map(|field| {
        let missing = if field.is_nullable() { "" } else { "!" };
        format!("{} {}{missing}", field.name(), type_name(field.data_type()))
    });
    format!("({})", shown.collect::<Vec<_>>().join(", "))
}

/// The type of this name, if there is one.
pub fn named_type(name: &str) -> Option<DataType> {
    let name = name.trim();
    let (head, argument) = match name.split_once(['[', '(']) {
        Some((head, rest)) => (head, Some(rest.strip_suffix([']', ')'])?)),
        None => (name, None),
    };
    Some(match (head, argument) {
        ("int8", None) => DataType::Int8,
        ("int16", None) => DataType::Int16,
        ("int32", None) => DataType::Int32,
        ("int64" | "int", None) => DataType::Int64,
        ("uint8", None) => DataType::UInt8,
        ("uint16", None) => DataType::UInt16,
        ("uint32", None) => DataType::UInt32,
        ("uint64", None) => DataType::UInt64,
        ("float32", None) => DataType::Float32,
        ("float64" | "float", None) => DataType::Float64,
        ("bool", None) => DataType::Boolean,
        ("utf8" | "str" | "string", None) => DataType::Utf8,
        ("binary" | "bytes", None) => DataType::Binary,
        ("binary", Some(width)) => DataType::FixedSizeBinary(width.trim().parse().ok().filter(|width| *width > 0)?),
        ("date", None) => DataType::Date32,
        ("time", Some(unit)) => match unit_named(unit)? {
            unit @ (TimeUnit::Second | TimeUnit::Millisecond) => DataType::Time32(unit),
            unit => DataType::Time64(unit),
        },
        ("timestamp", Some(argument)) => match argument.split_once(',') {
            Some((unit, zone)) => DataType::Timestamp(unit_named(unit)?, Some(zone.trim().into())),
            None => DataType::Timestamp(unit_named(argument)?, None),
        },
        ("duration", Some(unit)) => DataType::Duration(unit_named(unit)?),
        ("decimal", Some(argument)) => {
            let (precision, scale) = argument.split_once(',')?;
            let precision = precision.trim().parse().ok().filter(|precision| (1..=38).contains(precision))?;
            DataType::Decimal128(precision, scale.trim().parse().ok()?)
        }
        ("list", Some(item)) => DataType::List(Arc::new(Field::new("item", named_type(item)?, true))),
        _ => return None,
    })
}

fn unit_name(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}

fn unit_named(name: &str) -> Option<TimeUnit> {
    Some(match name.trim() {
        "s" => TimeUnit::Second,
        "ms" => TimeUnit::Millisecond,
        "us" => TimeUnit::Microsecond,
        "ns" => TimeUnit::Nanosecond,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_has_a_name_that_leads_back_to_it() {
        for data_type in [
            DataType::Int8,
            DataType::UInt64,
            DataType::Float32,
            DataType::Boolean,
            DataType::Utf8,
            DataType::Binary,
            DataType::FixedSizeBinary(16),
            DataType::Date32,
            DataType::Time32(TimeUnit::Millisecond),
            DataType::Time64(TimeUnit::Nanosecond),
            DataType::Timestamp(TimeUnit::Microsecond, None),
            DataType::Timestamp(TimeUnit::Millisecond, Some("Europe/Berlin".into())),
            DataType::Duration(TimeUnit::Second),
            DataType::Decimal128(12, 2),
            DataType::List(Arc::new(Field::new("item", DataType::Utf8, true))),
        ] {
            assert_eq!(named_type(&type_name(&data_type)), Some(data_type));
        }
        for name in ["", "int65", "timestamp", "timestamp[day]", "list[", "decimal(40, 2)", "binary(0)"] {
            assert_eq!(named_type(name), None, "{name}");
        }
    }
}
