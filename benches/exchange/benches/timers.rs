//! Timers and keyed state: how many timers a second are set and fired, what a key with one costs in memory, and what it takes to
//! write timers into a checkpoint, all of them and those that changed.
//!
//! With `--apart WHERE` timers alone, set and fired: in `memory`, or on `disk` where there is so much memory for them.
//!
//! ```text
//! cargo bench -p flownet-benches --bench timers -- [--keys N] [--smoke] [--apart memory|disk [--memory MIB]]
//! ```

use std::fs;
use std::time::{Duration, Instant};

use flownet_core::keygroup::hash_key;
use flownet_runtime::TaskError;
use flownet_runtime::operator::KeyedRecord;
use flownet_runtime::snapshot::Snapshot;
use flownet_runtime::state::{DiskStateError, KeyEntry, KeyGroupRange, KeyedState};
use flownet_runtime::timer::{KeptTimers, TimerKey, TimerService};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let given = args.iter().position(|arg| arg == "--keys").and_then(|at| args.get(at + 1)?.parse().ok());
    let is_smoke = args.iter().any(|arg| arg == "--smoke" || arg == "--test");
    let keys: u64 = given.unwrap_or(if is_smoke { 10_000 } else { 1_000_000 });
    if let Some(at) = args.iter().position(|arg| arg == "--apart") {
        let mebibytes = args.iter().position(|arg| arg == "--memory").and_then(|at| args.get(at + 1)?.parse().ok());
        let on_disk = args.get(at + 1).is_some_and(|place| place == "disk");
        return apart(keys, on_disk.then(|| mebibytes.unwrap_or(64) << 20));
    }
    let records: Vec<Vec<u8>> = (0..keys).map(record).collect();
    // First: what was freed would be taken again, and not be counted.
    memory(&records);
    rate(&records);
    checkpoints(&records);
}

/// A record of a key of nine bytes, as it travels, without a value.
fn record(number: u64) -> Vec<u8> {
    let mut bytes = vec![9, 0xc1];
    // Spread, so that timers do not come in the order of keys.
    bytes.extend(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    bytes
}

fn parsed(bytes: &[u8]) -> KeyedRecord<'_> {
    KeyedRecord::parse(bytes).expect("a record of the bench")
}

/// Spread, and another one for each.
fn any_time(at: usize) -> i64 {
    (at as i64).wrapping_mul(0x5851_f42d_4c95_7f2d).rem_euclid(1 << 40)
}

fn rate(records: &[Vec<u8>]) {
    let few_times = |at: usize| (at % 1000) as i64;
    let in_turn = |at: usize| (at / 100) as i64;
    type Times<'a> = (&'a str, &'a dyn Fn(usize) -> i64);
    let times: [Times<'_>; 3] = [
        ("1000 different times", &few_times),
        ("a time of its own each", &any_time),
        ("100 of each time, in turn", &in_turn),
    ];
    for (name, time_of) in times {
        let mut timers = TimerService::new();
        let began = Instant::now();
        for (at, bytes) in records.iter().enumerate() {
            timers.register(time_of(at), TimerKey::of(&parsed(bytes)));
        }
        let set = began.elapsed();
        let mut fired = 0_u32;
        while due(&mut timers).is_some() {
            fired += 1;
        }
        let seconds = began.elapsed().as_secs_f64();
        println!("timers, {name}: {:.2} M/s set and fired, {set:.2?} to set {fired}", f64::from(fired) / seconds / 1e6);
    }
}

fn due(timers: &mut TimerService<TimerKey>) -> Option<(i64, TimerKey)> {
    timers.pop_due(i64::MAX).expect(IN_MEMORY)
}

const IN_MEMORY: &str = "no disk is asked";

/// Sets timers and lets them fire, in the order of time and in any: time of the processor for each, and memory. Keys are made
/// as they come, so that there is nothing else in memory.
fn apart(keys: u64, memory_bytes: Option<usize>) {
    type Time = fn(usize) -> i64;
    let times: [(&str, Time); 2] = [("in the order of time", |at| (at / 100) as i64), ("in any order", any_time)];
    for (name, time_of) in times {
        let mut timers = TimerService::new();
        if let Some(memory_bytes) = memory_bytes {
            timers.open_in(about(), memory_bytes);
        }
        let (before, began) = (resident_bytes(), processor_time());
        for at in 0..keys {
            timers.register(time_of(at as usize), TimerKey::of(&parsed(&record(at))));
            timers.make_room().expect("there is room on disk");
        }
        let (set, held) = (processor_time(), resident_bytes().saturating_sub(before));
        let (mut fired, mut last_ms) = (0, i64::MIN);
        while let Some((at_ms, _)) = timers.pop_due(i64::MAX).expect("what was written can be read") {
            assert!(last_ms <= at_ms, "the earliest first");
            (fired, last_ms) = (fired + 1, at_ms);
        }
        assert_eq!(fired, keys);
        let each = |from: Duration, to: Duration| (to - from).as_nanos() as u64 / keys;
        let (set_ns, fired_ns) = (each(began, set), each(set, processor_time()));
        println!(
            "{keys} timers, set {name}: {set_ns} ns of CPU time to set one, {fired_ns} to fire it, {held} bytes held"
        );
    }
}

