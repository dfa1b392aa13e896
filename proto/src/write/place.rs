//! Places, what became of them, and what holds against a host for it.

use usher_types::{EndedPlace, Penalty, PendingPlace, Token, ToldOutcome};

use super::{endpoint, ms};
use crate::{
    messages::{EndPlace, ExpectSession, OutcomeNotice, PlaceAnswer},
    v1,
};

/// Which place is meant.
pub fn token(token: &Token) -> v1::Token {
    v1::Token { gateway: token.gateway.to_string(), request_id: token.request_id.to_string() }
}

/// A live place.
pub fn pending_place(place: &PendingPlace) -> v1::PendingPlace {
    v1::PendingPlace {
        token: Some(token(&place.token)),
        attempt: place.attempt,
        content_hash: place.content_hash,
        pool: place.pool.to_string(),
        endpoint: Some(endpoint(&place.endpoint)),
        user: place.user.clone(),
        cost: place.cost,
        counted_users: place.counted_users,
        left_ms: ms(place.left),
        connected: place.connected,
        admitted: place.admitted,
    }
}

/// A place that ended.
pub fn ended_place(place: &EndedPlace) -> v1::EndedPlace {
    v1::EndedPlace {
        token: Some(token(&place.token)),
        attempt: place.attempt,
        reason: v1::EndReason::from(place.reason).into(),
        ended_ago_ms: ms(place.ended_ago),
        content_hash: place.content_hash,
        pool: place.pool.to_string(),
        endpoint: Some(endpoint(&place.endpoint)),
    }
}

/// A host's answer to a place that it was asked for.
pub fn place_answer(answer: &PlaceAnswer) -> v1::PlaceAnswer {
    v1::PlaceAnswer {
        token: Some(token(&answer.token)),
        attempt: answer.attempt,
        refused: answer.answer.err().map(|reason| v1::RefusalReason::from(reason).into()),
    }
}

/// A place that a host is told of, or asked for.
pub fn expect_session(expect: &ExpectSession) -> v1::ExpectSession {
    v1::ExpectSession {
        place: Some(pending_place(&expect.place)),
        ask: expect.ask,
        max_users: expect.max_users.finite(),
        max_pending: expect.max_pending.finite(),
    }
}

/// A place that ended at the coordinator.
pub fn end_place(end: &EndPlace) -> v1::EndPlace {
    v1::EndPlace {
        token: Some(token(&end.token)),
        attempt: end.attempt,
        reason: v1::EndReason::from(end.reason).into(),
    }
}

/// What a gateway said of a login.
pub fn outcome_notice(notice: &OutcomeNotice) -> v1::OutcomeNotice {
    v1::OutcomeNotice {
        token: Some(token(&notice.token)),
        outcome: v1::Outcome::from(notice.outcome).into(),
        cause: notice.cause.map(|cause| v1::FailoverCause::from(cause).into()),
        succeeded_elsewhere: notice.succeeded_elsewhere,
    }
}

/// What a host was told of a login.
pub fn told_outcome(told: &ToldOutcome) -> v1::ToldOutcome {
    v1::ToldOutcome {
        token: Some(token(&told.token)),
        outcome: v1::Outcome::from(told.outcome).into(),
        cause: told.cause.map(|cause| v1::FailoverCause::from(cause).into()),
        age_ms: ms(told.age),
        succeeded_elsewhere: told.succeeded_elsewhere,
    }
}

/// What holds against a host.
pub fn penalty(penalty: &Penalty) -> v1::Penalty {
    v1::Penalty {
        gateway: penalty.gateway.as_ref().map(ToString::to_string),
        cause: v1::PenaltyCause::from(penalty.cause).into(),
        left_ms: ms(penalty.left),
        times: penalty.times,
    }
}
