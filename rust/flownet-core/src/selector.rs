//! Selectors: choose the subpartition of each record.

use crate::error::SelectError;
use crate::ids::SubpartitionIndex;
use crate::keygroup::{MAX_PARALLELISM_LIMIT, key_group, subtask_of};

/// Routing information of a record, from the emitting operator.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Target {
    /// None: the selector decides.
    Any,
    /// The hash of the record's key, see [`hash_key`](crate::keygroup::hash_key).
    KeyHash(u32),
    /// The subpartition that a custom partitioner chose.
    Subpartition(u32),
}

/// Destination of a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Selection {
    /// To one subpartition.
    One(SubpartitionIndex),
    /// Every subpartition.
    All,
}

/// Routing rule of one edge. Owned by one writer, because rebalance and rescale store the next subpartition.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Selector {
    /// One to one.
    Forward,
    /// All subpartitions in turn.
    Rebalance {
        /// Next subpartition, before reduction to the number of subpartitions.
        next: u32,
    },
    /// The subpartitions of this writer's own subset in turn.
    Rescale {
        /// Next subpartition, before reduction to the number of subpartitions.
        next: u32,
    },
    /// Every subpartition gets each record.
    Broadcast,
    /// The subtask that owns the record's key group.
    KeyGroup {
        /// Number of key groups of the job.
        max_parallelism: u32,
    },
    /// The subpartition that the user's partitioner chose.
    Custom,
}

impl Selector {
    /// Creates a round-robin selector. Pass a random `start`, so that many writers do not all begin with subtask 0.
    #[must_use]
    pub const fn rebalance(start: u32) -> Self {
        Self::Rebalance { next: start }
    }

    /// Creates a round-robin selector over this writer's own subset.
    #[must_use]
    pub const fn rescale(start: u32) -> Self {
        Self::Rescale { next: start }
    }

    /// Creates a selector by key group.
    #[must_use]
    pub const fn key_group(max_parallelism: u32) -> Self {
        Self::KeyGroup { max_parallelism }
    }

    /// Returns the destination of the next record. Selectors that decide by themselves ignore the target.
    #[inline]
    pub fn select(&mut self, target: Target, subpartitions: u32) -> Result<Selection, SelectError> {
        // Checked first and separately, because one comparison is enough to detect it.
        if let Self::Rebalance { next } | Self::Rescale { next } = self {
            return take_turn(next, subpartitions);
        }
        self.select_by_target(target, subpartitions)
    }

    /// Returns the subpartition that every record goes to, whatever its target, if there is only one.
    pub(crate) fn only(&self, subpartitions: u32) -> Option<SubpartitionIndex> {
        let ignores_target = matches!(self, Self::Forward | Self::Rebalance { .. } | Self::Rescale { .. });
        (ignores_target && subpartitions == 1).then(|| SubpartitionIndex::new(0))
    }

    #[inline]
    fn select_by_target(&self, target: Target, subpartitions: u32) -> Result<Selection, SelectError> {
        let chosen = match (self, target) {
            (Self::Forward, _) => 0,
            (Self::Rebalance { .. } | Self::Rescale { .. }, _) => unreachable!("they take turns"),
            (Self::Broadcast, _) => return Ok(Selection::All),
            (Self::KeyGroup { max_parallelism }, Target::KeyHash(hash)) => {
                let max_parallelism = *max_parallelism;
                if max_parallelism < subpartitions.max(1) || max_parallelism > MAX_PARALLELISM_LIMIT {
                    return Err(SelectError::MaxParallelism { max_parallelism, subpartitions });
                }
                subtask_of(key_group(hash, max_parallelism), max_parallelism, subpartitions)
            }
            (Self::KeyGroup { .. }, _) => return Err(SelectError::NeedsKeyHash),
            (Self::Custom, Target::Subpartition(chosen)) => chosen,
            (Self::Custom, _) => return Err(SelectError::NeedsSubpartition),
        };
        if chosen >= subpartitions {
            return Err(SelectError::OutOfRange { chosen, subpartitions });
        }
        Ok(Selection::One(SubpartitionIndex::new(chosen)))
    }
}

