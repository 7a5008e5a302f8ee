//! What is to be measured.

use std::time::Duration;

use flownet_core::channel::ChannelControl;
use flownet_memory::{DEFAULT_SEGMENT_BYTES, KIB};
use flownet_net::{Certificates, Credentials, CredentialsError, NetworkConfig, Secret};
use serde::{Deserialize, Serialize};

use crate::error::BenchError;

/// To which channel of its writer a record goes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Partitioner {
    /// All in turn.
    Rr,
    /// The owner of the key group of the record's value.
    Hash,
    /// All of them: a record is delivered once a channel.
    Broadcast,
    /// Each channel once, then the first for ever.
    Skewed,
}

/// What holds a sender back.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowControl {
    /// Credit, channel by channel.
    #[default]
    Credit,
    /// TCP alone: a buffer that finds no place stops all channels of the connection.
    Tcp,
}

/// Network memory of each side, and what bounds its use. The defaults are those of a job, but for the size, which is made to fit.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkSpec {
    /// Bytes of network memory of each side. `None`: as much as the pools would use at most, and no less than the
    /// 64 MiB a worker has by default.
    pub network_memory_bytes: Option<usize>,
    /// Bytes of one segment.
    pub segment_bytes: usize,
    /// Buffers each channel owns outright.
    pub exclusive_buffers: u32,
    /// Buffers the channels of the gate share.
    pub floating_buffers: u32,
    /// What holds the sender back.
    pub flow_control: FlowControl,
    /// Whether the connection is encrypted. The raw twin's never is.
    pub tls: bool,
}

/// A throughput bench. Records carry their number in their first 8 bytes; the receiver adds them up.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExchangeSpec {
    /// Writing tasks: threads of the sending process, each with a partition of its own.
    pub writers: u32,
    /// Subpartitions of each writer, and so its channels. One thread reads all `writers * channels` of them.
    pub channels: u32,
    /// With [`Partitioner::Rr`]: the channels of each writer that get records; the others stay idle. `None`: all.
    pub active_channels: Option<u32>,
    /// How long a record may wait for its buffer to fill. 0: sent at once; `None`: only full buffers are sent.
    pub buffer_timeout_us: Option<u64>,
    /// Bytes of one record, without the length in front of it.
    pub record_bytes: usize,
    /// Records that all writers together emit. `None`: as many as make about 2.4 GB on the wire.
    pub records: Option<u64>,
    /// Where they go.
    pub partitioner: Partitioner,
    /// Both ends in one process, through local channels: no socket, no credit, no copy.
    pub local: bool,
    /// Network memory.
    pub network: NetworkSpec,
}

/// A latency bench. Records carry the time at which they were emitted.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct LatencySpec {
    /// Records emitted a second. 0 measures what an idle exchange costs.
    pub rate: f64,
    /// Channels they go to in turn.
    pub channels: u32,
    /// As [`ExchangeSpec::buffer_timeout_us`].
    pub buffer_timeout_us: Option<u64>,
    /// Bytes of one record.
    pub record_bytes: usize,
    /// How long records are sent. Those of the first tenth are not counted: threads, caches and timers warm up.
    pub seconds: f64,
    /// Network memory.
    pub network: NetworkSpec,
}

impl Default for NetworkSpec {
    fn default() -> Self {
        let NetworkConfig { exclusive_buffers, floating_buffers, .. } = NetworkConfig::default();
        Self {
            network_memory_bytes: None,
            segment_bytes: DEFAULT_SEGMENT_BYTES,
            exclusive_buffers,
            floating_buffers,
            flow_control: FlowControl::Credit,
            tls: false,
        }
    }
}

impl Default for ExchangeSpec {
    fn default() -> Self {
        Self {
            writers: 1,
            channels: 1,
            active_channels: None,
            buffer_timeout_us: Some(100_000),
            record_bytes: 8,
            records: None,
            partitioner: Partitioner::Rr,
            local: false,
            network: NetworkSpec::default(),
        }
    }
}

impl Default for LatencySpec {
    fn default() -> Self {
        Self {
            rate: 1000.0,
            channels: 1,
            buffer_timeout_us: Some(0),
            record_bytes: 8,
            seconds: 10.0,
            network: NetworkSpec::default(),
        }
    }
}

impl ExchangeSpec {
    /// Checks every setting and those that depend on each other.
    pub fn validate(&self) -> Result<(), BenchError> {
        within("writers", self.writers.into(), 1, MAX_WRITERS)?;
        within("channels", self.channels.into(), 1, MAX_CHANNELS)?;
        within("writers * channels", self.all_channels(), 1, MAX_ALL_CHANNELS)?;
        within("record-bytes", self.record_bytes as u64, 8, MAX_RECORD_BYTES)?;
        within("records", self.emitted(), 1, u64::MAX >> 16)?;
        if let Some(active) = self.active_channels {
            within("active", active.into(), 1, self.channels.into())?;
            if self.partitioner != Partitioner::Rr {
                return Err(BenchError::invalid("active", active, "given with partitioner rr only"));
            }
        }
        self.network.validate()
    }

