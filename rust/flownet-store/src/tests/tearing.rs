//! A store whose process dies: of the write under way nothing is there, or part of it, or all, and nobody was told.
//!
//! Behind a network an object is whole or not there; but answers are lost, and who asks again for what has been done is told
//! that it is there already. Or the store is busy, and does nothing.

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
    /// Steps until it dies.
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

    /// The same behind a network.
    pub(super) fn remote(inner: InMemory, seed: u64) -> Self {
        Self { is_remote: true, ..Self::new(inner, seed) }
    }

    /// Whether the network has its hand in this request, and how: true if it is done and the answer is lost.
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

    /// Begins another life, which ends after so many steps.
    pub(super) fn crash_after(&self, steps: u64) {
        self.left.store(steps, Ordering::Relaxed);
    }

    /// Work of somebody else, who does not die.
    pub(super) async fn calmly<T>(&self, work: impl Future<Output = T>) -> T {
        self.is_calm.store(true, Ordering::Relaxed);
        let done = work.await;
        self.is_calm.store(false, Ordering::Relaxed);
        done
    }

    /// Whether this step goes well; else whether it is the one at which the process dies.
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

    /// Lets others go first, at times.
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
                    // Entries of the log are whole in a folder, too: each is written beside, synced, and linked to its name.
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
            // At the step itself it may have gone through.
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
