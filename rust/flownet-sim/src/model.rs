//! The credit protocol in small, every interleaving of it, by [`stateright`].
//!
//! The machines are flownet-core's own, in the same [`World`] as the simulation. They cannot be copied, so a state is the
//! list of actions that leads to it, and is built anew to be looked at; [`digest`] says when two are the same.
//!
//! # Properties
//! - *Safe*: nothing asserts, in the machines (their numbered invariants) or in the world (its W1 to W5), in any state.
//! - *All segments come home*, whenever everybody dies: checked in every state.
//! - *Delivered*: a state in which nobody can do anything has nothing undelivered. So there is no deadlock and no lost
//!   wake-up.
//! - *No ring*: no state can be reached from itself ([`ExplorationReport::longest_path`] is finite). So every run comes to such an
//!   end, whoever gets a turn when: what is written is delivered eventually. (Stateright's own `eventually` would miss
//!   runs that join others or go round.)

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::action::{Action, Turn};
use crate::digest::digest;
use crate::guard::{Failure, in_world};
use crate::plan::Plan;
use crate::world::World;

/// What is explored: a world, what its producers do one after the other, and what may break, once.
#[derive(Clone, Debug)]
pub struct Proof {
    /// Says what it is about.
    pub name: &'static str,
    /// The world; its links must be instant.
    pub plan: Plan,
    /// What has happened before anything is explored.
    pub opening: Vec<Action>,
    /// By producer.
    pub scripts: Vec<Vec<Action>>,
    /// At most one of these happens, anywhere.
    pub faults: Vec<Action>,
    /// Consumers keep what they read for as long as they like; otherwise they drop it at once.
    pub holds: bool,
    /// Anything may happen between a data frame's header and its payload.
    pub splits: bool,
}

/// What an exploration found.
#[derive(Clone, Debug)]
pub struct ExplorationReport {
    /// Different states.
    pub states: usize,
    /// Steps from state to state.
    pub steps: usize,
    /// Actions of the longest run; `None` if a state can be reached from itself.
    pub longest_path: Option<usize>,
    /// How it failed, and the actions that lead there.
    pub failure: Option<(Failure, Vec<Action>)>,
}

/// A state: how it is reached and what can be said of it.
#[derive(Clone, Debug)]
pub struct State {
    path: Arc<[Action]>,
    digest: u64,
    enabled: Vec<Action>,
    failure: Option<Failure>,
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for State {}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.digest);
    }
}

struct Exploration {
    proof: Proof,
    /// From digest to digest.
    steps: Arc<Mutex<Vec<(u64, u64)>>>,
}

impl Proof {
    /// Explores every state, or up to the first that fails.
    #[must_use]
    pub fn explore(&self) -> ExplorationReport {
        let steps = Arc::new(Mutex::new(Vec::new()));
        let exploration = Exploration { proof: self.clone(), steps: Arc::clone(&steps) };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let finish_when = HasDiscoveries::AnyFailures;
        // Breadth first: what fails is reached by the fewest actions, or nearly so.
        let checker = exploration.checker().threads(threads).finish_when(finish_when).spawn_bfs().join();
        let path = checker.discoveries().remove(SAFE);
        let failure = path.and_then(|path| {
            let last = path.last_state();
            last.failure.clone().map(|failure| (failure, last.path.to_vec()))
        });
        let steps = std::mem::take(&mut *steps.lock().unwrap_or_else(PoisonError::into_inner));
        let longest_path = longest_path(&steps);
        ExplorationReport { states: checker.unique_state_count(), steps: steps.len(), longest_path, failure }
    }

    /// The state that `path` leads to; its last step leads there from the state `from`.
    fn state(&self, path: Arc<[Action]>, from: u64) -> State {
        let outcome = in_world(&self.plan, |world| {
            // What comes before the last action was found to be right when its state was made.
            if let Some((&last, before)) = path.split_last() {
                for &action in self.opening.iter().chain(before) {
                    world.apply_again(action);
                }
                world.apply(last);
            } else {
                for &action in &self.opening {
                    world.apply(action);
                }
            }
            let enabled = self.enabled(world, &path);
            let places: Vec<_> = (0..self.scripts.len()).map(|producer| place_in_script(&path, producer)).collect();
            let digest = hash_of(&(digest(world), places, path.iter().any(Action::is_fault)));
            if enabled.iter().all(Action::is_fault) {
                world.assert_delivered();
            }
            world.assert_all_segments_home();
            (digest, enabled)
        });
        match outcome {
            Ok((digest, enabled)) => State { path, digest, enabled, failure: None },
            Err(failure) => {
                let digest = hash_of(&(from, path.last()));
                State { path, digest, enabled: Vec::new(), failure: Some(failure) }
            }
        }
    }

