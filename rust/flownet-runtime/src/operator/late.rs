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

    pub(super) fn take<M: Medium, F: Fold<M>>(
        &self,
        fold: &F,
        record: &KeyedRecord<'_>,
        flow: &mut Flow<'_, '_, M>,
    ) -> Result<(), TaskError> {
        if let Some(tag) = &self.tag {
            let record = fold.record(record, flow)?;
            return flow.emit_to(tag, &record);
        }
        if let Some(metrics) = &self.metrics {
            metrics.add_late_records(1);
        }
        Ok(())
    }
}
