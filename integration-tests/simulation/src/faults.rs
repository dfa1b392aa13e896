//! What goes wrong, and when is it mended?
//!
//! A fault that would meet one of the same node or link is left out: two at once are nothing that one after the other is not,
//! and which of them is mended first would have to be told. Everything else may meet.

use std::collections::BTreeMap;
use std::time::Duration;

use turmoil::Sim;
use usher_types::Goodbye;

use crate::agent::clear_runtime_folder;
use crate::plan::{Fault, Plan, Sabotage, coordinator, door, gateway, host};
use crate::run::{leave, sabotage_book};
use crate::world::{State, World};

/// Something to be done later.
#[derive(Debug, Clone, PartialEq)]
enum Mend {
    Link(String, String),
    Start(String),
    Boot(String),
    Store(usize),
}

/// The faults of one run.
#[derive(Debug)]
pub struct Faults {
    due: std::vec::IntoIter<(Duration, Fault)>,
    next: Option<(Duration, Fault)>,
    /// By time and number.
    mends: BTreeMap<(Duration, u64), Mend>,
    number: u64,
    links: BTreeMap<(String, String), ()>,
    down: BTreeMap<String, ()>,
}

/// What a name stands for.
enum Node {
    Coordinator(usize),
    Host(usize),
}

fn node(name: &str, plan: &Plan) -> Option<Node> {
    let coordinators = (0..plan.coordinators).find(|index| coordinator(*index) == name);
    let hosts = || (0..plan.limits.len()).find(|index| host(*index) == name);
    coordinators.map(Node::Coordinator).or_else(|| hosts().map(Node::Host))
}

impl Faults {
    /// Those of `plan`.
    pub fn new(plan: &Plan) -> Self {
        let mut due = plan.faults.clone().into_iter();
        let next = due.next();
        Self { due, next, mends: BTreeMap::new(), number: 0, links: BTreeMap::new(), down: BTreeMap::new() }
    }

    /// Lets everything go wrong whose time has come.
    pub fn apply_due(&mut self, sim: &mut Sim<'_>, world: &World, now: Duration) {
        while let Some((_, fault)) = self.next.take_if(|(at, _)| *at <= now) {
            self.next = self.due.next();
            if self.apply(sim, world, now, &fault) {
                let mut state = world.state();
                state.event_at(now, format!("{fault:?}"));
                state.count(format!("fault_{}", fault.kind()));
            }
        }
    }

