//! Do values survive the wire, and does no message of any peer do harm?

use std::time::Duration;

use proptest::{collection::vec, option, prelude::*};
use prost::Message as _;
use usher_types::{
    Affinity, CollectorState, EndReason, EndedPlace, Endpoint, HostOverrides, Latency, Load, Memory,
    OperationName, OperationWindow, PendingPlace, Percent, Policy, PolicyChange, Readiness, SessionCounts,
    Token, UserLimit, UserMatch, Weights,
};

use crate::{fault::id, read, v1, write};

fn millis(max: u64) -> impl Strategy<Value = Duration> {
    (0..=max).prop_map(Duration::from_millis)
}

fn percent() -> impl Strategy<Value = Percent> {
    (0.0..=100.0).prop_map(|value| Percent::new(value).unwrap())
}

fn limit() -> impl Strategy<Value = UserLimit> {
    prop_oneof![Just(UserLimit::Unlimited), (1..=u32::MAX).prop_map(UserLimit::Users)]
}

fn token() -> impl Strategy<Value = Token> {
    ("[a-z/ é]{1,60}", "[a-z:0-9]{1,60}").prop_map(|(gateway, request)| Token {
        gateway: id("gateway", &gateway).unwrap(),
        request_id: id("request_id", &request).unwrap(),
    })
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    ("[a-z]{1,8}", "[a-z0-9.:]{1,40}", 1..=u16::MAX).prop_map(|(kind, address, port)| Endpoint {
        kind,
        address,
        port,
    })
}

