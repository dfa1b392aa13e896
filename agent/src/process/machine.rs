//! How is this machine's own host put together?

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use usher_placement::host::{CoreSettings, NameSettings};
use usher_runtime::clock::Clock;
use usher_types::{BootId, Endpoint, Hello, HostId, HostName, PoolName, Zone};

use super::{AgentError, Tasks};
use crate::config::AgentConfig;
use crate::coordinators::ServiceStatus;
use crate::hooks::run_hooks;
use crate::host::machine::{Measuring, OtherCollectors, run_periods};
use crate::host::{BaselineSource, HostHandle, HostSetup, OpenHost, SourceEvent, open};
use crate::inventory::InventoryLooks;
use crate::latency::counters::IngestCounters;
use crate::latency::listener::{LatencyListener, ListenAddresses, TimingBatch};
use crate::local::{LocalServer, StatusSource, Subject};
use crate::probe::{DoorWatch, run_probes};
use crate::sample::{BusAddress, HostFacts, Sampler, describe};
use crate::standing::StandingBoard;

/// Datagrams of timings that wait: about a second of what one listener can read.
const TIMINGS: usize = 1024;

/// Starts everything of this machine's host but its streams.
pub(super) async fn start(
    settings: &watch::Receiver<Arc<AgentConfig>>,
    coordinators: &[String],
    services: watch::Receiver<Arc<[ServiceStatus]>>,
    boot: &BootId,
    clock: &Arc<dyn Clock>,
    names: NameSettings,
    tasks: &mut Tasks,
) -> Result<HostHandle, AgentError> {
    let config = settings.borrow().clone();
    let config = &*config;
    let facts = HostFacts::read();
    let name = host_name(config, &facts)?;
    let pool = PoolName::new(&config.pool)?;
    let zone = config.zone.as_ref().map(Zone::new).transpose()?;
    let incarnation_ms = incarnation_ms(&**clock);
    let core = CoreSettings {
        pool: pool.clone(),
        overrides: config.host_overrides(),
        incarnation_ms,
        latency_period: config.latency.period.get(),
        periods: config.latency.periods,
        max_names: config.latency.max_names,
        names,
        coordinators: coordinators.to_vec(),
        report_interval: config.report_interval.get(),
    };
    let board = StandingBoard::default();
    let setup = HostSetup {
        occupancy_log: None,
        state_folder: config.state_dir.clone(),
        runtime_folder: config.runtime_dir.clone(),
        boot_id: boot.clone(),
        baselines: BaselineSource::Kept,
        placed: None,
        refreshable: true,
        board: board.clone(),
    };
    let hello = |host_id: HostId| Hello {
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        host_id,
        boot_id: boot.clone(),
        stream_epoch: 0,
        incarnation_ms,
        host_name: name.clone(),
        endpoints: endpoints(config, &name),
        labels: config.labels.clone(),
        pool,
        zone,
        cores: facts.cores,
        memory_bytes: facts.memory_bytes,
        cpu_model: facts.cpu_model,
        report_interval: config.report_interval.get(),
        latency_period: config.latency.period.get(),
        is_virtual: false,
        is_reporter: false,
    };
    let opened = open(setup, core, clock.clone(), hello)
        .map_err(|source| AgentError::Open { name: name.to_string(), source })?;
    Ok(start_tasks(settings, services, clock, opened, board, tasks).await)
}

async fn start_tasks(
    settings: &watch::Receiver<Arc<AgentConfig>>,
    services: watch::Receiver<Arc<[ServiceStatus]>>,
    clock: &Arc<dyn Clock>,
    opened: OpenHost,
    board: StandingBoard,
    tasks: &mut Tasks,
) -> HostHandle {
    let config = settings.borrow().clone();
    let config = &*config;
    let OpenHost { task, handle, events, refresh, inventory } = opened;
    let (timings_in, timings) = mpsc::channel(TIMINGS);
    let timings_queue = timings_in.downgrade();
    let latency = listen(config, timings_in, tasks).await;
    let status = StatusSource {
        host: handle.clone(),
        services,
        timings: latency.clone(),
        timings_queue,
        clock: clock.clone(),
        started: clock.now(),
    };
    let subject = Subject {
        status,
        drain: handle.drains.clone(),
        board: board.clone(),
        passwd: config.root.join("etc/passwd"),
    };
    serve_commands(config, subject, tasks);
    start_tries(settings, &handle, board.clone(), &events, tasks);
    let (inventory_state, inventory_fares) = watch::channel(None);
    let looks = InventoryLooks {
        settings: settings.clone(),
        root: config.root.clone(),
        list: inventory,
        state: inventory_state,
        board,
        clock: clock.clone(),
    };
    let measuring = Measuring {
        sampler: Sampler::new(&config.root, config.sessions.clone(), BusAddress::below(&config.root))
            .with_mounts(&config.mounts),
        settings: settings.clone(),
        report_interval: config.report_interval.get(),
        refresh,
        others: OtherCollectors { latency, inventory: inventory_fares },
        events: events.clone(),
    };
    let periods = run_periods(config.latency.period.get(), timings, events, tasks.stop.clone());
    let stop = tasks.stop.clone();
    tasks.spawn("the host's task", task.run(stop.clone()));
    tasks.spawn("the measuring task", measuring.run(stop.clone()));
    tasks.spawn("the task of periods", periods);
    tasks.spawn("the look for resources", looks.run(stop));
    handle
}

