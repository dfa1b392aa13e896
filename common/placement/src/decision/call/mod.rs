//! What happens between a gateway's question and its answer?
//!
//! A decision takes no time, but acting on it does: the host is asked for its consent, a session is confirmed, a door is
//! tried, and whatever comes back may mean that it must be decided again. A [`Call`] is that sequence without the
//! waiting. Each [`step`](Call::step) says what it waits for; whoever runs it, a server with sockets or a scenario with a
//! clock of its own, does that and steps again. So both run the same call.
//!
//! A call never acts. What hosts must be told comes out as messages, to be delivered in their order. It holds at most
//! one place that is not answered yet, and [`give_up`](Call::give_up) takes that back: whoever runs a call must call it
//! when its caller goes away. It bounds what hosts can cost: three
//! may refuse, and all together are asked for one second at most.

mod acting;
mod adopting;
mod answering;
mod exchange;

use std::{sync::Arc, time::Duration};

use usher_types::{BootTime, DecisionId, EndReason, HostId};

use self::exchange::Times;
pub use self::exchange::{
    Answer, Ask, AskedSession, Consent, ConsentAsked, Denied, Desk, Door, HostMessage, Placed, Step, ToHost,
};
use self::{
    acting::{Asking, Confirming},
    adopting::Adopting,
    answering::still_holds,
};
use super::{
    Asked, Decision, Excluded, Refusal, RefusalKind, Request,
    ends::{end, end_failed_places, expect},
    reserve_best,
};
use crate::{
    farm::PoolView,
    reservation::{Grant, GrantState, Retry},
};

/// Longest time for trying doors: what a connection takes across a continent, thrice.
const TRY_DOORS: Duration = Duration::from_secs(1);
/// How often to look whether a host has admitted a place that another call asked it for.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What a call begins with.
#[derive(Clone, Debug)]
pub struct CallParts {
    /// What is asked.
    pub request: Arc<Request>,
    /// Settles ties.
    pub seed: u64,
    /// When its answer is no longer of use: nothing is granted from then on. Absent: never.
    pub deadline: Option<BootTime>,
    /// Names the decision, so that it can be explained later. Absent: it cannot.
    pub decision_id: Option<DecisionId>,
}

/// One request on its way to an answer.
#[derive(Debug)]
pub struct Call {
    request: Arc<Request>,
    seed: u64,
    times: Times,
    decision_id: Option<DecisionId>,
    attempt: u32,
    stage: Stage,
    unwilling: Vec<(HostId, Excluded)>,
    doors: Vec<(HostId, bool)>,
    /// Hosts whose doors were tried for this call.
    knocked: Vec<HostId>,
    /// When the last decision was made.
    decided_at: BootTime,
    consents: Vec<ConsentAsked>,
    messages: Vec<ToHost>,
}

#[derive(Debug)]
enum Stage {
    /// It may be a retry.
    Arriving,
    Deciding,
    Asking(Box<Asking>),
    Adopting(Box<Adopting>),
    Confirming(Box<Confirming>),
    Over,
}

/// Whether a call goes on without waiting.
type Next = Option<Step>;

impl Call {
    /// A call that has just come.
    pub fn new(parts: CallParts) -> Self {
        let CallParts { request, seed, deadline, decision_id } = parts;
        Self {
            seed,
            times: Times { deadline, asking_since: None },
            decision_id,
            attempt: request.attempt,
            // A dry run is no login: it is no retry of one, and no one's retry.
            stage: if request.dry_run { Stage::Deciding } else { Stage::Arriving },
            unwilling: Vec::new(),
            doors: Vec::new(),
            knocked: Vec::new(),
            decided_at: BootTime::ZERO,
            consents: Vec::new(),
            messages: Vec::new(),
            request,
        }
    }

    /// Goes on as far as it can at `now`. Messages must be taken after each step.
    pub fn step(&mut self, desk: &Desk<'_>, now: BootTime) -> Step {
        loop {
            let next = self.advance(desk, now);
            if matches!(next, Some(Step::Done(_))) {
                self.stage = Stage::Over;
            }
            if let Some(step) = next {
                return step;
            }
        }
    }

    /// What the host said that the last step asked for a place. Without it, the host was silent.
    pub fn consent(&mut self, said: Consent) {
        match &mut self.stage {
            Stage::Asking(asking) => asking.said = Some(said),
            Stage::Adopting(adopting) => adopting.said = Some(said),
            _ => {}
        }
    }

    /// Whether the session that the last step asked for exists. Absent: the host was silent, or cannot tell.
    pub fn confirmed(&mut self, exists: Option<bool>) {
        if let Stage::Confirming(confirming) = &mut self.stage {
            confirming.exists = exists;
        }
    }

    /// What hosts must be told now, in this order.
    pub fn take_messages(&mut self) -> Vec<ToHost> {
        std::mem::take(&mut self.messages)
    }