    /// Records that all writers together emit.
    #[must_use]
    pub fn emitted(&self) -> u64 {
        let bytes = self.record_bytes as u64 + LENGTH_BYTES;
        self.records.unwrap_or_else(|| (DEFAULT_WIRE_BYTES / bytes / self.copies()).max(1))
    }

    /// Records that arrive: a broadcast record counts once a channel.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.emitted().saturating_mul(self.copies())
    }

    /// Channels of all writers.
    #[must_use]
    pub fn all_channels(&self) -> u64 {
        u64::from(self.writers) * u64::from(self.channels)
    }

    /// Sum of the values of all records that arrive, modulo 2^64.
    #[must_use]
    pub(crate) fn expected_sum(&self) -> u64 {
        sum_below(self.emitted()).wrapping_mul(self.copies())
    }

    /// The values that one writer emits; together they are `0..emitted()`.
    pub(crate) fn share(&self, writer: u32) -> std::ops::Range<u64> {
        let (emitted, writers) = (self.emitted(), u64::from(self.writers));
        let start = |writer: u64| emitted / writers * writer + (emitted % writers).min(writer);
        start(writer.into())..start(u64::from(writer) + 1)
    }

    /// How long a record may wait.
    pub(crate) fn buffer_timeout(&self) -> Option<Duration> {
        self.buffer_timeout_us.map(Duration::from_micros)
    }

    fn copies(&self) -> u64 {
        if self.partitioner == Partitioner::Broadcast { self.channels.into() } else { 1 }
    }
}

impl LatencySpec {
    /// Checks every setting.
    pub fn validate(&self) -> Result<(), BenchError> {
        let number = |setting, value: f64, min: f64, max: f64| {
            if (min..=max).contains(&value) {
                return Ok(());
            }
            Err(BenchError::invalid(setting, value, format!("{min} to {max}")))
        };
        number("rate", self.rate, 0.0, 1e7)?;
        number("seconds", self.seconds, 0.05, 3600.0)?;
        within("channels", self.channels.into(), 1, MAX_CHANNELS)?;
        within("record-bytes", self.record_bytes as u64, 8, MAX_RECORD_BYTES)?;
        self.network.validate()
    }

    /// Records sent.
    #[must_use]
    pub fn records(&self) -> u64 {
        (self.rate * self.seconds) as u64
    }

    /// The exchange it runs over.
    pub(crate) fn exchange(&self) -> ExchangeSpec {
        ExchangeSpec {
            channels: self.channels,
            buffer_timeout_us: self.buffer_timeout_us,
            record_bytes: self.record_bytes,
            records: Some(self.records()),
            network: self.network.clone(),
            ..ExchangeSpec::default()
        }
    }

    /// What is not counted, from the first record on.
    pub(crate) fn warm_up(&self) -> Duration {
        Duration::from_secs_f64(self.seconds / 10.0)
    }

    /// How long it takes.
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

impl NetworkSpec {
    fn validate(&self) -> Result<(), BenchError> {
        within("segment-size", self.segment_bytes as u64, 256, MAX_SEGMENT_BYTES)?;
        within("exclusive-buffers", self.exclusive_buffers.into(), 0, 1 << 20)?;
        within("floating-buffers", self.floating_buffers.into(), 1, 1 << 20)?;
        match self.network_memory_bytes {
            Some(bytes) => within("network-memory", bytes as u64, self.segment_bytes as u64, 1 << 40),
            None => Ok(()),
        }
    }

    /// Settings of the network of either side.
    pub(crate) fn config(&self) -> NetworkConfig {
        let Self { exclusive_buffers, floating_buffers, .. } = *self;
        NetworkConfig { exclusive_buffers, floating_buffers, ..NetworkConfig::default() }
    }

    /// What both sides prove themselves with.
    pub(crate) fn credentials(&self) -> Result<Credentials, BenchError> {
        let secret = Secret::generate().map_err(CredentialsError::from)?;
        if !self.tls {
            return Ok(secret.into());
        }
        let encrypted = Certificates::generate().and_then(|certificates| Credentials::with_tls(secret, certificates));
        Ok(encrypted.map_err(CredentialsError::from)?)
    }

    /// What the channels are told of it.
    pub(crate) fn control(&self) -> ChannelControl {
        match self.flow_control {
            FlowControl::Credit => ChannelControl::Credit,
            FlowControl::Tcp => ChannelControl::Tcp { exchange: 0 },
        }
    }

