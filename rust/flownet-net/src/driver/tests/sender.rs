//! Tests which thread writes: the one with news, or the connection's task.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use flownet_core::ChannelId;
use flownet_core::exchange::ready::ReadyList;
use tokio::io::AsyncReadExt;

use super::pipe::{Kind, PipeEnd, pipe};
use crate::counters::SharedCounters;
use crate::driver::link::{Link, ReadOutcome};
use crate::driver::sender::{Sender, Transmit};

/// Machine that sends one byte for each news of its channel.
#[derive(Default)]
pub(super) struct Bytes {
    news: Arc<Mutex<VecDeque<u8>>>,
    unwritten: Vec<u8>,
    may_be_stopped: bool,
}

impl Transmit for Bytes {
    fn on_ready(&mut self, _channel: ChannelId) {
        self.unwritten.extend(self.news.lock().unwrap_or_else(PoisonError::into_inner).drain(..));
    }

    fn fill<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        slices[0] = IoSlice::new(&self.unwritten);
        usize::from(!self.unwritten.is_empty())
    }

    fn advance(&mut self, bytes: usize) {
        self.unwritten.drain(..bytes);
    }

    fn patience(&self) -> usize {
        PATIENCE
    }

    fn ping(&mut self, _token: u64) {}

    fn pong(&mut self, _token: u64) {}

    fn may_be_stopped(&self) -> bool {
        self.may_be_stopped
    }

    fn end(&mut self) {
        self.unwritten.clear();
    }
}

#[derive(Default)]
struct WakeCount(AtomicUsize);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Number of quietly listed channels at which an unrelated thread writes for them.
const PATIENCE: usize = 2;

pub(super) struct Rig {
    pub(super) sender: Arc<Sender<PipeEnd, Bytes>>,
    ready: Arc<ReadyList>,
    news: Arc<Mutex<VecDeque<u8>>>,
    channel: Waker,
    task: Waker,
    wakes: Arc<WakeCount>,
    peer: PipeEnd,
}

impl Rig {
    /// Returns a connection whose idle task sleeps.
    pub(super) fn asleep(pipe_bytes: usize) -> Self {
        let (ours, peer) = pipe(Kind::Plain, pipe_bytes);
        let ready = ReadyList::new();
        let machine = Bytes::default();
        let news = Arc::clone(&machine.news);
        let channel = ready.waker_for(ChannelId::new(1));
        let counters = Arc::new(SharedCounters::default());
        let sender = Sender::new(ours, machine, Arc::clone(&ready), counters);
        let wakes = Arc::new(WakeCount::default());
        let task = Waker::from(Arc::clone(&wakes));
        sender.attend(&task);
        let rig = Self { sender, ready, news, channel, task, wakes, peer };
        assert!(!rig.run_task());
        rig
    }

    pub(super) fn bring(&self, byte: u8) {
        self.news.lock().unwrap().push_back(byte);
        self.channel.wake_by_ref();
    }

    /// Adds quiet news, which wakes no thread.
    fn list(&self, byte: u8) {
        self.news.lock().unwrap().push_back(byte);
        self.ready.listing_for(ChannelId::new(byte.into())).list();
    }

    fn run_task(&self) -> bool {
        while self.sender.link.poll_event(&mut Context::from_waker(&self.task)).is_ready() {}
        self.sender.poll_round().unwrap()
    }

    fn wakes(&self) -> usize {
        self.wakes.0.load(Ordering::SeqCst)
    }

    pub(super) async fn receive(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.peer.read_exact(&mut bytes).await.unwrap();
        bytes
    }
}

#[tokio::test]
async fn news_for_a_sleeping_connection_is_written_by_who_brings_it() {
    let mut rig = Rig::asleep(64);
    for byte in 1..=3 {
        rig.bring(byte);
    }
    assert_eq!(rig.receive(3).await, [1, 2, 3]);
    assert_eq!(rig.wakes(), 0, "the connection's task slept on");
}

#[tokio::test]
async fn what_the_socket_does_not_take_is_left_to_the_task() {
    let mut rig = Rig::asleep(2);
    for byte in 1..=3 {
        rig.bring(byte);
    }
    // The third byte waits for the socket, so the fourth waits after it.
    rig.bring(4);
    assert!(!rig.run_task());
    assert_eq!(rig.wakes(), 0, "nobody is woken before there is room");
    assert_eq!(rig.receive(2).await, [1, 2]);
    assert_eq!(rig.wakes(), 1);
    while rig.run_task() {}
    assert_eq!(rig.receive(2).await, [3, 4]);
    rig.bring(5);
    assert_eq!(rig.receive(1).await, [5], "and then threads write again");
}

#[tokio::test]
async fn news_that_nobody_is_woken_for_goes_out_once_it_is_worth_a_write() {
    let mut rig = Rig::asleep(64);
    rig.list(1);
    rig.sender.feed(|_| ());
    rig.sender.bring_quiet_news();
    assert_eq!(rig.news.lock().unwrap().len(), 1, "one is not");
    rig.list(2);
    rig.sender.bring_quiet_news();
    assert_eq!(rig.receive(2).await, [1, 2]);
    rig.list(3);
    rig.list(4);
    rig.sender.feed(|_| ());
    assert_eq!(rig.receive(2).await, [3, 4]);
    assert_eq!(rig.wakes(), 0);
}

