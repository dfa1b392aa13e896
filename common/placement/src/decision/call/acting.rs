//! Acting on a choice: the place is taken, its host asked or told, and a session confirmed.
//!
//! The place counts before its host knows of it, so that no other decision gives it out meanwhile; if the host does not
//! agree, it stops counting at once, and the host is told so, which also answers a consent that comes too late.

use std::{sync::Arc, time::Duration};

use usher_types::{BootTime, EndReason, HostId, RefusalReason};

use super::{AskedSession, Call, Consent, Denied, Desk, Next, Stage, Step};
use crate::{
    decision::{
        Choice, Excluded, Redirect, Refusal, RefusalKind, Reserved, Tier,
        ends::{end, expect},
    },
    farm::{PoolView, SessionAt},
    reservation::{Grant, GrantParts, GrantState},
};

/// Most hosts that may refuse within one call.
const MAX_REFUSALS: usize = 3;
/// Longest time for asking them all.
const ASK_ALL: Duration = Duration::from_secs(1);
/// Longest time to wait for one host.
pub(super) const ASK_ONE: Duration = Duration::from_millis(250);

/// A host is being asked for a place that counts already.
#[derive(Debug)]
pub(super) struct Asking {
    reserved: Reserved,
    choice: Choice,
    pub grant: Arc<Grant>,
    asked_for: Duration,
    pub said: Option<Consent>,
}

/// A host is being asked whether the user's session is still there.
#[derive(Debug)]
pub(super) struct Confirming {
    reserved: Reserved,
    position: u32,
    host_id: HostId,
    redirect: Option<Redirect>,
    pub exists: Option<bool>,
}

impl Call {
    /// Takes the chosen place, which counts in its host's cell already, under the request's token.
    pub(super) fn take(
        &mut self,
        desk: &Desk<'_>,
        reserved: Reserved,
        choice: Choice,
        now: BootTime,
    ) -> Next {
        let grant = Arc::new(self.grant(&reserved.pool, &choice, now));
        if let Err(known) = desk.ledger.claim(grant.clone()) {
            // Another call with this token was quicker, here or through another coordinator: its place is the answer.
            grant.end(EndReason::Superseded, now);
            if known.content_hash != grant.content_hash {
                return Some(Self::denied(Denied::Reused));
            }
            return self.repeat(desk, &known, now);
        }
        let Some(limits) = choice.limits else {
            self.messages.extend(expect(&grant, now));
            return Some(self.chosen(reserved, &choice, Some(grant)));
        };
        let within = self.ask_for(now);
        let Some(place) = grant.to_place(now) else {
            // A host without an endpoint cannot be asked for a place on it.
            return self.passed_over(reserved, grant, Excluded::NoAnswer, now);
        };
        let ask = limits.ask(grant.host_id.clone(), place, within);
        let asking = Asking { reserved, choice, grant, asked_for: within, said: None };
        self.stage = Stage::Asking(Box::new(asking));
        Some(Step::Ask(ask))
    }

    /// How long the next host is asked.
    pub(super) fn ask_for(&mut self, now: BootTime) -> Duration {
        let asking_since = *self.times.asking_since.get_or_insert(now);
        self.times.left(ASK_ONE.min(ASK_ALL.saturating_sub(now.since(asking_since))), now)
    }

    fn grant(&self, pool: &PoolView, choice: &Choice, now: BootTime) -> Grant {
        let at = choice.position as usize;
        let facts = &pool.hosts[at].facts;
        let parts = GrantParts {
            token: self.request.token.clone(),
            made_under: self.attempt,
            content_hash: self.request.content_hash(),
            pool: self.request.pool.clone(),
            host_id: facts.host_id.clone(),
            cell: pool.members.cells[at].clone(),
            endpoints: facts.endpoints.clone(),
            user: self.request.user.clone(),
            user_key: self.request.user.as_deref().and_then(|user| pool.policy.user_match.key(user)),
            cost: self.request.cost,
            counted_at_first: choice.adds_users,
            since: now,
            ends_at: now + pool.policy.reservation_ttl,
            decision_id: self.decision_id.clone(),
            blind: choice.tier == Tier::Blind,
            untold: !pool.hosts[at].connected,
        };
        Grant::new(parts, choice.limits.is_some())
    }

