//! Checkpoints that overtake what is queued: a job that goes on from one gives what an undisturbed one gives.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use flownet_core::BarrierKind;
use flownet_runtime::{CheckpointMode, CheckpointOrder, StatePart};

use crate::bytes::Step;
use crate::checkpoints::{ALL, KeyedJob, Run, steps};
use crate::rig::{now_and_then, wait_until};

fn start(keyed: KeyedJob, steps: &[Arc<Vec<Step>>], restored: &[StatePart]) -> Run {
    let mut run = Run::start(keyed, 2, CheckpointMode::ExactlyOnce, steps, restored);
    run.kind = BarrierKind::Unaligned;
    run
}

/// Names of what of it was on its way.
fn in_flight(parts: &[StatePart]) -> BTreeSet<String> {
    parts.iter().filter(|part| part.share.is_in_flight()).map(|part| part.name.clone()).collect()
}

#[test]
fn a_job_goes_on_from_what_it_had_read_and_what_was_on_its_way() {
    let mut found_in_flight = BTreeSet::new();
    for (seed, keyed) in (0..).zip(ALL.into_iter().cycle().take(2 * ALL.len())) {
        let steps = steps(seed);
        let expected = start(keyed, &steps, &[]).run_to_end(1);
        assert!(expected.len() > 10, "{keyed:?}: {}", expected.len());

        let mut restored = Vec::new();
        let (mut id, mut at) = (0, 0);
        for _ in 0..3 {
            let run = start(keyed, &steps, &restored);
            run.permits.limit();
            at += 30 + seed as usize / 2;
            run.go_to(at);
            std::thread::sleep(Duration::from_millis(seed % 4));
            id += 1;
            restored = run.checkpoint(id);
            found_in_flight.extend(in_flight(&restored));
            run.order(CheckpointOrder::Complete(id));
            run.go_to(at + 11);
            run.kill();
        }
        let found = start(keyed, &steps, &restored).run_to_end(id + 1);
        assert_eq!(found, expected, "{keyed:?}, seed {seed}");
    }
    assert_eq!(found_in_flight, BTreeSet::from(["in_flight.input".to_owned(), "in_flight.output".to_owned()]));
}

#[test]
fn a_task_whose_producers_have_ended_takes_the_checkpoint_that_keeps_its_end() {
    let steps = steps(7);
    let expected = start(KeyedJob::Running, &steps, &[]).run_to_end(1);
    let run = start(KeyedJob::Running, &steps, &[]);
    run.permits.limit();
    run.go_to(usize::MAX);
    // Sources and those behind them come to their end, keep it with a checkpoint that overtakes what the sink has not read,
    // and are gone before it has.
    let mut is_time = now_and_then();
    wait_until("all but the sink have finished", || {
        if is_time() {
            run.permits.grant();
        }
        run.finished() == 4
    });
    let kept = run.checkpoint(1);
    assert!(!in_flight(&kept).is_empty());
    run.order(CheckpointOrder::Complete(1));
    wait_until("only the sink is left", || run.has_ended("keyed"));
    assert!(!run.has_ended("sink"));
    assert_eq!(run.run_to_end(2), expected);
}

#[test]
fn a_checkpoint_that_is_given_up_leaves_nothing_in_the_next() {
    let steps = steps(8);
    let expected = start(KeyedJob::Tumbling, &steps, &[]).run_to_end(1);
    let run = start(KeyedJob::Tumbling, &steps, &[]);
    run.permits.limit();
    run.go_to(40);
    // The sink is at a record that it has no permit for.
    run.trigger(1);
    wait_until("sources have sent it", || run.acknowledged(1).len() >= 2);
    run.order(CheckpointOrder::Abort(1));
    run.go_to(60);
    let restored = run.checkpoint(2);
    run.kill();
    assert_eq!(start(KeyedJob::Tumbling, &steps, &restored).run_to_end(3), expected);
}

#[test]
fn a_savepoint_in_between_waits_for_all_that_is_queued_and_has_none_of_it() {
    let steps = steps(9);
    let mut run = start(KeyedJob::Session, &steps, &[]);
    run.permits.limit();
    run.go_to(50);
    run.checkpoint(1);
    run.order(CheckpointOrder::Complete(1));
    run.kind = BarrierKind::Aligned;
    run.go_to(90);
    let saved = run.checkpoint(2);
    assert_eq!(in_flight(&saved), BTreeSet::new());
    run.kill();
    let expected = start(KeyedJob::Session, &steps, &[]).run_to_end(1);
    let again = Run::start(KeyedJob::Session, 3, CheckpointMode::ExactlyOnce, &steps, &saved);
    assert_eq!(again.run_to_end(3), expected);
}

#[test]
fn a_checkpoint_that_takes_too_long_overtakes_wherever_its_barriers_are() {
    for (seed, keyed) in (20..).zip(ALL) {
        let steps = steps(seed);
        let expected = start(keyed, &steps, &[]).run_to_end(1);
        let mut restored = Vec::new();
        let mut at = 0;
        for id in 1..4 {
            let mut run = start(keyed, &steps, &restored);
            run.kind = BarrierKind::AlignedWithTimeout;
            run.permits.limit();
            at += 30 + seed as usize / 2;
            run.go_to(at);
            match (seed + id) % 3 {
                // Before any barrier is sent.
                0 => run.overtake(id),
                // When the sources have sent it, which is queued before the sink.
                1 => {
                    run.trigger(id);
                    wait_until("sources have sent it", || run.acknowledged(id).len() >= 2);
                    run.overtake(id);
                }
                // When it may be anywhere.
                _ => {
                    run.trigger(id);
                    std::thread::sleep(Duration::from_millis(seed % 4));
                    run.overtake(id);
                }
            }
            restored = run.checkpoint_overtaken(id);
            run.order(CheckpointOrder::Complete(id));
            run.go_to(at + 11);
            run.kill();
        }
        let found = start(keyed, &steps, &restored).run_to_end(4);
        assert_eq!(found, expected, "{keyed:?}, seed {seed}");
    }
}

#[test]
fn what_a_checkpoint_overtakes_late_is_part_of_it() {
    let steps = steps(4);
    let expected = start(KeyedJob::Running, &steps, &[]).run_to_end(1);
    let mut has_overtaken = false;
    while !has_overtaken {
        let mut run = start(KeyedJob::Running, &steps, &[]);
        run.kind = BarrierKind::AlignedWithTimeout;
        run.permits.limit();
        run.go_to(60);
        (0..5).for_each(|_| run.permits.grant());
        wait_until("the sink has no permit left", || run.seen.load(Ordering::SeqCst) == 5);
        run.trigger(1);
        wait_until("sources have sent it", || run.acknowledged(1).len() >= 2);
        run.overtake(1);
        let restored = run.checkpoint_overtaken(1);
        has_overtaken = !in_flight(&restored).is_empty();
        run.kill();
        assert_eq!(start(KeyedJob::Running, &steps, &restored).run_to_end(2), expected);
    }
}

#[test]
fn a_checkpoint_in_time_has_nothing_on_its_way() {
    let steps = steps(5);
    let expected = start(KeyedJob::Running, &steps, &[]).run_to_end(1);
    let mut run = start(KeyedJob::Running, &steps, &[]);
    run.kind = BarrierKind::AlignedWithTimeout;
    run.permits.limit();
    run.go_to(60);
    let restored = run.checkpoint(1);
    assert_eq!(in_flight(&restored), BTreeSet::new());
    run.kill();
    assert_eq!(start(KeyedJob::Running, &steps, &restored).run_to_end(2), expected);
}
