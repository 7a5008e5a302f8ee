//! One run: the raw twin, then the exchange, a moment later, on the same machine.

use std::time::Instant;

use crate::error::BenchError;
use crate::machine::{Machine, versions};
use crate::party::{Launcher, Stop};
use crate::report::{BenchRun, Details, LatencyFigures, Workload};
use crate::role::{Instruction, Role, Shape, Usage};
use crate::spec::{ExchangeSpec, LENGTH_BYTES, LatencySpec};

/// Two parties and the time it took them.
struct Pair {
    seconds: f64,
    sender: Usage,
    receiver: Usage,
}

/// Measures one pair of throughput: the raw twin, then the exchange.
pub fn run_exchange(spec: &ExchangeSpec, launcher: &Launcher, stop: &Stop) -> Result<BenchRun, BenchError> {
    spec.validate()?;
    let machine = Machine::here();
    let raw = exchange_pair(Shape::Raw, spec, launcher, stop)?;
    let pair = if spec.local {
        let role = Role::ExchangeLocal { spec: spec.clone() };
        let (seconds, usage) = alone(role, launcher, stop)?;
        Pair { seconds, sender: usage, receiver: Usage::default() }
    } else {
        exchange_pair(Shape::Flownet, spec, launcher, stop)?
    };

    let records = spec.delivered() as f64;
    let rate = records / pair.seconds;
    let raw_rate = records / raw.seconds;
    Ok(BenchRun {
        bytes_per_s: rate * (spec.record_bytes as u64 + LENGTH_BYTES) as f64,
        raw_tcp_records_per_s: Some(raw_rate),
        ratio_to_raw_tcp: Some(rate / raw_rate),
        details: Details {
            raw_tcp_cpu_ns_per_record: Some(launcher.sum(raw.sender.cpu_ns, raw.receiver.cpu_ns) as f64 / records),
            ..details(&pair)
        },
        ..run(Workload::Exchange(spec.clone()), machine, records, &pair, launcher)
    })
}

/// Measures one pair of latency: a ping-pong and a wake-up, the raw twin, then the exchange, the same rate for both.
pub fn run_latency(spec: &LatencySpec, launcher: &Launcher, stop: &Stop) -> Result<BenchRun, BenchError> {
    spec.validate()?;
    let machine = Machine::here();
    let has_records = spec.records() > 0;
    let twin = if has_records { Some(latency_twin(spec, launcher, stop)?) } else { None };
    let pair = latency_pair(Shape::Flownet, spec, launcher, stop)?;

    let records = spec.records() as f64;
    let latency = pair.receiver.latency.filter(|latency| latency.samples > 0);
    let histogram = latency.and(pair.receiver.histogram.clone());
    let limit_us = twin.as_ref().map(|twin| twin.half_ping_pong.p50_us + twin.wake_up.p50_us);
    Ok(BenchRun {
        p50_us: latency.map(|latency| latency.p50_us),
        p99_us: latency.map(|latency| latency.p99_us),
        p999_us: latency.map(|latency| latency.p999_us),
        max_us: latency.map(|latency| latency.max_us),
        raw_tcp_records_per_s: twin.as_ref().map(|twin| records / twin.seconds),
        ratio_to_raw_tcp: latency.zip(limit_us).map(|(latency, limit_us)| latency.p50_us / limit_us),
        details: Details {
            samples: latency.map(|latency| latency.samples),
            histogram,
            raw_tcp: twin.as_ref().map(|twin| twin.raw),
            half_ping_pong: twin.as_ref().map(|twin| twin.half_ping_pong),
            wake_up: twin.as_ref().map(|twin| twin.wake_up),
            ..details(&pair)
        },
        ..run(Workload::Latency(spec.clone()), machine, records, &pair, launcher)
    })
}

/// What the machine does without an exchange.
struct LatencyTwin {
    seconds: f64,
    raw: LatencyFigures,
    half_ping_pong: LatencyFigures,
    wake_up: LatencyFigures,
}

fn latency_twin(spec: &LatencySpec, launcher: &Launcher, stop: &Stop) -> Result<LatencyTwin, BenchError> {
    let half_ping_pong = ping_pong(spec.record_bytes + LENGTH_BYTES as usize, launcher, stop)?;
    let (_, wake_up) = alone(Role::WakeUp, launcher, stop)?;
    let raw = latency_pair(Shape::Raw, spec, launcher, stop)?;
    Ok(LatencyTwin {
        seconds: raw.seconds,
        raw: raw.receiver.latency.unwrap_or_default(),
        half_ping_pong,
        wake_up: wake_up.latency.unwrap_or_default(),
    })
}