    /// Mends what has lasted long enough.
    pub fn finish_due(&mut self, sim: &mut Sim<'_>, world: &World, now: Duration) {
        while let Some(entry) = self.mends.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let mend = entry.remove();
            self.mend(sim, world, now, mend);
        }
    }

    /// Mends everything.
    pub fn heal(&mut self, sim: &mut Sim<'_>, world: &World, now: Duration) {
        self.next = None;
        for mend in std::mem::take(&mut self.mends).into_values() {
            self.mend(sim, world, now, mend);
        }
        if world.plan.sabotage == Sabotage::NeverHealed {
            sim.partition(host(0), coordinator(0));
        }
    }

    fn later(&mut self, at: Duration, mend: Mend) {
        self.number += 1;
        self.mends.insert((at, self.number), mend);
    }

    /// Whether it happened.
    fn apply(&mut self, sim: &mut Sim<'_>, world: &World, now: Duration, fault: &Fault) -> bool {
        match fault {
            Fault::Cut(a, b, last) => {
                self.link(world, now, (a, b), *last, || sim.partition(a.as_str(), b.as_str()))
            }
            Fault::CutOneWay(a, b, last) => {
                self.link(world, now, (a, b), *last, || sim.partition_oneway(a.as_str(), b.as_str()))
            }
            Fault::Hold(a, b, last) => {
                self.link(world, now, (a, b), *last, || sim.hold(a.as_str(), b.as_str()))
            }
            Fault::Slow(a, b, latency, last) => self.link(world, now, (a, b), *last, || {
                sim.set_link_max_message_latency(a.as_str(), b.as_str(), *latency);
            }),
            Fault::Crash(name, last) => self.crash(sim, world, now, name, *last),
            Fault::Stop(name, last) => self.stop(world, now, name, *last, Goodbye::AgentStop),
            Fault::Shutdown(name, last) => self.stop(world, now, name, *last, Goodbye::HostShutdown),
            Fault::PowerLoss(name, last) => self.power_loss(sim, world, now, name, *last),
            Fault::Suspend(name, by) => {
                if let Some(Node::Coordinator(index)) = node(name, &world.plan) {
                    let mut state = world.state();
                    state.coordinators[index].clock.suspend(*by);
                    state.coordinators[index].disturbed = now;
                }
                true
            }
            Fault::StepWall(name, by_ms) => {
                let state = world.state();
                match node(name, &world.plan) {
                    Some(Node::Coordinator(index)) => state.coordinators[index].clock.step_wall(*by_ms),
                    Some(Node::Host(index)) => state.machines[index].clock.step_wall(*by_ms),
                    None => {}
                }
                true
            }
            Fault::StoreAway(name, last) => {
                let Some(Node::Coordinator(index)) = node(name, &world.plan) else { return false };
                world.stores.cut(index, true);
                self.later(now + *last, Mend::Store(index));
                true
            }
            Fault::Storm(logins) => {
                world.state().storm += logins;
                true
            }
        }
    }

    fn link(
        &mut self,
        world: &World,
        now: Duration,
        (a, b): (&String, &String),
        last: Duration,
        cut: impl FnOnce(),
    ) -> bool {
        let key = if a < b { (a.clone(), b.clone()) } else { (b.clone(), a.clone()) };
        if self.links.contains_key(&key) || self.down.contains_key(a) || self.down.contains_key(b) {
            return false;
        }
        cut();
        self.links.insert(key.clone(), ());
        world.state().broken_links.insert(key, 1);
        self.later(now + last, Mend::Link(a.clone(), b.clone()));
        true
    }

    fn goes_down(&mut self, name: &str) -> bool {
        let is_cut = self.links.keys().any(|(a, b)| a == name || b == name);
        !is_cut && self.down.insert(name.to_owned(), ()).is_none()
    }

    fn crash(&mut self, sim: &mut Sim<'_>, world: &World, now: Duration, name: &str, last: Duration) -> bool {
        if !self.goes_down(name) {
            return false;
        }
        sim.crash(name);
        went_down(world, name, now);
        if let Some(Node::Host(index)) = node(name, &world.plan) {
            sabotage_book(world, index);
        }
        self.later(now + last, Mend::Start(name.to_owned()));
        true
    }

    /// It ends by itself within seconds; it is started again that much later.
    fn stop(&mut self, world: &World, now: Duration, name: &str, last: Duration, goodbye: Goodbye) -> bool {
        if !self.goes_down(name) {
            return false;
        }
        let state = world.state();
        match node(name, &world.plan) {
            Some(Node::Coordinator(index)) => {
                if let Some(shutdown) = &state.coordinators[index].shutdown {
                    shutdown.begin();
                }
            }
            Some(Node::Host(index)) => leave(&state, index, goodbye),
            None => {}
        }
        drop(state);
        let ends = now + Duration::from_secs(10) + last;
        let is_shutdown = goodbye == Goodbye::HostShutdown;
        self.later(
            ends,
            if is_shutdown { Mend::Boot(name.to_owned()) } else { Mend::Start(name.to_owned()) },
        );
        true
    }

    fn power_loss(
        &mut self,
        sim: &mut Sim<'_>,
        world: &World,
        now: Duration,
        name: &str,
        last: Duration,
    ) -> bool {
        if !self.goes_down(name) {
            return false;
        }
        // Nobody hears of it: the cut comes first.
        for other in others(&world.plan, name) {
            sim.partition(name, other.as_str());
        }
        sim.crash(name);
        went_down(world, name, now);
        if let Some(Node::Host(index)) = node(name, &world.plan) {
            sim.crash(door(index));
            world.state().machines[index].sessions.clear();
        }
        self.later(now + last, Mend::Boot(name.to_owned()));
        true
    }

    fn mend(&mut self, sim: &mut Sim<'_>, world: &World, now: Duration, mend: Mend) {
        world.state().event_at(now, format!("{mend:?}"));
        match mend {
            Mend::Link(a, b) => {
                // Whatever it was: held messages come first, then it is whole.
                sim.release(a.as_str(), b.as_str());
                sim.repair(a.as_str(), b.as_str());
                sim.set_link_max_message_latency(a.as_str(), b.as_str(), world.plan.latency);
                let key = if a < b { (a, b) } else { (b, a) };
                self.links.remove(&key);
                let mut state = world.state();
                state.broken_links.remove(&key);
                state.mended_links.insert(key, now);
            }
            Mend::Start(name) => {
                self.down.remove(&name);
                sim.bounce(name.as_str());
            }
            Mend::Boot(name) => {
                self.down.remove(&name);
                for other in others(&world.plan, &name) {
                    sim.repair(name.as_str(), other.as_str());
                }
                if let Some(Node::Host(index)) = node(&name, &world.plan) {
                    boot(&mut world.state(), index, now);
                    clear_runtime_folder(world, index);
                    sim.bounce(door(index));
                }
                sim.bounce(name.as_str());
            }
            Mend::Store(index) => world.stores.cut(index, false),
        }
    }
}

fn went_down(world: &World, name: &str, now: Duration) {
    let mut state = world.state();
    match node(name, &world.plan) {
        Some(Node::Coordinator(index)) => {
            state.coordinators[index].shutdown = None;
            state.coordinators[index].disturbed = now;
        }
        Some(Node::Host(index)) => state.machines[index].agent = None,
        None => {}
    }
}

fn boot(state: &mut State, index: usize, now: Duration) {
    let machine = &mut state.machines[index];
    machine.boot += 1;
    machine.sessions.clear();
    machine.clock.reboot(now);
    machine.agent = None;
}

/// Every node but this one; a host's door goes with its host.
fn others(plan: &Plan, name: &str) -> Vec<String> {
    let coordinators = (0..plan.coordinators).map(coordinator);
    let hosts = (0..plan.limits.len()).flat_map(|index| [host(index), door(index)]);
    let gateways = (0..plan.gateways).map(gateway);
    coordinators.chain(hosts).chain(gateways).chain(["op".to_owned()]).filter(|other| other != name).collect()
}
