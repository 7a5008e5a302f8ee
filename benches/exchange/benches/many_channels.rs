//! Idle channels cost nothing: 10,000 channels of which 100 have data, inside 64 MiB a process, beside an exchange of
//! 100 channels that all have data. Two processes over loopback, run alternately; believe the ratio.
//!
//! ```text
//! cargo bench --bench many_channels -- [--records N] [--rounds N] [--timeout-us N] [--smoke]
//! ```

use std::error::Error;
use std::process::ExitCode;

use flownet_bench::{
    BenchRun, ExchangeSpec, Launcher, NetworkSpec, ProcessCommand, Stop, median, run_exchange, run_party,
};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let is_party = args.iter().any(|arg| arg == PARTY);
    let outcome = if is_party { run_party().map_err(Into::into) } else { Settings::from_args(&args).and_then(compare) };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("many_channels: {error}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    channels: u32,
    records: u64,
    rounds: usize,
    timeout_us: u64,
}

impl Settings {
    fn from_args(args: &[String]) -> Result<Self, Box<dyn Error>> {
        let has = |flag: &str| args.iter().any(|arg| arg == flag);
        let is_smoke = has("--smoke") || has("--test") || !has("--bench");
        let mut settings = Self { channels: 10_000, records: 60_000_000, rounds: 5, timeout_us: 100_000 };
        if is_smoke {
            settings = Self { channels: 1_000, records: 100_000, rounds: 1, ..settings };
        }
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--bench" | "--smoke" | "--test" => {}
                "--channels" => settings.channels = args.next().ok_or("--channels needs a number")?.parse()?,
                "--records" => settings.records = args.next().ok_or("--records needs a number")?.parse()?,
                "--rounds" => settings.rounds = args.next().ok_or("--rounds needs a number")?.parse()?,
                "--timeout-us" => settings.timeout_us = args.next().ok_or("--timeout-us needs a number")?.parse()?,
                other => return Err(format!("unknown argument {other}").into()),
            }
        }
        Ok(settings)
    }

    fn spec(self, channels: u32) -> ExchangeSpec {
        ExchangeSpec {
            channels,
            active_channels: Some(ACTIVE),
            buffer_timeout_us: Some(self.timeout_us),
            records: Some(self.records),
            network: NetworkSpec { network_memory_bytes: Some(NETWORK_MEMORY_BYTES), ..NetworkSpec::default() },
            ..ExchangeSpec::default()
        }
    }
}

fn compare(settings: Settings) -> Result<(), Box<dyn Error>> {
    let program = std::env::current_exe()?.into();
    let launcher = Launcher::Processes(ProcessCommand { program, args: vec![PARTY.into()] });
    let stop = Stop::default();
    let shapes = [ACTIVE, settings.channels];
    let mut runs: [Vec<BenchRun>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..settings.rounds {
        for (channels, runs) in shapes.into_iter().zip(&mut runs) {
            runs.push(run_exchange(&settings.spec(channels), &launcher, &stop)?);
        }
    }
    println!("{} records of 8 bytes, median of {} alternating rounds", settings.records, settings.rounds);
    let mut rates = [0.0; 2];
    for ((channels, runs), rate) in shapes.into_iter().zip(&runs).zip(&mut rates) {
        let middle = |part: fn(&BenchRun) -> f64| median(runs.iter().map(part));
        *rate = middle(|run| run.records_per_s).unwrap_or_default();
        println!(
            "{channels:>6} channels, {ACTIVE} active: {:8.2} M records/s, {:6.1} CPU-ns a record, {:6.0} MB in RAM",
            *rate / 1e6,
            middle(|run| run.cpu_ns_per_record.unwrap_or_default()).unwrap_or_default(),
            middle(|run| run.peak_rss_mb).unwrap_or_default(),
        );
    }
    println!("ratio {:.2}", rates[1] / rates[0]);
    Ok(())
}

/// Argument of the processes that the bench starts.
const PARTY: &str = "--party";
/// Channels that get records.
const ACTIVE: u32 = 100;
const NETWORK_MEMORY_BYTES: usize = 64 << 20;
