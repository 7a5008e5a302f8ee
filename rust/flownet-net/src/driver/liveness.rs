//! Decides whether a peer is still alive: a machine without IO or clock, driven by ticks.
//!
//! A side that has received nothing since the last tick sends a PING. The peer then owes a sign of life: any frame, or
//! enough bytes of a large one. A side that may not read, because its task has no room, cannot receive an answer. It
//! sends an unsolicited PONG instead of a PING. The peer receives it, because under any flow control at most one of two
//! peers does not read.
//!
//! TCP has its own timeout for unacknowledged data (`TCP_USER_TIMEOUT`). It is not set, because it would end
//! connections whose peer deliberately closed its window. This machine detects peers that are gone: they are silent. It
//! also detects peers that are alive but do not read although they always should.
//!
//! # Invariants
//! - L1: a peer is given up only after it owed something for the whole timeout, was asked for it, and we were running
//!   to receive it.
//! - L2: a peer that sends less than [`PROGRESS_BYTES`] of a frame, or nothing, is given up within the timeout and two
//!   intervals.
//! - L3: our peer receives something in each interval in which we do not read, and otherwise an answer to each PING.

use std::time::Duration;

/// Timing of liveness checks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Limits {
    /// Interval between calls of [`Liveness::on_tick`].
    pub(crate) interval: Duration,
    /// Longest time for which a peer may owe something.
    pub(crate) timeout: Duration,
}

/// Observed activity of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ConnectionActivity {
    /// Counter that grows with each sign of life.
    pub(crate) heard: u64,
    /// Whether we read.
    pub(crate) is_listening: bool,
    /// Counter of bytes that the peer's socket accepted.
    pub(crate) written: u64,
    /// Bytes wait although the peer always reads.
    pub(crate) is_stuck: bool,
}

/// Action after a tick.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    Well,
    /// Send a PING to ask the peer for a sign of life.
    Ask,
    /// Send an unsolicited PONG.
    Tell,
    /// The peer is lost.
    Silent(Duration),
}

/// Liveness machine of one connection. See the [module docs](self).
#[derive(Debug)]
pub(crate) struct Liveness {
    limits: Limits,
    last_tick: Option<Duration>,
    heard: Debt,
    written: Debt,
}

/// Counter that must grow while the peer owes something.
#[derive(Debug, Default)]
struct Debt {
    /// Value at the previous tick, if there was one.
    last: Option<u64>,
    since: Option<Duration>,
}

impl Liveness {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, last_tick: None, heard: Debt::default(), written: Debt::default() }
    }

    /// Processes one tick. Only differences of `now` count, so the clock may start anywhere.
    pub(crate) fn on_tick(&mut self, now: Duration, seen: ConnectionActivity) -> Verdict {
        // L1: a late tick means that our own process stood still. That time does not count against the peer.
        let missed = self.last_tick.map_or(Duration::ZERO, |last| now.saturating_sub(last + 2 * self.limits.interval));
        self.last_tick = Some(now);
        let began = self.heard.since.is_none();
        let silent_for = self.heard.grow(now, missed, seen.heard, seen.is_listening);
        let stuck_for = self.written.grow(now, missed, seen.written, seen.is_stuck);
        let owed_for = silent_for.max(stuck_for);
        match owed_for {
            Some(owed_for) if owed_for >= self.limits.timeout => Verdict::Silent(owed_for),
            _ if !seen.is_listening => Verdict::Tell,
            _ if silent_for.is_some() && began => Verdict::Ask,
            _ => Verdict::Well,
        }
    }
}

impl Debt {
    /// Returns how long the counter has been due without growing, if it is due.
    fn grow(&mut self, now: Duration, missed: Duration, count: u64, is_due: bool) -> Option<Duration> {
        if self.last.replace(count) != Some(count) || !is_due {
            self.since = None;
            return None;
        }
        // Missed time does not count (L1), so shift the start by it, but never beyond now.
        let since = *self.since.get_or_insert(now) + missed;
        self.since = Some(since.min(now));
        Some(now.saturating_sub(since))
    }
}

