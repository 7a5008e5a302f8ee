//! One writer, its readers, and the return of the segment that they share.

use std::sync::{Arc, Mutex};

use super::support::{assert_all_home, sized};
use crate::{Buffer, BufferBuilder, BufferPool, MemorySegment, Recycler, SegmentPart, SegmentPool};

/// Creates a pool of one segment of 8 bytes.
fn one_segment() -> (Arc<SegmentPool>, Arc<BufferPool>) {
    let segments = SegmentPool::new(1, 8).unwrap();
    let pool = segments.create_buffer_pool(sized(1, 1)).unwrap();
    (segments, pool)
}

fn assert_home(segments: Arc<SegmentPool>, pool: Arc<BufferPool>) {
    assert!(pool.is_available(), "the segment is back in its pool");
    drop(pool);
    assert_all_home(&segments);
}

#[test]
fn a_segment_outside_of_every_pool_is_as_long_as_asked_and_touches_no_pool() {
    let (segments, pool) = one_segment();
    let mut segment = MemorySegment::unpooled(3).unwrap();
    segment.as_mut_slice().copy_from_slice(b"abc");
    let buffer = Buffer::from_segment(segment, 3);
    let copy = buffer.clone();
    drop(buffer);
    assert_eq!((&*copy, pool.in_use()), (&b"abc"[..], 0));
    drop(copy);
    assert!(MemorySegment::unpooled(0).is_err());
    assert_home(segments, pool);
}

#[test]
fn a_segment_is_split_into_equal_parts_that_do_not_overlap() {
    let (segments, pool) = one_segment();
    let parts: Vec<_> = pool.try_take(0).unwrap().split(2).collect();
    let (mut builders, mut consumers): (Vec<_>, Vec<_>) = parts.into_iter().map(BufferBuilder::new).unzip();
    let written = [b'a', b'b'].map(|byte| {
        let builder = &mut builders[usize::from(byte - b'a')];
        let written = builder.append(&[byte; 8]);
        builder.commit();
        written
    });
    assert_eq!(written, [4, 4]);
    assert_eq!(
        consumers.iter_mut().map(|consumer| consumer.poll().unwrap().to_vec()).collect::<Vec<_>>().concat(),
        b"aaaabbbb"
    );
    drop((builders, consumers));
    assert_home(segments, pool);
}

#[test]
fn what_a_poll_would_return_is_told_before() {
    let (segments, pool) = one_segment();
    let (mut builder, mut consumer) = BufferBuilder::new(pool.try_take(0).unwrap());
    builder.append(b"abc");
    assert_eq!(consumer.unread_bytes(), 0);
    builder.commit();
    assert_eq!(consumer.unread_bytes(), 3);
    assert_eq!(consumer.poll().unwrap().len(), 3);
    assert_eq!(consumer.unread_bytes(), 0);
    drop((builder, consumer));
    assert_home(segments, pool);
}

#[test]
fn bytes_are_invisible_until_committed_and_then_read_once_in_order() {
    let (segments, pool) = one_segment();
    let (mut builder, mut consumer) = BufferBuilder::new(pool.try_take(0).unwrap());
    assert_eq!(builder.append(b"abc"), 3);
    assert!(!consumer.has_data());
    assert!(consumer.poll().is_none());
    builder.commit();
    assert!(consumer.has_data());
    builder.append(b"d");
    assert_eq!(&*consumer.poll().unwrap(), b"abc");
    assert!(consumer.poll().is_none());
    builder.commit();
    assert_eq!(&*consumer.poll().unwrap(), b"d");
    drop((builder, consumer));
    assert_home(segments, pool);
}

