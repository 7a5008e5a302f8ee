//! Subpartition machine: notifications, and the meaning of the backlog.
#![expect(unused_must_use, reason = "a step of a scenario is often made for its effect alone")]

use std::sync::Arc;

use flownet_memory::{BufferBuilder, BufferPool, BufferPoolSettings, SegmentPool};
use proptest::prelude::*;

use super::pair::{SEGMENT_BYTES, barrier, watermark};
use crate::credit::EVENT_WINDOW;
use crate::error::PeerViolation;
use crate::event::{BarrierKind, Event};
use crate::ids::CheckpointId;
use crate::subpartition::{Element, NextElement, Notify, PolledElement, Subpartition};

const SEGMENTS: usize = 64;

struct Rig {
    segments: Arc<SegmentPool>,
    pool: Arc<BufferPool>,
    subpartition: Subpartition,
    open: Option<BufferBuilder>,
}

impl Rig {
    /// Creates a rig with a reader that found no element.
    fn new() -> Self {
        let segments = SegmentPool::new(SEGMENTS, SEGMENT_BYTES).unwrap();
        let settings = BufferPoolSettings { min: 0, max: None, lanes: 1, max_per_lane: usize::MAX, max_overdraft: 0 };
        let pool = segments.create_buffer_pool(settings).unwrap();
        let mut subpartition = Subpartition::new();
        subpartition.attach_reader();
        assert!(subpartition.poll().is_none());
        Self { segments, pool, subpartition, open: None }
    }

    /// Opens a buffer and commits this many bytes to it.
    fn add(&mut self, bytes: usize) -> Notify {
        self.finish();
        let (builder, consumer) = BufferBuilder::new(self.pool.try_take(0).unwrap());
        self.open = Some(builder);
        let notify = self.subpartition.add_buffer(consumer).unwrap();
        self.write(bytes);
        notify
    }

    fn write(&mut self, bytes: usize) {
        if let Some(builder) = &mut self.open {
            builder.append(&[7; SEGMENT_BYTES][..bytes]);
            builder.commit();
        }
    }

    fn finish(&mut self) {
        self.open = None;
    }

    fn event(&mut self, event: Event) -> Notify {
        if !event.is_priority() {
            self.finish();
        }
        self.subpartition.add_event(event).unwrap()
    }

    /// Polls as a reader does: polls again if it fell asleep on a buffer that it watched.
    fn poll(&mut self) -> Option<PolledElement> {
        let polled = self.subpartition.poll();
        if self.subpartition.take_ended_watch() {
            assert_eq!(self.subpartition.watch(), Notify::Nobody, "no other thread has written meanwhile");
        }
        polled
    }

    /// Polls until there is no element. Returns the number of data buffers and events.
    fn drain(&mut self) -> (u32, u32) {
        let (mut data, mut events) = (0, 0);
        while let Some(polled) = self.poll() {
            match polled.element {
                Element::Data(_) => data += 1,
                Element::Event(_) => events += 1,
            }
        }
        (data, events)
    }

    fn backlog(&self) -> u32 {
        self.subpartition.backlog().get()
    }

    fn assert_all_segments_home(mut self) {
        self.subpartition.release();
        drop(self.subpartition.take_discarded());
        self.open = None;
        assert_eq!(self.pool.in_use(), 0);
        self.pool.destroy();
        assert_eq!(self.segments.available(), SEGMENTS);
    }
}

#[test]
fn the_first_finished_buffer_notifies_once_and_more_do_not_until_drained() {
    let mut rig = Rig::new();
    assert_eq!(rig.add(3), Notify::Nobody, "an open buffer is nothing to see");
    assert_eq!(rig.add(3), Notify::Reader, "the one before it is finished now");
    assert_eq!(rig.add(3), Notify::Nobody);
    assert_eq!(rig.event(watermark(1)), Notify::Nobody);
    assert_eq!(rig.drain(), (3, 1));
    rig.add(3);
    assert_eq!(rig.add(3), Notify::Reader);
    rig.assert_all_segments_home();
}

