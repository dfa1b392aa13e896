//! Who is a candidate, and what speaks against the others?
//!
//! Everything that is true of a host for one request is computed here, once, from inputs that can be kept: the
//! explanation of a decision runs the same functions over the same inputs.
//!
//! A host may be chosen if the request does not rule it out, it holds an in-service replica of the resource, its state
//! allows it, it has not refused within this call, and it has room. Room is the host's own affair where it can be asked
//! (then it admits its places itself). One that cannot be asked gives each coordinator its share of what was free when
//! it last spoke, so that together they cannot pass a limit.

use std::collections::HashMap;

use usher_availability::Basis;
use usher_types::{BootTime, FailureCause, HostId, HostState, Method, PenaltyCause, PendingMode, Policy};

use super::{
    Excluded, Flags, Request, Tier, UserTrace, blind,
    order::{self, Class, Standing},
};
use crate::{
    farm::{CellWord, HostCell, HostView, PoolView, state_of},
    load::{LoadTerms, Metrics, Scale},
};

/// Everything that a decision depends on; the same inputs give the same decision.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// The pool.
    pub pool: &'a PoolView,
    /// Its cells, as they were read.
    pub words: &'a [CellWord],
    /// What is asked. Its login name is not read: `user` stands for it.
    pub request: &'a Request,
    /// Where its user is already.
    pub user: &'a UserTrace,
    /// Hosts that were asked within this call and did not agree, and whether each refused or was silent.
    pub unwilling: &'a [(HostId, Excluded)],
    /// Hosts whose agents are lost and whose doors were tried, at most 10 s ago, and whether each accepted.
    pub doors: &'a [(HostId, bool)],
    /// The instant of the decision.
    pub now: BootTime,
    /// Settles ties.
    pub seed: u64,
}

/// The limits that a host keeps itself, and under which it must be asked for each place.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Users and users of places, at most.
    pub max_users: Option<u32>,
    /// Logons in progress, at most; only where that limit is a hard one.
    pub max_pending: Option<u32>,
}

impl Limits {
    /// The limits of a host of a pool.
    pub fn of(host: &HostView, policy: &Policy) -> Self {
        let hard = policy.max_pending_mode == PendingMode::Hard;
        Self {
            max_users: host.max_users(policy).finite(),
            max_pending: policy.max_pending.finite().filter(|_| hard),
        }
    }

    /// Whether there is one.
    pub fn any(self) -> bool {
        self != Self::default()
    }
}

/// What is true of every host of the pool for one request.
#[derive(Clone, Debug)]
pub struct Assessment<'a> {
    inputs: Inputs<'a>,
    states: Vec<HostState>,
    /// Users that the login adds to each.
    adds: Vec<u32>,
    metrics: Vec<Metrics>,
    scale: Scale,
    holders: Option<&'a [u32]>,
    excluded: Vec<u32>,
    tried: Vec<u32>,
    doors: HashMap<&'a HostId, bool>,
    /// Lost hosts whose doors are open take part.
    is_blind: bool,
    /// Of a failover, the host that it comes from.
    pub(super) from_host: Option<u32>,
}

