//! Runs of rows: any bytes are rows or an error, and rows written again are the same rows.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};
use flownet_rows::{Gather, Layout, Rows, RunWriter};

/// First byte: whether all is nullable. Second: where the second run begins.
pub(super) fn run(data: &[u8]) {
    let [nullable, cut, bytes @ ..] = data else { return };
    let layout = Arc::new(Layout::new(Arc::new(schema(nullable % 2 == 1))).expect("rows can have these"));
    let (first, second) = bytes.split_at(usize::from(*cut).min(bytes.len()));
    let mut gather = Gather::new(Arc::clone(&layout));
    if gather.push(first).is_err() || gather.push(second).is_err() {
        return;
    }
    let Ok(batch) = gather.take() else { return };
    let mut again = Vec::new();
    let rows = Rows::Range { start: 0, end: batch.num_rows() };
    RunWriter::new(&layout, &batch).write(rows, &mut again);
    gather.push(&again).expect("a run of rows that there are");
    // A NaN is no other NaN to `==`, and the same bytes.
    assert_eq!(format!("{:?}", gather.take().expect("the same")), format!("{batch:?}"));
}

fn schema(nullable: bool) -> Schema {
    let pair =
        vec![Field::new("flag", DataType::Boolean, nullable), Field::new("fixed", DataType::FixedSizeBinary(3), false)];
    let item = Field::new("item", DataType::Int16, nullable);
    Schema::new(vec![
        Field::new("int", DataType::Int64, nullable),
        Field::new("at", DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), nullable),
        Field::new("text", DataType::Utf8, nullable),
        Field::new("items", DataType::List(Arc::new(item)), nullable),
        Field::new("pair", DataType::Struct(Fields::from(pair)), nullable),
    ])
}

pub(super) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let int = |value: i64| value.to_le_bytes();
    let length = |value: u32| value.to_le_bytes();
    let all = [
        &[0, 255, 2][..],
        &int(1),
        &int(-1),
        &int(1_700_000_000_000),
        &int(0),
        &length(2),
        &length(0),
        "ß".as_bytes(),
        &length(0),
        &length(1),
        &[7, 0],
        &[0b10],
        b"abcdef",
    ];
    // One row of nothing at all, and one in which some are there: numbers, a text, two items of which one is there, a pair.
    let missing = [1, 0];
    let nothing = [
        &[1, 255, 1][..],
        &missing,
        &int(0),
        &missing,
        &int(0),
        &missing,
        &length(0),
        &missing,
        &length(0),
        &[0],
        &missing,
        &missing,
        &[0],
        &[0; 3],
    ];
    let some = [
        &[1, 255, 1, 1, 1][..],
        &int(5),
        &missing,
        &int(0),
        &[0],
        &length(1),
        b"a",
        &[0],
        &length(2),
        &[1, 0b01, 9, 0, 0, 0],
        &[0],
        &[0, 1],
        b"abc",
    ];
    vec![
        ("all-there", all.concat()),
        ("nothing-there", nothing.concat()),
        ("some-there", some.concat()),
        ("two-runs-of-no-rows", [&[0, 1][..], &[0, 0]].concat()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_are_runs() {
        for (name, bytes) in seeds() {
            let layout = Layout::new(Arc::new(schema(bytes[0] == 1))).unwrap();
            let mut gather = Gather::new(Arc::new(layout));
            let (first, second) = bytes[2..].split_at(usize::from(bytes[1]).min(bytes.len() - 2));
            for run in [first, second].into_iter().filter(|run| !run.is_empty()) {
                gather.push(run).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
            gather.take().unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}
