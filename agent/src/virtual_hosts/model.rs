//! How does a host carry its users?
//!
//! A logon is a burst of work (lognormal, mean 24 core-seconds, at most 1.5 cores of it at once), so about 16 s alone.
//! A session then takes little CPU, or much: a bounded Pareto. CPU is shared in proportion to what is wanted; above
//! 95 % memory everything becomes slower. What the sessions want together wavers by 15 % within 20 s. The latency of
//! the `logon` operation follows the load as in a queue with as many servers as cores.
//!
//! The model is moved in tenths of a second while somebody logs on or is about to, else in one step from report to
//! report, which costs next to nothing however many hosts there are.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use usher_placement::host::{Measurement, Occupancy};
use usher_types::{FinishedLogons, LogonsInProgress, Memory, Percent, Session, SessionState, Token};

use super::draws::{bounded_pareto, exponential, lognormal, normal, poisson, unit};
use super::{CORES, MEMORY_BYTES, OPERATION, collectors};
use crate::latency::listener::OwnedTiming;

const STEP_S: f64 = 0.1;
const GIB: f64 = (1_u64 << 30) as f64;
const REST_GIB: f64 = 2.0;
const SESSIONS_AT_START: f64 = 10.0;
const LIFE_S: f64 = 4.0 * 3600.0;
const LOGON_CORE_S: f64 = 24.0;
const LOGON_CORES_MAX: f64 = 1.5;
const NEVER_ARRIVES: f64 = 0.02;
const NOISE: f64 = 0.15;
const NOISE_S: f64 = 20.0;
/// Unloaded latency of the `logon` operation.
const UNLOADED_US: f64 = 20_000.0;
const LATENCY_NOISE: f64 = 0.05;
/// Calls of the operation a second; at least five a period, so that each can be compared.
const CALLS_PER_S: f64 = 2.0;
/// A queue at full load has no finite latency; nearer than this the formula says nothing.
const RHO_MAX: f64 = 0.995;
/// How long a token is known, so that a place that is told again brings nobody twice.
const TOKEN_KNOWN_S: f64 = 600.0;
/// Most tokens known: as many as the host's book keeps.
const TOKENS_KNOWN: usize = 8192;
/// For how long a logon that is over is told of.
const FINISHED_TOLD_S: f64 = 600.0;

#[derive(Debug)]
struct ModelSession {
    id: String,
    user: String,
    began_s: f64,
    ends_s: f64,
    cores: f64,
    memory_gib: f64,
    processes: f64,
    /// Work of the logon, core-seconds; 0 of one that was there from the start.
    logon_work: f64,
    /// What is left of it; 0 when it is done.
    logon_left: f64,
}

/// One modelled host. Time is seconds since it was made.
#[derive(Debug)]
pub struct ModelHost {
    name: String,
    rng: Pcg64Mcg,
    now_s: f64,
    sessions: Vec<ModelSession>,
    /// Who is on the way, and when they arrive.
    arrivals: Vec<(f64, Token, String)>,
    /// Tokens and when they came.
    tokens: BTreeMap<Token, f64>,
    sessions_made: u64,
    noise: f64,
    /// Logons that are over: when, how long they took, and their work.
    finished: VecDeque<(f64, f64, f64)>,
    since_report: Used,
    since_period: Used,
}

/// CPU over some time.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    elapsed_s: f64,
    busy_core_s: f64,
    wanted_core_s: f64,
    logon_s: f64,
}

impl Used {
    fn add(&mut self, dt: f64, wanted_cores: f64, logons: f64) {
        self.elapsed_s += dt;
        self.logon_s += dt * logons;
        self.busy_core_s += dt * wanted_cores.min(f64::from(CORES));
        self.wanted_core_s += dt * wanted_cores;
    }

    fn share(self, core_s: f64) -> Option<f64> {
        (self.elapsed_s > 0.0).then(|| core_s / (self.elapsed_s * f64::from(CORES)))
    }
}

