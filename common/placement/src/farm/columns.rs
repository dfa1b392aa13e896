//! What does a decision need to know of many hosts, before it knows what is asked?
//!
//! Most of what a decision asks of a host changes with its reports only: its state but for its users and places, its
//! numbers, its limit, its zone. That is computed when the farm is published, by the functions that everything else asks
//! (`state_of` and those of [`HostView`]), and kept in columns. A host that is unusual, because it ramps up, is penalised,
//! shares its places out or keeps some for others, or may be chosen although nothing is known of it, is only marked: it is
//! looked at one by one. So is one of which something has changed by the passing of time alone since.

use std::{collections::HashMap, sync::Arc, time::Duration};

use usher_types::{BootTime, HostState, Method, Policy, Zone};

use super::{CellWord, Grace, HostView, StateInput, state_of};
use crate::{
    decision::{Limits, code_of_tier, demand_input, expected_demand, expected_of},
    load::{
        DemandColumns, DemandInput, LANES, LearnedCosts, LoadColumns, Metrics, PredictedLoad, Typical, decay,
    },
};

/// In place of a tier: no candidate by its state, or one that must be looked at by itself.
pub(crate) const NO_TIER: u8 = u8::MAX;
/// In place of a limit of users: there is none.
pub(crate) const UNLIMITED: u32 = u32::MAX;
/// Capacities and the like beyond this, or below its inverse, are computed one by one.
const USUAL: f64 = 1e100;

/// More logons in progress than any limit allows: sums with them stay numbers.
const MOST_LOGONS: u32 = 1 << 24;

/// Metrics of the weighted load that a host may lack.
pub(crate) mod lack {
    pub(crate) const CPU: u8 = 1;
    pub(crate) const MEMORY: u8 = 2;
    pub(crate) const PROCESSES: u8 = 4;
}

/// Numbers for the zones of a pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Zones(HashMap<Zone, u16>);

/// The zone of hosts that have none.
const NO_ZONE: u16 = u16::MAX;
/// One that no host is in.
const ELSEWHERE: u16 = u16::MAX - 1;

impl Zones {
    /// The number of a client's zone.
    pub(crate) fn of_client(&self, zone: &Zone) -> u16 {
        self.0.get(zone).copied().unwrap_or(ELSEWHERE)
    }

    /// Whether any host is, or was, in this zone.
    pub(crate) fn has(&self, zone: &Zone) -> bool {
        self.0.contains_key(zone)
    }

    /// Whether a host's zone has no number yet.
    pub(super) fn misses(&self, host: &HostView) -> bool {
        host.facts.zone.as_ref().is_some_and(|zone| !self.0.contains_key(zone))
    }

    pub(super) fn add(&mut self, zone: &Zone) {
        let next = u16::try_from(self.0.len()).unwrap_or(ELSEWHERE).min(ELSEWHERE);
        self.0.entry(zone.clone()).or_insert(next);
    }

    fn of_host(&self, host: &HostView) -> u16 {
        host.facts.zone.as_ref().map_or(NO_ZONE, |zone| self.0.get(zone).copied().unwrap_or(ELSEWHERE))
    }
}

/// What columns are computed with, apart from the hosts.
#[derive(Copy, Clone, Debug)]
pub(super) struct Light<'a> {
    pub(super) policy: &'a Policy,
    pub(super) grace: Option<Grace>,
    pub(super) zones: &'a Zones,
    pub(super) costs: &'a LearnedCosts,
    pub(super) typical: &'a Typical,
    /// The instant of reference for logons in progress.
    pub(super) since: BootTime,
    pub(super) now: BootTime,
}

/// What the pool's method ranks by.
#[derive(Clone, Debug)]
pub(crate) enum Ranked {
    Load(Box<LoadColumns>),
    Demand(Box<DemandColumns>),
    /// Expansion factors; NaN if not known, infinite of a host that is none of the candidates.
    Factor(Box<[f64; LANES]>),
    /// Limits, which stand in their own column.
    Filled,
}

impl Ranked {
    fn of(method: Method) -> Self {
        match method {
            Method::WeightedLoad => Self::Load(Box::default()),
            Method::Predictive => Self::Demand(Box::default()),
            Method::Availability => Self::Factor(Box::new([f64::INFINITY; LANES])),
            Method::FillFirst => Self::Filled,
        }
    }
}

