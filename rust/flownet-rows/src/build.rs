//! Builds the chain of a task from its description. The embedding crate provides operators of another language.

use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use flownet_runtime::TaskError;
use flownet_runtime::operator::{
    AsOfJoin, Entry, Fold, Interval, IntervalJoin, KeyedOperator, Kind, Link, Links, OperatorChain, OutputEdge,
    RecordPacer, RegularJoin, RunningFold, Stage, Target, over_windows, over_windows_of_two,
};
use flownet_runtime::source::RateLimit;
use flownet_runtime::spec::{
    InputSpec, OperatorKind, OperatorSpec, RowsJoin, RowsKind, RowsLate, TaskSpec, WindowSpec,
};
use flownet_runtime::state::KeyGroupRange;
use flownet_runtime::time::Clock;
use flownet_runtime::watermark::SplitWatermarks;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::aggregate::{
    AggregateColumn, AggregateFold, Aggregations, NoCalls, OwnFunctions, Partial, UserAggregateFold,
};
use crate::calc::{BoundSteps, Calc, Step};
use crate::join::{PairColumns, RowPairs};
use crate::keyed::{Deduplicate, DeduplicateByTime, KeyRows, TopN};
use crate::layout::Layout;
use crate::record_format::{CarriesRows, OperatorInfo, RowsChain, RowsFormat, TaskThread};
use crate::serializer::RowsSerializer;
use crate::timestamps::Timestamps;

/// Makes external operators: sources, functions and sinks of users in another language.
pub trait ExternalOperators {
    /// Returns the operator of this kind.
    fn stage(
        &self,
        operator: &OperatorSpec,
        kind: &RowsKind,
        info: &OperatorInfo,
    ) -> Result<Kind<RowsFormat>, TaskError>;

    /// Returns the functions of the operator's user aggregates.
    fn own_functions(&self, operator: &OperatorSpec, info: &OperatorInfo) -> Result<Box<dyn OwnFunctions>, TaskError>;

    /// Returns the setup of the task's thread, if the task has an external operator. None if the thread is set up
    /// already.
    fn thread(&self) -> Option<Box<dyn TaskThread>>;
}

/// Returns true if the task works on rows.
pub fn is_of_rows(task: &TaskSpec) -> bool {
    task.operators.first().is_some_and(|head| !head.kind.takes_objects())
}

/// Builds the chain of a task of rows.
pub fn chain(task: &TaskSpec, foreign: &dyn ExternalOperators) -> Result<RowsChain, TaskError> {
    let mut stages = Vec::with_capacity(task.operators.len());
    let mut is_foreign = false;
    for (at, operator) in task.operators.iter().enumerate() {
        let kind = of_rows(operator)?;
        let info = info(task, &operator.name);
        let mut own_functions = || {
            is_foreign = true;
            foreign.own_functions(operator, &info)
        };
        let stage = match native(task, kind, &info, &mut own_functions)? {
            Some(kind) => kind,
            None => {
                is_foreign = true;
                foreign.stage(operator, kind, &info)?
            }
        };
        let brake = operator.brake.map(|rate| RecordPacer::new(rate / f64::from(task.parallelism))).transpose()?;
        stages.push(Stage::new(info, stage, links(task, at, operator)?, brake).with_state_of(operator.state_uid()));
    }
    let exits = task.outputs.iter().enumerate().map(|(output, spec)| {
        let from = task.operators.iter().find(|operator| operator.id == spec.from_operator);
        let from = from.ok_or_else(|| TaskError::Config(format!("the task has no operator {}", spec.from_operator)))?;
        let leaving = OutputEdge::new(RowsSerializer::new(output, info(task, &from.name)), output, spec.timestamps);
        Ok(leaving.telling_splits(spec.splits))
    });
    let exits = exits.collect::<Result<_, TaskError>>()?;
    let entry = |input: &InputSpec| Entry { side: input.side, keyed: input.is_keyed(), stamps: input.timestamps };
    let arriving = arriving(task)?;
    let medium = RowsFormat::new(arriving.as_ref(), is_foreign.then(|| foreign.thread()).flatten())?;
    let medium = medium.with_bundles(takes_bundles(task)?);
    OperatorChain::new(medium, stages, exits, task.inputs.iter().map(entry).collect(), rate_limit(task))
}

fn of_rows(operator: &OperatorSpec) -> Result<&RowsKind, TaskError> {
    match &operator.kind {
        OperatorKind::Rows(kind) => Ok(kind),
        kind => Err(TaskError::Config(format!("operator kind '{}' takes no rows", kind.name()))),
    }
}

fn info(task: &TaskSpec, operator: &str) -> OperatorInfo {
    OperatorInfo { operator: operator.to_owned(), subtask: task.subtask, parallelism: task.parallelism }
}

