//! Parts and rows by key, as they come to who puts them together: any bytes are some, or an error; and what is kept of them
//! can be read again.
//!
//! ```text
//! input = operator | step*
//! step  = 0 | u16 length | record        of the first input
//!       | 1 | u16 length | record        of the second, where there is one
//!       | 2 | i32                       a watermark of all inputs
//! ```

use std::sync::{Arc, LazyLock, PoisonError};

use arrow_schema::{DataType, Field, Schema};
use flownet_rows::{ExternalOperators, OperatorInfo, OwnFunctions, RowsFormat, TaskThread};
use flownet_runtime::deploy::{Harness, HarnessStop};
use flownet_runtime::operator::Kind;
use flownet_runtime::snapshot::StatePart;
use flownet_runtime::spec::{
    ChannelSpec, Codec, FlowControl, InputSpec, OperatorKind, OperatorSpec, OutputSpec, Partitioner, Payload, RowsKind,
    StateBackend, TaskSpec, partition_id,
};
use flownet_runtime::time::END_OF_TIME_MS;
use flownet_runtime::{TaskChain, TaskError};
use serde_json::{Value, json};

use super::raw_records::{self, Emission, ReceivedRecords};

/// Takes the bytes; panics if they break a promise.
pub(super) fn run(data: &[u8]) {
    let [operator, steps @ ..] = data else { return };
    let (_, kind) = &OPERATORS[usize::from(*operator) % OPERATORS.len()];
    let Ok(kept) = taken(kind, &steps_of(steps), &[]) else { return };
    // What it took is read again, and comes to something: to rows, or to a sum that does not fit.
    let _ = taken(kind, &[Step::Watermark(END_OF_TIME_MS)], &kept);
}

