//! Sums as a user would write them, beside the built-in ones.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::Int64Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_schema::DataType;
use flownet_runtime::time::NO_TIMESTAMP;
use proptest::prelude::*;

use super::fold::{OwnValue, whole};
use super::*;
use crate::aggregate::columns::{AggregateColumn, Aggregations};
use crate::aggregate::fold::AggregateFold;
use crate::aggregate::function::{Aggregate, Function, Times};
use crate::aggregate::group::{Columns, Groups, row_by_row};
use crate::expr::Expr;
use crate::key::KeyColumns;
use crate::partial_aggregate::Parts;
use crate::record_format::OperatorInfo;

/// Computes sums, and counts its calls.
#[derive(Clone, Default)]
struct Sums {
    accumulated: Arc<AtomicUsize>,
    merged: Arc<AtomicUsize>,
}

fn summed(rows: &RecordBatch, groups: &RowGroups, schema: &SchemaRef) -> RecordBatch {
    let mut sums = vec![0; groups.count];
    for (value, group) in rows.column(0).as_primitive::<Int64Type>().iter().zip(&groups.of_row) {
        sums[*group as usize] += value.unwrap_or(0);
    }
    assert!((0..groups.count as u32).all(|group| groups.of_row.contains(&group)), "each group has a row");
    RecordBatch::try_new(Arc::clone(schema), vec![Arc::new(Int64Array::from(sums))]).unwrap()
}

impl OwnFunctions for Sums {
    fn attached(&self, work: &mut dyn FnMut() -> Result<(), TaskError>) -> Result<(), TaskError> {
        work()
    }

    fn accumulate(
        &self,
        aggregation: &OwnAggregation,
        values: RecordBatch,
        groups: RowGroups,
    ) -> Result<RecordBatch, TaskError> {
        self.accumulated.fetch_add(1, Ordering::Relaxed);
        Ok(summed(&values, &groups, aggregation.state()))
    }

    fn merge(
        &self,
        aggregation: &OwnAggregation,
        states: RecordBatch,
        groups: RowGroups,
    ) -> Result<RecordBatch, TaskError> {
        self.merged.fetch_add(1, Ordering::Relaxed);
        Ok(summed(&states, &groups, aggregation.state()))
    }

    fn result(&self, _: &OwnAggregation, states: RecordBatch) -> Result<ArrayRef, TaskError> {
        Ok(Arc::clone(states.column(0)))
    }
}

fn schema() -> Schema {
    Schema::new(vec![Field::new("key", DataType::Int64, false), Field::new("n", DataType::Int64, true)])
}

fn number(name: &str) -> Schema {
    Schema::new(vec![Field::new(name, DataType::Int64, true)])
}

/// A built-in sum between two user sums: one that merges, and one that stores values.
fn aggregations() -> Aggregations {
    let own = |name: &str, merges| {
        let columns = vec![Column { name: "n".into(), value: Expr::Column("n".into()) }];
        let (name, function) = (name.to_owned(), "Sums".to_owned());
        let own = OwnAggregate { name, function, columns, state: number("sum"), returns: number("sum"), merges };
        AggregateColumn::Own(Box::new(own))
    };
    let built_in = Aggregate { name: "sum".into(), function: Function::Sum, input: Some(Expr::Column("n".into())) };
    Aggregations::new(&[own("merged", true), AggregateColumn::BuiltIn(built_in), own("kept", false)], &schema())
        .unwrap()
}

fn info() -> OperatorInfo {
    OperatorInfo { operator: "agg".into(), subtask: 0, parallelism: 1 }
}

fn fold(functions: &Sums) -> UserAggregateFold {
    let built_in = AggregateFold::new((&schema(), &["key".to_owned()]), &aggregations(), None, info()).unwrap();
    UserAggregateFold::new(built_in, aggregations(), Box::new(functions.clone()), info())
}

fn front(functions: &Sums) -> OwnFront {
    OwnFront::new(aggregations().own, Box::new(functions.clone()), info())
}

fn columns(rows: &[(i64, Option<i64>)]) -> Columns {
    let (keys, numbers) = (rows.iter().map(|row| row.0), rows.iter().map(|row| row.1));
    let (keys, numbers) = (Int64Array::from_iter_values(keys), numbers.collect::<Int64Array>());
    let batch = RecordBatch::try_new(Arc::new(schema()), vec![Arc::new(keys), Arc::new(numbers)]).unwrap();
    let aggregations = aggregations();
    Columns {
        keys: KeyColumns::new(&schema(), &["key".to_owned()]).unwrap().of(&batch).unwrap(),
        inputs: aggregations.built_in.iter().map(|aggregate| aggregate.values(&batch).unwrap()).collect(),
        own: aggregations.own.iter().map(|aggregate| aggregate.values(&batch).unwrap()).collect(),
    }
}

fn own_of(groups: &mut [Groups]) -> Vec<Vec<&mut OwnCells>> {
    let mut own: Vec<Vec<&mut OwnCells>> = vec![Vec::new(), Vec::new()];
    for groups in groups {
        own.iter_mut().zip(groups.own_mut()).for_each(|(own, cells)| own.push(cells));
    }
    own
}

/// Returns the partial aggregates of batches whose rows are split between two slices.
fn parts(functions: &Sums, batches: &[&[(i64, Option<i64>)]], merges: bool) -> Vec<Parts> {
    let (front, mut slices) = (front(functions), [Groups::new(&aggregations()), Groups::new(&aggregations())]);
    for rows in batches {
        let columns = columns(rows);
        for row in 0..rows.len() {
            slices[row % 3 % 2].add(&columns, row, 1, Times::default());
        }
        front.settle(own_of(&mut slices), &columns.own).unwrap();
    }
    if merges {
        front.merge_all(own_of(&mut slices)).unwrap();
    }
    slices.iter().map(|groups| groups.parts(0)).collect()
}

