//! Proof of flownet's flow control by machine, over the machines of flownet-core themselves: [`schedule`] runs seeds of a
//! simulation, [`model`] explores every interleaving of small cases, and both move the same [`world`].
//!
//! `docs/internals/flow-control-proof.md` says what is proven, over what, and what is not.
//!
//! ```text
//! plan (workers, pools, links) ──> World <── one Action at a time ──┬── schedule: by chance, from a seed
//!                                    │                              ├── shrink: a failing schedule, with less and less
//!                          checks after every action                └── model: all of them
//! ```
#![forbid(unsafe_code)]

pub mod action;
mod alarm;
pub mod cases;
pub mod digest;
mod guard;
pub mod model;
pub mod plan;
pub mod schedule;
pub mod shrink;
pub mod world;

pub use action::Action;
pub use guard::Failure;
pub use plan::{Bug, Plan};
pub use world::World;
