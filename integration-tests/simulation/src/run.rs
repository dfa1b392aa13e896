//! One run: the farm, what happens to it, and what is found.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use turmoil::Sim;
use usher_types::Goodbye;

use crate::agent::{clear_runtime_folder, prepare};
use crate::door::FOREVER;
use crate::faults::Faults;
use crate::invariants::{HostBookSeen, Violation};
use crate::plan::{Plan, QUIET, Sabotage, coordinator, door, gateway, host};
use crate::world::{State, World, name_of};
use crate::{agent, door as doors, gateway as gateways, operator};

/// One turn of the simulation. Shorter ones cost time and find nothing more.
const TICK: Duration = Duration::from_millis(10);
/// Segments of one connection that may be on their way: enough for every list.
const TCP_SEGMENTS: usize = 4096;
/// More tasks than this in a coordinator's process at the end are left behind by something: each stream and each connection has
/// a few.
const TASKS_AT_REST: usize = 150;

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Of the run.
    pub seed: u64,
    /// Of all its events, in hexadecimal.
    pub hash: String,
    /// How many there were.
    pub events: u64,
    /// Simulated time, seconds.
    pub simulated_seconds: f64,
    /// How often what happened.
    pub counts: BTreeMap<String, u64>,
    /// How often each invariant was checked.
    pub checks: BTreeMap<String, u64>,
    /// What broke.
    pub violations: Vec<Violation>,
    /// From the healing until every coordinator saw every host, seconds. Absent: never.
    pub seen_seconds: Option<f64>,
    /// From the healing until all views agreed, seconds. Absent: never.
    pub agreed_seconds: Option<f64>,
    /// Longest time of a call that nothing stood in the way of, milliseconds.
    pub longest_call_ms: u64,
    /// Most tasks that a coordinator had at the end.
    pub tasks: u64,
    /// The last events, if something broke.
    pub last_events: Vec<String>,
}

/// Panics since they were last taken. One process runs one simulation at a time.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// From now on panics are kept instead of printed.
pub fn catch_panics() {
    std::panic::set_hook(Box::new(|info| {
        PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(info.to_string());
    }));
}

