//! State on disk behaves as state in memory, whatever is done with it, through checkpoints and restarts.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use flownet_core::keygroup::hash_key;
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::spill::LOOK_BATCHES;
use super::*;
use crate::mailbox::Mailbox;
use crate::metrics::TaskMetrics;
use crate::snapshot::{
    FetchError, Piece, RestoredPart, RestoredState, Snapshot, SnapshotError, StatePart, WrittenState, put_block,
};
use crate::spec::StateBackend;
use crate::time::WallClock;

const GROUPS: u32 = 8;

/// Strings, which may grow.
struct Text;

impl Values<String> for Text {
    fn write(&self, _: &[u8], value: &String, out: &mut Vec<u8>) -> Result<(), TaskError> {
        put_block(out, value.as_bytes());
        Ok(())
    }

    fn read(&self, input: &mut Input<'_>) -> Result<String, TaskError> {
        Ok(String::from_utf8_lossy(input.block()?).into_owned())
    }

    fn pass(&self, input: &mut Input<'_>) -> Result<(), TaskError> {
        input.block().map(drop)
    }
}

/// The same, with a count of decoded values.
#[derive(Default)]
struct ReadCount(Cell<usize>);

impl Values<String> for ReadCount {
    fn write(&self, key: &[u8], value: &String, out: &mut Vec<u8>) -> Result<(), TaskError> {
        Text.write(key, value, out)
    }

    fn read(&self, input: &mut Input<'_>) -> Result<String, TaskError> {
        self.0.set(self.0.get() + 1);
        Text.read(input)
    }

    fn pass(&self, input: &mut Input<'_>) -> Result<(), TaskError> {
        Values::<String>::pass(&Text, input)
    }
}

/// The same, recording the values that were observed and are not yet written.
#[derive(Default)]
struct WatchedValues(RefCell<Vec<String>>);

impl Values<String> for WatchedValues {
    fn look_at<'v>(&self, values: impl Iterator<Item = &'v String> + Clone) {
        assert!(self.0.borrow().is_empty(), "the row before was written");
        self.0.borrow_mut().extend(values.cloned());
    }

    fn write(&self, _: &[u8], value: &String, out: &mut Vec<u8>) -> Result<(), TaskError> {
        assert_eq!(self.0.borrow_mut().remove(0), *value, "what is written was looked at, in the same order");
        Text.write(b"", value, out)
    }

    fn read(&self, input: &mut Input<'_>) -> Result<String, TaskError> {
        Text.read(input)
    }
}

fn context(subtask: u32, parallelism: u32, state: StateBackend) -> TaskContext {
    let mailbox = Mailbox::new();
    TaskContext {
        task_name: "fold".into(),
        subtask,
        parallelism,
        max_parallelism: GROUPS,
        key_group_range: KeyGroupRange::of(subtask, parallelism, GROUPS),
        worker: "here".into(),
        max_record_bytes: 1 << 20,
        metrics: Arc::new(TaskMetrics::new()),
        cancel: mailbox.cancel_token(),
        bell: mailbox.bell(),
        clock: WallClock::default(),
        takes_checkpoints: true,
        state,
        channels: 0,
    }
}

fn opened(subtask: u32, parallelism: u32, state: StateBackend) -> LargeState<String> {
    let cx = context(subtask, parallelism, state);
    let mut state = LargeState::new(cx.key_group_range);
    state.open("text", &cx).unwrap();
    state
}

fn on_disk(memory_bytes: usize) -> StateBackend {
    StateBackend::Disk { memory_bytes, folder: None }
}

/// A non-canonical form of each key, for some of the keys.
fn given(key: u8) -> Option<Vec<u8>> {
    key.is_multiple_of(3).then(|| vec![key, key])
}

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

type Model = BTreeMap<u8, String>;

/// A job of some subtasks, with the state that it should have, and its checkpoints.
struct Job {
    subtasks: Vec<LargeState<String>>,
    model: Model,
    taken: u64,
    /// For each checkpoint and subtask: its parts, with those that they build on. And the state at that time.
    all: BTreeMap<u64, (Vec<Vec<StatePart>>, Model)>,
    /// Checkpoints whose on-disk part is not read yet: number, base, written state, and the state at that time.
    unwritten: Vec<(u64, Option<u64>, Vec<WrittenState>, Model)>,
    complete: Option<u64>,
    of_changes: usize,
    pieces: usize,
    /// True if held keys are written while other operations run.
    writes_later: bool,
}

