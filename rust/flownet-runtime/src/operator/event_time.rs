//! Tracks the event time of the keys of an operator.
//!
//! All keys of a subtask are at its watermark, with one exception: keys that were further ahead before the job resumed.
//! Their former subtask was further ahead, and its key groups now belong to a subtask that was not. For these keys, the
//! late records and the fired windows remain as before.
//!
//! # Invariants
//! - I1: the event time of a key never moves back, whichever subtask owns its key group.
//! - I2: no key is earlier than the watermark of its subtask.
//! - I3: the end of time is a signal and not an event time. [`kept_ms`](EventTime::kept_ms) is the last watermark
//!   before it, so a job that resumes with more input does not see all of it as late.

use flownet_core::keygroup::key_group;

use crate::error::TaskError;
use crate::snapshot::{EVENT_TIME, RestoredState, Snapshot, put_signed};
use crate::state::KeyGroupRange;
use crate::time::END_OF_TIME_MS;

/// The event time of each key of a subtask.
#[derive(Clone, Debug)]
pub struct EventTime {
    watermark_ms: i64,
    /// The last watermark that is not the end of time.
    kept_ms: i64,
    ahead: Option<Box<GroupsAhead>>,
}

/// Key groups that are ahead of the watermark.
#[derive(Clone, Debug)]
struct GroupsAhead {
    range: KeyGroupRange,
    /// Event time of each group, whether it is ahead or not.
    of_group: Vec<i64>,
    furthest_ms: i64,
}

impl EventTime {
    /// The event time before the first watermark.
    pub fn new() -> Self {
        Self { watermark_ms: i64::MIN, kept_ms: i64::MIN, ahead: None }
    }

    /// The watermark, which all keys have reached.
    #[inline]
    pub fn watermark_ms(&self) -> i64 {
        self.watermark_ms
    }

    /// The event time that all keys have reached, as it is written to state.
    pub fn kept_ms(&self) -> i64 {
        self.kept_ms
    }

    /// The event time of the keys with this hash.
    #[inline]
    pub fn of(&self, hash: u32) -> i64 {
        self.ahead_of(hash).unwrap_or(self.watermark_ms)
    }

    /// The event time of the keys with this hash, if they are ahead of the watermark.
    #[inline]
    pub fn ahead_of(&self, hash: u32) -> Option<i64> {
        self.ahead.as_ref().and_then(|ahead| ahead.of(hash, self.watermark_ms))
    }

    /// Returns true if some keys may be ahead of the watermark.
    #[inline]
    pub fn has_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    /// Takes a watermark and returns the event time that all keys have reached. The channels of a resumed job start
    /// anew, so their first watermarks may be earlier than those before.
    pub fn advance(&mut self, timestamp_ms: i64) -> i64 {
        self.watermark_ms = self.watermark_ms.max(timestamp_ms);
        // The end of time is not stored (I3).
        if timestamp_ms != END_OF_TIME_MS {
            self.kept_ms = self.watermark_ms;
            self.ahead.take_if(|ahead| ahead.furthest_ms <= self.watermark_ms);
        }
        self.watermark_ms
    }

    /// Writes the event time of the key groups that are ahead of the watermark. [`restore`](Self::restore) reads the
    /// watermark itself from the state of the keys: it is the first number of its header.
    pub fn snapshot(&self, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        let Some(ahead) = &self.ahead else { return Ok(()) };
        to.add_groups(EVENT_TIME, ahead.range, |groups| {
            for (group, of_group) in (ahead.range.first().get()..).zip(&ahead.of_group) {
                if *of_group > self.kept_ms {
                    put_signed(groups.at(group), *of_group);
                }
            }
            Ok(())
        })
    }