/// Assesses every host of the pool for a request.
pub fn assess_pool<'a>(inputs: &Inputs<'a>) -> Assessment<'a> {
    let (pool, request) = (inputs.pool, inputs.request);
    let mut adds = vec![request.cost; pool.hosts.len()];
    for position in inputs.user.counted_on().filter_map(|host_id| pool.members.position(host_id)) {
        adds[position] = 0;
    }
    let states: Vec<HostState> = (0..pool.hosts.len())
        .map(|n| state_of(&pool.state_input(n, inputs.words[n], adds[n], inputs.now)))
        .collect();
    let metrics: Vec<Metrics> =
        pool.hosts.iter().zip(inputs.words).map(|(host, word)| metrics(host, *word, inputs.now)).collect();
    let failover = request.failover.as_ref();
    let all_of = |hosts: &[String]| -> Vec<u32> {
        hosts.iter().flat_map(|host| pool.members.named(host)).copied().collect()
    };
    let mut from = failover.map_or(Vec::new(), |failover| pool.members.named(&failover.from_host).to_vec());
    let from_host = if from.len() == 1 { from.pop() } else { None };
    let mut tried: Vec<u32> = failover.map_or(Vec::new(), |failover| all_of(&failover.tried));
    tried.append(&mut from);
    let mut excluded = all_of(&request.exclude);
    // Each host of the pool is looked up in them.
    tried.sort_unstable();
    excluded.sort_unstable();
    let holders = |resource| pool.replicas.get(resource).map_or(&[][..], Vec::as_slice);
    let mut assessment = Assessment {
        scale: scale_of(pool, &states, &metrics),
        holders: request.resource.as_ref().map(holders),
        doors: inputs.doors.iter().map(|(host_id, accepts)| (host_id, *accepts)).collect(),
        is_blind: false,
        inputs: inputs.clone(),
        states,
        adds,
        metrics,
        excluded,
        tried,
        from_host,
    };
    assessment.is_blind = blind::is_active(&assessment);
    assessment
}

fn metrics(host: &HostView, word: CellWord, now: BootTime) -> Metrics {
    let reading = host.reading.as_deref();
    Metrics {
        cpu: reading.and_then(|reading| reading.cpu_percent),
        memory: reading.and_then(|reading| reading.memory).map(|memory| memory.used().get()),
        users: word.users().map(f64::from),
        pending: f64::from(word.pending_users()),
        processes: reading.and_then(|reading| reading.processes).map(f64::from),
        capacity: host.capacity(),
        ramp: host.ramp(now),
    }
}

/// The scale of the eligible hosts that are not ramping up; if all are, of the eligible ones; if there is none, of the
/// unknown ones that may be chosen.
fn scale_of(pool: &PoolView, states: &[HostState], metrics: &[Metrics]) -> Scale {
    let all = states.iter().zip(metrics);
    let eligible = all.clone().filter(|(state, _)| state.is_eligible()).map(|(_, metrics)| *metrics);
    let settled = eligible.clone().filter(|metrics| metrics.ramp.is_none());
    let compared =
        |state: HostState| state.is_measured() || (state == HostState::Unknown && pool.policy.allow_unknown);
    let some_incomplete = all.clone().any(|(state, metrics)| metrics.is_incomplete() && compared(*state));
    let (weights, floor) = (pool.policy.weights, pool.policy.users_full_scale);
    if settled.clone().next().is_some() {
        Scale::of(weights, floor, settled, some_incomplete)
    } else if eligible.clone().next().is_some() || !pool.policy.allow_unknown {
        Scale::of(weights, floor, eligible, some_incomplete)
    } else {
        // Of hosts that are all unknown the places given there are known: without them equals would herd.
        let unknown = all.filter(|(state, _)| **state == HostState::Unknown).map(|(_, metrics)| *metrics);
        Scale::of(weights, floor, unknown, some_incomplete)
    }
}

