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
use usher_types::{BootTime, FailureCause, HostId, HostState, Method, PenaltyCause};

use super::{
    Excluded, Flags, Request, Tier, UserTrace, blind,
    order::{self, Class, Standing},
    predict, scan,
    words::Words,
};
use crate::{
    farm::{CellWord, PoolView, state_of},
    load::{LoadTerms, Metrics, PredictedLoad, Scale},
};

/// Everything that a decision depends on; the same inputs give the same decision.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// The pool.
    pub pool: &'a PoolView,
    /// Its cells, as they were read.
    pub words: Words<'a>,
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

/// What is true of every host of the pool for one request.
#[derive(Clone, Debug)]
pub struct Assessment<'a> {
    inputs: Inputs<'a>,
    /// Hosts that count the user already, in ascending order: the login adds nobody to them.
    counted: Vec<u32>,
    /// The state and the numbers of every host, if they were all asked for; else each is computed when it is.
    each: Vec<(HostState, Metrics)>,
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
    let mut assessment = Assessment::new(inputs);
    match inputs.words {
        Words::All(_) => {
            assessment.assess_each();
            assessment.scale = scale_of(inputs.pool, &assessment.each);
            assessment.is_blind = blind::is_active(&assessment);
        }
        Words::Drawn(words) => assessment.scale_by_drawn(words),
    }
    assessment
}

/// The scale of the eligible hosts that are not ramping up; if all are, of the eligible ones; if there is none, of the
/// unknown ones that may be chosen.
fn scale_of(pool: &PoolView, each: &[(HostState, Metrics)]) -> Scale {
    let all = each.iter();
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
        let unknown = all.filter(|(state, _)| *state == HostState::Unknown).map(|(_, metrics)| *metrics);
        Scale::of(weights, floor, unknown, some_incomplete)
    }
}

/// In a pool too large to be looked at as a whole: that of the snapshot, and what was placed on those drawn since.
fn scale_of_drawn(assessment: &Assessment<'_>, words: &[(u32, CellWord)]) -> Scale {
    let pool = assessment.inputs.pool;
    let scale = pool.crowd.as_ref().map_or_else(|| scale_of(pool, &[]), |crowd| *crowd.scale());
    let top = |top: f64, (position, word): &(u32, CellWord)| {
        let adds = assessment.adds_users(*position as usize);
        top.max(scan::users_per_capacity(pool, *position as usize, *word, adds))
    };
    scale.with_users(words.iter().fold(0.0, top))
}

impl<'a> Assessment<'a> {
    /// What the request says of hosts; what is true of them is found when it is asked for.
    pub(super) fn new(inputs: &Inputs<'a>) -> Self {
        let (pool, request) = (inputs.pool, inputs.request);
        let counted = inputs.user.counted_on().filter_map(|host_id| pool.members.position(host_id));
        let mut counted: Vec<u32> = counted.filter_map(|position| u32::try_from(position).ok()).collect();
        let failover = request.failover.as_ref();
        let all_of = |hosts: &[String]| -> Vec<u32> {
            hosts.iter().flat_map(|host| pool.members.named(host)).copied().collect()
        };
        let mut from =
            failover.map_or(Vec::new(), |failover| pool.members.named(&failover.from_host).to_vec());
        let from_host = if from.len() == 1 { from.pop() } else { None };
        let mut tried: Vec<u32> = failover.map_or(Vec::new(), |failover| all_of(&failover.tried));
        tried.append(&mut from);
        let mut excluded = all_of(&request.exclude);
        // Each host of the pool is looked up in them.
        counted.sort_unstable();
        tried.sort_unstable();
        excluded.sort_unstable();
        let holders = |resource| pool.replicas.get(resource).map_or(&[][..], Vec::as_slice);
        Self {
            inputs: inputs.clone(),
            counted,
            each: Vec::new(),
            scale: Scale::of(pool.policy.weights, 0.0, std::iter::empty(), false),
            holders: request.resource.as_ref().map(holders),
            excluded,
            tried,
            doors: inputs.doors.iter().map(|(host_id, accepts)| (host_id, *accepts)).collect(),
            is_blind: false,
            from_host,
        }
    }

