//! The routes.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use flownet_cluster::{ClusterError, JobSample, LogLevel, LogPage, LogQuery, Savepoint};
use futures::stream::{self, Stream};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::channels::channels;
use crate::document::{JobDocument, JobEntry, PlanDocument};
use crate::error::Refusal;
use crate::flame::flame;
use crate::guard::{COOKIE_IS, Guard};
use crate::history::HistoryDocument;
use crate::jobs::{Jobs, ShownJob};
use crate::{page, prometheus};

/// What the routes share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) jobs: Jobs,
    pub(crate) guard: Guard,
}

pub(crate) type Shared = State<Arc<App>>;
pub(crate) type Answer<T> = Result<T, Refusal>;

/// All that is answered.
pub(crate) fn routes(app: Arc<App>) -> Router {
    let job = Router::new()
        .route("/", get(job))
        .route("/subtasks", get(subtasks))
        .route("/workers", get(workers))
        .route("/channels/{task}/{subtask}", get(channels))
        .route("/flame/{task}/{subtask}", get(flame))
        .route("/history", get(history))
        .route("/log", get(log))
        .route("/events", get(events))
        .route("/plan", get(plan))
        .route("/cancel", post(cancel))
        .route("/stop", post(stop))
        .route("/checkpoint", post(checkpoint))
        .route("/savepoint", post(savepoint));
    Router::new()
        .merge(page::routes())
        .route("/metrics", get(prometheus))
        .route("/api/v1", get(about))
        .route("/api/v1/jobs", get(jobs))
        .nest("/api/v1/jobs/{id}", job)
        .fallback(async || Refusal::new(StatusCode::NOT_FOUND, "there is nothing here: see /api/v1/jobs"))
        .layer(DefaultBodyLimit::max(MOST_BODY_BYTES))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), guarded))
        .with_state(app)
}

/// Asks who it is, and says of each answer how it may be used.
async fn guarded(State(app): Shared, request: Request, next: Next) -> Response {
    let mut response = match app.guard.check(request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => match shown_in_address(&app.guard, &request) {
            Some(token) => signed_in(token),
            None => refusal.into_response(),
        },
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The token of `/?token=...`, if that is what is asked for and it is the right one.
fn shown_in_address<'a>(guard: &'a Guard, request: &Request) -> Option<&'a str> {
    #[derive(Deserialize)]
    struct Shown {
        token: String,
    }
    let is_page = request.uri().path() == "/";
    let Query(shown) = Query::<Shown>::try_from_uri(request.uri()).ok().filter(|_| is_page)?;
    guard.token.as_deref().filter(|_| guard.is_token(&shown.token))
}

/// Goes on without the token in the address, where histories and other people's eyes would find it.
fn signed_in(token: &str) -> Response {
    let cookie = format!("{COOKIE_IS}{token}; HttpOnly; SameSite=Strict; Path=/");
    ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
}

async fn about(State(app): Shared) -> Json<Value> {
    Json(json!({ "flownet": env!("CARGO_PKG_VERSION"), "actions": app.guard.allows_actions }))
}

async fn prometheus(State(app): Shared) -> Response {
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], prometheus::text(&app.jobs)).into_response()
}

async fn jobs(State(app): Shared) -> Json<Value> {
    let newest_first: Vec<JobEntry> = app.jobs.all().iter().rev().map(|job| JobEntry::of(job)).collect();
    Json(json!({ "jobs": newest_first }))
}

