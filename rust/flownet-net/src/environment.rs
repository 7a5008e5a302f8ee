//! Network of one worker process: its data port, its connections, its flusher.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flownet_core::channel::RemoteChannel;
use flownet_core::partition::PartitionHandle;
use flownet_core::wire::WireLimits;
use flownet_core::{PartitionId, SubpartitionIndex};
use flownet_memory::{BufferPool, SegmentPool};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::config::NetworkConfig;
use crate::counters::{NetCounters, SharedCounters};
use crate::credentials::Credentials;
use crate::dialer::{Dialer, OpenRequest};
use crate::error::NetError;
use crate::flusher::Flusher;
use crate::heartbeat::Heartbeat;
use crate::inlets::Inlets;
use crate::listener;
use crate::registry::Registry;

/// Network of one worker process. Clones share it.
///
/// It serves partitions registered here to other processes. Channels opened here read the partitions of others.
/// [`shutdown`](Self::shutdown) ends it and waits; dropping the last clone ends it without waiting.
#[derive(Clone, Debug)]
pub struct NetworkEnvironment {
    owner: Arc<Owner>,
}

impl NetworkEnvironment {
    /// Opens the data port and starts serving on the caller's tokio runtime, which needs IO and time enabled.
    pub async fn bind(
        config: NetworkConfig,
        credentials: impl Into<Credentials>,
        pool: Arc<SegmentPool>,
    ) -> Result<Self, NetError> {
        config.validate()?;
        let runtime = Handle::try_current().map_err(|_| NetError::NoRuntime)?;
        let addr = SocketAddr::new(config.bind, 0);
        let bind_error = |source| NetError::Bind { addr, source: Arc::new(source) };
        let listener = TcpListener::bind(addr).await.map_err(bind_error)?;
        let local_addr = listener.local_addr().map_err(bind_error)?;

        let shared = Arc::new(EnvironmentShared {
            dials: Semaphore::new(config.max_concurrent_dials),
            config,
            credentials: credentials.into(),
            pool,
            local_addr,
            registry: Registry::default(),
            flusher: Flusher::default(),
            heartbeat: Heartbeat::default(),
            dialer: Dialer::default(),
            counters: Arc::default(),
            stop: watch::Sender::new(false),
            tasks: Mutex::new(Some(JoinSet::new())),
            runtime,
        });
        shared.spawn(listener::serve(Arc::clone(&shared), listener));
        shared.spawn(flush(Arc::clone(&shared)));
        shared.spawn(beat(Arc::clone(&shared)));
        Ok(Self { owner: Arc::new(Owner(shared)) })
    }

