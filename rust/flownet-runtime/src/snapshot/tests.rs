//! What is written comes back, for whichever subtasks there are then; what nobody wrote is an error.

use flownet_core::keygroup::{hash_key, key_group};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;
use crate::error::TaskError;
use crate::operator::KeyedRecord;
use crate::state::{Held, KeyGroupRange, KeyedState};
use crate::timer::{TimerKey, TimerService};

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

/// Everything by key, and the timers, that the parts give to subtasks of this number.
type All = (Vec<(Vec<u8>, Option<Vec<u8>>, u64)>, Vec<(i64, Vec<u8>)>);

fn read_back(parts: &[StatePart], parallelism: u32) -> Result<All, TaskError> {
    let (mut values, mut timers) = (Vec::new(), Vec::new());
    for subtask in 0..parallelism {
        let from = Restored::of("op", parts, subtask, range(subtask, parallelism));
        let mut state: KeyedState<Held<u64>> = KeyedState::new(range(subtask, parallelism));
        from.read_keyed("state", &mut state, Input::varint)?;
        let of_one =
            |(_, key, held): (_, &[u8], &Held<u64>)| (key.to_vec(), held.given().map(<[u8]>::to_vec), held.value);
        values.extend(state.iter().map(of_one));
        let mut set = TimerService::new();
        from.read_timers("timers", &mut set)?;
        timers.extend(set.iter().map(|(at_ms, owner): (i64, &TimerKey)| (at_ms, owner.key().to_vec())));
    }
    values.sort();
    timers.sort();
    Ok((values, timers))
}

proptest! {
    #[test]
    fn keys_and_timers_come_back_whatever_the_parallelism(
        values in btree_map(vec(any::<u8>(), 0..30), (proptest::option::of(vec(any::<u8>(), 0..4)), any::<u64>()), 0..60),
        times in vec(any::<i64>(), 0..60),
        (before, after) in (1u32..6, 1u32..6),
    ) {
        let mut parts = Vec::new();
        let mut expected: All = Default::default();
        for subtask in 0..before {
            let mut state = KeyedState::new(range(subtask, before));
            let mut timers = TimerService::new();
            for ((key, (given, value)), at_ms) in values.iter().zip(times.iter().cycle().map(Some).chain([None])) {
                if is_of(key, subtask, before) {
                    let record = KeyedRecord::of_key(key, hash_key(key), given.as_deref());
                    state.insert(key, hash_key(key), Held::new(&record, *value)).unwrap();
                    expected.0.push((key.clone(), given.clone(), *value));
                    if let Some(at_ms) = at_ms {
                        timers.register(*at_ms, TimerKey::of(&record));
                        expected.1.push((*at_ms, key.clone()));
                    }
                }
            }
            let mut to = Snapshot::new("op", subtask, 1);
            to.add_keyed("state", &state, |_, value, out| {
                crate::varint::put_varint(out, *value);
                Ok(())
            }).unwrap();
            to.add_timers("timers", range(subtask, before), &timers).unwrap();
            parts.extend(to.into_parts());
        }
        expected.0.sort();
        expected.1.sort();
        prop_assert_eq!(read_back(&parts, after).unwrap(), expected);
    }

    #[test]
    fn items_go_to_one_subtask_each(counts in vec(0usize..4, 1..5), after in 1u32..6) {
        let mut parts = Vec::new();
        let mut expected = Vec::new();
        for (subtask, count) in (0u8..).zip(&counts) {
            let items: Vec<[u8; 2]> = (0..*count).map(|item| [subtask, item as u8]).collect();
            let mut to = Snapshot::new("op", subtask.into(), 1);
            to.add_items("list", &items);
            parts.extend(to.into_parts());
            expected.extend(items);
        }
        let mut found = Vec::new();
        for subtask in 0..after {
            let from = Restored::of("op", &parts, subtask, range(subtask, after));
            let dealt = from.dealt_items("list", after).unwrap();
            let dealt: Vec<_> = dealt.into_iter().map(|mut item| [item.byte().unwrap(), item.byte().unwrap()]).collect();
            prop_assert!(after as usize != counts.len() || dealt.iter().all(|item| u32::from(item[0]) == subtask));
            found.extend(dealt);
        }
        found.sort_unstable();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn any_bytes_are_state_or_an_error(mut bytes in vec(any::<u8>(), 0..80), is_likely in any::<bool>()) {
        if is_likely {
            bytes.splice(0..0, [1, 1, 0]);
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
            let from = Restored::of("op", &parts, 0, range(0, 1));
            let items = from.items("list");
            prop_assert!(items.is_ok() || matches!(items, Err(TaskError::Snapshot(_))));
        }
    }
}

#[test]
fn another_version_and_another_number_of_key_groups_are_refused_by_name() {
    let share = Share::Groups { first: 0, last: 15, of: GROUPS };
    let of = |bytes: Vec<u8>, share| [StatePart { uid: "op".into(), name: "state".into(), share, bytes }];
    let newer = read_back(&of(vec![2, 1, 0], share), 1).unwrap_err();
    assert_eq!(newer.to_string(), "state 'state' of operator 'op' is of format 2, and this flownet reads format 1");
    let other = read_back(&of(vec![1, 1, 0], Share::Groups { first: 0, last: 15, of: 128 }), 1).unwrap_err();
    assert!(other.to_string().contains("in 128 key groups and the job has 16"), "{other}");
}
