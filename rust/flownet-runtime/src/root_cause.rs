//! Identifies the root cause of a failure, so that the coordinator recognises a failure that repeats.
//!
//! Only errors of the program and of its data have one. Failures of machines, networks and disks have none, because
//! they may not occur in another attempt. They are retried as often as the restart strategy allows.

use serde::{Deserialize, Serialize};

use crate::error::{ExchangeFailureKind, TaskError};
use crate::iteration::IterationFault;
use crate::source::SourceError;

/// The root cause of a failure, comparable between attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootCause {
    /// Name of the operator, task or input; empty if the error names none.
    pub operator: String,
    /// Class of the error.
    pub error_type: String,
    /// The record that raised it. If no record is known, the text of the error.
    pub position: String,
}

impl RootCause {
    fn new(operator: &str, error_type: &str, position: &impl ToString) -> Self {
        Self { operator: operator.to_owned(), error_type: error_type.to_owned(), position: position.to_string() }
    }

    /// Returns true if the same operator raised the same class of error, even on another record.
    #[must_use]
    pub fn is_of_same_kind(&self, other: &Self) -> bool {
        (&self.operator, &self.error_type) == (&other.operator, &other.error_type)
    }
}

impl TaskError {
    /// The root cause of an error of the program or of its data; `None` if a retry may help.
    #[must_use]
    pub fn root_cause(&self) -> Option<RootCause> {
        match self {
            Self::Operator(failure) if failure.is_transient => None,
            Self::Operator(failure) => {
                let position = failure.record.as_ref().unwrap_or(&failure.message);
                Some(RootCause::new(&failure.operator, &failure.error_type, position))
            }
            Self::Source(error) => source_cause(error),
            Self::Exchange(failure) => match failure.kind {
                ExchangeFailureKind::RecordTooLarge { .. } => {
                    Some(RootCause::new("", "RecordTooLarge", &failure.message))
                }
                _ => None,
            },
            Self::Panic { task, message } => Some(RootCause::new(task, "panic", message)),
            Self::State(error) => Some(RootCause::new("", "State", error)),
            Self::Iteration(failure) if matches!(failure.fault, IterationFault::Disk { .. }) => None,
            Self::Iteration(failure) => Some(RootCause::new(&failure.operator, "Iteration", &failure.fault)),
            Self::Config(message) => Some(RootCause::new("", "Config", message)),
            _ => None,
        }
    }
}

/// An unreadable file or socket may be readable later.
fn source_cause(error: &SourceError) -> Option<RootCause> {
    match error {
        SourceError::Unreadable { .. } | SourceError::Connect { .. } | SourceError::Broken { .. } => None,
        error => Some(RootCause::new("", "Source", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ExchangeFailure, OperatorFailure};

    fn failure(record: Option<&str>, message: &str, is_transient: bool) -> TaskError {
        let failure = OperatorFailure {
            operator: "parse".into(),
            subtask: 3,
            parallelism: 4,
            record: record.map(str::to_owned),
            error_type: "ValueError".into(),
            message: message.into(),
            traceback: None,
            is_transient,
        };
        failure.into()
    }

    #[test]
    fn the_record_identifies_a_failure_and_else_its_text() {
        let of = |record, message| failure(record, message, false).root_cause().expect("an error of the program");
        assert_eq!(of(Some("'x'"), "after 1.2 s"), of(Some("'x'"), "after 3.4 s"));
        assert_ne!(of(Some("'x'"), "bad"), of(Some("'y'"), "bad"));
        assert!(of(Some("'x'"), "bad").is_of_same_kind(&of(Some("'y'"), "bad")));
        assert_ne!(of(None, "bad a"), of(None, "bad b"));
    }

    #[test]
    fn failures_that_a_retry_may_heal_have_no_root_cause() {
        let lost = ExchangeFailure::other("a connection");
        let broken = SourceError::Broken { address: "h:1".into(), reason: "reset".into() };
        for error in [failure(Some("1"), "", true), TaskError::Exchange(lost), broken.into(), TaskError::Cancelled] {
            assert_eq!(error.root_cause(), None, "{error}");
        }
        let missing = SourceError::Missing { path: "/in".into() };
        for error in [missing.into(), TaskError::Config("a setting".into())] {
            assert!(error.root_cause().is_some(), "{error}");
        }
    }
}
