//! The exchange over TLS, with the settings that jobs have by default: all records arrive, what fails is told as ever,
//! and who does not belong is refused, also where it is another implementation of TLS.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use flownet_core::{ExchangeError, Selector, Target};
use flownet_exchange_tests::{Flush, Noise, Size, Worker, job_secret, join, on_thread, read_all};
use flownet_net::{Certificates, Credentials, Input, NetworkConfig};

fn encrypted() -> Credentials {
    let certificates = Certificates::generate().expect("certificates");
    Credentials::with_tls(job_secret(), certificates).expect("credentials")
}

async fn worker(credentials: &Credentials) -> Worker {
    Worker::start_with(Size::PRODUCT, NetworkConfig::default(), credentials.clone()).await
}

/// What a reader hears that asks for partition 1 of another worker.
async fn refusal(consumer: &Worker, producer: &Worker) -> String {
    let reader = consumer.reader(&[producer.source(1, 0)]);
    join(on_thread(move || read_all(reader, 1))).await.expect_err("a refusal").to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_all_sizes_arrive_once_and_in_order_over_many_channels() {
    const PARTITIONS: usize = 2;
    const READERS: usize = 3;
    let credentials = encrypted();
    let ways = [(1, 100, 40_000, Flush::WhenFull), (2, 200_000, 60, Flush::WhenFull)];
    let timed = [(3, 30, 3_000, Flush::EveryRecord), (4, 3_000, 3_000, Flush::Within(Duration::from_millis(1)))];
    for (seed, record_bytes, records, flush) in ways.into_iter().chain(timed) {
        let (producer, consumer) = (worker(&credentials).await, worker(&credentials).await);
        let mut sent = vec![vec![Vec::new(); PARTITIONS]; READERS];
        let mut writing = Vec::new();
        for partition in 0..PARTITIONS {
            let mut noise = Noise::new(seed * 100 + partition as u64);
            let records: Vec<_> = (0..records).map(|_| (noise.below(READERS), noise.record(record_bytes))).collect();
            for (reader, record) in &records {
                let channels: &mut Vec<Vec<Vec<u8>>> = &mut sent[*reader];
                channels[partition].push(record.clone());
            }
            let mut writer = producer.writer(partition as u64, READERS as u32, Selector::Custom, flush);
            writing.push(on_thread(move || {
                for (reader, record) in records {
                    writer.emit(Target::Subpartition(reader as u32), &record).unwrap();
                }
                writer.finish(true).unwrap();
            }));
        }
        let mut reading = Vec::new();
        for reader in 0..READERS {
            let sources: Vec<_> = (0..PARTITIONS).map(|at| producer.source(at as u64, reader as u32)).collect();
            let reader = consumer.reader(&sources);
            reading.push(on_thread(move || read_all(reader, PARTITIONS).unwrap()));
        }
        for (reader, sent) in reading.into_iter().zip(&sent) {
            assert!(&join(reader).await == sent, "seed {seed}");
        }
        for writer in writing {
            join(writer).await;
        }
        consumer.finish_and_assert_all_segments_home().await;
        producer.finish_and_assert_all_segments_home().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_that_leaves_in_the_middle_is_named_to_its_reader() {
    let credentials = encrypted();
    let (producer, consumer) = (worker(&credentials).await, worker(&credentials).await);
    let addr = producer.env.local_addr();
    let mut writer = producer.writer(1, 1, Selector::Forward, Flush::EveryRecord);
    let mut reader = consumer.reader(&[producer.source(1, 0)]);
    writer.emit(Target::Any, b"one").unwrap();
    let reading = on_thread(move || {
        assert!(matches!(reader.next(|_, record| assert_eq!(record, b"one")), Ok(Input::Records)));
        reader
    });
    let reader = join(reading).await;
    producer.env.shutdown().await;
    let error = join(on_thread(move || read_all(reader, 1))).await.unwrap_err();
    assert!(matches!(&error, ExchangeError::ConnectionLost { peer, .. } if **peer == *addr.to_string()), "{error}");
    drop(writer);
    consumer.finish_and_assert_all_segments_home().await;
    producer.finish_and_assert_all_segments_home().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_does_not_belong_is_told_why() {
    let (ours, foreign) = (encrypted(), encrypted());
    let producer = worker(&ours).await;
    let stranger = worker(&foreign).await;
    let error = refusal(&stranger, &producer).await;
    assert!(error.contains("the peer's certificate is refused: another authority issued it"), "{error}");
    stranger.finish_and_assert_all_segments_home().await;

    let plain = worker(&job_secret().into()).await;
    let error = refusal(&plain, &producer).await;
    assert!(error.contains("the peer speaks TLS, which is off in this process"), "{error}");
    let encrypting = worker(&ours).await;
    let error = refusal(&encrypting, &plain).await;
    assert!(error.contains("the peer does not speak TLS, which this process asks for"), "{error}");
    for worker in [plain, encrypting, producer] {
        worker.finish_and_assert_all_segments_home().await;
    }
}

/// The same job secret, but by certificates that OpenSSL made and from whom OpenSSL dials.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openssl_gets_as_far_as_its_certificate_lets_it() {
    if Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_err() {
        println!("skipped: there is no openssl");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (ours, foreign) = (folder.path().join("ours"), folder.path().join("foreign"));
    make_certificates(&ours);
    make_certificates(&foreign);
    let credentials = Credentials::with_tls(job_secret(), Certificates::from_folder(&ours).unwrap()).unwrap();
    let producer = worker(&credentials).await;
    let addr = producer.env.local_addr();

    let hello = [&b"FLOWNET\0\x01\0\x01\0\0\0\0\0"[..], &[9; 32]].concat();
    let (answer, log) = dial(addr, &["-cert", "tls.crt", "-key", "tls.key"], &ours, hello).await;
    assert!(answer.starts_with(b"FLOWNET\0"), "what only follows an accepted certificate: {answer:?} {log}");
    // Who is refused says nothing: OpenSSL would tell of the write that failed, and not why it was refused.
    let (answer, log) = dial(addr, &[], &ours, Vec::new()).await;
    assert!(answer.is_empty() && log.contains("alert certificate required"), "{answer:?} {log}");
    let (answer, log) = dial(addr, &["-cert", "tls.crt", "-key", "tls.key"], &foreign, Vec::new()).await;
    assert!(answer.is_empty() && log.contains("alert unknown ca"), "{answer:?} {log}");
    let (answer, log) = dial(addr, &["-cert", "tls.crt", "-key", "tls.key", "-tls1_2"], &ours, Vec::new()).await;
    assert!(answer.is_empty() && log.contains("alert protocol version"), "{answer:?} {log}");

    // And it works, for those who belong.
    let consumer = worker(&credentials).await;
    let mut writer = producer.writer(1, 1, Selector::Forward, Flush::EveryRecord);
    let reader = consumer.reader(&[producer.source(1, 0)]);
    writer.emit(Target::Any, b"good").unwrap();
    writer.finish(true).unwrap();
    assert_eq!(join(on_thread(move || read_all(reader, 1).unwrap())).await, [[b"good".to_vec()]]);
    drop(writer);
    consumer.finish_and_assert_all_segments_home().await;
    producer.finish_and_assert_all_segments_home().await;
}

/// An authority and a certificate of it, as people make them.
fn make_certificates(folder: &Path) {
    std::fs::create_dir(folder).expect("a folder");
    let name = folder.file_name().and_then(|name| name.to_str()).expect("a name");
    let openssl = |arguments: &str| {
        let made = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output().expect("openssl");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(&format!("req -x509 {key} -keyout ca.key -out ca.crt -days 2 -subj /CN={name}"));
    openssl(&format!("req {key} -keyout tls.key -out tls.csr -subj /CN=worker"));
    // Without an extension it would be of version 1, which nobody accepts any more.
    std::fs::write(folder.join("tls.ext"), "subjectAltName=DNS:worker").expect("a file");
    openssl("x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out tls.crt -days 2 -extfile tls.ext");
}

/// Has OpenSSL dial and say this within TLS: what was answered to that, and what OpenSSL says.
async fn dial(addr: SocketAddr, arguments: &[&str], folder: &Path, said: Vec<u8>) -> (Vec<u8>, String) {
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-connect", &addr.to_string()])
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl");
    let talk = move || {
        let mut stdin = client.stdin.take().expect("a pipe");
        stdin.write_all(&said).and_then(|()| stdin.flush()).expect("OpenSSL reads it");
        let mut answer = vec![0; 48];
        let mut stdout = client.stdout.take().expect("a pipe");
        let mut read = 0;
        while let Ok(more @ 1..) = stdout.read(&mut answer[read..]) {
            read += more;
        }
        answer.truncate(read);
        drop(stdin);
        let _ended = client.kill();
        let mut log = String::new();
        client.stderr.take().expect("a pipe").read_to_string(&mut log).expect("text");
        client.wait().expect("openssl");
        (answer, log)
    };
    join(on_thread(talk)).await
}
