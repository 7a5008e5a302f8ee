//! Runs Python operators as a [`TaskChain`](flownet_runtime::TaskChain) inside the tasks of a job.
//!
//! [`flownet_runtime::operator`] describes chains, and how records, event time and timers pass through them.
//! Here records are Python objects (`record_format.rs`). They are encoded when they leave the task
//! (`serializer.rs`) and decoded when they enter it. Keyed operators receive theirs as bytes, with the key
//! first (`record.rs`).
//!
//! # Invariants
//! In addition to those of the operator model:
//! - I1: an exception that a user's function raises becomes a
//!   [`TaskError::Operator`](flownet_runtime::TaskError::Operator) that names the operator of the function.
//! - I2: an operator owns the objects that it receives (`isolate.rs`), unless the job asks for
//!   `object_reuse`.

mod answers;
mod attach;
mod build;
mod call;
mod context;
mod failure;
mod function;
mod isolate;
mod keyed;
mod meter;
mod objects;
mod operators;
mod record;
mod record_format;
mod rows;
mod serializer;
mod sinks;
mod sources;
mod stacks;
mod switch_interval;
mod user_metrics;

pub use answers::PyAnswers;
pub use attach::TaskThreads;
pub(crate) use attach::{KeptThread, ThreadsOfTask};
pub use build::PythonChainFactory;
pub use context::{PyProcessContext, PyTaskContext, PyTriggerContext, PyWindowContext};
pub(crate) use failure::{CALL_TIMEOUT_ERROR, CODEC_ERROR, OperatorInfo, RETRACTION_ERROR, seconds_in};
pub(crate) use keyed::take_number_object;
pub use objects::Objects;
pub(crate) use record_format::{Collector, PythonFormat};
pub(crate) use sinks::{NO_PARTITION, PartFiles, UserSink, WriteCounter};
pub(crate) use sources::PySplitMark;
pub use user_metrics::{PyCounter, PyGauge, PyHistogram, PyMeter, PyMetrics};
