//! What goes by single channels, as both of their ends count it.

use std::collections::BTreeMap;

use flownet_core::Target;
use flownet_core::keygroup::hash_key;
use flownet_runtime::inspection::{InputChannel, OutputChannel};
use flownet_runtime::operator::{Collector, Kind, Operator, OperatorChain};
use flownet_runtime::snapshot::Snapshot;
use flownet_runtime::spec::{Partitioner, TaskSpec};
use flownet_runtime::{Outputs, SourceStatus, TaskError, TaskHandle};

use crate::bytes::{Bytes, chain_to_all};
use crate::chains::{SeenRecords, SilentSource, Sink, TestChain, WritingSource};
use crate::rig::{Job, wait_until};

/// A channel, by its partition and subpartition, and what went by it: records and bytes.
type Counts = BTreeMap<(u64, u32), (u64, u64)>;

#[test]
fn both_ends_of_each_channel_count_the_same_and_sum_to_what_their_tasks_count() {
    // In one process, in another, and both; forward edges within and between processes.
    for placement in [[0, 0, 0], [0, 1, 1], [1, 0, 1]] {
        let [here, there, elsewhere] = placement;
        // Segments of 1 KiB: records span several.
        let mut job = Job::with_segments(2, 256, 1024);
        let left = job.vertex("left", &[here, there]);
        let right = job.vertex("right", &[elsewhere]);
        let middle = job.vertex("middle", &[here, there, elsewhere]);
        let keyed = job.vertex("keyed", &[there, here]);
        let forward = job.vertex("forward", &[here, elsewhere, there]);
        job.edge(left, middle, Partitioner::Rebalance);
        job.edge(right, middle, Partitioner::Broadcast);
        job.edge(middle, keyed, Partitioner::KeyGroup);
        job.edge(middle, forward, Partitioner::Forward);
        let seen = SeenRecords::default();
        job.run(left, |_| MixedSizes { left: 2000 });
        job.run(right, |_| MixedSizes { left: 500 });
        job.run(middle, |_| EveryChannel);
        job.run(keyed, |_| Sink::new(&seen));
        job.run(forward, |_| Sink::new(&seen));

        let running = job.start();
        running.join();

        let (mut written, mut read) = (Counts::new(), Counts::new());
        for task in &running.tasks {
            let (channels, metrics) = (task.channels(), task.metrics());
            let sums = sum(channels.inputs.iter().map(|one| (one.records_in, one.bytes_in)));
            let is_source = channels.inputs.is_empty();
            let expected = (metrics.records_in, metrics.bytes_in_local + metrics.bytes_in_remote);
            assert!(is_source || sums == expected, "{} in: {sums:?}, {expected:?}", task.name());

            let copies = if task.name().starts_with("right") { 3 } else { 1 };
            let is_sink = channels.outputs.is_empty();
            let sums = sum(channels.outputs.iter().map(|one| (one.records_out, one.bytes_out)));
            let expected = (metrics.records_out * copies, metrics.bytes_out);
            assert!(is_sink || sums == expected, "{} out: {sums:?}, {expected:?}", task.name());

            read.extend(channels.inputs.iter().map(counts_in));
            written.extend(channels.outputs.iter().map(counts_out));
        }
        assert_eq!(written.len(), 2 * 3 + 3 + 3 * 2 + 3, "every channel is counted");
        assert!(written.values().all(|(records, bytes)| *records > 100 && *bytes > 100 * 1024), "{written:?}");
        assert_eq!(read, written, "{placement:?}");
        running.finish_and_assert_all_segments_home();
    }
}

#[test]
fn what_is_written_and_read_counts_while_it_fills_a_buffer() {
    for placement in [0, 1] {
        let mut job = Job::new(2);
        let source = job.vertex("source", &[0]);
        let sink = job.vertex("sink", &[placement]);
        job.edge(source, sink, Partitioner::Forward);
        let seen = SeenRecords::default();
        job.run(source, |_| SilentSource(3));
        job.run(sink, |_| Sink::new(&seen));
        let running = job.start();
        wait_until("all is read", || seen.len() == 3);
        let three = (3, 3 * 12);
        let written = running.task("source", 0).channels();
        assert_eq!(written.outputs.iter().map(counts_out).map(|(_, counts)| counts).collect::<Vec<_>>(), [three]);
        assert_eq!(running.task("source", 0).metrics().bytes_out, 3 * 12, "a buffer holds far more");
        let read = running.task("sink", 0).channels();
        assert_eq!(read.inputs.iter().map(counts_in).map(|(_, counts)| counts).collect::<Vec<_>>(), [three]);
        let later = running.task("source", 0).channels();
        assert!(later.age > written.age, "by their difference rates are reckoned");
        running.tasks.iter().for_each(TaskHandle::cancel);
        running.finish_and_assert_all_segments_home();
    }
}

fn counts_in(channel: &InputChannel) -> ((u64, u32), (u64, u64)) {
    ((channel.partition, channel.subpartition), (channel.records_in, channel.bytes_in))
}

fn counts_out(channel: &OutputChannel) -> ((u64, u32), (u64, u64)) {
    ((channel.partition, channel.subpartition), (channel.records_out, channel.bytes_out))
}

fn sum(counts: impl Iterator<Item = (u64, u64)>) -> (u64, u64) {
    counts.fold((0, 0), |(records, bytes), (more_records, more_bytes)| (records + more_records, bytes + more_bytes))
}

/// Emits records of 8 bytes up to several segments, by their number.
struct MixedSizes {
    left: u64,
}

impl WritingSource for MixedSizes {
    fn write(&mut self, out: &mut Outputs) -> Result<SourceStatus, TaskError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(SourceStatus::Finished) };
        self.left = left;
        let mut record = left.to_le_bytes().to_vec();
        record.resize(8 + (left as usize % 7) * 700, 1);
        out.emit(0, Target::Any, &record)?;
        Ok(SourceStatus::More)
    }
}

/// Hands each record on by all outputs, by what it begins with.
struct EveryChannel;

impl Operator<Bytes> for EveryChannel {
    fn process<'m>(&mut self, record: Vec<u8>, collector: &mut Collector<'_, 'm, Bytes>) -> Result<(), TaskError> {
        collector.emit(record)
    }

    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}

impl TestChain for EveryChannel {
    fn chain(self, task: &TaskSpec) -> OperatorChain<Bytes> {
        chain_to_all(Kind::Operator(Box::new(self)), task, |record| Target::KeyHash(hash_key(&record[..8])))
    }
}
