//! Keys of rows: which group each row is of, and columns of keys again.

use std::hash::{BuildHasher, Hash};

use arrow_array::{Array, ArrayRef};
use arrow_schema::{ArrowError, DataType, Schema};
use flownet_runtime::canonical;
use flownet_runtime::varint::{put_varint, take_varint, unzigzag};
use hashbrown::hash_table::{Entry, HashTable};

use crate::key::{Keys, NoKey, place};
use crate::lane::{ColumnBuilder, Scalar};

/// The keys that have come so far, numbered.
#[derive(Default)]
pub(crate) struct KeyTable {
    ints: HashTable<(i64, u32)>,
    /// Texts that are short enough to be a number.
    short: HashTable<(u128, u32)>,
    null: Option<u32>,
    /// All other keys: the hash of what they were found by, and their number.
    others: HashTable<(u64, u32)>,
    /// Canonical bytes of all keys, one behind the other.
    bytes: Vec<u8>,
    ends: Vec<u32>,
    hasher: hashbrown::DefaultHashBuilder,
    scratch: Vec<u8>,
}

impl KeyTable {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn clear(&mut self) {
        self.ints.clear();
        self.short.clear();
        self.null = None;
        self.others.clear();
        self.bytes.clear();
        self.ends.clear();
    }

    /// A key by its number, in its canonical form.
    pub(crate) fn key(&self, group: usize) -> &[u8] {
        let start = group.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.bytes[start..self.ends[group] as usize]
    }

    /// The number of each of these rows' keys.
    pub(crate) fn groups(&mut self, keys: &Keys, start: usize, rows: usize, out: &mut Vec<u32>) {
        out.clear();
        out.reserve(rows);
        match keys {
            Keys::Ints(array) if array.null_count() == 0 => {
                out.extend(array.values()[start..start + rows].iter().map(|value| self.group_of_int(*value)));
            }
            Keys::Ints(array) => {
                for row in start..start + rows {
                    let group =
                        if array.is_null(row) { self.group_of_null() } else { self.group_of_int(array.value(row)) };
                    out.push(group);
                }
            }
            Keys::Texts(texts) => {
                let (data, ends) = (texts.value_data(), texts.value_offsets());
                out.extend((start..start + rows).map(|row| {
                    if texts.is_null(row) {
                        return self.group_of_null();
                    }
                    self.group_of_text(data, ends[row] as usize, ends[row + 1] as usize)
                }));
            }
            Keys::Other(_) | Keys::Tuple(_) => {
                let mut before = None;
                out.extend((start..start + rows).map(|row| {
                    // Behind a join, for one, rows of a key follow each other.
                    let known = before.filter(|_| keys.is_as_before(row));
                    *before.insert(known.unwrap_or_else(|| self.group_of_row(keys, row)))
                }));
            }
        }
    }

    #[inline]
    fn group_of_int(&mut self, value: i64) -> u32 {
        let Self { ints, hasher, bytes, ends, .. } = self;
        group_of_number(ints, hasher, value, (bytes, ends), |bytes| canonical::put_int(bytes, value))
    }

    fn group_of_null(&mut self) -> u32 {
        *self.null.get_or_insert_with(|| {
            self.bytes.push(canonical::NONE);
            self.ends.push(self.bytes.len() as u32);
            self.ends.len() as u32 - 1
        })
    }

    /// Of the text between these places.
    #[inline]
    fn group_of_text(&mut self, data: &[u8], start: usize, end: usize) -> u32 {
        let Some(number) = number_of(data, start, end) else { return self.group_of_long_text(&data[start..end]) };
        let Self { short, hasher, bytes, ends, .. } = self;
        group_of_number(short, hasher, number, (bytes, ends), |bytes| canonical::put_text(bytes, &data[start..end]))
    }

    /// By what the texts are: in front of each, its canonical form has its length.
    fn group_of_long_text(&mut self, text: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(text);
        self.group_of_hash(
            hash,
            |key| key.ends_with(text) && key.len() == text_bytes(text.len()),
            |bytes| {
                canonical::put_text(bytes, text);
            },
        )
    }

    fn group_of_row(&mut self, keys: &Keys, row: usize) -> u32 {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        keys.put(row, &mut scratch);
        let hash = self.hasher.hash_one(&scratch[..]);
        let group = self.group_of_hash(hash, |key| key == &scratch[..], |bytes| bytes.extend_from_slice(&scratch));
        self.scratch = scratch;
        group
    }

    /// The key of this hash that is the one wanted; else it is put behind the others.
    #[inline]
    fn group_of_hash(&mut self, hash: u64, is_it: impl Fn(&[u8]) -> bool, put: impl FnOnce(&mut Vec<u8>)) -> u32 {
        let Self { others, bytes, ends, .. } = self;
        let key_of = |group: u32| {
            let start = group.checked_sub(1).map_or(0, |before| ends[before as usize] as usize);
            &bytes[start..ends[group as usize] as usize]
        };
        match others.entry(hash, |(of, group)| *of == hash && is_it(key_of(*group)), |(of, _)| *of) {
            Entry::Occupied(entry) => entry.get().1,
            Entry::Vacant(entry) => {
                let group = ends.len() as u32;
                entry.insert((hash, group));
                put(bytes);
                ends.push(bytes.len() as u32);
                group
            }
        }
    }
}

