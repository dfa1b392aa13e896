//! A coordinator from start to stop: opens the store, takes over what it held, listens, serves, and ends clean.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use anyhow::{Context, anyhow};
use arc_swap::ArcSwap;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use usher_placement::{farm::Farm, reservation::Ledger};
use usher_proto::v1::{
    admin_service_server::AdminServiceServer, agent_service_server::AgentServiceServer,
    directory_service_server::DirectoryServiceServer, placement_service_server::PlacementServiceServer,
};
use usher_runtime::{
    clock::{Clock, SystemClock},
    config::ListenAddr,
    net::{Incoming, Limits, bind},
    shutdown::{SHUTDOWN_DEADLINE, Shutdown},
    tls::{Alpn, TlsFiles},
};

use crate::{
    VERSION,
    config::CoordinatorConfig,
    farm_task,
    grpc::{Admin, Agents, Directory, Placements, count_hosts},
    history::History,
    http::{self, HttpState},
    in_flight::InFlight,
    layers,
    links::Links,
    listening::ListeningFile,
    metrics::{FarmFigures, Metrics},
    placing::{self, Doors, Teller},
    pool_history::PoolHistory,
    shared::Shared,
    store::{STORE_FILE, StoreHandle, Stored},
    stored,
    virtual_hosts::VirtualHosts,
};

/// Pings on idle connections, so that a host without power is noticed.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs a coordinator until `shutdown` begins.
///
/// # Errors
/// What kept it from starting, or from ending clean.
pub async fn run(config: CoordinatorConfig, shutdown: Shutdown) -> anyhow::Result<()> {
    let metrics = Metrics::new(VERSION, usher_runtime::COMMIT);
    let store = StoreHandle::open(&config.data_dir.join(STORE_FILE), metrics.clone())
        .await
        .context("cannot open the store")?;
    ListeningFile::clear(&config.data_dir)?;
    let mut stored = store.load().await.context("cannot read the store")?;
    let tls = config.tls.files();
    let grpc = listen(&config.listen, tls.as_ref(), Alpn::H2).await?;
    let http = match config.http.listen.addr() {
        Some(addr) => Some(listen(addr, tls.as_ref(), Alpn::Http11).await?),
        None => None,
    };
    let (history, keep_history) = History::new();
    let (teller, to_tell) = Teller::new();
    let (farm_queue, farm_commands) = mpsc::channel(farm_task::QUEUE);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let ledger = Arc::new(Ledger::new());
    let now = clock.now();
    let shared = Arc::new(Shared {
        coordinator_id: stored.meta.coordinator_id.clone(),
        instance_id: uuid::Uuid::new_v4().to_string(),
        decision_prefix: decision_prefix(&stored),
        decisions: AtomicU64::new(0),
        last_tick_us: AtomicU64::new(now.as_micros()),
        seed: AtomicU64::new(rand::random()),
        snapshot: ArcSwap::default(),
        links: Links::default(),
        doors: Doors::default(),
        teller,
        in_flight: InFlight::default(),
        farm: farm_queue,
        virtual_hosts: VirtualHosts::default(),
        ledger: ledger.clone(),
        config,
        clock,
        history,
        metrics,
    });
    let pool_history = Arc::new(PoolHistory::new(std::mem::take(&mut stored.history)));
    let mut farm = Farm::new(ledger, now);
    farm.restore(stored::restored(stored, shared.clock.wall_unix_ms()), now);
    // Before anybody can ask: the pools that were stored are known from the first call on.
    shared.snapshot.store(farm.snapshot(now));
    let listening =
        ListeningFile::write(&shared.config.data_dir, grpc.1, http.as_ref().map(|(_, address)| *address))?;
    tracing::info!(
        grpc = %grpc.1,
        http = http.as_ref().map(|(_, address)| address.to_string()),
        tls = tls.is_some(),
        farm = shared.config.farm,
        version = VERSION,
        "coordinator started"
    );
    tokio::spawn(keep_history);
    tokio::spawn(placing::tell_hosts(shared.clone(), to_tell));
    watch_farm(&shared);
    let no_more_calls = CancellationToken::new();
    let farm_task = tokio::spawn(farm_task::run(
        farm,
        shared.clone(),
        store.clone(),
        farm_commands,
        shutdown.token(),
        no_more_calls.clone(),
    ));
    if let Some((incoming, _)) = http {
        let state = http_state(&shared);
        shutdown.spawn(http::serve(incoming, state, shutdown.token()));
    }
    // A service manager is told only if there is one.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    let served = serve_grpc(&shared, &store, pool_history, grpc.0, &shutdown).await;
    shutdown.begin();
    no_more_calls.cancel();
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    stop(farm_task, &store, &shutdown).await;
    drop(listening);
    served.context("the gRPC server ended")
}

async fn listen(
    addr: &ListenAddr,
    tls: Option<&TlsFiles>,
    alpn: Alpn,
) -> anyhow::Result<(Incoming, std::net::SocketAddr)> {
    let config =
        tls.map(|files| files.server_config(alpn)).transpose().context("cannot use the certificate files")?;
    let socket = addr.resolve().with_context(|| format!("cannot use address {addr}"))?;
    let listener = bind(socket).await.with_context(|| format!("cannot listen on {addr}"))?;
    let local = listener.local_addr().context("cannot tell the address that is listened on")?;
    Ok((Incoming::start(listener, config, Limits::default()), local))
}

