//! Defines the kinds of settings and their checks.

use std::time::Duration;

use flownet_runtime::CheckpointMode;
use flownet_runtime::spec::{Codec, FlowControl};
use serde::Serialize;

use super::{SettingsError, StatePlace};
use crate::checkpoint::Restart;
use crate::tls::Tls;

/// Description of a setting for users.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// Name that users write, and that serialised settings use.
    pub name: &'static str,
    /// Kind of its values, with bounds.
    #[serde(flatten)]
    pub kind: SettingKind,
    /// Whether it may be none.
    pub is_optional: bool,
    /// One-line description.
    pub doc: &'static str,
}

/// Kind of a setting's values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SettingKind {
    /// Text that is not empty.
    Text,
    /// Number.
    Number {
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// Number of bytes.
    Size {
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// Time, serialised as microseconds.
    Duration {
        /// Shortest time, in microseconds.
        min: u64,
        /// Longest time, in microseconds.
        max: u64,
    },
    /// One of several words.
    Choice {
        /// Allowed words.
        choices: &'static [&'static str],
    },
    /// Boolean.
    Flag,
    /// Encryption of connections: `auto`, `off`, `on` or a folder.
    Tls,
}

pub(super) const fn number(min: u32, max: u32) -> SettingKind {
    SettingKind::Number { min: min as u64, max: max as u64 }
}

pub(super) const fn size(min: usize, max: usize) -> SettingKind {
    SettingKind::Size { min: min as u64, max: max as u64 }
}

/// Returns a time from `min` to a week: a longer one is most likely a mistake in the unit.
pub(super) const fn duration(min: Duration) -> SettingKind {
    SettingKind::Duration { min: min.as_micros() as u64, max: 7 * 24 * 3600 * 1_000_000 }
}

/// Type of a setting's value.
pub(super) trait SettingValue {
    /// Whether the value may be none.
    const IS_OPTIONAL: bool = false;

    /// Checks the value against the bounds of its setting.
    fn check(&self, setting: &Setting) -> Result<(), SettingsError>;
}

impl<T: SettingValue> SettingValue for Option<T> {
    const IS_OPTIONAL: bool = true;

    fn check(&self, setting: &Setting) -> Result<(), SettingsError> {
        self.as_ref().map_or(Ok(()), |value| value.check(setting))
    }
}

impl SettingValue for u32 {
    fn check(&self, setting: &Setting) -> Result<(), SettingsError> {
        in_range(u64::from(*self), setting)
    }
}

impl SettingValue for usize {
    fn check(&self, setting: &Setting) -> Result<(), SettingsError> {
        in_range(*self as u64, setting)
    }
}

impl SettingValue for Duration {
    fn check(&self, setting: &Setting) -> Result<(), SettingsError> {
        let SettingKind::Duration { min, max } = setting.kind else { return Ok(()) };
        let (min, max) = (Self::from_micros(min), Self::from_micros(max));
        if (min..=max).contains(self) {
            return Ok(());
        }
        Err(SettingsError::TimeOutOfRange { setting: setting.name, value: *self, min, max })
    }
}

impl SettingValue for String {
    fn check(&self, setting: &Setting) -> Result<(), SettingsError> {
        if self.trim().is_empty() { Err(SettingsError::Empty { setting: setting.name }) } else { Ok(()) }
    }
}

/// Implements the trait for types whose values are all allowed.
macro_rules! always_valid {
    ($($type:ty),+) => {
        $(impl SettingValue for $type {
            fn check(&self, _: &Setting) -> Result<(), SettingsError> {
                Ok(())
            }
        })+
    };
}

always_valid!(bool, CheckpointMode, Codec, FlowControl, Restart, StatePlace, Tls);

fn in_range(value: u64, setting: &Setting) -> Result<(), SettingsError> {
    match setting.kind {
        SettingKind::Number { min, max } | SettingKind::Size { min, max } if !(min..=max).contains(&value) => {
            Err(SettingsError::OutOfRange { setting: setting.name, value, min, max })
        }
        _ => Ok(()),
    }
}

/// Serialises times as whole microseconds.
pub(super) mod micros {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in super::super) trait Micros: Sized {
        type Number: Serialize + for<'de> Deserialize<'de>;
        fn to_micros(&self) -> Self::Number;
        fn from_micros(number: Self::Number) -> Self;
    }

    impl Micros for Duration {
        type Number = u64;

        fn to_micros(&self) -> u64 {
            u64::try_from(self.as_micros()).unwrap_or(u64::MAX)
        }

        fn from_micros(number: u64) -> Self {
            Self::from_micros(number)
        }
    }

    impl Micros for Option<Duration> {
        type Number = Option<u64>;

        fn to_micros(&self) -> Option<u64> {
            self.as_ref().map(Micros::to_micros)
        }

        fn from_micros(number: Option<u64>) -> Self {
            number.map(Duration::from_micros)
        }
    }

    pub(in super::super) fn serialize<S: Serializer, T: Micros>(time: &T, serializer: S) -> Result<S::Ok, S::Error> {
        time.to_micros().serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>, T: Micros>(deserializer: D) -> Result<T, D::Error> {
        T::Number::deserialize(deserializer).map(T::from_micros)
    }
}
