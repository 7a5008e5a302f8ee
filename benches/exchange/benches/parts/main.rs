//! What each part of an exchange costs by itself, on one thread unless its id says otherwise: the sum of these is the
//! floor of a record's way.
//!
//! ```text
//! cargo bench --bench parts -- [FILTER]
//! ```

mod credit;
mod memory;
mod records;
mod routing;
mod rows;
mod wire;

use criterion::{criterion_group, criterion_main};

criterion_group!(
    parts,
    memory::segment_pool,
    memory::buffer_builder,
    routing::subpartition,
    routing::selector,
    records::write,
    records::read,
    records::write_read,
    credit::round_trip,
    credit::announce,
    rows::hash,
    rows::columns_runs_columns,
    wire::headers,
    wire::control,
);
criterion_main!(parts);
