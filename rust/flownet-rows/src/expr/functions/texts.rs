//! Functions of strings. Positions and lengths are in characters (Unicode code points).

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, ListArray, StringArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType, Field};

use super::arguments::{Arguments, Kernel, check_bytes};
use super::parameters::{Constant, Kind, Parameter};
use super::{Function, MakeKernel, Namespace, Nulls, Returns};

const TEXT: Parameter = Parameter::new("self", Kind::Text);
const PART: Parameter = Parameter::new("part", Kind::Text);
const PREFIX: Parameter = Parameter::new("prefix", Kind::Text);
const SUFFIX: Parameter = Parameter::new("suffix", Kind::Text);
const COUNT: Parameter = Parameter::new("count", Kind::Integer);
const LENGTH: Parameter = Parameter::new("length", Kind::Integer);
const FILL: Parameter = Parameter::new("fill", Kind::Text);
const INDEX: Parameter = Parameter::new("index", Kind::Integer);
const BY: Parameter = Parameter::new("by", Kind::ConstantText);
const OFFSET: Parameter = Parameter::new("offset", Kind::ConstantInteger);
const OPTIONAL_LENGTH: Parameter = Parameter::new("length", Kind::ConstantInteger).default(Constant::Null).bounds(
    0,
    i64::MAX,
    "a length is not below 0",
);
const FROM: Parameter = Parameter::new("characters", Kind::ConstantText);
const TO: Parameter = Parameter::new("replacements", Kind::ConstantText);
const CODE: Parameter = Parameter::new("self", Kind::Integer);
const SEPARATOR: Parameter = Parameter::new("separator", Kind::Text);
const FIRST: Parameter = Parameter::new("first", Kind::Text);
const OTHERS: Parameter = Parameter::new("others", Kind::Text).repeated();

