//! Fetches the channel statistics of one task from its worker when a user views it. They are not stored.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use flownet_runtime::inspection;
use serde::Serialize;
use tokio::sync::oneshot;

use super::{
    events::{Event, Request},
    job::Job,
    view::JobView,
    workers::Workers,
};
use crate::{
    plan::{PlacedTask, Plan},
    rpc::Attempt,
};

/// The channels of one task at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskChannels {
    /// Attempt of the task. Counters start at 0 in each attempt.
    pub attempt: u64,
    /// Time since the task was created, by its worker's clock.
    pub age: Duration,
    /// Input channels, in the order of the task's inputs.
    pub inputs: Vec<InputChannel>,
    /// Output channels, in the order of the task's outputs.
    pub outputs: Vec<OutputChannel>,
}

/// Input channel of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InputChannel {
    /// Subtask that writes to it.
    #[serde(flatten)]
    pub from: ChannelEnd,
    /// Buffers and events that have arrived and the task has not read.
    pub queued: u64,
    /// Buffers that may still be sent; none if the channel needs no credit, as within a process.
    pub credit: Option<u32>,
    /// Records that the task has read from it.
    pub records_in: u64,
    /// Bytes that the task has read from it, including length prefixes.
    pub bytes_in: u64,
}

/// Output channel of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutputChannel {
    /// Subtask that reads it.
    #[serde(flatten)]
    pub to: ChannelEnd,
    /// Queued buffers, including the one being filled.
    pub buffers: u64,
    /// Bytes in these buffers.
    pub bytes: u64,
    /// Records written to it.
    pub records_out: u64,
    /// Bytes written to it, including length prefixes.
    pub bytes_out: u64,
}

/// Subtask at the other end of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChannelEnd {
    /// Index of its vertex, upstream first.
    pub task: u32,
    /// Index within the vertex.
    pub subtask: u32,
    /// Worker that runs it; 0 is the submitting process.
    pub worker: u32,
}

/// Sender of the reply to a caller that waits.
pub(super) type ChannelsReply = oneshot::Sender<TaskChannels>;

impl JobView {
    /// Returns the channels of a subtask, by index of its vertex and index within the vertex. Returns `None` if there
    /// is no such subtask, if it does not run now, or if its worker is lost. A worker that hangs does not answer, so
    /// use a timeout.
    pub async fn channels(&self, vertex: u32, subtask: u32) -> Option<TaskChannels> {
        let (reply, channels) = oneshot::channel();
        self.events.send(Event::Request(Request::Channels { vertex, subtask, reply })).ok()?;
        channels.await.ok()
    }
}

/// Asks the worker of a subtask for its channels, if it is registered. Otherwise drops the reply sender, which ends the
/// caller's wait. `attempt` is the attempt of the subtask's region.
pub(super) fn fetch_channels(
    job: &Arc<Job>,
    workers: &Workers,
    subtask: &PlacedTask,
    attempt: Attempt,
    reply: ChannelsReply,
) {
    let (job, task) = (Arc::clone(job), subtask.spec.task_id);
    workers.call(subtask.worker, async move |link| {
        if let Some(channels) = link.channels(task).await? {
            // The caller may have stopped waiting.
            let _ = reply.send(TaskChannels::of(channels, attempt.number, &job.plan));
        }
        Ok(None)
    });
}

impl TaskChannels {
    fn of(seen: inspection::TaskChannels, attempt: u64, plan: &Plan) -> Self {
        let writers = writers(plan, &seen.inputs.iter().map(|channel| channel.partition).collect());
        let readers = readers(plan, &seen.outputs.iter().map(|channel| channel.partition).collect());
        let inputs = seen.inputs.into_iter().map(|channel| InputChannel {
            from: writers.get(&channel.partition).copied().unwrap_or_default(),
            queued: channel.readable,
            credit: channel.credit,
            records_in: channel.records_in,
            bytes_in: channel.bytes_in,
        });
        let outputs = seen.outputs.into_iter().map(|channel| OutputChannel {
            to: readers.get(&(channel.partition, channel.subpartition)).copied().unwrap_or_default(),
            buffers: channel.buffers,
            bytes: channel.bytes,
            records_out: channel.records_out,
            bytes_out: channel.bytes_out,
        });
        Self { attempt, age: seen.age, inputs: inputs.collect(), outputs: outputs.collect() }
    }
}