fn run(workload: Workload, machine: Machine, records: f64, pair: &Pair, launcher: &Launcher) -> BenchRun {
    let cpu_ns = launcher.sum(pair.sender.cpu_ns, pair.receiver.cpu_ns);
    let rss_bytes = launcher.sum(pair.sender.peak_rss_bytes, pair.receiver.peak_rss_bytes);
    let record_bytes = workload.record_bytes() as f64 + LENGTH_BYTES as f64;
    BenchRun {
        workload,
        seconds: pair.seconds,
        records_per_s: records / pair.seconds,
        bytes_per_s: records / pair.seconds * record_bytes,
        cpu_ns_per_record: (records > 0.0).then(|| cpu_ns as f64 / records),
        cpu_cores: cpu_ns as f64 / 1e9 / pair.seconds,
        peak_rss_mb: rss_bytes as f64 / 1e6,
        p50_us: None,
        p99_us: None,
        p999_us: None,
        max_us: None,
        raw_tcp_records_per_s: None,
        ratio_to_raw_tcp: None,
        details: Details::default(),
        machine,
        versions: versions(),
    }
}

fn details(pair: &Pair) -> Details {
    let memory_bytes = pair.sender.network_memory_bytes + pair.receiver.network_memory_bytes;
    Details {
        network_memory_mb: memory_bytes as f64 / 1e6,
        sender: pair.sender.net,
        receiver: pair.receiver.net,
        ..Details::default()
    }
}

fn exchange_pair(shape: Shape, spec: &ExchangeSpec, launcher: &Launcher, stop: &Stop) -> Result<Pair, BenchError> {
    let credentials = spec.network.credentials()?.to_text();
    let sender = Role::ExchangeSender { shape, spec: spec.clone(), credentials: credentials.clone() };
    let receiver = |sender| Role::ExchangeReceiver { shape, spec: spec.clone(), credentials, sender };
    run_pair(sender, receiver, launcher, stop)
}

fn latency_pair(shape: Shape, spec: &LatencySpec, launcher: &Launcher, stop: &Stop) -> Result<Pair, BenchError> {
    let credentials = spec.network.credentials()?.to_text();
    let sender = Role::LatencySender { shape, spec: spec.clone(), credentials: credentials.clone() };
    let receiver = |sender| Role::LatencyReceiver { shape, spec: spec.clone(), credentials, sender };
    run_pair(sender, receiver, launcher, stop)
}

fn run_pair(
    sender: Role,
    receiver: impl FnOnce(std::net::SocketAddr) -> Role,
    launcher: &Launcher,
    stop: &Stop,
) -> Result<Pair, BenchError> {
    let mut sender = launcher.start(sender, stop)?;
    let address = sender.listening()?;
    let mut receiver = launcher.start(receiver(address), stop)?;
    receiver.ready()?;

    let start = Instant::now();
    sender.say(&Instruction::Go)?;
    let (end, received) = receiver.done()?;
    sender.say(&Instruction::End)?;
    let (_, sent) = sender.done()?;
    sender.join()?;
    receiver.join()?;
    Ok(Pair { seconds: (end - start).as_secs_f64(), sender: sent, receiver: received })
}

fn ping_pong(message_bytes: usize, launcher: &Launcher, stop: &Stop) -> Result<LatencyFigures, BenchError> {
    let mut pong = launcher.start(Role::Pong { message_bytes }, stop)?;
    let address = pong.listening()?;
    let mut ping = launcher.start(Role::Ping { message_bytes, pong: address }, stop)?;
    ping.ready()?;
    let (_, usage) = ping.done()?;
    ping.join()?;
    pong.join()?;
    Ok(usage.latency.unwrap_or_default())
}

/// A party that needs no other.
fn alone(role: Role, launcher: &Launcher, stop: &Stop) -> Result<(f64, Usage), BenchError> {
    let mut party = launcher.start(role, stop)?;
    party.ready()?;
    let start = Instant::now();
    party.say(&Instruction::Go)?;
    let (end, usage) = party.done()?;
    party.join()?;
    Ok(((end - start).as_secs_f64(), usage))
}
