//! Settings of a network environment. All defaults are defined here.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use flownet_core::PoolSizing;
use flownet_core::channel::CREDIT_BATCH;
use flownet_core::debloat::InFlightBounds;
use flownet_core::gate::ReceiveQueueLimits;

use crate::driver::Limits;
use crate::error::NetError;
use crate::handshake::DEFAULT_HANDSHAKE_TIMEOUT;

/// Settings of one [`NetworkEnvironment`](crate::NetworkEnvironment), validated when it is bound.
///
/// ```
/// use flownet_net::NetworkConfig;
///
/// let config = NetworkConfig { exclusive_buffers: 0, ..NetworkConfig::default() };
/// assert_eq!(config.floating_buffers, 8);
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NetworkConfig {
    /// Address of the data port. Default: 127.0.0.1. The system chooses the port.
    ///
    /// On any other address, frames are sent unencrypted unless the credentials have certificates.
    pub bind: IpAddr,
    /// Buffers that each remote channel retains while its producer has nothing to send, if memory allows. Default: 2.
    ///
    /// With one buffer in flight while another is read, a channel on a short link stays busy. Data sent after a pause
    /// needs no round trip for credit. These buffers are desired, not required: when memory is short, channels retain
    /// fewer. A channel without any requests buffers when there is data. Zero is allowed: idle channels then never use
    /// memory.
    pub exclusive_buffers: u32,
    /// Buffers that the remote channels of one gate share by demand. Default: 8, at least 1.
    pub floating_buffers: u32,
    /// Limit of buffers that all remote channels of one gate hold together; at least one more than their exclusive
    /// ones. Default: none, which means the exclusive buffers plus [`floating_buffers`](Self::floating_buffers).
    pub receive_buffers: Option<u32>,
    /// Limits of a gate's queue for channels without credit.
    pub receive_bounds: ReceiveBounds,
    /// Buffers that one subpartition may hold before its whole partition counts as unavailable. Default: 10, at least
    /// 2: one being written and one being sent.
    ///
    /// A lower value prevents a slow subpartition from using up the pool of the others. A higher one bridges longer
    /// pauses of a reader.
    pub max_buffers_per_subpartition: u32,
    /// Buffers that a partition may take beyond its share to finish a record that it has begun. Default: 5.
    pub max_overdraft_buffers: u32,
    /// Target time in which a task processes all data in flight to it, if it measures its throughput. Its producers
    /// then start with one record per buffer, and fill buffers only as far as the task requests. Default: none, so
    /// buffers are filled completely from the start.
    pub max_in_flight_time: Option<Duration>,
    /// Adds a checksum to every data frame that this process sends. Default: no, because TCP has a checksum of its own,
    /// though a weak one. Costs about a tenth of a nanosecond per byte on each side.
    pub checksums: bool,
    /// Time limit for the handshake of a new connection, on either side. Default: 30 s. Many workers that start
    /// together on few cores compute their handshakes one after the other.
    pub handshake_timeout: Duration,
    /// Time limit for connecting to a peer, before the handshake begins. Default: 10 s.
    pub connect_timeout: Duration,
    /// Time for which a request may wait until the producer registers its partition. Default: 10 s.
    pub partition_timeout: Duration,
    /// Interval at which a connection that receives nothing asks its peer for a sign of life. Default: 1 s.
    pub heartbeat_interval: Duration,
    /// Time for which a peer may owe a sign of life, or the rest of a frame, before its connection is given up.
    /// Default: 10 s, at least twice the interval. A live peer whose task has no room is never given up.
    pub heartbeat_timeout: Duration,
    /// Limit of concurrent handshakes on the data port. Default: 64. Beyond it, a new connection replaces one that has
    /// sent nothing; see [`PendingHandshakes`](crate::PendingHandshakes).
    pub max_pending_handshakes: usize,
    /// Limit of peers dialed at the same time; further ones wait. Default: 8. If many workers dial each other, each
    /// port then answers about this many handshakes at once.
    pub max_concurrent_dials: usize,
}

