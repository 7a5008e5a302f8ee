//! Streams state that is larger than memory to the store and back, piece by piece. Each piece is a part that can be
//! decoded by itself.
//!
//! # Invariants
//! - P1: a piece has the format of a part of groups or of changes, without a header. The pieces of a snapshot follow
//!   each other, and the part of the same state with the header follows them all.
//! - P2: if a key is in several pieces, the last one counts.
//! - P3: at most one piece of a state is in memory at a time, both on writing and on reading. An exception is state
//!   that was held in memory: all its pieces exist when they are handed over, and each is freed when it is written.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Share, SnapshotError, StatePart};
use crate::error::TaskError;

/// The written state of a task's operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenState {
    /// The parts, complete.
    pub parts: Vec<StatePart>,
    /// The parts in pieces, which precede `parts`.
    pub pieces: Vec<StatePieces>,
}

impl WrittenState {
    /// Adds more written state.
    pub(crate) fn add(&mut self, Self { parts, pieces }: Self) {
        self.parts.extend(parts);
        self.pieces.extend(pieces);
    }
}

/// Returns true once a task has written for long enough.
pub type IsOver<'a> = &'a mut dyn FnMut() -> bool;

/// One named state as it was at a snapshot, to be taken piece by piece while the task continues. Clones share the
/// pieces.
#[derive(Clone)]
pub struct StatePieces(Arc<Mutex<NextPiece>>);

type NextPiece = dyn FnMut() -> Result<Option<StatePart>, TaskError> + Send;

impl StatePieces {
    pub(crate) fn new(next: impl FnMut() -> Result<Option<StatePart>, TaskError> + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(next)))
    }

    /// Takes the next piece; `None` after the last one. It reads from disk, so it blocks.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn take(&self) -> Result<Option<StatePart>, TaskError> {
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        next()
    }
}

impl PartialEq for StatePieces {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for StatePieces {}

impl fmt::Debug for StatePieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces").finish_non_exhaustive()
    }
}

/// One part of the state to restore.
#[derive(Clone, Debug)]
pub enum RestoredPart {
    /// A part in memory.
    Here(StatePart),
    /// A piece that is fetched in its turn, and freed when it has been read.
    Piece(Piece),
}

/// A piece in the store.
#[derive(Clone)]
pub struct Piece {
    /// The operator, see [`StatePart::uid`].
    pub uid: String,
    /// The state.
    pub name: String,
    /// The subtasks that restore it.
    pub share: Share,
    /// Fetches its bytes, or returns the reason for the failure. Called on the task's thread, which waits for it.
    pub fetch: Arc<dyn Fn() -> Result<Vec<u8>, FetchError> + Send + Sync>,
}

/// The reason why a piece could not be fetched.
#[derive(Clone, Debug)]
pub struct FetchError {
    /// The error of the store.
    pub reason: String,
    /// True if the piece is damaged or missing, so that another attempt fails too.
    pub is_damage: bool,
}

impl Piece {
    pub(super) fn fetched(&self) -> Result<StatePart, TaskError> {
        let (uid, name) = (self.uid.clone(), self.name.clone());
        match (self.fetch)() {
            Ok(bytes) => Ok(StatePart { uid, name, share: self.share, bytes }),
            Err(FetchError { reason, is_damage: true }) => {
                Err(SnapshotError::Damaged { uid, state: name, reason }.into())
            }
            Err(FetchError { reason, .. }) => Err(SnapshotError::OutOfReach { uid, state: name, reason }.into()),
        }
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uid, name, share, .. } = self;
        write!(f, "Piece({uid}/{name}, {share:?})")
    }
}

impl RestoredPart {
    /// The subtasks that restore it.
    pub fn share(&self) -> Share {
        match self {
            Self::Here(part) => part.share,
            Self::Piece(piece) => piece.share,
        }
    }
}

impl From<StatePart> for RestoredPart {
    fn from(part: StatePart) -> Self {
        Self::Here(part)
    }
}