#[test]
fn a_part_with_a_fill_limit_takes_the_record_that_reaches_it_and_no_other() {
    for (limit, records) in [(1, 1), (2, 1), (3, 2), (5, 3), (100, 4)] {
        let (segments, pool) = one_segment();
        let part = SegmentPart::from(pool.try_take(0).unwrap()).with_fill_limit(limit);
        let (mut builder, mut consumer) = BufferBuilder::new(part);
        let mut written = 0;
        while !builder.is_filled() {
            if !builder.records().try_append_both(b"a", b"b") {
                assert_eq!(builder.append(b"ab"), 2, "there is room, up to the end of the part");
                builder.commit();
            }
            written += 1;
        }
        assert_eq!((written, builder.is_full()), (records, records == 4), "limit {limit}");
        assert!(!builder.records().try_append_both(b"", b""), "what reached the limit is not gone on with");
        assert_eq!(builder.append(b"rest of a record"), 8 - 2 * records);
        builder.finish();
        assert!(builder.is_filled());
        assert_eq!(consumer.poll().unwrap().len(), 8);
        drop((builder, consumer));
        assert_home(segments, pool);
    }
}

#[test]
fn appending_over_capacity_writes_a_prefix_and_says_how_much() {
    let (segments, pool) = one_segment();
    let (mut builder, mut consumer) = BufferBuilder::new(pool.try_take(0).unwrap());
    assert_eq!(builder.append(b"abcde"), 5);
    assert_eq!(builder.writable_bytes(), 3);
    assert_eq!(builder.append(b"fghij"), 3);
    assert!(builder.is_full());
    assert_eq!(builder.append(b"k"), 0);
    assert_eq!(builder.append(b""), 0);
    assert_eq!(builder.written_bytes(), 8);
    builder.commit();
    assert_eq!(&*consumer.poll().unwrap(), b"abcdefgh");
    drop((builder, consumer));
    assert_home(segments, pool);
}

#[test]
fn two_pieces_are_written_and_committed_together_or_not_at_all() {
    let (segments, pool) = one_segment();
    let (mut builder, mut consumer) = BufferBuilder::new(pool.try_take(0).unwrap());
    assert!(builder.records().try_append_both(b"ab", b"c"));
    assert_eq!(&*consumer.poll().unwrap(), b"abc");
    assert!(!builder.records().try_append_both(b"def", b"gh"), "what would fill the segment is for `append`");
    assert_eq!((builder.written_bytes(), consumer.has_data()), (3, false));
    assert!(builder.records().try_append_both(b"", b"defg"));
    assert_eq!(&*consumer.poll().unwrap(), b"defg");
    builder.finish();
    assert!(!builder.records().try_append_both(b"", b""), "nothing is written once finished");
    drop((builder, consumer));
    assert_home(segments, pool);
}

#[test]
fn pieces_of_every_length_arrive_whole() {
    let segments = SegmentPool::new(1, 64).unwrap();
    let pool = segments.create_buffer_pool(sized(1, 1)).unwrap();
    for len in 0..40_u8 {
        let piece: Vec<u8> = (1..=len).collect();
        let (mut builder, mut consumer) = BufferBuilder::new(pool.try_take(0).unwrap());
        builder.append(&[0xee; 3]);
        builder.append(&piece);
        builder.append(&[0xff; 3]);
        builder.commit();
        assert_eq!(&*consumer.poll().unwrap(), [&[0xee; 3][..], &piece, &[0xff; 3]].concat());
    }
    assert_home(segments, pool);
}

#[test]
fn records_are_not_written_behind_bytes_that_are_not_committed() {
    let (segments, pool) = one_segment();
    let (mut builder, mut consumer) = BufferBuilder::new(pool.try_take(0).unwrap());
    builder.append(b"a");
    assert!(!builder.records().try_append_both(b"b", b"c"));
    builder.commit();
    let mut records = builder.records();
    assert!(records.try_append_both(b"b", b"c"));
    assert!(records.try_append_both(b"d", b"e"));
    assert!(!records.try_append_both(b"f", b"gh"), "what would fill the segment is for `append`");
    assert!(records.try_append_both(b"", b"fg"));
    assert_eq!(builder.append(b"hi"), 1);
    builder.commit();
    assert_eq!(&*consumer.poll().unwrap(), b"abcdefgh");
    drop((builder, consumer));
    assert_home(segments, pool);
}

