//! Distribution of spare segments among pools, by head room and without a remainder.

/// Size limits of a pool: at least `min`, at most `max` (`None`: no bound).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Bounds {
    pub(crate) min: usize,
    pub(crate) max: Option<usize>,
}

/// Returns the size of every pool, in the given order, when `total` segments are shared.
///
/// The minimums must fit in `total`. A pool's share of the spare segments is proportional to its head room: `max -
/// min`, but no more than the spare segments. Shares are rounded cumulatively. Their sum is exactly the spare segments,
/// or the whole head room if that is less.
pub(crate) fn share(total: usize, pools: &[Bounds]) -> Vec<usize> {
    let spare = total.saturating_sub(pools.iter().map(|pool| pool.min).sum());
    let head_room = |pool: &Bounds| pool.max.map_or(spare, |max| spare.min(max.saturating_sub(pool.min))) as u128;
    let capacity: u128 = pools.iter().map(head_room).sum();
    let to_give = capacity.min(spare as u128);
    let (mut seen, mut given) = (0_u128, 0_u128);
    let size_of = |pool: &Bounds| {
        seen += head_room(pool);
        // Capacity is zero only if no pool has head room; then no pool gets a share.
        let part = (to_give * seen).checked_div(capacity).unwrap_or(0) - given;
        given += part;
        // A share is at most `spare`, which is a usize.
        pool.min + part as usize
    };
    pools.iter().map(size_of).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn pool(min: usize, max: impl Into<Option<usize>>) -> Bounds {
        Bounds { min, max: max.into() }
    }

    #[test]
    fn without_spare_segments_every_pool_has_its_minimum() {
        assert_eq!(share(5, &[pool(2, 9), pool(3, None)]), [2, 3]);
    }

    #[test]
    fn spare_segments_go_by_head_room() {
        assert_eq!(share(14, &[pool(1, 4), pool(1, 7), pool(3, 3)]), [4, 7, 3]);
        assert_eq!(share(11, &[pool(1, 4), pool(1, 7), pool(3, 3)]), [3, 5, 3]);
    }

    #[test]
    fn an_unbounded_pool_counts_with_all_that_is_spare() {
        assert_eq!(share(12, &[pool(2, None), pool(2, None)]), [6, 6]);
        assert_eq!(share(11, &[pool(1, None), pool(1, 4)]), [7, 4]);
    }

    #[test]
    fn rounding_leaves_nothing_over() {
        let sizes = share(13, &[pool(1, None), pool(1, None), pool(1, None)]);
        assert_eq!(sizes, [4, 4, 5]);
    }

    #[test]
    fn nobody_gets_more_than_its_maximum() {
        assert_eq!(share(1000, &[pool(1, 3), pool(2, 2), pool(0, 7)]), [3, 2, 7]);
        assert_eq!(share(1000, &[]), [0_usize; 0]);
    }
}
