//! Route for the channels of one subtask, with rates since an earlier sample.
//!
//! # Invariants
//! - I1: at most one subtask of a job is sampled at a time, because each sample makes a worker visit all channels of a
//!   task.
//! - I2: a rate covers at least [`SHORTEST`], so that concurrent clients do not shorten each other's interval. It
//!   covers at most [`LONGEST`], and never a restart.
//! - I3: stored data is bounded: two samples of each of the last [`MOST_SUBTASKS`] subtasks.

use std::collections::VecDeque;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use flownet_cluster::{InputChannel, OutputChannel, TaskChannels};
use serde::Serialize;

use crate::api::{Answer, LONGEST_LOOK, SharedApp, find, numbers};
use crate::error::Refusal;

pub(crate) async fn channels(
    State(app): SharedApp,
    Path((id, task, subtask)): Path<(String, String, String)>,
) -> Answer<Json<ChannelsDocument>> {
    let job = find(&app, &id)?;
    let (task, subtask) = numbers(&task, &subtask)?;
    let look = async {
        let mut looks = job.looks.lock().await;
        job.view.channels(task, subtask).await.map(|channels| looks.document((task, subtask), channels))
    };
    match tokio::time::timeout(LONGEST_LOOK, look).await {
        Ok(Some(document)) => Ok(Json(document)),
        Ok(None) => {
            let why = format!("subtask {subtask} of task {task} does not run now, so it has no channels");
            Err(Refusal::new(StatusCode::CONFLICT, why))
        }
        Err(_) => Err(Refusal::no_answer(task, subtask, LONGEST_LOOK)),
    }
}

/// Channels of a subtask, and their rates.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct ChannelsDocument {
    /// Age of the subtask at the time of the sample, in seconds.
    seconds: f64,
    inputs: Vec<InputDocument>,
    outputs: Vec<OutputDocument>,
}

#[derive(Debug, PartialEq, Serialize)]
struct InputDocument {
    #[serde(flatten)]
    channel: InputChannel,
    records_in_per_second: Option<f64>,
    bytes_in_per_second: Option<f64>,
}

#[derive(Debug, PartialEq, Serialize)]
struct OutputDocument {
    #[serde(flatten)]
    channel: OutputChannel,
    records_out_per_second: Option<f64>,
    bytes_out_per_second: Option<f64>,
}

/// Recent samples of channels. The subtasks sampled last come last.
#[derive(Debug, Default)]
pub(crate) struct ChannelSamples {
    subtasks: VecDeque<SampledSubtask>,
}

/// Two samples of one subtask.
#[derive(Debug)]
struct SampledSubtask {
    subtask: (u32, u32),
    before: Option<Counts>,
    latest: Counts,
}

/// Counters of the channels of a subtask: records and bytes, in the order of the channels.
#[derive(Clone, Debug, Default)]
struct Counts {
    attempt: u64,
    age: Duration,
    inputs: Vec<(u64, u64)>,
    outputs: Vec<(u64, u64)>,
}

impl ChannelSamples {
    /// Returns the document of a new sample of a subtask, and stores the sample for later rates.
    fn document(&mut self, subtask: (u32, u32), channels: TaskChannels) -> ChannelsDocument {
        let now = Counts::of(&channels);
        let before = self.swap(subtask, &now).filter(|before| now.age - before.age <= LONGEST).unwrap_or_default();
        let seconds = now.age.saturating_sub(before.age).as_secs_f64();
        let rates = |before: Option<&(u64, u64)>, (records, bytes): (u64, u64)| {
            let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            before.map(|before| (rate(records, before.0), rate(bytes, before.1))).unzip()
        };
        let inputs = channels.inputs.into_iter().enumerate().map(|(at, channel)| {
            let (records, bytes) = rates(before.inputs.get(at), now.inputs[at]);
            InputDocument { channel, records_in_per_second: records, bytes_in_per_second: bytes }
        });
        let outputs = channels.outputs.into_iter().enumerate().map(|(at, channel)| {
            let (records, bytes) = rates(before.outputs.get(at), now.outputs[at]);
            OutputDocument { channel, records_out_per_second: records, bytes_out_per_second: bytes }
        });
        ChannelsDocument { seconds: now.age.as_secs_f64(), inputs: inputs.collect(), outputs: outputs.collect() }
    }

