//! Stores the records of both inputs of a window until it is over.

use crate::error::TaskError;
use crate::operator::KeyedRecord;
use crate::snapshot::{Input, put_block};

/// The records of each side, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BothSides([Vec<u8>; 2]);

impl BothSides {
    /// Adds the bytes of a record. They have to show themselves where a record ends.
    #[inline]
    pub fn add(&mut self, record: &KeyedRecord<'_>) {
        self.of(record.side).extend_from_slice(record.value());
    }

    /// Adds the bytes of a record as a block, after their length.
    #[inline]
    pub fn add_block(&mut self, record: &KeyedRecord<'_>) {
        put_block(self.of(record.side), record.value());
    }

    fn of(&mut self, side: u8) -> &mut Vec<u8> {
        &mut self.0[usize::from(side & 1)]
    }

    /// Adds the records of a later value.
    pub fn merge(&mut self, later: &Self) {
        for (records, later) in self.0.iter_mut().zip(&later.0) {
            records.extend_from_slice(later);
        }
    }

    /// Returns true if neither side has records.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Vec::is_empty)
    }

    /// Returns all bytes of the first side, and all of the second.
    pub fn get(&self) -> [&[u8]; 2] {
        self.0.each_ref().map(Vec::as_slice)
    }

    /// Encodes both sides.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|records| put_block(out, records));
    }

    /// Decodes the value that [`write`](Self::write) wrote.
    pub fn read(input: &mut Input<'_>) -> Result<Self, TaskError> {
        Ok(Self([input.block()?.to_vec(), input.block()?.to_vec()]))
    }
}
