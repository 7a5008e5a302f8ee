//! Merges partial aggregates downstream of the exchange, for windows, sessions and running aggregates.

use std::cell::RefCell;
use std::sync::Arc;

use arrow_array::builder::TimestampMillisecondBuilder;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use flownet_runtime::TaskContext;
use flownet_runtime::TaskError;
use flownet_runtime::operator::{Calls, Fold, InspectedState, KeyedRecord, TriggerCall, TriggeredWindow};
use flownet_runtime::snapshot::{Input, Snapshot, put_block};
use flownet_runtime::spec::WindowSpec;
use flownet_runtime::time::{ExactTime, NO_TIMESTAMP};
use flownet_runtime::window::{TriggerResult, Window};
use smallvec::SmallVec;

use super::cell::{NoResult, put_rows, take_rows};
use super::columns::Aggregations;
use super::function::{Aggregation, AggregationError};
use super::key::KeyBuilder;
use super::{output_schema, span, whole, window_zone};
use crate::batch::RowBatch;
use crate::event_time::RowTimes;
use crate::gathered_rows::time_of_result;
use crate::layout::Layout;
use crate::physical_type::ColumnBuilder;
use crate::record_format::{BATCH_ROWS, Collector, OperatorInfo, RowRecord, RowsFormat};

/// Merges partial aggregates. A value is that of a partial aggregate: the number of rows, and a cell per aggregate.
pub(crate) struct AggregateFold {
    aggregates: Arc<[Aggregation]>,
    schema: SchemaRef,
    results: Results,
    /// Layout of late rows.
    layout: Arc<Layout>,
    /// Buffer for a merged value. Reused, to save allocations.
    merged: RefCell<Vec<u8>>,
    info: OperatorInfo,
}

/// Value of a partial aggregate; empty before the first. Short values, such as a few numbers, are stored inline.
/// Finding one then touches no memory beyond that of its key.
pub(crate) type Value = SmallVec<[u8; SHORT_BYTES]>;

const SHORT_BYTES: usize = 24;

/// Results that wait to be emitted.
struct Results {
    keys: KeyBuilder,
    /// Start and end of the windows, if there are windows.
    windows: Option<[TimestampMillisecondBuilder; 2]>,
    values: Vec<ColumnBuilder>,
    times: RowTimes,
    /// Total size of the values of the results in bytes.
    bytes: usize,
}

/// Limit of pending results in bytes. Results with lists may reach it.
const MOST_BYTES: usize = 4 << 20;

impl AggregateFold {
    /// Creates the fold for rows of this schema and the built-in aggregates among `aggregations`. Columns of other
    /// aggregates may be added to its results.
    pub(crate) fn new(
        (input, keys): (&Schema, &[String]),
        aggregations: &Aggregations,
        window: Option<&WindowSpec>,
        info: OperatorInfo,
    ) -> Result<Self, TaskError> {
        let zone = window.and_then(window_zone);
        let refused = |error: AggregationError| TaskError::Config(error.to_string());
        let aggregates = Arc::clone(&aggregations.built_in);
        let schema = output_schema(input, keys, aggregations, zone).map_err(refused)?;
        let results = Results {
            keys: KeyBuilder::new(input, keys).map_err(|error| refused(error.into()))?,
            windows: zone.map(|zone| [window_builder(zone), window_builder(zone)]),
            values: aggregates.iter().map(|aggregate| ColumnBuilder::new(aggregate.field().data_type())).collect(),
            times: RowTimes::default(),
            bytes: 0,
        };
        let layout = Layout::new(Arc::new(input.clone())).map_err(|error| TaskError::Config(error.to_string()))?;
        let layout = Arc::new(layout);
        Ok(Self { aggregates, schema, results, layout, merged: RefCell::default(), info })
    }

