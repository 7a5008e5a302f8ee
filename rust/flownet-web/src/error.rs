//! Errors of starting the server, and refused requests.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Error of starting a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// It cannot listen on the address.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Requested address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The port and all ports tried after it are taken.
    #[error("no free port on {address} or the {tried} after it")]
    NoPort {
        /// First address.
        address: SocketAddr,
        /// Number of further ports tried.
        tried: u16,
    },
    /// The folder of ended jobs cannot be created.
    #[error("cannot keep jobs that have ended in {folder:?}: {error}")]
    Archive {
        /// Path of the folder.
        folder: std::path::PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The system provides no thread or runtime.
    #[error("cannot start the thread that serves: {0}")]
    Thread(#[source] io::Error),
}

/// Refusal of a request: a status and the reason.
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

    pub(crate) fn no_answer(task: u32, subtask: u32, limit: Duration) -> Self {
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
