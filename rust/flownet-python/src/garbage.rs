//! Measures garbage collections of this process' interpreter.
//!
//! The interpreter calls `note_collection` when each collection begins and ends, on the thread that triggered
//! it. It never begins one within another. The measurements are atomics, so status reports read them without
//! the interpreter.

use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use flownet_runtime::GarbageCollections;
use pyo3::prelude::*;

/// Begins to measure collections. Called once a process, before its first task.
pub(crate) fn install(py: Python<'_>) -> PyResult<()> {
    let mut installed = Ok(());
    INSTALLED.call_once(|| installed = append(py));
    installed
}

fn append(py: Python<'_>) -> PyResult<()> {
    let note = wrap_pyfunction!(note_collection, py)?;
    py.import("gc")?.getattr("callbacks")?.call_method1("append", (note,)).map(drop)
}

/// The measurements so far.
pub(crate) fn collections() -> GarbageCollections {
    GarbageCollections {
        count: COUNT.load(Ordering::Relaxed),
        time: Duration::from_nanos(NANOSECONDS.load(Ordering::Relaxed)),
    }
}

/// Note that a collection begins, "start", or has ended, "stop".
#[pyfunction]
fn note_collection(phase: &str, _info: &Bound<'_, PyAny>) {
    if phase == "start" {
        BEGAN.set(Some(Instant::now()));
    } else if let Some(began) = BEGAN.take() {
        COUNT.fetch_add(1, Ordering::Relaxed);
        NANOSECONDS.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}

thread_local! {
    /// Begin of the collection that this thread is in.
    static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
}

static INSTALLED: Once = Once::new();
static COUNT: AtomicU64 = AtomicU64::new(0);
static NANOSECONDS: AtomicU64 = AtomicU64::new(0);
