use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const PERIOD_MS: i64 = crate::watermark::PERIOD_MS;

fn told(generated: GeneratedSignals) -> Vec<TimeSignal> {
    generated.signals().collect()
}

fn bounded(delay_ms: u64, idle_after_ms: Option<u64>, count: u32) -> SplitWatermarks {
    let mut splits = SplitWatermarks::new(Watermarks::Bounded { delay_ms }, idle_after_ms);
    splits.follow(SplitSignal::Among(count));
    splits
}

#[test]
fn time_waits_for_parts_that_are_still_to_come() {
    let mut splits = bounded(0, None, 2);
    splits.on_record(100);
    assert_eq!(told(splits.on_period(0, true)), []);
    assert_eq!(splits.wanted(), Some(1), "nothing is known of it");
    splits.follow(SplitSignal::Of(1));
    splits.on_record(40);
    assert_eq!(told(splits.on_period(200, true)), [TimeSignal::Watermark(39)]);
    assert_eq!(splits.wanted(), Some(1));
    assert_eq!(told(splits.follow(SplitSignal::Ended(1))), [TimeSignal::Watermark(99)], "it has left");
    assert_eq!((splits.wanted(), splits.current()), (Some(0), 0));
    assert_eq!(told(splits.follow(SplitSignal::Ended(0))), []);
    assert_eq!(splits.wanted(), None);
}

/// Emits the watermarks of a source that reads `count` records, in two splits by turns, with a period after
/// every `period`.
fn watermarks_of(count: i64, period: i64, channels: u32) -> Vec<TimeSignal> {
    let mut splits = bounded(0, None, 2);
    splits.set_pace(0, channels);
    (0..count).fold(Vec::new(), |mut signals, at| {
        splits.follow(SplitSignal::Of((at / 10 % 2) as u32));
        if at % 3 > 0 || !splits.take_plain(at) {
            splits.on_record(at);
        }
        signals.extend(told(splits.after_records()));
        if at % period == period - 1 {
            signals.extend(told(splits.on_period(at / period * PERIOD_MS, true)));
        }
        signals
    })
}

#[test]
fn a_replay_emits_the_same_watermarks_at_any_speed() {
    let expected: Vec<_> = [1018, 2038].map(TimeSignal::Watermark).into();
    assert_eq!(watermarks_of(2500, 2500, 1), expected);
    for period in [1100, 1700, 2040] {
        assert_eq!(watermarks_of(2049, period, 1), expected, "a period every {period} records");
    }
    assert_eq!(watermarks_of(2049, 2050, 2), [TimeSignal::Watermark(2038)], "of two channels, after twice the records");
}

#[test]
fn a_slow_source_emits_watermarks_by_the_clock() {
    assert_eq!(watermarks_of(40, 20, 1), [8, 28].map(TimeSignal::Watermark));
}

#[test]
fn a_source_without_parts_is_one() {
    let mut splits = SplitWatermarks::new(Watermarks::Bounded { delay_ms: 0 }, Some(400));
    splits.on_record(100);
    assert_eq!(told(splits.on_period(0, true)), [TimeSignal::Watermark(99)]);
    assert_eq!(told(splits.on_period(200, true)), []);
    assert_eq!(told(splits.on_period(400, true)), [TimeSignal::Idle(true)]);
    assert!(splits.on_record(101) && !splits.on_record(102));
    assert_eq!(splits.wanted(), None, "there is nothing to choose from");
}

#[test]
fn a_part_whose_turn_it_is_not_never_is_idle() {
    let mut splits = bounded(0, Some(200), 2);
    splits.on_record(100);
    for now_ms in [0, 200, 400, 600] {
        // The second delays event time, and its clock is stopped; the first falls silent.
        assert_eq!(told(splits.on_period(now_ms, true)), []);
    }
    splits.follow(SplitSignal::Of(1));
    assert_eq!(told(splits.on_period(800, false)), [], "those behind take nothing");
    assert_eq!(told(splits.on_period(1000, true)), [TimeSignal::Idle(true)], "and no jump to where the first was");
    assert!(splits.on_record(10));
    assert_eq!(told(splits.on_period(1200, true)), [TimeSignal::Watermark(9)]);
}

