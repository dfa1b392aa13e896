//! A pool in a few lines: storms and quiet hours, hosts that tell what they know, and some that lie.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use usher_types::FinishedLogons;

use super::*;
use crate::load::CostSample;

const STEP: f64 = 5.0;
/// Cores and seconds of a logon, seconds of its connecting, cores and bytes of a session.
const TRUTH: [f64; 5] = [1.4, 18.0, 2.2, 0.15, 0.7e9];
const AT_REST_BYTES: f64 = 3e9;

/// One host: sessions come as logons in a storm every so often, and go with time.
struct Host {
    rng: Pcg64Mcg,
    evidence: HostEvidence,
    sessions: f64,
    /// Seconds that are left of each logon.
    logons: Vec<f64>,
    /// When logons ended.
    finished: Vec<f64>,
    tells_finished: bool,
}

impl Host {
    fn new(seed: u64, tells_finished: bool) -> Self {
        let rng = Pcg64Mcg::seed_from_u64(seed);
        let (evidence, sessions) = (HostEvidence::default(), 10.0);
        Self { rng, evidence, sessions, logons: Vec::new(), finished: Vec::new(), tells_finished }
    }

    fn wavers(&mut self, by: f64) -> f64 {
        1.0 + by * (self.rng.random::<f64>() - 0.5) * 2.0
    }

    /// Five seconds pass, in which `rate` logons a minute come.
    fn step(&mut self, now: f64, rate: f64) -> CostSample {
        let expected = rate * STEP / 60.0;
        let came = (expected + self.rng.random::<f64>()) as usize;
        for _ in 0..came {
            let seconds = TRUTH[1] * self.wavers(0.5);
            self.logons.push(seconds);
            let took = TRUTH[2] * self.wavers(0.8);
            self.evidence.connected_after(took);
        }
        let logged_on: f64 = self.logons.iter().map(|left| left.min(STEP)).sum();
        self.logons.iter_mut().for_each(|left| *left -= STEP);
        let over = self.logons.iter().filter(|left| **left <= 0.0).count();
        self.logons.retain(|left| *left > 0.0);
        self.finished.extend(std::iter::repeat_n(now, over));
        self.finished.retain(|ended| now - ended <= 600.0);
        // Sessions live an hour.
        let left = self.sessions * STEP / 3600.0;
        self.sessions += came as f64 - if self.rng.random::<f64>() < left { 1.0 } else { 0.0 };
        let mean_logons = logged_on / STEP;
        let settled = (self.sessions - mean_logons).max(0.0);
        let demand = TRUTH[0] * mean_logons + TRUTH[3] * settled * self.wavers(0.15);
        let count = u32::try_from(self.finished.len()).unwrap();
        let finished = FinishedLogons {
            count,
            seconds: TRUTH[1] * f64::from(count),
            core_seconds: Some(TRUTH[0] * TRUTH[1] * f64::from(count)),
        };
        CostSample {
            elapsed_seconds: STEP,
            demand_cores: Some(demand),
            memory_bytes: Some(AT_REST_BYTES + TRUTH[4] * self.sessions * self.wavers(0.02)),
            sessions: Some(self.sessions.round()),
            mean_logons: Some(mean_logons),
            finished: self.tells_finished.then_some(finished),
        }
    }
}

/// Runs `hosts` for `seconds`; a storm of two minutes each ten. `lie` changes what the first one says.
fn run(
    learner: &mut CostLearner,
    hosts: &mut [Host],
    seconds: f64,
    lie: impl Fn(CostSample, &mut HostEvidence) -> CostSample,
) {
    let mut now = 0.0;
    while now < seconds {
        now += STEP;
        let rate = if now % 600.0 < 120.0 { 8.0 } else { 0.3 };
        for (n, host) in hosts.iter_mut().enumerate() {
            let mut sample = host.step(now, rate);
            if n == 0 {
                sample = lie(sample, &mut host.evidence);
            }
            host.evidence.observe(&sample);
        }
        learner.learn(STEP, || hosts.iter().map(|host| &host.evidence));
    }
}

fn farm(hosts: u64, tell_finished: bool) -> Vec<Host> {
    (0..hosts).map(|seed| Host::new(seed + 1, tell_finished)).collect()
}

fn honest(sample: CostSample, _: &mut HostEvidence) -> CostSample {
    sample
}

fn priors_times(factor: f64) -> CostLearner {
    let mut costs = LearnedCosts::PRIOR;
    costs.logon_cores.value = TRUTH[0] * factor;
    costs.logon_seconds.value = TRUTH[1] * factor;
    costs.connect_seconds.value = TRUTH[2] * factor;
    costs.session_cores.value = TRUTH[3] * factor;
    costs.session_memory_bytes.value = TRUTH[4] * factor;
    CostLearner::starting_from(&costs)
}

fn off_by(learner: &CostLearner) -> [f64; 5] {
    let each = learner.costs().each();
    std::array::from_fn(|n| each[n].1.value / TRUTH[n] - 1.0)
}

// rule: learned-converge
#[test]
fn costs_are_learned_from_priors_twice_too_large_or_small() {
    for (factor, hosts) in [(0.5, 10), (2.0, 10), (0.5, 3), (2.0, 3)] {
        let mut learner = priors_times(factor);
        run(&mut learner, &mut farm(hosts, true), 1800.0, honest);
        for (off, (of, value)) in off_by(&learner).into_iter().zip(learner.costs().each()) {
            assert!(off.abs() < 0.15, "{} from {factor} on {hosts} hosts: off by {off}", of.name);
            assert!(value.is_learned, "{}", of.name);
        }
    }
}

