//! Every setting of a job, with its one default.
//!
//! Python reads the defaults from here; no other place repeats them. A
//! [`JobSettings`] is plain data: [`JobSettings::validate`] says what is wrong
//! with it in terms of the setting's own name.

use std::time::Duration;

use flownet_net::TlsError;
use flownet_runtime::spec::FlowControl;
use serde::{Deserialize, Serialize};

use crate::tls::Tls;

/// What a job needs to know besides its dataflow.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct JobSettings {
    /// Name shown in status lines and reports. Default: `"job"`.
    pub job_name: String,
    /// Worker processes to start. Default: 0, everything runs in the calling
    /// process.
    pub workers: u32,
    /// Subtasks of one vertex a worker may run. Default: none, as many as the
    /// parallelism asks for. A job that needs more is refused.
    pub slots_per_worker: Option<u32>,
    /// Bytes of one segment. Default: 32 KiB. Larger segments move more bytes a
    /// frame; every channel and subpartition costs whole segments.
    pub segment_bytes: usize,
    /// Memory of the data plane of one process. Default: 64 MiB. It is a hard
    /// ceiling: a job whose minimum does not fit is refused.
    pub network_memory_bytes: usize,
    /// Buffers every remote channel keeps while it has no data. Default: 2, one
    /// in flight while one is read. Where memory is short, channels keep fewer.
    pub exclusive_buffers: u32,
    /// Buffers a gate lends to whichever of its channels has a backlog.
    /// Default: 8.
    pub floating_buffers: u32,
    /// Bytes that one channel may have on its way: the rate of the longest link
    /// between workers times its round trip. Default: none, links are short and
    /// the buffers above fill them.
    pub bandwidth_delay_bytes: Option<usize>,
    /// What keeps producers from sending more than consumers take, of all
    /// exchanges between workers that do not set their own. Default: credit.
    pub flow_control: FlowControl,
    /// Bytes one input may queue at its receiver. Default: none, what its
    /// exclusive and floating buffers hold. Under credit and TCP in place of
    /// the floating buffers; elsewhere what may be queued before records are
    /// dropped, and what watermarks refer to.
    pub receive_buffer_bytes: Option<usize>,
    /// Bytes one input without bound may queue before the job is stopped.
    /// Default: 1 GiB.
    pub receive_limit_bytes: usize,
    /// Buffers one subpartition may hold before its task counts as
    /// back-pressured. Default: 10, at least 2: with one, a buffer that is
    /// still written would hold up its own task.
    pub max_buffers_per_channel: u32,
    /// Buffers a partition may take beyond its size to finish a record begun.
    /// Default: 5.
    pub max_overdraft_buffers: u32,
    /// Longest time a record waits in a buffer that is not full. Default:
    /// 100 ms. Zero sends each record at once; none sends only full buffers.
    pub buffer_timeout: Option<Duration>,
    /// Time in which a task shall be through with what is in flight to it over
    /// its exchanges under credit, by filling buffers only so far. Default: 1 s.
    /// None: buffers are always filled to their end.
    pub max_in_flight_time: Option<Duration>,
    /// Largest record accepted, in bytes. Default: 64 MiB.
    pub max_record_bytes: usize,
    /// Key groups, and so the largest parallelism the keyed state can ever be
    /// spread over. Default: none, chosen from the parallelism.
    pub max_parallelism: Option<u32>,
    /// How old the counters of running tasks may be. Default: 200 ms.
    pub status_interval: Duration,
    /// How often a worker reports at the latest, and a data connection that
    /// hears nothing asks its peer whether it lives. Default: 1 s.
    pub heartbeat_interval: Duration,
    /// Silence after which a worker is given up, a coordinator by its workers,
    /// and a data connection by its ends. Default: 10 s.
    pub heartbeat_timeout: Duration,
    /// Time the workers have to start, register and deploy. Default: 60 s.
    pub launch_timeout: Duration,
    /// Time cancelled tasks have to end before their process is killed.
    /// Default: 500 ms, so that a job that fails is gone within a second.
    pub cancel_timeout: Duration,
    /// Time in which nothing moves, although records wait, before a job is said
    /// to be stalled. Always 10 s for users of Python; tests are quicker.
    pub stall_patience: Duration,
    /// Which connections between processes are encrypted. Default: those of
    /// jobs whose processes listen on addresses that other machines reach.
    pub tls: Tls,
}