/// What is kept of these steps behind what was restored.
fn taken(kind: &RowsKind, steps: &[Step], restored: &[StatePart]) -> Result<Vec<StatePart>, TaskError> {
    let mut harness = harness(kind, steps, None);
    match harness.open(restored).and_then(|()| harness.snapshot()) {
        Err(HarnessStop { error: TaskError::Panic { message, .. }, .. }) => panic!("{message}"),
        kept => kept.map_err(|stopped| stopped.error),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Record(usize, Vec<u8>),
    Watermark(i64),
}

fn steps_of(mut bytes: &[u8]) -> Vec<Step> {
    let mut steps = Vec::new();
    while let [what, rest @ ..] = bytes {
        bytes = rest;
        if what % 3 == 2 {
            let Some((at_ms, rest)) = bytes.split_first_chunk() else { break };
            steps.push(Step::Watermark(i32::from_le_bytes(*at_ms).into()));
            bytes = rest;
            continue;
        }
        let Some((length, rest)) = bytes.split_first_chunk() else { break };
        let (record, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        steps.push(Step::Record(usize::from(what % 3), record.to_vec()));
        bytes = rest;
    }
    steps
}

fn put(steps: &[Step]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for step in steps {
        match step {
            Step::Record(input, record) => {
                bytes.push(*input as u8);
                bytes.extend_from_slice(&(record.len() as u16).to_le_bytes());
                bytes.extend_from_slice(record);
            }
            Step::Watermark(at_ms) => {
                bytes.push(2);
                bytes.extend_from_slice(&(*at_ms as i32).to_le_bytes());
            }
        }
    }
    bytes
}

fn schema() -> Schema {
    let fields = [
        ("key", DataType::Utf8),
        ("n", DataType::Int64),
        ("x", DataType::Float64),
        ("price", DataType::Decimal128(12, 2)),
    ];
    Schema::new(fields.map(|(name, data_type)| Field::new(name, data_type, true)).to_vec())
}

fn planned(schema: &Schema) -> Value {
    serde_json::to_value(schema).expect("a schema is JSON")
}

/// All of them, or those that windows need to have some: inputs are tried the faster.
fn aggregates(are_all: bool) -> Value {
    let of = |function: Value, column: &str| json!({ "name": format!("{function} {column}"), "function": function, "input": { "column": column } });
    if !are_all {
        return json!([of("sum".into(), "n"), of("collect".into(), "key")]);
    }
    let mut all = Vec::new();
    for function in ["count", "approx_count_distinct", "collect", "min", "max", "first", "last"] {
        all.extend(["key", "n", "x", "price"].map(|column| of(function.into(), column)));
    }
    for function in
        ["sum", "mean", "var", "std"].map(Value::from).into_iter().chain([json!({ "approx_quantile": 0.9 })])
    {
        all.extend(["n", "x", "price"].map(|column| of(function.clone(), column)));
    }
    all.into()
}

fn window(assign: &Value, late_tag: Option<&str>) -> Value {
    json!({ "assign": assign, "clock": "event", "lateness_ms": 100, "late_tag": late_tag })
}

fn kind(described: Value) -> RowsKind {
    serde_json::from_value(described).expect("a kind of operator")
}

static OPERATORS: LazyLock<Vec<(RowsKind, RowsKind)>> = LazyLock::new(operators);

/// What is in front of the exchange, with what is behind it.
fn operators() -> Vec<(RowsKind, RowsKind)> {
    let (input, keys) = (planned(&schema()), ["key"]);
    let grid = json!({ "grid": { "size_ms": 1000, "slide_ms": 500 } });
    let session = json!({ "session": { "gap_ms": 700 } });
    let windows = [
        Value::Null,
        window(&grid, None),
        window(&session, None),
        window(&grid, Some("late")),
        window(&"global".into(), None),
    ];
    let described = |window: &Value| json!({ "input": input, "keys": keys, "aggregates": aggregates(window.is_null()), "window": window });
    let mut all: Vec<_> = windows
        .iter()
        .map(|window| {
            let described = described(window);
            (kind(json!({ "partial": described })), kind(json!({ "aggregate": described })))
        })
        .collect();
    let rank =
        json!({ "by": "x", "descending": true, "count": 2, "ties": true, "window": window(&grid, Some("late")) });
    let carried = ["key", "n", "x", "price"];
    let by_key = |rank: &Value| {
        let described = json!({
            "input": input, "keys": keys, "carried": carried, "output": input, "keeps_null_keys": true, "rank": rank
        });
        kind(json!({ "key_rows": described }))
    };
    all.push((by_key(&rank), kind(json!({ "top_n": { "input": input, "rank": rank, "kept": [] } }))));
    all.push((by_key(&Value::Null), kind(json!({ "deduplicate": { "input": input, "ttl_ms": 50, "kept": [] } }))));
    let fields: Vec<Field> = schema().fields().iter().map(|field| field.as_ref().clone()).collect();
    let renamed = fields.iter().map(|field| field.clone().with_name(format!("{}2", field.name())));
    let pairs: Vec<_> = fields.iter().cloned().chain(renamed).collect();
    let late = json!({ "tag": "late", "schema": input });
    for by in [
        json!({ "regular": {} }),
        json!({ "interval": { "lower_ms": -5, "upper_ms": 500 } }),
        json!({ "as_of": { "keeps_unmatched": true } }),
        json!({ "window": { "window": window(&grid, None) } }),
    ] {
        let join = json!({
            "left": input, "right": input, "shown": carried, "output": planned(&Schema::new(pairs.clone())), "by": by,
            "late": [late, late], "kept": []
        });
        all.push((by_key(&Value::Null), kind(json!({ "join": join }))));
    }
    all
}

/// Aggregates of the user's and the like are not among these operators.
struct NoForeign;

impl ExternalOperators for NoForeign {
    fn stage(&self, _: &OperatorSpec, _: &RowsKind, _: &OperatorInfo) -> Result<Kind<RowsFormat>, TaskError> {
        Err(TaskError::Config("an operator of another language".into()))
    }

    fn own_functions(&self, _: &OperatorSpec, _: &OperatorInfo) -> Result<Box<dyn OwnFunctions>, TaskError> {
        Err(TaskError::Config("functions of another language".into()))
    }

    fn thread(&self) -> Option<Box<dyn TaskThread>> {
        None
    }
}

/// A source for each input, the operator, and a sink.
fn harness(kind: &RowsKind, steps: &[Step], received: Option<ReceivedRecords>) -> Harness {
    let inputs = if matches!(kind, RowsKind::Join { .. }) { 2 } else { 1 };
    let is_behind = !matches!(kind, RowsKind::Partial { .. } | RowsKind::KeyRows { .. });
    let partitioner = if is_behind { Partitioner::KeyGroup } else { Partitioner::Forward };
    let mut tasks: Vec<(TaskSpec, TaskChain)> = Vec::new();
    for input in 0..inputs {
        let spec = task(input, Vec::new(), vec![output(input, input, partitioner)]);
        let chain = raw_records::source(&spec, emissions(steps, input as usize)).expect("a source");
        tasks.push((spec, chain));
    }
    let leaves = if is_behind { Partitioner::Forward } else { Partitioner::KeyGroup };
    let edges = (0..inputs).map(|edge| input(edge, edge, inputs, partitioner)).collect();
    let mut spec = task(inputs, edges, vec![output(inputs, inputs, leaves)]);
    spec.operators.push(OperatorSpec {
        id: inputs,
        uid: None,
        name: kind.name().into(),
        kind: OperatorKind::Rows(kind.clone()),
        payload: Payload::None,
        rate_limit: None,
        brake: None,
        target: None,
        upstream: None,
    });
    let chain = flownet_rows::chain(&spec, &NoForeign).expect("an operator that can be");
    tasks.push((spec, chain.into()));
    let spec = task(inputs + 1, vec![input(inputs, 0, inputs + 1, leaves)], Vec::new());
    let chain = raw_records::sink(&spec, received).expect("a sink");
    tasks.push((spec, chain));
    Harness::new(tasks, 0, 1 << 20).expect("tasks that fit together")
}

/// The steps of a source: its input's records, and all watermarks.
fn emissions(steps: &[Step], input: usize) -> Vec<Emission> {
    let of_input = steps.iter().filter_map(|step| match step {
        Step::Record(of, record) => (*of == input).then(|| Emission::Record(record.clone())),
        Step::Watermark(at_ms) => Some(Emission::Watermark(*at_ms)),
    });
    of_input.collect()
}

fn task(number: u32, inputs: Vec<InputSpec>, outputs: Vec<OutputSpec>) -> TaskSpec {
    TaskSpec {
        task_id: number,
        vertex: number,
        name: format!("task {number}"),
        subtask: 0,
        parallelism: 1,
        max_parallelism: 128,
        codec: Codec::Typed,
        object_reuse: false,
        state: StateBackend::Memory,
        latency_interval_us: None,
        operators: Vec::new(),
        inputs,
        outputs,
    }
}

fn output(edge: u32, from_operator: u32, partitioner: Partitioner) -> OutputSpec {
    OutputSpec {
        edge,
        from_operator,
        tag: None,
        timestamps: true,
        in_iteration: false,
        splits: false,
        partitioner,
        payload: Payload::None,
        partition: partition_id(edge, 0),
        subpartitions: 1,
        flush_timeout_us: Some(0),
    }
}

fn input(edge: u32, side: u32, to_operator: u32, partitioner: Partitioner) -> InputSpec {
    InputSpec {
        edge,
        to_operator,
        side: side as u8,
        timestamps: true,
        in_iteration: false,
        splits: false,
        partitioner,
        flow_control: FlowControl::Credit,
        channels: vec![ChannelSpec { producer_worker: 0, partition: partition_id(edge, 0), subpartition: 0 }],
    }
}

/// What the operators in front of the exchange make of some rows, with watermarks that make windows fire.
pub(super) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let names = [
        "running",
        "windows",
        "sessions",
        "late-rows",
        "global",
        "top",
        "firsts",
        "pairs",
        "near",
        "versions",
        "pairs-of-windows",
    ];
    names
        .into_iter()
        .zip(&*OPERATORS)
        .enumerate()
        .map(|(number, (name, (front, behind)))| {
            let inputs: usize = if matches!(behind, RowsKind::Join { .. }) { 2 } else { 1 };
            let mut steps = Vec::new();
            for record in records_of(front) {
                steps.extend((0..inputs).map(|input| Step::Record(input, record.clone())));
            }
            steps.push(Step::Watermark(1_500));
            let late: Vec<_> = steps.iter().take(inputs).cloned().collect();
            steps.extend(late);
            (name, [&[number as u8][..], &put(&steps)].concat())
        })
        .collect()
}

/// Records by key, of three rows.
fn records_of(front: &RowsKind) -> Vec<Vec<u8>> {
    let received = ReceivedRecords::default();
    // Of a run with times: rows, then for each column which values are there, and the values.
    let numbers = |values: [i64; 3]| values.map(i64::to_le_bytes).concat();
    let floats = [1.5f64, -2.0, 0.0].map(f64::to_le_bytes).concat();
    let prices = [1_050i128, 7, -300].map(i128::to_le_bytes).concat();
    let lengths = [1u32, 1, 1].map(u32::to_le_bytes).concat();
    let run = [
        // Its stamp, that it has times, and how many rows it has.
        &[0, 1, 3][..],
        &[0],
        &lengths,
        b"aba",
        &[0],
        &numbers([5, 6, -7]),
        &[1, 0b011],
        &floats,
        &[0],
        &prices,
        &numbers([100, 900, 950]),
    ]
    .concat();
    let steps = [Step::Record(0, run), Step::Watermark(END_OF_TIME_MS)];
    let mut harness = harness(front, &steps, Some(Arc::clone(&received)));
    harness.open(&[]).expect("rows");
    harness.snapshot().expect("parts wait");
    received.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_are_records_by_key() {
        for (name, bytes) in seeds() {
            let (_, kind) = &OPERATORS[usize::from(bytes[0])];
            let steps = steps_of(&bytes[1..]);
            assert!(steps.len() > 2, "{name} has no records");
            taken(kind, &steps, &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}
