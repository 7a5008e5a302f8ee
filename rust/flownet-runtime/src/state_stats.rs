//! What the operators of a task hold and have before them, counted now and then.

use serde::{Deserialize, Serialize};

/// Numbers of one task; none where no operator of it has such a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateStats {
    /// Keys for which something is kept, of windows one for each slice of time that has it.
    pub state_keys: Option<u64>,
    /// Timers that wait, those included by which windows fire and joins forget.
    pub timers: Option<u64>,
    /// Bytes that a source knows of and has not read.
    pub source_lag_bytes: Option<u64>,
    /// Records that a source knows of and has not read.
    pub source_lag_records: Option<u64>,
}

impl StateStats {
    /// So many keys.
    pub fn add_keys(&mut self, keys: usize) {
        add(&mut self.state_keys, keys as u64);
    }

    /// So many timers.
    pub fn add_timers(&mut self, timers: usize) {
        add(&mut self.timers, timers as u64);
    }

    /// So many bytes to be read.
    pub fn add_bytes_left(&mut self, bytes: u64) {
        add(&mut self.source_lag_bytes, bytes);
    }

    /// So many records to be read.
    pub fn add_records_left(&mut self, records: usize) {
        add(&mut self.source_lag_records, records as u64);
    }

    /// Those of another task.
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
