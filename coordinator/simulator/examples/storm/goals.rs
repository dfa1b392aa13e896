//! What must hold, and does it?

use serde::Serialize;
use usher_simulator::{Figures, Method, Spread};

use crate::rows::Measured;
use crate::scenes::name;

/// Whether a low or a high figure is good.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Better {
    Lower,
    Higher,
}

/// One bound and whether it holds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Goal {
    pub(crate) id: &'static str,
    pub(crate) what: String,
    pub(crate) bound: f64,
    pub(crate) figure: f64,
    pub(crate) unit: &'static str,
    /// Half of the 95 % confidence interval of the figure.
    pub(crate) spread: f64,
    /// The worst seed.
    worst: f64,
    better: Better,
    pub(crate) met: bool,
}

const TIMES: &str = "times";

impl Goal {
    fn at_most(
        id: &'static str,
        what: impl Into<String>,
        bound: f64,
        unit: &'static str,
        found: Spread,
    ) -> Self {
        let (figure, spread) = (found.mean, (found.high - found.low) / 2.0);
        let (better, met) = (Better::Lower, figure <= bound);
        Self { id, what: what.into(), bound, figure, unit, spread, worst: found.worst, better, met }
    }
}

/// What the runs say of the goals.
pub(crate) fn goals(measured: &[Measured]) -> Vec<Goal> {
    let runs = Runs(measured);
    [runs.near_the_oracle(), runs.herds(), runs.weighted_loads(), runs.savings(), runs.large_pool()].concat()
}

struct Runs<'a>(&'a [Measured]);

impl Runs<'_> {
    fn scene(&self, scene: &str) -> Option<&Measured> {
        self.0.iter().find(|run| run.item.scene.name == scene)
    }

    fn ratio(&self, scene: &str, method: Method, reference: Method) -> Option<Spread> {
        self.scene(scene)?.ratio(method, reference)
    }

    fn over_oracle(&self, id: &'static str, scene: &str, method: Method, bound: f64) -> Option<Goal> {
        let run = self.scene(scene)?;
        let hosts = run.item.scene.hosts;
        let what = format!("p99 of {method} over that of the oracle: {scene}, {hosts} hosts");
        Some(Goal::at_most(id, what, bound, TIMES, run.ratio(method, Method::Oracle)?))
    }

    fn near_the_oracle(&self) -> Vec<Goal> {
        let predictive = |id, scene, bound| self.over_oracle(id, scene, Method::Predictive, bound);
        let worst = predictive("G4_worst", name::FAILOVER, 1.6).map(|goal| Goal {
            what: format!("{}, worst seed", goal.what),
            figure: goal.worst,
            met: goal.worst <= goal.bound,
            ..goal
        });
        let all = [
            predictive("G1_100", name::STORM, 1.10),
            predictive("G1_1000", name::MANY, 1.10),
            predictive("G2", name::STORM_15, 1.20),
            predictive("G3", name::MIXED, 1.10),
            predictive("G4_mean", name::FAILOVER, 1.20),
            worst,
            predictive("G6_frozen", name::FROZEN, 1.15),
            predictive("G6_lost", name::LOST, 1.15),
            predictive("G7", name::THREE, 1.20),
        ];
        all.into_iter().flatten().collect()
    }

    /// The worst of these methods, by its mean over the seeds.
    fn herd(&self, id: &'static str, scene: &str, methods: &[Method], bound: f64) -> Option<Goal> {
        let run = self.scene(scene)?;
        let spread = |method: &Method| {
            let herds = run.method(*method)?.values(|figures: &Figures| figures.herd);
            Some((*method, Spread::of(&herds)))
        };
        let worst = methods.iter().filter_map(spread).max_by(|a, b| a.1.mean.total_cmp(&b.1.mean))?;
        let names: Vec<&str> = methods.iter().map(|method| method.as_str()).collect();
        let what = format!(
            "most placements on one host in 5 s, for a host of size 1: {scene}; worst of {} is {}",
            names.join(", "),
            worst.0
        );
        Some(Goal::at_most(id, what, bound, "placements", worst.1))
    }

    fn herds(&self) -> Vec<Goal> {
        const RANKED_BY_LOAD: &[Method] =
            &[Method::WeightedLoad, Method::WeightedLoadBest, Method::Predictive];
        let all = [
            self.herd("G5_storm", name::STORM, RANKED_BY_LOAD, 5.0),
            self.herd("G5_failover", name::FAILOVER, RANKED_BY_LOAD, 6.0),
            self.herd("G5_availability", name::STORM, &[Method::Availability], 5.0),
        ];
        all.into_iter().flatten().collect()
    }

    fn weighted_loads(&self) -> Vec<Goal> {
        let all = [
            self.over_oracle("G8_default", name::STORM, Method::WeightedLoad, 1.40),
            self.over_oracle("G8_best", name::STORM, Method::WeightedLoadBest, 1.20),
        ];
        all.into_iter().flatten().collect()
    }

    fn savings(&self) -> Vec<Goal> {
        let saving = |id, reference: Method| {
            let ratio = self.ratio(name::STORM, Method::Predictive, reference)?;
            let percent = |ratio: f64| 100.0 * (1.0 - ratio);
            let (figure, bound) = (percent(ratio.mean), 20.0);
            Some(Goal {
                id,
                what: format!("p99 of predictive below that of {reference}: {}", name::STORM),
                bound,
                figure,
                unit: "percent",
                spread: 100.0 * (ratio.high - ratio.low) / 2.0,
                worst: percent(ratio.worst),
                better: Better::Higher,
                met: figure >= bound,
            })
        };
        let all = [
            saving("G9_round_robin", Method::RoundRobin),
            saving("G9_aads_reservations", Method::AadsReservations),
        ];
        all.into_iter().flatten().collect()
    }

    fn large_pool(&self) -> Vec<Goal> {
        let ratio = self.ratio(name::LARGE, Method::Predictive, Method::PredictiveWholeScan);
        let hosts = self.scene(name::LARGE).map_or(0, |run| run.item.scene.hosts);
        let what = format!("p99 by the large-pool path over that of a scan of all {hosts} hosts");
        ratio.map(|ratio| Goal::at_most("G10", what, 1.03, TIMES, ratio)).into_iter().collect()
    }
}