/// Returns the layout of the rows that the task receives. None if it receives records by key, or nothing.
fn arriving(task: &TaskSpec) -> Result<Option<Layout>, TaskError> {
    let Some(head) = task.operators.first().filter(|_| !task.inputs.is_empty()) else { return Ok(None) };
    let input = match of_rows(head)? {
        RowsKind::Project { input, .. }
        | RowsKind::MapBatches { input, .. }
        | RowsKind::AssignTimestamps { input, .. }
        | RowsKind::Partial { input, .. }
        | RowsKind::KeyRows { input, .. }
        | RowsKind::Collect { input }
        | RowsKind::WriteFiles { input, .. }
        | RowsKind::Sink { input, .. } => input,
        RowsKind::FromArrow { .. }
        | RowsKind::ReadFiles { .. }
        | RowsKind::Aggregate { .. }
        | RowsKind::Join { .. }
        | RowsKind::Deduplicate { .. }
        | RowsKind::TopN { .. }
        | RowsKind::ToObjects { .. }
        | RowsKind::ToRows { .. } => return Ok(None),
    };
    let layout = Layout::new(schema(input)?).map_err(|error| TaskError::Config(error.to_string()))?;
    Ok(Some(layout))
}

/// Returns true if the head of the task takes mini-batches: rows of one key as one record.
fn takes_bundles(task: &TaskSpec) -> Result<bool, TaskError> {
    let Some(head) = task.operators.first() else { return Ok(false) };
    Ok(matches!(of_rows(head)?, RowsKind::Join { by: RowsJoin::Interval { .. }, .. }))
}

/// Reads a schema from the plan.
pub fn schema(planned: &Value) -> Result<SchemaRef, TaskError> {
    read::<Schema>(planned).map(Arc::new)
}

fn read<T: DeserializeOwned>(planned: &Value) -> Result<T, TaskError> {
    T::deserialize(planned).map_err(|error| TaskError::Config(format!("a plan of rows that cannot be read: {error}")))
}

/// Returns the operator of this kind if it needs only one batch at a time. Such operators run in a chain of any record
/// format that carries rows.
pub fn batch_by_batch<M: CarriesRows>(
    task: &TaskSpec,
    kind: &RowsKind,
    info: &OperatorInfo,
) -> Result<Option<Kind<M>>, TaskError> {
    let info = info.clone();
    Ok(Some(match kind {
        RowsKind::Project { input, steps } => {
            let steps = BoundSteps::new(&read::<Vec<Step>>(steps)?, schema(input)?);
            let steps = steps.map_err(|error| TaskError::Config(error.to_string()))?;
            Kind::Operator(Box::new(Calc::new(steps, info)))
        }
        RowsKind::AssignTimestamps { input, column, watermarks, idle_after_ms, max_ahead_ms } => {
            let watermarks = SplitWatermarks::new(*watermarks, *idle_after_ms).with_max_ahead(*max_ahead_ms);
            let watermarks = watermarks.awaiting_splits(task.has_splits());
            Kind::Timestamps(Box::new(Timestamps::new(&*schema(input)?, column, watermarks, info)?))
        }
        _ => return Ok(None),
    }))
}

