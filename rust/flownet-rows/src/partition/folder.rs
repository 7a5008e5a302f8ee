//! Names the folders of partitions, so that Hive-style readers recover the values.

use std::fmt::Write;

use arrow_array::{Array, ArrayRef};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::ArrowError;

/// Represents null. An empty string has its own folder, `country=`, which pyarrow, polars and DuckDB read correctly.
pub(super) const MISSING: &str = "__HIVE_DEFAULT_PARTITION__";

/// Names folders by the values of some columns.
pub(super) struct Folders {
    /// Prefix of the folder names of each column.
    levels: Vec<String>,
}

impl Folders {
    pub(super) fn new(columns: &[String]) -> Self {
        let level = |column: &String| {
            let mut level = String::new();
            put_escaped(column, &mut level);
            level + "="
        };
        Self { levels: columns.iter().map(level).collect() }
    }

    pub(super) fn levels(&self) -> &[String] {
        &self.levels
    }

    /// Returns the folder name of each of these rows, such as `day=2026-11-23/country=de`.
    pub(super) fn names(&self, columns: &[ArrayRef], rows: &[usize]) -> Result<Vec<String>, ArrowError> {
        let mut names = vec![String::new(); rows.len()];
        let options = FormatOptions::default().with_display_error(false);
        for (level, array) in self.levels.iter().zip(columns) {
            let shown = ArrayFormatter::try_new(array.as_ref(), &options)?;
            let mut text = String::new();
            for (name, row) in names.iter_mut().zip(rows) {
                if !name.is_empty() {
                    name.push('/');
                }
                name.push_str(level);
                if array.is_null(*row) {
                    name.push_str(MISSING);
                    continue;
                }
                text.clear();
                shown.value(*row).write(&mut text)?;
                if text == MISSING {
                    // Readers unescape before they compare, so no escaped name can represent this string.
                    let message =
                        format!("a value that names a folder, in {level:?}, is {text:?}, which stands for null");
                    return Err(ArrowError::InvalidArgumentError(message));
                }
                put_escaped(&text, name);
            }
        }
        Ok(names)
    }
}

/// Escapes the characters that Hive and Spark escape, and no others.
fn put_escaped(text: &str, out: &mut String) {
    for character in text.chars() {
        if character.is_ascii_control() || "\"#%'*/:=?\\{[]^".contains(character) {
            // Writing to a `String` never fails.
            let _ = write!(out, "%{:02X}", u32::from(character));
        } else {
            out.push(character);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{BooleanArray, Date32Array, StringArray, UInt64Array};

    use super::*;

    fn names(columns: &[(&str, ArrayRef)]) -> Vec<String> {
        let (names, arrays): (Vec<_>, Vec<_>) =
            columns.iter().map(|(name, array)| ((*name).to_owned(), Arc::clone(array))).unzip();
        let rows: Vec<usize> = (0..arrays[0].len()).collect();
        Folders::new(&names).names(&arrays, &rows).unwrap()
    }

    #[test]
    fn values_are_written_as_others_read_them() {
        let days = Arc::new(Date32Array::from(vec![Some(20_780), None])) as ArrayRef;
        let numbers = Arc::new(UInt64Array::from(vec![u64::MAX, 0])) as ArrayRef;
        let truths = Arc::new(BooleanArray::from(vec![true, false])) as ArrayRef;
        let found = names(&[("day", days), ("n", numbers), ("b", truths)]);
        let first = "day=2026-11-23/n=18446744073709551615/b=true";
        assert_eq!(found, [first, "day=__HIVE_DEFAULT_PARTITION__/n=0/b=false"]);
    }

    #[test]
    fn what_paths_and_readers_take_for_something_else_is_escaped() {
        let texts = ["a/b=c%d:e", "..", "é +&", "", "\0\n\u{7f}", "[x]{y}^*?#'\"\\"];
        let found = names(&[("a/b", Arc::new(StringArray::from(texts.to_vec())) as ArrayRef)]);
        let expected = [
            "a%2Fb=a%2Fb%3Dc%25d%3Ae",
            "a%2Fb=..",
            "a%2Fb=é +&",
            "a%2Fb=",
            "a%2Fb=%00%0A%7F",
            "a%2Fb=%5Bx%5D%7By}%5E%2A%3F%23%27%22%5C",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_text_that_stands_for_null_is_refused() {
        let texts = Arc::new(StringArray::from(vec!["a", MISSING])) as ArrayRef;
        let refused = Folders::new(&["k".to_owned()]).names(&[texts], &[0, 1]).unwrap_err();
        assert!(refused.to_string().contains("in \"k=\", is \"__HIVE_DEFAULT_PARTITION__\""), "{refused}");
    }
}
