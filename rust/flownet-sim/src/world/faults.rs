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

    /// Only of a sink: a task that lets go of one input only would wait for its end.
    fn release(&mut self, consumer: usize, producer: usize) -> bool {
        if self.readers.get(consumer).is_none_or(|reader| reader.relay.is_some()) {
            return false;
        }
        let Some(place) = self.channel_between(producer, consumer) else { return false };
        let channel = &mut self.channels[place];
        let Some(remote) = channel.remote.as_ref().filter(|remote| remote.channel.is_open()) else { return false };
        remote.channel.release();
        channel.is_excused = true;
        true
    }

    /// A task that fails or is cancelled closes its gate, and ends what it writes.
    fn close_gate(&mut self, consumer: usize) -> bool {
        let Some(reader) = self.readers.get(consumer).filter(|reader| reader.gate.is_some()) else { return false };
        self.end_task(reader.task, Some("its input was closed"))
    }

    fn end_writer(&mut self, producer: usize, cause: Option<&str>) -> bool {
        let Some(writer) = self.writers.get(producer).filter(|writer| writer.partition.is_some()) else { return false };
        self.end_task(writer.task, cause)
    }

    /// A task ends where it stands, with all it reads and writes.
    pub(super) fn end_task(&mut self, task: usize, cause: Option<&str>) -> bool {
        let mut has_happened = false;
        for writer in self.writers.iter_mut().filter(|writer| writer.task == task) {
            let Some(partition) = writer.partition.take() else { continue };
            if let Some(cause) = cause {
                partition.fail(cause);
            }
            (writer.is_gone, writer.pending, has_happened) = (true, None, true);
            writer.channels.iter().for_each(|&place| self.channels[place].is_excused = true);
        }
        for reader in self.readers.iter_mut().filter(|reader| reader.task == task) {
            let Some(gate) = reader.gate.take() else { continue };
            has_happened = true;
            gate.close();
            reader.blocked.clear();
            if let Some(relay) = &mut reader.relay {
                relay.clear();
            }
            reader.channels.iter().for_each(|&place| self.channels[place].is_excused = true);
        }
        has_happened
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
        for (found, writer) in self.registry.0.iter_mut().zip(&self.writers) {
            if writer.worker == worker {
                *found = None;
            }
        }
        for task in 0..self.plan.tasks.len() {
            if self.plan.tasks[task].worker == worker {
                has_happened |= self.end_task(task, None);
            }
        }
        for reader in self.readers.iter_mut().filter(|reader| reader.worker == worker) {
            reader.held.clear();
        }
        has_happened
    }
}
