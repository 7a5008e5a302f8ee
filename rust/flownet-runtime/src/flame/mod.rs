//! Flame graphs: samples the thread of one task for a while, and shows where it was.
//!
//! A graph is made once on request, by a thread of its own (`sampler.rs`) that ends afterwards. The task does
//! not notice it otherwise. A tree merges the samples frame by frame (`tree.rs`). The runtime knows no
//! stacks: the builder of chains reads them, through [`Stacks`].
//!
//! # Invariants
//! - I1: the state of a sample is the task's accounted state when the sample was due, before the sampler
//!   waited for anything. A task that waits for the interpreter is not found at work because the sampler had
//!   to wait for it, too.
//! - I2: a stack counts only if the state that it was read for has lasted until it was read. Otherwise the
//!   sample has the state alone, and if that is work it records that the stack was missed. The same applies
//!   if the sampler had waited and then found no function any more: the interpreter admits waiting threads
//!   where functions end.
//! - I3: samples that fell due while the sampler slept or waited count as the state that it finds, if that
//!   state began before they were due. Others are not taken and not invented.
//! - I4: a request has an answer when its time is over, even if the sampler still waits for something.
//! - I5: states in which a thread has no stack are recorded without a call: sampling a task that waits takes
//!   no interpreter.
//! - I6: bounded: [`MOST_SAMPLES`], [`LONGEST`], [`MOST_DEPTH`], [`MOST_FRAMES`], [`MOST_LETTERS`].

mod sampler;
mod tree;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::sampler::SamplingGuard;
use crate::time_accounting::{TimeShares, TimeState};

/// Number of samples, and the interval between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlameOrder {
    samples: u32,
    every: Duration,
}

/// An invalid order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlameOrderError {
    /// Too few or too many samples.
    #[error("samples = {0}: take 1 to {MOST_SAMPLES}")]
    Samples(u64),
    /// An interval that is too short or too long.
    #[error("every_ms = {every_ms}: take {} to {}", LEAST_APART.as_millis(), MOST_APART.as_millis())]
    Every {
        /// The requested interval.
        every_ms: u64,
    },
    /// An order that takes too long as a whole.
    #[error("{samples} samples {every_ms} ms apart take {:.1} s: it may be {} s at most",
            f64::from(*samples) * *every_ms as f64 / 1000.0, LONGEST.as_secs())]
    TooLong {
        /// The requested number.
        samples: u32,
        /// The requested interval.
        every_ms: u64,
    },
}

impl FlameOrder {
    /// An order of `samples` samples, `every_ms` milliseconds apart.
    ///
    /// # Errors
    /// A number or an interval is too large, or too small.
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

    /// Number of requested samples.
    pub fn samples(&self) -> u32 {
        self.samples
    }

    /// Interval between two samples.
    pub fn every(&self) -> Duration {
        self.every
    }

    /// Duration of the sampling.
    pub fn whole(&self) -> Duration {
        self.every.saturating_mul(self.samples)
    }

    /// Time at which a sample is due, from the beginning.
    fn due(&self, number: u32) -> Duration {
        self.every.saturating_mul(number + 1)
    }

    /// Number of samples that have fallen due by then.
    fn passed(&self, elapsed: Duration) -> u32 {
        let passed = elapsed.as_nanos() / self.every.as_nanos().max(1);
        u32::try_from(passed).unwrap_or(u32::MAX).min(self.samples)
    }
}

/// Reads the stacks of one task. Created, used and dropped on the thread that samples.
pub trait Stacks {
    /// The functions that a thread of the task is in, the innermost first: at most [`MOST_DEPTH`]. None if it
    /// is in no function now, or if there is no such thread. This call may block.
    fn read(&mut self, of: StackOf) -> Vec<StackFrame>;
}

/// A thread of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackOf {
    /// The task's own thread.
    Task,
    /// A helper thread, which runs calls that the task's operators wait for.
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
    /// A function of a file, with the line where it `begins` and its current line. Texts that are too long
    /// are cut.
    pub fn new(function: &str, file: &str, begins: u32, line: u32) -> Self {
        Self { function: shortened(function), file: shortened(file), begins, line }
    }

    /// Replaces the outer functions if there are more than [`MOST_DEPTH`].
    pub fn further_out() -> Self {
        Self::new("(further out)", "", 0, 0)
    }
}

/// Result of the sampling.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flame {
    /// Samples that were requested.
    pub asked: u32,
    /// Samples that were taken.
    pub taken: u32,
    /// Number of these in a state of waiting for outputs.
    pub back_pressured: u32,
    /// Time from the first moment to the last.
    pub lasted: Duration,
    /// The task's time accounting for the same time.
    pub time: TimeShares,
    /// True if the task has ended during the sampling.
    pub has_ended: bool,
    /// All frames, each after the one below it.
    pub frames: Vec<FlameFrame>,
}

/// A function or a state in which samples found a task, on top of its callers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlameFrame {
    /// Position of the frame below.
    pub below: Option<u32>,
    /// The function or state.
    pub place: TaskActivity,
    /// Samples in it, and in the frames on top of it.
    pub samples: u32,
}

/// Activity of a task in a sample.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskActivity {
    /// A function.
    Function {
        /// Its name.
        name: String,
        /// Its file.
        file: String,
        /// The line in which it was found most often.
        line: u32,
    },
    /// A state without a function.
    State(TimeState),
    /// At work, in a function that had ended before its stack could be read.
    Missed,
}

/// The thread whose stack belongs to a state.
fn stack_of(state: TimeState) -> Option<StackOf> {
    match state {
        TimeState::Busy | TimeState::HardBackPressured(_) => Some(StackOf::Task),
        TimeState::Idle | TimeState::Barrier | TimeState::Awaiting => Some(StackOf::Helper),
        TimeState::SoftBackPressured(_) | TimeState::Interpreter | TimeState::Aligning => None,
    }
}

/// Returns true if the task waits for outputs in this state.
fn is_back_pressured(state: TimeState) -> bool {
    matches!(state, TimeState::SoftBackPressured(_) | TimeState::HardBackPressured(_))
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MOST_LETTERS - 1) {
        // One more letter would be too many: the mark replaces two.
        Some((at, _)) if text[at..].chars().nth(1).is_some() => format!("{}…", &text[..at]),
        _ => text.to_owned(),
    }
}

/// Most samples of one graph.
pub const MOST_SAMPLES: u32 = 1000;
/// Shortest interval between samples.
pub const LEAST_APART: Duration = Duration::from_millis(10);
/// Longest interval between samples.
pub const MOST_APART: Duration = Duration::from_secs(1);
/// Longest time of one graph.
pub const LONGEST: Duration = Duration::from_secs(60);
/// Most functions of a stack.
pub const MOST_DEPTH: usize = 128;
/// Most frames of one graph. A stack that would need more is cut.
pub const MOST_FRAMES: usize = 10_000;
/// Most letters of a name.
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
