//! Written state is restored with any parallelism; other bytes are an error.

use std::collections::BTreeMap;

use flownet_core::keygroup::{hash_key, key_group};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;
use crate::error::TaskError;
use crate::operator::KeyedRecord;
use crate::state::{KeyEntry, KeyGroupRange, KeyedState};
use crate::timer::{KeptTimers, TimerKey};

const GROUPS: u32 = 16;

fn range(subtask: u32, parallelism: u32) -> KeyGroupRange {
    KeyGroupRange::of(subtask, parallelism, GROUPS)
}

fn owner(key: &[u8]) -> u32 {
    u32::from(key_group(hash_key(key), GROUPS).get())
}

fn is_of(key: &[u8], subtask: u32, parallelism: u32) -> bool {
    let range = range(subtask, parallelism);
    (u32::from(range.first().get())..=u32::from(range.last().get())).contains(&owner(key))
}

/// All keyed state and timers that the parts give to this number of subtasks.
type AllState = (Vec<(Vec<u8>, Option<Vec<u8>>, u64)>, Vec<(i64, Vec<u8>)>);

fn write_one(_: &[u8], held: &KeyEntry<u64>, out: &mut Vec<u8>) -> Result<(), TaskError> {
    crate::varint::put_varint(out, held.value);
    Ok(())
}

fn read_back(parts: &[StatePart], parallelism: u32) -> Result<AllState, TaskError> {
    let (mut values, mut timers) = (Vec::new(), Vec::new());
    for subtask in 0..parallelism {
        let from = RestoredState::of("op", parts, subtask, range(subtask, parallelism));
        let mut state: KeyedState<KeyEntry<u64>> = KeyedState::new(range(subtask, parallelism));
        from.read_keyed("state", &mut state, Input::varint)?;
        let of_one =
            |(_, key, held): (_, &[u8], &KeyEntry<u64>)| (key.to_vec(), held.given().map(<[u8]>::to_vec), held.value);
        values.extend(state.iter().map(of_one));
        let mut set = KeptTimers::new();
        from.read_timers("timers", &mut set)?;
        timers.extend(set.near().map(|(at_ms, owner)| (at_ms, owner.key().to_vec())));
    }
    values.sort();
    timers.sort();
    Ok((values, timers))
}

#[test]
fn an_operator_that_keeps_nothing_refuses_the_state_of_another() {
    let part =
        |name: &str| StatePart { uid: "op".into(), name: name.into(), share: Share::All { subtask: 0 }, bytes: vec![] };
    let of_any = [part(MEDIUM), part(FINISHED)];
    assert_eq!(RestoredState::of("op", &of_any, 0, range(0, 1)).refuse(), Ok(()));
    let of_another = [part(MEDIUM), part("count")];
    let refused = RestoredState::of("op", &of_another, 0, range(0, 1)).refuse().unwrap_err().to_string();
    assert!(refused.contains("state 'count' was kept of operator 'op', which has none"), "{refused}");
    assert_eq!(RestoredState::of("other", &of_another, 0, range(0, 1)).refuse(), Ok(()));
}

/// Items of as many subtasks as there are counts, each its subtask and its number: as parts, and as values.
fn lists(counts: &[usize]) -> (Vec<StatePart>, Vec<[u8; 2]>) {
    let (mut parts, mut all) = (Vec::new(), Vec::new());
    for (subtask, count) in (0u8..).zip(counts) {
        let items: Vec<[u8; 2]> = (0..*count).map(|item| [subtask, item as u8]).collect();
        let mut to = Snapshot::new("op", subtask.into(), 1);
        to.add_items("list", &items);
        parts.extend(to.into_written().parts);
        all.extend(items);
    }
    (parts, all)
}

