//! The parties of a latency bench.
//!
//! The sender emits by the clock: it sleeps until the next record is due, then emits all that are. A record carries the
//! time of its emission, so a late wake-up of the sender itself is not counted against the exchange.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flownet_core::Target;
use flownet_net::{GateReader, Input, PartitionWriter};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer as _, V2DeflateSerializer};

use crate::clock::{monotonic_ns, process_cpu_ns};
use crate::error::BenchError;
use crate::network::{Network, usage};
use crate::party::Control;
use crate::raw;
use crate::report::LatencyFigures;
use crate::role::{Answer, Instruction, Shape, Usage};
use crate::spec::LatencySpec;

/// Emits records by the clock.
pub(crate) fn send(
    shape: Shape,
    spec: &LatencySpec,
    credentials: &str,
    control: &mut Control,
) -> Result<(), BenchError> {
    if shape == Shape::Raw {
        return send_raw(spec, control);
    }
    let exchange = spec.exchange();
    let network = Network::start(&exchange, credentials, true, false)?;
    let mut writers = network.writers(&exchange)?;
    control.report(&Answer::Listening(network.local_addr()))?;
    control.wait_for(&Instruction::Go)?;

    let cpu_ns = process_cpu_ns();
    for writer in &mut writers {
        pace_into(spec, writer)?;
    }
    control.wait_for(&Instruction::End)?;
    control.report(&Answer::Done(Box::new(network.usage(cpu_ns)?)))?;
    drop(writers);
    network.stop();
    Ok(())
}

/// Takes the difference between the time in each record and now.
pub(crate) fn receive(
    shape: Shape,
    spec: &LatencySpec,
    credentials: &str,
    sender: SocketAddr,
    control: &mut Control,
) -> Result<(), BenchError> {
    if shape == Shape::Raw {
        return receive_raw(spec, sender, control);
    }
    let network = Network::start(&spec.exchange(), credentials, false, true)?;
    let mut reader = network.reader(&spec.exchange(), sender)?;
    control.report(&Answer::Ready)?;

    let cpu_ns = process_cpu_ns();
    let mut arrivals = Arrivals::new(spec)?;
    read_all(&mut reader, &mut arrivals)?;
    let latencies = arrivals.finish(spec)?;
    let (latency, histogram) = (Some(latencies.figures()), Some(latencies.encoded()?));
    control.report(&Answer::Done(Box::new(Usage { latency, histogram, ..network.usage(cpu_ns)? })))?;
    drop(reader);
    network.stop();
    Ok(())
}

/// How long a sleeping thread takes to run after another thread of its process wakes it.
pub(crate) fn wake_up(control: &mut Control) -> Result<(), BenchError> {
    control.report(&Answer::Ready)?;
    control.wait_for(&Instruction::Go)?;
    let cpu_ns = process_cpu_ns();
    let mut latencies = Latencies::new()?;
    let (sender, receiver) = mpsc::channel();
    let woken = thread::spawn(move || {
        for stamp in receiver {
            latencies.record(monotonic_ns().saturating_sub(stamp));
        }
        latencies.figures()
    });
    for _ in 0..WAKE_UPS {
        // Long enough for the other thread to fall asleep again.
        thread::sleep(WAKE_UP_INTERVAL);
        if sender.send(monotonic_ns()).is_err() {
            break;
        }
    }
    drop(sender);
    let latency = Some(woken.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    control.report(&Answer::Done(Box::new(Usage { latency, ..usage(cpu_ns)? })))
}

/// Times, kept to three digits.
#[derive(Debug)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Result<Self, BenchError> {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3);
        histogram.map(Self).map_err(|error| BenchError::invalid("latency", error, "a histogram"))
    }

    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    pub(crate) fn figures(&self) -> LatencyFigures {
        let us = |ns: u64| ns as f64 / 1000.0;
        LatencyFigures {
            samples: self.0.len(),
            p50_us: us(self.0.value_at_quantile(0.5)),
            p99_us: us(self.0.value_at_quantile(0.99)),
            p999_us: us(self.0.value_at_quantile(0.999)),
            max_us: us(self.0.max()),
        }
    }

    /// All of them, in the form that HdrHistogram's libraries of other languages read and can add up.
    pub(crate) fn encoded(&self) -> Result<String, BenchError> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.0, &mut bytes)
            .map_err(|error| BenchError::io("write a histogram")(io::Error::other(error)))?;
        Ok(BASE64.encode(bytes))
    }
}

/// The records that arrive, and the time that each took once the warm-up is over.
struct Arrivals {
    latencies: Latencies,
    received: u64,
    warm_up_ns: u64,
    counted_from_ns: Option<u64>,
}

impl Arrivals {
    fn new(spec: &LatencySpec) -> Result<Self, BenchError> {
        let warm_up_ns = spec.warm_up().as_nanos() as u64;
        Ok(Self { latencies: Latencies::new()?, received: 0, warm_up_ns, counted_from_ns: None })
    }

    fn add(&mut self, record: &[u8]) {
        let Some(stamp) = record.first_chunk::<8>() else { return };
        let sent_ns = u64::from_le_bytes(*stamp);
        self.received += 1;
        if sent_ns >= *self.counted_from_ns.get_or_insert(sent_ns + self.warm_up_ns) {
            self.latencies.record(monotonic_ns().saturating_sub(sent_ns));
        }
    }