#[test]
fn an_unfinished_buffer_is_visible_after_a_flush_or_a_second_buffer() {
    let mut rig = Rig::new();
    rig.add(3);
    assert!(rig.subpartition.poll().is_none());
    assert_eq!(rig.subpartition.flush(), Notify::Reader);
    let polled = rig.subpartition.poll().unwrap();
    assert!(matches!(polled.element, Element::Data(buffer) if buffer.len() == 3));
    rig.write(4);
    assert!(rig.subpartition.poll().is_none(), "written after the flush");
    rig.add(1);
    let polled = rig.subpartition.poll().unwrap();
    assert!(matches!(polled.element, Element::Data(buffer) if buffer.len() == 4));
    rig.assert_all_segments_home();
}

#[test]
fn a_flush_notifies_only_for_unread_bytes_of_an_open_buffer() {
    let mut rig = Rig::new();
    assert_eq!(rig.subpartition.flush(), Notify::Nobody, "nothing is there");
    rig.add(0);
    assert_eq!(rig.subpartition.flush(), Notify::Nobody, "no bytes are there");
    rig.write(2);
    assert_eq!(rig.subpartition.flush(), Notify::Reader);
    assert_eq!(rig.subpartition.flush(), Notify::Nobody, "already flushed");
    rig.drain();
    assert_eq!(rig.subpartition.flush(), Notify::Nobody, "all was read");
    rig.assert_all_segments_home();
}

#[test]
fn a_watched_buffer_is_read_until_nothing_new_is_found() {
    let mut rig = Rig::new();
    rig.add(2);
    assert_eq!(rig.subpartition.watch(), Notify::Reader);
    let first = rig.subpartition.poll().unwrap();
    assert_eq!((first.next, rig.backlog()), (NextElement::None, 0));
    drop(first);
    assert!(rig.subpartition.is_watched() && !rig.subpartition.take_ended_watch());
    rig.write(3);
    assert_eq!(rig.backlog(), 1, "seen without a further flush");
    assert!(rig.subpartition.poll().is_some() && rig.subpartition.poll().is_none());
    assert!(rig.subpartition.take_ended_watch() && !rig.subpartition.is_watched());
    assert_eq!(rig.subpartition.watch(), Notify::Nobody, "all was read");
    rig.write(1);
    assert_eq!(rig.backlog(), 0, "nobody looks any more");
    assert_eq!(rig.subpartition.watch(), Notify::Reader);
    rig.assert_all_segments_home();
}

#[test]
fn a_reader_that_may_not_take_what_it_watches_goes_on_watching() {
    let mut rig = Rig::new();
    rig.add(2);
    rig.subpartition.watch();
    assert!(!rig.subpartition.is_available(false), "no credit");
    assert!(rig.subpartition.is_watched() && !rig.subpartition.take_ended_watch());
    rig.event(barrier(1, BarrierKind::Unaligned));
    rig.drain();
    rig.add(2);
    assert_eq!(rig.subpartition.watch(), Notify::Reader);
    rig.assert_all_segments_home();
}

#[test]
fn empty_buffers_are_dropped_and_never_sent() {
    let mut rig = Rig::new();
    rig.add(0);
    rig.add(0);
    assert_eq!(rig.event(watermark(1)), Notify::Reader);
    assert_eq!((rig.backlog(), rig.drain()), (0, (0, 1)));
    drop(rig.subpartition.take_discarded());
    assert_eq!(rig.pool.in_use(), 0);

    rig.add(5);
    rig.subpartition.flush();
    assert_eq!(rig.drain(), (1, 0));
    rig.finish();
    assert_eq!(rig.subpartition.finish_buffer(), Notify::Nobody, "read to its end before it was finished");
    assert_eq!((rig.backlog(), rig.subpartition.queued_buffers()), (0, 0));
    rig.assert_all_segments_home();
}

