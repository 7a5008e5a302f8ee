//! Counts the keys and timers of a task, and the input that its source has not read yet.

use serde::{Deserialize, Serialize};

/// State stats of one task. A number is `None` if no operator of the task has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateStats {
    /// Keys with state; for windows, one for each slice that has the key.
    pub state_keys: Option<u64>,
    /// Pending timers, including those that fire windows and expire records of joins.
    pub timers: Option<u64>,
    /// Bytes of known input that a source has not read.
    pub source_lag_bytes: Option<u64>,
    /// Records of known input that a source has not read.
    pub source_lag_records: Option<u64>,
}

impl StateStats {
    /// Adds a number of keys.
    pub fn add_keys(&mut self, keys: usize) {
        add(&mut self.state_keys, keys as u64);
    }

    /// Adds a number of timers.
    pub fn add_timers(&mut self, timers: usize) {
        add(&mut self.timers, timers as u64);
    }

    /// Adds a number of unread bytes.
    pub fn add_bytes_left(&mut self, bytes: u64) {
        add(&mut self.source_lag_bytes, bytes);
    }

    /// Adds a number of unread records.
    pub fn add_records_left(&mut self, records: usize) {
        add(&mut self.source_lag_records, records as u64);
    }

    /// Adds the stats of another task.
    pub fn add(&mut self, other: &Self) {
        let Self { state_keys, timers, source_lag_bytes, source_lag_records } = other;
        state_keys.iter().for_each(|number| add(&mut self.state_keys, *number));
        timers.iter().for_each(|number| add(&mut self.timers, *number));
        source_lag_bytes.iter().for_each(|number| add(&mut self.source_lag_bytes, *number));
        source_lag_records.iter().for_each(|number| add(&mut self.source_lag_records, *number));
    }
}

fn add(sum: &mut Option<u64>, more: u64) {
    *sum = Some(sum.unwrap_or(0).saturating_add(more));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_has_stays_none_and_the_rest_adds_up() {
        let mut one = StateStats::default();
        one.add_keys(2);
        one.add_timers(0);
        let mut other = StateStats::default();
        other.add_keys(3);
        other.add_bytes_left(u64::MAX);
        other.add(&other.clone());
        one.add(&other);
        let expected = StateStats {
            state_keys: Some(8),
            timers: Some(0),
            source_lag_bytes: Some(u64::MAX),
            source_lag_records: None,
        };
        assert_eq!(one, expected);
    }
}
