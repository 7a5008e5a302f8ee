//! HTTP server of the web UI, on its own thread.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::pin;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use flownet_cluster::JobView;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::api::{App, routes};
use crate::archive::{Archive, ArchiveOptions};
use crate::error::ServeError;
use crate::guard::Guard;
use crate::jobs::Jobs;

/// Options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address to listen on; port 0 selects any free port.
    pub address: SocketAddr,
    /// Whether a later port may be used if this one is taken.
    pub may_move: bool,
    /// Token that every request must present. Without one, the address must be loopback, and only this machine has
    /// access.
    pub token: Option<String>,
    /// Archive of ended jobs, if they are archived.
    pub archive: Option<ArchiveOptions>,
    /// Whether clients with the token may cancel and stop jobs and take savepoints.
    pub allows_actions: bool,
}

/// Server that shows jobs. Dropping it closes its port and all connections within half a second. Clients that watch a
/// job receive its last state before.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    app: Arc<App>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts listening.
    ///
    /// # Errors
    /// Returns an error if no port is free, or if no thread can be started.
    pub fn start(options: Options) -> Result<Self, ServeError> {
        let listener = listen(options.address, options.may_move)?;
        let address = listener.local_addr().map_err(ServeError::Thread)?;
        let guard = Guard { token: options.token, allows_actions: options.allows_actions, port: address.port() };
        let archive = options.archive.map(|archive| {
            let folder = archive.folder.clone();
            Archive::open(archive).map_err(|error| ServeError::Archive { folder, error })
        });
        let archive = archive.transpose()?;
        let stop = CancellationToken::new();
        let app = Arc::new(App { jobs: Jobs::default(), guard, archive, closing: stop.clone() });
        let runtime = Builder::new_current_thread().enable_all().build().map_err(ServeError::Thread)?;
        let (shared, stopped) = (Arc::clone(&app), stop.clone());
        let body = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = note_all(&shared) => {}
                    served = serve(listener, routes(Arc::clone(&shared)), stopped) => {
                        if let Err(error) = served {
                            tracing::error!(%address, %error, "the page is not served any more");
                        }
                    }
                }
            });
            archive_ended(&shared);
            // This also ends connections that have not ended by themselves.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("flownet-web".to_owned()).spawn(body).map_err(ServeError::Thread)?;
        Ok(Self { address, app, stop, thread: Some(thread) })
    }

    /// Returns the address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds a job, and returns its id in the API.
    pub fn show(&self, job: JobView) -> String {
        self.app.jobs.add(job)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // The panic was already printed, and a drop cannot report it.
            let _ = thread.join();
        }
    }
}

/// Adds the current state of all jobs to their histories, once a second.
async fn note_all(app: &App) {
    let mut ticks = tokio::time::interval(BETWEEN_NOTES);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        app.jobs.all().iter().for_each(|job| job.note());
        archive_ended(app);
    }
}

/// Archives jobs that have ended since the last call.
fn archive_ended(app: &App) {
    let Some(archive) = &app.archive else { return };
    for job in app.jobs.all().iter().filter(|job| job.is_to_be_archived()) {
        if let Err(error) = archive.keep(job) {
            tracing::warn!(job = job.id, %error, "a job that has ended is not kept");
        }
    }
}

async fn serve(listener: StdListener, router: Router, stop: CancellationToken) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let seats = Arc::new(Semaphore::new(MOST_CONNECTIONS as usize));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            // The connection was already closed, or no descriptor is left. Both are temporary.
            Err(_) => {
                tokio::time::sleep(AFTER_ERROR).await;
                continue;
            }
        };
        let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(READ_WITHIN));
        let Ok(seat) = Arc::clone(&seats).try_acquire_owned() else {
            tokio::spawn(turn_away(stream));
            continue;
        };
        let (service, stop) = (TowerToHyperService::new(router.clone()), stop.clone());
        tokio::spawn(async move {
            answer(stream, service, stop).await;
            drop(seat);
        });
    }
    drop(listener);
    // All permits are free once all connections have ended. Stop waiting for clients that do not read.
    let _ = tokio::time::timeout(CLOSE_WITHIN, seats.acquire_many(MOST_CONNECTIONS)).await;
    Ok(())
}

/// Answers requests on one connection until its client closes it. When the server stops, pending answers are still
/// sent.
async fn answer(stream: TcpStream, service: TowerToHyperService<Router>, stop: CancellationToken) {
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(ASK_WITHIN).max_buf_size(MOST_HEAD_BYTES);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    // A client's error ends only its own connection, so it is not reported.
    tokio::select! {
        _ = &mut connection => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Refuses a connection above the limit, without waiting for a client that does not read.
async fn turn_away(mut stream: TcpStream) {
    let _ = tokio::time::timeout(ASK_WITHIN, stream.write_all(TOO_MANY.as_bytes())).await;
}

fn listen(address: SocketAddr, may_move: bool) -> Result<StdListener, ServeError> {
    let last = if may_move && address.port() > 0 { address.port().saturating_add(MORE_PORTS) } else { address.port() };
    for port in address.port()..=last {
        let at = SocketAddr::new(address.ip(), port);
        match bind(at) {
            Ok(listener) => return Ok(listener),
            Err(error) if may_move && error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(ServeError::Listen { address: at, error }),
        }
    }
    Err(ServeError::NoPort { address, tried: MORE_PORTS })
}

fn bind(address: SocketAddr) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Allows binding a port whose last connections are still closing.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

const BETWEEN_NOTES: Duration = Duration::from_secs(1);
const AFTER_ERROR: Duration = Duration::from_millis(50);
/// Time limit from one request, or from the start of a connection, to the end of the next request's head.
const ASK_WITHIN: Duration = Duration::from_secs(30);
/// Time for which sent data may remain unacknowledged by the client.
const READ_WITHIN: Duration = Duration::from_secs(30);
/// Time for clients to read pending answers when the server closes.
const CLOSE_WITHIN: Duration = Duration::from_millis(500);
const MOST_CONNECTIONS: u32 = 256;
const MOST_HEAD_BYTES: usize = 16 * 1024;
const MORE_PORTS: u16 = 20;
const BACKLOG: i32 = 128;
const TOO_MANY: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n\
    content-length: 44\r\nretry-after: 1\r\n\r\n{\"error\": \"too many connections, ask later\"}";
