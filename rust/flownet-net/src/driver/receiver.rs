//! The reading half of a connection: read by its own task, or by a thread that would otherwise sleep until that task
//! has read for it.
//!
//! A task's thread whose gate is empty takes the role of the reader, reads what the socket has, and sleeps on the socket
//! if that is nothing: one wake-up for a batch, on the core that is to use it. Who has the role is told by [`role`].
//! What is read goes where it belongs, to whichever gate; a thread reads for others as the connection's task does.
//!
//! # Invariants
//! - E1: bytes are read and decoded under one lock, hence in order. No holder of it waits for anything.
//! - E2: the connection's task is told of bytes exactly while it has the role.
//! - E3: what a thread meets that ends the connection is left for the connection's task, which is woken.
//!
//! [`role`]: super::role

use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use flownet_core::noted::{Noted, Notes};
use tokio::time::Sleep;

use super::End;
use super::link::{Event, Link, Received};
use super::liveness::{Limits, Liveness, PROGRESS_BYTES, Seen, Verdict};
use super::role::{Left, ReaderId, Role, Taken, Tick};
use super::sender::{Sender, Transmit};
use crate::counters::NetCounters;
use crate::heartbeat::Pulse;
use crate::inlets::{Attended, Inlet};

/// Makes frames of bytes and hands them to a connection machine.
pub(crate) trait Intake<M>: Send + 'static {
    /// Where the next bytes go: first what fits the first slice, which may be empty, then the rest.
    fn targets(&mut self) -> (&mut [u8], &mut [u8]);

    /// The next `bytes` bytes lie in the [`targets`](Self::targets).
    fn filled(&mut self, bytes: usize);

    /// Takes what is complete; says how many frames that was. It may be told to wait; then `resume` wakes the
    /// connection's task when this is to be called again. It also calls that task where something is left to it to do.
    fn handle(&mut self, machine: &mut M, resume: &Waker) -> Result<u64, End>;

    /// Whether it was told to wait: nothing more is read meanwhile.
    fn is_held(&self) -> bool;

    /// Whether the stream may end here.
    fn is_between_frames(&self) -> bool;

    /// Nothing more comes: lets go of what is incomplete.
    fn clear(&mut self);
}

/// See the [module docs](self).
pub(crate) struct Receiver<L, M, I> {
    pub(crate) sender: Arc<Sender<L, M>>,
    state: Noted<State<I>>,
    /// Changed under the lock, but read without it: whether the role is to be looked at now and then.
    is_ticking: AtomicBool,
    task: Arc<TaskCall<L, M>>,
    /// Wakes it.
    resume: Waker,
}

/// Calls the connection's task to read, whatever it knows of the socket.
struct TaskCall<L, M> {
    sender: Weak<Sender<L, M>>,
    is_called: AtomicBool,
}

struct State<I> {
    intake: I,
    role: Role,
    /// E3.
    end: Option<End>,
    counted: NetCounters,
    liveness: Liveness,
    /// Of the whole life.
    frames: u64,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Read {
    Nothing,
    /// All that was there: whatever comes is an event.
    Rest,
    /// There may be more.
    Part,
}

impl<L: Link, M: Transmit, I: Intake<M>> Receiver<L, M, I> {
    pub(crate) fn new(sender: Arc<Sender<L, M>>, intake: I, limits: Limits) -> Arc<Self> {
        let task = Arc::new(TaskCall { sender: Arc::downgrade(&sender), is_called: AtomicBool::new(false) });
        let resume = Waker::from(Arc::clone(&task));
        let state = State {
            intake,
            role: Role::default(),
            end: None,
            counted: NetCounters::default(),
            liveness: Liveness::new(limits),
            frames: 0,
            bytes: 0,
        };
        Arc::new(Self { sender, state: Noted::new(state), is_ticking: AtomicBool::new(false), task, resume })
    }

