//! How a world comes to rest, and what must be true then.
//!
//! # Progress
//! When nobody is awake, no byte is on its way and every consumer reads, nothing that was written may be undelivered:
//! nothing is left that could deliver it later.
//!
//! # Rest
//! It comes. What gates still have to give is finite, however many records a task makes of one: no edge leads back, and
//! nothing is given twice (W3). So only turns in which no gate gives anything can go on for ever, and those are counted.

use super::World;
use super::tasks::{Channel, Reader};
use crate::action::{Action, Turn};

impl World {
    /// Lets everything run to its end, with consumers that read, and checks that all is delivered and all segments are
    /// home.
    ///
    /// # Panics
    /// When it is not.
    pub fn finish_all(&mut self) {
        self.deliver_all();
        for producer in 0..self.writers.len() {
            self.apply(Action::Finish { producer });
        }
        self.run_to_rest();
        self.assert_delivered();
        self.assert_finished();
        self.assert_all_segments_home();
    }

    /// Delivers what was written.
    pub fn deliver_all(&mut self) {
        for producer in 0..self.writers.len() {
            self.apply(Action::Register { producer });
        }
        self.run_to_rest();
        // Who asked for a partition whose task ended before it was registered learns of it in time.
        for connection in 0..self.connections.len() {
            self.apply(Action::Expire { connection });
        }
        self.run_to_rest();
        self.end_stranded_tasks();
        // Twice, as what a flush finds is known to be new once the flush is over; and once more for every task in a row,
        // as what one is shown makes it write.
        for _ in 0..2 * self.plan.exchanges.len() {
            for producer in 0..self.writers.len() {
                self.apply(Action::Flush { producer });
            }
            self.run_to_rest();
            self.end_stranded_tasks();
        }
        self.assert_delivered();
    }

    /// Gives everybody who is awake a turn, in the order of waking, until nobody is and nothing is on its way.
    fn run_to_rest(&mut self) {
        for consumer in 0..self.readers.len() {
            self.let_go(consumer);
        }
        // However the schedule got here, this goes on in the same way.
        let turns = self.all_awake();
        self.awake.with(|awake| *awake = turns.into());
        let mut patience = Patience::new(self.channels.len(), self.given);
        loop {
            let Some(turn) = self.take_awake(|_| 0) else {
                if !self.apply(Action::Wait) {
                    return;
                }
                continue;
            };
            self.apply(Action::of(turn, usize::MAX));
            if let Turn::Read(consumer) = turn {
                self.let_go(consumer);
            }
            assert!(patience.lasts(self.given), "it never comes to rest: {turn:?} again, and no gate gives anything");
        }
    }

    /// A consumer that is done with all it has.
    fn let_go(&mut self, consumer: usize) {
        self.apply(Action::Drop { consumer, buffers: usize::MAX });
        while self.apply(Action::Resume { consumer }) {}
    }

    /// A task waits for ever only where somebody's segments are with a subpartition that nobody came to read, because
    /// something broke before. A job would end those. Nobody needs a flush to go on.
    fn end_stranded_tasks(&mut self) {
        while self.is_anybody_waiting()
            && let Some(producer) = (0..self.writers.len()).find(|&producer| self.is_stranded(producer))
        {
            self.end_task(self.writers[producer].task, None);
            // It may have finished before.
            self.writers[producer].handle.release();
            self.run_to_rest();
        }
        self.assert_nobody_waits();
    }

    fn is_stranded(&self, producer: usize) -> bool {
        let mut channels = self.writers[producer].channels.iter().map(|&place| &self.channels[place]);
        channels.any(|channel| channel.is_excused && channel.cell.queued_buffers() > 0)
    }

    fn is_anybody_waiting(&self) -> bool {
        let is_relay_waiting = |reader: &Reader| reader.relay.as_ref().is_some_and(|relay| relay.is_waiting);
        self.writers.iter().any(|writer| writer.pending.is_some()) || self.readers.iter().any(is_relay_waiting)
    }