    /// Returns the address at which other processes reach the partitions of this one.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared().local_addr
    }

    /// Returns the segment pool of this process.
    pub fn pool(&self) -> &Arc<SegmentPool> {
        &self.shared().pool
    }

    /// Returns the settings that it was bound with.
    pub fn config(&self) -> &NetworkConfig {
        &self.shared().config
    }

    /// Creates a pool for a partition of `subpartitions`, sized by the settings.
    pub fn create_partition_pool(&self, subpartitions: u32) -> Result<Arc<BufferPool>, NetError> {
        Ok(self.pool().create_buffer_pool(self.config().sizing().partition(subpartitions))?)
    }

    /// Creates a pool for a gate with `remote_channels`, sized by the settings. Gates without remote channels need
    /// none.
    pub fn create_gate_pool(&self, remote_channels: u32) -> Result<Arc<BufferPool>, NetError> {
        Ok(self.pool().create_buffer_pool(self.config().sizing().gate(remote_channels))?)
    }

    /// Serves a partition to consumers, including those that have already requested it.
    ///
    /// With a `flush_timeout` above zero, the process's flusher also flushes it after at most that time. `None` and
    /// zero leave flushing to the writer.
    ///
    /// The partition's writer waits at `inlets`; see [`Inlets`].
    pub fn register_partition(&self, partition: PartitionHandle, flush_timeout: Option<Duration>, inlets: &Inlets) {
        if let Some(timeout) = flush_timeout.filter(|timeout| !timeout.is_zero()) {
            self.shared().flusher.register(partition.clone(), timeout);
        }
        self.shared().registry.insert(partition, inlets.connected());
    }

    /// Stops serving a partition. Channels that already read it continue.
    pub fn release_partition(&self, id: PartitionId) {
        self.shared().flusher.remove(id);
        self.shared().registry.remove(id);
    }

    /// Connects `channel` to a subpartition of the process at `peer`. Call it from any thread; it returns at once.
    ///
    /// Channels to one peer share one connection, which the first of them dials. Failures arrive as errors in the
    /// channel's gate. A failed connection is forgotten, so the next call dials again. The gate's task waits at
    /// `inlets`; see [`Inlets`].
    pub fn open_channel(
        &self,
        peer: SocketAddr,
        partition: PartitionId,
        subpartition: SubpartitionIndex,
        channel: Arc<RemoteChannel>,
        inlets: &Inlets,
    ) {
        let shared = self.shared();
        let request = OpenRequest { partition, subpartition, channel, inlets: inlets.connected() };
        shared.dialer.open(shared, peer, request);
    }

    /// Calls `work` on the runtime, and again after each pause that it returns, until it returns `None` or the
    /// environment ends. `work` must not block.
    pub fn repeat(&self, mut work: impl FnMut() -> Option<Duration> + Send + 'static) {
        self.shared().spawn(async move {
            while let Some(pause) = work() {
                tokio::time::sleep(pause).await;
            }
        });
    }

    /// Returns the counters of all connections since the environment was bound.
    pub fn counters(&self) -> NetCounters {
        self.shared().counters.snapshot()
    }

    /// Closes the port and all connections and waits until everything has ended. Channels that still read fail. Later
    /// calls return at once. Channels opened afterwards fail at once.
    pub async fn shutdown(&self) {
        let shared = self.shared();
        shared.stop.send_replace(true);
        let tasks = shared.tasks.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut tasks) = tasks {
            while tasks.join_next().await.is_some() {}
        }
        shared.flusher.clear();
        shared.registry.clear();
    }

    pub(crate) fn shared(&self) -> &Arc<EnvironmentShared> {
        &self.owner.0
    }
}

/// State shared by the tasks of an environment.
#[derive(Debug)]
pub(crate) struct EnvironmentShared {
    pub(crate) config: NetworkConfig,
    pub(crate) credentials: Credentials,
    pub(crate) pool: Arc<SegmentPool>,
    pub(crate) local_addr: SocketAddr,
    pub(crate) registry: Registry,
    pub(crate) flusher: Flusher,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) dialer: Dialer,
    /// Permits to dial a peer.
    pub(crate) dials: Semaphore,
    pub(crate) counters: Arc<SharedCounters>,
    stop: watch::Sender<bool>,
    /// `None` after shutdown: no task starts any more.
    tasks: Mutex<Option<JoinSet<()>>>,
    runtime: Handle,
}

impl EnvironmentShared {
    /// Returns the limits for frames of peers: their segments must not be larger than ours.
    pub(crate) fn wire_limits(&self) -> WireLimits {
        WireLimits::for_segments(u32::try_from(self.pool.segment_bytes()).unwrap_or(u32::MAX))
    }

    /// Runs `task` until its own end or the environment's. After shutdown the task is dropped unpolled.
    ///
    /// A task may be dropped at any await. Put cleanup that must run into a `Drop`.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut stop = self.stop.subscribe();
        let until_stopped = async move {
            tokio::select! {
                biased;
                // Every task holds the `EnvironmentShared` that owns the sender, so an error means the same as a stop.
                _ = stop.wait_for(|stop| *stop) => {}
                () = task => {}
            }
        };
        let refused = {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            match tasks.as_mut() {
                Some(tasks) => {
                    while tasks.try_join_next().is_some() {}
                    tasks.spawn_on(until_stopped, &self.runtime);
                    None
                }
                None => Some(until_stopped),
            }
        };
        // Drop it outside the lock, because that fails channels, which wakes tasks.
        drop(refused);
    }
}

/// Ends the environment when its last handle is dropped. Its tasks hold only [`EnvironmentShared`].
#[derive(Debug)]
struct Owner(Arc<EnvironmentShared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.stop.send_replace(true);
    }
}

async fn beat(shared: Arc<EnvironmentShared>) {
    shared.heartbeat.run(shared.config.heartbeat_interval).await;
}

async fn flush(shared: Arc<EnvironmentShared>) {
    shared.flusher.run().await;
}