/// Returns the operator of this kind, or none if it is external.
fn native(
    task: &TaskSpec,
    kind: &RowsKind,
    info: &OperatorInfo,
    own_functions: &mut dyn FnMut() -> Result<Box<dyn OwnFunctions>, TaskError>,
) -> Result<Option<Kind<RowsFormat>>, TaskError> {
    let info = info.clone();
    if let Some(operator) = batch_by_batch(task, kind, &info)? {
        return Ok(Some(operator));
    }
    Ok(Some(match kind {
        RowsKind::FromArrow { .. }
        | RowsKind::ReadFiles { .. }
        | RowsKind::MapBatches { .. }
        | RowsKind::Project { .. }
        | RowsKind::AssignTimestamps { .. }
        | RowsKind::ToObjects { .. }
        | RowsKind::ToRows { .. }
        | RowsKind::Collect { .. }
        | RowsKind::WriteFiles { .. }
        | RowsKind::Sink { .. } => return Ok(None),
        RowsKind::Partial { input, keys, aggregates, window, .. } => {
            let aggregates = read::<Vec<AggregateColumn>>(aggregates)?;
            let functions = aggregates.iter().any(AggregateColumn::is_own).then(own_functions).transpose()?;
            let functions = (&*aggregates, functions);
            Kind::Operator(Box::new(Partial::new(&*schema(input)?, keys, functions, window.as_ref(), info)?))
        }
        RowsKind::Aggregate { input, keys, aggregates, window, .. } => {
            let (columns, input) = (read::<Vec<AggregateColumn>>(aggregates)?, schema(input)?);
            let aggregations = Aggregations::new(&columns, &input);
            let aggregations = aggregations.map_err(|error| TaskError::Config(error.to_string()))?;
            let fold = AggregateFold::new((&*input, keys), &aggregations, window.as_ref(), info.clone())?;
            Kind::Keyed(if columns.iter().any(AggregateColumn::is_own) {
                aggregate(task, UserAggregateFold::new(fold, aggregations, own_functions()?, info), window.as_ref())?
            } else {
                aggregate(task, fold, window.as_ref())?
            })
        }
        RowsKind::KeyRows { input, keys, carried, output, keeps_null_keys, rank, bundles } => {
            let (input, carried) = (schema(input)?, (&**carried, schema(output)?));
            let rank = (rank.as_ref(), *bundles);
            Kind::Operator(Box::new(KeyRows::new((&input, keys), carried, *keeps_null_keys, rank, info)?))
        }
        RowsKind::Deduplicate { input, ttl_ms, clock, .. } => {
            let ttl_ms = ttl_ms.map(|ttl_ms| i64::try_from(ttl_ms).unwrap_or(i64::MAX));
            Kind::Keyed(match (ttl_ms, clock) {
                (Some(ttl_ms), Clock::Event) => {
                    Box::new(DeduplicateByTime::new(schema(input)?, ttl_ms, key_groups(task), info)?)
                }
                _ => Box::new(Deduplicate::new(schema(input)?, ttl_ms, key_groups(task), info)?),
            })
        }
        RowsKind::TopN { input, rank, .. } => {
            let top_n = TopN::new(schema(input)?, rank, info)?;
            Kind::Keyed(over_windows((top_n, NoCalls), &rank.window, key_groups(task))?)
        }
        RowsKind::Join { left, right, shown, output, by, late, .. } => {
            let may_miss = matches!(by, RowsJoin::AsOf { keeps_unmatched: true });
            let of_late = |late: &Option<RowsLate>| late.as_ref().map(|late| schema(&late.schema)).transpose();
            let columns = PairColumns {
                sides: [schema(left)?, schema(right)?],
                shown,
                pairs: schema(output)?,
                late: [of_late(&late[0])?, of_late(&late[1])?],
            };
            let late_tags = late.each_ref().map(|late| late.as_ref().map(|late| Arc::from(&*late.tag)));
            Kind::Keyed(join(task, RowPairs::new(columns, may_miss, info)?, by, late_tags)?)
        }
    }))
}

fn join(
    task: &TaskSpec,
    pairs: RowPairs,
    by: &RowsJoin,
    late_tags: [Option<Arc<str>>; 2],
) -> Result<Box<dyn KeyedOperator<RowsFormat>>, TaskError> {
    let range = key_groups(task);
    Ok(match by {
        RowsJoin::Regular {} => Box::new(RegularJoin::new(pairs, range)),
        RowsJoin::Interval { lower_ms, upper_ms } => {
            let interval = Interval { lower_ms: *lower_ms, upper_ms: *upper_ms };
            Box::new(IntervalJoin::new(pairs, interval, late_tags, range))
        }
        RowsJoin::AsOf { keeps_unmatched } => Box::new(AsOfJoin::new(pairs, *keeps_unmatched, late_tags, range)),
        RowsJoin::Window { window } => over_windows_of_two((pairs, NoCalls), window, late_tags, range)?,
    })
}

fn key_groups(task: &TaskSpec) -> KeyGroupRange {
    let TaskSpec { subtask, parallelism, max_parallelism, .. } = *task;
    KeyGroupRange::of(subtask, parallelism, max_parallelism.max(parallelism))
}

fn aggregate<F: Fold<RowsFormat> + 'static>(
    task: &TaskSpec,
    fold: F,
    window: Option<&WindowSpec>,
) -> Result<Box<dyn KeyedOperator<RowsFormat>>, TaskError> {
    let range = key_groups(task);
    match window {
        None => Ok(Box::new(RunningFold::new(fold, range))),
        Some(window) => over_windows((fold, NoCalls), window, range),
    }
}

/// Returns the links of an operator: stages of the chain first, in order, then the outputs.
fn links(task: &TaskSpec, at: usize, operator: &OperatorSpec) -> Result<Links, TaskError> {
    let mut links = Links::default();
    for (below, other) in task.operators.iter().enumerate() {
        let Some(upstream) = other.upstream.as_ref().filter(|upstream| upstream.operator == operator.id) else {
            continue;
        };
        if below <= at {
            return Err(TaskError::Config(format!("operator '{}' comes before its input", other.name)));
        }
        links.add(upstream.tag.as_deref(), Link::new(Target::Stage(below), false));
    }
    for (exit, output) in task.outputs.iter().enumerate().filter(|(_, output)| output.from_operator == operator.id) {
        links.add(output.tag.as_deref(), Link::new(Target::Exit(exit), false));
    }
    Ok(links)
}

/// Returns the share of this subtask in the rate limit of the source that heads the chain.
fn rate_limit(task: &TaskSpec) -> Option<RateLimit> {
    let RateLimit { per_second, unit } = task.operators.first()?.rate_limit?;
    Some(RateLimit { per_second: per_second / f64::from(task.parallelism), unit })
}
