//! Declares every setting of a job once: name, type, default, bounds and meaning.
//!
//! Everything that Python users see of settings comes from [`JobSettings::TABLE`]; no other place repeats any of it. A
//! [`JobSettings`] is plain data. [`JobSettings::validate`] reports errors by the name of the setting.

mod error;
mod kind;
mod state;

use std::time::Duration;

use flownet_net::NetworkConfig;
use flownet_runtime::CheckpointMode;
use flownet_runtime::spec::{Codec, FlowControl};
use serde::{Deserialize, Serialize};

pub use self::error::SettingsError;
pub use self::kind::{Setting, SettingKind};
use self::kind::{SettingValue, duration, micros, number, size};
pub use self::state::StatePlace;
use crate::checkpoint::Restart;
use crate::tls::Tls;

/// Declares the settings: `"name" field: type = default, kind, "what it does"`. Docs above a setting say more than its line.
macro_rules! settings {
    ($($(#[$more:meta])* $name:literal $field:ident: $type:ty = $default:expr, $kind:expr, $doc:literal;)+) => {
        /// What a job needs to know besides its dataflow.
        #[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct JobSettings {
            $(
                #[doc = concat!("`", $name, "`: ", $doc, ".")]
                ///
                $(#[$more])*
                #[serde(rename = $name)]
                pub $field: $type,
            )+
            /// Time in which nothing moves, although records wait, before a job is said to be stalled. Always 10 s for users;
            /// tests are quicker.
            #[serde(with = "micros")]
            pub stall_patience: Duration,
        }

        impl Default for JobSettings {
            fn default() -> Self {
                Self { $($field: $default,)+ stall_patience: Duration::from_secs(10) }
            }
        }

        impl JobSettings {
            /// The settings that users have, in the order in which they are shown.
            pub const TABLE: &[Setting] = &[$(
                Setting { name: $name, kind: $kind, is_optional: <$type as SettingValue>::IS_OPTIONAL, doc: $doc },
            )+];

            /// Holds each setting against its own bounds.
            fn check_each(&self) -> Result<(), SettingsError> {
                let mut table = Self::TABLE.iter();
                $(table.next().map_or(Ok(()), |setting| self.$field.check(setting))?;)+
                Ok(())
            }
        }
    };
}

settings! {
    "workers" workers: u32 = 0, number(0, MAX_WORKERS),
        "number of worker processes; 0 runs all subtasks in this process";
    /// Whoever writes the dataflow fills it in.
    "parallelism" parallelism: u32 = 1, number(1, MAX_PARALLELISM),
        "number of subtasks of each operator that does not set its own";
    #[serde(with = "micros")]
    "buffer_timeout" buffer_timeout: Option<Duration> = Some(Duration::from_millis(100)), duration(Duration::ZERO),
        "longest wait of a record for its buffer to fill";
    /// One exchange at a time, under credit, by filling buffers only so far.
    #[serde(with = "micros")]
    "max_in_flight_time" max_in_flight_time: Option<Duration> = Some(Duration::from_secs(1)), duration(MILLISECOND),
        "longest time that an operator needs for its queued input";
    /// A hard ceiling: a job whose minimum does not fit is refused. None: see [`JobSettings::segments`].
    "network_memory" network_memory_bytes: Option<usize> = None, size(MIN_SEGMENT_BYTES, MAX_MEMORY_BYTES),
        "limit of a worker's memory for buffers";
    /// Larger segments move more bytes a frame; every channel and subpartition costs whole segments. A payload's length
    /// travels as a `u32`; far larger segments only waste memory.
    "segment_size" segment_bytes: usize = flownet_memory::DEFAULT_SEGMENT_BYTES, size(MIN_SEGMENT_BYTES, 16 * MIB),
        "size of a buffer";
    /// One in flight while one is read. Where memory is short, channels keep fewer.
    "exclusive_buffers" exclusive_buffers: u32 = NetworkConfig::default().exclusive_buffers, number(0, MAX_BUFFERS),
        "buffers reserved for each channel between workers, if memory allows";
    /// Lent to whichever of the channels has a backlog.
    "floating_buffers" floating_buffers: u32 = NetworkConfig::default().floating_buffers, number(1, MAX_BUFFERS),
        "buffers that the channels of one input share";
    /// None: links are short and the buffers above fill them.
    "bandwidth_delay" bandwidth_delay_bytes: Option<usize> = None, size(1, MAX_MEMORY_BYTES),
        "bytes in flight per channel on a long link";
    /// Of all exchanges between workers that do not set their own.
    "flow_control" flow_control: FlowControl = FlowControl::Credit, SettingKind::Choice { choices: &FlowControl::NAMES },
        "`credit`, `tcp`, `storm`, `pid`, `drop` or `unbounded`";
    /// Under credit and TCP in place of the floating buffers; elsewhere what may be queued before records are dropped, and
    /// what watermarks refer to.
    "receive_buffer" receive_buffer_bytes: Option<usize> = None, size(1, MAX_MEMORY_BYTES),
        "bytes that one input may queue";
    "receive_limit" receive_limit_bytes: usize = NetworkConfig::default().receive_bounds.limit_bytes,
        size(1, MAX_MEMORY_BYTES),
        "most bytes that an unbounded input may queue";
    /// A record's length travels as a `u32`.
    "max_record_size" max_record_bytes: usize = 64 * MIB, size(1, 1 << 31),
        "size of the largest record";
    "codec" codec: Codec = Codec::Typed, SettingKind::Choice { choices: &Codec::NAMES },
        "`typed`, or `pickle` for any type, which is slower";
    /// Also for functions and objects of the user where there are no workers.
    "object_reuse" object_reuse: bool = false, SettingKind::Flag,
        "pass objects without a copy; no function may change or store them";
    /// The largest parallelism that keyed state can ever be spread over.
    "max_parallelism" max_parallelism: Option<u32> = None, number(1, MAX_PARALLELISM),
        "number of key groups: the largest parallelism of keyed state";
    /// A job that needs more is refused.
    "slots_per_worker" slots_per_worker: Option<u32> = None, number(1, MAX_PARALLELISM),
        "most subtasks of one operator in a worker";
    #[serde(with = "micros")]
    "status_interval" status_interval: Duration = Duration::from_millis(200), duration(MILLISECOND),
        "interval of status reports of a running job";
    /// None: no source emits any, and what they cost is nothing.
    #[serde(with = "micros")]
    "latency_interval" latency_interval: Option<Duration> = None, duration(MILLISECOND),
        "interval of latency markers, which measure the time from sources to tasks";
    #[serde(with = "micros")]
    "heartbeat_interval" heartbeat_interval: Duration = NetworkConfig::default().heartbeat_interval, duration(MILLISECOND),
        "interval of heartbeats of workers and idle connections";
    /// Of a worker, of a coordinator to its workers, and of a data connection to its ends.
    #[serde(with = "micros")]
    "heartbeat_timeout" heartbeat_timeout: Duration = NetworkConfig::default().heartbeat_timeout, duration(MILLISECOND),
        "longest silence of a worker or connection before the job fails";
    /// Until all have registered and deployed.
    #[serde(with = "micros")]
    "launch_timeout" launch_timeout: Duration = Duration::from_secs(60), duration(MILLISECOND),
        "longest time for workers to start";
    /// Short, so that a job that fails is gone within a second.
    #[serde(with = "micros")]
    "cancel_timeout" cancel_timeout: Duration = Duration::from_millis(500), duration(MILLISECOND),
        "time that functions have to return when the job ends early";
    #[serde(with = "micros")]
    "stop_timeout" stop_timeout: Duration = Duration::from_secs(10), duration(MILLISECOND),
        "longest time for a stop, before flownet cancels the job";
    /// None: no checkpoints, and what they cost is nothing.
    #[serde(with = "micros")]
    "checkpoint_interval" checkpoint_interval: Option<Duration> = None, duration(MILLISECOND),
        "interval of checkpoints; `none`: no checkpoints";
    /// A path or `file:///...`; each job has a folder of its own.
    "checkpoint_storage" checkpoint_storage: Option<String> = None, SettingKind::Text,
        "folder of the checkpoints; a job resumes from the last one";
    "checkpoint_mode" checkpoint_mode: CheckpointMode = CheckpointMode::ExactlyOnce,
        SettingKind::Choice { choices: &CHECKPOINT_MODES },
        "`exactly_once`, or `at_least_once` without alignment of inputs";
    /// Only with `exactly_once`. Savepoints are aligned always.
    "checkpoint_unaligned" checkpoint_unaligned: bool = false, SettingKind::Flag,
        "let barriers overtake queued records, which become part of the checkpoint";
    /// From its trigger. Zero: at once.
    #[serde(with = "micros")]
    "checkpoint_aligned_timeout" checkpoint_aligned_timeout: Option<Duration> = None, duration(Duration::ZERO),
        "time after which barriers of a checkpoint overtake queued records";
    #[serde(with = "micros")]
    "checkpoint_timeout" checkpoint_timeout: Duration = Duration::from_secs(600), duration(MILLISECOND),
        "longest time of a checkpoint before it counts as failed";
    #[serde(with = "micros")]
    "checkpoint_min_pause" checkpoint_min_pause: Duration = Duration::ZERO, duration(Duration::ZERO),
        "shortest pause between two checkpoints";
    "tolerable_failed_checkpoints" tolerable_failed_checkpoints: u32 = 0, number(0, MAX_BUFFERS),
        "checkpoints in a row that may fail before the job does";
    "retained_checkpoints" retained_checkpoints: u32 = 1, number(1, MAX_BUFFERS),
        "number of completed checkpoints to keep";
    "allow_non_replayable" allow_non_replayable: bool = false, SettingKind::Flag,
        "accept sources that cannot replay records; a failure loses some of them";
    /// The same command again goes on from the checkpoints that came after.
    "restore_from" restore_from: Option<String> = None, SettingKind::Text,
        "savepoint or folder of checkpoints from which a new job starts";
    /// An older one, if the last is damaged or has come to something unwanted.
    "restore_checkpoint" restore_checkpoint: Option<u32> = None, number(1, u32::MAX),
        "with `restore_from`: number of the checkpoint; `none`: the last one";
    "allow_non_restored_state" allow_non_restored_state: bool = false, SettingKind::Flag,
        "discard restored state of operators that the dataflow no longer has";
    /// State on disk goes on from a checkpoint of state in memory, and the other way.
    "state_backend" state_backend: StatePlace = StatePlace::Auto, SettingKind::Choice { choices: &StatePlace::NAMES },
        "`memory`, `disk` for state beyond `state_memory`, or `auto`";
    /// Dealt out evenly to the subtasks that keep such state, on each worker.
    "state_memory" state_memory_bytes: usize = 512 * MIB, size(KIB, MAX_MEMORY_BYTES),
        "memory of a worker for state, if the rest is on disk";
    "state_dir" state_dir: Option<String> = None, SettingKind::Text,
        "folder for state on disk; `none`: the folder for temporary files";
    "restart" restart: Restart = Restart::Auto, SettingKind::Text,
        "`none`, `exponential`, `fixed:ATTEMPTS:DELAY`, `rate:FAILURES:INTERVAL:DELAY` or `auto`";
    "tls" tls: Tls = Tls::Auto, SettingKind::Tls,
        "`off`, `on`, `auto`, or a folder of your own certificates";
    "name" job_name: String = "job".to_owned(), SettingKind::Text,
        "name of the job";
}

impl JobSettings {
    /// Checks every setting and the pairs that depend on each other.
    ///
    /// # Errors
    /// The first setting found wrong, with its value and what is allowed.
    pub fn validate(&self) -> Result<(), SettingsError> {
        self.check_each()?;
        if let Some(bytes) = self.network_memory_bytes.filter(|bytes| *bytes < self.segment_bytes) {
            return Err(SettingsError::OutOfRange {
                setting: "network_memory",
                value: bytes as u64,
                min: self.segment_bytes as u64,
                max: MAX_MEMORY_BYTES as u64,
            });
        }
        if self.heartbeat_timeout < self.heartbeat_interval * 2 {
            return Err(SettingsError::HeartbeatTooTight {
                interval: self.heartbeat_interval,
                timeout: self.heartbeat_timeout,
            });
        }
        if self.checkpoint_interval.is_some() && self.checkpoint_storage.is_none() {
            return Err(SettingsError::NoStorage);
        }
        if self.overtakes() && self.checkpoint_mode == CheckpointMode::AtLeastOnce {
            let set = if self.checkpoint_unaligned { "checkpoint_unaligned" } else { "checkpoint_aligned_timeout" };
            return Err(SettingsError::UnalignedAtLeastOnce { set });
        }
        if let Some(aligned) = self.checkpoint_aligned_timeout.filter(|aligned| *aligned >= self.checkpoint_timeout) {
            return Err(SettingsError::AlignedTooLong { aligned, timeout: self.checkpoint_timeout });
        }
        if self.restore_from.is_some() && self.checkpoint_interval.is_none() {
            return Err(SettingsError::NoCheckpoints);
        }
        if self.restore_checkpoint.is_some() && self.restore_from.is_none() {
            return Err(SettingsError::NoRestoreFrom);
        }
        Ok(())
    }

    /// Whether checkpoints overtake what is queued, at once or when they have taken too long.
    #[must_use]
    pub fn overtakes(&self) -> bool {
        self.checkpoint_unaligned || self.checkpoint_aligned_timeout.is_some()
    }

    /// Segments of the data plane of one process whose tasks cannot move with fewer than `needed`.
    ///
    /// A limit that the user has set holds, whatever the tasks need. Without one the plan decides before the job starts.
    #[must_use]
    pub fn segments(&self, needed: usize) -> usize {
        let segment_bytes = self.segment_bytes.max(1);
        match self.network_memory_bytes {
            Some(bytes) => bytes / segment_bytes,
            None => (LEAST_NETWORK_MEMORY_BYTES / segment_bytes).max(needed),
        }
    }
}

/// Largest parallelism of an operator, and so the largest number of key groups.
pub const MAX_PARALLELISM: u32 = 32_768;
pub(crate) const MAX_WORKERS: u32 = 1024;
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const MIN_SEGMENT_BYTES: usize = 256;
/// Of a worker, unless the user has set a limit.
const LEAST_NETWORK_MEMORY_BYTES: usize = 64 * MIB;
const MAX_MEMORY_BYTES: usize = 1 << 40;
const MAX_BUFFERS: u32 = 1 << 20;
/// How users write [`CheckpointMode`].
const CHECKPOINT_MODES: [&str; 2] = ["exactly_once", "at_least_once"];
const MILLISECOND: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_give_2048_segments() {
        let settings = JobSettings::default();
        assert_eq!(settings.validate(), Ok(()));
        assert_eq!((settings.segments(0), settings.segments(2048)), (2048, 2048));
    }

    #[test]
    fn segments_follow_the_need_unless_a_limit_is_set() {
        let settings = JobSettings::default();
        assert_eq!((settings.segments(2049), settings.segments(100_000)), (2049, 100_000));
        let limited = JobSettings { network_memory_bytes: Some(64 * MIB), ..settings };
        assert_eq!((limited.segments(0), limited.segments(2049)), (2048, 2048));
        let largest = JobSettings { segment_bytes: 16 * MIB, ..JobSettings::default() };
        assert_eq!((largest.segments(0), largest.segments(5)), (4, 5));
    }

    #[test]
    fn a_number_out_of_range_is_named_with_its_limits() {
        let settings = JobSettings { segment_bytes: 0, ..JobSettings::default() };
        let error = settings.validate().expect_err("no segment has zero bytes");
        assert_eq!(error.to_string(), "segment_size is 0, allowed are 256 to 16777216");
        let settings = JobSettings { max_parallelism: Some(32_769), ..JobSettings::default() };
        let error = settings.validate().expect_err("more key groups than there are");
        assert_eq!(error.to_string(), "max_parallelism is 32769, allowed are 1 to 32768");
    }

    #[test]
    fn memory_smaller_than_one_segment_is_refused() {
        let settings = JobSettings { network_memory_bytes: Some(1024), ..JobSettings::default() };
        assert!(matches!(
            settings.validate(),
            Err(SettingsError::OutOfRange { setting: "network_memory", min: 32_768, .. })
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