/// The key that is this number; else it is put behind the others.
#[inline]
fn group_of_number<N: Copy + Eq + Hash>(
    table: &mut HashTable<(N, u32)>,
    hasher: &impl BuildHasher,
    number: N,
    (bytes, ends): (&mut Vec<u8>, &mut Vec<u32>),
    put: impl FnOnce(&mut Vec<u8>),
) -> u32 {
    let hash = hasher.hash_one(number);
    match table.entry(hash, |(other, _)| *other == number, |(other, _)| hasher.hash_one(*other)) {
        Entry::Occupied(entry) => entry.get().1,
        Entry::Vacant(entry) => {
            let group = ends.len() as u32;
            entry.insert((number, group));
            put(bytes);
            ends.push(bytes.len() as u32);
            group
        }
    }
}

/// A text as a number, which no other text has: its bytes, and behind them its length. None if it is longer than that.
#[inline]
fn number_of(data: &[u8], start: usize, end: usize) -> Option<u128> {
    let len = end - start;
    if len > MOST_SHORT {
        return None;
    }
    let bytes = match data.get(start..start + NUMBER_BYTES) {
        // What is behind the text is of the next ones.
        Some(bytes) => u128::from_le_bytes(bytes.try_into().ok()?) & ((1 << (8 * len)) - 1),
        None => {
            let mut bytes = [0; NUMBER_BYTES];
            bytes[..len].copy_from_slice(&data[start..end]);
            u128::from_le_bytes(bytes)
        }
    };
    Some(bytes | (len as u128) << (8 * MOST_SHORT))
}

const NUMBER_BYTES: usize = size_of::<u128>();
const MOST_SHORT: usize = NUMBER_BYTES - 1;

/// How long the canonical form of a text of so many bytes is.
fn text_bytes(len: usize) -> usize {
    if len <= usize::from(canonical::SMALL_MAX) {
        1 + len
    } else {
        // Long texts are rare.
        let mut prefix = Vec::new();
        put_varint(&mut prefix, len as u64);
        1 + prefix.len() + len
    }
}

/// Columns of keys, made of their canonical bytes.
#[derive(Debug)]
pub(super) struct KeyBuilder {
    columns: Vec<(ColumnBuilder, DataType)>,
}

impl KeyBuilder {
    pub(super) fn new(schema: &Schema, keys: &[String]) -> Result<Self, NoKey> {
        let columns = keys.iter().map(|key| {
            let data_type = schema.field(place(schema, key)?).data_type();
            Ok((ColumnBuilder::new(data_type), data_type.clone()))
        });
        Ok(Self { columns: columns.collect::<Result<_, NoKey>>()? })
    }

    /// Appends a key; none: the bytes are no such key.
    pub(super) fn push(&mut self, mut key: &[u8]) -> Option<()> {
        if self.columns.len() > 1 {
            let (&tag, rest) = key.split_first()?;
            let (items, rest) = take_varint(rest).ok()?;
            (tag == canonical::TUPLE && items == self.columns.len() as u64).then_some(())?;
            key = rest;
        }
        for (column, _) in &mut self.columns {
            let (value, rest) = take_value(key)?;
            column.push(value);
            key = rest;
        }
        key.is_empty().then_some(())
    }

    pub(super) fn take(&mut self) -> Result<Vec<ArrayRef>, ArrowError> {
        self.columns.iter_mut().map(|(column, _)| column.take()).collect()
    }

    /// A key as users would write it, for errors.
    pub(super) fn shown(&self, key: &[u8]) -> String {
        let mut rest = key;
        if self.columns.len() > 1 {
            let Some((_, items)) = rest.split_first().and_then(|(_, rest)| take_varint(rest).ok()) else {
                return format!("{key:?}");
            };
            rest = items;
        }
        let mut shown = Vec::new();
        for _ in &self.columns {
            let Some((value, behind)) = take_value(rest) else { return format!("{key:?}") };
            shown.push(match value {
                Scalar::None => "None".to_owned(),
                Scalar::Int(value) => value.to_string(),
                Scalar::Unsigned(value) => value.to_string(),
                Scalar::Float(value) => format!("{value:?}"),
                Scalar::Bytes(bytes) => format!("'{}'", String::from_utf8_lossy(bytes)),
                // These make no keys.
                Scalar::Decimal(value) => value.to_string(),
                Scalar::List(values) => format!("{values:?}"),
            });
            rest = behind;
        }
        if shown.len() == 1 { shown.remove(0) } else { format!("({})", shown.join(", ")) }
    }
}