/// Names this run of this coordinator: what an earlier run decided cannot be explained by this one.
fn decision_prefix(stored: &Stored) -> String {
    let short: String =
        stored.meta.coordinator_id.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    format!("{short}.{}", stored.meta.instance)
}

/// Lets the metrics look at the farm.
fn watch_farm(shared: &Arc<Shared>) {
    let watched = Arc::downgrade(shared);
    shared.metrics.set_farm(move || {
        let Some(shared) = watched.upgrade() else { return FarmFigures::default() };
        let snapshot = shared.snapshot.load();
        FarmFigures {
            reservations: shared.ledger.live() as u64,
            decisions: shared.history.len() as u64,
            ..count_hosts(&snapshot, shared.now())
        }
    });
}

fn http_state(shared: &Arc<Shared>) -> HttpState {
    let watched = shared.clone();
    let ready = move || {
        let (snapshot, now) = (watched.snapshot.load(), watched.now());
        if watched.is_frozen(now) {
            return Err("the farm task does not keep up, or this process was frozen".to_owned());
        }
        let waiting: Vec<String> = snapshot
            .pools
            .values()
            .filter(|pool| pool.is_stale(now))
            .map(|pool| {
                let (heard, expected) = (pool.heard.heard, pool.heard.expected);
                format!("in grace: pool {} heard {heard} of {expected} of its capacity", pool.name)
            })
            .collect();
        if waiting.is_empty() { Ok(()) } else { Err(waiting.join("; ")) }
    };
    HttpState { metrics: shared.metrics.clone(), ready: Arc::new(ready), farm: shared.config.farm.clone() }
}

async fn serve_grpc(
    shared: &Arc<Shared>,
    store: &StoreHandle,
    pool_history: Arc<PoolHistory>,
    incoming: Incoming,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    let limit = usize::try_from(shared.config.limits.max_message_bytes).unwrap_or(usize::MAX);
    let agents = Agents { shared: shared.clone(), store: store.clone(), shutdown: shutdown.clone() };
    let admin = Admin::new(shared.clone(), store.clone(), pool_history);
    let (health_reporter, health) = tonic_health::server::health_reporter();
    health_reporter.set_serving::<PlacementServiceServer<Placements>>().await;
    health_reporter.set_serving::<AgentServiceServer<Agents>>().await;
    health_reporter.set_serving::<DirectoryServiceServer<Directory>>().await;
    health_reporter.set_serving::<AdminServiceServer<Admin>>().await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(usher_proto::DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .map_err(|error| anyhow!("cannot serve reflection: {error}"))?;
    let server = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .layer(layers::stack(&shared.config, shared.metrics.clone()))
        .add_service(health)
        .add_service(reflection)
        .add_service(AgentServiceServer::new(agents).max_decoding_message_size(limit))
        .add_service(PlacementServiceServer::new(Placements(shared.clone())).max_decoding_message_size(limit))
        .add_service(DirectoryServiceServer::new(Directory(shared.clone())).max_decoding_message_size(limit))
        .add_service(AdminServiceServer::new(admin).max_decoding_message_size(limit))
        .serve_with_incoming_shutdown(incoming, shutdown.begun());
    tokio::pin!(server);
    tokio::select! {
        served = &mut server => served.map_err(anyhow::Error::from),
        // Streams that never end by themselves must not keep the process.
        () = async { shutdown.begun().await; tokio::time::sleep(GRACEFUL).await } => Ok(()),
    }
}

/// How long calls under way may take to end once the shutdown has begun; the rest of the time is for the store.
const GRACEFUL: Duration = Duration::from_secs(5);

async fn stop(farm_task: tokio::task::JoinHandle<()>, store: &StoreHandle, shutdown: &Shutdown) {
    let ending = async {
        if let Err(error) = farm_task.await {
            tracing::error!(%error, "the farm task did not end well");
        }
        if let Err(still_running) =
            shutdown.finish(SHUTDOWN_DEADLINE - GRACEFUL - Duration::from_secs(1)).await
        {
            tracing::warn!(%still_running, "ending anyway");
        }
        store.close().await;
    };
    // A disk that hangs must not keep the process.
    match tokio::time::timeout(SHUTDOWN_DEADLINE - GRACEFUL, ending).await {
        Ok(()) => tracing::info!("coordinator stopped"),
        Err(_elapsed) => tracing::error!("the store does not answer, ending without it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placing::testing::stuck_store;

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_hangs_does_not_keep_the_process() {
        let (store, release) = stuck_store().await;
        let writer = store.clone();
        let write = tokio::spawn(async move { writer.write(Vec::new()).await });
        let begun = tokio::time::Instant::now();
        stop(write_ends(write), &store, &Shutdown::new()).await;
        assert!(begun.elapsed() <= SHUTDOWN_DEADLINE - GRACEFUL, "{:?}", begun.elapsed());
        drop(release);
    }

    /// A farm task that ends by storing something.
    fn write_ends<T: Send + 'static>(write: tokio::task::JoinHandle<T>) -> tokio::task::JoinHandle<()> {
        tokio::spawn(async move { drop(write.await) })
    }
}