#[test]
fn the_end_is_visible_for_empty_partial_and_full_buffers() {
    for content in [&b""[..], b"abc", b"abcdefgh"] {
        let (segments, pool) = one_segment();
        let (mut builder, mut consumer) = BufferBuilder::new(pool.try_take(0).unwrap());
        builder.append(content);
        assert!(!consumer.is_drained());
        assert_eq!(builder.finish(), content.len());
        assert_eq!(builder.finish(), content.len(), "finishing is idempotent");
        assert!(builder.is_finished());
        assert!(!consumer.is_finished(), "the end shows with the next poll");
        assert_eq!(consumer.is_drained(), content.is_empty());
        assert!(consumer.is_finished());
        assert_eq!(consumer.poll().map_or(0, |buffer| buffer.len()), content.len());
        assert!(consumer.is_drained());
        drop((builder, consumer));
        assert_home(segments, pool);
    }
}

#[test]
fn nothing_can_be_written_once_finished() {
    let (segments, pool) = one_segment();
    let (mut builder, mut consumer) = BufferBuilder::new(pool.try_take(0).unwrap());
    builder.append(b"ab");
    builder.finish();
    assert!(builder.is_full());
    assert_eq!(builder.append(b"c"), 0);
    builder.commit();
    assert_eq!(&*consumer.poll().unwrap(), b"ab");
    assert!(consumer.is_finished());
    drop((builder, consumer));
    assert_home(segments, pool);
}

#[test]
fn a_dropped_builder_has_finished() {
    let (segments, pool) = one_segment();
    let (mut builder, mut consumer) = BufferBuilder::new(pool.try_take(0).unwrap());
    builder.append(b"abc");
    drop(builder);
    assert_eq!(&*consumer.poll().unwrap(), b"abc");
    assert!(consumer.is_finished() && consumer.is_drained());
    drop(consumer);
    assert_home(segments, pool);
}

#[test]
fn the_segment_goes_home_only_after_builder_consumer_and_slices() {
    // Every order of closing: all sequences of five numbers below five without a repetition.
    let orders = (0..5_usize.pow(5)).map(|number| [1, 5, 25, 125, 625].map(|place| number / place % 5));
    let orders = orders.filter(|order| (0..5).all(|holder| order.contains(&holder)));
    let mut tried = 0;
    for order in orders {
        let (segments, pool) = one_segment();
        let (mut builder, mut consumer) = BufferBuilder::new(pool.try_take(0).unwrap());
        builder.append(b"abcdef");
        builder.commit();
        let buffer = consumer.poll().unwrap();
        let slice = buffer.slice(2..4);
        let copy = consumer.copy();
        let mut holders: [Option<Box<dyn std::any::Any>>; 5] = [
            Some(Box::new(builder)),
            Some(Box::new(consumer)),
            Some(Box::new(copy)),
            Some(Box::new(buffer)),
            Some(Box::new(slice)),
        ];
        for closed in order {
            assert_eq!((pool.is_available(), pool.in_use()), (false, 1), "{closed} of {order:?} still holds it");
            holders[closed] = None;
        }
        assert_eq!((pool.is_available(), pool.in_use()), (true, 0), "{order:?}");
        assert_home(segments, pool);
        tried += 1;
    }
    assert_eq!(tried, 120);
}

#[test]
fn a_slice_of_a_slice_keeps_the_segment_and_its_bytes() {
    let (segments, pool) = one_segment();
    let (mut builder, mut consumer) = BufferBuilder::new(pool.try_take(0).unwrap());
    builder.append(b"abcdef");
    builder.commit();
    let copy = consumer.poll().unwrap().slice(1..5).slice(1..3).clone();
    drop((builder, consumer));
    assert!(!pool.is_available());
    assert_eq!(copy.as_ref(), b"cd");
    drop(copy);
    assert_home(segments, pool);
}