/// Takes the canonical bytes of one value off the front, of a type that makes keys of rows.
fn take_value(bytes: &[u8]) -> Option<(Scalar<'_>, &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let block = |rest: &'_ [u8]| -> Option<(usize, usize)> {
        let (len, behind) = take_varint(rest).ok()?;
        Some((usize::try_from(len).ok()?, rest.len() - behind.len()))
    };
    Some(match tag {
        canonical::NONE => (Scalar::None, rest),
        canonical::INT => {
            let (value, rest) = take_varint(rest).ok()?;
            (Scalar::Int(unzigzag(value)), rest)
        }
        canonical::BIG_INT => {
            let (len, skipped) = block(rest)?;
            let (digits, rest) = rest[skipped..].split_at_checked(len)?;
            (big_int(digits), rest)
        }
        canonical::FLOAT => {
            let (taken, rest) = rest.split_first_chunk()?;
            (Scalar::Float(f64::from_le_bytes(*taken)), rest)
        }
        canonical::STR | canonical::BYTES => {
            let (len, skipped) = block(rest)?;
            let (taken, rest) = rest[skipped..].split_at_checked(len)?;
            (Scalar::Bytes(taken), rest)
        }
        tag if tag & canonical::SMALL_INT == canonical::SMALL_INT => {
            (Scalar::Int((tag & canonical::SMALL_MAX).into()), rest)
        }
        tag if tag & canonical::SMALL_INT == canonical::SHORT_STR => {
            let (taken, rest) = rest.split_at_checked((tag & canonical::SMALL_MAX).into())?;
            (Scalar::Bytes(taken), rest)
        }
        _ => return None,
    })
}

/// Of an integer that is no `i64`: that of a column of unsigned ones, or of floats.
fn big_int(digits: &[u8]) -> Scalar<'static> {
    let is_negative = digits.last().is_some_and(|last| *last >= 0x80);
    if let ([low @ .., 0], false) = (digits, is_negative)
        && let Ok(low) = low.try_into()
    {
        return Scalar::Unsigned(u64::from_le_bytes(low));
    }
    // Floats beyond 64 bits are integers of 53 bits, and zeros below them: each step is exact.
    let float = |digits: &[u8]| digits.iter().rev().fold(0.0, |sum: f64, digit| sum * 256.0 + f64::from(*digit));
    if !is_negative {
        return Scalar::Float(float(digits));
    }
    let mut carry = true;
    let negated = digits.iter().map(|digit| {
        let (sum, overflow) = (!digit).overflowing_add(u8::from(carry));
        carry = overflow;
        sum
    });
    Scalar::Float(-float(&negated.collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use arrow_array::{Int64Array, StringArray};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few of them, so that they follow each other.
        #[test]
        fn tuples_are_of_one_group_if_they_are_the_same(
            tuples in proptest::collection::vec((proptest::option::of(0i64..2), proptest::option::of("[ab]?")), 0..60),
            start in 0usize..5,
        ) {
            let start = start.min(tuples.len());
            let numbers: Int64Array = tuples.iter().map(|tuple| tuple.0).collect();
            let texts: StringArray = tuples.iter().map(|tuple| tuple.1.as_deref()).collect();
            let keys = Keys::Tuple(vec![Keys::Ints(numbers), Keys::Texts(texts)]);
            let (mut table, mut groups) = (KeyTable::default(), Vec::new());
            table.groups(&keys, start, tuples.len() - start, &mut groups);
            for (row, group) in (start..).zip(&groups) {
                let mut key = Vec::new();
                keys.put(row, &mut key);
                prop_assert_eq!(table.key(*group as usize), &key[..]);
            }
            let different: std::collections::HashSet<_> = tuples[start..].iter().collect();
            prop_assert_eq!(table.len(), different.len());
        }

        /// Wherever texts lie, and however long they are.
        #[test]
        fn texts_are_of_one_group_if_they_are_the_same(
            texts in proptest::collection::vec(proptest::option::of("[ab\u{0}ö]{0,3}|[ab]{14,18}"), 0..60),
            start in 0usize..5,
        ) {
            let start = start.min(texts.len());
            let array: StringArray = texts.iter().map(Option::as_deref).collect();
            let (mut table, mut groups) = (KeyTable::default(), Vec::new());
            table.groups(&Keys::Texts(array), start, texts.len() - start, &mut groups);
            let mut known = HashMap::new();
            for (text, group) in texts[start..].iter().zip(&groups) {
                prop_assert_eq!(*known.entry(text).or_insert(*group), *group);
            }
            prop_assert_eq!(table.len(), known.len());
            for (text, group) in known {
                let mut key = Vec::new();
                match text {
                    None => key.push(canonical::NONE),
                    Some(text) => canonical::put_text(&mut key, text.as_bytes()),
                }
                prop_assert_eq!(table.key(group as usize), &key[..]);
            }
        }
    }
}
