//! Workers, tasks and connections on virtual time. Everything that happens is an [`Action`]; the same plan and the same
//! actions give the same world.
//!
//! # What is checked after every action
//! - W1: a producer's credit is what the frames made it, and with the data under way no more than the consumer has
//!   announced; that is no more than the segments the channel holds. A closed channel holds none.
//! - W2: sequence numbers leave and arrive one after the other, and the backlog told is the backlog there is.
//! - W3: what a gate gives is what was written: all of it in order, nothing twice.
//! - W4: the segments of a gate's pool in use are those its channels own.
//! - W5: no gate fails and no writer is refused unless something was broken on purpose.

mod book;
mod build;
mod connection;
mod faults;
mod relay;
mod rest;
mod stream;
mod tasks;
mod wire;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::{self, Write};
use std::sync::Arc;

use flownet_memory::SegmentPool;

use self::connection::Connection;
use self::tasks::{Channel, Reader, Registry, Writer};
use crate::action::{Action, Side, Turn};
use crate::alarm::{Alarm, DueTurns};
use crate::plan::Plan;

/// See the [module docs](self).
pub struct World {
    plan: Plan,
    now_us: u64,
    segments: Vec<Arc<SegmentPool>>,
    registry: Registry,
    writers: Vec<Writer>,
    readers: Vec<Reader>,
    /// By producer, then by subpartition.
    channels: Vec<Channel>,
    connections: Vec<Connection>,
    arrivals: BinaryHeap<Reverse<(u64, usize, Side)>>,
    awake: Arc<DueTurns>,
    faults: u32,
    actions: u64,
    /// Buffers and events that gates gave.
    given: u64,
}

impl World {
    /// Does it, if it applies, and checks. False: nothing happened.
    ///
    /// # Panics
    /// When something is wrong: an assertion here or in a machine.
    pub fn apply(&mut self, action: Action) -> bool {
        let has_happened = self.apply_again(action);
        if has_happened {
            self.check_after(action);
        }
        has_happened
    }

    /// As [`Self::apply`], for an action that was found to be right where it stands.
    pub fn apply_again(&mut self, action: Action) -> bool {
        let has_happened = self.perform(action);
        self.actions += u64::from(has_happened);
        self.faults += u32::from(has_happened && action.is_fault());
        has_happened
    }

    fn perform(&mut self, action: Action) -> bool {
        match action {
            Action::Write { producer, consumer, bytes } => self.write(producer, Some(consumer), bytes),
            Action::Broadcast { producer, bytes } => self.write(producer, None, bytes),
            Action::Continue { producer } => {
                let is_due = self.writers.get(producer).is_some_and(|writer| writer.alarm.take());
                if is_due {
                    self.go_on(producer);
                }
                is_due
            }
            Action::Flush { producer } => self.flush(producer),
            Action::Watermark { producer, consumer } => self.watermark(producer, consumer),
            Action::Barrier { producer, is_aligned } => self.barrier(producer, is_aligned),
            Action::Finish { producer } => self.finish(producer),
            Action::Register { producer } => self.register(producer),
            Action::Read { consumer, elements } => self.read(consumer, elements),
            Action::Drop { consumer, buffers } => self.drop_held(consumer, buffers),
            Action::Resume { consumer } => self.resume(consumer),
            Action::Limit { consumer, bytes } => self.limit(consumer, bytes),
            Action::Send { connection, side, bytes } => self.send(connection, side, bytes),
            Action::Receive { connection, side, bytes } => self.receive(connection, side, bytes),
            Action::Wait => self.wait(),
            fault => self.break_something(fault),
        }
    }

    fn send(&mut self, index: usize, side: Side, bytes: usize) -> bool {
        let Some(connection) = self.connections.get(index) else { return false };
        let alarm = match side {
            Side::Producer => &connection.producer.send,
            Side::Consumer => &connection.consumer.send,
        };
        let is_due = bytes > 0 && alarm.take();
        if is_due {
            self.transmit(index, side, bytes);
        }
        is_due
    }

    fn transmit(&mut self, index: usize, side: Side, bytes: usize) {
        let connection = &mut self.connections[index];
        let worker = &self.plan.workers[connection.from];
        let (arrival_us, to) = match side {
            Side::Producer => {
                (connection.producer_sends(self.now_us, bytes, worker, &mut self.channels), Side::Consumer)
            }
            Side::Consumer => (connection.consumer_sends(self.now_us, bytes, &mut self.channels), Side::Producer),
        };
        match arrival_us {
            None => {}
            Some(at_us) if at_us <= self.now_us => self.arrive(index, to),
            Some(at_us) => self.arrivals.push(Reverse((at_us, index, to))),
        }
    }

    fn receive(&mut self, index: usize, side: Side, bytes: usize) -> bool {
        let Some(connection) = self.connections.get_mut(index) else { return false };
        let alarm = match side {
            Side::Producer => &connection.producer.receive,
            Side::Consumer => &connection.consumer.receive,
        };
        if bytes == 0 || !alarm.take() {
            return false;
        }
        match side {
            Side::Consumer => connection.consumer_receives(bytes, &mut self.channels),
            Side::Producer => {
                if !connection.producer_receives(bytes, &self.registry, &mut self.channels) {
                    connection.lose("closed by the peer");
                }
            }
        }
        if self.plan.answers_at_once {
            self.send(index, side, usize::MAX);
        }
        true
    }

    fn arrive(&mut self, index: usize, side: Side) {
        let connection = &mut self.connections[index];
        let (wire, alarm) = match side {
            Side::Producer => (&mut connection.up, &connection.producer.receive),
            Side::Consumer => (&mut connection.down, &connection.consumer.receive),
        };
        if wire.arrive(self.now_us) {
            alarm.set();
        }
    }

