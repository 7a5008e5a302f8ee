//! Merges partial aggregates downstream of the exchange, if some aggregates are user aggregates.
//!
//! The state of a key is shared with the pending work of this fold: results to compute, and groups with too many
//! states. So both are done for all keys of a batch at once, without a second lookup of the key.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::{ArrayRef, RecordBatch};
use flownet_runtime::TaskError;
use flownet_runtime::operator::{Fold, KeyedRecord};
use flownet_runtime::snapshot::{Input, Snapshot, put_block};
use flownet_runtime::time::NO_TIMESTAMP;
use flownet_runtime::window::Window;

use super::cells::each_row;
use super::kept::{GatheredGroups, GroupRows};
use super::{MANY_STATES, OwnAggregation, OwnFunctions, RowGroups};
use crate::aggregate::cell::{put_rows, take_rows};
use crate::aggregate::columns::Aggregations;
use crate::aggregate::fold::{AggregateFold, Value};
use crate::batch::RowBatch;
use crate::record_format::{Collector, OperatorInfo, RowRecord, RowsFormat};
use crate::row_block::MalformedRun;

/// Merges partial aggregates with state of user aggregates.
pub(crate) struct UserAggregateFold {
    /// Fold of the built-in aggregates. It also handles keys, windows and times.
    built_in: AggregateFold,
    aggregations: Aggregations,
    functions: Box<dyn OwnFunctions>,
    /// Groups whose results are pending, by aggregate.
    waiting: Vec<Vec<PendingResult>>,
    /// Groups with too many states, by aggregate.
    many: RefCell<Vec<Vec<SharedState>>>,
    info: OperatorInfo,
}

/// State of a key and window: the value of a partial aggregate, split up. Empty before the first.
#[derive(Default)]
pub(crate) struct OwnValue {
    built_in: Value,
    own: Vec<SharedState>,
}

type SharedState = Arc<Mutex<ListedState>>;

/// State of a user aggregate, and whether it is listed for merging.
#[derive(Default)]
struct ListedState {
    kept: GroupRows,
    is_listed: bool,
}

impl ListedState {
    fn shared(kept: GroupRows) -> SharedState {
        Arc::new(Mutex::new(Self { kept, is_listed: false }))
    }
}

/// State of a group at the time when its result was requested.
struct PendingResult {
    of: SharedState,
    rows: u64,
    bytes: usize,
}

