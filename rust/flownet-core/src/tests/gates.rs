//! Gates: fairness, wake-ups, ends.

use std::sync::Arc;
use std::task::{Poll, Waker};

use flownet_memory::{Buffer, MemorySegment, SegmentPool};

use super::CountingWaker;
use super::pair::{Pair, SEGMENT_BYTES, Setup, barrier, watermark};
use crate::credit::Backlog;
use crate::error::ExchangeError;
use crate::event::{BarrierKind, Event};
use crate::gate::{InputGate, ReceiveQueueLimits};
use crate::ids::{ChannelIndex, CheckpointId, PartitionId, SubpartitionIndex};
use crate::partition::ResultPartition;
use crate::sizing::PoolSizing;
use crate::subpartition::Element;

fn mixed(channels: u32) -> Setup {
    let partition_segments = Some(8 * channels as usize);
    Setup { channels, exclusive: 4, local: |channel| channel % 2 == 1, partition_segments, ..Setup::default() }
}

#[test]
fn ready_channels_are_read_round_robin_local_and_remote_alike() {
    let mut pair = Pair::new(mixed(4));
    (0..4).for_each(|channel| pair.emit_buffers(channel, 4));
    pair.run_until_idle();
    assert_eq!(pair.read(usize::MAX), 16);
    assert_round_robin(&pair.read_order);
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn channels_that_are_filled_while_they_are_read_keep_their_turns() {
    let mut pair = Pair::new(mixed(4));
    (0..4).for_each(|channel| pair.emit_buffers(channel, 1));
    for _ in 0..32 {
        pair.run_until_idle();
        assert_eq!(pair.read(1), 1);
        let last = *pair.read_order.last().unwrap();
        // The channel just read has data again, and more than the others.
        pair.emit_buffers(last.get(), 1);
    }
    assert_round_robin(&pair.read_order);
    pair.finish_and_assert_all_segments_home();
}

/// Checks that each of four channels has its turn, local or remote.
fn assert_round_robin(order: &[ChannelIndex]) {
    let first = &order[..4];
    let mut channels = first.to_vec();
    channels.sort_unstable();
    assert_eq!(channels, [0, 1, 2, 3].map(ChannelIndex::new));
    assert!(order.chunks(4).all(|turn| turn == first), "{order:?}");
}

#[test]
fn a_batch_has_the_order_of_single_reads() {
    let orders = [1, 3, 100].map(|max| {
        let mut pair = Pair::new(mixed(4));
        (0..4).for_each(|channel| pair.emit_buffers(channel, 1 + channel as usize));
        pair.run_until_idle();
        let mut batch = Vec::new();
        let waker = Waker::noop();
        while let Poll::Ready(Ok(read)) = pair.gate().poll_batch(max, &mut batch, waker) {
            assert!(read <= max);
        }
        let order: Vec<u32> = batch.iter().map(|(channel, _)| channel.get()).collect();
        drop(batch);
        pair.assert_all_segments_home();
        order
    });
    assert_eq!(orders[0].len(), 10);
    assert!(orders.iter().all(|order| *order == orders[0]), "{orders:?}");
}

#[test]
fn a_sleeping_task_is_woken_once_by_the_first_of_many_elements() {
    let mut pair = Pair::new(mixed(2));
    let (waker, wakes) = CountingWaker::new();
    assert!(pair.gate().poll_next(&waker).is_pending());
    (0..2).for_each(|channel| pair.emit_buffers(channel, 3));
    pair.run_until_idle();
    assert_eq!(wakes.count(), 1);
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn failure_and_close_wake_a_sleeping_task() {
    let failed = Pair::new(mixed(2));
    let (waker, wakes) = CountingWaker::new();
    assert!(failed.gate().poll_next(&waker).is_pending());
    failed.gate().fail_all(ExchangeError::Cancelled);
    assert_eq!(wakes.count(), 1);
    assert!(matches!(failed.gate().poll_next(&waker), Poll::Ready(Err(ExchangeError::Cancelled))));
    failed.assert_all_segments_home();

    let closed = Pair::new(mixed(2));
    assert!(closed.gate().poll_next(&waker).is_pending());
    closed.gate().close();
    assert_eq!(wakes.count(), 2);
    assert!(matches!(closed.gate().poll_next(&waker), Poll::Ready(Err(ExchangeError::Closed))));
    closed.assert_all_segments_home();
}

#[test]
fn a_gate_ends_when_the_end_of_every_partition_was_read() {
    let mut pair = Pair::new(mixed(2));
    pair.finish_producer();
    pair.run_until_idle();
    assert!(!pair.gate().is_finished(), "nothing was read");
    let mut batch = Vec::new();
    assert!(matches!(pair.gate().poll_batch(9, &mut batch, Waker::noop()), Poll::Ready(Ok(4))));
    let ends = batch.iter().filter(|(_, element)| matches!(element, Element::Event(Event::EndOfPartition)));
    assert_eq!(ends.count(), 2);
    for _ in 0..2 {
        assert!(matches!(pair.gate().poll_batch(9, &mut batch, Waker::noop()), Poll::Ready(Ok(0))));
        assert!(matches!(pair.gate().poll_next(Waker::noop()), Poll::Ready(Ok(None))));
    }
    assert!(pair.gate().is_finished());
    pair.gate().close();
    assert!(!pair.gate().is_finished(), "who closes it reads no end");
    pair.assert_all_segments_home();
}

#[test]
fn nothing_wakes_the_task_behind_the_end_of_partition() {
    let mut pair = Pair::new(mixed(3));
    // A remote and a local channel end; the third continues.
    (0..2).for_each(|ended| pair.emit_event(ended, Event::EndOfPartition));
    pair.run_until_idle();
    assert_eq!(pair.read(usize::MAX), 2);
    let gate = Arc::clone(pair.gate());
    let (waker, wakes) = CountingWaker::new();
    assert!(gate.poll_next(&waker).is_pending());
    for ended in [0, 1].map(ChannelIndex::new) {
        gate.fail_channel(ended, ExchangeError::Cancelled);
        let late = gate.on_element(ended, Element::Event(watermark(1)));
        assert_eq!(late, Err(crate::PeerViolation::AfterEnd));
        pair.flush(ended.get());
    }
    pair.remote(0).on_backlog(Backlog::new(9));
    pair.remote(0).fail(ExchangeError::Cancelled);
    pair.run_until_idle();
    assert_eq!(wakes.count(), 0, "of a channel that ended the task hears nothing");

    pair.emit_event(2, Event::EndOfPartition);
    pair.run_until_idle();
    assert_eq!(wakes.count(), 1);
    let last = gate.poll_next(&waker);
    assert!(matches!(last, Poll::Ready(Ok(Some((_, Element::Event(Event::EndOfPartition)))))));
    for _ in 0..2 {
        assert!(matches!(gate.poll_next(&waker), Poll::Ready(Ok(None))), "an ended gate cannot fail");
        gate.fail_all(ExchangeError::Cancelled);
    }
    gate.close();
    assert_eq!(wakes.count(), 1, "nor is it woken by anything behind the last end");
    drop(gate);
    pair.assert_all_segments_home();
}

#[test]
fn a_gate_without_channels_has_ended() {
    let gate = InputGate::new(0);
    assert!(matches!(gate.poll_next(Waker::noop()), Poll::Ready(Ok(None))));
    assert_eq!([gate.channels(), InputGate::new(3).channels()], [0, 3]);
}

#[test]
fn a_batch_is_no_longer_than_asked_for() {
    for channels in [mixed(2), Setup { local: |_| true, ..mixed(2) }] {
        let mut pair = Pair::new(channels);
        pair.emit_buffers(0, 1);
        pair.emit_buffers(1, 8);
        pair.run_until_idle();
        let mut batch = Vec::new();
        assert!(matches!(pair.gate().poll_batch(4, &mut batch, Waker::noop()), Poll::Ready(Ok(4))));
        assert_eq!(batch.len(), 4);
        drop(batch);
        pair.assert_all_segments_home();
    }
}

#[test]
fn what_was_read_before_a_failure_was_found_is_given_before_it() {
    let segments = SegmentPool::new(8, SEGMENT_BYTES).unwrap();
    let gate = InputGate::new(2);
    let partition = |id| {
        let pool = segments.create_buffer_pool(PoolSizing::default().partition(1)).unwrap();
        ResultPartition::new(PartitionId::new(id), pool, 1)
    };
    let (mut good, bad) = (partition(1), partition(2));
    for (channel, partition) in [(0, &good), (1, &bad)] {
        gate.set_local(ChannelIndex::new(channel), Arc::clone(&partition.subpartitions()[0]));
    }
    good.emit_event(SubpartitionIndex::new(0), &watermark(1)).unwrap();
    bad.fail("why");
    let mut batch = Vec::new();
    assert!(matches!(gate.poll_batch(9, &mut batch, Waker::noop()), Poll::Ready(Ok(1))));
    let failed = gate.poll_batch(9, &mut batch, Waker::noop());
    assert!(matches!(failed, Poll::Ready(Err(ExchangeError::ProducerFailed { .. }))), "{failed:?}");
}

#[test]
fn who_watches_a_bounded_gate_is_told_of_congestion_and_of_its_end() {
    let (gate, (monitor, wakes)) = (InputGate::new(1), CountingWaker::new());
    gate.set_bounds(ReceiveQueueLimits { queue_bytes: 10, limit_bytes: usize::MAX });
    gate.set_monitor(monitor);
    let arrive = || {
        let buffer = Buffer::from_segment(MemorySegment::unpooled(9).unwrap(), 9);
        gate.on_element(ChannelIndex::new(0), Element::Data(buffer)).unwrap();
        (gate.is_congested(), wakes.count())
    };
    assert_eq!((gate.is_congested(), wakes.count()), (false, 0));
    assert_eq!(arrive(), (true, 1));
    assert!(gate.poll_next(Waker::noop()).is_ready());
    assert_eq!((gate.is_congested(), wakes.count()), (false, 2));
    assert_eq!(arrive(), (true, 3));
    gate.close();
    assert_eq!(
        (gate.is_congested(), wakes.count(), gate.receive_queue().queued_bytes),
        (false, 4, 0),
        "nothing is queued now"
    );
}

#[test]
fn a_barrier_of_a_producer_of_this_process_is_told_at_once_and_ahead_of_what_it_overtook() {
    let mut pair = Pair::new(Setup { channels: 2, local: |_| true, ..Setup::default() });
    let gate = Arc::clone(pair.gate());
    let (urgent, wakes) = CountingWaker::new();
    gate.set_urgent(urgent);
    assert!(gate.poll_next(Waker::noop()).is_pending());
    pair.emit_buffers(1, 2);
    assert_eq!(wakes.count(), 0, "data waits until it is read");
    let event = barrier(1, BarrierKind::Unaligned);
    let overtaken = pair.partition.as_mut().unwrap().overtake(&event).unwrap();
    assert_eq!(overtaken.iter().map(|one| one.elements.len()).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(wakes.count(), 2, "of each channel, whatever the task is at");
    let mut found = Vec::new();
    gate.take_priority(|channel, event| found.push((channel, event)));
    assert_eq!(found, [0, 1].map(|channel| (ChannelIndex::new(channel), event.clone())));
    let mut rest = Vec::new();
    assert!(matches!(gate.poll_batch(9, &mut rest, Waker::noop()), Poll::Ready(Ok(2))));
    assert!(rest.iter().all(|(_, element)| matches!(element, Element::Data(_))), "each is read once");
    drop((rest, gate, overtaken));
    pair.assert_all_segments_home();
}

#[test]
fn a_gate_that_failed_or_was_closed_tells_of_no_barrier() {
    for end in [|gate: &InputGate| gate.fail_all(ExchangeError::Cancelled), InputGate::close] {
        let gate = InputGate::new(1);
        gate.on_element(ChannelIndex::new(0), Element::Event(barrier(1, BarrierKind::Unaligned))).unwrap();
        end(&gate);
        gate.take_priority(|_, event| panic!("{event:?} of a gate that has ended"));
    }
}

#[test]
fn a_late_barrier_overtakes_what_is_queued_but_no_other_barrier() {
    let (gate, of) = (InputGate::new(1), ChannelIndex::new(0));
    gate.set_urgent(Waker::noop().clone());
    let (first, late) = (barrier(1, BarrierKind::Unaligned), barrier(2, BarrierKind::AlignedWithTimeout));
    for event in [first.clone(), watermark(1), late.clone(), watermark(2)] {
        gate.on_element(of, Element::Event(event)).unwrap();
    }
    gate.expire(CheckpointId::new(2));
    let mut found = Vec::new();
    gate.take_priority(|_, event| found.push(event));
    assert_eq!(found, [first, late]);
    assert_eq!([gate.take_overtaken(of).len(), gate.take_overtaken(of).len()], [0, 1], "and not what came behind it");
}

#[test]
fn a_channel_connected_twice_fails_the_gate() {
    let pair = Pair::new(mixed(2));
    let cell = Arc::clone(&pair.handle.subpartitions()[0]);
    pair.gate().set_local(ChannelIndex::new(1), cell);
    assert!(matches!(pair.gate().poll_next(Waker::noop()), Poll::Ready(Err(_))));
    pair.assert_all_segments_home();
}

#[test]
fn an_inspection_tells_what_each_channel_has_and_what_was_promised_for_it() {
    let mut pair = Pair::new(mixed(2));
    pair.run_until_idle();
    pair.emit_buffers(0, 6);
    pair.emit_buffers(1, 3);
    // A record that was not flushed follows the readable ones.
    pair.emit_bytes(1, 5);
    pair.run_until_idle();
    let seen = pair.gate().inspect();
    let numbers: Vec<u32> = seen.iter().map(|channel| channel.channel.get()).collect();
    assert_eq!(numbers, [0, 1]);
    assert_eq!((seen[0].readable, seen[0].credit.map(crate::Credit::get)), (6, Some(pair.sender_credit(0))));
    assert_eq!((seen[1].readable, seen[1].credit), (3, None));

    pair.read(usize::MAX);
    pair.finish_producer();
    pair.run_until_idle();
    pair.read(usize::MAX);
    assert!(pair.gate().inspect().iter().all(|channel| channel.readable == 0 && channel.credit.is_none()));
    pair.finish_and_assert_all_segments_home();
}

#[test]
fn a_barrier_is_told_at_once_and_knows_what_it_overtook_here() {
    let (gate, (urgent, wakes)) = (InputGate::new(2), CountingWaker::new());
    let of = ChannelIndex::new;
    let watermark = |at| Element::Event(watermark(at));
    let event = barrier(1, BarrierKind::Unaligned);
    gate.set_urgent(urgent);
    for (channel, element) in [(0, watermark(1)), (1, watermark(2)), (0, watermark(3))] {
        gate.on_element(of(channel), element).unwrap();
    }
    assert_eq!(wakes.count(), 0);
    gate.on_element(of(0), Element::Event(event.clone())).unwrap();
    assert_eq!(wakes.count(), 1, "whatever the task is at");
    // Elements after the barrier were not overtaken.
    gate.on_element(of(0), watermark(4)).unwrap();
    let mut found = Vec::new();
    gate.take_priority(|channel, event| found.push((channel, event)));
    assert_eq!(found, [(of(0), event.clone())]);
    let times = |elements: Vec<Element>| -> Vec<i64> {
        let time = |element| match element {
            Element::Event(Event::Watermark { timestamp_ms }) => Some(timestamp_ms),
            _ => None,
        };
        elements.into_iter().filter_map(time).collect()
    };
    assert_eq!(times(gate.take_overtaken(of(0))), [1, 3]);
    assert_eq!(times(gate.take_overtaken(of(0))), [], "asked once");
    // The same for a barrier that is read among other elements.
    gate.on_element(of(1), Element::Event(event)).unwrap();
    let mut read = Vec::new();
    assert!(matches!(gate.poll_batch(10, &mut read, Waker::noop()), Poll::Ready(Ok(5))));
    assert!(matches!(&read[0], (channel, Element::Event(Event::Barrier(_))) if *channel == of(1)));
    assert_eq!(times(gate.take_overtaken(of(1))), [2]);
    let rest = read.into_iter().skip(1).map(|(_, element)| element).collect();
    let mut rest = times(rest);
    rest.sort_unstable();
    assert_eq!(rest, [1, 2, 3, 4], "each is read once");
}

#[test]
fn barriers_of_what_has_taken_too_long_come_ahead_wherever_they_wait() {
    let (gate, (urgent, wakes)) = (InputGate::new(2), CountingWaker::new());
    let of = ChannelIndex::new;
    let event = |id| barrier(id, BarrierKind::AlignedWithTimeout);
    gate.set_urgent(urgent);
    for (channel, event) in [(0, watermark(1)), (1, watermark(2)), (1, watermark(3)), (1, event(4))] {
        gate.on_element(of(channel), Element::Event(event)).unwrap();
    }
    gate.expire(CheckpointId::new(4));
    let mut found = Vec::new();
    gate.take_priority(|channel, event| found.push((channel, event)));
    assert_eq!(found, [(of(1), event(4))], "of the kind that it is: its producer waits");
    assert_eq!((gate.take_overtaken(of(1)).len(), wakes.count()), (2, 0), "who asks is not woken");
    // The other channel's barrier arrives only now, and is read in its place.
    gate.on_element(of(0), Element::Event(event(4))).unwrap();
    assert_eq!(wakes.count(), 1);
    let mut read = Vec::new();
    assert!(matches!(gate.poll_batch(10, &mut read, Waker::noop()), Poll::Ready(Ok(4))));
    assert!(matches!(&read[0], (channel, Element::Event(Event::Barrier(_))) if *channel == of(0)));
    assert_eq!(gate.take_overtaken(of(0)).len(), 1);
    // Barriers of another checkpoint wait in line.
    for event in [watermark(5), event(5)] {
        gate.on_element(of(0), Element::Event(event)).unwrap();
    }
    gate.take_priority(|_, event| panic!("{event:?} has overtaken"));
}
