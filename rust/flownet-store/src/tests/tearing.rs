//! Simulates a store whose process dies. A write in progress then leaves no bytes, a part of them, or all, and its
//! result is lost.
//!
//! The remote variant simulates a network store, in which an object is complete or absent. Answers can be lost, so a
//! repeated request may find its own object. The store may also be busy and do nothing.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

#[derive(Debug)]
pub(super) struct TearingStore {
    inner: InMemory,
    /// Steps until the process dies.
    left: AtomicU64,
    is_calm: AtomicBool,
    is_remote: bool,
    seed: AtomicU64,
}

impl TearingStore {
    pub(super) fn new(inner: InMemory, seed: u64) -> Self {
        let (left, is_calm) = (AtomicU64::new(u64::MAX), AtomicBool::new(false));
        Self { inner, left, is_calm, is_remote: false, seed: AtomicU64::new(seed) }
    }

    /// Creates a network store.
    pub(super) fn remote(inner: InMemory, seed: u64) -> Self {
        Self { is_remote: true, ..Self::new(inner, seed) }
    }

    /// Returns the network fault of this request, if there is one: true if the request is done but its answer is lost.
    fn fault(&self) -> Option<bool> {
        if !self.is_remote || self.is_calm.load(Ordering::Relaxed) {
            return None;
        }
        match self.draw() % 40 {
            0..4 => Some(true),
            4 => Some(false),
            _ => None,
        }
    }

    /// Starts another life, which ends after `steps` steps.
    pub(super) fn crash_after(&self, steps: u64) {
        self.left.store(steps, Ordering::Relaxed);
    }

    /// Runs `work` of another process, without crashes or faults.
    pub(super) async fn calmly<T>(&self, work: impl Future<Output = T>) -> T {
        self.is_calm.store(true, Ordering::Relaxed);
        let done = work.await;
        self.is_calm.store(false, Ordering::Relaxed);
        done
    }

    /// Takes one step. On an error, the value is true if the process dies at this step.
    fn step(&self) -> Result<(), bool> {
        if self.is_calm.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.left.load(Ordering::Relaxed) {
            0 => Err(false),
            left => {
                self.left.store(left - 1, Ordering::Relaxed);
                if left == 1 { Err(true) } else { Ok(()) }
            }
        }
    }

    /// Sometimes lets other tasks run first.
    async fn travel(&self) {
        if self.is_remote && self.draw().is_multiple_of(2) {
            tokio::task::yield_now().await;
        }
    }

    fn draw(&self) -> u64 {
        let mut rng = fastrand::Rng::with_seed(self.seed.fetch_add(1, Ordering::Relaxed));
        rng.u64(..)
    }
}

fn busy() -> Error {
    Error::Generic { store: "tearing", source: "503: slow down".into() }
}

fn dead() -> Error {
    Error::Generic { store: "tearing", source: "the process is dead".into() }
}

impl fmt::Display for TearingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tearing")
    }
}

#[async_trait]
impl ObjectStore for TearingStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.travel().await;
        match self.step() {
            Ok(()) => match self.fault() {
                Some(false) => Err(busy()),
                Some(true) => {
                    self.inner.put_opts(location, payload.clone(), opts.clone()).await?;
                    self.inner.put_opts(location, payload, opts).await
                }
                None => self.inner.put_opts(location, payload, opts).await,
            },
            Err(false) => Err(dead()),
            Err(true) => {
                let draw = self.draw();
                let bytes = payload.iter().flat_map(|piece| piece.to_vec()).collect::<Vec<u8>>();
                let kept = match draw % 3 {
                    0 => return Err(dead()),
                    // In a folder, log entries are complete too: each is written to another file, synced, and linked to
                    // its name.
                    _ if self.is_remote || location.as_ref().starts_with("epochs/") => bytes.len(),
                    1 => bytes.len(),
                    _ => (draw / 3) as usize % bytes.len(),
                };
                let _ = self.inner.put_opts(location, bytes[..kept].to_vec().into(), opts).await;
                Err(dead())
            }
        }
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(dead())
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.travel().await;
        self.step().map_err(|_| dead())?;
        if self.fault() == Some(false) {
            return Err(busy());
        }
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        match self.step() {
            Ok(()) => self.inner.delete_stream(locations),
            // The request at which the process dies may still have been executed.
            Err(true) if self.draw().is_multiple_of(2) => {
                self.inner.delete_stream(locations).map(|deleted| deleted.and_then(|_| Err(dead()))).boxed()
            }
            Err(_) => stream::once(async { Err(dead()) }).boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.step() {
            Ok(()) => self.inner.list(prefix),
            Err(_) => stream::once(async { Err(dead()) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.step().map_err(|_| dead())?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(dead())
    }
}
