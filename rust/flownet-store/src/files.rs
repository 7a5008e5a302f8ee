//! Storage for checkpoints: writes the state of tasks and reads it back.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use flownet_runtime::snapshot::{Share, StatePart};
use futures::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::keys::{self, FILE_VARIABLE, KEY_VARIABLE, StateKeys};
use crate::private;
use crate::sealed::{self, HEADER_BYTES, Kind, SealError};
use crate::url::{self, Bucket, StorageLocation};

/// Checkpoint storage of one job. Clones refer to the same storage.
#[derive(Clone)]
pub struct CheckpointStore {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) url: Arc<str>,
    /// Folder, if the storage is local.
    pub(crate) folder: Option<Arc<std::path::Path>>,
    /// Keys that sign the log and manifests. Unset in processes that only write and read parts.
    pub(crate) keys: StateKeys,
    /// Whether parts get digests, which a signed manifest requires.
    has_digests: bool,
}

/// Name of a task's snapshot file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotName {
    /// Generation of the attempt.
    pub generation: u64,
    /// Number of the checkpoint.
    pub checkpoint: u64,
    /// Number of the task's vertex in the plan.
    pub vertex: u32,
    /// Index of the subtask.
    pub subtask: u32,
    /// Whether the file holds in-flight data, which is written after the task's state.
    pub overtaken: bool,
}

/// Location of the state that one task stored for one checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSnapshot {
    /// Parts of the state.
    pub parts: Vec<PartRef>,
    /// Total length of its files in bytes; 0 if there was no state to store.
    pub bytes: u64,
}

/// Location of a [`StatePart`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRef {
    /// uid of the operator.
    pub uid: String,
    /// Name of the state.
    pub name: String,
    /// Subtasks that receive the part on restore.
    pub share: Share,
    /// Path of the file.
    pub file: String,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// CRC32C of the part.
    pub crc: u32,
    /// SHA-256 in hexadecimal digits, if the manifest is signed.
    #[serde(default)]
    pub digest: Option<String>,
    /// Whether it holds only changes since the parts before it of the same state and subtask.
    #[serde(default)]
    pub is_of_changes: bool,
    /// Whether it is one of several pieces to read one after the other, because they may not fit into memory together.
    #[serde(default)]
    pub is_piece: bool,
}

/// Writes the state of a task in pieces. Each piece has its own file, which is durable before the next one begins.
pub struct SnapshotWriter<'a> {
    store: &'a CheckpointStore,
    name: SnapshotName,
    written: TaskSnapshot,
}

impl SnapshotName {
    fn path(self) -> Path {
        self.path_of(if self.overtaken { ".overtaken" } else { "" })
    }

    fn path_of(self, kind: &str) -> Path {
        let Self { generation, checkpoint, vertex, subtask, .. } = self;
        Path::from(format!("{}/{vertex:04}-{subtask}{kind}.snap", folder(generation, checkpoint)))
    }
}

/// Returns the folder of all files of a checkpoint.
pub(crate) fn folder(generation: u64, checkpoint: u64) -> String {
    format!("gen-{generation}/chk-{checkpoint}")
}