impl Job {
    fn new(parallelism: u32, backend: &StateBackend) -> Self {
        let subtasks = (0..parallelism).map(|subtask| opened(subtask, parallelism, backend.clone())).collect();
        let (model, all) = (BTreeMap::new(), BTreeMap::new());
        let (unwritten, complete) = (Vec::new(), None);
        Self { subtasks, model, taken: 0, all, unwritten, complete, of_changes: 0, pieces: 0, writes_later: false }
    }

    fn that_writes_later(parallelism: u32, backend: &StateBackend) -> Self {
        Self { writes_later: true, ..Self::new(parallelism, backend) }
    }

    fn owner(&mut self, hash: u32) -> &mut LargeState<String> {
        let mut owners = self.subtasks.iter_mut();
        owners.find(|state| state.range().check(hash).is_ok()).expect("each key has an owner")
    }

    fn append(&mut self, key: u8, text: &str) {
        let (bytes, given) = ([key], given(key));
        let record = KeyedRecord::of_key(&bytes, hash_key(&bytes), given.as_deref());
        let state = self.owner(record.hash);
        state.get_or_insert_with(&record, &Text, String::new).unwrap().value.push_str(text);
        state.make_room(&Text).unwrap();
        self.model.entry(key).or_default().push_str(text);
    }

    fn put(&mut self, key: u8, text: &str) {
        let (bytes, given) = ([key], given(key));
        let record = KeyedRecord::of_key(&bytes, hash_key(&bytes), given.as_deref());
        let held = KeyEntry::new(&record, text.to_owned());
        self.owner(record.hash).put(&bytes, record.hash, held, &Text).unwrap();
        self.model.insert(key, text.to_owned());
    }

    fn remove(&mut self, key: u8) {
        let hash = hash_key(&[key]);
        self.owner(hash).remove(&[key], hash).unwrap();
        self.model.remove(&key);
    }

    fn check_one(&mut self, key: u8) {
        let hash = hash_key(&[key]);
        let expected = self.model.get(&key).cloned();
        let found = self.owner(hash).get_mut(&[key], hash, &Text).unwrap();
        assert_eq!(found.as_ref().map(|held| held.value.clone()), expected);
        if let Some(held) = found {
            assert_eq!(held.given().map(<[u8]>::to_vec), given(key));
        }
    }

    fn end_batch(&mut self) {
        self.subtasks.iter_mut().for_each(|state| state.end_batch(&Text).unwrap());
    }

    fn take_checkpoint(&mut self) {
        self.begin_checkpoint();
        self.write_out();
    }

    /// Starts a checkpoint. Its on-disk part is not read yet, nor is the rest written.
    fn begin_checkpoint(&mut self) {
        self.write_on(usize::MAX);
        self.taken += 1;
        let mut written = Vec::new();
        for (subtask, state) in (0..).zip(&mut self.subtasks) {
            let mut to = Snapshot::new("op", subtask, self.taken).on(self.complete);
            if self.writes_later {
                to.begin_large("text", &[], state, &Text).unwrap();
            } else {
                to.add_large("text", &[], state, &Text).unwrap();
            }
            written.push(to.into_written());
        }
        self.unwritten.push((self.taken, self.complete, written, self.model.clone()));
    }

    /// Writes this number of rows of each subtask for the last checkpoint. Returns true if there were any.
    fn write_on(&mut self, rows: usize) -> bool {
        let Some((checkpoint, .., written, _)) = self.unwritten.last_mut() else { return false };
        let mut has_written = false;
        for ((subtask, state), written) in (0..).zip(&mut self.subtasks).zip(written) {
            has_written |= state.is_writing();
            let (mut to, mut rows) = (Snapshot::new("op", subtask, *checkpoint), rows);
            let mut is_over = || {
                rows -= 1;
                rows == 0
            };
            to.write_on("text", state, &Text, &mut is_over).unwrap();
            written.add(to.into_written());
        }
        has_written
    }

