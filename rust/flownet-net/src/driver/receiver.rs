//! Reading half of a connection: its own task reads, or a task thread that would otherwise sleep until data arrives.
//!
//! A task thread whose gate is empty takes the reader role and reads from the socket. If the socket is empty, it sleeps
//! on it. This costs one wake-up per batch, on the core that will use the data. [`ownership`] decides which thread has
//! the role. Data goes to any gate of the connection: a thread reads for others just as the connection's task does.
//!
//! # Invariants
//! - E1: bytes are read and decoded under one lock, hence in order. No holder of the lock waits for anything.
//! - E2: orders of [`ownership`] are carried out under the lock under which they were given.
//! - E3: the connection's task reads only if it was called: by the link, by a thread that leaves work to it, or by
//!   itself while there may be more bytes.
//!
//! [`ownership`]: super::ownership

use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use flownet_core::combining_lock::{CombiningLock, PendingFlags};
use tokio::time::Sleep;

use super::End;
use super::link::{Event, Link, ReadOutcome};
use super::liveness::{ConnectionActivity, Limits, Liveness, PROGRESS_BYTES, Verdict};
use super::ownership::{Orders, ReadHalf, ReaderId, Turn};
use super::sender::{Sender, Transmit};
use crate::counters::NetCounters;
use crate::heartbeat::Pulse;
use crate::inlets::{AttendOutcome, Inlet};

/// Decodes bytes into frames and passes them to a connection machine.
pub(crate) trait FrameReader<M>: Send + 'static {
    /// Returns the destination of the next bytes: they fill the first slice, which may be empty, then the second.
    fn targets(&mut self) -> (&mut [u8], &mut [u8]);

    /// Marks the next `bytes` bytes as stored in the [`targets`](Self::targets).
    fn filled(&mut self, bytes: usize);

    /// Handles all complete frames and returns their number. If the machine cannot accept one, the reader is held, and
    /// `resume` later wakes the connection's task to call this again. Also calls `resume` if other work is left to
    /// that task.
    fn handle(&mut self, machine: &mut M, resume: &Waker) -> Result<u64, End>;

    /// Returns true while a frame is held back. Nothing more is read meanwhile.
    fn is_held(&self) -> bool;

    /// Returns true if the stream may end here.
    fn is_between_frames(&self) -> bool;

    /// Drops incomplete frames, because nothing more arrives.
    fn clear(&mut self);
}

/// Receiving state shared by the connection's task and the threads that read for it. See the [module docs](self).
pub(crate) struct Receiver<L, M, I> {
    pub(crate) sender: Arc<Sender<L, M>>,
    state: CombiningLock<State<I>>,
    /// Whether the reader role has to be checked periodically. Changed under the lock, but read without it.
    is_ticking: AtomicBool,
    task: Arc<TaskCall<L, M>>,
    /// Waker that calls `task`.
    resume: Waker,
}

/// Calls the connection's task to read, regardless of its knowledge about the socket.
struct TaskCall<L, M> {
    sender: Weak<Sender<L, M>>,
    /// Set if the task has to read (E3).
    is_called: AtomicBool,
}

struct State<I> {
    intake: I,
    reading: ReadHalf<End>,
    counted: NetCounters,
    liveness: Liveness,
    /// Frames received over the connection's lifetime.
    frames: u64,
    /// Bytes received over the connection's lifetime.
    bytes: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ReadProgress {
    Nothing,
    /// All available bytes. Later ones raise an event.
    Rest,
    /// Some bytes. There may be more.
    Part,
}

impl<L: Link, M: Transmit, I: FrameReader<M>> Receiver<L, M, I> {
    pub(crate) fn new(sender: Arc<Sender<L, M>>, intake: I, limits: Limits) -> Arc<Self> {
        let task = Arc::new(TaskCall { sender: Arc::downgrade(&sender), is_called: AtomicBool::new(true) });
        let resume = Waker::from(Arc::clone(&task));
        let state = State {
            intake,
            reading: ReadHalf::new(),
            counted: NetCounters::default(),
            liveness: Liveness::new(limits),
            frames: 0,
            bytes: 0,
        };
        Arc::new(Self { sender, state: CombiningLock::new(state), is_ticking: AtomicBool::new(false), task, resume })
    }

