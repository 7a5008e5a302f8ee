//! Any operations, in any order, over wires that cut anywhere.

use proptest::prelude::*;

use super::pair::{Pair, SEGMENT_BYTES, Setup, barrier, watermark};
use crate::debloat::FillLimit;
use crate::error::ExchangeError;
use crate::event::BarrierKind;
use crate::wire::ErrorCode;

#[derive(Clone, Copy, Debug)]
enum Op {
    Emit(u32, usize),
    Flush(u32),
    FlushDirty,
    Watermark(u32),
    Aligned,
    Unaligned(u32),
    Step(usize),
    Wait,
    Read(usize),
    Hold(usize),
    DropHeld,
    Resume,
    Writable(bool),
    Limit(u32),
}

/// Failure of an exchange.
#[derive(Clone, Copy, Debug)]
enum End {
    ReleaseChannel(u32),
    CloseGate,
    FailProducer,
    DropPartition,
    LoseConnection,
    LeavePeer,
}

fn op() -> impl Strategy<Value = Op> {
    let channel = 0..3u32;
    prop_oneof![
        6 => (channel.clone(), 0..5 * SEGMENT_BYTES).prop_map(|(channel, bytes)| Op::Emit(channel, bytes)),
        1 => (channel.clone(), 0..1500usize).prop_map(|(channel, bytes)| Op::Emit(channel, bytes)),
        2 => channel.clone().prop_map(Op::Flush),
        1 => Just(Op::FlushDirty),
        2 => channel.clone().prop_map(Op::Watermark),
        1 => Just(Op::Aligned),
        1 => channel.prop_map(Op::Unaligned),
        8 => (1..6usize).prop_map(Op::Step),
        4 => Just(Op::Wait),
        4 => (1..9usize).prop_map(Op::Read),
        2 => (1..5usize).prop_map(Op::Hold),
        2 => Just(Op::DropHeld),
        2 => Just(Op::Resume),
        1 => any::<bool>().prop_map(Op::Writable),
        1 => prop_oneof![0..2 * SEGMENT_BYTES as u32, Just(u32::MAX)].prop_map(Op::Limit),
    ]
}

fn setup() -> impl Strategy<Value = Setup> {
    let local = prop_oneof![Just((|_| false) as fn(u32) -> bool), Just((|channel| channel == 1) as fn(u32) -> bool)];
    // Small payloads are copied into runs of frames, large ones are referenced. Test both, and the boundary between
    // them.
    let segment_bytes = prop_oneof![3 => Just(SEGMENT_BYTES), 1 => Just(700usize)];
    let memory = prop_oneof![3 => Just(None), 2 => (2..6usize, 1..7usize).prop_map(Some)];
    let pools = (segment_bytes, 0..4u32, 1..6u32, 3..12usize, memory);
    (pools, 0..3u64, any::<u64>(), any::<bool>(), local, 1..20usize).prop_map(
        |(pools, latency_ms, seed, checksums, local, max_buffers_per_turn)| {
            let (segment_bytes, exclusive, floating, segments, memory) = pools;
            Setup {
                segment_bytes,
                channels: 3,
                exclusive,
                floating,
                partition_segments: Some(segments),
                memory,
                latency_ms,
                seed: Some(seed),
                checksums,
                local,
                max_buffers_per_turn,
                ..Setup::default()
            }
        },
    )
}

fn run(pair: &mut Pair, ops: &[Op]) -> Result<(), ExchangeError> {
    for op in ops {
        match *op {
            Op::Emit(channel, bytes) => {
                pair.emit_bytes(channel, bytes);
            }
            Op::Flush(channel) => pair.flush(channel),
            Op::FlushDirty => pair.handle.flush_dirty(),
            Op::Watermark(channel) => pair.emit_event(channel, watermark(1)),
            Op::Aligned => pair.broadcast_event(barrier(1, BarrierKind::Aligned)),
            Op::Unaligned(channel) => pair.emit_event(channel, barrier(1, BarrierKind::Unaligned)),
            Op::Step(steps) => {
                (0..steps).for_each(|_| {
                    pair.step();
                });
            }
            Op::Wait => pair.now_ms += 1,
            Op::Read(elements) | Op::Hold(elements) => {
                for _ in 0..elements {
                    if !pair.try_read()? {
                        break;
                    }
                }
                if matches!(op, Op::Read(_)) {
                    pair.drop_held();
                }
            }
            Op::DropHeld => pair.drop_held(),
            Op::Resume => pair.resume_all(),
            Op::Writable(is_writable) => pair.is_unwritable = !is_writable,
            Op::Limit(bytes) => pair.gate().set_fill_limit(FillLimit::new(bytes)),
        }
    }
    Ok(())
}

fn break_off(pair: &mut Pair, end: End) {
    match end {
        End::ReleaseChannel(channel) if pair.channels.contains_key(&crate::ChannelIndex::new(channel)) => {
            pair.remote(channel).release();
        }
        End::ReleaseChannel(_) | End::CloseGate => pair.gate().close(),
        End::FailProducer => pair.handle.fail("on purpose"),
        End::DropPartition => pair.partition = None,
        End::LoseConnection => {
            pair.consumer.as_mut().unwrap().connection_lost(&ExchangeError::Cancelled);
            pair.producer.as_mut().unwrap().connection_lost();
        }
        End::LeavePeer => pair.producer.as_mut().unwrap().leave(ErrorCode::Leaving, "on purpose"),
    }
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        (0..3u32).prop_map(End::ReleaseChannel),
        Just(End::CloseGate),
        Just(End::FailProducer),
        Just(End::DropPartition),
        Just(End::LoseConnection),
        Just(End::LeavePeer),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_element_arrives_once_and_in_order(
        setup in setup(),
        ops in proptest::collection::vec(op(), 0..120),
    ) {
        let mut pair = Pair::new(setup);
        run(&mut pair, &ops).expect("nothing breaks");
        pair.finish_and_assert_all_segments_home();
    }

    #[test]
    fn an_exchange_that_breaks_at_any_step_leaks_nothing(
        setup in setup(),
        before in proptest::collection::vec(op(), 0..60),
        end in end(),
        after in proptest::collection::vec(op(), 0..40),
    ) {
        let mut pair = Pair::new(setup);
        run(&mut pair, &before).expect("nothing breaks yet");
        break_off(&mut pair, end);
        // A remaining reader gets the elements that arrived, then the failure.
        pair.resume_blocked_if_possible();
        let _ = run(&mut pair, &after);
        pair.is_unwritable = false;
        pair.run_until_idle();
        pair.assert_all_segments_home();
    }
}
