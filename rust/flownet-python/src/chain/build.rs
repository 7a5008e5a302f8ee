//! From a task's description to its chain.

use std::collections::HashMap;
use std::sync::Arc;

use flownet_runtime::source::RateLimit;
use flownet_runtime::spec::{
    Codec, Field, Fold, InputSpec, OperatorKind, OperatorSpec, OutputSpec, Partitioner, Payload, TaskSpec, WindowSpec,
};
use flownet_runtime::{Chain, ChainFactory, TaskError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};

use super::attach::TaskThreads;
use super::exit::{Exit, Route};
use super::failure::OperatorInfo;
use super::keyed::{
    Aggregate, Aggregation, Count, KeyedBase, Process, Reduce, Running, RunningFold, WindowProcess, Windowed,
};
use super::objects::{Objects, required};
use super::operators::{Filter, FlatMap, Map};
use super::sinks::{Collect, CustomSink, Print, WriteText};
use super::sources::{Collection, Iterable, LineDecoder, Pulled, ReadText, SocketText};
use super::stage::{Brake, Kind, Link, Meter, Stage, Target};
use super::{Entry, PythonChain};
use crate::codec::{ClassTable, KnownClasses, Pickle, SentClasses};

/// Builds chains of Python operators.
pub struct PythonChainFactory {
    objects: Arc<Objects>,
    threads: Arc<TaskThreads>,
    /// The classes that records of the job are of.
    classes: Arc<ClassTable>,
}

impl PythonChainFactory {
    /// Chains of this process find the objects that were not serialised in `objects`.
    pub fn new(objects: Arc<Objects>) -> Self {
        Self { objects, threads: Arc::default(), classes: Arc::default() }
    }

    /// Where its chains run.
    pub fn threads(&self) -> Arc<TaskThreads> {
        Arc::clone(&self.threads)
    }
}

impl ChainFactory for PythonChainFactory {
    fn build(&self, task: &TaskSpec) -> Result<Box<dyn Chain>, TaskError> {
        let Self { objects, threads, classes } = self;
        let builder = Builder { task, objects, threads, classes, pickle: pickle_of(task.codec) };
        Ok(Box::new(Python::attach(|py| builder.chain(py))?))
    }
}

fn pickle_of(codec: Codec) -> Pickle {
    match codec {
        Codec::Typed => Pickle::Refused,
        Codec::Pickle => Pickle::Allowed,
    }
}

struct Builder<'a> {
    task: &'a TaskSpec,
    objects: &'a Objects,
    threads: &'a Arc<TaskThreads>,
    classes: &'a Arc<ClassTable>,
    pickle: Pickle,
}