    /// Restores the event time of the key groups in `range`. `name` is the state of the keys, whose header holds the
    /// watermark.
    pub fn restore(&mut self, from: &RestoredState<'_>, name: &str, range: KeyGroupRange) -> Result<(), TaskError> {
        let mut of_group = vec![self.watermark_ms; usize::from(range.last().get() - range.first().get()) + 1];
        let mut reach = |first: u16, last: u16, time_ms: i64| {
            let place = |group: u16| usize::from(group - range.first().get());
            let (first, last) = (first.max(range.first().get()), last.min(range.last().get()));
            for of_group in of_group.get_mut(place(first)..=place(last)).into_iter().flatten() {
                *of_group = time_ms.max(*of_group);
            }
        };
        for (first, last, mut header) in from.headers(name)? {
            if !header.is_empty() {
                reach(first, last, header.signed()?);
            }
        }
        for part in from.groups(EVENT_TIME)? {
            for mut of_group in part.groups {
                if let Some(group) = of_group.group() {
                    reach(group, group, of_group.signed()?);
                }
            }
        }
        let (least_ms, furthest_ms) = (of_group.iter().min(), of_group.iter().max());
        if let (Some(&least_ms), Some(&furthest_ms)) = (least_ms, furthest_ms) {
            (self.watermark_ms, self.kept_ms) = (least_ms, least_ms);
            self.ahead = (least_ms < furthest_ms).then(|| Box::new(GroupsAhead { range, of_group, furthest_ms }));
        }
        Ok(())
    }
}

impl Default for EventTime {
    fn default() -> Self {
        Self::new()
    }
}

impl GroupsAhead {
    #[cold]
    fn of(&self, hash: u32, watermark_ms: i64) -> Option<i64> {
        let group = key_group(hash, self.range.max_parallelism()).get();
        let place = usize::from(group.checked_sub(self.range.first().get())?);
        self.of_group.get(place).copied().filter(|of_group| *of_group > watermark_ms)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::snapshot::StatePart;

    const GROUPS: u32 = 16;

    fn range(subtask: u32, parallelism: u32) -> KeyGroupRange {
        KeyGroupRange::of(subtask, parallelism, GROUPS)
    }

    /// The state that a subtask writes: the header, and the groups ahead.
    fn kept(time: &EventTime, subtask: u32, parallelism: u32) -> Vec<StatePart> {
        let mut to = Snapshot::new("op", subtask, 1);
        let header = |groups: &mut crate::snapshot::Groups| {
            put_signed(&mut groups.header, time.kept_ms());
            Ok(())
        };
        to.add_groups("state", range(subtask, parallelism), header).unwrap();
        time.snapshot(&mut to).unwrap();
        to.into_written().parts
    }

    proptest! {
        #[test]
        fn no_group_ever_goes_back_however_subtasks_change(
            runs in proptest::collection::vec((1u32..6, proptest::collection::vec((0u32..5, -50i64..50), 0..10)), 1..6),
        ) {
            let mut parts = Vec::new();
            let mut model = [i64::MIN; GROUPS as usize];
            for (parallelism, watermarks) in runs {
                let mut times: Vec<_> = (0..parallelism).map(|subtask| {
                    let mut time = EventTime::new();
                    let from = RestoredState::of("op", &parts, subtask, range(subtask, parallelism));
                    time.restore(&from, "state", range(subtask, parallelism)).unwrap();
                    time
                }).collect();
                for (subtask, watermark_ms) in watermarks {
                    let subtask = subtask % parallelism;
                    let range = range(subtask, parallelism);
                    times[subtask as usize].advance(watermark_ms);
                    for group in &mut model[usize::from(range.first().get())..=usize::from(range.last().get())] {
                        *group = watermark_ms.max(*group);
                    }
                }
                for key in 0..60u8 {
                    let hash = flownet_core::keygroup::hash_key(&[key]);
                    let group = key_group(hash, GROUPS);
                    let subtask = flownet_core::keygroup::subtask_of(group, GROUPS, parallelism);
                    let time = &times[subtask as usize];
                    prop_assert_eq!(time.of(hash), model[usize::from(group.get())], "I1");
                    prop_assert!(time.of(hash) >= time.watermark_ms(), "I2");
                }
                parts = (0..).zip(&times).flat_map(|(subtask, time)| kept(time, subtask, parallelism)).collect();
            }
        }
    }
}
