//! What do others do? The rules that peers use, on what agents reported last.
//!
//! Each is written down in a few lines here, independent of the crates that are tested. With [`Given::Counted`] the
//! places given out and not yet seen as sessions in a report are added: what a broker itself did is the one thing that it
//! knows at once.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::{Placer, lowest};
use crate::{
    login::{LOGON_CORES, Login, any_of, generator},
    machines::{CORES, Machines},
    scene::{Scene, Script, purpose},
    sensors::Report,
};

/// A place that no session follows is forgotten after this time, seconds.
const TTL_S: f64 = 120.0;

/// How hosts are ordered.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    Any,
    InTurn,
    Sessions,
    WeightedLoad { by_capacity: bool },
    BestOfTwo,
    Index,
    Cpu,
}

/// Whether places given out count.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Given {
    Ignored,
    Counted,
}

#[derive(Copy, Clone, Debug)]
struct Place {
    login: usize,
    given_s: f64,
    is_session: bool,
}

/// A broker that ranks by the last reports.
#[derive(Debug)]
pub(crate) struct Stale {
    rule: Rule,
    given: Given,
    /// As declared.
    size: Vec<f64>,
    usable: Vec<bool>,
    reports: Vec<Option<Report>>,
    places: Vec<Vec<Place>>,
    next: usize,
    rng: Pcg64Mcg,
}

impl Stale {
    pub(crate) fn new(rule: Rule, given: Given, scene: &Scene, script: &Script, seed: u64) -> Self {
        Self {
            rule,
            given,
            size: (0..scene.hosts).map(|host| scene.sizes.of(host)).collect(),
            usable: script.fresh.iter().map(|fresh| !fresh).collect(),
            reports: vec![None; scene.hosts],
            places: vec![Vec::new(); scene.hosts],
            next: 0,
            rng: generator(seed, purpose::PLACING, 0),
        }
    }

    fn usable(&self) -> impl Iterator<Item = usize> {
        (0..self.usable.len()).filter(|host| self.usable[*host])
    }

    fn given(&self, host: usize) -> f64 {
        self.places[host].len() as f64
    }

    fn score(&self, host: usize, top: (f64, f64)) -> f64 {
        let Some(report) = &self.reports[host] else { return f64::INFINITY };
        match self.rule {
            Rule::Any | Rule::InTurn => 0.0,
            Rule::Sessions => (f64::from(report.sessions) + self.given(host)) / self.size[host],
            Rule::Index => report.expansion_factor,
            Rule::Cpu => report.cpu + LOGON_CORES * self.given(host) / (CORES * self.size[host]),
            Rule::WeightedLoad { .. } | Rule::BestOfTwo => {
                let (users, processes) = self.counts(host, report);
                let share = |part: f64, top: f64| if top > 0.0 { part / top } else { 0.0 };
                let steady = 15.0 * report.cpu + 15.0 * report.memory;
                steady + 55.0 * share(users, top.0) + 15.0 * share(processes, top.1)
            }
        }
    }

    /// Users and processes, as the weighted load counts them.
    fn counts(&self, host: usize, report: &Report) -> (f64, f64) {
        let is_raw = self.rule == Rule::WeightedLoad { by_capacity: false };
        let size = if is_raw { 1.0 } else { self.size[host] };
        ((f64::from(report.sessions) + self.given(host)) / size, f64::from(report.processes) / size)
    }

    fn tops(&self) -> (f64, f64) {
        if !matches!(self.rule, Rule::WeightedLoad { .. } | Rule::BestOfTwo) {
            return (0.0, 0.0);
        }
        let counts = self.usable().filter_map(|host| Some(self.counts(host, self.reports[host].as_ref()?)));
        counts.fold((0.0, 0.0), |top, counts| (f64::max(top.0, counts.0), f64::max(top.1, counts.1)))
    }

    fn choose(&mut self) -> Option<usize> {
        match self.rule {
            Rule::Any => {
                let usable: Vec<usize> = self.usable().collect();
                usable.get(any_of(usable.len(), &mut self.rng)).copied()
            }
            Rule::InTurn => {
                let hosts = self.usable.len();
                let host = (0..hosts).map(|n| (self.next + n) % hosts).find(|host| self.usable[*host])?;
                self.next = host + 1;
                Some(host)
            }
            Rule::BestOfTwo => {
                let top = self.tops();
                let usable: Vec<usize> = self.usable().collect();
                let first = any_of(usable.len(), &mut self.rng);
                // Another one than the first.
                let second = if usable.len() < 2 {
                    first
                } else {
                    (first + self.rng.random_range(1..usable.len())) % usable.len()
                };
                let mut rng = self.rng.clone();
                let pair = [*usable.get(first)?, *usable.get(second)?];
                let chosen = lowest(pair.iter().map(|host| (*host, self.score(*host, top))), &mut rng);
                self.rng = rng;
                chosen
            }
            _ => {
                let top = self.tops();
                let mut rng = self.rng.clone();
                let chosen = lowest(self.usable().map(|host| (host, self.score(host, top))), &mut rng);
                self.rng = rng;
                chosen
            }
        }
    }
}

impl Placer for Stale {
    fn report(&mut self, host: usize, report: &Report, now_s: f64) {
        self.reports[host] = Some(*report);
        self.places[host].retain(|place| !place.is_session && now_s - place.given_s <= TTL_S);
    }

    fn session_begins(&mut self, host: usize, login: usize, _now_s: f64) {
        for place in self.places[host].iter_mut().filter(|place| place.login == login) {
            place.is_session = true;
        }
    }

    fn session_ends(&mut self, _host: usize, _now_s: f64) {}

    fn host_dies(&mut self, host: usize, _now_s: f64) {
        self.usable[host] = false;
    }

    fn host_boots(&mut self, host: usize, _now_s: f64) {
        self.usable[host] = true;
    }

    fn second(&mut self, _now_s: f64) {}

    fn step_ends(&mut self, _truth: &Machines, _now_s: f64) {}
    fn agent_freezes(&mut self, _host: usize, _now_s: f64) {}

    fn place(&mut self, number: usize, _login: &Login, _truth: &Machines, now_s: f64) -> Option<usize> {
        let host = self.choose()?;
        if self.given == Given::Counted {
            self.places[host].push(Place { login: number, given_s: now_s, is_session: false });
        }
        Some(host)
    }
}
