//! Whatever is set, deleted and fired, timers on disk behave as a sorted set and as timers in memory.

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::pages::Room;
use super::*;
use crate::timer::{TimerKey, TimerService};

/// A file whose nth call fails.
pub(crate) struct FailingFile {
    file: File,
    calls_left: AtomicUsize,
}

impl FailingFile {
    pub(crate) fn after(calls: usize) -> Arc<Self> {
        Arc::new(Self { file: tempfile::tempfile().unwrap(), calls_left: AtomicUsize::new(calls) })
    }

    fn count(&self) -> io::Result<()> {
        let left = self.calls_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.map(drop).map_err(|_| io::Error::other("no space left on device, in a test"))
    }
}

impl Room for FailingFile {
    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.count()?;
        Room::read(&self.file, at, out)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.count()?;
        Room::write(&self.file, at, bytes)
    }
}

fn about() -> DiskStateError {
    DiskStateError {
        task: "sessions".into(),
        subtask: 1,
        parallelism: 2,
        state: "timers".into(),
        folder: std::env::temp_dir(),
        disk_bytes: 0,
        keys: 0,
        reason: String::new(),
    }
}

/// An instance with so little memory that all but one leaf goes to disk, and a file that allows this many calls.
pub(crate) fn in_little_memory<K: TimerOwner>(calls: usize) -> Option<Box<Far<K>>> {
    let mut far = Far::new(about(), 4096);
    far.pages = Some(Pages::new(FailingFile::after(calls)));
    Some(Box::new(far))
}

impl<K: TimerOwner> Far<K> {
    pub(crate) fn assert_invariants(&self) {
        let bounds: Vec<_> = self.leaves.keys().collect();
        for (at, log) in self.leaves.values().enumerate() {
            // This read may fail if the disk is supposed to fail.
            let Ok(done) = self.read(log) else { return };
            let (set, _) = settled(done);
            assert!(set.first().is_none_or(|first| bounds[at] <= first), "F1");
            assert!(set.last().is_none_or(|last| bounds.get(at + 1).is_none_or(|bound| last < bound)), "F1");
        }
        let tails: usize = self.leaves.values().chain([&self.gone]).map(Log::tail_bytes).sum();
        assert_eq!(tails, self.tail_bytes);
        assert!(self.is_to_look(0) || tails <= self.sizes.tails, "F2");
    }

    fn used_pages(&self) -> usize {
        self.pages.as_ref().map_or(0, Pages::used)
    }
}

type Ops = Vec<(u8, i64, u16)>;

/// Checks that any sequence fires the timers that a sorted set would, and those that timers in memory do.
fn against_model(ops: Ops, calls: usize) -> Result<(), TaskError> {
    let (mut timers, mut in_memory) = (TimerService::new(), TimerService::new());
    timers.far = in_little_memory(calls);
    let mut model = BTreeSet::new();
    for (op, at, key) in ops {
        match op {
            0..=11 => {
                timers.register(at, key);
                in_memory.register(at, key);
                model.insert((at, key));
            }
            12 => {
                timers.delete(at, key)?;
                in_memory.delete(at, key)?;
                model.remove(&(at, key));
            }
            13..=16 => {
                // A timer that is set is moved.
                if let Some((at, key)) = model.range((at, key)..).next().copied() {
                    timers.delete(at, key)?;
                    assert_eq!(in_memory.delete(at, key)?, Some(key));
                    model.remove(&(at, key));
                    timers.register(at + 7, key);
                    in_memory.register(at + 7, key);
                    model.insert((at + 7, key));
                }
            }
            _ => {
                let now = model.first().map_or(at, |(first, _)| first + at / 16);
                let later = model.split_off(&(now + 1, 0));
                for due in model {
                    assert_eq!(timers.pop_due(now)?, Some(due));
                    assert_eq!(in_memory.pop_due(now)?, Some(due));
                }
                assert_eq!((timers.pop_due(now)?, in_memory.pop_due(now)?), (None, None));
                model = later;
            }
        }
        timers.make_room()?;
        assert_eq!((timers.next_ms(), timers.is_empty()), (in_memory.next_ms(), model.is_empty()));
    }
    timers.far.as_ref().unwrap().assert_invariants();
    let mut all = Vec::new();
    timers.each(|at, key| {
        all.push((at, *key));
        Ok::<_, TaskError>(())
    })?;
    assert_eq!(all, model.iter().copied().collect::<Vec<_>>());
    let pending = &mut timers.take();
    assert!(timers.is_empty());
    for due in model {
        assert_eq!(pending.pop_due(i64::MAX)?, Some(due));
        pending.make_room()?;
    }
    assert_eq!((pending.pop_due(i64::MAX)?, pending.far.as_ref().unwrap().used_pages()), (None, 0));
    Ok(())
}

