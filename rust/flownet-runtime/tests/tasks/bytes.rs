//! Operators whose records are bytes: the operator model without an interpreter.

use std::time::Duration;

use flownet_core::Target;
use flownet_core::keygroup::hash_key;
use flownet_core::record::writer::Emit;
use flownet_runtime::operator::{
    Collector, Entry, Fold, KeyedRecord, Kind, Link, Links, OperatorChain, OutputEdge, OutputSerializer,
    ReceiveOutcome, RecordFormat, Source, Stage, put_stamp,
};
use flownet_runtime::snapshot::{Input, Snapshot};
use flownet_runtime::spec::TaskSpec;
use flownet_runtime::varint::put_varint;
use flownet_runtime::window::Window;
use flownet_runtime::{Outputs, SourceStatus, TaskContext, TaskError};

/// Needs nothing to work on records.
pub(crate) struct Bytes;

impl RecordFormat for Bytes {
    type Token<'m> = ();
    type Record<'m> = Vec<u8>;
    type Info = &'static str;
    type Serializer = BytesExit;

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
        _: &&'static str,
    ) -> Result<ReceiveOutcome<Self::Record<'m>>, TaskError> {
        Ok(ReceiveOutcome::Record(bytes.to_vec()))
    }

    fn share<'m>(record: &Self::Record<'m>) -> Self::Record<'m> {
        record.clone()
    }

    fn isolate<'m>(
        (): Self::Token<'m>,
        record: Self::Record<'m>,
        _: &&'static str,
    ) -> Result<Self::Record<'m>, TaskError> {
        Ok(record)
    }

    fn name<'a>(info: &'a &'static str) -> &'a str {
        info
    }
}

/// Sends records whole.
pub(crate) struct BytesExit {
    output: usize,
    target: fn(&[u8]) -> Target,
    /// Length of the key in front of a record, which then goes by its key.
    key_bytes: Option<usize>,
}

impl BytesExit {
    /// To any reader of the first output.
    pub(crate) fn any() -> Self {
        Self::to(0, |_| Target::Any)
    }

    /// To readers of the first output, by a key of so many bytes at the front of a record.
    pub(crate) fn keyed(key_bytes: usize) -> Self {
        Self { key_bytes: Some(key_bytes), ..Self::any() }
    }

    /// To the readers of an output that `target` chooses.
    pub(crate) fn to(output: usize, target: fn(&[u8]) -> Target) -> Self {
        Self { output, target, key_bytes: None }
    }
}

impl OutputSerializer<Bytes> for BytesExit {
    fn emit(&mut self, (): (), record: &Vec<u8>, stamp: Option<i64>, out: &mut Outputs) -> Result<(), TaskError> {
        let mut bytes = Vec::new();
        if let Some(stamp) = stamp {
            put_stamp(&mut bytes, stamp);
        }
        let target = match self.key_bytes {
            None => (self.target)(record),
            Some(len) => {
                let key = &record[..len];
                put_varint(&mut bytes, len as u64);
                bytes.extend(key);
                Target::KeyHash(hash_key(key))
            }
        };
        bytes.extend(record);
        match out.try_emit(self.output, target, &bytes)? {
            Emit::Done => Ok(()),
            Emit::Blocked => out.wait(),
        }
    }

    fn info(&self) -> &&'static str {
        &"exit"
    }
}

/// A chain of one stage, whose records leave by one output.
pub(crate) fn chain(
    kind: Kind<Bytes>,
    entries: impl IntoIterator<Item = Entry>,
    exit: Option<(BytesExit, bool)>,
) -> OperatorChain<Bytes> {
    chain_of("stage", kind, entries, exit)
}

/// A chain of one stage whose records leave by an output that lies within an iteration.
pub(crate) fn looping_chain(
    kind: Kind<Bytes>,
    entries: impl IntoIterator<Item = Entry>,
    exit: BytesExit,
) -> OperatorChain<Bytes> {
    let mut links = Links::default();
    links.add(None, Link::new(flownet_runtime::operator::Target::Exit(0), false));
    let exits = vec![OutputEdge::new(exit, 0, false).in_iteration(true)];
    let stage = Stage::new("stage", kind, links, None);
    OperatorChain::new(Bytes, vec![stage], exits, entries.into_iter().collect(), None).unwrap()
}

/// A chain of one stage, whose records leave by all outputs of the task, to the readers that `target` chooses.
pub(crate) fn chain_to_all(kind: Kind<Bytes>, task: &TaskSpec, target: fn(&[u8]) -> Target) -> OperatorChain<Bytes> {
    let mut links = Links::default();
    (0..task.outputs.len()).for_each(|exit| {
        links.add(None, Link::new(flownet_runtime::operator::Target::Exit(exit), false));
    });
    let exits = (0..task.outputs.len()).map(|output| OutputEdge::new(BytesExit::to(output, target), output, false));
    let entries = (0..).take(task.inputs.len()).map(|side| Entry { side, ..Entry::default() });
    let stage = Stage::new("stage", kind, links, None);
    OperatorChain::new(Bytes, vec![stage], exits.collect(), entries.collect(), None).unwrap()
}

