//! Memory errors: too few segments, invalid sizes, or a closed pool.

/// Reason why a pool could not be created or a segment not be taken.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The requested minimum is not available now. Nothing was changed.
    #[error(
        "insufficient segments: {required} required, but only {available} of {total} are neither promised to others nor in use"
    )]
    Insufficient {
        /// Segments that the new pool requires.
        required: usize,
        /// Segments that are neither guaranteed to other pools nor in use.
        available: usize,
        /// Segments in total.
        total: usize,
    },
    /// A size outside of the allowed range.
    #[error("{what} is {value}, allowed are {min} to {max}")]
    InvalidSize {
        /// Name of the invalid setting.
        what: &'static str,
        /// Requested value.
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
