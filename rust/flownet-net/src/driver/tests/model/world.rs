//! World of the model: the machines and their environment, and single steps of each.

use crate::driver::ownership::{Orders, ReadHalf, ReaderId, Turn, WriteHalf};

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Cause {
    Closed,
    Silent,
}

/// A world, with limits on its remaining events.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct World {
    pub(super) reading: ReadHalf<Cause>,
    pub(super) writing: WriteHalf,
    pub(super) socket: Socket,
    pub(super) task: Task,
    pub(super) is_called: bool,
    pub(super) is_woken: bool,
    pub(super) has_timer: bool,
    pub(super) threads: Vec<Thread>,
    /// Per thread: bytes still to send, bytes sent, and bytes delivered.
    pub(super) to_send: Vec<u8>,
    pub(super) sent: Vec<u8>,
    pub(super) delivered: Vec<u8>,
    /// Whether a thread has room for one byte only, its bytes not taken yet, and the byte that waits for room.
    pub(super) has_little_room: bool,
    pub(super) mail: Vec<u8>,
    pub(super) held: Option<u8>,
    pub(super) news: u8,
    pub(super) outbound: u8,
    /// Number of times that the peer will still make room.
    pub(super) to_drain: u8,
    pub(super) may_finish: bool,
    pub(super) may_be_silent: bool,
    pub(super) was_silent: bool,
    pub(super) may_stay_away: bool,
    pub(super) ends: u8,
}

