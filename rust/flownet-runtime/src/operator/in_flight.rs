//! Tracks the records that an operator works on concurrently, and the signals that wait for them.
//!
//! A state machine without clock or threads. The operator [admits](InFlight::admit) a record, reports it as
//! [done](InFlight::complete), and takes the [next](InFlight::next) item to emit. Records are grouped in *segments*:
//! those of one segment may leave in any order, those of different segments only in the order of the segments. If order
//! is preserved, each record has its own segment. Otherwise a segment holds the records between two signals of event
//! time.
//!
//! # Invariants
//! - I1: at most `capacity` records are in flight, including those that are done and may not leave yet. There is at
//!   most one more segment than that. Records restored from a checkpoint may exceed the limit; no new one is admitted
//!   until there is room.
//! - I2: a record leaves on its side of each signal: after the signals that preceded it, before those that followed it.
//! - I3: if order is preserved, records leave in the order in which they were admitted.
//! - I4: an item that may leave is available at once. Only records that are not done delay others.

use std::collections::{BTreeMap, VecDeque};

use flownet_core::Round;

use crate::time::TimeSignal;
use crate::watermark::SplitSignal;

/// Identifies a record in flight. Later records have greater tickets.
pub type Ticket = u64;

/// Records `R` in flight, their results `A`, and the signals among them.
#[derive(Debug)]
pub struct InFlight<R, A> {
    capacity: usize,
    keeps_order: bool,
    next_ticket: Ticket,
    /// Records that are not done yet, each with the number of its segment.
    running: BTreeMap<Ticket, (R, u64)>,
    /// Never empty.
    segments: VecDeque<Segment<R, A>>,
    /// Number of the first segment.
    first_segment: u64,
    /// Number of records in flight.
    count: usize,
}

#[derive(Debug)]
struct Segment<R, A> {
    running: usize,
    done: VecDeque<(R, A)>,
    /// Signals that follow all records of this segment.
    signals: Signals,
}

/// Signals without a record between them. Of several watermarks only the last one counts, and likewise of idle signals.
#[derive(Debug, Default)]
struct Signals {
    splits: VecDeque<SplitSignal>,
    rounds: VecDeque<Round>,
    watermark_ms: Option<i64>,
    is_idle: Option<bool>,
}

/// An item to emit.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadyItem<R, A> {
    /// A record and its result.
    Record(R, A),
    /// A signal of event time.
    Time(TimeSignal),
    /// A round of an iteration.
    Round(Round),
    /// A signal of the source about its splits.
    Split(SplitSignal),
}

/// An item that has not left, for snapshots and inspection.
#[derive(Debug, PartialEq, Eq)]
pub enum InFlightItem<'a, R> {
    /// A record, done or not.
    Record(&'a R),
    /// A signal of event time, which follows the records before it.
    Time(TimeSignal),
}

impl<R, A> InFlight<R, A> {
    /// Holds at most `capacity` records at a time, at least one.
    pub fn new(capacity: usize, keeps_order: bool) -> Self {
        Self {
            capacity: capacity.max(1),
            keeps_order,
            next_ticket: 0,
            running: BTreeMap::new(),
            segments: VecDeque::from([Segment::new()]),
            first_segment: 0,
            count: 0,
        }
    }

    /// Returns true if no more records may be admitted for now.
    pub fn is_full(&self) -> bool {
        self.count >= self.capacity
    }

