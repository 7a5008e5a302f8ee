//! A worker of the link tests: sends numbered records to one other, or receives and checks them.
//!
//! `party send BIND BANDWIDTH_DELAY RECORDS` prints where it listens, `party receive BIND BANDWIDTH_DELAY RECORDS PEER` prints
//! nanoseconds and bytes of the later two thirds of what it received; `raw-send` and `raw-receive` do the same over a bare
//! socket. Ends with its standard input.

use std::env;
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::str::FromStr;
use std::thread;
use std::time::Instant;

use flownet_core::{Selector, Target};
use flownet_exchange_tests::{Flush, Size, Worker};
use flownet_net::{Input, NetworkConfig};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const RECORD_BYTES: usize = 1000;
const SEGMENT_BYTES: usize = 32 * 1024;
const SEGMENTS: usize = 512;

#[tokio::main]
async fn main() -> Result<()> {
    thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        std::process::exit(3);
    });
    let (role, bind) = (argument::<String>(1)?, argument::<IpAddr>(2)?);
    let (bandwidth_delay, records) = (argument::<usize>(3)?, argument::<u64>(4)?);
    let config = NetworkConfig { bind, ..NetworkConfig::default() };
    let config =
        if bandwidth_delay == 0 { config } else { config.with_bandwidth_delay(bandwidth_delay, SEGMENT_BYTES) };
    let size = Size { segments: SEGMENTS, segment_bytes: SEGMENT_BYTES };
    match role.as_str() {
        "send" => send(Worker::start(size, config).await, records).await,
        "receive" => receive(Worker::start(size, config).await, records, argument(5)?).await,
        "raw-send" => raw_send(bind, records),
        "raw-receive" => raw_receive(records, argument(5)?),
        role => Err(format!("no role '{role}'").into()),
    }
}

async fn send(worker: Worker, records: u64) -> Result<()> {
    let mut writer = worker.writer(1, 1, Selector::Forward, Flush::WhenFull);
    say(worker.env.local_addr())?;
    let emitted = tokio::task::spawn_blocking(move || {
        for number in 0..records {
            writer.emit(Target::Any, &record(number)).map_err(|error| error.to_string())?;
        }
        writer.finish(true).map_err(|error| error.to_string())?;
        // Until all of it was read: what is queued goes with its writer.
        while !writer.record_writer().partition().is_consumed() {
            thread::sleep(POLL);
        }
        Ok::<_, String>(())
    });
    emitted.await??;
    worker.finish_and_assert_all_segments_home().await;
    Ok(())
}

async fn receive(worker: Worker, records: u64, peer: SocketAddr) -> Result<()> {
    let source = flownet_exchange_tests::Source { worker: peer, ..worker.source(1, 0) };
    let mut reader = worker.reader(&[source]);
    let meter = tokio::task::spawn_blocking(move || {
        let (mut meter, mut number) = (Meter::new(records), 0);
        loop {
            let input = reader.next(|_, bytes| {
                assert!(bytes == record(number), "record {number} is another");
                number += 1;
                meter.count();
            });
            if matches!(input.map_err(|error| error.to_string())?, Input::End) {
                assert_eq!(number, records, "records are missing");
                return Ok::<_, String>(meter);
            }
        }
    });
    say(meter.await??.result())?;
    worker.finish_and_assert_all_segments_home().await;
    Ok(())
}

fn raw_send(bind: IpAddr, records: u64) -> Result<()> {
    let listener = TcpListener::bind((bind, 0))?;
    say(listener.local_addr()?)?;
    let (mut stream, _) = listener.accept()?;
    for number in 0..records {
        stream.write_all(&record(number))?;
    }
    Ok(())
}

fn raw_receive(records: u64, peer: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect(peer)?;
    let mut meter = Meter::new(records);
    for number in 0..records {
        let mut bytes = [0; RECORD_BYTES];
        stream.read_exact(&mut bytes)?;
        assert!(bytes == record(number), "record {number} is another");
        meter.count();
    }
    say(meter.result())
}

/// Takes the time of the later two thirds: TCP needs a while to know a link.
struct Meter {
    first: u64,
    counted: u64,
    since: Instant,
}

impl Meter {
    fn new(records: u64) -> Self {
        Self { first: records / 3, counted: 0, since: Instant::now() }
    }

    fn count(&mut self) {
        self.counted += 1;
        if self.counted == self.first {
            self.since = Instant::now();
        }
    }

    fn result(&self) -> String {
        format!("{} {}", self.since.elapsed().as_nanos(), (self.counted - self.first) * RECORD_BYTES as u64)
    }
}

fn record(number: u64) -> [u8; RECORD_BYTES] {
    let mut bytes = [number as u8; RECORD_BYTES];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn argument<T: FromStr<Err: Error + 'static>>(at: usize) -> Result<T> {
    Ok(env::args().nth(at).ok_or("an argument is missing")?.parse()?)
}

fn say(line: impl std::fmt::Display) -> Result<()> {
    println!("{line}");
    Ok(io::stdout().flush()?)
}

const POLL: std::time::Duration = std::time::Duration::from_millis(1);
