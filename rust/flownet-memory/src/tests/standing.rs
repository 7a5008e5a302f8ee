//! Standing segments: how many a pool allows, how many each holder begins with, and how many a short pool reclaims.

use super::support::{Listener, assert_all_home, segments, sized, take};
use crate::BufferPool;

/// Books as many standing segments as the pool allows.
fn stand_all(pool: &BufferPool) -> usize {
    (0..100).take_while(|_| pool.try_stand()).count()
}

#[test]
fn where_a_pool_has_its_maximum_everything_may_stand() {
    let segments = segments(8);
    let pool = segments.create_buffer_pool(sized(1, 4)).unwrap();
    assert_eq!((pool.size(), pool.standing_share(3), pool.lend_limit()), (4, 3, 3));
    assert_eq!(stand_all(&pool), 4);
    assert_eq!((pool.standing(), pool.guaranteed(), pool.claims_standing()), (4, 4, false));
    let taken = take(&pool, 4);
    let listener = Listener::accepting();
    assert!(pool.offer_to(listener.clone()));
    assert!(!pool.claims_standing(), "there are no others who could need them");
    pool.end_standing(4);
    assert_eq!(pool.standing(), 0);
    drop((taken, listener, pool));
    assert_all_home(&segments);
}

#[test]
fn a_short_pool_keeps_a_quarter_from_standing_and_shares_the_rest() {
    let segments = segments(16);
    let pool = segments.create_buffer_pool(sized(1, 32)).unwrap();
    assert_eq!(pool.size(), 16);
    // Twelve may stand, and the maximum allows for holders that want 32 between them.
    let shares = [1, 2, 3, 4, 8, 32].map(|wanted| pool.standing_share(wanted));
    assert_eq!((shares, pool.lend_limit()), ([0, 0, 1, 1, 3, 12], 4));
    assert_eq!(stand_all(&pool), 12);
    assert_eq!((pool.standing(), pool.guaranteed()), (12, 13), "what stands, and one that goes round");
    drop(pool);
    assert_all_home(&segments);
}

#[test]
fn of_a_small_pool_that_is_short_all_but_one_may_stand() {
    for (size, most) in [(1, 0), (2, 1), (3, 2), (4, 3), (7, 6), (8, 6)] {
        let segments = segments(size);
        let pool = segments.create_buffer_pool(sized(1, 100)).unwrap();
        assert_eq!((stand_all(&pool), pool.standing()), (most, most), "of {size}");
        assert_eq!((pool.lend_limit(), pool.claims_standing()), ((size / 4).max(1), false), "of {size}");
        drop(pool);
        assert_all_home(&segments);
    }
}

#[test]
fn a_short_pool_asks_back_what_stands_while_somebody_waits() {
    let segments = segments(4);
    let pool = segments.create_buffer_pool(sized(1, 100)).unwrap();
    let mut taken = take(&pool, 4);
    assert!(!pool.claims_standing(), "nobody waits");
    let listener = Listener::accepting();
    assert!(pool.offer_to(listener.clone()));
    assert!(pool.claims_standing());
    drop(taken.pop());
    assert_eq!((listener.kept(), pool.claims_standing()), (1, false), "it has what it waited for");
    drop((taken, listener, pool));
    assert_all_home(&segments);
}

#[test]
fn a_pool_that_shrank_asks_back_what_stands_beyond_its_part() {
    let segments = segments(16);
    let pool = segments.create_buffer_pool(sized(1, 100)).unwrap();
    assert_eq!(stand_all(&pool), 12);
    let other = segments.create_buffer_pool(sized(3, 3)).unwrap();
    // Of 13, three must not stand, and twelve do.
    assert_eq!((pool.size(), pool.claims_standing(), pool.try_stand()), (13, true, false));
    pool.end_standing(1);
    assert!(pool.claims_standing());
    pool.end_standing(1);
    assert!(!pool.claims_standing());
    assert!(!pool.try_stand(), "what may stand does");
    pool.end_standing(10);
    assert_eq!((pool.standing(), pool.try_stand()), (0, true));
    drop((pool, other));
    assert_all_home(&segments);
}

#[test]
fn nothing_stands_in_a_pool_that_is_gone() {
    let segments = segments(4);
    let pool = segments.create_buffer_pool(sized(1, 4)).unwrap();
    pool.destroy();
    assert!(!pool.try_stand());
    drop(pool);
    assert_all_home(&segments);
}
