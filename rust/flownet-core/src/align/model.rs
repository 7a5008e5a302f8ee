//! Common parts of the models of a checkpointing task: channel inputs, ended checkpoints, and an exploration of every
//! order of moves.

use std::collections::HashSet;
use std::fmt::Debug;

/// Next input of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ChannelInput {
    Record,
    Barrier(u64),
    Cancel(u64),
    End,
}

/// Result of a check, with the error found.
pub(super) type CheckResult = Result<(), String>;

/// Ended checkpoints, in order; true if the checkpoint was taken.
#[derive(Clone, Debug, Default)]
pub(super) struct EndedCheckpoints(pub(super) Vec<(u64, bool)>);

impl EndedCheckpoints {
    pub(super) fn add(&mut self, id: u64, is_taken: bool) -> CheckResult {
        match self.0.last() {
            Some((last, _)) if *last >= id => Err(format!("{id} was done after {last}")),
            _ => {
                self.0.push((id, is_taken));
                Ok(())
            }
        }
    }
}

/// Resumes a channel, which must be blocked.
pub(super) fn resume(channel: impl std::fmt::Display, is_blocked: &mut bool) -> CheckResult {
    if std::mem::replace(is_blocked, false) {
        Ok(())
    } else {
        Err(format!("channel {channel} was resumed and not blocked"))
    }
}

/// State of a task with its channels.
pub(super) trait World: Clone {
    type Move: Copy + Debug;

    /// Returns a key that distinguishes this state from all others.
    fn key(&self) -> String;

    fn moves(&self) -> Vec<Self::Move>;

    fn make(&mut self, one: Self::Move) -> CheckResult;

    /// Checks a state in which no move is possible.
    fn at_rest(&self) -> CheckResult;
}

/// Explores every order of moves. Returns the number of states, or the first error.
pub(super) fn explore<W: World>(first: W) -> Result<usize, String> {
    let (mut stack, mut seen) = (vec![first], HashSet::new());
    while let Some(world) = stack.pop() {
        if !seen.insert(world.key()) {
            continue;
        }
        let moves = world.moves();
        if moves.is_empty() {
            world.at_rest()?;
        }
        for one in moves {
            let mut next = world.clone();
            next.make(one).map_err(|what| format!("{what}, by {one:?} at {}", world.key()))?;
            stack.push(next);
        }
    }
    Ok(seen.len())
}
