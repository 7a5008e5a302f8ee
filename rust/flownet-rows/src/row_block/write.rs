//! Encodes the columns of a batch as row blocks.

use arrow_array::RecordBatch;
use arrow_buffer::BooleanBuffer;
use flownet_runtime::varint::put_varint;

use super::{ALL_THERE, MOST_ROWS, SOME_MISSING};
use crate::column::{Column, Rows, ValueOffsets, Values};
use crate::layout::Layout;

/// Columns of one batch, to be cut into row blocks.
#[derive(Debug)]
pub struct RunWriter {
    columns: Vec<Column>,
    rows: usize,
}

impl RunWriter {
    /// Creates a writer for a batch of the layout's schema.
    pub fn new(layout: &Layout, batch: &RecordBatch) -> Self {
        let columns = batch.columns().iter().zip(layout.columns()).map(|(array, layout)| Column::of(array, layout));
        Self { columns: columns.collect(), rows: batch.num_rows() }
    }

    /// Returns the number of rows in the batch.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Appends these rows as one row block.
    #[inline]
    pub fn write(&self, rows: Rows<'_>, out: &mut Vec<u8>) {
        put_varint(out, rows.len() as u64);
        for column in &self.columns {
            column.write(rows, out);
        }
    }

    /// Returns how many of these rows, from the first on, fit into a row block of `limit_bytes`. At least one row is
    /// returned, even if it is longer.
    pub fn fitting(&self, rows: Rows<'_>, limit_bytes: usize) -> usize {
        let most = rows.len().min(MOST_ROWS);
        let bytes = |count| {
            let (first, _) = rows.split_at(count);
            HEADER_BYTES + self.columns.iter().map(|column| column.bytes(first)).sum::<usize>()
        };
        if bytes(most) <= limit_bytes {
            return most;
        }
        // Binary search, because the size grows with the number of rows.
        let (mut fits, mut beyond) = (1, most);
        while beyond - fits > 1 {
            let middle = fits + (beyond - fits) / 2;
            if bytes(middle) <= limit_bytes { fits = middle } else { beyond = middle }
        }
        fits
    }
}

/// Limit of the encoded number of rows in bytes.
const HEADER_BYTES: usize = 3;

impl Column {
    fn write(&self, rows: Rows<'_>, out: &mut Vec<u8>) {
        match &self.nulls {
            None if self.nullable => out.push(ALL_THERE),
            None => {}
            Some(nulls) => {
                out.push(SOME_MISSING);
                put_bits(nulls.inner(), rows, out);
            }
        }
        match &self.values {
            Values::Fixed { width, bytes } => put_fixed(*width, bytes, rows, out),
            Values::Bits(bits) => put_bits(bits, rows, out),
            Values::Bytes { ends, heap } => {
                put_lengths(ends, rows, out);
                match rows {
                    Rows::Range { start, end } => out.extend_from_slice(&heap[ends.span_of(&(start..end))]),
                    Rows::Picked(rows) => {
                        rows.iter().for_each(|row| out.extend_from_slice(&heap[ends.span(*row as usize)]));
                    }
                }
            }
            Values::List { ends, child } => {
                put_lengths(ends, rows, out);
                ends.with_items(rows, |items| child.write(items, out));
            }
            Values::Struct(children) => children.iter().for_each(|child| child.write(rows, out)),
        }
    }
}

fn put_lengths(ends: &ValueOffsets, rows: Rows<'_>, out: &mut Vec<u8>) {
    let mut put = |row| out.extend_from_slice(&(ends.span(row).len() as u32).to_le_bytes());
    match rows {
        Rows::Range { start, end } => (start..end).for_each(put),
        Rows::Picked(rows) => rows.iter().for_each(|row| put(*row as usize)),
    }
}

#[inline]
fn put_fixed(width: usize, bytes: &[u8], rows: Rows<'_>, out: &mut Vec<u8>) {
    match (rows, width) {
        (Rows::Range { start, end }, _) => {
            let values = &bytes[start * width..end * width];
            // The value is usually one word: copied without a call.
            match <[u8; size_of::<u64>()]>::try_from(values) {
                Ok(word) => out.extend_from_slice(&word),
                Err(_) => out.extend_from_slice(values),
            }
        }
        (Rows::Picked(rows), 1) => pick::<1>(bytes, rows, out),
        (Rows::Picked(rows), 2) => pick::<2>(bytes, rows, out),
        (Rows::Picked(rows), 4) => pick::<4>(bytes, rows, out),
        (Rows::Picked(rows), 8) => pick::<8>(bytes, rows, out),
        (Rows::Picked(rows), 16) => pick::<16>(bytes, rows, out),
        (Rows::Picked(rows), _) => {
            rows.iter().for_each(|row| out.extend_from_slice(&bytes[*row as usize * width..][..width]));
        }
    }
}

/// Copies values of a width that is known at compile time.
#[inline]
fn pick<const WIDTH: usize>(bytes: &[u8], rows: &[u32], out: &mut Vec<u8>) {
    let values = bytes.as_chunks::<WIDTH>().0;
    let start = out.len();
    out.resize(start + WIDTH * rows.len(), 0);
    for (place, row) in out[start..].as_chunks_mut::<WIDTH>().0.iter_mut().zip(rows) {
        *place = values[*row as usize];
    }
}

fn put_bits(bits: &BooleanBuffer, rows: Rows<'_>, out: &mut Vec<u8>) {
    let bytes = rows.len().div_ceil(8);
    match rows {
        Rows::Range { start, end } => {
            let range = bits.slice(start, end - start);
            out.extend(range.bit_chunks().iter_padded().flat_map(u64::to_le_bytes).take(bytes));
        }
        Rows::Picked(rows) => out.extend(rows.chunks(8).map(|eight| {
            (0..).zip(eight).fold(0, |byte, (bit, row)| byte | u8::from(bits.value(*row as usize)) << bit)
        })),
    }
}