    /// The caller went away: a place that it has no answer for is taken back. What is left to be told.
    pub fn give_up(&mut self, now: BootTime) -> Vec<ToHost> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Asking(asking) => self.messages.extend(end(&asking.grant, EndReason::Cancelled, now)),
            // Its host may have it under the attempt of this retry by now, which nobody else will end. If the gateway has asked
            // with a higher one since, or had done before this call came, the place is that one's.
            Stage::Adopting(adopting) if adopting.is_alone(self.request.attempt) => {
                self.messages.extend(end(&adopting.grant, EndReason::Cancelled, now));
            }
            _ => {}
        }
        self.take_messages()
    }

    fn advance(&mut self, desk: &Desk<'_>, now: BootTime) -> Next {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Asking(asking) => return self.after_consent(*asking, now),
            Stage::Adopting(adopting) => return self.after_adoption(*adopting, now),
            Stage::Confirming(confirming) => return self.after_confirm(*confirming),
            // A step after the last one changes nothing.
            Stage::Over => return Some(Self::denied(Denied::DeadlinePassed)),
            _ if self.times.is_over(now) => return Some(Self::denied(Denied::DeadlinePassed)),
            Stage::Arriving => {
                if let Some(step) = self.recognise(desk, now) {
                    return Some(step);
                }
            }
            Stage::Deciding => {}
        }
        self.stage = Stage::Deciding;
        self.decide(desk, now)
    }

    /// A retry gets its answer again. Absent: it must be decided.
    fn recognise(&mut self, desk: &Desk<'_>, now: BootTime) -> Next {
        let request = self.request.clone();
        match desk.ledger.retry(&request.token, request.content_hash(), request.attempt) {
            Retry::Reused => return Some(Self::denied(Denied::Reused)),
            Retry::Repeat(grant) | Retry::Arrived(grant) => {
                if let Some(step) = self.repeat(desk, &grant, now) {
                    return Some(step);
                }
            }
            Retry::New { attempt } => self.attempt = attempt,
        }
        if let Some(failover) = &request.failover {
            self.messages.extend(end_failed_places(desk, &request, failover, now));
        }
        None
    }

    /// Gives the answer again that `grant` was given with. Absent: its host is gone or takes nobody, so it must be
    /// decided anew.
    fn repeat(&mut self, desk: &Desk<'_>, grant: &Arc<Grant>, now: BootTime) -> Next {
        if grant.state() == GrantState::Asked {
            // Whoever asks its host has the answer soon.
            self.stage = Stage::Arriving;
            return Some(Step::Wait(LOOK_AGAIN));
        }
        let found = (desk.snapshot)().pools.get(&grant.pool).cloned().and_then(|pool| {
            let position = pool.members.position(&grant.host_id)?;
            still_holds(&pool, position, grant, now).then_some((pool, u32::try_from(position).ok()?))
        });
        let Some((pool, position)) = found else {
            self.messages.extend(end(grant, EndReason::Cancelled, now));
            self.attempt = grant.anew(self.request.attempt);
            return None;
        };
        let counts = grant.counts();
        if counts {
            if let Some(step) = self.adopt(&pool, position, grant, now) {
                return Some(step);
            }
            // Its host must know the attempt under which it stands now: of two hosts with one token, the one with the
            // higher attempt stays.
            self.messages.extend(expect(grant, now));
            grant.adopt();
        }
        Some(Self::repeated(pool, position, counts.then(|| grant.clone()), grant.decision_id.clone()))
    }

    fn decide(&mut self, desk: &Desk<'_>, now: BootTime) -> Next {
        let request = self.request.clone();
        self.decided_at = now;
        if desk.is_frozen {
            let known = (desk.snapshot)().pools.contains_key(&request.pool);
            let stale = Denied::Refused(Refusal::plain(RefusalKind::Stale));
            return Some(Self::denied(if known { stale } else { Denied::UnknownPool }));
        }
        let asked =
            Asked { request: &request, unwilling: &self.unwilling, doors: &self.doors, now, seed: self.seed };
        let reserved = reserve_best(desk.snapshot, desk.ledger, &asked);
        let Some(reserved) = reserved else { return Some(Self::denied(Denied::UnknownPool)) };
        match reserved.decision.clone() {
            Decision::Take(choice) if request.dry_run => Some(self.chosen(reserved, &choice, None)),
            Decision::Take(choice) => self.take(desk, reserved, choice, now),
            Decision::OwnSession { position, session, must_confirm, redirect } => {
                if must_confirm && !request.dry_run {
                    return Some(self.confirm(reserved, position, &session, redirect, now));
                }
                Some(self.own_session(reserved, position, redirect))
            }
            Decision::OwnPlace { position, redirect } => {
                // It may have ended just now: then it is decided without it.
                let grant = self.own_grant(desk, &reserved.pool, position)?;
                if grant.state() == GrantState::Asked && !request.dry_run {
                    // Another login of the user waits for this host, which may still refuse.
                    return Some(Step::Wait(LOOK_AGAIN));
                }
                Some(self.own_place(reserved, position, grant, redirect))
            }
            Decision::TryDoors(positions) => self.look_at_doors(desk, &reserved.pool, &positions, now),
            Decision::Refused(refusal) => Some(self.refused(reserved, refusal)),
        }
    }

    fn own_grant(&self, desk: &Desk<'_>, pool: &PoolView, position: u32) -> Option<Arc<Grant>> {
        let user = pool.policy.user_match.key(self.request.user.as_deref()?)?;
        let host_id = &pool.hosts[position as usize].facts.host_id;
        desk.ledger.of_user(&pool.name, &user).into_iter().find(|own| own.host_id == *host_id)
    }

    /// Looks up what is known of these hosts' doors. Absent: all is known, decide again.
    fn look_at_doors(&mut self, desk: &Desk<'_>, pool: &PoolView, hosts: &[u32], now: BootTime) -> Next {
        let mut unknown = Vec::new();
        for position in hosts {
            let facts = &pool.hosts[*position as usize].facts;
            let (host_id, endpoints) = (facts.host_id.clone(), facts.endpoints.clone());
            match (desk.doors)(&host_id) {
                Some(is_open) => self.doors.push((host_id, is_open)),
                None if self.knocked.contains(&host_id) => self.doors.push((host_id, false)),
                None => unknown.push(Door { host_id, endpoints }),
            }
        }
        if unknown.is_empty() {
            return None;
        }
        self.knocked.extend(unknown.iter().map(|door| door.host_id.clone()));
        Some(Step::TryDoors { doors: unknown, within: self.times.left(TRY_DOORS, now) })
    }
}
