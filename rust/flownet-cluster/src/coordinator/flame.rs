//! Fetches the flame graph of one task from its worker when a user views it. The worker samples on request and stores
//! nothing.

use flownet_runtime::{
    flame::{self, FlameOrder, TaskActivity},
    time_accounting::{TimeShares, TimeState},
};
use serde::Serialize;
use tokio::sync::oneshot;

use super::{
    events::{Event, Request},
    view::JobView,
    workers::Workers,
};
use crate::plan::PlacedTask;

/// Flame graph of a task, built from samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskFlame {
    /// Number of requested samples.
    pub asked: u32,
    /// Number of usable samples. The others fell due while the sampler waited for the interpreter, or after the end of
    /// the task.
    pub taken: u32,
    /// Time between two samples, in seconds.
    pub every_seconds: f64,
    /// Time from the first sample to the last, in seconds.
    pub seconds: f64,
    /// Whether the task ended meanwhile.
    pub has_ended: bool,
    /// Share of samples in which the task waited for outputs; none without samples.
    pub back_pressured: Option<f64>,
    /// Share of the same time in which the task waited for outputs, by its time accounting; none without time.
    pub ledger_back_pressured: Option<f64>,
    /// Frames; each follows the frame below it.
    pub frames: Vec<FlameFrame>,
}

/// Function or state in which samples found the task, on a path of frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlameFrame {
    /// Index of the frame below.
    pub below: Option<u32>,
    /// Samples in this frame and in frames above it.
    pub samples: u32,
    /// Name of the function; none for a state.
    pub function: Option<String>,
    /// File of the function.
    pub file: Option<String>,
    /// Line of the function with the most samples.
    pub line: Option<u32>,
    /// Name of the state; none for a function.
    pub state: Option<&'static str>,
}

/// Reason why there is no flame graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoFlame {
    /// The task does not run, or its worker was lost.
    NotRunning,
    /// The worker could not start sampling.
    Failed(String),
}

/// Sender of the reply to a caller that waits.
pub(super) type FlameReply = oneshot::Sender<Result<TaskFlame, NoFlame>>;

impl JobView {
    /// Samples a subtask, given by index of its vertex and index within the vertex. This takes as long as the order
    /// says. A worker that hangs does not answer, so use a timeout. Dropping the future ends the sampling.
    ///
    /// # Errors
    /// Fails if no such subtask runs, or if there is no thread to sample.
    pub async fn flame(&self, vertex: u32, subtask: u32, order: FlameOrder) -> Result<TaskFlame, NoFlame> {
        let (reply, flame) = oneshot::channel();
        let event = Event::Request(Request::Flame { vertex, subtask, order, reply });
        self.events.send(event).map_err(|_| NoFlame::NotRunning)?;
        flame.await.unwrap_or(Err(NoFlame::NotRunning))
    }
}

/// Asks the worker of a subtask to sample it, if it is registered. Otherwise drops the reply sender, which ends the
/// caller's wait.
pub(super) fn fetch_flame(workers: &Workers, subtask: &PlacedTask, order: FlameOrder, mut reply: FlameReply) {
    let task = subtask.spec.task_id;
    workers.call(subtask.worker, async move |link| {
        tokio::select! {
            flame = link.flame(task, order) => {
                let flame = match flame? {
                    Ok(Some(flame)) => Ok(TaskFlame::of(flame, order)),
                    Ok(None) => Err(NoFlame::NotRunning),
                    Err(why) => Err(NoFlame::Failed(why)),
                };
                // The caller may have stopped waiting.
                let _ = reply.send(flame);
            }
            () = reply.closed() => {}
        }
        Ok(None)
    });
}

impl TaskFlame {
    fn of(flame: flame::Flame, order: FlameOrder) -> Self {
        let flame::Flame { asked, taken, back_pressured, lasted, time, has_ended, frames } = flame;
        Self {
            asked,
            taken,
            every_seconds: order.every().as_secs_f64(),
            seconds: lasted.as_secs_f64(),
            has_ended,
            back_pressured: (taken > 0).then(|| f64::from(back_pressured) / f64::from(taken)),
            ledger_back_pressured: share(&time),
            frames: frames.into_iter().map(FlameFrame::from).collect(),
        }
    }
}

fn share(time: &TimeShares) -> Option<f64> {
    let total = time.total().as_secs_f64();
    (total > 0.0).then(|| time.back_pressured().as_secs_f64() / total)
}

impl From<flame::FlameFrame> for FlameFrame {
    fn from(frame: flame::FlameFrame) -> Self {
        let flame::FlameFrame { below, place, samples } = frame;
        let nowhere = Self { below, samples, function: None, file: None, line: None, state: None };
        match place {
            TaskActivity::Function { name, file, line } => {
                Self { function: Some(name), file: Some(file), line: Some(line), ..nowhere }
            }
            TaskActivity::State(state) => Self { state: Some(state_name(state)), ..nowhere },
            TaskActivity::Missed => Self { state: Some(MISSED), ..nowhere },
        }
    }
}

/// Returns the name that metrics use for a state.
fn state_name(state: TimeState) -> &'static str {
    match state {
        TimeState::Busy => "busy",
        TimeState::SoftBackPressured(_) => "soft_back_pressured",
        TimeState::HardBackPressured(_) => "hard_back_pressured",
        TimeState::Idle => "idle",
        TimeState::Interpreter => "interpreter",
        TimeState::Awaiting => "awaiting",
        TimeState::Aligning => "aligning",
        TimeState::Barrier => "waiting_for_barrier",
    }
}

/// State of work that ended before its stack could be read.
const MISSED: &str = "missed";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn both_ratios_are_shares_of_what_was_seen() {
        let ms = Duration::from_millis;
        let time = TimeShares { busy: ms(300), soft_back_pressured: ms(100), idle: ms(600), ..TimeShares::default() };
        let order = FlameOrder::new(10, 100).expect("within its bounds");
        let flame = flame::Flame { asked: 10, taken: 8, back_pressured: 2, time, ..flame::Flame::default() };
        let told = TaskFlame::of(flame, order);
        assert_eq!((told.back_pressured, told.ledger_back_pressured), (Some(0.25), Some(0.1)));
        let nothing = TaskFlame::of(flame::Flame::default(), order);
        assert_eq!((nothing.back_pressured, nothing.ledger_back_pressured), (None, None));
    }
}