#[test]
fn the_backlog_counts_what_a_reader_could_take() {
    let mut rig = Rig::new();
    rig.add(1);
    assert_eq!(rig.backlog(), 0, "open");
    rig.subpartition.flush();
    assert_eq!(rig.backlog(), 1, "flushed");
    rig.add(1);
    assert_eq!(rig.backlog(), 1, "finished, and one open behind it");
    rig.finish();
    rig.subpartition.finish_buffer();
    assert_eq!(rig.backlog(), 2, "finished");
    rig.event(barrier(1, BarrierKind::Aligned));
    rig.add(1);
    rig.add(1);
    assert_eq!(rig.backlog(), 3, "events do not count");
    rig.drain();
    assert!(rig.subpartition.is_blocked());
    assert_eq!(rig.backlog(), 0, "blocked");
    rig.subpartition.resume().unwrap();
    assert_eq!(rig.backlog(), 1);
    rig.assert_all_segments_home();
}

#[test]
fn a_blocked_subpartition_notifies_nobody_until_it_is_resumed() {
    type Fill = fn(&mut Rig) -> Notify;
    let cases: [(&str, Fill, Notify); 5] = [
        ("empty", |_| Notify::Nobody, Notify::Nobody),
        ("not flushed", |rig| rig.add(1), Notify::Nobody),
        (
            "flushed",
            |rig| {
                rig.add(1);
                rig.subpartition.flush()
            },
            Notify::Reader,
        ),
        (
            "finished",
            |rig| {
                rig.add(1);
                rig.finish();
                rig.subpartition.finish_buffer()
            },
            Notify::Reader,
        ),
        ("event", |rig| rig.event(watermark(1)), Notify::Reader),
    ];
    for (name, fill, on_resume) in cases {
        let mut rig = Rig::new();
        rig.event(barrier(1, BarrierKind::Aligned));
        assert_eq!(rig.drain(), (0, 1));
        assert_eq!(fill(&mut rig), Notify::Nobody, "{name}");
        assert!(rig.subpartition.poll().is_none() && !rig.subpartition.is_available(true), "{name}");
        assert_eq!(rig.subpartition.resume(), Ok(on_resume), "{name}");
        assert_eq!(rig.subpartition.resume(), Err(PeerViolation::NotBlocked));
        rig.assert_all_segments_home();
    }
}

#[test]
fn a_reader_without_credit_is_woken_by_an_event_at_the_head_only() {
    let mut rig = Rig::new();
    rig.add(1);
    assert_eq!(rig.add(1), Notify::Reader);
    assert!(!rig.subpartition.is_available(false) && rig.subpartition.is_available(true));
    assert!(!rig.subpartition.is_available(false));
    assert_eq!(rig.add(1), Notify::Nobody, "more of what it cannot take");
    assert_eq!(rig.event(watermark(1)), Notify::Nobody, "behind what it cannot take");
    assert_eq!(rig.event(barrier(1, BarrierKind::Unaligned)), Notify::Reader);
    assert!(rig.subpartition.is_available(false));
    assert_eq!(rig.event(barrier(2, BarrierKind::Unaligned)), Notify::Nobody, "it is awake");
    let first = rig.subpartition.poll().unwrap();
    assert!(matches!(first.element, Element::Event(event) if event == barrier(1, BarrierKind::Unaligned)));
    assert_eq!(first.next, NextElement::Event);
    rig.assert_all_segments_home();
}

#[test]
fn nothing_is_accepted_behind_the_end_or_after_release() {
    let mut rig = Rig::new();
    rig.event(Event::EndOfPartition);
    let (builder, consumer) = BufferBuilder::new(rig.pool.try_take(0).unwrap());
    assert!(rig.subpartition.add_buffer(consumer).is_err());
    assert!(rig.subpartition.add_event(watermark(1)).is_err());
    assert!(!rig.subpartition.is_consumed());
    assert_eq!(rig.drain(), (0, 1));
    assert!(rig.subpartition.is_consumed());
    drop(builder);
    assert_eq!(rig.pool.in_use(), 0, "the segment of what was refused is back");
    rig.assert_all_segments_home();

    let mut rig = Rig::new();
    rig.add(3);
    assert_eq!(rig.subpartition.release(), Notify::Reader);
    assert!(rig.subpartition.add_event(watermark(1)).is_err() && rig.subpartition.poll().is_none());
    let (builder, consumer) = BufferBuilder::new(rig.pool.try_take(0).unwrap());
    assert!(rig.subpartition.add_buffer(consumer).is_err() && rig.subpartition.poll().is_none());
    drop((builder, rig.subpartition.take_discarded(), rig.open.take()));
    assert_eq!(rig.pool.in_use(), 0, "neither what was queued nor what was refused is kept");
    assert_eq!(rig.subpartition.resume(), Ok(Notify::Nobody));
    rig.assert_all_segments_home();
}

