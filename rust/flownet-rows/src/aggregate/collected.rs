//! Collects all values of a group as bytes, so that merging two cells is one copy. Values are decoded only for the
//! result.

use std::marker::PhantomData;

use flownet_runtime::time::ExactTime;
use flownet_runtime::varint::put_varint;

use super::cell::{Accumulates, Cell, CellValue, Finish, NoResult, varint};
use crate::event_time::{put_time, take_time};
use crate::partial_aggregate::take_block;
use crate::physical_type::Scalar;

/// All values of a group, each preceded by its time.
pub(crate) struct CollectedValues<K> {
    count: u64,
    bytes: Vec<u8>,
    of: PhantomData<fn() -> K>,
}

impl<K> Default for CollectedValues<K> {
    fn default() -> Self {
        Self { count: 0, bytes: Vec::new(), of: PhantomData }
    }
}

impl<K: CellValue> CollectedValues<K> {
    /// Returns the values ordered by time, then by value, because arrival order depends on more than the input. Returns
    /// none if the bytes are malformed.
    fn in_order(&self) -> Option<Vec<(ExactTime, K)>> {
        let mut bytes = &self.bytes[..];
        let mut values = Vec::new();
        for _ in 0..self.count {
            values.push((take_time(&mut bytes)?, K::read(&mut bytes)?));
        }
        values.sort_unstable_by(|(at, one), (other_at, other)| at.cmp(other_at).then_with(|| one.order(other)));
        bytes.is_empty().then_some(values)
    }

    #[inline]
    fn push(&mut self, at: ExactTime, write: impl FnOnce(&mut Vec<u8>)) {
        self.count += 1;
        put_time(at, &mut self.bytes);
        write(&mut self.bytes);
    }
}

impl<K: CellValue> Cell for CollectedValues<K> {
    const GROWS: bool = true;

    fn merge(&mut self, later: Self) {
        self.count = self.count.saturating_add(later.count);
        self.bytes.extend_from_slice(&later.bytes);
    }

    fn write(&self, out: &mut Vec<u8>) {
        put_varint(out, self.count);
        put_varint(out, self.bytes.len() as u64);
        out.extend_from_slice(&self.bytes);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let count = varint(bytes)?;
        Some(Self { count, bytes: take_block(bytes)?.to_vec(), of: PhantomData })
    }
}

impl<K: CellValue> Finish for CollectedValues<K> {
    fn finish<R>(&self, give: impl FnOnce(Scalar<'_>) -> R) -> Result<R, NoResult> {
        let values = self.in_order().ok_or(NoResult::Malformed)?;
        let items: Vec<_> = values.iter().map(|(_, value)| value.scalar()).collect();
        Ok(give(Scalar::List(&items)))
    }
}

impl<K: CellValue + Copy> Accumulates<K> for CollectedValues<K> {
    #[inline]
    fn take(&mut self, value: K, at: ExactTime) {
        self.push(at, |out| value.write(out));
    }
}

impl Accumulates<&[u8]> for CollectedValues<Box<[u8]>> {
    #[inline]
    fn take(&mut self, value: &[u8], at: ExactTime) {
        self.push(at, |out| {
            put_varint(out, value.len() as u64);
            out.extend_from_slice(value);
        });
    }
}
