//! Names of column types, as users write them.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, TimeUnit};

use crate::type_levels::is_too_deep;

/// Returns the name of a type. A type that rows cannot have gets the name that Arrow gives it.
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
            let name = |field: &FieldRef| quoted_if_needed(field.name());
            let fields = fields.iter().map(|field| format!("{}: {}", name(field), type_name(field.data_type())));
            format!("struct[{}]", fields.collect::<Vec<_>>().join(", "))
        }
        data_type if data_type.is_numeric() => format!("{data_type:?}").to_lowercase(),
        data_type => data_type.to_string(),
    }
}

/// Describes the columns of stored rows. A job that resumes from them must store the same columns.
pub fn kept_columns(schema: &Schema) -> String {
    let shown = schema.fields().iter().map(|field| {
        let missing = if field.is_nullable() { "" } else { "!" };
        format!("{} {}{missing}", field.name(), type_name(field.data_type()))
    });
    format!("({})", shown.collect::<Vec<_>>().join(", "))
}

/// Returns the name of a struct field, in quotes if it could be read as more than a name.
fn quoted_if_needed(name: &str) -> String {
    let is_plain = !name.is_empty() && name.trim() == name && !name.contains(SEPARATORS);
    if is_plain { name.to_owned() } else { format!("{name:?}") }
}

const SEPARATORS: [char; 10] = [',', ':', '"', '\\', '[', ']', '(', ')', '<', '>'];

/// Returns the type of this name, if there is one. Accepts the names of [`type_name`], and the names that pyarrow
/// prints for the same types.
pub fn named_type(name: &str) -> Option<DataType> {
    if is_too_deep(name) { None } else { parsed_type(name) }
}

fn parsed_type(name: &str) -> Option<DataType> {
    let name = name.trim();
    let (head, argument) = match name.split_once(['[', '(', '<']) {
        Some((head, rest)) => (head.trim_end(), Some(rest.strip_suffix([']', ')', '>'])?)),
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
        ("float32" | "halffloat", None) => DataType::Float32,
        ("float64" | "float" | "double", None) => DataType::Float64,
        ("bool", None) => DataType::Boolean,
        ("utf8" | "str" | "string" | "large_string" | "string_view", None) => DataType::Utf8,
        ("binary" | "bytes" | "large_binary" | "binary_view", None) => DataType::Binary,
        ("binary" | "fixed_size_binary", Some(width)) => {
            DataType::FixedSizeBinary(width.trim().parse().ok().filter(|width| *width > 0)?)
        }
        ("date" | "date32", None) => DataType::Date32,
        ("date32", Some(unit)) => (unit.trim() == "day").then_some(DataType::Date32)?,
        ("time" | "time32" | "time64", Some(unit)) => match unit_named(unit)? {
            unit @ (TimeUnit::Second | TimeUnit::Millisecond) => DataType::Time32(unit),
            unit => DataType::Time64(unit),
        },
        ("timestamp", Some(argument)) => match argument.split_once(',') {
            Some((unit, zone)) => DataType::Timestamp(unit_named(unit)?, Some(zone_named(zone)?)),
            None => DataType::Timestamp(unit_named(argument)?, None),
        },
        ("duration", Some(unit)) => DataType::Duration(unit_named(unit)?),
        ("decimal" | "decimal128", Some(argument)) => {
            let (precision, scale) = argument.split_once(',')?;
            let (precision, scale): (u8, i8) = (precision.trim().parse().ok()?, scale.trim().parse().ok()?);
            let is_one = (1..=38).contains(&precision) && i16::from(scale) <= i16::from(precision);
            is_one.then_some(DataType::Decimal128(precision, scale))?
        }
        ("list" | "large_list", Some(item)) => {
            // pyarrow prints the name of the item, too.
            let item = item.trim();
            let item = item.strip_prefix("item:").or_else(|| item.strip_prefix("element:")).unwrap_or(item);
            DataType::List(Arc::new(Field::new_list_field(parsed_type(item)?, true)))
        }
        ("struct", Some(fields)) => DataType::Struct(named_fields(fields)?),
        _ => return None,
    })
}

fn zone_named(zone: &str) -> Option<Arc<str>> {
    let zone = zone.trim();
    let zone = zone.strip_prefix("tz=").unwrap_or(zone);
    (!zone.is_empty()).then(|| zone.into())
}

/// Parses the fields between the brackets of a struct.
fn named_fields(mut rest: &str) -> Option<Fields> {
    let mut fields = Vec::new();
    loop {
        let (name, behind) = field_name(rest.trim_start())?;
        let end = end_of_type(behind)?;
        let (data_type, behind) = behind.split_at(end);
        fields.push(Field::new(name, parsed_type(data_type)?, true));
        match behind.strip_prefix(',') {
            Some(more) => rest = more,
            None => return Some(fields.into()),
        }
    }
}

