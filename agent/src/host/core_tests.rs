use std::time::Duration;

use usher_types::{Endpoint, GatewayId, Percent, RequestId, SessionState, UserLimit};

use super::*;
use crate::latency::listener::OwnedTiming;

fn settings(overrides: HostOverrides) -> CoreSettings {
    CoreSettings {
        pool: PoolName::new("desk").unwrap(),
        overrides,
        incarnation_ms: 7,
        latency_period: Duration::from_secs(15),
        periods: 5,
        max_names: 256,
    }
}

fn core() -> HostCore {
    HostCore::new(settings(HostOverrides::default()), BookRecord::default())
}

fn at(seconds: u64) -> BootTime {
    BootTime::from_millis(1_000_000 + seconds * 1000)
}

fn place(request: &str, user: &str) -> PendingPlace {
    PendingPlace {
        token: Token { gateway: GatewayId::new("g").unwrap(), request_id: RequestId::new(request).unwrap() },
        attempt: 1,
        content_hash: 1,
        pool: PoolName::new("desk").unwrap(),
        endpoint: Endpoint { kind: "ssh".into(), address: "192.0.2.1".into(), port: 22 },
        user: Some(user.into()),
        cost: 1,
        counted_users: 1,
        left: Duration::from_secs(120),
        connected: false,
        admitted: false,
    }
}

fn session(id: &str, user: &str) -> Session {
    Session { id: id.into(), user: user.into(), state: SessionState::Active, age: Some(Duration::ZERO) }
}

fn told(version: u64, change: impl FnOnce(&mut Policy)) -> VersionedPolicy {
    let mut policy = Policy::default();
    change(&mut policy);
    VersionedPolicy { version, policy }
}

fn calls(duration_us: f64) -> OwnedTiming {
    OwnedTiming { name: "logon".into(), duration_us, weight: 100.0 }
}

#[test]
fn a_host_says_nothing_before_it_is_measured() {
    let mut core = core();
    assert_eq!(core.load(at(0), 0), None);
    core.measure(Measurement::default(), Occupancy::Unknown, at(0));
    let load = core.load(at(0), 5).unwrap();
    assert_eq!((load.cpu, load.users, load.wall_clock_unix_ms), (None, None, Some(5)));
    assert_eq!((load.incarnation_ms, load.settings_version), (7, None));
}

#[test]
fn the_latch_of_an_earlier_run_holds_until_a_period_or_the_settings_say_otherwise() {
    let restored = || {
        let mut core = core();
        core.restore_latch(true);
        core.measure(Measurement::default(), Occupancy::Unknown, at(0));
        core
    };
    let mut core = restored();
    assert!(core.load(at(0), 0).unwrap().availability_latched, "no settings told yet");
    core.settings_told(0, told(1, |policy| policy.threshold_percent = 50.0), at(1));
    assert!(core.is_latched(), "an empty window of a new run says nothing");
    core.end_period(at(15));
    assert!(!core.is_latched());
    let mut core = restored();
    core.settings_told(0, told(1, |policy| policy.threshold_percent = 0.0), at(1));
    assert!(!core.is_latched(), "the threshold is off");
}

#[test]
fn every_report_carries_the_whole_state() {
    let mut core = core();
    let values = Measurement { processes: Some(70), ..Measurement::default() };
    core.measure(values, Occupancy::Listed(vec![session("1", "bob")]), at(0));
    core.expect(&place("R1", "alice"), true, Some(2), at(0)).unwrap();
    assert_eq!(core.expect(&place("R2", "carol"), true, Some(2), at(0)), Err(RefusalReason::MaxUsers));
    let load = core.load(at(20), 0).unwrap();
    assert_eq!((load.processes, load.users, load.pending.len()), (Some(70), Some(1), 1));
    assert_eq!(load.pending[0].left, Duration::from_secs(100));
    assert!(load.pending[0].admitted);
}

