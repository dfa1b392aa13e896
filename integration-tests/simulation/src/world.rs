//! What is true, whoever believes what?
//!
//! Machines with their boots and those who sit at them, links that are broken, what gateways were answered: the programs
//! under test only see what they measure and what the network brings. One thread runs everything, so the lock is never
//! waited for; it is there because the programs' tasks must be able to move between threads.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use usher_agent::report::StreamsHeld;
use usher_placement::host::Report;
use usher_runtime::shutdown::Shutdown;
use usher_types::{Goodbye, Token};

use crate::clock::NodeClock;
use crate::invariants::{Grace, Kept, Limits, OneHost, Views, Violation};
use crate::log::EventLog;
use crate::plan::{Plan, Sabotage, host};
use crate::store::Stores;

/// Somebody at a host.
#[derive(Debug, Clone, PartialEq)]
pub struct TrueSession {
    /// As the host names it.
    pub id: String,
    /// Who.
    pub user: String,
    /// Since when.
    pub began: Duration,
    /// Until when.
    pub ends: Duration,
}

/// What an agent shows to whoever looks at the machine itself.
#[derive(Debug, Clone)]
pub struct AgentSeen {
    /// Its newest report.
    pub load: watch::Receiver<Option<Arc<Report>>>,
    /// Its streams.
    pub streams: StreamsHeld,
    /// Tells it to leave.
    pub leave: watch::Sender<Option<Goodbye>>,
}

/// One machine.
#[derive(Debug)]
pub struct Machine {
    /// Counts its boots.
    pub boot: u32,
    /// Its clocks.
    pub clock: Arc<NodeClock>,
    /// Who sits there.
    pub sessions: Vec<TrueSession>,
    /// Who sits there changed since the agent looked.
    pub is_changed: bool,
    /// Its last words were that it is shut down.
    pub said_goodbye: bool,
    /// Its agent, while one runs.
    pub agent: Option<AgentSeen>,
}

/// One coordinator.
#[derive(Debug)]
pub struct CoordinatorSeen {
    /// Its clocks.
    pub clock: Arc<NodeClock>,
    /// Counts its starts.
    pub starts: u32,
    /// Tells it to stop, while it runs.
    pub shutdown: Option<Shutdown>,
    /// Tasks of its process when they were last counted.
    pub tasks: usize,
    /// When it started, resumed or was cut off last.
    pub disturbed: Duration,
}

/// A request as a gateway made it, to be asked again.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The gateway.
    pub gateway: String,
    /// What it asked.
    pub request: usher_proto::v1::PlaceRequest,
    /// The host that it was given.
    pub host: usize,
    /// When.
    pub at: Duration,
}

/// Everything that is true, and what was found wrong.
#[derive(Debug)]
pub struct State {
    /// What happened.
    pub log: EventLog,
    /// How often what happened.
    pub counts: BTreeMap<String, u64>,
    /// What broke.
    pub violations: Vec<Violation>,
    /// The hosts.
    pub machines: Vec<Machine>,
    /// The coordinators.
    pub coordinators: Vec<CoordinatorSeen>,
    /// Links that are not as they should be, by the names of their nodes, and how many faults of them last.
    pub broken_links: BTreeMap<(String, String), u32>,
    /// Programs that ended, as they were told: their nodes are to be cleared.
    pub exited: BTreeSet<String>,
    /// Logins that gateways shall begin at once.
    pub storm: u32,
    /// No new logins, nobody leaves.
    pub is_quiet: bool,
    /// When everything was healed.
    pub quiet_since: Option<Duration>,
    /// Placements that gateways hold when all is quiet.
    pub asked: BTreeMap<String, Asked>,
    /// When the first list came in which every coordinator saw every host, and when all agreed, after the healing.
    pub seen_after: Option<Duration>,
    /// See `seen_after`.
    pub agreed_after: Option<Duration>,
    /// Longest time of a call that nothing stood in the way of.
    pub longest_call: Duration,
    /// When links were mended last.
    pub mended_links: BTreeMap<(String, String), Duration>,
    /// The checks.
    pub limits: Limits,
    /// See [`OneHost`].
    pub one_host: OneHost,
    /// See [`Grace`].
    pub grace: Grace,
    /// See [`Kept`].
    pub kept: Kept,
    /// See [`Views`].
    pub views: Views,
    /// Comparisons of deadlines.
    pub deadlines: u64,
    /// Since when a coordinator that runs does not hear a host, and whether that has made it OFFLINE.
    pub unheard: BTreeMap<(usize, usize), (Duration, bool)>,
    /// Numbers sessions.
    pub next_session: u64,
}

/// The truth, shared by all nodes.
pub struct World {
    /// What this run is made of.
    pub plan: Plan,
    /// Where hosts keep their files.
    pub folder: std::path::PathBuf,
    /// Where coordinators keep what lasts.
    pub stores: Stores,
    state: Mutex<State>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// How fast clocks run that run too fast on purpose, per cent. From twice as fast on a coordinator would notice.
const FAST: u32 = 180;

/// The simulated time, on whatever node runs now.
pub fn now() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}

/// A login's name everywhere.
pub fn name_of(token: &Token) -> String {
    format!("{}/{}", token.gateway, token.request_id)
}

