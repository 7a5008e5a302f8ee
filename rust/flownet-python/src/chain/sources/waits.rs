//! Measures how long an iterator waits for its records, without a clock read for each.
//!
//! A poll waits while its thread neither computes nor queues for a processor. The iterator waits then, or a
//! function that is chained downstream of it. A *watched* poll tells which one: each pull counts as idle,
//! except for the time that its thread computed. All polls of a slow iterator are watched, since clock reads
//! cost nothing compared to its records. Of a fast iterator that waits occasionally a few polls are watched,
//! and the others are assumed to be alike.
//!
//! # Invariants
//! - W1: a poll has no more idle time than it took beyond the computation of its thread.
//! - W2: time that tasks wait while they compute in turn is not idle. The interpreter makes them take turns,
//!   and so does the system if there is more work than processors.
//! - W3: polls of a fast iterator that does not wait are not watched, except the first.

use std::time::Duration;

use flownet_runtime::TimeSpent;

/// Polls are watched if their records take at least this long.
const SLOW_RECORD: Duration = Duration::from_micros(20);

/// Shorter waits are noise.
const NOTICEABLE: Duration = Duration::from_micros(100);

/// Number of polls with waits that are assumed to be like the watched one, and number of polls that are
/// watched to find one.
const ALIKE: u32 = 16;

/// Knowledge of an iterator's waits. The caller reads the clock.
#[derive(Debug)]
pub(super) struct Waits {
    is_slow: bool,
    known: WaitKnowledge,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum WaitKnowledge {
    /// It never waits.
    Prompt,
    /// Something waited: this many more polls are watched to find out what.
    Suspected(u32),
    /// The iterator's share of the waits, valid for this many more polls.
    Share(f64, u32),
}

impl Waits {
    /// An iterator counts as slow until polls show otherwise.
    pub(super) fn new() -> Self {
        Self { is_slow: true, known: WaitKnowledge::Prompt }
    }

    /// Returns true if the next poll is to be watched.
    pub(super) fn is_watched(&self) -> bool {
        self.is_slow || matches!(self.known, WaitKnowledge::Suspected(_))
    }

