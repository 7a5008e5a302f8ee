//! Limits the nesting of column types, because readers of a type recurse once per level.

use arrow_schema::{DataType, Schema};

/// Limit of nested lists, structs and maps in a column. pyarrow imports no more.
pub const MOST_TYPE_LEVELS: usize = 62;

/// A column type nests too deep.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "column '{column}': its type nests more than {MOST_TYPE_LEVELS} levels deep, the most that rows may have: flatten it, or \
     keep it as text, such as JSON"
)]
pub struct TypeTooDeep {
    /// Name of the column.
    pub column: String,
}

/// Checks all columns of a schema, without recursion.
///
/// # Errors
/// [`TypeTooDeep`] names the first column that nests too deep.
pub fn check_type_levels(schema: &Schema) -> Result<(), TypeTooDeep> {
    for column in schema.fields() {
        let mut left = vec![(column.data_type(), 0)];
        while let Some((data_type, level)) = left.pop() {
            if level > MOST_TYPE_LEVELS {
                return Err(TypeTooDeep { column: column.name().clone() });
            }
            left.extend(parts(data_type).into_iter().map(|part| (part, level + 1)));
        }
    }
    Ok(())
}

/// Checks the type of a column by the name of the type.
///
/// # Errors
/// [`TypeTooDeep`] names the column.
pub fn check_name_levels(column: &str, name: &str) -> Result<(), TypeTooDeep> {
    if is_too_deep(name) { Err(TypeTooDeep { column: column.to_owned() }) } else { Ok(()) }
}

/// Returns true if the type of this name nests too deep.
pub(crate) fn is_too_deep(name: &str) -> bool {
    let (mut level, mut most) = (0_usize, 0);
    for byte in name.bytes() {
        match byte {
            b'[' | b'(' | b'<' => level += 1,
            b']' | b')' | b'>' => level = level.saturating_sub(1),
            _ => {}
        }
        most = most.max(level);
    }
    // The unit of a time is in brackets, too, so one more level is allowed.
    most > MOST_TYPE_LEVELS + 1
}

fn parts(data_type: &DataType) -> Vec<&DataType> {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => vec![item.data_type()],
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        DataType::Union(fields, _) => fields.iter().map(|(_, field)| field.data_type()).collect(),
        DataType::Dictionary(key, value) => vec![key, value],
        DataType::RunEndEncoded(ends, values) => vec![ends.data_type(), values.data_type()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::Field;

    use super::*;

    fn nested(levels: usize, wrap: impl Fn(Field) -> DataType) -> Schema {
        let data_type = (0..levels).fold(DataType::Int64, |inner, _| wrap(Field::new("a", inner, true)));
        Schema::new(vec![Field::new("flat", DataType::Int64, true), Field::new("deep", data_type, true)])
    }

    #[test]
    fn a_column_may_have_so_many_levels_and_not_one_more() {
        let list = |field: Field| DataType::List(Arc::new(field));
        let of_struct = |field: Field| DataType::Struct(vec![Field::new("b", DataType::Utf8, true), field].into());
        let map = |field: Field| DataType::Map(Arc::new(field), false);
        for wrap in [&list as &dyn Fn(Field) -> DataType, &of_struct, &map] {
            assert_eq!(check_type_levels(&nested(MOST_TYPE_LEVELS, wrap)), Ok(()));
            let error = check_type_levels(&nested(MOST_TYPE_LEVELS + 1, wrap)).unwrap_err();
            assert_eq!(error.column, "deep");
            assert!(error.to_string().contains("more than 62 levels"), "{error}");
        }
    }

    #[test]
    fn a_name_may_have_so_many_levels_and_not_one_more() {
        let named = |levels: usize| format!("{}timestamp[us]{}", "list[".repeat(levels), "]".repeat(levels));
        assert_eq!(check_name_levels("a", &named(MOST_TYPE_LEVELS)), Ok(()));
        assert!(check_name_levels("a", &named(MOST_TYPE_LEVELS + 1)).is_err());
        assert!(check_name_levels("a", &"list[".repeat(1_000_000)).is_err());
        let wide = format!("struct[{}]", vec!["a: list[int64]"; 1000].join(", "));
        assert_eq!(check_name_levels("a", &wide), Ok(()));
    }
}