/// Limits of the data that the channels of one gate queue without credit. Channels under credit or TCP control cannot
/// exceed the pool.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReceiveBounds {
    /// Bytes above which dropping channels accept no more records. Default: none, which means as many as the gate's
    /// buffers hold.
    pub queue_bytes: Option<usize>,
    /// Bytes at which an unbounded gate fails. Default: 1 GiB.
    pub limit_bytes: usize,
}

impl Default for ReceiveBounds {
    fn default() -> Self {
        Self { queue_bytes: None, limit_bytes: 1 << 30 }
    }
}

impl NetworkConfig {
    /// Raises floating buffers and the producers' buffer limit so that `bytes` bytes can be in flight.
    ///
    /// A channel has at most as much data in flight as its consumer has buffers. It therefore moves at most
    /// `(exclusive + floating) * segment_bytes / round trip` bytes per second. A producer requests no more than it may queue. A
    /// link of 100 Mbit/s with a round trip of 100 ms holds 1.25 MB, four times the default.
    #[must_use]
    pub fn with_bandwidth_delay(self, bytes: usize, segment_bytes: usize) -> Self {
        let on_the_way = u32::try_from(bytes.div_ceil(segment_bytes.max(1))).unwrap_or(u32::MAX);
        // One credit batch is on its way back. The other is with the reading task, or not announced yet.
        let lent = on_the_way.saturating_add(2 * CREDIT_BATCH);
        Self {
            floating_buffers: self.floating_buffers.max(lent),
            max_buffers_per_subpartition: self.max_buffers_per_subpartition.max(lent),
            ..self
        }
    }

    /// Returns the in-flight limits of a gate with these channels, if [`max_in_flight_time`](Self::max_in_flight_time)
    /// is set.
    pub fn in_flight_bounds(
        &self,
        local_channels: u32,
        remote_channels: u32,
        segment_bytes: usize,
    ) -> Option<InFlightBounds> {
        let max_time = self.max_in_flight_time?;
        let a_channel = self.max_buffers_per_subpartition;
        let local = local_channels.saturating_mul(a_channel);
        let remote = remote_channels.saturating_mul(a_channel.saturating_add(self.exclusive_buffers));
        let floating = if remote_channels > 0 { self.floating_buffers } else { 0 };
        let least_buffers = local.saturating_add(remote).saturating_add(floating).min(LEAST_BUFFERS);
        Some(InFlightBounds {
            max_time,
            segment_bytes: u32::try_from(segment_bytes).unwrap_or(u32::MAX),
            least_buffers,
        })
    }

    /// Returns the receive-queue limits of a gate with `remote_channels` and segments of this size.
    pub fn receive_queue_limits(&self, remote_channels: u32, segment_bytes: usize) -> ReceiveQueueLimits {
        let buffers = self.sizing().gate(remote_channels).max.unwrap_or(usize::MAX);
        let ReceiveBounds { queue_bytes, limit_bytes } = self.receive_bounds;
        ReceiveQueueLimits { queue_bytes: queue_bytes.unwrap_or(buffers.saturating_mul(segment_bytes)), limit_bytes }
    }
}

impl Default for NetworkConfig {
    fn default() -> Self {
        let sizing = PoolSizing::default();
        Self {
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            exclusive_buffers: sizing.exclusive_buffers,
            floating_buffers: sizing.floating_buffers,
            receive_buffers: sizing.receive_buffers,
            receive_bounds: ReceiveBounds::default(),
            max_buffers_per_subpartition: sizing.max_buffers_per_subpartition,
            max_overdraft_buffers: sizing.max_overdraft_buffers,
            max_in_flight_time: None,
            checksums: false,
            handshake_timeout: DEFAULT_HANDSHAKE_TIMEOUT,
            connect_timeout: Duration::from_secs(10),
            partition_timeout: Duration::from_secs(10),
            heartbeat_interval: Duration::from_secs(1),
            heartbeat_timeout: Duration::from_secs(10),
            max_pending_handshakes: 64,
            max_concurrent_dials: 8,
        }
    }
}

