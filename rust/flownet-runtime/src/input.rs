//! What has arrived for a task.

use crate::error::TaskError;

/// The records that have arrived for a task, one after the other.
#[derive(Debug)]
pub struct InputBatch<'a> {
    input: &'a mut TaskInput,
    now_ms: i64,
}

impl InputBatch<'_> {
    /// The next record and the index of its input in [`TaskSpec::inputs`](crate::spec::TaskSpec::inputs); `None` at the end of the batch.
    ///
    /// A batch may end early (an event that the task has to see, mail, an output that became unavailable); what is
    /// left comes with the next one. Ends with [`TaskError::Cancelled`] when the task is told to stop.
    #[inline]
    pub fn next(&mut self) -> Result<Option<(usize, &[u8])>, TaskError> {
        let _ = &self.input;
        Ok(None)
    }

    /// Wall-clock time of this batch, in milliseconds since the epoch: read once a batch, so that its records share it.
    pub fn now_ms(&self) -> i64 {
        self.now_ms
    }
}

#[derive(Debug)]
pub(crate) struct TaskInput;
