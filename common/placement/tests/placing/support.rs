//! A farm in a few words: hosts by name, reports by number, time by the second.
//!
//! Everything goes through the calls that a coordinator makes, in the order in which it makes them, so that a test says
//! only what differs from a quiet day.

use std::{sync::Arc, time::Duration};

use usher_placement::{
    decision::{
        Asked, Decision, Excluded, Failover, Inputs, Refusal, Request, Tier, UserTrace, Words, explain,
        reserve_best,
    },
    farm::{CellWord, DrainMark, Effect, Farm, PoolApply, PoolView, StateInput, state_of},
    host::HostBook,
    reservation::{Grant, GrantParts, Ledger, Retry},
};
use usher_types::{
    BootId, BootTime, BusyReasons, Drain, DrainMode, EndReason, EndedPlace, Endpoint, FailureCause,
    FieldFault, GatewayId, Hello, HostId, HostMarks, HostName, HostState, Latency, Load, Memory,
    OperationName, OperationWindow, PendingPlace, Percent, PolicyChange, PoolName, Replica, ReplicaMark,
    RequestId, ResourceId, Session, SessionState, Token, UserLimit, WeightsChange,
};

/// The pool of every host and request that names no other.
pub(crate) fn desk() -> PoolName {
    PoolName::new("desk").unwrap()
}

pub(crate) fn id(host: &str) -> HostId {
    HostId::new(format!("id-{host}")).unwrap()
}

pub(crate) fn at(seconds: u64) -> BootTime {
    BootTime::from_millis(1_000_000 + seconds * 1000)
}

pub(crate) fn token(request: &str) -> Token {
    Token { gateway: GatewayId::new("g1").unwrap(), request_id: RequestId::new(request).unwrap() }
}

pub(crate) fn endpoint() -> Endpoint {
    Endpoint { kind: "ssh".into(), address: "192.0.2.1".into(), port: 22 }
}

/// A host that reports every 5 s.
pub(crate) fn hello(host: &str) -> Hello {
    Hello {
        agent_version: "test".into(),
        host_id: id(host),
        boot_id: BootId::new("boot-1").unwrap(),
        stream_epoch: 1,
        incarnation_ms: 0,
        host_name: HostName::new(host).unwrap(),
        endpoints: vec![endpoint()],
        labels: std::collections::BTreeMap::new(),
        pool: desk(),
        zone: None,
        cores: Some(4),
        memory_bytes: Some(1 << 34),
        cpu_model: None,
        report_interval: Duration::from_secs(5),
        latency_period: Duration::from_secs(15),
        is_virtual: false,
        is_reporter: false,
    }
}

/// CPU %, memory %, users, processes.
pub(crate) fn load((cpu, memory, users, processes): (f64, u64, u32, u32)) -> Load {
    Load {
        cpu: Some(Percent::new(cpu).unwrap()),
        memory: Memory::new(memory, 100),
        users: Some(users),
        processes: Some(processes),
        streams_held: 1,
        latched: Some(BusyReasons::NONE),
        ..Load::default()
    }
}

/// A report of a host that has nothing but users.
pub(crate) fn users(users: u32) -> Load {
    load((0.0, 0, users, 0))
}

/// A window of one operation with 100 calls at this expansion factor.
pub(crate) fn latency(expansion_factor: f64) -> Latency {
    let operation = OperationWindow {
        name: OperationName::new("open_db").unwrap(),
        ok: 100.0,
        failed: 0.0,
        too_long: 0.0,
        sum_us: 100.0 * 1000.0 * expansion_factor,
        min_us: Some(1000.0),
        in_flight: 0,
        oldest_in_flight: None,
        baseline_us: Some(1000.0),
        baseline_age: None,
        baseline_samples: 100,
        baseline_is_provisional: false,
    };
    Latency { window: Duration::from_secs(75), operations: vec![operation], ..Latency::default() }
}

/// The expansion factor at which the availability index is `index` with range 6.
pub(crate) fn factor_of(index: f64) -> f64 {
    f64::exp2((1.0 - index / 100.0) * 6.0)
}

