use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, FixedSizeBinaryBuilder, Float64Builder, Int8Builder, Int32Builder, Int64Builder,
    ListBuilder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};
use proptest::prelude::*;

use super::*;
use crate::column::Rows;
use crate::layout::Layout;

/// Random seed of one row, from which the values of all columns are made.
type Row = (Option<i64>, Option<bool>, Option<String>, Option<Vec<Option<i32>>>, u8);

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let text = proptest::option::weighted(0.8, "[a-zß☂]{0,12}");
    let items = proptest::option::weighted(0.8, proptest::collection::vec(any::<Option<i32>>(), 0..4));
    proptest::collection::vec((any::<Option<i64>>(), any::<Option<bool>>(), text, items, any::<u8>()), 0..80)
}

/// A column of each shape, nullable and not.
fn batch(rows: &[Row]) -> RecordBatch {
    let (mut ints, mut small, mut floats) = (Int64Builder::new(), Int8Builder::new(), Float64Builder::new());
    let (mut flags, mut texts, mut blobs) = (BooleanBuilder::new(), StringBuilder::new(), BinaryBuilder::new());
    let mut times = TimestampMicrosecondBuilder::new().with_timezone("Europe/Berlin");
    let (mut fixed, mut lists) = (FixedSizeBinaryBuilder::new(3), ListBuilder::new(Int32Builder::new()));
    for (number, flag, text, items, byte) in rows {
        ints.append_option(*number);
        small.append_value(*byte as i8);
        floats.append_option(number.map(|number| f64::from_bits(number as u64)));
        flags.append_option(*flag);
        texts.append_option(text.as_deref());
        blobs.append_value(vec![*byte; usize::from(byte % 5)]);
        times.append_option(*number);
        fixed.append_value([*byte; 3]).unwrap();
        lists.append_option(items.clone());
    }
    let (flags, texts): (ArrayRef, ArrayRef) = (Arc::new(flags.finish()), Arc::new(texts.finish()));
    let inner =
        Fields::from(vec![Field::new("flag", DataType::Boolean, true), Field::new("text", DataType::Utf8, true)]);
    let nulls = rows.iter().map(|row| row.4 % 3 > 0).collect::<Vec<_>>().into();
    let pairs = StructArray::new(inner, vec![Arc::clone(&flags), Arc::clone(&texts)], Some(nulls));
    let columns: Vec<(&str, bool, ArrayRef)> = vec![
        ("int", true, Arc::new(ints.finish())),
        ("small", false, Arc::new(small.finish())),
        ("float", true, Arc::new(floats.finish())),
        ("flag", true, flags),
        ("text", true, texts),
        ("blob", false, Arc::new(blobs.finish())),
        ("time", true, Arc::new(times.finish())),
        ("fixed", false, Arc::new(fixed.finish())),
        ("items", true, Arc::new(lists.finish())),
        ("pair", true, Arc::new(pairs)),
    ];
    let field =
        |(name, nullable, array): &(&str, bool, ArrayRef)| Field::new(*name, array.data_type().clone(), *nullable);
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    RecordBatch::try_new(Arc::new(schema), columns.into_iter().map(|(_, _, array)| array).collect()).unwrap()
}

fn layout(batch: &RecordBatch) -> Arc<Layout> {
    Arc::new(Layout::new(batch.schema()).unwrap())
}

