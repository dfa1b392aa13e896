//! One coordinator of the simulated farm: the whole program, on a simulated listener and clock.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use usher_coordinator::config::CoordinatorConfig;
use usher_coordinator::metrics::Metrics;
use usher_coordinator::server::{self, Parts};
use usher_runtime::net::{Incoming, Limits};
use usher_runtime::shutdown::Shutdown;

use crate::network::{GRPC_PORT, Listener, SimulatedKnock};
use crate::plan::{Sabotage, coordinator, rng};
use crate::world::{World, now};

/// How often the tasks of the program are counted.
const COUNT_EVERY: Duration = Duration::from_secs(2);

/// Runs coordinator number `index` until it is told to stop, or its node is crashed.
///
/// # Errors
/// What it did not start for.
pub async fn run(world: Arc<World>, index: usize) -> turmoil::Result {
    let name = coordinator(index);
    let shutdown = Shutdown::new();
    let (start, clock) = {
        let mut state = world.state();
        let now = now();
        let seen = &mut state.coordinators[index];
        seen.starts += 1;
        seen.shutdown = Some(shutdown.clone());
        seen.disturbed = now;
        let (start, clock) = (seen.starts, seen.clock.clone());
        state.grace.started(index, now);
        state.limits.started(index);
        state.event(format!("{name} starts, {start}"));
        (start, clock)
    };
    tokio::spawn(count_tasks(world.clone(), index));
    if world.plan.sabotage == Sabotage::Panic && start == 2 {
        tokio::spawn(async { panic!("sabotage") });
    }
    let metrics = Metrics::new("simulation", "simulation");
    let (store, shared) = world.stores.open(index, start, metrics.clone());
    let parts = Parts {
        grpc: Incoming::start(Listener::of_coordinator().await?, None, Limits::default()),
        http: None,
        store,
        shared: Some(shared),
        address: format!("{name}:{GRPC_PORT}"),
        metrics,
        clock,
        knock: Arc::new(SimulatedKnock),
        seed: rng(world.plan.seed, &format!("{name} {start}")).random(),
    };
    let config = CoordinatorConfig { farm: "simulated".to_owned(), ..CoordinatorConfig::default() };
    let served = server::serve(config, parts, shutdown, || Ok(())).await;
    {
        let mut state = world.state();
        state.event(format!("{name} has stopped"));
        if let Err(error) = &served {
            let what = format!("{name} did not end well: {error:#}");
            state.broke([crate::invariants::Violation::new("no_panic", now(), what)]);
        }
        state.coordinators[index].shutdown = None;
        state.exited.insert(name);
    }
    // Its process is gone: the node is cleared from outside.
    std::future::pending().await
}

async fn count_tasks(world: Arc<World>, index: usize) {
    loop {
        tokio::time::sleep(COUNT_EVERY).await;
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        world.state().coordinators[index].tasks = tasks;
        if world.plan.sabotage == Sabotage::Leak {
            for _ in 0..10 {
                tokio::spawn(std::future::pending::<()>());
            }
        }
    }
}
