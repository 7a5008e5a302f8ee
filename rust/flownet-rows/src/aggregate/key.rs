//! Assigns rows to groups by key, and rebuilds key columns from canonical bytes.

use std::hash::{BuildHasher, Hash};

use arrow_array::{Array, ArrayRef};
use arrow_schema::{ArrowError, DataType, Schema};
use flownet_runtime::canonical;
use flownet_runtime::varint::{put_varint, take_varint};
use hashbrown::hash_table::{Entry, HashTable};

use crate::expr::try_shown;
use crate::key::{IntKey, KeyForm, Keys, NoKey, place};
use crate::physical_type::{ColumnBuilder, Scalar};

/// Table of keys, numbered in the order of their first occurrence.
#[derive(Default)]
pub(crate) struct KeyTable {
    ints: HashTable<(i64, u32)>,
    /// Strings that are short enough to be a number.
    short: HashTable<(u128, u32)>,
    null: Option<u32>,
    /// All other keys: the hash by which they are found, and their number.
    others: HashTable<(u64, u32)>,
    /// Canonical bytes of all keys, concatenated.
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

    /// Returns the canonical form of the key with this number.
    pub(crate) fn key(&self, group: usize) -> &[u8] {
        let start = group.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.bytes[start..self.ends[group] as usize]
    }

    /// Writes the number of the key of each row to `out`.
    pub(crate) fn groups(&mut self, keys: &Keys, start: usize, rows: usize, out: &mut Vec<u32>) {
        out.clear();
        out.reserve(rows);
        match keys {
            Keys::Ints(array, kind) if array.null_count() == 0 => {
                out.extend(array.values()[start..start + rows].iter().map(|value| self.group_of_int(*value, *kind)));
            }
            Keys::Ints(array, kind) => out.extend((start..start + rows).map(|row| {
                if array.is_null(row) { self.group_of_null() } else { self.group_of_int(array.value(row), *kind) }
            })),
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
                    // Rows of a key are often consecutive, for example after a join.
                    let known = before.filter(|_| keys.is_as_before(row));
                    *before.insert(known.unwrap_or_else(|| self.group_of_row(keys, row)))
                }));
            }
        }
    }

    #[inline]
    fn group_of_int(&mut self, value: i64, kind: IntKey) -> u32 {
        let Self { ints, hasher, bytes, ends, .. } = self;
        group_of_number(ints, hasher, value, bytes, ends, |bytes| kind.put(value, bytes))
    }

    fn group_of_null(&mut self) -> u32 {
        *self.null.get_or_insert_with(|| {
            self.bytes.push(canonical::NONE);
            self.ends.push(self.bytes.len() as u32);
            self.ends.len() as u32 - 1
        })
    }

    /// Returns the number of the string between these offsets.
    #[inline]
    fn group_of_text(&mut self, data: &[u8], start: usize, end: usize) -> u32 {
        let Some(number) = number_of(data, start, end) else { return self.group_of_long_text(&data[start..end]) };
        let Self { short, hasher, bytes, ends, .. } = self;
        group_of_number(short, hasher, number, bytes, ends, |bytes| canonical::put_text(bytes, &data[start..end]))
    }

    /// Compares by the string itself: in its canonical form only its length precedes it.
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

    /// Returns the number of the matching key with this hash, or adds the key.
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

