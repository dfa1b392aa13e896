//! One host of the simulated farm: the real host task and its streams, measuring a machine that is made up.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::interval;
use tokio_util::sync::CancellationToken;
use usher_agent::coordinators::Losses;
use usher_agent::host::{BaselineSource, HostCommand, HostSetup, OpenHost, SourceEvent, open};
use usher_agent::report::Reporter;
use usher_agent::standing::StandingBoard;
use usher_placement::host::{CoreSettings, Measurement, NameSettings, Occupancy};
use usher_runtime::clock::Clock;
use usher_types::{
    BootId, Endpoint, Goodbye, Hello, HostId, HostName, HostOverrides, Memory, Percent, PoolName, Session,
    SessionState, UserLimit,
};

use crate::clock::NodeClock;
use crate::network::{DOOR_PORT, SimulatedDial};
use crate::plan::{Plan, Sabotage, coordinator, door, host, rng};
use crate::world::{AgentSeen, World, host_id, now};

/// The one pool of the farm.
pub const POOL: &str = "desk";
/// How often the machine is looked at for who came and went: as fast as session managers tell.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const MEMORY_BYTES: u64 = 64 << 30;
const CORES: u32 = 16;

/// Runs the agent of host number `index` until it is told to leave, or its node is crashed.
///
/// # Errors
/// What it did not start for.
pub async fn run(world: Arc<World>, index: usize) -> turmoil::Result {
    let name = host(index);
    let (clock, boot) = {
        let mut state = world.state();
        state.event(format!("{name} starts its agent"));
        (state.machines[index].clock.clone(), state.machines[index].boot)
    };
    let opened = open_host(&world, index, boot, &clock)?;
    let OpenHost { task, mut handle, events, .. } = opened;
    if world.plan.sabotage == Sabotage::KeepPlaces {
        handle.commands = without_ends(handle.commands);
    }
    let (leave, leaving) = watch::channel(None);
    {
        let mut state = world.state();
        state.limits.forget_book(index);
        let seen = AgentSeen { load: handle.load.clone(), streams: handle.streams_held.clone(), leave };
        state.machines[index].agent = Some(seen);
        state.machines[index].said_goodbye = false;
    }
    let stop = CancellationToken::new();
    let running = tokio::spawn(task.run(stop.clone()));
    tokio::spawn(measure(world.clone(), index, clock.clone(), events));
    let mut streams = tokio::task::JoinSet::new();
    let losses = Losses::default();
    for number in 0..world.plan.coordinators {
        let target = coordinator(number);
        let reporter = Reporter {
            number,
            rng: rng(world.plan.seed, &format!("{name} {target} {}", now().as_micros())),
            target,
            dial: Arc::new(SimulatedDial),
            host: handle.clone(),
            losses: losses.clone(),
            clock: clock.clone(),
            leaving: leaving.clone(),
        };
        streams.spawn(reporter.run());
    }
    drop(handle);
    while streams.join_next().await.is_some() {}
    stop.cancel();
    // What it kept is on disk when this returns; a panic is told by its hook.
    let _ = running.await;
    {
        let mut state = world.state();
        let goodbye = *leaving.borrow();
        state.event(format!("{name} has stopped: {goodbye:?}"));
        state.machines[index].said_goodbye = goodbye == Some(Goodbye::HostShutdown);
        state.machines[index].agent = None;
        state.exited.insert(name);
    }
    // Its process is gone: the node is cleared from outside.
    std::future::pending().await
}

fn folder(world: &World, index: usize) -> PathBuf {
    world.folder.join(host(index))
}

/// Hands on every command but that a place has ended.
fn without_ends(commands: mpsc::Sender<HostCommand>) -> mpsc::Sender<HostCommand> {
    let (to, mut from) = mpsc::channel(64);
    tokio::spawn(async move {
        while let Some(command) = from.recv().await {
            if !matches!(command, HostCommand::End { .. }) && commands.send(command).await.is_err() {
                return;
            }
        }
    });
    to
}

/// What a new host has before its agent first starts: its identity.
///
/// # Errors
/// When it cannot be written.
pub fn prepare(world: &World, index: usize) -> std::io::Result<()> {
    let state = folder(world, index).join("state");
    std::fs::create_dir_all(&state)?;
    std::fs::write(state.join("host_id"), host_id(index))
}

/// What a boot takes away, or a crash of the agent if that is what is sabotaged.
pub fn clear_runtime_folder(world: &World, index: usize) {
    // It may not be there yet.
    let _ = std::fs::remove_dir_all(folder(world, index).join("run"));
}

