//! Task loop, operator chains, keyed state, timers and sources of flownet.
//!
//! A *task* is one thread that runs one [`TaskChain`]: its operators. It reads data that has arrived at its gate and passes
//! it to the chain, which emits into the task's [`Outputs`]. The runtime depends on no operator language and on no
//! socket: chains come from a [`ChainFactory`], the exchange from flownet-core and flownet-net. The module [`operator`]
//! contains the parts of operators that do not depend on the record format.
//!
//! Start reading at [`spec`] (a task as data), then [`OperatorChain`](operator::OperatorChain) (the operators inside a task), [`deploy`] (assembly and
//! start of a task), and `task` (the loop itself).
//!
//! ```text
//! TaskSpec + NetworkEnvironment --prepare--> PreparedTask --connect--> --start--> TaskHandle
//!                                                                          |
//!                                          mail, timers, InputBatch -> OperatorChain -> Outputs
//! ```
#![forbid(unsafe_code)]

pub mod canonical;
pub mod deploy;
pub mod error;
pub mod flame;
pub mod inspection;
pub mod iteration;
pub mod late_splits;
pub mod latency;
pub mod log;
pub mod mailbox;
pub mod metrics;
pub mod operator;
pub mod operator_counts;
pub mod snapshot;
pub mod source;
pub mod spec;
pub mod state;
pub mod state_stats;
pub mod time;
pub mod time_accounting;
pub mod timer;
pub mod user_metrics;
pub mod varint;
pub mod watermark;
pub mod window;
pub mod work;

mod chain;
mod contention;
mod control;
mod input;
mod key;
mod outputs;
mod processor;
mod root_cause;
mod task;

pub use self::chain::{AwaitedInput, ChainFactory, GarbageCollections, SourceStatus, TaskChain, TaskContext};
pub use self::control::{TaskControl, TimeAccountant};
pub use self::deploy::{BufferNeed, Harness, PreparedTask, TaskHandle, buffers_needed};
pub use self::error::{ExchangeFailure, ExchangeFailureKind, OperatorFailure, TaskError};
pub use self::inspection::TaskInspection;
pub use self::mailbox::CancelToken;
pub use self::metrics::{EventTimeSnapshot, InFlightSnapshot, MetricsSnapshot, QueueSnapshot, TaskMetrics};
pub use self::outputs::Outputs;
pub use self::processor::TimeSpent;
pub use self::root_cause::RootCause;
pub use self::snapshot::{CheckpointContext, CheckpointMode, CheckpointOrder, CheckpointReport, StatePart};
