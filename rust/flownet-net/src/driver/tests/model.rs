//! Model-checks [`ownership`](crate::driver::ownership) in every interleaving of a small world.
//!
//! The world has the connection's task, and threads that wait, work or never return. It has a socket with edges and an
//! end, and a peer that sends, reads and leaves at any time. The work that a driver does under one lock is one step
//! here. The pending flags of the combining lock are modelled with the lock, in `flownet-core`.
//!
//! # Properties
//! - *Nothing is lost*: if only the peer can still move, every byte it sent has reached its thread, and its end has
//!   ended the connection. Bytes for the peer wait only while it has no room.
//! - *No unattended sleep*: in such a state, the connection's task or a thread asleep on the socket learns of the next
//!   byte.
//! - *One end*: a connection has ended at most once in every state.
//! - *No cycle*: no state can be reached from itself, so every run reaches such a state.

mod world;

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use self::world::{ThreadStep, World};

impl World {
    fn check(&self) {
        assert!(self.ends <= 1, "one end: {self:#?}");
        if self.reading.is_open() {
            assert_eq!(self.socket.watches_bytes, self.reading.is_with_task(), "O5: {self:#?}");
            let has_sleeper = self.threads.iter().any(|thread| matches!(thread.at, ThreadStep::Asleep { .. }));
            assert!(!has_sleeper || self.reading.is_attended(), "O2: {self:#?}");
        }
        if !self.moves().is_empty() {
            return;
        }
        assert!(!(self.socket.is_finished || self.was_silent) || self.is_over(), "the end is lost: {self:#?}");
        if self.is_over() {
            return;
        }
        assert_eq!(self.delivered, self.sent, "bytes are lost: {self:#?}");
        assert!(self.outbound == 0 || self.socket.room == 0, "bytes wait though there is room: {self:#?}");
        let by_task = self.socket.watches_bytes;
        let by_thread =
            self.threads.iter().any(|thread| matches!(thread.at, ThreadStep::Asleep { on_socket: true, .. }));
        assert!(by_task || by_thread, "nobody is told of the next byte: {self:#?}");
        let room_by_thread =
            self.threads.iter().any(|thread| matches!(thread.at, ThreadStep::Asleep { for_room: true, .. }));
        assert!(self.outbound == 0 || self.socket.watches_room || room_by_thread, "nobody is told of room: {self:#?}");
    }

    /// Checks all states that can be reached from here.
    fn explore(self) {
        #[derive(Clone, Copy, PartialEq)]
        enum Mark {
            OnPath,
            Done,
        }
        let fingerprint = |world: &Self| BuildHasherDefault::<DefaultHasher>::default().hash_one(world);
        let mut marks = HashMap::from([(fingerprint(&self), Mark::OnPath)]);
        let nexts = |world: &Self| -> Vec<Self> {
            world.check();
            let actions = world.moves().into_iter().chain(world.moves_of_the_peer());
            let next = |action| {
                let mut next = world.clone();
                next.step(action);
                next
            };
            actions.map(next).collect()
        };
        let mut path = vec![(nexts(&self), self)];
        while let Some((open, _)) = path.last_mut() {
            match open.pop() {
                Some(next) => match marks.get(&fingerprint(&next)) {
                    Some(Mark::Done) => {}
                    Some(Mark::OnPath) => panic!("a ring: {next:#?}"),
                    None => {
                        marks.insert(fingerprint(&next), Mark::OnPath);
                        path.push((nexts(&next), next));
                    }
                },
                None => {
                    if let Some((_, world)) = path.pop() {
                        marks.insert(fingerprint(&world), Mark::Done);
                    }
                }
            }
        }
    }
}

#[test]
fn nothing_is_lost_between_the_task_and_two_threads_that_may_stay_away_or_resign() {
    let mut world = World::new(2);
    (world.to_send, world.may_stay_away) = (vec![1, 1], true);
    world.explore();
}

#[test]
fn a_link_that_buffers_leaves_nothing_in_it() {
    let mut world = World::new(2);
    (world.to_send, world.may_stay_away, world.socket.buffers) = (vec![1, 1], true, true);
    world.explore();
}

#[test]
fn a_byte_that_waits_for_room_holds_the_rest_up_and_loses_nothing() {
    let mut world = World::new(2);
    (world.to_send, world.has_little_room, world.socket.room_to_read) = (vec![2, 1], true, 1);
    world.explore();
}

#[test]
fn what_waits_for_room_is_written_by_who_is_told_of_it() {
    let mut world = World::new(1);
    (world.to_send, world.may_stay_away) = (vec![1], true);
    (world.news, world.to_drain, world.socket.room) = (2, 2, 1);
    world.explore();
}

#[test]
fn two_causes_end_a_connection_once() {
    let mut world = World::new(1);
    (world.to_send, world.may_be_silent) = (vec![2], true);
    (world.news, world.to_drain) = (1, 1);
    world.explore();
}
