//! Seeds of the simulation.

use fastrand::Rng;
use flownet_sim::World;
use flownet_sim::plan::Plan;
use flownet_sim::schedule::{Chance, run_seed};

#[test]
fn a_seed_decides_everything() {
    for seed in 0..50 {
        let runs = [(); 2].map(|()| run_seed(seed, None));
        let [first, second] = runs;
        assert_eq!(first.schedule, second.schedule);
        assert_eq!(first.actions, second.actions);
    }
}

#[test]
fn thousands_of_seeds_deliver_everything_and_bring_every_segment_home() {
    for seed in 0..4_000 {
        let run = run_seed(seed, None);
        assert!(run.failure.is_none(), "seed {seed}: {:?}; make simulate FROM={seed} SEEDS=1", run.failure);
    }
}

#[test]
fn a_large_record_that_goes_on_as_records_of_a_byte_is_all_delivered() {
    let run = run_seed(84_590, None);
    assert!(run.failure.is_none(), "{:?}", run.failure);
    assert!(run.actions > 2_000_000, "{} actions are too few to be worth a test", run.actions);
}

#[test]
fn a_hundred_workers_deliver_everything_over_ten_thousand_channels() {
    let mut world = World::new(Plan::grid(100));
    let mut chance = Chance::new(Rng::with_seed(1), &world).unbroken();
    while world.actions() < 20_000 {
        let action = chance.decide(&world);
        world.apply(action);
    }
    world.finish_all();
}
