//! Files of the web page. They are compiled into the extension: nothing is read from disk or from another host.

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;

/// Path, content type and content of each file.
const FILES: &[(&str, &str, &str)] = &[
    ("/", "text/html; charset=utf-8", include_str!("../page/index.html")),
    ("/icon.svg", "image/svg+xml", include_str!("../page/icon.svg")),
    ("/page.css", "text/css; charset=utf-8", include_str!("../page/page.css")),
    ("/page.js", SCRIPT, include_str!("../page/page.js")),
    ("/alerts.js", SCRIPT, include_str!("../page/alerts.js")),
    ("/bar.js", SCRIPT, include_str!("../page/bar.js")),
    ("/checkpoints.js", SCRIPT, include_str!("../page/checkpoints.js")),
    ("/failures.js", SCRIPT, include_str!("../page/failures.js")),
    ("/flame.js", SCRIPT, include_str!("../page/flame.js")),
    ("/graph.js", SCRIPT, include_str!("../page/graph.js")),
    ("/lines.js", SCRIPT, include_str!("../page/lines.js")),
    ("/log.js", SCRIPT, include_str!("../page/log.js")),
    ("/table.js", SCRIPT, include_str!("../page/table.js")),
    ("/text.js", SCRIPT, include_str!("../page/text.js")),
];

const SCRIPT: &str = "text/javascript; charset=utf-8";

pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, &(path, kind, content)| {
        router.route(path, get(async move || ([(header::CONTENT_TYPE, kind)], content).into_response()))
    })
}
