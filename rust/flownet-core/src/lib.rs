//! The credit protocol of flownet, from a record to a frame and back: records, events, selectors, partitions, gates,
//! channels, the wire codec and the two connection machines.
//!
//! Nothing here does IO, reads a clock or starts a thread: the same inputs give the same outputs. Drivers
//! (flownet-net for TCP, flownet-runtime for tasks) move the bytes, carry the time in as an argument and hang a
//! [`std::task::Waker`] wherever something has to be waited for.
//!
//! ```text
//! RecordWriter -> ResultPartition -> SubpartitionCell -> ProducerConnection -> Outbox ~~ socket ~~ decode
//!                                          |                                                        |
//!                                          | (same process)                                ConsumerConnection
//!                                          v                                                        v
//! RecordReader <-------- InputGate <-- local channel                      InputGate <------- RemoteChannel
//! ```
//!
//! Where to read first: [`record`] for the byte stream of records, [`wire`] for the frames, [`partition`] and
//! [`gate`] for the two ends a task holds, [`exchange`] for the credit protocol between two processes.
#![forbid(unsafe_code)]

pub mod align;
pub mod channel;
pub mod combining_lock;
pub mod credit;
pub mod debloat;
pub mod error;
pub mod event;
pub mod exchange;
mod fence;
pub mod gate;
pub mod ids;
pub mod keygroup;
mod lock;
pub mod partition;
pub mod record;
pub mod selector;
pub mod sizing;
pub mod subpartition;
mod sync;
pub mod text;
pub mod wire;

pub use align::Aligner;
pub use channel::RemoteChannel;
pub use credit::{Backlog, Credit};
pub use debloat::{Debloater, FillLimit};
pub use error::{ExchangeError, PeerViolation, ProtocolError, RecordError, SelectError, WireError};
pub use event::{Barrier, BarrierKind, CustomEvent, Event, EventError, Round};
pub use gate::InputGate;
pub use ids::{ChannelId, ChannelIndex, CheckpointId, KeyGroup, PartitionId, SubpartitionIndex};
pub use partition::{PartitionHandle, ResultPartition, SubpartitionCell, SubpartitionStats};
pub use record::{Emit, FlushPolicy, RecordReader, RecordWriter};
pub use selector::{Selection, Selector, Target};
pub use sizing::PoolSizing;
pub use subpartition::{Element, NextElement, PolledElement};

#[cfg(feature = "planted-bugs")]
pub use flownet_memory::{Bug, plant};

// For loom, its models alone: compiling all other tests too would take longer than to run these.
#[cfg(all(test, loom))]
#[path = "tests/loom.rs"]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
