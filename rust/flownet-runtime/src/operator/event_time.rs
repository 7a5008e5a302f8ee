//! How far event time has come for the keys of an operator.
//!
//! All keys of a subtask are at its watermark, but for those that had come further before the job went on: their subtask of
//! before had, and its key groups are now among those of one that had not. What is late, and which windows have fired, stays
//! for them as it was.
//!
//! # Invariants
//! - I1: the event time of a key never goes back, whichever subtask owns its key group.
//! - I2: no key is behind the watermark of its subtask.
//! - I3: the end of time is a signal, not an event time: [`kept_ms`](EventTime::kept_ms) is the last watermark before it, so
//!   a job that goes on with more input has not passed all of it.

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

/// Key groups that are further than the watermark.
#[derive(Clone, Debug)]
struct GroupsAhead {
    range: KeyGroupRange,
    /// Of each group, whether it is further or not.
    of_group: Vec<i64>,
    furthest_ms: i64,
}

impl EventTime {
    /// Nothing is known of it yet.
    pub fn new() -> Self {
        Self { watermark_ms: i64::MIN, kept_ms: i64::MIN, ahead: None }
    }

    /// How far all keys have come.
    #[inline]
    pub fn watermark_ms(&self) -> i64 {
        self.watermark_ms
    }

    /// How far all keys have come, as state keeps it.
    pub fn kept_ms(&self) -> i64 {
        self.kept_ms
    }

    /// How far the keys of this hash have come.
    #[inline]
    pub fn of(&self, hash: u32) -> i64 {
        self.ahead_of(hash).unwrap_or(self.watermark_ms)
    }

    /// The same for those that are further than the watermark.
    #[inline]
    pub fn ahead_of(&self, hash: u32) -> Option<i64> {
        self.ahead.as_ref().and_then(|ahead| ahead.of(hash, self.watermark_ms))
    }

    /// Whether some may be further than the watermark.
    #[inline]
    pub fn has_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    /// Takes a watermark; tells how far all keys have come. The channels of a job that goes on begin anew, and may come to
    /// earlier times than those of before had.
    pub fn advance(&mut self, timestamp_ms: i64) -> i64 {
        self.watermark_ms = self.watermark_ms.max(timestamp_ms);
        if timestamp_ms != END_OF_TIME_MS {
            self.kept_ms = self.watermark_ms;
            self.ahead.take_if(|ahead| ahead.furthest_ms <= self.watermark_ms);
        }
        self.watermark_ms
    }

    /// Adds how far the key groups have come that are further than the watermark. That is kept with the keys: the first
    /// number of the header of their state.
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

    /// Goes on from where the key groups of `range` had come, as is kept with the keys under this name.
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

    /// What a subtask keeps: the header of its state, and what is further.
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
