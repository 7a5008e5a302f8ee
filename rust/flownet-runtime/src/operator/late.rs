//! What becomes of records that come too late.

use std::sync::Arc;

use super::{Flow, Fold, KeyedRecord, Medium};
use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::metrics::TaskMetrics;

/// Counts late records, and gives them out where somebody asked for them.
pub(super) struct Late {
    tag: Option<Arc<str>>,
    metrics: Option<Arc<TaskMetrics>>,
}

impl Late {
    pub(super) fn new(tag: Option<Arc<str>>) -> Self {
        Self { tag, metrics: None }
    }

    pub(super) fn open(&mut self, cx: &TaskContext) {
        self.metrics = Some(Arc::clone(&cx.metrics));
    }

    /// Takes a late record, which `record` makes and which stands for `count` of the user's.
    pub(super) fn take<'m, M: Medium>(
        &self,
        count: u64,
        flow: &mut Flow<'_, 'm, M>,
        record: impl FnOnce(&Flow<'_, 'm, M>) -> Result<M::Record<'m>, TaskError>,
    ) -> Result<(), TaskError> {
        if let Some(tag) = &self.tag {
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
            return self.take(fold.count(record), flow, |flow| fold.record(record, flow));
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
