//! Which place is meant, and what is said of it? A place is taken whole or not at all.

use std::time::Duration;

use usher_types::{EndedPlace, FieldFault, PendingLimit, PendingPlace, Token, UserLimit};

use super::hello::required_endpoint;
use crate::{
    enums,
    fault::{id, nested, required, user, whole},
    messages::{EndPlace, ExpectSession, PlaceAnswer},
    v1,
};

/// The longest time to live that a pool can set, in ms. A longer one would hold a place, or hold against a host, for
/// ever.
pub(super) const MAX_LEFT_MS: u64 = 86_400_000;

/// The attempt in a gateway's request, where 0 and absent mean the first.
pub fn attempt_or_first(attempt: u32) -> u32 {
    attempt.max(1)
}

/// The cost in a gateway's request, where absent means 1.
///
/// # Errors
/// The fault, if it is outside 1..=100.
pub fn cost_or_one(cost: Option<u32>) -> Result<u32, FieldFault> {
    whole("cost", cost.unwrap_or(1), 1..=100)
}

/// The login name in a field named `user`. An empty one is none.
///
/// # Errors
/// The fault, which does not show the name, if it is longer than 256 bytes or holds a control character.
pub fn user_or_none(name: Option<String>) -> Result<Option<String>, FieldFault> {
    name.filter(|name| !name.is_empty()).map(|name| user("user", name)).transpose()
}

/// Which place is meant, in a field named `token`.
///
/// # Errors
/// The first field that is refused.
pub fn token(msg: Option<v1::Token>) -> Result<Token, FieldFault> {
    let msg = required("token", msg)?;
    let part = |fault| nested(fault, "token");
    Ok(Token {
        gateway: id("gateway", &msg.gateway).map_err(part)?,
        request_id: id("request_id", &msg.request_id).map_err(part)?,
    })
}

fn attempt(attempt: u32) -> Result<u32, FieldFault> {
    whole("attempt", attempt, 1..=u32::MAX)
}

/// A live place.
///
/// # Errors
/// The first field that is refused.
pub fn pending_place(msg: v1::PendingPlace) -> Result<PendingPlace, FieldFault> {
    let cost = whole("cost", msg.cost, 1..=100)?;
    Ok(PendingPlace {
        token: token(msg.token)?,
        attempt: attempt(msg.attempt)?,
        content_hash: msg.content_hash,
        pool: id("pool", &msg.pool)?,
        endpoint: required_endpoint(msg.endpoint)?,
        user: user_or_none(msg.user)?,
        cost,
        counted_users: whole("counted_users", msg.counted_users, 0..=cost)?,
        left: Duration::from_millis(whole("left_ms", msg.left_ms, 0..=MAX_LEFT_MS)?),
        connected: msg.connected,
        admitted: msg.admitted,
    })
}

/// A place that ended.
///
/// # Errors
/// The first field that is refused.
pub fn ended_place(msg: v1::EndedPlace) -> Result<EndedPlace, FieldFault> {
    Ok(EndedPlace {
        token: token(msg.token)?,
        attempt: attempt(msg.attempt)?,
        reason: enums::end_reason("reason", msg.reason)?,
        ended_ago: Duration::from_millis(msg.ended_ago_ms),
        content_hash: msg.content_hash,
        pool: id("pool", &msg.pool)?,
        endpoint: required_endpoint(msg.endpoint)?,
    })
}

/// A host's answer to a place that it was asked for.
///
/// # Errors
/// The first field that is refused. An unknown reason of a refusal is one: whoever waits for the answer must not take
/// the fault for consent.
pub fn place_answer(msg: v1::PlaceAnswer) -> Result<PlaceAnswer, FieldFault> {
    Ok(PlaceAnswer {
        token: token(msg.token)?,
        attempt: attempt(msg.attempt)?,
        answer: match msg.refused {
            None => Ok(()),
            Some(number) => Err(enums::refusal_reason("refused", number)?),
        },
    })
}

