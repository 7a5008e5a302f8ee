//! Builds the chain of a task from its description.

use std::sync::Arc;
use std::time::Duration;

use flownet_rows::{Layout, RowInput, RowsChain};
use flownet_runtime::flame::Stacks;
use flownet_runtime::iteration::{FeedbackEdges, FeedbackLimits};
use flownet_runtime::operator::{
    self as runtime, AsOfJoin, Entry, Interval, IntervalJoin, IterationHead, IterationTail, Kind, Link, Links,
    OperatorChain, OutputEdge, RecordPacer, RunningFold, Stage, Target, over_windows,
};
use flownet_runtime::source::RateLimit;
use flownet_runtime::spec::{
    Codec, Field, Fold, InputSpec, LineFormat, OperatorKind, OperatorSpec, OutputSpec, Partitioner, Payload, RowsKind,
    TaskSpec, WindowSpec,
};
use flownet_runtime::state::KeyGroupRange;
use flownet_runtime::watermark::SplitWatermarks;
use flownet_runtime::{ChainFactory, GarbageCollections, TaskChain, TaskError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyString};

use super::attach::{TaskThreads, ThreadsOfTask};
use super::failure::OperatorInfo;
use super::function::{Function, is_told};
use super::keyed::{
    Accumulate, Aggregate, Aggregation, Collect, Count, Evictor, Extreme, FieldOf, FoldWithResults, KeptValues,
    KeyedBase, Mean, OfWindow, OwnFunction, Pairs, Process, Reduce, Results, WindowCalls,
};
use super::meter::Meter;
use super::objects::{Objects, required};
use super::operators::{
    Assigner, FeedbackDecoder, Filter, FlatMap, Limits, Map, MapAsync, ProcessAll, Timestamps, UntilPredicate,
};
use super::record_format::{PythonChain, PythonFormat};
use super::serializer::{PythonSerializer, Route};
use super::sinks::{Collect as CollectSink, CustomSink, Lines, Print, WriteFiles};
use super::sources::{Collection, Iterable, IteratorOrigin, LineDecoder, ReadText, Script, SocketText, Splits};
use super::stacks::TaskStacks;
use crate::codec::{ClassTable, KnownClasses, Pickle, SentClasses};
use crate::garbage;
use crate::rows::{PythonForeign, ToObjects, ToRows};

/// Builds chains of Python operators.
pub struct PythonChainFactory {
    objects: Arc<Objects>,
    /// None if the chains run on threads that already have the interpreter.
    threads: Option<Arc<TaskThreads>>,
    /// Classes of the job's records.
    classes: Arc<ClassTable>,
    /// Feedback edges of the job's iterations, which connect their two ends.
    feedback: FeedbackEdges,
}

impl PythonChainFactory {
    /// A factory whose chains take objects that were not serialised from `objects`.
    pub fn new(objects: Arc<Objects>) -> Self {
        Self { objects, threads: Some(Arc::default()), classes: Arc::default(), feedback: FeedbackEdges::default() }
    }

    /// A factory for chains that run on the caller's thread.
    pub(crate) fn of_callers_thread(objects: Arc<Objects>) -> Self {
        Self { threads: None, ..Self::new(objects) }
    }

    /// The threads that its chains run on.
    pub fn threads(&self) -> Arc<TaskThreads> {
        self.threads.clone().unwrap_or_default()
    }

    /// Builds the chain of a task of rows.
    pub(crate) fn rows_chain(&self, task: &TaskSpec) -> Result<RowsChain, TaskError> {
        let threads = self.threads.as_ref().map(|threads| ThreadsOfTask::new(Arc::clone(threads), task.task_id));
        flownet_rows::chain(task, &PythonForeign { objects: &self.objects, threads })
    }

    /// Builds the chain of a task of objects.
    pub(crate) fn chain(&self, py: Python<'_>, task: &TaskSpec) -> Result<PythonChain, TaskError> {
        let Self { objects, threads, classes, feedback } = self;
        let builder = Builder { task, objects, threads, classes, feedback, pickle: pickle_of(task.codec) };
        builder.chain(py)
    }
}

