//! What does usher do? The crates that coordinators run, fed as agents feed them.
//!
//! Each coordinator of the scene is a [`Farm`](usher_placement::farm::Farm) with its ledger; logins come to any of them.
//! They share nothing but what hosts tell: each agent lists the places that it knows in every report to all of them, and
//! sends one at once when places or sessions change. Nothing is told that a real agent could not see; what a logon costs
//! must be learned from that.

mod agent;
mod coordinator;
mod scan;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use usher_types::{BootTime, GatewayId, PolicyChange, PoolName};

use super::Placer;
use crate::{
    login::{Login, any_of, generator},
    machines::Machines,
    scene::{Scene, Script, purpose},
    sensors::Report,
};
use agent::{Agent, Held};
use coordinator::Coordinator;

/// Names are words of ours, so they are never refused.
const A_WORD: &str = "a word is a name";

/// The instant `now_s` on the clock of everyone. It does not begin at 0: what is older than a clock has no age.
fn instant(now_s: f64) -> BootTime {
    const BEGINS_US: u64 = 1_000_000_000;
    // Runs are short and instants not negative: it fits.
    BootTime::from_micros(BEGINS_US + (now_s * 1e6).round() as u64)
}

fn pool() -> PoolName {
    PoolName::new("desk").expect(A_WORD)
}

/// Coordinators, and the agents of the hosts.
#[derive(Debug)]
pub(crate) struct Usher {
    coordinators: Vec<Coordinator>,
    agents: Vec<Agent>,
    gateway: GatewayId,
    lost_reports: f64,
    change_reports: bool,
    shares_places: bool,
    losses: Pcg64Mcg,
    rng: Pcg64Mcg,
}

impl Usher {
    /// # Panics
    /// If the settings are refused: methods name only such as are not.
    pub(crate) fn new(change: &PolicyChange, scene: &Scene, script: &Script, seed: u64) -> Self {
        Self::with_scan(change, false, scene, script, seed)
    }

    /// The same; with `scans_all` each decision looks at every host, however many there are.
    pub(crate) fn with_scan(
        change: &PolicyChange,
        scans_all: bool,
        scene: &Scene,
        script: &Script,
        seed: u64,
    ) -> Self {
        let agents: Vec<Agent> = (0..scene.hosts).map(|host| Agent::new(scene, script, host)).collect();
        let mut coordinators: Vec<Coordinator> =
            (0..scene.coordinators).map(|_| Coordinator::new(change, scans_all)).collect();
        for (agent, _) in agents.iter().zip(&script.fresh).filter(|(_, fresh)| !**fresh) {
            coordinators.iter_mut().for_each(|coordinator| coordinator.attach(agent));
        }
        Self {
            coordinators,
            agents,
            gateway: GatewayId::new("gateway").expect(A_WORD),
            lost_reports: scene.lost_reports,
            change_reports: scene.change_reports,
            shares_places: scene.shares_places,
            losses: generator(seed, purpose::REPORTS, usize::MAX - 1),
            rng: generator(seed, purpose::PLACING, 0),
        }
    }

    fn send(&mut self, host: usize, now: BootTime) {
        let agent = &mut self.agents[host];
        let streams = u32::try_from(self.coordinators.len()).unwrap_or(u32::MAX);
        let Some(mut load) = agent.load(streams, now) else { return };
        let latency = agent.latency(now);
        for (number, coordinator) in self.coordinators.iter_mut().enumerate() {
            if !self.shares_places {
                load.pending = agent.pending_of(number, now);
            }
            coordinator.hear(agent, &load, latency.as_ref(), now);
        }
    }
}

impl Placer for Usher {
    fn report(&mut self, host: usize, report: &Report, now_s: f64) {
        let now = instant(now_s);
        self.agents[host].measured(report, now);
        self.send(host, now);
    }

    fn session_begins(&mut self, host: usize, login: usize, now_s: f64) {
        self.agents[host].session_begins(login, instant(now_s));
    }

    fn session_ends(&mut self, host: usize, _now_s: f64) {
        self.agents[host].session_ends();
    }

    fn agent_freezes(&mut self, host: usize, _now_s: f64) {
        self.agents[host].freeze();
    }

    fn host_dies(&mut self, host: usize, now_s: f64) {
        self.agents[host].freeze();
        for coordinator in &mut self.coordinators {
            coordinator.goodbye(&self.agents[host], instant(now_s));
        }
    }

    fn host_boots(&mut self, host: usize, now_s: f64) {
        self.agents[host].boot(instant(now_s));
        self.coordinators.iter_mut().for_each(|coordinator| coordinator.attach(&self.agents[host]));
    }

    fn second(&mut self, now_s: f64) {
        self.coordinators.iter_mut().for_each(|coordinator| coordinator.tick(instant(now_s)));
    }

    fn step_ends(&mut self, truth: &Machines, now_s: f64) {
        let now = instant(now_s);
        for host in 0..self.agents.len() {
            // It is told within the step and lists it in the next one: a tenth of a second is what agents wait.
            if !self.agents[host].has_changed(truth, host) || !self.change_reports {
                continue;
            }
            if self.losses.random::<f64>() >= self.lost_reports {
                self.send(host, now);
            }
        }
    }

    fn place(&mut self, number: usize, _login: &Login, _truth: &Machines, now_s: f64) -> Option<usize> {
        let now = instant(now_s);
        let asked = any_of(self.coordinators.len(), &mut self.rng);
        let seed = self.rng.random();
        let (host_id, place) = self.coordinators[asked].place(&self.gateway, number, seed, now)?;
        let host = agent::number_of(&host_id)?;
        self.agents[host].expect(Held::of(number, asked, place, now));
        Some(host)
    }
}
