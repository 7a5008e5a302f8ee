//! What the models of a task that takes checkpoints have in common: what channels bring, what has become of checkpoints, and
//! the walk through every order of moves.

use std::collections::HashSet;
use std::fmt::Debug;

/// What a channel brings next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ChannelInput {
    Record,
    Barrier(u64),
    Cancel(u64),
    End,
}

/// What is wrong, if anything is.
pub(super) type CheckResult = Result<(), String>;

/// Checkpoints that came to an end, in order, and whether by being taken.
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

/// A channel goes on, which was blocked.
pub(super) fn resume(channel: impl std::fmt::Display, is_blocked: &mut bool) -> CheckResult {
    if std::mem::replace(is_blocked, false) {
        Ok(())
    } else {
        Err(format!("channel {channel} was resumed and not blocked"))
    }
}

/// A task with its channels, as far as they have got.
pub(super) trait World: Clone {
    type Move: Copy + Debug;

    /// What tells one state from another.
    fn key(&self) -> String;

    fn moves(&self) -> Vec<Self::Move>;

    fn make(&mut self, one: Self::Move) -> CheckResult;

    /// Nobody can move any more.
    fn at_rest(&self) -> CheckResult;
}

/// Looks at every order of moves; says how many states there were, or what went wrong first.
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
