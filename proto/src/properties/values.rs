//! Any value of the types that reports and settings are made of.

use std::time::Duration;

use proptest::{option, prelude::*};
use usher_types::{
    CollectorState, Drain, DrainMode, EndReason, EndedPlace, Endpoint, FailureCause, Outcome, Penalty,
    PenaltyCause, PendingPlace, Percent, Token, ToldOutcome, UserLimit,
};

use crate::{OutcomeNotice, fault::id};

pub(super) fn millis(max: u64) -> impl Strategy<Value = Duration> {
    (0..=max).prop_map(Duration::from_millis)
}

pub(super) fn percent() -> impl Strategy<Value = Percent> {
    (0.0..=100.0).prop_map(|value| Percent::new(value).unwrap())
}

pub(super) fn limit() -> impl Strategy<Value = UserLimit> {
    prop_oneof![Just(UserLimit::Unlimited), (1..=u32::MAX).prop_map(UserLimit::Users)]
}

pub(super) fn token() -> impl Strategy<Value = Token> {
    ("[a-z/ é]{1,60}", "[a-z:0-9]{1,60}").prop_map(|(gateway, request)| Token {
        gateway: id("gateway", &gateway).unwrap(),
        request_id: id("request_id", &request).unwrap(),
    })
}

pub(super) fn endpoint() -> impl Strategy<Value = Endpoint> {
    ("[a-z]{1,8}", "[a-z0-9.:]{1,40}", 1..=u16::MAX).prop_map(|(kind, address, port)| Endpoint {
        kind,
        address,
        port,
    })
}

pub(super) fn pending() -> impl Strategy<Value = PendingPlace> {
    let counts = (1..=100_u32).prop_flat_map(|cost| (Just(cost), 0..=cost));
    (
        (token(), 1..=u32::MAX, any::<u64>(), "[a-z_.-]{1,20}"),
        (endpoint(), option::of("[a-zA-Z\\\\@]{1,30}"), counts, millis(86_400_000)),
        (any::<bool>(), any::<bool>()),
    )
        .prop_map(|((token, attempt, content_hash, pool), (endpoint, user, counts, left), flags)| {
            PendingPlace {
                token,
                attempt,
                content_hash,
                pool: id("pool", &pool).unwrap(),
                endpoint,
                user,
                cost: counts.0,
                counted_users: counts.1,
                left,
                connected: flags.0,
                admitted: flags.1,
            }
        })
}

pub(super) fn ended() -> impl Strategy<Value = EndedPlace> {
    let reason = prop_oneof![
        Just(EndReason::Session),
        Just(EndReason::Cancelled),
        Just(EndReason::Failed),
        Just(EndReason::Expired),
        Just(EndReason::HostLost),
        Just(EndReason::Superseded),
    ];
    (pending(), reason, millis(60_000)).prop_map(|(place, reason, ended_ago)| EndedPlace {
        token: place.token,
        attempt: place.attempt,
        reason,
        ended_ago,
        content_hash: place.content_hash,
        pool: place.pool,
        endpoint: place.endpoint,
    })
}

pub(super) fn collector() -> impl Strategy<Value = CollectorState> {
    ("[a-z]{1,9}", "[a-z]{0,9}", option::of(".{0,99}"), option::of(".{0,99}"))
        .prop_map(|(name, source, error, warning)| CollectorState { name, source, error, warning })
}

pub(super) fn outcome() -> impl Strategy<Value = (Outcome, Option<FailureCause>)> {
    let cause = prop_oneof![
        Just(FailureCause::Busy),
        Just(FailureCause::Unreachable),
        Just(FailureCause::Refused),
        Just(FailureCause::Auth),
        Just(FailureCause::Other),
    ];
    prop_oneof![
        Just((Outcome::Connected, None)),
        Just((Outcome::Cancelled, None)),
        Just((Outcome::Ended, None)),
        option::of(cause).prop_map(|cause| (Outcome::Failed, cause)),
    ]
}

pub(super) fn told_outcome() -> impl Strategy<Value = ToldOutcome> {
    (token(), outcome(), millis(u64::MAX), any::<bool>()).prop_map(
        |(token, (outcome, cause), age, succeeded_elsewhere)| ToldOutcome {
            token,
            outcome,
            cause,
            age,
            succeeded_elsewhere,
        },
    )
}

pub(super) fn outcome_notice() -> impl Strategy<Value = OutcomeNotice> {
    told_outcome().prop_map(|told| OutcomeNotice {
        token: told.token,
        outcome: told.outcome,
        cause: told.cause,
        succeeded_elsewhere: told.succeeded_elsewhere,
    })
}

pub(super) fn penalty() -> impl Strategy<Value = Penalty> {
    let cause = prop_oneof![Just(PenaltyCause::Failed), Just(PenaltyCause::Unconfirmed)];
    (option::of("[a-z/ é]{1,60}"), cause, millis(86_400_000), 1..=u32::MAX).prop_map(
        |(gateway, cause, left, times)| Penalty {
            gateway: gateway.map(|text| id("gateway", &text).unwrap()),
            cause,
            left,
            times,
        },
    )
}

pub(super) fn drain() -> impl Strategy<Value = Drain> {
    let mode = prop_oneof![Just(DrainMode::UntilRestart), Just(DrainMode::Persistent)];
    (mode, ".{0,99}", ".{0,60}", any::<bool>()).prop_map(|(mode, reason, author, no_reconnect)| Drain {
        mode,
        reason,
        author,
        no_reconnect,
    })
}