/// The columns of one chunk of hosts. Each bit of a mask is a host.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    /// 0 AVAILABLE, 1 WARMING, 2 BUSY, if it has room; else [`NO_TIER`].
    pub(crate) tier: [u8; LANES],
    /// 1: what its rank needs is not known.
    pub(crate) group: [u8; LANES],
    /// Class and group as decisions compare them, if nothing but its state speaks for or against it.
    pub(crate) code: [u8; LANES],
    /// Of users; [`UNLIMITED`].
    pub(crate) limit: [u32; LANES],
    /// Logons in progress in its last Load.
    pub(crate) logons: [u32; LANES],
    pub(crate) zone: [u16; LANES],
    /// Of [`lack`].
    pub(crate) lacks: [u8; LANES],
    pub(crate) ranked: Ranked,
    /// To be looked at one by one.
    pub(crate) odd: u64,
    /// Its agent is lost.
    pub(crate) lost: u64,
    /// It has not said goodbye.
    pub(crate) counted: u64,
    /// Its last Load is of this grace, and not too old.
    heard: u64,
    /// It reports to other coordinators too.
    peers: u64,
    /// Until when all that holds if it is not heard again.
    valid_until: [BootTime; LANES],
    /// Over all of them.
    pub(crate) all: Summary,
}

/// What holds of a chunk as a whole.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Summary {
    /// Some host with a tier has a limit of users.
    pub(crate) is_limited: bool,
    /// Hosts with a tier.
    pub(crate) tiers: u32,
    /// Metrics of the weighted load that some host with a tier lacks, and that some has: see [`lack`].
    pub(crate) lacking: u8,
    pub(crate) held: u8,
    /// Most processes per unit of capacity of a host with a tier.
    pub(crate) top_processes: f64,
    /// Until when everything holds.
    pub(crate) valid_until: BootTime,
}

impl Columns {
    pub(super) fn new(method: Method) -> Self {
        Self {
            tier: [NO_TIER; LANES],
            group: [0; LANES],
            code: [NO_TIER; LANES],
            limit: [UNLIMITED; LANES],
            logons: [0; LANES],
            zone: [NO_ZONE; LANES],
            lacks: [0; LANES],
            ranked: Ranked::of(method),
            odd: 0,
            lost: 0,
            counted: 0,
            heard: 0,
            peers: 0,
            valid_until: [NEVER; LANES],
            all: Summary {
                is_limited: false,
                tiers: 0,
                lacking: 0,
                held: 0,
                top_processes: 0.0,
                valid_until: NEVER,
            },
        }
    }

    /// Hosts of which something has changed by itself since: they are looked at one by one.
    pub(crate) fn expired(&self, now: BootTime) -> u64 {
        if now <= self.all.valid_until {
            return 0;
        }
        let bit = |at: usize| u64::from(now > self.valid_until[at]) << at;
        (0..LANES).map(bit).fold(0, std::ops::BitOr::bitor)
    }

    /// Whether the host at `at` must be looked at by itself at `now`.
    pub(crate) fn is_odd(&self, at: usize, now: BootTime) -> bool {
        self.odd >> at & 1 == 1 || (now > self.all.valid_until && now > self.valid_until[at])
    }

    /// Whether codes are what the columns say as long as the cells are calm, and scores tell who is none of the candidates.
    pub(crate) const fn is_simple(&self) -> bool {
        !self.all.is_limited && !matches!(self.ranked, Ranked::Filled)
    }

    /// Whether hosts are ranked by weighted load.
    pub(crate) const fn is_by_load(&self) -> bool {
        matches!(self.ranked, Ranked::Load(_))
    }

    /// Whether the host at `at` lacks a metric that it would be ranked by, if others have it.
    pub(crate) fn lacks_some(&self, at: usize) -> bool {
        self.all.lacking != 0 && self.is_by_load() && self.lacks[at] != 0
    }

    /// Hosts heard and hosts that have not said goodbye.
    pub(super) fn heard(&self) -> (u32, u32) {
        ((self.heard & self.counted).count_ones(), self.counted.count_ones())
    }

    pub(super) fn has_peers(&self) -> bool {
        self.peers != 0
    }

