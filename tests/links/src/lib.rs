//! Two hosts and a link between them, on one machine, without anything installed.
//!
//! A [`Host`] is a network namespace of the kernel: a TCP stack of its own. The [`Link`] is a program that carries IP
//! packets from one host's TUN device to the other's, with delay, loss and rate; what runs over it is the kernel's TCP.
//! (`tc netem` would do the same, where the kernel has it; this is the same everywhere.)
//!
//! Namespaces and devices have no name outside of the process that made them: they are gone with it, however it ends.

mod host;
mod link;

pub use host::Host;
pub use link::{Link, Shape};
