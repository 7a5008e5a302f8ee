//! Many channels and little memory: which channels hold a segment, which gets the next one, and that each gets one.

use std::sync::Arc;
use std::task::Waker;

use proptest::prelude::*;

use super::pair::{Pair, SEGMENT_BYTES, Setup, barrier};
use crate::credit::Backlog;
use crate::event::BarrierKind;

/// Returns a worker pair with this many segments on each side.
fn short(channels: u32, producer: usize, consumer: usize) -> Setup {
    Setup { channels, memory: Some((producer, consumer)), ..Setup::default() }
}

/// Writes `bytes` to each channel as room is found, and reads one buffer per round. Returns the rounds in which each
/// channel was read.
fn pump(pair: &mut Pair, bytes: usize) {
    let channels = pair.setup.channels;
    let mut left = vec![bytes; channels as usize];
    for _ in 0..200_000 {
        for channel in 0..channels {
            let taken = pair.emit_bytes(channel, left[channel as usize]);
            left[channel as usize] -= taken;
            pair.flush(channel);
        }
        pair.run_until_idle();
        if pair.read(1) == 0 && left.iter().all(|left| *left == 0) {
            break;
        }
    }
    assert!((0..channels).all(|channel| left[channel as usize] == 0 && pair.unread_bytes(channel) == 0), "all arrived");
}

#[test]
fn with_the_least_memory_every_channel_gets_its_turn() {
    for channels in [1, 2, 7, 50] {
        for exclusive in [0, 2] {
            let mut pair = Pair::new(Setup { exclusive, ..short(channels, 2, 1) });
            pump(&mut pair, 3 * SEGMENT_BYTES + 5);
            pair.finish_and_assert_all_segments_home();
        }
    }
}