#[test]
fn copies_read_independently_from_the_position_they_were_made_at() {
    let (segments, pool) = one_segment();
    let (mut builder, mut first) = BufferBuilder::new(pool.try_take(0).unwrap());
    let mut second = first.copy();
    builder.append(b"abc");
    builder.commit();
    assert_eq!(&*first.poll().unwrap(), b"abc");
    let mut third = first.copy();
    builder.append(b"de");
    builder.finish();
    assert_eq!(&*second.poll().unwrap(), b"abcde");
    assert_eq!(&*third.poll().unwrap(), b"de");
    assert_eq!(&*first.poll().unwrap(), b"de");
    assert!(first.is_drained() && second.is_drained() && third.is_drained());
    drop((builder, first, second, third));
    assert_home(segments, pool);
}

#[test]
fn a_buffer_of_a_whole_segment_shows_its_first_bytes() {
    let (segments, pool) = one_segment();
    let mut segment = pool.try_take(0).unwrap();
    segment.as_mut_slice().copy_from_slice(b"abcdefgh");
    let buffer = Buffer::from_segment(segment, 5);
    assert_eq!(&*buffer, b"abcde");
    assert_eq!(&*buffer.slice(1..5).slice(1..3), b"cd");
    assert!(buffer.slice(5..5).is_empty());
    drop(buffer);
    assert_home(segments, pool);
}

#[test]
#[should_panic(expected = "1..6 is not within 0..5")]
fn slicing_past_the_end_panics() {
    let (_segments, pool) = one_segment();
    Buffer::from_segment(pool.try_take(0).unwrap(), 5).slice(1..6);
}

#[test]
#[should_panic(expected = "9 bytes cannot lie in a segment of 8")]
fn a_buffer_longer_than_its_segment_panics() {
    let (_segments, pool) = one_segment();
    drop(Buffer::from_segment(pool.try_take(0).unwrap(), 9));
}

#[test]
fn a_recycler_gets_the_segment_of_the_last_buffer() {
    #[derive(Default)]
    struct SegmentStore(Mutex<Vec<MemorySegment>>);
    impl Recycler for SegmentStore {
        fn recycle(&self, segment: MemorySegment) {
            self.0.lock().unwrap().push(segment);
        }
    }
    let (segments, pool) = one_segment();
    let keep = Arc::new(SegmentStore::default());
    let buffer = Buffer::with_recycler(pool.try_take(0).unwrap(), 8, keep.clone());
    let clone = buffer.clone();
    drop(buffer);
    assert_eq!(keep.0.lock().unwrap().len(), 0);
    drop(clone);
    let segment = keep.0.lock().unwrap().pop().unwrap();
    assert!(!pool.is_available());
    assert_eq!(Arc::strong_count(&keep), 1);
    drop(segment);
    assert_home(segments, pool);
}

#[test]
fn handles_cross_threads() {
    fn is_send<T: Send>() {}
    fn is_sync<T: Sync>() {}
    is_send::<MemorySegment>();
    is_send::<BufferBuilder>();
    is_send::<crate::BufferConsumer>();
    is_send::<Buffer>();
    is_sync::<Buffer>();
    is_send::<BufferPool>();
    is_sync::<BufferPool>();
    is_send::<SegmentPool>();
    is_sync::<SegmentPool>();
}

#[test]
fn parts_of_a_segment_are_written_and_read_apart_and_the_last_one_sends_it_home() {
    let (segments, pool) = one_segment();
    let (mut builders, mut consumers): (Vec<_>, Vec<_>) =
        pool.try_take(0).unwrap().split(3).map(BufferBuilder::new).unzip();
    for (byte, builder) in (b'a'..).zip(&mut builders) {
        assert_eq!(builder.append(&[byte; 8]), 2, "eight bytes are three parts of two");
    }
    drop(builders);
    let read: Vec<Buffer> = consumers.iter_mut().map(|consumer| consumer.poll().unwrap()).collect();
    assert_eq!(read.iter().map(AsRef::as_ref).collect::<Vec<&[u8]>>(), [b"aa", b"bb", b"cc"]);
    drop(consumers);
    for buffer in read {
        assert!(!pool.is_available(), "a part is in use");
        drop(buffer);
    }
    assert_home(segments, pool);
}