#[test]
fn parts_that_have_nothing_fall_idle_beside_the_one_that_has() {
    let mut splits = bounded(0, Some(400), 3);
    splits.on_record(100);
    splits.follow(SplitSignal::Silent(1));
    splits.follow(SplitSignal::Silent(2));
    assert_eq!(told(splits.on_period(0, true)), []);
    splits.on_record(200);
    assert_eq!(told(splits.on_period(200, true)), []);
    splits.follow(SplitSignal::Of(2));
    splits.on_record(150);
    splits.follow(SplitSignal::Of(0));
    splits.on_record(300);
    assert_eq!(told(splits.on_period(400, true)), [TimeSignal::Watermark(149)], "1 is idle, and 2 was back before");
}

#[test]
fn a_source_whose_parts_come_as_it_runs_is_idle_as_long_as_it_has_none() {
    let mut splits = SplitWatermarks::new(Watermarks::Bounded { delay_ms: 0 }, Some(400));
    assert_eq!(told(splits.follow(SplitSignal::Growing(0))), [TimeSignal::Idle(true)]);
    assert_eq!((splits.wanted(), splits.reached_ms(), told(splits.on_period(0, true))), (None, None, vec![]));
    assert_eq!(told(splits.follow(SplitSignal::Growing(1))), [TimeSignal::Idle(false)]);
    assert_eq!((splits.wanted(), splits.current()), (Some(0), 0));
    assert!(!splits.on_record(100), "that it is back was said");
    assert_eq!(told(splits.on_period(200, true)), [TimeSignal::Watermark(99)]);
    // New splits delay event time until they have records, or have had none for long.
    assert_eq!(told(splits.follow(SplitSignal::Growing(3))), []);
    splits.on_record(200);
    assert_eq!(told(splits.on_period(400, true)), []);
    assert_eq!(splits.wanted(), Some(1));
    splits.follow(SplitSignal::Silent(1));
    splits.follow(SplitSignal::Ended(2));
    splits.on_record(300);
    assert_eq!(told(splits.on_period(600, true)), []);
    splits.on_record(400);
    assert_eq!(told(splits.on_period(800, true)), [TimeSignal::Watermark(399)], "1 is idle");
    splits.follow(SplitSignal::Ended(1));
    assert_eq!(told(splits.follow(SplitSignal::Ended(0))), [TimeSignal::Idle(true)]);
    assert_eq!(told(splits.follow(SplitSignal::Growing(4))), [TimeSignal::Idle(false)]);
    assert_eq!((splits.wanted(), splits.current()), (Some(3), 3));
    splits.on_record(50);
    assert_eq!(told(splits.on_period(1000, true)), [], "time does not go back");
}

#[test]
fn without_a_promise_of_order_time_advances_to_the_least_bound_of_what_is_left() {
    let mut splits = SplitWatermarks::new(Watermarks::Unordered, None);
    splits.follow(SplitSignal::Among(3));
    for (split, time_ms) in [(0, 100), (1, 50), (2, 200)] {
        assert_eq!(told(splits.follow(SplitSignal::NotBefore { split, time_ms })), []);
    }
    assert_eq!(told(splits.on_period(0, true)), [TimeSignal::Watermark(49)], "a record may be of the bound itself");
    splits.follow(SplitSignal::Of(1));
    splits.on_record(500);
    assert_eq!(told(splits.on_period(200, true)), [], "an earlier record may follow");
    assert_eq!(splits.wanted(), None, "no split is better to read than another");
    assert_eq!(told(splits.follow(SplitSignal::Ended(1))), [TimeSignal::Watermark(99)]);
    splits.follow(SplitSignal::NotBefore { split: 0, time_ms: 150 });
    assert_eq!((splits.current(), splits.lower_bound_ms()), (0, 150));
    assert_eq!(told(splits.on_period(400, true)), [TimeSignal::Watermark(149)], "bounds may rise");
    splits.follow(SplitSignal::NotBefore { split: 7, time_ms: 900 });
    assert_eq!(told(splits.on_period(600, true)), [], "there is no such split");
}

#[test]
fn a_split_of_which_nothing_is_known_holds_time_until_it_has_ended() {
    let mut splits = SplitWatermarks::new(Watermarks::Unordered, None);
    splits.follow(SplitSignal::Among(2));
    splits.follow(SplitSignal::NotBefore { split: 1, time_ms: 300 });
    splits.on_record(200);
    assert_eq!(told(splits.on_period(0, true)), []);
    assert_eq!(told(splits.follow(SplitSignal::Ended(0))), [TimeSignal::Watermark(299)]);
}