pub(super) const FUNCTIONS: &[Function] = &[
    of_text("len_chars", &[TEXT], Returns::Int64, |_| Ok(Kernel::of_count(|text| text.chars().count())))
        .summary("Count the characters.")
        .example("fn.lit('größe').str.len_chars()", "5"),
    of_text("len_bytes", &[TEXT], Returns::Int64, |_| Ok(Kernel::of_count(str::len)))
        .summary("Count the bytes of UTF-8.")
        .example("fn.lit('größe').str.len_bytes()", "7"),
    of_text("to_lowercase", &[TEXT], Returns::Text, |_| {
        Ok(Kernel::of_text(|text, out| out.push_str(&text.to_lowercase())))
    })
    .summary("Convert all letters to lower case.")
    .example("fn.lit('Ab').str.to_lowercase()", "'ab'"),
    of_text("to_uppercase", &[TEXT], Returns::Text, |_| {
        Ok(Kernel::of_text(|text, out| out.push_str(&text.to_uppercase())))
    })
    .summary("Convert all letters to upper case.")
    .example("fn.lit('Ab').str.to_uppercase()", "'AB'"),
    of_text("initcap", &[TEXT], Returns::Text, |_| Ok(Kernel::of_text(capitalize)))
        .summary("Capitalize each word. Words are runs of letters and digits; other letters become lower case.")
        .example("fn.lit('hello WORLD-wide').str.initcap()", "'Hello World-Wide'"),
    of_text("strip_chars", &[TEXT], Returns::Text, |_| Ok(Kernel::of_text(|text, out| out.push_str(text.trim()))))
        .summary("Remove white space from both ends.")
        .example("fn.lit(' a b ').str.strip_chars()", "'a b'"),
    of_text("strip_chars_start", &[TEXT], Returns::Text, |_| {
        Ok(Kernel::of_text(|text, out| out.push_str(text.trim_start())))
    })
    .summary("Remove white space from the start.")
    .example("fn.lit(' a ').str.strip_chars_start()", "'a '"),
    of_text("strip_chars_end", &[TEXT], Returns::Text, |_| {
        Ok(Kernel::of_text(|text, out| out.push_str(text.trim_end())))
    })
    .summary("Remove white space from the end.")
    .example("fn.lit(' a ').str.strip_chars_end()", "' a'"),
    of_text("starts_with", &[TEXT, PREFIX], Returns::Bool, |_| Ok(of_two_texts(|text, part| text.starts_with(part))))
        .summary("Return true if the string starts with another one.")
        .example("fn.lit('abc').str.starts_with('ab')", "True"),
    of_text("ends_with", &[TEXT, SUFFIX], Returns::Bool, |_| Ok(of_two_texts(|text, part| text.ends_with(part))))
        .summary("Return true if the string ends with another one.")
        .example("fn.lit('abc').str.ends_with('bc')", "True"),
    of_text("slice", &[TEXT, OFFSET, OPTIONAL_LENGTH], Returns::Text, |call| {
        let (offset, length) = (call.integer(1).unwrap_or_default(), call.integer(2).map(i64::cast_unsigned));
        Ok(Kernel::of_text(move |text, out| out.push_str(slice(text, offset, length))))
    })
    .summary(
        "Return characters from an offset on. A negative offset counts from the end. Without `length` they are all.",
    )
    .example("fn.lit('größe').str.slice(-3, 2)", "'öß'"),
    of_text("left", &[TEXT, COUNT], Returns::Text, |_| Ok(Kernel::new(|arguments| cut(arguments, left))))
        .summary("Return the first characters. A negative count leaves out as many at the end.")
        .example("fn.lit('größe').str.left(3)", "'grö'"),
    of_text("right", &[TEXT, COUNT], Returns::Text, |_| Ok(Kernel::new(|arguments| cut(arguments, right))))
        .summary("Return the last characters. A negative count leaves out as many at the start.")
        .example("fn.lit('größe').str.right(2)", "'ße'"),
    of_text("lpad", &[TEXT, LENGTH, FILL], Returns::Text, |_| Ok(Kernel::new(|arguments| pad(arguments, true))))
        .summary(
            "Fill up on the left to a length. Longer strings lose their last characters. An empty `fill` is an error \
             where it is needed.",
        )
        .example("fn.lit('7').str.lpad(3, '0')", "'007'"),
    of_text("rpad", &[TEXT, LENGTH, FILL], Returns::Text, |_| Ok(Kernel::new(|arguments| pad(arguments, false))))
        .summary(
            "Fill up on the right to a length. Longer strings lose their last characters. An empty `fill` is an error \
             where it is needed.",
        )
        .example("fn.lit('ab').str.rpad(5, '.')", "'ab...'"),
    of_text("repeat", &[TEXT, COUNT], Returns::Text, |_| Ok(Kernel::new(repeat)))
        .summary("Repeat the string. A count of zero or less gives an empty string.")
        .example("fn.lit('ab').str.repeat(2)", "'abab'"),
    of_text("reverse", &[TEXT], Returns::Text, |_| Ok(Kernel::of_text(|text, out| out.extend(text.chars().rev()))))
        .summary("Reverse the characters. A combining character moves away from its letter.")
        .example("fn.lit('abc').str.reverse()", "'cba'"),
    of_text("position", &[TEXT, PART], Returns::Int64, |_| Ok(Kernel::new(position)))
        .summary("Return the position of a string, counted from 1. It is 0 if there is none.")
        .example("fn.lit('größe').str.position('ß')", "4"),
    of_text("translate", &[TEXT, FROM, TO], Returns::Text, |call| {
        let map = translation(&call.text(1), &call.text(2));
        Ok(Kernel::of_text(move |text, out| {
            out.extend(text.chars().filter_map(|char| map.get(&char).copied().unwrap_or(Some(char))));
        }))
    })
    .summary("Replace single characters by others. Those without a replacement are removed.")
    .example("fn.lit('a-b c').str.translate('- ', '_')", "'a_bc'"),
    of_text("split", &[TEXT, BY], Returns::Texts, |call| {
        let by = separator(call.text(1))?;
        Ok(Kernel::of_array(move |array| Ok(split(array.as_string::<i32>(), &by))))
    })
    .summary("Split the string by another one into a list.")
    .example("fn.lit('a,b').str.split(',')", "['a', 'b']"),
    of_text("split_part", &[TEXT, BY, INDEX], Returns::Text, |call| {
        let by = separator(call.text(1))?;
        Ok(Kernel::new(move |arguments| split_part(arguments, &by)))
    })
    .summary(
        "Return one part of the split string, counted from 1. A negative index counts from the end; a part that is \
         missing is empty. Zero is an error.",
    )
    .example("fn.lit('a,b,c').str.split_part(',', -1)", "'c'"),
    of_text("ascii", &[TEXT], Returns::Int64, |_| {
        Ok(Kernel::of_count(|text| text.chars().next().map_or(0, |first| first as usize)))
    })
    .summary("Return the code point of the first character. It is 0 for an empty string.")
    .example("fn.lit('A').str.ascii()", "65"),
    Function::new(Namespace::Value, "chr", &[CODE], Returns::Text, |_| Ok(Kernel::new(chr)))
        .summary("Return the character of a code point. A number that has none is an error.")
        .example("fn.lit(65).chr()", "'A'"),
    Function::new(Namespace::Module, "concat", &[FIRST, OTHERS], Returns::Text, |_| Ok(Kernel::new(concat)))
        .summary("Join strings. The result is null if one of them is.")
        .example("fn.concat(fn.lit('a'), '-', 'b')", "'a-b'"),
    Function::new(Namespace::Module, "concat_ws", &[SEPARATOR, FIRST, OTHERS], Returns::Text, |_| {
        Ok(Kernel::new(concat_ws))
    })
    .summary("Join strings with a separator between them. Nulls are skipped; a null separator gives null.")
    .example("fn.concat_ws('-', fn.lit('a'), None, 'b')", "'a-b'")
    .nulls(Nulls::Own),
];

