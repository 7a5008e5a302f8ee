//! Tests of the machine alone, and in a loop with a producer that always has more data, on virtual time.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const SEGMENT_BYTES: u32 = 32 * 1024;

fn bounds(max_time_ms: u64, least_buffers: u32) -> InFlightBounds {
    InFlightBounds { max_time: Duration::from_millis(max_time_ms), segment_bytes: SEGMENT_BYTES, least_buffers }
}

/// A task, its producers, and the buffers between them. The producers fill every free buffer at once. A producer
/// receives the current limit when one of its buffers is read.
struct Line {
    debloater: Debloater,
    max_time_ns: u64,
    buffers: usize,
    record_bytes: u64,
    /// Work of one record.
    record_ns: u64,
    /// Delay from the task's decision to the producer's next buffer.
    news_ns: u64,
    now_ns: u64,
    progress: Progress,
    /// Buffers filled so far.
    filled: usize,
    /// Producer, fill time and records of each buffer.
    queue: VecDeque<(usize, u64, u64)>,
    /// Limit of the gate.
    limit: u64,
    /// Limit that each producer knows.
    limits: Vec<u64>,
    on_the_way: VecDeque<(u64, usize, u64)>,
}

impl Line {
    fn new(max_time_ms: u64, buffers: usize, record_bytes: u64, record_ns: u64) -> Self {
        let least = buffers.min(20) as u32;
        Self {
            debloater: Debloater::new(bounds(max_time_ms, least)),
            max_time_ns: max_time_ms * MS,
            buffers,
            record_bytes,
            record_ns,
            news_ns: 0,
            now_ns: 0,
            progress: Progress::default(),
            filled: 0,
            queue: VecDeque::new(),
            limit: 1,
            limits: vec![1],
            on_the_way: VecDeque::new(),
        }
    }

    /// Returns the line with its buffers shared by `channels` producers.
    fn with_channels(self, channels: usize) -> Self {
        Self { limits: vec![1; channels], ..self }
    }

    /// Reads one buffer. Returns the age of its last record.
    fn read(&mut self) -> u64 {
        while let Some(&(at_ns, channel, limit)) = self.on_the_way.front()
            && at_ns <= self.now_ns
        {
            self.limits[channel] = limit;
            self.on_the_way.pop_front();
        }
        while self.queue.len() < self.buffers {
            // In turn, as long as the number of buffers is a multiple.
            let channel = self.filled % self.limits.len();
            self.filled += 1;
            self.queue.push_back((channel, self.now_ns, self.limits[channel].div_ceil(self.record_bytes)));
        }
        self.measure();
        let (channel, filled_ns, records) = self.queue.pop_front().expect("the producers always have more");
        self.on_the_way.push_back((self.now_ns + self.news_ns, channel, self.limit));
        let work_ns = records * self.record_ns;
        self.now_ns += work_ns;
        self.progress.worked += Duration::from_nanos(work_ns);
        self.progress.bytes += records * self.record_bytes;
        self.progress.buffers += 1;
        self.now_ns - filled_ns
    }

    fn measure(&mut self) {
        self.progress.now_ms = (self.now_ns / MS) as i64;
        if !self.debloater.is_due(self.progress.now_ms, self.progress.buffers) {
            return;
        }
        if let Some(limit) = self.debloater.adjust(self.progress, self.queue.len()) {
            self.limit = u64::from(limit.get()).min(u64::from(SEGMENT_BYTES));
        }
    }

    /// Reads for this long. Returns the age of the oldest record.
    fn run(&mut self, for_ns: u64) -> u64 {
        let (end_ns, mut oldest) = (self.now_ns + for_ns, 0);
        while self.now_ns < end_ns {
            oldest = oldest.max(self.read());
        }
        oldest
    }