proptest! {
    #[test]
    fn rows_are_the_same_behind_any_cut_into_runs(rows in rows(), skipped in 0usize..20, cuts in proptest::collection::vec(1usize..30, 1..9)) {
        let whole = batch(&rows);
        let skipped = skipped.min(rows.len());
        let batch = whole.slice(skipped, rows.len() - skipped);
        let writer = RunWriter::new(&layout(&batch), &batch);
        let (mut gather, mut start) = (Gather::new(layout(&batch)), 0);
        for cut in cuts.iter().cycle() {
            let rows = (*cut).min(batch.num_rows() - start);
            let mut run = Vec::new();
            writer.write(Rows::Range { start, end: start + rows }, &mut run);
            gather.push(&run).unwrap();
            start += rows;
            if start == batch.num_rows() {
                break;
            }
        }
        prop_assert_eq!(gather.rows(), batch.num_rows());
        prop_assert_eq!(gather.take().unwrap(), batch);
        prop_assert_eq!(gather.take().unwrap().num_rows(), 0);
    }

    #[test]
    fn rows_that_are_picked_come_in_that_order(rows in rows(), picked in proptest::collection::vec(any::<prop::sample::Index>(), 0..60)) {
        let batch = batch(&rows);
        let picked: Vec<u32> =
            picked.iter().filter(|_| !rows.is_empty()).map(|at| at.index(rows.len()) as u32).collect();
        let mut run = Vec::new();
        RunWriter::new(&layout(&batch), &batch).write(Rows::Picked(&picked), &mut run);
        let mut gather = Gather::new(layout(&batch));
        gather.push(&run).unwrap();
        let expected: Vec<Row> = picked.iter().map(|row| rows[*row as usize].clone()).collect();
        prop_assert_eq!(gather.take().unwrap(), self::batch(&expected));
    }

    #[test]
    fn a_run_that_fits_is_no_longer_than_asked_for(rows in rows(), limit in 1usize..2000, picked in any::<bool>()) {
        let batch = batch(&rows);
        prop_assume!(batch.num_rows() > 0);
        let writer = RunWriter::new(&layout(&batch), &batch);
        let order: Vec<u32> = (0..batch.num_rows() as u32).rev().collect();
        let all = if picked { Rows::Picked(&order) } else { Rows::Range { start: 0, end: order.len() } };
        let rows = writer.fitting(all, limit);
        let mut run = Vec::new();
        writer.write(all.split_at(rows).0, &mut run);
        prop_assert!(rows == 1 || run.len() <= limit, "{rows} rows of {} bytes", run.len());
        if rows < batch.num_rows() {
            run.clear();
            writer.write(all.split_at(rows + 1).0, &mut run);
            // `fitting` assumes the longest header, of 3 bytes.
            prop_assert!(run.len() + 3 > limit, "{} bytes would have fitted", run.len());
        }
    }

    #[test]
    fn any_bytes_are_a_run_or_an_error(bytes in any::<Vec<u8>>()) {
        let mut gather = Gather::new(layout(&batch(&[])));
        if gather.push(&bytes).is_ok() {
            let _ = gather.take();
        }
    }

    #[test]
    fn a_run_with_a_byte_changed_or_cut_is_another_or_an_error(rows in rows(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let batch = batch(&rows);
        let mut run = Vec::new();
        RunWriter::new(&layout(&batch), &batch).write(Rows::Range { start: 0, end: batch.num_rows() }, &mut run);
        let at = at.index(run.len());
        if cut { run.truncate(at) } else { run[at] = byte }
        let mut gather = Gather::new(layout(&batch));
        let pushed = gather.push(&run);
        prop_assert!(!(cut && pushed.is_ok()), "a run that was cut was taken");
        if pushed.is_ok() {
            let _ = gather.take();
        }
    }
}

#[test]
fn a_run_of_numbers_has_no_byte_beside_them_but_the_number_of_rows() {
    let schema = Schema::new(vec![Field::new("a", DataType::Int64, false), Field::new("b", DataType::Int32, false)]);
    let columns: Vec<ArrayRef> =
        vec![Arc::new(arrow_array::Int64Array::from(vec![1, 2])), Arc::new(arrow_array::Int32Array::from(vec![3, 4]))];
    let batch = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
    let mut run = Vec::new();
    RunWriter::new(&layout(&batch), &batch).write(Rows::Range { start: 0, end: 2 }, &mut run);
    assert_eq!(run, [2, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0]);
}

#[test]
fn text_that_is_none_is_an_error() {
    let schema = Schema::new(vec![Field::new("text", DataType::Utf8, false)]);
    let mut gather = Gather::new(Arc::new(Layout::new(Arc::new(schema)).unwrap()));
    gather.push(&[1, 2, 0, 0, 0, 0xff, 0xfe]).unwrap();
    let error = gather.take().unwrap_err().to_string();
    assert!(error.contains("UTF8"), "{error}");
}

#[test]
fn what_rows_cannot_have_is_refused_by_its_name() {
    let union = DataType::Interval(arrow_schema::IntervalUnit::DayTime);
    let nested = DataType::Struct(Fields::from(vec![Field::new("inner", union, true)]));
    let timestamp = DataType::Timestamp(TimeUnit::Millisecond, None);
    let schema = Schema::new(vec![Field::new("at", timestamp, true), Field::new("outer", nested, true)]);
    let error = Layout::new(Arc::new(schema)).unwrap_err();
    assert!(error.to_string().starts_with("column 'outer.inner' is of type Interval"), "{error}");
}
