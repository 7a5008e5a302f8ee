//! Writes records into a result partition.