impl ChainFactory for PythonChainFactory {
    fn build(&self, task: &TaskSpec) -> Result<TaskChain, TaskError> {
        if flownet_rows::is_of_rows(task) {
            return Ok(self.rows_chain(task)?.into());
        }
        Ok(Python::attach(|py| self.chain(py, task))?.into())
    }

    fn garbage_collections(&self) -> GarbageCollections {
        garbage::collections()
    }

    fn stacks(&self, task: u32) -> Option<Box<dyn Stacks>> {
        Some(Box::new(TaskStacks::new(self.threads.clone()?, task)))
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
    threads: &'a Option<Arc<TaskThreads>>,
    classes: &'a Arc<ClassTable>,
    feedback: &'a FeedbackEdges,
    pickle: Pickle,
}

impl Builder<'_> {
    fn chain(&self, py: Python<'_>) -> Result<PythonChain, TaskError> {
        let stages = (self.task.operators.iter().enumerate())
            .map(|(at, operator)| self.stage(py, at, operator))
            .collect::<Result<_, _>>()?;
        let exits = (self.task.outputs.iter().enumerate())
            .map(|(output, spec)| {
                let leaving = OutputEdge::new(self.exit(py, output, spec)?, output, spec.timestamps);
                Ok(leaving.in_iteration(spec.in_iteration).telling_splits(spec.splits))
            })
            .collect::<Result<_, TaskError>>()?;
        let head = self.task.operators.first().map(|head| head.id);
        let entry = |input: &InputSpec| {
            let InputSpec { to_operator, side, timestamps: stamps, .. } = *input;
            if head != Some(to_operator) {
                return Err(TaskError::Config(format!("operator {to_operator} has an input and heads no chain")));
            }
            Ok(Entry { side, keyed: input.is_keyed(), stamps })
        };
        let entries = self.task.inputs.iter().map(entry).collect::<Result<_, TaskError>>()?;
        let medium = PythonFormat::new(self.known_classes(), self.threads()).with_rows(self.arriving_rows()?);
        OperatorChain::new(medium, stages, exits, entries, self.rate_limit())
    }

    /// Gathers the rows that the task receives, if they are to become objects.
    fn arriving_rows(&self) -> Result<Option<RowInput>, TaskError> {
        let Some(OperatorKind::Rows(RowsKind::ToObjects { input, .. })) =
            self.task.operators.first().map(|head| &head.kind)
        else {
            return Ok(None);
        };
        let layout = Layout::new(flownet_rows::schema(input)?);
        RowInput::new(&layout.map_err(|error| TaskError::Config(error.to_string()))?).map(Some)
    }

    /// This subtask's share of the rate limit of the source that heads the chain.
    fn rate_limit(&self) -> Option<RateLimit> {
        let RateLimit { per_second, unit } = self.task.operators.first()?.rate_limit?;
        Some(RateLimit { per_second: per_second / f64::from(self.task.parallelism), unit })
    }

    fn stage(&self, py: Python<'_>, at: usize, operator: &OperatorSpec) -> Result<Stage<PythonFormat>, TaskError> {
        let info = self.info(&operator.name);
        let kind = StageBuilder { builder: self, py, operator, info: &info }.kind()?;
        // The rate is the operator's; its subtasks share it.
        let brake = operator.brake.map(|rate| RecordPacer::new(rate / f64::from(self.task.parallelism))).transpose()?;
        Ok(Stage::new(info, kind, self.links(at, operator)?, brake).with_state_of(operator.state_uid()))
    }