#[test]
fn idle_channels_beyond_what_memory_can_promise_hold_nothing() {
    let mut pair = Pair::new(short(300, 16, 16));
    pair.run_until_idle();
    assert_eq!((pair.gate_pool.in_use(), pair.gate_pool.standing()), (0, 0));
    pair.emit_buffers(250, 3);
    pair.run_until_idle();
    assert_eq!((pair.consumer_queue(), pair.gate_pool.in_use()), (3, 3), "segments are where the data is");
    assert_eq!(pair.backlog_frames, [(pair.id(250), 3)]);
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn channels_that_all_fit_open_with_all_their_exclusive_segments() {
    // 50 channels with 2 segments each, and 8 floating ones: just enough.
    let pair = Pair::new(short(50, 108, 108));
    assert_eq!((pair.gate_pool.standing(), pair.remote(49).free_segments()), (100, 2));
    pair.assert_all_segments_home();
}

#[test]
fn channels_that_fit_in_part_open_with_equal_parts() {
    let pair = Pair::new(short(50, 108, 80));
    let opened: Vec<usize> = (0..50).map(|channel| pair.remote(channel).free_segments()).collect();
    assert_eq!(opened, [1; 50]);
    pair.assert_all_segments_home();
}

#[test]
fn a_channel_that_was_active_keeps_credit_while_nobody_waits() {
    let mut pair = Pair::new(short(300, 16, 16));
    for round in 0..4 {
        pair.emit_bytes(7, 1);
        pair.flush(7);
        pair.run_until_idle();
        assert_eq!(pair.read(1), 1);
        pair.run_until_idle();
        assert_eq!(pair.backlog_frames.len(), 1, "round {round}: only the first had to ask");
        let kept = pair.remote(7).free_segments();
        assert_eq!(pair.gate_pool.standing(), kept, "what it keeps is booked, and once");
    }
    assert!(pair.sender_credit(7) >= 1);
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn kept_credit_goes_to_those_who_wait_and_never_all_of_it_stands() {
    let mut pair = Pair::new(short(100, 40, 8));
    // One channel after the other becomes active for a moment, and could retain two segments.
    for channel in 0..100 {
        pair.emit_bytes(channel, 1);
        pair.flush(channel);
        pair.run_until_idle();
        assert_eq!(pair.read(1), 1, "channel {channel} got a segment");
    }
    let standing = pair.gate_pool.standing();
    assert!((1..=6).contains(&standing), "{standing} of 8 stand");
    // Channels that retained segments return them when they are active and others wait.
    for channel in 0..20 {
        pair.emit_bytes(channel, 1);
        pair.flush(channel);
    }
    let mut read = 0;
    for _ in 0..20 {
        pair.run_until_idle();
        read += pair.read(1);
    }
    assert_eq!(read, 20, "one buffer a round, without a pause");
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_channel_whose_data_does_not_come_holds_no_more_than_its_part() {
    let mut pair = Pair::new(Setup { exclusive: 0, floating: 40, ..short(6, 40, 16) });
    // Its producer announces a backlog and sends no data.
    pair.remote(0).on_backlog(Backlog::new(1000));
    assert_eq!(pair.remote(0).owned_segments(), 4, "a quarter of 16");
    (1..6).for_each(|channel| pair.emit_buffers(channel, 4));
    for _ in 0..20 {
        pair.run_until_idle();
        pair.read(1);
    }
    assert!((1..6).all(|channel| pair.unread_bytes(channel) == 0), "the others go on");
    pair.assert_all_segments_home();
}

#[test]
fn waiting_channels_are_served_in_turn_however_much_one_has() {
    let mut pair = Pair::new(short(10, 28, 2));
    (0..10).for_each(|channel| pair.emit_buffers(channel, 2));
    for _ in 0..10 {
        pair.run_until_idle();
        assert_eq!(pair.read(1), 1);
    }
    let mut first: Vec<u32> = pair.read_order.iter().map(|channel| channel.get()).collect();
    first.sort_unstable();
    first.dedup();
    assert!(first.len() >= 5, "no channel is read a third time before others are read: {:?}", pair.read_order);
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_blocked_channel_leaves_the_least_memory_to_those_whose_barrier_is_to_come() {
    for (exclusive, consumer) in [(0, 1), (1, 1), (2, 3), (2, 12)] {
        let mut pair = Pair::new(Setup { exclusive, ..short(2, 12, consumer) });
        pair.emit_buffers(0, 1);
        pair.emit_event(0, barrier(1, BarrierKind::Aligned));
        pair.emit_buffers(0, 3);
        pair.emit_buffers(1, 3);
        pair.emit_event(1, barrier(1, BarrierKind::Aligned));
        for _ in 0..20 {
            pair.run_until_idle();
            pair.read(1);
        }
        assert_eq!(pair.blocked.len(), 2, "both barriers arrive before either channel goes on");
        pair.resume_all();
        pair.finish_and_assert_all_segments_home();
    }
}

#[test]
fn the_open_buffer_of_an_idle_subpartition_goes_to_a_busy_one() {
    let mut pair = Pair::new(Setup { local: |_| true, ..short(40, 8, 1) });
    for channel in 0..40 {
        pair.emit_bytes(channel, 1);
        pair.flush(channel);
        assert_eq!(pair.read(1), 1, "what was read is no obstacle to the next");
    }
    for _ in 0..10 {
        assert_eq!(pair.emit_bytes(39, SEGMENT_BYTES), SEGMENT_BYTES, "a busy one never waits for idle ones");
        pair.read(usize::MAX);
        let partition = pair.partition.as_mut().unwrap();
        assert!(partition.poll_available(Waker::noop()).is_ready());
    }
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn the_buffer_open_for_longest_is_finished_first() {
    let mut pair = Pair::new(Setup { local: |_| true, ..short(40, 8, 1) });
    // Six of eight may be open: the seventh closes the first and shows it to its reader.
    (0..6).for_each(|channel| assert_eq!(pair.emit_bytes(channel, 1), 1));
    assert_eq!((pair.backlog(0), pair.backlog(1)), (Backlog::ZERO, Backlog::ZERO));
    assert_eq!(pair.emit_bytes(6, 1), 1);
    assert_eq!((pair.backlog(0), pair.backlog(1)), (Backlog::new(1), Backlog::ZERO));
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_worker_that_gives_memory_to_another_job_goes_on_with_what_is_left() {
    let mut pair = Pair::new(Setup { floating: 16, ..short(20, 48, 48) });
    (0..20).for_each(|channel| pair.emit_buffers(channel, 1));
    pair.run_until_idle();
    pair.read(usize::MAX);
    let standing = pair.gate_pool.standing();
    let late = pair.late_gate_pool(48 - standing - 1).expect("what does not stand can be had, but for one");
    assert!(pair.late_gate_pool(1).is_err(), "what stands is guaranteed");
    pump(&mut pair, 2 * SEGMENT_BYTES);
    let taken: Vec<_> = std::iter::from_fn(|| late.try_take(0)).collect();
    assert!(taken.len() >= 48 - standing - 1, "the late pool has all it was guaranteed");
    drop((taken, late));
    pair.finish_and_assert_all_segments_home();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_channel_with_data_gets_on_in_any_memory(
        channels in 1..24u32,
        exclusive in 0..3u32,
        memory in (2..40usize, 1..40usize),
        latency_ms in 0..2u64,
        seed in any::<u64>(),
        bytes in 1..4 * SEGMENT_BYTES,
    ) {
        let setup = Setup { channels, exclusive, latency_ms, seed: Some(seed), ..Setup::default() };
        let mut pair = Pair::new(Setup { memory: Some(memory), ..setup });
        pump(&mut pair, bytes);
        let remote = Arc::clone(pair.remote(0));
        prop_assert!(remote.owned_segments() <= exclusive + 1);
        drop(remote);
        pair.finish_and_assert_all_segments_home();
    }
}
