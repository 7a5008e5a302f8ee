//! A world as it is when the tasks start: pools made, channels opened, nothing sent.

use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use flownet_core::{ChannelIndex, InputGate, PartitionId, RemoteChannel, ResultPartition};
use flownet_memory::{BufferPool, BufferPoolSettings, SegmentPool};

use super::World;
use super::book::Book;
use super::connection::Connection;
use super::stream::Stream;
use super::tasks::{Channel, Reader, Registry, Remote, Writer, subpartition};
use crate::action::Turn;
use crate::alarm::{Alarm, Awake};
use crate::plan::{BUFFERS_PER_LANE, ConsumerPlan, GATE_MIN, PARTITION_MIN, Plan, ProducerPlan};

impl World {
    /// Builds what is planned.
    ///
    /// # Panics
    /// If a worker of the plan has fewer segments than its tasks need.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        #[cfg(feature = "planted-bugs")]
        flownet_core::plant(plan.bug);
        let awake = Arc::new(Awake::default());
        let segments: Vec<_> = plan.workers.iter().map(|worker| memory(worker.segments, &plan)).collect();
        let writer = |(index, of): (usize, &ProducerPlan)| {
            let pool = partition_pool(&segments[of.worker], of, plan.consumers.len());
            let partition = ResultPartition::new(PartitionId::new(index as u64), pool, plan.consumers.len() as u32);
            Writer::new(of.worker, partition, Alarm::new(Turn::Write(index), &awake))
        };
        let writers: Vec<_> = plan.producers.iter().enumerate().map(writer).collect();
        let reader = |(index, of): (usize, &ConsumerPlan)| Reader {
            worker: of.worker,
            gate: Some(InputGate::new(plan.producers.len() as u32)),
            pool: gate_pool(&segments[of.worker], of),
            held: VecDeque::new(),
            blocked: VecDeque::new(),
            alarm: Alarm::new(Turn::Read(index), &awake),
        };
        let readers = plan.consumers.iter().enumerate().map(reader).collect();
        let registered = writers.iter().zip(&plan.producers);
        let mut world = Self {
            now_us: 0,
            segments,
            registry: Registry(
                registered.map(|(writer, of)| of.is_registered.then(|| writer.handle.clone())).collect(),
            ),
            writers,
            readers,
            channels: Vec::new(),
            connections: Vec::new(),
            arrivals: BinaryHeap::new(),
            awake,
            faults: 0,
            actions: 0,
            plan,
        };
        world.connect_all();
        world.check();
        world
    }

    fn connect_all(&mut self) {
        let mut connections = HashMap::new();
        for producer in 0..self.writers.len() {
            for consumer in 0..self.readers.len() {
                let cell = Arc::clone(&self.writers[producer].handle.subpartitions()[consumer]);
                let (from, to) = (self.writers[producer].worker, self.readers[consumer].worker);
                let mut channel = Channel { stream: Stream::default(), cell, remote: None, is_excused: false };
                let index = ChannelIndex::new(producer as u32);
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
                    channel.remote = self.open(producer, consumer, connection);
                }
                self.channels.push(channel);
            }
        }
        for reader in &self.readers {
            reader.alarm.set();
        }
    }

    fn open(&mut self, producer: usize, consumer: usize, connection: usize) -> Option<Remote> {
        let reader = &self.readers[consumer];
        let place = self.channels.len();
        let opening = &mut self.connections[connection];
        let (gate, machine) = (reader.gate.as_ref()?, opening.consumer.machine.as_mut()?);
        let exclusive = self.plan.workers[reader.worker].exclusive;
        let index = ChannelIndex::new(producer as u32);
        let channel = RemoteChannel::new(Arc::clone(gate), index, Arc::clone(&reader.pool), exclusive);
        let id = machine.open(Arc::clone(&channel), PartitionId::new(producer as u64), subpartition(consumer));
        opening.channels.push(place);
        opening.consumer.send.set();
        Some(Remote { channel, id, book: Book::default() })
    }
}

fn memory(segments: usize, plan: &Plan) -> Arc<SegmentPool> {
    SegmentPool::new(segments, plan.segment_bytes).expect("a plan has segments")
}

fn partition_pool(segments: &Arc<SegmentPool>, plan: &ProducerPlan, consumers: usize) -> Arc<BufferPool> {
    let settings = BufferPoolSettings {
        min: PARTITION_MIN,
        max: Some(plan.max_segments.max(PARTITION_MIN)),
        lanes: consumers,
        max_per_lane: BUFFERS_PER_LANE,
        max_overdraft: plan.overdraft,
    };
    segments.create_buffer_pool(settings).expect("a plan gives every task what it needs")
}

fn gate_pool(segments: &Arc<SegmentPool>, plan: &ConsumerPlan) -> Arc<BufferPool> {
    let settings = BufferPoolSettings {
        min: GATE_MIN,
        max: Some(plan.max_segments.max(GATE_MIN)),
        lanes: 1,
        max_per_lane: usize::MAX,
        max_overdraft: 0,
    };
    segments.create_buffer_pool(settings).expect("a plan gives every task what it needs")
}