/// Starts the try of the door, the probes and the hooks.
fn start_tries(
    settings: &watch::Receiver<Arc<AgentConfig>>,
    host: &HostHandle,
    board: StandingBoard,
    events: &mpsc::Sender<SourceEvent>,
    tasks: &mut Tasks,
) {
    let door = DoorWatch {
        endpoints: host.hello.endpoints.clone(),
        settings: settings.clone(),
        pool_kind: host.door.clone(),
        board: board.clone(),
        events: events.clone(),
    };
    let probes = run_probes(settings.clone(), board.clone(), events.clone(), tasks.stop.clone());
    tasks.spawn("the try of the door", door.run(tasks.stop.clone()));
    tasks.spawn("the probes", probes);
    tasks.spawn("the hooks", run_hooks(settings.clone(), board, tasks.stop.clone()));
}

/// A socket that cannot be opened is no reason to leave the farm: the host then cannot be drained on itself.
fn serve_commands(config: &AgentConfig, subject: Subject, tasks: &mut Tasks) {
    match LocalServer::bind(&config.local_socket()) {
        Ok(server) => tasks.spawn("the local commands", server.run(subject, tasks.stop.clone())),
        Err(error) => {
            let error = describe(&error);
            tracing::warn!(error, "no commands are heard on this machine");
            subject.board.fares("commands", "socket", Some(error), None);
        }
    }
}

/// Opens the sockets for timings, each for itself: one that cannot be opened is told in every report, and no reason to
/// leave the farm.
async fn listen(
    config: &AgentConfig,
    timings: mpsc::Sender<TimingBatch>,
    tasks: &mut Tasks,
) -> Option<(Arc<IngestCounters>, Vec<String>)> {
    // Validated with the settings.
    let udp = config.statsd.udp().ok().flatten();
    let wanted = [
        udp.map(|udp| ListenAddresses { udp: Some(udp), unix: None }),
        config.statsd_socket().map(|unix| ListenAddresses { udp: None, unix: Some(unix) }),
    ];
    let counters = Arc::new(IngestCounters::default());
    let mut errors = Vec::new();
    let mut is_wanted = false;
    for addresses in wanted.into_iter().flatten() {
        is_wanted = true;
        match LatencyListener::bind(&addresses).await {
            Ok(listener) => {
                let run = listener.run(timings.clone(), counters.clone(), tasks.stop.clone());
                tasks.spawn("a listener for timings", run);
            }
            Err(error) => {
                let error = describe(&error);
                tracing::warn!(error, "timings cannot come this way");
                errors.push(error);
            }
        }
    }
    is_wanted.then_some((counters, errors))
}

fn host_name(config: &AgentConfig, facts: &HostFacts) -> Result<HostName, AgentError> {
    let name = config.name.clone().or_else(|| facts.host_name.clone()).unwrap_or_default();
    Ok(HostName::new(name)?)
}

fn endpoints(config: &AgentConfig, name: &HostName) -> Vec<Endpoint> {
    if config.endpoints.is_empty() {
        vec![Endpoint { kind: "ssh".into(), address: name.to_string(), port: 22 }]
    } else {
        config.endpoints.clone()
    }
}

pub(super) fn incarnation_ms(clock: &dyn Clock) -> u64 {
    u64::try_from(Duration::from_micros(clock.now().as_micros()).as_millis()).unwrap_or(u64::MAX)
}
