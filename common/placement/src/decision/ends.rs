//! Which places end because somebody says so, and what do their hosts learn of it?
//!
//! A gateway knows what became of a login before anyone else. Its word ends places here at once; hosts are told, since
//! they keep the list that all coordinators share, and since a host that logins fail on must come last for everyone.
//! Whether a failure is the host's fault one coordinator cannot tell, so it adds what the host cannot know: whether the
//! same gateway has just had a success elsewhere.

use std::sync::Arc;

use usher_types::{BootTime, EndReason, FailureCause, HostId, Outcome, PoolName, Token};

use super::{Desk, Failover, HostMessage, Request, ToHost};
use crate::{
    farm::PoolView,
    reservation::{Grant, GrantState, Ledger},
};

/// Ends a place; what its host must be told, if it still counted.
pub(super) fn end(grant: &Grant, reason: EndReason, now: BootTime) -> Option<ToHost> {
    grant.end(reason, now).then(|| {
        let message = HostMessage::End { token: grant.token.clone(), attempt: grant.attempt(), reason };
        ToHost { host_id: grant.host_id.clone(), message }
    })
}

/// Tells the host of a place that counts.
pub(super) fn expect(grant: &Grant, now: BootTime) -> Option<ToHost> {
    let place = grant.to_place(now).filter(|_| grant.counts())?;
    Some(ToHost { host_id: grant.host_id.clone(), message: HostMessage::Expect(place) })
}

/// What a gateway says became of a login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutcomeReport {
    /// The login.
    pub token: Token,
    /// What became of it.
    pub outcome: Outcome,
    /// Of one that failed: why, if the gateway says.
    pub cause: Option<FailureCause>,
}

/// What follows from it.
#[derive(Clone, PartialEq, Debug)]
pub struct Reported {
    /// The coordinator knows the login's place, and it had not ended otherwise before.
    pub known: bool,
    /// What its host must be told, in this order.
    pub messages: Vec<ToHost>,
}

/// Takes over what a gateway says became of a login.
///
/// `CONNECTED` ends nothing: the place counts until its session is seen. The others end it. A place whose session came,
/// or that has expired, ends no second time, but what is said of it still tells how its host fares.
pub fn report_outcome(ledger: &Ledger, report: &OutcomeReport, now: BootTime) -> Reported {
    let unknown = Reported { known: false, messages: Vec::new() };
    let Some(grant) = ledger.get(&report.token) else { return unknown };
    let arrived = grant.state() == GrantState::Ended(EndReason::Session);
    let expired = grant.state() == GrantState::Ended(EndReason::Expired);
    if !grant.counts() && !arrived && !expired {
        return unknown;
    }
    let known = grant.counts() || arrived;
    let said = |outcome, cause| Said { token: &grant.token, outcome, cause };
    let tell = |said| tell(ledger, &grant.pool, &grant.host_id, said, now);
    let mut messages = Vec::new();
    match report.outcome {
        Outcome::Connected => {
            grant.set_connected();
            messages.push(tell(said(Outcome::Connected, None)));
            ledger.successes().note(&grant.pool, &grant.token.gateway, &grant.host_id, now);
        }
        Outcome::Failed => {
            messages.push(tell(said(Outcome::Failed, report.cause)));
            messages.extend(end(&grant, EndReason::Failed, now));
        }
        Outcome::Cancelled => messages.extend(end(&grant, EndReason::Cancelled, now)),
        Outcome::Ended => {
            messages.push(tell(said(Outcome::Ended, None)));
            // A session that is over has been one, whether it was seen or not.
            ledger.successes().note(&grant.pool, &grant.token.gateway, &grant.host_id, now);
            messages.extend(end(&grant, EndReason::Session, now));
        }
    }
    Reported { known, messages }
}

/// What a gateway said of one login.
struct Said<'a> {
    token: &'a Token,
    outcome: Outcome,
    cause: Option<FailureCause>,
}

fn tell(ledger: &Ledger, pool: &PoolName, host_id: &HostId, said: Said<'_>, now: BootTime) -> ToHost {
    let failed = said.outcome == Outcome::Failed;
    let message = HostMessage::Outcome {
        token: said.token.clone(),
        outcome: said.outcome,
        cause: said.cause,
        succeeded_elsewhere: failed && ledger.successes().elsewhere(pool, &said.token.gateway, host_id, now),
    };
    ToHost { host_id: host_id.clone(), message }
}

