//! Writes rows as lines. An empty string is `""` and null is empty, so that readers can distinguish them.

use arrow_array::{Array, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::ArrowError;
use memchr::{memchr, memchr3};

/// Appends one line per row.
pub fn write_csv(batch: &RecordBatch, delimiter: u8, out: &mut Vec<u8>) -> Result<(), ArrowError> {
    let options = FormatOptions::default().with_display_error(false);
    let formatters = batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
    let formatters = formatters.collect::<Result<Vec<_>, _>>()?;
    let mut text = String::new();
    for row in 0..batch.num_rows() {
        for (place, (column, formatter)) in batch.columns().iter().zip(&formatters).enumerate() {
            if place > 0 {
                out.push(delimiter);
            }
            if column.is_valid(row) {
                text.clear();
                formatter.value(row).write(&mut text)?;
                put_value(text.as_bytes(), delimiter, out);
            }
        }
        out.push(b'\n');
    }
    Ok(())
}

fn put_value(value: &[u8], delimiter: u8, out: &mut Vec<u8>) {
    let needs_quotes =
        value.is_empty() || memchr3(b'"', b'\n', b'\r', value).is_some() || memchr(delimiter, value).is_some();
    if !needs_quotes {
        out.extend_from_slice(value);
        return;
    }
    out.push(b'"');
    for part in value.split_inclusive(|byte| *byte == b'"') {
        out.extend_from_slice(part);
        if part.ends_with(b"\"") {
            out.push(b'"');
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Float64Array, StringArray};

    use super::*;

    #[test]
    fn values_are_quoted_where_readers_would_take_them_for_something_else() {
        let texts = [Some(""), None, Some("a,b"), Some("a;b"), Some("say \"hi\""), Some("two\r\nlines"), Some("\"")];
        let numbers = [Some(1.5), None, Some(f64::NAN), Some(-0.0), Some(1e300), Some(2.0), None];
        let texts = Arc::new(StringArray::from(texts.to_vec())) as ArrayRef;
        let numbers = Arc::new(Float64Array::from(numbers.to_vec())) as ArrayRef;
        let batch = RecordBatch::try_from_iter([("t", texts), ("n", numbers)]).unwrap();
        let mut out = Vec::new();
        write_csv(&batch, b';', &mut out).unwrap();
        let expected =
            "\"\";1.5\n;\na,b;NaN\n\"a;b\";-0.0\n\"say \"\"hi\"\"\";1e300\n\"two\r\nlines\";2.0\n\"\"\"\";\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