fn open_host(world: &World, index: usize, boot: u32, clock: &Arc<NodeClock>) -> anyhow::Result<OpenHost> {
    let plan = &world.plan;
    let boot_id = BootId::new(format!("boot-{}-{boot}", host(index)))?;
    let setup = HostSetup {
        state_folder: folder(world, index).join("state"),
        runtime_folder: folder(world, index).join("run"),
        boot_id: boot_id.clone(),
        baselines: BaselineSource::NotKept { known: Vec::new() },
        placed: None,
        refreshable: false,
        occupancy_log: None,
        board: StandingBoard::default(),
    };
    let incarnation_ms = clock.now().as_micros() / 1000;
    let core = core_settings(plan, index, incarnation_ms)?;
    let hello = hello(plan, index, boot_id, &core)?;
    Ok(open(setup, core, clock.clone(), move |host_id| Hello { host_id, ..hello })?)
}

fn core_settings(plan: &Plan, index: usize, incarnation_ms: u64) -> anyhow::Result<CoreSettings> {
    let limit = match plan.sabotage {
        Sabotage::AdmitAll => 1000,
        _ => plan.limits[index],
    };
    let known = match plan.sabotage {
        Sabotage::GreedyShare => 1,
        _ => plan.coordinators,
    };
    Ok(CoreSettings {
        pool: PoolName::new(POOL)?,
        overrides: HostOverrides { max_users: Some(UserLimit::Users(limit)), ..HostOverrides::default() },
        incarnation_ms,
        latency_period: Duration::from_secs(15),
        periods: 5,
        max_names: 64,
        names: NameSettings::default(),
        coordinators: (0..known).map(coordinator).collect(),
        report_interval: plan.report_interval,
    })
}

fn hello(plan: &Plan, index: usize, boot_id: BootId, core: &CoreSettings) -> anyhow::Result<Hello> {
    let endpoint = Endpoint { kind: "ssh".to_owned(), address: door(index), port: DOOR_PORT };
    Ok(Hello {
        agent_version: "0.2.0".to_owned(),
        host_id: HostId::new(host_id(index))?,
        boot_id,
        stream_epoch: 0,
        incarnation_ms: core.incarnation_ms,
        host_name: HostName::new(host(index))?,
        endpoints: vec![endpoint],
        labels: BTreeMap::new(),
        pool: core.pool.clone(),
        zone: None,
        cores: Some(CORES),
        memory_bytes: Some(MEMORY_BYTES),
        cpu_model: Some("simulated".to_owned()),
        report_interval: plan.report_interval,
        latency_period: core.latency_period,
        is_virtual: false,
        is_reporter: false,
    })
}

/// Tells the host task what its machine is like: at once, each interval, and soon after somebody came or went.
async fn measure(world: Arc<World>, index: usize, clock: Arc<NodeClock>, events: mpsc::Sender<SourceEvent>) {
    let mut looks = interval(LOOK_EVERY);
    let mut next_report = Duration::ZERO;
    loop {
        looks.tick().await;
        let now = now();
        let event = {
            let mut state = world.state();
            let machine = &mut state.machines[index];
            machine.expire(now);
            let is_changed = std::mem::take(&mut machine.is_changed);
            let session = |session: &crate::world::TrueSession| Session {
                id: session.id.clone(),
                user: session.user.clone(),
                state: SessionState::Active,
                age: Some(now.saturating_sub(session.began)),
            };
            let occupancy = Occupancy::Listed(machine.sessions.iter().map(session).collect());
            if now >= next_report {
                next_report = now + world.plan.report_interval;
                let values = Box::new(measurement(machine.sessions.len(), &clock));
                Some(SourceEvent::Measured { values, occupancy })
            } else {
                is_changed.then_some(SourceEvent::Sessions { occupancy, logons: None })
            }
        };
        if let Some(event) = event
            && events.send(event).await.is_err()
        {
            return;
        }
    }
}

fn measurement(sessions: usize, clock: &NodeClock) -> Measurement {
    let sessions = sessions as f64;
    Measurement {
        cpu: Percent::new((3.0 + 4.0 * sessions).min(90.0)).ok(),
        runnable_demand: Some(0.03 + 0.04 * sessions),
        memory: Memory::new(((2.0 + sessions) * f64::from(1 << 30)) as u64, MEMORY_BYTES),
        processes: Some(100 + 10 * sessions as u32),
        uptime: Some(Duration::from_micros(clock.now().as_micros())),
        ..Measurement::default()
    }
}