fn about() -> DiskStateError {
    DiskStateError {
        task: "bench".into(),
        subtask: 0,
        parallelism: 1,
        state: "timers".into(),
        folder: std::env::temp_dir(),
        disk_bytes: 0,
        keys: 0,
        reason: String::new(),
    }
}

/// Time that processors spent on this process, in hundredths of a second; 0 where the system does not tell.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat
        .rsplit(") ")
        .next()
        .map_or(0, |fields| fields.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum());
    Duration::from_millis(10 * ticks)
}

/// Between two checkpoints one of a hundred timers fires or is set.
fn checkpoints(records: &[Vec<u8>]) {
    for (name, builds_on) in [("all of them", false), ("what changed, 1 %", true)] {
        let mut timers = KeptTimers::new();
        for (at, bytes) in records.iter().enumerate() {
            timers.register(any_time(at), TimerKey::of(&parsed(bytes)));
        }
        checkpoint_of(&mut timers, 1, None);
        let mut all = Vec::new();
        for checkpoint in 2..=ROUNDS {
            for (at, bytes) in records.iter().enumerate().take(records.len() / 200) {
                timers.pop_due(i64::MAX).expect(IN_MEMORY);
                timers.register((1 << 41) + any_time(at + checkpoint as usize), TimerKey::of(&parsed(bytes)));
            }
            all.push(checkpoint_of(&mut timers, checkpoint, builds_on.then(|| checkpoint - 1)));
        }
        all.sort_unstable();
        let (taken, bytes) = all[all.len() / 2];
        println!("checkpoint of {} timers, {name}: {taken:.2?} for {bytes} bytes", timers.len());
    }
}

/// So many checkpoints, of which the median is told.
const ROUNDS: u64 = 10;

/// How long it takes to write timers, and how many bytes that are.
fn checkpoint_of(timers: &mut KeptTimers, checkpoint: u64, complete: Option<u64>) -> (Duration, usize) {
    let began = Instant::now();
    let mut to = Snapshot::new("bench", 0, checkpoint).on(complete);
    let added = to.add_timers("timers", KeyGroupRange::of(0, 1, 128), timers);
    added.expect("all keys are of the range");
    let taken = began.elapsed();
    let written = to.into_written();
    assert_eq!(written.parts[0].is_of_changes(), complete.is_some());
    (taken, written.parts.iter().map(|part| part.bytes.len()).sum())
}

fn memory(records: &[Vec<u8>]) {
    let mut before = resident_bytes();
    let mut each = || {
        let now = resident_bytes();
        let taken = now.saturating_sub(before) as f64 / records.len() as f64;
        before = now;
        taken
    };
    let mut state = KeyedState::new(KeyGroupRange::of(0, 1, 128));
    for bytes in records {
        let record = parsed(bytes);
        let held = state.get_or_insert_with(record.key, hash_key(record.key), || KeyEntry::new(&record, 0_u64));
        held.expect("all keys are of the range").value += 1;
    }
    let key = each();
    type Time = fn(usize) -> i64;
    let times: [(&str, Time); 2] = [("in the order of time", |at| (at / 100) as i64), ("in any order", any_time)];
    let mut all = Vec::new();
    for (name, time_of) in times {
        let mut timers = TimerService::new();
        for (at, bytes) in records.iter().enumerate() {
            timers.register(time_of(at), TimerKey::of(&parsed(bytes)));
        }
        println!("memory: {key:.0} bytes for a key of 9 and a value of 8, {:.0} for its timer, set {name}", each());
        all.push(timers);
    }
    assert_eq!(state.len(), records.len());
    for timers in &all {
        let mut count = 0;
        let counted = timers.each(|_, _| {
            count += 1;
            Ok::<_, TaskError>(())
        });
        counted.expect(IN_MEMORY);
        assert_eq!(count, records.len());
    }
}

/// Memory of the process that is in RAM; 0 where the system does not tell.
fn resident_bytes() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|statm| statm.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}
