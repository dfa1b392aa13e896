//! Connections, and how they end.
//!
//! A client that sends its head slowly, or an endless one, holds one connection and little memory until a deadline; the
//! number of connections is bounded. At a shutdown, answers under way are finished and idle connections closed.

use std::{sync::Arc, time::Duration};

use axum::Router;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use usher_runtime::net::{Conn, Incoming};

use super::{HttpState, router};

/// Connections at once: scrapers, load balancers' probes and a few people. Further ones wait in the listener's queue.
const MAX_CONNECTIONS: usize = 256;
/// Time for a request's head, and longest time that an unused connection is kept open.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest head, bytes; the library needs at least 8 KiB.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Most header lines of a request.
const MAX_HEADERS: usize = 64;
/// Answers under way at a shutdown get this long; each has a shorter deadline of its own.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(6);

/// Serves until `shutdown`, then finishes the answers under way.
pub async fn serve(mut incoming: Incoming, state: HttpState, shutdown: CancellationToken) {
    let farm = state.farm.clone();
    let router = router(state);
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = accept(&mut incoming, &room) => accepted,
        };
        let Some((conn, place)) = accepted else { break };
        let identity = conn.info().identity.as_ref();
        if let Some(stranger) =
            identity.filter(|peer| peer.farm.as_deref().is_some_and(|other| other != farm))
        {
            info!(peer = %stranger, farm = stranger.farm, "refused an HTTP connection of another farm");
            continue;
        }
        serve_connection(conn, place, router.clone(), &graceful);
    }
    drop(incoming);
    if tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        info!("some HTTP connections did not end in time");
    }
}

async fn accept(incoming: &mut Incoming, room: &Arc<Semaphore>) -> Option<(Conn, OwnedSemaphorePermit)> {
    // Room first: a connection that was accepted is served. The semaphore is never closed.
    let place = room.clone().acquire_owned().await.ok()?;
    let (conn, _) = incoming.next_conn().await?;
    Some((conn, place))
}

fn serve_connection(conn: Conn, place: OwnedSemaphorePermit, router: Router, graceful: &GracefulShutdown) {
    let mut builder = auto::Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS);
    let peer = conn.info().addr;
    let service = TowerToHyperService::new(router);
    let connection = builder.serve_connection(TokioIo::new(conn), service).into_owned();
    let watched = graceful.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = watched.await {
            debug!(%peer, error, "an HTTP connection ended early");
        }
        drop(place);
    });
}