    fn enabled(&self, world: &World, path: &[Action]) -> Vec<Action> {
        let mut enabled: Vec<Action> = Vec::new();
        for (producer, script) in self.scripts.iter().enumerate() {
            enabled.extend(script.get(place_in_script(path, producer)).filter(|_| world.is_free(producer)));
        }
        enabled.extend(world.all_awake().into_iter().map(|turn| match turn {
            Turn::Read(consumer) => Action::Read { consumer, elements: 1 },
            Turn::Receive(connection, side) => {
                // What was on its way may be gone with its connection.
                let bytes = world.next_frame_bytes(connection, side, self.splits).max(1);
                Action::Receive { connection, side, bytes }
            }
            turn => Action::of(turn, usize::MAX),
        }));
        for consumer in 0..world.ends().1 {
            let (holds, blocks) = world.holds_and_blocks(consumer);
            enabled.extend(holds.then_some(Action::Drop { consumer, buffers: 1 }));
            enabled.extend(blocks.then_some(Action::Resume { consumer }));
        }
        if !path.iter().any(Action::is_fault) {
            enabled.extend(&self.faults);
        }
        enabled
    }
}

impl Model for Exploration {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.proof.state(Arc::new([]), 0)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(&state.enabled);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let next = self.proof.state(state.path.iter().copied().chain(self.proof.with(action)).collect(), state.digest);
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).push((state.digest, next.digest));
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(SAFE, |_, state: &State| state.failure.is_none())]
    }
}

impl Proof {
    /// The action, and that a consumer which does not hold drops what it reads.
    fn with(&self, action: Action) -> impl Iterator<Item = Action> {
        let drop = match action {
            Action::Read { consumer, .. } if !self.holds => Some(Action::Drop { consumer, buffers: 1 }),
            _ => None,
        };
        std::iter::once(action).chain(drop)
    }
}

fn place_in_script(path: &[Action], producer: usize) -> usize {
    path.iter().filter(|action| script_of(action) == Some(producer)).count()
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The producer whose script this is a part of.
fn script_of(action: &Action) -> Option<usize> {
    match *action {
        Action::Write { producer, .. }
        | Action::Broadcast { producer, .. }
        | Action::Flush { producer }
        | Action::Watermark { producer, .. }
        | Action::Barrier { producer, .. }
        | Action::Finish { producer }
        | Action::Register { producer } => Some(producer),
        _ => None,
    }
}

/// Steps of the longest way through a graph without rings, by taking away again and again what nothing leads to.
fn longest_path(steps: &[(u64, u64)]) -> Option<usize> {
    let mut next: HashMap<u64, Vec<u64>> = HashMap::new();
    let mut leading_in: HashMap<u64, usize> = HashMap::new();
    for &(from, to) in steps {
        next.entry(from).or_default().push(to);
        leading_in.entry(from).or_default();
        *leading_in.entry(to).or_default() += 1;
    }
    let states = leading_in.len();
    let mut layer: Vec<u64> = leading_in.iter().filter(|(_, count)| **count == 0).map(|(&state, _)| state).collect();
    let (mut done, mut depth) = (0, 0);
    while !layer.is_empty() {
        done += layer.len();
        let mut following = Vec::new();
        for to in layer.iter().filter_map(|state| next.get(state)).flatten() {
            let count = leading_in.entry(*to).or_default();
            *count -= 1;
            if *count == 0 {
                following.push(*to);
            }
        }
        depth += usize::from(!following.is_empty());
        layer = following;
    }
    (done == states).then_some(depth)
}

const SAFE: &str = "nothing is wrong";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_of_states_is_noticed() {
        assert_eq!(longest_path(&[(1, 2), (2, 3), (1, 3)]), Some(2));
        assert_eq!(longest_path(&[(1, 2), (2, 3), (3, 2)]), None);
    }
}
