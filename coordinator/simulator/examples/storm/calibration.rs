//! Is the model the one that is meant?
//!
//! Three methods need no report, so what they come to depends on the model alone: on what logons cost, how hosts share
//! their CPU, and how well the oracle knows it. If one of them is off, or the oracle is weak, a ratio to it proves nothing.

use serde::Serialize;
use usher_simulator::{Method, Spread};

use crate::rows::Measured;
use crate::scenes::name;

/// How far it may be off.
const TOLERANCE: f64 = 0.1;

/// p99 logon expansion in a storm on 100 hosts that report every 1, 5 and 15 s, as first found by another model.
const KNOWN: [(Method, [f64; 3]); 3] = [
    (Method::Random, [2.6, 2.6, 2.7]),
    (Method::RoundRobin, [1.52, 1.51, 1.52]),
    (Method::Oracle, [1.07, 1.07, 1.07]),
];

/// One figure of the model that is known.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) scene: &'static str,
    pub(crate) method: &'static str,
    pub(crate) known: f64,
    pub(crate) found: f64,
    pub(crate) holds: bool,
}

/// Holds the storm against what is known of it.
pub(crate) fn checks(measured: &[Measured]) -> Vec<Check> {
    let scenes = [name::STORM_1, name::STORM, name::STORM_15];
    let check = |(at, scene): (usize, &'static str), (method, known): &(Method, [f64; 3])| {
        let run = measured.iter().find(|run| run.item.scene.name == scene)?;
        let found = Spread::of(&run.method(*method)?.p99()).mean;
        let holds = (found / known[at] - 1.0).abs() <= TOLERANCE;
        Some(Check { scene, method: method.as_str(), known: known[at], found, holds })
    };
    let all = KNOWN.iter().flat_map(|known| scenes.into_iter().enumerate().map(move |at| (at, known)));
    all.filter_map(|(at, known)| check(at, known)).collect()
}
