//! Which faults, in which order, at whom, for how long?
//!
//! First coordinators are killed in turn, then each other fault has its turn once, in an order that the seed draws. The same
//! seed makes the same schedule. A fault begins when the farm has got over the one before, so the schedule has an order and
//! lengths, and no times of day.

use std::time::Duration;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Coordinators of the farm.
pub const COORDINATORS: usize = 3;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// A coordinator dies (SIGKILL) and is started again.
    KillCoordinator,
    /// No agent and one coordinator hear each other.
    CutAgents,
    /// A coordinator and the shared store do not hear each other.
    CutStore,
    /// The gateways hear only one of the coordinators.
    CutGateways,
    /// Two of three nodes of the shared store die.
    KillStore,
    /// A coordinator stands still (SIGSTOP).
    Freeze,
    /// The wall clocks of a coordinator and of an agent go an hour forward, then back by two.
    StepClocks,
    /// The disk under a coordinator's own files is full.
    FillDisk,
    /// Every agent is restarted.
    RestartAgents,
    /// Every agent dies, and none comes back in this time.
    KillAgents,
    /// Every coordinator dies, and none comes back in this time.
    KillAll,
}

impl Fault {
    /// All but the deaths of single coordinators, which come again and again.
    const ONCE: [Self; 10] = [
        Self::CutAgents,
        Self::CutStore,
        Self::CutGateways,
        Self::KillStore,
        Self::Freeze,
        Self::StepClocks,
        Self::FillDisk,
        Self::RestartAgents,
        Self::KillAgents,
        Self::KillAll,
    ];

    /// For people and for documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::KillCoordinator => "coordinator killed",
            Self::CutAgents => "agents cut from one coordinator",
            Self::CutStore => "coordinator cut from the store",
            Self::CutGateways => "gateways cut from two coordinators",
            Self::KillStore => "two store nodes killed",
            Self::Freeze => "coordinator frozen",
            Self::StepClocks => "wall clocks stepped",
            Self::FillDisk => "disk full under a coordinator",
            Self::RestartAgents => "every agent restarted",
            Self::KillAgents => "every agent killed",
            Self::KillAll => "every coordinator killed",
        }
    }

    /// How long it lasts, in a full run and in a quick one, seconds.
    fn seconds(self) -> (u64, u64) {
        match self {
            Self::KillCoordinator => (5, 2),
            Self::CutAgents | Self::CutStore | Self::CutGateways => (20, 3),
            Self::KillStore => (30, 3),
            Self::Freeze => (40, 10),
            Self::StepClocks | Self::FillDisk => (20, 2),
            Self::RestartAgents => (10, 2),
            // An agent is lost after four seconds.
            Self::KillAgents => (30, 7),
            Self::KillAll => (60, 4),
        }
    }

    /// How long it lasts.
    pub fn lasts(self, is_quick: bool) -> Duration {
        let (full, quick) = self.seconds();
        Duration::from_secs(if is_quick { quick } else { full })
    }
}

/// How much there is of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Each fault once, shortly.
    Quick,
    /// About so many minutes. What the other faults leave is for deaths of coordinators, at least one of each.
    Minutes(u64),
}

/// One fault of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// What goes wrong.
    pub fault: Fault,
    /// At which coordinator, from 0. Where it strikes all of them, or none, it says nothing.
    pub victim: usize,
    /// For how long.
    pub lasts: Duration,
    /// What is between its end and the next one, beside the time that the farm needs to be whole again.
    pub rest: Duration,
}

/// From one death of a coordinator to the next, in a full run.
const BETWEEN_DEATHS: Duration = Duration::from_secs(20);
/// What each other fault takes beside its length, in a full run: getting over it.
const OVER_IT: Duration = Duration::from_secs(20);

/// The schedule of a seed.
pub fn schedule(seed: u64, length: Length) -> Vec<Planned> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let is_quick = length == Length::Quick;
    let rest = |fault: Fault| match (is_quick, fault) {
        (true, _) => Duration::from_millis(300),
        (false, Fault::KillCoordinator) => BETWEEN_DEATHS.saturating_sub(fault.lasts(false)),
        (false, _) => Duration::from_secs(10),
    };
    let plan = |fault: Fault, victim: usize| Planned {
        fault,
        victim,
        lasts: fault.lasts(is_quick),
        rest: rest(fault),
    };
    let deaths = match length {
        Length::Quick => 1,
        Length::Minutes(minutes) => {
            let others: Duration = Fault::ONCE.iter().map(|fault| fault.lasts(false) + OVER_IT).sum();
            let left = Duration::from_secs(60 * minutes).saturating_sub(others);
            (left.as_secs() / BETWEEN_DEATHS.as_secs()).max(COORDINATORS as u64)
        }
    };
    let mut planned = Vec::new();
    let first = rng.random_range(0..COORDINATORS as u64);
    for death in 0..deaths {
        // In turn: each has been dead before one dies again.
        let victim = (first + death) % COORDINATORS as u64;
        planned.push(plan(Fault::KillCoordinator, usize::try_from(victim).unwrap()));
    }
    let mut others = Fault::ONCE;
    others.shuffle(&mut rng);
    planned.extend(others.map(|fault| plan(fault, rng.random_range(0..COORDINATORS))));
    planned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_schedule_and_another_one_another() {
        for length in [Length::Quick, Length::Minutes(18)] {
            assert_eq!(schedule(7, length), schedule(7, length));
            assert_ne!(schedule(7, length), schedule(8, length));
        }
    }

    #[test]
    fn every_fault_has_its_turn_once_and_the_rest_of_the_time_coordinators_die() {
        for (length, deaths) in [(Length::Quick, 1), (Length::Minutes(18), 30), (Length::Minutes(1), 3)] {
            let planned = schedule(1, length);
            let count = |fault| planned.iter().filter(|planned| planned.fault == fault).count();
            assert!(Fault::ONCE.iter().all(|fault| count(*fault) == 1));
            assert_eq!(count(Fault::KillCoordinator), deaths, "{length:?}");
        }
        let planned = schedule(3, Length::Minutes(18));
        let died: Vec<usize> = planned.iter().take(4).map(|planned| planned.victim).collect();
        assert!(died[0] != died[1] && died[1] != died[2] && died[0] == died[3], "{died:?}");
        assert!(planned.iter().take(30).all(|planned| planned.lasts + planned.rest == BETWEEN_DEATHS));
    }

    #[test]
    fn a_quick_run_leaves_some_seconds_of_its_minute_for_getting_over_it() {
        let planned = schedule(1, Length::Quick);
        let seconds: f64 = planned.iter().map(|planned| (planned.lasts + planned.rest).as_secs_f64()).sum();
        assert!(seconds < 45.0, "{seconds}");
    }
}
