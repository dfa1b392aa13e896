//! What holds for a host whatever happens to it, in whatever order.

use proptest::prelude::*;
use usher_types::{Endpoint, FailureCause, GatewayId, PendingPlace, RequestId, SessionState};

use super::*;

const LIMIT: u32 = 6;
const MAX_PENDING: u32 = 4;

#[derive(Debug, Clone)]
enum Event {
    Ask { request: u8, user: u8, cost: u32, attempt: u32 },
    Tell { request: u8, user: u8 },
    End { request: u8, attempt: u32 },
    Outcome { request: u8, gateway: u8, outcome: Outcome, cause: Option<FailureCause>, elsewhere: bool },
    Sessions(Vec<(u8, u8, u64)>),
    Nobody,
    Elsewhere(u64),
    Passes(u64),
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    let outcome = prop_oneof![
        Just(Outcome::Connected),
        Just(Outcome::Failed),
        Just(Outcome::Cancelled),
        Just(Outcome::Ended)
    ];
    let cause = prop::option::of(prop_oneof![Just(FailureCause::Refused), Just(FailureCause::Auth)]);
    prop_oneof![
        4 => (0..12u8, 0..5u8, 1..3u32, 1..3u32)
            .prop_map(|(request, user, cost, attempt)| Event::Ask { request, user, cost, attempt }),
        1 => (0..12u8, 0..5u8).prop_map(|(request, user)| Event::Tell { request, user }),
        2 => (0..12u8, 1..3u32).prop_map(|(request, attempt)| Event::End { request, attempt }),
        3 => (0..12u8, 0..3u8, outcome, cause, any::<bool>()).prop_map(
            |(request, gateway, outcome, cause, elsewhere)| Event::Outcome {
                request,
                gateway,
                outcome,
                cause,
                elsewhere
            }
        ),
        3 => prop::collection::vec((0..8u8, 0..5u8, 0..30u64), 0..5).prop_map(Event::Sessions),
        1 => Just(Event::Nobody),
        1 => (0..200u64).prop_map(Event::Elsewhere),
        3 => (0..200u64).prop_map(Event::Passes),
        1 => Just(Event::Restart),
    ]
}

fn settings() -> CoreSettings {
    CoreSettings {
        pool: PoolName::new("desk").unwrap(),
        overrides: HostOverrides::default(),
        incarnation_ms: 7,
        latency_period: Duration::from_secs(15),
        periods: 5,
        max_names: 16,
        names: NameSettings::default(),
        coordinators: Vec::new(),
        report_interval: Duration::from_secs(5),
    }
}

fn token(request: u8, gateway: u8) -> Token {
    Token {
        gateway: GatewayId::new(format!("g{gateway}")).unwrap(),
        request_id: RequestId::new(format!("R{request}")).unwrap(),
    }
}

fn place(request: u8, user: u8, cost: u32, attempt: u32) -> PendingPlace {
    PendingPlace {
        token: token(request, 0),
        attempt,
        content_hash: 1,
        pool: PoolName::new("desk").unwrap(),
        endpoint: Endpoint { kind: "ssh".into(), address: "192.0.2.1".into(), port: 22 },
        // User 0 is one whose name was not said.
        user: (user > 0).then(|| format!("u{user}")),
        cost,
        counted_users: cost,
        left: Duration::from_secs(120),
        connected: false,
        admitted: false,
    }
}

fn occupancy(sessions: &[(u8, u8, u64)]) -> Occupancy {
    let mut listed: Vec<Session> = Vec::new();
    for (id, user, age_s) in sessions {
        let id = id.to_string();
        if listed.iter().all(|session| session.id != id) {
            let (user, age) = (format!("u{user}"), Some(Duration::from_secs(*age_s)));
            listed.push(Session { id, user, state: SessionState::Active, age });
        }
    }
    Occupancy::Listed(listed)
}

fn apply(core: HostCore, event: &Event, now: &mut BootTime) -> Result<HostCore, TestCaseError> {
    let mut core = core;
    let limits = Limits { max_users: Some(LIMIT), max_pending: Some(MAX_PENDING) };
    match event {
        Event::Ask { request, user, cost, attempt } => {
            let before = core.load(*now, 0).unwrap();
            let place = place(*request, *user, *cost, *attempt);
            let is_new = before.pending.iter().all(|held| held.token != place.token);
            if core.expect(0, &place, true, limits, *now).is_ok() && is_new {
                let after = core.load(*now, 0).unwrap();
                let pending: u32 = after.pending.iter().map(|place| place.counted_users).sum();
                prop_assert!(after.users.unwrap() + pending <= LIMIT);
                prop_assert!(after.pending.len() <= MAX_PENDING as usize);
            }
        }
        Event::Tell { request, user } => {
            let _ = core.expect(0, &place(*request, *user, 1, 1), false, limits, *now);
        }
        Event::End { request, attempt } => {
            core.end(&token(*request, 0), *attempt, EndReason::Cancelled, *now);
        }
        Event::Outcome { request, gateway, outcome, cause, elsewhere } => {
            let told = ToldOutcome {
                token: token(*request, *gateway),
                outcome: *outcome,
                cause: *cause,
                age: Duration::ZERO,
                succeeded_elsewhere: *elsewhere,
            };
            core.outcome(&told, *now);
            prop_assert!(!core.outcome(&told, *now), "the same word twice changes nothing");
        }
        Event::Sessions(sessions) => {
            core.occupy(occupancy(sessions), *now);
        }
        Event::Nobody => {
            core.occupy(Occupancy::Unknown, *now);
        }
        Event::Elsewhere(age_s) => {
            core.confirmed_elsewhere(Duration::from_secs(*age_s), *now);
        }
        Event::Passes(seconds) => {
            *now = *now + Duration::from_secs(*seconds);
            core.expire(*now);
        }
        Event::Restart => {
            let json = serde_json::to_string(&core.record()).unwrap();
            let again = HostCore::new(settings(), serde_json::from_str(&json).unwrap());
            prop_assert_eq!(
                serde_json::to_string(&again.record()).unwrap(),
                json,
                "nothing is lost or made up"
            );
            core = again;
            core.measure(Measurement::default(), Occupancy::Unknown, *now);
        }
    }
    Ok(core)
}

proptest! {
    // rule: never-over-limit
    // rule: penalty-length
    #[test]
    fn no_limit_is_passed_no_penalty_is_too_long_and_a_restart_loses_nothing(
        events in prop::collection::vec(event(), 0..60),
    ) {
        let mut now = BootTime::from_millis(1_000_000);
        let mut core = HostCore::new(settings(), HostRecord::default());
        core.measure(Measurement::default(), Occupancy::Listed(Vec::new()), now);
        for event in &events {
            core = apply(core, event, &mut now)?;
            let load = core.load(now, 0).unwrap();
            for penalty in &load.penalties {
                prop_assert!(penalty.left <= Duration::from_secs(900) && penalty.times >= 1);
            }
            prop_assert!(load.outcomes.iter().all(|told| told.age <= Duration::from_secs(60)));
            let logons = load.logons_in_progress.map_or(0, |logons| logons.now as usize);
            prop_assert!(logons <= core.session_list().sessions.len(), "a place is no logon");
            for (place, ended) in load.pending.iter().flat_map(|p| load.ended.iter().map(move |e| (p, e))) {
                prop_assert!(ended.token != place.token || ended.attempt < place.attempt);
            }
        }
    }
}
