//! A record format whose records are the bytes on the wire, with a source and a sink of them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flownet_core::Target;
use flownet_runtime::operator::{
    Collector, Entry, Kind, Links, Operator, OperatorChain, OutputSerializer, ReceiveOutcome, RecordFormat, Source,
    Stage,
};
use flownet_runtime::snapshot::Snapshot;
use flownet_runtime::spec::TaskSpec;
use flownet_runtime::time::TimeSignal;
use flownet_runtime::{Outputs, SourceStatus, TaskChain, TaskContext, TaskError};

/// The records that a sink received.
pub(super) type ReceivedRecords = Arc<Mutex<Vec<Vec<u8>>>>;

/// One step of a source.
pub(super) enum Emission {
    Record(Vec<u8>),
    Watermark(i64),
}

/// The chain of a source that takes these steps, then stays idle.
pub(super) fn source(task: &TaskSpec, steps: Vec<Emission>) -> Result<TaskChain, TaskError> {
    chain(task, Kind::Source(Box::new(Steps(steps.into_iter()))))
}

/// The chain of a sink that adds its records to `received`.
pub(super) fn sink(task: &TaskSpec, received: Option<ReceivedRecords>) -> Result<TaskChain, TaskError> {
    chain(task, Kind::Operator(Box::new(Sink(received))))
}

fn chain(task: &TaskSpec, kind: Kind<RawRecords>) -> Result<TaskChain, TaskError> {
    let stage = Stage::new(task.name.clone(), kind, Links::default(), None);
    let entries = vec![Entry::default(); task.inputs.len()];
    Ok(OperatorChain::new(RawRecords, vec![stage], Vec::new(), entries, None)?.into())
}

struct RawRecords;

impl RecordFormat for RawRecords {
    type Token<'m> = ();
    type Record<'m> = Vec<u8>;
    type Info = String;
    type Serializer = NoSerializer;

    fn open(&mut self) -> Result<(), TaskError> {
        Ok(())
    }

    fn close(&mut self) {}

    fn attach<R>(work: impl for<'m> FnOnce(()) -> R) -> R {
        work(())
    }

    fn attached<R>(out: &mut Outputs, work: impl for<'m> FnOnce((), &mut Outputs) -> R) -> R {
        work((), out)
    }

    fn detached<R: Send>((): (), out: &mut Outputs, work: impl FnOnce(&mut Outputs) -> R + Send) -> R {
        work(out)
    }

    fn receive<'m>(
        &mut self,
        (): Self::Token<'m>,
        bytes: &[u8],
        _: &String,
    ) -> Result<ReceiveOutcome<Self::Record<'m>>, TaskError> {
        Ok(ReceiveOutcome::Record(bytes.to_vec()))
    }

    fn share<'m>(record: &Self::Record<'m>) -> Self::Record<'m> {
        record.clone()
    }

    fn isolate<'m>((): Self::Token<'m>, record: Self::Record<'m>, _: &String) -> Result<Self::Record<'m>, TaskError> {
        Ok(record)
    }

    fn name(info: &String) -> &str {
        info
    }
}

/// The source writes to its output itself, so no record leaves by an edge.
enum NoSerializer {}

impl OutputSerializer<RawRecords> for NoSerializer {
    fn emit(&mut self, (): (), _: &Vec<u8>, _: Option<i64>, _: &mut Outputs) -> Result<(), TaskError> {
        match *self {}
    }

    fn info(&self) -> &String {
        match *self {}
    }
}

struct Steps(std::vec::IntoIter<Emission>);

impl Source<RawRecords> for Steps {
    fn open(&mut self, (): (), _: &TaskContext) -> Result<(), TaskError> {
        Ok(())
    }

    fn fill(&mut self, out: &mut Outputs) -> Result<Option<SourceStatus>, TaskError> {
        match self.0.next() {
            None => return Ok(Some(SourceStatus::Idle { wake_after: Duration::from_secs(3600) })),
            Some(Emission::Record(record)) => out.emit(0, Target::KeyHash(0), &record)?,
            Some(Emission::Watermark(at_ms)) => out.tell_time(0, TimeSignal::Watermark(at_ms))?,
        }
        Ok(Some(SourceStatus::More))
    }

    fn emit(&mut self, _: &mut Collector<'_, '_, RawRecords>) -> Result<SourceStatus, TaskError> {
        Ok(SourceStatus::More)
    }

    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}

struct Sink(Option<ReceivedRecords>);

impl Operator<RawRecords> for Sink {
    fn process<'m>(&mut self, record: Vec<u8>, _: &mut Collector<'_, 'm, RawRecords>) -> Result<(), TaskError> {
        if let Some(received) = &self.0 {
            received.lock().unwrap_or_else(PoisonError::into_inner).push(record);
        }
        Ok(())
    }

    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}
