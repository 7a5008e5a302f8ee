//! What breaks. Whoever it hits need not deliver; everybody else must.

use flownet_core::wire::ErrorCode;

use super::World;
use crate::action::Action;

impl World {
    pub(super) fn break_something(&mut self, fault: Action) -> bool {
        // A gate may learn of the fault while it happens.
        self.faults += 1;
        let has_happened = match fault {
            Action::Release { consumer, producer } => self.release(consumer, producer),
            Action::CloseGate { consumer } => self.close_gate(consumer),
            Action::Fail { producer } => self.end_writer(producer, Some("on purpose")),
            Action::Vanish { producer } => self.end_writer(producer, None),
            Action::Lose { connection } => self.lose(connection),
            Action::Leave { connection } => self.leave(connection),
            Action::Close { connection } => self.close(connection),
            Action::Expire { connection } => self.expire(connection),
            Action::Kill { worker } => self.kill(worker),
            _ => false,
        };
        self.faults -= 1;
        has_happened
    }

    fn release(&mut self, consumer: usize, producer: usize) -> bool {
        let place = producer * self.readers.len() + consumer;
        let Some(channel) = self.channels.get_mut(place).filter(|_| consumer < self.readers.len()) else {
            return false;
        };
        let Some(remote) = channel.remote.as_ref().filter(|remote| remote.channel.is_open()) else { return false };
        remote.channel.release();
        channel.is_excused = true;
        true
    }

    /// A task that fails or is cancelled closes its gate.
    pub(super) fn close_gate(&mut self, consumer: usize) -> bool {
        let Some(reader) = self.readers.get_mut(consumer) else { return false };
        let Some(gate) = reader.gate.take() else { return false };
        gate.close();
        reader.blocked.clear();
        for channel in self.channels.iter_mut().skip(consumer).step_by(self.readers.len()) {
            channel.is_excused = true;
        }
        true
    }

    pub(super) fn end_writer(&mut self, producer: usize, cause: Option<&str>) -> bool {
        let consumers = self.readers.len();
        let Some(writer) = self.writers.get_mut(producer) else { return false };
        let Some(partition) = writer.partition.take() else { return false };
        if let Some(cause) = cause {
            partition.fail(cause);
        }
        (writer.is_gone, writer.pending) = (true, None);
        self.channels[producer * consumers..][..consumers].iter_mut().for_each(|channel| channel.is_excused = true);
        true
    }

    pub(super) fn lose(&mut self, connection: usize) -> bool {
        let Some(lost) = self.connections.get_mut(connection) else { return false };
        if lost.consumer.machine.is_none() {
            return false;
        }
        lost.lose("reset by peer");
        self.excuse(connection);
        true
    }

    fn leave(&mut self, connection: usize) -> bool {
        let Some(end) = self.connections.get_mut(connection).map(|connection| &mut connection.producer) else {
            return false;
        };
        let Some(machine) = &mut end.machine else { return false };
        machine.leave(ErrorCode::Leaving, "on purpose");
        end.send.set();
        self.excuse(connection);
        true
    }

    fn close(&mut self, connection: usize) -> bool {
        let Some(end) = self.connections.get_mut(connection).map(|connection| &mut connection.consumer) else {
            return false;
        };
        let Some(machine) = &mut end.machine else { return false };
        machine.close();
        end.send.set();
        self.excuse(connection);
        true
    }

    fn expire(&mut self, connection: usize) -> bool {
        let Some(end) = self.connections.get_mut(connection).map(|connection| &mut connection.producer) else {
            return false;
        };
        let Some(machine) = end.machine.as_mut().filter(|machine| machine.parked_requests() > 0) else {
            return false;
        };
        machine.expire_parked(0);
        machine.expire_parked(u64::MAX);
        end.send.set();
        self.excuse(connection);
        true
    }

    fn excuse(&mut self, connection: usize) {
        for &channel in &self.connections[connection].channels {
            self.channels[channel].is_excused = true;
        }
    }

    fn kill(&mut self, worker: usize) -> bool {
        let touches = |index: usize, world: &Self| {
            let connection = &world.connections[index];
            connection.from == worker || connection.to == worker
        };
        let mut has_happened = false;
        for index in 0..self.connections.len() {
            if touches(index, self) {
                has_happened |= self.lose(index);
            }
        }
        for producer in 0..self.writers.len() {
            if self.writers[producer].worker == worker {
                self.registry.0[producer] = None;
                has_happened |= self.end_writer(producer, None);
            }
        }
        for consumer in 0..self.readers.len() {
            if self.readers[consumer].worker == worker {
                has_happened |= self.close_gate(consumer);
                self.readers[consumer].held.clear();
            }
        }
        has_happened
    }
}
