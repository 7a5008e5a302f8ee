//! `sink_to`: a user's `Sink` or `TransactionalSink`.

use flownet_runtime::operator::Operator;
use flownet_runtime::snapshot::{Restored, Snapshot};
use flownet_runtime::{TaskContext, TaskError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::{GATHER_RECORDS, Written};
use crate::chain::context::PyTaskContext;
use crate::chain::failure::OperatorInfo;
use crate::chain::medium::{Flow, PythonMedium};

/// What its state is called.
const STATE: &str = "transactions";

/// Hands each batch to `write`, then `flush` at the end, and `close` always. A transactional one prepares for each
/// checkpoint what it was given since the last, and commits it when the checkpoint counts.
pub(in crate::chain) struct CustomSink {
    sink: Py<PyAny>,
    info: OperatorInfo,
    batch: Option<Py<PyList>>,
    written: Written,
    is_transactional: bool,
    parallelism: u32,
    /// Some checkpoint was taken, or restored from.
    has_checkpoints: bool,
    /// What is to be committed, with the checkpoint that it was prepared for, the oldest first.
    prepared: Vec<(u64, Py<PyAny>)>,
    /// Records were written that nothing was prepared for.
    is_dirty: bool,
}

impl CustomSink {
    pub(in crate::chain) fn new(sink: Py<PyAny>, info: OperatorInfo) -> Self {
        Self {
            sink,
            info,
            batch: None,
            written: Written::default(),
            is_transactional: false,
            parallelism: 1,
            has_checkpoints: false,
            prepared: Vec::new(),
            is_dirty: false,
        }
    }

    fn call<'py>(&self, py: Python<'py>, method: &str) -> Result<Bound<'py, PyAny>, TaskError> {
        self.sink.bind(py).call_method0(method).map_err(|error| self.info.failed(py, &error, None))
    }

    fn write_batch(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        let Some(batch) = self.batch.take() else { return Ok(()) };
        let batch = batch.bind(py);
        self.written.add_all(batch);
        self.is_dirty = true;
        let written = self.sink.bind(py).call_method1(intern!(py, "write"), (batch,));
        written.map(drop).map_err(|error| self.info.failed(py, &error, None))
    }

    /// Ends the transaction that is open; none if nothing was written.
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

impl Operator<PythonMedium> for CustomSink {
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.written.open(cx);
        self.parallelism = cx.parallelism;
        let sink = self.sink.bind(py);
        let is_transactional = sink.hasattr(intern!(py, "prepare_commit"));
        self.is_transactional = is_transactional.map_err(|error| self.info.failed(py, &error, None))?;
        let opened = sink.call_method1(intern!(py, "open"), (PyTaskContext::new(&self.info, cx),));
        opened.map(drop).map_err(|error| self.info.failed(py, &error, None))
    }

    fn process<'py>(&mut self, record: Bound<'py, PyAny>, flow: &mut Flow<'_, 'py>) -> Result<(), TaskError> {
        let py = flow.token;
        let batch = self.batch.get_or_insert_with(|| PyList::empty(py).unbind()).bind(py);
        batch.append(&record).map_err(|error| self.info.failed(py, &error, Some(&record)))?;
        if batch.len() < GATHER_RECORDS { Ok(()) } else { self.end_batch(flow) }
    }

    fn end_batch(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        self.write_batch(flow.token)
    }

    fn commit(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let py = flow.token;
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

    fn snapshot(&mut self, py: Python<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        self.has_checkpoints = true;
        self.write_batch(py)?;
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

    fn restore(&mut self, py: Python<'_>, from: &Restored<'_>) -> Result<(), TaskError> {
        self.has_checkpoints = true;
        for mut item in from.dealt_lists(STATE, self.parallelism)? {
            let prepared = unpickle(py, item.rest()).map_err(|error| self.info.failed(py, &error, None))?;
            self.commit_one(&prepared)?;
        }
        Ok(())
    }

    fn complete(&mut self, py: Python<'_>, checkpoint_id: u64) -> Result<(), TaskError> {
        while let Some((of, prepared)) = self.prepared.first()
            && *of <= checkpoint_id
        {
            self.commit_one(prepared.bind(py))?;
            self.prepared.remove(0);
        }
        Ok(())
    }

    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        let aborted = if self.is_transactional && std::mem::take(&mut self.is_dirty) {
            self.call(py, "abort").map(drop)
        } else {
            Ok(())
        };
        let closed = self.call(py, "close").map(drop);
        aborted.and(closed)
    }
}

fn pickle<'py>(prepared: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let cloudpickle = prepared.py().import(intern!(prepared.py(), "cloudpickle"))?;
    Ok(cloudpickle.call_method1(intern!(prepared.py(), "dumps"), (prepared,))?.cast_into()?)
}

fn unpickle<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    py.import(intern!(py, "pickle"))?.call_method1(intern!(py, "loads"), (PyBytes::new(py, bytes),))
}
