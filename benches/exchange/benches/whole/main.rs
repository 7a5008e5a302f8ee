//! The whole exchange over loopback TCP, in one process and in two, with a raw TCP twin before each run.
//!
//! Criterion's figures are the exchange's own time. The table at the end gives the ratio to the twin, which is what to
//! believe on a machine that others use; `flownet bench` does the same with more to choose from.
//!
//! ```text
//! cargo bench --bench whole -- [FILTER]
//! ```

use std::process::ExitCode;
use std::time::Duration;

use criterion::{Criterion, SamplingMode, Throughput};
use flownet_bench::{
    BenchRun, ExchangeSpec, Launcher, Partitioner, ProcessCommand, Stop, run_exchange, run_party, table,
};

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(PARTY) {
        return if run_party().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let Ok(program) = std::env::current_exe() else {
        eprintln!("whole: this program does not know where it is");
        return ExitCode::FAILURE;
    };
    let command = ProcessCommand { program: program.into(), args: vec![PARTY.into()] };
    // Without `--bench` it was started by `cargo test --all-targets`; `--test` asks for the same: that it works.
    let is_smoke = std::env::args().any(|arg| arg == "--test") || !std::env::args().any(|arg| arg == "--bench");
    let mut criterion = Criterion::default().configure_from_args();
    for (place, launcher) in [("one_process", Launcher::Threads), ("two_processes", Launcher::Processes(command))] {
        let runs = measure(&mut criterion, place, &launcher, is_smoke);
        if !runs.is_empty() && !is_smoke {
            println!("\n{place}\n{}\n", table(&runs));
        }
    }
    criterion.final_summary();
    ExitCode::SUCCESS
}

fn measure(criterion: &mut Criterion, place: &str, launcher: &Launcher, is_smoke: bool) -> Vec<BenchRun> {
    let mut runs = Vec::new();
    let mut group = criterion.benchmark_group("exchange");
    group.sampling_mode(SamplingMode::Flat).sample_size(10);
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(5));
    for mut spec in specs() {
        spec.records = Some(spec.emitted() / if is_smoke { 20_000 } else { 12 } + 1);
        group.throughput(Throughput::Elements(spec.delivered()));
        let ExchangeSpec { writers, channels, record_bytes, buffer_timeout_us, .. } = spec;
        let timeout_us = buffer_timeout_us.unwrap_or_default();
        let id = format!(
            "{place}/writers={writers}/channels={channels}/timeout_us={timeout_us}/record_bytes={record_bytes}"
        );
        group.bench_function(id, |b| {
            b.iter_custom(|iters| {
                let measured = (0..iters).map(|_| {
                    let run = run_exchange(&spec, launcher, &Stop::default()).unwrap_or_else(|error| panic!("{error}"));
                    let seconds = run.seconds;
                    runs.push(run);
                    Duration::from_secs_f64(seconds)
                });
                measured.sum()
            });
        });
    }
    group.finish();
    runs
}

fn specs() -> [ExchangeSpec; 5] {
    let base = || ExchangeSpec { partitioner: Partitioner::Rr, ..ExchangeSpec::default() };
    [
        base(),
        ExchangeSpec { buffer_timeout_us: Some(0), ..base() },
        ExchangeSpec { record_bytes: 1024, ..base() },
        ExchangeSpec { record_bytes: 100 * 1024, ..base() },
        ExchangeSpec { writers: 4, channels: 100, ..base() },
    ]
}

const PARTY: &str = "party";
