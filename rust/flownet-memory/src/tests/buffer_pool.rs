//! Taking and returning segments, quotas, overdraft, resizing, listeners and the end of one pool.

use std::sync::Arc;
use std::task::Poll;

use super::support::{CountingWaker, Listener, assert_all_home, segments, sized, take};
use crate::{BufferPoolSettings, MemoryError, MemorySegment, SegmentListener, SegmentPool};

fn with_overdraft(min: usize, max: usize, max_overdraft: usize) -> BufferPoolSettings {
    BufferPoolSettings { max_overdraft, ..sized(min, max) }
}

fn with_lanes(size: usize, lanes: usize, max_per_lane: usize) -> BufferPoolSettings {
    BufferPoolSettings { lanes, max_per_lane, ..sized(size, size) }
}

#[test]
fn never_more_than_size_and_overdraft_is_held() {
    let segments = segments(10);
    let pool = segments.create_buffer_pool(with_overdraft(2, 3, 2)).unwrap();
    let taken = take(&pool, 5);
    assert!(pool.try_take(0).is_none());
    assert_eq!((pool.size(), pool.held(), pool.in_use(), segments.available()), (3, 5, 5, 5));
    drop((taken, pool));
    assert_all_home(&segments);
}

#[test]
fn available_means_the_next_take_needs_no_overdraft() {
    let segments = segments(8);
    let pool = segments.create_buffer_pool(with_overdraft(1, 3, 4)).unwrap();
    let mut taken = Vec::new();
    while pool.is_available() {
        taken.push(pool.try_take(0).unwrap());
        assert!(pool.held() <= pool.size());
    }
    assert_eq!(taken.len(), 3);
    drop((taken, pool));
    assert_all_home(&segments);
}

#[test]
fn a_new_pool_has_its_minimum_or_one_segment_and_no_more() {
    let segments = segments(8);
    let pool = segments.create_buffer_pool(sized(2, 8)).unwrap();
    assert!(pool.is_available());
    assert_eq!((pool.held(), pool.in_use(), segments.available()), (2, 0, 6));
    drop(pool);
    let pool = segments.create_buffer_pool(sized(0, 8)).unwrap();
    assert!(pool.is_available());
    assert_eq!((pool.held(), pool.in_use(), segments.available()), (1, 0, 7));
    drop(pool);
    assert_all_home(&segments);
}

#[test]
fn one_lane_at_its_quota_makes_the_pool_unavailable_until_it_gives_one_back() {
    let segments = segments(8);
    let pool = segments.create_buffer_pool(with_lanes(8, 3, 2)).unwrap();
    let other = pool.try_take(2).unwrap();
    let first = pool.try_take(1).unwrap();
    assert!(pool.is_available());
    let second = pool.try_take(1).unwrap();
    assert!(!pool.is_available());
    let (counter, waker) = CountingWaker::pair();
    assert!(pool.poll_available(&waker).is_pending());

    drop(other);
    assert!(!pool.is_available(), "another lane's segment changes nothing");
    drop(first);
    assert!(pool.is_available());
    assert_eq!(counter.wakes(), 1);
    drop((second, pool));
    assert_all_home(&segments);
}

#[test]
fn the_quota_is_soft() {
    let segments = segments(8);
    let pool = segments.create_buffer_pool(with_lanes(8, 2, 1)).unwrap();
    let (_, waker) = CountingWaker::pair();
    let mut taken = take(&pool, 2);
    let Poll::Ready(Ok(third)) = pool.poll_take(0, &waker) else { panic!("a quota does not hold up a hard wait") };
    taken.push(third);
    drop(taken.drain(..2));
    assert!(!pool.is_available(), "one is still in use, which is the quota");
    taken.clear();
    assert!(pool.is_available());
    drop((taken, pool));
    assert_all_home(&segments);
}

#[test]
fn a_lane_the_pool_does_not_have_counts_towards_no_quota() {
    let segments = segments(4);
    let pool = segments.create_buffer_pool(with_lanes(4, 1, 1)).unwrap();
    let taken: Vec<_> = (0..3).map(|_| pool.try_take(9).unwrap()).collect();
    assert!(pool.is_available());
    drop((taken, pool));
    assert_all_home(&segments);
}

