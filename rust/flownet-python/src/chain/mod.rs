//! Python operators as a [`Chain`]: what runs inside the tasks of a job.
//!
//! A chain is a tree of stages (`stage.rs`). Records go through it depth first, one at a time, as Python objects; they are
//! encoded where they leave the task (`exit.rs`) and decoded where they enter it. Keyed operators head a task and get
//! their records as bytes with the key in front (`record.rs`), so that those which only count never build an object.
//!
//! # Invariants
//! - I1: the interpreter is attached at most once a batch, and never while waiting: for a buffer, for input, for a rate.
//! - I2: a batch adds no waiting. Stages that gather records (sinks) hand them on when the batch ends, and before the
//!   chain waits for anything that may take long.
//! - I3: what a user's function raises becomes a [`TaskError::Operator`] that names the operator it was given to.
//! - I4: `close` reaches every stage that `open` reached, whatever failed.
//! - I5: what an operator is handed is its own (`isolate.rs`), unless the job asks for `object_reuse`.

mod attach;
mod build;
mod call;
mod context;
mod exit;
mod failure;
mod isolate;
mod keyed;
mod objects;
mod operators;
mod record;
mod rows;
mod sinks;
mod sources;
mod stage;

use std::sync::Arc;

use flownet_core::CustomEvent;
use flownet_runtime::source::RateLimit;
use flownet_runtime::{Chain, InputBatch, Outputs, SourceStatus, TaskContext, TaskError};
use pyo3::prelude::*;

pub use attach::TaskThreads;
pub use build::PythonChainFactory;
pub use context::{PyProcessContext, PyTaskContext, PyWindow};
pub(crate) use failure::CODEC_ERROR;
pub use objects::Objects;

use attach::{attached, detached, enter_threads, forget_thread, keep_thread};
use exit::{CLASS_DEFINITION, Exit};
use record::KeyedRecord;
use stage::{Flow, Kind, Stage};

use crate::codec::{self, KnownClasses};

/// The operators of one task.
pub struct PythonChain {
    /// Upstream first: a stage hands records to stages behind it only.
    stages: Vec<Stage>,
    exits: Vec<Exit>,
    /// For each input of the task, where its records go.
    entries: Vec<Entry>,
    /// Of its source.
    rate_limit: Option<RateLimit>,
    classes: KnownClasses,
    threads: Arc<TaskThreads>,
}

/// Where the records of an input enter the chain.
#[derive(Clone, Copy, Debug)]
struct Entry {
    stage: usize,
    /// Whether they carry their key in front.
    keyed: bool,
}

impl PythonChain {
    /// Runs `work` on the stage at `at`, with everything behind it as its downstream.
    fn with_stage<R>(
        &mut self,
        py: Python<'_>,
        at: usize,
        out: &mut Outputs,
        work: impl FnOnce(&mut Kind, &mut Flow<'_, '_>) -> R,
    ) -> R {
        let (head, after) = self.stages[at..].split_first_mut().expect("a chain has the stage that is asked for");
        let mut flow = Flow::new(py, after, at + 1, &head.links, &mut self.exits, out);
        work(&mut head.kind, &mut flow)
    }

    /// Calls every stage in order, upstream first, so that what one emits meets the next.
    fn each_stage(
        &mut self,
        py: Python<'_>,
        out: &mut Outputs,
        mut work: impl FnMut(&mut Kind, &mut Flow<'_, '_>) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        (0..self.stages.len()).try_for_each(|at| self.with_stage(py, at, out, &mut work))
    }

    fn end_batch(&mut self, py: Python<'_>, out: &mut Outputs) -> Result<(), TaskError> {
        self.each_stage(py, out, |kind, flow| kind.end_batch(flow))
    }

    /// Takes records without the interpreter for as long as the head can; a record that it cannot take comes back.
    fn absorb(&mut self, input: &mut InputBatch<'_>, out: &mut Outputs) -> Result<Absorbed, TaskError> {
        let now_ms = input.now_ms();
        while let Some((index, bytes)) = input.next()? {
            let at = self.entries[index].stage;
            let Stage { kind: Kind::Keyed(operator), brake, .. } = &mut self.stages[at] else {
                return Ok(Absorbed::UpTo(index, bytes.to_vec()));
            };
            let record = KeyedRecord::parse(bytes)?;
            if !operator.absorb(&record, now_ms)? {
                return Ok(Absorbed::UpTo(index, bytes.to_vec()));
            }
            count_rows(record.value(), &self.classes, out);
            if let Some(brake) = brake {
                brake.pass(out)?;
            }
        }
        Ok(Absorbed::All)
    }