fn lock(shared: &SharedState) -> MutexGuard<'_, ListedState> {
    // The state is consistent between any two statements, so a poisoned lock is usable.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl UserAggregateFold {
    /// Creates the fold, beside that of the built-in aggregates.
    pub(crate) fn new(
        built_in: AggregateFold,
        aggregations: Aggregations,
        functions: Box<dyn OwnFunctions>,
        info: OperatorInfo,
    ) -> Self {
        let own = aggregations.own.len();
        let many = RefCell::new((0..own).map(|_| Vec::new()).collect());
        let waiting = (0..own).map(|_| Vec::new()).collect();
        Self { built_in, aggregations, functions, waiting, many, info }
    }

    /// Splits the value of a partial aggregate into built-in and user state. Returns none if the bytes are malformed.
    fn apart(&self, mut bytes: &[u8]) -> Option<(Value, Vec<GroupRows>)> {
        let rows = take_rows(&mut bytes)?;
        let own = self.aggregations.own.iter().map(|_| GroupRows::take(&mut bytes)).collect::<Option<Vec<_>>>()?;
        let mut first = Vec::with_capacity(bytes.len() + 1);
        put_rows(&mut first, rows);
        first.extend_from_slice(bytes);
        Some((Value::from_vec(first), own))
    }

    pub(super) fn add(&self, value: &mut OwnValue, later: &[u8]) -> bool {
        let Some((built_in, own)) = self.apart(later) else { return false };
        if !self.built_in.add(&mut value.built_in, &built_in) {
            return false;
        }
        if value.own.is_empty() {
            value.own.extend(own.into_iter().map(ListedState::shared));
            return true;
        }
        for ((place, shared), later) in value.own.iter().enumerate().zip(&own) {
            let mut listed = lock(shared);
            listed.kept.extend(later);
            let is_many = self.aggregations.own[place].merges && listed.kept.rows() >= MANY_STATES;
            if is_many && !std::mem::replace(&mut listed.is_listed, true) {
                self.many.borrow_mut()[place].push(Arc::clone(shared));
            }
        }
        true
    }

    pub(super) fn append(
        &mut self,
        window: Option<Window>,
        key: &[u8],
        value: &OwnValue,
        time_ms: i64,
    ) -> Result<(), TaskError> {
        self.built_in.append(window, key, &value.built_in, time_ms)?;
        for (waiting, shared) in self.waiting.iter_mut().zip(&value.own) {
            let listed = lock(shared);
            let (rows, bytes) = (listed.kept.rows(), listed.kept.bytes());
            self.built_in.add_bytes(bytes);
            waiting.push(PendingResult { of: Arc::clone(shared), rows, bytes });
        }
        Ok(())
    }

    fn give_if_full(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        if self.built_in.is_full() { self.give(collector) } else { Ok(()) }
    }

    fn give(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let batch = self.take()?;
        collector.emit(RowRecord::Batch(batch))
    }

    /// Returns the pending results.
    pub(super) fn take(&mut self) -> Result<RowBatch, TaskError> {
        let own = self.results()?;
        let aggregations = &self.aggregations;
        let batch = self.built_in.take_with(|built_in| aggregations.in_order(built_in, own));
        batch.map_err(|error| TaskError::Config(error.to_string()))
    }

    /// Computes the pending results, one column per user aggregate.
    fn results(&mut self) -> Result<Vec<ArrayRef>, TaskError> {
        let Self { aggregations, functions, waiting, info, .. } = self;
        let malformed = |error: MalformedRun| info.malformed(&error);
        let mut gathered = Vec::with_capacity(waiting.len());
        for (aggregation, waiting) in aggregations.own.iter().zip(&*waiting) {
            let mut groups = GatheredGroups::new(&aggregation.layout);
            for PendingResult { of, bytes, .. } in waiting {
                groups.add(&lock(of).kept, *bytes).map_err(malformed)?;
            }
            gathered.push((groups.are_single(), groups.take().map_err(malformed)?));
        }
        let mut results = Vec::with_capacity(gathered.len());
        let mut gathered = gathered.into_iter();
        functions.attached(&mut || {
            let of_each = aggregations.own.iter().zip(&mut *waiting).zip(&mut gathered);
            for ((aggregation, waiting), (are_single, (rows, groups))) in of_each {
                let states = states(&**functions, aggregation, are_single, (rows, groups))?;
                if aggregation.merges && !are_single {
                    keep_merged(aggregation, waiting, &states);
                }
                waiting.clear();
                results.push(functions.result(aggregation, states)?);
            }
            Ok(())
        })?;
        Ok(results)
    }

    /// Merges the states of all groups that have many and still exist.
    pub(super) fn merge_many(&mut self) -> Result<(), TaskError> {
        let Self { aggregations, functions, info, many, .. } = self;
        let malformed = |error: MalformedRun| info.malformed(&error);
        let mut gathered = Vec::new();
        for (aggregation, many) in aggregations.own.iter().zip(many.get_mut()) {
            let mut groups = GatheredGroups::new(&aggregation.layout);
            let mut of_groups = Vec::new();
            for shared in many.drain(..) {
                let mut listed = lock(&shared);
                listed.is_listed = false;
                if listed.kept.rows() > 1 && Arc::strong_count(&shared) > 1 {
                    groups.add(&listed.kept, listed.kept.bytes()).map_err(malformed)?;
                    let (rows, bytes) = (listed.kept.rows(), listed.kept.bytes());
                    drop(listed);
                    of_groups.push(PendingResult { of: shared, rows, bytes });
                }
            }
            if !groups.is_empty() {
                gathered.push((aggregation, of_groups, groups.take().map_err(malformed)?));
            }
        }
        if gathered.is_empty() {
            return Ok(());
        }
        let mut gathered = gathered.into_iter();
        functions.attached(&mut || {
            for (aggregation, of_groups, (states, groups)) in &mut gathered {
                keep_merged(aggregation, &of_groups, &functions.merge(aggregation, states, groups)?);
            }
            Ok(())
        })
    }

    #[cold]
    fn malformed(&self) -> TaskError {
        self.built_in.malformed("part of an aggregate")
    }
}

/// Encodes a value as a partial aggregate has it. Empty before the first.
pub(super) fn whole(value: &OwnValue) -> Vec<u8> {
    let (mut whole, mut built_in) = (Vec::new(), &value.built_in[..]);
    if let Some(rows) = take_rows(&mut built_in) {
        put_rows(&mut whole, rows);
        value.own.iter().for_each(|shared| lock(shared).kept.write(&mut whole));
        whole.extend_from_slice(built_in);
    }
    whole
}

