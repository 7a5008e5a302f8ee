//! History of a job: one point per second of the last hour.

use std::collections::VecDeque;

use flownet_cluster::{JobStatus, VertexReport};
use serde::Serialize;

/// Points of a job, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct History {
    points: VecDeque<Point>,
}

#[derive(Debug)]
struct Point {
    seconds: f64,
    tasks: Vec<TaskPoint>,
}

#[derive(Debug)]
struct TaskPoint {
    records_per_second: f64,
    busy: f32,
    python: f32,
    serialising: f32,
    rust: f32,
    back_pressured: f32,
    idle: f32,
    interpreter: f32,
    watermark_lag_seconds: Option<f64>,
    in_flight_seconds: f64,
}

/// History as one time line per value.
#[derive(Debug, Default, Serialize)]
pub(crate) struct HistoryDocument {
    /// Times since the job was submitted, in seconds.
    seconds: Vec<f64>,
    /// Time lines in the order of the job's tasks. Each is as long as `seconds`.
    tasks: Vec<TaskLines>,
}

#[derive(Debug, Default, Serialize)]
struct TaskLines {
    records_per_second: Vec<f64>,
    busy: Vec<f32>,
    python: Vec<f32>,
    serialising: Vec<f32>,
    rust: Vec<f32>,
    back_pressured: Vec<f32>,
    idle: Vec<f32>,
    interpreter: Vec<f32>,
    watermark_lag_seconds: Vec<Option<f64>>,
    in_flight_seconds: Vec<f64>,
}

impl History {
    /// Adds the current state of a job and drops points older than an hour.
    pub(crate) fn push(&mut self, status: &JobStatus) {
        if self.points.len() == MOST_POINTS {
            self.points.pop_front();
        }
        let tasks = status.vertices.iter().map(TaskPoint::of).collect();
        self.points.push_back(Point { seconds: status.elapsed.as_secs_f64(), tasks });
    }

    pub(crate) fn document(&self) -> HistoryDocument {
        let mut document = HistoryDocument::default();
        for point in &self.points {
            document.seconds.push(point.seconds);
            document.tasks.resize_with(point.tasks.len(), TaskLines::default);
            for (lines, task) in document.tasks.iter_mut().zip(&point.tasks) {
                lines.push(task);
            }
        }
        document
    }
}

impl TaskPoint {
    fn of(vertex: &VertexReport) -> Self {
        Self {
            records_per_second: vertex.records_per_second,
            busy: vertex.busy as f32,
            python: vertex.parts.python as f32,
            serialising: vertex.parts.serialising as f32,
            rust: vertex.parts.rust as f32,
            back_pressured: vertex.back_pressured as f32,
            idle: vertex.idle as f32,
            interpreter: vertex.interpreter as f32,
            watermark_lag_seconds: vertex.lag_ms.map(|ms| ms as f64 / 1000.0),
            in_flight_seconds: vertex.in_flight.as_secs_f64(),
        }
    }
}

impl TaskLines {
    fn push(&mut self, task: &TaskPoint) {
        self.records_per_second.push(task.records_per_second);
        self.busy.push(task.busy);
        self.python.push(task.python);
        self.serialising.push(task.serialising);
        self.rust.push(task.rust);
        self.back_pressured.push(task.back_pressured);
        self.idle.push(task.idle);
        self.interpreter.push(task.interpreter);
        self.watermark_lag_seconds.push(task.watermark_lag_seconds);
        self.in_flight_seconds.push(task.in_flight_seconds);
    }
}

/// One hour of one point per second.
const MOST_POINTS: usize = 3600;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use flownet_cluster::{History as Attempts, JobState};

    use super::*;

    fn status(seconds: u64) -> JobStatus {
        JobStatus {
            job_name: "job".into(),
            state: JobState::Running,
            elapsed: Duration::from_secs(seconds),
            workers: Vec::new(),
            vertices: Vec::new(),
            exchanges: Vec::new(),
            network_memory_bytes: 0,
            bottleneck: None,
            stall: None,
            checkpoint_under_way: None,
            user_metrics: Vec::new(),
            history: Attempts::default(),
        }
    }

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let mut history = History::default();
        (0..4000).for_each(|seconds| history.push(&status(seconds)));
        let seconds = history.document().seconds;
        assert_eq!((seconds.len(), seconds[0], seconds[3599]), (3600, 400.0, 3999.0));
    }
}
