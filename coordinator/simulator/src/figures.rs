//! How good was it?
//!
//! The one that people feel is the **logon expansion**: how much longer a logon took than it takes alone. The others say
//! why: how uneven the sessions are, how many logins went to one host at once, how long hosts were full. A logon that was
//! not done at the end of a run counts with the time that it had taken by then (it is *censored*), and so does one that
//! was refused: leaving them out would make the worst method look best.

use std::collections::VecDeque;

use serde::Serialize;

use crate::{login::Login, machines::Machines, scene::Scene};

/// The window in which a herd is counted, seconds.
const HERD_S: f64 = 5.0;
/// A host counts as full above this share of its CPU.
const FULL: f64 = 0.9;

/// What became of one login.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Placement {
    /// When it was placed, seconds.
    pub at_s: f64,
    /// Where. Absent: it was refused.
    pub host: Option<usize>,
    /// When its session began. Absent: it has not.
    pub began_s: Option<f64>,
    /// How long its logon took. Absent: it was not done at the end.
    pub took_s: Option<f64>,
    /// How long it takes alone.
    pub alone_s: f64,
    /// Whether a session was to follow.
    pub arrives: bool,
}

impl Placement {
    pub(crate) fn new(login: &Login, host: Option<usize>) -> Self {
        Self {
            at_s: login.at_s,
            host,
            began_s: None,
            took_s: None,
            alone_s: login.alone_s(),
            arrives: login.connect_s.is_some(),
        }
    }

    /// How much longer its logon took than alone; of one that was not done at `end_s`, so far. Absent: none was to come.
    pub fn expansion(&self, end_s: f64) -> Option<f64> {
        let took_s = self.took_s.unwrap_or_else(|| end_s - self.began_s.unwrap_or(self.at_s));
        self.arrives.then(|| (took_s / self.alone_s).max(1.0))
    }
}

/// One run.
#[derive(Clone, PartialEq, Debug)]
pub struct Trace {
    /// Every login, in order of time.
    pub logins: Vec<Placement>,
    /// Sessions of each host when the last login had arrived.
    pub sessions: Vec<u32>,
    /// Times a normal host.
    pub sizes: Vec<f64>,
    /// When the run ended at the latest, seconds.
    pub end_s: f64,
    recent: Vec<VecDeque<f64>>,
    herds: Vec<usize>,
    server_steps: u64,
    full_steps: u64,
}

/// The figures of one run.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct Figures {
    /// Median logon expansion.
    pub p50: f64,
    /// 99th percentile of it.
    pub p99: f64,
    /// Sessions of the fullest host over the mean, both for a host of size 1.
    pub peak_to_mean: f64,
    /// Most placements on one host in 5 s, for a host of size 1.
    pub herd: f64,
    /// Share of server-seconds above 90 % CPU while logins came, percent.
    pub full_percent: f64,
    /// Logins, and what became of them.
    pub logins: usize,
    /// Their logons were done.
    pub finished: usize,
    /// They were not when the run ended.
    pub censored: usize,
    /// No host was found.
    pub refused: usize,
    /// No session was to follow.
    pub never_arrived: usize,
}

impl Trace {
    pub(crate) fn new(scene: &Scene) -> Self {
        Self {
            logins: Vec::new(),
            sessions: Vec::new(),
            sizes: (0..scene.hosts).map(|host| scene.sizes.of(host)).collect(),
            end_s: 0.0,
            recent: vec![VecDeque::new(); scene.hosts],
            herds: vec![0; scene.hosts],
            server_steps: 0,
            full_steps: 0,
        }
    }

    pub(crate) fn placed(&mut self, host: usize, now_s: f64) {
        let recent = &mut self.recent[host];
        while recent.front().is_some_and(|at_s| now_s - at_s > HERD_S) {
            recent.pop_front();
        }
        recent.push_back(now_s);
        self.herds[host] = self.herds[host].max(recent.len());
    }

    pub(crate) fn watch(&mut self, machines: &Machines) {
        let alive = machines.alive.iter().filter(|alive| **alive).count();
        let full =
            machines.demand.iter().zip(&machines.cores).filter(|(demand, cores)| **demand > FULL * **cores);
        self.server_steps += alive as u64;
        self.full_steps += full.count() as u64;
    }

    /// All have arrived: who sits where? Only the first call counts.
    pub(crate) fn settle(&mut self, machines: &Machines) {
        if self.sessions.is_empty() {
            self.sessions = machines.sessions.clone();
        }
    }

    pub(crate) fn end(&mut self, logins: Vec<Placement>, end_s: f64) {
        (self.logins, self.end_s) = (logins, end_s);
    }

    /// Its figures.
    pub fn figures(&self) -> Figures {
        let mut expansions: Vec<f64> =
            self.logins.iter().filter_map(|login| login.expansion(self.end_s)).collect();
        expansions.sort_by(f64::total_cmp);
        let per_size: Vec<f64> = self
            .sessions
            .iter()
            .zip(&self.sizes)
            .map(|(sessions, size)| f64::from(*sessions) / size)
            .collect();
        let total: f64 = self.sessions.iter().map(|sessions| f64::from(*sessions)).sum();
        let mean = total / self.sizes.iter().sum::<f64>();
        let herds = self.herds.iter().zip(&self.sizes).map(|(herd, size)| *herd as f64 / size);
        let count = |what: fn(&Placement) -> bool| self.logins.iter().filter(|login| what(login)).count();
        Figures {
            p50: percentile(&expansions, 0.5),
            p99: percentile(&expansions, 0.99),
            peak_to_mean: per_size.iter().copied().fold(0.0, f64::max) / mean.max(f64::MIN_POSITIVE),
            herd: herds.fold(0.0, f64::max),
            full_percent: 100.0 * self.full_steps as f64 / (self.server_steps as f64).max(1.0),
            logins: self.logins.len(),
            finished: count(|login| login.took_s.is_some()),
            censored: count(|login| login.arrives && login.host.is_some() && login.took_s.is_none()),
            refused: count(|login| login.arrives && login.host.is_none()),
            never_arrived: count(|login| !login.arrives),
        }
    }
}

/// The smallest of these sorted values that at least this share (0..=1) of them does not exceed; 1 of none.
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    // A share of a length: it fits.
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(1.0)
}