    /// Reads once for the connection's task, if that has the role. `None` when a thread is at it: then the task is woken.
    fn read_for_task(&self) -> Result<Option<Read>, End> {
        let Some(mut state) = self.state.lock_or_leave(TASK) else { return Ok(None) };
        let read = match state.end.take() {
            Some(end) => Err(end),
            None if state.role.is_with_connection() => state.read(&self.sender, &self.resume).map(Some),
            None => Ok(Some(Read::Nothing)),
        };
        state.count(&self.sender);
        drop(state);
        self.read_notes();
        read
    }

    /// The one way a connection ends, after which it holds nothing (D5) and nobody reads it. The first call does; the
    /// others find it done. `last_words` is what the machine still does and says.
    pub(crate) fn end(&self, last_words: impl FnOnce(&mut M)) {
        self.with(|state| {
            state.role.end();
            state.intake.clear();
            self.sender.end(last_words);
        });
    }

    fn on_tick(&self) {
        self.with(|state| match state.role.on_tick() {
            Tick::Again => {}
            Tick::Stop => self.is_ticking.store(false, Ordering::Relaxed),
            Tick::ToConnection => {
                self.is_ticking.store(false, Ordering::Relaxed);
                self.watch(state);
            }
        });
    }

    fn on_left(&self, state: &mut State<I>, left: Left) {
        match left {
            Left::Alone => {}
            Left::Ticking => {
                self.is_ticking.store(true, Ordering::Relaxed);
                self.sender.wake_task();
            }
            Left::ToConnection => self.watch(state),
        }
    }

    /// E2: the role is the task's.
    fn watch(&self, state: &mut State<I>) {
        if self.sender.link.has_buffered() {
            // L4: no event tells of that.
            self.resume.wake_by_ref();
        }
        if let Err(error) = self.sender.link.watch(Event::Bytes, true) {
            self.leave_end(state, error.into());
        }
    }

    /// E3.
    fn leave_end(&self, state: &mut State<I>, end: End) {
        state.end.get_or_insert(end);
        state.role.end();
        self.resume.wake_by_ref();
    }

