//! What a world is made of, before anything moves.

use fastrand::Rng;

/// Workers, tasks and links. Every producer has one subpartition for every consumer: a full shuffle.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Bytes of every segment.
    pub segment_bytes: usize,
    /// The processes.
    pub workers: Vec<WorkerPlan>,
    /// The tasks that write.
    pub producers: Vec<ProducerPlan>,
    /// The tasks that read.
    pub consumers: Vec<ConsumerPlan>,
    /// How bytes travel: the two directions of all connections take these in turn.
    pub links: Vec<LinkPlan>,
    /// An end of a connection that received something transmits at once, as flownet-net's drivers do; otherwise some
    /// time later.
    pub answers_at_once: bool,
    /// The bug to be found, if any.
    pub bug: Option<Bug>,
}

/// One process and its settings.
#[derive(Clone, Debug)]
pub struct WorkerPlan {
    /// Its segments, for all of its tasks.
    pub segments: usize,
    /// Segments that each of its remote channels may keep.
    pub exclusive: u32,
    /// Whether its data frames bear checksums.
    pub checksums: bool,
    /// Buffers of one transmit.
    pub buffers_per_turn: usize,
    /// The outbox takes nothing more above this.
    pub outbox_bytes: usize,
}

/// A task that writes one partition.
#[derive(Clone, Debug)]
pub struct ProducerPlan {
    /// Where it runs.
    pub worker: usize,
    /// Most segments of its partition: more than there are consumers, or open buffers could be all of them.
    pub max_segments: usize,
    /// Segments beyond, to finish a record.
    pub overdraft: usize,
    /// Its partition can be found from the start.
    pub is_registered: bool,
}

/// A task that reads one gate.
#[derive(Clone, Debug)]
pub struct ConsumerPlan {
    /// Where it runs.
    pub worker: usize,
    /// Most segments of its gate.
    pub max_segments: usize,
}

/// One direction of a connection.
#[derive(Clone, Debug, Default)]
pub struct LinkPlan {
    /// Time that every byte needs.
    pub latency_us: u64,
    /// Bytes a millisecond; 0: as many as you like.
    pub bytes_per_ms: u64,
    /// Up to so much is added to the latency.
    pub jitter_us: u64,
    /// Bytes under way or unread at which the sending socket takes no more.
    pub capacity_bytes: usize,
}

/// A bug of flownet-core, to be found.
#[cfg(feature = "planted-bugs")]
pub use flownet_core::Bug;

/// None can be planted in this build.
#[cfg(not(feature = "planted-bugs"))]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bug {}

/// What a partition needs whatever its size, see flownet-net's settings.
pub const PARTITION_MIN: usize = 2;
/// Likewise for a gate.
pub const GATE_MIN: usize = 1;
/// Data buffers one subpartition may hold before its partition counts as unavailable.
pub const BUFFERS_PER_LANE: usize = 10;

impl Plan {
    /// A few workers with some tasks each, all sizes by chance: pools that are short or not, with or without exclusive
    /// segments, links from instant to slow.
    #[must_use]
    pub fn random(rng: &mut Rng) -> Self {
        let segment_bytes = if rng.u8(..4) == 0 { 700 } else { 32 };
        let worker_count = rng.usize(2..=5);
        let (producers, consumers) = (rng.usize(1..=4), rng.usize(1..=4));
        let mut plan = Self {
            segment_bytes,
            workers: (0..worker_count).map(|_| WorkerPlan::random(rng, segment_bytes)).collect(),
            producers: (0..producers).map(|_| ProducerPlan::random(rng, worker_count, consumers)).collect(),
            consumers: Vec::new(),
            links: (0..rng.usize(1..=4)).map(|_| LinkPlan::random(rng)).collect(),
            answers_at_once: rng.bool(),
            bug: None,
        };
        plan.consumers = (0..consumers).map(|_| ConsumerPlan::random(rng, &plan.workers, producers)).collect();
        plan.share_out_segments(|_, needed, wanted| match rng.u8(..3) {
            0 => needed,
            1 => rng.usize(needed..=wanted),
            _ => wanted,
        });
        plan
    }

    /// So many workers with one producer and one consumer each, on links of 1 ms: as many channels a worker as there
    /// are workers. Pools are half of what would be liked, links take 64 KiB.
    #[must_use]
    pub fn grid(workers: usize) -> Self {
        let link = LinkPlan { latency_us: 1_000, bytes_per_ms: 1_000_000, jitter_us: 200, capacity_bytes: 64 * 1024 };
        let worker =
            WorkerPlan { segments: 0, exclusive: 1, checksums: false, buffers_per_turn: 32, outbox_bytes: 16 * 1024 };
        let producer = |worker| ProducerPlan { worker, max_segments: workers + 8, overdraft: 5, is_registered: true };
        let mut plan = Self {
            segment_bytes: 64,
            workers: vec![worker; workers],
            producers: (0..workers).map(producer).collect(),
            consumers: (0..workers).map(|worker| ConsumerPlan { worker, max_segments: workers + 8 }).collect(),
            links: vec![link],
            answers_at_once: true,
            bug: None,
        };
        plan.share_out_segments(|_, needed, wanted| needed.max(wanted / 2));
        plan
    }

    /// Gives every worker segments between what its tasks need and what they would like.
    pub fn share_out_segments(&mut self, mut choose: impl FnMut(usize, usize, usize) -> usize) {
        for index in 0..self.workers.len() {
            let partitions = self.producers.iter().filter(|producer| producer.worker == index);
            let gates = self.consumers.iter().filter(|consumer| consumer.worker == index);
            let needed = partitions.clone().count() * PARTITION_MIN + gates.clone().count() * GATE_MIN;
            let wanted = partitions.map(|producer| producer.max_segments).sum::<usize>()
                + gates.map(|consumer| consumer.max_segments).sum::<usize>();
            self.workers[index].segments = choose(index, needed, wanted.max(needed)).max(1);
        }
    }

    /// Channels of all gates.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.producers.len() * self.consumers.len()
    }
}

impl WorkerPlan {
    fn random(rng: &mut Rng, segment_bytes: usize) -> Self {
        Self {
            segments: 0,
            exclusive: rng.u32(0..=3),
            checksums: rng.u8(..4) == 0,
            buffers_per_turn: rng.usize(1..=20),
            outbox_bytes: segment_bytes * rng.usize(1..=20),
        }
    }
}

impl ProducerPlan {
    fn random(rng: &mut Rng, workers: usize, consumers: usize) -> Self {
        Self {
            worker: rng.usize(..workers),
            max_segments: rng.usize(consumers + 1..=2 * consumers + 8),
            overdraft: if rng.bool() { rng.usize(..=5) } else { 0 },
            is_registered: rng.u8(..8) > 0,
        }
    }
}

impl ConsumerPlan {
    fn random(rng: &mut Rng, workers: &[WorkerPlan], producers: usize) -> Self {
        let worker = rng.usize(..workers.len());
        let exclusive = workers[worker].exclusive as usize * producers;
        Self { worker, max_segments: exclusive + rng.usize(1..=8) }
    }
}

impl LinkPlan {
    fn random(rng: &mut Rng) -> Self {
        let is_slow = rng.bool();
        Self {
            latency_us: if is_slow { rng.u64(..20_000) } else { 0 },
            bytes_per_ms: if is_slow { rng.u64(10..10_000) } else { 0 },
            jitter_us: if is_slow { rng.u64(..5_000) } else { 0 },
            capacity_bytes: rng.usize(1..=4_000),
        }
    }
}