fn pending() -> impl Strategy<Value = PendingPlace> {
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

fn ended() -> impl Strategy<Value = EndedPlace> {
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

fn collector() -> impl Strategy<Value = CollectorState> {
    ("[a-z]{1,9}", "[a-z]{0,9}", option::of(".{0,99}"), option::of(".{0,99}"))
        .prop_map(|(name, source, error, warning)| CollectorState { name, source, error, warning })
}

fn load() -> impl Strategy<Value = Load> {
    let memory = (0..=u64::MAX, 1..=u64::MAX).prop_map(|(a, b)| Memory::new(a.min(b), a.max(b)).unwrap());
    let sessions = any::<(u32, u32, u32)>().prop_map(|(active, disconnected, lingering)| SessionCounts {
        active,
        disconnected,
        lingering,
    });
    let readiness = prop_oneof![Just(Readiness::Ready), "[a-z ]{0,99}".prop_map(Readiness::NotReady)];
    let overrides =
        (option::of(0.001..=1000.0), option::of(limit()), option::of(percent()), option::of(1.0..=30.0))
            .prop_map(|(capacity, max_users, threshold, range)| HostOverrides {
                capacity,
                max_users,
                threshold,
                range,
            });
    (
        any::<(u64, u64, Option<u64>, Option<u64>, Option<u64>)>(),
        (option::of(percent()), option::of(0.0..=1e6), option::of(memory), option::of(sessions)),
        any::<(Option<u32>, Option<u32>, u32, bool)>(),
        (readiness, option::of(millis(u64::MAX)), overrides),
        (vec(collector(), 0..4), vec(pending(), 0..4), vec(ended(), 0..4)),
    )
        .prop_map(|(numbers, metrics, counts, (readiness, uptime, overrides), lists)| Load {
            sequence: numbers.0,
            incarnation_ms: numbers.1,
            tick_echo: numbers.2,
            settings_version: numbers.3,
            wall_clock_unix_ms: numbers.4,
            cpu: metrics.0,
            runnable_demand: metrics.1,
            memory: metrics.2,
            sessions: metrics.3,
            users: counts.0,
            processes: counts.1,
            streams_held: counts.2,
            availability_latched: counts.3,
            readiness,
            uptime,
            overrides,
            collectors: lists.0,
            pending: lists.1,
            ended: lists.2,
        })
}

fn operation(i: usize) -> impl Strategy<Value = OperationWindow> {
    (
        [0.0..=1e18, 0.0..=1e18, 0.0..=1e18, 0.0..=1e18],
        option::of(1e-9..=1e18),
        option::of(1e-9..=1e18),
        (any::<u32>(), option::of(millis(u64::MAX)), option::of(millis(u64::MAX)), any::<u64>()),
    )
        .prop_map(move |([ok, failed, too_long, sum_us], min_us, baseline_us, rest)| OperationWindow {
            name: OperationName::new(format!("op{i}")).unwrap(),
            ok,
            failed,
            too_long,
            sum_us,
            min_us,
            in_flight: rest.0,
            oldest_in_flight: rest.1,
            baseline_us,
            baseline_age: rest.2,
            baseline_samples: rest.3,
        })
}

fn latency() -> impl Strategy<Value = Latency> {
    let operations = (0..5_usize).prop_flat_map(|count| (0..count).map(operation).collect::<Vec<_>>());
    (any::<(u64, u64, u64)>(), millis(u64::MAX), operations).prop_map(|(numbers, window, operations)| {
        Latency {
            sequence: numbers.0,
            incarnation_ms: numbers.1,
            overflow_calls: numbers.2,
            window,
            operations,
        }
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    let weights = (0.0..=40.0, 0.0..=30.0, 0.0..=30.0).prop_map(|(cpu, memory, users)| Weights {
        cpu_percent: cpu,
        memory_percent: memory,
        users_percent: users,
        processes_percent: 100.0 - cpu - memory - users,
    });
    let affinity = prop_oneof![
        Just(Affinity::Session),
        Just(Affinity::Disconnected),
        Just(Affinity::Linger),
        Just(Affinity::None),
    ];
    let user_match = prop_oneof![Just(UserMatch::Folded), Just(UserMatch::Exact)];
    (
        (weights, 0.0..=1e6, 1.0..=30.0, 0.0..=100.0, 0.0..=100.0, limit()),
        (1e-3..=1e3, 1e4..=3.6e9, affinity, any::<bool>(), 1_000..=86_400_000_u64, user_match),
        vec("[a-z]{1,12}", 0..5),
    )
        .prop_map(|(numbers, rest, shared_accounts)| Policy {
            weights: numbers.0,
            users_full_scale: numbers.1,
            range: numbers.2,
            threshold_percent: numbers.3,
            exit_margin_percent: numbers.4,
            max_users: numbers.5,
            min_possible_us: rest.0,
            max_possible_us: rest.1,
            affinity: rest.2,
            allow_unknown: rest.3,
            reservation_ttl: Duration::from_millis(rest.4),
            user_match: rest.5,
            shared_accounts,
            ..Policy::default()
        })
}

/// Any number at all: NaN, infinite, negative, subnormal, huge.
fn wild() -> impl Strategy<Value = f64> {
    let any = proptest::num::f64::ANY;
    prop_oneof![any, any, Just(0.0), Just(-0.0), Just(100.0), Just(f64::MAX)]
}

fn wild_load() -> impl Strategy<Value = v1::Load> {
    let floats =
        [option::of(wild()), option::of(wild()), option::of(wild()), option::of(wild()), option::of(wild())];
    let limit = option::of(prop_oneof![
        Just(v1::UserLimit { limit: None }),
        any::<bool>().prop_map(|flag| v1::UserLimit { limit: Some(v1::user_limit::Limit::Unlimited(flag)) }),
        (0..3_u32).prop_map(|users| v1::UserLimit { limit: Some(v1::user_limit::Limit::Users(users)) }),
    ]);
    let place = (load(), any::<(u32, u32, u32, u64, bool)>());
    (floats, any::<[Option<u64>; 3]>(), any::<[Option<u32>; 3]>(), limit, place, ".{0,3000}").prop_map(
        |(floats, longs, counts, max_users, (load, wrong), text)| {
            let mut msg = write::load(&load);
            [msg.cpu_percent, msg.runnable_demand, msg.capacity, msg.threshold_percent, msg.range] = floats;
            [msg.memory_used_bytes, msg.memory_total_bytes, msg.uptime_ms] = longs;
            [msg.sessions_active, msg.sessions_disconnected, msg.sessions_lingering] = counts;
            msg.max_users = max_users;
            msg.ready = Some(wrong.4);
            msg.not_ready_reason = Some(text);
            if let Some(place) = msg.pending.first_mut() {
                (place.attempt, place.cost, place.counted_users, place.left_ms) =
                    (wrong.0, wrong.1, wrong.2, wrong.3);
            }
            msg
        },
    )
}

fn wild_operation() -> impl Strategy<Value = v1::OperationWindow> {
    ("[a-c ]{0,2}", [wild(), wild(), wild(), wild()], option::of(wild()), option::of(wild())).prop_map(
        |(name, [ok, failed, too_long, sum_us], min_us, baseline_us)| v1::OperationWindow {
            name,
            ok,
            failed,
            too_long,
            sum_us,
            min_us,
            baseline_us,
            ..Default::default()
        },
    )
}

/// The message as the peer gets it.
fn over_the_wire<M: prost::Message + Default>(msg: &M) -> M {
    M::decode(msg.encode_to_vec().as_slice()).unwrap()
}

proptest! {
    #[test]
    fn a_load_comes_back_as_it_was_sent(load in load()) {
        prop_assert_eq!(read::load(over_the_wire(&write::load(&load))), (load, Vec::new()));
    }

    #[test]
    fn a_latency_window_comes_back_as_it_was_sent(latency in latency()) {
        prop_assert_eq!(read::latency(over_the_wire(&write::latency(&latency))), (latency, Vec::new()));
    }

    #[test]
    fn a_policy_comes_back_as_it_was_sent(policy in policy()) {
        let change = read::policy_change(over_the_wire(&write::policy(&policy))).unwrap();
        prop_assert_eq!(&change, &PolicyChange::of(&policy));
        prop_assert_eq!(change.apply_to(&Policy::default()).unwrap(), policy);
    }

    #[test]
    fn no_load_of_any_peer_yields_a_number_that_is_none(msg in wild_load()) {
        let (load, _) = read::load(msg);
        prop_assert!(load.cpu.is_none_or(|cpu| (0.0..=100.0).contains(&cpu.get())));
        prop_assert!(load.overrides.threshold.is_none_or(|value| (0.0..=100.0).contains(&value.get())));
        prop_assert!(load.runnable_demand.is_none_or(|demand| demand.is_finite() && demand >= 0.0));
        prop_assert!(load.overrides.capacity.is_none_or(|capacity| capacity.is_finite() && capacity > 0.0));
        prop_assert!(load.overrides.range.is_none_or(|range| (1.0..=30.0).contains(&range)));
        prop_assert!(load.overrides.max_users != Some(UserLimit::Users(0)));
        prop_assert!(load.memory.is_none_or(|memory| memory.used_bytes <= memory.total_bytes));
        for place in &load.pending {
            prop_assert!(place.attempt >= 1 && (1..=100).contains(&place.cost));
            prop_assert!(place.counted_users <= place.cost);
        }
        // What was taken is taken again without a fault: nothing half-checked passed.
        prop_assert_eq!(read::load(write::load(&load)), (load, Vec::new()));
    }

    #[test]
    fn no_latency_of_any_peer_yields_a_number_that_is_none(operations in vec(wild_operation(), 0..8)) {
        let (latency, _) = read::latency(v1::Latency { operations, ..Default::default() });
        for operation in &latency.operations {
            for number in [operation.ok, operation.failed, operation.too_long, operation.sum_us] {
                prop_assert!(number.is_finite() && number >= 0.0);
            }
            for number in [operation.min_us, operation.baseline_us].into_iter().flatten() {
                prop_assert!(number.is_finite() && number > 0.0);
            }
        }
        prop_assert_eq!(read::latency(write::latency(&latency)), (latency, Vec::new()));
    }

    #[test]
    fn no_policy_of_any_peer_yields_a_number_that_is_none(
        numbers in any::<[Option<u32>; 4]>(),
        floats in [option::of(wild()), option::of(wild()), option::of(wild()), option::of(wild())],
        weights in [option::of(wild()), option::of(wild()), option::of(wild()), option::of(wild())],
    ) {
        let [method, baseline, affinity, user_match] = numbers.map(|number| number.map(|n| (n % 7) as i32 - 1));
        let [users_full_scale, range, min_possible_us, max_possible_us] = floats;
        let [cpu_percent, memory_percent, users_percent, processes_percent] = weights;
        let msg = v1::Policy {
            method, baseline, affinity, user_match,
            users_full_scale, range, min_possible_us, max_possible_us,
            weights: Some(v1::Weights { cpu_percent, memory_percent, users_percent, processes_percent }),
            ..Default::default()
        };
        if let Ok(policy) = read::policy_change(msg).and_then(|change| change.apply_to(&Policy::default())) {
            for number in [policy.users_full_scale, policy.range, policy.min_possible_us, policy.max_possible_us] {
                prop_assert!(number.is_finite());
            }
            prop_assert!(policy.weights.cpu_percent.is_finite() && policy.weights.users_percent.is_finite());
        }
    }

    #[test]
    fn bytes_that_decode_never_panic_a_reader(bytes in vec(any::<u8>(), 0..200)) {
        let bytes = bytes.as_slice();
        let _ = v1::Hello::decode(bytes).map(read::hello);
        let _ = v1::Load::decode(bytes).map(read::load);
        let _ = v1::Latency::decode(bytes).map(read::latency);
        let _ = v1::InventoryPage::decode(bytes).map(read::inventory_page);
        let _ = v1::SessionsPage::decode(bytes).map(read::sessions_page);
        let _ = v1::ExpectSession::decode(bytes).map(read::expect_session);
        let _ = v1::PlaceAnswer::decode(bytes).map(read::place_answer);
        let _ = v1::PoolSettings::decode(bytes).map(read::pool_settings);
    }
}
