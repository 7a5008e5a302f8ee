//! Route that samples one subtask while a client waits for the result.
//!
//! # Invariants
//! - I1: at most one subtask of a job is sampled at a time. A second request is refused at once and not queued.
//! - I2: sampling ends if the client disconnects.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use flownet_cluster::{FlameOrder, NoFlame, TaskFlame};
use serde::Deserialize;

use crate::api::{Answer, LONGEST_LOOK, SharedApp, find, numbers};
use crate::error::Refusal;
use crate::jobs::ShownJob;

#[derive(Deserialize)]
pub(crate) struct FlameRequest {
    samples: Option<String>,
    every_ms: Option<String>,
}

pub(crate) async fn flame(
    State(app): SharedApp,
    Path((id, task, subtask)): Path<(String, String, String)>,
    asked: Result<Query<FlameRequest>, QueryRejection>,
) -> Answer<Json<TaskFlame>> {
    let job = find(&app, &id)?;
    let (task, subtask) = numbers(&task, &subtask)?;
    let order = order(asked)?;
    is_there(&job, task, subtask)?;
    let Ok(_turn) = job.sampling.try_lock() else {
        let why = "a subtask of this job is being sampled: one at a time, ask again when that has ended";
        return Err(Refusal::new(StatusCode::CONFLICT, why));
    };
    let limit = order.whole() + LONGEST_LOOK;
    match tokio::time::timeout(limit, job.view.flame(task, subtask, order)).await {
        Ok(Ok(flame)) => Ok(Json(flame)),
        Ok(Err(NoFlame::NotRunning)) => {
            let why = format!("subtask {subtask} of task {task} does not run now, so it cannot be sampled");
            Err(Refusal::new(StatusCode::CONFLICT, why))
        }
        Ok(Err(NoFlame::Failed(why))) => {
            let why = format!("the worker of subtask {subtask} of task {task} cannot sample it: {why}");
            Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, why))
        }
        Err(_) => Err(Refusal::no_answer(task, subtask, limit)),
    }
}

fn order(asked: Result<Query<FlameRequest>, QueryRejection>) -> Answer<FlameOrder> {
    let refused = |why: String| Refusal::new(StatusCode::BAD_REQUEST, why);
    let Query(FlameRequest { samples, every_ms }) = asked.map_err(|error| refused(error.body_text()))?;
    let number = |name: &str, text: Option<String>, default: u64| match text {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| refused(format!("{name} = {text:?} is to be a whole number"))),
    };
    let order = FlameOrder::new(number("samples", samples, SAMPLES)?, number("every_ms", every_ms, EVERY_MS)?);
    order.map_err(|error| refused(error.to_string()))
}

/// Checks that the job has this subtask.
fn is_there(job: &ShownJob, task: u32, subtask: u32) -> Answer<()> {
    let status = job.view.status();
    let vertex = status.vertices.get(task as usize);
    if status.vertices.is_empty() || vertex.is_some_and(|vertex| subtask < vertex.parallelism) {
        return Ok(());
    }
    let why = match vertex {
        None => format!("there is no task {task} in this job: it has {}, from 0", status.vertices.len()),
        Some(vertex) => format!("there is no subtask {subtask} of task {task}: it has {}, from 0", vertex.parallelism),
    };
    Err(Refusal::new(StatusCode::NOT_FOUND, why))
}

/// Flink's default number of samples.
const SAMPLES: u64 = 100;
const EVERY_MS: u64 = 50;
