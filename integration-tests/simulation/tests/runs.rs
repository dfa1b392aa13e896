//! Whole runs, each in a process of its own: a seed is repeatable, and what is broken on purpose is noticed.

use std::process::Command;

use usher_simulation::run::Outcome;

fn run(seed: u64, arguments: &[&str]) -> (Outcome, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usher-simulation"));
    command.args(["--seed", &seed.to_string()]).args(arguments);
    let output = command.output().expect("the simulation starts");
    let text = String::from_utf8(output.stdout).expect("it prints text");
    let outcome = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text} {}", String::from_utf8_lossy(&output.stderr)));
    (outcome, output.status.code())
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in [1, 2] {
        let (first, _) = run(seed, &["--busy-seconds", "30"]);
        let (second, _) = run(seed, &["--busy-seconds", "30"]);
        assert_eq!((first.hash, first.events), (second.hash, second.events), "seed {seed}");
    }
}

#[test]
fn a_sound_farm_keeps_every_invariant_and_each_is_looked_at() {
    // In many a run nobody is on two hosts; in this one somebody is.
    let (outcome, code) = run(4, &["--busy-seconds", "45"]);
    assert_eq!((outcome.violations.as_slice(), code), (&[][..], Some(0)));
    assert!(outcome.checks.values().all(|checks| *checks > 0), "{:?}", outcome.checks);
}

/// Whether what is broken on purpose breaks the invariant that it must.
fn notices(sabotage: &str, invariant: &str, seeds: &[u64]) {
    let is_noticed = seeds.iter().any(|seed| {
        let (outcome, code) = run(*seed, &["--sabotage", sabotage]);
        let is_noticed = outcome.violations.iter().any(|violation| violation.invariant == invariant);
        assert_eq!(code == Some(4), !outcome.violations.is_empty());
        is_noticed
    });
    assert!(is_noticed, "nobody notices {sabotage}");
}

#[test]
fn agents_that_admit_everybody_are_noticed() {
    notices("admit-all", "limit", &[1, 2, 3]);
}

#[test]
fn coordinators_that_give_more_than_their_share_are_noticed() {
    notices("greedy-share", "limit", &[1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn a_host_that_forgets_what_it_admitted_is_noticed() {
    notices("forget-book", "limit", &[1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn settings_that_are_lost_are_noticed() {
    notices("empty-store", "kept", &[1, 2, 3]);
}

#[test]
fn a_host_that_is_never_seen_again_is_noticed() {
    notices("never-healed", "seen", &[1]);
}

#[test]
fn places_that_hosts_do_not_give_back_are_noticed() {
    notices("keep-places", "one_host", &[4, 8, 1, 2, 3, 5, 6, 7]);
}

#[test]
fn a_grace_that_is_over_too_soon_is_noticed() {
    notices("fast-clocks", "grace", &[1, 2, 3]);
}

#[test]
fn coordinators_that_do_not_agree_are_noticed() {
    notices("store-apart", "views_agree", &[1]);
}

#[test]
fn a_panic_is_noticed() {
    notices("panic", "no_panic", &[1, 2, 3]);
}

#[test]
fn tasks_that_are_left_behind_are_noticed() {
    notices("leak", "no_leak", &[1]);
}

#[test]
fn calls_that_outlive_their_deadline_are_noticed() {
    notices("late-calls", "deadline", &[1]);
}