impl Default for JobSettings {
    fn default() -> Self {
        Self {
            job_name: "job".to_owned(),
            workers: 0,
            slots_per_worker: None,
            segment_bytes: flownet_memory::DEFAULT_SEGMENT_BYTES,
            network_memory_bytes: 64 * KIB * KIB,
            exclusive_buffers: 2,
            floating_buffers: 8,
            bandwidth_delay_bytes: None,
            flow_control: FlowControl::Credit,
            receive_buffer_bytes: None,
            receive_limit_bytes: KIB * KIB * KIB,
            max_buffers_per_channel: 10,
            max_overdraft_buffers: 5,
            buffer_timeout: Some(Duration::from_millis(100)),
            max_in_flight_time: Some(Duration::from_secs(1)),
            max_record_bytes: 64 * KIB * KIB,
            max_parallelism: None,
            status_interval: Duration::from_millis(200),
            heartbeat_interval: Duration::from_secs(1),
            heartbeat_timeout: Duration::from_secs(10),
            launch_timeout: Duration::from_secs(60),
            cancel_timeout: Duration::from_millis(500),
            stall_patience: Duration::from_secs(10),
            tls: Tls::Auto,
        }
    }
}

impl JobSettings {
    /// Checks every setting and the pairs that depend on each other.
    ///
    /// # Errors
    /// The first setting found wrong, with its value and what is allowed.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let within = |setting, value: usize, min: usize, max: usize| {
            if (min..=max).contains(&value) {
                return Ok(());
            }
            Err(SettingsError::OutOfRange { setting, value: value as u64, min: min as u64, max: max as u64 })
        };
        within("workers", self.workers as usize, 0, MAX_WORKERS as usize)?;
        if let Some(slots) = self.slots_per_worker {
            within("slots_per_worker", slots as usize, 1, MAX_PARALLELISM as usize)?;
        }
        within("segment_bytes", self.segment_bytes, MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES)?;
        within("network_memory_bytes", self.network_memory_bytes, self.segment_bytes, MAX_NETWORK_MEMORY_BYTES)?;
        within("exclusive_buffers", self.exclusive_buffers as usize, 0, MAX_BUFFERS)?;
        within("floating_buffers", self.floating_buffers as usize, 1, MAX_BUFFERS)?;
        if let Some(bytes) = self.bandwidth_delay_bytes {
            within("bandwidth_delay_bytes", bytes, 1, MAX_NETWORK_MEMORY_BYTES)?;
        }
        if let Some(bytes) = self.receive_buffer_bytes {
            within("receive_buffer_bytes", bytes, 1, MAX_NETWORK_MEMORY_BYTES)?;
        }
        within("receive_limit_bytes", self.receive_limit_bytes, 1, MAX_NETWORK_MEMORY_BYTES)?;
        within("max_buffers_per_channel", self.max_buffers_per_channel as usize, 2, MAX_BUFFERS)?;
        within("max_overdraft_buffers", self.max_overdraft_buffers as usize, 0, MAX_BUFFERS)?;
        within("max_record_bytes", self.max_record_bytes, 1, MAX_RECORD_BYTES)?;
        if let Some(groups) = self.max_parallelism {
            within("max_parallelism", groups as usize, 1, MAX_PARALLELISM as usize)?;
        }
        self.validate_times()
    }

    /// Segments of the data plane of one process.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.network_memory_bytes / self.segment_bytes.max(1)
    }

    fn validate_times(&self) -> Result<(), SettingsError> {
        if let Some(timeout) = self.buffer_timeout {
            bounded("buffer_timeout", timeout, Duration::ZERO)?;
        }
        if let Some(time) = self.max_in_flight_time {
            bounded("max_in_flight_time", time, Duration::from_millis(1))?;
        }
        bounded("status_interval", self.status_interval, Duration::from_millis(1))?;
        bounded("heartbeat_interval", self.heartbeat_interval, Duration::from_millis(1))?;
        bounded("heartbeat_timeout", self.heartbeat_timeout, Duration::from_millis(1))?;
        bounded("launch_timeout", self.launch_timeout, Duration::from_millis(1))?;
        bounded("cancel_timeout", self.cancel_timeout, Duration::from_millis(1))?;
        if self.heartbeat_timeout < self.heartbeat_interval * 2 {
            return Err(SettingsError::HeartbeatTooTight {
                interval: self.heartbeat_interval,
                timeout: self.heartbeat_timeout,
            });
        }
        Ok(())
    }
}

