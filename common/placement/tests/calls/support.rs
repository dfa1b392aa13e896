//! A farm, a clock that moves when it is told to, and calls on it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use usher_placement::{
    decision::{Answer, Call, CallParts, Consent, Desk, HostMessage, Placed, Request, Step, ToHost},
    farm::{Farm, PoolApply, Snapshot},
    reservation::{Grant, Ledger},
};
use usher_types::{
    BootId, BootTime, DecisionId, Endpoint, FailureCause, GatewayId, Hello, HostId, HostName, Load,
    PolicyChange, PoolName, RequestId, Session, SessionState, Token, UserLimit,
};

pub(crate) struct World {
    pub(crate) farm: Farm,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) now: BootTime,
    pub(crate) doors: BTreeMap<HostId, bool>,
    pub(crate) is_frozen: bool,
    snapshot: Arc<Snapshot>,
}

pub(crate) fn host_id(host: &str) -> HostId {
    HostId::new(host).unwrap()
}

pub(crate) fn desk() -> PoolName {
    PoolName::new("desk").unwrap()
}

pub(crate) fn token(request_id: &str) -> Token {
    Token { gateway: GatewayId::new("g1").unwrap(), request_id: RequestId::new(request_id).unwrap() }
}

/// A login of pool `desk` that says nothing but its id.
pub(crate) fn request(request_id: &str) -> Request {
    Request {
        token: token(request_id),
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

pub(crate) fn of_user(request_id: &str, user: &str) -> Request {
    Request { user: Some(user.to_owned()), ..request(request_id) }
}

/// A failover from `host`.
pub(crate) fn failover(request_id: &str, host: &str, failed: Option<&str>, cause: FailureCause) -> Request {
    let failover = usher_placement::decision::Failover {
        from_host: host.to_owned(),
        failed_request: failed.map(|failed| RequestId::new(failed).unwrap()),
        tried: Vec::new(),
        cause,
    };
    Request { failover: Some(failover), ..request(request_id) }
}

pub(crate) fn limited(users: u32) -> PolicyChange {
    PolicyChange { max_users: Some(UserLimit::Users(users)), ..PolicyChange::default() }
}

fn hello(host: &str) -> Hello {
    Hello {
        agent_version: "test".into(),
        host_id: host_id(host),
        boot_id: BootId::new("boot-1").unwrap(),
        stream_epoch: 1,
        incarnation_ms: 0,
        host_name: HostName::new(host).unwrap(),
        endpoints: vec![Endpoint { kind: "ssh".into(), address: "192.0.2.1".into(), port: 22 }],
        labels: BTreeMap::new(),
        pool: desk(),
        zone: None,
        cores: None,
        memory_bytes: None,
        cpu_model: None,
        report_interval: Duration::from_secs(5),
        latency_period: Duration::from_secs(15),
        is_virtual: false,
        is_reporter: false,
    }
}

impl World {
    /// A farm of one pool with these settings, whose hosts have so many users each.
    pub(crate) fn new(change: &PolicyChange, hosts: &[(&str, u32)]) -> Self {
        let (ledger, now) = (Arc::new(Ledger::new()), BootTime::from_millis(1_000_000));
        let mut farm = Farm::new(ledger.clone(), now);
        let record = farm.prepare_pool(&desk(), &PoolApply::of(change.clone()), false).unwrap();
        farm.commit_pool(record);
        for (host, _) in hosts {
            farm.attach(&hello(host), None, false).unwrap();
        }
        let snapshot = farm.snapshot(now);
        let mut world = Self { farm, ledger, now, doors: BTreeMap::new(), is_frozen: false, snapshot };
        for (host, users) in hosts {
            world.report(host, *users);
        }
        world
    }

    pub(crate) fn report(&mut self, host: &str, users: u32) {
        let load = Load { users: Some(users), streams_held: 1, ..Load::default() };
        self.farm.observe_load(&host_id(host), load, &[], self.now, 0);
        self.publish();
    }

    pub(crate) fn session(&mut self, host: &str, user: &str) {
        let session = Session {
            id: "7".to_owned(),
            user: user.to_owned(),
            state: SessionState::Disconnected,
            age: None,
        };
        self.farm.observe_sessions(&host_id(host), vec![session], self.now);
        self.publish();
    }

    pub(crate) fn publish(&mut self) {
        self.snapshot = self.farm.snapshot(self.now);
    }

    /// Time passes, and the coordinator ticks on.
    pub(crate) fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        while self.now < end {
            self.now = end.min(self.now + Duration::from_secs(1));
            self.farm.tick(self.now);
        }
        self.publish();
    }

    pub(crate) fn is_silent(&self, host: &str) -> bool {
        self.cell(host).is_silent()
    }

    pub(crate) fn cell(&self, host: &str) -> usher_placement::farm::CellWord {
        let (pool, position) = self.snapshot.find_host(host).unwrap();
        pool.members.cells[position].load()
    }

    pub(crate) fn grant(&self, request_id: &str) -> Arc<Grant> {
        self.ledger.get(&token(request_id)).unwrap()
    }

    pub(crate) fn call(&self, request: Request, within: Option<Duration>) -> Calling {
        let parts = CallParts {
            request: Arc::new(request),
            seed: 1,
            deadline: within.map(|within| self.now + within),
            decision_id: Some(DecisionId::new("c.1-1").unwrap()),
        };
        Calling { call: Call::new(parts), told: Vec::new() }
    }

    /// The answer of a call for which every host gives its consent, and every session exists.
    pub(crate) fn place(&mut self, request: Request) -> (Answer, Vec<ToHost>) {
        let mut calling = self.call(request, None);
        let answer = loop {
            match calling.step(self) {
                Step::Ask(_) => calling.call.consent(Consent::Admitted),
                Step::Confirm(_) => calling.call.confirmed(Some(true)),
                Step::TryDoors { .. } => {}
                Step::Wait(time) => self.advance(time),
                Step::Done(answer) => break *answer,
            }
        };
        (answer, calling.told)
    }

    /// Likewise; it is placed.
    pub(crate) fn placed(&mut self, request: Request) -> Placed {
        self.place(request).0.result.unwrap()
    }
}

/// A call under way, and what hosts were told so far.
pub(crate) struct Calling {
    pub(crate) call: Call,
    pub(crate) told: Vec<ToHost>,
}

impl Calling {
    pub(crate) fn step(&mut self, world: &World) -> Step {
        let desk = Desk {
            snapshot: &|| world.snapshot.clone(),
            ledger: &world.ledger,
            doors: &|host_id| world.doors.get(host_id).copied(),
            is_frozen: world.is_frozen,
        };
        let step = self.call.step(&desk, world.now);
        self.told.extend(self.call.take_messages());
        step
    }

    /// The host that is asked for a place next.
    #[track_caller]
    pub(crate) fn asked(&mut self, world: &World) -> usher_placement::decision::Ask {
        match self.step(world) {
            Step::Ask(ask) => ask,
            other => panic!("nobody is asked: {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn done(&mut self, world: &World) -> Answer {
        match self.step(world) {
            Step::Done(answer) => *answer,
            other => panic!("it is not over: {other:?}"),
        }
    }
}

/// What hosts were told, in few words.
pub(crate) fn words(told: &[ToHost]) -> Vec<String> {
    let word = |to: &ToHost| match &to.message {
        HostMessage::Expect(place) => format!("{} expect {}", to.host_id, place.token.request_id),
        HostMessage::End { token, attempt, reason } => {
            format!("{} end {}/{attempt} {reason:?}", to.host_id, token.request_id)
        }
        HostMessage::Outcome { token, outcome, succeeded_elsewhere, .. } => {
            let elsewhere = if *succeeded_elsewhere { " elsewhere" } else { "" };
            format!("{} {outcome:?} {}{elsewhere}", to.host_id, token.request_id)
        }
    };
    told.iter().map(word).collect()
}

pub(crate) fn host_of(placed: &Placed) -> String {
    placed.pool.hosts[placed.position as usize].facts.host_id.to_string()
}
