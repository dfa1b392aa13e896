//! Places that end because somebody says so.

use usher_placement::{
    decision::{Failover, FailoverCause, Request},
    reservation::Grant,
};
use usher_proto::{self as proto, v1::attach_response::Message};
use usher_types::{EndReason, HostId, Outcome, Token};

use crate::shared::Shared;

/// Ends a place here and on its host. Whether it still counted.
pub(super) fn end(shared: &Shared, grant: &Grant, reason: EndReason) -> bool {
    let ended = grant.end(reason, shared.now());
    if ended {
        let end = proto::EndPlace { token: grant.token.clone(), attempt: grant.attempt(), reason };
        shared.links.send(&grant.host_id, Message::EndPlace(proto::write::end_place(&end)));
    }
    ended
}

/// Takes over what a gateway says became of a login. Whether its place still counted.
pub(crate) fn report_outcome(shared: &Shared, token: &Token, outcome: Outcome) -> bool {
    let Some(grant) = shared.ledger.get(token).filter(|grant| grant.counts()) else { return false };
    match outcome {
        Outcome::Connected => {
            grant.set_connected();
            let notice = proto::OutcomeNotice { token: token.clone(), outcome };
            let message = Message::OutcomeNotice(proto::write::outcome_notice(&notice));
            shared.links.send(&grant.host_id, message);
            true
        }
        Outcome::Failed => end(shared, &grant, EndReason::Failed),
        Outcome::Cancelled => end(shared, &grant, EndReason::Cancelled),
    }
}

/// Ends the place that a failover gives up: the one of the request that is named, else the user's on the hosts that did
/// not work out.
pub(crate) fn end_failed_places(shared: &Shared, request: &Request, failover: &Failover) {
    let reason = match failover.cause {
        FailoverCause::Unreachable | FailoverCause::Refused => EndReason::Failed,
        FailoverCause::Busy | FailoverCause::Auth | FailoverCause::Other => EndReason::Cancelled,
    };
    if let Some(request_id) = &failover.failed_request {
        let token = Token { gateway: request.token.gateway.clone(), request_id: request_id.clone() };
        if let Some(grant) = shared.ledger.get(&token) {
            end(shared, &grant, reason);
        }
        return;
    }
    let snapshot = shared.snapshot.load();
    let Some(pool) = snapshot.pools.get(&request.pool) else { return };
    let Some(user) = request.user.as_deref().and_then(|user| pool.policy.user_match.key(user)) else {
        return;
    };
    if pool.policy.is_shared_account(&user) {
        // Which of that account's places is meant nobody can tell; the others must not lose theirs.
        return;
    }
    let hosts: Vec<&HostId> = [&failover.from_host]
        .into_iter()
        .chain(&failover.tried)
        .filter_map(|host| pool.find(host))
        .map(|position| &pool.hosts[position].facts.host_id)
        .collect();
    for grant in shared.ledger.of_user(&pool.name, &user) {
        // The failover's own place, if this is a retry of it, is not what failed.
        if grant.token != request.token && hosts.contains(&&grant.host_id) {
            end(shared, &grant, reason);
        }
    }
}