    /// Aborts the last checkpoint, if it is not fully written.
    fn abort(&mut self) {
        if self.subtasks.iter().any(LargeState::is_writing)
            && let Some((checkpoint, ..)) = self.unwritten.pop()
        {
            // An abort of an earlier checkpoint has no effect on it.
            self.subtasks.iter_mut().for_each(|state| state.abort(checkpoint - 1));
            self.subtasks.iter_mut().for_each(|state| state.abort(checkpoint));
            assert!(!self.subtasks.iter().any(LargeState::is_writing));
        }
    }

    /// Writes all pending checkpoints, whatever has been done since.
    fn write_out(&mut self) {
        self.write_on(usize::MAX);
        for (checkpoint, complete, written, model) in std::mem::take(&mut self.unwritten) {
            let mut all = Vec::new();
            for (subtask, written) in written.into_iter().enumerate() {
                self.pieces += written.pieces.len();
                let mut parts: Vec<StatePart> = Vec::new();
                for part in all_of(written) {
                    if part.is_of_changes() && parts.is_empty() {
                        self.of_changes += 1;
                        let before = &self.all[&complete.expect("changes build on one that stands")];
                        parts.extend(before.0[subtask].iter().cloned());
                    }
                    parts.push(part);
                }
                all.push(parts);
            }
            self.all.insert(checkpoint, (all, model));
        }
    }

    /// Resumes from a checkpoint, as a new job.
    fn restarted(&self, checkpoint: u64, parallelism: u32, backend: &StateBackend) -> Self {
        let (parts, model) = &self.all[&checkpoint];
        let parts: Vec<_> = parts.iter().flatten().cloned().collect();
        let mut job = Self::new(parallelism, backend);
        for (subtask, state) in (0..).zip(&mut job.subtasks) {
            let parts: Vec<_> = parts.iter().map(to_be_fetched).collect();
            let from = RestoredState::of_restored("op", &parts, subtask, state.range());
            from.read_large("text", state, &Text).unwrap();
        }
        job.model = model.clone();
        job
    }

    /// A checkpoint, or none.
    fn one_of_all(&self, number: u64) -> Option<u64> {
        self.all.keys().copied().nth(number as usize % (self.all.len() + 1))
    }

    fn check(&self) {
        let mut found = BTreeMap::new();
        for state in &self.subtasks {
            let before = found.len();
            let each = |key: &[u8], held: &KeyEntry<String>| {
                assert_eq!(held.given().map(<[u8]>::to_vec), given(key[0]));
                assert_eq!(found.insert(key[0], held.value.clone()), None, "a key comes once");
                Ok(())
            };
            state.each(&Text, each).unwrap();
            assert_eq!(found.len() - before, state.len());
        }
        assert_eq!(found, self.model);
    }
}

fn backends() -> impl Strategy<Value = StateBackend> {
    // From room for one key to room for all keys.
    prop_oneof![Just(StateBackend::Memory), (0usize..8_000).prop_map(on_disk)]
}

proptest! {
    // Each case creates some files, also on restarts.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn whatever_is_done_it_is_as_in_memory(
        backend in backends(),
        (parallelism, writes_later) in (1u32..4, any::<bool>()),
        actions in vec((0u8..40, any::<u8>(), any::<u64>(), (1u32..4, backends())), 0..200),
        keys in 1u8..80,
    ) {
        let mut job = Job { writes_later, ..Job::new(parallelism, &backend) };
        for (action, key, number, (parallelism, backend)) in actions {
            let key = key % keys;
            match action {
                0..10 => job.append(key, &"x".repeat((number % 9) as usize)),
                10..14 => job.put(key, &number.to_string()),
                14..18 => job.remove(key),
                18..22 => job.check_one(key),
                22 => job.end_batch(),
                23..26 => job.begin_checkpoint(),
                // Any checkpoint may complete; the report comes late, and in order.
                26..29 => {
                    job.write_out();
                    job.complete = job.complete.max(job.one_of_all(number));
                }
                29 => (0..keys).for_each(|key| job.append(key, "y")),
                30 => job.check(),
                31 => {
                    job.write_out();
                    if let Some(checkpoint) = job.one_of_all(number) {
                        job = Job { writes_later, ..job.restarted(checkpoint, parallelism, &backend) };
                    }
                }
                32..39 => drop(job.write_on(1 + (number % 3) as usize)),
                _ => job.abort(),
            }
        }
        job.check();
        job.write_out();
        for checkpoint in job.all.keys() {
            job.restarted(*checkpoint, 2, &StateBackend::Memory).check();
        }
        if let Some(last) = job.all.keys().next_back() {
            job.restarted(*last, 2, &on_disk(500)).check();
        }
    }
}

