//! Joins of two inputs by key in running tasks, of records that are bytes.

use flownet_runtime::TaskError;
use flownet_runtime::operator::{
    AsOfJoin, Collector, Entry, Interval, IntervalJoin, KeyedOperator, KeyedRecord, Kind, Pairing,
};
use flownet_runtime::spec::Partitioner;
use flownet_runtime::state::KeyGroupRange;

use crate::bytes::Step::{self, Record, Watermark};
use crate::bytes::{Bytes, BytesExit, chain};
use crate::chains::{SeenRecords, Sink};
use crate::rig::{Job, RunningTask};
use crate::time::script;

/// Emits whether there was a record of the second input, the key, and the time of the pair.
pub(crate) struct BothStreams;

impl Pairing<Bytes> for BothStreams {
    type JoinRecord<'b, 'm> = &'b [u8];

    fn met<'b, 'm>(&self, bytes: &'b [u8], _: &Collector<'_, 'm, Bytes>) -> Result<&'b [u8], TaskError> {
        Ok(bytes)
    }

    fn again<'b, 'm>(
        &self,
        _: &&'b [u8],
        bytes: &'b [u8],
        _: &Collector<'_, 'm, Bytes>,
    ) -> Result<&'b [u8], TaskError> {
        Ok(bytes)
    }

    fn pair<'m>(
        &mut self,
        left: &[u8],
        right: Option<&[u8]>,
        _: u32,
        collector: &mut Collector<'_, 'm, Bytes>,
    ) -> Result<(), TaskError> {
        assert!(right.is_none_or(|right| right == left), "one key");
        collector.emit([&[u8::from(right.is_some()), left[0]], &collector.timestamp_ms.to_le_bytes()[..]].concat())
    }

    fn record<'m>(&self, record: &KeyedRecord<'_>, _: &Collector<'_, 'm, Bytes>) -> Result<Vec<u8>, TaskError> {
        Ok(record.value().to_vec())
    }

    fn without_timestamp(&self, (): (), record: &KeyedRecord<'_>) -> TaskError {
        TaskError::Config(format!("no timestamp: {:?}", record.value()))
    }
}

/// Two sources, a join in two subtasks, and a sink.
fn join_job(
    scripts: [&[Step]; 2],
    join: impl Fn(KeyGroupRange) -> Box<dyn KeyedOperator<Bytes>>,
) -> (RunningTask, SeenRecords) {
    let mut job = Job::new(2);
    let seen = SeenRecords::default();
    let [left, right] = ["left", "right"].map(|name| job.vertex(name, &[0]));
    let joined = job.vertex("join", &[0, 1]);
    let sink = job.vertex("sink", &[0]);
    job.edge(left, joined, Partitioner::KeyGroup);
    job.edge(right, joined, Partitioner::KeyGroup);
    job.edge(joined, sink, Partitioner::Rebalance);
    job.run(left, |_| script(scripts[0], true, true));
    job.run(right, |_| script(scripts[1], true, true));
    job.run(joined, |subtask| {
        let operator = join(KeyGroupRange::of(subtask, 2, 128));
        let entries = [0, 1].map(|side| Entry { side, keyed: true, stamps: true });
        chain(Kind::Keyed(operator), entries, Some((BytesExit::any(), false)))
    });
    job.run(sink, |_| Sink::new(&seen));
    (job.start(), seen)
}

/// Whether there was a record of the second input, the key, and the time, sorted.
fn found(running: RunningTask, seen: &SeenRecords) -> Vec<(bool, u8, i64)> {
    running.join();
    let read = |(_, pair): (usize, Vec<u8>)| {
        let (head, at_ms) = pair.split_first_chunk::<2>().unwrap();
        (head[0] == 1, head[1], i64::from_le_bytes(at_ms.try_into().unwrap()))
    };
    let mut all: Vec<_> = seen.records().into_iter().map(read).collect();
    all.sort_unstable();
    running.finish_and_assert_all_segments_home();
    all
}

#[test]
fn an_interval_join_pairs_those_that_are_near_enough_at_the_later_time() {
    let left = [Record(1, 10), Record(2, 10), Watermark(9), Record(1, 30), Record(3, 12)];
    let right =
        [Record(1, 8), Record(1, 12), Record(1, 13), Watermark(12), Record(2, 13), Record(3, 40), Record(1, 29)];
    let interval = Interval { lower_ms: -2, upper_ms: 2 };
    let (running, seen) =
        join_job([&left, &right], |range| Box::new(IntervalJoin::new(BothStreams, interval, [None, None], range)));
    assert_eq!(found(running, &seen), [(true, 1, 10), (true, 1, 12), (true, 1, 30)]);
}

#[test]
fn an_as_of_join_waits_for_the_watermark_and_takes_the_newest_version() {
    let left = [Record(1, 10), Record(1, 4), Watermark(3), Record(2, 7), Record(1, 20)];
    let right = [Record(1, 5), Record(1, 15), Watermark(15), Record(1, 21), Record(3, 16)];
    let (running, seen) =
        join_job([&left, &right], |range| Box::new(AsOfJoin::new(BothStreams, true, [None, None], range)));
    assert_eq!(found(running, &seen), [(false, 1, 4), (false, 2, 7), (true, 1, 10), (true, 1, 20)]);
    let (running, seen) =
        join_job([&left, &right], |range| Box::new(AsOfJoin::new(BothStreams, false, [None, None], range)));
    assert_eq!(found(running, &seen), [(true, 1, 10), (true, 1, 20)]);
}
