//! State that is larger than memory, on its way to the store and back: piece by piece, each a part that can be read by itself.
//!
//! # Invariants
//! - P1: a piece is of the form of any part of groups or of changes, without a header: those of a snapshot follow each other, and the
//!   part of the same state that has the header follows them all.
//! - P2: of a key that is in several of them the last one counts.
//! - P3: no more than one piece of a state is in memory at a time, neither when it is written nor when it is read; but for
//!   what was held in memory, of which all pieces are there as they are handed over, and each is given up as it is written.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Share, SnapshotError, StatePart};
use crate::error::TaskError;

/// What the operators of a task keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenState {
    /// What is all there.
    pub parts: Vec<StatePart>,
    /// What comes in pieces: before the parts.
    pub pieces: Vec<StatePieces>,
}

impl WrittenState {
    /// Adds what is kept beside it.
    pub(crate) fn add(&mut self, Self { parts, pieces }: Self) {
        self.parts.extend(parts);
        self.pieces.extend(pieces);
    }
}

/// Says, again and again, whether a task has written for long enough.
pub type IsOver<'a> = &'a mut dyn FnMut() -> bool;

/// State of one name as it was at a snapshot, to be taken piece by piece while the task goes on. Clones are of the same.
#[derive(Clone)]
pub struct StatePieces(Arc<Mutex<NextPiece>>);

type NextPiece = dyn FnMut() -> Result<Option<StatePart>, TaskError> + Send;

impl StatePieces {
    pub(crate) fn new(next: impl FnMut() -> Result<Option<StatePart>, TaskError> + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(next)))
    }

    /// The next one; none if that were all. It reads from disk, so it blocks.
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

/// What a task begins with, one of it.
#[derive(Clone, Debug)]
pub enum RestoredPart {
    /// It is here.
    Here(StatePart),
    /// It is fetched when its turn comes, and given up when it has been read.
    Piece(Piece),
}

/// A piece that is elsewhere.
#[derive(Clone)]
pub struct Piece {
    /// The operator: of [`StatePart::uid`].
    pub uid: String,
    /// The state.
    pub name: String,
    /// Who gets it back.
    pub share: Share,
    /// Brings its bytes, or says why it cannot. Called on the task's thread, which waits for it.
    pub fetch: Arc<dyn Fn() -> Result<Vec<u8>, FetchError> + Send + Sync>,
}

/// Why a piece could not be fetched.
#[derive(Clone, Debug)]
pub struct FetchError {
    /// What the store said.
    pub reason: String,
    /// Whether the piece is damaged or gone, so that another attempt finds the same.
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
    /// Who gets it back.
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
