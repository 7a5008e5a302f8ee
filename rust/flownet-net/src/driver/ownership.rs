//! Decides which thread reads and writes a connection, which one waits for bytes and room, and which cause ends the
//! connection. These machines do no IO.
//!
//! Each connection has its own tokio task. A task thread that would otherwise sleep until that task has read for it
//! reads the socket itself. A thread that has data to send writes it itself. Each action and observation is an input,
//! and the machine returns [`Orders`]. The drivers carry them out under the same lock: [`ReadHalf`] is under that of
//! the [`Receiver`](super::receiver::Receiver), [`WriteHalf`] under that of the [`Sender`](super::sender::Sender).
//! `tests/model.rs` checks every interleaving of both with a small model of link, peer and threads.
//!
//! # Invariants
//! - O1: there is at most one reader. The connection's task reads unless a thread has taken over, so there is always a
//!   reader until the connection ends.
//! - O2: a thread that sleeps for lack of bytes has the reader role, or an attending reader has it. Attending readers
//!   are the connection's task and a thread that sleeps on the socket. A thread that goes to work while others sleep
//!   gives the role back to the task.
//! - O3: a thread that went to work with the role loses it to the first other thread that wants to sleep. After two
//!   ticks it loses the role to the connection's task. Frames that no thread sleeps for (a cancel, the peer's end)
//!   therefore wait no longer than that.
//! - O4: ticks end with the first one in which nothing happened.
//! - O5: the link reports bytes to the connection's task exactly while the task has the role. When the task gets the
//!   role and the link holds unreported bytes, the task is called.
//! - O6: bytes that the socket does not accept wait for room. Until there is room, threads with new data do not try to
//!   write. The link reports room to the connection's task, or to a thread that sleeps on the socket.
//! - O7: a connection ends once, for the first cause observed by any thread. The connection's task is called, and ends
//!   it.

/// Identifies a set of [`Inlets`](crate::Inlets). One thread at a time waits on it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct ReaderId(pub(crate) u64);

/// Actions on the link and the connection's task.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[must_use]
pub(crate) struct Orders {
    /// Start or stop reporting bytes on the link, if set.
    pub(crate) watch_bytes: Option<bool>,
    /// Give the connection's task a turn, regardless of the events that it has seen.
    pub(crate) call_task: bool,
}

/// Action of the connection's task in its turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Turn<C> {
    /// Read.
    Read,
    /// Do not read: a thread reads, or reading has ended.
    Rest,
    /// End the connection.
    End(C),
}

/// Reading half. `C` is the reason why a connection ends.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct ReadHalf<C> {
    holder: Holder,
    /// Threads that sleep while another reader attends to the connection.
    waiting: Vec<ReaderId>,
    is_ticking: bool,
    was_active: bool,
    phase: Phase<C>,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Holder {
    /// The connection's task, which attends to the link's events.
    Task,
    /// Sleeps on the socket, or is about to check it.
    Attending(ReaderId),
    /// Runs its task, and does not check the socket.
    Away(ReaderId),
}

/// State of the connection's end (O7).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Phase<C> {
    Open,
    /// Failed, and the connection's task has to end it.
    Failed(C),
    Over,
}

impl<C> ReadHalf<C> {
    pub(crate) fn new() -> Self {
        Self { holder: Holder::Task, waiting: Vec::new(), is_ticking: false, was_active: false, phase: Phase::Open }
    }