    pub(super) fn after_consent(&mut self, asking: Asking, now: BootTime) -> Next {
        let Asking { reserved, choice, grant, asked_for, said } = asking;
        let mut said = self.heard(&grant, &reserved.pool, choice.position, said, asked_for);
        if said == Consent::Admitted && !grant.admit() && grant.state() != GrantState::Live {
            // Ended meanwhile: its host went away, or the gateway gave it up.
            said = Consent::Silent;
        }
        if said == Consent::Refused(RefusalReason::Reused) {
            // The host's place of this token is another request's, given by another coordinator: it is not ours to end.
            grant.end(EndReason::Superseded, now);
            return Some(Self::denied(Denied::Reused));
        }
        let why = match said {
            Consent::Admitted if self.times.is_over(now) => {
                self.messages.extend(end(&grant, EndReason::Cancelled, now));
                return Some(Self::denied(Denied::DeadlinePassed));
            }
            Consent::Admitted => return Some(self.chosen(reserved, &choice, Some(grant))),
            Consent::Refused(_) => Excluded::RefusedConsent,
            Consent::Silent => Excluded::NoAnswer,
        };
        self.passed_over(reserved, grant, why, now)
    }

    /// The host did not give the place. Absent: decide again without it.
    fn passed_over(&mut self, reserved: Reserved, grant: Arc<Grant>, why: Excluded, now: BootTime) -> Next {
        self.messages.extend(end(&grant, EndReason::Cancelled, now));
        self.attempt = self.attempt.saturating_add(1);
        self.unwilling.push((grant.host_id.clone(), why));
        let spent = self.times.asking_since.map_or(Duration::ZERO, |since| now.since(since));
        let refusals = self.consents.iter().filter(|asked| matches!(asked.said, Consent::Refused(_))).count();
        if refusals >= MAX_REFUSALS || spent >= ASK_ALL {
            let refusal = self.no_consent(&reserved.pool);
            return Some(self.refused(reserved, refusal));
        }
        self.stage = Stage::Deciding;
        None
    }

    fn no_consent(&self, pool: &PoolView) -> Refusal {
        let any_refused = self.unwilling.iter().any(|(_, why)| *why == Excluded::RefusedConsent);
        let kind = if any_refused { RefusalKind::NoConsentRefused } else { RefusalKind::NoConsentSilent };
        let hosts = self
            .unwilling
            .iter()
            .filter_map(|(host_id, why)| Some((u32::try_from(pool.members.position(host_id)?).ok()?, *why)));
        Refusal { hosts: hosts.collect(), ..Refusal::plain(kind) }
    }

    /// Asks whether the user's session is still on a host that takes no new ones.
    pub(super) fn confirm(
        &mut self,
        reserved: Reserved,
        position: u32,
        session: &SessionAt,
        redirect: Option<Redirect>,
        now: BootTime,
    ) -> Step {
        let host = &reserved.pool.hosts[position as usize];
        let listed = host.sessions.iter().find(|listed| listed.id == *session.session_id);
        let Some(user) = listed.map(|listed| listed.user.clone()) else {
            return self.own_session(reserved, position, redirect);
        };
        let within = self.times.left(ASK_ONE, now);
        let host_id = session.host_id.clone();
        let asked = AskedSession { host_id, session_id: session.session_id.clone(), user, within };
        let host_id = session.host_id.clone();
        let confirming = Confirming { reserved, position, host_id, redirect, exists: None };
        self.stage = Stage::Confirming(Box::new(confirming));
        Step::Confirm(asked)
    }

    pub(super) fn after_confirm(&mut self, confirming: Confirming) -> Next {
        let Confirming { reserved, position, host_id, redirect, exists } = confirming;
        // If the host is silent, what it listed last decides.
        if exists.unwrap_or(true) {
            return Some(self.own_session(reserved, position, redirect));
        }
        self.unwilling.push((host_id, Excluded::RefusedConsent));
        self.stage = Stage::Deciding;
        None
    }
}