    fn wait(&mut self) -> bool {
        let Some(&Reverse((at_us, ..))) = self.arrivals.peek() else { return false };
        self.now_us = at_us;
        while let Some(&Reverse((due_us, index, side))) = self.arrivals.peek()
            && due_us <= at_us
        {
            self.arrivals.pop();
            self.arrive(index, side);
        }
        true
    }

    fn register(&mut self, producer: usize) -> bool {
        let Some(writer) = self.writers.get(producer) else { return false };
        if self.registry.0[producer].is_some() || writer.is_gone {
            return false;
        }
        self.registry.0[producer] = Some(writer.handle.clone());
        for connection in self.connections.iter_mut().filter(|connection| connection.from == writer.worker) {
            if let Some(machine) = &mut connection.producer.machine {
                machine.retry_parked(&self.registry);
                connection.producer.send.set();
            }
        }
        true
    }

    /// All is compared in a small world; in a large one what the action touched, and all now and then.
    fn check_after(&self, action: Action) {
        if self.channels.len() <= SMALL_WORLD || self.actions.is_multiple_of(CHECK_ALL_EVERY) {
            return self.check();
        }
        if let Action::Send { connection, .. } | Action::Receive { connection, .. } = action {
            self.connections[connection].check(&self.channels);
        }
    }

    fn check(&self) {
        for connection in &self.connections {
            connection.check(&self.channels);
        }
        for (consumer, reader) in self.readers.iter().enumerate() {
            let remotes = reader.channels.iter().filter_map(|&place| self.channels[place].remote.as_ref());
            let owned: u32 = remotes.map(|remote| remote.channel.owned_segments()).sum();
            let in_use = reader.pool.as_ref().map_or(0, |pool| pool.in_use());
            assert_eq!(owned as usize, in_use, "segments owned by the channels of consumer {consumer}");
        }
    }

    fn alarm(&self, turn: Turn) -> &Alarm {
        match turn {
            Turn::Write(producer) => &self.writers[producer].alarm,
            Turn::Read(consumer) => &self.readers[consumer].alarm,
            Turn::Send(connection, Side::Producer) => &self.connections[connection].producer.send,
            Turn::Send(connection, Side::Consumer) => &self.connections[connection].consumer.send,
            Turn::Receive(connection, Side::Producer) => &self.connections[connection].producer.receive,
            Turn::Receive(connection, Side::Consumer) => &self.connections[connection].consumer.receive,
        }
    }

    /// Takes a turn that is due, chosen by `choose` among so many, to be done or to be put back; `None` if nobody is
    /// awake.
    pub fn take_awake(&self, mut choose: impl FnMut(usize) -> usize) -> Option<Turn> {
        loop {
            let turn = self.awake.with(|turns| {
                let chosen = if turns.is_empty() { 0 } else { choose(turns.len()) };
                turns.swap_remove_front(chosen)
            })?;
            if self.alarm(turn).is_set() {
                return Some(turn);
            }
        }
    }

    /// A turn was taken and not done.
    pub fn put_back(&self, turn: Turn) {
        self.awake.with(|turns| turns.push_back(turn));
    }

    /// All turns that are due, in a fixed order.
    #[must_use]
    pub fn all_awake(&self) -> Vec<Turn> {
        let mut turns: Vec<_> = self.awake.with(|turns| turns.iter().copied().collect());
        turns.sort_unstable();
        turns.dedup();
        turns.retain(|&turn| self.alarm(turn).is_set());
        turns
    }

    /// What the world is made of.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Actions that happened.
    #[must_use]
    pub fn actions(&self) -> u64 {
        self.actions
    }

    /// The partitions of sources, and of each the consumers it leads to: what is written by decision.
    #[must_use]
    pub fn sources(&self) -> Vec<Vec<usize>> {
        let sources = self.writers.iter().take_while(|writer| writer.is_source);
        let consumers = |writer: &Writer| writer.channels.iter().map(|&place| self.channels[place].consumer).collect();
        sources.map(consumers).collect()
    }

    /// Partitions and gates there are.
    #[must_use]
    pub fn ends(&self) -> (usize, usize) {
        (self.writers.len(), self.readers.len())
    }

    /// The consumer keeps buffers, and has blocking events to resume.
    #[must_use]
    pub fn holds_and_blocks(&self, consumer: usize) -> (bool, bool) {
        let reader = &self.readers[consumer];
        (!reader.held.is_empty(), !reader.blocked.is_empty())
    }

    /// Connections there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Bytes of the next whole frame that can be read at this end, or of the next half of a data frame if those are to be
    /// `split`.
    #[must_use]
    pub fn next_frame_bytes(&self, connection: usize, side: Side, split: bool) -> usize {
        self.connections[connection].next_frame_bytes(side, split)
    }
}

impl fmt::Debug for World {
    /// Everything that decides what can happen next and what must come of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{:?}{:?}", self.segments, self.writers, self.readers)?;
        for channel in &self.channels {
            // Pools show who waits in them by their place in memory, so it is said here who is where.
            let at = channel.remote.as_ref().map(|remote| Arc::as_ptr(&remote.channel));
            write!(f, "{at:?}{channel:?}")?;
        }
        write!(f, "{:?}", self.connections)?;
        self.registry.0.iter().try_for_each(|found| f.write_char(if found.is_some() { 'y' } else { 'n' }))
    }
}

const SMALL_WORLD: usize = 64;
const CHECK_ALL_EVERY: u64 = 1 << 20;
