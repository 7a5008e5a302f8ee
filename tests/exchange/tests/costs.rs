//! What a peer may cost that proved itself and then never reads: nothing worth seeing in the memory of the process.
//!
//! A file of its own, since it looks at the memory of the whole process.
#![allow(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

use std::time::Duration;

use flownet_core::wire::ControlFrame;
use flownet_exchange_tests::{Size, Source, Worker, eventually, job_secret};
use flownet_net::NetworkConfig;
use flownet_net::handshake::{self, Features, Hello, Role};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

const DATA: Hello = Hello { role: Role::Data, features: Features::NONE };
const TIMEOUT: Duration = Duration::from_secs(10);
const MIB: usize = 1 << 20;
/// Before answers were bounded, the process grew by as much.
const FLOOD_BYTES: usize = 96 * MIB;
const PAGE_BYTES: usize = 4096;

/// Memory of this process that is in use, as the system counts it.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * PAGE_BYTES
}

/// Sends PINGs and reads nothing, until the worker has taken all of them.
async fn flood(worker: &Worker, mut stream: TcpStream) {
    let mut pings = Vec::new();
    while pings.len() < MIB {
        ControlFrame::Ping { token: pings.len() as u64 }.encode(&mut pings);
    }
    let before = (resident_bytes(), worker.env.counters().bytes_in);
    for _ in 0..FLOOD_BYTES / MIB {
        stream.write_all(&pings).await.unwrap();
    }
    eventually("all of it is read", || worker.env.counters().bytes_in - before.1 >= FLOOD_BYTES as u64).await;
    let grown = resident_bytes().saturating_sub(before.0);
    assert!(grown < FLOOD_BYTES / 8, "{} MiB for pongs that nobody reads", grown / MIB);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_asks_for_signs_of_life_and_never_reads_them_costs_no_memory() {
    let worker = Worker::start(Size::PRODUCT, NetworkConfig::default()).await;

    let mut consumer = TcpStream::connect(worker.env.local_addr()).await.unwrap();
    handshake::initiate(&mut consumer, &job_secret(), DATA, TIMEOUT).await.unwrap();
    flood(&worker, consumer).await;

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let partition = flownet_core::PartitionId::new(1);
    let subpartition = flownet_core::SubpartitionIndex::new(0);
    let reader = worker.reader(&[Source { worker: listener.local_addr().unwrap(), partition, subpartition }]);
    let (mut producer, _) = listener.accept().await.unwrap();
    handshake::accept(&mut producer, &job_secret(), DATA, TIMEOUT).await.unwrap();
    flood(&worker, producer).await;

    drop(reader);
    worker.finish_and_assert_all_segments_home().await;
}
