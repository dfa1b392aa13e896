//! What happens to the farm?
//!
//! A scene says how many hosts of which sizes there are, who is on them, who comes, and what goes wrong. Everything that
//! chance decides about it is drawn at once into a [`Script`], before a method is asked, so that all methods of a seed
//! meet the same people, the same noise and the same faults.

use rand::RngExt;
use rand::seq::index;
use rand_pcg::Pcg64Mcg;

use crate::login::{Login, Logins, generator};

/// How long everything runs before the first login comes, seconds.
pub const LEAD_IN_S: f64 = 60.0;

/// How large the hosts are, as multiples of 8 cores and 32 GB.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Sizes {
    /// All 1.
    Equal,
    /// 1, 2, 4 in turn.
    Mixed,
}

impl Sizes {
    /// The size of the host number `host`.
    pub fn of(self, host: usize) -> f64 {
        match self {
            Self::Equal => 1.0,
            Self::Mixed => [1.0, 2.0, 4.0][host % 3],
        }
    }
}

/// Who comes.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Arrivals {
    /// So many in all, at any instant of the time.
    Logons {
        /// How many.
        count: usize,
        /// Within how many seconds.
        within_s: f64,
    },
    /// Everybody who was on a host that dies.
    Return {
        /// Within how many seconds.
        within_s: f64,
    },
}

/// A farm and what happens to it.
#[derive(Clone, PartialEq, Debug)]
pub struct Scene {
    /// Its name.
    pub name: String,
    /// Number of hosts, >= 1.
    pub hosts: usize,
    /// How large they are.
    pub sizes: Sizes,
    /// Sessions at the start, for a host of size 1.
    pub sessions: usize,
    /// Who comes.
    pub arrivals: Arrivals,
    /// How much faster than usual sessions end.
    pub turnover: f64,
    /// How often agents report, seconds.
    pub report_s: f64,
    /// Share of the hosts that die when the logins begin, and whose users come back.
    pub dying: f64,
    /// Share of the hosts that are empty and cold when the logins begin.
    pub fresh: f64,
    /// Share of the agents that freeze when the logins begin.
    pub frozen: f64,
    /// Share of the reports that are lost.
    pub lost_reports: f64,
    /// Equal coordinators; each login comes to one of them.
    pub coordinators: usize,
    /// By which share the real power of a host is less, or more, than it declares.
    pub capacity_error: f64,
    /// Whether agents report changes of sessions and places at once, as they do, or in the next report only.
    pub change_reports: bool,
    /// Whether agents list the places given by one coordinator to the others too, as they do.
    pub shares_places: bool,
    /// What agents tell of the work of a finished logon, over what it was: 1 is the truth.
    pub told_work: f64,
}

impl Scene {
    /// A storm: 10 sessions for a host of size 1, then 20 logons for each within 120 s.
    pub fn storm(hosts: usize, sizes: Sizes, report_s: f64) -> Self {
        let size: f64 = (0..hosts).map(|host| sizes.of(host)).sum();
        Self {
            name: "storm".into(),
            hosts,
            sizes,
            sessions: 10,
            // Whole sizes: it is a whole number.
            arrivals: Arrivals::Logons { count: (20.0 * size) as usize, within_s: 120.0 },
            turnover: 1.0,
            report_s,
            dying: 0.0,
            fresh: 0.0,
            frozen: 0.0,
            lost_reports: 0.0,
            coordinators: 1,
            capacity_error: 0.0,
            change_reports: true,
            shares_places: true,
            told_work: 1.0,
        }
    }

    /// The storm at another load: `load` x 20 logons.
    #[must_use]
    pub fn at_load(self, load: f64) -> Self {
        let arrivals = match self.arrivals {
            Arrivals::Logons { count, within_s } => {
                Arrivals::Logons { count: (count as f64 * load).round() as usize, within_s }
            }
            other => other,
        };
        Self { arrivals, ..self }
    }

    /// 28 sessions a host; one host of ten dies, and its users come back within 3 s.
    pub fn failover(hosts: usize, report_s: f64) -> Self {
        Self {
            name: "failover".into(),
            sessions: 28,
            arrivals: Arrivals::Return { within_s: 3.0 },
            dying: 0.1,
            ..Self::storm(hosts, Sizes::Equal, report_s)
        }
    }

