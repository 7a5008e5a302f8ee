//! How parts of reports serialise, for whoever shows them.

use std::{fmt::Display, time::Duration};

use flownet_runtime::spec::Partitioner;
use serde::{Serialize, Serializer};

use crate::{explain::partitioner_name, stall::Stall};

/// A time as seconds.
pub(crate) fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

/// The same, if there is one.
pub(crate) fn optional_seconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

/// Milliseconds as seconds, if there are any.
pub(crate) fn milliseconds<S: Serializer>(time_ms: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
    time_ms.map(|ms| ms as f64 / 1000.0).serialize(serializer)
}

/// A sentence, if there is something to say.
pub(crate) fn text<S: Serializer, T: Display>(said: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    said.as_ref().map(ToString::to_string).serialize(serializer)
}

/// A stall in one line, if there is one.
pub(crate) fn headline<S: Serializer>(stall: &Option<Stall>, serializer: S) -> Result<S::Ok, S::Error> {
    stall.as_ref().map(Stall::headline).serialize(serializer)
}

/// How people call an exchange.
pub(crate) fn partitioner<S: Serializer>(partitioner: &Partitioner, serializer: S) -> Result<S::Ok, S::Error> {
    partitioner_name(*partitioner).serialize(serializer)
}
