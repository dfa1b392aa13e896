use usher_types::{
    Drain, DrainMode, Endpoint, FailureCause, FinishedLogons, GatewayId, LogonsInProgress, PendingLimit,
    PendingMode, PendingPlace, RefusalReason, RequestId, SessionState, UserLimit, UserNames,
};

use super::*;
use crate::host::naming::tests::with_key;

mod own_index;

fn settings(overrides: HostOverrides) -> CoreSettings {
    CoreSettings {
        pool: PoolName::new("desk").unwrap(),
        overrides,
        incarnation_ms: 7,
        latency_period: Duration::from_secs(15),
        periods: 5,
        max_names: 256,
        names: NameSettings::default(),
        coordinators: Vec::new(),
        report_interval: Duration::from_secs(5),
    }
}

fn core() -> HostCore {
    HostCore::new(settings(HostOverrides::default()), HostRecord::default())
}

/// A host whose agent was started anew with what `before` kept.
fn restarted(before: &HostCore) -> HostCore {
    let json = serde_json::to_string(&before.record()).unwrap();
    HostCore::new(settings(HostOverrides::default()), serde_json::from_str(&json).unwrap())
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

fn old_session(id: &str, user: &str) -> Session {
    Session { age: Some(Duration::from_secs(3600)), ..session(id, user) }
}

fn told(version: u64, change: impl FnOnce(&mut Policy)) -> VersionedSettings {
    let mut policy = Policy::default();
    change(&mut policy);
    VersionedSettings { version, policy, hash: None, marks: HostMarks::default() }
}

fn marked(version: u64, marks: HostMarks) -> VersionedSettings {
    VersionedSettings { marks, ..told(version, |_| ()) }
}

fn outcome(request: &str, outcome: Outcome) -> ToldOutcome {
    let token = place(request, "").token;
    ToldOutcome { token, outcome, cause: None, age: Duration::ZERO, succeeded_elsewhere: false }
}

fn limits(max_users: Option<u32>, max_pending: Option<u32>) -> Limits {
    Limits { max_users, max_pending }
}

fn percent(value: f64) -> Option<Percent> {
    Some(Percent::new(value).unwrap())
}

fn nobody() -> Occupancy {
    Occupancy::Listed(Vec::new())
}

#[test]
fn a_host_says_nothing_before_it_is_measured() {
    let mut core = core();
    assert_eq!(core.load(at(0), 0), None);
    core.measure(Measurement::default(), Occupancy::Unknown, at(0));
    let load = core.load(at(0), 5).unwrap();
    assert_eq!((load.cpu, load.users, load.wall_clock_unix_ms), (None, None, Some(5)));
    assert_eq!((load.incarnation_ms, load.settings_version), (7, None));
    assert_eq!((load.ready_age, load.latched, load.finished_logons), (None, Some(BusyReasons::NONE), None));
}

#[test]
fn the_latch_of_an_earlier_run_holds_until_a_period_or_the_settings_say_otherwise() {
    let mut busy = core();
    busy.settings_told(0, told(1, |policy| policy.threshold_percent = 100.0), at(0));
    let restored = || {
        let mut core = restarted(&busy);
        core.measure(Measurement::default(), Occupancy::Unknown, at(0));
        core
    };
    let held = |core: &HostCore| core.load(at(0), 0).unwrap().latched.unwrap().has(BusyReasons::AVAILABILITY);
    let mut core = restored();
    assert!(held(&core), "no settings told yet");
    core.settings_told(0, told(1, |policy| policy.threshold_percent = 50.0), at(1));
    assert!(held(&core), "an empty window of a new run says nothing");
    core.end_period(at(15));
    assert!(!held(&core));
    let mut core = restored();
    core.settings_told(0, told(1, |policy| policy.threshold_percent = 0.0), at(1));
    assert!(!held(&core), "the threshold is off");
}

// rule: state-busy-latched
#[test]
fn cpu_and_errors_are_held_over_a_restart_until_something_is_known() {
    let hot = || Measurement { cpu: percent(99.0), ..Measurement::default() };
    let mut busy = core();
    busy.measure(hot(), nobody(), at(0));
    for _ in 0..30 {
        busy.operations_mut().record_failure("logon", 1.0).unwrap();
    }
    busy.end_period(at(15));
    assert_eq!(busy.latched(), BusyReasons::ERRORS);
    busy.measure(hot(), nobody(), at(30));
    assert_eq!(busy.latched(), BusyReasons::ERRORS.with(BusyReasons::CPU, true));
    let mut core = restarted(&busy);
    core.measure(Measurement::default(), nobody(), at(35));
    assert_eq!(core.latched(), busy.latched(), "the first look has no CPU");
    core.measure(Measurement { cpu: percent(40.0), ..Measurement::default() }, nobody(), at(40));
    assert_eq!(core.latched(), BusyReasons::ERRORS);
    core.end_period(at(50));
    assert_eq!(core.latched(), BusyReasons::NONE);
}

/// What is kept over a restart is written only when this says so.
#[test]
fn each_kind_of_change_says_that_there_is_something_to_keep() {
    let ready = Measurement::default;
    let alice = || Occupancy::Listed(vec![session("1", "alice")]);
    let mut core = core();
    core.measure(ready(), nobody(), at(0));
    assert!(!core.measure(ready(), nobody(), at(5)), "nothing changed");
    let closed = || Measurement { readiness: Readiness::NotReady("repairs".into()), ..ready() };
    assert!(core.measure(closed(), nobody(), at(10)), "readiness alone");
    assert!(!core.measure(closed(), nobody(), at(15)));
    core.measure(ready(), nobody(), at(20));
    let full = Measurement { memory: usher_types::Memory::new(97, 100), ..ready() };
    assert!(core.measure(full, nobody(), at(25)), "a latch alone");
    core.measure(ready(), nobody(), at(30));
    core.expect(0, &place("R1", "alice"), false, limits(None, None), at(31)).unwrap();
    assert!(core.measure(ready(), alice(), at(32)), "a place became a session");
    core.expect(0, &place("R2", "bob"), false, limits(None, None), at(33)).unwrap();
    let both = || Occupancy::Listed(vec![session("1", "alice"), session("2", "bob")]);
    assert!(core.occupy(both(), at(34)), "between two measurements too");
    assert!(!core.occupy(both(), at(35)));
}

#[test]
fn every_report_carries_the_whole_state() {
    let mut core = core();
    let values = Measurement {
        processes: Some(70),
        uptime: Some(Duration::from_secs(3600)),
        psi_full: percent(12.0),
        is_warming_up: true,
        replica_lag: Some(Duration::from_secs(900)),
        ..Measurement::default()
    };
    core.measure(values, Occupancy::Listed(vec![session("1", "bob")]), at(0));
    core.expect(0, &place("R1", "alice"), true, limits(Some(2), None), at(0)).unwrap();
    let refused = core.expect(0, &place("R2", "carol"), true, limits(Some(2), None), at(0));
    assert_eq!(refused, Err(RefusalReason::MaxUsers));
    let drain = Drain {
        mode: DrainMode::Persistent,
        reason: "patches".into(),
        author: "ops".into(),
        no_reconnect: false,
    };
    let standing = Standing { drain: Some(drain.clone()), ..Standing::default() };
    assert!(!core.set_standing(standing, at(20)));
    let load = core.load(at(20), 0).unwrap();
    assert_eq!((load.processes, load.users, load.pending.len()), (Some(70), Some(1), 1));
    assert_eq!(load.pending[0].left, Duration::from_secs(100));
    assert!(load.pending[0].admitted && load.is_warming_up);
    assert_eq!((load.psi_full, load.replica_lag), (percent(12.0), Some(Duration::from_secs(900))));
    assert_eq!((load.uptime, load.ready_age), (Some(Duration::from_secs(3620)), load.uptime));
    assert_eq!(load.drain, Some(drain));
}

#[test]
fn a_host_that_is_not_ready_admits_nobody() {
    let mut core = core();
    let values = Measurement { readiness: Readiness::NotReady("nologin".into()), ..Measurement::default() };
    core.measure(values, Occupancy::Counted(0), at(0));
    assert_eq!(
        core.expect(0, &place("R1", "a"), true, Limits::default(), at(0)),
        Err(RefusalReason::NotReady)
    );
}

// rule: logons-measured
#[test]
fn logons_in_progress_are_sessions_that_have_begun_and_never_places() {
    let mut core = core();
    core.measure(Measurement::default(), Occupancy::Listed(Vec::new()), at(0));
    core.expect(0, &place("R1", "alice"), false, Limits::default(), at(1)).unwrap();
    assert_eq!(core.load(at(1), 0).unwrap().logons_in_progress.unwrap().now, 0);
    core.occupy(Occupancy::Listed(vec![session("1", "alice")]), at(3));
    let load = core.load(at(3), 0).unwrap();
    assert_eq!((load.logons_in_progress.unwrap().now, load.pending.len()), (1, 0));
    core.measure(Measurement::default(), Occupancy::Listed(vec![session("1", "alice")]), at(5));
    let logons = core.load(at(40), 0).unwrap().logons_in_progress.unwrap();
    assert_eq!(logons.now, 0, "a logon does not take so long");
    assert!((logons.mean - 0.4).abs() < 1e-9, "two of the five seconds: {logons:?}");
    // A source that knows better is believed.
    let said = LogonsInProgress { now: 3, mean: 1.5 };
    let finished = FinishedLogons { count: 2, seconds: 30.0, core_seconds: None };
    let values = Measurement {
        logons_in_progress: Some(said),
        finished_logons: Some(finished),
        ..Measurement::default()
    };
    core.measure(values, Occupancy::Counted(9), at(45));
    let load = core.load(at(45), 0).unwrap();
    assert_eq!((load.logons_in_progress, load.finished_logons), (Some(said), Some(finished)));
    core.measure(Measurement::default(), Occupancy::Counted(9), at(50));
    assert_eq!(core.load(at(50), 0).unwrap().logons_in_progress, None, "nobody tells");
}

// rule: pending-hard
// rule: consent-asked
#[test]
fn a_host_keeps_its_limit_of_logons_in_progress() {
    let mut core = core();
    core.measure(Measurement::default(), nobody(), at(0));
    let ask = |core: &mut HostCore, request: &str| {
        core.expect(0, &place(request, request), true, limits(None, Some(2)), at(1))
    };
    ask(&mut core, "R1").unwrap();
    ask(&mut core, "R2").unwrap();
    assert_eq!(ask(&mut core, "R3"), Err(RefusalReason::MaxPending));
    assert_eq!(ask(&mut core, "R2"), Ok(()), "it has this place already");
    core.occupy(Occupancy::Listed(vec![session("1", "R1")]), at(2));
    assert_eq!(ask(&mut core, "R3"), Ok(()));
}

// rule: never-over-limit
// rule: consent-asked
#[test]
fn of_the_limits_that_host_and_coordinator_know_the_tighter_is_kept() {
    let mut core = core();
    core.measure(Measurement::default(), nobody(), at(0));
    let marks = HostMarks { max_users: Some(UserLimit::Users(1)), ..HostMarks::default() };
    core.settings_told(0, marked(1, marks), at(0));
    core.expect(0, &place("R1", "a"), true, limits(Some(50), None), at(0)).unwrap();
    let refused = core.expect(0, &place("R2", "b"), true, limits(Some(50), None), at(0));
    assert_eq!(refused, Err(RefusalReason::MaxUsers));
    core.settings_told(
        0,
        told(2, |policy| {
            policy.max_pending = PendingLimit::Logons(1);
            policy.max_pending_mode = PendingMode::Hard;
        }),
        at(1),
    );
    let refused = core.expect(0, &place("R3", "b"), true, Limits::default(), at(1));
    assert_eq!(refused, Err(RefusalReason::MaxPending));
    core.settings_told(0, told(3, |policy| policy.max_pending = PendingLimit::Logons(1)), at(2));
    assert_eq!(
        core.expect(0, &place("R3", "b"), true, Limits::default(), at(2)),
        Ok(()),
        "a soft limit refuses nobody"
    );
}

#[test]
fn the_latch_follows_the_window_and_the_settings() {
    let mut core = core();
    core.measure(Measurement::default(), Occupancy::Unknown, at(0));
    core.settings_told(
        0,
        told(1, |policy| {
            policy.threshold_percent = 70.0;
            policy.baseline = usher_types::Baseline::Minimum;
        }),
        at(0),
    );
    core.count_call("logon", 10_000.0, 100.0).unwrap();
    core.end_period(at(15));
    assert_eq!(core.latched(), BusyReasons::NONE);
    // XF (1 + 8) / 2 = 4.5: index 64.
    core.count_call("logon", 80_000.0, 100.0).unwrap();
    core.end_period(at(30));
    assert_eq!(core.latched(), BusyReasons::AVAILABILITY);
    core.settings_told(
        0,
        told(2, |policy| {
            policy.threshold_percent = 40.0;
            policy.baseline = usher_types::Baseline::Minimum;
        }),
        at(31),
    );
    assert_eq!(core.latched(), BusyReasons::NONE, "a lower threshold counts at once");
    assert_eq!(core.reset_baselines(Some(&OperationName::new("logon").unwrap()), at(32)), 1);
    assert_eq!(core.reset_baselines(Some(&OperationName::new("never_seen").unwrap()), at(32)), 0);
}

// rule: settings-precedence
#[test]
fn an_admins_settings_win_over_the_hosts_own_and_those_over_the_pools() {
    let own = HostOverrides {
        threshold: Some(Percent::FULL),
        max_users: Some(UserLimit::Users(3)),
        ..HostOverrides::default()
    };
    let mut core = HostCore::new(settings(own), HostRecord::default());
    core.measure(Measurement::default(), Occupancy::Unknown, at(0));
    assert_eq!(core.latched(), BusyReasons::AVAILABILITY, "threshold 100 is always BUSY");
    let marks = HostMarks { threshold: percent(0.0), ..HostMarks::default() };
    core.settings_told(0, marked(1, marks), at(1));
    assert_eq!(core.latched(), BusyReasons::NONE);
    assert_eq!(core.load(at(1), 0).unwrap().overrides, own, "coordinators know the marks themselves");
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

// rule: life-outcome
#[test]
fn an_outcome_ends_a_place_or_marks_it() {
    let mut core = core();
    core.measure(Measurement::default(), Occupancy::Unknown, at(0));
    for request in ["R1", "R2", "R3", "R4"] {
        core.expect(0, &place(request, request), false, Limits::default(), at(0)).unwrap();
    }
    assert!(core.outcome(&outcome("R1", Outcome::Connected), at(1)));
    assert!(core.outcome(&outcome("R2", Outcome::Failed), at(1)));
    assert!(core.outcome(&outcome("R3", Outcome::Cancelled), at(1)));
    assert!(core.outcome(&outcome("R4", Outcome::Ended), at(1)));
    assert!(!core.outcome(&outcome("R3", Outcome::Cancelled), at(2)), "told twice");
    let load = core.load(at(1), 0).unwrap();
    assert_eq!((load.pending.len(), load.outcomes.len()), (1, 4));
    assert!(load.pending[0].connected);
    let reasons: Vec<_> = load.ended.iter().map(|ended| ended.reason).collect();
    assert_eq!(reasons, [EndReason::Failed, EndReason::Cancelled, EndReason::Session]);
    assert!(core.load(at(62), 0).unwrap().outcomes.is_empty());
}

// rule: penalty-travels
// rule: ramp-age
#[test]
fn penalties_and_the_age_since_a_long_pause_outlive_the_agent() {
    let ready = || Measurement { uptime: Some(Duration::from_secs(9_000)), ..Measurement::default() };
    let mut before = core();
    before.measure(
        Measurement { readiness: Readiness::NotReady("patches".into()), ..ready() },
        nobody(),
        at(0),
    );
    before.measure(ready(), nobody(), at(100));
    for request in ["R1", "R2"] {
        let failed = ToldOutcome {
            cause: Some(FailureCause::Refused),
            succeeded_elsewhere: true,
            ..outcome(request, Outcome::Failed)
        };
        before.outcome(&failed, at(101));
    }
    let mut after = restarted(&before);
    after.measure(ready(), nobody(), at(111));
    let load = after.load(at(111), 0).unwrap();
    assert_eq!((load.penalties.len(), load.penalties[0].left), (1, Duration::from_secs(50)));
    assert_eq!((load.outcomes.len(), load.ready_age), (2, Some(Duration::from_secs(11))));
}

// rule: user-names
#[test]
fn a_token_that_came_hashed_meets_the_session_of_its_user() {
    let names = with_key();
    let mut core =
        HostCore::new(CoreSettings { names, ..settings(HostOverrides::default()) }, HostRecord::default());
    core.measure(Measurement::default(), nobody(), at(0));
    core.settings_told(
        0,
        told(1, |policy| {
            policy.user_names = UserNames::Hashed;
            policy.shared_accounts = vec!["kiosk".into()];
        }),
        at(0),
    );
    core.occupy(
        Occupancy::Listed(vec![old_session("9", "Alice"), session("8", "kiosk"), session("7", "kiosk")]),
        at(1),
    );
    let hashed = core.session_list().sessions[0].user.clone();
    assert!(hashed.starts_with("hmac:") && core.has_session("9", &hashed) == Some(true));
    assert_eq!(core.load(at(1), 0).unwrap().users, Some(3), "shared accounts are known by their hash");
    // Alice is here already, Bob is not; he comes as himself.
    core.expect(0, &place("R1", &hashed), false, Limits::default(), at(1)).unwrap();
    core.expect(0, &place("R2", "CORP\\bob"), false, Limits::default(), at(1)).unwrap();
    let pending = core.load(at(1), 0).unwrap().pending;
    assert_eq!((pending[0].counted_users, pending[1].counted_users), (0, 1));
    assert!(pending.iter().all(|place| place.user.as_ref().unwrap().starts_with("hmac:")));
    core.occupy(Occupancy::Listed(vec![old_session("9", "Alice"), session("2", "bob")]), at(2));
    assert_eq!(core.load(at(2), 0).unwrap().pending.len(), 1);
}

#[test]
fn a_pool_that_wants_hashes_gets_no_names_from_a_host_without_the_key_and_a_warning() {
    let names = NameSettings { secured: true, hasher: None };
    let mut core =
        HostCore::new(CoreSettings { names, ..settings(HostOverrides::default()) }, HostRecord::default());
    core.measure(Measurement::default(), Occupancy::Listed(vec![session("1", "alice")]), at(0));
    assert_eq!(core.session_list().sessions.len(), 1);
    core.settings_told(0, told(1, |policy| policy.user_names = UserNames::Hashed), at(0));
    core.expect(0, &place("R1", "bob"), false, Limits::default(), at(0)).unwrap();
    let load = core.load(at(0), 0).unwrap();
    assert_eq!((load.users, load.pending[0].user.clone()), (Some(1), None));
    let list = core.session_list();
    assert_eq!((list.sessions.len(), list.unlisted), (0, 1));
    let warning = load.collectors.iter().find(|state| state.name == "user_names").unwrap();
    assert!(warning.warning.as_ref().unwrap().contains("no key"));
}

#[test]
fn what_the_host_says_of_itself_holds_over_measurements_until_it_is_taken_back() {
    let mut core = core();
    let collector =
        usher_types::CollectorState { name: "door".into(), source: "ssh".into(), error: None, warning: None };
    let standing = Standing {
        not_ready: Some("no banner".into()),
        is_warming_up: true,
        is_busy: true,
        collectors: vec![collector.clone()],
        ..Standing::default()
    };
    assert!(!core.set_standing(standing.clone(), at(0)), "nothing is measured yet");
    core.measure(Measurement::default(), Occupancy::Listed(Vec::new()), at(1));
    let load = core.load(at(2), 0).unwrap();
    assert_eq!(load.readiness, Readiness::NotReady("no banner".into()));
    assert!(load.is_warming_up && load.latched.unwrap().has(BusyReasons::USER_SET));
    assert!(!core.latched().has(BusyReasons::USER_SET), "not a latch: it is not kept over a restart");
    assert_eq!(load.collectors, [collector]);
    let refused = core.expect(0, &place("R1", "alice"), true, limits(None, None), at(2));
    assert_eq!(refused, Err(RefusalReason::NotReady));

    let nologin = Measurement { readiness: Readiness::NotReady("nologin".into()), ..Measurement::default() };
    core.measure(nologin, Occupancy::Listed(Vec::new()), at(3));
    assert_eq!(core.load(at(3), 0).unwrap().readiness, Readiness::NotReady("nologin".into()));

    core.measure(Measurement::default(), Occupancy::Listed(Vec::new()), at(70));
    assert!(core.set_standing(Standing::default(), at(71)), "the age since it became ready is kept");
    let load = core.load(at(80), 0).unwrap();
    assert_eq!((load.readiness, load.ready_age), (Readiness::Ready, Some(Duration::from_secs(9))));
}