#[tokio::test]
async fn news_that_nobody_is_woken_for_goes_out_with_other_news_and_with_the_task() {
    let mut rig = Rig::asleep(64);
    rig.list(1);
    rig.bring(2);
    assert_eq!(rig.receive(2).await, [1, 2]);
    rig.list(3);
    assert!(rig.run_task());
    assert_eq!(rig.receive(1).await, [3]);
}

#[tokio::test]
async fn news_that_finds_the_connection_at_work_is_written_by_who_is_at_work() {
    let mut rig = Rig::asleep(64);
    rig.sender.with(|_| rig.bring(1));
    assert_eq!(rig.receive(1).await, [1]);
    assert_eq!(rig.wakes(), 0);
}

#[tokio::test]
async fn a_task_that_finds_the_connection_at_work_is_woken_afterwards() {
    let rig = Rig::asleep(64);
    rig.sender.with(|_| {
        assert!(!rig.run_task());
        assert_eq!(rig.wakes(), 0);
    });
    assert_eq!(rig.wakes(), 1);
}

#[tokio::test]
async fn who_waits_for_room_is_told_instead_of_the_task() {
    let mut rig = Rig::asleep(1);
    assert!(!rig.sender.take_room());
    rig.bring(1);
    rig.bring(2);
    assert!(rig.sender.take_room());
    assert!(!rig.sender.write_waiting());
    assert_eq!(rig.receive(1).await, [1]);
    assert_eq!(rig.wakes(), 0, "the connection's task sleeps on");
    assert!(rig.sender.write_waiting());
    assert!(!rig.sender.take_room());
    assert_eq!(rig.receive(1).await, [2]);
}

#[tokio::test]
async fn who_waited_for_room_and_goes_to_work_leaves_it_to_the_task() {
    let mut rig = Rig::asleep(1);
    rig.bring(1);
    rig.bring(2);
    assert!(rig.sender.take_room());
    rig.sender.leave_room();
    assert_eq!((rig.receive(1).await, rig.wakes()), (vec![1], 1));
    assert!(rig.run_task());
    assert_eq!(rig.receive(1).await, [2]);
}

#[tokio::test]
async fn of_a_connection_that_has_ended_nobody_is_told_of_room() {
    let rig = Rig::asleep(1);
    rig.bring(1);
    rig.bring(2);
    rig.sender.end(|_| ());
    assert!(!rig.sender.take_room() && !rig.sender.write_waiting());
}

#[tokio::test]
async fn last_words_go_out_whole_though_the_link_takes_them_piece_by_piece() {
    let mut rig = Rig::asleep(1 << 16);
    let words: Vec<u8> = (0..10_000).map(|at| (at % 251) as u8).collect();
    rig.sender.end(|machine| machine.unwritten.clone_from(&words));
    assert!(rig.receive(words.len()).await == words);
    assert_eq!(rig.peer.read(&mut [0], &mut []).unwrap(), ReadOutcome::Closed);
}

#[tokio::test]
async fn a_peer_owes_room_for_what_it_always_has_to_take() {
    let mut rig = Rig::asleep(3);
    assert_eq!(rig.sender.progress(), (0, false));
    rig.bring(1);
    rig.bring(2);
    assert_eq!(rig.sender.progress(), (2, false));
    (3..6).for_each(|byte| rig.bring(byte));
    assert_eq!(rig.sender.progress(), (3, true));
    rig.sender.with(|machine| machine.may_be_stopped = true);
    assert_eq!(rig.sender.progress(), (3, false), "of what it may leave unread it owes nothing");
    assert_eq!(rig.receive(3).await, [1, 2, 3]);
    assert!(rig.run_task());
    assert_eq!(rig.sender.progress(), (5, false));
}

#[tokio::test]
async fn a_thread_that_finds_the_peer_gone_lets_the_task_end_the_connection() {
    let Rig { sender, news, channel, wakes, peer, .. } = Rig::asleep(64);
    drop(peer);
    assert_eq!(wakes.0.swap(0, Ordering::SeqCst), 1, "the end of the stream is an event");
    news.lock().unwrap().push_back(1);
    channel.wake();
    assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
    assert!(sender.poll_round().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_news_is_lost_however_many_threads_bring_it() {
    const THREADS: u8 = 3;
    const EACH: usize = 20_000;
    let Rig { sender, news, channel, mut peer, .. } = Rig::asleep(7);
    let task = tokio::spawn({
        let sender = Arc::clone(&sender);
        std::future::poll_fn(move |cx| {
            sender.attend(cx.waker());
            while sender.poll_round().unwrap() || sender.link.poll_event(cx).is_ready() {}
            std::task::Poll::<()>::Pending
        })
    });
    let threads: Vec<_> = (0..THREADS)
        .map(|byte| {
            let (news, channel) = (Arc::clone(&news), channel.clone());
            std::thread::spawn(move || {
                for _ in 0..EACH {
                    news.lock().unwrap().push_back(byte);
                    channel.wake_by_ref();
                }
            })
        })
        .collect();
    let mut received = vec![0; EACH * usize::from(THREADS)];
    peer.read_exact(&mut received).await.unwrap();
    for byte in 0..THREADS {
        assert_eq!(received.iter().filter(|got| **got == byte).count(), EACH);
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    task.abort();
}