const fn of_text(
    name: &'static str,
    parameters: &'static [Parameter],
    returns: Returns,
    make_kernel: MakeKernel,
) -> Function {
    Function::new(Namespace::Text, name, parameters, returns, make_kernel)
}

fn of_two_texts(run: impl Fn(&str, &str) -> bool + Send + Sync + 'static) -> Kernel {
    Kernel::new(move |arguments| {
        let (texts, parts) = (arguments.texts(0), arguments.texts(1));
        let found = arguments.each(|row| Some(run(texts.get(row)?, parts.get(row)?)));
        Ok(Arc::new(found.collect::<BooleanArray>()))
    })
}

fn separator(by: String) -> Result<String, String> {
    if by.is_empty() { Err("a text is split by one that is not empty".to_owned()) } else { Ok(by) }
}

fn capitalize(text: &str, out: &mut String) {
    let mut is_inside = false;
    for char in text.chars() {
        if is_inside {
            out.extend(char.to_lowercase());
        } else {
            // The upper case of some characters is several: that of "ß" at the beginning of a word is "Ss".
            let mut upper = char.to_uppercase();
            out.extend(upper.next());
            out.extend(upper.flat_map(char::to_lowercase));
        }
        is_inside = char.is_alphanumeric();
    }
}

/// Returns the byte offset of a character. It is the length of the string if there are fewer characters.
fn offset(text: &str, chars: usize) -> usize {
    text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at)
}

/// Returns the number of characters that a count means for a string: all but as many if it is negative.
fn counted(text: &str, count: i64) -> usize {
    let size = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if count >= 0 { size } else { text.chars().count().saturating_sub(size) }
}

fn left(text: &str, count: i64) -> &str {
    &text[..offset(text, counted(text, count))]
}

fn right(text: &str, count: i64) -> &str {
    let skipped = text.chars().count().saturating_sub(counted(text, count));
    &text[offset(text, skipped)..]
}

