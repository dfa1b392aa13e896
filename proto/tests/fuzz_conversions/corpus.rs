//! Valid messages with every field set, and some with none that need not be.

use usher_proto::v1;
use usher_types::{Policy, PolicyChange};

fn text(text: &str) -> String {
    text.to_owned()
}

fn some(value: &str) -> Option<String> {
    Some(value.to_owned())
}

fn token() -> Option<v1::Token> {
    Some(v1::Token { gateway: text("gw é/1"), request_id: text("r:7") })
}

fn endpoint() -> v1::Endpoint {
    v1::Endpoint { kind: text("ssh"), address: text("10.0.0.1"), port: 22 }
}

pub(crate) fn endpoints() -> Vec<v1::Endpoint> {
    vec![endpoint(), v1::Endpoint { kind: text("rdp"), address: text("[fe80::1]"), port: 65535 }]
}

pub(crate) fn hellos() -> Vec<v1::Hello> {
    let least = v1::Hello {
        protocol_version: 1,
        agent_version: text("0.1.0"),
        host_id: text("6d0f6f5e-0000-4000-8000-000000000001"),
        boot_id: text("b1"),
        host_name: text("app1.example"),
        endpoints: vec![endpoint()],
        pool: text("desk"),
        report_interval_ms: 5000,
        latency_period_ms: 60_000,
        ..Default::default()
    };
    let all = v1::Hello {
        stream_epoch: 3,
        incarnation_ms: 99_000,
        labels: [(text("rack"), text("r1")), (text("os"), String::new())].into(),
        zone: some("north"),
        cores: Some(16),
        memory_bytes: Some(1 << 36),
        cpu_model: some("a model"),
        r#virtual: true,
        reporter: true,
        ..least.clone()
    };
    vec![least, all]
}

pub(crate) fn pending_places() -> Vec<v1::PendingPlace> {
    let place = v1::PendingPlace {
        token: token(),
        attempt: 2,
        content_hash: 0xdead_beef,
        pool: text("desk"),
        endpoint: Some(endpoint()),
        user: some("CORP\\alice"),
        cost: 3,
        counted_users: 3,
        left_ms: 60_000,
        connected: true,
        admitted: true,
    };
    vec![v1::PendingPlace { user: None, counted_users: 0, connected: false, ..place.clone() }, place]
}

pub(crate) fn ended_places() -> Vec<v1::EndedPlace> {
    vec![v1::EndedPlace {
        token: token(),
        attempt: 1,
        reason: 4,
        ended_ago_ms: 1000,
        content_hash: 7,
        pool: text("desk"),
        endpoint: Some(endpoint()),
    }]
}

pub(crate) fn told_outcomes() -> Vec<v1::ToldOutcome> {
    let failed = v1::ToldOutcome {
        token: token(),
        outcome: 2,
        cause: Some(3),
        age_ms: 500,
        succeeded_elsewhere: true,
    };
    vec![v1::ToldOutcome { outcome: 4, cause: None, ..failed.clone() }, failed]
}

pub(crate) fn penalties() -> Vec<v1::Penalty> {
    vec![
        v1::Penalty { gateway: None, cause: 2, left_ms: 0, times: 1 },
        v1::Penalty { gateway: some("gw"), cause: 1, left_ms: 900_000, times: 5 },
    ]
}

pub(crate) fn drains() -> Vec<v1::Drain> {
    vec![v1::Drain { mode: 2, reason: text("repair"), author: text("ops"), no_reconnect: true }]
}

fn unlimited() -> v1::UserLimit {
    v1::UserLimit { limit: Some(v1::user_limit::Limit::Unlimited(true)) }
}

fn users(users: u32) -> v1::UserLimit {
    v1::UserLimit { limit: Some(v1::user_limit::Limit::Users(users)) }
}

pub(crate) fn loads() -> Vec<v1::Load> {
    let old = v1::Load {
        sequence: 9,
        incarnation_ms: 99_000,
        tick_echo: Some(3),
        cpu_percent: Some(12.5),
        runnable_demand: Some(0.75),
        memory_used_bytes: Some(1 << 33),
        memory_total_bytes: Some(1 << 36),
        users: Some(3),
        sessions_active: Some(2),
        sessions_disconnected: Some(1),
        sessions_lingering: Some(0),
        processes: Some(321),
        ready: Some(false),
        not_ready_reason: some("the share is not mounted"),
        uptime_ms: Some(86_400_000),
        availability_latched: true,
        collectors: vec![v1::CollectorState {
            name: text("cpu"),
            source: text("proc"),
            error: some("no"),
            warning: some("slow"),
        }],
        pending: pending_places(),
        ended: ended_places(),
        settings_version: Some(4),
        capacity: Some(2.0),
        max_users: Some(users(50)),
        threshold_percent: Some(10.0),
        range: Some(6.0),
        streams_held: 2,
        wall_clock_unix_ms: Some(1_700_000_000_000),
        ..Default::default()
    };
    let new = v1::Load {
        psi_full_percent: Some(1.5),
        mounts: vec![v1::MountFullness { path: text("/var/log"), used_percent: 97.5 }],
        own_availability: Some(v1::OwnAvailability { index: 88.0, source: text("domino") }),
        ready_age_ms: Some(3_600_000),
        warming_up: true,
        replica_lag_ms: Some(61_000),
        drain: drains().pop(),
        outcomes: told_outcomes(),
        penalties: penalties(),
        logons_in_progress: Some(v1::LogonsInProgress { now: 2, mean: 1.25 }),
        finished_logons: Some(v1::FinishedLogons { count: 9, seconds: 40.5, core_seconds: Some(12.0) }),
        coordinators: Some(3),
        settings_hash: Some(u64::MAX),
        other_coordinators: vec!["c2:7443".into()],
        held_back_users: 7,
        held_back_places: 1,
        latched: Some(v1::BusyLatches { reasons: vec![text("availability"), text("mount"), text("soon")] }),
        ..old.clone()
    };
    vec![v1::Load::default(), old, new]
}

