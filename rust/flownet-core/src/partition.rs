//! Result partition: what a task writes and its readers take.
