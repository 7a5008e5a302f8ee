//! Writes snapshots of tasks to the job's storage and reads them back. State on disk passes through memory one piece at
//! a time.

use std::sync::Arc;

use flownet_runtime::StatePart;
use flownet_runtime::snapshot::{FetchError, Piece, RestoredPart, StatePieces, WrittenState};
use flownet_store::{CheckpointStore, PartRef, SnapshotName, StoreError, TaskSnapshot};
use tokio::runtime::Handle;

/// Checkpoint resources that the tasks of an attempt share.
pub(crate) struct Checkpoints {
    pub(crate) store: CheckpointStore,
    pub(crate) generation: u64,
    /// Runtime that writes snapshots.
    pub(crate) control: Handle,
}

impl Checkpoints {
    /// Writes the snapshot of a task, or returns the error as text.
    pub(crate) async fn write(
        &self,
        name: SnapshotName,
        WrittenState { parts, pieces }: WrittenState,
    ) -> Result<TaskSnapshot, String> {
        let mut writer = self.store.begin_snapshot(name);
        for pieces in pieces {
            while let Some(piece) = self.next_piece(&pieces).await? {
                writer.write_piece(piece).await.map_err(|error| error.to_string())?;
            }
        }
        writer.finish(parts).await.map_err(|error| error.to_string())
    }

    /// Reads the next piece from disk, on another thread so that the control thread does not block.
    async fn next_piece(&self, pieces: &StatePieces) -> Result<Option<StatePart>, String> {
        let pieces = pieces.clone();
        let taken = self.control.spawn_blocking(move || pieces.take()).await;
        taken.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }

    /// Returns the state that a task restores. All of it is read except pieces, which the task fetches as it needs
    /// them.
    pub(crate) async fn restored(self: &Arc<Self>, refs: Vec<PartRef>) -> Result<Vec<RestoredPart>, StoreError> {
        let mut restored = Vec::with_capacity(refs.len());
        for part in refs {
            if part.is_piece {
                restored.push(RestoredPart::Piece(self.piece(part)));
            } else {
                let parts = self.store.read_parts(std::slice::from_ref(&part)).await?;
                restored.extend(parts.into_iter().map(RestoredPart::Here));
            }
        }
        Ok(restored)
    }

    fn piece(self: &Arc<Self>, part: PartRef) -> Piece {
        let (uid, name, share, shared) = (part.uid.clone(), part.name.clone(), part.share, Arc::clone(self));
        let fetch = Arc::new(move || {
            let read = shared.control.block_on(shared.store.read_parts(std::slice::from_ref(&part)));
            let bytes = read.map(|parts| parts.into_iter().next().map_or_else(Vec::new, |part| part.bytes));
            bytes.map_err(|error| FetchError { reason: error.to_string(), is_damage: error.is_damage() })
        });
        Piece { uid, name, share, fetch }
    }
}