#[test]
fn a_promise_of_order_and_a_bound_hold_together() {
    let mut splits = bounded(10, None, 2);
    splits.follow(SplitSignal::NotBefore { split: 0, time_ms: 100 });
    splits.follow(SplitSignal::NotBefore { split: 1, time_ms: 400 });
    assert_eq!(splits.wanted(), Some(0));
    splits.on_record(105);
    assert_eq!(told(splits.on_period(0, true)), [TimeSignal::Watermark(99)], "the delay alone would say less");
    splits.on_record(450);
    assert_eq!(told(splits.on_period(200, true)), [TimeSignal::Watermark(399)]);
    assert_eq!(splits.wanted(), Some(1), "it holds time back");
}

#[test]
fn a_record_far_ahead_of_the_others_of_its_part_does_not_move_time_and_is_counted() {
    let hour = 3_600_000;
    let mut splits = bounded(0, None, 2).with_max_ahead(NonZeroU64::new(1_000));
    splits.on_records(&[0, 1, 2, 3, hour, 4, 5, 6], hour);
    splits.follow(SplitSignal::Of(1));
    // The other split is hours later, which is no fault of its clock.
    (0..8).for_each(|number| assert!(!splits.on_record(9 * hour + number)));
    assert!(!splits.take_plain(9 * hour), "each is judged");
    assert_eq!(told(splits.on_period(0, true)), [TimeSignal::Watermark(5)]);
    assert_eq!((splits.take_ahead(), splits.take_ahead()), (1, 0));
    splits.on_record(99 * hour);
    assert_eq!(told(splits.follow(SplitSignal::Ended(0))), [TimeSignal::Watermark(9 * hour + 6)]);
    splits.finish();
    assert_eq!(splits.take_ahead(), 1);
}

#[test]
fn records_before_the_parts_are_known_move_no_time() {
    let mut splits = SplitWatermarks::new(Watermarks::Bounded { delay_ms: 0 }, Some(200)).awaiting_splits(true);
    splits.set_told_ms(5);
    splits.on_record(100);
    for now_ms in [0, 200, 400] {
        assert_eq!(told(splits.on_period(now_ms, true)), [], "nor is it idle");
    }
    assert_eq!((splits.reached_ms(), splits.take_plain(100)), (Some(5), false));
    splits.follow(SplitSignal::Among(2));
    splits.on_record(50);
    assert_eq!(told(splits.on_period(600, true)), []);
    splits.follow(SplitSignal::Of(1));
    splits.on_record(40);
    assert_eq!(told(splits.on_period(800, true)), [TimeSignal::Watermark(39)]);
}

#[test]
fn where_time_ends_with_the_input_the_order_of_parts_makes_no_difference() {
    let mut splits = SplitWatermarks::new(Watermarks::Never, None);
    splits.follow(SplitSignal::Among(3));
    assert_eq!(splits.wanted(), None);
}

#[test]
fn generators_of_the_user_are_of_one_part_each() {
    let mut splits = SplitWatermarks::new(Watermarks::Own, None);
    splits.follow(SplitSignal::Among(2));
    assert_eq!(told(splits.said(0, TimeSignal::Watermark(50))), []);
    assert_eq!(splits.wanted(), Some(1));
    assert_eq!(told(splits.said(1, TimeSignal::Watermark(20))), [TimeSignal::Watermark(20)]);
    assert_eq!(told(splits.said(1, TimeSignal::Idle(true))), [TimeSignal::Watermark(50)]);
    assert_eq!(told(splits.said(0, TimeSignal::Idle(true))), [TimeSignal::Idle(true)]);
    let back = [TimeSignal::Idle(false), TimeSignal::Watermark(60)];
    assert_eq!(told(splits.said(1, TimeSignal::Watermark(60))), back);
    assert_eq!(told(splits.said(7, TimeSignal::Watermark(99))), [], "there is no such part");
}