/// The numbers of held keys and of keys on disk, of 200 keys whose value is eight times as long when it is held.
fn kept_of_200(memory_bytes: usize) -> (usize, usize) {
    let mut job = Job::new(1, &on_disk(memory_bytes));
    (0..200).for_each(|key| job.append(key, "0123456789"));
    job.check();
    let state = &job.subtasks[0];
    (state.held().len(), state.on_disk())
}

#[test]
fn no_more_is_held_than_there_is_memory_for() {
    assert_eq!(kept_of_200(1 << 20), (200, 0), "as long as there is room nothing leaves");
    let (held, on_disk) = kept_of_200(10_000);
    assert_eq!(held + on_disk, 200);
    // Three quarters of the memory are for keys, of some 200 bytes each.
    assert!((20..60).contains(&held), "{held}");
    assert_eq!(kept_of_200(0).0, 1, "where there is room for none, one is held");
}

#[test]
fn values_that_grow_where_they_are_make_others_leave() {
    let mut job = Job::new(1, &on_disk(40_000));
    (0..100).for_each(|key| job.append(key, "x"));
    assert_eq!(job.subtasks[0].on_disk(), 0);
    (0..100).for_each(|key| job.append(key, &"y".repeat(200)));
    (0..=LOOK_BATCHES).for_each(|_| job.end_batch());
    assert!(job.subtasks[0].on_disk() > 50, "{}", job.subtasks[0].on_disk());
    job.check();
}

#[test]
fn what_is_touched_again_and_again_stays_as_a_rule() {
    let mut job = Job::new(1, &on_disk(10_000));
    (0..200).for_each(|key| job.append(key, "0123456789"));
    for round in 0..50u16 {
        (0..5).for_each(|key| job.append(key, "."));
        (0..10u16).for_each(|key| job.append(50 + ((7 * round + key) % 150) as u8, ""));
    }
    let state = &job.subtasks[0];
    let held = (0..5u8).filter(|key| state.held().get(&[*key], hash_key(&[*key])).is_some()).count();
    assert!(held >= 4, "{held} of 5; one or two if it were chance");
    job.check();
}

#[test]
fn what_lies_on_disk_untouched_is_not_written_again() {
    let mut job = Job::new(1, &on_disk(2_000));
    (0..200).for_each(|key| job.append(key, "0123456789"));
    job.take_checkpoint();
    job.complete = Some(1);
    // Through memory and to disk again.
    (0..20).for_each(|key| job.append(key, "!"));
    (100..110).for_each(|key| job.remove(key));
    job.take_checkpoint();
    let bytes = |checkpoint: u64| job.all[&checkpoint].0[0].iter().map(|part| part.bytes.len()).sum::<usize>();
    let (whole, changes) = (bytes(1), bytes(2) - bytes(1));
    assert_eq!(job.of_changes, 1);
    assert!(changes * 4 < whole, "{changes} of {whole}");
    job.restarted(2, 3, &on_disk(2_000)).check();
}

#[test]
fn few_keys_that_are_touched_again_and_again_are_few() {
    let mut job = Job::new(1, &on_disk(1_000));
    (0..200).for_each(|key| job.append(key, "0123456789"));
    job.take_checkpoint();
    for checkpoint in 1..=12 {
        // The oldest checkpoint that may be built on stays.
        job.complete = Some(1);
        (0..20).for_each(|key| job.append(key, "!"));
        job.take_checkpoint();
        assert_eq!(job.of_changes, checkpoint);
    }
    job.restarted(13, 2, &StateBackend::Memory).check();
}

