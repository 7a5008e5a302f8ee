//! Where state by key lies.

use serde::{Deserialize, Serialize};

/// Where state by key lies, of operators that have the choice.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StatePlace {
    /// On disk where rows may have to be kept until their input ends, else in memory.
    #[default]
    Auto,
    /// All of it in memory.
    Memory,
    /// In memory what was touched lately, the rest on disk.
    Disk,
}

impl StatePlace {
    /// How users write them.
    pub const NAMES: [&'static str; 3] = ["auto", "memory", "disk"];
}