    /// Returns true if no records and no signals are held.
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.segments.len() == 1 && self.segments[0].signals.is_empty()
    }

    /// Admits a record. There must be room for it.
    pub fn admit(&mut self, record: R) -> Ticket {
        debug_assert!(!self.is_full(), "I1: a record more than there is room for");
        self.readmit(record)
    }

    /// Admits a record that was [in flight](Self::here) before a restore, in any subtask, even if there is no room.
    pub fn readmit(&mut self, record: R) -> Ticket {
        let begins_segment = match self.segments.back() {
            Some(last) => !last.signals.is_empty() || (self.keeps_order && last.has_records()),
            None => true,
        };
        if begins_segment {
            self.segments.push_back(Segment::new());
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.count += 1;
        if let Some(last) = self.segments.back_mut() {
            last.running += 1;
        }
        let segment = self.first_segment + self.segments.len() as u64 - 1;
        self.running.insert(ticket, (record, segment));
        ticket
    }

    /// Marks the record as done. Returns false if there is none of this ticket.
    pub fn complete(&mut self, ticket: Ticket, answer: A) -> bool {
        let Some((record, segment)) = self.running.remove(&ticket) else { return false };
        let at = usize::try_from(segment - self.first_segment).unwrap_or(usize::MAX);
        if let Some(segment) = self.segments.get_mut(at) {
            segment.running -= 1;
            segment.done.push_back((record, answer));
        }
        true
    }

    /// Takes a signal of event time. Returns true if it is held until it may leave, false if it may pass at once.
    pub fn hold(&mut self, signal: TimeSignal) -> bool {
        if self.is_empty() {
            return false;
        }
        if let Some(last) = self.segments.back_mut() {
            last.signals.add(signal);
        }
        true
    }

    /// The same for a round of an iteration.
    pub fn hold_round(&mut self, round: Round) -> bool {
        if self.is_empty() {
            return false;
        }
        if let Some(last) = self.segments.back_mut() {
            last.signals.rounds.push_back(round);
        }
        true
    }

    /// The same for a split signal: the records after it belong to the split that it names.
    pub fn hold_split(&mut self, signal: SplitSignal) -> bool {
        if self.is_empty() {
            return false;
        }
        if let Some(last) = self.segments.back_mut() {
            last.signals.splits.push_back(signal);
        }
        true
    }

    /// Takes the next item to emit.
    #[expect(clippy::should_implement_trait, reason = "what is not ready now may be later")]
    pub fn next(&mut self) -> Option<ReadyItem<R, A>> {
        loop {
            let is_last = self.segments.len() == 1;
            let front = self.segments.front_mut()?;
            if let Some((record, answer)) = front.done.pop_front() {
                self.count -= 1;
                return Some(ReadyItem::Record(record, answer));
            }
            if front.running > 0 {
                return None;
            }
            if let Some(signal) = front.signals.splits.pop_front() {
                return Some(ReadyItem::Split(signal));
            }
            if let Some(signal) = front.signals.take() {
                return Some(ReadyItem::Time(signal));
            }
            if let Some(round) = front.signals.rounds.pop_front() {
                return Some(ReadyItem::Round(round));
            }
            if is_last {
                return None;
            }
            self.segments.pop_front();
            self.first_segment += 1;
        }
    }

    /// Returns all records and signals that have not left, in the order in which they have to be admitted again. Each
    /// record is on its side of each signal, and in order if order is preserved.
    pub fn here(&self) -> Vec<InFlightItem<'_, R>> {
        let mut running: Vec<_> = self.running.values().map(|(record, segment)| (*segment, record)).collect();
        // Tickets within a segment stay in order because the sort is stable.
        running.sort_by_key(|(segment, _)| *segment);
        let mut running = running.into_iter().peekable();
        let mut here = Vec::with_capacity(self.count);
        for (number, segment) in (self.first_segment..).zip(&self.segments) {
            here.extend(segment.done.iter().map(|(record, _)| InFlightItem::Record(record)));
            while let Some((_, record)) = running.next_if(|(of, _)| *of == number) {
                here.push(InFlightItem::Record(record));
            }
            here.extend(segment.signals.both().map(InFlightItem::Time));
        }
        here
    }

    /// Returns a record that is not done.
    pub fn running_mut(&mut self, ticket: Ticket) -> Option<&mut R> {
        self.running.get_mut(&ticket).map(|(record, _)| record)
    }

    /// Returns the oldest record that is not done.
    pub fn oldest(&self) -> Option<&R> {
        self.running.first_key_value().map(|(_, (record, _))| record)
    }

    /// The same, for changes.
    pub fn oldest_mut(&mut self) -> Option<&mut R> {
        self.running.first_entry().map(|entry| &mut entry.into_mut().0)
    }

    /// Removes a record that is not done. Its ticket is then invalid.
    pub fn fail(&mut self, ticket: Ticket) -> Option<R> {
        self.running.remove(&ticket).map(|(record, _)| record)
    }
}

impl<R, A> Segment<R, A> {
    fn new() -> Self {
        Self { running: 0, done: VecDeque::new(), signals: Signals::default() }
    }

    fn has_records(&self) -> bool {
        self.running > 0 || !self.done.is_empty()
    }
}

impl Signals {
    fn is_empty(&self) -> bool {
        self.watermark_ms.is_none() && self.is_idle.is_none() && self.rounds.is_empty() && self.splits.is_empty()
    }

    fn add(&mut self, signal: TimeSignal) {
        match signal {
            TimeSignal::Watermark(timestamp_ms) => {
                // A channel that sends a watermark is not idle.
                self.is_idle = self.is_idle.map(|_| false);
                self.watermark_ms = self.watermark_ms.max(Some(timestamp_ms));
            }
            TimeSignal::Idle(is_idle) => self.is_idle = Some(is_idle),
        }
    }

