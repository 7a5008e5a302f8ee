//! Records of both inputs that are in one window, until it is over.

use crate::error::TaskError;
use crate::operator::KeyedRecord;
use crate::snapshot::{Input, put_block};

/// What has come from each side, one record behind the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BothSides([Vec<u8>; 2]);

impl BothSides {
    /// Adds the bytes of a record; where one ends is for them to say.
    #[inline]
    pub fn add(&mut self, record: &KeyedRecord<'_>) {
        self.of(record.side).extend_from_slice(record.value());
    }

    /// Adds the bytes of a record as a block, behind their length.
    #[inline]
    pub fn add_block(&mut self, record: &KeyedRecord<'_>) {
        put_block(self.of(record.side), record.value());
    }

    fn of(&mut self, side: u8) -> &mut Vec<u8> {
        &mut self.0[usize::from(side & 1)]
    }

    /// Adds what came later.
    pub fn merge(&mut self, later: &Self) {
        for (records, later) in self.0.iter_mut().zip(&later.0) {
            records.extend_from_slice(later);
        }
    }

    /// Whether no record has come from either side.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Vec::is_empty)
    }

    /// All of the first side, and all of the second.
    pub fn get(&self) -> [&[u8]; 2] {
        self.0.each_ref().map(Vec::as_slice)
    }

    /// Writes all of them out.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|records| put_block(out, records));
    }

    /// Reads back what [`write`](Self::write) wrote.
    pub fn read(input: &mut Input<'_>) -> Result<Self, TaskError> {
        Ok(Self([input.block()?.to_vec(), input.block()?.to_vec()]))
    }
}
