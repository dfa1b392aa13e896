//! Which scenes, by which methods, over how many seeds?

use usher_simulator::{Method, Scene, Sizes};

/// How much is run.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Extent {
    /// Hosts of most scenes.
    pub(crate) hosts: usize,
    /// Seeds of most scenes.
    pub(crate) seeds: u64,
    /// Hosts and seeds of the storm with many hosts.
    pub(crate) many: (usize, u64),
    /// Hosts and seeds of the pool that is too large to be looked at as a whole.
    pub(crate) large: (usize, u64),
}

impl Extent {
    /// Everything.
    pub(crate) const FULL: Self = Self { hosts: 100, seeds: 30, many: (1000, 30), large: (10_000, 30) };
    /// In a few minutes.
    pub(crate) const QUICK: Self = Self { hosts: 100, seeds: 8, many: (1000, 2), large: (2000, 1) };
}

/// One scene and who places its logins.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) scene: Scene,
    pub(crate) methods: &'static [Method],
    pub(crate) seeds: u64,
}

/// Always beside each other: an easy opponent alone proves nothing.
const STANDARD: &[Method] = &[
    Method::Random,
    Method::RoundRobin,
    Method::BestOfTwoAadsStale,
    Method::AadsStale,
    Method::AadsReservations,
    Method::CpuReservations,
    Method::WeightedLoad,
    Method::WeightedLoadBest,
    Method::Predictive,
    Method::Oracle,
];

/// Whole scans against the way that is taken in large pools.
const LARGE: &[Method] = &[Method::Predictive, Method::PredictiveWholeScan];

/// The names of the scenes that goals speak of.
pub(crate) mod name {
    pub(crate) const STORM: &str = "storm, R = 5 s";
    pub(crate) const STORM_1: &str = "storm, R = 1 s";
    pub(crate) const STORM_15: &str = "storm, R = 15 s";
    pub(crate) const MIXED: &str = "mixed farm";
    pub(crate) const FAILOVER: &str = "failover of 10 %";
    pub(crate) const FROZEN: &str = "10 % of the agents frozen";
    pub(crate) const LOST: &str = "20 % of the reports lost";
    pub(crate) const THREE: &str = "three coordinators";
    pub(crate) const MANY: &str = "storm, many hosts";
    pub(crate) const LARGE: &str = "storm, large pool";
}

/// Everything that is run, in the order in which it is printed.
pub(crate) fn plan(extent: Extent) -> Vec<Item> {
    let hosts = extent.hosts;
    let storm = |report_s| Scene::storm(hosts, Sizes::Equal, report_s);
    let standard =
        |scene: Scene, name: &str| Item { scene: scene.named(name), methods: STANDARD, seeds: extent.seeds };
    let all = |scene, name| Item { methods: Method::ALL, ..standard(scene, name) };
    let sized = |(hosts, seeds): (usize, u64), name, methods| Item {
        scene: Scene::storm(hosts, Sizes::Equal, 5.0).named(name),
        methods,
        seeds,
    };
    vec![
        all(storm(5.0), name::STORM),
        all(storm(1.0), name::STORM_1),
        all(storm(15.0), name::STORM_15),
        all(Scene::storm(hosts, Sizes::Mixed, 5.0), name::MIXED),
        standard(storm(5.0).at_load(0.8), "storm at load 0.8"),
        standard(storm(5.0).at_load(1.2), "storm at load 1.2"),
        all(Scene::failover(hosts, 5.0), name::FAILOVER),
        standard(Scene::fresh(hosts, 5.0), "10 % of the hosts fresh and cold"),
        standard(Scene::steady(hosts, 5.0), "a steady day"),
        standard(Scene { frozen: 0.1, ..storm(5.0) }, name::FROZEN),
        standard(Scene { lost_reports: 0.2, ..storm(5.0) }, name::LOST),
        standard(Scene { lost_reports: 0.5, ..storm(5.0) }, "50 % of the reports lost"),
        standard(Scene { coordinators: 3, ..storm(5.0) }, name::THREE),
        standard(
            Scene { coordinators: 3, shares_places: false, change_reports: false, ..storm(5.0) },
            "three coordinators that share nothing",
        ),
        standard(Scene { told_work: 0.5, ..storm(5.0) }, "half of a logon's work told"),
        standard(Scene { told_work: 2.0, ..storm(5.0) }, "twice a logon's work told"),
        standard(Scene { capacity_error: 0.2, ..storm(5.0) }, "capacity 20 % off"),
        standard(Scene { change_reports: false, ..storm(5.0) }, "changes in the next report only"),
        sized(extent.many, name::MANY, STANDARD),
        sized(extent.large, name::LARGE, LARGE),
    ]
}