    /// Both signals, in the order in which they leave.
    fn both(&self) -> impl Iterator<Item = TimeSignal> {
        let watermark = self.watermark_ms.map(TimeSignal::Watermark);
        watermark.into_iter().chain(self.is_idle.map(TimeSignal::Idle))
    }

    fn take(&mut self) -> Option<TimeSignal> {
        let watermark = self.watermark_ms.take().map(TimeSignal::Watermark);
        watermark.or_else(|| self.is_idle.take().map(TimeSignal::Idle))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drain(flight: &mut InFlight<u64, ()>) -> Vec<ReadyItem<u64, ()>> {
        std::iter::from_fn(|| flight.next()).collect()
    }

    fn record(number: u64) -> ReadyItem<u64, ()> {
        ReadyItem::Record(number, ())
    }

    fn watermark(timestamp_ms: i64) -> ReadyItem<u64, ()> {
        ReadyItem::Time(TimeSignal::Watermark(timestamp_ms))
    }

    #[test]
    fn records_leave_in_their_order_where_it_is_kept() {
        let mut flight = InFlight::new(3, true);
        let tickets = [10, 11, 12].map(|number| flight.admit(number));
        assert!(flight.is_full());
        assert!(flight.complete(tickets[1], ()) && flight.complete(tickets[2], ()));
        assert_eq!(drain(&mut flight), []);
        assert!(flight.is_full(), "what may not leave yet takes its place");
        flight.complete(tickets[0], ());
        assert_eq!(drain(&mut flight), [record(10), record(11), record(12)]);
        assert!(flight.is_empty());
    }

    #[test]
    fn records_without_order_stay_on_their_side_of_a_watermark() {
        let mut flight = InFlight::new(4, false);
        let before = [1, 2].map(|number| flight.admit(number));
        assert!(flight.hold(TimeSignal::Watermark(5)));
        let after = flight.admit(3);
        flight.complete(after, ());
        flight.complete(before[1], ());
        assert_eq!(drain(&mut flight), [record(2)]);
        flight.complete(before[0], ());
        assert_eq!(drain(&mut flight), [record(1), watermark(5), record(3)]);
        assert!(!flight.hold(TimeSignal::Watermark(6)), "nothing is before it");
    }

    #[test]
    fn a_round_waits_for_the_records_before_it_and_none_is_lost() {
        let mut flight = InFlight::new(4, false);
        let round = |number| Round { number, is_quiet: false };
        assert!(!flight.hold_round(round(0)), "nothing is before it");
        let before = flight.admit(1);
        assert!(flight.hold_round(round(1)) && flight.hold(TimeSignal::Watermark(5)) && flight.hold_round(round(2)));
        let after = flight.admit(2);
        flight.complete(after, ());
        assert_eq!(drain(&mut flight), []);
        flight.complete(before, ());
        let left = [record(1), watermark(5), ReadyItem::Round(round(1)), ReadyItem::Round(round(2)), record(2)];
        assert_eq!(drain(&mut flight), left);
    }

    #[test]
    fn split_signals_wait_for_the_records_before_them() {
        let mut flight = InFlight::new(4, false);
        assert!(!flight.hold_split(SplitSignal::Of(0)), "nothing is before it");
        let of_first = [1, 2].map(|number| flight.admit(number));
        assert!(flight.hold_split(SplitSignal::Silent(0)) && flight.hold_split(SplitSignal::Of(1)));
        let of_second = flight.admit(3);
        flight.complete(of_second, ());
        flight.complete(of_first[1], ());
        assert_eq!(drain(&mut flight), [record(2)]);
        flight.complete(of_first[0], ());
        let split = |signal| ReadyItem::Split(signal);
        let left = [record(1), split(SplitSignal::Silent(0)), split(SplitSignal::Of(1)), record(3)];
        assert_eq!(drain(&mut flight), left);
    }

    #[test]
    fn signals_in_a_row_become_one_of_a_kind() {
        let mut flight = InFlight::new(1, true);
        let ticket = flight.admit(1);
        for round in 1..1000 {
            assert!(flight.hold(TimeSignal::Idle(true)) && flight.hold(TimeSignal::Watermark(round)));
        }
        assert!(flight.hold(TimeSignal::Idle(true)));
        flight.complete(ticket, ());
        assert_eq!(drain(&mut flight), [record(1), watermark(999), ReadyItem::Time(TimeSignal::Idle(true))]);
    }

    #[test]
    fn a_record_that_failed_is_no_more() {
        let mut flight = InFlight::<_, ()>::new(1, true);
        let ticket = flight.admit(7);
        assert_eq!(flight.oldest(), Some(&7));
        assert_eq!((flight.fail(ticket), flight.fail(ticket)), (Some(7), None));
        assert!(!flight.complete(ticket, ()));
    }

    #[test]
    fn what_was_kept_comes_again_beyond_the_room_that_there_is() {
        let mut flight = InFlight::<u64, ()>::new(2, true);
        (7..10).for_each(|number| assert_eq!(flight.readmit(number), number - 7));
        assert!(flight.is_full());
        (0..2).for_each(|ticket| assert!(flight.complete(ticket, ())));
        assert_eq!(drain(&mut flight), [record(7), record(8)]);
        assert!(!flight.is_full());
    }

    /// Moves all held items into another instance.
    fn taken_over(flight: &InFlight<u64, ()>, capacity: usize, keeps_order: bool) -> (InFlight<u64, ()>, Vec<Ticket>) {
        let mut other = InFlight::new(capacity, keeps_order);
        let mut tickets = Vec::new();
        for here in flight.here() {
            match here {
                InFlightItem::Record(number) => tickets.push(other.readmit(*number)),
                InFlightItem::Time(signal) => assert!(other.hold(signal)),
            }
        }
        (other, tickets)
    }

    #[derive(Clone, Debug)]
    enum Step {
        TakeOver,
        Admit,
        Complete(usize),
        Hold,
        Take,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => Just(Step::Admit),
            3 => any::<usize>().prop_map(Step::Complete),
            1 => Just(Step::Hold),
            2 => Just(Step::Take),
            1 => Just(Step::TakeOver),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn any_interleaving_keeps_the_invariants(steps in steps(), capacity in 1..6_usize, keeps_order: bool) {
            let mut flight = InFlight::<u64, ()>::new(capacity, keeps_order);
            // Records by their tickets, and the watermark that each record followed.
            let (mut running, mut came_behind, mut watermark) = (Vec::new(), Vec::new(), 0);
            let mut out = Vec::new();
            let take = |flight: &mut InFlight<u64, ()>, out: &mut Vec<ReadyItem<u64, ()>>| {
                out.extend(std::iter::from_fn(|| flight.next()));
            };
            for step in steps {
                match step {
                    Step::Admit if flight.is_full() => {}
                    Step::Admit => {
                        let number = came_behind.len() as u64;
                        came_behind.push(watermark);
                        running.push(flight.admit(number));
                    }
                    Step::Complete(_) if running.is_empty() => {}
                    Step::Complete(at) => {
                        let ticket = running.swap_remove(at % running.len());
                        prop_assert!(flight.complete(ticket, ()));
                    }
                    Step::Hold => {
                        watermark += 1;
                        if !flight.hold(TimeSignal::Watermark(watermark)) {
                            out.push(ReadyItem::Time(TimeSignal::Watermark(watermark)));
                        }
                    }
                    Step::Take => take(&mut flight, &mut out),
                    Step::TakeOver => {
                        // Items that may leave are not stored: they have left by the time a snapshot is taken.
                        take(&mut flight, &mut out);
                        (flight, running) = taken_over(&flight, capacity, keeps_order);
                    }
                }
                prop_assert!(flight.segments.len() <= capacity + 1, "I1");
            }
            for ticket in running {
                flight.complete(ticket, ());
            }
            take(&mut flight, &mut out);
            prop_assert!(flight.is_empty(), "I4");
            let mut passed = 0;
            let mut left = Vec::new();
            for ready in out {
                match ready {
                    ReadyItem::Record(number, ()) => {
                        let behind = came_behind[number as usize];
                        prop_assert!(passed <= behind, "I2: record {} left behind {}", number, passed);
                        left.push((number, passed));
                    }
                    ReadyItem::Time(TimeSignal::Watermark(timestamp_ms)) => {
                        prop_assert!(timestamp_ms > passed);
                        let before = left.iter().filter(|(number, _)| came_behind[*number as usize] < timestamp_ms);
                        let wanted = came_behind.iter().filter(|behind| **behind < timestamp_ms).count();
                        prop_assert_eq!(before.count(), wanted, "I2: a watermark overtook a record");
                        passed = timestamp_ms;
                    }
                    ReadyItem::Time(TimeSignal::Idle(_)) | ReadyItem::Round(_) | ReadyItem::Split(_) => {}
                }
            }
            prop_assert_eq!(left.len(), came_behind.len());
            if keeps_order {
                prop_assert!(left.is_sorted_by_key(|(number, _)| *number), "I3");
            }
        }
    }
}
