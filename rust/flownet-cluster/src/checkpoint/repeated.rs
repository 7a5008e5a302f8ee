//! Recognises a failure that repeats without progress, which no restart heals.
//!
//! Progress is a checkpoint that is newer than the last one at the previous failure. Only failures with a [`RootCause`]
//! count: those of the program and its data. Lost workers, connections and storages never count.

use flownet_runtime::RootCause;

/// A failure that has repeated too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RepeatedFailure {
    /// Number of attempts that ended with it.
    pub(crate) attempts: u32,
    /// Last published checkpoint at each of these attempts; none if there was none yet.
    pub(crate) checkpoint: Option<u64>,
}

/// Failures since the last progress.
#[derive(Debug, Default)]
pub(crate) struct FailuresWithoutProgress {
    checkpoint: Option<u64>,
    root_causes: Vec<RootCause>,
}

impl FailuresWithoutProgress {
    /// Counts a failure; `checkpoint` is the last published one. Returns the repeated failure if this one is final.
    pub(crate) fn count(&mut self, root_cause: Option<RootCause>, checkpoint: Option<u64>) -> Option<RepeatedFailure> {
        if checkpoint > self.checkpoint {
            self.root_causes.clear();
            self.checkpoint = checkpoint;
        }
        let root_cause = root_cause?;
        self.root_causes.push(root_cause.clone());
        let like = |is_like: &dyn Fn(&RootCause) -> bool| self.root_causes.iter().filter(|one| is_like(one)).count();
        let same = like(&|one| *one == root_cause);
        let of_same_kind = like(&|one| one.is_of_same_kind(&root_cause));
        let attempts = if same >= SAME_POSITION {
            same
        } else if of_same_kind >= SAME_KIND {
            of_same_kind
        } else {
            return None;
        };
        Some(RepeatedFailure { attempts: attempts as u32, checkpoint: self.checkpoint })
    }
}

/// Number of failures at the same position after which the job does not restart.
const SAME_POSITION: usize = 5;
/// The same for failures of one operator with one class of error at any positions. Records that are random or carry a
/// time look different in each attempt.
const SAME_KIND: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(position: &str) -> Option<RootCause> {
        let (operator, error_type) = ("parse".to_owned(), "ValueError".to_owned());
        Some(RootCause { operator, error_type, position: position.to_owned() })
    }

    #[test]
    fn a_failure_at_the_same_position_is_final_at_the_fifth_attempt() {
        let mut failures = FailuresWithoutProgress::default();
        for _ in 1..SAME_POSITION {
            assert_eq!(failures.count(at("'x'"), None), None);
            assert_eq!(failures.count(None, None), None, "a lost worker in between is not counted");
        }
        assert_eq!(failures.count(at("'x'"), None), Some(RepeatedFailure { attempts: 5, checkpoint: None }));
    }

    #[test]
    fn a_newer_checkpoint_is_progress_and_failures_are_counted_anew() {
        let mut failures = FailuresWithoutProgress::default();
        for checkpoint in 1..100 {
            assert_eq!(failures.count(at("'x'"), Some(checkpoint)), None);
        }
        for _ in 2..SAME_POSITION {
            assert_eq!(failures.count(at("'x'"), Some(99)), None);
        }
        assert_eq!(failures.count(at("'x'"), Some(99)), Some(RepeatedFailure { attempts: 5, checkpoint: Some(99) }));
    }

    #[test]
    fn failures_of_one_kind_at_other_positions_are_final_later() {
        let mut failures = FailuresWithoutProgress::default();
        let repeated = (1..100).find_map(|n| failures.count(at(&n.to_string()), Some(1)));
        assert_eq!(repeated, Some(RepeatedFailure { attempts: 10, checkpoint: Some(1) }));
    }

    #[test]
    fn several_poison_records_that_take_turns_are_each_counted() {
        let mut failures = FailuresWithoutProgress::default();
        let mut turns = ["'x'", "'y'"].into_iter().cycle();
        let attempts = (1..).find(|_| failures.count(at(turns.next().expect("a cycle")), None).is_some());
        assert_eq!(attempts, Some(9), "the fifth time that 'x' fails");
    }

    #[test]
    fn failures_that_a_retry_may_heal_are_never_final() {
        let mut failures = FailuresWithoutProgress::default();
        assert!((0..1_000).all(|_| failures.count(None, Some(1)).is_none()));
    }
}
