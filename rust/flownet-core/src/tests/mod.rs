//! Scenarios on two simulated workers (see [`pair`]), properties over random operations, and what threads share under
//! real threads. Tests of one type alone stand in that type's file, the models of loom in `loom.rs`.

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
