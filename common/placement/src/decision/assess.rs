//! Who is a candidate, how good is each, and what speaks against the others?

use usher_availability::Basis;
use usher_types::{BootTime, HostId, HostState, SessionState, UserKey};

use super::{FailoverCause, Flags, Request};
use crate::{
    farm::{CellWord, HostCell, PoolView, SessionAt, state_of},
    load::{LoadTerms, Metrics, Scale},
};

/// Everything that a decision depends on; the same inputs give the same decision.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// The pool.
    pub pool: &'a PoolView,
    /// Its cells, as they were read.
    pub words: &'a [CellWord],
    /// What is asked.
    pub request: &'a Request,
    /// Hosts with a live place of the user, oldest first.
    pub own_places: &'a [HostId],
    /// Hosts that were asked within this call and did not admit it, and whether each refused or was silent.
    pub unwilling: &'a [(HostId, Excluded)],
    /// The instant of the decision.
    pub now: BootTime,
    /// Settles ties.
    pub seed: u64,
}

/// What speaks against a host.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Excluded {
    /// It does not hold the resource.
    NoReplica,
    /// The request excludes it.
    ByRequest,
    /// The login was tried there before.
    Tried,
    /// The login comes from there.
    FromHost,
    /// Its state.
    State(HostState),
    /// It was asked in this call and refused.
    RefusedConsent,
    /// It was asked in this call and did not answer.
    NoAnswer,
    /// It cannot be asked, and this coordinator's share of its free places is given out.
    OutOfShare,
    /// More places are on their way to it than can be counted.
    CellFull,
}

impl Excluded {
    /// For people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoReplica => "does not hold the resource",
            Self::ByRequest => "excluded by the request",
            Self::Tried => "tried before",
            Self::FromHost => "the login comes from there",
            Self::State(state) => state.as_str(),
            Self::RefusedConsent => "refused its consent",
            Self::NoAnswer => "did not answer when asked",
            Self::OutOfShare => "cannot be asked, and its share is given out",
            Self::CellFull => "too many places on their way",
        }
    }
}

/// Classes of hosts, best first.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Tier {
    /// AVAILABLE.
    Available,
    /// BUSY: served if nobody better is left.
    Busy,
    /// UNKNOWN, where the pool allows it.
    Unknown,
}

/// Hosts of one class are compared by load; of two classes, the lower comes first whatever the loads.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Class {
    /// It did not answer when it was last asked.
    pub silent: bool,
    pub tier: Tier,
    /// It is in another zone than the client.
    pub far: bool,
}

/// A candidate.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(super) struct Standing {
    pub class: Class,
    /// Weighted load; infinite where no term is known.
    pub load: f64,
}

/// What is true of every host of the pool for one request.
#[derive(Clone, Debug)]
pub struct Assessment<'a> {
    inputs: Inputs<'a>,
    states: Vec<HostState>,
    /// Users that the login adds to each.
    adds: Vec<u32>,
    scale: Scale,
    holders: Option<&'a [u32]>,
    excluded: Vec<u32>,
    tried: Vec<u32>,
    /// Of a failover, the host that it comes from.
    pub(super) from_host: Option<u32>,
    /// The user as the pool compares it.
    pub(super) user: Option<UserKey>,
    /// Their sessions.
    pub(super) sessions: &'a [SessionAt],
}

/// Assesses every host of the pool for a request.
pub fn assess_pool<'a>(inputs: &Inputs<'a>) -> Assessment<'a> {
    let (pool, request) = (inputs.pool, inputs.request);
    let user = request.user.as_deref().and_then(|user| pool.policy.user_match.key(user));
    let sessions = user.as_ref().map_or(&[][..], |user| pool.sessions.of(user));
    let shared = user.as_ref().is_some_and(|user| pool.policy.is_shared_account(user));
    let mut adds = vec![request.cost; pool.hosts.len()];
    for session in sessions.iter().filter(|session| !shared && counts_as_user(session)) {
        if let Some(position) = pool.members.position(&session.host_id) {
            adds[position] = 0;
        }
    }
    let states: Vec<HostState> = (0..pool.hosts.len())
        .map(|n| state_of(&pool.state_input(n, inputs.words[n], adds[n], inputs.now)))
        .collect();
    let eligible = (0..pool.hosts.len())
        .filter(|position| states[*position].is_eligible())
        .map(|position| metrics(pool, position, inputs.words[position]));
    let scale = Scale::of(pool.policy.weights, pool.policy.users_full_scale, eligible);
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
    Assessment {
        scale,
        holders: request
            .resource
            .as_ref()
            .map(|resource| pool.replicas.get(resource).map_or(&[][..], Vec::as_slice)),
        excluded,
        tried,
        from_host,
        user,
        sessions,
        states,
        adds,
        inputs: inputs.clone(),
    }
}