    /// Segments of a side whose pools use `wanted` of them at most.
    pub(crate) fn segments(&self, wanted: usize) -> usize {
        let by_default = DEFAULT_NETWORK_BYTES / self.segment_bytes;
        self.network_memory_bytes.map_or(wanted.max(by_default), |bytes| bytes / self.segment_bytes)
    }
}

/// The configurations of Flink's own network benchmarks (flink-benchmarks, `StreamNetworkThroughputBenchmark` and its
/// kin), with one writer and one channel in front to compare them with. What `base` says of record size and memory holds
/// for all of them, and so do its records, as the number that arrive: a broadcast emits that many less.
#[must_use]
pub fn flink_grid(base: &ExchangeSpec) -> Vec<ExchangeSpec> {
    use Partitioner::{Broadcast, Rr, Skewed};
    let rows = [
        (1, 1, 100_u64, Rr),
        (4, 100, 100, Rr),
        (4, 1000, 1, Rr),
        (4, 1000, 100, Rr),
        (10, 1000, 1, Skewed),
        (4, 100, 100, Broadcast),
    ];
    let spec = |(writers, channels, timeout_ms, partitioner)| ExchangeSpec {
        writers,
        channels,
        active_channels: None,
        buffer_timeout_us: Some(timeout_ms * 1000),
        records: match partitioner {
            Broadcast => base.records.map(|records| (records / u64::from(channels)).max(1)),
            _ => base.records,
        },
        partitioner,
        ..base.clone()
    };
    rows.into_iter().map(spec).collect()
}

/// The sum of `0..count`, modulo 2^64, as a receiver that adds up gets it.
pub(crate) fn sum_below(count: u64) -> u64 {
    let count = u128::from(count);
    (count * count.saturating_sub(1) / 2) as u64
}

fn within(setting: &'static str, value: u64, min: u64, max: u64) -> Result<(), BenchError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(BenchError::invalid(setting, value, format!("{min} to {max}")))
}

/// The length in front of a record, on either wire.
pub(crate) const LENGTH_BYTES: u64 = 4;
/// A run then takes seconds, the twin's too: shorter ones can escape the throttling that a longer one meets.
const DEFAULT_WIRE_BYTES: u64 = 2_400_000_000;
const DEFAULT_NETWORK_BYTES: usize = 64 * KIB * KIB;
const MAX_WRITERS: u64 = 1024;
const MAX_CHANNELS: u64 = 32_768;
const MAX_ALL_CHANNELS: u64 = 1 << 18;
const MAX_RECORD_BYTES: u64 = 64 << 20;
const MAX_SEGMENT_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_all_writers_are_every_record_once() {
        for (writers, records) in [(1, 10), (3, 10), (4, 3), (7, 1000)] {
            let spec = ExchangeSpec { writers, records: Some(records), ..ExchangeSpec::default() };
            let values: Vec<u64> = (0..writers).flat_map(|writer| spec.share(writer)).collect();
            assert_eq!(values, (0..records).collect::<Vec<u64>>());
            assert_eq!(spec.expected_sum(), values.into_iter().sum::<u64>());
        }
    }

    #[test]
    fn a_broadcast_record_is_delivered_and_summed_once_a_channel() {
        let spec = ExchangeSpec {
            channels: 3,
            records: Some(10),
            partitioner: Partitioner::Broadcast,
            ..ExchangeSpec::default()
        };
        assert_eq!((spec.emitted(), spec.delivered(), spec.expected_sum()), (10, 30, 3 * 45));
    }

    #[test]
    fn the_sum_wraps_as_the_receivers_does() {
        let spec = ExchangeSpec { records: Some(u64::MAX >> 16), ..ExchangeSpec::default() };
        let n = u128::from(u64::MAX >> 16);
        assert_eq!(u128::from(spec.expected_sum()), (n * (n - 1) / 2) % (1 << 64));
    }

    #[test]
    fn what_cannot_be_measured_is_refused_by_name() {
        let refused = |spec: ExchangeSpec| spec.validate().expect_err("not a bench").to_string();
        let base = ExchangeSpec::default;
        assert_eq!(base().validate().map_err(|error| error.to_string()), Ok(()));
        assert_eq!(refused(ExchangeSpec { writers: 0, ..base() }), "writers is 0, allowed is 1 to 1024");
        assert_eq!(refused(ExchangeSpec { record_bytes: 7, ..base() }), "record-bytes is 7, allowed is 8 to 67108864");
        assert_eq!(refused(ExchangeSpec { active_channels: Some(2), ..base() }), "active is 2, allowed is 1 to 1");
        let active = ExchangeSpec { active_channels: Some(1), partitioner: Partitioner::Hash, ..base() };
        assert_eq!(refused(active), "active is 1, allowed is given with partitioner rr only");
        let spec = LatencySpec { rate: f64::NAN, ..LatencySpec::default() };
        assert_eq!(spec.validate().expect_err("no rate").to_string(), "rate is NaN, allowed is 0 to 10000000");
    }

    #[test]
    fn the_grid_keeps_what_it_does_not_set() {
        let base = ExchangeSpec { records: Some(500), record_bytes: 64, ..ExchangeSpec::default() };
        let grid = flink_grid(&base);
        assert_eq!(grid.len(), 6);
        for spec in grid {
            assert_eq!((spec.delivered(), spec.record_bytes), (500, 64), "{spec:?}");
            spec.validate().unwrap();
        }
    }
}
