//! What a world is made of, before anything moves.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use flownet_core::PoolSizing;

/// Workers, tasks, exchanges between them, and links.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Bytes of every segment.
    pub segment_bytes: usize,
    /// How pools are sized, for all of the job.
    pub sizing: PoolSizing,
    /// The processes.
    pub workers: Vec<WorkerPlan>,
    /// The tasks. One that nobody writes to is a source, one that writes to nobody a sink.
    pub tasks: Vec<TaskPlan>,
    /// Who writes to whom. Every edge leads to a task further on, so there is no ring.
    pub exchanges: Vec<ExchangePlan>,
    /// Partitions, in the order of [`Wiring::producers`], that cannot be found from the start.
    pub registered_late: Vec<usize>,
    /// How bytes travel: the two directions of all connections take these in turn.
    pub links: Vec<LinkPlan>,
    /// An end of a connection that received something transmits at once, as flownet-net's drivers do; otherwise some
    /// time later.
    pub answers_at_once: bool,
    /// Buffers begin with one record, and consumers say how far they are to be filled.
    pub is_debloated: bool,
    /// The bug to be found, if any.
    pub bug: Option<Bug>,
}

/// One process and its settings.
#[derive(Clone, Debug)]
pub struct WorkerPlan {
    /// Its segments, for all of its tasks.
    pub segments: usize,
    /// Whether its data frames bear checksums.
    pub checksums: bool,
    /// Buffers of one transmit.
    pub buffers_per_turn: usize,
    /// The outbox takes nothing more above this.
    pub outbox_bytes: usize,
}

/// One subtask.
#[derive(Clone, Debug)]
pub struct TaskPlan {
    /// Where it runs.
    pub worker: usize,
    /// What it makes of what it reads, if it writes.
    pub work: Work,
}

/// What a task between two exchanges does: so many bytes of records for every hundred it reads, copies counted.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// A filter has less than a hundred, a flat map more.
    pub percent: usize,
    /// Bytes of each record.
    pub record_bytes: usize,
    /// Who gets a record.
    pub spread: Spread,
}

/// Who gets a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Spread {
    /// One consumer of one output.
    One,
    /// One consumer of each output.
    EachOutput,
    /// All.
    All,
}

/// One edge of the job: of each task that writes the partition, the tasks that read it.
#[derive(Clone, Debug)]
pub struct ExchangePlan {
    /// By writing task.
    pub edges: Vec<(usize, Vec<usize>)>,
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

/// A bug of the machines, to be found.
#[cfg(feature = "planted-bugs")]
pub use flownet_core::Bug;

/// None can be planted in this build.
#[cfg(not(feature = "planted-bugs"))]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bug {}

/// The two ends that tasks hold, numbered: those of sources first.
#[derive(Clone, Debug, Default)]
pub struct Wiring {
    /// Partitions, one for each task and exchange that it writes.
    pub producers: Vec<ProducerEnd>,
    /// Gates, one for each task that reads.
    pub consumers: Vec<ConsumerEnd>,
}

/// A partition.
#[derive(Clone, Debug)]
pub struct ProducerEnd {
    /// Who writes it.
    pub task: usize,
    /// By subpartition.
    pub consumers: Vec<usize>,
    /// Its task reads nothing.
    pub is_source: bool,
}

/// A gate.
#[derive(Clone, Debug)]
pub struct ConsumerEnd {
    /// Who reads it.
    pub task: usize,
    /// By channel: a producer and one of its subpartitions.
    pub channels: Vec<(usize, usize)>,
    /// The partitions its task writes.
    pub outputs: Vec<usize>,
}

impl Plan {
    /// A few workers and a dataflow of two to five stages over them, by chance: tasks in a row, side by side, apart and
    /// together again, some with several inputs and outputs. The settings are the product's own or drawn around them,
    /// memory is what the tasks need or somewhat more, links are from instant to slow.
    #[must_use]
    pub fn random(rng: &mut Rng) -> Self {
        // The last are split into parts where more subpartitions are busy than there are segments.
        let segment_bytes = *rng.choice(&[32, 32, 32, 32, 32, 700, 700, 2048]).unwrap_or(&32);
        let workers = rng.usize(1..=5);
        let mut plan = Self {
            segment_bytes,
            sizing: random_sizing(rng),
            workers: (0..workers).map(|_| WorkerPlan::random(rng, segment_bytes)).collect(),
            tasks: Vec::new(),
            exchanges: Vec::new(),
            registered_late: Vec::new(),
            links: (0..rng.usize(1..=4)).map(|_| LinkPlan::random(rng)).collect(),
            answers_at_once: rng.bool(),
            // As it is by default.
            is_debloated: rng.u8(..8) > 0,
            bug: None,
        };
        plan.draw_graph(rng);
        plan.registered_late = (0..plan.wiring().producers.len()).filter(|_| rng.u8(..8) == 0).collect();
        plan.share_out_segments(|_, needed, wanted| match rng.u8(..4) {
            0 | 1 => needed,
            2 => rng.usize(needed..=wanted),
            _ => wanted,
        });
        plan
    }

