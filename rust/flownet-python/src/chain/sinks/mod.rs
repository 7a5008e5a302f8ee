//! Sinks: where records leave a dataflow. They gather the records of a batch and pass them on in one call.

mod collect;
mod custom;
mod lines;
mod part_file;
mod part_files;
mod prepared;
mod print;
mod user;
mod write_files;

pub(super) use collect::Collect;
pub(super) use custom::CustomSink;
pub(super) use lines::Lines;
pub(crate) use part_files::{NO_PARTITION, PartFiles};
pub(super) use print::Print;
pub(crate) use user::UserSink;
pub(super) use write_files::WriteFiles;

use std::sync::Arc;

use flownet_runtime::{TaskContext, TaskMetrics};
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::rows::rows;

/// Most records gathered before they are passed on, even within a batch: a window may fire millions at once.
const GATHER_RECORDS: usize = 4096;

/// Counts the records that a sink has written as the task's output, since they pass no exchange.
#[derive(Default)]
pub(crate) struct WriteCounter(Option<Arc<TaskMetrics>>);

impl WriteCounter {
    pub(crate) fn open(&mut self, cx: &TaskContext) {
        self.0 = Some(Arc::clone(&cx.metrics));
    }

    pub(crate) fn add(&self, records: usize) {
        if let Some(metrics) = &self.0 {
            metrics.add_records_out(records as u64);
        }
    }

    /// Counts records by their rows: a record may have many.
    fn add_all(&self, records: &Bound<'_, PyList>) {
        self.add(records.len());
        if let Some(metrics) = &self.0 {
            records.iter().filter_map(|record| rows(&record)).for_each(|rows| metrics.count_rows_out(rows));
        }
    }
}