fn ops() -> impl Strategy<Value = Ops> {
    vec((0u8..18, 0i64..2000, 0u16..300), 0..2500)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn timers_on_disk_fire_as_those_in_memory(ops in ops()) {
        against_model(ops, usize::MAX).unwrap();
    }

    #[test]
    fn a_disk_that_fails_at_any_call_is_an_error_that_says_of_what(ops in ops(), calls in 0usize..400) {
        match against_model(ops, calls) {
            Ok(()) => {}
            Err(TaskError::DiskState(error)) => {
                let told = (&*error.task, &*error.state, error.subtask, error.parallelism, &error.folder);
                prop_assert_eq!(told, ("sessions", "timers", 1, 2, &std::env::temp_dir()));
                prop_assert!(error.reason.contains("no space left"), "{}", error);
            }
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        }
    }
}

/// Simulates a long-running job: each timer fires and is set again, in any order. The file does not grow.
#[test]
fn room_on_disk_is_used_again() {
    let mut timers = TimerService::new();
    timers.far = in_little_memory(usize::MAX);
    let time_of = |at: usize| (at as i64 * 7919).rem_euclid(100_000);
    for at in 0..10_000_usize {
        timers.register(time_of(at), at as u16);
        timers.make_room().unwrap();
    }
    let file_bytes = |timers: &TimerService<u16>| timers.far.as_ref().unwrap().about().disk_bytes;
    let before = file_bytes(&timers);
    assert!(before > 30_000, "{before}");
    for round in 0..50_000_usize {
        let (at, key) = timers.pop_due(i64::MAX).unwrap().unwrap();
        timers.register(at + 1 + time_of(round), key);
        timers.make_room().unwrap();
    }
    let after = file_bytes(&timers);
    assert!(after < 2 * before, "{before} became {after}");
    assert_eq!(timers.take().len(), 10_000);
}

/// Memory does not grow with the number of timers.
#[test]
fn few_bytes_a_leaf_stay_in_memory() {
    let mut timers = TimerService::new();
    timers.far = in_little_memory(usize::MAX);
    for at in 0..100_000_i64 {
        timers.register((at * 7919).rem_euclid(1 << 40), at as u16);
        timers.make_room().unwrap();
    }
    let far = timers.far.as_ref().unwrap();
    assert!(timers.leaves.len() <= 2, "{}", timers.leaves.len());
    assert!(far.tail_bytes <= far.sizes.tails);
    far.assert_invariants();
    assert_eq!(far.len() + timers.near().count(), 100_000);
}

#[test]
fn a_file_that_was_changed_by_somebody_else_is_an_error_and_no_panic() {
    let file = Arc::new(tempfile::tempfile().unwrap());
    for byte in [0, 0x7f, 0xff] {
        let mut timers = TimerService::new();
        timers.far = in_little_memory(0);
        timers.far.as_mut().unwrap().pages = Some(Pages::new(Arc::clone(&file) as Arc<dyn Room>));
        for at in 0..3000_i64 {
            timers.register(at, TimerKey::held(&at.to_be_bytes(), None));
            timers.make_room().unwrap();
        }
        let len = file.metadata().unwrap().len();
        Room::write(&*file, 0, &vec![byte; usize::try_from(len).unwrap()]).unwrap();
        let mut fired = std::iter::from_fn(|| timers.pop_due(i64::MAX).transpose());
        let Some(Err(TaskError::DiskState(error))) = fired.find(Result::is_err) else { panic!("it was read") };
        assert_eq!(error.reason, DAMAGED);
    }
}

#[test]
fn a_folder_that_cannot_be_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let folder = file.path().join("below");
    let mut timers = TimerService::new();
    timers.far = Some(Box::new(Far::new(DiskStateError { folder: folder.clone(), ..about() }, 0)));
    let spilled = (0..2000).try_for_each(|at| {
        timers.register(at, 0_u16);
        timers.make_room()
    });
    let Err(TaskError::DiskState(told)) = &spilled else { panic!("{spilled:?}") };
    assert_eq!(told.folder, folder);
}