    /// 28 sessions a host; one host of ten has just booted, is empty, and its logons cost 2.5 times as much for 120 s.
    /// As many logins come in these as the empty hosts would hold.
    pub fn fresh(hosts: usize, report_s: f64) -> Self {
        Self {
            name: "fresh".into(),
            sessions: 28,
            arrivals: Arrivals::Logons { count: hosts * 28 / 10, within_s: 120.0 },
            fresh: 0.1,
            ..Self::storm(hosts, Sizes::Equal, report_s)
        }
    }

    /// A working day: 30 sessions a host, each lives an hour, as many come as go, for 10 min.
    pub fn steady(hosts: usize, report_s: f64) -> Self {
        Self {
            name: "steady".into(),
            sessions: 30,
            arrivals: Arrivals::Logons { count: hosts * 5, within_s: 600.0 },
            turnover: 4.0,
            ..Self::storm(hosts, Sizes::Equal, report_s)
        }
    }

    /// The same under another name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }
}

/// Everything that chance decides about a scene, but for what methods draw themselves.
#[derive(Debug)]
pub(crate) struct Script {
    /// Who is on each host at the start.
    pub(crate) initial: Vec<Vec<Login>>,
    /// Who comes, in order of time.
    pub(crate) arrivals: Vec<Login>,
    /// Hosts that die, are fresh, and whose agents freeze.
    pub(crate) dying: Vec<bool>,
    pub(crate) fresh: Vec<bool>,
    pub(crate) frozen: Vec<bool>,
    /// Real over declared power of each host.
    pub(crate) power: Vec<f64>,
    /// When each agent reports, as a share of the interval, 0..1.
    pub(crate) phase: Vec<f64>,
    /// Until when logins come, seconds.
    pub(crate) ends_s: f64,
}

/// Purposes of generators.
pub(crate) mod purpose {
    pub(crate) const FARM: u64 = 1;
    pub(crate) const SESSIONS: u64 = 2;
    pub(crate) const ARRIVALS: u64 = 3;
    pub(crate) const NOISE: u64 = 4;
    pub(crate) const REPORTS: u64 = 5;
    pub(crate) const PLACING: u64 = 6;
}

impl Script {
    pub(crate) fn draw(scene: &Scene, seed: u64) -> Self {
        let logins = Logins::new(scene.turnover);
        let mut farm = generator(seed, purpose::FARM, 0);
        let phase = (0..scene.hosts).map(|_| farm.random()).collect();
        let power = (0..scene.hosts)
            .map(|_| 1.0 + if farm.random() { scene.capacity_error } else { -scene.capacity_error })
            .collect();
        let dying = drawn(scene.hosts, scene.dying, &mut farm);
        let fresh = drawn(scene.hosts, scene.fresh, &mut farm);
        let frozen = drawn(scene.hosts, scene.frozen, &mut farm);
        let initial: Vec<Vec<Login>> = (0..scene.hosts)
            .map(|host| {
                let mut rng = generator(seed, purpose::SESSIONS, host);
                let count = scene.sessions * scene.sizes.of(host) as usize;
                let count = if fresh[host] { 0 } else { count };
                (0..count).map(|_| logins.draw(0.0, &mut rng)).collect()
            })
            .collect();
        let (count, within_s) = match scene.arrivals {
            Arrivals::Logons { count, within_s } => (count, within_s),
            Arrivals::Return { within_s } => {
                let dead = initial.iter().zip(&dying).filter(|(_, dies)| **dies);
                (dead.map(|(sessions, _)| sessions.len()).sum(), within_s)
            }
        };
        let mut rng = generator(seed, purpose::ARRIVALS, 0);
        let mut arrivals: Vec<Login> = (0..count)
            .map(|_| {
                let at_s = LEAD_IN_S + within_s * rng.random::<f64>();
                logins.draw(at_s, &mut rng)
            })
            .collect();
        arrivals.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        Self { initial, arrivals, dying, fresh, frozen, power, phase, ends_s: LEAD_IN_S + within_s }
    }
}

/// Marks this share of the hosts, each as likely as any other.
fn drawn(hosts: usize, share: f64, rng: &mut Pcg64Mcg) -> Vec<bool> {
    let mut marks = vec![false; hosts];
    // A share of a number of hosts: it fits.
    let count = ((hosts as f64 * share).round() as usize).min(hosts);
    for host in index::sample(rng, hosts, count) {
        marks[host] = true;
    }
    marks
}