    /// Merges `later` into `value`. Returns false, and leaves `value` unchanged, if the bytes are malformed.
    pub(super) fn add(&self, value: &mut Value, later: &[u8]) -> bool {
        if value.is_empty() {
            value.extend_from_slice(later);
            return true;
        }
        // Merges into a buffer, so that malformed bytes leave `value` unchanged.
        let mut merged = self.merged.borrow_mut();
        merged.clear();
        let is_added = self.merge_into(&mut merged, value, later).is_some();
        if is_added {
            value.clear();
            value.extend_from_slice(&merged);
        }
        is_added
    }

    /// Returns the partial aggregate of a record, or none if the record is malformed.
    #[inline]
    pub(super) fn part<'a>(&self, record: &KeyedRecord<'a>) -> Option<&'a [u8]> {
        span::split(record.value()).and_then(|(_, part)| whole::part(part))
    }

    fn merge_into(&self, out: &mut Vec<u8>, mut one: &[u8], mut later: &[u8]) -> Option<()> {
        put_rows(out, take_rows(&mut one)?.saturating_add(take_rows(&mut later)?));
        for aggregate in &*self.aggregates {
            aggregate.one().merge(&mut one, &mut later, out)?;
        }
        (one.is_empty() && later.is_empty()).then_some(())
    }

    #[cold]
    pub(super) fn malformed(&self, what: &str) -> TaskError {
        self.info.failed("flownet.errors.CodecError", format!("a {what} that no flownet sender writes"), None)
    }

    /// Adds a pending result.
    pub(super) fn append(
        &mut self,
        window: Option<Window>,
        key: &[u8],
        mut value: &[u8],
        time_ms: i64,
    ) -> Result<(), TaskError> {
        let Self { aggregates, results, .. } = self;
        results.bytes += value.len();
        if results.keys.push(key).is_none() || take_rows(&mut value).is_none() {
            return Err(self.malformed("key"));
        }
        if let (Some([starts, ends]), Some(window)) = (&mut results.windows, window) {
            starts.append_value(window.start_ms);
            ends.append_value(window.end_ms);
        }
        for (aggregate, column) in aggregates.iter().zip(&mut results.values) {
            match aggregate.one().finish(&mut value, &mut |scalar| column.push(scalar)) {
                Ok(()) => {}
                Err(NoResult::Malformed) => return Err(self.malformed("part of an aggregate")),
                Err(NoResult::Overflow(sum)) => {
                    let message = aggregate.overflow(sum, &results.keys.shown(key));
                    return Err(self.info.failed("OverflowError", message, None));
                }
            }
        }
        results.times.push(ExactTime::of_ms(time_of_result(time_ms)));
        Ok(())
    }

    /// Adds to the size of the pending results.
    pub(super) fn add_bytes(&mut self, bytes: usize) {
        self.results.bytes += bytes;
    }

    /// Returns true if enough results are pending for a batch.
    pub(super) fn is_full(&self) -> bool {
        self.results.times.len() >= BATCH_ROWS || self.results.bytes >= MOST_BYTES
    }

    /// Returns true if no result is pending.
    pub(super) fn is_empty(&self) -> bool {
        self.results.times.is_empty()
    }

    /// Returns the pending results. `columns` receives the columns of built-in aggregates and returns those of the
    /// result.
    pub(super) fn take_with(
        &mut self,
        columns: impl FnOnce(Vec<ArrayRef>) -> Vec<ArrayRef>,
    ) -> Result<RowBatch, ArrowError> {
        self.results.take(&self.schema, columns)
    }

    fn give_if_full(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        if self.is_full() { self.give(collector) } else { Ok(()) }
    }

    fn give(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let batch = self.take_with(|columns| columns).map_err(|error| TaskError::Config(error.to_string()))?;
        collector.emit(RowRecord::Batch(batch))
    }
}

fn window_builder(zone: &str) -> TimestampMillisecondBuilder {
    TimestampMillisecondBuilder::new().with_timezone(zone)
}

