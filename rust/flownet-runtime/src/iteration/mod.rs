//! Iterations: records that go through a part of the dataflow again and again, until they may leave it.
//!
//! ```text
//!            +--------------------- feedback ---------------------+
//!            v                                                    |
//! input -> head -> step: any tasks and exchanges, but no cycle -> tail -> what leaves
//! ```
//!
//! Subtask *i* of the tail feeds subtask *i* of the head, in its process: the feedback is a queue (`feedback.rs`) and no
//! channel. The tail never waits for the head, so what is between them always drains: a loop that is full cannot stand
//! still. The head works off what was fed back before it takes more input, so what circulates does not grow by input that
//! comes faster than the loop works. The queue is bounded: memory first, then a file, then an error with numbers.
//!
//! # The end
//! When the input of a head has ended, it sends rounds (`rounds.rs`), one after the other. A round goes through every channel
//! of the step behind the records before it, waits in each task for its like of all channels, and comes back to the head
//! by the queue. It says whether nothing entered the loop since the round before: what the head itself took from the
//! queue, and, after the channels were merged, what all heads did whose records come by here.
//!
//! # Checkpoints
//! What goes round is kept by the tail: what waits in the queue when the head takes the checkpoint, and what comes to the queue
//! from then until the tail takes it, which was sent before the head did. All that is within the step is downstream of one
//! and upstream of the other. This takes that barriers overtake nothing, so the plan refuses checkpoints that may. The head
//! reads the queue before its input, where the barrier waits: told that a checkpoint has begun, it lets input in until the
//! barrier has come. Rounds are not kept: a job that goes on counts them anew.
//!
//! # Invariants
//! - I1: a round overtakes no record, in no channel, task or queue; nor does a record overtake a round.
//! - I2: a task lets a round pass when all channels have brought it or have ended, and not before. Channels from outside
//!   of the loop bring none: they must have ended.
//! - I3: a head sends a round when the one before has come back, behind all that was before that in its queue.
//! - I4: a round that comes back is quiet only if every head whose records come by sent it quiet.
//! - I5: a head ends its loop at the first quiet round that comes back. Then nothing circulates.
//! - I6: no channel is ahead of another by more than one round.
//!
//! Why I5 holds: take the first record that some head sends behind a round *r* that came back quiet. It was made of one
//! that a head sent before its *r*, and, since nothing was sent between, before its *r - 1*. With I1 and I2 it was in a
//! queue before *r - 1* came there, and with I3 it was sent on before *r*. So there is no such record. It takes that every
//! tail hears either of all heads or of its own alone, which the plan checks.

mod edges;
mod error;
pub(crate) mod feedback;
pub(crate) mod rounds;
#[cfg(test)]
mod tests;

pub use self::edges::FeedbackEdges;
pub use self::error::{IterationFailure, IterationFault};
pub use self::feedback::{FeedbackLimits, FeedbackReader, FeedbackWriter};