    /// Returns the bound of every age: the set time, or the floor of one record or a little work per buffer if that is
    /// longer.
    fn bound_ns(&self) -> u64 {
        self.max_time_ns + self.buffers as u64 * self.record_ns.max(LEAST_WORK.as_nanos() as u64)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// From the first record on, no record is much older than the setting, whatever the work of a record, its size and
    /// the number of buffers. The task has at least a third of the allowed data in flight.
    #[test]
    fn a_slow_task_never_has_much_more_in_flight_than_the_setting_allows(
        max_time_ms in prop_oneof![Just(1000u64), 50u64..2000],
        // Buffers of one channel, up to the most that subpartition and gate may hold of it.
        buffers in 1usize..20,
        channels in prop_oneof![Just(1usize), 1usize..300],
        record_bytes in 5u64..300,
        record_ns in 100_000u64..50_000_000,
        news_ns in prop_oneof![Just(0), 0u64..20_000_000],
    ) {
        let buffers = buffers * channels;
        let mut line = Line { news_ns, ..Line::new(max_time_ms, buffers, record_bytes, record_ns) };
        line = line.with_channels(channels);
        let oldest = line.run(5 * SECOND);
        prop_assert!(oldest <= line.bound_ns() * 3 / 2, "{oldest} ns of {}", line.bound_ns());
        let settled = line.run(5 * SECOND);
        let is_at_bound = line.limit <= record_bytes || line.limit == u64::from(SEGMENT_BYTES);
        prop_assert!(settled * 3 >= max_time_ms * MS || is_at_bound, "{settled} ns, filled up to {}", line.limit);
    }

    /// A fast task has full buffers after a few rounds, and permanently.
    #[test]
    fn a_fast_task_has_full_buffers_within_a_few_rounds(
        buffers in 1usize..200,
        record_bytes in 5u64..1000,
        news_ns in prop_oneof![Just(0), 0u64..20_000_000],
    ) {
        // Twice the rate that fills all buffers within a second.
        let record_ns = SECOND * record_bytes / (2 * buffers.max(20) as u64 * u64::from(SEGMENT_BYTES)).max(1);
        let mut line = Line { news_ns, ..Line::new(1000, buffers, record_bytes, record_ns.max(1)) };
        line.run(SECOND / 2);
        prop_assert_eq!(line.limit, u64::from(SEGMENT_BYTES));
        for _ in 0..1000 {
            line.read();
            prop_assert_eq!(line.limit, u64::from(SEGMENT_BYTES));
        }
    }

    /// D1, D2 and D4 for any measurements, in any order and however odd.
    #[test]
    fn whatever_is_measured_the_limit_moves_by_steps_within_its_bounds(
        measured in proptest::collection::vec((any::<i64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<usize>()), 1..50),
        small in proptest::collection::vec((0i64..300, 0u64..100_000, 0u64..50, 0u64..300_000_000, 0usize..300), 1..50),
    ) {
        let (mut debloater, mut told, mut sum) = (Debloater::new(bounds(1000, 10)), 1, Progress::default());
        let differences = small.into_iter().map(|(now_ms, bytes, buffers, worked, in_use)| {
            sum.now_ms += now_ms;
            sum.bytes += bytes;
            sum.buffers += buffers;
            sum.worked += Duration::from_nanos(worked);
            (sum, in_use)
        });
        let any = measured.into_iter().map(|(now_ms, bytes, buffers, worked, in_use)| {
            (Progress { now_ms, bytes, buffers, worked: Duration::from_nanos(worked) }, in_use)
        });
        for (progress, in_use) in differences.chain(any) {
            let before = debloater.limit_bytes();
            let _ = debloater.is_due(progress.now_ms, progress.buffers);
            let news = debloater.adjust(progress, in_use);
            let after = debloater.limit_bytes();
            prop_assert!((1..=u64::from(SEGMENT_BYTES)).contains(&after), "D1: {after}");
            prop_assert!(after <= before * MOST_PER_STEP && before / MOST_PER_STEP <= after, "D2: {before}, {after}");
            if let Some(limit) = news {
                told = u64::from(limit.get()).min(u64::from(SEGMENT_BYTES));
                prop_assert_eq!(told, after);
            }
            prop_assert!(after.abs_diff(told) * 4 <= told, "D4: {told} was told, {after} it is");
            prop_assert!(told == after || (after != 1 && after != u64::from(SEGMENT_BYTES)), "D4: a bound is told");
        }
    }
}

#[test]
fn a_task_that_becomes_slow_is_down_to_its_time_once_what_was_in_flight_is_through() {
    let mut line = Line::new(1000, 20, 6, 100);
    line.run(SECOND);
    assert_eq!(line.limit, u64::from(SEGMENT_BYTES));
    line.record_ns = 10_000;
    // Twenty buffers of 5,462 records at 10 us each take a second: no less than allowed.
    assert!(line.run(2 * SECOND) < 3 * SECOND / 2);
    line.record_ns = MS;
    let was_in_flight_ns = line.queue.iter().map(|(_, _, records)| records * line.record_ns).sum::<u64>();
    // Also read the records that arrived before the first of these buffers were processed.
    line.run(was_in_flight_ns * 6 / 5);
    let (oldest, bound) = (line.run(10 * SECOND), line.bound_ns());
    assert!(oldest < 2 * bound, "{oldest} ns of {bound}");
    let oldest = line.run(10 * SECOND);
    assert!(oldest < bound * 3 / 2, "{oldest} ns of {bound}");
    // The task is fast again.
    line.record_ns = 100;
    line.run(SECOND);
    assert_eq!(line.limit, u64::from(SEGMENT_BYTES));
}

#[test]
fn time_without_input_does_not_count_and_so_a_task_that_waits_has_room_for_more() {
    let mut line = Line::new(1000, 10, 10, 1000);
    for _ in 0..200 {
        line.read();
        line.queue.clear();
        line.now_ns += 50 * MS;
    }
    assert_eq!(line.limit, u64::from(SEGMENT_BYTES), "10 MB a second if it had them");
}

#[test]
fn one_long_pause_of_a_task_costs_it_one_step() {
    let mut line = Line::new(1000, 10, 100, MS);
    line.run(5 * SECOND);
    let (usual, pause_ns) = (line.debloater.limit_bytes(), 20 * SECOND);
    line.now_ns += pause_ns;
    line.progress.worked += Duration::from_nanos(pause_ns);
    line.read();
    let after = line.debloater.limit_bytes();
    assert!((after + 10) * MOST_PER_STEP >= usual, "{after} of {usual}");
    line.run(2 * SECOND);
    assert!(line.debloater.limit_bytes() > usual * 3 / 4);
}

#[test]
fn what_it_says_to_be_in_flight_is_about_what_there_is() {
    let mut line = Line::new(400, 20, 50, 2 * MS);
    line.run(5 * SECOND);
    let real_ns = line.queue.iter().map(|(_, _, records)| records * line.record_ns).sum::<u64>();
    let said_ns = line.debloater.in_flight().unwrap().as_nanos() as u64;
    assert!(said_ns.abs_diff(real_ns) < real_ns / 4, "{said_ns} ns, really {real_ns}");
}

#[test]
fn nothing_read_is_no_measurement_and_nothing_is_due() {
    let mut debloater = Debloater::new(bounds(1000, 20));
    assert!(debloater.is_due(0, 0), "to know where it begins");
    assert_eq!((debloater.adjust(Progress::default(), 20), debloater.in_flight()), (None, None));
    assert!(!debloater.is_due(1_000_000, 0));
    assert!(!debloater.is_due(-1_000_000, 0));
    assert!(!debloater.is_due(10, 19) && debloater.is_due(10, 20), "twenty buffers say something");
    assert!(!debloater.is_due(999, 1) && debloater.is_due(1000, 1), "or a second");
    let idle = Progress { now_ms: 1_000_000, bytes: 1_000_000, buffers: 10, worked: Duration::ZERO };
    assert_eq!((debloater.adjust(idle, 20), debloater.limit_bytes()), (None, 1));
}

#[test]
fn work_on_nothing_is_no_measurement_either() {
    let mut debloater = Debloater::new(bounds(1000, 20));
    let mut progress = Progress::default();
    let _ = debloater.adjust(progress, 20);
    (progress.buffers, progress.worked) = (20, Duration::from_secs(1));
    assert_eq!((debloater.adjust(progress, 20), debloater.in_flight()), (None, None));
}

#[test]
fn where_there_is_far_to_go_a_step_is_the_whole_factor() {
    let mut debloater = Debloater::new(bounds(1000, 20));
    let mut limits = [1 << 40, 1 << 40, 1 << 40, 1, 1].map(|wanted| {
        debloater.step(wanted);
        debloater.limit
    });
    assert_eq!(limits, [4, 16, 64, 16, 4]);
    limits = [6, 6, 6, 6, 6].map(|wanted| {
        debloater.step(wanted);
        debloater.limit
    });
    assert_eq!(limits, [4; 5], "and half of the way, in proportion, where it is near");
}

#[test]
fn a_limit_is_told_when_it_has_changed_by_more_than_a_quarter_or_has_come_to_an_end() {
    let mut debloater = Debloater::new(bounds(1000, 20));
    let most = u64::from(SEGMENT_BYTES);
    let mut news = |limit| {
        debloater.limit = limit;
        debloater.news().map(FillLimit::get)
    };
    assert_eq!(news(1), None, "they begin with it");
    assert_eq!([400, 500, 300, 501].map(&mut news), [Some(400), None, None, Some(501)]);
    assert_eq!([most - 1, most, most, most - 1].map(&mut news), [Some(most as u32 - 1), Some(u32::MAX), None, None]);
    assert_eq!([2, 1, 1].map(&mut news), [Some(2), Some(1), None]);
}

#[test]
fn a_limit_that_cannot_grow_is_measured_now_and_then_only() {
    let mut debloater = Debloater::new(bounds(1000, 20));
    let mut progress = Progress::default();
    let _ = debloater.adjust(progress, 20);
    while debloater.limit_bytes() < u64::from(SEGMENT_BYTES) {
        assert!(debloater.is_due(progress.now_ms, progress.buffers + 20), "while it grows, at once");
        let (bytes, buffers) = (progress.bytes + 1_000_000_000, progress.buffers + 20);
        progress = Progress {
            now_ms: progress.now_ms + 1,
            bytes,
            buffers,
            worked: progress.worked + Duration::from_millis(1),
        };
        let _ = debloater.adjust(progress, 20);
    }
    let due_at = |after_ms| debloater.is_due(progress.now_ms + after_ms, progress.buffers + 20);
    assert!(!due_at(INTERVAL_MS as i64 - 1) && due_at(INTERVAL_MS as i64));
}

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
