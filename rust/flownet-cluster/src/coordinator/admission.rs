//! The control port: who may become a worker of the job.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use flownet_net::{
    Secret,
    handshake::{self, DEFAULT_HANDSHAKE_TIMEOUT, Features, Hello, Role},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc::UnboundedSender},
};

use super::driver::Event;
use crate::rpc::{self, WorkerClient, within};

/// What both ends of a control connection say.
pub(crate) const CONTROL_HELLO: Hello = Hello { role: Role::Control, features: Features::NONE };

/// Admits whoever proves to know the secret, until it is aborted. Everybody
/// else is logged in one line and shut out; the job does not notice.
pub(super) async fn admit_workers(listener: TcpListener, secret: Secret, events: UnboundedSender<Event>) {
    let places = Arc::new(Semaphore::new(MAX_PENDING));
    loop {
        // A stranger who opens connections and says nothing takes places, not memory.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => {
                tokio::spawn(admit(stream, peer, secret.clone(), events.clone(), place));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a control connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn admit(
    mut stream: TcpStream,
    peer: SocketAddr,
    secret: Secret,
    events: UnboundedSender<Event>,
    _place: OwnedSemaphorePermit,
) {
    let hello = handshake::accept(&mut stream, &secret, CONTROL_HELLO, DEFAULT_HANDSHAKE_TIMEOUT).await;
    if let Err(error) = hello {
        tracing::warn!(%peer, %error, "refused a control connection");
        return;
    }
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "cannot set TCP_NODELAY");
    }
    let client = WorkerClient::new(tarpc::client::Config::default(), rpc::transport(stream)).spawn();
    match client.introduce(within(DEFAULT_HANDSHAKE_TIMEOUT)).await {
        Ok(introduction) => {
            // The driver may be gone: then so is the job, and the link with it.
            let _ = events.send(Event::Introduced { introduction, client });
        }
        Err(error) => tracing::warn!(%peer, %error, "a worker did not introduce itself"),
    }
}

/// Control connections that may be in their handshake at once.
const MAX_PENDING: usize = 64;
/// Pause after a failed accept: most often too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
