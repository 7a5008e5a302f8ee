//! Whatever is done with timers, each checkpoint has those that were set at that time: through changes, restarts, and
//! other parallelism.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flownet_core::keygroup::hash_key;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::snapshot::{Piece, RestoredPart, RestoredState, Snapshot, StatePart, WrittenState};
use crate::state::KeyGroupRange;
use crate::timer::far::tests::in_little_memory;

const GROUPS: u32 = 8;

fn range(subtask: u32, parallelism: u32) -> KeyGroupRange {
    KeyGroupRange::of(subtask, parallelism, GROUPS)
}

/// A non-canonical form of each key, for some of the keys.
fn owner(key: u8) -> TimerKey {
    let given = [key, key];
    TimerKey::held(&[key], key.is_multiple_of(3).then_some(&given[..]))
}

type Model = BTreeSet<(i64, u8)>;

/// Pieces before parts, as they are written.
fn all_of(WrittenState { parts, pieces }: WrittenState) -> Vec<StatePart> {
    let taken = pieces.iter().flat_map(|pieces| std::iter::from_fn(|| pieces.take().unwrap()));
    taken.chain(parts).collect()
}

/// A part without a header, to be fetched when it is needed.
fn to_be_fetched(part: &StatePart) -> RestoredPart {
    let StatePart { uid, name, share, bytes } = part.clone();
    RestoredPart::Piece(Piece { uid, name, share, fetch: Arc::new(move || Ok(bytes.clone())) })
}

/// Timers in memory, or all but a few on disk.
fn timers(on_disk: bool) -> KeptTimers {
    let mut timers = KeptTimers::new();
    timers.timers.far = in_little_memory(usize::MAX).filter(|_| on_disk);
    timers
}

fn set_of(timers: &KeptTimers) -> Vec<(i64, TimerKey)> {
    let mut set = Vec::new();
    let all = timers.each(|at_ms, key| {
        set.push((at_ms, key.clone()));
        Ok::<_, TaskError>(())
    });
    all.unwrap();
    set
}

/// A job of some subtasks, with the timers that should be set, and its checkpoints.
struct Job {
    subtasks: Vec<KeptTimers>,
    model: Model,
    taken: u64,
    /// For each checkpoint and subtask: its parts, with those that they build on. And the timers set at that time.
    all: BTreeMap<u64, (Vec<Vec<StatePart>>, Model)>,
    complete: Option<u64>,
    of_changes: usize,
    /// Checkpoints whose pieces are read later, while the job continues, for each subtask.
    unread: Vec<(u64, Vec<WrittenState>)>,
    /// The checkpoint that each checkpoint builds on, if there is one.
    before: BTreeMap<u64, Option<u64>>,
}

impl Job {
    fn new(parallelism: u32, on_disk: bool) -> Self {
        let subtasks = (0..parallelism).map(|_| timers(on_disk)).collect();
        let (model, all, unread) = (Model::new(), BTreeMap::new(), Vec::new());
        Self { subtasks, model, taken: 0, all, complete: None, of_changes: 0, unread, before: BTreeMap::new() }
    }

    fn of(&mut self, key: u8) -> &mut KeptTimers {
        let parallelism = self.subtasks.len() as u32;
        let owns = |subtask: &u32| range(*subtask, parallelism).check(hash_key(&[key])).is_ok();
        let subtask = (0..parallelism).find(owns).expect("each key has an owner");
        &mut self.subtasks[subtask as usize]
    }

    fn set(&mut self, at_ms: i64, key: u8) {
        self.of(key).register(at_ms, owner(key));
        self.of(key).make_room().unwrap();
        self.model.insert((at_ms, key));
    }

    fn delete(&mut self, at_ms: i64, key: u8) {
        self.of(key).delete(at_ms, owner(key)).unwrap();
        self.of(key).make_room().unwrap();
        self.model.remove(&(at_ms, key));
    }

    fn fire(&mut self, now_ms: i64) {
        let later = self.model.split_off(&(now_ms + 1, 0));
        let due = std::mem::replace(&mut self.model, later);
        let mut fired = Model::new();
        for timers in &mut self.subtasks {
            let of_one: Vec<_> = std::iter::from_fn(|| timers.pop_due(now_ms).unwrap()).collect();
            assert!(of_one.is_sorted_by_key(|(at_ms, _)| *at_ms));
            fired.extend(of_one.iter().map(|(at_ms, owner)| (*at_ms, owner.key()[0])));
        }
        assert_eq!(fired, due);
    }

    fn take_checkpoint(&mut self) {
        self.taken += 1;
        let (mut unread, parallelism) = (Vec::new(), self.subtasks.len() as u32);
        for (subtask, timers) in (0..).zip(&mut self.subtasks) {
            let mut to = Snapshot::new("op", subtask, self.taken).on(self.complete);
            to.add_timers("timers", range(subtask, parallelism), timers).unwrap();
            unread.push(to.into_written());
        }
        self.all.insert(self.taken, (Vec::new(), self.model.clone()));
        self.unread.push((self.taken, unread));
        self.before.insert(self.taken, self.complete);
    }