    fn draw_graph(&mut self, rng: &mut Rng) {
        let stages = if rng.u8(..3) == 0 { 2 } else { rng.usize(3..=5) };
        let widest = if stages > 3 { 3 } else { 4 };
        let mut stage_tasks: Vec<Vec<usize>> = Vec::new();
        for _ in 0..stages {
            let tasks = (0..rng.usize(1..=widest)).map(|_| {
                self.tasks.push(TaskPlan::random(rng, self.workers.len(), self.segment_bytes));
                self.tasks.len() - 1
            });
            stage_tasks.push(tasks.collect());
        }
        for stage in 1..stages {
            self.exchanges.push(ExchangePlan::random(rng, &stage_tasks[stage - 1], &stage_tasks[stage]));
        }
        // Side ways: past a stage, beside an exchange that is there, or both into one gate.
        for _ in 0..rng.usize(..=2) {
            let from = rng.usize(..stages - 1);
            let to = rng.usize(from + 1..stages);
            self.exchanges.push(ExchangePlan::random(rng, &stage_tasks[from], &stage_tasks[to]));
        }
    }

    /// So many workers with one source and one sink each, on links of 1 ms: as many channels a worker as there are
    /// workers. Pools are half of what would be liked, links take 64 KiB.
    #[must_use]
    pub fn grid(workers: usize) -> Self {
        let link = LinkPlan { latency_us: 1_000, bytes_per_ms: 1_000_000, jitter_us: 200, capacity_bytes: 64 * 1024 };
        let worker = WorkerPlan { segments: 0, checksums: false, buffers_per_turn: 32, outbox_bytes: 16 * 1024 };
        let sinks: Vec<usize> = (workers..2 * workers).collect();
        let mut plan = Self {
            segment_bytes: 64,
            sizing: PoolSizing { exclusive_buffers: 1, ..PoolSizing::default() },
            workers: vec![worker; workers],
            tasks: (0..2 * workers).map(|task| TaskPlan::on(task % workers)).collect(),
            exchanges: vec![ExchangePlan { edges: (0..workers).map(|source| (source, sinks.clone())).collect() }],
            registered_late: Vec::new(),
            links: vec![link],
            answers_at_once: true,
            is_debloated: true,
            bug: None,
        };
        plan.share_out_segments(|_, needed, wanted| needed.max(wanted / 2));
        plan
    }

    /// Partitions and gates, and how they hang together.
    #[must_use]
    pub fn wiring(&self) -> Wiring {
        let read: BTreeSet<usize> = self.edges().flat_map(|(_, to)| to.iter().copied()).collect();
        let consumer_of: BTreeMap<usize, usize> = read.iter().enumerate().map(|(index, &task)| (task, index)).collect();
        let mut wiring = Wiring::default();
        for is_source in [true, false] {
            for (task, to) in self.edges().filter(|(task, _)| read.contains(task) != is_source) {
                let consumers = to.iter().map(|task| consumer_of[task]).collect();
                wiring.producers.push(ProducerEnd { task, consumers, is_source });
            }
        }
        for &task in consumer_of.keys() {
            let outputs = (0..wiring.producers.len()).filter(|&producer| wiring.producers[producer].task == task);
            wiring.consumers.push(ConsumerEnd { task, channels: Vec::new(), outputs: outputs.collect() });
        }
        for (producer, end) in wiring.producers.iter().enumerate() {
            for (subpartition, &consumer) in end.consumers.iter().enumerate() {
                wiring.consumers[consumer].channels.push((producer, subpartition));
            }
        }
        wiring
    }