#[test]
fn an_aligned_source_waits_with_its_first_record_until_it_is_told_how_far_it_may_go() {
    let mut splits = SplitWatermarks::new(Watermarks::Bounded { delay_ms: 10 }, Some(200)).aligned();
    assert!(!splits.is_ahead(), "there was no record");
    splits.on_record(100);
    assert!(splits.may_be_ahead(100) && splits.is_ahead());
    assert_eq!(splits.reached_ms(), Some(89), "told or not");
    splits.align(89);
    assert!(!splits.is_ahead() && !splits.may_be_ahead(100) && splits.may_be_ahead(101));
    splits.on_record(101);
    assert!(splits.is_ahead());
    // While it waits, its clock is stopped. Later it may fall silent, and no source waits for it.
    splits.on_period(0, false);
    splits.on_period(200, false);
    assert_eq!(splits.reached_ms(), Some(90));
    splits.align(1000);
    splits.on_period(400, true);
    assert_eq!((splits.reached_ms(), splits.is_ahead()), (None, false));
    splits.align(20);
    assert!(splits.on_record(50) && splits.is_ahead(), "back, it is where it was: limits may step back, time does not");
}

#[test]
fn a_source_that_is_not_aligned_never_waits() {
    let mut splits = bounded(0, None, 2);
    splits.align(-1000);
    splits.on_record(i64::MAX - 1);
    assert!(!splits.is_aligned() && !splits.is_ahead() && !splits.may_be_ahead(i64::MAX - 1));
}

#[test]
fn of_several_parts_the_one_furthest_behind_says_whether_the_source_waits() {
    let mut splits = SplitWatermarks::new(Watermarks::Bounded { delay_ms: 0 }, None).aligned();
    splits.follow(SplitSignal::Among(2));
    splits.on_record(100);
    splits.align(50);
    assert!(splits.may_be_ahead(100) && !splits.is_ahead(), "nothing is known of the other one");
    splits.go_on_to_end_of_batch();
    assert!(!splits.may_be_ahead(200));
    splits.end_batch();
    splits.follow(SplitSignal::Of(1));
    splits.on_record(52);
    assert!(splits.may_be_ahead(52) && splits.is_ahead());
    splits.follow(SplitSignal::Ended(1));
    assert_eq!(splits.reached_ms(), Some(99));
    splits.follow(SplitSignal::Ended(0));
    assert_eq!((splits.reached_ms(), splits.is_ahead()), (None, false));
}

#[test]
fn of_the_users_own_watermarks_what_was_told_counts() {
    let mut splits = SplitWatermarks::new(Watermarks::Own, None).aligned();
    splits.on_record(100);
    assert!(splits.may_be_ahead(100) && !splits.is_ahead());
    splits.said(0, TimeSignal::Watermark(100));
    assert!(splits.is_ahead());
}

proptest! {
    /// Splits of records in any order, read in any order, some of them with unknown bounds: no record is
    /// late.
    #[test]
    fn without_a_promise_no_record_is_late(
        parts in prop::collection::vec((any::<bool>(), prop::collection::vec(0..100_i64, 0..5)), 1..6),
        turns in prop::collection::vec((0..6_usize, any::<bool>()), 0..60),
    ) {
        let mut splits = SplitWatermarks::new(Watermarks::Unordered, None);
        splits.follow(SplitSignal::Among(parts.len() as u32));
        for (split, (_, times)) in (0..).zip(&parts).filter(|(_, (is_known, _))| *is_known) {
            if let Some(time_ms) = times.iter().copied().min() {
                splits.follow(SplitSignal::NotBefore { split, time_ms });
            }
        }
        let mut left: BTreeMap<u32, Vec<i64>> = (0..).zip(parts).map(|(split, (_, times))| (split, times)).collect();
        // Reads all to the end, independent of the turns.
        let turns = turns.into_iter().chain((0..200).map(|turn| (turn, turn % 3 == 0)));
        for (at, (turn, is_period)) in turns.enumerate() {
            if is_period {
                splits.on_period(at as i64 * PERIOD_MS, true);
            }
            let Some(split) = left.keys().nth(turn % left.len().max(1)).copied() else { break };
            splits.follow(SplitSignal::Of(split));
            match left.get_mut(&split).and_then(Vec::pop) {
                Some(time_ms) => {
                    prop_assert!(time_ms > splits.told_ms(), "{} after {}", time_ms, splits.told_ms());
                    splits.on_record(time_ms);
                }
                None => {
                    left.remove(&split);
                    splits.follow(SplitSignal::Ended(split));
                }
            }
        }
        prop_assert!(left.is_empty());
    }
}

