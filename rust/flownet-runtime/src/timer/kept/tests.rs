//! Whatever is done with timers, each checkpoint has those that were set then: through changes, restarts, and other numbers of
//! subtasks.

use std::collections::{BTreeMap, BTreeSet};

use flownet_core::keygroup::hash_key;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::snapshot::{Restored, Snapshot, StatePart};
use crate::state::KeyGroupRange;

const GROUPS: u32 = 8;

fn range(subtask: u32, parallelism: u32) -> KeyGroupRange {
    KeyGroupRange::of(subtask, parallelism, GROUPS)
}

/// One way to write each key that differs from the canonical one, for some of them.
fn owner(key: u8) -> TimerKey {
    let given = [key, key];
    TimerKey::held(&[key], key.is_multiple_of(3).then_some(&given[..]))
}

type Model = BTreeSet<(i64, u8)>;

/// A job of some subtasks, with the timers that should be set, and its checkpoints.
struct Job {
    subtasks: Vec<KeptTimers>,
    model: Model,
    taken: u64,
    /// Of each checkpoint, for each subtask: its parts, with those that they build on; and what was set then.
    all: BTreeMap<u64, (Vec<Vec<StatePart>>, Model)>,
    complete: Option<u64>,
    of_changes: usize,
}

impl Job {
    fn new(parallelism: u32) -> Self {
        let subtasks = (0..parallelism).map(|_| KeptTimers::new()).collect();
        Self { subtasks, model: Model::new(), taken: 0, all: BTreeMap::new(), complete: None, of_changes: 0 }
    }

    fn of(&mut self, key: u8) -> &mut KeptTimers {
        let parallelism = self.subtasks.len() as u32;
        let owns = |subtask: &u32| range(*subtask, parallelism).check(hash_key(&[key])).is_ok();
        let subtask = (0..parallelism).find(owns).expect("each key has an owner");
        &mut self.subtasks[subtask as usize]
    }

    fn set(&mut self, at_ms: i64, key: u8) {
        self.of(key).register(at_ms, owner(key));
        self.model.insert((at_ms, key));
    }

    fn delete(&mut self, at_ms: i64, key: u8) {
        self.of(key).delete(at_ms, owner(key));
        self.model.remove(&(at_ms, key));
    }

    fn fire(&mut self, now_ms: i64) {
        let later = self.model.split_off(&(now_ms + 1, 0));
        let due = std::mem::replace(&mut self.model, later);
        let mut fired = Model::new();
        for timers in &mut self.subtasks {
            let of_one: Vec<_> = std::iter::from_fn(|| timers.pop_due(now_ms)).collect();
            assert!(of_one.is_sorted_by_key(|(at_ms, _)| *at_ms));
            fired.extend(of_one.iter().map(|(at_ms, owner)| (*at_ms, owner.key()[0])));
        }
        assert_eq!(fired, due);
    }

    fn take_checkpoint(&mut self) {
        self.taken += 1;
        let (mut all, parallelism) = (Vec::new(), self.subtasks.len() as u32);
        for (subtask, timers) in (0..).zip(&mut self.subtasks) {
            let mut to = Snapshot::new("op", subtask, self.taken).on(self.complete);
            to.add_timers("timers", range(subtask, parallelism), timers).unwrap();
            let mut parts: Vec<StatePart> = Vec::new();
            for part in to.into_written().parts {
                if part.is_of_changes() {
                    self.of_changes += 1;
                    let before = &self.all[&self.complete.expect("changes build on one that stands")];
                    parts.extend(before.0[subtask as usize].iter().cloned());
                }
                parts.push(part);
            }
            all.push(parts);
        }
        self.all.insert(self.taken, (all, self.model.clone()));
    }

    fn restarted(&self, checkpoint: u64, parallelism: u32) -> Self {
        let (parts, model) = &self.all[&checkpoint];
        let parts: Vec<_> = parts.iter().flatten().cloned().collect();
        let mut job = Self::new(parallelism);
        for (subtask, timers) in (0..).zip(&mut job.subtasks) {
            let from = Restored::of("op", &parts, subtask, range(subtask, parallelism));
            from.read_timers("timers", timers).unwrap();
        }
        job.model = model.clone();
        job
    }

    fn check(&self) {
        let mut found = Vec::new();
        for timers in &self.subtasks {
            for (at_ms, set) in timers.iter() {
                assert_eq!(set.given(), owner(set.key()[0]).given());
                found.push((at_ms, set.key()[0]));
            }
        }
        found.sort_unstable();
        assert_eq!(found, self.model.iter().copied().collect::<Vec<_>>(), "each is set once");
    }
}

proptest! {
    #[test]
    fn whatever_is_done_each_checkpoint_has_what_was_set(
        parallelism in 1u32..4,
        first in 0usize..400,
        actions in vec((0u8..24, -20i64..20, any::<u8>(), any::<u64>()), 0..250),
        keys in 1u8..80,
    ) {
        let mut job = Job::new(parallelism);
        (0..first).for_each(|number| job.set(number as i64 % 41 - 20, (number * 7) as u8 % keys));
        for (action, at_ms, key, number) in actions {
            let key = key % keys;
            match action {
                0..8 => job.set(at_ms, key),
                8..12 => job.delete(at_ms, key),
                12..14 => {
                    // One that is set is taken back, and may come again.
                    if let Some((at_ms, key)) = job.model.range((at_ms, key)..).next().copied() {
                        job.delete(at_ms, key);
                        if number % 2 == 0 {
                            job.set(at_ms, key);
                        }
                    }
                }
                14 => {
                    let first_ms = job.model.first().map_or(at_ms, |(first_ms, _)| *first_ms);
                    job.fire(first_ms + at_ms.abs() / 10);
                }
                15..19 => job.take_checkpoint(),
                // Any that was taken may come to stand; that is told late, and in order.
                19..22 => job.complete = job.complete.max(Some(number % (job.taken + 1)).filter(|told| *told > 0)),
                22 => job.check(),
                _ if job.taken > 0 => job = job.restarted(1 + number % job.taken, 1 + number as u32 % 3),
                _ => {}
            }
        }
        job.check();
        for checkpoint in job.all.keys() {
            let mut again = job.restarted(*checkpoint, 2);
            again.check();
            again.fire(20);
        }
    }
}

#[test]
fn a_checkpoint_of_many_timers_writes_those_that_changed() {
    let mut job = Job::new(1);
    (0..2000).for_each(|number| job.set(number, number as u8));
    job.take_checkpoint();
    job.complete = Some(1);
    job.fire(9);
    (0..10).for_each(|number| job.set(5000 + number, 7));
    // Set and fired between two checkpoints: no checkpoint has it.
    job.set(10, 255);
    job.delete(10, 255);
    job.take_checkpoint();
    let parts = &job.all[&2].0[0];
    let lens: Vec<_> = parts.iter().map(|part| part.bytes.len()).collect();
    assert_eq!((lens.len(), job.of_changes), (2, 1));
    assert!(lens[1] * 50 < lens[0], "{lens:?}");
    job.restarted(2, 3).check();
}

#[test]
fn timers_of_which_most_have_fired_are_written_whole() {
    let mut job = Job::new(1);
    (0..5000).for_each(|number| job.set(number, number as u8));
    job.take_checkpoint();
    job.complete = Some(1);
    job.fire(4000);
    job.take_checkpoint();
    assert_eq!(job.of_changes, 0);
    job.restarted(2, 2).check();
}
