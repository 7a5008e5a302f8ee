//! Columns to runs to columns, through buffers: what a row of four numbers costs, by layout of a run and number of channels.
//!
//! `columns` is what ships. `rows` is what it was weighed against: the numbers of a row side by side.

use std::convert::Infallible;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use criterion::{Criterion, Throughput};
use flownet_benches::SEGMENT_BYTES;
use flownet_core::keygroup::{default_max_parallelism, key_group, subtask_of};
use flownet_core::record::reader::RecordReader;
use flownet_core::{Selector, Target};
use flownet_rows::{Gather, KeyHasher, Layout, Scatter};

use crate::records::{MAX_RECORD_BYTES, Rig};

/// What is sent between two flushes: some buffer timeouts' worth.
const BATCHES: usize = 16;
const ROWS: usize = 8192;
const COLUMNS: usize = 4;
/// For all that is sent, 32 bytes a row.
const SEGMENTS: usize = 2 * BATCHES * ROWS * 32 / SEGMENT_BYTES;
/// A buffer's worth.
const RUN_BYTES: usize = 32 << 10;

pub(crate) fn columns_runs_columns(c: &mut Criterion) {
    let mut group = c.benchmark_group("rows");
    group.throughput(Throughput::Elements((BATCHES * ROWS) as u64));
    let batches = batches();
    let layout = Arc::new(Layout::new(batches[0].schema()).expect("rows can have numbers"));
    for channels in [1, 100, 1000] {
        let mut hasher = KeyHasher::new(layout.schema(), &["c0".to_owned()]).expect("a number is a key");
        let mut rig = Rig::with_room(channels, Selector::Forward, SEGMENTS);
        let mut scatter = Scatter::new(Arc::clone(&layout), RUN_BYTES);
        let mut gather = Gather::new(Arc::clone(&layout));
        group.bench_function(format!("columns/channels={channels}"), |b| {
            b.iter(|| {
                for batch in &batches {
                    let of_row = targets(&mut hasher, batch, channels);
                    let sent = scatter.by_target::<Infallible>(batch, of_row, channels as usize, |target, run| {
                        rig.emit(Target::Subpartition(target), run);
                        Ok(())
                    });
                    sent.expect("a batch that this made");
                }
                let mut rows = 0;
                receive(&mut rig, |run| {
                    gather.push(run).expect("a run that this made");
                    rows += if gather.rows() < ROWS { 0 } else { gather.take().expect("numbers").num_rows() };
                });
                rows
            });
        });
        let mut rig = Rig::with_room(channels, Selector::Forward, SEGMENTS);
        let mut rival = RowMajor::new(channels);
        let mut columns = [const { Vec::new() }; COLUMNS];
        group.bench_function(format!("rows/channels={channels}"), |b| {
            b.iter(|| {
                for batch in &batches {
                    rival.scatter(batch, targets(&mut hasher, batch, channels), &mut rig);
                }
                let mut rows = 0;
                receive(&mut rig, |run| {
                    RowMajor::gather(run, &mut columns);
                    if columns[0].len() >= ROWS {
                        let taken = columns
                            .each_mut()
                            .map(|column| Arc::new(Int64Array::from(std::mem::take(column))) as ArrayRef);
                        rows += RecordBatch::try_new(batches[0].schema(), taken.into()).expect("numbers").num_rows();
                    }
                });
                rows
            });
        });
    }
    group.finish();
}

/// What it takes to know where rows go, which is part of the above.
pub(crate) fn hash(c: &mut Criterion) {
    let mut group = c.benchmark_group("rows");
    group.throughput(Throughput::Elements(ROWS as u64));
    let batch = &batches()[0];
    let mut hasher = KeyHasher::new(&batch.schema(), &["c0".to_owned()]).expect("a number is a key");
    group.bench_function("hash", |b| {
        b.iter(|| hasher.hash(batch).expect("columns that are keys").iter().fold(0, |all, hash| all ^ hash))
    });
    group.finish();
}

fn batches() -> Vec<RecordBatch> {
    let fields: Vec<_> = (0..COLUMNS).map(|at| Field::new(format!("c{at}"), DataType::Int64, false)).collect();
    let schema = Arc::new(Schema::new(fields));
    let mut random = fastrand::Rng::with_seed(7);
    let mut column = || Arc::new((0..ROWS).map(|_| random.i64(0..10_000)).collect::<Int64Array>()) as ArrayRef;
    let mut batch = || RecordBatch::try_new(Arc::clone(&schema), (0..COLUMNS).map(|_| column()).collect());
    (0..BATCHES).map(|_| batch().expect("columns of one length")).collect()
}

fn targets(hasher: &mut KeyHasher, batch: &RecordBatch, channels: u32) -> impl Iterator<Item = u32> {
    let groups = default_max_parallelism(channels);
    hasher
        .hash(batch)
        .expect("columns that are keys")
        .iter()
        .map(move |hash| subtask_of(key_group(*hash, groups), groups, channels))
}

fn receive(rig: &mut Rig, mut each: impl FnMut(&[u8])) {
    let mut reader = RecordReader::new(MAX_RECORD_BYTES);
    rig.take(|buffer| {
        reader.push(buffer);
        while let Some(run) = reader.next_record().expect("records that this wrote") {
            each(run);
        }
    });
}

/// Runs whose rows are 32 bytes each: written row by row to the run of their target.
struct RowMajor {
    runs: Vec<Vec<u8>>,
}

impl RowMajor {
    fn new(channels: u32) -> Self {
        Self { runs: vec![Vec::new(); channels as usize] }
    }

    fn scatter(&mut self, batch: &RecordBatch, of_row: impl Iterator<Item = u32>, rig: &mut Rig) {
        let columns: [&[i64]; COLUMNS] =
            std::array::from_fn(|at| &batch.column(at).as_primitive::<Int64Type>().values()[..]);
        for (row, target) in of_row.enumerate() {
            let run = &mut self.runs[target as usize];
            let mut bytes = [0; COLUMNS * 8];
            for (place, column) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(columns) {
                *place = column[row].to_le_bytes();
            }
            run.extend_from_slice(&bytes);
            if run.len() >= RUN_BYTES {
                rig.emit(Target::Subpartition(target), run);
                run.clear();
            }
        }
        for (target, run) in (0..).zip(&mut self.runs).filter(|(_, run)| !run.is_empty()) {
            rig.emit(Target::Subpartition(target), run);
            run.clear();
        }
    }

    fn gather(run: &[u8], columns: &mut [Vec<i64>; COLUMNS]) {
        for row in run.as_chunks::<{ COLUMNS * 8 }>().0 {
            for (column, bytes) in columns.iter_mut().zip(row.as_chunks().0) {
                column.push(i64::from_le_bytes(*bytes));
            }
        }
    }
}