#[test]
fn without_a_reader_nobody_is_notified_and_release_frees_all() {
    let mut rig = Rig::new();
    rig.subpartition = Subpartition::new();
    assert_eq!([rig.add(1), rig.add(1), rig.event(watermark(1))], [Notify::Nobody; 3]);
    assert_eq!(rig.subpartition.release(), Notify::Nobody);
    rig.assert_all_segments_home();
}

#[derive(Clone, Debug)]
enum Op {
    Add(usize),
    Write(usize),
    Finish,
    Flush,
    Watch,
    Event(bool),
    Priority,
    Poll,
    Resume,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        (0..6usize).prop_map(Op::Add),
        (0..6usize).prop_map(Op::Write),
        Just(Op::Finish),
        Just(Op::Flush),
        Just(Op::Watch),
        any::<bool>().prop_map(Op::Event),
        Just(Op::Priority),
        Just(Op::Poll),
        Just(Op::Resume),
    ];
    proptest::collection::vec(op, 0..60)
}

proptest! {
    /// A backlog is a promise: that many data buffers can be polled, one after the other. Each poll returns how many
    /// are left.
    #[test]
    fn the_backlog_is_exact_after_any_operations(ops in ops()) {
        let mut rig = Rig::new();
        for op in ops {
            let was_asleep = rig.subpartition.next() == NextElement::None && rig.poll().is_none();
            let notify = match op {
                Op::Add(bytes) => { let notify = rig.add(bytes); if rig.pool.in_use() + 2 > SEGMENTS { rig.drain(); } notify }
                Op::Write(bytes) => { rig.write(bytes); Notify::Nobody }
                Op::Finish => { rig.finish(); rig.subpartition.finish_buffer() }
                Op::Flush => rig.subpartition.flush(),
                Op::Watch => rig.subpartition.watch(),
                Op::Event(true) => rig.event(barrier(1, BarrierKind::Aligned)),
                Op::Event(false) => rig.event(watermark(1)),
                Op::Priority => rig.event(barrier(1, BarrierKind::Unaligned)),
                Op::Poll => { rig.poll(); continue }
                Op::Resume => rig.subpartition.resume().unwrap_or(Notify::Nobody),
            };
            let is_news = was_asleep && rig.subpartition.next() != NextElement::None;
            prop_assert_eq!(notify == Notify::Reader, is_news, "woken if and only if asleep and there is something");
        }
        if rig.subpartition.is_blocked() {
            prop_assert_eq!(rig.backlog(), 0);
            rig.subpartition.resume();
        }
        let mut left = rig.backlog();
        loop {
            if let Some(polled) = rig.poll() {
                if let Element::Data(buffer) = &polled.element {
                    prop_assert!(!buffer.is_empty());
                    left -= 1;
                }
                let reported = if rig.subpartition.is_blocked() { 0 } else { left };
                prop_assert_eq!(polled.backlog.get(), reported);
            } else if rig.subpartition.resume().is_err() {
                break;
            }
        }
        prop_assert_eq!(left, 0);
        rig.assert_all_segments_home();
    }
}

#[test]
fn a_barrier_says_what_it_overtakes_and_wakes_a_reader_that_is_busy_with_it() {
    let mut rig = Rig::new();
    rig.subpartition.add_event(watermark(5));
    assert!(matches!(
        rig.subpartition.poll(),
        Some(PolledElement { element: Element::Event(Event::Watermark { .. }), .. })
    ));
    rig.add(3);
    rig.finish();
    rig.subpartition.add_event(watermark(9));
    rig.add(2);
    rig.finish();
    let event = barrier(1, BarrierKind::Unaligned);
    let (overtaken, notify) = rig.subpartition.overtake(event.clone()).unwrap();
    assert_eq!((overtaken.watermark_ms, notify), (Some(5), Notify::Reader));
    let shown = |element: &Element| match element {
        Element::Data(buffer) => format!("{} bytes", buffer.len()),
        Element::Event(event) => format!("{event:?}"),
    };
    let behind = [String::from("3 bytes"), format!("{:?}", watermark(9)), String::from("2 bytes")];
    assert_eq!(overtaken.elements.iter().map(shown).collect::<Vec<_>>(), behind);
    assert!(rig.subpartition.has_priority());
    let read: Vec<_> = std::iter::from_fn(|| rig.subpartition.poll()).map(|polled| shown(&polled.element)).collect();
    assert_eq!((read[0].clone(), &read[1..]), (format!("{event:?}"), &behind[..]), "it is read all the same");
    assert!(!rig.subpartition.has_priority());
}