impl<'a> Assessment<'a> {
    /// What it was made from.
    pub fn inputs(&self) -> &Inputs<'a> {
        &self.inputs
    }

    /// The state of the host at `position` for this request.
    pub fn state(&self, position: usize) -> HostState {
        self.states[position]
    }

    /// What its users and processes are compared with.
    pub fn scale(&self) -> &Scale {
        &self.scale
    }

    /// The numbers of the host at `position`.
    pub fn metrics(&self, position: usize) -> Metrics {
        self.metrics[position]
    }

    /// The terms of the host at `position`. Absent if no metric is left to compare it by.
    pub fn terms(&self, position: usize) -> Option<LoadTerms> {
        self.scale.terms(&self.metrics[position])
    }

    /// The expansion factor of the host at `position`, >= 1. That of a host which delivers an index of its own is the
    /// one at which the index has this value.
    pub fn expansion_factor(&self, position: usize) -> Option<f64> {
        let pool = self.inputs.pool;
        let host = &pool.hosts[position];
        let availability = host.availability(self.inputs.now);
        availability.expansion_factor.or_else(|| {
            let index = availability.index?;
            Some(f64::exp2(host.range(&pool.policy) * (1.0 - index / 100.0)))
        })
    }

    /// Users that the login adds to the host at `position`.
    pub fn adds_users(&self, position: usize) -> u32 {
        self.adds[position]
    }

    /// Words that qualify an answer with the host at `position`, of what is known about itself.
    pub fn host_flags(&self, position: usize) -> Flags {
        let availability = self.inputs.pool.hosts[position].availability(self.inputs.now);
        // Of lost hosts the one with the fewest places comes first, whatever else is known or not.
        let at_its_door =
            u32::try_from(position).is_ok_and(|position| self.tier(position) == Ok(Tier::Blind));
        let by_load = self.inputs.pool.policy.method == Method::WeightedLoad && !at_its_door;
        let incomplete = by_load && self.terms(position).is_none_or(|terms| terms.filled.any());
        Flags::NONE
            .with(Flags::INCOMPLETE, incomplete)
            .with(Flags::PROVISIONAL, availability.is_provisional)
            .with(Flags::SPARSE, availability.basis == Basis::Sparse)
            .with(Flags::IDLE, availability.basis == Basis::Idle)
            .with(Flags::STALLED, availability.basis == Basis::Stalled)
            .with(Flags::RAMPING, self.metrics[position].ramp.is_some())
    }

    /// The hosts of the pool.
    pub(super) fn positions(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.states.len()).unwrap_or(u32::MAX)
    }

    /// Why the host at `position` comes last for this gateway.
    pub(super) fn penalised(&self, position: usize) -> Option<PenaltyCause> {
        let (inputs, host) = (&self.inputs, &self.inputs.pool.hosts[position]);
        host.penalised(&inputs.request.token.gateway, inputs.words[position].places(), inputs.now)
    }

    /// The state that the host at `position` has for a user who is not on it.
    pub(super) fn state_for_newcomer(&self, position: usize) -> HostState {
        let (inputs, cost) = (&self.inputs, self.inputs.request.cost);
        state_of(&inputs.pool.state_input(position, inputs.words[position], cost, inputs.now))
    }

    /// Whether the host at `position` was asked within this call and did not agree; and how.
    pub(super) fn unwilling(&self, position: usize) -> Option<Excluded> {
        let host_id = &self.inputs.pool.hosts[position].facts.host_id;
        self.inputs.unwilling.iter().find(|(id, _)| id == host_id).map(|(_, why)| *why)
    }

    /// Whether the door of the host at `position` accepted a connection. Absent: it was not tried.
    pub(super) fn door(&self, position: usize) -> Option<bool> {
        if self.doors.is_empty() {
            return None;
        }
        self.doors.get(&self.inputs.pool.hosts[position].facts.host_id).copied()
    }

    /// Whether the host at `position` may be used although its agent is lost.
    pub(super) fn is_open_though_lost(&self, position: usize) -> bool {
        self.is_blind && blind::check(self, position).is_ok()
    }

    /// Whether lost hosts whose doors are open take part.
    pub(super) fn is_blind(&self) -> bool {
        self.is_blind
    }

    /// What speaks against the host at `position` apart from its state: the request, or its replicas.
    pub(super) fn ruled_out(&self, position: u32) -> Option<Excluded> {
        if self.holders.is_some_and(|holders| holders.binary_search(&position).is_err()) {
            return Some(Excluded::NoReplica);
        }
        if self.excluded.binary_search(&position).is_ok() {
            return Some(Excluded::ByRequest);
        }
        let is_from = self.from_host == Some(position);
        // A host that calls itself busy may still serve if nobody better is left; any other fault rules it out.
        if is_from && !self.comes_busy() {
            return Some(Excluded::FromHost);
        }
        if !is_from && self.tried.binary_search(&position).is_ok() {
            return Some(Excluded::Tried);
        }
        let resource = self.inputs.request.resource.as_ref()?;
        self.inputs.pool.replica_mark(position as usize, resource).map(Excluded::OutOfService)
    }

    pub(super) fn comes_busy(&self) -> bool {
        self.inputs.request.failover.as_ref().is_some_and(|failover| failover.cause == FailureCause::Busy)
    }

    /// Whether no host holds the resource that is asked for.
    pub(super) fn resource_is_unknown(&self) -> bool {
        self.holders.is_some_and(<[u32]>::is_empty)
    }

    /// How the host at `position` stands, or what speaks against it.
    pub(super) fn standing(&self, position: u32) -> Result<Standing, Excluded> {
        if let Some(excluded) = self.ruled_out(position) {
            return Err(excluded);
        }
        let at = position as usize;
        let tier = self.tier(position)?;
        if let Some(why) = self.unwilling(at) {
            return Err(why);
        }
        self.check_room(at)?;
        let inputs = &self.inputs;
        let zone = inputs.request.client_zone.as_ref();
        let class = Class {
            silent: inputs.words[at].is_silent(),
            penalised: self.penalised(at).is_some(),
            tier,
            at_pending_limit: self.is_at_pending_limit(at),
            far: zone.is_some_and(|zone| inputs.pool.hosts[at].facts.zone.as_ref() != Some(zone)),
        };
        Ok(Standing { class, rank: order::rank(self, at, tier) })
    }

    fn tier(&self, position: u32) -> Result<Tier, Excluded> {
        let at = position as usize;
        match self.states[at] {
            // It says that it is busy, whatever its numbers say.
            HostState::Available | HostState::Warming if self.from_host == Some(position) => Ok(Tier::Busy),
            HostState::Available => Ok(Tier::Available),
            HostState::Warming => Ok(Tier::Warming),
            HostState::Busy => Ok(Tier::Busy),
            HostState::Unknown if self.inputs.pool.policy.allow_unknown => Ok(Tier::Unknown),
            HostState::Unknown | HostState::Offline if self.is_blind => {
                blind::check(self, at).map(|()| Tier::Blind)
            }
            state => Err(Excluded::State(state)),
        }
    }

    fn is_at_pending_limit(&self, position: usize) -> bool {
        let limit = self.inputs.pool.policy.max_pending.finite();
        limit.is_some_and(|limit| self.inputs.words[position].places() >= limit)
    }

    /// Whether another place fits on the host at `position`, as far as this coordinator may say.
    pub(super) fn check_room(&self, position: usize) -> Result<(), Excluded> {
        let host = &self.inputs.pool.hosts[position];
        let word = self.inputs.words[position];
        let adds = self.adds[position];
        if !HostCell::has_room(word, adds) {
            return Err(Excluded::CellFull);
        }
        let limits = Limits::of(host, &self.inputs.pool.policy);
        if limits.max_pending.is_some_and(|limit| word.places() >= limit) {
            return Err(Excluded::MaxPending);
        }
        if !limits.any() || self.can_be_asked(position) {
            return Ok(());
        }
        let reading = host.reading.as_deref();
        let (listed_users, listed_places, coordinators) = reading.map_or((0, 0, 1), |reading| {
            (reading.listed_pending_users, reading.listed_places, reading.streams_held.max(1))
        });
        let share = |limit: u32, used: u32, own: u32, adds: u32| {
            u64::from(own) + u64::from(adds) <= u64::from(limit.saturating_sub(used) / coordinators)
        };
        if let Some(limit) = limits.max_users {
            let used = word.users().unwrap_or(limit).saturating_add(listed_users);
            let given = word.pending_users().saturating_add(host.unheard_users);
            if !share(limit, used, given.saturating_sub(listed_users), adds) {
                return Err(Excluded::OutOfShare);
            }
        }
        match limits.max_pending {
            Some(limit) if !share(limit, listed_places, word.places().saturating_sub(listed_places), 1) => {
                Err(Excluded::MaxPending)
            }
            _ => Ok(()),
        }
    }

    /// Whether the host at `position` can be asked for a place.
    pub(super) fn can_be_asked(&self, position: usize) -> bool {
        self.inputs.pool.hosts[position].can_be_asked() && !blind::is_lost(self, position)
    }
}
