//! A link: packets on their way between two hosts.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use flownet_exchange_tests::Noise;
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep_until};
use tokio_tun::Tun;

use crate::host::Host;

/// What a link does to packets, in each direction.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How long a packet is on its way.
    pub delay: Duration,
    /// How many of a thousand packets are lost.
    pub lost_per_mille: usize,
    /// Bits a second.
    pub rate: u64,
    /// Which packets are lost: the same for the same seed.
    pub seed: u64,
}

/// Two hosts and the link between them.
#[derive(Debug)]
pub struct Link {
    hosts: [Host; 2],
    shape: Shape,
    /// Carries the packets. Dropped with the link, and the devices with it.
    _runtime: Runtime,
}

impl Link {
    /// Addresses of the two hosts.
    pub const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 98, 0, 1), Ipv4Addr::new(10, 98, 0, 2)];

    /// Two new hosts with a link of this shape. An error where namespaces or TUN devices are not permitted.
    pub fn open(shape: Shape) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let hosts = [Host::new()?, Host::new()?];
        let [one, other] = [0, 1].map(|at: usize| {
            let handle = runtime.handle().clone();
            hosts[at].run(move || {
                let _context = handle.enter();
                device(Self::ADDRESSES[at])
            })
        });
        let (one, other) = (Arc::new(one?), Arc::new(other?));
        runtime.spawn(carry(Arc::clone(&one), Arc::clone(&other), shape, Noise::new(shape.seed)));
        runtime.spawn(carry(other, one, shape, Noise::new(shape.seed + 2)));
        Ok(Self { hosts, shape, _runtime: runtime })
    }

    /// One of the two hosts.
    pub fn host(&self, at: usize) -> &Host {
        &self.hosts[at]
    }

    /// What it carries in a second at best, in bytes of payload: what headers take is left out.
    pub fn bytes_per_s(&self) -> f64 {
        let (mtu, headers) = (MTU as f64, 52.0);
        self.shape.rate as f64 / 8.0 * (mtu - headers) / mtu
    }

    /// There and back.
    pub fn round_trip(&self) -> Duration {
        2 * self.shape.delay
    }
}

fn device(address: Ipv4Addr) -> io::Result<Tun> {
    let mask = Ipv4Addr::new(255, 255, 255, 0);
    let builder = Tun::builder().name("link%d").address(address).netmask(mask).mtu(MTU).up().close_on_exec();
    let built = builder.build().map_err(io::Error::other)?;
    built.into_iter().next().ok_or_else(|| io::Error::other("no device"))
}

/// Carries packets in one direction until the runtime ends.
async fn carry(from: Arc<Tun>, to: Arc<Tun>, shape: Shape, mut noise: Noise) {
    let mut under_way: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut packet = [0; MTU as usize];
    // When the last packet has left the sender.
    let mut sent = Instant::now();
    loop {
        let arrival = under_way.front().map(|(due, _)| *due);
        tokio::select! {
            received = from.recv(&mut packet) => {
                let Ok(bytes) = received else { return };
                let now = Instant::now();
                let wait = sent.saturating_duration_since(now);
                if wait > QUEUE || noise.below(1000) < shape.lost_per_mille {
                    continue;
                }
                sent = now + wait + Duration::from_nanos(bytes as u64 * 8 * 1_000_000_000 / shape.rate);
                under_way.push_back((sent + shape.delay, packet[..bytes].to_vec()));
            }
            () = sleep_until(arrival.unwrap_or(sent)), if arrival.is_some() => {
                let now = Instant::now();
                let due = under_way.iter().take_while(|(due, _)| *due <= now).count();
                for (_, packet) in under_way.drain(..due) {
                    // A host that does not take it loses it, as hosts do.
                    let _ = to.try_send(&packet);
                }
            }
        }
    }
}

const MTU: i32 = 1500;
/// Packets that would wait longer for their turn are dropped: the buffer of the router.
const QUEUE: Duration = Duration::from_millis(100);
