//! Operations of expressions on strings.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, ListArray, StringArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field};
use regex::Regex;

use super::TextOp;

/// Operation on strings, with its pattern compiled.
#[derive(Debug)]
pub(super) enum TextFunction {
    LenChars,
    LenBytes,
    ToLowercase,
    ToUppercase,
    StripChars,
    Matches(Regex),
    Contains(String),
    StartsWith(String),
    EndsWith(String),
    Slice { offset: i64, length: Option<u64> },
    ReplaceMatches { pattern: Regex, value: String },
    Replace { pattern: String, value: String },
    Extract { pattern: Regex, group: usize },
    Split(String),
}

impl TextFunction {
    /// Creates the operation. The error describes the fault of the pattern.
    pub(super) fn new(op: &TextOp) -> Result<Self, String> {
        let compiled = |pattern: &str| Regex::new(pattern).map_err(|error| error.to_string());
        Ok(match op {
            TextOp::LenChars => Self::LenChars,
            TextOp::LenBytes => Self::LenBytes,
            TextOp::ToLowercase => Self::ToLowercase,
            TextOp::ToUppercase => Self::ToUppercase,
            TextOp::StripChars => Self::StripChars,
            TextOp::Contains { pattern, literal: true } => Self::Contains(pattern.clone()),
            TextOp::Contains { pattern, literal: false } => Self::Matches(compiled(pattern)?),
            TextOp::StartsWith(text) => Self::StartsWith(text.clone()),
            TextOp::EndsWith(text) => Self::EndsWith(text.clone()),
            TextOp::Slice { offset, length } => Self::Slice { offset: *offset, length: *length },
            TextOp::ReplaceAll { pattern, value, literal: true } => {
                Self::Replace { pattern: pattern.clone(), value: value.clone() }
            }
            TextOp::ReplaceAll { pattern, value, literal: false } => {
                Self::ReplaceMatches { pattern: compiled(pattern)?, value: value.clone() }
            }
            TextOp::Extract { pattern, group } => {
                let pattern = compiled(pattern)?;
                if *group >= pattern.captures_len() {
                    return Err(format!(
                        "the pattern has groups 0 to {}, and no group {group}",
                        pattern.captures_len() - 1
                    ));
                }
                Self::Extract { pattern, group: *group }
            }
            TextOp::Split(by) if by.is_empty() => return Err("a text is split by one that is not empty".to_owned()),
            TextOp::Split(by) => Self::Split(by.clone()),
        })
    }

    pub(super) fn data_type(&self) -> DataType {
        match self {
            Self::LenChars | Self::LenBytes => DataType::Int64,
            Self::Matches(_) | Self::Contains(_) | Self::StartsWith(_) | Self::EndsWith(_) => DataType::Boolean,
            Self::Split(_) => DataType::List(Arc::new(Field::new("item", DataType::Utf8, true))),
            Self::ToLowercase
            | Self::ToUppercase
            | Self::StripChars
            | Self::Slice { .. }
            | Self::ReplaceMatches { .. }
            | Self::Replace { .. }
            | Self::Extract { .. } => DataType::Utf8,
        }
    }

    /// Returns true if the operation may return null for a string.
    pub(super) fn may_be_none(&self) -> bool {
        matches!(self, Self::Extract { .. })
    }

    pub(super) fn run(&self, texts: &StringArray) -> ArrayRef {
        match self {
            Self::LenChars => numbers(texts, |text| text.chars().count()),
            Self::LenBytes => numbers(texts, str::len),
            Self::ToLowercase => made(texts, |text, out| out.push_str(&text.to_lowercase())),
            Self::ToUppercase => made(texts, |text, out| out.push_str(&text.to_uppercase())),
            Self::StripChars => made(texts, |text, out| out.push_str(text.trim())),
            Self::Matches(pattern) => truths(texts, |text| pattern.is_match(text)),
            Self::Contains(part) => {
                let finder = memchr::memmem::Finder::new(part);
                truths(texts, |text| finder.find(text.as_bytes()).is_some())
            }
            Self::StartsWith(part) => truths(texts, |text| text.starts_with(&**part)),
            Self::EndsWith(part) => truths(texts, |text| text.ends_with(&**part)),
            Self::Slice { offset, length } => made(texts, |text, out| out.push_str(slice(text, *offset, *length))),
            Self::ReplaceMatches { pattern, value } => {
                made(texts, |text, out| out.push_str(&pattern.replace_all(text, value)))
            }
            Self::Replace { pattern, value } => made(texts, |text, out| out.push_str(&text.replace(&**pattern, value))),
            Self::Extract { pattern, group } => {
                let found = texts.iter().map(|text| pattern.captures(text?)?.get(*group).map(|found| found.as_str()));
                Arc::new(found.collect::<StringArray>())
            }
            Self::Split(by) => split(texts, by),
        }
    }
}

fn numbers(texts: &StringArray, number: impl Fn(&str) -> usize) -> ArrayRef {
    Arc::new(texts.iter().map(|text| text.map(|text| number(text) as i64)).collect::<Int64Array>())
}

fn truths(texts: &StringArray, truth: impl Fn(&str) -> bool) -> ArrayRef {
    Arc::new(texts.iter().map(|text| text.map(&truth)).collect::<BooleanArray>())
}

fn made(texts: &StringArray, make: impl Fn(&str, &mut String)) -> ArrayRef {
    let mut builder = StringBuilder::with_capacity(texts.len(), texts.value_data().len());
    let mut scratch = String::new();
    for text in texts {
        match text {
            None => builder.append_null(),
            Some(text) => {
                scratch.clear();
                make(text, &mut scratch);
                builder.append_value(&scratch);
            }
        }
    }
    Arc::new(builder.finish())
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
