//! The parties of a throughput bench.

use std::net::SocketAddr;
use std::ops::Range;
use std::thread;

use flownet_core::Target;
use flownet_core::keygroup::hash_key;
use flownet_net::{GateReader, Input, PartitionWriter};

use crate::clock::process_cpu_ns;
use crate::error::BenchError;
use crate::network::Network;
use crate::party::Control;
use crate::raw;
use crate::role::{Answer, Instruction, Shape};
use crate::spec::{ExchangeSpec, Partitioner};

/// Emits all records: one thread a writer.
pub(crate) fn send(
    shape: Shape,
    spec: &ExchangeSpec,
    credentials: &str,
    control: &mut Control,
) -> Result<(), BenchError> {
    if shape == Shape::Raw {
        return raw::send(spec, control);
    }
    let network = Network::start(spec, credentials, true, false)?;
    let mut writers = network.writers(spec)?;
    control.report(&Answer::Listening(network.local_addr()))?;
    control.wait_for(&Instruction::Go)?;

    let cpu_ns = process_cpu_ns();
    emit_all(spec, &mut writers)?;
    control.wait_for(&Instruction::End)?;
    control.report(&Answer::Done(Box::new(network.usage(cpu_ns)?)))?;
    drop(writers);
    network.stop();
    Ok(())
}

/// Reads all records on this thread and adds them up.
pub(crate) fn receive(
    shape: Shape,
    spec: &ExchangeSpec,
    credentials: &str,
    sender: SocketAddr,
    control: &mut Control,
) -> Result<(), BenchError> {
    if shape == Shape::Raw {
        return raw::receive(spec, sender, control);
    }
    let network = Network::start(spec, credentials, false, true)?;
    let mut reader = network.reader(spec, sender)?;
    control.report(&Answer::Ready)?;

    let cpu_ns = process_cpu_ns();
    let tally = drain(&mut reader)?;
    tally.check(spec)?;
    control.report(&Answer::Done(Box::new(network.usage(cpu_ns)?)))?;
    drop(reader);
    network.stop();
    Ok(())
}

/// Both ends in this process, through local channels.
pub(crate) fn run_local(spec: &ExchangeSpec, control: &mut Control) -> Result<(), BenchError> {
    let network = Network::start(spec, &spec.network.credentials()?.to_text(), true, false)?;
    let mut writers = network.writers(spec)?;
    let mut reader = network.local_reader(spec, &mut writers);
    control.report(&Answer::Ready)?;
    control.wait_for(&Instruction::Go)?;

    let cpu_ns = process_cpu_ns();
    let tally = thread::scope(|scope| {
        let emitting = scope.spawn(|| emit_all(spec, &mut writers));
        let tally = drain(&mut reader);
        // A reader that failed lets go of its channels, which ends the writers.
        drop(reader);
        joined(emitting)?;
        tally
    })?;
    tally.check(spec)?;
    control.report(&Answer::Done(Box::new(network.usage(cpu_ns)?)))?;
    drop(writers);
    network.stop();
    Ok(())
}

/// What arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ArrivalCount {
    pub(crate) received: u64,
    pub(crate) sum: u64,
}

impl ArrivalCount {
    #[inline]
    pub(crate) fn add(&mut self, record: &[u8]) {
        if let Some(value) = record.first_chunk::<8>() {
            self.sum = self.sum.wrapping_add(u64::from_le_bytes(*value));
            self.received += 1;
        }
    }

    pub(crate) fn check(self, spec: &ExchangeSpec) -> Result<(), BenchError> {
        let Self { received, sum } = self;
        let (expected, expected_sum) = (spec.delivered(), spec.expected_sum());
        if received == expected && sum == expected_sum {
            return Ok(());
        }
        Err(BenchError::WrongSum { received, sum, expected, expected_sum })
    }
}

/// Each writer emits its share on a thread of its own.
fn emit_all(spec: &ExchangeSpec, writers: &mut [PartitionWriter]) -> Result<(), BenchError> {
    thread::scope(|scope| {
        let spawn = |(index, writer)| {
            // Its name is what a profiler shows.
            let named = thread::Builder::new().name("flownet-task".to_owned());
            let spawned = named.spawn_scoped(scope, move || emit_share(spec, writer, spec.share(index)));
            spawned.map_err(BenchError::io("start a writing thread"))
        };
        let emitting: Vec<_> = (0..).zip(writers).map(spawn).collect::<Result<_, _>>()?;
        emitting.into_iter().try_for_each(joined)
    })
}

fn emit_share(spec: &ExchangeSpec, writer: &mut PartitionWriter, values: Range<u64>) -> Result<(), BenchError> {
    let channels = spec.channels;
    match (spec.partitioner, spec.active_channels) {
        (Partitioner::Rr, Some(active)) => {
            let mut next = 0;
            let in_turn = move |_| {
                let chosen = next;
                next = if next + 1 == active { 0 } else { next + 1 };
                Target::Subpartition(chosen)
            };
            emit_to(spec, writer, values, in_turn)
        }
        (Partitioner::Rr | Partitioner::Broadcast, _) => emit_to(spec, writer, values, |_| Target::Any),
        (Partitioner::Hash, _) => {
            emit_to(spec, writer, values, |value: u64| Target::KeyHash(hash_key(&value.to_le_bytes())))
        }
        (Partitioner::Skewed, _) => {
            let mut touched = 0;
            let each_once = move |_| {
                let chosen = if touched < channels { touched } else { 0 };
                touched = touched.saturating_add(1);
                Target::Subpartition(chosen)
            };
            emit_to(spec, writer, values, each_once)
        }
    }
}

fn emit_to(
    spec: &ExchangeSpec,
    writer: &mut PartitionWriter,
    values: Range<u64>,
    mut target: impl FnMut(u64) -> Target,
) -> Result<(), BenchError> {
    match spec.record_bytes {
        // A length that the compiler knows is what an operator with a fixed record has too.
        8 => writer.emit_all(values.map(|value| (target(value), value.to_le_bytes())))?,
        bytes => {
            let mut record = vec![0; bytes];
            for value in values {
                record[..8].copy_from_slice(&value.to_le_bytes());
                writer.emit(target(value), &record)?;
            }
        }
    }
    Ok(writer.finish(true)?)
}

fn drain(reader: &mut GateReader) -> Result<ArrivalCount, BenchError> {
    let mut tally = ArrivalCount::default();
    while reader.next(|_, record| tally.add(record))? != Input::End {}
    Ok(tally)
}

fn joined(thread: thread::ScopedJoinHandle<'_, Result<(), BenchError>>) -> Result<(), BenchError> {
    match thread.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
