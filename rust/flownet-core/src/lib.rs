//! Credit protocol of flownet: records, events, selectors, partitions, gates, channels, the wire codec and the two
//! connection state machines.
//!
//! This crate does no IO, reads no clock and starts no thread: equal inputs give equal outputs. Drivers (flownet-net
//! for TCP, flownet-runtime for tasks) move the bytes and pass the time as an argument. They register a
//! [`std::task::Waker`] wherever a caller must wait.
//!
//! ```text
//! RecordWriter -> ResultPartition -> SubpartitionCell -> ProducerConnection -> Outbox ~~ socket ~~ decode
//!                                          |                                                        |
//!                                          | (same process)                                ConsumerConnection
//!                                          v                                                        v
//! RecordReader <-------- InputGate <-- local channel                      InputGate <------- RemoteChannel
//! ```
//!
//! Where to start: [`record`] for the byte stream of records, [`wire`] for the frames, [`partition`] and [`gate`] for
//! the two ends that a task owns, [`exchange`] for the credit protocol between two processes.
#![forbid(unsafe_code)]

pub mod align;
pub mod alternatives;
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

// Under loom, compile only the models: compiling all other tests would take longer than running the models.
#[cfg(all(test, loom))]
#[path = "tests/loom.rs"]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