    /// Stores a sample if the previous one is old enough. Returns the sample from which to compute rates.
    fn swap(&mut self, subtask: (u32, u32), now: &Counts) -> Option<Counts> {
        let known = self.subtasks.iter().position(|looked| looked.subtask == subtask);
        let known = known.and_then(|at| self.subtasks.remove(at)).filter(|known| now.follows(&known.latest));
        let looked = match known {
            None => SampledSubtask { subtask, before: None, latest: now.clone() },
            Some(known) if now.age - known.latest.age < SHORTEST => known,
            Some(known) => SampledSubtask { subtask, before: Some(known.latest), latest: now.clone() },
        };
        let before = looked.before.clone();
        self.subtasks.push_back(looked);
        if self.subtasks.len() > MOST_SUBTASKS {
            self.subtasks.pop_front();
        }
        before
    }
}

impl Counts {
    fn of(channels: &TaskChannels) -> Self {
        let TaskChannels { attempt, age, inputs, outputs } = channels;
        Self {
            attempt: *attempt,
            age: *age,
            inputs: inputs.iter().map(|channel| (channel.records_in, channel.bytes_in)).collect(),
            outputs: outputs.iter().map(|channel| (channel.records_out, channel.bytes_out)).collect(),
        }
    }

    /// Returns true if it is a later sample of the same attempt.
    fn follows(&self, earlier: &Self) -> bool {
        self.attempt == earlier.attempt && self.age >= earlier.age
    }
}

/// Shortest interval between two samples of a rate.
const SHORTEST: Duration = Duration::from_millis(500);
/// Longest interval: an older sample does not describe the current rate.
const LONGEST: Duration = Duration::from_secs(10);
const MOST_SUBTASKS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns one channel in each direction, which has carried `counted` records of 10 bytes.
    fn channels(attempt: u64, age_ms: u64, counted: u64) -> TaskChannels {
        let input = InputChannel {
            from: Default::default(),
            queued: 0,
            credit: None,
            records_in: counted,
            bytes_in: 10 * counted,
        };
        let output = OutputChannel {
            to: Default::default(),
            buffers: 0,
            bytes: 0,
            records_out: 2 * counted,
            bytes_out: 20 * counted,
        };
        TaskChannels { attempt, age: Duration::from_millis(age_ms), inputs: vec![input], outputs: vec![output] }
    }

    /// Returns the rate of input records, and checks that the other rates agree with it.
    fn rate(looks: &mut ChannelSamples, subtask: u32, channels: TaskChannels) -> Option<f64> {
        let document = looks.document((0, subtask), channels);
        let (input, output) = (&document.inputs[0], &document.outputs[0]);
        let rate = input.records_in_per_second;
        let others = [input.bytes_in_per_second, output.records_out_per_second, output.bytes_out_per_second];
        assert_eq!(others, [10.0, 2.0, 20.0].map(|times| rate.map(|rate| rate * times)));
        rate
    }

    #[test]
    fn a_rate_is_since_the_last_look_that_is_long_enough_ago_and_not_too_long() {
        let mut looks = ChannelSamples::default();
        let mut rates = |age_ms, counted| rate(&mut looks, 0, channels(1, age_ms, counted));
        assert_eq!(rates(1000, 100), None, "the first look");
        assert_eq!(rates(1400, 140), None, "too soon behind it");
        assert_eq!(rates(1500, 150), Some(100.0));
        assert_eq!(rates(1900, 600), Some(500.0 / 0.9), "by the first look once more");
        assert_eq!(rates(2000, 650), Some(1000.0), "by that behind it");
        assert_eq!(rates(12_001, 700), None, "nobody has looked for long");
        assert_eq!(rates(13_001, 701), Some(1.0));
    }

    #[test]
    fn a_restart_begins_anew() {
        let mut looks = ChannelSamples::default();
        assert_eq!(rate(&mut looks, 0, channels(1, 1000, 100)), None);
        assert_eq!(rate(&mut looks, 0, channels(2, 2000, 150)), None, "of another attempt, though it is older");
        assert_eq!(rate(&mut looks, 0, channels(2, 3000, 160)), Some(10.0));
    }

    #[test]
    fn several_subtasks_are_kept_and_of_too_many_those_looked_at_last() {
        let mut looks = ChannelSamples::default();
        for subtask in 0..16 {
            assert_eq!(rate(&mut looks, subtask, channels(1, 1000, 0)), None);
        }
        for subtask in 0..16 {
            assert_eq!(rate(&mut looks, subtask, channels(1, 2000, u64::from(subtask))), Some(f64::from(subtask)));
        }
        assert_eq!(rate(&mut looks, 16, channels(1, 1000, 0)), None);
        assert_eq!(rate(&mut looks, 0, channels(1, 3000, 0)), None, "it had to go");
        assert_eq!(rate(&mut looks, 15, channels(1, 3000, 16)), Some(1.0));
        assert_eq!(looks.subtasks.len(), 16);
    }
}
