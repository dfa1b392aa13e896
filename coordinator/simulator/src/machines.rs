//! What do the hosts do with what they are given?
//!
//! The truth of the model, in columns over the hosts and steps of a tenth of a second. A host has a steady demand (its
//! sessions, with noise that wanders) and logons, each of which wants 1.5 cores until its work is done. If together they
//! want more than there is, all get less in proportion. Above 95 % memory everything gets slower.
//!
//! It knows nothing of reports or placements: [`sensors`](crate::sensors) look at it, [`run`](crate::run) feeds it.

use rand_distr::{Distribution, StandardNormal};
use rand_pcg::Pcg64Mcg;

use crate::login::{LOGON_CORES, Login, generator};
use crate::scene::{LEAD_IN_S, Scene, Script, purpose};

/// One step, seconds.
pub const STEP_S: f64 = 0.1;
/// A host of size 1.
pub const CORES: f64 = 8.0;
/// See [`CORES`].
pub const MEMORY_GB: f64 = 32.0;
/// Memory in use at rest, for a host of size 1.
const AT_REST_GB: f64 = 2.0;
/// The noise of the steady demand: its share, and how long it remembers, seconds.
const NOISE: f64 = 0.15;
const NOISE_S: f64 = 20.0;
/// Above this share of memory in use a host gets slower, and how much.
const MEMORY_TIGHT: f64 = 0.95;
const TIGHT_SLOWS: f64 = 10.0;
/// What work costs on a cold host, and for how long it is cold, seconds.
const COLD_WORK: f64 = 2.5;
const COLD_S: f64 = 120.0;

/// A logon in progress.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Logon {
    /// The number of the login.
    pub(crate) login: usize,
    pub(crate) began_s: f64,
    left_core_s: f64,
    /// CPU time that it has had; more than its work on a cold host.
    used_core_s: f64,
    /// What its session uses once it is done.
    cpu_cores: f64,
    /// Memory that each core-second of its work takes.
    gb_per_core_s: f64,
}

/// A logon that is done.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Finished {
    pub(crate) host: usize,
    pub(crate) login: usize,
    pub(crate) took_s: f64,
    pub(crate) used_core_s: f64,
}

/// The hosts, in columns.
#[derive(Debug)]
pub(crate) struct Machines {
    /// Real power.
    pub(crate) cores: Vec<f64>,
    pub(crate) memory_gb: Vec<f64>,
    pub(crate) used_gb: Vec<f64>,
    /// CPU of the sessions whose logon is done, cores, without noise.
    pub(crate) steady: Vec<f64>,
    noise: Vec<f64>,
    noises: Vec<Pcg64Mcg>,
    pub(crate) sessions: Vec<u32>,
    pub(crate) processes: Vec<u32>,
    /// Placed, and not a session yet.
    pub(crate) connecting: Vec<u32>,
    pub(crate) logons: Vec<Vec<Logon>>,
    pub(crate) alive: Vec<bool>,
    cold_until_s: Vec<f64>,
    /// Wanted in the last step, cores.
    pub(crate) demand: Vec<f64>,
}

impl Machines {
    pub(crate) fn new(scene: &Scene, script: &Script, seed: u64) -> Self {
        let hosts = scene.hosts;
        let size: Vec<f64> = (0..hosts).map(|host| scene.sizes.of(host)).collect();
        let mut machines = Self {
            cores: size.iter().zip(&script.power).map(|(size, power)| CORES * size * power).collect(),
            memory_gb: size.iter().map(|size| MEMORY_GB * size).collect(),
            used_gb: size.iter().map(|size| AT_REST_GB * size).collect(),
            steady: vec![0.0; hosts],
            noise: vec![0.0; hosts],
            noises: (0..hosts).map(|host| generator(seed, purpose::NOISE, host)).collect(),
            sessions: vec![0; hosts],
            processes: vec![0; hosts],
            connecting: vec![0; hosts],
            logons: vec![Vec::new(); hosts],
            alive: vec![true; hosts],
            cold_until_s: script
                .fresh
                .iter()
                .map(|fresh| if *fresh { LEAD_IN_S + COLD_S } else { 0.0 })
                .collect(),
            demand: vec![0.0; hosts],
        };
        for host in 0..hosts {
            machines.noise[host] = NOISE * normal(&mut machines.noises[host]);
            for login in &script.initial[host] {
                machines.sessions[host] += 1;
                machines.processes[host] += login.processes;
                machines.used_gb[host] += login.memory_gb;
                machines.steady[host] += login.cpu_cores;
            }
            machines.demand[host] = machines.steady_now(host);
        }
        machines
    }

