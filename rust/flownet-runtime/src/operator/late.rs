//! What becomes of records that come too late.

use std::sync::Arc;

use super::{Flow, Medium};
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
        if let Some(metrics) = &self.metrics {
            metrics.add_late_records(count);
        }
        Ok(())
    }
}