    /// Links to the targets of an operator: stages of the chain first, in its order, then the outputs.
    fn links(&self, at: usize, operator: &OperatorSpec) -> Result<Links, TaskError> {
        let mut targets = Vec::new();
        for (below, other) in self.task.operators.iter().enumerate() {
            let Some(upstream) = other.upstream.as_ref().filter(|upstream| upstream.operator == operator.id) else {
                continue;
            };
            if below <= at {
                return Err(TaskError::Config(format!("operator '{}' comes before its input", other.name)));
            }
            targets.push((upstream.tag.as_deref(), Target::Stage(below)));
        }
        let exits = self.task.outputs.iter().enumerate().filter(|(_, output)| output.from_operator == operator.id);
        targets.extend(exits.map(|(exit, output)| (output.tag.as_deref(), Target::Exit(exit))));
        let isolates = |to| match to {
            // Rows are never changed in place.
            _ if self.task.object_reuse || !operator.kind.gives_objects() => false,
            Target::Stage(_) => true,
            // Records leave as bytes. But functions of edges may change a record that other targets receive,
            // too.
            Target::Exit(exit) => {
                let partitioner = self.task.outputs[exit].partitioner;
                targets.len() > 1 && matches!(partitioner, Partitioner::KeyGroup | Partitioner::Custom)
            }
        };
        let mut links = Links::default();
        for &(tag, to) in &targets {
            links.add(tag, Link::new(to, isolates(to)));
        }
        Ok(links)
    }

    fn exit(&self, py: Python<'_>, output: usize, spec: &OutputSpec) -> Result<PythonSerializer, TaskError> {
        let from = self.task.operators.iter().find(|operator| operator.id == spec.from_operator);
        let from = from.ok_or_else(|| unknown_operator(spec.from_operator))?;
        let info = self.info(&from.name);
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
        let exit = PythonSerializer::new(output, route, self.sent_classes(), info);
        Ok(if from.kind.gives_objects() { exit } else { exit.of_rows() })
    }