    /// Reads once for the connection's task, if it was called and has the role. Returns `false` if nothing moved.
    pub(crate) fn read_for_task(&self) -> Result<bool, End> {
        if !self.task.is_called.swap(false, Ordering::Acquire) {
            return Ok(false);
        }
        let Some(mut state) = self.state.lock_or_leave(TASK) else {
            // Another thread holds the lock and wakes the task afterwards.
            self.task.is_called.store(true, Ordering::Relaxed);
            return Ok(false);
        };
        let read = match state.reading.on_turn() {
            Turn::Read => state.read(&self.sender, &self.resume),
            Turn::Rest => Ok(ReadProgress::Nothing),
            Turn::End(end) => Err(end),
        };
        state.count(&self.sender);
        drop(state);
        self.read_notes();
        let read = read?;
        if read == ReadProgress::Part {
            self.task.is_called.store(true, Ordering::Relaxed);
        }
        Ok(read != ReadProgress::Nothing)
    }

    /// Ends the connection; this is the only way to do so. Afterwards it holds nothing (D5) and all reading stops. Only
    /// the first call has an effect. `last_words` runs on the machine first.
    pub(crate) fn end(&self, last_words: impl FnOnce(&mut M)) {
        self.with(|state| {
            state.reading.on_end();
            state.intake.clear();
            self.sender.end(last_words);
        });
    }

    fn on_tick(&self) {
        self.with(|state| {
            let orders = state.reading.on_tick(self.sender.link.has_buffered());
            self.carry_out(state, orders);
        });
    }

    /// Carries out orders under the lock (E2).
    fn carry_out(&self, state: &mut State<I>, orders: Orders) {
        let Orders { watch_bytes, mut call_task } = orders;
        if let Some(is_watched) = watch_bytes
            && let Err(error) = self.sender.link.watch(Event::Bytes, is_watched)
        {
            call_task |= state.reading.on_failure(error.into()).call_task;
        }
        self.is_ticking.store(state.reading.is_ticking(), Ordering::Relaxed);
        if call_task {
            self.resume.wake_by_ref();
        }
    }

    /// Takes the reader role and reads once.
    fn read_for_thread(&self, state: &mut State<I>, reader: ReaderId) -> AttendOutcome {
        let (may_read, orders) = state.reading.on_park(reader, state.intake.is_held());
        self.carry_out(state, orders);
        if !may_read {
            return AttendOutcome::Refused;
        }
        let read = match state.read(&self.sender, &self.resume) {
            Ok(read) => read,
            Err(end) => {
                let orders = state.reading.on_failure(end);
                self.carry_out(state, orders);
                return AttendOutcome::Refused;
            }
        };
        // No thread reads while a frame is held back, so the connection's task continues.
        if state.intake.is_held() {
            let orders = state.reading.on_resign(reader, self.sender.link.has_buffered());
            self.carry_out(state, orders);
        }
        match read {
            ReadProgress::Nothing => AttendOutcome::Nothing { wants_room: false },
            ReadProgress::Rest | ReadProgress::Part => AttendOutcome::Moved,
        }
    }

    fn with<R>(&self, work: impl FnOnce(&mut State<I>) -> R) -> R {
        let result = work(&mut self.state.lock());
        self.read_notes();
        result
    }

    fn read_notes(&self) {
        if self.state.take_notes() != 0 {
            self.sender.wake_task();
        }
    }
}

impl<L: Link, M: Transmit, I: FrameReader<M>> Pulse for Receiver<L, M, I> {
    fn on_heartbeat(&self, now: Duration) {
        self.with(|state| {
            if !state.reading.is_open() {
                return;
            }
            let (written, is_stuck) = self.sender.progress();
            let is_listening = !state.intake.is_held();
            // A part of a large frame is a sign of life too.
            let heard = state.frames + state.bytes / PROGRESS_BYTES;
            match state.liveness.on_tick(now, ConnectionActivity { heard, is_listening, written, is_stuck }) {
                Verdict::Well => {}
                Verdict::Ask => self.sender.feed(|machine| machine.ping(state.frames)),
                Verdict::Tell => self.sender.feed(|machine| machine.pong(state.frames)),
                Verdict::Silent(owed_for) => {
                    let orders = state.reading.on_failure(End::Silent(owed_for));
                    self.carry_out(state, orders);
                }
            }
        });
    }
}

impl<L: Link, M: Transmit, I: FrameReader<M>> Inlet for Receiver<L, M, I> {
    fn flush(&self) {
        self.sender.bring_quiet_news();
    }

