//! Flame graphs: where the thread of one task is found, again and again for a while, for people who look at it.
//!
//! Asked for and then done once, by a thread of its own (`sampler.rs`) that is gone afterwards; a task does not notice
//! otherwise. What is found is put together frame by frame (`tree.rs`). The runtime knows no stacks: whoever builds chains
//! reads them, as [`Stacks`].
//!
//! # Invariants
//! - I1: what a sample says of the state is what the ledger ran when the sample was due, before anything was waited for. A
//!   task that waits for the interpreter is not found at work because the sampler had to wait for it too.
//! - I2: a stack counts only if the state that it was read for has lasted until it was read; else the sample has the state
//!   alone, and where that is work it says that the stack was missed. So it does where there was no function to be found any
//!   more when the sampler had waited: whoever waits for the interpreter is let in where functions end.
//! - I3: samples that fell due while their thread slept or waited count as what the task was found in, if that began before
//!   they were due; others are not taken, and nobody makes them up.
//! - I4: whoever asks has an answer when the time is over, whatever the sampler still waits for.
//! - I5: states in which a thread has no stack are told without calling anybody: to look at a task that waits takes no
//!   interpreter.
//! - I6: bounded: [`MOST_SAMPLES`], [`LONGEST`], [`MOST_DEPTH`], [`MOST_FRAMES`], [`MOST_LETTERS`].

mod sampler;
mod tree;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::sampler::SamplingGuard;
use crate::time_accounting::{TimeShares, TimeState};

/// How often to look, and how far apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlameOrder {
    samples: u32,
    every: Duration,
}

/// An order that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlameOrderError {
    /// Too few or too many samples.
    #[error("samples = {0}: take 1 to {MOST_SAMPLES}")]
    Samples(u64),
    /// Too close to each other, or too far apart.
    #[error("every_ms = {every_ms}: take {} to {}", LEAST_APART.as_millis(), MOST_APART.as_millis())]
    Every {
        /// As asked for.
        every_ms: u64,
    },
    /// All of it.
    #[error("{samples} samples {every_ms} ms apart take {:.1} s: it may be {} s at most",
            f64::from(*samples) * *every_ms as f64 / 1000.0, LONGEST.as_secs())]
    TooLong {
        /// As asked for.
        samples: u32,
        /// As asked for.
        every_ms: u64,
    },
}

impl FlameOrder {
    /// So many samples, so many milliseconds apart.
    ///
    /// # Errors
    /// What is too much, or too little.
    pub fn new(samples: u64, every_ms: u64) -> Result<Self, FlameOrderError> {
        let many = u32::try_from(samples).ok().filter(|many| (1..=MOST_SAMPLES).contains(many));
        let many = many.ok_or(FlameOrderError::Samples(samples))?;
        let every = Duration::from_millis(every_ms);
        if !(LEAST_APART..=MOST_APART).contains(&every) {
            return Err(FlameOrderError::Every { every_ms });
        }
        let order = Self { samples: many, every };
        if order.whole() > LONGEST {
            return Err(FlameOrderError::TooLong { samples: many, every_ms });
        }
        Ok(order)
    }

    /// How many are asked for.
    pub fn samples(&self) -> u32 {
        self.samples
    }

    /// From one to the next.
    pub fn every(&self) -> Duration {
        self.every
    }

    /// How long it takes.
    pub fn whole(&self) -> Duration {
        self.every.saturating_mul(self.samples)
    }

    /// When a sample is due, from the beginning.
    fn due(&self, number: u32) -> Duration {
        self.every.saturating_mul(number + 1)
    }

    /// Samples that have fallen due by then.
    fn passed(&self, elapsed: Duration) -> u32 {
        let passed = elapsed.as_nanos() / self.every.as_nanos().max(1);
        u32::try_from(passed).unwrap_or(u32::MAX).min(self.samples)
    }
}

/// Reads the stacks of one task. Made, used and dropped on the thread that samples.
pub trait Stacks {
    /// The functions that a thread of the task is in, the innermost first: at most [`MOST_DEPTH`]. None if it is in none now,
    /// or there is no such thread. It may have to wait.
    fn read(&mut self, of: StackOf) -> Vec<StackFrame>;
}

/// A thread of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackOf {
    /// Its own.
    Task,
    /// One beside it, that runs what its operators wait for.
    Helper,
}

/// A function on a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackFrame {
    function: String,
    file: String,
    begins: u32,
    line: u32,
}

impl StackFrame {
    /// A function of a file, where it `begins` and the line that it is in; a text that is too long is cut.
    pub fn new(function: &str, file: &str, begins: u32, line: u32) -> Self {
        Self { function: shortened(function), file: shortened(file), begins, line }
    }