/// Socket with edges, optionally with a link that takes all its bytes and returns them in small pieces.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Socket {
    pub(super) inbound: Vec<u8>,
    pub(super) buffered: Vec<u8>,
    pub(super) buffers: bool,
    /// Room of one read.
    pub(super) room_to_read: usize,
    pub(super) is_finished: bool,
    pub(super) room: u8,
    pub(super) watches_bytes: bool,
    pub(super) watches_room: bool,
    pub(super) edge: bool,
    /// An edge reported the end.
    pub(super) is_ending: bool,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Task {
    Reads { moved: bool },
    Writes { moved: bool },
    Polls,
    Asleep,
    Over,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Thread {
    pub(super) at: ThreadStep,
    pub(super) is_signalled: bool,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum ThreadStep {
    Work,
    /// Checks its signal, then reads.
    Attends,
    WritesWaiting,
    TakesRoom,
    Asleep {
        on_socket: bool,
        for_room: bool,
    },
    LeavesRoom,
    LeavesRole,
    /// In user code forever.
    Away,
    Gone,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Action {
    Task,
    Tick,
    Thread(usize),
    StayAway(usize),
    Resign(usize),
    News,
    // The following actions belong to the peer and the clock.
    Send(usize),
    Finish,
    Drain,
    Silence,
}

enum ReceivedFrame {
    Bytes { is_drained: bool },
    Drained,
    Closed,
}

impl World {
    pub(super) fn new(threads: usize) -> Self {
        let socket = Socket {
            inbound: Vec::new(),
            buffered: Vec::new(),
            buffers: false,
            room_to_read: 2,
            is_finished: false,
            room: 0,
            watches_bytes: true,
            watches_room: false,
            edge: false,
            is_ending: false,
        };
        Self {
            reading: ReadHalf::new(),
            writing: WriteHalf::default(),
            socket,
            task: Task::Reads { moved: false },
            is_called: true,
            is_woken: false,
            has_timer: false,
            threads: vec![Thread { at: ThreadStep::Work, is_signalled: false }; threads],
            to_send: vec![0; threads],
            sent: vec![0; threads],
            delivered: vec![0; threads],
            has_little_room: false,
            mail: vec![0; threads],
            held: None,
            news: 0,
            outbound: 0,
            to_drain: 0,
            may_finish: true,
            may_be_silent: false,
            was_silent: false,
            may_stay_away: false,
            ends: 0,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.task == Task::Over
    }

    /// Returns all possible actions except the peer's.
    pub(super) fn moves(&self) -> Vec<Action> {
        let mut moves = Vec::new();
        if !matches!(self.task, Task::Asleep | Task::Over) {
            moves.push(Action::Task);
        }
        if self.has_timer && !self.is_over() {
            moves.push(Action::Tick);
        }
        for (index, thread) in self.threads.iter().enumerate() {
            let can_move = match thread.at {
                ThreadStep::Asleep { on_socket, for_room } => {
                    let has_bytes = !self.socket.inbound.is_empty() || self.socket.is_finished || self.is_over();
                    thread.is_signalled || on_socket && has_bytes || for_room && self.socket.room > 0
                }
                ThreadStep::Away | ThreadStep::Gone => false,
                _ => true,
            };
            if can_move {
                moves.push(Action::Thread(index));
            }
            if thread.at == ThreadStep::Work && self.may_stay_away {
                moves.extend([Action::StayAway(index), Action::Resign(index)]);
            }
        }
        if self.news > 0 {
            moves.push(Action::News);
        }
        moves
    }

    pub(super) fn moves_of_the_peer(&self) -> Vec<Action> {
        let mut moves = Vec::new();
        if !self.socket.is_finished {
            moves.extend((0..self.to_send.len()).filter(|index| self.to_send[*index] > 0).map(Action::Send));
        }
        if self.may_finish {
            moves.push(Action::Finish);
        }
        if self.to_drain > 0 {
            moves.push(Action::Drain);
        }
        if self.may_be_silent {
            moves.push(Action::Silence);
        }
        moves
    }

    pub(super) fn step(&mut self, action: Action) {
        match action {
            Action::Task => self.step_task(),
            Action::Tick => {
                self.has_timer = false;
                let orders = self.reading.on_tick(self.has_buffered());
                self.carry_out(orders);
                // The task polls the timer.
                self.wake_task();
            }
            Action::Thread(index) => self.step_thread(index),
            Action::StayAway(index) => {
                self.may_stay_away = false;
                self.threads[index].at = ThreadStep::Away;
            }
            Action::Resign(index) => {
                self.may_stay_away = false;
                self.threads[index].at = ThreadStep::Gone;
                let orders = self.reading.on_resign(reader(index), self.has_buffered());
                self.carry_out(orders);
            }
            Action::News => {
                self.news -= 1;
                self.outbound += 1;
                while self.writing.may_bring_news() && self.write() {}
            }
            Action::Send(index) => {
                self.to_send[index] -= 1;
                self.sent[index] += 1;
                self.socket.inbound.push(index as u8);
                if self.socket.watches_bytes {
                    self.fire();
                }
            }
            Action::Finish => {
                self.may_finish = false;
                self.socket.is_finished = true;
                if self.socket.watches_bytes {
                    self.fire();
                }
            }
            Action::Drain => {
                self.to_drain -= 1;
                self.socket.room += 1;
                if self.socket.watches_room {
                    self.fire();
                }
            }
            Action::Silence => {
                (self.may_be_silent, self.was_silent) = (false, true);
                let orders = self.reading.on_failure(Cause::Silent);
                self.carry_out(orders);
            }
        }
    }

    fn step_task(&mut self) {
        match self.task {
            Task::Reads { moved } => {
                if !std::mem::take(&mut self.is_called) {
                    self.task = Task::Writes { moved };
                    return;
                }
                let received = match self.reading.on_turn() {
                    Turn::End(_) => return self.end(),
                    Turn::Rest => ReceivedFrame::Drained,
                    Turn::Read => self.read(),
                };
                match received {
                    ReceivedFrame::Closed => return self.end(),
                    ReceivedFrame::Bytes { is_drained } => self.is_called |= !is_drained,
                    ReceivedFrame::Drained => {}
                }
                self.task = Task::Writes { moved: moved || matches!(received, ReceivedFrame::Bytes { .. }) };
            }
            Task::Writes { moved } => {
                let moved = self.write() || moved;
                self.task = if moved { Task::Reads { moved: false } } else { Task::Polls };
            }
            Task::Polls => {
                self.has_timer = self.reading.is_ticking();
                if std::mem::take(&mut self.socket.edge) {
                    self.socket.is_ending |= self.socket.is_finished;
                    self.is_called = true;
                    self.task = Task::Reads { moved: false };
                } else if std::mem::take(&mut self.is_woken) {
                    self.task = Task::Reads { moved: false };
                } else {
                    self.task = Task::Asleep;
                }
            }
            Task::Asleep | Task::Over => unreachable!(),
        }
    }

    fn step_thread(&mut self, index: usize) {
        let at = self.threads[index].at;
        self.threads[index].at = match at {
            // The thread's own task fails with the connection.
            ThreadStep::Work if self.is_over() => ThreadStep::Gone,
            ThreadStep::Work if std::mem::take(&mut self.threads[index].is_signalled) => {
                self.take_mail(index);
                ThreadStep::Work
            }
            ThreadStep::Work => ThreadStep::Attends,
            ThreadStep::Attends if std::mem::take(&mut self.threads[index].is_signalled) => ThreadStep::LeavesRoom,
            ThreadStep::Attends => {
                let (may_read, orders) = self.reading.on_park(reader(index), self.held.is_some());
                self.carry_out(orders);
                if may_read {
                    let received = self.read();
                    if self.held.is_some() {
                        let orders = self.reading.on_resign(reader(index), self.has_buffered());
                        self.carry_out(orders);
                    }
                    match received {
                        ReceivedFrame::Bytes { .. } => ThreadStep::Attends,
                        ReceivedFrame::Drained => ThreadStep::WritesWaiting,
                        ReceivedFrame::Closed => {
                            let orders = self.reading.on_failure(Cause::Closed);
                            self.carry_out(orders);
                            ThreadStep::Asleep { on_socket: false, for_room: false }
                        }
                    }
                } else {
                    ThreadStep::Asleep { on_socket: false, for_room: false }
                }
            }
            ThreadStep::WritesWaiting => {
                if self.writing.is_full() && self.write() {
                    ThreadStep::Attends
                } else {
                    ThreadStep::TakesRoom
                }
            }
            ThreadStep::TakesRoom => {
                let order = self.writing.on_park();
                self.watch_room(order);
                ThreadStep::Asleep { on_socket: true, for_room: order.is_some() }
            }
            ThreadStep::Asleep { .. } => ThreadStep::Attends,
            ThreadStep::LeavesRoom => {
                let order = self.writing.on_leave();
                self.watch_room(order);
                ThreadStep::LeavesRole
            }
            ThreadStep::LeavesRole => {
                let orders = self.reading.on_leave(reader(index), self.has_buffered());
                self.carry_out(orders);
                self.take_mail(index);
                ThreadStep::Work
            }
            ThreadStep::Away | ThreadStep::Gone => unreachable!(),
        };
    }

    /// Registers that the thread has room again. The connection's task may wait for this.
    fn take_mail(&mut self, index: usize) {
        self.mail[index] = 0;
        if self.held == Some(index as u8) {
            self.is_called = true;
            self.wake_task();
        }
    }

    fn deliver(&mut self, owner: u8) {
        let index = usize::from(owner);
        if self.has_little_room && self.mail[index] > 0 {
            self.held = Some(owner);
            return;
        }
        self.mail[index] += u8::from(self.has_little_room);
        self.delivered[index] += 1;
        self.threads[index].is_signalled = true;
    }

    fn read(&mut self) -> ReceivedFrame {
        if let Some(owner) = self.held.take() {
            self.deliver(owner);
            return if self.held.is_some() {
                ReceivedFrame::Drained
            } else {
                ReceivedFrame::Bytes { is_drained: false }
            };
        }
        let socket = &mut self.socket;
        let read: Vec<u8> = if socket.buffers {
            socket.buffered.append(&mut socket.inbound);
            socket.buffered.drain(..socket.buffered.len().min(1)).collect()
        } else {
            socket.inbound.drain(..socket.inbound.len().min(socket.room_to_read)).collect()
        };
        if read.is_empty() {
            return if socket.is_finished { ReceivedFrame::Closed } else { ReceivedFrame::Drained };
        }
        let is_drained = !socket.buffers && read.len() < socket.room_to_read && !socket.is_ending;
        read.into_iter().for_each(|owner| self.deliver(owner));
        ReceivedFrame::Bytes { is_drained }
    }

    fn write(&mut self) -> bool {
        if !self.writing.may_write() || self.outbound == 0 {
            return false;
        }
        let written = self.outbound.min(self.socket.room);
        self.outbound -= written;
        self.socket.room -= written;
        let order = self.writing.on_sent(written == 0);
        self.watch_room(order);
        written > 0
    }

    fn end(&mut self) {
        self.reading.on_end();
        self.writing.on_end();
        self.task = Task::Over;
        self.ends += 1;
        self.threads.iter_mut().for_each(|thread| thread.is_signalled = true);
    }

    fn has_buffered(&self) -> bool {
        !self.socket.buffered.is_empty()
    }

    fn carry_out(&mut self, orders: Orders) {
        if let Some(is_watched) = orders.watch_bytes {
            self.socket.watches_bytes = is_watched;
            if is_watched && (!self.socket.inbound.is_empty() || self.socket.is_finished) {
                self.fire();
            }
        }
        if orders.call_task {
            self.is_called = true;
            self.wake_task();
        }
    }

    fn watch_room(&mut self, order: Option<bool>) {
        if let Some(is_watched) = order {
            self.socket.watches_room = is_watched;
            if is_watched && self.socket.room > 0 {
                self.fire();
            }
        }
    }

    fn fire(&mut self) {
        self.socket.edge = true;
        if self.task == Task::Asleep {
            self.wake_task();
        }
    }

    fn wake_task(&mut self) {
        match self.task {
            Task::Asleep => self.task = Task::Reads { moved: false },
            Task::Over => {}
            _ => self.is_woken = true,
        }
    }
}

fn reader(index: usize) -> ReaderId {
    ReaderId(index as u64)
}