    fn threads(&self) -> Option<ThreadsOfTask> {
        let threads = self.threads.as_ref()?;
        Some(ThreadsOfTask::new(Arc::clone(threads), self.task.task_id))
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

/// Everything that is needed to build one stage.
struct StageBuilder<'a, 'py> {
    builder: &'a Builder<'a>,
    py: Python<'py>,
    operator: &'a OperatorSpec,
    info: &'a OperatorInfo,
}

impl StageBuilder<'_, '_> {
    fn kind(&self) -> Result<Kind<PythonFormat>, TaskError> {
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
            OperatorKind::FromIterable { makes_its_own, tells_splits } => {
                let given = self.function()?;
                let pulled =
                    if *makes_its_own { IteratorOrigin::MadeBy(given) } else { IteratorOrigin::Iterator(given) };
                Kind::Source(Box::new(Iterable::new(pulled, *tells_splits, self.meter(), info)))
            }
            OperatorKind::FromSource => {
                let values = (self.builder.known_classes(), self.kept_values());
                Kind::Source(Box::new(Splits::new(self.function()?, self.meter(), values, info)))
            }
            OperatorKind::FromScript { .. } => {
                Kind::Source(Box::new(Script::new(self.function()?, self.meter(), info)))
            }
            OperatorKind::ReadText { splits, errors, .. } => {
                let TaskSpec { operators, outputs, .. } = self.builder.task;
                let is_timed = operators.iter().any(|operator| operator.kind.assigns_timestamps())
                    || outputs.iter().any(|output| output.splits);
                Kind::Source(Box::new(ReadText::new(splits.clone(), is_timed, lines(*errors))))
            }
            OperatorKind::SocketText { host, port, errors } => {
                Kind::Source(Box::new(SocketText::new(host.clone(), port.get(), lines(*errors))))
            }
            OperatorKind::Map => Kind::Operator(Box::new(Map::new(self.called("map")?, info))),
            OperatorKind::FlatMap => Kind::Operator(Box::new(FlatMap::new(self.called("flat_map")?, info))),
            OperatorKind::Filter => Kind::Operator(Box::new(Filter::new(self.called("filter")?, info))),
            OperatorKind::MapAsync { capacity, timeout_ms, ordered, flat } => {
                let limits = Limits {
                    capacity: capacity.get() as usize,
                    timeout: timeout_ms.map(Duration::from_millis),
                    keeps_order: *ordered,
                };
                let threads = self.builder.threads().unwrap_or_default();
                let values = (self.builder.known_classes(), self.kept_values());
                Kind::Waiting(Box::new(MapAsync::new(self.own_object()?, *flat, limits, threads, values, info)))
            }
            OperatorKind::AssignTimestamps { watermarks, idle_after_ms, alignment, max_ahead_ms } => {
                let watermarks = SplitWatermarks::new(*watermarks, *idle_after_ms).with_max_ahead(*max_ahead_ms);
                let watermarks = watermarks.awaiting_splits(self.builder.task.has_splits());
                self.timestamps(if alignment.is_some() { watermarks.aligned() } else { watermarks })?
            }
            OperatorKind::Fold(fold) => self.folding(fold, None)?,
            OperatorKind::Window { fold, window } => self.folding(fold, Some(window))?,
            OperatorKind::Process { inputs } => {
                let (base, function) = (self.base(), self.own_object()?);
                Kind::Keyed(Box::new(Process::new(base, function, *inputs, self.range())))
            }
            OperatorKind::IntervalJoin { lower_ms, upper_ms, late_tags } => {
                let interval = Interval { lower_ms: *lower_ms, upper_ms: *upper_ms };
                Kind::Keyed(Box::new(IntervalJoin::new(self.pairs()?, interval, tags(late_tags), self.range())))
            }
            OperatorKind::AsOfJoin { keeps_unmatched, late_tags } => {
                let join = AsOfJoin::new(self.pairs()?, *keeps_unmatched, tags(late_tags), self.range());
                Kind::Keyed(Box::new(join))
            }
            OperatorKind::ProcessAll { inputs } => {
                let kept = self.kept_values();
                let values = (self.builder.known_classes(), kept);
                Kind::Operator(Box::new(ProcessAll::new(self.own_object()?, *inputs, info, values)))
            }
            OperatorKind::IterationHead { iteration } => {
                let reader = self.builder.feedback.reader(*iteration, self.builder.task.subtask);
                let decoded = FeedbackDecoder::new(self.builder.known_classes(), info);
                Kind::IterationEntry(Box::new(IterationHead::new(&self.operator.name, reader, decoded)))
            }
            OperatorKind::IterationTail { iteration, memory_bytes, disk_bytes } => {
                let limits = FeedbackLimits { memory_bytes: *memory_bytes, disk_bytes: *disk_bytes };
                let writer = self.builder.feedback.writer(*iteration, self.builder.task.subtask, limits);
                let has_function = self.operator.payload != Payload::None;
                let predicate = has_function.then(|| self.called("filter")).transpose()?;
                let until = UntilPredicate::new(predicate, self.builder.sent_classes(), info);
                Kind::IterationExit(Box::new(IterationTail::new(&self.operator.name, writer, until)))
            }
            OperatorKind::Print { prefix } => Kind::Operator(Box::new(Print::new(prefix.as_deref(), info))),
            OperatorKind::Collect => Kind::Operator(Box::new(CollectSink::new(self.function()?, info))),
            OperatorKind::WriteFiles { path, format, header } => {
                let makes_line = (*format != LineFormat::Text).then(|| self.function()).transpose()?;
                let lines = Lines::new(*format, makes_line, header.clone());
                Kind::Operator(Box::new(WriteFiles::new(path.to_path(), lines, info)))
            }
            OperatorKind::Sink => Kind::Operator(Box::new(CustomSink::new(self.own_object()?, info))),
            OperatorKind::Rows(RowsKind::ToRows { output }) => {
                Kind::Operator(Box::new(ToRows::new(flownet_rows::schema(output)?, info)))
            }
            OperatorKind::Rows(RowsKind::ToObjects { as_dicts, .. }) => {
                Kind::Operator(Box::new(ToObjects::new(*as_dicts, info)))
            }
            OperatorKind::Rows(kind) => {
                if let Some(kind) = flownet_rows::batch_by_batch(self.builder.task, kind, &info.to_rows())? {
                    return Ok(kind);
                }
                // Only the test harness builds this kind here.
                let message = format!(
                    "'{}' is of a stream of rows, which flownet.testing does not drive: run the job with \
                     env.execute(workers=0)",
                    kind.name()
                );
                return Err(TaskError::Config(message));
            }
            OperatorKind::Custom { name, .. } => {
                return Err(TaskError::Config(format!("operators of kind '{name}' do not run in Python")));
            }
        })
    }

