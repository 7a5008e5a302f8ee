//! A task that its owner runs step by step, on the owner's thread.

use std::any::Any;
use std::time::Duration;

use super::{Step, Task};
use crate::error::TaskError;
use crate::operator::RecordFormat;
use crate::snapshot::{RestoredPart, StatePart, WrittenState};
use crate::time_accounting::TimeState;

/// A task of any record format, for the harness.
pub(crate) trait ManualTask: Send {
    /// Opens the operators, and restores their state.
    fn open(&mut self, restored: &[RestoredPart]) -> Result<(), TaskError>;

    /// Runs the task's loop once.
    fn turn(&mut self) -> Result<TurnOutcome, TaskError>;

    /// Adds the state of the operators. Transactions prepared for the checkpoint are committed, since nothing can come
    /// between.
    fn keep(&mut self, checkpoint_id: u64, all: &mut Vec<StatePart>) -> Result<(), TaskError>;

    /// Wall-clock time of the next timer.
    fn next_timer_ms(&self) -> Option<i64>;

    /// Closes the operators.
    fn close(&mut self) -> Result<(), TaskError>;

    /// Its [`OperatorChain`](crate::operator::OperatorChain).
    fn chain(&self) -> &dyn Any;
}

/// The outcome of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnOutcome {
    /// There may be more to do.
    More,
    /// There is nothing to do at this time.
    Waiting,
    /// The task has finished.
    Ended,
}

impl<M: RecordFormat> ManualTask for Task<M> {
    fn open(&mut self, restored: &[RestoredPart]) -> Result<(), TaskError> {
        self.chain.open(&self.cx)?;
        if restored.is_empty() { Ok(()) } else { self.chain.restore(restored) }
    }

    fn turn(&mut self) -> Result<TurnOutcome, TaskError> {
        Ok(match Self::turn(self)? {
            Step::More | Step::Wait(Some(Duration::ZERO)) | Step::Held(Some(Duration::ZERO)) => TurnOutcome::More,
            Step::Wait(_) | Step::Held(_) | Step::Align(_) => TurnOutcome::Waiting,
            // The event that it waits for arrives in real time.
            Step::Await(limit) => {
                self.sleep(TimeState::Awaiting, limit);
                TurnOutcome::More
            }
            Step::End { drain } => {
                self.finish(drain)?;
                TurnOutcome::Ended
            }
        })
    }

    fn keep(&mut self, checkpoint_id: u64, all: &mut Vec<StatePart>) -> Result<(), TaskError> {
        let mut written = self.chain.snapshot(checkpoint_id, None)?;
        while self.chain.is_writing() {
            written.add(self.chain.write_on(checkpoint_id, &mut || false)?);
        }
        let WrittenState { parts, pieces } = written;
        for pieces in pieces {
            while let Some(part) = pieces.take()? {
                all.push(part);
            }
        }
        // State that is written in pieces precedes the parts.
        all.extend(parts);
        self.chain.complete(checkpoint_id)
    }

    fn next_timer_ms(&self) -> Option<i64> {
        self.chain.next_timer_ms()
    }

    fn close(&mut self) -> Result<(), TaskError> {
        self.chain.close()
    }

    fn chain(&self) -> &dyn Any {
        &self.chain
    }
}