impl ModelHost {
    /// A host with about ten sessions, of which the first is as old as the farm may be. The same seed makes the same
    /// host.
    #[must_use]
    pub fn new(name: &str, seed: u64) -> Self {
        let mut host = Self {
            name: name.to_owned(),
            rng: Pcg64Mcg::seed_from_u64(seed),
            now_s: 0.0,
            sessions: Vec::new(),
            arrivals: Vec::new(),
            tokens: BTreeMap::new(),
            sessions_made: 0,
            noise: 0.0,
            finished: VecDeque::new(),
            since_report: Used::default(),
            since_period: Used::default(),
        };
        // A small number of sessions: it fits.
        let sessions = poisson(&mut host.rng, SESSIONS_AT_START) as usize;
        for number in 1..=sessions {
            let age_s = exponential(&mut host.rng, LIFE_S);
            let user = format!("{name}-u{number}");
            host.begin_session(user, -age_s, 0.0);
        }
        // So that the first report has a CPU share.
        host.step(STEP_S, 0.0);
        host
    }

    fn begin_session(&mut self, user: String, began_s: f64, logon_work: f64) {
        self.sessions_made += 1;
        let rng = &mut self.rng;
        self.sessions.push(ModelSession {
            id: format!("m{}", self.sessions_made),
            user,
            began_s,
            ends_s: self.now_s + exponential(rng, LIFE_S),
            cores: bounded_pareto(rng, 1.5, 0.05, 3.0),
            memory_gib: lognormal(rng, 0.69, 0.8),
            processes: 12.0 + exponential(rng, 6.0),
            logon_work,
            logon_left: logon_work,
        });
    }

    /// A place was given: its user arrives 1 to 4 s from `now_s`, or never. A token that is known brings nobody again.
    pub fn place(&mut self, token: Token, user: Option<String>, now_s: f64) {
        if self.tokens.len() >= TOKENS_KNOWN {
            self.tokens.retain(|_, came_s| now_s - *came_s < TOKEN_KNOWN_S);
        }
        if self.tokens.len() >= TOKENS_KNOWN || self.tokens.insert(token.clone(), now_s).is_some() {
            return;
        }
        let delay_s = 1.0 + 3.0 * unit(&mut self.rng);
        if unit(&mut self.rng) >= NEVER_ARRIVES {
            let user = user.unwrap_or_else(|| format!("{}-guest{}", self.name, self.tokens.len()));
            self.arrivals.push((now_s + delay_s, token, user));
        }
    }

    /// A place was given up: its user does not come any more.
    pub fn withdraw(&mut self, token: &Token) {
        self.arrivals.retain(|(_, expected, _)| expected != token);
    }

