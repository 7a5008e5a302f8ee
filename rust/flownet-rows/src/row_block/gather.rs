//! Decodes row blocks into the columns of a batch.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, make_array};
use arrow_buffer::{BooleanBufferBuilder, Buffer, MutableBuffer, NullBuffer, NullBufferBuilder};
use arrow_data::ArrayData;
use arrow_schema::ArrowError;
use flownet_runtime::varint::{VarintError, take_varint};

use super::{ALL_THERE, MOST_ROWS, SOME_MISSING};
use crate::layout::{ColumnLayout, Layout, Shape};

/// Bytes that no flownet sender writes. After this error the gathered rows are lost.
#[derive(Debug, thiserror::Error)]
pub enum MalformedRun {
    /// The number of rows is malformed.
    #[error("a run of rows that no flownet sender writes: {0}")]
    Varint(#[from] VarintError),
    /// The row block ends too early.
    #[error("a run of rows that no flownet sender writes: {missing} bytes are missing at its end")]
    Truncated {
        /// Number of missing bytes.
        missing: usize,
    },
    /// Bytes follow the last column.
    #[error("a run of rows that no flownet sender writes: {surplus} bytes follow its last column")]
    Surplus {
        /// Number of extra bytes.
        surplus: usize,
    },
    /// The row block claims more rows than allowed.
    #[error("a run of {rows} rows, and none has more than {MOST_ROWS}")]
    TooManyRows {
        /// Number of rows that it claims.
        rows: u64,
    },
    /// A stored row is not exactly one row.
    #[error("a run of rows that no flownet sender writes, where one row was to be")]
    NotOneRow,
    /// Stored data has no rows.
    #[error("a run of rows that no flownet sender writes, where rows were to be")]
    NoRows,
    /// The byte before a bitmap of nulls is invalid.
    #[error(
        "a run of rows that no flownet sender writes: {0:#04x} says neither that all values are there nor that some are not"
    )]
    NoNulls(u8),
    /// A batch has more than 2 GiB of strings, bytes or list items in one column.
    #[error("a batch of rows with more than 2^31 - 1 bytes or items in one column")]
    TooLong,
    /// The values are invalid, for example strings that are not UTF-8.
    #[error("a run of rows that no flownet sender writes: {0}")]
    Values(#[from] ArrowError),
}

/// Gathers rows of arriving row blocks until they fill a batch.
#[derive(Debug)]
pub struct Gather {
    layout: Arc<Layout>,
    columns: Vec<ColumnGatherer>,
    rows: usize,
}

impl Gather {
    /// Creates a gatherer for row blocks of this layout.
    pub fn new(layout: Arc<Layout>) -> Self {
        let columns = building(layout.columns());
        Self { layout, columns, rows: 0 }
    }

    /// Returns the number of rows that wait for [`take`](Self::take).
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Adds the rows of a row block. After an error the gatherer is unusable.
    #[inline]
    pub fn push(&mut self, run: &[u8]) -> Result<(), MalformedRun> {
        let (rows, mut rest) = take_varint(run)?;
        let rows =
            usize::try_from(rows).ok().filter(|rows| *rows <= MOST_ROWS).ok_or(MalformedRun::TooManyRows { rows })?;
        for column in &mut self.columns {
            rest = column.push(rows, rest)?;
        }
        if !rest.is_empty() {
            return Err(MalformedRun::Surplus { surplus: rest.len() });
        }
        self.rows += rows;
        Ok(())
    }

    /// Returns the gathered rows as a batch, and clears the gatherer.
    pub fn take(&mut self) -> Result<RecordBatch, MalformedRun> {
        let rows = std::mem::take(&mut self.rows);
        let columns = self.columns.iter_mut().map(|column| column.take(rows)).collect::<Result<_, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(self.layout.schema()), columns, &options)?)
    }
}

fn building(columns: &[ColumnLayout]) -> Vec<ColumnGatherer> {
    columns.iter().map(ColumnGatherer::new).collect()
}

/// Gathers one column.
#[derive(Debug)]
struct ColumnGatherer {
    layout: ColumnLayout,
    nulls: NullBufferBuilder,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Fixed { width: usize, bytes: MutableBuffer },
    Bits(BooleanBufferBuilder),
    Bytes { ends: GatheredOffsets, heap: MutableBuffer },
    List { ends: GatheredOffsets, items: Box<ColumnGatherer> },
    Struct(Vec<ColumnGatherer>),
}

/// Offsets of values of variable length.
#[derive(Debug)]
struct GatheredOffsets {
    numbers: Vec<i32>,
    last: i32,
}

impl GatheredOffsets {
    fn new() -> Self {
        Self { numbers: vec![0], last: 0 }
    }

