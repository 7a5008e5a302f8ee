//! Defines where keyed state is stored.

use serde::{Deserialize, Serialize};

/// Place of keyed state, for operators that support both places.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StatePlace {
    /// On disk if rows may have to be buffered until their input ends, else in memory.
    #[default]
    Auto,
    /// In memory.
    Memory,
    /// Recently used state in memory, the rest on disk.
    Disk,
}

impl StatePlace {
    /// Names that users write.
    pub const NAMES: [&'static str; 3] = ["auto", "memory", "disk"];
}
