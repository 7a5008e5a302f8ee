//! What follows the end of an attempt.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use flownet_runtime::RootCause;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::repeated::{FailuresWithoutProgress, RepeatedFailure};

/// How often, and after how long, a job that failed is started again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Restart {
    /// With checkpoints as [`Exponential`](Self::Exponential), until an error of the program or its data repeats without
    /// progress. Without checkpoints as [`None`](Self::None).
    #[default]
    Auto,
    /// Never.
    None,
    /// After 1 s, then each time 1.5 times as long, up to a minute; anew from 1 s when it has run for an hour. Up to a
    /// tenth longer or shorter, so that jobs that fail together do not come back together.
    Exponential,
    /// So often at most.
    Fixed {
        /// Restarts altogether.
        attempts: u32,
        /// Before each.
        delay: Duration,
    },
    /// So often within some time.
    Rate {
        /// Failures that are followed by a restart.
        failures: u32,
        /// Within this time.
        interval: Duration,
        /// Before each.
        delay: Duration,
    },
}

const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(60);
const STEADY: Duration = Duration::from_secs(3600);
const GROWTH: f64 = 1.5;
const JITTER: f64 = 0.1;

/// The row of attempts of one job.
#[derive(Debug)]
pub(crate) struct Supervisor {
    restart: Restart,
    /// When attempts failed and were followed by another.
    failures: Vec<Duration>,
    delay: Duration,
    began: Duration,
    rng: fastrand::Rng,
    /// Failures without progress, if these are judged.
    without_progress: Option<FailuresWithoutProgress>,
    /// Why there is no restart any more.
    gave_up: Option<RepeatedFailure>,
}

impl Supervisor {
    /// For a job whose first attempt begins now.
    pub(crate) fn new(restart: &Restart, has_checkpoints: bool, seed: u64) -> Self {
        let without_progress = (*restart == Restart::Auto).then(FailuresWithoutProgress::default);
        let restart = match restart {
            Restart::Auto if has_checkpoints => Restart::Exponential,
            Restart::Auto => Restart::None,
            chosen => chosen.clone(),
        };
        let rng = fastrand::Rng::with_seed(seed);
        let (failures, began) = (Vec::new(), Duration::ZERO);
        Self { restart, failures, delay: FIRST_DELAY, began, rng, without_progress, gave_up: None }
    }

    /// Whether an attempt that failed now would be followed by another.
    pub(crate) fn would_restart(&self, now: Duration) -> bool {
        match &self.restart {
            Restart::Auto | Restart::None => false,
            Restart::Exponential => true,
            Restart::Fixed { attempts, .. } => self.failures.len() < *attempts as usize,
            Restart::Rate { failures, interval, .. } => self.lately(*interval, now) < *failures as usize,
        }
    }

    /// An attempt has failed while `checkpoint` counts last: how long to wait before the next; none if there is to be none.
    pub(crate) fn failed(
        &mut self,
        now: Duration,
        root_cause: Option<RootCause>,
        checkpoint: Option<u64>,
    ) -> Option<Duration> {
        if !self.would_restart(now) {
            return None;
        }
        if let Some(failures) = &mut self.without_progress {
            self.gave_up = failures.count(root_cause, checkpoint);
        }
        if self.gave_up.is_some() {
            return None;
        }
        self.failures.push(now);
        Some(match &self.restart {
            Restart::Fixed { delay, .. } | Restart::Rate { delay, .. } => *delay,
            _ => {
                if now.saturating_sub(self.began) >= STEADY {
                    self.delay = FIRST_DELAY;
                }
                let delay = self.delay.mul_f64(1.0 + JITTER * (2.0 * self.rng.f64() - 1.0));
                self.delay = self.delay.mul_f64(GROWTH).min(LONGEST_DELAY);
                delay
            }
        })
    }

    /// The failure that it gave up on because it repeated.
    pub(crate) fn gave_up(&self) -> Option<RepeatedFailure> {
        self.gave_up
    }

    /// Another attempt begins.
    pub(crate) fn begins(&mut self, now: Duration) {
        self.began = now;
    }

    fn lately(&self, interval: Duration, now: Duration) -> usize {
        self.failures.iter().filter(|at| now.saturating_sub(**at) < interval).count()
    }
}

impl fmt::Display for Restart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |time: &Duration| match time.as_micros() {
            us if us % 1_000_000 == 0 => format!("{}s", us / 1_000_000),
            us if us % 1_000 == 0 => format!("{}ms", us / 1_000),
            us => format!("{us}us"),
        };
        match self {
            Self::Auto => f.write_str("auto"),
            Self::None => f.write_str("none"),
            Self::Exponential => f.write_str("exponential"),
            Self::Fixed { attempts, delay } => write!(f, "fixed:{attempts}:{}", text(delay)),
            Self::Rate { failures, interval, delay } => {
                write!(f, "rate:{failures}:{}:{}", text(interval), text(delay))
            }
        }
    }
}

/// What is no way to restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRestart(String);

impl fmt::Display for NoRestart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "restart={:?} must be 'auto', 'none', 'exponential', 'fixed:ATTEMPTS:DELAY' such as 'fixed:3:10s', or \
             'rate:FAILURES:INTERVAL:DELAY' such as 'rate:3:5min:10s'",
            self.0
        )
    }
}

impl FromStr for Restart {
    type Err = NoRestart;

    fn from_str(text: &str) -> Result<Self, NoRestart> {
        let refuse = || NoRestart(text.to_owned());
        let number = |word: &str| word.parse::<u32>().map_err(|_| refuse());
        let time = |word: &str| duration(word).ok_or_else(refuse);
        let words: Vec<&str> = text.split(':').map(str::trim).collect();
        Ok(match *words {
            ["auto"] => Self::Auto,
            ["none"] => Self::None,
            ["exponential"] => Self::Exponential,
            ["fixed", attempts, delay] => Self::Fixed { attempts: number(attempts)?, delay: time(delay)? },
            ["rate", failures, interval, delay] => {
                Self::Rate { failures: number(failures)?, interval: time(interval)?, delay: time(delay)? }
            }
            _ => return Err(refuse()),
        })
    }
}

fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let unit_us = match unit.trim() {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "min" | "m" => 60e6,
        "h" => 3600e6,
        _ => return None,
    };
    let us = number.parse::<f64>().ok()? * unit_us;
    (us <= 7.0 * 24.0 * 3600e6).then(|| Duration::from_micros(us as u64))
}

impl Serialize for Restart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Restart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