/// A setting that cannot be used, named as the user writes it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A number outside what is allowed.
    #[error("{setting} is {value}, allowed are {min} to {max}")]
    OutOfRange {
        /// Name of the setting.
        setting: &'static str,
        /// What it was set to.
        value: u64,
        /// Smallest value allowed.
        min: u64,
        /// Largest value allowed.
        max: u64,
    },
    /// A time outside what is allowed.
    #[error("{setting} is {value:?}, allowed are {min:?} to {max:?}")]
    TimeOutOfRange {
        /// Name of the setting.
        setting: &'static str,
        /// What it was set to.
        value: Duration,
        /// Shortest time allowed.
        min: Duration,
        /// Longest time allowed.
        max: Duration,
    },
    /// One late report would already count as a lost worker.
    #[error("heartbeat_timeout is {timeout:?}, it must be at least twice heartbeat_interval ({interval:?})")]
    HeartbeatTooTight {
        /// The interval set.
        interval: Duration,
        /// The timeout set.
        timeout: Duration,
    },
    /// Certificates that cannot be used.
    #[error("tls: {0}")]
    Tls(#[from] TlsError),
    /// The workers were opened with another setting than the job asks for.
    #[error("tls is {job}, but the crew of these workers was opened with {crew}: open it with the same")]
    CrewTls {
        /// The setting of the job.
        job: Tls,
        /// That of the crew.
        crew: Tls,
    },
}

fn bounded(setting: &'static str, value: Duration, min: Duration) -> Result<(), SettingsError> {
    if (min..=MAX_TIME).contains(&value) {
        return Ok(());
    }
    Err(SettingsError::TimeOutOfRange { setting, value, min, max: MAX_TIME })
}

/// Largest parallelism of an operator, and so the largest number of key groups.
pub const MAX_PARALLELISM: u32 = 32_768;
const KIB: usize = 1024;
const MAX_WORKERS: u32 = 1024;
const MIN_SEGMENT_BYTES: usize = 256;
/// A payload's length travels as a `u32`; far larger segments only waste memory.
const MAX_SEGMENT_BYTES: usize = 16 * KIB * KIB;
const MAX_NETWORK_MEMORY_BYTES: usize = 1 << 40;
const MAX_BUFFERS: usize = 1 << 20;
/// A record's length travels as a `u32`.
const MAX_RECORD_BYTES: usize = 1 << 31;
/// Longer is a mistake in the unit.
const MAX_TIME: Duration = Duration::from_secs(7 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_give_2048_segments() {
        let settings = JobSettings::default();
        assert_eq!(settings.validate(), Ok(()));
        assert_eq!(settings.segments(), 2048);
    }

    #[test]
    fn a_number_out_of_range_is_named_with_its_limits() {
        let settings = JobSettings { segment_bytes: 0, ..JobSettings::default() };
        let error = settings.validate().expect_err("no segment has zero bytes");
        assert_eq!(error.to_string(), "segment_bytes is 0, allowed are 256 to 16777216");
        let settings = JobSettings { max_parallelism: Some(32_769), ..JobSettings::default() };
        let error = settings.validate().expect_err("more key groups than there are");
        assert_eq!(error.to_string(), "max_parallelism is 32769, allowed are 1 to 32768");
    }

    #[test]
    fn memory_smaller_than_one_segment_is_refused() {
        let settings = JobSettings { network_memory_bytes: 1024, ..JobSettings::default() };
        assert!(matches!(
            settings.validate(),
            Err(SettingsError::OutOfRange { setting: "network_memory_bytes", min: 32_768, .. })
        ));
    }

    #[test]
    fn a_heartbeat_timeout_below_two_intervals_is_refused() {
        let settings = JobSettings { heartbeat_timeout: Duration::from_millis(1500), ..JobSettings::default() };
        assert!(matches!(settings.validate(), Err(SettingsError::HeartbeatTooTight { .. })));
    }

    #[test]
    fn max_in_flight_time_may_be_none_but_not_zero() {
        let valid = |max_in_flight_time| JobSettings { max_in_flight_time, ..JobSettings::default() }.validate();
        assert_eq!((valid(None), valid(Some(Duration::from_millis(1)))), (Ok(()), Ok(())));
        assert!(valid(Some(Duration::ZERO)).is_err());
    }

    #[test]
    fn buffer_timeout_may_be_zero_or_none() {
        for buffer_timeout in [None, Some(Duration::ZERO)] {
            assert_eq!(JobSettings { buffer_timeout, ..JobSettings::default() }.validate(), Ok(()));
        }
    }
}