#[test]
fn overdraft_is_used_only_when_nothing_is_idle_and_the_size_is_reached() {
    let segments = segments(8);
    let pool = segments.create_buffer_pool(with_overdraft(2, 2, 2)).unwrap();
    let mut taken = take(&pool, 2);
    drop(taken.pop());
    taken.append(&mut take(&pool, 1));
    assert_eq!(pool.held(), 2, "the idle segment came first");
    taken.append(&mut take(&pool, 1));
    assert_eq!((pool.held(), segments.available()), (3, 5));
    drop(taken.pop());
    assert_eq!((pool.held(), segments.available()), (2, 6), "overdraft goes home at once");
    drop((taken, pool));
    assert_all_home(&segments);
}

#[test]
fn shrinking_returns_idle_segments_at_once_and_used_ones_when_recycled() {
    let segments = segments(8);
    let pool = segments.create_buffer_pool(sized(2, 8)).unwrap();
    let mut taken = take(&pool, 6);
    drop(taken.drain(4..));
    assert_eq!((pool.held(), segments.available()), (7, 1), "one was fetched ahead of the next take");

    let other = segments.create_buffer_pool(sized(4, 6)).unwrap();
    // 4 remain in use, of which 1 is excess; the 3 idle ones have left.
    assert_eq!((pool.size(), pool.held(), pool.in_use()), (3, 4, 4));
    assert_eq!((other.size(), other.held(), segments.available()), (5, 4, 0));
    assert!(!pool.is_available());
    drop(taken.drain(..1));
    assert_eq!((pool.held(), segments.available()), (3, 1));
    assert!(!pool.is_available());
    drop(taken.pop());
    assert!(pool.is_available());
    drop((taken, pool, other));
    assert_all_home(&segments);
}

#[test]
fn what_a_pool_that_shrank_has_in_use_beyond_its_size_is_its_overdraft() {
    let segments = segments(16);
    let pool = segments.create_buffer_pool(with_overdraft(2, 10, 2)).unwrap();
    let mut taken = take(&pool, 8);
    let other = segments.create_buffer_pool(sized(4, 14)).unwrap();
    let size = pool.size();
    assert_eq!((size, pool.held(), segments.available()), (6, 8, 4), "two beyond its size, which is all it may");
    assert!(pool.try_take(0).is_none(), "though four are free");
    drop(taken.pop());
    assert_eq!((pool.held(), segments.available()), (7, 5), "excess goes home when it comes back");
    taken.append(&mut take(&pool, 1));
    assert_eq!((pool.held(), segments.available()), (8, 4), "and may be had again");
    assert!(pool.try_take(0).is_none());
    drop(taken.drain(..2));
    assert_eq!((pool.held(), segments.available(), pool.is_available()), (size, 6, false));
    drop((taken, pool, other));
    assert_all_home(&segments);
}

#[test]
fn lanes_in_use_are_refused_more_than_their_part_a_quota_and_overdraft() {
    let segments = segments(16);
    // A share of two for each of four lanes, one quota of two, and one by overdraft.
    let settings = BufferPoolSettings { max_overdraft: 1, ..with_lanes(8, 4, 2) };
    let pool = segments.create_buffer_pool(settings).unwrap();
    let mut taken = take(&pool, 5);
    let (counter, waker) = CountingWaker::pair();
    for lane in [0, 1] {
        assert!(pool.try_take(lane).is_none(), "three are idle, and eight free");
        assert!(pool.poll_take(lane, &waker).is_pending());
    }
    drop(taken.pop());
    assert_eq!(counter.wakes(), 1);
    taken.push(pool.try_take(1).unwrap());
    // Two lanes in use have one share more between them.
    taken.extend((0..2).map(|_| pool.try_take(1).unwrap()));
    assert_eq!((pool.in_use(), pool.held()), (7, 8));
    assert!(pool.try_take(0).is_none() && pool.try_take(1).is_none());
    drop((taken, pool));
    assert_all_home(&segments);
}

#[test]
fn lanes_that_use_all_they_may_make_the_pool_unavailable_though_none_is_at_its_quota() {
    let segments = segments(8);
    // A share of one for each of eight lanes, and one quota of four.
    let pool = segments.create_buffer_pool(with_lanes(8, 8, 4)).unwrap();
    let mut taken: Vec<_> = [0, 1, 0, 1, 0].map(|lane| pool.try_take(lane).unwrap()).into();
    assert!(pool.is_available());
    taken.push(pool.try_take(1).unwrap());
    assert!(!pool.is_available(), "two lanes have a part each and a quota between them, which is six");
    assert!(pool.try_take(0).is_none() && pool.in_use() == 6, "and get no more without overdraft");
    drop(taken.pop());
    assert!(pool.is_available());
    drop((taken, pool));
    assert_all_home(&segments);
}

