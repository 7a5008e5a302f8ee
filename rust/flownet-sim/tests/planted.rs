//! The checker and the simulation find the bugs that are planted for them. What finds nothing proves nothing.
#![cfg(feature = "planted-bugs")]

use flownet_sim::cases::small;
use flownet_sim::plan::Bug;
use flownet_sim::schedule::{replay, run_seed};
use flownet_sim::shrink::shorten;

#[test]
fn the_model_checker_finds_every_planted_bug() {
    for bug in Bug::ALL {
        let mut proof = small().into_iter().find(|proof| proof.name == case_of(bug)).expect("the case is there");
        proof.plan.bug = Some(bug);
        let (failure, path) = proof.explore().failure.unwrap_or_else(|| panic!("{bug:?} is not found"));
        println!("{bug:?} in \"{}\" after {} actions: {failure}", proof.name, path.len());
        path.iter().for_each(|action| println!("  {action}"));
    }
}

#[test]
fn the_simulation_finds_every_planted_bug_and_shows_it_in_few_actions() {
    for bug in Bug::ALL {
        let failing =
            (0..MANY_SEEDS).map(|seed| (seed, run_seed(seed, Some(bug)))).find(|(_, run)| run.failure.is_some());
        let (seed, run) = failing.unwrap_or_else(|| panic!("{bug:?} is not found in {MANY_SEEDS} seeds"));
        let (schedule, failure) = shorten(&run.plan, &run.schedule).expect("what failed once fails again");
        println!("{bug:?} with seed {seed}, {} actions shortened to {}: {failure}", run.schedule.len(), schedule.len());
        schedule.iter().for_each(|action| println!("  {action}"));
        assert!(schedule.len() <= FEW_ACTIONS, "{bug:?}: {} actions are no help", schedule.len());
    }
}

#[test]
fn a_shortened_schedule_has_no_action_too_many() {
    let runs = (0..MANY_SEEDS).map(|seed| run_seed(seed, Some(Bug::LentAfterRelease)));
    let run = runs.into_iter().find(|run| run.failure.is_some()).expect("it is found");
    let (schedule, failure) = shorten(&run.plan, &run.schedule).expect("what failed once fails again");
    for left_out in 0..schedule.len() {
        let mut shorter = schedule.clone();
        shorter.remove(left_out);
        let outcome = replay(&run.plan, &shorter);
        assert!(outcome.err().is_none_or(|other| other.place != failure.place), "action {left_out} is not needed");
    }
}

/// The first small case that meets the bug.
fn case_of(bug: Bug) -> &'static str {
    match bug {
        Bug::SilentBacklog | Bug::ClearedAfterLooking | Bug::Overdraft => "2 x 1, one segment for both, none exclusive",
        Bug::LentAfterRelease => "2 x 1 on one connection, one exclusive segment, to the end",
        Bug::LazyPromise => "two tasks, one behind them and a last one in one process, at need",
        Bug::CreditOutlivesBlock => "2 x 1, a barrier in between, one exclusive segment",
    }
}

const MANY_SEEDS: u64 = 2_000;
const FEW_ACTIONS: usize = 25;