/// Returns the group of the key with this number, or adds the key.
#[inline]
fn group_of_number<N: Copy + Eq + Hash>(
    table: &mut HashTable<(N, u32)>,
    hasher: &impl BuildHasher,
    number: N,
    bytes: &mut Vec<u8>,
    ends: &mut Vec<u32>,
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

/// Returns a number that is unique to a string: its bytes, then its length. None if the string is too long.
#[inline]
fn number_of(data: &[u8], start: usize, end: usize) -> Option<u128> {
    let len = end - start;
    if len > MOST_SHORT {
        return None;
    }
    let bytes = match data.get(start..start + NUMBER_BYTES) {
        // The bytes after the string belong to the next strings.
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

/// Returns the length of the canonical form of a string of `len` bytes.
fn text_bytes(len: usize) -> usize {
    if len <= usize::from(canonical::SMALL_MAX) {
        1 + len
    } else {
        // Long strings are rare, so this need not be fast.
        let mut prefix = Vec::new();
        put_varint(&mut prefix, len as u64);
        1 + prefix.len() + len
    }
}

/// Builds key columns from canonical bytes.
#[derive(Debug)]
pub(super) struct KeyBuilder {
    columns: Vec<KeyColumn>,
}

#[derive(Debug)]
struct KeyColumn {
    data_type: DataType,
    form: KeyForm,
    values: ColumnBuilder,
}

impl KeyColumn {
    fn new(data_type: &DataType) -> Self {
        Self { data_type: data_type.clone(), form: KeyForm::of(data_type), values: ColumnBuilder::new(data_type) }
    }
}

impl KeyBuilder {
    pub(super) fn new(schema: &Schema, keys: &[String]) -> Result<Self, NoKey> {
        let columns = keys.iter().map(|key| Ok(KeyColumn::new(schema.field(place(schema, key)?).data_type())));
        Ok(Self { columns: columns.collect::<Result<_, NoKey>>()? })
    }

    /// Appends a key. Returns none if the bytes are not a key of these columns.
    pub(super) fn push(&mut self, key: &[u8]) -> Option<()> {
        let mut rest = self.items(key)?;
        for KeyColumn { form, values, .. } in &mut self.columns {
            let (value, behind) = form.take(rest)?;
            values.push(value);
            rest = behind;
        }
        rest.is_empty().then_some(())
    }

    /// Returns the bytes after the tuple header, if keys are tuples.
    fn items<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        if self.columns.len() == 1 {
            return Some(key);
        }
        let (&tag, rest) = key.split_first()?;
        let (items, rest) = take_varint(rest).ok()?;
        (tag == canonical::TUPLE && items == self.columns.len() as u64).then_some(rest)
    }

    pub(super) fn take(&mut self) -> Result<Vec<ArrayRef>, ArrowError> {
        self.columns.iter_mut().map(|column| column.values.take()).collect()
    }

    /// Formats a key as users would write it, for errors.
    pub(super) fn shown(&self, key: &[u8]) -> String {
        self.values_shown(key).map_or_else(
            || format!("{key:?}"),
            |mut values| if values.len() == 1 { values.remove(0) } else { format!("({})", values.join(", ")) },
        )
    }

    fn values_shown(&self, key: &[u8]) -> Option<Vec<String>> {
        let mut rest = self.items(key)?;
        let values = self.columns.iter().map(|KeyColumn { data_type, form, .. }| {
            let (value, behind) = form.take(rest)?;
            rest = behind;
            Some(match value {
                Scalar::Bytes(bytes) => format!("'{}'", String::from_utf8_lossy(bytes)),
                value => shown_as(data_type, value),
            })
        });
        values.collect()
    }
}

/// Formats a value of a column of this type, for errors.
fn shown_as(data_type: &DataType, value: Scalar<'_>) -> String {
    let mut column = ColumnBuilder::new(data_type);
    column.push(value);
    column.take().ok().and_then(|column| try_shown(&column, 0)).unwrap_or_else(|| format!("{value:?}"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use arrow_array::{Int64Array, StringArray};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few different tuples, so that equal ones are often consecutive.
        #[test]
        fn tuples_are_of_one_group_if_they_are_the_same(
            tuples in proptest::collection::vec((proptest::option::of(0i64..2), proptest::option::of("[ab]?")), 0..60),
            start in 0usize..5,
        ) {
            let start = start.min(tuples.len());
            let numbers: Int64Array = tuples.iter().map(|tuple| tuple.0).collect();
            let texts: StringArray = tuples.iter().map(|tuple| tuple.1.as_deref()).collect();
            let keys = Keys::Tuple(vec![Keys::Ints(numbers, IntKey::Number), Keys::Texts(texts)]);
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

        /// Strings at all offsets and of all lengths.
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