impl Builder<'_> {
    fn chain(&self, py: Python<'_>) -> Result<PythonChain, TaskError> {
        let places: HashMap<u32, usize> = self.task.operators.iter().enumerate().map(|(at, op)| (op.id, at)).collect();
        let stages = (self.task.operators.iter().enumerate())
            .map(|(at, operator)| self.stage(py, at, operator))
            .collect::<Result<_, _>>()?;
        let exits = (self.task.outputs.iter().enumerate())
            .map(|(output, spec)| self.exit(py, output, spec))
            .collect::<Result<_, _>>()?;
        let entry = |input: &InputSpec| {
            let stage = places.get(&input.to_operator).copied();
            Ok(Entry { stage: stage.ok_or_else(|| unknown_operator(input.to_operator))?, keyed: input.keyed })
        };
        let entries = self.task.inputs.iter().map(entry).collect::<Result<_, TaskError>>()?;
        let rate_limit = self.rate_limit();
        let (classes, threads) = (self.known_classes(), Arc::clone(self.threads));
        Ok(PythonChain { stages, exits, entries, rate_limit, classes, threads })
    }

    /// This subtask's part of the rate of the source that heads the chain.
    fn rate_limit(&self) -> Option<RateLimit> {
        let RateLimit { per_second, unit } = self.task.operators.first()?.rate_limit?;
        Some(RateLimit { per_second: per_second / f64::from(self.task.parallelism), unit })
    }

    fn stage(&self, py: Python<'_>, at: usize, operator: &OperatorSpec) -> Result<Stage, TaskError> {
        let info = self.info(&operator.name);
        let kind = StageBuilder { builder: self, py, operator, info: &info }.kind()?;
        // The rate is the operator's; its subtasks share it.
        let brake = operator.brake.map(|rate| Brake::new(rate / f64::from(self.task.parallelism))).transpose()?;
        Ok(Stage::new(info, kind, self.links(at, operator)?, brake))
    }

    /// Stages of the chain first, in its order, then the outputs.
    fn links(&self, at: usize, operator: &OperatorSpec) -> Result<Vec<Link>, TaskError> {
        let mut links = Vec::new();
        for (below, other) in self.task.operators.iter().enumerate() {
            if other.inputs_in_chain.contains(&operator.id) {
                if below <= at {
                    return Err(TaskError::Config(format!("operator '{}' comes before its input", other.name)));
                }
                links.push(Target::Stage(below));
            }
        }
        let exits = self.task.outputs.iter().enumerate().filter(|(_, output)| output.from_operator == operator.id);
        links.extend(exits.map(|(output, _)| Target::Exit(output)));
        let isolates = |to| match to {
            _ if self.task.object_reuse => false,
            Target::Stage(_) => true,
            // Out go bytes; but the functions of edges may change a record that others get, too.
            Target::Exit(exit) => {
                let partitioner = self.task.outputs[exit].partitioner;
                links.len() > 1 && matches!(partitioner, Partitioner::KeyGroup | Partitioner::Custom)
            }
        };
        Ok(links.iter().map(|&to| Link { to, isolates: isolates(to) }).collect())
    }

    fn exit(&self, py: Python<'_>, output: usize, spec: &OutputSpec) -> Result<Exit, TaskError> {
        let from = self.task.operators.iter().find(|operator| operator.id == spec.from_operator);
        let info = self.info(&from.ok_or_else(|| unknown_operator(spec.from_operator))?.name);
        let function = || {
            let object = self.objects.load(py, &spec.payload).map_err(|error| info.failed(py, &error, None))?;
            required(object, "key_by or partition_custom").map(Bound::unbind)
        };
        let route = match spec.partitioner {
            Partitioner::KeyGroup => Route::Key(function()?),
            Partitioner::Custom => {
                let subtasks = PyInt::new(py, spec.subpartitions).into_any().unbind();
                Route::Custom { function: function()?, subtasks }
            }
            _ => Route::Any,
        };
        Ok(Exit::new(output, route, self.sent_classes(), info))
    }

    fn sent_classes(&self) -> SentClasses {
        SentClasses::new(Arc::clone(self.classes), self.pickle)
    }

    fn known_classes(&self) -> KnownClasses {
        KnownClasses::new(Arc::clone(self.classes), self.pickle)
    }

    fn info(&self, operator: &str) -> OperatorInfo {
        let TaskSpec { subtask, parallelism, .. } = *self.task;
        OperatorInfo { operator: operator.to_owned(), subtask, parallelism }
    }
}

/// What it takes to build one stage.
struct StageBuilder<'a, 'py> {
    builder: &'a Builder<'a>,
    py: Python<'py>,
    operator: &'a OperatorSpec,
    info: &'a OperatorInfo,
}