pub(crate) fn latencies() -> Vec<v1::Latency> {
    let operation = v1::OperationWindow {
        name: text("open"),
        ok: 120.5,
        failed: 2.0,
        too_long: 1.0,
        sum_us: 9e6,
        min_us: Some(800.0),
        in_flight: 4,
        oldest_in_flight_ms: Some(90),
        baseline_us: Some(750.0),
        baseline_age_ms: Some(3_600_000),
        baseline_samples: 40_000,
        baseline_provisional: true,
    };
    let bare = v1::OperationWindow { name: text("save"), ok: 1.0, sum_us: 5.0, ..Default::default() };
    let operations = vec![operation, bare];
    vec![v1::Latency { sequence: 1, incarnation_ms: 2, window_ms: 900_000, operations, overflow_calls: 3 }]
}

pub(crate) fn inventory_pages() -> Vec<v1::InventoryPage> {
    let replica = v1::Replica { resource_id: text("mail/a.nsf"), path: some("/srv/a.nsf"), title: some("A") };
    let bare = v1::Replica { resource_id: text("b"), ..Default::default() };
    vec![v1::InventoryPage { generation: 1, page: 0, last: true, replicas: vec![replica, bare] }]
}

pub(crate) fn sessions_pages() -> Vec<v1::SessionsPage> {
    let session = v1::Session { id: text("c1"), user: text("alice"), state: 2, age_ms: Some(1000) };
    let sessions = vec![v1::Session { state: 3, age_ms: None, ..session.clone() }, session];
    vec![v1::SessionsPage { generation: 1, page: 1, last: true, sessions, unlisted_sessions: 2 }]
}

pub(crate) fn goodbyes() -> Vec<v1::Goodbye> {
    vec![v1::Goodbye { reason: 1 }, v1::Goodbye { reason: 2 }]
}

pub(crate) fn place_answers() -> Vec<v1::PlaceAnswer> {
    let yes = v1::PlaceAnswer { token: token(), attempt: 1, refused: None };
    vec![v1::PlaceAnswer { refused: Some(5), ..yes.clone() }, yes]
}

pub(crate) fn expect_sessions() -> Vec<v1::ExpectSession> {
    let place = || pending_places().pop();
    vec![
        v1::ExpectSession { place: place(), ask: true, max_users: Some(50), max_pending: Some(4) },
        v1::ExpectSession { place: place(), ask: false, max_users: None, max_pending: None },
    ]
}

pub(crate) fn end_places() -> Vec<v1::EndPlace> {
    vec![v1::EndPlace { token: token(), attempt: 3, reason: 2 }]
}

pub(crate) fn outcome_notices() -> Vec<v1::OutcomeNotice> {
    vec![
        v1::OutcomeNotice { token: token(), outcome: 2, cause: Some(4), succeeded_elsewhere: true },
        v1::OutcomeNotice { token: token(), outcome: 1, cause: None, succeeded_elsewhere: false },
    ]
}

pub(crate) fn session_checks() -> Vec<v1::SessionCheck> {
    vec![v1::SessionCheck { check_id: 5, session_id: text("c1"), user: text("alice") }]
}

pub(crate) fn ticks() -> Vec<v1::Tick> {
    vec![v1::Tick { tick: 8, reconnect_spread_ms: Some(2000), confirmed_elsewhere_ms: Some(15_000) }]
}

pub(crate) fn set_drains() -> Vec<v1::SetDrain> {
    vec![v1::SetDrain { nonce: 3, drain: drains().pop() }, v1::SetDrain { nonce: u64::MAX, drain: None }]
}

pub(crate) fn set_drain_answers() -> Vec<v1::SetDrainAnswer> {
    vec![
        v1::SetDrainAnswer { nonce: 3, error: None, before: drains().pop(), holds: drains().pop() },
        v1::SetDrainAnswer { nonce: 4, error: some("no space left on device"), ..Default::default() },
    ]
}