async fn job(State(app): Shared, Path(id): Path<String>) -> Answer<Json<JobDocument>> {
    Ok(Json(JobDocument::of(&*find(&app, &id)?)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubtasksWanted {
    task: Option<u32>,
}

/// All of them, or those of one task: of a job with thousands, who looks at one task need not be sent the others.
async fn subtasks(
    State(app): Shared,
    Path(id): Path<String>,
    wanted: Result<Query<SubtasksWanted>, QueryRejection>,
) -> Answer<Json<JobSample>> {
    let job = find(&app, &id)?;
    let Query(SubtasksWanted { task }) = query(wanted)?;
    let mut sample = job.view.sample();
    sample.tasks.retain(|one| task.is_none_or(|task| one.vertex == task));
    Ok(Json(sample))
}

async fn workers(State(app): Shared, Path(id): Path<String>) -> Answer<Json<Value>> {
    Ok(Json(json!({ "workers": find(&app, &id)?.view.sample().workers })))
}

async fn history(State(app): Shared, Path(id): Path<String>) -> Answer<Json<HistoryDocument>> {
    Ok(Json(find(&app, &id)?.timelines()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogWanted {
    #[serde(default)]
    after: u64,
    #[serde(default = "many")]
    most: usize,
    #[serde(default)]
    newest: bool,
    level: Option<LogLevel>,
}

fn many() -> usize {
    MOST_LOG_ENTRIES
}

async fn log(
    State(app): Shared,
    Path(id): Path<String>,
    wanted: Result<Query<LogWanted>, QueryRejection>,
) -> Answer<Json<LogPage>> {
    let job = find(&app, &id)?;
    let Query(LogWanted { after, most, newest: is_newest, level }) = query(wanted)?;
    Ok(Json(job.view.log(LogQuery { after, most: most.min(MOST_LOG_ENTRIES), is_newest, level })))
}

async fn plan(State(app): Shared, Path(id): Path<String>) -> Answer<Json<PlanDocument>> {
    Ok(Json(PlanDocument::of(&*find(&app, &id)?)))
}

/// A job again and again, until its end. A client that does not read is not written for: the next is made when it took the
/// one before.
async fn events(
    State(app): Shared,
    Path(id): Path<String>,
) -> Answer<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    enum Next {
        Now,
        Later,
        End,
        Nothing,
    }
    let job = find(&app, &id)?;
    let told = stream::unfold((job, Next::Now), async |(job, next)| {
        match next {
            Next::Now => {}
            Next::Later => tokio::time::sleep(BETWEEN_EVENTS).await,
            Next::End => return Some((Ok(Event::default().event("end").data("{}")), (job, Next::Nothing))),
            Next::Nothing => return None,
        }
        let document = JobDocument::of(&job);
        let next = if document.is_last() { Next::End } else { Next::Later };
        let text = serde_json::to_string(&document).unwrap_or_default();
        Some((Ok(Event::default().event("job").data(text)), (job, next)))
    });
    Ok(Sse::new(told).keep_alive(KeepAlive::default()))
}

async fn cancel(State(app): Shared, Path(id): Path<String>) -> Answer<(StatusCode, Json<Value>)> {
    find(&app, &id)?.view.cancel();
    Ok((StatusCode::ACCEPTED, Json(json!({}))))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stop {
    #[serde(default = "yes")]
    drain: bool,
    savepoint: Option<String>,
}

fn yes() -> bool {
    true
}

async fn stop(
    State(app): Shared,
    Path(id): Path<String>,
    body: Result<Json<Stop>, JsonRejection>,
) -> Answer<(StatusCode, Json<Value>)> {
    let (job, Stop { drain, savepoint }) = (find(&app, &id)?, read(body)?);
    match savepoint {
        None => job.view.stop(drain),
        Some(path) => job.view.stop_with_savepoint(drain, &path).map_err(|error| failed(&error))?,
    }
    Ok((StatusCode::ACCEPTED, Json(json!({}))))
}

async fn checkpoint(State(app): Shared, Path(id): Path<String>) -> Answer<(StatusCode, Json<Value>)> {
    find(&app, &id)?.view.trigger_checkpoint().map_err(|error| failed(&error))?;
    Ok((StatusCode::ACCEPTED, Json(json!({}))))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TakeSavepoint {
    path: String,
}

async fn savepoint(
    State(app): Shared,
    Path(id): Path<String>,
    body: Result<Json<TakeSavepoint>, JsonRejection>,
) -> Answer<Json<Savepoint>> {
    let (job, TakeSavepoint { path }) = (find(&app, &id)?, read(body)?);
    let pending = job.view.savepoint(&path).map_err(|error| failed(&error))?;
    loop {
        if let Some(saved) = pending.poll() {
            return saved.map(Json).map_err(|error| failed(&error));
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

/// Of a task and a subtask, as a path has them.
pub(crate) fn numbers(task: &str, subtask: &str) -> Answer<(u32, u32)> {
    let (Ok(task), Ok(subtask)) = (task.parse(), subtask.parse()) else {
        let why = format!("{task:?} and {subtask:?} are to be the numbers of a task and a subtask, from 0");
        return Err(Refusal::new(StatusCode::NOT_FOUND, why));
    };
    Ok((task, subtask))
}

pub(crate) fn find(app: &App, id: &str) -> Answer<Arc<ShownJob>> {
    app.jobs.find(id).ok_or_else(|| Refusal::no_job(id))
}

fn read<T>(body: Result<Json<T>, JsonRejection>) -> Answer<T> {
    body.map(|Json(body)| body).map_err(|rejection| Refusal::new(rejection.status(), rejection.body_text()))
}

fn query<T>(wanted: Result<Query<T>, QueryRejection>) -> Answer<Query<T>> {
    wanted.map_err(|rejection| Refusal::new(rejection.status(), rejection.body_text()))
}

fn failed(error: &ClusterError) -> Refusal {
    Refusal::new(StatusCode::CONFLICT, error.to_string())
}

/// Of every answer: nothing from elsewhere, no frame around it, nothing kept.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::CACHE_CONTROL, "no-store"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
];
const MOST_LOG_ENTRIES: usize = 1000;
const MOST_BODY_BYTES: usize = 16 * 1024;
const BETWEEN_EVENTS: Duration = Duration::from_millis(500);
pub(crate) const LONGEST_LOOK: Duration = Duration::from_secs(10);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
