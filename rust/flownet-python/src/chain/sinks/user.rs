//! A user's `Sink` or `TransactionalSink`, for all record formats.

use flownet_runtime::snapshot::{RestoredState, Snapshot};
use flownet_runtime::{TaskContext, TaskError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::chain::context::PyTaskContext;
use crate::chain::failure::OperatorInfo;

/// Name of its state.
const STATE: &str = "transactions";

/// Calls `write`, then `flush` at the end, and `close` in any case. For each checkpoint, a transactional sink
/// prepares the records received since the last one. It commits them when the checkpoint completes.
pub(crate) struct UserSink {
    sink: Py<PyAny>,
    info: OperatorInfo,
    is_transactional: bool,
    parallelism: u32,
    /// True after a checkpoint or a restore.
    has_checkpoints: bool,
    /// Transactions to commit, with the checkpoint that each was prepared for, oldest first.
    prepared: Vec<(u64, Py<PyAny>)>,
    /// True if records were written and not yet prepared.
    is_dirty: bool,
}

impl UserSink {
    pub(crate) fn new(sink: Py<PyAny>, info: OperatorInfo) -> Self {
        Self {
            sink,
            info,
            is_transactional: false,
            parallelism: 1,
            has_checkpoints: false,
            prepared: Vec::new(),
            is_dirty: false,
        }
    }

    pub(crate) fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.parallelism = cx.parallelism;
        let sink = self.sink.bind(py);
        let is_transactional = sink.hasattr(intern!(py, "prepare_commit"));
        self.is_transactional = is_transactional.map_err(|error| self.info.failed(py, &error, None))?;
        let opened = sink.call_method1(intern!(py, "open"), (PyTaskContext::new(&self.info, cx),));
        opened.map(drop).map_err(|error| self.info.failed(py, &error, None))
    }

    pub(crate) fn write(&mut self, records: &Bound<'_, PyList>) -> Result<(), TaskError> {
        let py = records.py();
        self.is_dirty = true;
        let written = self.sink.bind(py).call_method1(intern!(py, "write"), (records,));
        written.map(drop).map_err(|error| self.info.failed(py, &error, None))
    }

    /// Commits at the end of the job.
    pub(crate) fn commit(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        if !self.is_transactional {
            return self.call(py, "flush").map(drop);
        }
        if self.has_checkpoints || !self.is_dirty {
            // The last checkpoint has committed all.
            return Ok(());
        }
        match self.prepare(py)? {
            Some(prepared) => self.commit_one(&prepared),
            None => Ok(()),
        }
    }

    pub(crate) fn snapshot(&mut self, py: Python<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        self.has_checkpoints = true;
        if !self.is_transactional {
            return self.call(py, "flush").map(drop);
        }
        if self.is_dirty
            && let Some(prepared) = self.prepare(py)?
        {
            self.prepared.push((to.checkpoint_id(), prepared.unbind()));
        }
        let pickled = self.prepared.iter().map(|(_, prepared)| pickle(prepared.bind(py)));
        let pickled: PyResult<Vec<Bound<'_, PyBytes>>> = pickled.collect();
        let pickled = pickled.map_err(|error| self.info.failed(py, &error, None))?;
        to.add_items(STATE, pickled.iter().map(|bytes| bytes.as_bytes()));
        Ok(())
    }

    pub(crate) fn restore(&mut self, py: Python<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        self.has_checkpoints = true;
        for mut item in from.dealt_lists(STATE, self.parallelism)? {
            let prepared = unpickle(py, item.rest()).map_err(|error| self.info.failed(py, &error, None))?;
            self.commit_one(&prepared)?;
        }
        Ok(())
    }

    pub(crate) fn complete(&mut self, py: Python<'_>, checkpoint_id: u64) -> Result<(), TaskError> {
        while let Some((of, prepared)) = self.prepared.first()
            && *of <= checkpoint_id
        {
            self.commit_one(prepared.bind(py))?;
            self.prepared.remove(0);
        }
        Ok(())
    }

    pub(crate) fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        let aborted = if self.is_transactional && std::mem::take(&mut self.is_dirty) {
            self.call(py, "abort").map(drop)
        } else {
            Ok(())
        };
        let closed = self.call(py, "close").map(drop);
        aborted.and(closed)
    }

    fn call<'py>(&self, py: Python<'py>, method: &str) -> Result<Bound<'py, PyAny>, TaskError> {
        self.sink.bind(py).call_method0(method).map_err(|error| self.info.failed(py, &error, None))
    }

    /// Ends the open transaction; none if nothing was written.
    fn prepare<'py>(&mut self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>, TaskError> {
        self.call(py, "flush")?;
        let prepared = self.call(py, "prepare_commit")?;
        self.is_dirty = false;
        Ok(Some(prepared).filter(|prepared| !prepared.is_none()))
    }

    fn commit_one(&self, prepared: &Bound<'_, PyAny>) -> Result<(), TaskError> {
        let py = prepared.py();
        let committed = self.sink.bind(py).call_method1(intern!(py, "commit"), (prepared,));
        committed.map(drop).map_err(|error| self.info.failed(py, &error, None))
    }
}

fn pickle<'py>(prepared: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let cloudpickle = prepared.py().import(intern!(prepared.py(), "cloudpickle"))?;
    Ok(cloudpickle.call_method1(intern!(prepared.py(), "dumps"), (prepared,))?.cast_into()?)
}

fn unpickle<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    py.import(intern!(py, "pickle"))?.call_method1(intern!(py, "loads"), (PyBytes::new(py, bytes),))
}