    fn push(
        &mut self,
        py: Python<'_>,
        index: usize,
        bytes: &[u8],
        now_ms: i64,
        out: &mut Outputs,
    ) -> Result<(), TaskError> {
        let Entry { stage: at, keyed } = self.entries[index];
        let (head, after) = self.stages[at..].split_first_mut().expect("every input has a stage");
        if let Kind::Keyed(operator) = &mut head.kind {
            if let Some(brake) = &mut head.brake {
                detached(py, out, |out| brake.pass(out))?;
            }
            let record = KeyedRecord::parse(bytes)?;
            count_rows(record.value(), &self.classes, out);
            let mut flow = Flow::new(py, after, at + 1, &head.links, &mut self.exits, out);
            return operator.push(&record, now_ms, &mut flow);
        }
        // An operator that needs no key may still be placed by it: it gets the record alone.
        let bytes = if keyed { KeyedRecord::parse(bytes)?.value() } else { bytes };
        count_rows(bytes, &self.classes, out);
        let record =
            codec::decode(py, bytes, &self.classes).map_err(|error| head.info.codec_failed(py, error, None))?;
        head.push(record, Flow::new(py, after, at + 1, &[], &mut self.exits, out))
    }
}

/// Counts the rows of a record that arrived.
#[inline]
fn count_rows(value: &[u8], classes: &KnownClasses, out: &Outputs) {
    if let Some(rows) = codec::array_rows(value, classes) {
        out.metrics().count_rows_in(rows);
    }
}

/// How far a batch got without the interpreter.
enum Absorbed {
    All,
    /// This record needs the interpreter; it has not been taken.
    UpTo(usize, Vec<u8>),
}

impl Chain for PythonChain {
    fn open(&mut self, cx: &TaskContext) -> Result<(), TaskError> {
        keep_thread();
        Python::attach(|py| {
            enter_threads(py, &self.threads).map_err(|error| TaskError::Config(error.to_string()))?;
            self.stages.iter_mut().try_for_each(|stage| stage.open(py, cx))
        })
    }

    fn process(&mut self, input: &mut InputBatch<'_>, out: &mut Outputs) -> Result<(), TaskError> {
        let now_ms = input.now_ms();
        let first = match self.absorb(input, out)? {
            Absorbed::All => return Ok(()),
            Absorbed::UpTo(index, bytes) => (index, bytes),
        };
        attached(out, |py, out| {
            self.push(py, first.0, &first.1, now_ms, out)?;
            loop {
                while let Some((index, bytes)) = input.next()? {
                    self.push(py, index, bytes, now_ms, out)?;
                }
                if !input.next_buffer()? {
                    break;
                }
            }
            self.end_batch(py, out)
        })
    }

    fn poll_source(&mut self, out: &mut Outputs) -> Result<SourceStatus, TaskError> {
        if let Some(Stage { kind: Kind::Source(source), .. }) = self.stages.first_mut()
            && let Some(status) = source.fill(out)?
        {
            return Ok(status);
        }
        attached(out, |py, out| {
            let status = self.with_stage(py, 0, out, |kind, flow| match kind {
                Kind::Source(source) => source.emit(flow),
                _ => Err(TaskError::Config("a task without inputs must begin with a source".into())),
            })?;
            self.end_batch(py, out)?;
            Ok(status)
        })
    }

    fn rate_limit(&self) -> Option<RateLimit> {
        self.rate_limit
    }

    fn on_custom(&mut self, event: &CustomEvent) -> Result<(), TaskError> {
        if event.kind() != CLASS_DEFINITION {
            return Ok(());
        }
        Python::attach(|py| {
            let added = self.classes.add_part(py, event.payload());
            added.map_err(|error| self.stages[0].info.codec_failed(py, error, None))
        })
    }

    fn next_timer_ms(&self) -> Option<i64> {
        self.stages.iter().filter_map(Stage::next_timer_ms).min()
    }

    fn on_timer(&mut self, now_ms: i64, out: &mut Outputs) -> Result<(), TaskError> {
        attached(out, |py, out| {
            self.each_stage(py, out, |kind, flow| match kind {
                Kind::Keyed(operator) => operator.on_timer(now_ms, flow),
                _ => Ok(()),
            })?;
            self.end_batch(py, out)
        })
    }

    fn finish(&mut self, out: &mut Outputs) -> Result<(), TaskError> {
        attached(out, |py, out| {
            self.each_stage(py, out, |kind, flow| kind.finish(flow))?;
            self.end_batch(py, out)
        })
    }

    fn commit(&mut self, out: &mut Outputs) -> Result<(), TaskError> {
        attached(out, |py, out| self.each_stage(py, out, |kind, flow| kind.commit(flow)))
    }

    fn close(&mut self) -> Result<(), TaskError> {
        let closed = Python::attach(|py| {
            let mut closed = Ok(());
            for stage in &mut self.stages {
                let result = stage.close(py);
                if let (Err(_), Err(error)) = (&closed, &result) {
                    tracing::warn!(%error, "close() failed, after that of an operator before it");
                }
                closed = closed.and(result);
            }
            self.stages.clear();
            self.exits.clear();
            closed
        });
        forget_thread();
        closed
    }
}