/// A place that a host says has just ended.
pub(crate) fn ended(request: &str, attempt: u32, reason: EndReason) -> EndedPlace {
    EndedPlace {
        token: token(request),
        attempt,
        reason,
        ended_ago: Duration::ZERO,
        content_hash: ask(request).content_hash(),
        pool: desk(),
        endpoint: endpoint(),
    }
}

pub(crate) fn session(id: &str, user: &str, state: SessionState, age_s: u64) -> Session {
    Session { id: id.into(), user: user.into(), state, age: Some(Duration::from_secs(age_s)) }
}

pub(crate) fn listed(request: &str, user: Option<&str>, attempt: u32, left_s: u64) -> PendingPlace {
    PendingPlace {
        token: token(request),
        attempt,
        content_hash: ask(request).content_hash(),
        pool: desk(),
        endpoint: endpoint(),
        user: user.map(str::to_owned),
        cost: 1,
        counted_users: 1,
        left: Duration::from_secs(left_s),
        connected: false,
        admitted: false,
    }
}

/// A login that says nothing but its id.
pub(crate) fn ask(request: &str) -> Request {
    Request {
        token: token(request),
        attempt: 1,
        pool: desk(),
        resource: None,
        user: None,
        client_zone: None,
        cost: 1,
        exclude: Vec::new(),
        prefer_host: None,
        dry_run: false,
        failover: None,
    }
}

pub(crate) fn ask_for(request: &str, user: &str) -> Request {
    Request { user: Some(user.into()), ..ask(request) }
}

pub(crate) fn failover(request: &str, from: &str, tried: &[&str], cause: FailureCause) -> Request {
    let failover = Failover {
        from_host: from.into(),
        failed_request: None,
        tried: tried.iter().map(|host| (*host).to_owned()).collect(),
        cause,
    };
    Request { failover: Some(failover), ..ask(request) }
}

pub(crate) fn only_users() -> Option<WeightsChange> {
    Some(WeightsChange { users_percent: Some(100.0), ..WeightsChange::default() })
}

pub(crate) fn limit(users: u32) -> Option<UserLimit> {
    Some(UserLimit::Users(users))
}

/// What came of a request.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) decision: Decision,
    pub(crate) pool: Arc<PoolView>,
    pub(crate) grant: Option<Arc<Grant>>,
    /// The doors that were tried for it.
    pub(crate) doors: Vec<(HostId, bool)>,
}

impl Placed {
    /// The host that was answered.
    pub(crate) fn host(&self) -> &str {
        let position = match &self.decision {
            Decision::Take(choice) => choice.position,
            Decision::OwnSession { position, .. } | Decision::OwnPlace { position, .. } => *position,
            other => panic!("no host: {other:?}"),
        };
        self.pool.hosts[position as usize].facts.name.as_str()
    }

    pub(crate) fn refusal(&self) -> &Refusal {
        match &self.decision {
            Decision::Refused(refusal) => refusal,
            other => panic!("not refused: {other:?}"),
        }
    }

    pub(crate) fn choice(&self) -> &usher_placement::decision::Choice {
        match &self.decision {
            Decision::Take(choice) => choice,
            other => panic!("nothing taken: {other:?}"),
        }
    }
}

/// A coordinator without its network.
#[derive(Debug)]
pub(crate) struct Sim {
    pub(crate) farm: Farm,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) now: BootTime,
    pub(crate) seed: u64,
    /// Hosts whose doors accept connections, whatever their agents do.
    pub(crate) open_doors: Vec<HostId>,
}

impl Sim {
    pub(crate) fn new() -> Self {
        Self::begun_at(at(0))
    }

    /// A coordinator that has just started.
    pub(crate) fn begun_at(now: BootTime) -> Self {
        let ledger = Arc::new(Ledger::new());
        Self { farm: Farm::new(ledger.clone(), now), ledger, now, seed: 1, open_doors: Vec::new() }
    }

    /// A farm in which only users count, with these numbers of them.
    pub(crate) fn of_users(hosts: &[(&str, u32)]) -> Self {
        let mut sim = Self::new();
        sim.apply(PolicyChange { weights: only_users(), ..PolicyChange::default() });
        for (host, count) in hosts {
            sim.attach(host);
            sim.report(host, users(*count));
        }
        sim
    }

