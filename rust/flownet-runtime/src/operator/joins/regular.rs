//! Joins all records of two inputs that have the same key, whenever they arrive.

use super::buffer::Buffer;
use super::{AsBytes, Buffers, Pairing, STATE, meet, others};
use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::operator::{Collector, InspectedState, KeyedOperator, KeyedRecord, Operator, RecordFormat, StateKind};
use crate::snapshot::{RestoredState, Snapshot};
use crate::state::{KeyEntry, KeyGroupRange, LargeState};
use crate::state_stats::StateStats;

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

/// Emits each pair as soon as both records have arrived, at the later one's time. Records never expire.
pub struct RegularJoin<P> {
    pairing: P,
    keys: LargeState<Sides>,
}

impl<P> RegularJoin<P> {
    /// A join over the keys of these groups.
    pub fn new(pairing: P, range: KeyGroupRange) -> Self {
        Self { pairing, keys: LargeState::new(range) }
    }
}

impl<M: RecordFormat, P: Pairing<M>> Operator<M> for RegularJoin<P> {
    fn open(&mut self, _: M::Token<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.keys.open(STATE, cx)
    }

    fn process<'m>(&mut self, _: M::Record<'m>, collector: &mut Collector<'_, 'm, M>) -> Result<(), TaskError> {
        collector.refuse("takes records by key")
    }

    fn on_watermark(&mut self, _: i64, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        self.pairing.hand_on(collector)
    }

    fn end_batch(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        self.pairing.hand_on(collector)?;
        self.keys.end_batch(&AsBytes)
    }

    fn snapshot(&mut self, _: M::Token<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        to.add_large(STATE, &[], &mut self.keys, &AsBytes)
    }

    fn restore(&mut self, _: M::Token<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        from.read_large(STATE, &mut self.keys, &AsBytes).map(drop)
    }

    fn tally(&self, tally: &mut StateStats) {
        tally.add_keys(self.keys.len());
    }

    fn inspect<'m>(&self, _: M::Token<'m>, found: &mut InspectedState<M::Record<'m>>) -> Result<(), TaskError> {
        self.keys.each(&AsBytes, |key, held: &KeyEntry<Sides>| {
            let key = held.key_value(key);
            for (what, buffer) in [StateKind::Left, StateKind::Right].into_iter().zip(&held.value.0) {
                buffer.all().for_each(|(_, record)| found.add_encoded(what, key, record));
            }
            Ok(())
        })
    }
}

impl<M: RecordFormat, P: Pairing<M>> KeyedOperator<M> for RegularJoin<P> {
    fn process_keyed(
        &mut self,
        record: &KeyedRecord<'_>,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError> {
        let Sides(buffers) = &mut self.keys.get_or_insert_with(record, &AsBytes, Sides::default)?.value;
        meet(&mut self.pairing, record, others(buffers, record).all(), collector)?;
        buffers[usize::from(record.side & 1)].insert(record.timestamp_ms, record.value(), P::nanos);
        self.keys.make_room(&AsBytes)
    }

    /// A record without a match is only stored, which needs no attachment.
    fn process_detached(&mut self, record: &KeyedRecord<'_>, _: i64) -> Result<bool, TaskError> {
        let Sides(buffers) = &mut self.keys.get_or_insert_with(record, &AsBytes, Sides::default)?.value;
        if !others(buffers, record).is_empty() {
            return Ok(false);
        }
        buffers[usize::from(record.side & 1)].insert(record.timestamp_ms, record.value(), P::nanos);
        self.keys.make_room(&AsBytes).map(|()| true)
    }
}
