//! Whole benches, tiny, with threads for processes: every record is there, every figure makes sense.

use flownet_bench::{
    BenchError, BenchRun, ExchangeSpec, LatencySpec, Launcher, NetworkSpec, Partitioner, ProcessCommand, Stop,
    flink_grid, run_exchange, run_latency,
};

fn exchange(spec: &ExchangeSpec) -> BenchRun {
    run_exchange(spec, &Launcher::Threads, &Stop::default()).unwrap_or_else(|error| panic!("{spec:?}: {error}"))
}

fn small() -> ExchangeSpec {
    ExchangeSpec { records: Some(20_000), ..ExchangeSpec::default() }
}

#[test]
fn every_configuration_of_the_grid_delivers_every_record() {
    for spec in flink_grid(&ExchangeSpec { records: Some(2_000), ..ExchangeSpec::default() }) {
        // As many channels as there are would take seconds in a debug build.
        let run = exchange(&ExchangeSpec { channels: spec.channels.min(20), ..spec });
        assert!(run.records_per_s > 0.0 && run.ratio_to_raw_tcp.is_some_and(|ratio| ratio > 0.0));
    }
}

#[test]
fn every_timeout_partitioner_and_size_delivers_every_record() {
    for buffer_timeout_us in [None, Some(0), Some(1000)] {
        for partitioner in [Partitioner::Rr, Partitioner::Hash, Partitioner::Broadcast, Partitioner::Skewed] {
            let records = Some(2_000);
            exchange(&ExchangeSpec { writers: 2, channels: 3, buffer_timeout_us, partitioner, records, ..small() });
        }
    }
    for (record_bytes, records) in [(9, 10_000), (1024, 1_000), (100_000, 20)] {
        exchange(&ExchangeSpec { record_bytes, records: Some(records), ..small() });
    }
    exchange(&ExchangeSpec { channels: 5, active_channels: Some(2), ..small() });
}

#[test]
fn a_local_exchange_sends_nothing_and_delivers_every_record() {
    for partitioner in [Partitioner::Rr, Partitioner::Broadcast] {
        let run = exchange(&ExchangeSpec { local: true, writers: 2, channels: 3, partitioner, ..small() });
        assert_eq!((run.details.sender.bytes_out, run.details.receiver.bytes_in), (0, 0));
    }
}

#[test]
fn memory_in_which_nothing_can_move_is_refused_with_the_numbers() {
    let network = NetworkSpec { network_memory_bytes: Some(32 << 10), ..NetworkSpec::default() };
    let spec = ExchangeSpec { channels: 100, network, ..small() };
    let error = run_exchange(&spec, &Launcher::Threads, &Stop::default()).expect_err("one segment is too few");
    let text = error.to_string();
    assert!(text.starts_with("the sender failed: insufficient segments: "), "{text}");
}

#[test]
fn a_bench_that_was_stopped_ends_with_that_error() {
    let stop = Stop::default();
    stop.stop();
    assert!(matches!(run_exchange(&small(), &Launcher::Threads, &stop), Err(BenchError::Stopped)));
}

#[test]
fn a_program_that_is_no_party_is_an_error() {
    for (program, text) in [("true", "is gone"), ("/nonexistent", "cannot start /nonexistent")] {
        let launcher = Launcher::Processes(ProcessCommand { program: program.into(), args: Vec::new() });
        let error = run_exchange(&small(), &launcher, &Stop::default()).expect_err(program);
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn latencies_are_in_order_and_the_twin_has_its_own() {
    for buffer_timeout_us in [Some(0), Some(1000)] {
        let spec = LatencySpec { rate: 2000.0, seconds: 0.3, buffer_timeout_us, ..LatencySpec::default() };
        let run = run_latency(&spec, &Launcher::Threads, &Stop::default()).unwrap();
        let quantiles = [run.p50_us, run.p99_us, run.p999_us, run.max_us].map(Option::unwrap);
        assert!(quantiles[0] > 0.0 && quantiles.is_sorted(), "{quantiles:?}");
        assert!(run.details.samples.is_some_and(|samples| samples > 300));
        for figures in [run.details.raw_tcp, run.details.half_ping_pong, run.details.wake_up] {
            assert!(figures.is_some_and(|figures| figures.p50_us > 0.0 && figures.samples > 0));
        }
    }
}

#[test]
fn an_idle_exchange_has_no_latency_but_costs_something() {
    let spec = LatencySpec { rate: 0.0, seconds: 0.1, channels: 10, ..LatencySpec::default() };
    let run = run_latency(&spec, &Launcher::Threads, &Stop::default()).unwrap();
    assert_eq!((run.p50_us, run.ratio_to_raw_tcp, run.cpu_ns_per_record), (None, None, None));
    assert!(run.cpu_cores > 0.0);
}
