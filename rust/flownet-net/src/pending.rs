//! Limits the number and duration of connections whose handshake is not complete.
//!
//! Any host can reach a port, and a stranger may open many connections and send nothing. Each connection is therefore
//! accepted at once and gets one of a bounded number of places. If all are taken, a new connection displaces another.
//! Candidates are connections that have sent nothing, if there are any, otherwise all. Among the candidates of the
//! address that has most of them, the oldest is displaced. A legitimate peer sends at once and completes within a round
//! trip. Strangers therefore displace each other and not such a peer.
//!
//! # Invariants
//! - A1: at most `max` places are held, by as many connections.
//! - A2: a connection that enters gets a place. It loses it only by leaving, or when a new connection enters and finds
//!   no free place.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::error::HandshakeError;

/// Places of one port for connections whose handshake is pending.
#[derive(Debug)]
pub struct PendingHandshakes {
    max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// In order of arrival.
    places: Vec<PendingPlace>,
    entered: u64,
}

#[derive(Debug)]
struct PendingPlace {
    number: u64,
    source: IpAddr,
    has_spoken: bool,
    /// Dropped to displace the connection.
    _hold: oneshot::Sender<()>,
}

/// Place of one connection. Dropping it frees the place.
#[derive(Debug)]
pub struct PendingHandshake {
    pending: Arc<PendingHandshakes>,
    number: u64,
    /// Ready once the place is taken away.
    hold: oneshot::Receiver<()>,
}

impl PendingHandshakes {
    /// Creates `max` places, at least one.
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max: max.max(1), state: Mutex::default() })
    }

    /// Takes a place for a connection accepted from this address.
    #[must_use]
    pub fn enter(self: &Arc<Self>, source: IpAddr) -> PendingHandshake {
        let (sender, hold) = oneshot::channel();
        let mut state = self.lock();
        let displaced = if state.places.len() >= self.max { state.take_next() } else { None };
        let number = state.entered;
        state.entered += 1;
        state.places.push(PendingPlace { number, source, has_spoken: false, _hold: sender });
        drop(state);
        // Dropping it wakes the displaced connection's task, so no lock is held here.
        drop(displaced);
        PendingHandshake { pending: Arc::clone(self), number, hold }
    }

    /// Displaces the connection that a new one would displace, which frees its file descriptor. Returns false if there
    /// is none.
    pub fn give_up_one(&self) -> bool {
        let displaced = self.lock().take_next();
        displaced.is_some()
    }

    /// Returns the number of held places.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().places.len()
    }

    /// Returns true if no handshake is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take_next(&mut self) -> Option<PendingPlace> {
        let all_have_spoken = self.places.iter().all(|place| place.has_spoken);
        let candidates = || self.places.iter().filter(|place| all_have_spoken || !place.has_spoken);
        let mut counts = HashMap::new();
        candidates().for_each(|place| *counts.entry(place.source).or_insert(0) += 1);
        let most = counts.values().max()?;
        let number = candidates().find(|place| counts[&place.source] == *most)?.number;
        self.remove(number)
    }

    fn remove(&mut self, number: u64) -> Option<PendingPlace> {
        let at = self.places.iter().position(|place| place.number == number)?;
        Some(self.places.remove(at))
    }
}

impl PendingHandshake {
    /// Runs `handshake` on `stream` once the peer has sent anything, all within `timeout`.
    ///
    /// # Errors
    /// Returns [`HandshakeError::Displaced`] if a new connection took the place, [`HandshakeError::TimedOut`], or the
    /// error of `handshake`.
    pub async fn prove<T, F>(
        mut self,
        stream: TcpStream,
        timeout: Duration,
        handshake: impl FnOnce(TcpStream) -> F,
    ) -> Result<T, HandshakeError>
    where
        F: Future<Output = Result<T, HandshakeError>>,
    {
        let (pending, number) = (Arc::clone(&self.pending), self.number);
        let proving = async move {
            stream.readable().await?;
            pending.on_spoken(number);
            handshake(stream).await
        };
        tokio::select! {
            biased;
            proved = proving => proved,
            _ = &mut self.hold => Err(HandshakeError::Displaced),
            () = tokio::time::sleep(timeout) => Err(HandshakeError::TimedOut { timeout }),
        }
    }
}

impl PendingHandshakes {
    fn on_spoken(&self, number: u64) {
        if let Some(place) = self.lock().places.iter_mut().find(|place| place.number == number) {
            place.has_spoken = true;
        }
    }
}

impl Drop for PendingHandshake {
    fn drop(&mut self) {
        let _left = self.pending.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    const ELSEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn is_displaced(place: &mut PendingHandshake) -> bool {
        !matches!(place.hold.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    #[test]
    fn a_newcomer_takes_the_place_of_the_oldest_that_says_nothing() {
        let pending = PendingHandshakes::new(3);
        let mut places: Vec<_> = (0..3).map(|_| pending.enter(HERE)).collect();
        pending.on_spoken(places[0].number);
        places.push(pending.enter(HERE));
        let displaced: Vec<bool> = places.iter_mut().map(is_displaced).collect();
        assert_eq!((displaced, pending.len()), (vec![false, true, false, false], 3));
        places[2..].iter().for_each(|place| pending.on_spoken(place.number));
        places.push(pending.enter(HERE));
        assert!(is_displaced(&mut places[0]), "all had spoken: the oldest of them");
        drop(places);
        assert!(pending.is_empty());
    }

    #[test]
    fn who_comes_from_an_address_with_many_gives_way_first() {
        let pending = PendingHandshakes::new(4);
        let mut lonely = pending.enter(THERE);
        let mut many: Vec<_> = (0..3).map(|_| pending.enter(HERE)).collect();
        let newcomers = [pending.enter(ELSEWHERE), pending.enter(ELSEWHERE)];
        assert!(!is_displaced(&mut lonely), "though it is the oldest");
        let displaced: Vec<bool> = many.iter_mut().map(is_displaced).collect();
        assert_eq!(displaced, [true, true, false]);
        drop(newcomers);
    }

    #[test]
    fn a_place_can_be_given_up_for_its_file_descriptor() {
        let pending = PendingHandshakes::new(4);
        assert!(!pending.give_up_one());
        let mut place = pending.enter(HERE);
        assert!(pending.give_up_one() && is_displaced(&mut place));
    }
}