    /// Gives every worker segments between what its tasks need and what they would like, as the product counts both.
    pub fn share_out_segments(&mut self, mut choose: impl FnMut(usize, usize, usize) -> usize) {
        let wiring = self.wiring();
        let mut demands = vec![(0, 0); self.workers.len()];
        for end in &wiring.producers {
            let settings = self.sizing.partition(end.consumers.len() as u32);
            let (needed, wanted) = &mut demands[self.tasks[end.task].worker];
            *needed += settings.min;
            *wanted += settings.max.unwrap_or(settings.min);
        }
        for end in &wiring.consumers {
            let worker = self.tasks[end.task].worker;
            if let Some(settings) = self.gate_settings(&wiring, end) {
                demands[worker].0 += settings.min;
                demands[worker].1 += settings.max.unwrap_or(settings.min);
            }
        }
        for (index, (needed, wanted)) in demands.into_iter().enumerate() {
            self.workers[index].segments = choose(index, needed, wanted.max(needed)).max(1);
        }
    }

    /// What the pool of a gate is made of; a gate without channels from other workers has none.
    #[must_use]
    pub fn gate_settings(&self, wiring: &Wiring, end: &ConsumerEnd) -> Option<flownet_memory::BufferPoolSettings> {
        let worker = |task: usize| self.tasks[task].worker;
        let is_remote = |&&(producer, _): &&(usize, usize)| worker(wiring.producers[producer].task) != worker(end.task);
        let remote = end.channels.iter().filter(is_remote).count();
        (remote > 0).then(|| self.sizing.gate(remote as u32))
    }

    /// Channels of all gates.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.edges().map(|(_, to)| to.len()).sum()
    }

    fn edges(&self) -> impl Iterator<Item = (usize, &Vec<usize>)> {
        self.exchanges.iter().flat_map(|exchange| exchange.edges.iter().map(|(from, to)| (*from, to)))
    }
}

/// The defaults, or each of them or another around it.
fn random_sizing(rng: &mut Rng) -> PoolSizing {
    let product = PoolSizing::default();
    if rng.u8(..3) == 0 {
        return product;
    }
    let around = |rng: &mut Rng, default: u32, least: u32| {
        if rng.bool() { default } else { rng.u32(least..=2 * default) }
    };
    PoolSizing {
        exclusive_buffers: around(rng, product.exclusive_buffers, 0),
        floating_buffers: around(rng, product.floating_buffers, 1),
        receive_buffers: if rng.u8(..4) == 0 { Some(rng.u32(1..=20)) } else { product.receive_buffers },
        max_buffers_per_subpartition: around(rng, product.max_buffers_per_subpartition, 2),
        max_overdraft_buffers: around(rng, product.max_overdraft_buffers, 0),
    }
}

impl WorkerPlan {
    fn random(rng: &mut Rng, segment_bytes: usize) -> Self {
        Self {
            segments: 0,
            checksums: rng.u8(..4) == 0,
            buffers_per_turn: rng.usize(1..=20),
            outbox_bytes: segment_bytes * rng.usize(1..=20),
        }
    }
}

impl TaskPlan {
    /// A task on this worker that writes what it reads, in records of a byte.
    #[must_use]
    pub fn on(worker: usize) -> Self {
        Self { worker, work: Work { percent: 100, record_bytes: 1, spread: Spread::One } }
    }

    fn random(rng: &mut Rng, workers: usize, segment_bytes: usize) -> Self {
        let work = Work {
            percent: *rng.choice(&[10, 100, 100, 100, 250]).unwrap_or(&100),
            record_bytes: if rng.u8(..4) == 0 { rng.usize(1..4 * segment_bytes) } else { rng.usize(1..=segment_bytes) },
            spread: *rng.choice(&[Spread::One, Spread::One, Spread::EachOutput, Spread::All]).unwrap_or(&Spread::One),
        };
        Self { worker: rng.usize(..workers), work }
    }
}

impl ExchangePlan {
    /// From each to each; between as many tasks also one to one.
    fn random(rng: &mut Rng, from: &[usize], to: &[usize]) -> Self {
        let is_forward = from.len() == to.len() && rng.u8(..3) == 0;
        let edges = from.iter().enumerate().map(|(index, &task)| {
            let readers = if is_forward { vec![to[index]] } else { to.to_vec() };
            (task, readers)
        });
        Self { edges: edges.collect() }
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
