//! Why there is nothing to look at, or an answer is none.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// A server could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// It cannot listen there.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// Nor on any of the ports that follow.
    #[error("no free port on {address} or the {tried} after it")]
    NoPort {
        /// The first.
        address: SocketAddr,
        /// How many were tried beyond.
        tried: u16,
    },
    /// The folder of jobs that have ended cannot be made.
    #[error("cannot keep jobs that have ended in {folder:?}: {error}")]
    Archive {
        /// Which.
        folder: std::path::PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The system gives no thread or runtime.
    #[error("cannot start the thread that serves: {0}")]
    Thread(#[source] io::Error),
}

/// An answer that is none.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    why: String,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, why: why.into() }
    }

    pub(crate) fn no_job(id: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is no job {id:?} here: /api/v1/jobs lists those there are"))
    }

    pub(crate) fn no_answer((task, subtask): (u32, u32), limit: Duration) -> Self {
        let why = format!("the worker of subtask {subtask} of task {task} did not answer within {limit:?}");
        Self::new(StatusCode::GATEWAY_TIMEOUT, why)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(json!({ "error": self.why }))).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