// rule: learned-converge
#[test]
fn one_host_alone_teaches_its_pool() {
    let mut learner = CostLearner::default();
    run(&mut learner, &mut farm(1, true), 7200.0, honest);
    for (off, (of, _)) in off_by(&learner).into_iter().zip(learner.costs().each()) {
        assert!(off.abs() < 0.25, "{}: off by {off}", of.name);
    }
}

// rule: learned-converge hosts that cannot tell of finished logons
#[test]
fn where_hosts_cannot_tell_of_finished_logons_their_cores_are_the_slope_of_demand() {
    for factor in [0.5, 2.0] {
        let mut learner = priors_times(factor);
        run(&mut learner, &mut farm(10, false), 1800.0, honest);
        let costs = learner.costs();
        let [cores, seconds, ..] = off_by(&learner);
        assert!(cores.abs() < 0.15, "off by {cores}");
        assert!(costs.logon_cores.is_learned && !costs.logon_seconds.is_learned);
        assert!((seconds - (factor - 1.0)).abs() < 1e-9, "nobody said how long they take");
    }
}

// rule: learned-lies
#[test]
fn a_host_that_lies_moves_a_cost_by_less_than_its_share() {
    type Lie = fn(CostSample, &mut HostEvidence) -> CostSample;
    let lies: [Lie; 4] = [
        |sample, _| CostSample { demand_cores: Some(1e9), ..sample },
        |sample, _| CostSample { sessions: Some(1e6 * (1.0 + sample.sessions.unwrap())), ..sample },
        |sample, _| {
            let finished = FinishedLogons { count: u32::MAX, seconds: 1e15, core_seconds: Some(1e300) };
            CostSample { memory_bytes: Some(0.0), finished: Some(finished), ..sample }
        },
        |sample, evidence| {
            (0..1000).for_each(|_| evidence.connected_after(1e6));
            sample
        },
    ];
    for (n, lie) in lies.into_iter().enumerate() {
        let (mut told, mut true_one) = (CostLearner::default(), CostLearner::default());
        run(&mut told, &mut farm(10, true), 1200.0, lie);
        run(&mut true_one, &mut farm(10, true), 1200.0, honest);
        for ((of, lied), (_, true_one)) in told.costs().each().into_iter().zip(true_one.costs().each()) {
            let moved = (lied.value / true_one.value - 1.0).abs();
            assert!(moved < 0.12, "lie {n} moves {} by {moved}", of.name);
        }
    }
}

// rule: learned-bounds
#[test]
fn the_first_minute_is_sane_whatever_the_first_host_says() {
    let mut learner = CostLearner::default();
    let lie = |sample: CostSample, _: &mut HostEvidence| CostSample {
        demand_cores: Some(1e9),
        finished: Some(FinishedLogons { count: 1_000_000, seconds: 1e12, core_seconds: Some(1.0) }),
        ..sample
    };
    for _ in 0..12 {
        run(&mut learner, &mut farm(1, true), STEP, lie);
        for (of, value) in learner.costs().each() {
            let times = value.value / of.prior;
            assert!((0.4..=2.5).contains(&times), "{} is {times} times its prior", of.name);
        }
    }
    assert_eq!(CostLearner::default().costs(), LearnedCosts::PRIOR);
}

// rule: learned-follow
#[test]
fn a_change_is_followed_within_hours_and_a_quiet_night_changes_nothing() {
    let mut learner = priors_times(3.0);
    let mut hosts = farm(5, true);
    run(&mut learner, &mut hosts, 3600.0, honest);
    let by_day = learner.costs().logon_seconds.value;
    hosts.iter_mut().for_each(|host| host.evidence = HostEvidence::default());
    for _ in 0..10_000 {
        learner.learn(STEP, || hosts.iter().map(|host| &host.evidence));
    }
    let by_night = learner.costs();
    assert!((by_night.logon_seconds.value / by_day - 1.0).abs() < 0.1);
    assert!(by_night.logon_seconds.is_learned && by_night.logon_seconds.samples == 0.0);
}

// rule: learned-kept
#[test]
fn what_was_learned_is_kept_over_a_restart() {
    let mut learner = CostLearner::default();
    run(&mut learner, &mut farm(5, true), 1200.0, honest);
    let row = serde_json::to_string(&learner.anchors()).unwrap();
    let again = CostLearner::resume(serde_json::from_str(&row).unwrap());
    assert!((again.costs().logon_cores.value / TRUTH[0] - 1.0).abs() < 0.15);
    assert!(again.costs().logon_cores.is_learned);
    // Rows from elsewhere: fields that are missing, and numbers that cannot be.
    let odd = r#"{"logon_cores":{"value":1e300,"seconds":-5.0},"session_cores":{"value":-1.0}}"#;
    let costs = CostLearner::resume(serde_json::from_str(odd).unwrap()).costs();
    assert_eq!(costs.logon_cores.value, CostBounds::LOGON_CORES.highest);
    assert_eq!(costs.session_cores.value, CostBounds::SESSION_CORES.lowest);
}
