//! Scenarios on two simulated workers (see [`pair`]), properties over random operations, and shared state under real
//! threads. Tests of a single type are in that type's file, the models of loom in `loom.rs`.

mod budgets;
mod cancel;
mod controls;
mod credit;
mod events;
mod failure;
mod fill;
mod gates;
mod memory;
mod pair;
mod partitions;
mod parts;
mod random;
mod subpartitions;
mod threads;
mod wakers;

pub(crate) use pair::barrier;
pub(crate) use wakers::CountingWaker;
