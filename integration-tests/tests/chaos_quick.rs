//! Does a farm keep its promises while everything around it breaks, once, shortly?
//!
//! The program of `cargo xtask chaos --quick`, as a test: each fault once, with a schedule that is always the same.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../examples/chaos/run/mod.rs"]
mod run;

use usher_integration_tests::bench::{Bound, Goal};
use usher_integration_tests::chaos::Length;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alone_a_farm_keeps_its_promises_while_everything_breaks_once() {
    let options = run::Options { seed: 1, length: Length::Quick, tells: true, logs: None };
    let document = run::run(options).await;
    document.print();
    // How soon the farm is whole, and how much of the load is made, is a measure of the machine that the test runs on.
    let is_broken = |goal: &&Goal| matches!(goal.bound, Bound::AtMost(most) if goal.figure > most);
    let broken: Vec<_> = document.goals.iter().filter(|goal| goal.unit != "s").filter(is_broken).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(document.total.calls_library > 500 && document.places_judged > 500, "too little was seen");
}