    pub(crate) fn attach(&mut self, host: &str) {
        self.farm.attach(&hello(host), None, false).unwrap();
    }

    pub(crate) fn report(&mut self, host: &str, load: Load) -> Vec<Effect> {
        self.farm.observe_load(&id(host), load, &[], self.now, 0)
    }

    pub(crate) fn report_faulty(&mut self, host: &str, load: Load, field: &str) {
        self.farm.observe_load(&id(host), load, &[FieldFault::new(field, "NaN", "0..=100")], self.now, 0);
    }

    /// The host says that it is this available.
    pub(crate) fn available(&mut self, host: &str, index: f64) {
        self.farm.observe_latency(&id(host), latency(factor_of(index)), 0, self.now);
    }

    pub(crate) fn sessions(&mut self, host: &str, sessions: &[Session]) {
        self.farm.observe_sessions(&id(host), sessions.to_vec(), self.now);
    }

    pub(crate) fn serves(&mut self, host: &str, resources: &[&str]) {
        let replica =
            |name: &&str| Replica { resource_id: ResourceId::new(name).unwrap(), path: None, title: None };
        self.farm.observe_replicas(&id(host), resources.iter().map(replica).collect());
    }

    pub(crate) fn apply(&mut self, change: PolicyChange) {
        let record = self.farm.prepare_pool(&desk(), &PoolApply::of(change), false).unwrap();
        self.farm.commit_pool(record);
    }

    pub(crate) fn drain(&mut self, host: &str, mode: DrainMode, no_reconnect: bool) {
        let drain = Drain { mode, reason: String::new(), author: String::new(), no_reconnect };
        let mark: Option<DrainMark> = self.farm.drain_mark(&id(host), drain);
        self.farm.set_drain(&id(host), mark);
    }

    pub(crate) fn mark_replica(&mut self, host: &str, resource: &str, mark: Option<ReplicaMark>) {
        let resource = ResourceId::new(resource).unwrap();
        self.farm.mark_replica(&id(host), &resource, mark, self.now);
    }

    pub(crate) fn set_marks(&mut self, host: &str, marks: HostMarks) {
        self.farm.set_marks(&id(host), marks).unwrap();
    }

    /// These hosts report what they reported last, for this long; the others are silent.
    pub(crate) fn pass_with(&mut self, seconds: u64, alive: &[(&str, u32)]) {
        for second in 0..seconds {
            self.pass(1);
            if second % 5 == 4 {
                alive.iter().for_each(|(host, count)| _ = self.report(host, users(*count)));
            }
        }
    }

    /// Time passes; the coordinator ticks each second.
    pub(crate) fn pass(&mut self, seconds: u64) -> Vec<Effect> {
        let mut effects = Vec::new();
        for _ in 0..seconds {
            self.now = self.now + Duration::from_secs(1);
            effects.extend(self.farm.tick(self.now));
        }
        effects
    }

    /// The coordinator stands still, then goes on.
    pub(crate) fn freeze(&mut self, seconds: u64) -> Vec<Effect> {
        self.now = self.now + Duration::from_secs(seconds);
        self.farm.tick(self.now)
    }

    pub(crate) fn pool(&mut self) -> Arc<PoolView> {
        self.farm.snapshot(self.now).pools[&desk()].clone()
    }

    pub(crate) fn state(&mut self, host: &str) -> HostState {
        let (pool, now) = (self.pool(), self.now);
        let position = pool.members.position(&id(host)).unwrap();
        let word = pool.members.cells[position].load();
        state_of(&StateInput {
            host: &pool.hosts[position],
            word,
            adds_users: 1,
            policy: &pool.policy,
            grace: pool.grace,
            now,
        })
    }

    pub(crate) fn word(&mut self, host: &str) -> CellWord {
        let pool = self.pool();
        pool.members.cells[pool.members.position(&id(host)).unwrap()].load()
    }