    /// Steady demand of a host with its noise, cores.
    pub(crate) fn steady_now(&self, host: usize) -> f64 {
        self.steady[host] * (1.0 + self.noise[host]).max(0.0)
    }

    /// A session begins: its processes are there at once, its memory grows as its logon gets on, and until that is done
    /// its CPU is that of the logon.
    pub(crate) fn begin_session(&mut self, host: usize, number: usize, login: &Login, now_s: f64) {
        self.sessions[host] += 1;
        self.processes[host] += login.processes;
        self.logons[host].push(Logon {
            login: number,
            began_s: now_s,
            left_core_s: login.work_core_s,
            used_core_s: 0.0,
            cpu_cores: login.cpu_cores,
            gb_per_core_s: login.memory_gb / login.work_core_s,
        });
    }

    /// A session whose logon is done is over.
    pub(crate) fn end_session(&mut self, host: usize, login: &Login) {
        self.sessions[host] = self.sessions[host].saturating_sub(1);
        self.processes[host] = self.processes[host].saturating_sub(login.processes);
        self.used_gb[host] = (self.used_gb[host] - login.memory_gb).max(0.0);
        self.steady[host] = (self.steady[host] - login.cpu_cores).max(0.0);
    }

    /// A host dies with everybody on it.
    pub(crate) fn kill(&mut self, host: usize) {
        self.alive[host] = false;
        (self.sessions[host], self.processes[host], self.steady[host]) = (0, 0, 0.0);
        self.demand[host] = 0.0;
        self.logons[host].clear();
    }

    /// The step that begins at `now_s`. Logons that are done are added to `finished`.
    pub(crate) fn step(&mut self, now_s: f64, finished: &mut Vec<Finished>) {
        let keep = (-STEP_S / NOISE_S).exp();
        let fresh = NOISE * (1.0 - keep * keep).sqrt();
        for host in 0..self.cores.len() {
            if !self.alive[host] {
                continue;
            }
            self.noise[host] = keep * self.noise[host] + fresh * normal(&mut self.noises[host]);
            let logons = self.logons[host].len();
            let demand = self.steady_now(host) + LOGON_CORES * logons as f64;
            self.demand[host] = demand;
            if logons > 0 {
                self.work(host, now_s, demand, finished);
            }
        }
    }

    fn work(&mut self, host: usize, now_s: f64, demand: f64, finished: &mut Vec<Finished>) {
        let granted = LOGON_CORES * (self.cores[host] / demand).min(1.0);
        let memory = self.used_gb[host] / self.memory_gb[host];
        let mut speed = granted / (1.0 + TIGHT_SLOWS * (memory - MEMORY_TIGHT).max(0.0));
        if now_s < self.cold_until_s[host] {
            speed /= COLD_WORK;
        }
        let (logons, mut at) = (&mut self.logons[host], 0);
        while at < logons.len() {
            let logon = &mut logons[at];
            let takes_s = logon.left_core_s / speed;
            self.used_gb[host] += logon.gb_per_core_s * speed * takes_s.min(STEP_S);
            if takes_s > STEP_S {
                logon.left_core_s -= speed * STEP_S;
                logon.used_core_s += granted * STEP_S;
                at += 1;
                continue;
            }
            let done = logons.swap_remove(at);
            let used_core_s = done.used_core_s + granted * takes_s;
            let took_s = now_s + takes_s - done.began_s;
            finished.push(Finished { host, login: done.login, took_s, used_core_s });
            self.steady[host] += done.cpu_cores;
        }
    }
}

fn normal(rng: &mut Pcg64Mcg) -> f64 {
    StandardNormal.sample(rng)
}