    fn attend(&self, reader: ReaderId) -> AttendOutcome {
        match self.with(|state| self.read_for_thread(state, reader)) {
            AttendOutcome::Nothing { .. } if self.sender.write_waiting() => AttendOutcome::Moved,
            AttendOutcome::Nothing { .. } => AttendOutcome::Nothing { wants_room: self.sender.take_room() },
            other => other,
        }
    }

    fn leave(&self, reader: ReaderId) {
        self.sender.leave_room();
        self.with(|state| {
            state.count(&self.sender);
            let orders = state.reading.on_leave(reader, self.sender.link.has_buffered());
            self.carry_out(state, orders);
        });
    }

    fn resign(&self, reader: ReaderId) {
        self.with(|state| {
            let orders = state.reading.on_resign(reader, self.sender.link.has_buffered());
            self.carry_out(state, orders);
        });
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.sender.link.descriptor()
    }
}

impl<I> State<I> {
    fn read<L: Link, M: Transmit>(&mut self, sender: &Sender<L, M>, resume: &Waker) -> Result<ReadProgress, End>
    where
        I: FrameReader<M>,
    {
        if self.intake.is_held() {
            self.handle(sender, resume)?;
            return Ok(if self.intake.is_held() { ReadProgress::Nothing } else { ReadProgress::Part });
        }
        let (first, second) = self.intake.targets();
        match sender.link.read(first, second)? {
            ReadOutcome::Bytes { count, is_drained } => {
                self.counted.reads += 1;
                self.counted.bytes_in += count as u64;
                self.bytes += count as u64;
                self.intake.filled(count);
                self.handle(sender, resume)?;
                Ok(if is_drained { ReadProgress::Rest } else { ReadProgress::Part })
            }
            ReadOutcome::Drained => {
                // L5: the bytes just read may require an answer of the link.
                if sender.link.has_unsent() {
                    sender.feed(|_| ());
                }
                Ok(ReadProgress::Nothing)
            }
            ReadOutcome::Closed if self.intake.is_between_frames() => Err(End::Closed),
            ReadOutcome::Closed => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }

    fn handle<L: Link, M: Transmit>(&mut self, sender: &Sender<L, M>, resume: &Waker) -> Result<(), End>
    where
        I: FrameReader<M>,
    {
        let frames = sender.feed(|machine| self.intake.handle(machine, resume))?;
        self.counted.frames_in += frames;
        self.frames += frames;
        Ok(())
    }

    fn count<L: Link, M: Transmit>(&mut self, sender: &Sender<L, M>) {
        sender.counters.add(&mut self.counted);
    }
}

impl<L: Link, M: Transmit> Wake for TaskCall<L, M> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_called.store(true, Ordering::Release);
        if let Some(sender) = self.sender.upgrade() {
            sender.wake_task();
        }
    }
}

/// Waiting state of the connection's task.
#[derive(Debug, Default)]
pub(crate) struct ReadTask {
    tick: Option<Pin<Box<Sleep>>>,
}

impl ReadTask {
    /// Waits for an event of the link, and ticks if needed. Called when nothing moves; returns ready to try again.
    pub(crate) fn poll_event<L: Link, M: Transmit, I: FrameReader<M>>(
        &mut self,
        cx: &mut Context<'_>,
        from: &Receiver<L, M, I>,
    ) -> Poll<Result<(), End>> {
        self.poll_tick(cx, from);
        let event = from.sender.link.poll_event(cx).map_err(End::from);
        if event.is_ready() {
            from.task.is_called.store(true, Ordering::Relaxed);
        }
        event
    }

    fn poll_tick<L: Link, M: Transmit, I: FrameReader<M>>(&mut self, cx: &mut Context<'_>, from: &Receiver<L, M, I>) {
        while from.is_ticking.load(Ordering::Relaxed) {
            let tick = self.tick.get_or_insert_with(|| Box::pin(tokio::time::sleep(TICK)));
            if tick.as_mut().poll(cx).is_pending() {
                return;
            }
            self.tick = None;
            from.on_tick();
        }
        self.tick = None;
    }
}

/// Flag: the connection's task wants a turn.
const TASK: PendingFlags = 1;
/// Interval of the ticks of O3 in [`super::ownership`]. Frames that no thread sleeps for wait at most two of them while
/// the reader is at work.
const TICK: Duration = Duration::from_millis(10);