    /// Computes the state and the numbers of every host.
    pub(super) fn assess_each(&mut self) {
        self.each = (0..self.inputs.pool.hosts.len())
            .map(|position| (self.compute_state(position), self.compute_metrics(position)))
            .collect();
    }

    /// Compares by the numbers of every host, one by one.
    pub(super) fn scale_by_each(&mut self) {
        self.assess_each();
        self.scale = scale_of(self.inputs.pool, &self.each);
    }

    /// Compares by the numbers of the snapshot, and by what was placed on the drawn hosts since.
    pub(super) fn scale_by_drawn(&mut self, words: &[(u32, CellWord)]) {
        self.scale = scale_of_drawn(self, words);
    }

    pub(super) fn set_scale(&mut self, scale: Scale) {
        self.scale = scale;
    }

    pub(super) fn set_blind(&mut self, is_blind: bool) {
        self.is_blind = is_blind;
    }

    fn compute_state(&self, position: usize) -> HostState {
        let inputs = &self.inputs;
        let adds = self.adds_users(position);
        state_of(&inputs.pool.state_input(position, inputs.words[position], adds, inputs.now))
    }

    fn compute_metrics(&self, position: usize) -> Metrics {
        let Inputs { pool, words, now, .. } = self.inputs;
        let (host, word) = (&pool.hosts[position], words[position]);
        let metrics = host.metrics(word, now);
        if pool.policy.method != Method::WeightedLoad || !pool.policy.predict {
            return metrics;
        }
        let (expected_cpu, expected_memory) = predict::expected_points(pool, host, word, now);
        Metrics { expected_cpu, expected_memory, ..metrics }
    }