    /// Whether it must be moved in small steps.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !self.arrivals.is_empty() || self.sessions.iter().any(|session| session.logon_left > 0.0)
    }

    /// Moves it to `to_s`. Whether sessions began or ended.
    pub fn advance(&mut self, to_s: f64) -> bool {
        let mut changed = false;
        while self.now_s < to_s {
            let left_s = to_s - self.now_s;
            let dt = if self.is_active() { left_s.min(STEP_S) } else { left_s };
            changed |= self.step(dt, self.now_s + dt);
        }
        changed
    }

    fn step(&mut self, dt: f64, to_s: f64) -> bool {
        self.now_s = to_s;
        let before = self.sessions.len();
        self.sessions.retain(|session| session.ends_s > to_s);
        let mut changed = self.sessions.len() != before;
        let (arrived, on_the_way) =
            std::mem::take(&mut self.arrivals).into_iter().partition(|(at, _, _)| *at <= to_s);
        self.arrivals = on_the_way;
        let arrived: Vec<(f64, Token, String)> = arrived;
        for (_, _, user) in arrived {
            changed = true;
            let work = lognormal(&mut self.rng, LOGON_CORE_S, 0.5);
            self.begin_session(user, to_s, work);
        }
        self.work(dt);
        changed
    }

    fn work(&mut self, dt: f64) {
        let decay = (-dt / NOISE_S).exp();
        self.noise = self.noise * decay + NOISE * (1.0 - decay * decay).sqrt() * normal(&mut self.rng);
        let steady: f64 = self.sessions.iter().filter(|s| s.logon_left <= 0.0).map(|s| s.cores).sum();
        let logons = self.sessions.iter().filter(|s| s.logon_left > 0.0).count();
        let wanted = steady * (1.0 + self.noise).max(0.0) + LOGON_CORES_MAX * logons as f64;
        let share = if wanted > f64::from(CORES) { f64::from(CORES) / wanted } else { 1.0 };
        let crowded = (self.memory_used() - 0.95).max(0.0);
        let done = LOGON_CORES_MAX * share / (1.0 + 10.0 * crowded) * dt;
        for session in self.sessions.iter_mut().filter(|session| session.logon_left > 0.0) {
            session.logon_left = (session.logon_left - done).max(0.0);
            if session.logon_left <= 0.0 {
                self.finished.push_back((self.now_s, self.now_s - session.began_s, session.logon_work));
            }
        }
        self.since_report.add(dt, wanted, logons as f64);
        self.since_period.add(dt, wanted, logons as f64);
    }

    /// Share of the memory in use, 0..=1.
    fn memory_used(&self) -> f64 {
        let used_gib = REST_GIB + self.sessions.iter().map(|session| session.memory_gib).sum::<f64>();
        (used_gib * GIB / MEMORY_BYTES as f64).min(1.0)
    }

    /// What it tells of the time since the last call.
    pub fn measure(&mut self, uptime: Duration) -> Measurement {
        let used = std::mem::take(&mut self.since_report);
        let percent = |share: f64| Percent::new((100.0 * share).clamp(0.0, 100.0)).ok();
        let processes: f64 = self.sessions.iter().map(|session| session.processes).sum();
        Measurement {
            cpu: used.share(used.busy_core_s).and_then(percent),
            runnable_demand: used.share(used.wanted_core_s),
            memory: Memory::new((self.memory_used() * MEMORY_BYTES as f64) as u64, MEMORY_BYTES),
            processes: Some(processes.round() as u32),
            uptime: Some(uptime),
            logons_in_progress: Some(self.logons_in_progress(used)),
            finished_logons: Some(self.finished_logons()),
            collectors: collectors(),
            ..Measurement::default()
        }
    }

    fn logons_in_progress(&self, used: Used) -> LogonsInProgress {
        let now = self.sessions.iter().filter(|session| session.logon_left > 0.0).count();
        let mean = if used.elapsed_s > 0.0 { used.logon_s / used.elapsed_s } else { now as f64 };
        LogonsInProgress { now: u32::try_from(now).unwrap_or(u32::MAX), mean }
    }

    fn finished_logons(&mut self) -> FinishedLogons {
        let told_since_s = self.now_s - FINISHED_TOLD_S;
        let old = self.finished.iter().take_while(|(at_s, ..)| *at_s < told_since_s).count();
        self.finished.drain(..old);
        let sum = |of: fn(&(f64, f64, f64)) -> f64| self.finished.iter().map(of).sum();
        FinishedLogons {
            count: u32::try_from(self.finished.len()).unwrap_or(u32::MAX),
            seconds: sum(|(_, took_s, _)| *took_s),
            core_seconds: Some(sum(|(_, _, work)| *work)),
        }
    }

    /// Everybody who is on it.
    #[must_use]
    pub fn occupancy(&self) -> Occupancy {
        let session = |session: &ModelSession| Session {
            id: session.id.clone(),
            user: session.user.clone(),
            state: SessionState::Active,
            age: Duration::try_from_secs_f64(self.now_s - session.began_s).ok(),
        };
        Occupancy::Listed(self.sessions.iter().map(session).collect())
    }

    /// The calls of the period that ends now. Absent if no time passed.
    pub fn calls(&mut self) -> Option<OwnedTiming> {
        let used = std::mem::take(&mut self.since_period);
        let rho = used.share(used.wanted_core_s)?;
        let noise = 1.0 + LATENCY_NOISE * normal(&mut self.rng);
        Some(OwnedTiming {
            name: OPERATION.to_owned(),
            duration_us: (UNLOADED_US * expansion_factor(rho) * noise).max(1.0),
            weight: (CALLS_PER_S * used.elapsed_s).round().max(5.0),
        })
    }
}

/// How much slower a queue with [`CORES`] servers answers at load `rho` (>= 0) than without load: Sakasegawa's
/// approximation.
fn expansion_factor(rho: f64) -> f64 {
    let servers = f64::from(CORES);
    let rho = rho.min(RHO_MAX);
    1.0 + rho.powf((2.0 * (servers + 1.0)).sqrt()) / (servers * (1.0 - rho))
}

#[cfg(test)]
mod tests {
    use usher_types::{GatewayId, RequestId};

    use super::*;