    /// Starts a turn of the connection's task.
    pub(crate) fn on_turn(&mut self) -> Turn<C> {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Failed(cause) => return Turn::End(cause),
            phase => self.phase = phase,
        }
        if self.is_open() && self.holder == Holder::Task { Turn::Read } else { Turn::Rest }
    }

    /// Registers a thread that is about to sleep. If the result is true, the thread attends to the connection from now
    /// on and has to read. Otherwise it waits for the current reader. While `is_held`, the frame reader waits and no
    /// thread reads; the connection's task is called when it can continue.
    pub(crate) fn on_park(&mut self, reader: ReaderId, is_held: bool) -> (bool, Orders) {
        if !self.is_open() {
            return (false, Orders::default());
        }
        let is_attended = matches!(self.holder, Holder::Attending(holder) if holder != reader);
        self.forget(reader);
        if is_attended || is_held {
            self.waiting.push(reader);
            return (false, Orders::default());
        }
        // O5: the link stops reporting bytes to the task when a thread takes the role from it.
        let watch_bytes = (self.holder == Holder::Task).then_some(false);
        self.holder = Holder::Attending(reader);
        (true, Orders { watch_bytes, call_task: false })
    }

    /// Registers that a thread goes to work.
    pub(crate) fn on_leave(&mut self, reader: ReaderId, has_buffered: bool) -> Orders {
        self.forget(reader);
        if !self.is_held_by(reader) {
            return Orders::default();
        }
        // O2: other threads sleep and rely on an attending reader.
        if !self.waiting.is_empty() {
            return self.fall_to_task(has_buffered);
        }
        self.holder = Holder::Away(reader);
        self.was_active = true;
        let was_ticking = std::mem::replace(&mut self.is_ticking, true);
        Orders { watch_bytes: None, call_task: !was_ticking }
    }

    /// Registers that a thread does not return, or has read a frame that has to wait. The connection's task takes over.
    pub(crate) fn on_resign(&mut self, reader: ReaderId, has_buffered: bool) -> Orders {
        self.forget(reader);
        if self.is_held_by(reader) { self.fall_to_task(has_buffered) } else { Orders::default() }
    }

    /// Checks whether the holder of the role has been active since the last tick.
    pub(crate) fn on_tick(&mut self, has_buffered: bool) -> Orders {
        let was_active = std::mem::take(&mut self.was_active);
        // O3: the holder was active since the last tick, so let it have another one.
        if was_active && self.holder != Holder::Task {
            return Orders::default();
        }
        self.is_ticking = false;
        match self.holder {
            Holder::Away(_) => self.fall_to_task(has_buffered),
            Holder::Task | Holder::Attending(_) => Orders::default(),
        }
    }

    /// Registers a failure that ends the connection.
    pub(crate) fn on_failure(&mut self, cause: C) -> Orders {
        // O7: only the first cause counts.
        if !self.is_open() {
            return Orders::default();
        }
        self.stop();
        self.phase = Phase::Failed(cause);
        Orders { watch_bytes: None, call_task: true }
    }

    /// Registers that the connection's task has ended the connection. All reading stops.
    pub(crate) fn on_end(&mut self) {
        self.stop();
        self.phase = Phase::Over;
    }

    /// Returns true if [`on_tick`](Self::on_tick) has to be called.
    pub(crate) fn is_ticking(&self) -> bool {
        self.is_ticking
    }

    /// Returns true if no failure or end was registered.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// Returns true if the connection's task has the reader role.
    #[cfg(test)]
    pub(crate) fn is_with_task(&self) -> bool {
        self.holder == Holder::Task
    }

    /// Returns true if the reader learns of bytes as they arrive.
    #[cfg(test)]
    pub(crate) fn is_attended(&self) -> bool {
        !matches!(self.holder, Holder::Away(_))
    }

    fn stop(&mut self) {
        self.holder = Holder::Task;
        self.waiting.clear();
        self.is_ticking = false;
        self.was_active = false;
    }

    fn fall_to_task(&mut self, has_buffered: bool) -> Orders {
        self.holder = Holder::Task;
        Orders { watch_bytes: Some(true), call_task: has_buffered }
    }

    fn is_held_by(&self, reader: ReaderId) -> bool {
        self.holder == Holder::Attending(reader) || self.holder == Holder::Away(reader)
    }

    fn forget(&mut self, reader: ReaderId) {
        self.waiting.retain(|waiting| *waiting != reader);
    }
}

