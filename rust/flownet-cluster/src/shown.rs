//! Serialises parts of reports for display.

use std::{fmt::Display, time::Duration};

use flownet_runtime::spec::Partitioner;
use serde::{Serialize, Serializer};

use crate::{explain::partitioner_name, stall::Stall};

/// Serialises a time as seconds.
pub(crate) fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

/// Serialises an optional time as seconds.
pub(crate) fn optional_seconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

/// Serialises optional milliseconds as seconds.
pub(crate) fn milliseconds<S: Serializer>(time_ms: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
    time_ms.map(|ms| ms as f64 / 1000.0).serialize(serializer)
}

/// Serialises an optional value as text.
pub(crate) fn text<S: Serializer, T: Display>(said: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    said.as_ref().map(ToString::to_string).serialize(serializer)
}

/// Serialises an optional stall as one line.
pub(crate) fn headline<S: Serializer>(stall: &Option<Stall>, serializer: S) -> Result<S::Ok, S::Error> {
    stall.as_ref().map(Stall::headline).serialize(serializer)
}

/// Serialises a partitioner by its name for users.
pub(crate) fn partitioner<S: Serializer>(partitioner: &Partitioner, serializer: S) -> Result<S::Ok, S::Error> {
    partitioner_name(*partitioner).serialize(serializer)
}