    /// Ends a poll that made `pulls` pulls, beside `others` other tasks of the process. Returns its idle
    /// time.
    pub(super) fn poll_ended(&mut self, spent: &TimeSpent, pulls: u32, others: u32) -> Duration {
        // A thread that queued for a processor was delayed by others: it neither waited nor is slow.
        let took = (spent.busy + spent.idle).saturating_sub(spent.queued);
        // Beside other tasks that compute, it waits for each of them as long as it computes itself.
        let turns = spent.process.saturating_sub(spent.worked).min(spent.worked * others);
        let waited = took.saturating_sub(spent.worked + turns);
        let has_waited = waited > NOTICEABLE && waited > took / 10;
        let was_watched = self.is_watched();
        let idle = match self.known {
            _ if was_watched => spent.idle.min(waited),
            WaitKnowledge::Share(share, _) if has_waited => waited.mul_f64(share),
            _ => Duration::ZERO,
        };
        self.is_slow = took > SLOW_RECORD * pulls;
        self.known = match (self.known, has_waited) {
            (_, true) if was_watched => WaitKnowledge::Share(idle.div_duration_f64(waited), ALIKE),
            (WaitKnowledge::Share(share, left @ 1..), true) => WaitKnowledge::Share(share, left - 1),
            (_, true) => WaitKnowledge::Suspected(ALIKE),
            (WaitKnowledge::Suspected(left), false) => {
                left.checked_sub(1).map_or(WaitKnowledge::Prompt, WaitKnowledge::Suspected)
            }
            (known, false) => known,
        };
        idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// An iterator and its downstream functions: the time that each computes and waits in one poll.
    #[derive(Clone, Copy, Default)]
    struct Poll {
        works: Duration,
        waits: Duration,
        works_behind: Duration,
        waits_behind: Duration,
        /// Of the iterator, and of its downstream functions.
        queued: [Duration; 2],
        pulls: u32,
    }

    fn spent(poll: Poll, is_watched: bool) -> TimeSpent {
        let worked = poll.works + poll.works_behind;
        let queued = poll.queued.iter().sum();
        let idle = if is_watched { poll.waits + poll.queued[0] } else { Duration::ZERO };
        let busy = worked + poll.waits + poll.waits_behind + queued - idle;
        TimeSpent { busy, idle, worked, queued, process: worked }
    }

    /// Runs polls. Returns their idle time and the number of watched ones.
    fn run(polls: impl IntoIterator<Item = Poll>) -> (Duration, u32) {
        let mut waits = Waits::new();
        let (mut idle, mut watched) = (Duration::ZERO, 0);
        for poll in polls {
            let is_watched = waits.is_watched();
            watched += u32::from(is_watched);
            idle += waits.poll_ended(&spent(poll, is_watched), poll.pulls, 0);
        }
        (idle, watched)
    }

    #[test]
    fn one_that_does_not_wait_is_watched_once() {
        let poll = Poll { works: MS, works_behind: MS, pulls: 1024, ..Poll::default() };
        assert_eq!(run([poll; 100]), (Duration::ZERO, 1));
    }

    #[test]
    fn one_that_hands_on_many_and_then_waits_is_idle_meanwhile_and_rarely_watched() {
        let poll = Poll { works: MS / 2, waits: 10 * MS, works_behind: MS / 4, pulls: 1000, ..Poll::default() };
        let (idle, watched) = run([poll; 160]);
        assert!(idle.abs_diff(1600 * MS) < MS, "{idle:?}");
        assert!(watched < 160 / 12, "{watched}");
    }

    #[test]
    fn one_that_waits_in_one_poll_of_many_is_idle_in_most_of_these() {
        let works = Poll { works: MS, pulls: 1024, ..Poll::default() };
        let waits = Poll { waits: 100 * MS, ..works };
        let (idle, watched) = run((0..1000).map(|turn| if turn % 10 == 9 { waits } else { works }));
        assert!(idle > 80 * 100 * MS, "{idle:?}");
        assert!(watched < 200, "{watched}");
    }

    #[test]
    fn what_is_chained_behind_it_may_wait_as_it_likes() {
        let poll = Poll { works: MS, waits_behind: 10 * MS, pulls: 1000, ..Poll::default() };
        assert_eq!(run([poll; 100]).0, Duration::ZERO);
        let both = Poll { waits: 5 * MS, ..poll };
        let (idle, _) = run([both; 100]);
        assert!(idle.abs_diff(500 * MS) < MS, "{idle:?}");
    }

    #[test]
    fn one_that_waits_for_each_record_is_watched_always() {
        let poll = Poll { works: MS, waits: 100 * MS, pulls: 16, ..Poll::default() };
        let (idle, watched) = run([poll; 10]);
        assert_eq!((idle, watched), (1000 * MS, 10));
    }

    #[test]
    fn one_that_computes_by_turns_with_others_is_not_idle() {
        for watched in [false, true] {
            let mut waits = Waits { is_slow: watched, known: WaitKnowledge::Share(1.0, ALIKE) };
            // Of 12 ms it has computed 4, as have two others in the meantime.
            let idle = if watched { 8 * MS } else { Duration::ZERO };
            let spent =
                TimeSpent { busy: 12 * MS - idle, idle, worked: 4 * MS, queued: Duration::ZERO, process: 12 * MS };
            assert_eq!(waits.poll_ended(&spent, 1000, 2), Duration::ZERO);
        }
        // An iterator that sleeps while another computes is idle.
        let mut waits = Waits::new();
        let spent = TimeSpent { busy: MS, idle: 99 * MS, worked: MS, queued: Duration::ZERO, process: 96 * MS };
        assert_eq!(waits.poll_ended(&spent, 1, 2), 97 * MS);
    }

    #[test]
    fn one_that_waits_for_a_processor_is_not_idle() {
        for queued in [[50 * MS, Duration::ZERO], [Duration::ZERO, 50 * MS]] {
            let slow = Poll { works: 4 * MS, queued, pulls: 1, ..Poll::default() };
            assert_eq!(run([slow; 10]), (Duration::ZERO, 10));
            // In the meantime it is not forgotten that an iterator waits occasionally.
            let fast = Poll { works: MS, queued, pulls: 1024, ..Poll::default() };
            assert_eq!(run([fast; 10]), (Duration::ZERO, 1));
            let waits = Poll { waits: 100 * MS, queued: [Duration::ZERO; 2], ..fast };
            let (idle, _) = run((0..100).map(|turn| if turn % 2 == 0 { waits } else { fast }));
            assert_eq!(idle, 50 * 100 * MS);
        }
    }
}
