//! Credit and backlog between two workers.

use super::pair::{Pair, SEGMENT_BYTES, Setup, barrier, watermark};
use crate::credit::Backlog;
use crate::event::BarrierKind;
use crate::ids::ChannelIndex;

#[test]
fn consumer_without_free_buffers_stops_producer_at_zero_credit() {
    let mut pair = Pair::with_exclusive_buffers(2);
    pair.emit_buffers(0, 5);
    pair.run_until_idle();
    assert_eq!((pair.consumer_queue(), pair.backlog(0)), (2, Backlog::new(3)));

    pair.read(1);
    pair.run_until_idle();
    assert_eq!(pair.backlog(0), Backlog::new(2));
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_reader_sends_only_with_credit_and_data() {
    let mut pair = Pair::with_exclusive_buffers(1);
    pair.run_until_idle();
    assert_eq!((pair.sender_credit(0), pair.data_headers.len()), (1, 0), "credit alone sends nothing");
    pair.emit_buffers(0, 2);
    pair.run_until_idle();
    assert_eq!((pair.sender_credit(0), pair.data_headers.len()), (0, 1), "data alone sends nothing");
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn events_travel_without_credit() {
    let mut pair = Pair::with_exclusive_buffers(1);
    pair.emit_buffers(0, 1);
    (0..5).for_each(|time| pair.emit_event(0, watermark(time)));
    pair.emit_buffers(0, 1);
    pair.hold(1);
    pair.run_until_idle();
    assert_eq!((pair.sender_credit(0), pair.backlog(0)), (0, Backlog::new(1)));
    assert_eq!(pair.hold(usize::MAX), 6, "a buffer and five events behind it");
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn floating_segments_follow_the_backlog_and_no_further() {
    let mut pair = Pair::new(Setup { exclusive: 2, floating: 8, ..Setup::default() });
    pair.run_until_idle();
    assert_eq!(pair.remote(0).owned_segments(), 2, "no backlog, no floating segment");
    pair.emit_buffers(0, 5);
    pair.run_until_idle();
    // The first buffer reported that four wait after it: 4 + 2 exclusive - 1 free = 5 floating segments.
    assert_eq!(pair.remote(0).owned_segments(), 7);
    assert_eq!(pair.consumer_queue(), 5);
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn floating_segments_go_back_when_the_backlog_is_gone() {
    let mut pair = Pair::new(Setup { exclusive: 2, floating: 8, ..Setup::default() });
    pair.emit_buffers(0, 8);
    pair.run_until_idle();
    // Seven waited after the first: 7 + 2 exclusive - 1 free = 8 floating, one of which the sender cannot use.
    assert_eq!((pair.remote(0).owned_segments(), pair.gate_pool.in_use()), (10, 10));
    pair.hold(8);
    for (kept, in_use) in [(7, 9), (6, 8), (5, 7), (4, 6), (3, 5), (2, 4), (1, 3), (0, 2)] {
        pair.drop_all_held_but(kept);
        assert_eq!((pair.remote(0).owned_segments(), pair.gate_pool.in_use()), (in_use, in_use as usize));
    }
    assert_eq!(pair.remote(0).free_segments(), 2, "as many as are exclusive, ready for what comes next");
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn waiting_channels_get_floating_segments_in_turn() {
    let mut pair =
        Pair::new(Setup { channels: 3, exclusive: 0, floating: 2, partition_segments: Some(24), ..Setup::default() });
    (0..3).for_each(|channel| pair.emit_buffers(channel, 8));
    for _ in 0..24 {
        pair.run_until_idle();
        assert_eq!(pair.read(1), 1, "who waits is served as soon as a segment comes back");
    }
    // The first channel was alone when it asked, and still got only one of the two segments.
    let order: Vec<u32> = pair.read_order.iter().map(|channel| channel.get()).collect();
    assert_eq!(order, [0, 1, 2].repeat(8), "nobody is served twice while another waits");
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_waiting_channel_gets_all_it_asked_for_as_segments_come_free() {
    let pair = Pair::new(Setup { channels: 2, exclusive: 1, floating: 3, ..Setup::default() });
    pair.remote(0).on_backlog(Backlog::new(3));
    pair.remote(1).on_backlog(Backlog::new(9));
    assert_eq!((pair.remote(0).owned_segments(), pair.remote(1).owned_segments()), (4, 1));
    pair.remote(0).release();
    assert_eq!(pair.remote(1).owned_segments(), 5, "three floating ones and the exclusive one of the other");
    pair.assert_all_segments_home();
}

#[test]
fn one_busy_channel_cannot_keep_a_zero_exclusive_one_from_its_segment() {
    let mut pair =
        Pair::new(Setup { channels: 2, exclusive: 0, floating: 1, partition_segments: Some(10), ..Setup::default() });
    pair.emit_buffers(0, 8);
    pair.emit_buffers(1, 1);
    let mut turns = 0;
    while pair.unread_bytes(1) > 0 {
        pair.run_until_idle();
        pair.read(1);
        turns += 1;
        assert!(turns < 4, "the second channel waits behind at most one buffer of the first");
    }
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn without_exclusive_buffers_the_backlog_is_announced_and_answered() {
    let mut pair = Pair::new(Setup { exclusive: 0, floating: 4, ..Setup::default() });
    pair.run_until_idle();
    assert_eq!((pair.sender_credit(0), pair.remote(0).owned_segments()), (0, 0), "an idle channel holds nothing");
    assert_eq!(pair.backlog_frames, []);
    pair.emit_buffers(0, 3);
    pair.run_until_idle();
    assert_eq!(pair.backlog_frames, [(pair.id(0), 3)]);
    assert_eq!(pair.consumer_queue(), 3);
    pair.read(3);
    assert_eq!(pair.remote(0).owned_segments(), 0, "everything went back to the pool");
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn without_exclusive_buffers_a_flushed_byte_arrives() {
    let mut pair = Pair::new(Setup { exclusive: 0, floating: 1, ..Setup::default() });
    for _ in 0..SEGMENT_BYTES {
        pair.emit_bytes(0, 1);
        pair.flush(0);
        pair.run_until_idle();
        assert_eq!(pair.read(1), 1);
        // A sender without data has no credit left: another channel could use the segment.
        assert_eq!((pair.sender_credit(0), pair.remote(0).owned_segments()), (0, 0));
    }
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_blocked_channel_without_exclusive_buffers_gives_its_segments_to_others() {
    let mut pair = Pair::new(Setup { channels: 2, exclusive: 0, floating: 2, ..Setup::default() });
    pair.emit_buffers(0, 1);
    pair.emit_event(0, barrier(1, BarrierKind::Aligned));
    pair.emit_buffers(0, 2);
    pair.run_until_idle();
    // Three buffers were announced, so both segments were lent to the channel. One holds the data before the barrier.
    assert_eq!((pair.remote(0).owned_segments(), pair.remote(0).free_segments()), (1, 0), "the other went back");
    pair.emit_buffers(1, 2);
    pair.run_until_idle();
    assert_eq!(pair.consumer_queue(), 2, "the second channel has it, though nothing was read");
    assert_eq!(pair.hold(usize::MAX), 3);
    pair.drop_held();
    pair.run_until_idle();
    assert_eq!((pair.remote(0).owned_segments(), pair.read(usize::MAX)), (0, 1), "all is the second channel's");
    pair.resume_all();
    pair.run_until_idle();
    assert_eq!(pair.read(2), 2, "resumed, it announces its backlog and goes on");
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn many_credit_returns_travel_in_one_frame_with_their_sums() {
    let mut pair =
        Pair::new(Setup { channels: 3, exclusive: 4, floating: 0, partition_segments: Some(12), ..Setup::default() });
    (0..3).for_each(|channel| pair.emit_buffers(channel, 4));
    pair.run_until_idle();
    pair.credit_frames.clear();
    assert_eq!(pair.read(12), 12);
    pair.run_until_idle();
    let mut credits = pair.credit_frames.concat();
    credits.sort_by_key(|(channel, _)| channel.get());
    assert_eq!(pair.credit_frames.len(), 1);
    assert_eq!(credits, [(pair.id(0), 4), (pair.id(1), 4), (pair.id(2), 4)]);
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn credit_is_gathered_while_the_sender_has_more_than_is_gathered() {
    let mut pair = Pair::new(Setup { exclusive: 8, floating: 0, partition_segments: Some(8), ..Setup::default() });
    pair.emit_buffers(0, 2);
    pair.run_until_idle();
    pair.read(2);
    pair.run_until_idle();
    assert_eq!((pair.credit_frames.len(), pair.sender_credit(0)), (0, 6), "2 gathered, 6 still with the sender");
    pair.emit_buffers(0, 4);
    pair.run_until_idle();
    assert_eq!(pair.credit_frames, [[(pair.id(0), 2)]], "as soon as the sender has no more than is gathered");
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn no_credit_is_announced_after_release() {
    let mut pair = Pair::with_exclusive_buffers(2);
    pair.emit_buffers(0, 2);
    pair.run_until_idle();
    pair.hold(2);
    pair.remote(0).release();
    pair.drop_held();
    pair.run_until_idle();
    assert_eq!(pair.credit_frames.len(), 0);
    assert_eq!(pair.cancel_frames, [pair.id(0)]);
    pair.assert_all_segments_home();
}

#[test]
fn a_slow_channel_does_not_hold_up_the_others() {
    let mut pair = Pair::new(Setup { channels: 2, exclusive: 1, floating: 0, ..Setup::default() });
    pair.emit_buffers(0, 4);
    pair.hold(0);
    for _ in 0..20 {
        pair.run_until_idle();
        pair.emit_buffers(1, 1);
        pair.run_until_idle();
        let remote = std::sync::Arc::clone(pair.remote(1));
        let free = remote.free_segments();
        assert_eq!(free, 0, "channel 1's buffer arrived though channel 0 has no credit");
        // Read all elements, and retain only the buffers of channel 0.
        while pair.hold(1) == 1 && pair.read_order.last() != Some(&ChannelIndex::new(1)) {}
        pair.drop_held();
    }
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn ready_readers_share_the_connection_buffer_by_buffer() {
    let mut pair =
        Pair::new(Setup { channels: 3, exclusive: 4, floating: 0, partition_segments: Some(12), ..Setup::default() });
    pair.is_unwritable = true;
    (0..3).for_each(|channel| pair.emit_buffers(channel, 4));
    pair.run_until_idle();
    pair.is_unwritable = false;
    pair.run_until_idle();
    let order: Vec<u32> = pair.data_headers.iter().map(|header| header.channel.get()).collect();
    for turn in order.chunks(3) {
        let mut turn = turn.to_vec();
        turn.sort_unstable();
        assert_eq!(turn, [0, 1, 2], "one buffer each in turn: {order:?}");
    }
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_reader_is_served_once_however_often_it_is_announced() {
    let mut pair =
        Pair::new(Setup { channels: 2, exclusive: 4, floating: 0, partition_segments: Some(8), ..Setup::default() });
    pair.is_unwritable = true;
    (0..2).for_each(|channel| pair.emit_buffers(channel, 4));
    pair.run_until_idle();
    let id = pair.id(0);
    (0..10).for_each(|_| pair.producer.as_mut().unwrap().on_ready(id));
    pair.is_unwritable = false;
    pair.run_until_idle();
    let order: Vec<u32> = pair.data_headers.iter().map(|header| header.channel.get()).collect();
    assert_eq!(order, [0, 1].repeat(4), "ten announcements give no second turn before the other channel's first");
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn every_data_frame_says_how_many_wait_behind_it() {
    let mut pair = Pair::with_exclusive_buffers(8);
    pair.run_until_idle();
    pair.emit_buffers(0, 3);
    pair.emit_bytes(0, 1);
    pair.run_until_idle();
    let backlogs: Vec<u32> = pair.data_headers.iter().map(|header| header.backlog.get()).collect();
    assert_eq!(backlogs, [2, 1, 0], "the open buffer is not counted");
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_backlog_that_lies_takes_nothing_from_the_last_segment_of_the_others() {
    let mut pair = Pair::new(Setup { channels: 3, exclusive: 0, floating: 8, ..Setup::default() });
    pair.run_until_idle();
    let liar = pair.id(0);
    for _ in 0..3 {
        let mut bytes = Vec::new();
        crate::wire::encode_backlogs([(liar, Backlog::new(1000))], &mut bytes);
        pair.consumer_takes(&bytes).unwrap();
        pair.run_until_idle();
    }
    for channel in [1, 2] {
        pair.emit_buffers(channel, 5);
        for _ in 0..20 {
            pair.run_until_idle();
            pair.read(1);
        }
        assert_eq!(pair.unread_bytes(channel), 0, "channel {channel} gets on");
    }
    pair.finish_and_assert_all_segments_home();
}
