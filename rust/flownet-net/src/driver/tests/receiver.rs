//! Tests which reader reads: the connection's task, or waiting threads. Uses real sockets that return a few bytes at a
//! time.

use std::io::{self, IoSlice, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use flownet_core::ChannelId;
use flownet_core::exchange::ready::ReadyList;
use tokio::task::JoinHandle;

use crate::NetworkConfig;
use crate::counters::SharedCounters;
use crate::driver::link::{Event, Link, ReadOutcome, SocketLink, WriteOutcome};
use crate::driver::receiver::{FrameReader, ReadTask, Receiver};
use crate::driver::sender::{Sender, Transmit};
use crate::driver::{End, ReaderId};
use crate::heartbeat::Pulse;
use crate::inlets::{AttendOutcome, Inlet, Inlets};
use crate::parker::ThreadParker;

use super::sender;

/// Socket that returns at most three bytes per read.
struct ChoppedLink(SocketLink);

impl Link for ChoppedLink {
    fn read(&self, _first: &mut [u8], second: &mut [u8]) -> io::Result<ReadOutcome> {
        self.0.read(&mut [], &mut second[..3])
    }

    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<WriteOutcome> {
        self.0.write(slices)
    }

    fn has_buffered(&self) -> bool {
        self.0.has_buffered()
    }

    fn has_unsent(&self) -> bool {
        self.0.has_unsent()
    }

    fn close(&self) {
        self.0.close();
    }

    fn watch(&self, event: Event, is_watched: bool) -> io::Result<()> {
        self.0.watch(event, is_watched)
    }

    fn poll_event(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_event(cx)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }
}

/// Decodes bytes for mailboxes. Each byte names its mailbox.
struct Mail {
    bytes: [u8; 8],
    filled: usize,
    boxes: Vec<Arc<Mailbox>>,
}

#[derive(Default)]
struct Mailbox {
    received: Mutex<(usize, bool, Option<Waker>)>,
}

impl Mailbox {
    fn put(&self, is_end: bool) {
        let waker = {
            let mut received = self.received.lock().unwrap();
            received.0 += usize::from(!is_end);
            received.1 |= is_end;
            received.2.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// Takes the bytes that have arrived since the last call. Waits if there are none.
    fn poll_take(&self, waker: &Waker) -> Poll<usize> {
        let mut received = self.received.lock().unwrap();
        if received.0 == 0 && !received.1 {
            received.2 = Some(waker.clone());
            return Poll::Pending;
        }
        Poll::Ready(std::mem::take(&mut received.0))
    }
}

struct SilentLink;

impl Transmit for SilentLink {
    fn on_ready(&mut self, _channel: ChannelId) {}

    fn fill<'a>(&'a mut self, _slices: &mut [IoSlice<'a>]) -> usize {
        0
    }

    fn advance(&mut self, _bytes: usize) {}

    fn patience(&self) -> usize {
        1
    }

    fn ping(&mut self, _token: u64) {}

    fn pong(&mut self, _token: u64) {}

    fn may_be_stopped(&self) -> bool {
        false
    }

    fn end(&mut self) {}
}

impl<M> FrameReader<M> for Mail {
    fn targets(&mut self) -> (&mut [u8], &mut [u8]) {
        (&mut [], &mut self.bytes)
    }

    fn filled(&mut self, bytes: usize) {
        self.filled = bytes;
    }

    fn handle(&mut self, _machine: &mut M, _resume: &Waker) -> Result<u64, End> {
        for byte in &self.bytes[..self.filled] {
            self.boxes[usize::from(*byte)].put(false);
        }
        Ok(0)
    }

    fn is_held(&self) -> bool {
        false
    }

    fn is_between_frames(&self) -> bool {
        true
    }

    fn clear(&mut self) {}
}

struct Rig {
    receiver: Arc<Receiver<ChoppedLink, SilentLink, Mail>>,
    task: JoinHandle<End>,
    boxes: Vec<Arc<Mailbox>>,
    inlets: Vec<Arc<Inlets>>,
    peer: UnixStream,
}

impl Rig {
    /// Creates a connection with its task, and `readers` threads that may wait for it.
    fn new(readers: usize) -> Self {
        let (ours, peer) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let link = ChoppedLink(SocketLink::new(ours.into()).unwrap());
        let sender = Sender::new(link, SilentLink, ReadyList::new(), Arc::new(SharedCounters::default()));
        let boxes: Vec<Arc<Mailbox>> = (0..readers).map(|_| Arc::default()).collect();
        let limits = NetworkConfig::default().liveness();
        let receiver = Receiver::new(sender, Mail { bytes: [0; 8], filled: 0, boxes: boxes.clone() }, limits);
        let inlets = (0..readers).map(|_| Inlets::new()).collect::<Vec<_>>();
        let inlet: Arc<dyn Inlet> = Arc::clone(&receiver) as _;
        inlets.iter().for_each(|inlets| inlets.connected().upgrade().unwrap().add(Arc::downgrade(&inlet)));
        let task = tokio::spawn(run(Arc::clone(&receiver), boxes.clone()));
        Self { receiver, task, boxes, inlets, peer }
    }

    /// Starts a thread that waits for `expected` bytes, with occasional pauses.
    fn read(&self, reader: usize, expected: usize, pause: Option<Duration>) -> thread::JoinHandle<()> {
        let (mailbox, inlets) = (Arc::clone(&self.boxes[reader]), Arc::clone(&self.inlets[reader]));
        thread::spawn(move || {
            let mut read = 0;
            while read < expected {
                read += inlets.wait_until(|waker| mailbox.poll_take(waker));
                if let Some(pause) = pause {
                    thread::sleep(pause);
                }
            }
            assert_eq!(read, expected);
        })
    }

    /// Takes bytes like a reading task, but without a thread.
    async fn take(&self, reader: usize, expected: usize) {
        let mut read = 0;
        while read < expected {
            read += std::future::poll_fn(|cx| self.boxes[reader].poll_take(cx.waker())).await;
        }
        assert_eq!(read, expected);
    }

    fn send(&mut self, reader: usize, count: usize) {
        self.peer.write_all(&vec![u8::try_from(reader).unwrap(); count]).unwrap();
    }
}

/// Runs the connection's task. It ends the mailboxes with the connection.
async fn run(receiver: Arc<Receiver<ChoppedLink, SilentLink, Mail>>, boxes: Vec<Arc<Mailbox>>) -> End {
    let mut read = ReadTask::default();
    let end = std::future::poll_fn(|cx| {
        receiver.sender.attend(cx.waker());
        loop {
            match receiver.read_for_task() {
                Ok(true) => continue,
                Ok(false) => {}
                Err(end) => return Poll::Ready(end),
            }
            match read.poll_event(cx, &receiver) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(end)) => return Poll::Ready(end),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
    receiver.end(|_| ());
    boxes.iter().for_each(|mailbox| mailbox.put(true));
    end
}

async fn join(threads: Vec<thread::JoinHandle<()>>) {
    tokio::task::spawn_blocking(|| threads.into_iter().for_each(|thread| thread.join().unwrap())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_byte_reaches_its_thread_however_many_take_turns_at_reading() {
    const READERS: usize = 4;
    const ROUNDS: usize = 500;
    let mut rig = Rig::new(READERS);
    let pauses = [None, Some(Duration::from_micros(50)), None, Some(Duration::from_millis(1))];
    let threads = (0..READERS).map(|reader| rig.read(reader, 7 * ROUNDS, pauses[reader])).collect();
    let mut rig = tokio::task::spawn_blocking(move || {
        for round in 0..ROUNDS {
            (0..READERS).for_each(|reader| rig.send(reader, 7));
            if round % 10 == 0 {
                // Long enough for all threads to fall asleep.
                thread::sleep(Duration::from_millis(1));
            }
        }
        rig
    })
    .await
    .unwrap();
    join(threads).await;
    rig.peer.flush().unwrap();
    rig.task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_that_stays_at_work_does_not_keep_bytes_from_another() {
    let mut rig = Rig::new(2);
    rig.send(0, 1);
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (mailbox, inlets) = (Arc::clone(&rig.boxes[0]), Arc::clone(&rig.inlets[0]));
    let busy = thread::spawn(move || {
        assert_eq!(inlets.wait_until(|waker| mailbox.poll_take(waker)), 1);
        // In user code, possibly with the role.
        wait.recv().unwrap();
    });
    let live = rig.read(1, 100, None);
    for _ in 0..100 {
        rig.send(1, 1);
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    join(vec![live]).await;
    go.send(()).unwrap();
    join(vec![busy]).await;
    rig.task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_the_peer_is_noticed_while_the_reader_sleeps_and_while_it_works() {
    for is_asleep in [true, false] {
        let mut rig = Rig::new(1);
        rig.send(0, 1);
        let (mailbox, inlets) = (Arc::clone(&rig.boxes[0]), Arc::clone(&rig.inlets[0]));
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let reader = thread::spawn(move || {
            assert_eq!(inlets.wait_until(|waker| mailbox.poll_take(waker)), 1);
            if is_asleep {
                // The end is the next event.
                inlets.wait_until(|waker| mailbox.poll_take(waker));
            } else {
                wait.recv().unwrap();
            }
        });
        drop(rig.peer);
        assert!(matches!(rig.task.await.unwrap(), End::Closed));
        let _ = go.send(());
        join(vec![reader]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_asleep_on_a_socket_is_woken_by_anything_else() {
    let rig = Rig::new(1);
    let inlets = Arc::clone(&rig.inlets[0]);
    let (ask, asked) = std::sync::mpsc::channel::<Waker>();
    let other = thread::spawn(move || asked.iter().for_each(Waker::wake));
    let sleeper = thread::spawn(move || {
        let parker = ThreadParker::current();
        for _ in 0..1000 {
            ask.send(parker.waker().clone()).unwrap();
            assert!(inlets.park(&parker, None));
        }
        assert!(!inlets.park(&parker, Some(Duration::from_millis(1))), "and by nothing at all in time");
    });
    join(vec![sleeper, other]).await;
    rig.task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_gone_is_waited_for_no_longer() {
    let rig = Rig::new(1);
    rig.task.abort();
    let _ = rig.task.await;
    drop(rig.receiver);
    let inlets = Arc::clone(&rig.inlets[0]);
    let sleeper = thread::spawn(move || {
        let parker = ThreadParker::current();
        parker.waker().wake_by_ref();
        assert!(inlets.park(&parker, None));
        assert!(!inlets.park(&parker, Some(Duration::from_millis(1))));
    });
    join(vec![sleeper]).await;
}

/// A thread takes the role with each wait, and the connection's task gets it back when the wait ends. Bytes that arrive
/// in between must be reported to the current holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_lie_there_when_the_role_goes_back_are_read() {
    let mut rig = Rig::new(1);
    let reader = ReaderId(u64::MAX);
    for _ in 0..200 {
        let _ = rig.receiver.attend(reader);
        rig.send(0, 2);
        rig.receiver.resign(reader);
        rig.take(0, 2).await;
    }
    rig.task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_while_the_only_reader_is_at_work_is_read_without_it() {
    let mut rig = Rig::new(1);
    let reader = ReaderId(u64::MAX);
    for _ in 0..2 {
        assert_eq!(rig.receiver.attend(reader), AttendOutcome::Nothing { wants_room: false }, "it may sleep");
        rig.receiver.leave(reader);
        rig.send(0, 2);
        rig.take(0, 2).await;
    }
    rig.task.abort();
}

/// Sends this many bytes before each heartbeat, one per second. None of them ends a frame.
async fn is_given_up_who_sends(bytes_a_second: usize) -> bool {
    let mut rig = Rig::new(1);
    for second in 0..40 {
        rig.send(0, bytes_a_second);
        rig.take(0, bytes_a_second).await;
        rig.receiver.on_heartbeat(Duration::from_secs(second));
        if rig.receiver.attend(ReaderId(u64::MAX)) == AttendOutcome::Refused {
            assert!(matches!(rig.task.await.unwrap(), End::Silent(owed_for) if owed_for == Duration::from_secs(10)));
            return true;
        }
        rig.receiver.resign(ReaderId(u64::MAX));
    }
    rig.task.abort();
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_kib_of_a_frame_within_the_timeout_are_a_sign_of_life_and_less_is_none() {
    assert!(!is_given_up_who_sends(420).await);
    assert!(is_given_up_who_sends(360).await);
}

#[tokio::test]
async fn a_thread_that_sleeps_for_bytes_writes_what_waits_for_room() {
    let mut rig = sender::Rig::asleep(1);
    let mail = Mail { bytes: [0; 8], filled: 0, boxes: Vec::new() };
    let receiver = Receiver::new(Arc::clone(&rig.sender), mail, NetworkConfig::default().liveness());
    let reader = ReaderId(u64::MAX);
    assert_eq!(receiver.attend(reader), AttendOutcome::Nothing { wants_room: false });
    rig.bring(1);
    rig.bring(2);
    assert_eq!(receiver.attend(reader), AttendOutcome::Nothing { wants_room: true });
    assert_eq!(rig.receive(1).await, [1]);
    assert_eq!(receiver.attend(reader), AttendOutcome::Moved);
    assert_eq!(rig.receive(1).await, [2]);
    assert_eq!(receiver.attend(reader), AttendOutcome::Nothing { wants_room: false });
}
