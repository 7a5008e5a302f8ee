//! All records of two inputs that have the same key, whenever they come.

use super::buffer::Buffer;
use super::{AsBytes, Buffers, Pairing, STATE, meet, others};
use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::operator::{Flow, Found, KeyedRecord, Medium, Operator, What};
use crate::snapshot::{Restored, Snapshot};
use crate::state::{Held, KeyGroupRange, LargeState};
use crate::tally::Tally;

/// All records of one key, by side.
#[derive(Debug, Default)]
struct Sides([Buffer; 2]);

impl Buffers for Sides {
    fn buffers(&self) -> [&Buffer; 2] {
        self.0.each_ref()
    }

    fn of(buffers: [Buffer; 2]) -> Self {
        Self(buffers)
    }
}

/// Pairs of all that comes, each emitted as soon as both records are there, at the later one's time. Nothing is let go.
pub struct RegularJoin<P> {
    pairing: P,
    keys: LargeState<Sides>,
}

impl<P> RegularJoin<P> {
    /// For the keys of these groups.
    pub fn new(pairing: P, range: KeyGroupRange) -> Self {
        Self { pairing, keys: LargeState::new(range) }
    }
}

impl<M: Medium, P: Pairing<M>> Operator<M> for RegularJoin<P> {
    fn open(&mut self, _: M::Token<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.keys.open(STATE, cx)
    }

    fn process<'m>(&mut self, _: M::Record<'m>, flow: &mut Flow<'_, 'm, M>) -> Result<(), TaskError> {
        flow.refuse("takes records by key")
    }

    fn is_keyed(&self) -> bool {
        true
    }

    /// Who meets nobody needs no medium.
    fn absorb(&mut self, record: &KeyedRecord<'_>, _: i64) -> Result<bool, TaskError> {
        let Sides(buffers) = &mut self.keys.get_or_insert_with(record, &AsBytes, Sides::default)?.value;
        if !others(buffers, record).is_empty() {
            return Ok(false);
        }
        buffers[usize::from(record.side & 1)].insert(record.timestamp_ms, record.value(), P::nanos);
        self.keys.make_room(&AsBytes).map(|()| true)
    }

    fn process_keyed(&mut self, record: &KeyedRecord<'_>, flow: &mut Flow<'_, '_, M>) -> Result<(), TaskError> {
        let Sides(buffers) = &mut self.keys.get_or_insert_with(record, &AsBytes, Sides::default)?.value;
        meet(&mut self.pairing, record, others(buffers, record).all(), flow)?;
        buffers[usize::from(record.side & 1)].insert(record.timestamp_ms, record.value(), P::nanos);
        self.keys.make_room(&AsBytes)
    }

    fn on_watermark(&mut self, _: i64, flow: &mut Flow<'_, '_, M>) -> Result<(), TaskError> {
        self.pairing.hand_on(flow)
    }

    fn end_batch(&mut self, flow: &mut Flow<'_, '_, M>) -> Result<(), TaskError> {
        self.pairing.hand_on(flow)?;
        self.keys.end_batch(&AsBytes)
    }

    fn snapshot(&mut self, _: M::Token<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        to.add_large((STATE, &[]), &mut self.keys, &AsBytes)
    }

    fn restore(&mut self, _: M::Token<'_>, from: &Restored<'_>) -> Result<(), TaskError> {
        from.read_large(STATE, &mut self.keys, &AsBytes).map(drop)
    }

    fn tally(&self, tally: &mut Tally) {
        tally.add_keys(self.keys.len());
    }

    fn inspect<'m>(&self, _: M::Token<'m>, found: &mut Found<M::Record<'m>>) -> Result<(), TaskError> {
        self.keys.each(&AsBytes, |key, held: &Held<Sides>| {
            let key = held.key_value(key);
            for (what, buffer) in [What::Left, What::Right].into_iter().zip(&held.value.0) {
                buffer.all().for_each(|(_, record)| found.add_encoded(what, key, record));
            }
            Ok(())
        })
    }
}
