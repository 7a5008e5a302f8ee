//! Routes of the REST API.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, KeepAliveStream, Sse};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use flownet_cluster::{ClusterError, LogLevel, LogQuery, Savepoint};
use futures::stream::{self, BoxStream, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::archive::Archive;
use crate::channels::channels;
use crate::document::{JobDocument, JobEntry, PlanDocument};
use crate::error::Refusal;
use crate::flame::flame;
use crate::guard::Guard;
use crate::jobs::{Jobs, ShownJob};
use crate::{page, prometheus};

/// State shared by the routes.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) jobs: Jobs,
    pub(crate) guard: Guard,
    /// Ended jobs, including those of earlier processes.
    pub(crate) archive: Option<Archive>,
    /// Cancelled when the server closes.
    pub(crate) closing: CancellationToken,
}

impl App {
    /// Returns the answer of a route for an archived job of another process.
    fn kept(&self, id: &str, part: &str) -> Option<Value> {
        self.archive.as_ref()?.read(id, part)
    }
}

pub(crate) type SharedApp = State<Arc<App>>;
pub(crate) type Answer<T> = Result<T, Refusal>;

/// Builds all routes.
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

/// Checks access, and adds security headers to each answer.
async fn guarded(State(app): SharedApp, request: Request, next: Next) -> Response {
    let mut response = match app.guard.check(request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => match shown_in_address(&app.guard, &request) {
            Some(token) => signed_in(&app.guard, token),
            None => refusal.into_response(),
        },
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Returns the token of `/?token=...`, if the request is for the page and the token is right.
fn shown_in_address<'a>(guard: &'a Guard, request: &Request) -> Option<&'a str> {
    #[derive(Deserialize)]
    struct ShownDocument {
        token: String,
    }
    let is_page = request.uri().path() == "/";
    let Query(shown) = Query::<ShownDocument>::try_from_uri(request.uri()).ok().filter(|_| is_page)?;
    guard.token.as_deref().filter(|_| guard.is_token(&shown.token))
}

/// Sets the cookie and redirects to an address without the token, where browser histories and onlookers would find it.
fn signed_in(guard: &Guard, token: &str) -> Response {
    let cookie = format!("{}{token}; HttpOnly; SameSite=Strict; Path=/", guard.cookie_prefix());
    ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
}

async fn about(State(app): SharedApp) -> Json<Value> {
    Json(json!({ "flownet": env!("CARGO_PKG_VERSION"), "actions": app.guard.allows_actions }))
}

async fn prometheus(State(app): SharedApp) -> Response {
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], prometheus::text(&app.jobs)).into_response()
}

async fn jobs(State(app): SharedApp) -> Json<Value> {
    let shown = app.jobs.all();
    let mut newest_first: Vec<Value> = shown.iter().rev().map(|job| json!(JobEntry::of(job))).collect();
    if let Some(archive) = &app.archive {
        // Archived jobs that this process still shows are already in the list.
        let here: Vec<String> = shown.iter().map(|job| Archive::name_of(job)).collect();
        let kept = archive.entries().into_iter().filter(|(name, _)| !here.contains(name));
        newest_first.extend(kept.map(|(_, entry)| entry));
    }
    Json(json!({ "jobs": newest_first }))
}