#[test]
fn a_barrier_that_has_waited_too_long_overtakes_what_is_before_it_and_not_what_is_behind() {
    let mut rig = Rig::new();
    rig.subpartition.add_event(watermark(5));
    rig.poll();
    rig.add(3);
    rig.finish();
    rig.subpartition.add_event(watermark(9));
    rig.subpartition.add_event(barrier(2, BarrierKind::AlignedWithTimeout));
    rig.add(2);
    rig.finish();
    assert!(rig.subpartition.expire(CheckpointId::new(1)).is_none(), "another one");
    let (overtaken, notify) = rig.subpartition.expire(CheckpointId::new(2)).unwrap();
    assert_eq!((overtaken.watermark_ms, notify), (Some(5), Notify::Reader));
    assert_eq!(overtaken.elements.len(), 2);
    assert!(matches!(&overtaken.elements[0], Element::Data(buffer) if buffer.len() == 3));
    assert!(rig.subpartition.expire(CheckpointId::new(2)).is_none(), "once");
    let first = rig.subpartition.poll().unwrap().element;
    assert!(matches!(first, Element::Event(event) if event == barrier(2, BarrierKind::Unaligned)));
    assert!(!rig.subpartition.is_blocked(), "nobody has to say that it may go on");
    rig.subpartition.finish_buffer();
    let rest = std::iter::from_fn(|| rig.subpartition.poll()).count();
    assert_eq!(rest, 3, "and nothing is lost");
    drop(overtaken);
    rig.assert_all_segments_home();
}

#[test]
fn a_flush_does_not_end_a_watch() {
    let mut rig = Rig::new();
    rig.add(3);
    assert_eq!(rig.subpartition.watch(), Notify::Reader);
    assert!(rig.subpartition.is_watched());
    rig.subpartition.flush();
    assert!(rig.subpartition.is_watched(), "what is written next is seen without another one");
    rig.assert_all_segments_home();
}

#[test]
fn where_half_of_the_window_waits_no_marker_joins() {
    let mut rig = Rig::new();
    let marker = || Event::LatencyMarker { timestamp_ns: 1, task: 0, subtask: 0 };
    rig.event(marker());
    for _ in 0..EVENT_WINDOW / 2 {
        rig.event(watermark(1));
    }
    rig.event(marker());
    assert_eq!(rig.drain(), (0, 1 + EVENT_WINDOW / 2));
    rig.assert_all_segments_home();
}

#[test]
fn a_buffer_that_was_finished_unseen_goes_home_when_it_is_read() {
    let mut rig = Rig::new();
    rig.add(3);
    rig.subpartition.flush();
    rig.finish();
    assert!(rig.poll().is_some());
    assert_eq!(rig.pool.in_use(), 0);
    rig.assert_all_segments_home();
}

#[test]
fn what_overtakes_wakes_no_reader_that_is_blocked_or_not_there() {
    let overtaking = || barrier(2, BarrierKind::Unaligned);
    let mut rig = Rig::new();
    rig.event(barrier(1, BarrierKind::Aligned));
    assert_eq!(rig.drain(), (0, 1));
    assert_eq!(rig.subpartition.overtake(overtaking()).unwrap().1, Notify::Nobody);
    assert_eq!(rig.subpartition.resume(), Ok(Notify::Reader), "then it is");
    rig.assert_all_segments_home();

    let mut unread = Subpartition::new();
    assert_eq!(unread.overtake(overtaking()).unwrap().1, Notify::Nobody);
}
