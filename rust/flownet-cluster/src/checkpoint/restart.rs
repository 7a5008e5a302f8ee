//! Decides whether and when a failed job restarts.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use flownet_runtime::RootCause;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::repeated::{FailuresWithoutProgress, RepeatedFailure};

/// Restart policy of a failed job: how often, and after which delay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Restart {
    /// With checkpoints: [`Exponential`](Self::Exponential), until an error of the program or its data repeats without
    /// progress. Without checkpoints: [`None`](Self::None).
    #[default]
    Auto,
    /// Never restarts.
    None,
    /// Waits 1 s, then 1.5 times as long each time, up to 1 min. The delay starts again at 1 s after an attempt of at
    /// least 1 h. Each delay varies by up to 10 %, so that jobs that fail together do not restart together.
    Exponential,
    /// A limited number of restarts.
    Fixed {
        /// Total number of restarts.
        attempts: u32,
        /// Delay before each restart.
        delay: Duration,
    },
    /// A limited number of restarts per interval.
    Rate {
        /// Number of failures with a restart.
        failures: u32,
        /// Length of the interval.
        interval: Duration,
        /// Delay before each restart.
        delay: Duration,
    },
}

const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(60);
const STEADY: Duration = Duration::from_secs(3600);
const GROWTH: f64 = 1.5;
const JITTER: f64 = 0.1;

/// Restart history of one job over its attempts.
#[derive(Debug)]
pub(crate) struct Supervisor {
    restart: Restart,
    /// Times of the failures that a restart followed.
    failures: Vec<Duration>,
    delay: Duration,
    began: Duration,
    rng: fastrand::Rng,
    /// Failures without progress, if the policy counts them.
    without_progress: Option<FailuresWithoutProgress>,
    /// The repeated failure that ended the restarts.
    gave_up: Option<RepeatedFailure>,
}

impl Supervisor {
    /// Creates the supervisor of a job whose first attempt begins now.
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

    /// Whether a restart would follow an attempt that fails now.
    pub(crate) fn would_restart(&self, now: Duration) -> bool {
        match &self.restart {
            Restart::Auto | Restart::None => false,
            Restart::Exponential => true,
            Restart::Fixed { attempts, .. } => self.failures.len() < *attempts as usize,
            Restart::Rate { failures, interval, .. } => self.lately(*interval, now) < *failures as usize,
        }
    }

    /// Handles a failed attempt; `checkpoint` is the last published one. Returns the delay before the restart, or
    /// `None` if there is none.
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

    /// Returns the failure that ended the restarts because it repeated.
    pub(crate) fn gave_up(&self) -> Option<RepeatedFailure> {
        self.gave_up
    }

    /// Starts another attempt.
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

/// Error of a text that is no restart policy.
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
