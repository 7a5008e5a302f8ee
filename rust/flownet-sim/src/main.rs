//! `make simulate` and `make prove`: see `docs/internals/flow-control-proof.md`.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use fastrand::Rng;
use flownet_sim::cases::{large, small};
use flownet_sim::schedule::{Chance, SeedRun, run_seed};
use flownet_sim::shrink::shorten;
use flownet_sim::{Plan, World};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().ok();
    match *words {
        ["seeds", from, count] if number(from).zip(number(count)).is_some() => {
            simulate(number(from).unwrap_or(0), number(count).unwrap_or(0))
        }
        ["grid", workers, actions] if number(workers).zip(number(actions)).is_some() => {
            let workers = usize::try_from(number(workers).unwrap_or(2)).unwrap_or(2);
            grid(workers.max(2), number(actions).unwrap_or(0))
        }
        ["prove"] => prove(""),
        ["prove", part] => prove(part),
        _ => {
            eprintln!("usage: flownet-sim seeds FROM COUNT | grid WORKERS ACTIONS | prove [PART OF A NAME]");
            ExitCode::from(2)
        }
    }
}

/// Runs seeds on all cores. The first that fails is shortened and shown.
fn simulate(from: u64, count: u64) -> ExitCode {
    let began = Instant::now();
    let (next, actions, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    // A line that is written over is for people: in a log it would be one of thousands of parts.
    let is_watched = std::io::stderr().is_terminal();
    let work = || {
        let mut failed = None;
        while !is_over.load(Ordering::Relaxed) {
            let done = next.fetch_add(1, Ordering::Relaxed);
            if done >= count {
                break;
            }
            let run = run_seed(from + done, None);
            actions.fetch_add(run.actions, Ordering::Relaxed);
            if run.failure.is_some() {
                is_over.store(true, Ordering::Relaxed);
                failed = Some((from + done, run));
            } else if is_watched && done % PROGRESS_EVERY == 0 {
                eprint!("\r{done} of {count} seeds");
            }
        }
        failed
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let failed = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok().flatten()).min_by_key(|(seed, _)| *seed)
    });
    if is_watched {
        eprint!("\r");
    }
    if let Some((seed, run)) = failed {
        report(seed, &run);
        return ExitCode::FAILURE;
    }
    let (actions, seconds) = (actions.into_inner(), began.elapsed().as_secs_f64());
    println!("{count} seeds from {from}, {actions} actions in {seconds:.1} s: nothing wrong");
    ExitCode::SUCCESS
}

fn report(seed: u64, run: &SeedRun) {
    println!("seed {seed} fails. To repeat it: make simulate FROM={seed} SEEDS=1");
    println!("{:#?}", run.plan);
    let Some((schedule, failure)) = shorten(&run.plan, &run.schedule) else {
        return println!("the schedule of {} actions does not fail when it is repeated", run.schedule.len());
    };
    println!("{failure}");
    println!("{} actions, shortened to {}:", run.schedule.len(), schedule.len());
    schedule.iter().for_each(|action| println!("  {action}"));
    println!("  then everything runs to its end");
}

/// A large world: how much memory a channel takes and how fast it goes.
fn grid(workers: usize, actions: u64) -> ExitCode {
    let (before, began) = (resident_bytes(), Instant::now());
    let mut world = World::new(Plan::grid(workers));
    let channels = world.plan().channels();
    println!("{workers} workers, {channels} channels, {} connections", world.connections());
    println!("built in {:.1} s, {} bytes a channel", began.elapsed().as_secs_f64(), per(before, channels));
    let began = Instant::now();
    let mut chance = Chance::new(Rng::with_seed(0), &world).unbroken();
    while world.actions() < actions {
        let action = chance.decide(&world);
        world.apply(action);
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{actions} actions in {seconds:.1} s, {:.0} actions/s, {} bytes a channel",
        actions as f64 / seconds,
        per(before, channels)
    );
    let (before_end, began) = (world.actions(), Instant::now());
    world.finish_all();
    let (last, seconds) = (world.actions() - before_end, began.elapsed().as_secs_f64());
    println!("delivered and ended with {last} actions in {seconds:.1} s, {:.0} actions/s", last as f64 / seconds);
    ExitCode::SUCCESS
}

fn per(before: u64, channels: usize) -> u64 {
    resident_bytes().saturating_sub(before) / channels as u64
}

/// Memory of this process, where the system says so.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Explores every case whose name has this part.
fn prove(part: &str) -> ExitCode {
    let mut is_proven = true;
    for proof in small().into_iter().chain(large()).filter(|proof| proof.name.contains(part)) {
        let began = Instant::now();
        let explored = proof.explore();
        let seconds = began.elapsed().as_secs_f64();
        let longest = explored.longest_path.map_or("in a ring".to_owned(), |steps| format!("up to {steps} deep"));
        println!(
            "{:<60} {:>8} states {:>9} steps {longest} {seconds:.1} s",
            proof.name, explored.states, explored.steps
        );
        is_proven &= explored.failure.is_none() && explored.longest_path.is_some();
        if let Some((failure, path)) = explored.failure {
            println!("{failure}");
            path.iter().for_each(|action| println!("  {action}"));
        }
    }
    if is_proven { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

const PROGRESS_EVERY: u64 = 100;
