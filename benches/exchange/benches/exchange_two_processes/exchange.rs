//! The exchange: one writer, one channel, default settings.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use flownet_benches::process_cpu_ns;
use flownet_core::channel::RemoteChannel;
use flownet_core::gate::InputGate;
use flownet_core::partition::ResultPartition;
use flownet_core::record::writer::{FlushPolicy, RecordWriter};
use flownet_core::{ChannelIndex, PartitionId, Selector, SubpartitionIndex, Target};
use flownet_memory::{KIB, SegmentPool};
use flownet_net::{GateReader, Input, NetworkConfig, NetworkEnvironment, PartitionWriter, Secret};
use tokio::runtime::Runtime;

use crate::process::{report, report_done, wait_for};

pub(crate) fn send(records: u64) -> Result<(), Box<dyn Error>> {
    let (runtime, env) = start()?;
    let partition = ResultPartition::new(PARTITION, env.create_partition_pool(1)?, 1);
    env.register_partition(partition.handle(), Some(BUFFER_TIMEOUT));
    let mut writer = PartitionWriter::new(RecordWriter::new(partition, Selector::Forward, FlushPolicy::Timer, KIB));
    report(&env.local_addr().to_string())?;
    wait_for("go")?;

    let cpu_ns = process_cpu_ns()?;
    for value in 0..records {
        writer.emit(Target::Any, &value.to_le_bytes())?;
    }
    writer.finish(true)?;
    wait_for("end")?;
    report_done(cpu_ns)?;
    runtime.block_on(env.shutdown());
    Ok(())
}

pub(crate) fn receive(records: u64, sender: SocketAddr) -> Result<(), Box<dyn Error>> {
    let (runtime, env) = start()?;
    let gate = InputGate::new(1);
    let pool = env.create_gate_pool(1)?;
    let channel = RemoteChannel::new(Arc::clone(&gate), ChannelIndex::new(0), pool, env.config().exclusive_buffers);
    let mut reader = GateReader::new(gate, 1, KIB);
    env.open_channel(sender, PARTITION, SubpartitionIndex::new(0), channel);
    report("ready")?;

    let cpu_ns = process_cpu_ns()?;
    let (mut received, mut sum) = (0_u64, 0_u64);
    loop {
        let input = reader.next(|_, record| {
            if let Some(value) = record.first_chunk::<8>() {
                sum = sum.wrapping_add(u64::from_le_bytes(*value));
                received += 1;
            }
        })?;
        if input == Input::End {
            break;
        }
    }
    if received != records || sum != records.wrapping_mul(records.wrapping_sub(1)) / 2 {
        return Err("the records do not add up".into());
    }
    report_done(cpu_ns)?;
    runtime.block_on(env.shutdown());
    Ok(())
}

fn start() -> Result<(Runtime, NetworkEnvironment), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let pool = SegmentPool::new(POOL_BYTES / SEGMENT_BYTES, SEGMENT_BYTES)?;
    let secret = Secret::from_bytes([1; Secret::BYTES]);
    let env = runtime.block_on(NetworkEnvironment::bind(NetworkConfig::default(), secret, pool))?;
    Ok((runtime, env))
}

const PARTITION: PartitionId = PartitionId::new(1);
const BUFFER_TIMEOUT: Duration = Duration::from_millis(100);
const SEGMENT_BYTES: usize = 32 * KIB;
const POOL_BYTES: usize = 64 * KIB * KIB;