#[test]
fn a_pool_that_is_used_up_lacks_segments_only_if_it_could_have_more() {
    // Room for three of the four segments that it may have.
    let segments = segments(3);
    let short = segments.create_buffer_pool(sized(1, 4)).unwrap();
    assert!(!short.lacks_segments(), "one is idle");
    let taken = take(&short, 3);
    assert!(!short.is_available() && short.lacks_segments());
    drop((taken, short));
    let whole = segments.create_buffer_pool(sized(1, 3)).unwrap();
    let taken = take(&whole, 3);
    assert!(!whole.is_available() && !whole.lacks_segments(), "it has all that it may have");
    drop((taken, whole));
    assert_all_home(&segments);
}

#[test]
fn a_pool_with_a_lane_at_its_quota_waits_for_who_has_its_segments_and_lacks_none() {
    let segments = segments(2);
    let settings = BufferPoolSettings { lanes: 2, max_per_lane: 2, ..sized(1, 4) };
    let pool = segments.create_buffer_pool(settings).unwrap();
    let (one, two) = (pool.try_take(0).unwrap(), pool.try_take(0).unwrap());
    assert!(!pool.is_available() && !pool.lacks_segments());
    drop(two);
    let two = pool.try_take(1).unwrap();
    assert!(!pool.is_available() && pool.lacks_segments(), "two lanes of one segment, and no third");
    drop((one, two, pool));
    assert_all_home(&segments);
}

#[test]
fn growing_wakes_waiters() {
    let segments = segments(4);
    let other = segments.create_buffer_pool(sized(2, 2)).unwrap();
    let pool = segments.create_buffer_pool(sized(2, 4)).unwrap();
    let mut taken = take(&pool, 2);
    let (available, available_waker) = CountingWaker::pair();
    let (one, one_waker) = CountingWaker::pair();
    assert!(pool.poll_available(&available_waker).is_pending());
    assert!(pool.poll_take(0, &one_waker).is_pending());

    other.destroy();
    assert_eq!((pool.size(), available.wakes(), one.wakes()), (4, 1, 1));
    taken.append(&mut take(&pool, 2));
    drop((taken, pool, other));
    assert_all_home(&segments);
}

#[test]
fn recycled_segments_go_to_listeners_in_order_before_anybody_else() {
    let segments = segments(3);
    let pool = segments.create_buffer_pool(sized(3, 3)).unwrap();
    let mut taken = take(&pool, 3);
    let (first, second) = (Listener::accepting(), Listener::accepting());
    assert!(pool.offer_to(first.clone()));
    assert!(pool.offer_to(second.clone()));
    drop(taken.pop());
    assert_eq!((first.kept(), second.kept()), (1, 0));
    drop(taken.pop());
    assert_eq!((first.kept(), second.kept()), (1, 1), "a listener is served once per registration");
    assert!(!pool.is_available());
    drop(taken.pop());
    assert!(pool.is_available());
    drop((first, second, pool));
    assert_all_home(&segments);
}

#[test]
fn a_refused_segment_goes_to_the_next_listener_and_at_last_to_the_pool() {
    let segments = segments(2);
    let pool = segments.create_buffer_pool(sized(2, 2)).unwrap();
    let mut taken = take(&pool, 2);
    let (refusing, accepting) = (Listener::refusing(), Listener::accepting());
    assert!(pool.offer_to(refusing.clone()));
    assert!(pool.offer_to(accepting.clone()));
    drop(taken.pop());
    assert_eq!((refusing.calls(), accepting.kept()), (1, 1));

    assert!(pool.offer_to(refusing.clone()));
    drop(taken.pop());
    assert_eq!(refusing.calls(), 2);
    assert!(pool.is_available());
    drop((accepting, pool));
    assert_all_home(&segments);
}

#[test]
fn many_refusals_in_a_row_do_not_nest() {
    let segments = segments(1);
    let pool = segments.create_buffer_pool(sized(1, 1)).unwrap();
    let segment = pool.try_take(0).unwrap();
    let refusing = Listener::refusing();
    for _ in 0..200_000 {
        assert!(pool.offer_to(refusing.clone()));
    }
    drop(segment);
    assert_eq!(refusing.calls(), 200_000);
    drop(pool);
    assert_all_home(&segments);
}

#[test]
fn a_listener_is_refused_while_a_segment_is_idle_or_the_pool_is_gone() {
    let segments = segments(1);
    let pool = segments.create_buffer_pool(sized(1, 1)).unwrap();
    assert!(!pool.offer_to(Listener::accepting()));
    pool.destroy();
    assert!(!pool.offer_to(Listener::accepting()));
    drop(pool);
    assert_all_home(&segments);
}

