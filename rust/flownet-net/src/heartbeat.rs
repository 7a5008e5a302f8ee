//! Checks all connections of a process with one timer. A check is independent of the connection's work, so it adds no
//! cost to records, buffers or turns.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// Live connections, and the task that checks them.
#[derive(Debug, Default)]
pub(crate) struct Heartbeat {
    connections: Mutex<Vec<Weak<dyn Pulse>>>,
    began: Notify,
}

/// Connection that the heartbeat checks.
pub(crate) trait Pulse: Send + Sync {
    /// Reports the time since the heartbeat started, once per interval.
    fn on_heartbeat(&self, now: Duration);
}

impl Heartbeat {
    /// Checks `connection` from now on, until it is dropped.
    pub(crate) fn watch(&self, connection: &Arc<impl Pulse + 'static>) {
        let connection: Arc<dyn Pulse> = Arc::clone(connection) as _;
        let connection = Arc::downgrade(&connection);
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        self.began.notify_one();
    }

    /// Runs until dropped. Without connections it sleeps without a timer.
    pub(crate) async fn run(&self, interval: Duration) {
        let began = Instant::now();
        loop {
            let connections = self.alive();
            if connections.is_empty() {
                self.began.notified().await;
            }
            connections.iter().for_each(|connection| connection.on_heartbeat(began.elapsed()));
            drop(connections);
            sleep(interval).await;
        }
    }

    fn alive(&self) -> Vec<Arc<dyn Pulse>> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let mut alive = Vec::with_capacity(connections.len());
        connections.retain(|connection| connection.upgrade().map(|connection| alive.push(connection)).is_some());
        alive
    }
}

impl std::fmt::Debug for dyn Pulse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pulse")
    }
}
