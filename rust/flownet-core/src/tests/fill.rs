//! Fill limits: set by a reader, carried to the writer, and without effect on anything else.

use super::pair::{Pair, SEGMENT_BYTES, Setup};
use crate::channel::ChannelControl;
use crate::debloat::FillLimit;
use crate::ids::SubpartitionIndex;

fn fill_limit(pair: &Pair, channel: u32) -> FillLimit {
    pair.handle.subpartition(SubpartitionIndex::new(channel)).unwrap().fill_limit()
}

/// Writes `records` records of `bytes` bytes. Returns the number of buffers they were read in.
fn buffers_of(pair: &mut Pair, records: usize, bytes: usize) -> usize {
    for _ in 0..records {
        assert_eq!(pair.emit_bytes(0, bytes), bytes);
    }
    pair.flush(0);
    pair.run_until_idle();
    let read = pair.read_order.len();
    pair.read(usize::MAX);
    pair.read_order.len() - read
}

#[test]
fn the_record_that_reaches_the_limit_closes_the_buffer_and_is_not_cut_by_it() {
    let mut pair = Pair::new(Setup { local: |_| true, ..Setup::default() });
    for (limit, buffers) in [(FillLimit::ONE_RECORD, 6), (FillLimit::new(0), 6), (FillLimit::new(5), 6)] {
        pair.gate().set_fill_limit(limit);
        assert_eq!(buffers_of(&mut pair, 6, 5), buffers, "{limit:?}");
    }
    pair.gate().set_fill_limit(FillLimit::new(6));
    assert_eq!(buffers_of(&mut pair, 6, 5), 3, "the first ends before the limit, the second behind it");
    assert_eq!(
        buffers_of(&mut pair, 3, SEGMENT_BYTES),
        3,
        "a record that fits a segment has one, however small the limit"
    );
    assert_eq!(buffers_of(&mut pair, 1, 3 * SEGMENT_BYTES), 3, "one that does not has no more than it must");
    pair.gate().set_fill_limit(FillLimit::NONE);
    assert_eq!(buffers_of(&mut pair, 6, SEGMENT_BYTES / 3), 2);
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_producer_elsewhere_is_told_with_its_next_credit_and_what_it_sends_costs_a_credit_a_buffer_as_ever() {
    let mut pair = Pair::new(Setup::default());
    pair.run_until_idle();
    assert_eq!(fill_limit(&pair, 0), FillLimit::NONE, "who says nothing wants full buffers");
    pair.gate().set_fill_limit(FillLimit::new(8));
    pair.run_until_idle();
    assert_eq!(fill_limit(&pair, 0), FillLimit::NONE, "nobody is woken for it");
    pair.gate().set_fill_limit(FillLimit::new(7));
    let before = pair.sender_credit(0);
    pair.emit_buffers(0, before as usize);
    pair.run_until_idle();
    pair.read(usize::MAX);
    pair.run_until_idle();
    assert_eq!(fill_limit(&pair, 0), FillLimit::new(7), "the last word counts");
    assert_eq!(pair.sender_credit(0), before);
    pair.data_headers.clear();
    for _ in 0..4 {
        pair.emit_bytes(0, 4);
    }
    pair.run_until_idle();
    assert_eq!(pair.data_headers.iter().map(|header| header.payload_bytes).collect::<Vec<_>>(), [8, 8]);
    pair.hold(usize::MAX);
    assert_eq!(pair.gate().buffers_in_use(), 2, "they are held");
    pair.drop_held();
    pair.run_until_idle();
    assert_eq!(pair.sender_credit(0), before, "and their credit came back");
    pair.finish_and_assert_all_segments_home();
}

/// A gate with many channels has one limit, and reports it together with credit.
#[test]
fn only_producers_that_send_are_told_and_each_of_them_the_limit_of_that_time() {
    let mut pair = Pair::new(Setup { channels: 6, local: |channel| channel == 5, ..Setup::default() });
    pair.run_until_idle();
    let limits = |pair: &Pair| (0..6).map(|channel| fill_limit(pair, channel).get()).collect::<Vec<_>>();
    let none = FillLimit::NONE.get();
    for (limit, told) in [(9, [9, none, none, none, none, 9]), (30, [9, 30, none, none, none, 30])] {
        pair.gate().set_fill_limit(FillLimit::new(limit));
        let channel = u32::from(limit == 30);
        let credit = pair.sender_credit(channel);
        pair.emit_buffers(channel, credit as usize);
        pair.run_until_idle();
        pair.read(usize::MAX);
        pair.run_until_idle();
        assert_eq!(limits(&pair), told);
    }
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_limit_that_comes_before_the_partition_waits_for_it() {
    let mut pair = Pair::new(Setup { registered: false, ..Setup::default() });
    pair.gate().set_fill_limit(FillLimit::new(9));
    pair.run_until_idle();
    assert_eq!(fill_limit(&pair, 0), FillLimit::NONE);
    pair.registry.register(pair.handle.clone());
    pair.producer.as_mut().unwrap().retry_parked(&pair.registry);
    assert_eq!(fill_limit(&pair, 0), FillLimit::new(9));
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn who_is_not_controlled_by_credit_sends_full_buffers_from_the_first_on() {
    let control = ChannelControl::Unbounded;
    let mut pair = Pair::new(Setup { control, exclusive: 0, ..Setup::default() });
    pair.partition.as_ref().unwrap().set_fill_limit(FillLimit::ONE_RECORD);
    pair.run_until_idle();
    assert_eq!(fill_limit(&pair, 0), FillLimit::NONE);
    pair.gate().set_fill_limit(FillLimit::new(5));
    pair.run_until_idle();
    assert_eq!(fill_limit(&pair, 0), FillLimit::NONE);
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_broadcast_buffer_is_filled_as_far_as_the_reader_wants_who_wants_least() {
    let mut pair =
        Pair::new(Setup { channels: 3, is_broadcast: true, local: |channel| channel == 1, ..Setup::default() });
    pair.run_until_idle();
    let cells: Vec<_> = (0..3).map(|index| pair.handle.subpartition(SubpartitionIndex::new(index)).unwrap()).collect();
    cells[0].set_fill_limit(FillLimit::new(20));
    cells[1].set_fill_limit(FillLimit::new(8));
    for _ in 0..6 {
        assert_eq!(pair.broadcast_bytes(4), 4);
    }
    pair.run_until_idle();
    assert_eq!(pair.read(usize::MAX), 9, "three buffers of two records for each of three");
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn buffers_in_use_are_those_queued_here_and_those_that_the_producer_has_told_of() {
    let mut pair =
        Pair::new(Setup { channels: 2, exclusive: 1, floating: 1, local: |channel| channel == 1, ..Setup::default() });
    pair.run_until_idle();
    assert_eq!(pair.gate().buffers_in_use(), 0, "credit that waits is none");
    pair.emit_buffers(1, 2);
    assert_eq!(pair.gate().buffers_in_use(), 2, "a local producer's queue is seen as it is");
    pair.emit_buffers(0, 4);
    pair.run_until_idle();
    assert_eq!(pair.consumer_queue(), 3);
    // A channel requests no more than the pool lends.
    assert_eq!(pair.gate().buffers_in_use(), 2 + 3 + 1, "three have come, and one waits for a segment");
    pair.finish_and_assert_all_segments_home();
}