#[test]
fn a_listener_is_served_by_growth_and_by_the_segment_pool() {
    let segments = segments(4);
    let greedy = segments.create_buffer_pool(sized(0, None)).unwrap();
    let mut taken = take(&greedy, 4);
    let pool = segments.create_buffer_pool(sized(0, 4)).unwrap();
    assert_eq!((pool.size(), greedy.size()), (2, 2), "4 spare; head room 4 each");
    let listeners: Vec<_> = (0..4).map(|_| Listener::accepting()).collect();
    assert!(listeners.iter().all(|listener| pool.offer_to(listener.clone())));
    drop(taken.drain(..));
    assert_eq!(listeners.iter().map(|listener| listener.kept()).collect::<Vec<_>>(), [1, 1, 0, 0]);
    drop(greedy);
    assert_eq!(listeners.iter().map(|listener| listener.kept()).collect::<Vec<_>>(), [1; 4]);
    listeners.iter().for_each(|listener| drop(listener.empty()));
    drop(pool);
    assert_all_home(&segments);
}

#[test]
fn a_listener_may_use_the_pool_and_register_again() {
    struct Collector(Arc<crate::BufferPool>, std::sync::Mutex<Vec<MemorySegment>>, std::sync::Weak<Self>);
    impl SegmentListener for Collector {
        fn on_segment(&self, segment: MemorySegment) -> Option<MemorySegment> {
            self.1.lock().unwrap().push(segment);
            if let Some(me) = self.2.upgrade() {
                assert!(self.0.offer_to(me));
            }
            None
        }
    }
    let segments = segments(3);
    let pool = segments.create_buffer_pool(sized(3, 3)).unwrap();
    let taken = take(&pool, 3);
    let collector = Arc::new_cyclic(|me| Collector(Arc::clone(&pool), Default::default(), me.clone()));
    assert!(pool.offer_to(collector.clone()));
    drop(taken);
    assert_eq!(collector.1.lock().unwrap().len(), 3);
    pool.destroy();
    collector.1.lock().unwrap().clear();
    drop((pool, collector));
    assert_all_home(&segments);
}

#[test]
fn a_refused_segment_of_another_pool_goes_home_there() {
    struct SwappingOwner(std::sync::Mutex<Option<MemorySegment>>);
    impl SegmentListener for SwappingOwner {
        fn on_segment(&self, segment: MemorySegment) -> Option<MemorySegment> {
            self.0.lock().unwrap().replace(segment)
        }
    }
    let segments = segments(2);
    let (one, other) =
        (segments.create_buffer_pool(sized(1, 1)).unwrap(), segments.create_buffer_pool(sized(1, 1)).unwrap());
    let segment = one.try_take(0).unwrap();
    assert!(one.offer_to(Arc::new(SwappingOwner(other.try_take(0).into()))));
    drop(segment);
    assert!(one.is_available() && other.is_available());
    drop((one, other));
    assert_all_home(&segments);
}

#[test]
fn destroy_wakes_waiters_with_an_error_and_late_segments_go_home() {
    let segments = segments(3);
    let pool = segments.create_buffer_pool(sized(2, 2)).unwrap();
    let taken = take(&pool, 2);
    let (counter, waker) = CountingWaker::pair();
    assert!(pool.poll_take(0, &waker).is_pending());
    assert!(pool.poll_available(&waker).is_pending());

    pool.destroy();
    pool.destroy();
    assert_eq!(counter.wakes(), 2);
    assert_eq!(pool.poll_available(&waker), Poll::Ready(Err(MemoryError::Closed)));
    assert!(matches!(pool.poll_take(0, &waker), Poll::Ready(Err(MemoryError::Closed))));
    assert!(pool.try_take(0).is_none());
    assert!(!pool.is_available());
    assert_eq!((segments.guaranteed(), segments.available(), pool.held()), (0, 1, 2));
    drop(taken);
    assert_eq!((segments.available(), pool.held()), (3, 0));
    drop(pool);
    assert_all_home(&segments);
}

#[test]
fn pools_coming_and_going_fetch_nothing_for_a_destroyed_one() {
    let segments = segments(4);
    let pool = segments.create_buffer_pool(sized(1, 4)).unwrap();
    pool.destroy();
    let other = segments.create_buffer_pool(sized(2, 4)).unwrap();
    drop(other);
    assert_eq!((pool.held(), segments.available()), (0, 4));
    drop(pool);
    assert_all_home(&segments);
}

