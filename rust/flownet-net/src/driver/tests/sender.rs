//! Who writes: the thread that has news, or the connection's task.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use flownet_core::ChannelId;
use flownet_core::exchange::ready::ReadyList;
use tokio::io::{AsyncReadExt, DuplexStream, duplex};

use crate::counters::SharedCounters;
use crate::driver::sender::{Sender, Transmit};

/// One byte for each time its channel had news.
#[derive(Default)]
struct Bytes {
    news: Arc<Mutex<VecDeque<u8>>>,
    unwritten: Vec<u8>,
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

    fn is_flushed(&self) -> bool {
        self.unwritten.is_empty()
    }
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

struct Rig {
    sender: Arc<Sender<Mutex<DuplexStream>, Bytes>>,
    news: Arc<Mutex<VecDeque<u8>>>,
    channel: Waker,
    task: Waker,
    wakes: Arc<Wakes>,
    peer: DuplexStream,
}

impl Rig {
    /// A connection whose task has found nothing to do and sleeps.
    fn asleep(pipe_bytes: usize) -> Self {
        let (ours, peer) = duplex(pipe_bytes);
        let ready = ReadyList::new();
        let machine = Bytes::default();
        let news = Arc::clone(&machine.news);
        let channel = ready.waker_for(ChannelId::new(1));
        let sender = Sender::new(Mutex::new(ours), machine, ready, Arc::new(SharedCounters::default()));
        let wakes = Arc::new(Wakes::default());
        let task = Waker::from(Arc::clone(&wakes));
        sender.attend(&task);
        let rig = Self { sender, news, channel, task, wakes, peer };
        assert!(!rig.run_task());
        rig
    }

    fn bring(&self, byte: u8) {
        self.news.lock().unwrap().push_back(byte);
        self.channel.wake_by_ref();
    }

    fn run_task(&self) -> bool {
        self.sender.poll_round(&mut Context::from_waker(&self.task)).unwrap()
    }

    fn wakes(&self) -> usize {
        self.wakes.0.load(Ordering::SeqCst)
    }

    async fn receive(&mut self, count: usize) -> Vec<u8> {
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
    assert_eq!(rig.wakes(), 1);
    // The third waits for the socket, so the fourth stays behind it.
    rig.bring(4);
    assert_eq!(rig.wakes(), 1, "a task that waits for the socket is not woken for more");
    assert!(!rig.run_task());
    assert_eq!(rig.receive(2).await, [1, 2]);
    while rig.run_task() {}
    assert_eq!(rig.receive(2).await, [3, 4]);
    rig.bring(5);
    assert_eq!(rig.receive(1).await, [5], "and then threads write again");
}

#[tokio::test]
async fn news_that_finds_the_connection_at_work_wakes_its_task() {
    let mut rig = Rig::asleep(64);
    let at_work = rig.sender.lock();
    rig.bring(1);
    drop(at_work);
    assert_eq!(rig.wakes(), 1);
    while rig.run_task() {}
    assert_eq!(rig.receive(1).await, [1]);
}

#[tokio::test]
async fn a_thread_that_finds_the_peer_gone_lets_the_task_end_the_connection() {
    let Rig { sender, news, channel, task, wakes, peer } = Rig::asleep(64);
    drop(peer);
    news.lock().unwrap().push_back(1);
    channel.wake();
    assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
    assert!(sender.poll_round(&mut Context::from_waker(&task)).is_err());
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
            while sender.poll_round(cx).unwrap() {}
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