    fn token(request: &str) -> Token {
        Token { gateway: GatewayId::new("g").unwrap(), request_id: RequestId::new(request).unwrap() }
    }

    fn sessions(host: &ModelHost) -> Vec<Session> {
        match host.occupancy() {
            Occupancy::Listed(sessions) => sessions,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_same_seed_makes_the_same_host() {
        let told = |seed| {
            let mut host = ModelHost::new("virtual-1", seed);
            host.place(token("r"), Some("alice".into()), 0.0);
            host.advance(30.0);
            (host.measure(Duration::ZERO), host.occupancy(), host.calls())
        };
        assert_eq!(told(5), told(5));
        assert_ne!(told(5), told(6));
    }

    #[test]
    fn a_placed_user_arrives_within_four_seconds_and_not_before_one() {
        let mut host = ModelHost::new("virtual-1", 3);
        let before = sessions(&host).len();
        host.place(token("r"), Some("alice".into()), 0.0);
        host.place(token("r"), Some("alice".into()), 0.0);
        assert!(!host.advance(0.9));
        assert!(host.advance(4.2));
        let after = sessions(&host);
        assert_eq!(after.len(), before + 1, "the same place again brings nobody");
        let alice = after.iter().find(|session| session.user == "alice").unwrap();
        assert!(alice.age.unwrap() < Duration::from_millis(3300));
        assert!(host.is_active(), "the logon works");
    }

    #[test]
    fn logons_are_told_while_they_last_and_for_ten_minutes_after() {
        let mut host = ModelHost::new("virtual-1", 3);
        host.place(token("r"), Some("alice".into()), 0.0);
        host.advance(5.0);
        let measured = host.measure(Duration::ZERO);
        let logons = measured.logons_in_progress.unwrap();
        assert_eq!((logons.now, measured.finished_logons.unwrap().count), (1, 0));
        assert!(logons.mean > 0.0 && logons.mean < 1.0, "{logons:?}");
        host.advance(200.0);
        let measured = host.measure(Duration::ZERO);
        let finished = measured.finished_logons.unwrap();
        assert_eq!((measured.logons_in_progress.unwrap().now, finished.count), (0, 1));
        let cores = finished.core_seconds.unwrap() / finished.seconds;
        assert!(cores > 1.2 && cores <= LOGON_CORES_MAX + 0.1, "{finished:?}");
        host.advance(900.0);
        assert_eq!(
            host.measure(Duration::ZERO).finished_logons.unwrap(),
            FinishedLogons { core_seconds: Some(0.0), ..FinishedLogons::default() }
        );
    }

    #[test]
    fn a_place_that_is_given_up_brings_nobody() {
        let mut host = ModelHost::new("virtual-1", 3);
        host.place(token("r"), Some("alice".into()), 0.0);
        host.withdraw(&token("r"));
        host.advance(10.0);
        assert!(sessions(&host).iter().all(|session| session.user != "alice"));
    }

    #[test]
    fn some_users_never_arrive() {
        let mut host = ModelHost::new("virtual-1", 11);
        let before = sessions(&host).len();
        for n in 0..1000 {
            host.place(token(&format!("r{n}")), None, 0.0);
        }
        host.advance(5.0);
        let arrived = sessions(&host).len() - before;
        assert!((960..=995).contains(&arrived), "{arrived}");
    }

    #[test]
    fn a_host_at_rest_is_moved_in_one_step_and_a_full_one_stays_within_its_bounds() {
        let mut host = ModelHost::new("virtual-1", 2);
        host.advance(3600.0);
        for n in 0..200 {
            host.place(token(&format!("r{n}")), None, host.now_s);
        }
        host.advance(host.now_s + 30.0);
        let measured = host.measure(Duration::ZERO);
        let memory = measured.memory.unwrap();
        assert!(memory.used_bytes <= memory.total_bytes);
        assert!(measured.runnable_demand.unwrap() > 0.0);
        assert!(host.calls().unwrap().duration_us.is_finite());
    }

    #[test]
    fn latency_grows_with_load() {
        assert!((expansion_factor(0.0) - 1.0).abs() < 1e-9);
        assert!(expansion_factor(0.5) < 1.05);
        assert!(expansion_factor(0.95) > 2.0);
        assert!(expansion_factor(1e9).is_finite());
    }
}