#[test]
fn a_hard_wait_ends_when_overdraft_can_be_had() {
    let segments = segments(2);
    let other = segments.create_buffer_pool(sized(1, 1)).unwrap();
    let pool = segments.create_buffer_pool(with_overdraft(1, 1, 1)).unwrap();
    let theirs = take(&other, 1);
    let ours = take(&pool, 1);
    let (counter, waker) = CountingWaker::pair();
    assert!(pool.poll_take(0, &waker).is_pending());

    // Their segment becomes idle in their pool, and only the end of that pool frees it.
    drop(theirs);
    assert_eq!(counter.wakes(), 0);
    other.destroy();
    assert_eq!(counter.wakes(), 1);
    let Poll::Ready(Ok(extra)) = pool.poll_take(0, &waker) else { panic!("the segment is free") };
    assert_eq!((pool.held(), pool.size()), (2, 1));
    drop((extra, ours, pool, other));
    assert_all_home(&segments);
}

#[test]
fn a_hard_wait_goes_on_for_overdraft_when_a_listener_was_served_first() {
    let segments = segments(2);
    let greedy = segments.create_buffer_pool(sized(0, None)).unwrap();
    let mut theirs = take(&greedy, 2);
    let pool = segments.create_buffer_pool(with_overdraft(0, 1, 1)).unwrap();
    let (counter, waker) = CountingWaker::pair();
    assert!(pool.poll_take(0, &waker).is_pending());
    let listener = Listener::accepting();
    assert!(pool.offer_to(listener.clone()));
    greedy.destroy();
    drop(theirs.pop());
    assert_eq!(listener.kept(), 1);
    assert_eq!(counter.wakes(), 1, "the waiting task asks again, now for overdraft");
    assert!(pool.poll_take(0, &waker).is_pending());
    drop(theirs.pop());
    assert_eq!(counter.wakes(), 2);
    assert!(pool.poll_take(0, &waker).is_ready());
    drop((listener, pool, greedy));
    assert_all_home(&segments);
}

#[test]
fn a_hard_wait_at_the_overdraft_limit_ends_with_the_next_recycle() {
    let segments = segments(3);
    let pool = segments.create_buffer_pool(with_overdraft(1, 1, 1)).unwrap();
    let mut taken = take(&pool, 2);
    let (counter, waker) = CountingWaker::pair();
    assert!(pool.poll_take(0, &waker).is_pending());
    drop(taken.pop());
    assert_eq!(counter.wakes(), 1);
    assert!(pool.poll_take(0, &waker).is_ready());
    drop((taken, pool));
    assert_all_home(&segments);
}

#[test]
fn a_pool_without_guarantee_lives_on_spare_segments() {
    let segments = segments(2);
    let spare = segments.create_buffer_pool(sized(0, 2)).unwrap();
    drop(take(&spare, 2));
    let demanding = segments.create_buffer_pool(sized(2, 2)).unwrap();
    assert_eq!(spare.size(), 0);
    assert!(spare.try_take(0).is_none());
    drop(take(&demanding, 2));
    drop(demanding);
    assert!(spare.is_available());
    drop(spare);
    assert_all_home(&segments);
}

#[test]
fn waiting_twice_with_one_waker_wakes_once_and_every_waiter_is_woken() {
    let segments = segments(1);
    let pool = segments.create_buffer_pool(sized(1, 1)).unwrap();
    let segment = pool.try_take(0).unwrap();
    let (first, first_waker) = CountingWaker::pair();
    let (second, second_waker) = CountingWaker::pair();
    for _ in 0..3 {
        assert!(pool.poll_available(&first_waker).is_pending());
        assert!(pool.poll_available(&second_waker).is_pending());
    }
    drop(segment);
    assert_eq!((first.wakes(), second.wakes()), (1, 1));
    drop(pool);
    assert_all_home(&segments);
}

#[test]
fn handles_tell_their_bounds() {
    let segments = SegmentPool::new(4, 64).unwrap();
    let pool = segments.create_buffer_pool(sized(1, None)).unwrap();
    assert_eq!((pool.min(), pool.max(), pool.size(), pool.segment_bytes()), (1, None, 4, 64));
    let bounded = segments.create_buffer_pool(sized(1, 2)).unwrap();
    assert_eq!((bounded.max(), bounded.size(), pool.size()), (Some(2), 2, 2));
    drop((pool, bounded));
    assert_all_home(&segments);
}
