//! Input gate: what a task reads.
