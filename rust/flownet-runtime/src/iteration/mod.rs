//! Iterations: pass records through a part of the dataflow repeatedly, until a condition lets them leave.
//!
//! ```text
//!            +--------------------- feedback ---------------------+
//!            v                                                    |
//! input -> head -> step: any tasks and exchanges, but no cycle -> tail -> what leaves
//! ```
//!
//! Subtask *i* of the tail feeds subtask *i* of the head, in its process: the feedback is a queue
//! (`feedback.rs`) and no channel. The tail never waits for the head, so the tasks between them always drain:
//! a full loop cannot deadlock. The head processes the queue before it takes more input. So the number of
//! circulating records does not grow with input that arrives faster than the loop works. The queue is
//! bounded: memory first, then a file, then an error with numbers.
//!
//! # The end
//! After the input of a head has ended, the head sends rounds (`rounds.rs`), one after the other. A round
//! passes through every channel of the step after the records before it. In each task it waits for its equals
//! of all channels. It returns to the head through the queue. It reports whether the loop was quiet since the
//! round before, that is, whether no record entered it. This covers the records that the head itself took
//! from the queue. After channels were merged, it covers all heads whose records pass here.
//!
//! # Checkpoints
//! The tail stores circulating records: those that wait in the queue when the head takes the checkpoint, and
//! those that arrive in the queue from then until the tail takes it. The latter were sent before the head
//! took it. All other tasks of the step are downstream of the head and upstream of the tail. This requires
//! that barriers overtake nothing, so the plan refuses checkpoints with barriers that may. The head reads the
//! queue before its input, where the barrier waits. So when a checkpoint begins, the head admits input until
//! the barrier has arrived. Rounds are not stored: a resumed job counts them anew.
//!
//! # Invariants
//! - I1: a round overtakes no record, in no channel, task or queue; nor does a record overtake a round.
//! - I2: a task lets a round pass when all channels have delivered it or have ended, and not before. Channels
//!   from outside of the loop deliver none: they must have ended.
//! - I3: a head sends a round when the one before has returned, after all items before that one in its queue.
//! - I4: a round that returns is quiet only if every head whose records pass here sent it quiet.
//! - I5: a head ends its loop at the first quiet round that returns. Then no record circulates.
//! - I6: no channel is ahead of another by more than one round.
//!
//! Proof of I5: take the first record that some head sends after a round *r* that returned quiet. It derives
//! from a record that a head sent before its *r*. Since no head sent records in between, that head sent it
//! before its *r - 1*. By I1 and I2 the derived record was in a queue before *r - 1* arrived there, and by I3
//! it was sent on before *r*. So there is no such record. This requires that every tail receives rounds
//! either of all heads or of its own head alone, which the plan checks.

mod edges;
mod error;
pub(crate) mod feedback;
pub(crate) mod rounds;
#[cfg(test)]
mod tests;

pub use self::edges::FeedbackEdges;
pub use self::error::{IterationFailure, IterationFault};
pub use self::feedback::{FeedbackLimits, FeedbackReader, FeedbackWriter};
