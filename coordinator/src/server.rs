//! A coordinator from start to stop: opens the store, takes over what it held, listens, serves, and ends clean.

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use anyhow::{Context, anyhow};
use arc_swap::ArcSwap;
use rand::{RngExt, SeedableRng, rngs::StdRng};
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
    doors::{Doors, Knock, TcpKnock},
    identity::Role,
    net::{CONNECTION_WINDOW_BYTES, Incoming, Limits, STREAM_WINDOW_BYTES, bind},
    shutdown::{SHUTDOWN_DEADLINE, Shutdown},
    tls::{Alpn, TlsFiles},
};

use crate::{
    VERSION,
    config::CoordinatorConfig,
    farm_task,
    grpc::{Admin, Agents, Directory, Placements, PlacementsOnTheWire, count_hosts},
    history::History,
    http::{self, HttpState},
    in_flight::InFlight,
    layers,
    links::Links,
    listening::ListeningFile,
    metrics::{FarmFigures, Metrics},
    placing::{self, Teller},
    policy_file,
    pool_history::PoolHistory,
    publish::{self, Feed},
    shared::Shared,
    store::{EtcdStore, Presence, STORE_FILE, StoreHandle, Stored},
    store_follow, stored,
    virtual_hosts::VirtualHosts,
};

pub use crate::store_follow::SharedPart;

/// Pings on idle connections, so that a host without power is noticed.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// What a coordinator runs on. A process takes them from its machine, a simulation gives its own.
#[derive(Debug)]
pub struct Parts {
    /// Connections to the gRPC services.
    pub grpc: Incoming,
    /// Connections to the HTTP port. Absent: there is none.
    pub http: Option<Incoming>,
    /// What lasts.
    pub store: StoreHandle,
    /// Where coordinators share what people decide. Absent: they do not.
    pub shared: Option<SharedPart>,
    /// Where it is reached, as other coordinators are told.
    pub address: String,
    /// The counters.
    pub metrics: Metrics,
    /// Boot-time and wall clock.
    pub clock: Arc<dyn Clock>,
    /// Tries the doors of hosts whose agents are lost.
    pub knock: Arc<dyn Knock>,
    /// Of all chance: of ties between hosts, and of the id of this run.
    pub seed: u64,
}

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
    let tls = config.tls.files();
    let (grpc, address) = listen(&config.listen, tls.as_ref(), Alpn::H2).await?;
    if let Some(files) = &tls {
        look_at_own_name(files, &config.farm);
    }
    let http = match config.http.listen.addr() {
        Some(addr) => Some(listen(addr, tls.as_ref(), Alpn::Http11).await?),
        None => None,
    };
    let http_address = http.as_ref().map(|(_, address)| *address);
    let shared = config
        .store
        .etcd(&config.farm)
        .map(|options| SharedPart { store: Arc::new(EtcdStore::new(options)), seed: config.store.seed });
    let parts = Parts {
        grpc,
        http: http.map(|(incoming, _)| incoming),
        store,
        shared,
        address: address.to_string(),
        metrics,
        clock: Arc::new(SystemClock),
        knock: Arc::new(TcpKnock),
        seed: rand::random(),
    };
    if config.policy_file().is_none() {
        shutdown.spawn(policy_file::pass_over_hang_ups(shutdown.token()));
    }
    let data_dir = config.data_dir.clone();
    let ready = move || {
        let listening = ListeningFile::write(&data_dir, address, http_address)?;
        tracing::info!(grpc = %address, http = http_address.map(|address| address.to_string()), "listening");
        // A service manager is told only if there is one.
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        Ok(listening)
    };
    serve(config, parts, shutdown, ready).await
}