impl NetworkConfig {
    /// Returns the settings that size buffer pools.
    pub fn sizing(&self) -> PoolSizing {
        PoolSizing {
            exclusive_buffers: self.exclusive_buffers,
            floating_buffers: self.floating_buffers,
            receive_buffers: self.receive_buffers,
            max_buffers_per_subpartition: self.max_buffers_per_subpartition,
            max_overdraft_buffers: self.max_overdraft_buffers,
        }
    }

    pub(crate) fn liveness(&self) -> Limits {
        Limits { interval: self.heartbeat_interval, timeout: self.heartbeat_timeout }
    }

    pub(crate) fn validate(&self) -> Result<(), NetError> {
        let least = [
            ("floating_buffers", to_usize(self.floating_buffers), 1, "at least 1"),
            ("max_buffers_per_subpartition", to_usize(self.max_buffers_per_subpartition), 2, "at least 2"),
            ("max_pending_handshakes", self.max_pending_handshakes, 1, "at least 1"),
            ("max_concurrent_dials", self.max_concurrent_dials, 1, "at least 1"),
        ];
        for (setting, value, least, allowed) in least {
            if value < least {
                return Err(NetError::InvalidConfig { setting, value: value.to_string(), allowed });
            }
        }
        let durations = [
            ("handshake_timeout", self.handshake_timeout),
            ("connect_timeout", self.connect_timeout),
            ("partition_timeout", self.partition_timeout),
            ("heartbeat_interval", self.heartbeat_interval),
        ];
        for (setting, value) in durations {
            if value.is_zero() {
                return Err(NetError::InvalidConfig { setting, value: "0 s".into(), allowed: "more than zero" });
            }
        }
        if self.heartbeat_timeout < self.heartbeat_interval * 2 {
            let value = format!("{:?}", self.heartbeat_timeout);
            let allowed = "at least twice heartbeat_interval";
            return Err(NetError::InvalidConfig { setting: "heartbeat_timeout", value, allowed });
        }
        Ok(())
    }
}

/// In-flight data is spread over at least this many buffers, if that many are allowed, even if fewer are in use. One
/// channel between workers has this many by default, and a burst fills them at once. A higher value would shrink
/// buffers needlessly with many, mostly idle channels.
const LEAST_BUFFERS: u32 = 20;

fn to_usize(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_full_of_bytes_is_lent_to_a_gate_and_queued_by_a_partition() {
        let config = NetworkConfig::default().with_bandwidth_delay(1_250_000, 32 * 1024);
        assert_eq!((config.floating_buffers, config.max_buffers_per_subpartition), (39 + 16, 39 + 16));
        assert_eq!((config.sizing().gate(1).max, config.sizing().partition(1).max), (Some(57), Some(57)));
        let generous = NetworkConfig { floating_buffers: 100, ..NetworkConfig::default() };
        assert_eq!(generous.with_bandwidth_delay(1, 1024).floating_buffers, 100, "nothing is taken away");
    }

    #[test]
    fn what_may_be_in_flight_is_shared_over_the_buffers_of_a_channel_at_least() {
        let config = NetworkConfig::default();
        assert_eq!(config.in_flight_bounds(1, 0, 1024), None);
        let config = NetworkConfig { max_in_flight_time: Some(Duration::from_secs(1)), ..config };
        let shares = |local, remote| config.in_flight_bounds(local, remote, 1024).unwrap().least_buffers;
        assert_eq!((shares(1, 0), shares(0, 1), shares(2, 0), shares(400, 400)), (10, 20, 20, 20));
    }

    #[test]
    fn settings_that_could_never_work_are_refused_by_name() {
        let broken = NetworkConfig { floating_buffers: 0, ..NetworkConfig::default() };
        assert_eq!(broken.validate().unwrap_err().to_string(), "floating_buffers is 0, must be at least 1");
        let broken = NetworkConfig { max_buffers_per_subpartition: 1, ..NetworkConfig::default() };
        assert_eq!(broken.validate().unwrap_err().to_string(), "max_buffers_per_subpartition is 1, must be at least 2");
        let broken = NetworkConfig { handshake_timeout: Duration::ZERO, ..NetworkConfig::default() };
        assert_eq!(broken.validate().unwrap_err().to_string(), "handshake_timeout is 0 s, must be more than zero");
    }
}
