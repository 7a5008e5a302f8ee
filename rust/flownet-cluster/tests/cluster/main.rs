//! Whole jobs of native operators: in this process, and over worker processes
//! that are this test binary run again.

mod chains;
mod failures;
mod rig;
mod runs;

use std::{io::Read, sync::Arc};

use flownet_cluster::run_worker;
use flownet_net::{
    Secret,
    handshake::{self, DEFAULT_HANDSHAKE_TIMEOUT, Features, Hello, Role},
};
use flownet_runtime::ChainFactory;

use crate::{
    chains::NativeFactory,
    rig::{WORKER_MODE, coordinator_of},
};

/// Not a test but what worker processes run; does nothing in the test process.
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
        "intruder" => try_a_wrong_secret(&greeting),
        _ => {}
    }
    let ended = run_worker(greeting.as_slice(), |init| {
        assert_eq!(init, b"init bytes");
        match mode.as_str() {
            "no factory" => Err("the module cannot be imported".to_owned()),
            _ => Ok(Arc::new(NativeFactory::default()) as Arc<dyn ChainFactory>),
        }
    });
    std::process::exit(if ended.is_ok() { 0 } else { 1 });
}

/// Exits with 4 unless the coordinator turns the wrong secret down.
fn try_a_wrong_secret(greeting: &[u8]) {
    let address = coordinator_of(greeting);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let admitted = runtime.block_on(async {
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("the control port");
        let hello = Hello { role: Role::Control, features: Features::NONE };
        let secret = Secret::from_bytes([0; 32]);
        handshake::initiate(&mut stream, &secret, hello, DEFAULT_HANDSHAKE_TIMEOUT).await
    });
    if admitted.is_ok() {
        std::process::exit(4);
    }
}