/// Parses a name before a colon, quoted or not. Returns the name and the text after the colon.
fn field_name(text: &str) -> Option<(String, &str)> {
    if !text.starts_with('"') {
        let (name, rest) = text.split_once(':')?;
        let name = name.trim_end();
        return (!name.is_empty()).then(|| (name.to_owned(), rest));
    }
    // Escapes of a debug string are those of JSON, except that code points are in braces.
    let mut name = String::new();
    let mut characters = text[1..].char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((name, text[at + 2..].trim_start().strip_prefix(':')?)),
            '\\' => name.push(unescaped(&mut characters)?),
            character => name.push(character),
        }
    }
    None
}

/// Returns the character of an escape of [`str::escape_debug`].
fn unescaped(characters: &mut std::str::CharIndices<'_>) -> Option<char> {
    Some(match characters.next()?.1 {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        '0' => '\0',
        'u' => {
            let (_, brace) = characters.next()?;
            let digits: String = characters.map(|(_, digit)| digit).take_while(|digit| *digit != '}').collect();
            (brace == '{').then(|| u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32)).flatten()?
        }
        other => other,
    })
}

/// Returns the end of a type: the first comma outside brackets and quotes, or the end of the text.
fn end_of_type(text: &str) -> Option<usize> {
    let (mut depth, mut is_quoted, mut is_escaped) = (0u32, false, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '[' | '(' | '<' => depth += 1,
            ']' | ')' | '>' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => return Some(at),
            _ => {}
        }
    }
    (depth == 0 && !is_quoted).then_some(text.len())
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
    use proptest::prelude::*;

    use super::*;

    fn unit() -> impl Strategy<Value = TimeUnit> {
        proptest::sample::select(vec![
            TimeUnit::Second,
            TimeUnit::Millisecond,
            TimeUnit::Microsecond,
            TimeUnit::Nanosecond,
        ])
    }

    fn data_type() -> impl Strategy<Value = DataType> {
        use DataType::{Binary, Boolean, Date32, Float32, Float64, Utf8};
        use DataType::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
        let plain =
            [Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float32, Float64, Boolean, Utf8, Binary, Date32];
        let time = |unit| match unit {
            TimeUnit::Second | TimeUnit::Millisecond => DataType::Time32(unit),
            unit => DataType::Time64(unit),
        };
        let zone = proptest::option::of("UTC|[+]01:00|Europe/Berlin|America/Argentina/San_Luis");
        let leaf = prop_oneof![
            proptest::sample::select(plain.to_vec()),
            (1i32..1000).prop_map(DataType::FixedSizeBinary),
            unit().prop_map(time),
            (unit(), zone).prop_map(|(unit, zone)| DataType::Timestamp(unit, zone.map(Into::into))),
            unit().prop_map(DataType::Duration),
            (1u8..=38, -10i8..=38)
                .prop_map(|(precision, scale)| DataType::Decimal128(precision, scale.min(precision as i8))),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            let fields = proptest::collection::vec(("[a-z ,:\\[(\"\\\\ö\n]{0,6}", inner.clone()), 1..4);
            let of_fields = |fields: Vec<(String, DataType)>| {
                DataType::Struct(
                    fields.into_iter().map(|(name, data_type)| Field::new(name, data_type, true)).collect(),
                )
            };
            let list = inner.prop_map(|item| DataType::List(Arc::new(Field::new_list_field(item, true))));
            prop_oneof![list, fields.prop_map(of_fields)]
        })
    }

    proptest! {
        #[test]
        fn the_name_of_a_type_leads_back_to_it(data_type in data_type()) {
            prop_assert_eq!(named_type(&type_name(&data_type)), Some(data_type));
        }

        #[test]
        fn any_text_is_a_type_or_none(text in ".{0,40}", head in "list|struct|decimal|timestamp|", inner in "[a-z0-9:,\"\\[\\] ]{0,12}") {
            let _ = named_type(&text);
            let _ = named_type(&format!("{head}[{inner}]"));
        }
    }

    #[test]
    fn names_of_pyarrow_are_read() {
        for (name, ours) in [
            ("date32[day]", "date"),
            ("date32", "date"),
            ("decimal128(12, 2)", "decimal(12, 2)"),
            ("timestamp[us, tz=UTC]", "timestamp[us, UTC]"),
            ("time32[ms]", "time[ms]"),
            ("time64[ns]", "time[ns]"),
            ("fixed_size_binary[16]", "binary(16)"),
            ("double", "float64"),
            ("string", "utf8"),
            ("large_string", "utf8"),
            ("list<item: int64>", "list[int64]"),
            ("list<element: date32[day]>", "list[date]"),
            ("struct<a: int64, b: list<item: decimal128(9, 1)>>", "struct[a: int64, b: list[decimal(9, 1)]]"),
        ] {
            assert!(named_type(name).is_some(), "{name}");
            assert_eq!(named_type(name), named_type(ours), "{name}");
        }
        let none =
            ["", "int65", "timestamp", "timestamp[day]", "list[", "binary(0)", "struct[]", "struct[a]", "date32[ms]"];
        for name in none.into_iter().chain(["decimal(40, 2)", "decimal(2, 3)", "timestamp[us, ]", "struct[a: int8,]"]) {
            assert_eq!(named_type(name), None, "{name}");
        }
    }
}
