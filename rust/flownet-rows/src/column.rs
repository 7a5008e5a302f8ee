//! Columns of a batch as bytes. They are looked up once per batch and cut once per row block.

use std::ops::Range;

use arrow_array::{Array, ArrayRef};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;

use crate::layout::{ColumnLayout, Shape};

/// One column, starting at its first row.
#[derive(Debug)]
pub(crate) struct Column {
    /// Whether row blocks carry nulls of the column.
    pub(crate) nullable: bool,
    /// Validity of the values. None if no value is null.
    pub(crate) nulls: Option<NullBuffer>,
    pub(crate) values: Values,
}

/// Values of a column, by the [`Shape`] of its layout.
#[derive(Debug)]
pub(crate) enum Values {
    Fixed { width: usize, bytes: Buffer },
    Bits(BooleanBuffer),
    Bytes { ends: ValueOffsets, heap: Buffer },
    List { ends: ValueOffsets, child: Box<Column> },
    Struct(Vec<Column>),
}

/// Offsets of values of variable length: one more number than values.
#[derive(Debug)]
pub(crate) struct ValueOffsets(arrow_buffer::ScalarBuffer<i32>);

impl ValueOffsets {
    fn of(data: &ArrayData) -> Self {
        // An array without values may have no offset buffer at all.
        let needed = (data.offset() + data.len() + 1) * size_of::<i32>();
        if data.buffers()[0].len() < needed {
            return Self(vec![0].into());
        }
        Self(arrow_buffer::ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len() + 1))
    }

    /// Returns the range of the value of this row.
    pub(crate) fn span(&self, row: usize) -> Range<usize> {
        // Offsets of an array are never negative.
        self.0[row] as usize..self.0[row + 1] as usize
    }

    /// Returns the range of the values of these rows, which are contiguous.
    pub(crate) fn span_of(&self, rows: &Range<usize>) -> Range<usize> {
        self.0[rows.start] as usize..self.0[rows.end] as usize
    }

    /// Calls `work` with the items of the lists of these rows.
    pub(crate) fn with_items<R>(&self, rows: Rows<'_>, work: impl FnOnce(Rows<'_>) -> R) -> R {
        match rows {
            Rows::Range { start, end } => {
                let Range { start, end } = self.span_of(&(start..end));
                work(Rows::Range { start, end })
            }
            Rows::Picked(rows) => {
                let spans = rows.iter().map(|row| self.span(*row as usize));
                let items: Vec<u32> = spans.flat_map(|span| span.start as u32..span.end as u32).collect();
                work(Rows::Picked(&items))
            }
        }
    }

    /// Returns the total length of these values.
    fn total(&self, rows: Rows<'_>) -> usize {
        match rows {
            Rows::Range { start, end } => self.span_of(&(start..end)).len(),
            Rows::Picked(rows) => rows.iter().map(|row| self.span(*row as usize).len()).sum(),
        }
    }
}

/// Rows of a batch, in the order in which they are written.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    /// All rows from `start` up to `end`, exclusive.
    Range {
        /// First row.
        start: usize,
        /// Row after the last.
        end: usize,
    },
    /// The rows with these indices.
    Picked(&'a [u32]),
}

impl Rows<'_> {
    /// Returns the number of rows.
    pub fn len(self) -> usize {
        match self {
            Self::Range { start, end } => end - start,
            Self::Picked(rows) => rows.len(),
        }
    }

    /// Returns true if there are no rows.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Splits off the first `rows` rows.
    pub fn split_at(self, rows: usize) -> (Self, Self) {
        match self {
            Self::Range { start, end } => {
                (Self::Range { start, end: start + rows }, Self::Range { start: start + rows, end })
            }
            Self::Picked(picked) => {
                let (first, others) = picked.split_at(rows);
                (Self::Picked(first), Self::Picked(others))
            }
        }
    }
}

impl Column {
    /// Creates a column from an array of the layout's type.
    pub(crate) fn of(array: &ArrayRef, layout: &ColumnLayout) -> Self {
        Self::of_data(&array.to_data(), layout)
    }

    fn of_data(data: &ArrayData, layout: &ColumnLayout) -> Self {
        let (offset, len) = (data.offset(), data.len());
        let nulls = data.nulls().filter(|nulls| layout.nullable && nulls.null_count() > 0).cloned();
        let values = match &layout.shape {
            Shape::Fixed { width } => {
                let bytes = data.buffers()[0].slice_with_length(offset * width, len * width);
                Values::Fixed { width: *width, bytes }
            }
            Shape::Bits => Values::Bits(BooleanBuffer::new(data.buffers()[0].clone(), offset, len)),
            Shape::Bytes => Values::Bytes { ends: ValueOffsets::of(data), heap: data.buffers()[1].clone() },
            Shape::List(item) => {
                let child = Box::new(Self::of_data(&data.child_data()[0], item));
                Values::List { ends: ValueOffsets::of(data), child }
            }
            Shape::Struct(fields) => {
                let children = data.child_data().iter().zip(fields);
                Values::Struct(children.map(|(child, field)| Self::of_data(&child.slice(offset, len), field)).collect())
            }
        };
        Self { nullable: layout.nullable, nulls, values }
    }

    /// Returns the encoded size of these rows in bytes.
    pub(crate) fn bytes(&self, rows: Rows<'_>) -> usize {
        let lengths = rows.len() * size_of::<u32>();
        let values = match &self.values {
            Values::Fixed { width, .. } => rows.len() * width,
            Values::Bits(_) => rows.len().div_ceil(8),
            Values::Bytes { ends, .. } => lengths + ends.total(rows),
            Values::List { ends, child } => lengths + ends.with_items(rows, |items| child.bytes(items)),
            Values::Struct(children) => children.iter().map(|child| child.bytes(rows)).sum(),
        };
        values + usize::from(self.nullable) + self.nulls.as_ref().map_or(0, |_| rows.len().div_ceil(8))
    }
}