/// A chain of a source and an operator whose records leave the job.
pub(crate) fn chain_of_two(source: Kind<Bytes>, operator: Kind<Bytes>) -> OperatorChain<Bytes> {
    let mut links = Links::default();
    links.add(None, Link::new(flownet_runtime::operator::Target::Stage(1), false));
    let stages = vec![
        Stage::new("source", source, links, None),
        Stage::new("operator", operator, Links::default(), None).with_state_of("operator".to_owned()),
    ];
    OperatorChain::new(Bytes, stages, vec![], vec![], None).unwrap()
}

/// A chain of one stage, with state of this name.
pub(crate) fn chain_of(
    uid: &str,
    kind: Kind<Bytes>,
    entries: impl IntoIterator<Item = Entry>,
    exit: Option<(BytesExit, bool)>,
) -> OperatorChain<Bytes> {
    let mut links = Links::default();
    if exit.is_some() {
        links.add(None, Link::new(flownet_runtime::operator::Target::Exit(0), false));
    }
    let exits = exit.into_iter().map(|(exit, stamps)| OutputEdge::new(exit, 0, stamps)).collect();
    let stage = Stage::new("stage", kind, links, None).with_state_of(uid.to_owned());
    OperatorChain::new(Bytes, vec![stage], exits, entries.into_iter().collect(), None).unwrap()
}

/// What a scripted source does next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A record of this key, at this time.
    Record(u8, i64),
    /// A watermark.
    Watermark(i64),
}

/// Emits what a script says, and then ends, or is silent.
pub(crate) struct Script {
    pub(crate) steps: Vec<Step>,
    pub(crate) ends: bool,
}

impl Source<Bytes> for Script {
    fn open(&mut self, (): (), _: &TaskContext) -> Result<(), TaskError> {
        Ok(())
    }

    fn emit<'m>(&mut self, collector: &mut Collector<'_, 'm, Bytes>) -> Result<SourceStatus, TaskError> {
        for step in self.steps.drain(..) {
            match step {
                Step::Record(key, at_ms) => collector.emit_at(at_ms, vec![key])?,
                Step::Watermark(at_ms) => collector.emit_time(flownet_runtime::time::TimeSignal::Watermark(at_ms))?,
            }
        }
        let silent = SourceStatus::Idle { wake_after: Duration::from_secs(3600) };
        Ok(if self.ends { SourceStatus::Finished } else { silent })
    }

    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}

/// Counts records; a result is the window's start, the key and the count.
pub(crate) struct CountingFold;

impl Fold<Bytes> for CountingFold {
    type Value = u64;

    fn absorb(&self, _: &KeyedRecord<'_>, count: &mut u64) -> bool {
        *count += 1;
        true
    }

    fn fold(&self, (): (), record: &KeyedRecord<'_>, count: &mut u64) -> Result<(), TaskError> {
        self.absorb(record, count);
        Ok(())
    }

    fn merge(&self, (): (), count: &mut u64, later: &u64) -> Result<(), TaskError> {
        *count += later;
        Ok(())
    }

    fn write(&self, (): (), _: &[u8], count: &u64, out: &mut Vec<u8>) -> Result<(), TaskError> {
        put_varint(out, *count);
        Ok(())
    }

    fn read(&self, (): (), input: &mut Input<'_>) -> Result<u64, TaskError> {
        input.varint()
    }

    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }

    fn has_records(&self, count: &u64) -> bool {
        *count > 0
    }

    fn emit(
        &mut self,
        window: Window,
        key: &[u8],
        count: &mut u64,
        collector: &mut Collector<'_, '_, Bytes>,
    ) -> Result<(), TaskError> {
        assert_eq!(collector.timestamp_ms, window.max_ms(), "a result is of its window's last millisecond");
        collector.emit([&count.to_le_bytes(), key, &window.start_ms.to_le_bytes()].concat())
    }

    fn emit_so_far(
        &mut self,
        key: &[u8],
        count: &u64,
        collector: &mut Collector<'_, '_, Bytes>,
    ) -> Result<(), TaskError> {
        collector.emit([&count.to_le_bytes(), key].concat())
    }

    fn record<'m>(&self, record: &KeyedRecord<'_>, _: &Collector<'_, 'm, Bytes>) -> Result<Vec<u8>, TaskError> {
        Ok(record.value().to_vec())
    }

    fn without_timestamp(&self, (): (), record: &KeyedRecord<'_>) -> TaskError {
        TaskError::Config(format!("no timestamp: {:?}", record.value()))
    }
}
