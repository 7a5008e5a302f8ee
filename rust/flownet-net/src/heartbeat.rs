//! One timer for all connections of a process: it looks at each now and then, whatever that is busy with, so that neither
//! a record nor a buffer nor a turn costs anything for it.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// The connections there are, and the task that looks at them.
#[derive(Debug, Default)]
pub(crate) struct Heartbeat {
    connections: Mutex<Vec<Weak<dyn Pulse>>>,
    began: Notify,
}

/// A connection that is looked at.
pub(crate) trait Pulse: Send + Sync {
    /// Time has passed, on a clock of the heartbeat's own.
    fn on_heartbeat(&self, now: Duration);
}

impl Heartbeat {
    /// Looks at it from now on, until it is gone.
    pub(crate) fn watch(&self, connection: &Arc<impl Pulse + 'static>) {
        let connection: Arc<dyn Pulse> = Arc::clone(connection) as _;
        let connection = Arc::downgrade(&connection);
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        self.began.notify_one();
    }

    /// For ever. Sleeps without a timer where there is no connection.
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