    fn assert_nobody_waits(&self) {
        for (producer, writer) in self.writers.iter().enumerate() {
            assert!(writer.pending.is_none(), "producer {producer} waits for a segment and everybody reads");
        }
        assert!(!self.is_anybody_waiting(), "a task waits for room in its outputs and everybody reads");
    }

    /// Nothing is undelivered but what a fault hit.
    pub fn assert_delivered(&self) {
        for Channel { producer, consumer, is_excused, stream, .. } in &self.channels {
            assert!(
                *is_excused || stream.is_empty(),
                "consumer {consumer} waits for what producer {producer} wrote: {stream:?}",
            );
        }
        self.assert_nobody_waits();
    }

    fn assert_finished(&self) {
        for (consumer, reader) in self.readers.iter().enumerate() {
            let is_whole = reader.channels.iter().all(|&place| !self.channels[place].is_excused);
            let is_finished = reader.gate.as_ref().is_some_and(|gate| gate.is_finished());
            assert!(is_finished || !is_whole, "every channel of consumer {consumer} came to its end");
        }
        for channel in &self.channels {
            assert!(channel.is_excused || channel.cell.is_consumed(), "a subpartition was read to its end");
        }
    }

    /// Ends everything where it stands and counts: every segment of every worker must be home.
    ///
    /// # Panics
    /// If one is not.
    pub fn assert_all_segments_home(&mut self) {
        for reader in &mut self.readers {
            reader.held.clear();
            reader.relay = None;
            reader.gate = None;
        }
        self.writers.iter_mut().for_each(|writer| writer.partition = None);
        self.channels.clear();
        self.connections.clear();
        for (consumer, reader) in self.readers.iter().enumerate() {
            let Some(pool) = &reader.pool else { continue };
            assert_eq!(pool.in_use(), 0, "segments that consumer {consumer} has not given back");
            pool.destroy();
        }
        self.writers.clear();
        self.registry.0.clear();
        for (worker, segments) in self.segments.iter().enumerate() {
            assert_eq!(segments.available(), segments.total(), "segments of worker {worker} that are home");
        }
    }
}

impl Action {
    /// The turn as an action that does at most so much.
    #[must_use]
    pub fn of(turn: Turn, amount: usize) -> Self {
        match turn {
            Turn::Write(producer) => Self::Continue { producer },
            Turn::Read(consumer) => Self::Read { consumer, elements: amount },
            Turn::Send(connection, side) => Self::Send { connection, side, bytes: amount },
            Turn::Receive(connection, side) => Self::Receive { connection, side, bytes: amount },
        }
    }
}

/// Counts turns in a row in which no gate gives anything.
struct Patience {
    turns: usize,
    left: usize,
    given: u64,
}

impl Patience {
    fn new(channels: usize, given: u64) -> Self {
        let turns = IDLE_TURNS + IDLE_TURNS_EACH * channels;
        Self { turns, left: turns, given }
    }

    /// After a turn, with what gates have given so far. False: the world goes round and round.
    fn lasts(&mut self, given: u64) -> bool {
        if given != self.given {
            (self.given, self.left) = (given, self.turns);
        }
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }
}

/// Turns that a world may need until a gate gives something, and for each of its channels.
const IDLE_TURNS: usize = 1_000_000;
const IDLE_TURNS_EACH: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_after_many_turns_in_a_row_in_which_nothing_is_given() {
        let mut patience = Patience::new(3, 7);
        let turns = IDLE_TURNS + 3 * IDLE_TURNS_EACH;
        assert!((1..turns).all(|_| patience.lasts(7)));
        assert!(!patience.lasts(7));
    }

    #[test]
    fn whatever_is_given_renews_patience() {
        let mut patience = Patience::new(0, 0);
        for given in 0..3 {
            assert!((1..IDLE_TURNS).all(|_| patience.lasts(given)));
        }
        assert!(!patience.lasts(2));
    }
}