/// This many bytes of a frame also count as a sign of life: a large frame may take long on a slow link.
pub(crate) const PROGRESS_BYTES: u64 = 4 * flownet_memory::KIB as u64;

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { interval: Duration::from_secs(1), timeout: Duration::from_secs(10) };
    const QUIET: ConnectionActivity = ConnectionActivity { heard: 0, is_listening: true, written: 0, is_stuck: false };

    /// Returns the verdicts of one tick per second.
    fn verdicts(
        liveness: &mut Liveness,
        seconds: std::ops::Range<u64>,
        mut seen: impl FnMut(u64) -> ConnectionActivity,
    ) -> Vec<Verdict> {
        seconds.map(|second| liveness.on_tick(Duration::from_secs(second), seen(second))).collect()
    }

    #[test]
    fn a_peer_that_answers_nothing_is_asked_once_and_given_up_after_the_timeout() {
        let mut liveness = Liveness::new(LIMITS);
        let verdicts = verdicts(&mut liveness, 4..16, |_| QUIET);
        assert_eq!(verdicts[..2], [Verdict::Well, Verdict::Ask], "after an interval without a sign of life");
        assert_eq!(verdicts[2..11], [Verdict::Well; 9]);
        assert_eq!(verdicts[11], Verdict::Silent(LIMITS.timeout));
    }

    #[test]
    fn a_peer_that_answers_is_asked_every_other_tick_and_never_given_up() {
        let mut liveness = Liveness::new(LIMITS);
        let mut heard = 0;
        for second in 0..100 {
            let verdict = liveness.on_tick(Duration::from_secs(second), ConnectionActivity { heard, ..QUIET });
            assert_eq!(verdict, if second % 2 == 1 { Verdict::Ask } else { Verdict::Well });
            heard += u64::from(verdict == Verdict::Ask);
        }
    }

    #[test]
    fn a_peer_that_sends_is_not_asked() {
        let mut liveness = Liveness::new(LIMITS);
        let verdicts = verdicts(&mut liveness, 1..50, |second| ConnectionActivity { heard: second, ..QUIET });
        assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Well));
    }

    #[test]
    fn who_does_not_read_tells_each_time_and_gives_nobody_up() {
        let mut liveness = Liveness::new(LIMITS);
        let held = verdicts(&mut liveness, 0..100, |_| ConnectionActivity { is_listening: false, ..QUIET });
        assert!(held.iter().all(|verdict| *verdict == Verdict::Tell));
        assert_eq!(verdicts(&mut liveness, 100..110, |_| QUIET)[9], Verdict::Well, "it begins anew");
    }

    #[test]
    fn the_time_in_which_we_stood_still_is_not_the_peers() {
        let mut liveness = Liveness::new(LIMITS);
        verdicts(&mut liveness, 0..4, |_| QUIET);
        assert_eq!(liveness.on_tick(Duration::from_secs(3600), QUIET), Verdict::Well);
        assert_eq!(
            liveness.on_tick(Duration::from_secs(3601), ConnectionActivity { heard: 1, ..QUIET }),
            Verdict::Well
        );
        let verdicts = verdicts(&mut liveness, 3602..3613, |_| ConnectionActivity { heard: 1, ..QUIET });
        assert_eq!((verdicts[0], verdicts[10]), (Verdict::Ask, Verdict::Silent(LIMITS.timeout)));
    }

    #[test]
    fn a_peer_that_lives_but_takes_nothing_where_it_must_is_given_up() {
        let mut liveness = Liveness::new(LIMITS);
        let stuck = |second| ConnectionActivity { heard: second, is_stuck: true, ..QUIET };
        assert_eq!(verdicts(&mut liveness, 0..12, stuck).last(), Some(&Verdict::Silent(LIMITS.timeout)));
        let mut liveness = Liveness::new(LIMITS);
        let slow = |second| ConnectionActivity { heard: second, is_stuck: true, written: second / 9, ..QUIET };
        assert!(verdicts(&mut liveness, 1..100, slow).iter().all(|verdict| *verdict == Verdict::Well));
    }
}