fn cut(arguments: &Arguments<'_>, cut: fn(&str, i64) -> &str) -> Result<ArrayRef, ArrowError> {
    let (texts, counts) = (arguments.texts(0), arguments.numbers::<Int64Type>(1));
    arguments.strings(|row, out| {
        out.push_str(cut(texts.get(row)?, counts.get(row)?));
        Some(())
    })
}

/// Fills strings up to a length. Characters count, and so do those of the fill.
fn pad(arguments: &Arguments<'_>, is_left: bool) -> Result<ArrayRef, ArrowError> {
    let (texts, lengths, fills) = (arguments.texts(0), arguments.numbers::<Int64Type>(1), arguments.texts(2));
    arguments.try_strings(|row, out| {
        let (Some(text), Some(length), Some(fill)) = (texts.get(row), lengths.get(row), fills.get(row)) else {
            return Ok(None);
        };
        let length = usize::try_from(length).unwrap_or(0);
        let missing = length.saturating_sub(text.chars().count());
        if missing > 0 && fill.is_empty() {
            return Err(ArrowError::ComputeError("an empty text fills nothing: give fill= a character".to_owned()));
        }
        check_bytes(text.len().saturating_add(missing))?;
        let filling = fill.chars().cycle().take(missing);
        if is_left {
            out.extend(filling);
            out.push_str(left(text, length as i64));
        } else {
            out.push_str(left(text, length as i64));
            out.extend(filling);
        }
        Ok(Some(()))
    })
}

fn repeat(arguments: &Arguments<'_>) -> Result<ArrayRef, ArrowError> {
    let (texts, counts) = (arguments.texts(0), arguments.numbers::<Int64Type>(1));
    arguments.try_strings(|row, out| {
        let Some((text, count)) = texts.get(row).zip(counts.get(row)) else { return Ok(None) };
        let count = usize::try_from(count).unwrap_or(0);
        check_bytes(text.len().saturating_mul(count))?;
        // An empty string needs no repetition, however large the count is.
        (0..if text.is_empty() { 0 } else { count }).for_each(|_| out.push_str(text));
        Ok(Some(()))
    })
}

fn position(arguments: &Arguments<'_>) -> Result<ArrayRef, ArrowError> {
    let (texts, parts) = (arguments.texts(0), arguments.texts(1));
    let found = arguments.each(|row| {
        let (text, part) = (texts.get(row)?, parts.get(row)?);
        Some(text.find(part).map_or(0, |at| text[..at].chars().count() as i64 + 1))
    });
    Ok(Arc::new(found.collect::<Int64Array>()))
}

/// Maps characters to their replacements, and to none if they are removed. The first of two equal characters counts.
fn translation(from: &str, to: &str) -> HashMap<char, Option<char>> {
    let mut to = to.chars();
    let mut map = HashMap::new();
    for char in from.chars() {
        let replacement = to.next();
        map.entry(char).or_insert(replacement);
    }
    map
}

fn split_part(arguments: &Arguments<'_>, by: &str) -> Result<ArrayRef, ArrowError> {
    let (texts, indices) = (arguments.texts(0), arguments.numbers::<Int64Type>(1));
    arguments.try_strings(|row, out| {
        let Some((text, index)) = texts.get(row).zip(indices.get(row)) else { return Ok(None) };
        let place = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
        let Some(place) = place.checked_sub(1) else {
            return Err(ArrowError::ComputeError("parts are counted from 1, or from -1 at the end".to_owned()));
        };
        // Both directions split at the same places, even if separators overlap.
        let count = if index > 0 { 0 } else { text.split(by).count() };
        let place = if index > 0 { Some(place) } else { count.checked_sub(place + 1) };
        out.push_str(place.and_then(|place| text.split(by).nth(place)).unwrap_or_default());
        Ok(Some(()))
    })
}