    /// What it was made from.
    pub fn inputs(&self) -> &Inputs<'a> {
        &self.inputs
    }

    /// The state of the host at `position` for this request.
    pub fn state(&self, position: usize) -> HostState {
        self.each.get(position).map_or_else(|| self.compute_state(position), |(state, _)| *state)
    }

    /// What its users and processes are compared with.
    pub fn scale(&self) -> &Scale {
        &self.scale
    }

    /// The numbers of the host at `position`.
    pub fn metrics(&self, position: usize) -> Metrics {
        self.each.get(position).map_or_else(|| self.compute_metrics(position), |(_, metrics)| *metrics)
    }

    /// The terms of the host at `position`. Absent if no metric is left to compare it by.
    pub fn terms(&self, position: usize) -> Option<LoadTerms> {
        self.scale.terms(&self.metrics(position))
    }

    /// What the host at `position` is expected to have with one more login, by the learned costs.
    pub fn predicted(&self, position: usize) -> PredictedLoad {
        let inputs = &self.inputs;
        predict::predicted(inputs.pool, &inputs.pool.hosts[position], inputs.words[position], inputs.now)
    }

    /// Whether nothing is known of the host at `position` that its demand could be predicted from.
    pub(super) fn is_unpredictable(&self, position: usize) -> bool {
        let inputs = &self.inputs;
        let host = &inputs.pool.hosts[position];
        predict::demand_input(host, inputs.words[position], inputs.now).is_unknown()
    }

    /// The expansion factor of the host at `position`, >= 1. That of a host which delivers an index of its own is the
    /// one at which the index has this value.
    pub fn expansion_factor(&self, position: usize) -> Option<f64> {
        let pool = self.inputs.pool;
        pool.hosts[position].expansion_factor(&pool.policy, self.inputs.now)
    }

    /// Users that the login adds to the host at `position`. None where its user is counted already; but of a host that is
    /// not heard nobody knows whether they still sit there, or their seat was given to another.
    pub fn adds_users(&self, position: usize) -> u32 {
        let is_counted = |position: u32| self.counted.binary_search(&position).is_ok();
        let is_counted = !self.counted.is_empty() && u32::try_from(position).is_ok_and(is_counted);
        if is_counted && self.is_heard(position) { 0 } else { self.inputs.request.cost }
    }

    fn is_heard(&self, position: usize) -> bool {
        let Inputs { pool, now, .. } = self.inputs;
        let state = state_of(&pool.state_input(position, CellWord::NOBODY, 0, now));
        pool.hosts[position].connected && !matches!(state, HostState::Offline | HostState::Unknown)
    }

    /// Words that qualify an answer with the host at `position`, of what is known about itself.
    pub fn host_flags(&self, position: usize) -> Flags {
        let at_its_door =
            u32::try_from(position).is_ok_and(|position| self.tier(position) == Ok(Tier::Blind));
        self.flags_of(position, at_its_door, || self.terms(position))
    }

    /// The same where it is known whether the host is used although its agent is lost, and perhaps its terms.
    pub(super) fn flags_of(
        &self,
        position: usize,
        at_its_door: bool,
        terms: impl Fn() -> Option<LoadTerms>,
    ) -> Flags {
        let availability = self.inputs.pool.hosts[position].availability(self.inputs.now);
        let incomplete = match self.inputs.pool.policy.method {
            // Of lost hosts the one with the fewest places comes first, whatever else is known or not.
            _ if at_its_door => false,
            Method::WeightedLoad => terms().is_none_or(|terms| terms.filled.any()),
            Method::Predictive => self.predicted(position).is_incomplete,
            Method::Availability | Method::FillFirst => false,
        };
        Flags::NONE
            .with(Flags::INCOMPLETE, incomplete)
            .with(Flags::PROVISIONAL, availability.is_provisional)
            .with(Flags::SPARSE, availability.basis == Basis::Sparse)
            .with(Flags::IDLE, availability.basis == Basis::Idle)
            .with(Flags::STALLED, availability.basis == Basis::Stalled)
            .with(Flags::RAMPING, self.inputs.pool.hosts[position].ramp(self.inputs.now).is_some())
    }

    /// The hosts of the pool.
    pub(super) fn positions(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.inputs.pool.hosts.len()).unwrap_or(u32::MAX)
    }

    /// Hosts that stand otherwise for this request than for any other, in ascending order.
    pub(super) fn named(&self) -> Vec<u32> {
        let unwilling = self.inputs.unwilling.iter();
        let unwilling = unwilling.filter_map(|(host_id, _)| self.inputs.pool.members.position(host_id));
        let marked = self.inputs.request.resource.as_ref();
        let marked = marked.and_then(|resource| self.inputs.pool.marked.get(resource)).into_iter().flatten();
        let mut named: Vec<u32> = unwilling.filter_map(|position| u32::try_from(position).ok()).collect();
        named.extend(self.counted.iter().chain(&self.excluded).chain(&self.tried).chain(&self.from_host));
        named.extend(marked.map(|(position, _)| *position));
        named.sort_unstable();
        named.dedup();
        named
    }

    /// Positions of the hosts that hold the resource that is asked for, in ascending order. Absent: any host will do.
    pub(super) fn holders(&self) -> Option<&'a [u32]> {
        self.holders
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
        let class = self.class(position)?;
        Ok(Standing { class, rank: order::rank(self, position as usize, class.tier) })
    }

    /// The class of the host at `position`, or what speaks against it.
    pub(super) fn class(&self, position: u32) -> Result<Class, Excluded> {
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
        Ok(Class {
            silent: inputs.words[at].is_silent(),
            penalised: self.penalised(at).is_some(),
            tier,
            at_pending_limit: self.is_at_pending_limit(at),
            far: zone.is_some_and(|zone| inputs.pool.hosts[at].facts.zone.as_ref() != Some(zone)),
        })
    }

    fn tier(&self, position: u32) -> Result<Tier, Excluded> {
        let at = position as usize;
        match self.state(at) {
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
        limit.is_some_and(|limit| self.logons_in_progress(position) >= limit)
    }

    /// Logons on their way to the host at `position` and in progress on it. The latter count once it is learned how long a
    /// logon takes: before that nobody can tell which of its sessions are still logging on.
    pub(super) fn logons_in_progress(&self, position: usize) -> u32 {
        let pool = self.inputs.pool;
        let reading = pool.hosts[position].reading.as_deref();
        let known = reading.filter(|_| pool.costs.logon_seconds.is_learned);
        self.inputs.words[position].places().saturating_add(known.map_or(0, |reading| reading.logons))
    }
}
