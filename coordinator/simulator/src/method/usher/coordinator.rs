//! One coordinator: the farm as it hears it, and the places that it gave.

use std::sync::Arc;

use usher_placement::{
    decision::{Asked, Decision, Request, reserve_best},
    farm::{Farm, PoolApply},
    reservation::{Grant, GrantParts, Ledger},
};
use usher_types::{
    BootTime, GatewayId, Goodbye, HostId, Latency, Load, PendingPlace, PolicyChange, RequestId, Token,
};

use super::{A_WORD, agent::Agent, instant, pool, scan::Scan};

/// A coordinator.
#[derive(Debug)]
pub(super) struct Coordinator {
    farm: Farm,
    ledger: Arc<Ledger>,
    /// Every host is looked at, however many there are.
    scan: Option<Scan>,
}

impl Coordinator {
    pub(super) fn new(change: &PolicyChange, scans_all: bool) -> Self {
        let ledger = Arc::new(Ledger::new());
        let mut farm = Farm::new(ledger.clone(), instant(0.0));
        let record = farm
            .prepare_pool(&pool(), &PoolApply::of(change.clone()), false)
            .expect("methods only name settings that are allowed");
        farm.commit_pool(record);
        Self { farm, ledger, scan: scans_all.then(Scan::default) }
    }

    pub(super) fn attach(&mut self, agent: &Agent) {
        let attached = self.farm.attach(&agent.hello, None, true);
        debug_assert!(attached.is_ok(), "every host has an id of its own");
    }

    pub(super) fn goodbye(&mut self, agent: &Agent, now: BootTime) {
        self.farm.detach(&agent.hello.host_id, agent.hello.stream_epoch, Some(Goodbye::HostShutdown), now);
    }

    pub(super) fn hear(&mut self, agent: &Agent, load: &Load, latency: Option<&Latency>, now: BootTime) {
        let host_id = &agent.hello.host_id;
        // No place is asked for or ends here: there is nobody to tell of what follows.
        let _ = self.farm.observe_load(host_id, load.clone(), &[], now, 0);
        if let Some(latency) = latency {
            self.farm.observe_latency(host_id, latency.clone(), 0, now);
        }
    }

    pub(super) fn tick(&mut self, now: BootTime) {
        let _ = self.farm.tick(now);
    }

    /// Decides and gives a place. Absent: it was refused.
    pub(super) fn place(
        &mut self,
        gateway: &GatewayId,
        number: usize,
        seed: u64,
        now: BootTime,
    ) -> Option<(HostId, PendingPlace)> {
        let request_id = RequestId::new(format!("r{number}")).expect(A_WORD);
        let token = Token { gateway: gateway.clone(), request_id };
        let request = Request { token, dry_run: false, ..Request::of_nobody(pool()) };
        let snapshot = self.farm.snapshot(now);
        let (pool, at, adds_users) = match &mut self.scan {
            Some(scan) => {
                let pool = snapshot.pools.get(&request.pool)?.clone();
                let (at, word) = scan.best(&pool, now)?;
                // Nobody else is there to change it meanwhile.
                pool.members.cells[at].reserve(word, request.cost).then_some((pool, at, request.cost))?
            }
            None => {
                let asked = Asked { request: &request, unwilling: &[], doors: &[], now, seed };
                let reserved = reserve_best(|| snapshot.clone(), &self.ledger, &asked)?;
                let Decision::Take(choice) = reserved.decision else { return None };
                (reserved.pool, choice.position as usize, choice.adds_users)
            }
        };
        let facts = &pool.hosts[at].facts;
        let grant = Grant::new(
            GrantParts {
                token: request.token.clone(),
                made_under: request.attempt,
                content_hash: request.content_hash(),
                pool: request.pool.clone(),
                host_id: facts.host_id.clone(),
                cell: pool.members.cells[at].clone(),
                endpoints: facts.endpoints.clone(),
                user: None,
                user_key: None,
                cost: request.cost,
                counted_at_first: adds_users,
                since: now,
                ends_at: now + pool.policy.reservation_ttl,
                decision_id: None,
                blind: false,
                untold: false,
            },
            false,
        );
        let place = grant.to_place(now)?;
        self.ledger.insert(Arc::new(grant));
        Some((facts.host_id.clone(), place))
    }
}
