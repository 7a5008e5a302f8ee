//! Where state by key lies.

use serde::{Deserialize, Serialize};

/// Where state by key lies, of operators that have the choice.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StatePlace {
    /// All of it in memory.
    #[default]
    Memory,
    /// In memory what was touched lately, the rest on disk.
    Disk,
}

impl StatePlace {
    /// How users write them.
    pub const NAMES: [&'static str; 2] = ["memory", "disk"];
}