impl StageBuilder<'_, '_> {
    fn kind(&self) -> Result<Kind, TaskError> {
        let info = self.info.clone();
        let lines = |errors| LineDecoder::new(errors, self.meter(), self.info.clone());
        Ok(match &self.operator.kind {
            OperatorKind::FromCollection => {
                let Payload::Bytes(encoded) = &self.operator.payload else {
                    return Err(TaskError::Config("from_collection needs an encoded list".into()));
                };
                let pickle = self.builder.pickle;
                Kind::Source(Box::new(Collection::new(encoded.clone(), pickle, self.meter(), info)))
            }
            OperatorKind::FromIterable { makes_its_own } => {
                let given = self.function()?;
                let pulled = if *makes_its_own { Pulled::MadeBy(given) } else { Pulled::Iterator(given) };
                Kind::Source(Box::new(Iterable::new(pulled, self.meter(), info)))
            }
            OperatorKind::ReadText { splits, errors, .. } => {
                Kind::Source(Box::new(ReadText::new(splits.clone(), lines(*errors))))
            }
            OperatorKind::SocketText { host, port, errors } => {
                Kind::Source(Box::new(SocketText::new(host.clone(), port.get(), lines(*errors))))
            }
            OperatorKind::Map => Kind::Operator(Box::new(Map::new(self.function()?, info))),
            OperatorKind::FlatMap => Kind::Operator(Box::new(FlatMap::new(self.function()?, info))),
            OperatorKind::Filter => Kind::Operator(Box::new(Filter::new(self.function()?, info))),
            OperatorKind::Fold { fold, window } => self.fold(fold, *window)?,
            OperatorKind::Process => Kind::Keyed(Box::new(Process::new(self.base(), self.own_object()?))),
            OperatorKind::WindowProcess { window } => {
                Kind::Keyed(Box::new(Windowed::new(WindowProcess::new(self.base(), self.function()?), *window)?))
            }
            OperatorKind::Print { prefix } => Kind::Operator(Box::new(Print::new(prefix.as_deref(), info))),
            OperatorKind::Collect => Kind::Operator(Box::new(Collect::new(self.function()?, info))),
            OperatorKind::WriteText { path } => Kind::Operator(Box::new(WriteText::new(path.to_path(), info))),
            OperatorKind::Sink => Kind::Operator(Box::new(CustomSink::new(self.own_object()?, info))),
            OperatorKind::Custom { name, .. } => {
                return Err(TaskError::Config(format!("operators of kind '{name}' do not run in Python")));
            }
        })
    }

    fn fold(&self, fold: &Fold, window: Option<WindowSpec>) -> Result<Kind, TaskError> {
        match fold {
            Fold::Reduce => folding(Reduce::new(self.base(), self.function()?), window),
            Fold::Count => folding(Count(self.base()), window),
            Fold::Sum { field } | Fold::Min { field } | Fold::Max { field } => {
                folding(self.aggregate(fold, field.as_ref()), window)
            }
        }
    }

    fn aggregate(&self, fold: &Fold, field: Option<&Field>) -> Aggregate {
        let aggregation = match fold {
            Fold::Min { .. } => Aggregation::Min,
            Fold::Max { .. } => Aggregation::Max,
            _ => Aggregation::Sum,
        };
        let field = field.map(|field| match field {
            Field::Index(index) => PyInt::new(self.py, *index).into_any(),
            Field::Name(name) => PyString::new(self.py, name).into_any(),
        });
        Aggregate::new(self.base(), aggregation, field)
    }

    fn meter(&self) -> Meter {
        Meter::new(self.builder.sent_classes(), self.info.clone())
    }

    fn base(&self) -> KeyedBase {
        KeyedBase { info: self.info.clone(), classes: self.builder.known_classes() }
    }

    fn function(&self) -> Result<Py<PyAny>, TaskError> {
        let object = self.builder.objects.load(self.py, &self.operator.payload);
        self.loaded(object)
    }

    /// The object of an operator that keeps something in it: subtasks must not share it.
    fn own_object(&self) -> Result<Py<PyAny>, TaskError> {
        let parallelism = self.builder.task.parallelism;
        let object = self.builder.objects.load_own(self.py, &self.operator.payload, parallelism);
        self.loaded(object)
    }

    fn loaded(&self, object: PyResult<Option<Bound<'_, PyAny>>>) -> Result<Py<PyAny>, TaskError> {
        let object = object.map_err(|error| self.info.failed(self.py, &error, None))?;
        required(object, self.operator.kind.name()).map(Bound::unbind)
    }
}

fn folding<F: RunningFold + 'static>(fold: F, window: Option<WindowSpec>) -> Result<Kind, TaskError> {
    Ok(Kind::Keyed(match window {
        None => Box::new(Running::new(fold)),
        Some(window) => Box::new(Windowed::new(fold, window)?),
    }))
}

fn unknown_operator(id: u32) -> TaskError {
    TaskError::Config(format!("the task has no operator {id}"))
}