impl Results {
    fn take(
        &mut self,
        schema: &SchemaRef,
        made: impl FnOnce(Vec<ArrayRef>) -> Vec<ArrayRef>,
    ) -> Result<RowBatch, ArrowError> {
        let mut columns = self.keys.take()?;
        if let Some(windows) = &mut self.windows {
            columns.extend(windows.iter_mut().map(|builder| Arc::new(builder.finish()) as ArrayRef));
        }
        columns.extend(made(self.values.iter_mut().map(ColumnBuilder::take).collect::<Result<Vec<_>, _>>()?));
        let times = std::mem::take(&mut self.times);
        self.bytes = 0;
        let columns = RecordBatch::try_new(Arc::clone(schema), columns)?;
        Ok(RowBatch::with_times(columns, times))
    }
}

impl Fold<RowsFormat> for AggregateFold {
    type Value = Value;

    #[inline]
    fn absorb(&self, record: &KeyedRecord<'_>, value: &mut Value) -> bool {
        self.part(record).is_some_and(|part| self.add(value, part))
    }

    fn fold(&self, (): (), record: &KeyedRecord<'_>, value: &mut Value) -> Result<(), TaskError> {
        if self.absorb(record, value) { Ok(()) } else { Err(self.malformed("part of an aggregate")) }
    }

    fn merge(&self, (): (), value: &mut Value, later: &Value) -> Result<(), TaskError> {
        if later.is_empty() || self.add(value, later) { Ok(()) } else { Err(self.malformed("part of an aggregate")) }
    }

    fn has_records(&self, value: &Value) -> bool {
        !value.is_empty()
    }

    fn emit(
        &mut self,
        window: Window,
        key: &[u8],
        value: &mut Value,
        collector: &mut Collector<'_, '_>,
    ) -> Result<(), TaskError> {
        self.append(Some(window), key, value, window.max_ms())?;
        self.give_if_full(collector)
    }

    fn emit_so_far(&mut self, key: &[u8], value: &Value, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.append(None, key, value, NO_TIMESTAMP)?;
        self.give_if_full(collector)
    }

    fn hand_on(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        if self.is_empty() { Ok(()) } else { self.give(collector) }
    }

    fn write(&self, (): (), _: &[u8], value: &Value, out: &mut Vec<u8>) -> Result<(), TaskError> {
        put_block(out, value);
        Ok(())
    }

    fn read(&self, (): (), input: &mut Input<'_>) -> Result<Value, TaskError> {
        Ok(Value::from_slice(input.block()?))
    }

    fn pass(&self, (): (), input: &mut Input<'_>) -> Result<(), TaskError> {
        input.block().map(drop)
    }

    /// Holds no state beside the values: pending results were emitted at the end of their batch.
    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }

    fn count(&self, record: &KeyedRecord<'_>) -> u64 {
        self.part(record).and_then(|mut part| take_rows(&mut part)).unwrap_or(1)
    }

    fn span_ms(&self, record: &KeyedRecord<'_>) -> i64 {
        span::split(record.value()).map_or(0, |(span_ms, _)| span_ms)
    }

    fn is_apart(&self, record: &KeyedRecord<'_>) -> bool {
        whole::has_row(record.value())
    }

    fn record<'m>(&self, record: &KeyedRecord<'_>, _: &Collector<'_, 'm>) -> Result<RowRecord, TaskError> {
        whole::row(&self.layout, record).map_err(|error| self.info.malformed(&error))
    }

    fn without_timestamp(&self, (): (), _: &KeyedRecord<'_>) -> TaskError {
        self.info.failed("ValueError", "rows have no event time, which these windows go by", None)
    }
}

/// Rejects calls of user functions: windows of rows use only the gaps and triggers of flownet.
pub(crate) struct NoCalls;

impl Calls<RowsFormat> for NoCalls {
    type TriggerState = ();