pub(crate) fn reset_baselines() -> Vec<v1::ResetBaselines> {
    vec![v1::ResetBaselines { operation: some("open") }, v1::ResetBaselines::default()]
}

pub(crate) fn host_marks() -> Vec<v1::HostMarks> {
    let all = v1::HostMarks {
        capacity: Some(2.0),
        max_users: Some(users(10)),
        threshold_percent: Some(20.0),
        range: Some(8.0),
        busy: true,
    };
    vec![all, v1::HostMarks { max_users: Some(unlimited()), ..Default::default() }]
}

pub(crate) fn policies() -> Vec<v1::Policy> {
    let changed = Policy {
        max_users: usher_types::UserLimit::Users(40),
        max_pending: usher_types::PendingLimit::Logons(4),
        psi_critical: usher_types::CriticalLevel::Off,
        shared_accounts: vec![text("kiosk"), text("scan")],
        ..Policy::default()
    };
    let part = PolicyChange { range: Some(8.0), ..PolicyChange::default() };
    vec![
        usher_proto::write::policy(&Policy::default()),
        usher_proto::write::policy(&changed),
        usher_proto::write::policy_change(&part),
    ]
}

pub(crate) fn pool_settings() -> Vec<v1::PoolSettings> {
    let settings = |policy| v1::PoolSettings {
        pool: text("desk"),
        version: 7,
        policy: Some(policy),
        drain: drains().pop(),
        marks: host_marks().pop(),
        settings_hash: Some(7),
    };
    policies().into_iter().map(settings).collect()
}

pub(crate) fn apply_pools() -> Vec<v1::ApplyPoolRequest> {
    let apply = |policy| v1::ApplyPoolRequest {
        pool: text("desk"),
        expected_version: Some(7),
        policy: Some(policy),
        dry_run: true,
        profile: some("ssh-login"),
        must_be_new: true,
    };
    policies().into_iter().map(apply).collect()
}

pub(crate) fn set_host_marks() -> Vec<v1::SetHostMarksRequest> {
    let set = v1::SetHostMarksRequest {
        host: text("app1"),
        marks: host_marks().into_iter().next(),
        clear: Vec::new(),
        busy: Some(true),
        dry_run: true,
    };
    let clear = ["capacity", "max_users", "threshold_percent", "range"].map(text).into();
    vec![v1::SetHostMarksRequest { marks: None, clear, busy: None, ..set.clone() }, set]
}

pub(crate) fn mark_replicas() -> Vec<v1::MarkReplicaRequest> {
    let mark = v1::MarkReplicaRequest { host: text("app1"), resource: text("mail"), mark: Some(1) };
    vec![v1::MarkReplicaRequest { mark: None, ..mark.clone() }, mark]
}

pub(crate) fn pool_histories() -> Vec<v1::GetPoolHistoryRequest> {
    vec![v1::GetPoolHistoryRequest { pool: text("desk"), limit: Some(1000) }]
}

pub(crate) fn diff_pools() -> Vec<v1::DiffPoolRequest> {
    vec![v1::DiffPoolRequest { pool: text("desk"), from: Some(0), to: Some(9) }]
}

pub(crate) fn get_baselines() -> Vec<v1::GetBaselinesRequest> {
    vec![v1::GetBaselinesRequest { host: text("app1") }]
}

pub(crate) fn reset_baselines_requests() -> Vec<v1::ResetBaselinesRequest> {
    vec![v1::ResetBaselinesRequest { host: text("app1"), operation: some("open") }]
}

pub(crate) fn locate_resources() -> Vec<v1::LocateResourceRequest> {
    vec![v1::LocateResourceRequest { resource: text("mail"), pool: some("desk") }]
}

pub(crate) fn list_decisions() -> Vec<v1::ListDecisionsRequest> {
    vec![v1::ListDecisionsRequest {
        user: some("alice"),
        host: some("app1"),
        pool: some("desk"),
        since_ms: Some(3_600_000),
        refused_only: true,
        limit: Some(1000),
    }]
}

pub(crate) fn list_sessions() -> Vec<v1::ListSessionsRequest> {
    vec![v1::ListSessionsRequest { user: some("alice"), host: some("app1"), pool: some("desk") }]
}

pub(crate) fn report_outcomes() -> Vec<v1::ReportOutcomeRequest> {
    let report = |outcome, cause| v1::ReportOutcomeRequest { request_id: text("r:7"), outcome, cause };
    vec![report(2, Some(1)), report(4, None), report(1, Some(0))]
}

pub(crate) fn places() -> Vec<v1::PlaceRequest> {
    vec![v1::PlaceRequest {
        request_id: text("r:7"),
        attempt: 2,
        pool: text("desk"),
        user: some("alice"),
        cost: Some(100),
        ..Default::default()
    }]
}
