//! The record reader: any bytes in any buffers are records or an error, and how they are cut does not matter.

use std::sync::Arc;

use flownet_core::RecordReader;
use flownet_memory::{Buffer, BufferPool, BufferPoolSettings, SegmentPool};

const SEGMENT_BYTES: usize = 64;
const MAX_RECORD_BYTES: usize = 100;

/// First byte: how long the pieces are; then the stream.
pub(super) fn run(data: &[u8]) {
    let Some((&shape, stream)) = data.split_first() else { return };
    let expected = read_plainly(stream);
    let segments = SegmentPool::new(2, SEGMENT_BYTES).expect("two segments");
    let settings = BufferPoolSettings { min: 2, max: Some(2), lanes: 1, max_per_lane: usize::MAX, max_overdraft: 0 };
    let pool = segments.create_buffer_pool(settings).expect("all there is");
    for reads_all in [false, true] {
        assert_eq!(read(stream, usize::from(shape), &pool, reads_all), expected, "reads_all is {reads_all}");
    }
    drop(pool);
    assert_eq!(segments.available(), segments.total(), "a segment is missing");
}

/// The records, and whether the stream ends well: between two records, none too long.
type Read = (Vec<Vec<u8>>, bool);

fn read_plainly(mut stream: &[u8]) -> Read {
    let mut records = Vec::new();
    while let Some((prefix, rest)) = stream.split_first_chunk::<4>() {
        let len = u32::from_le_bytes(*prefix) as usize;
        if len > MAX_RECORD_BYTES || len > rest.len() {
            return (records, false);
        }
        records.push(rest[..len].to_vec());
        stream = &rest[len..];
    }
    (records, stream.is_empty())
}

fn read(stream: &[u8], shape: usize, pool: &Arc<BufferPool>, reads_all: bool) -> Read {
    let mut reader = RecordReader::new(MAX_RECORD_BYTES);
    let mut records = Vec::new();
    let (mut rest, mut turn) = (stream, shape);
    while !rest.is_empty() {
        // Pieces of unlike sizes, none longer than a segment.
        turn = (turn * 5 + 1) % 256;
        let (piece, later) = rest.split_at((turn % SEGMENT_BYTES + 1).min(rest.len()));
        rest = later;
        let mut segment = pool.try_take(0).expect("the reader keeps one buffer, no more");
        segment.as_mut_slice()[..piece.len()].copy_from_slice(piece);
        reader.push(Buffer::from_segment(segment, piece.len()));
        let is_good = if reads_all {
            reader.read_all(|record| records.push(record.to_vec())).is_ok()
        } else {
            read_one_by_one(&mut reader, &mut records)
        };
        if !is_good {
            return (records, false);
        }
    }
    (records, reader.check_boundary().is_ok())
}

fn read_one_by_one(reader: &mut RecordReader, records: &mut Vec<Vec<u8>>) -> bool {
    loop {
        match reader.next_record() {
            Ok(Some(record)) => records.push(record.to_vec()),
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

pub(super) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let stream = |shape: u8, records: &[&[u8]]| {
        let framed = records.iter().flat_map(|record| [&(record.len() as u32).to_le_bytes(), *record].concat());
        std::iter::once(shape).chain(framed).collect::<Vec<u8>>()
    };
    let long = [7; MAX_RECORD_BYTES];
    vec![
        ("empty", vec![3]),
        ("small", stream(63, &[b"a", b"", b"bcd"])),
        ("cut-in-length", stream(0, &[b"abcdef", b"ghijkl", b"mn"])),
        ("longest", stream(20, &[&long, b"x", &long])),
        ("too-long", stream(9, &[b"ok", &[1; MAX_RECORD_BYTES + 1]])),
        ("cut", stream(5, &[b"ok", b"gone"])[..12].to_vec()),
    ]
}
