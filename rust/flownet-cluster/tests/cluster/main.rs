//! Tests of whole jobs with native operators, in this process and with worker processes that run this test binary
//! again.

mod chains;
mod failures;
mod format;
mod pools;
mod rig;
mod runs;
mod stalls;
mod wide;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::{fd::AsFd, unix::net::UnixStream},
    sync::Arc,
    time::Duration,
};

use flownet_cluster::{JobSettings, run_worker};
use flownet_net::{
    Secret,
    handshake::{self, DEFAULT_HANDSHAKE_TIMEOUT, Features, Hello, Role},
};
use flownet_runtime::ChainFactory;

use crate::{
    chains::NativeFactory,
    rig::{CLIENT_FILE, Rig, WORKER_MODE, coordinator_of, endless, running, settings, status_with},
};

/// Not a test. A client process runs this: it submits an endless job, writes the process ids of its workers to a file
/// and hangs. In the test process it does nothing.
#[test]
fn client_process() {
    let Ok(file) = std::env::var(CLIENT_FILE) else { return };
    let rig = Rig::new();
    let settings = JobSettings {
        heartbeat_interval: Duration::from_millis(100),
        heartbeat_timeout: Duration::from_secs(1),
        ..settings(2)
    };
    let job = rig.submit(&endless(2), settings);
    status_with(&job, "a running job", running);
    let pids: Vec<String> = job.status().workers.iter().filter_map(|worker| Some(worker.pid?.to_string())).collect();
    let unfinished = format!("{file}.unfinished");
    std::fs::write(&unfinished, pids.join(" ")).expect("a file");
    std::fs::rename(&unfinished, &file).expect("a file");
    loop {
        std::thread::park();
    }
}

/// Not a test. Worker processes run this. In the test process it does nothing.
#[test]
fn worker_process() {
    let Ok(mode) = std::env::var(WORKER_MODE) else { return };
    let mut greeting = Vec::new();
    std::io::stdin().read_to_end(&mut greeting).expect("a greeting");
    match mode.as_str() {
        "exits" => std::process::exit(3),
        "hangs" => loop {
            std::thread::park();
        },
        "intruder" => disturb(coordinator_of(&greeting)),
        _ => {}
    }
    let stdin = std::io::stdin().as_fd().try_clone_to_owned().expect("another descriptor");
    let ended = run_worker(&mut greeting.as_slice(), &mut UnixStream::from(stdin), &|init| {
        assert_eq!(init, b"init bytes");
        match mode.as_str() {
            "no factory" => Err("the module cannot be imported".to_owned()),
            _ => Ok(Arc::new(NativeFactory::default()) as Arc<dyn ChainFactory>),
        }
    });
    std::process::exit(if ended.is_ok() { 0 } else { 1 });
}

/// Disturbs the control port as strangers do: with noise, silence and a wrong secret. Exits with 4 unless the last is
/// refused.
fn disturb(coordinator: SocketAddr) {
    let mut noise = TcpStream::connect(coordinator).expect("the control port");
    // The port may be closed before the last byte.
    let _ = noise.write_all(&[0xff; 4096]);
    // Stays open as long as this process.
    std::mem::forget(TcpStream::connect(coordinator).expect("the control port"));

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let admitted = runtime.block_on(async {
        let mut stream = tokio::net::TcpStream::connect(coordinator).await.expect("the control port");
        let hello = Hello { role: Role::Control, features: Features::NONE };
        let secret = Secret::from_bytes([0; 32]);
        handshake::initiate(&mut stream, &secret, hello, DEFAULT_HANDSHAKE_TIMEOUT).await
    });
    if admitted.is_ok() {
        std::process::exit(4);
    }
}