    /// Takes over the host at `at` as it is now. [`Self::finish`] must follow.
    pub(super) fn set(&mut self, at: usize, host: &HostView, light: &Light<'_>) {
        let Light { policy, grace, now, .. } = *light;
        // Whether there is room for a user more is seen in the cell, when it is asked.
        let input = StateInput { host, word: CellWord::NOBODY, adds_users: 0, policy, grace, now };
        let state = state_of(&input);
        let limits = Limits::of(host, policy);
        let reading = host.reading.as_deref();
        let zone = light.zones.of_host(host);
        let is_usual = host.ramp(now).is_none()
            && reading.is_none_or(|reading| reading.penalties.is_empty())
            && (!limits.any() || host.can_be_asked() && !host.keeps_for_others())
            && zone != ELSEWHERE
            && (1.0 / USUAL..USUAL).contains(&host.capacity())
            && host.facts.cores != Some(0);
        let tier = match state {
            HostState::Available => 0,
            HostState::Warming => 1,
            HostState::Busy => 2,
            _ => NO_TIER,
        };
        let is_odd =
            if state == HostState::Unknown { policy.allow_unknown } else { tier != NO_TIER && !is_usual };
        self.tier[at] = if is_odd { NO_TIER } else { tier };
        self.limit[at] = limits.max_users.unwrap_or(UNLIMITED);
        self.logons[at] = reading.map_or(0, |reading| reading.logons).min(MOST_LOGONS);
        self.zone[at] = zone;
        let mark = |mask: &mut u64, set: bool| *mask = *mask & !(1 << at) | u64::from(set) << at;
        mark(&mut self.odd, is_odd);
        mark(&mut self.lost, host.is_lost(state));
        mark(&mut self.counted, !host.said_goodbye);
        let began = grace.map_or(BootTime::ZERO, |grace| grace.began);
        let is_heard = reading.is_some_and(|reading| reading.measured_at >= began)
            && host.offline_at().is_some_and(|at| now <= at);
        mark(&mut self.heard, is_heard);
        mark(&mut self.peers, reading.is_some_and(|reading| reading.streams_held > 1));
        self.valid_until[at] = host.unchanged_until(grace, now);
        self.set_rank(at, host, light);
        self.code[at] = code_of_tier(self.tier[at], self.group[at]);
    }

    fn set_rank(&mut self, at: usize, host: &HostView, light: &Light<'_>) {
        let metrics = host.metrics(CellWord::NOBODY, light.now);
        let lack = |metric: Option<f64>, bit: u8| if metric.is_none() { bit } else { 0 };
        self.lacks[at] = lack(metrics.cpu, lack::CPU)
            | lack(metrics.memory, lack::MEMORY)
            | lack(metrics.processes, lack::PROCESSES);
        self.group[at] = 0;
        let has_tier = self.tier[at] != NO_TIER;
        match &mut self.ranked {
            Ranked::Load(columns) => set_load(columns, at, host, has_tier.then_some(metrics), light),
            Ranked::Demand(columns) => {
                let demand = demand_input(host, CellWord::NOBODY, light.now);
                self.group[at] = u8::from(demand.is_unknown());
                set_demand(columns, at, host, has_tier.then_some(demand), light);
            }
            Ranked::Factor(factors) => {
                let factor = host.expansion_factor(light.policy, light.now);
                factors[at] = if has_tier { factor.unwrap_or(f64::NAN) } else { f64::INFINITY };
                self.group[at] = u8::from(factor.is_none());
            }
            Ranked::Filled => {}
        }
    }

    /// After the last host was taken over.
    pub(super) fn finish(&mut self) {
        let tiers = || (0..LANES).filter(|at| self.tier[*at] != NO_TIER);
        let processes = |at: usize| match &self.ranked {
            Ranked::Load(load) => load.processes[at],
            _ => 0.0,
        };
        self.all = Summary {
            is_limited: tiers().any(|at| self.limit[at] != UNLIMITED),
            tiers: u32::try_from(tiers().count()).unwrap_or(u32::MAX),
            lacking: tiers().fold(0, |lacking, at| lacking | self.lacks[at]),
            held: tiers().fold(0, |held, at| held | !self.lacks[at]),
            top_processes: tiers().map(processes).fold(0.0, f64::max),
            valid_until: self.valid_until.iter().copied().min().unwrap_or(NEVER),
        };
    }
}

