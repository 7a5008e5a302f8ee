//! The flame graph of one task, for people who look at it: its worker takes the samples then, and keeps nothing.

use flownet_runtime::{
    flame::{self, FlameOrder, TaskActivity},
    time_accounting::{TimeShares, TimeState},
};
use serde::Serialize;
use tokio::sync::oneshot;

use super::{
    driver::{Driver, Event},
    view::JobView,
};

/// Where samples found a task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskFlame {
    /// Samples that were asked for.
    pub asked: u32,
    /// Those that say something: the rest fell due while the interpreter was waited for, or after the end of the task.
    pub taken: u32,
    /// From one to the next, in seconds.
    pub every_seconds: f64,
    /// From the first moment to the last.
    pub seconds: f64,
    /// The task has ended meanwhile.
    pub has_ended: bool,
    /// Share of the samples that found it waiting for outputs; none without samples.
    pub back_pressured: Option<f64>,
    /// Share of the same time in which it waited for outputs, as its ledger says; none without time.
    pub ledger_back_pressured: Option<f64>,
    /// Frames, each behind the one that it is on.
    pub frames: Vec<FlameFrame>,
}

/// A function or a state in which samples found it, on what led there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlameFrame {
    /// Position of the frame that it is on.
    pub below: Option<u32>,
    /// Samples in it, and in what is on it.
    pub samples: u32,
    /// Name of the function; none where it is a state.
    pub function: Option<String>,
    /// File of the function.
    pub file: Option<String>,
    /// Line in which the function was found most often.
    pub line: Option<u32>,
    /// Name of the state; none where it is a function.
    pub state: Option<&'static str>,
}

/// Why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoFlame {
    /// The task does not run, or its worker was lost.
    NotRunning,
    /// Its worker could not begin.
    Failed(String),
}

/// Somebody who waits for it.
pub(super) type ToldOfFlame = oneshot::Sender<Result<TaskFlame, NoFlame>>;

impl JobView {
    /// Takes samples of a subtask, by position of its vertex and index among the subtasks. That takes the time of the order; a
    /// worker that hangs does not answer: do not wait for ever. Who stops waiting ends it.
    ///
    /// # Errors
    /// There is no such subtask that runs, or there is no thread to sample it.
    pub async fn flame(&self, (vertex, subtask): (u32, u32), order: FlameOrder) -> Result<TaskFlame, NoFlame> {
        let (told, flame) = oneshot::channel();
        let event = Event::Flame { vertex, subtask, order, told };
        self.events.send(event).map_err(|_| NoFlame::NotRunning)?;
        flame.await.unwrap_or(Err(NoFlame::NotRunning))
    }
}

impl Driver {
    /// Asks the worker of a subtask, if it runs; whoever waits is told, or sees that nobody will.
    pub(super) fn sample_task(&mut self, subtask: (u32, u32), order: FlameOrder, mut told: ToldOfFlame) {
        let Some((worker, task)) = self.place_of(subtask) else { return };
        self.call(worker, async move |link| {
            tokio::select! {
                flame = link.flame(task, order) => {
                    let flame = match flame? {
                        Ok(Some(flame)) => Ok(TaskFlame::of(flame, order)),
                        Ok(None) => Err(NoFlame::NotRunning),
                        Err(why) => Err(NoFlame::Failed(why)),
                    };
                    // Whoever asked may have gone.
                    let _ = told.send(flame);
                }
                () = told.closed() => {}
            }
            Ok(Event::Done)
        });
    }
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

/// As metrics call it.
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

/// Work that was over before its stack could be read.
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
