//! Listening, on a thread of its own.

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

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; port 0 takes any.
    pub address: SocketAddr,
    /// Whether a port after it does where it is taken.
    pub may_move: bool,
    /// What every request has to show. None: the address is one of loopback, and only this machine asks.
    pub token: Option<String>,
    /// Where jobs that have ended are kept, if they are.
    pub archive: Option<ArchiveOptions>,
    /// Whether jobs may be cancelled, stopped and saved, by those who show the token.
    pub allows_actions: bool,
}

/// Shows jobs. Dropping it closes its port and all connections, half a second later at most: who watches a job is sent
/// its last state before.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    app: Arc<App>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens.
    ///
    /// # Errors
    /// No port is free, or there is no thread to be had.
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
            // Connections that have not ended by themselves end with it.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("flownet-web".to_owned()).spawn(body).map_err(ServeError::Thread)?;
        Ok(Self { address, app, stop, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Shows one more job, and says what it is asked for by.
    pub fn show(&self, job: JobView) -> String {
        self.app.jobs.add(job)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed, and there is nobody to tell.
            let _ = thread.join();
        }
    }
}

/// Notes what the jobs are like, once a second.
async fn note_all(app: &App) {
    let mut ticks = tokio::time::interval(BETWEEN_NOTES);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        app.jobs.all().iter().for_each(|job| job.note());
        archive_ended(app);
    }
}

/// Keeps jobs that have ended since.
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
            // One that has gone already, or no descriptor is left: both pass.
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
    // All seats are free when all connections have ended. Who does not read is not waited for any longer.
    let _ = tokio::time::timeout(CLOSE_WITHIN, seats.acquire_many(MOST_CONNECTIONS)).await;
    Ok(())
}

/// Answers on one connection until its client closes it, or, when the server stops, until what was asked for is sent.
async fn answer(stream: TcpStream, service: TowerToHyperService<Router>, stop: CancellationToken) {
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(ASK_WITHIN).max_buf_size(MOST_HEAD_BYTES);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    // What a client does wrong ends its own connection, and is no news.
    tokio::select! {
        _ = &mut connection => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Says that there are too many, and does not wait for who does not listen.
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
    // A port whose last connections are still dying is free.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

const BETWEEN_NOTES: Duration = Duration::from_secs(1);
const AFTER_ERROR: Duration = Duration::from_millis(50);
/// From one request, or the beginning of a connection, to the end of the next one's head.
const ASK_WITHIN: Duration = Duration::from_secs(30);
/// How long what was sent may lie unread at the client.
const READ_WITHIN: Duration = Duration::from_secs(30);
/// How long clients may take to read what they asked for before the server was closed.
const CLOSE_WITHIN: Duration = Duration::from_millis(500);
const MOST_CONNECTIONS: u32 = 256;
const MOST_HEAD_BYTES: usize = 16 * 1024;
const MORE_PORTS: u16 = 20;
const BACKLOG: i32 = 128;
const TOO_MANY: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n\
    content-length: 44\r\nretry-after: 1\r\n\r\n{\"error\": \"too many connections, ask later\"}";