    /// Reads the state of checkpoints up to one, in order: a checkpoint is reported as complete after it was read.
    fn read_up_to(&mut self, checkpoint: u64) {
        while self.unread.first().is_some_and(|(first, _)| *first <= checkpoint) {
            let (checkpoint, written) = self.unread.remove(0);
            let mut all = Vec::new();
            for (subtask, written) in written.into_iter().enumerate() {
                let mut parts = all_of(written);
                // Whole checkpoints on disk have pieces that build on nothing.
                if parts[0].is_of_changes() {
                    self.of_changes += 1;
                    let before = &self.all[&self.before[&checkpoint].expect("changes build on one that stands")];
                    parts.splice(0..0, before.0[subtask].iter().cloned());
                }
                all.push(parts);
            }
            self.all.get_mut(&checkpoint).expect("it was taken").0 = all;
        }
    }

    fn restarted(&mut self, checkpoint: u64, parallelism: u32, on_disk: bool) -> Self {
        self.read_up_to(checkpoint);
        let (parts, model) = &self.all[&checkpoint];
        let last = |part: &StatePart, next: Option<&StatePart>| next.is_none_or(|next| next.share != part.share);
        let parts: Vec<_> = parts.iter().flatten().collect();
        let nexts = parts.iter().skip(1).map(|part| Some(*part)).chain([None]);
        // The last part of each subtask has the header. The others may be pieces.
        let parts: Vec<RestoredPart> = parts
            .iter()
            .zip(nexts)
            .map(|(part, next)| if last(part, next) { (*part).clone().into() } else { to_be_fetched(part) })
            .collect();
        let mut job = Self::new(parallelism, on_disk);
        for (subtask, timers) in (0..).zip(&mut job.subtasks) {
            let from = RestoredState::of_restored("op", &parts, subtask, range(subtask, parallelism));
            from.read_timers("timers", timers).unwrap();
        }
        job.model = model.clone();
        job
    }

    fn check(&self) {
        let mut found = Vec::new();
        for timers in &self.subtasks {
            for (at_ms, set) in set_of(timers) {
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
        on_disk in any::<bool>(),
        first in prop_oneof![0usize..400, 400usize..1500],
        actions in vec((0u8..24, -20i64..20, any::<u8>(), any::<u64>()), 0..250),
        keys in 1u8..80,
    ) {
        let mut job = Job::new(parallelism, on_disk);
        (0..first).for_each(|number| job.set(number as i64 % 97 - 20, (number * 7) as u8 % keys));
        for (action, at_ms, key, number) in actions {
            let key = key % keys;
            match action {
                0..8 => job.set(at_ms, key),
                8..12 => job.delete(at_ms, key),
                12..14 => {
                    // A timer that is set is deleted, and may be set again.
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
                // Any checkpoint may complete; the report comes late, and in order.
                19..22 => {
                    job.complete = job.complete.max(Some(number % (job.taken + 1)).filter(|told| *told > 0));
                    job.read_up_to(job.complete.unwrap_or(0));
                }
                22 => job.check(),
                _ if job.taken > 0 => {
                    job = job.restarted(1 + number % job.taken, 1 + number as u32 % 3, number % 5 < 3);
                }
                _ => {}
            }
        }
        job.check();
        job.read_up_to(job.taken);
        for checkpoint in 1..=job.taken {
            let mut again = job.restarted(checkpoint, 2, !on_disk);
            again.check();
            again.fire(20);
        }
    }
}

#[test]
fn a_checkpoint_of_many_timers_writes_those_that_changed() {
    for on_disk in [false, true] {
        let mut job = Job::new(1, on_disk);
        (0..2000).for_each(|number| job.set(number, number as u8));
        job.take_checkpoint();
        job.complete = Some(1);
        job.fire(9);
        (0..10).for_each(|number| job.set(5000 + number, 7));
        // Set and fired between two checkpoints: no checkpoint has it.
        job.set(10, 255);
        job.delete(10, 255);
        job.take_checkpoint();
        job.read_up_to(2);
        let [whole, both] = [1, 2].map(|id| job.all[&id].0[0].iter().map(|part| part.bytes.len()).sum::<usize>());
        assert_eq!(job.of_changes, 1);
        assert!((both - whole) * 50 < whole, "{whole}, and {both} with what changed");
        job.restarted(2, 3, on_disk).check();
    }
}

#[test]
fn timers_of_which_most_have_fired_are_written_whole() {
    let mut job = Job::new(1, false);
    (0..5000).for_each(|number| job.set(number, number as u8));
    job.take_checkpoint();
    job.complete = Some(1);
    job.fire(4000);
    job.take_checkpoint();
    job.read_up_to(2);
    assert_eq!(job.of_changes, 0);
    job.restarted(2, 2, true).check();
}
