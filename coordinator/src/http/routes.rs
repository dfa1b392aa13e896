//! The paths and their answers.

use std::time::Duration;

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request, State},
    http::{StatusCode, header},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::get,
};
use tower_http::trace::TraceLayer;

use super::HttpState;
use crate::metrics::CONTENT_TYPE;

/// Longest time for an answer. Each takes milliseconds; Prometheus itself gives up after 10 s by default.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Nothing here reads a body.
const MAX_BODY_BYTES: usize = 16 * 1024;

/// The router of all paths.
pub fn router(state: HttpState) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .layer(from_fn(in_time))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        // "Not ready" is an answer, not an error of ours: probes ask every few seconds.
        .layer(TraceLayer::new_for_http().on_failure(()))
        .with_state(state)
}

async fn metrics(State(state): State<HttpState>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], state.metrics.encode())
}

async fn readyz(State(state): State<HttpState>) -> (StatusCode, String) {
    match (state.ready)() {
        Ok(but) if but.is_empty() => (StatusCode::OK, "ready\n".to_owned()),
        Ok(but) => (StatusCode::OK, format!("ready\n{but}\n")),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

async fn in_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(ANSWER_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_elapsed) => (StatusCode::GATEWAY_TIMEOUT, "no answer in time\n").into_response(),
    }
}
