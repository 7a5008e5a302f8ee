//! From a task's description to its chain.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use flownet_runtime::source::{RateLimit, RateUnit};
use flownet_runtime::spec::{InputSpec, OperatorSpec, OutputSpec, Partitioner, Payload, TaskSpec};
use flownet_runtime::{Chain, ChainFactory, TaskError};
use pyo3::prelude::*;
use pyo3::types::PyInt;

use super::attach::TaskThreads;
use super::exit::{Exit, Route};
use super::failure::OperatorInfo;
use super::keyed::{
    Aggregate, Count, Fold, KeyedBase, Process, Reduce, WindowCount, WindowProcess, WindowReduce, WindowSettings,
};
use super::objects::{Objects, required};
use super::operators::{Filter, FlatMap, Map};
use super::sinks::{Collect, CustomSink, Print, WriteText};
use super::sources::{Collection, Iterable, LineDecoder, Pulled, ReadText, SocketText, Undecodable};
use super::stage::{Brake, Kind, Link, Stage};
use super::{Entry, PythonChain};
use crate::codec::Pickle;

/// Setting of every operator of a job that opted in to pickle.
pub(crate) const CODEC_SETTING: &str = "codec";

/// Builds chains of Python operators.
pub struct PythonChainFactory {
    objects: Arc<Objects>,
    threads: Arc<TaskThreads>,
}

impl PythonChainFactory {
    /// Chains of this process find the objects that were not serialised in `objects`.
    pub fn new(objects: Arc<Objects>) -> Self {
        Self { objects, threads: Arc::default() }
    }

    /// Where its chains run.
    pub fn threads(&self) -> Arc<TaskThreads> {
        Arc::clone(&self.threads)
    }
}

impl ChainFactory for PythonChainFactory {
    fn build(&self, task: &TaskSpec) -> Result<Box<dyn Chain>, TaskError> {
        let builder = Builder { task, objects: &self.objects, threads: &self.threads, pickle: pickle_of(task) };
        Ok(Box::new(Python::attach(|py| builder.chain(py))?))
    }
}

fn pickle_of(task: &TaskSpec) -> Pickle {
    let is_pickle = |operator: &OperatorSpec| operator.config.get(CODEC_SETTING).is_some_and(|codec| codec == "pickle");
    if task.operators.iter().any(is_pickle) { Pickle::Allowed } else { Pickle::Refused }
}

struct Builder<'a> {
    task: &'a TaskSpec,
    objects: &'a Objects,
    threads: &'a Arc<TaskThreads>,
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
        let rate_limit = self.rate_limit()?;
        Ok(PythonChain { stages, exits, entries, rate_limit, pickle: self.pickle, threads: Arc::clone(self.threads) })
    }

    /// This subtask's part of the rate of the source that heads the chain.
    fn rate_limit(&self) -> Result<Option<RateLimit>, TaskError> {
        let Some(source) = self.task.operators.first().filter(|source| source.config.contains_key("rate_limit")) else {
            return Ok(None);
        };
        let unit = match text(&source.config, "rate_limit_unit", &source.kind)? {
            "records" => RateUnit::Records,
            "bytes" => RateUnit::Bytes,
            other => return Err(TaskError::Config(format!("rate_limit_unit={other:?} is none of records, bytes"))),
        };
        let per_second = setting::<f64>(source, "rate_limit")? / f64::from(self.task.parallelism);
        Ok(Some(RateLimit { per_second, unit }))
    }

    fn stage(&self, py: Python<'_>, at: usize, operator: &OperatorSpec) -> Result<Stage, TaskError> {
        let info = self.info(&operator.name);
        let kind = StageBuilder { builder: self, py, operator, info: &info }.kind()?;
        let brake = match operator.config.get("rate") {
            // The rate is the operator's; its subtasks share it.
            Some(_) => Some(Brake::new(setting::<f64>(operator, "rate")? / f64::from(self.task.parallelism))?),
            None => None,
        };
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
                links.push(Link::Stage(below));
            }
        }
        let exits = self.task.outputs.iter().enumerate().filter(|(_, output)| output.from_operator == operator.id);
        links.extend(exits.map(|(output, _)| Link::Exit(output)));
        Ok(links)
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
        Ok(Exit::new(output, route, self.pickle, info))
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