proptest! {
    #[test]
    fn keys_and_timers_come_back_whatever_the_parallelism(
        values in btree_map(vec(any::<u8>(), 0..30), (proptest::option::of(vec(any::<u8>(), 0..4)), any::<u64>()), 0..60),
        times in vec(any::<i64>(), 0..60),
        (before, after) in (1u32..6, 1u32..6),
    ) {
        let mut parts = Vec::new();
        let mut expected: AllState = Default::default();
        for subtask in 0..before {
            let mut state = KeyedState::new(range(subtask, before));
            let mut timers = KeptTimers::new();
            for ((key, (given, value)), at_ms) in values.iter().zip(times.iter().cycle().map(Some).chain([None])) {
                if is_of(key, subtask, before) {
                    let record = KeyedRecord::of_key(key, hash_key(key), given.as_deref());
                    state.insert(key, hash_key(key), KeyEntry::new(&record, *value)).unwrap();
                    expected.0.push((key.clone(), given.clone(), *value));
                    if let Some(at_ms) = at_ms {
                        timers.register(*at_ms, TimerKey::of(&record));
                        expected.1.push((*at_ms, key.clone()));
                    }
                }
            }
            let mut to = Snapshot::new("op", subtask, 1);
            to.add_keyed("state", &[], &mut state, write_one).unwrap();
            to.add_timers("timers", range(subtask, before), &mut timers).unwrap();
            parts.extend(to.into_written().parts);
        }
        expected.0.sort();
        expected.1.sort();
        prop_assert_eq!(read_back(&parts, after).unwrap(), expected);
    }

    #[test]
    fn items_go_to_one_subtask_each(counts in vec(0usize..4, 1..5), after in 1u32..6) {
        let (parts, expected) = lists(&counts);
        let mut found = Vec::new();
        for subtask in 0..after {
            let from = RestoredState::of("op", &parts, subtask, range(subtask, after));
            let dealt = from.dealt_items("list", after).unwrap();
            let dealt: Vec<_> = dealt.into_iter().map(|mut item| [item.byte().unwrap(), item.byte().unwrap()]).collect();
            prop_assert!(after as usize != counts.len() || dealt.iter().all(|item| u32::from(item[0]) == subtask));
            found.extend(dealt);
        }
        found.sort_unstable();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn lists_go_to_one_subtask_each_and_stay_whole(counts in vec(0usize..4, 1..5), after in 1u32..6) {
        let (parts, expected) = lists(&counts);
        let mut found = Vec::new();
        for subtask in 0..after {
            let from = RestoredState::of("op", &parts, subtask, range(subtask, after));
            let dealt = from.dealt_lists("list", after).unwrap();
            let dealt: Vec<_> = dealt.into_iter().map(|mut item| [item.byte().unwrap(), item.byte().unwrap()]).collect();
            prop_assert!(dealt.is_sorted(), "each list is in its order");
            prop_assert!(dealt.iter().all(|item| u32::from(item[0]) % after == subtask));
            found.extend(dealt);
        }
        found.sort_unstable();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn any_bytes_are_state_or_an_error(mut bytes in vec(any::<u8>(), 0..80), is_likely in any::<bool>()) {
        if is_likely {
            bytes.splice(0..0, [2, 1, 0]);
        }
        let groups = Share::Groups { first: 0, last: 15, of: GROUPS };
        for (name, share) in [("state", groups), ("timers", groups), ("list", Share::All { subtask: 0 })] {
            let part = StatePart { uid: "op".into(), name: name.into(), share, bytes: bytes.clone() };
            let parts = [part];
            let told = match read_back(&parts, 1) {
                Err(TaskError::Snapshot(error)) => error.to_string(),
                Err(other) => panic!("{other}"),
                Ok(_) => "'op'".to_owned(),
            };
            prop_assert!(told.contains("'op'"));
            let from = RestoredState::of("op", &parts, 0, range(0, 1));
            let items = from.items("list");
            prop_assert!(items.is_ok() || matches!(items, Err(TaskError::Snapshot(_))));
        }
    }
}

/// A subtask with checkpoints that complete or not, and are reported or not yet.
struct KeptSubtask {
    state: KeyedState<KeyEntry<u64>>,
    model: BTreeMap<u8, u64>,
    taken: u64,
    /// The parts of each checkpoint, with those that they build on, and the state at that time.
    all: BTreeMap<u64, (Vec<StatePart>, BTreeMap<u8, u64>)>,
    complete: Option<u64>,
    of_changes: usize,
}

impl KeptSubtask {
    fn new() -> Self {
        let (state, model, all) = (KeyedState::new(range(0, 1)), BTreeMap::new(), BTreeMap::new());
        Self { state, model, taken: 0, all, complete: None, of_changes: 0 }
    }

    fn set(&mut self, key: u8, value: u64) {
        let record = KeyedRecord::of_key(std::slice::from_ref(&key), hash_key(&[key]), None);
        // Values are changed in place, as by folds, or replaced, as by functions.
        match self.state.get_mut(&[key], record.hash) {
            Some(held) if value.is_multiple_of(2) => held.value = value,
            _ => drop(self.state.insert(&[key], record.hash, KeyEntry::new(&record, value)).unwrap()),
        }
        self.model.insert(key, value);
    }

    fn remove(&mut self, key: u8) {
        self.state.remove(&[key], hash_key(&[key]));
        self.model.remove(&key);
    }

    fn take_checkpoint(&mut self) {
        self.taken += 1;
        let mut to = Snapshot::new("op", 0, self.taken).on(self.complete);
        to.add_keyed("state", &[], &mut self.state, write_one).unwrap();
        let mut parts = Vec::new();
        for part in to.into_written().parts {
            if part.is_of_changes() {
                self.of_changes += 1;
                parts.extend(self.all[&self.complete.expect("changes build on one that stands")].0.iter().cloned());
            }
            parts.push(part);
        }
        self.all.insert(self.taken, (parts, self.model.clone()));
    }

    fn check(&self) {
        for (parts, held) in self.all.values() {
            let (values, _) = read_back(parts, 2).unwrap();
            let values: BTreeMap<u8, u64> = values.into_iter().map(|(key, _, value)| (key[0], value)).collect();
            assert_eq!(values, *held);
        }
    }
}

proptest! {
    #[test]
    fn changes_upon_what_stands_are_all_that_is_held(
        actions in vec((0u8..20, any::<u8>(), any::<u64>()), 0..120),
        keys in 1u8..60,
    ) {
        let mut kept = KeptSubtask::new();
        (0..keys).for_each(|key| kept.set(key, 1));
        for (action, key, value) in actions {
            match action {
                0..3 => kept.take_checkpoint(),
                // Any checkpoint may complete; the report comes late, and in order.
                3..6 => kept.complete = kept.complete.max(Some(value % (kept.taken + 1)).filter(|told| *told > 0)),
                6..12 => kept.set(key % keys, value),
                12 => (0..keys).for_each(|key| kept.set(key, value)),
                _ => kept.remove(key % keys),
            }
        }
        kept.check();
    }
}

#[test]
fn what_was_not_touched_is_not_written_again() {
    let mut kept = KeptSubtask::new();
    (0..=255).for_each(|key| kept.set(key, 7));
    let mut lens = Vec::new();
    for round in 0..40 {
        kept.take_checkpoint();
        let (parts, _) = &kept.all[&kept.taken];
        lens.push((parts.len(), parts.last().unwrap().bytes.len()));
        kept.complete = Some(kept.taken);
        kept.set(1, round);
        kept.remove(2);
    }
    kept.check();
    let (whole, longest) = (lens[0].1, lens.iter().map(|(parts, _)| *parts).max());
    assert!(lens[1].1 * 10 < whole, "{lens:?}");
    assert_eq!((longest, kept.of_changes), (Some(17), 40 - 3), "a whole one from time to time: {lens:?}");
}

#[test]
fn state_whose_keys_come_and_go_is_written_whole_and_lists_no_more_keys_than_it_holds() {
    let mut state: KeyedState<KeyEntry<u64>> = KeyedState::new(range(0, 1));
    let take = |state: &mut KeyedState<KeyEntry<u64>>, id: u64| {
        let mut to = Snapshot::new("op", 0, id).on(id.checked_sub(1).filter(|base| *base > 0));
        to.add_keyed("state", &[], state, write_one).unwrap();
        to.into_written().parts.remove(0).is_of_changes()
    };
    assert!(!take(&mut state, 1));
    for key in 0..10_000u32 {
        let key = key.to_le_bytes();
        let record = KeyedRecord::of_key(&key, hash_key(&key), None);
        state.insert(&key, record.hash, KeyEntry::new(&record, 0)).unwrap();
        state.remove(&key, record.hash).unwrap();
    }
    assert!(!take(&mut state, 2), "so many were removed that nobody knows which");
    assert!(take(&mut state, 3));
}

#[test]
fn changes_without_what_they_build_on_are_refused() {
    let mut kept = KeptSubtask::new();
    kept.set(1, 1);
    kept.set(2, 1);
    kept.take_checkpoint();
    kept.complete = Some(1);
    kept.set(1, 2);
    kept.take_checkpoint();
    let (parts, _) = &kept.all[&2];
    assert!(parts[1].is_of_changes());
    let refused = read_back(&parts[1..], 1).unwrap_err().to_string();
    assert!(refused.contains("changes without what they build on"), "{refused}");
}

#[test]
fn what_was_written_before_timers_had_changes_is_read() {
    let mut timers = KeptTimers::new();
    timers.register(7, TimerKey::held(b"a", None));
    let mut to = Snapshot::new("op", 0, 1);
    to.add_timers("timers", range(0, 1), &mut timers).unwrap();
    let mut parts = to.into_written().parts;
    assert_eq!(std::mem::replace(&mut parts[0].bytes[0], 1), 2);
    assert_eq!(read_back(&parts, 3).unwrap().1, [(7, b"a".to_vec())]);
}

#[test]
fn another_version_and_another_number_of_key_groups_are_refused_by_name() {
    let share = Share::Groups { first: 0, last: 15, of: GROUPS };
    let of = |bytes: Vec<u8>, share| [StatePart { uid: "op".into(), name: "state".into(), share, bytes }];
    let newer = read_back(&of(vec![3, 1, 0], share), 1).unwrap_err();
    let told = "state 'state' of operator 'op' is of format 3, and this flownet reads formats 1 and 2";
    assert_eq!(newer.to_string(), told);
    let other = read_back(&of(vec![2, 1, 0], Share::Groups { first: 0, last: 15, of: 128 }), 1).unwrap_err();
    assert!(other.to_string().contains("in 128 key groups and the job has 16"), "{other}");
}