#[test]
fn a_host_that_is_not_ready_admits_nobody() {
    let mut core = core();
    let values = Measurement { readiness: Readiness::NotReady("nologin".into()), ..Measurement::default() };
    core.measure(values, Occupancy::Counted(0), at(0));
    assert_eq!(core.expect(&place("R1", "a"), true, None, at(0)), Err(RefusalReason::NotReady));
}

#[test]
fn the_highest_version_of_the_settings_is_in_force_whoever_told_it() {
    let mut core = core();
    core.measure(Measurement::default(), Occupancy::Unknown, at(0));
    let version = |core: &HostCore| core.load(at(0), 0).unwrap().settings_version;
    assert!(core.settings_told(0, told(7, |_| ()), at(0)));
    assert!(!core.settings_told(1, told(6, |_| ()), at(0)));
    assert_eq!(version(&core), Some(7));
    // The first coordinator's store was set back: what it said before counts no more.
    assert!(core.settings_told(0, told(2, |_| ()), at(0)));
    assert_eq!(version(&core), Some(6));
}

#[test]
fn the_latch_follows_the_window_and_the_settings() {
    let mut core = core();
    core.measure(Measurement::default(), Occupancy::Unknown, at(0));
    core.settings_told(0, told(1, |policy| policy.threshold_percent = 70.0), at(0));
    core.count_calls(&[calls(10_000.0)]);
    core.end_period(at(15));
    assert!(!core.is_latched());
    // XF (1 + 8) / 2 = 4.5: index 64.
    core.count_calls(&[calls(80_000.0)]);
    core.end_period(at(30));
    assert!(core.is_latched());
    core.settings_told(0, told(2, |policy| policy.threshold_percent = 40.0), at(31));
    assert!(!core.is_latched(), "a lower threshold counts at once");
}

#[test]
fn the_hosts_own_settings_win_over_the_pools() {
    let own = HostOverrides {
        threshold: Some(Percent::FULL),
        max_users: Some(UserLimit::Users(3)),
        ..HostOverrides::default()
    };
    let mut core = HostCore::new(settings(own), BookRecord::default());
    core.measure(Measurement::default(), Occupancy::Unknown, at(0));
    let load = core.load(at(0), 0).unwrap();
    assert!(load.availability_latched, "threshold 100 is always BUSY");
    assert_eq!(load.overrides, own);
}

#[test]
fn a_session_is_confirmed_only_by_a_list_that_has_it() {
    let mut core = core();
    assert_eq!(core.has_session("1", "alice"), None);
    core.occupy(Occupancy::Listed(vec![session("1", "alice")]), at(0));
    assert_eq!(core.has_session("1", "CORP\\Alice"), Some(true));
    assert_eq!(core.has_session("1", "bob"), Some(false));
    core.occupy(Occupancy::Listed(vec![]), at(1));
    assert_eq!(core.has_session("1", "alice"), Some(false));
    core.occupy(Occupancy::Unknown, at(2));
    assert_eq!(core.has_session("1", "alice"), None);
}

#[test]
fn an_outcome_ends_a_place_or_marks_it() {
    let mut core = core();
    core.measure(Measurement::default(), Occupancy::Unknown, at(0));
    for request in ["R1", "R2", "R3"] {
        core.expect(&place(request, request), false, None, at(0)).unwrap();
    }
    assert!(core.outcome(&place("R1", "").token, Outcome::Connected, at(1)));
    assert!(core.outcome(&place("R2", "").token, Outcome::Failed, at(1)));
    assert!(core.outcome(&place("R3", "").token, Outcome::Cancelled, at(1)));
    let load = core.load(at(1), 0).unwrap();
    assert_eq!(load.pending.len(), 1);
    assert!(load.pending[0].connected);
    let reasons: Vec<_> = load.ended.iter().map(|ended| ended.reason).collect();
    assert_eq!(reasons, [EndReason::Failed, EndReason::Cancelled]);
}