    /// Takes the lengths of `rows` values off the front. Returns their sum and the remaining bytes.
    fn push<'a>(&mut self, rows: usize, run: &'a [u8]) -> Result<(usize, &'a [u8]), MalformedRun> {
        let (lengths, rest) = split(run, rows * size_of::<u32>())?;
        let before = self.last;
        self.numbers.reserve(rows);
        for length in lengths.as_chunks().0 {
            let length = i32::try_from(u32::from_le_bytes(*length)).map_err(|_| MalformedRun::TooLong)?;
            self.last = self.last.checked_add(length).ok_or(MalformedRun::TooLong)?;
            self.numbers.push(self.last);
        }
        Ok(((self.last - before) as usize, rest))
    }

    fn take(&mut self) -> Buffer {
        Buffer::from_vec(std::mem::replace(self, Self::new()).numbers)
    }
}

impl ColumnGatherer {
    fn new(layout: &ColumnLayout) -> Self {
        let values = match &layout.shape {
            Shape::Fixed { width } => Values::Fixed { width: *width, bytes: MutableBuffer::new(0) },
            Shape::Bits => Values::Bits(BooleanBufferBuilder::new(0)),
            Shape::Bytes => Values::Bytes { ends: GatheredOffsets::new(), heap: MutableBuffer::new(0) },
            Shape::List(item) => Values::List { ends: GatheredOffsets::new(), items: Box::new(Self::new(item)) },
            Shape::Struct(fields) => Values::Struct(building(fields)),
        };
        Self { layout: layout.clone(), nulls: NullBufferBuilder::new(0), values }
    }

    /// Takes the column off the front of a row block.
    #[inline]
    fn push<'a>(&mut self, rows: usize, run: &'a [u8]) -> Result<&'a [u8], MalformedRun> {
        let run = if self.layout.nullable { self.push_nulls(rows, run)? } else { run };
        match &mut self.values {
            Values::Fixed { width, bytes } => {
                let (values, rest) = split(run, rows * *width)?;
                // The value is usually one word: copied without a call.
                match <[u8; size_of::<u64>()]>::try_from(values) {
                    Ok(word) => bytes.push(u64::from_ne_bytes(word)),
                    Err(_) => bytes.extend_from_slice(values),
                }
                Ok(rest)
            }
            Values::Bits(bits) => {
                let (bitmap, rest) = split(run, rows.div_ceil(8))?;
                bits.append_packed_range(0..rows, bitmap);
                Ok(rest)
            }
            Values::Bytes { ends, heap } => {
                let (len, rest) = ends.push(rows, run)?;
                let (bytes, rest) = split(rest, len)?;
                heap.extend_from_slice(bytes);
                Ok(rest)
            }
            Values::List { ends, items } => {
                let (len, rest) = ends.push(rows, run)?;
                items.push(len, rest)
            }
            Values::Struct(children) => children.iter_mut().try_fold(run, |rest, child| child.push(rows, rest)),
        }
    }

    #[inline]
    fn push_nulls<'a>(&mut self, rows: usize, run: &'a [u8]) -> Result<&'a [u8], MalformedRun> {
        match run.split_first() {
            None => Err(MalformedRun::Truncated { missing: 1 }),
            Some((&ALL_THERE, rest)) => {
                self.nulls.append_n_non_nulls(rows);
                Ok(rest)
            }
            Some((&SOME_MISSING, rest)) => {
                let (bitmap, rest) = split(rest, rows.div_ceil(8))?;
                let mut bits = BooleanBufferBuilder::new(rows);
                bits.append_packed_range(0..rows, bitmap);
                self.nulls.append_buffer(&NullBuffer::new(bits.finish()));
                Ok(rest)
            }
            Some((&other, _)) => Err(MalformedRun::NoNulls(other)),
        }
    }

    fn take(&mut self, rows: usize) -> Result<ArrayRef, MalformedRun> {
        Ok(make_array(self.take_data(rows)?))
    }

    fn take_data(&mut self, rows: usize) -> Result<ArrayData, MalformedRun> {
        let builder = ArrayData::builder(self.layout.data_type.clone()).len(rows).nulls(self.nulls.finish());
        let builder = match &mut self.values {
            Values::Fixed { bytes, .. } => builder.add_buffer(std::mem::take(bytes).into()),
            Values::Bits(bits) => builder.add_buffer(bits.finish().into_inner()),
            Values::Bytes { ends, heap } => builder.add_buffer(ends.take()).add_buffer(std::mem::take(heap).into()),
            Values::List { ends, items } => {
                let len = ends.last as usize;
                builder.add_buffer(ends.take()).add_child_data(items.take_data(len)?)
            }
            Values::Struct(children) => {
                let children = children.iter_mut().map(|child| child.take_data(rows));
                builder.child_data(children.collect::<Result<_, _>>()?)
            }
        };
        // Validates strings, too, because a peer sent them.
        Ok(builder.build()?)
    }
}

#[inline]
fn split(bytes: &[u8], len: usize) -> Result<(&[u8], &[u8]), MalformedRun> {
    bytes.split_at_checked(len).ok_or_else(|| MalformedRun::Truncated { missing: len - bytes.len() })
}