/// Writing half. A returned order starts or stops the link's reports of room.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct WriteHalf {
    is_full: bool,
    has_ended: bool,
}

impl WriteHalf {
    /// Returns true if the connection's task, or a thread that learned of room, may write.
    pub(crate) fn may_write(&self) -> bool {
        !self.has_ended
    }

    /// Returns true if a thread with new data may write. While bytes wait for room it may not: the waiting writer also
    /// sends new data afterwards.
    pub(crate) fn may_bring_news(&self) -> bool {
        !self.is_full && !self.has_ended
    }

    /// Registers that the link accepted bytes, or wants room first.
    pub(crate) fn on_sent(&mut self, wants_room: bool) -> Option<bool> {
        (std::mem::replace(&mut self.is_full, wants_room) != wants_room).then_some(wants_room)
    }

    /// Registers that a thread is about to sleep on the socket. If bytes wait for room, that thread watches for it
    /// instead of the task.
    pub(crate) fn on_park(&self) -> Option<bool> {
        self.is_full.then_some(false)
    }

    /// Registers that a thread goes to work. If bytes wait for room, the task watches for it again.
    pub(crate) fn on_leave(&self) -> Option<bool> {
        self.is_full.then_some(true)
    }

    /// Registers that writing has ended.
    pub(crate) fn on_end(&mut self) {
        *self = Self { is_full: false, has_ended: true };
    }

    /// Returns true if bytes wait for room.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ReaderId = ReaderId(1);
    const B: ReaderId = ReaderId(2);
    const NOTHING: Orders = Orders { watch_bytes: None, call_task: false };
    const CALL: Orders = Orders { watch_bytes: None, call_task: true };
    const TO_TASK: Orders = Orders { watch_bytes: Some(true), call_task: false };
    const FROM_TASK: Orders = Orders { watch_bytes: Some(false), call_task: false };

