//! Tests two environments like two processes: one dials the other, both authenticate, and tasks read and write.

use std::future::poll_fn;
use std::sync::Arc;

use flownet_core::channel::RemoteChannel;
use flownet_core::gate::InputGate;
use flownet_core::partition::ResultPartition;
use flownet_core::record::reader::RecordReader;
use flownet_core::record::writer::{Emit, FlushPolicy, RecordWriter};
use flownet_core::subpartition::Element;
use flownet_core::{ChannelIndex, PartitionId, Selector, SubpartitionIndex, Target};
use flownet_memory::SegmentPool;

use super::rig::numbered;
use crate::tls::Certificates;
use crate::{Credentials, Inlets, NetworkConfig, NetworkEnvironment, Secret};

const PARTITION: PartitionId = PartitionId::new(1);

async fn environment(credentials: &Credentials) -> (NetworkEnvironment, Arc<SegmentPool>) {
    let pool = SegmentPool::new(16, 1024).unwrap();
    let config = NetworkConfig::default();
    (NetworkEnvironment::bind(config, credentials.clone(), Arc::clone(&pool)).await.unwrap(), pool)
}

/// Output of a task that has ended.
fn written(env: &NetworkEnvironment, records: &[Vec<u8>]) -> RecordWriter {
    let partition = ResultPartition::new(PARTITION, env.create_partition_pool(1).unwrap(), 1);
    env.register_partition(partition.handle(), None, &Inlets::new());
    let mut writer = RecordWriter::new(partition, Selector::Forward, FlushPolicy::WhenFull, 1024);
    for record in records {
        assert_ne!(writer.try_emit(Target::Any, record).unwrap(), Emit::Blocked, "there is room for all");
    }
    writer.finish(true).unwrap();
    writer
}

async fn read_all(gate: &InputGate) -> Vec<Vec<u8>> {
    let (mut records, mut read) = (RecordReader::new(1024), Vec::new());
    while let Some((_, element)) = poll_fn(|cx| gate.poll_next(cx.waker())).await.unwrap() {
        let Element::Data(buffer) = element else { continue };
        records.push(buffer);
        while let Some(record) = records.next_record().unwrap() {
            read.push(record.to_vec());
        }
    }
    read
}

#[tokio::test]
async fn records_go_from_one_environment_to_another_in_the_clear_and_encrypted() {
    let secret = || Secret::from_bytes([1; 32]);
    let encrypted = Credentials::with_tls(secret(), Certificates::generate().unwrap()).unwrap();
    for credentials in [Credentials::from(secret()), encrypted] {
        let (producing, producers) = environment(&credentials).await;
        let (consuming, consumers) = environment(&credentials).await;
        let records = numbered(100);
        let writer = written(&producing, &records);
        let gate = InputGate::new(1);
        let pool = consuming.create_gate_pool(1).unwrap();
        let channel = RemoteChannel::new(Arc::clone(&gate), ChannelIndex::new(0), pool, 2);
        let subpartition = SubpartitionIndex::new(0);
        consuming.open_channel(producing.local_addr(), PARTITION, subpartition, channel, &Inlets::new());
        assert_eq!(read_all(&gate).await, records, "TLS: {}", credentials.has_tls());
        drop((writer, gate));
        for (env, segments) in [(consuming, consumers), (producing, producers)] {
            env.shutdown().await;
            assert_eq!(segments.available(), segments.total(), "every segment is home");
        }
    }
}
