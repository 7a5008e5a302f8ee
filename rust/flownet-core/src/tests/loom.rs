//! Models of all interleavings of two or three threads, with at most two preemptions.
//!
//! Run with `make test-loom`. Loom reports a lost wake-up as a deadlock.

use std::sync::Arc;
use std::task::{Poll, Wake, Waker};

use flownet_memory::{BufferPool, BufferPoolSettings, SegmentPool};
use loom::sync::Notify;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::channel::RemoteChannel;
use crate::combining_lock::CombiningLock;
use crate::credit::Backlog;
use crate::error::ExchangeError;
use crate::event::{Barrier, BarrierKind, Event};
use crate::exchange::ready::ReadyList;
use crate::gate::InputGate;
use crate::ids::{ChannelId, ChannelIndex, CheckpointId, PartitionId, SubpartitionIndex};
use crate::partition::dirty::DirtyMarks;
use crate::partition::{PartitionHandle, ResultPartition};
use crate::sizing::PoolSizing;
use crate::subpartition::Element;

const FIRST: SubpartitionIndex = SubpartitionIndex::new(0);

fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(f);
}

/// Segments of one byte: each byte is a full buffer.
fn segments(total: usize) -> Arc<SegmentPool> {
    SegmentPool::new(total, 1).unwrap()
}

fn pool(segments: &Arc<SegmentPool>, size: usize) -> Arc<BufferPool> {
    let settings = BufferPoolSettings { min: size, max: Some(size), ..PoolSizing::default().partition(1) };
    segments.create_buffer_pool(settings).unwrap()
}

fn partition(id: u64, pool: Arc<BufferPool>) -> ResultPartition {
    ResultPartition::new(PartitionId::new(id), pool, 1)
}

fn assert_all_home(segments: &SegmentPool) {
    assert_eq!((segments.available(), segments.guaranteed()), (segments.total(), 0));
}

struct NotifyWaker(Notify);

impl Wake for NotifyWaker {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

fn block_on<T>(mut poll: impl FnMut(&Waker) -> Poll<T>) -> T {
    let notify = Arc::new(NotifyWaker(Notify::new()));
    let waker = Waker::from(Arc::clone(&notify));
    loop {
        if let Poll::Ready(ready) = poll(&waker) {
            return ready;
        }
        notify.0.wait();
    }
}

/// Reads a gate to its end. Returns the bytes of each channel.
fn read_all<const CHANNELS: usize>(gate: &InputGate) -> [Vec<u8>; CHANNELS] {
    let mut read = [const { Vec::new() }; CHANNELS];
    while let Some((channel, element)) = block_on(|waker| gate.poll_next(waker)).unwrap() {
        if let Element::Data(data) = element {
            read[channel.index()].extend_from_slice(&data);
        }
    }
    read
}

/// The driver of a remote channel, with the producer's count of its credit.
struct Driver {
    channel: Arc<RemoteChannel>,
    ready: Arc<ReadyList>,
    credit: u32,
    sequence: u32,
}

impl Driver {
    fn open(gate: &Arc<InputGate>, index: u32, pool: Arc<BufferPool>, exclusive: u32) -> Self {
        let (ready, index) = (ReadyList::new(), ChannelIndex::new(index));
        let channel = RemoteChannel::new(Arc::clone(gate), index, pool, exclusive);
        channel.connect(ready.listing_for(ChannelId::new(0)));
        let credit = channel.initial_credit().get();
        Self { channel, ready, credit, sequence: 0 }
    }

    fn next_sequence(&mut self) -> u32 {
        self.sequence += 1;
        self.sequence - 1
    }

    /// Takes announcements until the channel is cancelled or has credit. Returns false if it is cancelled.
    fn wait_for_credit(&mut self) -> bool {
        while self.credit == 0 {
            block_on(|waker| self.ready.poll_drain(&mut Vec::new(), waker));
            let news = self.channel.take_announcement();
            if news.cancel {
                return false;
            }
            self.credit += news.credit.get();
        }
        true
    }