type Sum = (i64, i64, i64, i64);

/// Returns for each value: its key, the user sum that merges, the built-in sum, and the user sum that stores values.
fn results(fold: &mut UserAggregateFold, values: &BTreeMap<Vec<u8>, OwnValue>) -> Vec<Sum> {
    for (key, value) in values {
        fold.append(None, key, value, NO_TIMESTAMP).unwrap();
    }
    let batch = fold.take().unwrap().columns;
    let column = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
    let [keys, merged, sums, kept] = ["key", "merged", "sum", "kept"].map(column);
    (0..keys.len()).map(|row| (keys.value(row), merged.value(row), sums.value(row), kept.value(row))).collect()
}

proptest! {
    #[test]
    fn it_does_not_matter_how_rows_were_put_together(
        rows in proptest::collection::vec((0i64..5, proptest::option::of(-1000i64..1000)), 1..200),
        cuts in proptest::collection::vec(1usize..20, 1..30),
        merges: bool,
        one_by_one: bool,
    ) {
        let (functions, mut rest, mut batches) = (Sums::default(), &rows[..], Vec::new());
        for cut in cuts.iter().cycle() {
            let (batch, behind) = rest.split_at((*cut).min(rest.len()));
            batches.push(batch);
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        let mut all = Vec::new();
        if one_by_one {
            let front = front(&functions);
            for rows in &batches {
                let of = (&aggregations(), Some(&front));
                let give = |parts| { all.push(parts); Ok(()) };
                row_by_row(of, &columns(rows), None, (rows.len(), Times::default()), give).unwrap();
            }
        } else {
            all = parts(&functions, &batches, merges);
        }
        let (mut fold, mut values) = (fold(&functions), BTreeMap::<Vec<u8>, OwnValue>::new());
        for (number, part) in all.iter().flat_map(Parts::iter).enumerate() {
            prop_assert!(fold.add(values.entry(part.key.to_vec()).or_default(), part.value));
            if number % 7 == 0 {
                fold.merge_many().unwrap();
            }
            if number % 11 == 0 {
                // Intermediate results, after which folding continues.
                results(&mut fold, &values);
            }
        }
        let mut wanted = BTreeMap::new();
        rows.iter().for_each(|(key, number)| *wanted.entry(*key).or_insert(0) += number.unwrap_or(0));
        let wanted: Vec<Sum> = wanted.into_iter().map(|(key, sum)| (key, sum, sum, sum)).collect();
        let sorted = |mut sums: Vec<Sum>| { sums.sort_unstable(); sums };
        prop_assert_eq!(sorted(results(&mut fold, &values)), &wanted[..]);

        let mut read = BTreeMap::<Vec<u8>, OwnValue>::new();
        for (key, value) in &values {
            prop_assert!(fold.add(read.entry(key.clone()).or_default(), &whole(value)));
        }
        prop_assert_eq!(sorted(results(&mut fold, &read)), wanted);
    }

    #[test]
    fn any_bytes_are_a_part_or_an_error(one: Vec<u8>, other: Vec<u8>, at: usize, to: u8) {
        let functions = Sums::default();
        let (mut fold, mut value) = (fold(&functions), OwnValue::default());
        let _ = (fold.add(&mut value, &one), fold.add(&mut value, &other));
        let _ = fold.append(None, &[1], &value, NO_TIMESTAMP).and_then(|()| fold.take().map(drop));
        for part in parts(&functions, &[&[(1, Some(7)), (1, None)]], true).iter().flat_map(Parts::iter) {
            let mut fold = self::fold(&functions);
            let (mut value, mut changed) = (OwnValue::default(), part.value.to_vec());
            let at = at % changed.len();
            changed[at] = to;
            let _ = (fold.add(&mut value, part.value), fold.add(&mut value, &changed));
            let _ = fold.append(None, part.key, &value, NO_TIMESTAMP).and_then(|()| fold.take().map(drop));
        }
    }
}

#[test]
fn a_batch_is_one_call_whatever_its_keys_and_slices() {
    let (functions, rows) = (Sums::default(), (0..1000).map(|row| (row % 300, Some(row))).collect::<Vec<_>>());
    let parts = parts(&functions, &[&rows], true);
    assert_eq!(functions.accumulated.load(Ordering::Relaxed), 1);

    let (mut fold, mut values) = (fold(&functions), BTreeMap::<Vec<u8>, OwnValue>::new());
    functions.merged.store(0, Ordering::Relaxed);
    for _ in 0..100 {
        for part in parts.iter().flat_map(Parts::iter) {
            assert!(fold.add(values.entry(part.key.to_vec()).or_default(), part.value));
        }
        fold.merge_many().unwrap();
    }
    assert_eq!(values.len(), 300);
    // Two partial aggregates per key in each of 100 batches: one state and three times two more are not yet many.
    assert!(functions.merged.load(Ordering::Relaxed) <= 100, "{}", functions.merged.load(Ordering::Relaxed));
    results(&mut fold, &values);
    let merged = functions.merged.swap(0, Ordering::Relaxed);
    results(&mut fold, &values);
    assert_eq!(functions.merged.load(Ordering::Relaxed), 0, "after {merged} calls each has one state");
}