impl<'py> StageBuilder<'_, 'py> {
    fn kind(&self) -> Result<Kind, TaskError> {
        let kind = self.operator.kind.as_str();
        if let Some(windowed) = kind.strip_prefix("window_") {
            return self.windowed(windowed);
        }
        match kind {
            "from_collection" | "from_iterable" | "read_text" | "socket_text" => self.source(kind),
            "reduce" | "count" | "sum" | "min" | "max" | "process" => self.keyed(kind),
            _ => self.plain(kind),
        }
    }

    fn source(&self, kind: &str) -> Result<Kind, TaskError> {
        let info = self.info.clone();
        let lines = || {
            let undecodable = Undecodable::parse(self.operator.config.get("errors").map(String::as_str))?;
            Ok::<_, TaskError>(LineDecoder::new(undecodable, self.builder.pickle, self.info.clone()))
        };
        Ok(Kind::Source(match kind {
            "from_collection" => {
                let Payload::Bytes(encoded) = &self.operator.payload else {
                    return Err(TaskError::Config("from_collection needs an encoded list".into()));
                };
                Box::new(Collection::new(encoded.clone(), self.builder.pickle, info))
            }
            "from_iterable" => {
                let given = self.function()?;
                let makes_its_own = self.operator.config.contains_key("makes_its_own");
                let pulled = if makes_its_own { Pulled::MadeBy(given) } else { Pulled::Iterator(given) };
                Box::new(Iterable::new(pulled, self.builder.pickle, info))
            }
            "read_text" => Box::new(ReadText::new(self.paths()?, lines()?)),
            _ => Box::new(SocketText::new(self.text("host")?.to_owned(), setting(self.operator, "port")?, lines()?)),
        }))
    }

    fn plain(&self, kind: &str) -> Result<Kind, TaskError> {
        let info = self.info.clone();
        Ok(Kind::Operator(match kind {
            "map" => Box::new(Map::new(self.function()?, info)),
            "flat_map" => Box::new(FlatMap::new(self.function()?, info)),
            "filter" => Box::new(Filter::new(self.function()?, info)),
            "print" => Box::new(Print::new(self.operator.config.get("prefix").map(String::as_str), info)),
            "collect" => Box::new(Collect::new(self.function()?, info)),
            "write_text" => Box::new(WriteText::new(PathBuf::from(self.text("path")?), info)),
            "sink" => Box::new(CustomSink::new(self.own_object()?, info)),
            other => return Err(TaskError::Config(format!("unknown operator kind '{other}'"))),
        }))
    }

    fn keyed(&self, kind: &str) -> Result<Kind, TaskError> {
        Ok(Kind::Keyed(match kind {
            "reduce" => Box::new(Reduce::new(self.base(), self.function()?)),
            "count" => Box::new(Count::new(self.base())),
            "process" => Box::new(Process::new(self.base(), self.own_object()?)),
            other => Box::new(self.aggregate(other)?.running()),
        }))
    }

    fn windowed(&self, kind: &str) -> Result<Kind, TaskError> {
        let window = WindowSettings { size_ms: setting(self.operator, "window_ms")? };
        Ok(Kind::Keyed(match kind {
            "reduce" => Box::new(WindowReduce::over(self.base(), self.function()?, window)?),
            "count" => Box::new(WindowCount::over(self.base(), window)?),
            "process" => Box::new(WindowProcess::over(self.base(), self.function()?, window)?),
            other => Box::new(self.aggregate(other)?.over(window)?),
        }))
    }

    fn aggregate(&self, kind: &str) -> Result<Aggregate, TaskError> {
        let fold = match kind {
            "sum" => Fold::Sum,
            "min" => Fold::Min,
            "max" => Fold::Max,
            other => return Err(TaskError::Config(format!("unknown aggregate '{other}'"))),
        };
        let field = self.operator.config.get("field").map(|field| self.json(field)).transpose()?;
        Ok(Aggregate::new(self.base(), fold, field))
    }

    fn base(&self) -> KeyedBase {
        KeyedBase { info: self.info.clone(), pickle: self.builder.pickle }
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

    fn loaded(&self, object: PyResult<Option<Bound<'py, PyAny>>>) -> Result<Py<PyAny>, TaskError> {
        let object = object.map_err(|error| self.info.failed(self.py, &error, None))?;
        required(object, &self.operator.kind).map(Bound::unbind)
    }

    fn paths(&self) -> Result<Vec<PathBuf>, TaskError> {
        let paths = self.json(self.text("paths")?)?;
        paths.extract().map_err(|error| self.info.failed(self.py, &error, None))
    }

    fn json(&self, text: &str) -> Result<Bound<'py, PyAny>, TaskError> {
        let loads = || self.py.import("json")?.call_method1("loads", (text,));
        loads().map_err(|error| self.info.failed(self.py, &error, None))
    }

    fn text(&self, name: &str) -> Result<&str, TaskError> {
        text(&self.operator.config, name, &self.operator.kind)
    }
}

fn text<'a>(config: &'a BTreeMap<String, String>, name: &str, kind: &str) -> Result<&'a str, TaskError> {
    let missing = || TaskError::Config(format!("operator kind '{kind}' needs the setting '{name}'"));
    config.get(name).map(String::as_str).ok_or_else(missing)
}

fn setting<T: std::str::FromStr>(operator: &OperatorSpec, name: &str) -> Result<T, TaskError> {
    let given = text(&operator.config, name, &operator.kind)?;
    given.parse().map_err(|_| TaskError::Config(format!("setting '{name}' of '{}' is {given:?}", operator.name)))
}

fn unknown_operator(id: u32) -> TaskError {
    TaskError::Config(format!("the task has no operator {id}"))
}