impl From<&PlacedTask> for ChannelEnd {
    fn from(task: &PlacedTask) -> Self {
        Self { task: task.spec.vertex, subtask: task.spec.subtask, worker: task.worker }
    }
}

/// Returns the writer of each of these partitions.
fn writers(plan: &Plan, partitions: &HashSet<u64>) -> HashMap<u64, ChannelEnd> {
    let outputs =
        plan.tasks.iter().flat_map(|task| task.spec.outputs.iter().map(move |output| (output.partition, task)));
    outputs
        .filter(|(partition, _)| partitions.contains(partition))
        .map(|(partition, task)| (partition, task.into()))
        .collect()
}

/// Returns the reader of each subpartition of these partitions.
fn readers(plan: &Plan, partitions: &HashSet<u64>) -> HashMap<(u64, u32), ChannelEnd> {
    let inputs = plan.tasks.iter().flat_map(|task| task.spec.inputs.iter().map(move |input| (input, task)));
    let channels = inputs.flat_map(|(input, task)| input.channels.iter().map(move |channel| (channel, task)));
    let of_these = channels.filter(|(channel, _)| partitions.contains(&channel.partition));
    of_these.map(|(channel, task)| ((channel.partition, channel.subpartition), task.into())).collect()
}

#[cfg(test)]
mod tests {
    use flownet_runtime::inspection::TaskChannels as Seen;
    use flownet_runtime::spec::Partitioner;

    use super::*;
    use crate::{plan::tests::DataflowBuilder, settings::JobSettings};

    #[test]
    fn each_channel_is_of_who_writes_and_who_reads_it() {
        let flow = DataflowBuilder::default()
            .operator("read", 2)
            .operator("count", 3)
            .operator("write", 2)
            .edge("read", "count", Partitioner::KeyGroup)
            .edge("count", "write", Partitioner::Rebalance);
        let settings = JobSettings { workers: 2, ..JobSettings::default() };
        let plan = Plan::new(&flow.0, &settings).expect("a sound dataflow");
        let mut channels = 0;
        for task in &plan.tasks {
            let read = task.spec.inputs.iter().flat_map(|input| &input.channels);
            for channel in read {
                let (partition, subpartition) = (channel.partition, channel.subpartition);
                let (records_in, bytes_in, records_out, bytes_out) = (5, 6, 7, 8);
                let input = inspection::InputChannel {
                    partition,
                    subpartition,
                    readable: 1,
                    credit: Some(2),
                    records_in,
                    bytes_in,
                };
                let output =
                    inspection::OutputChannel { partition, subpartition, buffers: 3, bytes: 4, records_out, bytes_out };
                let age = Duration::from_secs(9);
                let seen = Seen { age, inputs: vec![input], outputs: vec![output] };
                let told = TaskChannels::of(seen, 10, &plan);
                let writer =
                    plan.tasks.iter().find(|writer| writer.spec.outputs.iter().any(|one| one.partition == partition));
                let from = ChannelEnd::from(writer.expect("somebody writes it"));
                let inputs = vec![InputChannel { from, queued: 1, credit: Some(2), records_in, bytes_in }];
                assert_eq!(from.worker, channel.producer_worker);
                let outputs = vec![OutputChannel { to: task.into(), buffers: 3, bytes: 4, records_out, bytes_out }];
                assert_eq!(told, TaskChannels { attempt: 10, age, inputs, outputs });
                channels += 1;
            }
        }
        assert_eq!(channels, 2 * 3 + 3 * 2);
    }
}