/// Runs a coordinator on `parts` until `shutdown` begins. `ready` is called once, when every call will be answered; what
/// it gives lives as long as the coordinator.
///
/// # Errors
/// What kept it from starting, or from ending clean.
pub async fn serve<T>(
    config: CoordinatorConfig,
    parts: Parts,
    shutdown: Shutdown,
    ready: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<()> {
    let Parts { grpc, http, store, shared: shared_part, address, metrics, clock, knock, seed } = parts;
    let mut rng = StdRng::seed_from_u64(seed);
    let instance_id = uuid::Builder::from_random_bytes(rng.random()).into_uuid().to_string();
    let begun = store_follow::begin(shared_part, store, clock.clone(), &instance_id).await?;
    let (store, follower, mut stored) = begun;
    if let Some(file) = config.policy_file() {
        policy_file::take_over(file, &mut stored, &store, &metrics, clock.wall_unix_ms()).await?;
    }
    let (history, keep_history) = History::new();
    let (teller, to_tell) = Teller::new();
    let (farm_queue, farm_commands) = mpsc::channel(farm_task::QUEUE);
    let ledger = Arc::new(Ledger::new());
    let now = clock.now();
    let shared = Arc::new(Shared {
        coordinator_id: stored.meta.coordinator_id.clone(),
        instance_id,
        decision_prefix: decision_prefix(&stored),
        decisions: AtomicU64::new(0),
        last_tick_us: AtomicU64::new(now.as_micros()),
        seed: AtomicU64::new(rng.random()),
        snapshot: ArcSwap::default(),
        links: Links::default(),
        doors: Doors::new(knock),
        feed: Feed::default(),
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
    tracing::info!(
        tls = shared.config.tls.files().is_some(),
        farm = shared.config.farm,
        version = VERSION,
        "coordinator started"
    );
    tokio::spawn(keep_history);
    tokio::spawn(placing::tell_hosts(shared.clone(), to_tell));
    watch_farm(&shared);
    shutdown.spawn(publish::run(shared.clone(), shutdown.token()));
    let no_more_calls = CancellationToken::new();
    let farm_task = tokio::spawn(farm_task::run(
        farm,
        shared.clone(),
        store.clone(),
        farm_commands,
        shutdown.token(),
        no_more_calls.clone(),
    ));
    if let Some(follower) = follower {
        store.announce(presence(&shared, address));
        shutdown.spawn(store_follow::run(follower, shared.clone(), pool_history.clone(), shutdown.token()));
    }
    if let Some(incoming) = http {
        let state = http_state(&shared, &store);
        shutdown.spawn(http::serve(incoming, state, shutdown.token()));
    }
    if let Some(file) = shared.config.policy_file().map(Path::to_owned) {
        let (shared, history) = (shared.clone(), pool_history.clone());
        shutdown.spawn(policy_file::reload_on_hang_up(
            file,
            shared,
            store.clone(),
            history,
            shutdown.token(),
        ));
    }
    let kept = ready()?;
    let served = serve_grpc(&shared, &store, pool_history, grpc, &shutdown).await;
    shutdown.begin();
    no_more_calls.cancel();
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    stop(farm_task, &store, &shutdown).await;
    drop(kept);
    served.context("the gRPC server ended")
}

/// A certificate that does not name a coordinator of this farm serves clients that do not look; ours do.
fn look_at_own_name(files: &TlsFiles, farm: &str) {
    let needed = format!("usher://{farm}/coordinator/NAME");
    match files.own_identity() {
        Ok(own) if own.has_role(Role::Coordinator) && own.farm.as_deref() == Some(farm) => {}
        Ok(own) => {
            let (own, its_farm) = (own.to_string(), own.farm);
            tracing::error!(
                own,
                its_farm,
                needed,
                "agents and clients refuse this certificate: it names another"
            );
        }
        Err(error) => tracing::error!(%error, needed, "agents and clients refuse this certificate"),
    }
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

/// As the other coordinators are told.
fn presence(shared: &Shared, address: String) -> Presence {
    Presence {
        coordinator_id: shared.coordinator_id.clone(),
        instance_id: shared.instance_id.clone(),
        address,
        version: VERSION.to_owned(),
        started_unix_ms: shared.clock.wall_unix_ms(),
    }
}

/// Lets the metrics look at the farm.
fn watch_farm(shared: &Arc<Shared>) {
    let watched = Arc::downgrade(shared);
    shared.metrics.set_farm(move || {
        let Some(shared) = watched.upgrade() else { return FarmFigures::default() };
        let (snapshot, now) = shared.look();
        FarmFigures {
            reservations: shared.ledger.live() as u64,
            decisions: shared.history.len() as u64,
            ..count_hosts(&snapshot, now)
        }
    });
}

fn http_state(shared: &Arc<Shared>, store: &StoreHandle) -> HttpState {
    let (watched, store) = (shared.clone(), store.clone());
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
        if waiting.is_empty() {
            Ok(store_follow::trouble(&store, &watched.metrics))
        } else {
            Err(waiting.join("; "))
        }
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
    let links = Arc::downgrade(shared);
    let departure = layers::Departure::new(shutdown.token(), move || {
        links.upgrade().map(|shared| shared.links.note_others().to_vec()).unwrap_or_default()
    });
    let leaving = async {
        shutdown.begun().await;
        departure.note();
        health_reporter.set_not_serving::<PlacementServiceServer<Placements>>().await;
        tokio::time::sleep(HINTING).await;
    };
    let server = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .layer(layers::stack(&shared.config, shared.metrics.clone()).until(departure.clone()))
        .add_service(health)
        .add_service(reflection)
        .add_service(AgentServiceServer::new(agents).max_decoding_message_size(limit))
        .add_service(PlacementsOnTheWire::new(Placements(shared.clone()), limit))
        .add_service(DirectoryServiceServer::new(Directory(shared.clone())).max_decoding_message_size(limit))
        .add_service(AdminServiceServer::new(admin).max_decoding_message_size(limit))
        .serve_with_incoming_shutdown(incoming, leaving);
    tokio::pin!(server);
    tokio::select! {
        served = &mut server => served.map_err(anyhow::Error::from),
        // Streams that never end by themselves must not keep the process.
        () = async { shutdown.begun().await; tokio::time::sleep(GRACEFUL).await } => Ok(()),
    }
}

/// So long connections are held open once the shutdown has begun, for new calls to hear whom to ask instead.
const HINTING: Duration = Duration::from_millis(300);

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
