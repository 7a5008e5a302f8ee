//! What becomes of records that come too late.

use std::sync::Arc;

use super::{Flow, Fold, KeyedRecord, Medium};
use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::metrics::TaskMetrics;

/// Counts late records, and gives them out where somebody asked for them.
pub(super) struct Late {
    /// Of those of each input.
    tags: [Option<Arc<str>>; 2],
    metrics: Option<Arc<TaskMetrics>>,
}

impl Late {
    pub(super) fn new(tags: [Option<Arc<str>>; 2]) -> Self {
        Self { tags, metrics: None }
    }

    pub(super) fn open(&mut self, cx: &TaskContext) {
        self.metrics = Some(Arc::clone(&cx.metrics));
    }

    /// Takes a late record of this input, which `record` makes and which stands for `count` of the user's.
    pub(super) fn take<'m, M: Medium>(
        &self,
        (side, count): (u8, u64),
        flow: &mut Flow<'_, 'm, M>,
        record: impl FnOnce(&Flow<'_, 'm, M>) -> Result<M::Record<'m>, TaskError>,
    ) -> Result<(), TaskError> {
        if let Some(tag) = &self.tags[usize::from(side & 1)] {
            let record = record(flow)?;
            return flow.emit_to(tag, &record);
        }
        self.count(count);
        Ok(())
    }

    /// The same for the record of a fold.
    pub(super) fn take_from<M: Medium, F: Fold<M>>(
        &self,
        fold: &F,
        record: &KeyedRecord<'_>,
        flow: &mut Flow<'_, '_, M>,
    ) -> Result<(), TaskError> {
        if fold.is_apart(record) {
            return self.take((record.side, fold.count(record)), flow, |flow| fold.record(record, flow));
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