/// Whether its user counts among the users of its host. One who has logged out does not, though their processes live on.
fn counts_as_user(session: &SessionAt) -> bool {
    session.state != SessionState::Lingering
}

fn metrics(pool: &PoolView, position: usize, word: CellWord) -> Metrics {
    let host = &pool.hosts[position];
    let reading = host.reading.as_deref();
    Metrics {
        cpu: reading.and_then(|reading| reading.cpu_percent),
        memory: reading.and_then(|reading| reading.memory).map(|memory| memory.used().get()),
        users: word.users().map(f64::from),
        pending: f64::from(word.pending_users()),
        processes: reading.and_then(|reading| reading.processes).map(f64::from),
        capacity: host.capacity(),
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
        metrics(self.inputs.pool, position, self.inputs.words[position])
    }

    /// The terms of the host at `position`. Absent if no metric is left to compare it by.
    pub fn terms(&self, position: usize) -> Option<LoadTerms> {
        self.scale.terms(&self.metrics(position))
    }

    /// Users that the login adds to the host at `position`.
    pub fn adds_users(&self, position: usize) -> u32 {
        self.adds[position]
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

    /// Words that qualify an answer with the host at `position`, of what is known about itself.
    pub fn host_flags(&self, position: usize) -> Flags {
        let basis = self.inputs.pool.hosts[position].availability(self.inputs.now).basis;
        let incomplete = self.terms(position).is_none_or(|terms| terms.filled.any());
        Flags::NONE
            .with(Flags::INCOMPLETE, incomplete)
            .with(Flags::SPARSE, basis == Basis::Sparse)
            .with(Flags::IDLE, basis == Basis::Idle)
            .with(Flags::STALLED, basis == Basis::Stalled)
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
        if is_from {
            // A host that calls itself busy may still serve if nobody better is left; any other fault rules it out.
            return (!self.comes_busy()).then_some(Excluded::FromHost);
        }
        self.tried.binary_search(&position).is_ok().then_some(Excluded::Tried)
    }

    pub(super) fn comes_busy(&self) -> bool {
        self.inputs.request.failover.as_ref().is_some_and(|failover| failover.cause == FailoverCause::Busy)
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
        let host = &self.inputs.pool.hosts[at];
        let tier = match self.states[at] {
            // It says that it is busy, whatever its numbers say.
            HostState::Available if self.from_host == Some(position) => Tier::Busy,
            HostState::Available => Tier::Available,
            HostState::Busy => Tier::Busy,
            HostState::Unknown if self.inputs.pool.policy.allow_unknown => Tier::Unknown,
            state => return Err(Excluded::State(state)),
        };
        if let Some(why) = self.unwilling(at) {
            return Err(why);
        }
        self.check_room(at)?;
        let zone = self.inputs.request.client_zone.as_ref();
        let far = zone.is_some_and(|zone| host.facts.zone.as_ref() != Some(zone));
        let silent = self.inputs.words[at].is_silent();
        let load = self.terms(at).map_or(f64::INFINITY, |terms| terms.weighted_load());
        Ok(Standing { class: Class { silent, tier, far }, load })
    }

    /// A host with a limit admits its places itself. One that cannot be asked now gets no more from each coordinator
    /// than its share of what was free when it last spoke, so that together they cannot pass the limit.
    fn check_room(&self, position: usize) -> Result<(), Excluded> {
        let host = &self.inputs.pool.hosts[position];
        let word = self.inputs.words[position];
        let adds = self.adds_users(position);
        if !HostCell::has_room(word, adds) {
            return Err(Excluded::CellFull);
        }
        let Some(limit) = host.max_users(&self.inputs.pool.policy).finite() else { return Ok(()) };
        if host.connected {
            return Ok(());
        }
        let reading = host.reading.as_deref();
        let listed = reading.map_or(0, |reading| reading.listed_pending_users);
        let coordinators = reading.map_or(1, |reading| reading.streams_held).max(1);
        let free = limit.saturating_sub(word.users().unwrap_or(limit)).saturating_sub(listed);
        let own = word.pending_users().saturating_sub(listed);
        if u64::from(own) + u64::from(adds) <= u64::from(free / coordinators) {
            Ok(())
        } else {
            Err(Excluded::OutOfShare)
        }
    }
}