impl World {
    /// The farm before anything runs.
    pub fn new(plan: Plan, folder: std::path::PathBuf, is_shown: bool) -> Self {
        let clock =
            |hours: u64| Arc::new(NodeClock::booted(Duration::from_secs(3600 * hours), Duration::ZERO));
        let machine = |index: usize| Machine {
            boot: 1,
            clock: clock(10 + index as u64),
            sessions: Vec::new(),
            is_changed: false,
            said_goodbye: false,
            agent: None,
        };
        let coordinator = |index: usize| CoordinatorSeen {
            clock: match plan.sabotage {
                Sabotage::FastClocks => Arc::new(NodeClock::running_at(FAST)),
                _ => clock(100 + index as u64),
            },
            starts: 0,
            shutdown: None,
            tasks: 0,
            disturbed: Duration::ZERO,
        };
        let state = State {
            log: EventLog::new(is_shown),
            counts: BTreeMap::new(),
            violations: Vec::new(),
            machines: (0..plan.limits.len()).map(machine).collect(),
            coordinators: (0..plan.coordinators).map(coordinator).collect(),
            broken_links: BTreeMap::new(),
            exited: BTreeSet::new(),
            storm: 0,
            is_quiet: false,
            quiet_since: None,
            asked: BTreeMap::new(),
            seen_after: None,
            agreed_after: None,
            longest_call: Duration::ZERO,
            mended_links: BTreeMap::new(),
            limits: Limits::default(),
            one_host: OneHost::default(),
            grace: Grace::default(),
            kept: Kept::default(),
            views: Views::default(),
            deadlines: 0,
            unheard: BTreeMap::new(),
            next_session: 0,
        };
        let stores = Stores::new(&plan);
        Self { plan, folder, stores, state: Mutex::new(state) }
    }

    /// The truth, to look at and to change. Not held over an await.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host of this name or id.
    pub fn host_named(&self, name: &str) -> Option<usize> {
        (0..self.plan.limits.len()).find(|index| host(*index) == name || host_id(*index) == name)
    }
}

/// The id of a host: what its agent finds in its state folder.
pub fn host_id(index: usize) -> String {
    format!("00000000-0000-4000-8000-{:012}", index + 1)
}

impl State {
    /// Something happened now, on whatever node runs.
    pub fn event(&mut self, what: impl AsRef<str>) {
        self.event_at(now(), what);
    }

    /// Something happened.
    pub fn event_at(&mut self, at: Duration, what: impl AsRef<str>) {
        self.log.add(at, what.as_ref());
    }

    /// Counts one of a kind.
    pub fn count(&mut self, what: impl Into<String>) {
        *self.counts.entry(what.into()).or_default() += 1;
    }

    /// Something broke, if it did.
    pub fn broke(&mut self, violation: impl IntoIterator<Item = Violation>) {
        for violation in violation {
            let at = Duration::from_millis(violation.at_ms);
            self.event_at(at, format!("VIOLATION of {}: {}", violation.invariant, violation.what));
            self.violations.push(violation);
        }
    }

    /// Whether messages pass between two nodes as they should.
    pub fn is_sound(&self, a: &str, b: &str) -> bool {
        let broken = |from: &str, to: &str| self.broken_links.contains_key(&(from.to_owned(), to.to_owned()));
        !broken(a, b) && !broken(b, a)
    }

    /// Finds hosts that have become OFFLINE to a coordinator: not heard for `within`.
    pub fn follow_hearing(&mut self, within: Duration, now: Duration) {
        for coordinator in 0..self.coordinators.len() {
            let runs = self.coordinators[coordinator].shutdown.is_some();
            for host in 0..self.machines.len() {
                let key = (coordinator, host);
                if !runs || self.hears(coordinator, host, now) {
                    let was_unheard = self.unheard.remove(&key).is_some();
                    if runs && was_unheard {
                        self.limits.heard(coordinator, host);
                    }
                    continue;
                }
                let (since, is_offline) = self.unheard.entry(key).or_insert((now, false));
                if !*is_offline && now.saturating_sub(*since) >= within {
                    *is_offline = true;
                    self.limits.went_offline(coordinator, host);
                }
            }
        }
    }

    /// Since when a coordinator does not hear a host. Absent: it does.
    pub fn unheard_since(&self, coordinator: usize, host: usize, now: Duration) -> Option<Duration> {
        let known = self.unheard.get(&(coordinator, host)).map(|(since, _)| *since);
        known.or_else(|| (!self.hears(coordinator, host, now)).then_some(now))
    }

    /// When the link of a gateway and a coordinator was mended last.
    pub fn link_mended(&self, gateway: &str, coordinator: usize) -> Duration {
        let key = (crate::plan::coordinator(coordinator), gateway.to_owned());
        self.mended_links.get(&key).copied().unwrap_or_default()
    }

    /// Whether the coordinator hears the host now: the tick that it sent was heard, and the link is as it should be.
    pub fn hears(&self, coordinator: usize, host: usize, now: Duration) -> bool {
        let (c, h) = (crate::plan::coordinator(coordinator), crate::plan::host(host));
        let seen = &self.coordinators[coordinator];
        if seen.shutdown.is_none() || !self.is_sound(&c, &h) {
            return false;
        }
        let machine = &self.machines[host];
        let Some(agent) = &machine.agent else { return false };
        let status = agent.streams.status(coordinator);
        // The clock of a machine stands while no program runs on it: what it read last is near enough.
        let age = status.heard.map(|heard| machine.clock.read(now).since(heard));
        status.phase == usher_agent::report::StreamPhase::Attached
            && age.is_some_and(|age| age < Duration::from_millis(1300))
    }
}

impl Machine {
    /// Those who sit there at `now`.
    pub fn users(&self, now: Duration) -> BTreeSet<String> {
        self.sessions
            .iter()
            .filter(|session| session.ends > now)
            .map(|session| session.user.clone())
            .collect()
    }

    /// Ends the sessions whose time has come.
    pub fn expire(&mut self, now: Duration) {
        let before = self.sessions.len();
        self.sessions.retain(|session| session.ends > now);
        self.is_changed |= self.sessions.len() != before;
    }
}