/// Without metrics: it is none of the candidates.
fn set_load(
    columns: &mut LoadColumns,
    at: usize,
    host: &HostView,
    metrics: Option<Metrics>,
    light: &Light<'_>,
) {
    let share = |percent: Option<f64>| percent.map_or(0.0, |percent| (percent / 100.0).max(0.0));
    let (capacity, processes) = metrics.map_or((f64::INFINITY, 0.0), |metrics| {
        (metrics.capacity, metrics.processes.unwrap_or(0.0) / metrics.capacity)
    });
    let expected = |places: f64, young: f64| match metrics {
        Some(_) if light.policy.predict => expected_of(light.costs, light.typical, host, places, young),
        _ => (0.0, 0.0),
    };
    let demand = demand_input(host, CellWord::NOBODY, light.now);
    let without_logons = DemandInput { load_age_seconds: f64::MAX, ..demand };
    let steady = metrics
        .filter(|metrics| light.policy.predict && metrics.cpu.is_some())
        .and_then(|_| expected_demand(light.costs, light.typical, &without_logons));
    columns.bias[at] = if metrics.is_some() { 0.0 } else { f64::INFINITY };
    columns.cpu[at] = steady.unwrap_or_else(|| share(metrics.and_then(|metrics| metrics.cpu)));
    columns.still[at] = if steady.is_some() { still(&demand, light) } else { 0.0 };
    columns.memory[at] = share(metrics.and_then(|metrics| metrics.memory));
    columns.capacity[at] = capacity;
    columns.per_capacity[at] = 1.0 / capacity;
    columns.processes[at] = processes;
    columns.logon_cpu[at] = expected(0.0, 1.0).0 / 100.0;
    columns.place_cpu[at] = expected(1.0, 0.0).0 / 100.0;
    columns.place_memory[at] = expected(1.0, 0.0).1 / 100.0;
    columns.aged[at] = f64::from(host.aged_places);
}

/// Without an input: it is none of the candidates.
fn set_demand(
    columns: &mut DemandColumns,
    at: usize,
    host: &HostView,
    input: Option<DemandInput>,
    light: &Light<'_>,
) {
    let Some(input) = input else {
        columns.base[at] = f64::INFINITY;
        return;
    };
    let predicted = |input: &DemandInput| PredictedLoad::of(input, light.typical, light.costs);
    let alone = predicted(&DemandInput { logons: 0.0, ..input });
    let with_logon = predicted(&DemandInput { logons: 0.0, young_places: 1.0, ..input });
    let with_place = predicted(&DemandInput { logons: 0.0, places: 1.0, ..input });
    // Of its logons in progress, each becomes a session.
    columns.session[at] = with_place.sessions - alone.sessions;
    columns.logon[at] = with_logon.logons - alone.logons;
    columns.base[at] = alone.demand + columns.session[at] * input.logons;
    columns.memory[at] = alone.memory_used.unwrap_or(0.0);
    columns.place_memory[at] = with_place.memory_used.unwrap_or(0.0) - columns.memory[at];
    columns.still[at] = still(&input, light);
    columns.aged[at] = f64::from(host.aged_places);
}

/// Logons in progress in the last Load of a host, as many as would be left of them at the instant of reference.
fn still(input: &DemandInput, light: &Light<'_>) -> f64 {
    // Reports may be newer than the instant of reference: more of these logons were in progress then.
    let measured = light.now.before(Duration::from_secs_f64(input.load_age_seconds));
    let seconds = light.since.since(measured).as_secs_f64() - measured.since(light.since).as_secs_f64();
    input.logons * decay(seconds, light.costs)
}

/// Beyond all time.
pub(super) const NEVER: BootTime = BootTime::from_micros(u64::MAX);

/// The zones of a pool with those of `hosts`.
pub(super) fn with_zones_of<'a>(zones: &mut Arc<Zones>, hosts: impl Iterator<Item = &'a Arc<HostView>>) {
    for host in hosts {
        if zones.misses(host)
            && let Some(zone) = &host.facts.zone
        {
            Arc::make_mut(zones).add(zone);
        }
    }
}