    /// In place of the functions further out, where there are more than [`MOST_DEPTH`].
    pub fn further_out() -> Self {
        Self::new("(further out)", "", 0, 0)
    }
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flame {
    /// Samples that were asked for.
    pub asked: u32,
    /// Those that say something.
    pub taken: u32,
    /// Of these, in a state of waiting for outputs.
    pub back_pressured: u32,
    /// From the first moment to the last.
    pub lasted: Duration,
    /// What the task's ledger says of the same time.
    pub time: TimeShares,
    /// The task has ended meanwhile.
    pub has_ended: bool,
    /// All frames, each behind the one that it is on.
    pub frames: Vec<FlameFrame>,
}

/// Where samples found a task: in a function or a state, on what led there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlameFrame {
    /// Position of the frame that it is on.
    pub below: Option<u32>,
    /// What it is.
    pub place: TaskActivity,
    /// Samples in it, and in what is on it.
    pub samples: u32,
}

/// What a task is found in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskActivity {
    /// A function.
    Function {
        /// Its name.
        name: String,
        /// Where it is.
        file: String,
        /// The line in which it was found most often.
        line: u32,
    },
    /// A state without a function.
    State(TimeState),
    /// At work, in what was over before its stack could be read.
    Missed,
}

/// Whose stack belongs to a state.
fn stack_of(state: TimeState) -> Option<StackOf> {
    match state {
        TimeState::Busy | TimeState::HardBackPressured(_) => Some(StackOf::Task),
        TimeState::Idle | TimeState::Barrier | TimeState::Awaiting => Some(StackOf::Helper),
        TimeState::SoftBackPressured(_) | TimeState::Interpreter | TimeState::Aligning => None,
    }
}

/// Whether it waits for outputs in this state.
fn is_back_pressured(state: TimeState) -> bool {
    matches!(state, TimeState::SoftBackPressured(_) | TimeState::HardBackPressured(_))
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MOST_LETTERS - 1) {
        // One more letter would be too many: the mark takes the place of two.
        Some((at, _)) if text[at..].chars().nth(1).is_some() => format!("{}…", &text[..at]),
        _ => text.to_owned(),
    }
}

/// Samples of one graph.
pub const MOST_SAMPLES: u32 = 1000;
/// How close samples may be.
pub const LEAST_APART: Duration = Duration::from_millis(10);
/// How far apart they may be.
pub const MOST_APART: Duration = Duration::from_secs(1);
/// How long one graph may take.
pub const LONGEST: Duration = Duration::from_secs(60);
/// Functions on a stack.
pub const MOST_DEPTH: usize = 128;
/// Frames of one graph: a stack that would need more ends where there is no more.
pub const MOST_FRAMES: usize = 10_000;
/// Letters of a name.
pub const MOST_LETTERS: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_bounds_and_says_which_was_crossed() {
        assert!(FlameOrder::new(100, 50).is_ok_and(|order| order.whole() == Duration::from_secs(5)));
        assert!(FlameOrder::new(1000, 60).is_ok());
        let said =
            |samples, every_ms| FlameOrder::new(samples, every_ms).map_err(|error| error.to_string()).unwrap_err();
        assert_eq!(said(0, 50), "samples = 0: take 1 to 1000");
        assert_eq!(said(u64::MAX, 50), "samples = 18446744073709551615: take 1 to 1000");
        assert_eq!(said(1, 9), "every_ms = 9: take 10 to 1000");
        assert_eq!(said(1, u64::MAX), "every_ms = 18446744073709551615: take 10 to 1000");
        assert_eq!(said(61, 1000), "61 samples 1000 ms apart take 61.0 s: it may be 60 s at most");
    }

    #[test]
    fn samples_fall_due_one_distance_after_the_other() {
        let order = FlameOrder::new(3, 50).expect("within its bounds");
        let passed = |ms| order.passed(Duration::from_millis(ms));
        assert_eq!([0, 49, 50, 99, 100, 150, 10_000].map(passed), [0, 0, 1, 1, 2, 3, 3]);
        assert_eq!(order.due(2), order.whole());
    }

    #[test]
    fn long_names_are_cut_and_others_are_not() {
        let cut = |letters: usize| StackFrame::new(&"ä".repeat(letters), "", 1, 1).function.chars().count();
        assert_eq!([1, MOST_LETTERS - 1, MOST_LETTERS, MOST_LETTERS + 1, 5000].map(cut), [1, 299, 300, 300, 300]);
    }
}