#[inline]
fn take_turn(next: &mut u32, subpartitions: u32) -> Result<Selection, SelectError> {
    if *next >= subpartitions {
        // The start may be any number. Later a round ends exactly here, and a division would be expensive for short
        // rounds.
        *next = match subpartitions {
            0 => return Err(SelectError::OutOfRange { chosen: 0, subpartitions }),
            _ if *next == subpartitions => 0,
            _ => *next % subpartitions,
        };
    }
    let chosen = *next;
    *next += 1;
    Ok(Selection::One(SubpartitionIndex::new(chosen)))
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn chosen(selector: &mut Selector, target: Target, subpartitions: u32) -> u32 {
        match selector.select(target, subpartitions).unwrap() {
            Selection::One(index) => index.get(),
            Selection::All => panic!("one subpartition expected"),
        }
    }

    #[test]
    fn forward_goes_to_the_only_subpartition() {
        assert_eq!(chosen(&mut Selector::Forward, Target::Any, 1), 0);
    }

    #[test]
    fn rebalance_begins_where_it_is_told_and_then_goes_round() {
        let mut selector = Selector::rebalance(3 * 1_000 + 2);
        let turns: Vec<u32> = (0..7).map(|_| chosen(&mut selector, Target::Any, 3)).collect();
        assert_eq!(turns, [2, 0, 1, 2, 0, 1, 2]);
        assert_eq!(chosen(&mut Selector::rebalance(u32::MAX), Target::Any, 1), 0);
    }

    #[test]
    fn rescale_goes_round_too() {
        let mut selector = Selector::rescale(0);
        let turns: Vec<u32> = (0..5).map(|_| chosen(&mut selector, Target::Any, 2)).collect();
        assert_eq!(turns, [0, 1, 0, 1, 0]);
    }

    #[test]
    fn broadcast_goes_everywhere() {
        assert_eq!(Selector::Broadcast.select(Target::Any, 4), Ok(Selection::All));
    }

    #[test]
    fn a_key_goes_to_the_owner_of_its_group() {
        let mut selector = Selector::key_group(128);
        for hash in (0..10_000u32).map(|n| n.wrapping_mul(0x9e37_79b9)) {
            let expected = subtask_of(key_group(hash, 128), 128, 5);
            assert_eq!(chosen(&mut selector, Target::KeyHash(hash), 5), expected);
        }
        assert_eq!(selector.select(Target::Any, 5), Err(SelectError::NeedsKeyHash));
    }

    #[test]
    fn key_groups_that_cannot_be_spread_are_refused() {
        for (max_parallelism, subpartitions) in [(0, 1), (4, 5), (MAX_PARALLELISM_LIMIT + 1, 1)] {
            assert_eq!(
                Selector::key_group(max_parallelism).select(Target::KeyHash(1), subpartitions),
                Err(SelectError::MaxParallelism { max_parallelism, subpartitions })
            );
        }
    }

    #[test]
    fn as_many_groups_as_subtasks_or_as_may_be_are_enough() {
        for (max_parallelism, subpartitions) in [(5, 5), (MAX_PARALLELISM_LIMIT, 5)] {
            assert!(Selector::key_group(max_parallelism).select(Target::KeyHash(1), subpartitions).is_ok());
        }
    }

    #[test]
    fn a_partitioner_outside_the_range_is_an_error_with_both_numbers() {
        let mut selector = Selector::Custom;
        assert_eq!(chosen(&mut selector, Target::Subpartition(2), 3), 2);
        assert_eq!(
            selector.select(Target::Subpartition(3), 3),
            Err(SelectError::OutOfRange { chosen: 3, subpartitions: 3 })
        );
        assert_eq!(selector.select(Target::Any, 3), Err(SelectError::NeedsSubpartition));
    }

    #[test]
    fn nothing_is_selected_among_no_subpartitions() {
        for mut selector in [Selector::Forward, Selector::rebalance(7), Selector::Custom] {
            assert!(selector.select(Target::Subpartition(0), 0).is_err());
        }
    }
}