fn chr(arguments: &Arguments<'_>) -> Result<ArrayRef, ArrowError> {
    let codes = arguments.numbers::<Int64Type>(0);
    arguments.try_strings(|row, out| {
        let Some(code) = codes.get(row) else { return Ok(None) };
        let char = u32::try_from(code).ok().and_then(char::from_u32);
        out.push(char.ok_or_else(|| ArrowError::ComputeError("no character has this code point".to_owned()))?);
        Ok(Some(()))
    })
}

fn concat(arguments: &Arguments<'_>) -> Result<ArrayRef, ArrowError> {
    let columns: Vec<_> = (0..arguments.len()).map(|index| arguments.texts(index)).collect();
    arguments.strings(|row, out| columns.iter().try_for_each(|column| column.get(row).map(|text| out.push_str(text))))
}

fn concat_ws(arguments: &Arguments<'_>) -> Result<ArrayRef, ArrowError> {
    let separators = arguments.texts(0);
    let columns: Vec<_> = (1..arguments.len()).map(|index| arguments.texts(index)).collect();
    arguments.strings(|row, out| {
        let separator = separators.get(row)?;
        for (place, text) in columns.iter().filter_map(|column| column.get(row)).enumerate() {
            if place > 0 {
                out.push_str(separator);
            }
            out.push_str(text);
        }
        Some(())
    })
}

fn split(texts: &StringArray, by: &str) -> ArrayRef {
    let mut pieces = TextPieces { bytes: Vec::with_capacity(texts.value_data().len()), ends: vec![0] };
    let mut lists = vec![0];
    let finder = memchr::memmem::Finder::new(by);
    for text in texts {
        if let Some(text) = text {
            let mut start = 0;
            let mut cut = |end: usize| {
                pieces.push(&text.as_bytes()[start..end]);
                start = end + by.len();
            };
            match by.as_bytes() {
                [byte] => memchr::memchr_iter(*byte, text.as_bytes()).for_each(&mut cut),
                _ => finder.find_iter(text.as_bytes()).for_each(&mut cut),
            }
            cut(text.len());
        }
        lists.push(pieces.ends.len() as i32 - 1);
    }
    let TextPieces { bytes, ends } = pieces;
    // The pieces are cut at character boundaries, so they are valid UTF-8 like the whole string.
    let values = StringArray::new(OffsetBuffer::new(ends.into()), bytes.into(), None);
    let item = Arc::new(Field::new_list_field(DataType::Utf8, true));
    Arc::new(ListArray::new(item, OffsetBuffer::new(lists.into()), Arc::new(values), texts.nulls().cloned()))
}

/// Concatenated strings, and their end offsets.
struct TextPieces {
    bytes: Vec<u8>,
    ends: Vec<i32>,
}

impl TextPieces {
    #[inline]
    fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len() as i32);
    }
}

/// Returns a substring by characters. A negative offset counts from the end.
fn slice(text: &str, offset: i64, length: Option<u64>) -> &str {
    let place = |chars: usize| text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
    let (start, cut) = match usize::try_from(offset) {
        Ok(start) => (start, 0),
        Err(_) => {
            let chars = text.chars().count() as u64;
            let back = offset.unsigned_abs();
            (chars.saturating_sub(back) as usize, back.saturating_sub(chars))
        }
    };
    // Characters before the start of the string count towards the length.
    let length = length.map(|length| length.saturating_sub(cut) as usize);
    let from = place(start);
    length.map_or(&text[from..], |length| &text[from..place(start.saturating_add(length)).max(from)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_of_characters_and_never_fails() {
        for (offset, length, expected) in [
            (0, None, "größe"),
            (2, Some(2), "öß"),
            (-2, None, "ße"),
            (-9, Some(6), "gr"),
            (-9, None, "größe"),
            (5, None, ""),
            (9, Some(1), ""),
            (1, Some(u64::MAX), "röße"),
            (i64::MIN, Some(1), ""),
        ] {
            assert_eq!(slice("größe", offset, length), expected, "{offset} {length:?}");
        }
    }
}
