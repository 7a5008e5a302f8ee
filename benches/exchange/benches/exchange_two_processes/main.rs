//! 8-byte records from one process to another over loopback: flownet, and the same over a bare socket.
//!
//! Both move `u32 length | u64 value` from a sending process to a receiving one that adds the values up and checks
//! the sum. The bare twin encodes into 32 KiB writes and decodes from 256 KiB reads, nothing else: it is what an
//! exchange without credit, pools and multiplexing could reach. The two run alternately, because a loaded or
//! throttled machine changes faster than a run takes; believe the ratio rather than the figures.
//!
//! ```text
//! cargo bench --bench exchange_two_processes -- [--records N] [--rounds N] [--smoke]
//! ```

mod bare;
mod exchange;
mod process;

use std::error::Error;
use std::process::ExitCode;

use flownet_benches::median;

use crate::process::{Role, Shape};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match Role::from_args(&args) {
        Some(role) => role.and_then(process::run_child),
        None => Settings::from_args(&args).and_then(compare),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("exchange_two_processes: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One run of one shape.
#[derive(Clone, Copy, Debug)]
struct Run {
    records_per_s: f64,
    cpu_ns_per_record: f64,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    records: u64,
    rounds: usize,
}

impl Settings {
    fn from_args(args: &[String]) -> Result<Self, Box<dyn Error>> {
        // Without `--bench` it was started by `cargo test --all-targets`; `--test` is what criterion's benches call a
        // smoke run. Either way: prove that it works, measure nothing.
        let has = |flag: &str| args.iter().any(|arg| arg == flag);
        let is_smoke = has("--smoke") || has("--test") || !has("--bench");
        let mut settings =
            if is_smoke { Self { records: 1_000_000, rounds: 1 } } else { Self { records: 200_000_000, rounds: 5 } };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--bench" | "--smoke" | "--test" => {}
                "--records" => settings.records = args.next().ok_or("--records needs a number")?.parse()?,
                "--rounds" => settings.rounds = args.next().ok_or("--rounds needs a number")?.parse()?,
                other => return Err(format!("unknown argument {other}").into()),
            }
        }
        Ok(settings)
    }
}

fn compare(settings: Settings) -> Result<(), Box<dyn Error>> {
    let mut runs: [Vec<Run>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..settings.rounds {
        for (shape, runs) in Shape::ALL.into_iter().zip(&mut runs) {
            runs.push(process::run_pair(shape, settings.records)?);
        }
    }
    println!("{} records of 8 bytes, median of {} alternating rounds", settings.records, settings.rounds);
    let mut medians = [0.0; 2];
    for ((shape, runs), rate) in Shape::ALL.into_iter().zip(&runs).zip(&mut medians) {
        let middle = |of: fn(&Run) -> f64| median(runs.iter().map(of).collect()).unwrap_or(f64::NAN);
        *rate = middle(|run| run.records_per_s);
        let rates: Vec<String> = runs.iter().map(|run| format!("{:.0}", run.records_per_s / 1e6)).collect();
        println!(
            "{:<8} {:>7.1} M records/s {:>7.2} CPU-ns/record   rounds: {}",
            shape.name(),
            *rate / 1e6,
            middle(|run| run.cpu_ns_per_record),
            rates.join(" "),
        );
    }
    println!("flownet reaches {:.2} of the bare socket", medians[1] / medians[0]);
    Ok(())
}
