//! Counts late records, or emits them to side outputs.

use std::sync::Arc;

use super::{Collector, Fold, KeyedRecord, RecordFormat};
use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::metrics::TaskMetrics;

/// Emits late records to the side output that asks for them, and counts them if there is none.
pub(super) struct LateRecords {
    /// Tags of the side outputs for late records, one per input.
    tags: [Option<Arc<str>>; 2],
    metrics: Option<Arc<TaskMetrics>>,
}

impl LateRecords {
    pub(super) fn new(tags: [Option<Arc<str>>; 2]) -> Self {
        Self { tags, metrics: None }
    }

    pub(super) fn open(&mut self, cx: &TaskContext) {
        self.metrics = Some(Arc::clone(&cx.metrics));
    }

    /// Takes a late record of this input. `record` creates it, and it represents `count` records of the user.
    pub(super) fn take<'m, M: RecordFormat>(
        &self,
        (side, count): (u8, u64),
        collector: &mut Collector<'_, 'm, M>,
        record: impl FnOnce(&Collector<'_, 'm, M>) -> Result<M::Record<'m>, TaskError>,
    ) -> Result<(), TaskError> {
        if let Some(tag) = &self.tags[usize::from(side & 1)] {
            let record = record(collector)?;
            return collector.emit_to(tag, &record);
        }
        self.count(count);
        Ok(())
    }

    /// The same for the record of a fold.
    pub(super) fn take_from<M: RecordFormat, F: Fold<M>>(
        &self,
        fold: &F,
        record: &KeyedRecord<'_>,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError> {
        if fold.is_apart(record) {
            return self.take((record.side, fold.count(record)), collector, |collector| fold.record(record, collector));
        }
        self.count(fold.count(record));
        Ok(())
    }

    fn count(&self, count: u64) {
        if let Some(metrics) = &self.metrics {
            metrics.add_late_records(count);
        }
    }
}