    /// Takes the role and reads once. An error is left for the connection's task.
    fn read_for_thread(&self, state: &mut State<I>, reader: ReaderId) -> Result<Attended, End> {
        if state.intake.is_held() {
            // Who waits with it is served by the connection's task, which is the one to be called.
            return Ok(Attended::Refused);
        }
        match state.role.take(reader) {
            Taken::Refused => return Ok(Attended::Refused),
            Taken::FromConnection => self.sender.link.watch(Event::Bytes, false)?,
            Taken::FromThread => {}
        }
        let read = state.read(&self.sender, &self.resume)?;
        if state.intake.is_held() {
            let left = state.role.resign(reader);
            self.on_left(state, left);
        }
        Ok(match read {
            Read::Nothing => Attended::Nothing { wants_room: false },
            Read::Rest | Read::Part => Attended::Moved,
        })
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

impl<L: Link, M: Transmit, I: Intake<M>> Pulse for Receiver<L, M, I> {
    fn on_heartbeat(&self, now: Duration) {
        self.with(|state| {
            if state.role.has_ended() {
                return;
            }
            let (written, is_stuck) = self.sender.progress();
            let is_listening = !state.intake.is_held();
            let heard = state.frames + state.bytes / PROGRESS_BYTES;
            match state.liveness.on_tick(now, Seen { heard, is_listening, written, is_stuck }) {
                Verdict::Well => {}
                Verdict::Ask => self.sender.feed(|machine| machine.ping(state.frames)),
                Verdict::Tell => self.sender.feed(|machine| machine.pong(state.frames)),
                Verdict::Silent(owed_for) => self.leave_end(state, End::Silent(owed_for)),
            }
        });
    }
}

impl<L: Link, M: Transmit, I: Intake<M>> Inlet for Receiver<L, M, I> {
    fn flush(&self) {
        self.sender.bring_quiet_news();
    }

    fn attend(&self, reader: ReaderId) -> Attended {
        let attended = self.with(|state| {
            self.read_for_thread(state, reader).unwrap_or_else(|end| {
                self.leave_end(state, end);
                Attended::Refused
            })
        });
        match attended {
            Attended::Nothing { .. } if self.sender.write_waiting() => Attended::Moved,
            Attended::Nothing { .. } => Attended::Nothing { wants_room: self.sender.take_room() },
            other => other,
        }
    }

    fn leave(&self, reader: ReaderId) {
        self.sender.leave_room();
        self.with(|state| {
            state.count(&self.sender);
            let left = state.role.leave(reader);
            self.on_left(state, left);
        });
    }

    fn resign(&self, reader: ReaderId) {
        self.with(|state| {
            let left = state.role.resign(reader);
            self.on_left(state, left);
        });
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.sender.link.descriptor()
    }
}

impl<I> State<I> {
    fn read<L: Link, M: Transmit>(&mut self, sender: &Sender<L, M>, resume: &Waker) -> Result<Read, End>
    where
        I: Intake<M>,
    {
        if self.intake.is_held() {
            self.handle(sender, resume)?;
            return Ok(if self.intake.is_held() { Read::Nothing } else { Read::Part });
        }
        let (first, second) = self.intake.targets();
        let received = sender.link.read(first, second)?;
        self.counted.reads += 1;
        match received {
            Received::Bytes { count, is_drained } => {
                self.counted.bytes_in += count as u64;
                self.bytes += count as u64;
                self.intake.filled(count);
                self.handle(sender, resume)?;
                Ok(if is_drained { Read::Rest } else { Read::Part })
            }
            Received::Drained => {
                // L5: it may have been read that the link has to answer.
                if sender.link.has_unsent() {
                    sender.feed(|_| ());
                }
                Ok(Read::Nothing)
            }
            Received::Closed if self.intake.is_between_frames() => Err(End::Closed),
            Received::Closed => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }

    fn handle<L: Link, M: Transmit>(&mut self, sender: &Sender<L, M>, resume: &Waker) -> Result<(), End>
    where
        I: Intake<M>,
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

/// What the connection's task keeps about its reading half.
#[derive(Debug)]
pub(crate) struct ReadTask {
    may_read: bool,
    tick: Option<Pin<Box<Sleep>>>,
}

impl ReadTask {
    pub(crate) fn new() -> Self {
        Self { may_read: true, tick: None }
    }

    /// Reads once. `false` when nothing moved.
    pub(crate) fn read<L: Link, M: Transmit, I: Intake<M>>(&mut self, from: &Receiver<L, M, I>) -> Result<bool, End> {
        self.may_read |= from.task.is_called.swap(false, Ordering::Acquire);
        if !self.may_read {
            return Ok(false);
        }
        let Some(read) = from.read_for_task()? else { return Ok(false) };
        self.may_read = read == Read::Part;
        Ok(read != Read::Nothing)
    }

    /// When nothing moves: waits for an event of the link, and ticks if need be. Ready to be tried again.
    pub(crate) fn poll_event<L: Link, M: Transmit, I: Intake<M>>(
        &mut self,
        cx: &mut Context<'_>,
        from: &Receiver<L, M, I>,
    ) -> Poll<Result<(), End>> {
        self.poll_tick(cx, from);
        let event = from.sender.link.poll_event(cx).map_err(End::from);
        self.may_read |= event.is_ready();
        event
    }

    fn poll_tick<L: Link, M: Transmit, I: Intake<M>>(&mut self, cx: &mut Context<'_>, from: &Receiver<L, M, I>) {
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

/// The connection's task wants a turn.
const TASK: Notes = 1;
/// How long frames that no thread sleeps for may lie in a socket whose reader is at work: R3 of [`super::role`].
const TICK: Duration = Duration::from_millis(10);
