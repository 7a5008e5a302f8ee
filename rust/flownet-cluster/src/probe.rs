//! Checks that processes can reach each other before a job needs it. A host's name or address that is valid in its own
//! network may not be valid for its peers.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use flownet_net::Credentials;
use futures::future::join_all;
use tokio::net::TcpListener;

use crate::{
    port::{self, DialError},
    threads::NetworkThread,
};

/// Port that answers authenticated connections until it is dropped.
#[derive(Debug)]
pub struct Probe {
    network: NetworkThread,
    address: SocketAddr,
    credentials: Credentials,
}

impl Probe {
    /// Listens on a port of `host`.
    ///
    /// # Errors
    /// Fails if this machine has no such address, or if no port is free.
    pub fn open(host: IpAddr, credentials: Credentials) -> io::Result<Self> {
        let network = NetworkThread::start()?;
        let listener = network.handle().block_on(TcpListener::bind((host, 0)))?;
        let address = listener.local_addr()?;
        network.handle().spawn(port::accept_all(listener, credentials.clone(), |_, _| std::future::ready(())));
        Ok(Self { network, address, credentials })
    }

    /// Returns the address of the port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connects to all `peers` at once. Returns the index and the error of each that does not answer, or does not
    /// authenticate, within `limit`.
    #[must_use]
    pub fn dial_all(&self, peers: &[SocketAddr], limit: Duration) -> Vec<(usize, String)> {
        let dial = async |(position, &peer): (usize, &SocketAddr)| {
            let reason = match tokio::time::timeout(limit, port::dial(peer, &self.credentials)).await {
                Ok(Ok(_)) => return None,
                Ok(Err(DialError::Connect { error, .. })) => error.to_string(),
                Ok(Err(DialError::Handshake { error, .. })) => error.to_string(),
                Err(_) => format!("no answer within {limit:?}"),
            };
            Some((position, reason))
        };
        let answers = self.network.handle().block_on(join_all(peers.iter().enumerate().map(dial)));
        answers.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use flownet_net::Secret;

    use super::*;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn peers_that_answer_are_told_from_those_that_do_not_and_from_strangers() {
        let secret = Secret::from_bytes([1; 32]);
        let ours = Probe::open(HOST, secret.clone().into()).unwrap();
        let peer = Probe::open(HOST, secret.clone().into()).unwrap();
        let stranger = Probe::open(HOST, Secret::from_bytes([2; 32]).into()).unwrap();
        let gone = Probe::open(HOST, secret.into()).unwrap().address();
        let silent = std::net::TcpListener::bind((HOST, 0)).unwrap();
        let peers = [peer.address(), stranger.address(), gone, silent.local_addr().unwrap(), ours.address()];
        let failures = ours.dial_all(&peers, Duration::from_millis(500));
        let positions: Vec<usize> = failures.iter().map(|&(position, _)| position).collect();
        assert_eq!(positions, [1, 2, 3], "{failures:?}");
        assert!(failures[2].1.contains("no answer within 500ms"), "{failures:?}");
        assert_eq!(ours.dial_all(&peers[..1], PATIENCE), []);
    }

    #[test]
    fn an_address_of_another_machine_cannot_be_opened() {
        // TEST-NET-1: no machine has this address.
        assert!(Probe::open(IpAddr::from([192, 0, 2, 1]), Secret::from_bytes([1; 32]).into()).is_err());
    }
}
