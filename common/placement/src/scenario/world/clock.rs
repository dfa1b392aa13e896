//! The clock: what happens while time passes, and in which order.
//!
//! At one instant the hosts come first (periods that end, reports that are due, places whose time has passed), then the
//! coordinators, in the order in which they were made, and last of all whoever wakes up: a coordinator that was frozen
//! knows old things only until it hears something or its own clock ticks.

use std::{collections::BTreeMap, time::Duration};

use usher_types::{BootTime, HostId, HostState};

use super::{Done, Fault, START, World};
use crate::{
    farm::Effect,
    scenario::{event::EventKind, machine::PERIOD},
};

const TICK: Duration = Duration::from_secs(1);
/// How often what is known of the hosts is stored.
const STORE: Duration = Duration::from_secs(10);
/// Longest scenario: whoever writes more has mistaken a unit.
const LONGEST: Duration = Duration::from_secs(31 * 24 * 3600);

/// Instants of a scenario: a month of seconds, and a report between any two. More would seem to hang.
const MOST_INSTANTS: u64 = 6_000_000;

/// A change of a host's state, and the coordinators that noticed it.
type Noticed = BTreeMap<(HostId, HostState, HostState), Vec<(usize, String)>>;

impl World {
    /// Time passes.
    pub(super) fn advance(&mut self, duration: Duration) -> Done {
        let end = self.now + duration;
        if end.since(START) > LONGEST {
            return Err(Fault::new(
                "advance",
                format!("a scenario lasts {} days at most", LONGEST.as_secs() / 86_400),
            ));
        }
        loop {
            let next = self.next_instant();
            if next > end {
                break;
            }
            self.now = next;
            self.instants += 1;
            if self.instants > MOST_INSTANTS {
                return Err(Fault::new(
                    "advance",
                    format!("more than {MOST_INSTANTS} instants are too many to run"),
                ));
            }
            self.hosts_turn();
            if next.since(START).as_micros().is_multiple_of(TICK.as_micros()) {
                self.coordinators_turn();
            }
            self.thaw();
        }
        self.now = end;
        Ok(())
    }

    fn next_instant(&self) -> BootTime {
        let passed = self.now.since(START).as_micros() / TICK.as_micros();
        let ticks = u64::try_from(passed).unwrap_or(u64::MAX).saturating_add(1);
        let tick = START + TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX));
        let hosts = self.machines.iter().map(|machine| machine.next_event());
        let thaws = self.coordinators.iter().filter_map(|coordinator| coordinator.frozen_until);
        hosts.chain(thaws).fold(tick, BootTime::min).max(self.now)
    }

    fn hosts_turn(&mut self) {
        let now = self.now;
        for number in 0..self.machines.len() {
            let machine = &mut self.machines[number];
            if machine.core.next_expiry().is_some_and(|expiry| expiry <= now) && machine.core.expire(now) {
                self.stirred.insert(number);
            }
            let machine = &mut self.machines[number];
            if machine.core.reach_changed(now) && !machine.streams.is_empty() {
                self.stirred.insert(number);
            }
            if machine.next_period <= now {
                machine.next_period = now + PERIOD;
                machine.core.end_period(now);
                self.tell_latency(number, None);
            }
            self.repeat_report(number);
        }
        self.settle();
    }

    /// The host repeats its last report, if that is due.
    fn repeat_report(&mut self, number: usize) {
        let now = self.now;
        let machine = &mut self.machines[number];
        let Some(every) = &mut machine.every else { return };
        if machine.is_silent || every.next > now {
            return;
        }
        every.next = now + every.interval;
        if machine.has_reported {
            machine.measure(now);
            self.stirred.insert(number);
        }
    }

    fn coordinators_turn(&mut self) {
        let now = self.now;
        let stores = now.since(START).as_secs().is_multiple_of(STORE.as_secs());
        let mut noticed = Noticed::new();
        let mut awake = 0;
        for number in 0..self.coordinators.len() {
            let coordinator = &mut self.coordinators[number];
            if coordinator.is_frozen() {
                continue;
            }
            awake += 1;
            let mut effects = coordinator.tick(now);
            if stores {
                coordinator.remember_hosts(&mut self.store, false, now);
            }
            effects.retain(|effect| match effect {
                Effect::StateChanged { host_id, from, to, reason } => {
                    let by = noticed.entry((host_id.clone(), *from, *to)).or_default();
                    by.push((number, reason.clone()));
                    false
                }
                _ => true,
            });
            self.act(number, effects);
            self.send_ticks(number, now);
        }
        self.tell_changes(noticed, awake);
        self.settle();
    }

    /// What all noticed is told once.
    fn tell_changes(&mut self, noticed: Noticed, awake: usize) {
        let all = self.coordinators.len();
        for ((host_id, from, to), mut by) in noticed {
            while let Some((_, reason)) = by.first().cloned() {
                let alike: Vec<_> = by.extract_if(.., |(_, other)| *other == reason).collect();
                let by_all = alike.len() == awake && awake == all;
                let names = alike.iter().map(|(number, _)| self.coordinators[*number].name.clone());
                let coordinators = if by_all { Vec::new() } else { names.collect() };
                let host = self.name_of(&host_id);
                self.emit(EventKind::StateChanged { coordinators, host, from, to, reason });
            }
        }
    }

    fn thaw(&mut self) {
        for number in 0..self.coordinators.len() {
            if self.coordinators[number].frozen_until.is_some_and(|until| until <= self.now) {
                self.hear_late(number);
            }
        }
        self.settle();
    }
}
