//! Guarantees, sharing, and pools that wait for one another.

use std::sync::Arc;
use std::task::Poll;

use super::support::{CountingWaker, Listener, assert_all_home, segments, sized, take};
use crate::{BufferPoolSettings, DEFAULT_SEGMENT_BYTES, KIB, MemoryError, SegmentPool};

#[test]
fn a_minimum_beyond_what_is_guaranteed_is_refused_and_changes_nothing() {
    let segments = segments(10);
    let first = segments.create_buffer_pool(sized(6, 8)).unwrap();
    let (size, available) = (first.size(), segments.available());

    let refused = segments.create_buffer_pool(sized(5, 5)).unwrap_err();
    assert_eq!(refused, MemoryError::Insufficient { required: 5, available: 4, total: 10 });
    assert_eq!(
        refused.to_string(),
        "insufficient segments: 5 required, but only 4 of 10 are neither promised to others nor in use"
    );
    assert_eq!((first.size(), segments.available(), segments.guaranteed()), (size, available, 6));

    drop(segments.create_buffer_pool(sized(4, 4)).unwrap());
    drop(first);
    assert_all_home(&segments);
}

#[test]
fn a_minimum_that_others_have_in_use_is_refused_until_it_is_back() {
    let segments = segments(4);
    let greedy = segments.create_buffer_pool(sized(1, None)).unwrap();
    let mut taken = take(&greedy, 4);

    let refused = segments.create_buffer_pool(sized(3, 3)).unwrap_err();
    assert_eq!(refused, MemoryError::Insufficient { required: 3, available: 0, total: 4 });
    assert_eq!((greedy.size(), segments.guaranteed()), (4, 1), "nothing has changed");
    drop(taken.drain(..2));
    let refused = segments.create_buffer_pool(sized(3, 3)).unwrap_err();
    assert_eq!(refused, MemoryError::Insufficient { required: 3, available: 2, total: 4 });
    drop(taken.pop());
    assert_eq!((greedy.size(), greedy.held()), (4, 3), "what was gathered in vain is back, one ahead of the next take");

    let late = segments.create_buffer_pool(sized(3, 3)).unwrap();
    assert!(late.is_available());
    drop((take(&late, 3), taken));
    drop((greedy, late));
    assert_all_home(&segments);
}

#[test]
fn what_a_pool_is_promised_is_there_whatever_others_take() {
    let segments = segments(12);
    let lazy = segments.create_buffer_pool(sized(2, 4)).unwrap();
    let idle = segments.create_buffer_pool(sized(1, 9)).unwrap();
    let greedy = segments.create_buffer_pool(BufferPoolSettings { max_overdraft: 5, ..sized(2, 3) }).unwrap();
    let mut taken = Vec::new();
    while let Some(segment) = greedy.try_take(0) {
        taken.push(segment);
    }
    assert_eq!((lazy.held(), idle.held(), segments.available()), (2, 1, 12 - 3 - taken.len()));
    assert!(taken.len() > greedy.size(), "there was something to be had beyond its size");
    assert_eq!(take(&lazy, 2).len() + take(&idle, 1).len(), 3);

    assert!(lazy.try_stand());
    assert_eq!(lazy.guaranteed(), 2, "one that stands, and one that goes round");
    drop(taken);
    drop((lazy, idle, greedy));
    assert_all_home(&segments);
}

#[test]
fn nothing_stands_that_cannot_be_had() {
    let segments = segments(6);
    let pool = segments.create_buffer_pool(sized(1, None)).unwrap();
    let hog = segments.create_buffer_pool(BufferPoolSettings { max_overdraft: 5, ..sized(1, 2) }).unwrap();
    let mut taken = Vec::new();
    while let Some(segment) = hog.try_take(0) {
        taken.push(segment);
    }
    assert!(pool.size() > 2 && segments.available() == 0);
    assert!(!pool.try_stand(), "it has one, which must go round");
    assert_eq!((pool.standing(), pool.guaranteed()), (0, 1));
    drop(taken);
    assert!(pool.try_stand());
    assert_eq!((pool.standing(), pool.guaranteed()), (1, 2));
    pool.end_standing(1);
    drop((pool, hog));
    assert_all_home(&segments);
}