impl CheckpointStore {
    /// Opens the storage at `url`: a path or `file:///...`, or `s3://`, `gs://` or `az://` with a bucket and a folder.
    /// A missing local folder is created with mode 0700.
    ///
    /// # Errors
    /// Returns an error if the scheme is not supported, if the folder cannot be created, or if the environment lacks
    /// the settings of the object store.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let refuse = |why: String| StoreError::Url { url: url.to_owned(), why };
        match url::place(url)? {
            StorageLocation::Folder(folder) => {
                let made = private::make_folder(&folder);
                made.map_err(|error| refuse(format!("cannot make the folder: {error}")))?;
                Self::at(&folder).map_err(|error| refuse(error.to_string()))
            }
            StorageLocation::Objects(bucket) => Self::in_bucket(url, &bucket),
        }
    }

    /// Opens an existing storage for reading, without creating a folder. A missing object store is detected only when
    /// it is read.
    ///
    /// # Errors
    /// Returns the errors of [`open`](Self::open), or an error if there is no such folder.
    pub fn existing(url: &str) -> Result<Self, StoreError> {
        let refuse = |why: String| StoreError::Url { url: url.to_owned(), why };
        match url::place(url)? {
            StorageLocation::Folder(folder) if !folder.is_dir() => Err(refuse("there is no such folder".into())),
            StorageLocation::Folder(folder) => Self::at(&folder).map_err(|error| refuse(error.to_string())),
            StorageLocation::Objects(bucket) => Self::in_bucket(url, &bucket),
        }
    }

    #[cfg(feature = "cloud")]
    fn in_bucket(url: &str, bucket: &Bucket) -> Result<Self, StoreError> {
        let store = crate::objects::open(bucket);
        let store = store.map_err(|error| StoreError::Url { url: url.to_owned(), why: error.to_string() })?;
        Ok(Self::over(store, url.trim_end_matches('/'), None))
    }

    #[cfg(not(feature = "cloud"))]
    fn in_bucket(url: &str, bucket: &Bucket) -> Result<Self, StoreError> {
        let Bucket { scheme, name, folder } = bucket;
        let why = format!(
            "{scheme}: is not in this build, so {folder:?} in {name:?} is out of reach; build it with `make wheel`, or the feature `cloud`"
        );
        Err(StoreError::Url { url: url.to_owned(), why })
    }

    fn at(folder: &std::path::Path) -> Result<Self, Error> {
        let store = LocalFileSystem::new_with_prefix(folder)?.with_fsync(true).with_automatic_cleanup(true);
        let url = format!("file://{}", folder.display());
        Ok(Self::over(Arc::new(store), &url, Some(folder.into())))
    }

    /// Creates a storage over an object store.
    pub(crate) fn over(store: Arc<dyn ObjectStore>, url: &str, folder: Option<Arc<std::path::Path>>) -> Self {
        Self { store, url: url.into(), folder, keys: StateKeys::default(), has_digests: false }
    }

    /// Signs with these keys, and reads only objects that one of them has signed.
    #[must_use]
    pub fn with_keys(self, keys: StateKeys) -> Self {
        let has_digests = keys.are_set();
        Self { keys, has_digests, ..self }
    }

    /// Sets whether written parts get digests. Independent of keys, because another process may sign the manifests.
    #[must_use]
    pub fn with_digests(self, has_digests: bool) -> Self {
        Self { has_digests, ..self }
    }

    /// Returns true if written objects are signed.
    #[must_use]
    pub fn signs(&self) -> bool {
        self.keys.are_set()
    }

    /// Returns the URL of the storage.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Writes the state of a task. It is durable when this returns.
    ///
    /// # Errors
    /// Returns [`StoreError::Io`].
    pub async fn write_snapshot(&self, name: SnapshotName, parts: Vec<StatePart>) -> Result<TaskSnapshot, StoreError> {
        self.begin_snapshot(name).finish(parts).await
    }

    /// Begins to write the state of a task that comes partly in pieces.
    #[must_use]
    pub fn begin_snapshot(&self, name: SnapshotName) -> SnapshotWriter<'_> {
        SnapshotWriter { store: self, name, written: TaskSnapshot::default() }
    }

    /// Writes a file of parts and adds their locations to `written`.
    async fn write_parts(
        &self,
        path: &Path,
        parts: Vec<StatePart>,
        is_piece: bool,
        written: &mut TaskSnapshot,
    ) -> Result<(), StoreError> {
        let mut offset = HEADER_BYTES as u64;
        let mut refs = Vec::with_capacity(parts.len());
        for part in &parts {
            let (bytes, crc) = (part.bytes.len() as u64, crc32c::crc32c(&part.bytes));
            let (uid, name, file) = (part.uid.clone(), part.name.clone(), path.to_string());
            let (share, is_of_changes) = (part.share, part.is_of_changes());
            let digest = self.has_digests.then(|| digest_of(&part.bytes));
            refs.push(PartRef { uid, name, share, file, offset, bytes, crc, digest, is_of_changes, is_piece });
            offset += bytes;
        }
        let header = sealed::header(Kind::Snapshot, parts.iter().map(|part| &part.bytes[..]));
        let pieces = std::iter::once(header.to_vec()).chain(parts.into_iter().map(|part| part.bytes)).map(Bytes::from);
        self.create(path, PutPayload::from_iter(pieces)).await?;
        written.parts.extend(refs);
        written.bytes += offset;
        Ok(())
    }

    /// Reads parts back, complete and unchanged.
    ///
    /// # Errors
    /// Returns [`StoreError::Io`], or [`StoreError::Damaged`] if a part differs from the written one.
    pub async fn read_parts(&self, refs: &[PartRef]) -> Result<Vec<StatePart>, StoreError> {
        let mut parts = Vec::with_capacity(refs.len());
        for part in refs {
            let path = Path::from(part.file.as_str());
            let range = part.offset..part.offset + part.bytes;
            let bytes = match part.bytes {
                0 => Vec::new(),
                _ => match self.store.get_range(&path, range).await {
                    Ok(bytes) => bytes.to_vec(),
                    Err(Error::NotFound { .. }) => return Err(self.damaged(&part.file, "it is gone")),
                    Err(error) => return Err(self.unreadable(part, &path, &error).await),
                },
            };
            if bytes.len() as u64 != part.bytes || crc32c::crc32c(&bytes) != part.crc {
                let why = format!("state {:?} of operator {:?} is not what was written", part.name, part.uid);
                return Err(self.damaged(&part.file, &why));
            }
            self.check_digest(part, &bytes)?;
            parts.push(StatePart { uid: part.uid.clone(), name: part.name.clone(), share: part.share, bytes });
        }
        Ok(parts)
    }

    /// Compares a part of a complete file with the manifest. Adds a digest if `has_digest` is set.
    pub(crate) fn check_part(&self, part: &mut PartRef, file: &[u8], has_digest: bool) -> Result<(), StoreError> {
        let end = part.offset.saturating_add(part.bytes);
        let range = usize::try_from(part.offset).unwrap_or(usize::MAX)..usize::try_from(end).unwrap_or(usize::MAX);
        let Some(bytes) = file.get(range).filter(|bytes| crc32c::crc32c(bytes) == part.crc) else {
            return Err(self.damaged(
                &part.file,
                &format!("state {:?} of operator {:?} is not what was written", part.name, part.uid),
            ));
        };
        self.check_digest(part, bytes)?;
        if has_digest {
            part.digest.get_or_insert_with(|| digest_of(bytes));
        }
        Ok(())
    }

    /// Compares the bytes of a part with the digest in the manifest.
    pub(crate) fn check_digest(&self, part: &PartRef, bytes: &[u8]) -> Result<(), StoreError> {
        match &part.digest {
            Some(digest) if *digest != digest_of(bytes) => {
                Err(self.broken(&Path::from(&*part.file), SealError::Forged))
            }
            None if self.signs() => Err(self.broken(&Path::from(&*part.file), SealError::Unsigned)),
            _ => Ok(()),
        }
    }

    /// Returns the reason why a part cannot be read. Each store has its own error for a range beyond the end of its
    /// object, so compare the sizes.
    async fn unreadable(&self, part: &PartRef, path: &Path, error: &Error) -> StoreError {
        let wanted = part.offset + part.bytes;
        match self.store.head(path).await {
            Ok(found) if found.size < wanted => {
                self.damaged(&part.file, &format!("it has {} bytes of {wanted} or more", found.size))
            }
            _ => self.io("read", path, error),
        }
    }

    /// Writes an object that does not exist yet. If it does exist with the same contents, this succeeds too: the
    /// request was repeated because its first answer was lost.
    pub(crate) async fn create(&self, path: &Path, payload: PutPayload) -> Result<(), StoreError> {
        match self.put_new(path, payload.clone()).await {
            Ok(()) => Ok(()),
            Err(error @ Error::AlreadyExists { .. }) => {
                let found = match self.store.get(path).await {
                    Ok(found) => found.bytes().await,
                    Err(error) => Err(error),
                };
                let is_own = found.is_ok_and(|found| found == Bytes::from(payload));
                if is_own { Ok(()) } else { Err(self.io("write", path, &error)) }
            }
            Err(error) => Err(self.io("write", path, &error)),
        }
    }

    /// Writes an object if its path is free. A local file is accessible only to its owner.
    pub(crate) async fn put_new(&self, path: &Path, payload: PutPayload) -> Result<(), Error> {
        let file = self.folder.as_ref().map(|folder| folder.join(path.as_ref()));
        let failed = |source: std::io::Error| Error::Generic { store: "LocalFileSystem", source: source.into() };
        if let Some(folder) = file.as_ref().and_then(|file| file.parent()) {
            private::make_folder(folder).map_err(failed)?;
        }
        self.store.put_opts(path, payload, PutMode::Create.into()).await?;
        match &file {
            Some(file) => private::protect(file).map_err(failed),
            None => Ok(()),
        }
    }

    /// Reads the body of an object. Returns `None` if there is no such object.
    pub(crate) async fn read(&self, kind: Kind, path: &Path) -> Result<Option<Result<Vec<u8>, SealError>>, StoreError> {
        let got = match self.store.get(path).await {
            Ok(got) => got.bytes().await,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => Err(error),
        };
        let bytes = got.map_err(|error| self.io("read", path, &error))?;
        Ok(Some(sealed::unseal(kind, path.as_ref(), &bytes, &self.keys).map(<[u8]>::to_vec)))
    }

    /// Lists all objects below a folder.
    pub(crate) async fn list(&self, folder: Option<&str>) -> Result<Vec<Path>, StoreError> {
        let prefix = folder.map(Path::from);
        let found = self.store.list(prefix.as_ref()).map_ok(|meta| meta.location).try_collect().await;
        found.map_err(|error| self.io("list", &prefix.unwrap_or_default(), &error))
    }

    pub(crate) async fn delete(&self, path: &Path) -> Result<(), StoreError> {
        match self.store.delete(path).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.io("delete", path, &error)),
        }
    }

    pub(crate) fn io(&self, what: &str, path: &Path, error: &Error) -> StoreError {
        let reason = innermost(error);
        StoreError::Io { url: self.url.to_string(), what: what.to_owned(), path: path.to_string(), reason }
    }

    pub(crate) fn damaged(&self, path: &str, why: &str) -> StoreError {
        StoreError::Damaged { url: self.url.to_string(), path: path.to_owned(), why: why.to_owned() }
    }

    pub(crate) fn baseless(&self, part: &PartRef) -> StoreError {
        StoreError::Baseless { url: self.url.to_string(), uid: part.uid.clone(), state: part.name.clone() }
    }

    pub(crate) fn broken(&self, path: &Path, broken: SealError) -> StoreError {
        let why = match broken {
            SealError::Damaged(why) => return self.damaged(path.as_ref(), &why),
            SealError::Version(found) => {
                let (url, path) = (self.url.to_string(), path.to_string());
                return StoreError::Version { url, path, found, known: sealed::FORMAT };
            }
            SealError::Unsigned => format!(
                "is not signed, and {KEY_VARIABLE} or {FILE_VARIABLE} is set. If you trust all of this storage, sign a copy: \
                 `flownet savepoint {} TARGET --sign`, and begin from that",
                self.url
            ),
            SealError::Signed => format!(
                "is signed, and is read without a key: set {KEY_VARIABLE} or {FILE_VARIABLE} to the key of the job, and leave \
                 out --sign, which is for state that is not signed"
            ),
            SealError::Forged => format!(
                "has a signature that does not fit: it was changed, cut or moved, or it was signed with another key. Nothing \
                 of it was read. If the key has changed, put the old one behind the new one in {KEY_VARIABLE}; else begin \
                 from an older checkpoint or a savepoint that you trust"
            ),
        };
        StoreError::Signature { url: self.url.to_string(), path: path.to_string(), why }
    }
}

impl SnapshotWriter<'_> {
    /// Writes one piece. It is durable when this returns.
    ///
    /// # Errors
    /// Returns [`StoreError::Io`].
    pub async fn write_piece(&mut self, piece: StatePart) -> Result<(), StoreError> {
        let path = self.name.path_of(&format!(".{:06}", self.written.parts.len()));
        self.store.write_parts(&path, vec![piece], true, &mut self.written).await
    }

    /// Writes the parts that do not come in pieces, after all pieces.
    ///
    /// # Errors
    /// Returns [`StoreError::Io`].
    pub async fn finish(mut self, parts: Vec<StatePart>) -> Result<TaskSnapshot, StoreError> {
        if !parts.is_empty() {
            self.store.write_parts(&self.name.path(), parts, false, &mut self.written).await?;
        }
        Ok(self.written)
    }
}

fn digest_of(bytes: &[u8]) -> String {
    keys::digest(bytes).iter().fold(String::with_capacity(64), |text, byte| text + &format!("{byte:02x}"))
}

/// Returns the text of the innermost error, without the layers around it.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

impl fmt::Debug for CheckpointStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CheckpointStore").field(&self.url).finish()
    }
}