fn take_panics() -> Vec<String> {
    std::mem::take(&mut *PANICS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Runs `plan`, whose hosts keep their files in `folder`; `is_shown` prints every event.
///
/// # Errors
/// When the simulation itself cannot go on. What the product does wrong is in the outcome.
pub fn run(plan: &Plan, folder: &std::path::Path, is_shown: bool) -> anyhow::Result<Outcome> {
    let world = Arc::new(World::new(plan.clone(), folder.to_owned(), is_shown));
    let mut sim = build(&world)?;
    let mut faults = Faults::new(plan);
    let end = plan.busy + QUIET;
    while sim.elapsed() < end {
        let now = sim.elapsed();
        if now < plan.busy {
            faults.apply_due(&mut sim, &world, now);
        } else if world.state().quiet_since.is_none() {
            faults.heal(&mut sim, &world, now);
            calm(&mut world.state(), now);
        }
        faults.finish_due(&mut sim, &world, now);
        if let Err(error) = sim.step() {
            let what = format!("a node's software ended: {error}");
            world.state().broke([Violation::new("no_panic", now, what)]);
            break;
        }
        clear_exited(&mut sim, &world);
        look(&world, sim.elapsed());
    }
    let elapsed = sim.elapsed();
    drop(sim);
    Ok(outcome(&world, elapsed))
}

fn build(world: &Arc<World>) -> anyhow::Result<Sim<'static>> {
    let plan = &world.plan;
    let mut sim = turmoil::Builder::new()
        .tick_duration(TICK)
        .simulation_duration(Duration::from_secs(100_000))
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(plan.latency)
        .tcp_capacity(TCP_SEGMENTS)
        .rng_seed(plan.seed)
        .build();
    for index in 0..plan.coordinators {
        let world = world.clone();
        sim.host(coordinator(index), move || crate::coordinator::run(world.clone(), index));
    }
    for index in 0..plan.limits.len() {
        prepare(world, index)?;
        let world = world.clone();
        let (of_agent, of_door) = (world.clone(), world);
        sim.host(host(index), move || agent::run(of_agent.clone(), index));
        sim.host(door(index), move || doors::run(of_door.clone(), index));
    }
    for index in 0..plan.gateways {
        let world = world.clone();
        sim.host(gateway(index), move || gateways::run(world.clone(), index));
    }
    let world = world.clone();
    sim.host("op", move || operator::run(world.clone()));
    Ok(sim)
}

/// From now on nobody comes or goes.
fn calm(state: &mut State, now: Duration) {
    state.is_quiet = true;
    state.quiet_since = Some(now);
    state.event_at(now, "all is healed");
    for machine in &mut state.machines {
        for session in machine.sessions.iter_mut().filter(|session| session.ends > now) {
            session.ends = FOREVER;
        }
    }
}

/// A process that has ended frees what it held.
fn clear_exited(sim: &mut Sim<'_>, world: &World) {
    let exited = std::mem::take(&mut world.state().exited);
    for node in exited {
        sim.crash(node.as_str());
    }
}

/// Looks at every host, and at the views once all is quiet.
fn look(world: &World, now: Duration) {
    let mut guard = world.state();
    let state = &mut *guard;
    for panic in take_panics() {
        state.broke([Violation::new("no_panic", now, panic)]);
    }
    // A tenth of a second is near enough for what takes seconds.
    if now.subsec_millis().is_multiple_of(100) {
        state.follow_hearing(world.plan.report_interval * 3, now);
    }
    let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut books = Vec::new();
    for (host, machine) in state.machines.iter().enumerate() {
        let Some(report) = machine.agent.as_ref().and_then(|agent| agent.load.borrow().clone()) else {
            continue;
        };
        let load = report.load();
        let mut book = HostBookSeen { users: load.users, ..HostBookSeen::default() };
        for place in &load.pending {
            let name = name_of(&place.token);
            places.entry(name.clone()).or_default().push(host);
            book.places.insert(name, place.counted_users);
        }
        books.push((host, book));
    }
    for (host, book) in books {
        let broken = state.limits.look_at_book(host, world.plan.limits[host], now, book);
        state.broke(broken);
    }
    let mut one_host = std::mem::take(&mut state.one_host);
    let heard = |a, b| (0..world.plan.coordinators).any(|c| state.hears(c, a, now) && state.hears(c, b, now));
    let broken = one_host.look(now, &places, heard);
    state.one_host = one_host;
    state.broke(broken);
    look_at_views(world, state, now);
}

fn look_at_views(world: &World, state: &mut State, now: Duration) {
    let Some(quiet_since) = state.quiet_since else { return };
    let (coordinators, since) = (world.plan.coordinators, now.saturating_sub(Duration::from_millis(1500)));
    let since = since.max(quiet_since);
    let is_seen = state.views.unseen(coordinators, state.machines.len(), since).is_empty();
    match (state.seen_after, is_seen) {
        (None, true) => {
            state.seen_after = Some(now.saturating_sub(quiet_since));
            state.event_at(now, "every coordinator sees every host");
        }
        // A stream that was open and dead was found out.
        (Some(_), false) => state.seen_after = None,
        _ => {}
    }
    let is_agreed = differences(world, state, now).is_empty();
    match (state.agreed_after, is_agreed) {
        (None, true) => {
            state.agreed_after = Some(now.saturating_sub(quiet_since));
            state.event_at(now, "all views agree");
        }
        // The last places come, and go when their time is over.
        (Some(_), false) => state.agreed_after = None,
        _ => {}
    }
}

fn differences(world: &World, state: &State, now: Duration) -> Vec<String> {
    let since = now.saturating_sub(Duration::from_millis(1500)).max(state.quiet_since.unwrap_or_default());
    let users = |machine: &crate::world::Machine| u32::try_from(machine.users(now).len()).unwrap_or(u32::MAX);
    let users: Vec<u32> = state.machines.iter().map(users).collect();
    state.views.differences(world.plan.coordinators, &users, since)
}

fn outcome(world: &World, now: Duration) -> Outcome {
    let mut guard = world.state();
    let state = &mut *guard;
    if state.seen_after.is_none() {
        let since = now.saturating_sub(Duration::from_millis(1500));
        let unseen = state.views.unseen(world.plan.coordinators, state.machines.len(), since);
        state.broke([Violation::new("seen", now, unseen.join("; "))]);
    }
    if state.agreed_after.is_none() {
        let differences = differences(world, state, now);
        state.broke([Violation::new("views_agree", now, differences.join("; "))]);
    }
    let tasks = state.coordinators.iter().map(|seen| seen.tasks).max().unwrap_or_default();
    if tasks > TASKS_AT_REST {
        state.broke([Violation::new("no_leak", now, format!("{tasks} tasks in a coordinator at rest"))]);
    }
    if state.limits.at_known_edges() > 0 {
        *state.counts.entry("limits_passed_at_a_known_edge".to_owned()).or_default() +=
            state.limits.at_known_edges();
    }
    let seconds = |time: Duration| time.as_secs_f64();
    let checks = [
        ("limit", state.limits.checks()),
        // Pairs of places that were watched; what was asked again in the quiet is in the counts.
        ("one_host", state.one_host.checks()),
        ("seen", 1),
        ("views_agree", 1),
        ("grace", state.grace.checks()),
        ("kept", state.kept.checks()),
        ("no_panic", 1),
        ("no_leak", state.coordinators.len() as u64),
        ("deadline", state.deadlines),
    ];
    Outcome {
        seed: world.plan.seed,
        hash: format!("{:016x}", state.log.hash()),
        events: state.log.count(),
        simulated_seconds: seconds(now),
        counts: state.counts.clone(),
        checks: checks.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
        seen_seconds: state.seen_after.map(seconds),
        agreed_seconds: state.agreed_after.map(seconds),
        longest_call_ms: u64::try_from(state.longest_call.as_millis()).unwrap_or(u64::MAX),
        tasks: tasks as u64,
        last_events: if state.violations.is_empty() { Vec::new() } else { state.log.last() },
        violations: state.violations.clone(),
    }
}

/// Tells an agent to leave, if one runs.
pub(crate) fn leave(state: &State, index: usize, goodbye: Goodbye) {
    if let Some(agent) = &state.machines[index].agent {
        agent.leave.send_replace(Some(goodbye));
    }
}

/// What a crash of the agent takes with it if that is what is sabotaged.
pub(crate) fn sabotage_book(world: &World, index: usize) {
    if world.plan.sabotage == Sabotage::ForgetBook {
        clear_runtime_folder(world, index);
    }
}