/// Ends the places that a failover gives up: the one of the request that is named, else the user's on the hosts that did
/// not work out.
///
/// A host that could not be reached, or refused the session, is told of it as of any failed login, even if no place was
/// taken on it.
pub(super) fn end_failed_places(
    desk: &Desk<'_>,
    request: &Request,
    failover: &Failover,
    now: BootTime,
) -> Vec<ToHost> {
    let snapshot = (desk.snapshot)();
    let Some(pool) = snapshot.pools.get(&request.pool) else { return Vec::new() };
    let host_id = |host: &String| Some(&pool.hosts[pool.find(host)?].facts.host_id);
    let from = host_id(&failover.from_host);
    let given_up = given_up(desk.ledger, pool, request, failover);
    let is_failure = matches!(failover.cause, FailureCause::Unreachable | FailureCause::Refused);
    let mut messages = Vec::new();
    if let Some(from) = from.filter(|_| is_failure) {
        let token = &failed_login(desk.ledger, pool, request, from, &given_up);
        let said = Said { token, outcome: Outcome::Failed, cause: Some(failover.cause) };
        messages.push(tell(desk.ledger, &pool.name, from, said, now));
    }
    for grant in given_up {
        let failed = is_failure && from == Some(&grant.host_id);
        let reason = if failed { EndReason::Failed } else { EndReason::Cancelled };
        messages.extend(end(&grant, reason, now));
    }
    messages
}

/// The name of the login that failed, so that its failure does not count twice: not if the gateway has reported it
/// before, and not if this failover is a retry. Never one of another gateway: nobody speaks in the name of two.
fn failed_login(
    ledger: &Ledger,
    pool: &PoolView,
    request: &Request,
    from: &HostId,
    given_up: &[Arc<Grant>],
) -> Token {
    let gateway = &request.token.gateway;
    let is_own = |grant: &&Arc<Grant>| grant.host_id == *from && grant.token.gateway == *gateway;
    if let Some(grant) = given_up.iter().find(is_own) {
        return grant.token.clone();
    }
    let failover = request.failover.as_ref();
    if let Some(request_id) = failover.and_then(|failover| failover.failed_request.clone()) {
        return Token { gateway: gateway.clone(), request_id };
    }
    let user = request.user.as_deref().and_then(|user| pool.policy.user_match.key(user));
    let user = user.filter(|user| !pool.policy.is_shared_account(user));
    let Some(user) = user else { return request.token.clone() };
    let failed = ledger.remembered_on(from).into_iter().filter(|grant| {
        grant.state() == GrantState::Ended(EndReason::Failed)
            && grant.token.gateway == *gateway
            && grant.user_key.as_ref() == Some(&user)
    });
    let last = failed.max_by_key(|grant| grant.ended_at());
    last.map_or_else(|| request.token.clone(), |grant| grant.token.clone())
}

/// The places that a failover gives up.
fn given_up(ledger: &Ledger, pool: &PoolView, request: &Request, failover: &Failover) -> Vec<Arc<Grant>> {
    if let Some(request_id) = &failover.failed_request {
        let token = Token { gateway: request.token.gateway.clone(), request_id: request_id.clone() };
        return ledger.get(&token).into_iter().collect();
    }
    let Some(user) = request.user.as_deref().and_then(|user| pool.policy.user_match.key(user)) else {
        return Vec::new();
    };
    if pool.policy.is_shared_account(&user) {
        // Which of that account's places is meant nobody can tell; the others must not lose theirs.
        return Vec::new();
    }
    let hosts: Vec<&HostId> = [&failover.from_host]
        .into_iter()
        .chain(&failover.tried)
        .filter_map(|host| pool.find(host))
        .map(|position| &pool.hosts[position].facts.host_id)
        .collect();
    let mut of_user = ledger.of_user(&pool.name, &user);
    // The failover's own place, if this is a retry of it, is not what failed.
    of_user.retain(|grant| grant.token != request.token && hosts.contains(&&grant.host_id));
    of_user
}