    /// Decides and takes the place, without looking whether it is a retry.
    pub(crate) fn decide(&mut self, request: &Request, unwilling: &[(HostId, Excluded)]) -> Placed {
        let snapshot = self.farm.snapshot(self.now);
        self.seed += 1;
        let (now, seed) = (self.now, self.seed);
        let mut doors: Vec<(HostId, bool)> = Vec::new();
        loop {
            let asked = Asked { request, unwilling, doors: &doors, now, seed };
            let placed = place_in(&self.ledger, || snapshot.clone(), &asked);
            let Decision::TryDoors(positions) = &placed.decision else { return Placed { doors, ..placed } };
            for position in positions {
                let host_id = placed.pool.hosts[*position as usize].facts.host_id.clone();
                let accepts = self.open_doors.contains(&host_id);
                doors.push((host_id, accepts));
            }
        }
    }

    /// As a coordinator answers: a retry repeats, a new request is decided.
    pub(crate) fn place(&mut self, request: &Request) -> Placed {
        match self.ledger.retry(&request.token, request.content_hash(), request.attempt) {
            Retry::New { attempt } => self.decide(&Request { attempt, ..request.clone() }, &[]),
            Retry::Repeat(grant) | Retry::Arrived(grant) => {
                let pool = self.pool();
                let position = pool.members.position(&grant.host_id).unwrap();
                let decision =
                    Decision::OwnPlace { position: u32::try_from(position).unwrap(), redirect: None };
                Placed { decision, pool, grant: Some(grant), doors: Vec::new() }
            }
            Retry::Reused => panic!("the id was used for another request"),
        }
    }

    pub(crate) fn end(&self, request: &str, reason: EndReason) {
        self.ledger.get(&token(request)).unwrap().end(reason, self.now);
    }

    pub(crate) fn explain(&mut self, request: &Request) -> usher_placement::decision::Explanation {
        self.explain_with(request, &[])
    }

    pub(crate) fn explain_with(
        &mut self,
        request: &Request,
        doors: &[(HostId, bool)],
    ) -> usher_placement::decision::Explanation {
        let pool = self.pool();
        let words = pool.words();
        let user = UserTrace::find(&pool, &self.ledger, request.user.as_deref());
        explain(&Inputs {
            pool: &pool,
            words: Words::All(&words),
            request,
            user: &user,
            unwilling: &[],
            doors,
            now: self.now,
            seed: self.seed,
        })
    }
}

/// Decides on the newest snapshot, and takes the place as a coordinator does.
pub(crate) fn place_in(
    ledger: &Ledger,
    snapshot: impl Fn() -> Arc<usher_placement::farm::Snapshot>,
    asked: &Asked<'_>,
) -> Placed {
    let reserved = reserve_best(snapshot, ledger, asked).unwrap();
    let grant = match &reserved.decision {
        Decision::Take(choice) if !asked.request.dry_run => {
            let grant = Arc::new(grant_of(asked.request, &reserved.pool, choice, asked.now));
            ledger.insert(grant.clone());
            Some(grant)
        }
        _ => None,
    };
    Placed { decision: reserved.decision, pool: reserved.pool, grant, doors: Vec::new() }
}

fn grant_of(
    request: &Request,
    pool: &PoolView,
    choice: &usher_placement::decision::Choice,
    now: BootTime,
) -> Grant {
    let at = choice.position as usize;
    let host = &pool.hosts[at];
    let parts = GrantParts {
        token: request.token.clone(),
        made_under: request.attempt,
        content_hash: request.content_hash(),
        pool: request.pool.clone(),
        host_id: host.facts.host_id.clone(),
        cell: pool.members.cells[at].clone(),
        endpoints: host.facts.endpoints.clone(),
        user: request.user.clone(),
        user_key: request.user.as_deref().and_then(|user| pool.policy.user_match.key(user)),
        cost: request.cost,
        counted_at_first: choice.adds_users,
        since: now,
        ends_at: now + pool.policy.reservation_ttl,
        decision_id: None,
        blind: choice.tier == Tier::Blind,
        untold: !host.connected,
    };
    Grant::new(parts, false)
}

/// What an agent with this book reports at `now`.
pub(crate) fn report_of(book: &HostBook, now: BootTime) -> Load {
    Load {
        users: book.users(),
        pending: book.pending(now),
        ended: book.ended(now),
        streams_held: 1,
        ..load((0.0, 0, 0, 0))
    }
}

impl Sim {
    pub(crate) fn pool_words(&mut self) -> Vec<CellWord> {
        self.pool().words()
    }
}