    fn gap_ms(&mut self, _: &KeyedRecord<'_>, _: &mut Collector<'_, '_>) -> Result<i64, TaskError> {
        Err(TaskError::Config("sessions of rows have one gap".into()))
    }

    fn trigger(
        &mut self,
        _: TriggerCall<'_>,
        _: &mut TriggeredWindow<'_, ()>,
        _: &mut Collector<'_, '_>,
    ) -> Result<TriggerResult, TaskError> {
        Err(TaskError::Config("windows of rows have no triggers of the user".into()))
    }

    fn merge_kept(&mut self, _: Window, (): &mut (), (): (), (): ()) -> Result<(), TaskError> {
        Ok(())
    }

    fn inspect<'m>(
        &self,
        (): (),
        _: (&[u8], Option<Window>),
        (): &(),
        _: &mut InspectedState<RowRecord>,
    ) -> Result<(), TaskError> {
        Ok(())
    }

    fn write_kept(&self, (): (), _: &[u8], (): &(), _: &mut Vec<u8>) -> Result<(), TaskError> {
        Ok(())
    }

    fn read_kept(&self, (): (), _: &mut Input<'_>) -> Result<(), TaskError> {
        Ok(())
    }

    fn open(&mut self, (): (), _: &TaskContext) -> Result<(), TaskError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Float64Type;
    use arrow_array::{Decimal128Array, Float64Array, Int64Array, StringArray};
    use arrow_schema::{DataType, Field};
    use proptest::prelude::*;

    use super::*;
    use crate::aggregate::columns::AggregateColumn;
    use crate::aggregate::function::{Aggregate, Function, Times};
    use crate::aggregate::group::{Columns, Groups, row_by_row};
    use crate::expr::Expr;
    use crate::key::KeyColumns;

    const FUNCTIONS: [Function; 12] = [
        Function::Count,
        Function::ApproxCountDistinct,
        Function::ApproxQuantile(0.9),
        Function::Collect,
        Function::Sum,
        Function::Mean,
        Function::Min,
        Function::Max,
        Function::First,
        Function::Last,
        Function::Var,
        Function::Std,
    ];

    fn schema() -> Schema {
        let decimal = DataType::Decimal128(38, 2);
        let fields = [("key", DataType::Utf8), ("i", DataType::Int64), ("x", DataType::Float64), ("s", DataType::Utf8)];
        let fields = fields.into_iter().chain([("d", decimal)]);
        Schema::new(fields.map(|(name, data_type)| Field::new(name, data_type, true)).collect::<Vec<_>>())
    }

    fn aggregates() -> Vec<Aggregate> {
        let of = |function: Function, column: &str| {
            let (name, input) = (format!("{}_{column}", function.name()), Some(Expr::Column(column.into())));
            Aggregate { name, function, input }
        };
        let numbers = ["i", "x"].into_iter().flat_map(|column| FUNCTIONS.map(|function| of(function, column)));
        use Function::{ApproxCountDistinct, Collect, Count, First, Last, Max, Min};
        let texts = [Count, ApproxCountDistinct, Collect, Min, Max, First, Last];
        let decimals = FUNCTIONS.map(|function| of(function, "d"));
        numbers.chain(texts.map(|function| of(function, "s"))).chain(decimals).collect()
    }

    fn bound(aggregates: Vec<Aggregate>) -> Aggregations {
        let columns: Vec<_> = aggregates.into_iter().map(AggregateColumn::BuiltIn).collect();
        Aggregations::new(&columns, &schema()).unwrap()
    }

    fn fold() -> AggregateFold {
        let info = OperatorInfo { operator: "agg".into(), subtask: 0, parallelism: 1 };
        AggregateFold::new((&schema(), &["key".to_owned()]), &bound(aggregates()), None, info).unwrap()
    }

    type Row = (Option<String>, Option<i64>, Option<f64>, Option<String>, i64);

    fn rows() -> impl Strategy<Value = Vec<Row>> {
        let row = (
            proptest::option::of("[ab]?"),
            proptest::option::of(-1000i64..1000),
            proptest::option::of(-1e6..1e6),
            proptest::option::of("[a-c]{0,3}"),
            0i64..1_000_000,
        );
        // Times are unique, because the order of rows with the same time is undefined.
        proptest::collection::vec(row, 0..40).prop_map(|mut rows| {
            (0..).zip(&mut rows).for_each(|(at, row)| row.4 = row.4 * 64 + at);
            rows
        })
    }

    fn batch(rows: &[Row]) -> (RecordBatch, Vec<i64>) {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(rows.iter().map(|row| row.0.as_deref()).collect::<StringArray>()),
            Arc::new(rows.iter().map(|row| row.1).collect::<Int64Array>()),
            Arc::new(rows.iter().map(|row| row.2).collect::<Float64Array>()),
            Arc::new(rows.iter().map(|row| row.3.as_deref()).collect::<StringArray>()),
            // Sums of these need more than 64 bits, but no more than 38 digits.
            Arc::new(
                rows.iter()
                    .map(|row| row.1.map(|value| i128::from(value) * 10i128.pow(30)))
                    .collect::<Decimal128Array>()
                    .with_precision_and_scale(38, 2)
                    .unwrap(),
            ),
        ];
        let batch = RecordBatch::try_new(Arc::new(schema()), columns).unwrap();
        (batch, rows.iter().map(|row| row.4).collect())
    }

    fn columns(batch: &RecordBatch, aggregates: &Aggregations) -> Columns {
        let keys = KeyColumns::new(&schema(), &["key".to_owned()]).unwrap().of(batch).unwrap();
        let inputs = aggregates.built_in.iter().map(|aggregate| aggregate.values(batch).unwrap()).collect();
        Columns { keys, inputs, own: Vec::new() }
    }

    /// Merges partial aggregates by key, as downstream of the exchange.
    fn put_together(fold: &AggregateFold, parts: Vec<crate::partial_aggregate::Parts>) -> Vec<(Vec<u8>, Value)> {
        let mut values = std::collections::BTreeMap::<Vec<u8>, Value>::new();
        for part in parts.iter().flat_map(crate::partial_aggregate::Parts::iter) {
            assert!(fold.add(values.entry(part.key.to_vec()).or_default(), part.value));
        }
        values.into_iter().collect()
    }

    fn result(fold: &mut AggregateFold, values: &[(Vec<u8>, Value)]) -> RecordBatch {
        for (key, value) in values {
            fold.append(None, key, value, NO_TIMESTAMP).unwrap();
        }
        fold.take_with(|columns| columns).unwrap().columns
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_rows_were_put_together(rows in rows(), cut in 0usize..40) {
            let aggregations = bound(aggregates());
            let (batch, times) = batch(&rows);
            let columns = columns(&batch, &aggregations);
            let mut one_by_one = Vec::new();
            row_by_row((&aggregations, None), &columns, None, (rows.len(), Times::of_ms(&times)), |parts| {
                one_by_one.push(parts);
                Ok(())
            }).unwrap();
            let (cut, mut groups) = (cut.min(rows.len()), Groups::new(&aggregations));
            let mut in_groups = Vec::new();
            // The second part first, because their order does not matter.
            for (start, end) in [(cut, rows.len()), (0, cut)] {
                groups.add(&columns, start, end - start, Times::of_ms(&times[start..end]));
                groups.drain::<()>(0, |parts| { in_groups.push(parts); Ok(()) }).unwrap();
            }
            let mut fold = fold();
            let (one, other) = (put_together(&fold, one_by_one), put_together(&fold, in_groups));
            let (one, other) = (result(&mut fold, &one), result(&mut fold, &other));
            for (at, field) in fold.schema.fields().iter().enumerate() {
                let (one, other) = (one.column(at), other.column(at));
                if *field.data_type() != DataType::Float64 {
                    prop_assert_eq!(one, other, "{}", field.name());
                    continue;
                }
                let (one, other) = (one.as_primitive::<Float64Type>(), other.as_primitive::<Float64Type>());
                for (one, other) in one.iter().zip(other) {
                    let is_near = one.zip(other).is_none_or(|(one, other)| (one - other).abs() <= 1e-6 * (1.0 + one.abs()));
                    prop_assert!(one.is_some() == other.is_some() && is_near, "{}: {one:?} {other:?}", field.name());
                }
            }
        }

        #[test]
        fn a_part_says_from_when_to_when_its_rows_are(rows in rows(), cut in 0usize..40) {
            let aggregations = bound(aggregates());
            let (batch, times) = batch(&rows);
            let columns = columns(&batch, &aggregations);
            let (cut, mut groups) = (cut.min(rows.len()), Groups::with_spans(&aggregations));
            for (start, end) in [(cut, rows.len()), (0, cut)] {
                groups.add(&columns, start, end - start, Times::of_ms(&times[start..end]));
            }
            let mut expected = std::collections::BTreeMap::<Vec<u8>, (i64, i64)>::new();
            for (row, time_ms) in times.iter().enumerate() {
                let mut key = Vec::new();
                columns.keys.put(row, &mut key);
                let (first_ms, last_ms) = expected.entry(key).or_insert((*time_ms, *time_ms));
                (*first_ms, *last_ms) = ((*first_ms).min(*time_ms), (*last_ms).max(*time_ms));
            }
            let parts = groups.parts(0);
            let found = parts.iter().map(|part| {
                let (span_ms, _) = span::split(part.value).unwrap();
                (part.key.to_vec(), (part.timestamp_ms, part.timestamp_ms + span_ms))
            });
            prop_assert_eq!(found.collect::<std::collections::BTreeMap<_, _>>(), expected);
        }

        #[test]
        fn what_grows_is_no_longer_than_was_said(rows in rows()) {
            let (batch, times) = batch(&rows);
            for aggregate in aggregates() {
                let grows = matches!(aggregate.function, Function::ApproxCountDistinct | Function::ApproxQuantile(_) | Function::Collect);
                let aggregations = bound(vec![aggregate.clone()]);
                let mut groups = Groups::new(&aggregations);
                groups.add(&columns(&batch, &aggregations), 0, rows.len(), Times::of_ms(&times));
                let written: usize = groups.parts(0).iter().map(|part| part.value.len()).sum();
                // Overhead per group: the number of rows, the number of values and their length.
                let each = groups.len() * 3;
                prop_assert!(!grows || written <= groups.bytes() + each, "{written} of {}", groups.bytes());
                prop_assert!(grows || groups.bytes() == 0);
            }
        }

        #[test]
        fn any_bytes_are_a_part_or_an_error(key: Vec<u8>, one: Vec<u8>, other: Vec<u8>) {
            let mut fold = fold();
            let mut value = Value::new();
            let _ = (fold.add(&mut value, &one), fold.add(&mut value, &other));
            let _ = fold.append(None, &key, &value, NO_TIMESTAMP);
        }

        #[test]
        fn a_part_that_is_changed_anywhere_is_a_part_or_an_error(rows in rows(), at: usize, to: u8) {
            let aggregations = bound(aggregates());
            let (batch, times) = batch(&rows);
            let mut groups = Groups::new(&aggregations);
            groups.add(&columns(&batch, &aggregations), 0, rows.len(), Times::of_ms(&times));
            let mut fold = fold();
            for part in groups.parts(0).iter() {
                let mut changed = part.value.to_vec();
                let at = at % changed.len();
                changed[at] = to;
                let mut value = Value::from_slice(part.value);
                let _ = fold.add(&mut value, &changed);
                let _ = fold.append(None, part.key, &changed, NO_TIMESTAMP);
            }
        }
    }
}