    fn timestamps(&self, watermarks: SplitWatermarks) -> Result<Kind<PythonFormat>, TaskError> {
        let functions = self.functions()?;
        let assigner = match (functions.get("assigner")?, functions.get("field")?) {
            (Some(function), _) => Some(Assigner::Function(function)),
            (None, field) => field.map(|field| Assigner::of_field(field.bind(self.py))),
        };
        let info = self.info.clone();
        Ok(Kind::Timestamps(Box::new(Timestamps::new(assigner, functions.get("generator")?, watermarks, info))))
    }

    /// A fold, running or over windows, for any record format.
    fn folding(&self, fold: &Fold, window: Option<&WindowSpec>) -> Result<Kind<PythonFormat>, TaskError> {
        let functions = self.functions()?;
        let aggregate = |aggregation, field| Aggregate::new(aggregation, self.field(field));
        match fold {
            Fold::Collect => {
                let Some(window) = window else {
                    return Err(TaskError::Config("records are kept for windows alone".into()));
                };
                let results = self.results(&functions, Some(window))?;
                self.windows(Collect::new(self.base(), results, functions.evictor()?), window, &functions)
            }
            Fold::Pairs => {
                let Some(window) = window else {
                    return Err(TaskError::Config("pairs are made of windows alone".into()));
                };
                self.windows(self.pairs()?, window, &functions)
            }
            Fold::Reduce => self.folded(Reduce(functions.required("fold")?), window, &functions, false),
            Fold::Aggregate => {
                self.folded(OwnFunction::new(self.py, functions.required("fold")?), window, &functions, true)
            }
            Fold::Count => self.folded(Count, window, &functions, true),
            Fold::Sum { field } => self.folded(aggregate(Aggregation::Sum, field), window, &functions, true),
            Fold::Min { field } => self.folded(aggregate(Aggregation::Min, field), window, &functions, true),
            Fold::Max { field } => self.folded(aggregate(Aggregation::Max, field), window, &functions, true),
            Fold::Mean { field } => self.folded(Mean(self.field(field)), window, &functions, true),
            Fold::MinBy { field } => {
                self.folded(Extreme::new(Aggregation::Min, self.field(field)), window, &functions, true)
            }
            Fold::MaxBy { field } => {
                self.folded(Extreme::new(Aggregation::Max, self.field(field)), window, &functions, true)
            }
        }
    }