    /// Sends a data frame of one byte. Returns false if the channel is cancelled.
    fn send(&mut self, byte: u8, backlog: u32) -> bool {
        if !self.wait_for_credit() {
            return false;
        }
        self.credit -= 1;
        let sequence = self.next_sequence();
        if let Some(mut segment) = self.channel.take_for_receive(sequence).unwrap() {
            segment.as_mut_slice()[0] = byte;
            self.channel.on_buffer(segment, 1, Backlog::new(backlog)).unwrap();
        }
        true
    }

    fn send_event(&mut self, event: Event) {
        let sequence = self.next_sequence();
        self.channel.on_event(event, sequence, Backlog::ZERO).unwrap();
    }
}

#[test]
fn loom_a_flush_that_leaves_the_lock_alone_hides_nothing() {
    model(|| {
        // Never full: a full buffer is finished at once, under the lock.
        let segments = SegmentPool::new(1, 4).unwrap();
        let mut partition = partition(0, pool(&segments, 1));
        let cell = Arc::clone(&partition.subpartitions()[0]);
        let writer = thread::spawn(move || {
            for byte in [1, 2] {
                assert_eq!(partition.try_write(FIRST, &[byte]), 1);
                partition.end_record(FIRST);
                partition.flush(FIRST);
            }
            partition
        });
        let notify = Arc::new(NotifyWaker(Notify::new()));
        cell.attach_reader(Waker::from(Arc::clone(&notify))).unwrap();
        let mut read = Vec::new();
        while read.len() < 2 {
            match cell.poll().map(|polled| polled.element) {
                Some(Element::Data(data)) => read.extend_from_slice(&data),
                Some(Element::Event(_)) => unreachable!("the writer sends none"),
                None => notify.0.wait(),
            }
        }
        assert_eq!(read, [1, 2]);
        drop(writer.join().unwrap());
        drop(cell);
        assert_all_home(&segments);
    });
}

#[test]
fn loom_a_record_whose_mark_is_just_taken_is_flushed_with_the_next() {
    model(|| {
        let segments = SegmentPool::new(1, 4).unwrap();
        let mut partition = partition(0, pool(&segments, 1));
        let handle = partition.handle();
        let mut write = move |byte| {
            assert_eq!(partition.try_write(FIRST, &[byte]), 1);
            partition.end_record(FIRST);
        };
        write(1);
        let writer = thread::spawn(move || {
            write(2);
            write
        });
        let mut read = Vec::new();
        let mut flush_and_read = || {
            handle.flush_dirty();
            if let Some(Element::Data(data)) = handle.subpartitions()[0].poll().map(|polled| polled.element) {
                read.extend_from_slice(&data);
            }
        };
        flush_and_read();
        let write = writer.join().unwrap();
        // The flusher runs again.
        flush_and_read();
        assert_eq!(read, [1, 2]);
        drop((write, handle));
        assert_all_home(&segments);
    });
}

#[test]
fn loom_a_record_written_while_the_flusher_falls_asleep_wakes_it() {
    model(|| {
        let segments = SegmentPool::new(1, 4).unwrap();
        let mut partition = partition(0, pool(&segments, 1));
        let handle = partition.handle();
        let writer = thread::spawn(move || {
            assert_eq!(partition.try_write(FIRST, &[1]), 1);
            partition.end_record(FIRST);
            partition
        });
        let notify = Arc::new(NotifyWaker(Notify::new()));
        let waker = Waker::from(Arc::clone(&notify));
        PartitionHandle::doze(std::slice::from_ref(&handle), &waker);
        while handle.is_dozing() {
            notify.0.wait();
        }
        assert!(handle.is_dirty());
        handle.flush_dirty();
        assert!(handle.subpartitions()[0].poll().is_some(), "what woke it was committed before");
        drop((writer.join().unwrap(), handle));
        assert_all_home(&segments);
    });
}

#[test]
fn loom_a_writer_that_is_late_to_wake_the_flusher_takes_nothing_of_its_next_sleep() {
    let mut builder = loom::model::Builder::new();
    // Two threads and few steps, but a whole round of the flusher must be able to overtake the writer.
    builder.preemption_bound = None;
    builder.check(|| {
        let marks = DirtyMarks::new(1);
        let bell = Arc::new(WakeFlag(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&bell));
        fn doze(marks: &DirtyMarks, waker: &Waker) {
            DirtyMarks::doze(std::iter::once(marks), waker);
        }
        doze(&marks, &waker);
        let flusher = {
            let (marks, bell) = (marks.clone(), Arc::clone(&bell));
            // The flusher's timer runs for another partition. This one was marked, is flushed twice, and dozes again.
            thread::spawn(move || {
                marks.take(|_| ());
                marks.take(|_| ());
                doze(&marks, &waker);
                let has_timer = !marks.is_dozing();
                has_timer || (bell.take() && !marks.is_dozing())
            })
        };
        // The writer is this thread: in a spawned thread, a model explores the older values of an atomic less often.
        marks.mark(0);
        marks.mark(0);
        let has_timer = flusher.join().unwrap();
        let comes = has_timer || (bell.take() && !marks.is_dozing());
        assert!(comes || !marks.any(), "written, and nobody comes to flush it");
    });
}

/// Flag set by a waker, and read without waiting.
struct WakeFlag(AtomicUsize);

impl WakeFlag {
    fn take(&self) -> bool {
        self.0.swap(0, Ordering::SeqCst) > 0
    }
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn loom_a_subpartition_released_while_it_is_written_keeps_nothing() {
    model(|| {
        let segments = segments(2);
        let mut partition = partition(0, pool(&segments, 2));
        let cell = Arc::clone(&partition.subpartitions()[0]);
        let writer = thread::spawn(move || {
            for byte in [1, 2] {
                assert_eq!(partition.try_write(FIRST, &[byte]), 1);
                partition.end_record(FIRST);
            }
            partition.finish(true);
        });
        cell.attach_reader(Waker::noop().clone()).unwrap();
        drop(cell.poll());
        cell.release();
        writer.join().unwrap();
        assert!(cell.is_consumed());
        assert_all_home(&segments);
    });
}

#[test]
fn loom_a_partition_without_segments_goes_on_when_its_reader_gives_one_back() {
    model(|| {
        let segments = segments(2);
        let mut partition = partition(0, pool(&segments, 2));
        let gate = InputGate::new(1);
        gate.set_local(ChannelIndex::new(0), Arc::clone(&partition.subpartitions()[0]));
        let writer = thread::spawn(move || {
            for byte in 0..3 {
                block_on(|waker| partition.poll_available(waker)).unwrap();
                assert_eq!(partition.try_write(FIRST, &[byte]), 1, "available means that a segment is there");
                partition.end_record(FIRST);
            }
            partition.finish(true);
        });
        assert_eq!(read_all(&gate), [[0, 1, 2]]);
        writer.join().unwrap();
        drop(gate);
        assert_all_home(&segments);
    });
}

#[test]
fn loom_a_ready_list_loses_no_news_and_no_wake_up() {
    model(|| {
        let list = ReadyList::new();
        let news: Arc<[AtomicUsize; 2]> = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let tellers = [(0, 2), (1, 1)].map(|(channel, times)| {
            let (news, waker) = (Arc::clone(&news), list.waker_for(ChannelId::new(channel)));
            thread::spawn(move || {
                for _ in 0..times {
                    news[channel as usize].fetch_add(1, Ordering::SeqCst);
                    waker.wake_by_ref();
                }
            })
        });
        let (mut seen, mut drained) = ([0, 0], Vec::new());
        while seen != [2, 1] {
            block_on(|waker| list.poll_drain(&mut drained, waker));
            for channel in drained.drain(..) {
                let channel = channel.get() as usize;
                seen[channel] = news[channel].load(Ordering::SeqCst);
            }
        }
        tellers.into_iter().for_each(|teller| teller.join().unwrap());
    });
}

#[test]
fn loom_news_of_a_channel_that_was_only_listed_wakes_the_driver() {
    model(|| {
        let list = ReadyList::new();
        let news = Arc::new(AtomicUsize::new(0));
        let listing = list.listing_for(ChannelId::new(0));
        let tellers = [false, true].map(|is_urgent| {
            let (news, listing) = (Arc::clone(&news), listing.clone());
            thread::spawn(move || {
                news.fetch_add(1, Ordering::SeqCst);
                if is_urgent { listing.wake() } else { listing.list() }
            })
        });
        let (mut seen, mut drained) = (0, Vec::new());
        while seen == 0 {
            block_on(|waker| list.poll_drain(&mut drained, waker));
            seen = news.load(Ordering::SeqCst);
        }
        tellers.into_iter().for_each(|teller| teller.join().unwrap());
        list.drain(&mut drained);
        assert!(news.load(Ordering::SeqCst) == 2 && drained.len() <= 2);
    });
}

#[test]
fn loom_a_gate_reads_local_producers_to_their_ends() {
    model(|| {
        let segments = segments(2);
        let gate = InputGate::new(2);
        let producers = [0, 1].map(|id| {
            let mut partition = partition(u64::from(id), pool(&segments, 1));
            gate.set_local(ChannelIndex::new(id), Arc::clone(&partition.subpartitions()[0]));
            thread::spawn(move || {
                assert_eq!(partition.try_write(FIRST, &[7]), 1);
                partition.end_record(FIRST);
                partition.finish(true);
            })
        });
        assert_eq!(read_all(&gate), [[7], [7]]);
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        drop(gate);
        assert_all_home(&segments);
    });
}

#[test]
fn loom_a_gate_reads_a_local_and_a_remote_channel() {
    model(|| {
        let segments = segments(2);
        let gate = InputGate::new(2);
        let mut partition = partition(0, pool(&segments, 1));
        gate.set_local(ChannelIndex::new(0), Arc::clone(&partition.subpartitions()[0]));
        let mut driver = Driver::open(&gate, 1, pool(&segments, 1), 1);
        let task = thread::spawn(move || {
            assert_eq!(partition.try_write(FIRST, &[1]), 1);
            partition.end_record(FIRST);
            partition.finish(true);
        });
        let network = thread::spawn(move || {
            assert!(driver.send(2, 0));
            driver.send_event(Event::EndOfPartition);
        });
        assert_eq!(read_all(&gate), [[1], [2]]);
        task.join().unwrap();
        network.join().unwrap();
        drop(gate);
        assert_all_home(&segments);
    });
}

#[test]
fn loom_credit_of_a_buffer_that_was_read_reaches_the_producer() {
    model(|| {
        let segments = segments(1);
        let gate = InputGate::new(1);
        let mut driver = Driver::open(&gate, 0, pool(&segments, 1), 1);
        let network = thread::spawn(move || {
            for byte in [1, 2] {
                assert!(driver.send(byte, 1));
            }
            driver.send_event(Event::EndOfPartition);
        });
        assert_eq!(read_all(&gate), [[1, 2]]);
        network.join().unwrap();
        drop(gate);
        assert_all_home(&segments);
    });
}

#[test]
fn loom_channels_that_keep_nothing_get_the_one_segment_in_turn() {
    model(|| {
        let segments = segments(1);
        let (gate, pool) = (InputGate::new(2), pool(&segments, 1));
        let networks = [0, 1].map(|index| {
            let mut driver = Driver::open(&gate, index, Arc::clone(&pool), 0);
            thread::spawn(move || {
                // Announcement of a producer without credit.
                driver.channel.on_backlog(Backlog::new(1));
                assert!(driver.send(9, 0));
                driver.send_event(Event::EndOfPartition);
            })
        });
        drop(pool);
        assert_eq!(read_all(&gate), [[9], [9]]);
        networks.into_iter().for_each(|network| network.join().unwrap());
        drop(gate);
        assert_all_home(&segments);
    });
}

#[test]
fn loom_a_gate_closed_while_it_receives_tells_the_producer_and_keeps_nothing() {
    model(|| {
        let segments = segments(2);
        let gate = InputGate::new(1);
        let mut driver = Driver::open(&gate, 0, pool(&segments, 2), 1);
        let network = thread::spawn(move || {
            // Segments of a buffer that a closed gate drops become credit again until the channel is closed: a separate
            // end.
            let _ = (0..3).all(|_| driver.send(1, 2));
            driver
        });
        gate.close();
        let driver = network.join().unwrap();
        assert!(driver.channel.take_announcement().cancel);
        drop(driver);
        drop(gate);
        assert_all_home(&segments);
    });
}

#[test]
fn loom_a_channel_released_while_it_waits_for_a_segment_keeps_none() {
    model(|| {
        let segments = segments(1);
        let (gate, pool) = (InputGate::new(1), pool(&segments, 1));
        let held = pool.try_take(0).unwrap();
        let driver = Driver::open(&gate, 0, Arc::clone(&pool), 0);
        let channel = Arc::clone(&driver.channel);
        let asks = thread::spawn(move || channel.on_backlog(Backlog::new(1)));
        let gives = thread::spawn(move || drop(held));
        driver.channel.release();
        asks.join().unwrap();
        gives.join().unwrap();
        assert!(driver.channel.take_announcement().cancel);
        drop((driver, gate, pool));
        assert_all_home(&segments);
    });
}

#[test]
fn loom_a_channel_released_while_its_segment_comes_back_keeps_none() {
    model(|| {
        let segments = segments(2);
        let gate = InputGate::new(1);
        let mut driver = Driver::open(&gate, 0, pool(&segments, 2), 1);
        // The task reads one segment, and another was requested.
        assert!(driver.send(1, 1));
        let (_, read) = block_on(|waker| gate.poll_next(waker)).unwrap().unwrap();
        let channel = Arc::clone(&driver.channel);
        let gives_back = thread::spawn(move || drop(read));
        let announces = thread::spawn(move || {
            channel.take_announcement();
        });
        driver.channel.release();
        gives_back.join().unwrap();
        announces.join().unwrap();
        assert!(driver.channel.take_announcement().cancel);
        assert_eq!((driver.channel.owned_segments(), driver.channel.free_segments()), (0, 0));
        drop((driver, gate));
        assert_all_home(&segments);
    });
}

#[test]
fn loom_a_channel_that_fails_while_its_task_reads_wakes_it_and_keeps_nothing() {
    model(|| {
        let segments = segments(1);
        let gate = InputGate::new(1);
        let mut driver = Driver::open(&gate, 0, pool(&segments, 1), 1);
        let network = thread::spawn(move || {
            assert!(driver.send(1, 0));
            driver.channel.fail(ExchangeError::Cancelled);
            driver
        });
        let mut read = 0;
        let error = loop {
            match block_on(|waker| gate.poll_next(waker)) {
                Ok(element) => read += usize::from(element.is_some()),
                Err(error) => break error,
            }
        };
        assert!(read <= 1 && matches!(error, ExchangeError::Cancelled));
        drop((network.join().unwrap(), gate));
        assert_all_home(&segments);
    });
}

#[test]
fn loom_a_resume_gives_a_blocked_channel_its_credit_again() {
    model(|| {
        let segments = segments(1);
        let gate = InputGate::new(1);
        let mut driver = Driver::open(&gate, 0, pool(&segments, 1), 1);
        let network = thread::spawn(move || {
            let barrier = Barrier { checkpoint_id: CheckpointId::new(1), timestamp_ms: 0, kind: BarrierKind::Aligned };
            driver.send_event(Event::Barrier(barrier));
            // The barrier voids the promised credit.
            driver.credit = 0;
            assert!(driver.send(1, 0));
            driver.send_event(Event::EndOfPartition);
        });
        let (channel, element) = block_on(|waker| gate.poll_next(waker)).unwrap().unwrap();
        assert!(matches!(element, Element::Event(Event::Barrier(_))));
        gate.resume(channel).unwrap();
        assert_eq!(read_all(&gate), [[1]]);
        network.join().unwrap();
        drop(gate);
        assert_all_home(&segments);
    });
}

#[test]
fn loom_work_that_finds_the_lock_taken_is_done_by_its_holder() {
    model(|| {
        let wanted = Arc::new(AtomicUsize::new(0));
        let done = Arc::new(CombiningLock::new(0));
        let bring = |wanted: &AtomicUsize, done: &CombiningLock<usize>| {
            wanted.fetch_add(1, Ordering::Relaxed);
            let Some(mut value) = done.lock_or_leave(1) else { return };
            loop {
                *value = wanted.load(Ordering::Relaxed);
                drop(value);
                if done.take_notes() == 0 {
                    return;
                }
                value = done.lock();
            }
        };
        let others = [(); 2].map(|()| {
            let (wanted, done) = (Arc::clone(&wanted), Arc::clone(&done));
            thread::spawn(move || bring(&wanted, &done))
        });
        bring(&wanted, &done);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!((*done.lock(), done.take_notes()), (3, 0));
    });
}
