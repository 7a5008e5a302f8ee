//! Who reads a connection: its own task, or a thread that would otherwise sleep until that task has read for it.
//!
//! # Invariants
//! - R1: at most one reads. Its own task does, unless a thread has taken over; so a connection is never without one.
//! - R2: a thread that sleeps for want of bytes has the role itself, or a reader that attends to the connection has
//!   it: the connection's task, or a thread that sleeps on the socket. A thread that goes away to work and leaves
//!   such a sleeper behind gives the role back.
//! - R3: a thread that went away with the role loses it to the first other one that wants to sleep, and after two ticks
//!   to the connection's task. So frames nobody sleeps for (a cancel, the peer's end) wait no longer than that.
//! - R4: the ticks end with the first in which nothing happened.

/// A set of [`Inlets`](crate::Inlets), which one thread at a time waits on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ReaderId(pub(crate) u64);

/// See the [module docs](self).
#[derive(Debug, Default)]
pub(crate) struct Role {
    holder: Holder,
    /// Threads that found another asleep on the socket, and sleep as well.
    waiting: Vec<ReaderId>,
    is_ticking: bool,
    was_active: bool,
    has_ended: bool,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Holder {
    #[default]
    Connection,
    /// Asleep on the socket, or about to look at it.
    Attending(ReaderId),
    /// At work.
    Away(ReaderId),
}

/// What a thread gets that wants to read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Taken {
    /// The role; the connection's task must be told of bytes no longer.
    FromConnection,
    /// The role, which a thread had.
    FromThread,
    /// Nothing: another thread attends to the connection.
    Refused,
}

/// What is to be done when a thread leaves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Left {
    /// Nothing.
    Alone,
    /// The ticks begin.
    Ticking,
    /// The connection's task reads, and must be told of bytes.
    ToConnection,
}

/// What is to be done after a tick.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Tick {
    Again,
    Stop,
    /// As [`Left::ToConnection`]; the ticks end.
    ToConnection,
}

impl Role {
    /// A thread is about to sleep: from now on it attends to the connection, or waits for those who do.
    pub(crate) fn take(&mut self, reader: ReaderId) -> Taken {
        let taken = match self.holder {
            _ if self.has_ended => return Taken::Refused,
            Holder::Connection => Taken::FromConnection,
            Holder::Attending(holder) if holder != reader => {
                if !self.waiting.contains(&reader) {
                    self.waiting.push(reader);
                }
                return Taken::Refused;
            }
            Holder::Attending(_) | Holder::Away(_) => Taken::FromThread,
        };
        self.forget(reader);
        self.holder = Holder::Attending(reader);
        taken
    }

    /// A thread goes to work.
    pub(crate) fn leave(&mut self, reader: ReaderId) -> Left {
        self.forget(reader);
        if !self.is_held_by(reader) {
            return Left::Alone;
        }
        if !self.waiting.is_empty() {
            return self.fall_to_connection();
        }
        self.holder = Holder::Away(reader);
        self.was_active = true;
        if std::mem::replace(&mut self.is_ticking, true) { Left::Alone } else { Left::Ticking }
    }

    /// A thread never comes back.
    pub(crate) fn resign(&mut self, reader: ReaderId) -> Left {
        self.forget(reader);
        if self.is_held_by(reader) { self.fall_to_connection() } else { Left::Alone }
    }

    /// Time to see whether the holder is still about.
    pub(crate) fn on_tick(&mut self) -> Tick {
        let was_active = std::mem::take(&mut self.was_active);
        if was_active && self.holder != Holder::Connection {
            return Tick::Again;
        }
        self.is_ticking = false;
        if let Holder::Away(_) = self.holder {
            self.fall_to_connection();
            return Tick::ToConnection;
        }
        Tick::Stop
    }

    /// Nobody reads any more.
    pub(crate) fn end(&mut self) {
        *self = Self { has_ended: true, ..Self::default() };
    }

    /// Nobody reads any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The connection's own task reads.
    pub(crate) fn is_with_connection(&self) -> bool {
        self.holder == Holder::Connection
    }

    fn fall_to_connection(&mut self) -> Left {
        self.holder = Holder::Connection;
        Left::ToConnection
    }

    fn is_held_by(&self, reader: ReaderId) -> bool {
        self.holder == Holder::Attending(reader) || self.holder == Holder::Away(reader)
    }

    fn forget(&mut self, reader: ReaderId) {
        self.waiting.retain(|waiting| *waiting != reader);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ReaderId = ReaderId(1);
    const B: ReaderId = ReaderId(2);

    #[test]
    fn a_thread_keeps_the_role_while_it_works_if_nobody_else_sleeps() {
        let mut role = Role::default();
        assert_eq!(role.take(A), Taken::FromConnection);
        assert_eq!(role.leave(A), Left::Ticking);
        assert_eq!((role.take(A), role.leave(A)), (Taken::FromThread, Left::Alone));
        assert!(!role.is_with_connection());
    }

    #[test]
    fn a_thread_that_leaves_a_sleeper_behind_gives_the_role_back() {
        let mut role = Role::default();
        role.take(A);
        assert_eq!(role.take(B), Taken::Refused);
        assert_eq!(role.leave(A), Left::ToConnection);
        assert!(role.is_with_connection());
        assert_eq!((role.leave(B), role.take(B)), (Left::Alone, Taken::FromConnection));
    }

    #[test]
    fn who_wants_to_sleep_takes_the_role_from_who_is_at_work() {
        let mut role = Role::default();
        role.take(A);
        role.leave(A);
        assert_eq!(role.take(B), Taken::FromThread);
        assert_eq!(role.take(A), Taken::Refused);
        assert_eq!(role.leave(B), Left::ToConnection, "A sleeps now");
    }

    #[test]
    fn a_thread_that_stays_away_loses_the_role_after_two_ticks() {
        let mut role = Role::default();
        role.take(A);
        assert_eq!(role.leave(A), Left::Ticking);
        assert_eq!(role.on_tick(), Tick::Again);
        assert_eq!(role.on_tick(), Tick::ToConnection);
        assert!(role.is_with_connection());
        assert_eq!(role.take(A), Taken::FromConnection);
        assert_eq!(role.leave(A), Left::Ticking, "they begin anew");
    }

    #[test]
    fn a_thread_asleep_on_the_socket_keeps_the_role_and_the_ticks_end() {
        let mut role = Role::default();
        role.take(A);
        role.leave(A);
        role.take(A);
        assert_eq!((role.on_tick(), role.on_tick()), (Tick::Again, Tick::Stop));
        assert!(!role.is_with_connection());
    }

    #[test]
    fn a_connection_that_ended_is_read_by_nobody() {
        let mut role = Role::default();
        role.take(A);
        role.end();
        assert_eq!((role.leave(A), role.take(A), role.take(B)), (Left::Alone, Taken::Refused, Taken::Refused));
    }

    #[test]
    fn who_resigns_leaves_the_role_to_the_connection() {
        let mut role = Role::default();
        role.take(A);
        role.leave(A);
        assert_eq!((role.resign(B), role.resign(A)), (Left::Alone, Left::ToConnection));
        assert_eq!(role.on_tick(), Tick::Stop);
    }
}