/// The result of the rules, computed anew each time from the whole history of each split.
#[derive(Clone, Default)]
struct Part {
    times: Vec<i64>,
    seen: Option<i64>,
    has_ended: bool,
    has_records: bool,
    is_silent: bool,
    quiet_ms: i64,
    is_idle: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Record(i64),
    Turn(usize),
    Silent(usize),
    End(usize),
    Period(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (-50i64..200).prop_map(Step::Record),
        2 => (0usize..4).prop_map(Step::Turn),
        1 => (0usize..4).prop_map(Step::Silent),
        1 => (0usize..4).prop_map(Step::End),
        4 => any::<bool>().prop_map(Step::Period),
    ];
    proptest::collection::vec(step, 0..120)
}

proptest! {
    #[test]
    fn time_is_the_least_of_the_parts_that_are_left_and_not_idle(
        steps in steps(), delay in 0i64..20, idle_periods in proptest::option::of(1i64..4),
    ) {
        let mut splits = bounded(delay as u64, idle_periods.map(|periods| (periods * PERIOD_MS) as u64), 4);
        let (mut parts, mut current, mut now_ms) = (vec![Part::default(); 4], 0, 0);
        let (mut last_ms, mut is_idle, mut has_begun) = (NO_TIMESTAMP, false, false);
        for step in steps {
            let mut signals = Vec::new();
            let before_ms = last_ms;
            // A record that ends the idleness of a split reports that. Its event time is reported with the
            // next period.
            let settles = matches!(step, Step::Period(_) | Step::End(_));
            match step {
                Step::Record(at) if !parts[current].has_ended => {
                    let back = splits.on_record(at);
                    prop_assert_eq!(back, is_idle, "I3");
                    is_idle &= !back;
                    parts[current].times.push(at);
                    (parts[current].has_records, parts[current].is_idle) = (true, false);
                }
                Step::Turn(to) if !parts[to].has_ended => {
                    (current, parts[to].is_silent) = (to, false);
                    splits.follow(SplitSignal::Of(to as u32));
                }
                Step::Silent(of) if !parts[of].has_ended => {
                    parts[of].is_silent = true;
                    splits.follow(SplitSignal::Silent(of as u32));
                }
                Step::End(of) if !parts[of].has_ended => {
                    parts[of].has_ended = true;
                    for part in &mut parts {
                        part.seen = part.times.iter().max().map(|latest| latest - delay - 1);
                    }
                    signals = told(splits.follow(SplitSignal::Ended(of as u32)));
                    if of == current {
                        current = splits.current() as usize;
                    }
                }
                Step::Period(is_available) => {
                    signals = told(splits.on_period(now_ms, is_available));
                    for (at, part) in parts.iter_mut().enumerate() {
                        part.seen = part.times.iter().max().map(|latest| latest - delay - 1);
                        if std::mem::take(&mut part.has_records) {
                            part.quiet_ms = 0;
                        } else if is_available && (at == current || part.is_silent) && has_begun {
                            part.quiet_ms += PERIOD_MS;
                        }
                        part.is_idle |= idle_periods.is_some_and(|periods| part.quiet_ms >= periods * PERIOD_MS);
                    }
                    has_begun = true;
                    now_ms += PERIOD_MS;
                }
                _ => continue,
            }
            let left: Vec<&Part> = parts.iter().filter(|part| !part.has_ended).collect();
            for signal in signals {
                match signal {
                    TimeSignal::Watermark(at) => {
                        prop_assert!(at > last_ms && !is_idle, "I1");
                        last_ms = at;
                    }
                    TimeSignal::Idle(idle) => {
                        prop_assert_ne!(idle, is_idle);
                        is_idle = idle;
                    }
                }
            }
            if left.is_empty() {
                break;
            }
            let active: Vec<i64> = left.iter().filter(|part| !part.is_idle).map(|part| part.seen.unwrap_or(NO_TIMESTAMP)).collect();
            prop_assert_eq!(is_idle, active.is_empty());
            // A split that was idle may be earlier than the watermarks emitted in the meantime.
            if let Some(least) = active.iter().min().filter(|_| settles) {
                prop_assert_eq!(last_ms, before_ms.max(*least), "of {:?}", active);
            }
            prop_assert!(splits.wanted().is_some_and(|wanted| !parts[wanted as usize].has_ended));
        }
    }
}
