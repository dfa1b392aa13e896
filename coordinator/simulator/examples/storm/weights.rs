//! Which weights of the weighted load serve a storm best?
//!
//! Every combination in steps of ten percent, on seeds that no figure is made from, then the best of them on more seeds.
//! What is found is what `weighted_load_best` uses: weights that were fitted to the seeds of a figure would prove nothing.

use usher_simulator::{Method, Scene, Sizes, Spread, each, run, run_with_settings};
use usher_types::{PolicyChange, WeightsChange};

/// Percent of one step.
const STEP: usize = 10;
/// Far from those that figures are made from.
const FIRST_SEED: u64 = 1_000_000;
/// Seeds of the first look at all, and of the second look at the best.
const LOOKS: [u64; 2] = [2, 16];
/// How many are looked at twice.
const BEST: usize = 12;

/// CPU, memory, users, processes, percent.
type Weights = [usize; 4];

fn all() -> Vec<Weights> {
    let steps = 100 / STEP;
    let mut all = Vec::new();
    for cpu in 0..=steps {
        for memory in 0..=steps - cpu {
            for users in 0..=steps - cpu - memory {
                all.push([cpu, memory, users, steps - cpu - memory - users].map(|step| step * STEP));
            }
        }
    }
    all
}

/// Mean of p99 over that of the oracle.
fn expansion(scene: &Scene, [cpu, memory, users, processes]: Weights, seeds: u64) -> f64 {
    let percent = |weight: usize| Some(weight as f64);
    let weights = WeightsChange {
        cpu_percent: percent(cpu),
        memory_percent: percent(memory),
        users_percent: percent(users),
        processes_percent: percent(processes),
    };
    let settings = PolicyChange { weights: Some(weights), ..PolicyChange::default() };
    let seeds = FIRST_SEED..FIRST_SEED + seeds;
    let ratio = |seed| run_with_settings(scene, &settings, seed).p99 / run(scene, Method::Oracle, seed).p99;
    Spread::of(&seeds.map(ratio).collect::<Vec<_>>()).mean
}

/// Prints the best weights.
pub(crate) fn search() {
    let scene = Scene::storm(100, Sizes::Equal, 5.0);
    let mut ranked = all();
    for (look, seeds) in LOOKS.into_iter().enumerate() {
        eprintln!("look {} at {} combinations, {seeds} seeds", look + 1, ranked.len());
        let found = each(ranked.len(), |at| expansion(&scene, ranked[at], seeds));
        let mut pairs: Vec<(f64, Weights)> = found.into_iter().zip(ranked).collect();
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
        pairs.truncate(BEST);
        ranked = pairs.iter().map(|(_, weights)| *weights).collect();
        if look + 1 == LOOKS.len() {
            println!("p99 over that of the oracle, by weights of CPU, memory, users and processes:");
            pairs.iter().for_each(|(ratio, weights)| println!("  {ratio:.3}  {weights:?}"));
        }
    }
}
