//! What can go wrong with memory: too little of it, impossible sizes, or a pool that is gone.

/// Why a pool could not be made or a segment not be had.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The minimum asked for is not to be had now. Nothing was changed.
    #[error(
        "insufficient segments: {required} required, but only {available} of {total} are neither promised to others nor in use"
    )]
    Insufficient {
        /// Segments the new pool must have.
        required: usize,
        /// Segments that neither are other pools' own nor in use.
        available: usize,
        /// Segments there are.
        total: usize,
    },
    /// A size outside of what is possible.
    #[error("{what} is {value}, allowed are {min} to {max}")]
    InvalidSize {
        /// The setting at fault.
        what: &'static str,
        /// What was asked for.
        value: usize,
        /// The smallest allowed value.
        min: usize,
        /// The largest allowed value.
        max: usize,
    },
    /// The operating system refused the memory.
    #[error("could not allocate {bytes} bytes for segments")]
    AllocationFailed {
        /// Size of the refused allocation.
        bytes: usize,
    },
    /// The pool was destroyed, or its segment pool closed.
    #[error("the pool is closed")]
    Closed,
}