#[test]
fn what_lies_on_disk_is_written_in_pieces_as_it_was() {
    let mut job = Job::new(1, &on_disk(2_000));
    (0..200).for_each(|key| job.append(key, "0123456789"));
    job.begin_checkpoint();
    (0..200).for_each(|key| job.append(key, "!"));
    (0..200).step_by(3).for_each(|key| job.remove(key));
    (100..200).for_each(|key| job.append(key, "?"));
    job.write_out();
    assert_eq!(job.pieces, 1);
    let parts = &job.all[&1].0[0];
    let longest = parts[..parts.len() - 1].iter().map(|part| part.bytes.len()).max();
    assert!(parts.len() > 20 && longest < Some(300), "{} parts of at most {longest:?} bytes", parts.len());
    for backend in [StateBackend::Memory, on_disk(500)] {
        job.restarted(1, 3, &backend).check();
    }
}

#[test]
fn a_piece_that_cannot_be_fetched_is_named() {
    let mut state = opened(0, 1, on_disk(0));
    let share = crate::snapshot::Share::Groups { first: 0, last: 7, of: GROUPS };
    for is_damage in [true, false] {
        let fetch = Arc::new(move || Err(FetchError { reason: "it is gone".to_owned(), is_damage }));
        let piece = RestoredPart::Piece(Piece { uid: "op".into(), name: "text".into(), share, fetch });
        let from = RestoredState::of_restored("op", std::slice::from_ref(&piece), 0, state.range());
        let refused = from.read_large("text", &mut state, &Text).unwrap_err();
        assert_eq!(refused.to_string(), "state 'text' of operator 'op' cannot be read: it is gone");
        assert!(matches!(refused, TaskError::Snapshot(error) if error.may_pass() != is_damage));
    }
}

#[test]
fn what_has_no_room_goes_to_disk_as_it_was_written() {
    let mut job = Job::new(1, &on_disk(1 << 20));
    (0..200).for_each(|key| job.append(key, "0123456789"));
    job.take_checkpoint();
    job.complete = Some(1);
    (0..20).for_each(|key| job.append(key, "!"));
    (150..160).for_each(|key| job.remove(key));
    job.take_checkpoint();
    let parts: Vec<_> = job.all[&2].0[0].iter().map(to_be_fetched).collect();
    for memory_bytes in [0, 10_000] {
        let (mut state, counted) = (opened(0, 1, on_disk(memory_bytes)), ReadCount::default());
        RestoredState::of_restored("op", &parts, 0, state.range()).read_large("text", &mut state, &counted).unwrap();
        let held = state.held().len();
        assert!(held < 80 && held + state.on_disk() == 190, "{held} and {}", state.on_disk());
        // Keys that were held when their change arrived are read twice.
        assert!((held..=held + 30).contains(&counted.0.get()), "{} read, {held} held", counted.0.get());
        let mut job = Job { model: job.model.clone(), ..Job::new(1, &StateBackend::Memory) };
        job.subtasks = vec![state];
        job.check();
        (0..200).for_each(|key| job.check_one(key));
    }
}

