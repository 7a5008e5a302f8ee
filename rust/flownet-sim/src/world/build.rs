//! A world as it is when the tasks start: pools made, channels opened, nothing sent.

use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use flownet_core::{
    ChannelIndex, FillLimit, InputGate, PartitionId, RemoteChannel, ResultPartition, SubpartitionIndex,
};
use flownet_memory::{BufferPool, BufferPoolSettings, SegmentPool};

use super::World;
use super::book::Book;
use super::connection::Connection;
use super::relay::Relay;
use super::stream::Stream;
use super::tasks::{Channel, Reader, Registry, RemoteTask, Writer};
use crate::action::Turn;
use crate::alarm::{Alarm, DueTurns};
use crate::plan::{Plan, ProducerEnd, Wiring};

impl World {
    /// Builds what is planned.
    ///
    /// # Panics
    /// If a worker of the plan has fewer segments than its tasks need.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        #[cfg(feature = "planted-bugs")]
        flownet_core::plant(plan.bug);
        let awake = Arc::new(DueTurns::default());
        let segments: Vec<_> = plan.workers.iter().map(|worker| memory(worker.segments, &plan)).collect();
        let wiring = plan.wiring();
        let readers = wiring.consumers.iter().enumerate().map(|(index, end)| {
            let worker = plan.tasks[end.task].worker;
            let pool = plan.gate_settings(&wiring, end).map(|settings| pool(&segments[worker], settings));
            let relay = (!end.outputs.is_empty()).then(|| Relay::new(end.outputs.clone(), plan.tasks[end.task].work));
            let gate = InputGate::new(end.channels.len() as u32);
            Reader::new(end.task, worker, gate, pool, relay, Alarm::new(Turn::Read(index), &awake))
        });
        let readers: Vec<_> = readers.collect();
        let writer = |(index, end): (usize, &ProducerEnd)| {
            let worker = plan.tasks[end.task].worker;
            let pool = pool(&segments[worker], plan.sizing.partition(end.consumers.len() as u32));
            let partition = ResultPartition::new(PartitionId::new(index as u64), pool, end.consumers.len() as u32);
            if plan.is_debloated {
                partition.set_fill_limit(FillLimit::ONE_RECORD);
            }
            // A task between two exchanges waits for both as one.
            let reader = readers.iter().find(|reader| reader.task == end.task);
            let alarm = reader.map(|reader| Arc::clone(&reader.alarm));
            let alarm = alarm.unwrap_or_else(|| Alarm::new(Turn::Write(index), &awake));
            Writer::new(end.task, worker, end.is_source, partition, alarm)
        };
        let writers: Vec<_> = wiring.producers.iter().enumerate().map(writer).collect();
        let is_late = |producer: usize| plan.registered_late.contains(&producer);
        let registered = writers.iter().enumerate();
        let mut world = Self {
            now_us: 0,
            segments,
            registry: Registry(
                registered.map(|(producer, writer)| (!is_late(producer)).then(|| writer.handle.clone())).collect(),
            ),
            writers,
            readers,
            channels: Vec::new(),
            connections: Vec::new(),
            arrivals: BinaryHeap::new(),
            awake,
            faults: 0,
            actions: 0,
            given: 0,
            plan,
        };
        world.connect_all(&wiring);
        world.check();
        world
    }

    fn connect_all(&mut self, wiring: &Wiring) {
        let mut connections = HashMap::new();
        for (producer, end) in wiring.producers.iter().enumerate() {
            for (subpartition, &consumer) in end.consumers.iter().enumerate() {
                let cell = Arc::clone(&self.writers[producer].handle.subpartitions()[subpartition]);
                let (from, to) = (self.writers[producer].worker, self.readers[consumer].worker);
                let mut channel = Channel {
                    producer,
                    consumer,
                    subpartition: SubpartitionIndex::new(subpartition as u32),
                    stream: Stream::default(),
                    cell,
                    remote: None,
                    is_excused: false,
                };
                let index = ChannelIndex::new(self.readers[consumer].channels.len() as u32);
                if from == to {
                    if let Some(gate) = &self.readers[consumer].gate {
                        gate.set_local(index, Arc::clone(&channel.cell));
                    }
                } else {
                    let connection = *connections.entry((from, to)).or_insert_with(|| {
                        let place = self.connections.len();
                        self.connections.push(Connection::new(&self.plan, place, from, to, &self.awake));
                        place
                    });
                    channel.remote = self.open(&channel, index, connection);
                }
                self.writers[producer].channels.push(self.channels.len());
                self.readers[consumer].channels.push(self.channels.len());
                self.channels.push(channel);
            }
        }
        for reader in &self.readers {
            reader.alarm.set();
        }
    }

    fn open(&mut self, edge: &Channel, index: ChannelIndex, connection: usize) -> Option<RemoteTask> {
        let reader = &self.readers[edge.consumer];
        let place = self.channels.len();
        let opening = &mut self.connections[connection];
        let (gate, machine) = (reader.gate.as_ref()?, opening.consumer.machine.as_mut()?);
        let pool = reader.pool.as_ref().expect("a gate with channels between workers has a pool");
        let exclusive = self.plan.sizing.exclusive_buffers;
        let channel = RemoteChannel::new(Arc::clone(gate), index, Arc::clone(pool), exclusive);
        let id = machine.open(Arc::clone(&channel), PartitionId::new(edge.producer as u64), edge.subpartition);
        opening.channels.push(place);
        opening.consumer.send.set();
        Some(RemoteTask { channel, id, book: Book::default() })
    }
}

fn memory(segments: usize, plan: &Plan) -> Arc<SegmentPool> {
    SegmentPool::new(segments, plan.segment_bytes).expect("a plan has segments")
}

fn pool(segments: &Arc<SegmentPool>, settings: BufferPoolSettings) -> Arc<BufferPool> {
    segments.create_buffer_pool(settings).expect("a plan gives every task what it needs")
}