    fn reading() -> ReadHalf<&'static str> {
        ReadHalf::new()
    }

    fn park(reading: &mut ReadHalf<&'static str>, reader: ReaderId) -> (bool, Orders) {
        reading.on_park(reader, false)
    }

    #[test]
    fn a_thread_keeps_the_role_while_it_works_if_nobody_else_sleeps() {
        let mut reading = reading();
        assert_eq!(park(&mut reading, A), (true, FROM_TASK));
        assert_eq!(reading.on_leave(A, false), CALL, "the ticks begin");
        assert_eq!((park(&mut reading, A), reading.on_leave(A, false)), ((true, NOTHING), NOTHING));
        assert_eq!(reading.on_turn(), Turn::Rest);
    }

    #[test]
    fn a_thread_that_leaves_a_sleeper_behind_gives_the_role_back() {
        let mut reading = reading();
        let _ = park(&mut reading, A);
        assert_eq!(park(&mut reading, B), (false, NOTHING));
        assert_eq!(reading.on_leave(A, false), TO_TASK);
        assert_eq!(reading.on_turn(), Turn::Read);
        assert_eq!((reading.on_leave(B, false), park(&mut reading, B)), (NOTHING, (true, FROM_TASK)));
    }

    #[test]
    fn who_wants_to_sleep_takes_the_role_from_who_is_at_work() {
        let mut reading = reading();
        let _ = park(&mut reading, A);
        let _ = reading.on_leave(A, false);
        assert_eq!(park(&mut reading, B), (true, NOTHING));
        assert_eq!(park(&mut reading, A), (false, NOTHING));
        assert_eq!(reading.on_leave(B, true), Orders { call_task: true, ..TO_TASK }, "A sleeps now");
    }

    #[test]
    fn a_thread_that_stays_away_loses_the_role_after_two_ticks() {
        let mut reading = reading();
        let _ = park(&mut reading, A);
        let _ = reading.on_leave(A, false);
        assert_eq!((reading.on_tick(false), reading.is_ticking()), (NOTHING, true));
        assert_eq!((reading.on_tick(false), reading.is_ticking()), (TO_TASK, false));
        assert_eq!(park(&mut reading, A), (true, FROM_TASK));
        assert_eq!(reading.on_leave(A, false), CALL, "they begin anew");
    }

    #[test]
    fn a_thread_asleep_on_the_socket_keeps_the_role_and_the_ticks_end() {
        let mut reading = reading();
        let _ = park(&mut reading, A);
        let _ = reading.on_leave(A, false);
        let _ = park(&mut reading, A);
        assert_eq!((reading.on_tick(false), reading.on_tick(false), reading.is_ticking()), (NOTHING, NOTHING, false));
        assert_eq!(reading.on_turn(), Turn::Rest);
    }

    #[test]
    fn who_sleeps_while_the_intake_is_held_is_not_left_behind_by_the_next_reader() {
        let mut reading = reading();
        assert_eq!(reading.on_park(A, true), (false, NOTHING));
        assert_eq!(park(&mut reading, B), (true, FROM_TASK));
        assert_eq!(reading.on_leave(B, false), TO_TASK);
    }

    #[test]
    fn a_connection_ends_once_for_the_first_cause_and_is_then_read_by_nobody() {
        let mut reading = reading();
        let _ = park(&mut reading, A);
        assert_eq!((reading.on_failure("first"), reading.on_failure("second")), (CALL, NOTHING));
        assert_eq!((reading.on_turn(), reading.on_turn()), (Turn::End("first"), Turn::Rest));
        reading.on_end();
        assert_eq!((reading.on_failure("third"), reading.on_turn()), (NOTHING, Turn::Rest));
        assert_eq!(
            (reading.on_leave(A, true), park(&mut reading, A).0, park(&mut reading, B).0),
            (NOTHING, false, false)
        );
    }

    #[test]
    fn who_resigns_leaves_the_role_to_the_connection() {
        let mut reading = reading();
        let _ = park(&mut reading, A);
        let _ = reading.on_leave(A, false);
        assert_eq!((reading.on_resign(B, false), reading.on_resign(A, false)), (NOTHING, TO_TASK));
        assert_eq!((reading.on_tick(false), reading.is_ticking()), (NOTHING, false));
    }

    #[test]
    fn room_is_told_to_who_sleeps_on_the_socket_or_to_the_task_and_news_waits_for_it() {
        let mut writing = WriteHalf::default();
        assert_eq!((writing.on_park(), writing.on_leave(), writing.on_sent(false)), (None, None, None));
        assert_eq!((writing.on_sent(true), writing.on_sent(true)), (Some(true), None));
        assert!(!writing.may_bring_news() && writing.may_write());
        assert_eq!((writing.on_park(), writing.on_leave()), (Some(false), Some(true)));
        assert_eq!(writing.on_sent(false), Some(false));
        writing.on_end();
        assert!(!writing.may_write() && !writing.may_bring_news());
    }

    #[test]
    fn a_connection_that_its_task_has_ended_is_read_by_nobody() {
        let mut reading = reading();
        assert_eq!(reading.on_turn(), Turn::Read);
        reading.on_end();
        assert_eq!((reading.on_turn(), reading.is_open()), (Turn::Rest, false));
        assert_eq!(park(&mut reading, A), (false, NOTHING));
    }

    #[test]
    fn who_has_gone_to_work_is_not_waited_for() {
        let mut reading = reading();
        let _ = park(&mut reading, A);
        assert_eq!((park(&mut reading, B), reading.on_leave(B, false)), ((false, NOTHING), NOTHING));
        assert_eq!(reading.on_leave(A, false), CALL, "it keeps the role: nobody else sleeps");
    }

    #[test]
    fn bytes_wait_for_room_once_the_link_has_none() {
        let mut writing = WriteHalf::default();
        let is_full = [false, true, false].map(|wants_room| {
            let _ = writing.on_sent(wants_room);
            writing.is_full()
        });
        assert_eq!(is_full, [false, true, false]);
    }
}
