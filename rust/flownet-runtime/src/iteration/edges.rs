//! Connects the two ends of each feedback edge.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::feedback::{Feedback, FeedbackLimits, FeedbackReader, FeedbackWriter};

/// The feedback edges of a job in one process. Each attempt to run the job takes each end once.
#[derive(Debug, Default)]
pub struct FeedbackEdges(Mutex<HashMap<EdgeEnd, Half>>);

/// The iteration, and the subtask of both its ends.
type EdgeEnd = (u32, u32);

/// An edge with one end taken. It keeps nothing of an end that was dropped since.
#[derive(Debug)]
struct Half {
    feedback: Weak<Feedback>,
    taken: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Head,
    Tail,
}

impl FeedbackEdges {
    /// The end from which the head of the iteration reads.
    pub fn reader(&self, iteration: u32, subtask: u32) -> FeedbackReader {
        FeedbackReader::new(self.take((iteration, subtask), End::Head))
    }

    /// The end to which its tail writes.
    pub fn writer(&self, iteration: u32, subtask: u32, limits: FeedbackLimits) -> FeedbackWriter {
        FeedbackWriter::new(self.take((iteration, subtask), End::Tail), limits)
    }

    fn take(&self, edge: EdgeEnd, end: End) -> Arc<Feedback> {
        let mut edges = self.lock();
        // If the same end was taken before, it belongs to an earlier attempt, whose other end was never
        // built.
        if let Some(Half { feedback, .. }) = edges.remove(&edge).filter(|half| half.taken != end)
            && let Some(feedback) = feedback.upgrade()
        {
            return feedback;
        }
        let feedback = Arc::new(Feedback::default());
        edges.insert(edge, Half { feedback: Arc::downgrade(&feedback), taken: end });
        feedback
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<EdgeEnd, Half>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