#[test]
fn zero_and_absurd_sizes_are_refused() {
    let what = |result: Result<_, MemoryError>| match result {
        Err(MemoryError::InvalidSize { what, .. }) => what,
        Err(other) => panic!("unexpected {other}"),
        Ok(_) => panic!("accepted"),
    };
    assert_eq!(what(SegmentPool::new(0, KIB).map(drop)), "segments");
    assert_eq!(what(SegmentPool::new(1, 0).map(drop)), "segment_bytes");
    assert_eq!(what(SegmentPool::new(usize::MAX, usize::MAX).map(drop)), "segments * segment_bytes");
    assert_eq!(what(SegmentPool::new(1 << 62, 2).map(drop)), "segments * segment_bytes");
    let too_big = SegmentPool::new(1 << 42, 1 << 20).map(drop);
    assert!(matches!(too_big, Err(MemoryError::AllocationFailed { .. })), "{too_big:?}");

    let segments = segments(4);
    let create = |settings| segments.create_buffer_pool(settings).map(drop);
    assert_eq!(what(create(BufferPoolSettings { lanes: 0, ..sized(1, 2) })), "lanes");
    assert_eq!(what(create(BufferPoolSettings { max_per_lane: 0, ..sized(1, 2) })), "max_per_lane");
    assert_eq!(what(create(sized(2, 1))), "max");
    assert_eq!(what(create(sized(0, 0))), "max");
    assert_all_home(&segments);
}

#[test]
fn a_refused_size_says_up_to_which_size_the_system_is_asked() {
    let MemoryError::InvalidSize { max, .. } = SegmentPool::new(1, usize::MAX).unwrap_err() else {
        panic!("not a size")
    };
    assert_eq!(SegmentPool::new(1, max).unwrap_err(), MemoryError::AllocationFailed { bytes: max });
    assert!(matches!(SegmentPool::new(1, max + 1).unwrap_err(), MemoryError::InvalidSize { .. }));
}

#[test]
fn untouched_segments_are_zeroed() {
    let segments = SegmentPool::new(3, 2 * KIB).unwrap();
    let pool = segments.create_buffer_pool(sized(3, 3)).unwrap();
    for mut segment in take(&pool, 3) {
        assert_eq!(segment.len(), 2 * KIB);
        assert!(segment.as_mut_slice().iter().all(|byte| *byte == 0));
        segment.as_mut_slice().fill(7);
    }
    drop(pool);
    assert_all_home(&segments);
}

#[test]
fn segments_do_not_overlap() {
    let segments = segments(5);
    let pool = segments.create_buffer_pool(sized(5, 5)).unwrap();
    let mut taken = take(&pool, 5);
    for (fill, segment) in (1_u8..).zip(&mut taken) {
        segment.as_mut_slice().fill(fill);
    }
    for (fill, segment) in (1_u8..).zip(&mut taken) {
        assert!(segment.as_mut_slice().iter().all(|byte| *byte == fill));
    }
    drop((taken, pool));
    assert_all_home(&segments);
}

#[test]
fn spare_segments_are_shared_by_head_room_as_pools_come_and_go() {
    let segments = segments(20);
    let bounded = segments.create_buffer_pool(sized(2, 6)).unwrap();
    assert_eq!(bounded.size(), 6);
    let unbounded = segments.create_buffer_pool(sized(2, None)).unwrap();
    // 16 spare; head room 4 and 16: floor(16 * 4 / 20) = 3, and the rest.
    assert_eq!((bounded.size(), unbounded.size()), (5, 15));
    let fixed = segments.create_buffer_pool(sized(8, 8)).unwrap();
    // 8 spare; head room 4 and 8: floor(8 * 4 / 12) = 2, and the rest.
    assert_eq!((bounded.size(), unbounded.size(), fixed.size()), (4, 8, 8));
    drop(unbounded);
    assert_eq!((bounded.size(), fixed.size()), (6, 8));
    drop(bounded);
    assert_eq!(fixed.size(), 8);
    drop(fixed);
    assert_all_home(&segments);
}

#[test]
fn several_pools_blocked_on_the_segment_pool_all_make_progress() {
    let segments = segments(6);
    let greedy = segments.create_buffer_pool(sized(0, None)).unwrap();
    let taken = take(&greedy, 6);
    let pools: Vec<_> = (0..3).map(|_| segments.create_buffer_pool(sized(0, 2)).unwrap()).collect();
    let waiting: Vec<_> = pools
        .iter()
        .map(|pool| {
            let (counter, waker) = CountingWaker::pair();
            assert!(pool.poll_available(&waker).is_pending());
            counter
        })
        .collect();
    // The greedy pool retains 3, which is its size now. The others get one each, in order.
    for (returned, segment) in taken.into_iter().enumerate() {
        drop(segment);
        let woken = waiting.iter().filter(|counter| counter.wakes() == 1).count();
        assert_eq!(woken, (returned + 1).min(3));
        assert!(pools.iter().take(woken).all(|pool| pool.is_available()));
    }
    assert!(greedy.is_available());
    drop((greedy, pools));
    assert_all_home(&segments);
}