/// A place that the host is told of, or asked for.
///
/// # Errors
/// The first field that is refused.
pub fn expect_session(msg: v1::ExpectSession) -> Result<ExpectSession, FieldFault> {
    let place = pending_place(required("place", msg.place)?).map_err(|fault| nested(fault, "place"))?;
    let max_users = match msg.max_users {
        None => UserLimit::Unlimited,
        Some(users) => UserLimit::Users(whole("max_users", users, 1..=u32::MAX)?),
    };
    let max_pending = match msg.max_pending {
        None => PendingLimit::Unlimited,
        Some(logons) => PendingLimit::Logons(whole("max_pending", logons, 1..=u32::MAX)?),
    };
    Ok(ExpectSession { place, ask: msg.ask, max_users, max_pending })
}

/// A place that ended at the coordinator.
///
/// # Errors
/// The first field that is refused.
pub fn end_place(msg: v1::EndPlace) -> Result<EndPlace, FieldFault> {
    Ok(EndPlace {
        token: token(msg.token)?,
        attempt: attempt(msg.attempt)?,
        reason: enums::end_reason("reason", msg.reason)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> v1::PendingPlace {
        v1::PendingPlace {
            token: Some(v1::Token { gateway: "gw".to_owned(), request_id: "r1".to_owned() }),
            attempt: 1,
            pool: "desk".to_owned(),
            endpoint: Some(v1::Endpoint { kind: "ssh".to_owned(), address: "a".to_owned(), port: 22 }),
            cost: 2,
            counted_users: 2,
            left_ms: 1000,
            ..Default::default()
        }
    }

    fn refused(change: impl FnOnce(&mut v1::PendingPlace)) -> String {
        let mut msg = place();
        change(&mut msg);
        pending_place(msg).unwrap_err().field
    }

    #[test]
    fn a_place_is_refused_at_its_first_wrong_field() {
        assert!(pending_place(place()).is_ok());
        assert_eq!(refused(|msg| msg.token = None), "token");
        assert_eq!(refused(|msg| msg.token.as_mut().unwrap().request_id.clear()), "token.request_id");
        assert_eq!(refused(|msg| msg.attempt = 0), "attempt");
        assert_eq!(refused(|msg| msg.cost = 0), "cost");
        assert_eq!(refused(|msg| msg.counted_users = 3), "counted_users");
        assert_eq!(refused(|msg| msg.left_ms = u64::MAX), "left_ms");
        assert_eq!(refused(|msg| msg.endpoint.as_mut().unwrap().port = 0), "endpoint.port");
        assert_eq!(refused(|msg| msg.user = Some("a\0b".to_owned())), "user");
    }

    #[test]
    fn an_empty_login_name_is_none() {
        let nobody = v1::PendingPlace { user: Some(String::new()), ..place() };
        assert_eq!(pending_place(nobody).unwrap().user, None);
    }

    #[test]
    fn an_answer_admits_only_if_no_refusal_is_set() {
        let answer = |refused| place_answer(v1::PlaceAnswer { token: place().token, attempt: 1, refused });
        assert_eq!(answer(None).unwrap().answer, Ok(()));
        assert_eq!(answer(Some(1)).unwrap().answer, Err(usher_types::RefusalReason::MaxUsers));
        assert!(answer(Some(0)).is_err());
        assert!(answer(Some(77)).is_err());
    }

    #[test]
    fn a_question_carries_its_limits_and_absent_is_unlimited() {
        let ask = |max_users, max_pending| {
            expect_session(v1::ExpectSession { place: Some(place()), ask: true, max_users, max_pending })
                .map(|expect| (expect.max_users, expect.max_pending))
        };
        assert_eq!(ask(None, None), Ok((UserLimit::Unlimited, PendingLimit::Unlimited)));
        assert_eq!(ask(Some(7), Some(2)), Ok((UserLimit::Users(7), PendingLimit::Logons(2))));
        assert_eq!(ask(Some(0), None).unwrap_err().field, "max_users");
        assert_eq!(ask(None, Some(0)).unwrap_err().field, "max_pending");
    }

    #[test]
    fn a_request_without_attempt_or_cost_is_the_first_of_one_user() {
        assert_eq!((attempt_or_first(0), attempt_or_first(3)), (1, 3));
        assert_eq!((cost_or_one(None), cost_or_one(Some(100))), (Ok(1), Ok(100)));
        assert!(cost_or_one(Some(0)).is_err());
    }
}