    /// Builds the operator of a fold. `with_key` applies to running results.
    fn folded<A: Accumulate + 'static>(
        &self,
        accumulate: A,
        window: Option<&WindowSpec>,
        functions: &Functions<'_>,
        with_key: bool,
    ) -> Result<Kind<PythonFormat>, TaskError> {
        match window {
            None => {
                let results = Results::new(with_key, false, None).telling(functions.told()?);
                let folding = FoldWithResults::new(self.base(), accumulate, results);
                Ok(Kind::Keyed(Box::new(RunningFold::new(folding, self.range()))))
            }
            Some(window) => {
                let results = self.results(functions, Some(window))?;
                self.windows(FoldWithResults::new(self.base(), accumulate, results), window, functions)
            }
        }
    }

    fn pairs(&self) -> Result<Pairs, TaskError> {
        Ok(Pairs::new(self.base(), self.functions()?.get("pair")?))
    }

    fn results(&self, functions: &Functions<'_>, window: Option<&WindowSpec>) -> Result<Results, TaskError> {
        let process = match (functions.get("process")?, functions.get("process_object")?) {
            (Some(function), _) => Some(OfWindow::Function(function)),
            (None, object) => object.map(|object| OfWindow::object(object, self.range())),
        };
        let (with_key, with_window) = window.map_or((true, false), |window| (window.with_key, window.with_window));
        Ok(Results::new(with_key, with_window, process).telling(functions.told()?))
    }

    fn windows<F: runtime::Fold<PythonFormat> + 'static>(
        &self,
        fold: F,
        window: &WindowSpec,
        functions: &Functions<'_>,
    ) -> Result<Kind<PythonFormat>, TaskError> {
        let calls = WindowCalls::new(self.base(), functions.get("gap")?, functions.get("trigger")?);
        Ok(Kind::Keyed(over_windows((fold, calls), window, self.range())?))
    }

    fn field(&self, field: &Option<Field>) -> FieldOf {
        FieldOf::new(field.as_ref().map(|field| match field {
            Field::Index(index) => PyInt::new(self.py, *index).into_any(),
            Field::Name(name) => PyString::new(self.py, name).into_any(),
        }))
    }

    /// The key groups of the subtask.
    fn range(&self) -> KeyGroupRange {
        let TaskSpec { subtask, parallelism, max_parallelism, .. } = *self.builder.task;
        KeyGroupRange::of(subtask, parallelism, max_parallelism.max(parallelism))
    }

    fn meter(&self) -> Meter {
        Meter::new(self.builder.sent_classes(), self.info.clone())
    }

    /// Encoder of the values that the operator stores.
    fn kept_values(&self) -> KeptValues {
        KeptValues::new(self.builder.sent_classes().kept_by(&self.operator.name))
    }

    fn base(&self) -> KeyedBase {
        let object_reuse = self.builder.task.object_reuse;
        let (classes, kept) = (self.builder.known_classes(), self.kept_values().into());
        KeyedBase { info: self.info.clone(), classes, object_reuse, kept }
    }

    /// The functions of an operator that may have several, by purpose.
    fn functions(&self) -> Result<Functions<'_>, TaskError> {
        let parallelism = self.builder.task.parallelism;
        let given = self.builder.objects.load_own(self.py, &self.operator.payload, parallelism);
        let given = given.map_err(|error| self.info.failed(self.py, &error, None))?;
        let wrong =
            |_| TaskError::Config(format!("operator kind '{}' needs its functions by name", self.info.operator));
        let by_name = given.map(|given| given.cast_into::<PyDict>()).transpose().map_err(wrong)?;
        Ok(Functions { by_name: by_name.map(Bound::unbind), py: self.py, info: self.info })
    }

    fn function(&self) -> Result<Py<PyAny>, TaskError> {
        let object = self.builder.objects.load(self.py, &self.operator.payload);
        self.loaded(object)
    }

    /// The callable for each record: the function, or this method of an object.
    fn called(&self, method: &str) -> Result<Function, TaskError> {
        let failed = |error: PyErr| self.info.failed(self.py, &error, None);
        let mut given = self.function()?.into_bound(self.py);
        if matches!(self.operator.payload, Payload::Local(_)) && is_told(&given).map_err(failed)? {
            given = self.own_object()?.into_bound(self.py);
        }
        Function::of(given, method).map_err(failed)
    }

    /// The object of an operator that stores state in it. Subtasks must not share it.
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

/// Users' functions of one operator.
struct Functions<'a> {
    by_name: Option<Py<PyDict>>,
    py: Python<'a>,
    info: &'a OperatorInfo,
}

impl Functions<'_> {
    fn get(&self, name: &str) -> Result<Option<Py<PyAny>>, TaskError> {
        let Some(by_name) = &self.by_name else { return Ok(None) };
        let found = by_name.bind(self.py).get_item(name).map_err(|error| self.info.failed(self.py, &error, None))?;
        Ok(found.map(Bound::unbind))
    }

    /// Objects with `open` and `close` methods.
    fn told(&self) -> Result<Vec<Py<PyAny>>, TaskError> {
        let Some(told) = self.get("told")? else { return Ok(Vec::new()) };
        told.extract(self.py).map_err(|error| self.info.failed(self.py, &error, None))
    }

    fn evictor(&self) -> Result<Option<Evictor>, TaskError> {
        let evictor = self.get("evictor")?.map(|evictor| Evictor::new(self.py, evictor)).transpose();
        evictor.map_err(|error| self.info.failed(self.py, &error, None))
    }

    fn required(&self, name: &str) -> Result<Py<PyAny>, TaskError> {
        let missing = || TaskError::Config(format!("operator '{}' has no function to {name}", self.info.operator));
        self.get(name)?.ok_or_else(missing)
    }
}

/// Names of a process function's methods, by its inputs.
fn tags(names: &[Option<String>; 2]) -> [Option<Arc<str>>; 2] {
    names.each_ref().map(|name| name.as_deref().map(Arc::from))
}

fn unknown_operator(id: u32) -> TaskError {
    TaskError::Config(format!("the task has no operator {id}"))
}
