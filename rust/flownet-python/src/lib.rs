//! Python bindings of flownet: handles, Python operators, object codec, errors.
//!
//! The extension module is `flownet._flownet`; the package `python/flownet` is its user interface. This crate
//! contains no policy. It converts Python's description of a job into flownet-cluster's (`graph`,
//! `settings`), and runs users' functions inside tasks ([`chain`]). It also moves their records as bytes
//! ([`codec`]), and converts errors to exceptions ([`errors`]).
//!
//! # Invariants
//! - I1: no wait holds the interpreter: calls that may take long run through `door`, and task threads detach
//!   first.
//! - I2: nothing imports numpy, `decimal` or the like before a value requires it, so that `import flownet`
//!   stays fast.

pub mod chain;
pub mod codec;
pub mod errors;
mod files;

mod bench;
mod checkpoints;
mod codec_functions;
mod convert;
mod door;
mod garbage;
mod graph;
mod harness;
mod job;
mod kept_classes;
mod kept_state;
mod leave;
mod log;
mod logging;
mod metrics;
mod rows;
mod settings;
mod shown;
mod time_zones;
mod tls;
mod web;
mod worker;
mod worker_pool;

use pyo3::prelude::*;

/// Private: the Rust side of flownet. Use the package `flownet`.
#[pymodule]
mod _flownet {
    #[pymodule_export]
    use super::bench::{bench_grid, bench_label, bench_party, bench_run, bench_settings, bench_table};
    #[pymodule_export]
    use super::chain::PySplitMark;
    #[pymodule_export]
    use super::chain::{PyAnswers, PyProcessContext, PyTaskContext, PyTriggerContext, PyWindowContext};
    #[pymodule_export]
    use super::chain::{PyCounter, PyGauge, PyHistogram, PyMeter, PyMetrics};
    #[pymodule_export]
    use super::checkpoints::{checkpoint_damage, checkpoints, save_checkpoint};
    #[pymodule_export]
    use super::codec::PyClassTable;
    #[pymodule_export]
    use super::codec_functions::{decode, encode, encode_key, key_group, subtask_of};
    #[pymodule_export]
    use super::files::file_identity;
    #[pymodule_export]
    use super::harness::{PyHarness, PyHarnessState};
    #[pymodule_export]
    use super::job::{PyJobHandle, check, end_functions, explain, submit};
    #[pymodule_export]
    use super::kept_classes::kept_classes;
    #[pymodule_export]
    use super::kept_state::read_state;
    #[pymodule_export]
    use super::log::{PyJobLog, say_line, say_record};
    #[pymodule_export]
    use super::metrics::PyJobMetrics;
    #[pymodule_export]
    use super::rows::{
        PyRowBatch, PyRowSchema, csv_records, csv_starts, json_fault, rows_after_agg, rows_after_join,
        rows_after_steps, rows_functions, rows_kept, rows_of, rows_schema, rows_time,
    };
    #[pymodule_export]
    use super::settings::{check_settings, settings};
    #[pymodule_export]
    use super::time_zones::is_time_zone;
    #[pymodule_export]
    use super::tls::certificates;
    #[pymodule_export]
    use super::web::PyWebServer;
    #[pymodule_export]
    use super::worker::run_worker;
    #[pymodule_export]
    use super::worker_pool::{PyMember, PyWorkerPool};

    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "the name that Python gives to a version")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "as the other version")]
    const __wire_version__: u16 = flownet_net::handshake::PROTOCOL_VERSION;
}