/// Returns one state per group of the stored rows.
fn states(
    functions: &dyn OwnFunctions,
    aggregation: &OwnAggregation,
    are_single: bool,
    (rows, groups): (RecordBatch, RowGroups),
) -> Result<RecordBatch, TaskError> {
    match aggregation.merges {
        true if are_single => Ok(rows),
        true => functions.merge(aggregation, rows, groups),
        false => functions.accumulate(aggregation, rows, groups),
    }
}

/// Replaces the states of each group with the merged one, if the group still exists.
fn keep_merged(aggregation: &OwnAggregation, merged: &[PendingResult], states: &RecordBatch) {
    let mut runs = Vec::with_capacity(merged.len());
    each_row(aggregation, states, |_, run| runs.push(run.to_vec()));
    let mut seen = HashSet::new();
    // If a group occurs twice, the later entry includes all rows of the earlier one.
    for (PendingResult { of, rows, bytes }, run) in merged.iter().zip(&runs).rev() {
        if seen.insert(Arc::as_ptr(of)) && *rows > 1 {
            lock(of).kept.replace((*rows, *bytes), run);
        }
    }
}

impl Fold<RowsFormat> for UserAggregateFold {
    type Value = OwnValue;

    #[inline]
    fn absorb(&self, record: &KeyedRecord<'_>, value: &mut OwnValue) -> bool {
        self.built_in.part(record).is_some_and(|part| self.add(value, part))
    }

    fn fold(&self, (): (), record: &KeyedRecord<'_>, value: &mut OwnValue) -> Result<(), TaskError> {
        if self.absorb(record, value) { Ok(()) } else { Err(self.malformed()) }
    }

    fn merge(&self, (): (), value: &mut OwnValue, later: &OwnValue) -> Result<(), TaskError> {
        if later.own.is_empty() {
            return Ok(());
        }
        self.built_in.merge((), &mut value.built_in, &later.built_in)?;
        // Values merged from slices are emitted and dropped, so their states need not be listed for merging.
        if value.own.is_empty() {
            value.own.extend(later.own.iter().map(|shared| ListedState::shared(lock(shared).kept.clone())));
        } else {
            value.own.iter().zip(&later.own).for_each(|(shared, later)| lock(shared).kept.extend(&lock(later).kept));
        }
        Ok(())
    }

    fn has_records(&self, value: &OwnValue) -> bool {
        !value.built_in.is_empty()
    }

    fn emit(
        &mut self,
        window: Window,
        key: &[u8],
        value: &mut OwnValue,
        collector: &mut Collector<'_, '_>,
    ) -> Result<(), TaskError> {
        self.append(Some(window), key, value, window.max_ms())?;
        self.give_if_full(collector)
    }

    fn emit_so_far(
        &mut self,
        key: &[u8],
        value: &OwnValue,
        collector: &mut Collector<'_, '_>,
    ) -> Result<(), TaskError> {
        self.append(None, key, value, NO_TIMESTAMP)?;
        self.give_if_full(collector)
    }

    fn hand_on(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        if !self.built_in.is_empty() {
            self.give(collector)?;
        }
        self.merge_many()
    }

    fn write(&self, (): (), _: &[u8], value: &OwnValue, out: &mut Vec<u8>) -> Result<(), TaskError> {
        put_block(out, &whole(value));
        Ok(())
    }

    fn read(&self, (): (), input: &mut Input<'_>) -> Result<OwnValue, TaskError> {
        let (mut value, whole) = (OwnValue::default(), input.block()?);
        if whole.is_empty() || self.add(&mut value, whole) { Ok(value) } else { Err(self.malformed()) }
    }

    fn pass(&self, (): (), input: &mut Input<'_>) -> Result<(), TaskError> {
        input.block().map(drop)
    }

    /// Holds no state beside the values: pending results were emitted at the end of their batch.
    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }

    fn count(&self, record: &KeyedRecord<'_>) -> u64 {
        self.built_in.count(record)
    }

    fn span_ms(&self, record: &KeyedRecord<'_>) -> i64 {
        self.built_in.span_ms(record)
    }

    fn is_apart(&self, record: &KeyedRecord<'_>) -> bool {
        self.built_in.is_apart(record)
    }

    fn record<'m>(&self, record: &KeyedRecord<'_>, collector: &Collector<'_, 'm>) -> Result<RowRecord, TaskError> {
        self.built_in.record(record, collector)
    }

    fn without_timestamp(&self, (): (), record: &KeyedRecord<'_>) -> TaskError {
        self.built_in.without_timestamp((), record)
    }
}
