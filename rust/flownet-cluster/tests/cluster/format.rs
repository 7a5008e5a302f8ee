//! A record format whose records are numbers of eight bytes.

use flownet_core::{Target, keygroup::hash_key};
use flownet_runtime::{
    Outputs, TaskError,
    operator::{
        Entry, Kind, Link, Links, OperatorChain, OutputEdge, OutputSerializer, ReceiveOutcome, RecordFormat, Stage,
    },
    spec::{Partitioner, TaskSpec},
};

/// Needs nothing to work on records.
pub(crate) struct NumberFormat;

impl RecordFormat for NumberFormat {
    type Token<'m> = ();
    type Record<'m> = u64;
    type Info = String;
    type Serializer = NumberSerializer;

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
        Ok(ReceiveOutcome::Record(u64::from_le_bytes(bytes.try_into().expect("eight bytes"))))
    }

    fn share<'m>(record: &Self::Record<'m>) -> Self::Record<'m> {
        *record
    }

    fn isolate<'m>((): Self::Token<'m>, record: Self::Record<'m>, _: &String) -> Result<Self::Record<'m>, TaskError> {
        Ok(record)
    }

    fn name(info: &String) -> &str {
        info
    }
}

/// Sends numbers by one output.
pub(crate) struct NumberSerializer {
    output: usize,
    is_keyed: bool,
    operator: String,
}

impl OutputSerializer<NumberFormat> for NumberSerializer {
    fn emit(&mut self, (): (), number: &u64, _: Option<i64>, out: &mut Outputs) -> Result<(), TaskError> {
        let record = number.to_le_bytes();
        let target = if self.is_keyed { Target::KeyHash(hash_key(&record)) } else { Target::Any };
        out.emit(self.output, target, &record)
    }

    fn info(&self) -> &String {
        &self.operator
    }
}

/// The chain of a task with one operator, whose numbers leave by all outputs.
pub(crate) fn chain(kind: Kind<NumberFormat>, task: &TaskSpec) -> Result<OperatorChain<NumberFormat>, TaskError> {
    let mut links = Links::default();
    let mut exits = Vec::new();
    for (output, spec) in task.outputs.iter().enumerate() {
        links.add(None, Link::new(flownet_runtime::operator::Target::Exit(output), false));
        let is_keyed = spec.partitioner == Partitioner::KeyGroup;
        let serializer = NumberSerializer { output, is_keyed, operator: task.name.clone() };
        exits.push(OutputEdge::new(serializer, output, false));
    }
    let stage = Stage::new(task.name.clone(), kind, links, None);
    OperatorChain::new(NumberFormat, vec![stage], exits, vec![Entry::default(); task.inputs.len()], None)
}