async fn job(State(app): SharedApp, Path(id): Path<String>) -> Answer<Json<Value>> {
    if let Some(kept) = app.kept(&id, "job") {
        return Ok(Json(kept));
    }
    Ok(Json(json!(JobDocument::of(&*find(&app, &id)?))))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubtasksWanted {
    task: Option<u32>,
}

/// Returns all subtasks, or those of one task. In a job with thousands of subtasks, a client that shows one task does
/// not need the others.
async fn subtasks(
    State(app): SharedApp,
    Path(id): Path<String>,
    wanted: Result<Query<SubtasksWanted>, QueryRejection>,
) -> Answer<Json<Value>> {
    let Query(SubtasksWanted { task }) = query(wanted)?;
    if let Some(mut kept) = app.kept(&id, "subtasks") {
        if let Some(tasks) = kept["tasks"].as_array_mut() {
            tasks.retain(|one| task.is_none_or(|task| one["task"] == task));
        }
        return Ok(Json(kept));
    }
    let job = find(&app, &id)?;
    let mut sample = job.view.sample();
    sample.tasks.retain(|one| task.is_none_or(|task| one.vertex == task));
    Ok(Json(json!(sample)))
}

async fn workers(State(app): SharedApp, Path(id): Path<String>) -> Answer<Json<Value>> {
    if let Some(kept) = app.kept(&id, "subtasks") {
        return Ok(Json(json!({ "workers": kept["workers"] })));
    }
    Ok(Json(json!({ "workers": find(&app, &id)?.view.sample().workers })))
}

async fn history(State(app): SharedApp, Path(id): Path<String>) -> Answer<Json<Value>> {
    if let Some(kept) = app.kept(&id, "history") {
        return Ok(Json(kept));
    }
    Ok(Json(json!(find(&app, &id)?.timelines())))
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
    State(app): SharedApp,
    Path(id): Path<String>,
    wanted: Result<Query<LogWanted>, QueryRejection>,
) -> Answer<Json<Value>> {
    let Query(LogWanted { after, most, newest: is_newest, level }) = query(wanted)?;
    if let Some(mut kept) = app.kept(&id, "log") {
        if let Some(entries) = kept["entries"].as_array_mut() {
            let is_wanted = |one: &Value| one["number"].as_u64().is_some_and(|number| number > after);
            entries.retain(|one| is_wanted(one) && level.is_none_or(|level| is_as_bad(one, level)));
            let too_many = entries.len().saturating_sub(most);
            if is_newest { drop(entries.drain(..too_many)) } else { entries.truncate(most) }
        }
        return Ok(Json(kept));
    }
    let job = find(&app, &id)?;
    Ok(Json(json!(job.view.log(LogQuery { after, most: most.min(MOST_LOG_ENTRIES), is_newest, level }))))
}

/// Returns true if the log record has this level or a more severe one.
fn is_as_bad(entry: &Value, level: LogLevel) -> bool {
    serde_json::from_value::<LogLevel>(entry["level"].clone()).is_ok_and(|of| of >= level)
}

async fn plan(State(app): SharedApp, Path(id): Path<String>) -> Answer<Json<Value>> {
    if let Some(kept) = app.kept(&id, "plan") {
        return Ok(Json(kept));
    }
    Ok(Json(json!(PlanDocument::of(&*find(&app, &id)?))))
}

/// Streams a job's document until the job or the server ends. If a client does not read, no further document is built:
/// the next one is built only after the client has received the previous one.
async fn events(
    State(app): SharedApp,
    Path(id): Path<String>,
) -> Answer<Sse<KeepAliveStream<BoxStream<'static, Result<Event, Infallible>>>>> {
    if let Some(kept) = app.kept(&id, "job") {
        let events = [("job", kept.to_string()), ("end", "{}".to_owned())];
        let told = stream::iter(events.map(|(name, text)| Ok(Event::default().event(name).data(text))));
        return Ok(Sse::new(told.boxed()).keep_alive(KeepAlive::default()));
    }
    enum Next {
        Now,
        Later,
        End,
        Nothing,
    }
    let job = find(&app, &id)?;
    let closing = app.closing.clone();
    let told = stream::unfold((job, closing, Next::Now), async |(job, closing, next)| {
        match next {
            Next::Now => {}
            Next::Later => {
                let _ = tokio::time::timeout(BETWEEN_EVENTS, closing.cancelled()).await;
            }
            Next::End => return Some((Ok(Event::default().event("end").data("{}")), (job, closing, Next::Nothing))),
            Next::Nothing => return None,
        }
        let document = JobDocument::of(&job);
        let next = match document.is_last() {
            true => Next::End,
            false if closing.is_cancelled() => Next::Nothing,
            false => Next::Later,
        };
        let text = serde_json::to_string(&document).unwrap_or_default();
        Some((Ok(Event::default().event("job").data(text)), (job, closing, next)))
    });
    Ok(Sse::new(told.boxed()).keep_alive(KeepAlive::default()))
}

async fn cancel(State(app): SharedApp, Path(id): Path<String>) -> Answer<(StatusCode, Json<Value>)> {
    find(&app, &id)?.view.cancel();
    Ok((StatusCode::ACCEPTED, Json(json!({}))))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stop {
    drain: Option<bool>,
    savepoint: Option<String>,
}

async fn stop(
    State(app): SharedApp,
    Path(id): Path<String>,
    body: Result<Json<Stop>, JsonRejection>,
) -> Answer<(StatusCode, Json<Value>)> {
    let (job, Stop { drain, savepoint }) = (find(&app, &id)?, read(body)?);
    let drain = drain.unwrap_or_else(|| job.view.stop_drains());
    match savepoint {
        None => job.view.stop(drain),
        Some(path) => job.view.stop_with_savepoint(drain, &path).map_err(|error| failed(&error))?,
    }
    Ok((StatusCode::ACCEPTED, Json(json!({}))))
}

async fn checkpoint(State(app): SharedApp, Path(id): Path<String>) -> Answer<(StatusCode, Json<Value>)> {
    find(&app, &id)?.view.trigger_checkpoint().map_err(|error| failed(&error))?;
    Ok((StatusCode::ACCEPTED, Json(json!({}))))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TakeSavepoint {
    path: String,
}

async fn savepoint(
    State(app): SharedApp,
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

/// Parses the numbers of a task and a subtask in a path.
pub(crate) fn numbers(task: &str, subtask: &str) -> Answer<(u32, u32)> {
    let (Ok(task), Ok(subtask)) = (task.parse(), subtask.parse()) else {
        let why = format!("{task:?} and {subtask:?} are to be the numbers of a task and a subtask, from 0");
        return Err(Refusal::new(StatusCode::NOT_FOUND, why));
    };
    Ok((task, subtask))
}

pub(crate) fn find(app: &App, id: &str) -> Answer<Arc<ShownJob>> {
    app.jobs.find(id).ok_or_else(|| match app.kept(id, "job") {
        Some(_) => Refusal::new(StatusCode::CONFLICT, format!("job {id:?} has ended, and so has its process")),
        None => Refusal::no_job(id),
    })
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

/// Headers of every answer: only own content, no embedding in frames, no caching, no referrer.
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