#[test]
fn a_pool_that_no_longer_wants_a_segment_passes_it_on() {
    let segments = segments(3);
    let greedy = segments.create_buffer_pool(sized(0, None)).unwrap();
    let mut taken = take(&greedy, 3);
    let first = segments.create_buffer_pool(sized(0, 1)).unwrap();
    let second = segments.create_buffer_pool(sized(0, 1)).unwrap();
    assert!(!first.is_available() && !second.is_available());
    first.destroy();
    drop(taken.pop());
    assert!(second.is_available());
    drop((greedy, taken, first, second));
    assert_all_home(&segments);
}

#[test]
fn a_destroyed_pool_does_not_linger_among_the_waiting() {
    let segments = segments(1);
    let greedy = segments.create_buffer_pool(sized(0, None)).unwrap();
    let taken = take(&greedy, 1);
    let before = Arc::strong_count(&segments);
    let waiting = segments.create_buffer_pool(sized(0, 1)).unwrap();
    assert!(!waiting.is_available());
    drop(waiting);
    assert_eq!(Arc::strong_count(&segments), before);
    drop((greedy, taken));
    assert_all_home(&segments);
}

#[test]
fn dropping_a_pool_destroys_it() {
    let segments = segments(4);
    let pool = segments.create_buffer_pool(sized(2, 4)).unwrap();
    let taken = take(&pool, 3);
    assert_eq!(segments.guaranteed(), 2);
    drop(pool);
    assert_eq!((segments.guaranteed(), segments.available()), (0, 1));
    drop(taken);
    assert_all_home(&segments);
}

#[test]
fn close_wakes_waiters_destroys_pools_and_refuses_new_ones() {
    let segments = segments(2);
    let pool = segments.create_buffer_pool(sized(2, 2)).unwrap();
    let taken = take(&pool, 2);
    let (counter, waker) = CountingWaker::pair();
    assert!(pool.poll_take(0, &waker).is_pending());
    let listener = Listener::accepting();
    assert!(pool.offer_to(listener.clone()));

    segments.close();
    assert_eq!((counter.wakes(), listener.calls()), (1, 0));
    assert!(matches!(pool.poll_take(0, &waker), Poll::Ready(Err(MemoryError::Closed))));
    assert_eq!(segments.create_buffer_pool(sized(1, 1)).unwrap_err(), MemoryError::Closed);
    drop((taken, pool));
    assert_all_home(&segments);
}

#[test]
fn segments_outlive_the_pools_they_came_from() {
    let segments = segments(1);
    let pool = segments.create_buffer_pool(sized(1, 1)).unwrap();
    let mut segment = pool.try_take(0).unwrap();
    drop((pool, segments));
    segment.as_mut_slice().fill(1);
}

#[test]
fn segments_of_whole_pages_do_not_lie_a_multiple_of_a_page_apart() {
    for segment_bytes in [4096, DEFAULT_SEGMENT_BYTES] {
        let segments = SegmentPool::new(4, segment_bytes).unwrap();
        let pool = segments.create_buffer_pool(sized(4, 4)).unwrap();
        let mut taken = take(&pool, 4);
        let mut places: Vec<usize> =
            taken.iter_mut().map(|segment| segment.as_mut_slice().as_ptr().addr() % 4096).collect();
        assert!(
            places.iter().all(|place| place % 64 == places[0] % 64),
            "they lie whole cache lines apart: {places:?}"
        );
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 4, "each begins in a cache set of its own");
        drop((taken, pool));
        assert_all_home(&segments);
    }
}

#[test]
fn of_what_several_give_up_a_new_pool_begins_with_its_minimum() {
    let segments = segments(8);
    let others = [(); 2].map(|()| segments.create_buffer_pool(sized(1, None)).unwrap());
    // Their earlier segments return to them and are idle.
    others.iter().for_each(|pool| drop(take(pool, 4)));
    let pool = segments.create_buffer_pool(sized(2, None)).unwrap();
    assert_eq!(pool.min(), 2);
    assert_eq!(take(&pool, 2).len(), 2);
    let sizes = [&others[0], &others[1], &pool].map(|pool| pool.size());
    assert_eq!(sizes.iter().sum::<usize>(), 8, "{sizes:?}");
    drop((pool, others));
    assert_all_home(&segments);
}

#[test]
fn a_pool_that_has_less_than_its_size_lacks_segments_until_others_give_them_back() {
    let segments = segments(4);
    let other = segments.create_buffer_pool(sized(1, None)).unwrap();
    let mut kept = take(&other, 4);
    drop(kept.pop());
    let pool = segments.create_buffer_pool(sized(1, 2)).unwrap();
    let first = take(&pool, 1);
    assert_eq!((pool.size(), pool.is_available(), pool.lacks_segments()), (2, false, true));
    drop(kept);
    assert!(pool.is_available() && !pool.lacks_segments());
    let second = take(&pool, 1);
    assert!(!pool.is_available() && !pool.lacks_segments(), "it has all that it may");
    drop((first, second, pool, other));
    assert_all_home(&segments);
}