    fn finish(self, spec: &LatencySpec) -> Result<Latencies, BenchError> {
        let (received, expected) = (self.received, spec.records());
        if received == expected {
            return Ok(self.latencies);
        }
        Err(BenchError::WrongSum { received, sum: 0, expected, expected_sum: 0 })
    }
}

fn pace_into(spec: &LatencySpec, writer: &mut PartitionWriter) -> Result<(), BenchError> {
    let mut record = vec![0; spec.record_bytes];
    pace(spec, |stamp| {
        record[..8].copy_from_slice(&stamp.to_le_bytes());
        Ok(writer.emit(Target::Any, &record)?)
    })?;
    Ok(writer.finish(true)?)
}

fn read_all(reader: &mut GateReader, arrivals: &mut Arrivals) -> Result<(), BenchError> {
    while reader.next(|_, record| arrivals.add(record))? != Input::End {}
    Ok(())
}

/// Each record is one write, as a program that wants it to leave at once would do it.
fn send_raw(spec: &LatencySpec, control: &mut Control) -> Result<(), BenchError> {
    use std::io::Write;

    let mut stream = raw::accept(control)?;
    control.wait_for(&Instruction::Go)?;
    let cpu_ns = process_cpu_ns();
    let mut frame = (spec.record_bytes as u32).to_le_bytes().to_vec();
    let stamp_at = frame.len();
    frame.resize(stamp_at + spec.record_bytes, 0);
    pace(spec, |stamp| {
        frame[stamp_at..stamp_at + 8].copy_from_slice(&stamp.to_le_bytes());
        stream.write_all(&frame).map_err(BenchError::io("write to the raw twin's socket"))
    })?;
    control.wait_for(&Instruction::End)?;
    control.report(&Answer::Done(Box::new(usage(cpu_ns)?)))
}

fn receive_raw(spec: &LatencySpec, sender: SocketAddr, control: &mut Control) -> Result<(), BenchError> {
    let mut stream = raw::connect(sender)?;
    control.report(&Answer::Ready)?;
    let cpu_ns = process_cpu_ns();
    let mut arrivals = Arrivals::new(spec)?;
    raw::decode(&mut stream, spec.record_bytes, spec.records(), |record| arrivals.add(record))
        .map_err(BenchError::io("read from the raw twin's socket"))?;
    let latency = Some(arrivals.finish(spec)?.figures());
    control.report(&Answer::Done(Box::new(Usage { latency, ..usage(cpu_ns)? })))
}

/// Calls `emit` with the time, when each record is due. Without records it only waits.
fn pace(spec: &LatencySpec, mut emit: impl FnMut(u64) -> Result<(), BenchError>) -> Result<(), BenchError> {
    if spec.records() == 0 {
        thread::sleep(spec.duration());
    }
    let start_ns = monotonic_ns();
    let interval_ns = 1e9 / spec.rate;
    for record in 0..spec.records() {
        let due_ns = start_ns + (record as f64 * interval_ns) as u64;
        let mut now_ns = monotonic_ns();
        while now_ns < due_ns {
            thread::sleep(Duration::from_nanos(due_ns - now_ns));
            now_ns = monotonic_ns();
        }
        emit(now_ns)?;
    }
    Ok(())
}

const LONGEST_NS: u64 = 3_600_000_000_000;
const WAKE_UPS: u32 = 1_000;
const WAKE_UP_INTERVAL: Duration = Duration::from_micros(500);

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::Deserializer;

    use super::*;

    #[test]
    fn quantiles_are_those_of_what_was_recorded() {
        let mut latencies = Latencies::new().unwrap();
        (1..=1000).for_each(|us| latencies.record(us * 1000));
        let figures = latencies.figures();
        assert_eq!(figures.samples, 1000);
        for (figure, expected) in
            [(figures.p50_us, 500.0), (figures.p99_us, 990.0), (figures.p999_us, 999.0), (figures.max_us, 1000.0)]
        {
            assert!((figure / expected - 1.0).abs() < 0.002, "{figure} for {expected}");
        }
    }

    #[test]
    fn what_was_recorded_can_be_written_down_and_read_again() {
        let mut latencies = Latencies::new().unwrap();
        (1..=1000).for_each(|us| latencies.record(us * 1000));
        let bytes = BASE64.decode(latencies.encoded().unwrap()).unwrap();
        let read: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
        assert_eq!(read, latencies.0);
    }

    #[test]
    fn records_are_due_one_interval_after_the_other_and_none_is_left_out() {
        let spec = LatencySpec { rate: 10_000.0, seconds: 0.05, ..LatencySpec::default() };
        let mut stamps = Vec::new();
        // Before the pace begins: the first record may be late, and those behind it on time all the same.
        let start = monotonic_ns();
        pace(&spec, |stamp| {
            stamps.push(stamp);
            Ok(())
        })
        .unwrap();
        assert_eq!(stamps.len(), 500);
        for (index, stamp) in (0_u64..).zip(stamps) {
            assert!(stamp + 1 >= start + index * 100_000, "record {index} came early");
        }
    }

    #[test]
    fn what_arrives_in_the_warm_up_is_received_and_not_counted() {
        let spec = LatencySpec { rate: 3.0, seconds: 1.0, ..LatencySpec::default() };
        let mut arrivals = Arrivals::new(&spec).unwrap();
        for stamp in [1_u64, 99_999_999, 100_000_001] {
            arrivals.add(&stamp.to_le_bytes());
        }
        assert_eq!(arrivals.finish(&spec).unwrap().figures().samples, 1);
    }
}