#[test]
fn what_is_torn_is_refused_wherever_it_is_torn() {
    let mut job = Job::new(1, &on_disk(2_000));
    (0..60).for_each(|key| job.append(key, "0123456789"));
    job.take_checkpoint();
    let parts = &job.all[&1].0[0];
    assert!(parts.len() > 5);
    for torn in 0..parts.len() {
        for cut in (1..parts[torn].bytes.len()).step_by(7) {
            let mut parts = parts.clone();
            parts[torn].bytes.truncate(cut);
            let parts: Vec<_> = parts.iter().map(to_be_fetched).collect();
            let mut state = opened(0, 1, on_disk(0));
            let refused =
                RestoredState::of_restored("op", &parts, 0, state.range()).read_large("text", &mut state, &Text);
            // The encoding has no count between two groups: the store knows the length of a part.
            match refused {
                Ok(_) => assert!(state.len() < 60),
                Err(TaskError::Snapshot(error)) => {
                    let SnapshotError::Malformed { uid, state, .. } = &*error else { panic!("{error}") };
                    assert_eq!((&**uid, &**state), ("op", "text"));
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}

#[test]
fn a_folder_that_cannot_be_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let folder = file.path().join("below");
    let cx = context(1, 2, StateBackend::Disk { memory_bytes: 0, folder: Some(folder.clone()) });
    let refused = LargeState::<String>::new(cx.key_group_range).open("text", &cx).unwrap_err();
    let TaskError::DiskState(told) = &refused else { panic!("{refused}") };
    assert_eq!((&told.folder, told.keys, told.disk_bytes), (&folder, 0, 0));
    let text = refused.to_string();
    assert!(text.starts_with("state 'text' of 'fold' (subtask 2 of 2) cannot be kept on disk in folder '"), "{text}");
}

#[test]
fn all_that_is_written_is_looked_at_first_and_only_what_changed_where_that_is_little() {
    let mut state = LargeState::new(KeyGroupRange::of(0, 1, GROUPS));
    let touch = |state: &mut LargeState<String>, numbers: std::ops::Range<u32>| {
        for key in numbers.map(|number| number.to_string()) {
            let hash = hash_key(key.as_bytes());
            let record = KeyedRecord::of_key(key.as_bytes(), hash, None);
            state.get_or_insert_with(&record, &Text, String::new).unwrap().value.push('.');
        }
    };
    let written = |state: &mut LargeState<String>, checkpoint: u64| {
        let mut to = Snapshot::new("op", 0, checkpoint).on(checkpoint.checked_sub(1));
        let values = WatchedValues::default();
        to.add_large("text", &[], state, &values).unwrap();
        assert!(values.0.borrow().is_empty(), "what was looked at was written");
        let part = to.into_written().parts.remove(0);
        (part.is_of_changes(), part.bytes.len())
    };
    touch(&mut state, 0..1000);
    let (is_of_changes, whole) = written(&mut state, 1);
    assert!(!is_of_changes);
    touch(&mut state, 0..500);
    let (is_of_changes, half) = written(&mut state, 2);
    assert!(is_of_changes && half < whole, "{half} of {whole}");
    touch(&mut state, 0..501);
    assert!(!written(&mut state, 3).0, "more than half was touched");
}

/// Sets each of a thousand keys to this text.
fn many(state: &mut LargeState<String>, text: &str) {
    for key in 0..1000u32 {
        let key = key.to_le_bytes();
        let record = KeyedRecord::of_key(&key, hash_key(&key), None);
        *state.get_or_insert_with(&record, &Text, String::new).unwrap() = KeyEntry::new(&record, text.to_owned());
    }
}

/// The state, by key.
fn kept(state: &LargeState<String>) -> BTreeMap<Vec<u8>, String> {
    let mut found = BTreeMap::new();
    let each = |key: &[u8], held: &KeyEntry<String>| {
        assert_eq!(found.insert(key.to_vec(), held.value.clone()), None);
        Ok(())
    };
    state.each(&Text, each).unwrap();
    found
}

fn written_on(state: &mut LargeState<String>, checkpoint: u64, rows: &mut usize) -> WrittenState {
    let mut to = Snapshot::new("op", 0, checkpoint);
    let mut is_over = || {
        *rows += 1;
        true
    };
    to.write_on("text", state, &Text, &mut is_over).unwrap();
    to.into_written()
}

#[test]
fn all_is_written_as_it_was_while_keys_change_go_and_come() {
    let mut state = opened(0, 1, StateBackend::Memory);
    many(&mut state, "before");
    let before = kept(&state);
    let mut to = Snapshot::new("op", 0, 1);
    to.begin_large("text", &[7], &mut state, &Text).unwrap();
    let mut written = to.into_written();
    assert!(written.pieces.is_empty() && written.parts[0].bytes.len() < 10, "nothing is written at once");
    let (mut rows, mut number) = (0, 0u32);
    while state.is_writing() {
        // One key changes, one is removed, and two are added, so that tables grow during the pass.
        for key in [7 * number % 1000, 1000 + 2 * number, 1001 + 2 * number] {
            let key = key.to_le_bytes();
            let record = KeyedRecord::of_key(&key, hash_key(&key), None);
            state.get_or_insert_with(&record, &Text, String::new).unwrap().value.push_str("after");
        }
        let gone = (11 * number % 1000).to_le_bytes();
        state.remove(&gone, hash_key(&gone)).unwrap();
        number += 40;
        written.add(written_on(&mut state, 1, &mut rows));
    }
    assert!(rows > 1000 / 32, "{rows} rows");
    let last = RestoredPart::Here(written.parts.pop().unwrap());
    let parts: Vec<_> = all_of(written).iter().map(to_be_fetched).chain([last]).collect();
    assert!(parts.len() > 10);
    for memory in [StateBackend::Memory, on_disk(500)] {
        let mut restored = opened(0, 1, memory);
        let from = RestoredState::of_restored("op", &parts, 0, restored.range());
        let mut headers = from.read_large("text", &mut restored, &Text).unwrap();
        assert_eq!(headers.remove(0).signed().unwrap(), 7);
        assert!(kept(&restored) == before);
    }
}

#[test]
fn what_changed_is_written_later_where_it_is_much_and_what_is_written_later_may_be_built_on() {
    let mut job = Job::that_writes_later(1, &StateBackend::Memory);
    (0..200).for_each(|key| job.append(key, "0123456789"));
    job.take_checkpoint();
    job.complete = Some(1);
    (0..20).for_each(|key| job.append(key, "!"));
    (100..110).for_each(|key| job.remove(key));
    job.begin_checkpoint();
    assert!(job.subtasks[0].is_writing());
    (0..200).for_each(|key| job.append(key, "?"));
    job.write_out();
    job.complete = Some(2);
    (0..3).for_each(|key| job.append(key, "."));
    job.take_checkpoint();
    let bytes = |checkpoint: u64| job.all[&checkpoint].0[0].iter().map(|part| part.bytes.len()).sum::<usize>();
    let (whole, changes) = (bytes(1), bytes(2) - bytes(1));
    assert!(changes * 4 < whole, "{changes} of {whole}");
    assert_eq!(job.of_changes, 1, "then all keys were touched");
    (1..4).for_each(|checkpoint| job.restarted(checkpoint, 3, &StateBackend::Memory).check());
}

#[test]
fn one_that_is_given_up_leaves_no_trace() {
    let mut job = Job::that_writes_later(1, &StateBackend::Memory);
    (0..200).for_each(|key| job.append(key, "0123456789"));
    job.begin_checkpoint();
    assert!(job.write_on(1));
    job.abort();
    assert!(job.unwritten.is_empty() && !job.write_on(1));
    (0..200).step_by(2).for_each(|key| job.append(key, "!"));
    job.begin_checkpoint();
    job.write_on(2);
    (0..200).step_by(3).for_each(|key| job.remove(key));
    job.write_out();
    job.restarted(2, 2, &StateBackend::Memory).check();
}

/// Refuses one value.
struct PickyValues;

impl Values<String> for PickyValues {
    fn write(&self, key: &[u8], value: &String, out: &mut Vec<u8>) -> Result<(), TaskError> {
        if value == "no" { Err(TaskError::Config("no".into())) } else { Text.write(key, value, out) }
    }

    fn read(&self, input: &mut Input<'_>) -> Result<String, TaskError> {
        Text.read(input)
    }
}

#[test]
fn what_cannot_be_written_fails_the_checkpoint_and_not_who_touches_it() {
    let mut state = opened(0, 1, StateBackend::Memory);
    many(&mut state, "before");
    let key = 5u32.to_le_bytes();
    state.get_mut(&key, hash_key(&key), &PickyValues).unwrap().unwrap().value = "no".into();
    for is_touched in [true, false] {
        let mut to = Snapshot::new("op", 0, 1);
        to.begin_large("text", &[], &mut state, &PickyValues).unwrap();
        if is_touched {
            assert_eq!(state.get_mut(&key, hash_key(&key), &PickyValues).unwrap().unwrap().value, "no");
        }
        let mut to = Snapshot::new("op", 0, 1);
        let refused = to.write_on("text", &mut state, &PickyValues, &mut || false).unwrap_err();
        assert_eq!(refused, TaskError::Config("no".into()));
        assert!(!state.is_writing() && to.into_written() == WrittenState::default());
    }
}
