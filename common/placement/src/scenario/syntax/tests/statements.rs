use std::time::Duration;

use usher_types::{
    Affinity, Change, DrainMode, FailureCause, HostMarksChange, HostName, HostState, Outcome, PendingLimit,
    ReplicaMark, SessionState, UserLimit,
};

use super::super::{
    Calls, Check, Expect, Expected, Figure, Repeat, Sample, SessionChange, SessionEntry, Statement,
};
use super::{EXAMPLES, lines, one};

fn host(name: &str) -> HostName {
    HostName::new(name).unwrap()
}

#[test]
fn every_example_can_be_read() {
    let read = lines(EXAMPLES);
    // Two lines hold two statements each.
    assert_eq!(read.len(), EXAMPLES.lines().count() + 2);
    for line in EXAMPLES.lines() {
        lines(line);
    }
}

#[test]
fn a_line_keeps_its_number_and_its_text_without_comment_and_blanks() {
    let read = lines("\u{feff}\r\n# only a comment\r\n\t seed  1 \t# why\r\n\ncut c1 s1 / join c1 s1 # both");
    let shown: Vec<_> = read.iter().map(|line| (line.number, line.text.as_str())).collect();
    assert_eq!(shown, [(3, "seed  1"), (5, "cut c1 s1"), (5, "join c1 s1")]);
}

#[test]
fn quotes_keep_blanks_commas_and_hashes_together() {
    let Statement::Drain { reason, mode, no_reconnect, .. } =
        one(r#"drain s1 reason="new disk # 3, \"big\"" no_reconnect # soon"#)
    else {
        panic!()
    };
    assert_eq!(reason.as_deref(), Some(r#"new disk # 3, "big""#));
    assert_eq!((mode, no_reconnect), (DrainMode::UntilRestart, true));
    let Statement::Place(place) = one(r#"place desk user="CORP\alice" exclude=a,b as p1"#) else { panic!() };
    assert_eq!(place.call.user.as_deref(), Some(r"CORP\alice"));
    assert_eq!(place.exclude, ["a", "b"]);
    let Statement::Place(place) = one("place desk user=u#1 as größe") else { panic!() };
    assert_eq!((place.call.user.as_deref(), place.call.label.as_deref()), (Some("u#1"), Some("größe")));
}

#[test]
fn a_profile_comes_before_the_fields_wherever_it_stands() {
    let Statement::Pool { change, .. } = one("pool desk affinity=none profile=ssh-login max_pending=4")
    else {
        panic!()
    };
    assert_eq!((change.affinity, change.max_pending), (Some(Affinity::None), Some(PendingLimit::Logons(4))));
    assert_eq!(change.weights.unwrap().cpu_percent, Some(40.0));
    let Statement::PoolApply { version, change, .. } = one("pool apply desk range=0 version=3") else {
        panic!()
    };
    assert_eq!((version, change.range), (Some(3), Some(0.0)), "whether a range of 0 is good, the farm says");
}

#[test]
fn a_report_may_hold_what_only_a_broken_sensor_sends() {
    let Statement::Report(report) = one("report s1 cpu=nan mem=-3 users=1e300 procs=inf mount=98 tokens=")
    else {
        panic!()
    };
    assert!(report.cpu.unwrap().is_nan());
    assert_eq!((report.mem, report.users, report.procs), (Some(-3.0), Some(1e300), Some(f64::INFINITY)));
    assert_eq!((report.ai, report.psi), (None, None));
    assert_eq!((report.mounts[0].path.clone(), report.mounts[0].used), (None, 98.0));
    assert_eq!(report.tokens, Some(Vec::new()), "an empty list is not an absent one");
    let Statement::Report(report) = one("report s1") else { panic!() };
    assert_eq!((report.cpu, report.tokens), (None, None));
}

#[test]
fn sessions_have_a_state_and_perhaps_an_age() {
    let entry = |user: &str, state, age| SessionEntry { user: user.to_owned(), state, age };
    let Statement::Sessions { sessions, .. } =
        one("sessions s1 alice bob:lingering,carol:active:2h hmac:1f:ab12 hmac:1f:ab13:disconnected")
    else {
        panic!()
    };
    let expected = [
        entry("alice", SessionState::Active, None),
        entry("bob", SessionState::Lingering, None),
        entry("carol", SessionState::Active, Some(Duration::from_secs(7200))),
        entry("hmac:1f:ab12", SessionState::Active, None),
        entry("hmac:1f:ab13", SessionState::Disconnected, None),
    ];
    assert_eq!(sessions, expected);
    for nobody in ["sessions s1", "sessions s1 none"] {
        assert_eq!(one(nobody), Statement::Sessions { host: host("s1"), sessions: Vec::new() });
    }
    let Statement::Session { changes, .. } = one("session s1 +alice:disconnected -bob") else { panic!() };
    let comes = SessionChange::Comes(entry("alice", SessionState::Disconnected, None));
    assert_eq!(changes, [comes, SessionChange::Goes("bob".to_owned())]);
}

#[test]
fn calls_are_an_aggregate_or_single_samples() {
    let Statement::Latency { calls, .. } = one("latency s1 open_db samples=12ms,0ms,-5ms,nan,1.5s:failed")
    else {
        panic!()
    };
    let Calls::Samples(samples) = calls else { panic!() };
    assert_eq!(samples[0], Sample { micros: 12_000.0, failed: false });
    assert_eq!((samples[1].micros, samples[2].micros), (0.0, -5_000.0));
    assert!(samples[3].micros.is_nan());
    assert_eq!(samples[4], Sample { micros: 1_500_000.0, failed: true });
    let Statement::Latency { calls, .. } = one("latency s1 open_db count=0 inflight=2 oldest=9s") else {
        panic!()
    };
    let Calls::Aggregate { count, mean_us, in_flight, oldest, .. } = calls else { panic!() };
    assert_eq!((count, mean_us, in_flight), (Some(0.0), None, Some(2.0)));
    assert_eq!(oldest, Some(Duration::from_secs(9)));
}

#[test]
fn durations_are_exact() {
    for (text, nanos) in [
        ("0", 0),
        ("250us", 250_000),
        ("200ms", 200_000_000),
        ("1.5s", 1_500_000_000),
        (".1s", 100_000_000),
        ("0.000000001s", 1),
        ("2m", 120_000_000_000),
        ("1h", 3_600_000_000_000),
        ("1d", 86_400_000_000_000),
    ] {
        assert_eq!(
            one(&format!("advance {text}")),
            Statement::Advance(Duration::from_nanos(nanos)),
            "{text}"
        );
    }
    for (text, offset_ms) in [("+1d", 86_400_000), ("-9h", -32_400_000), ("90s", 90_000), ("-1.5s", -1_500)] {
        assert_eq!(one(&format!("clock wall {text}")), Statement::ClockWall { offset_ms });
    }
}

#[test]
fn a_second_word_tells_two_verbs_apart() {
    let change = HostMarksChange {
        capacity: Change::Clear,
        max_users: Change::Set(UserLimit::Unlimited),
        busy: Some(false),
        ..HostMarksChange::default()
    };
    let text = "host set s1 capacity=none max_users=unlimited busy=none";
    assert_eq!(one(text), Statement::HostSet { host: host("s1"), change });
    assert!(
        matches!(one("host s1 max_users=0"), Statement::Host(host) if host.max_users == Some(UserLimit::Users(0)))
    );
}

#[test]
fn every_may_be_said_in_several_orders() {
    let both = vec![host("s1"), host("s2")];
    let on = Statement::Every { hosts: both.clone(), interval: Some(Duration::from_secs(5)) };
    for text in ["every 5s s1,s2 report", "every 5s report s1,s2", "every 5s s1,s2"] {
        assert_eq!(one(text), on);
    }
    let off = Statement::Every { hosts: both, interval: None };
    for text in ["every off s1,s2", "every s1,s2 off"] {
        assert_eq!(one(text), off);
    }
}

#[test]
fn small_verbs_keep_what_they_say() {
    assert_eq!(one("warming s1 no"), Statement::Warming { host: host("s1"), lag: None });
    let lag = Some(Duration::from_secs(900));
    assert_eq!(one("warming s1 lag=900s"), Statement::Warming { host: host("s1"), lag });
    assert_eq!(one("door s1 open"), Statement::Door { host: host("s1"), open: true });
    let Statement::Mark { mark, .. } = one("mark s1 crm pending_delete") else { panic!() };
    assert_eq!(mark, Some(ReplicaMark::PendingDelete));
    let Statement::Outcome { outcome, cause, gateway, .. } = one("outcome p1 failed cause=auth gateway=g1")
    else {
        panic!()
    };
    assert_eq!((outcome, cause), (Outcome::Failed, Some(FailureCause::Auth)));
    assert_eq!(gateway.unwrap().as_str(), "g1");
}

#[test]
fn a_failover_names_where_it_comes_from() {
    let Statement::Failover(failover) = one(
        "failover desk from=s1 tried=s1,s2 cause=unreachable failed=R7 attempt=0 cost=1000 deadline=0 as p2",
    ) else {
        panic!()
    };
    assert_eq!((failover.from.as_str(), failover.tried.len()), ("s1", 2));
    assert_eq!(failover.cause, Some(FailureCause::Unreachable));
    assert_eq!(failover.failed.unwrap().as_str(), "R7");
    let call = failover.call;
    assert_eq!((call.attempt, call.cost, call.deadline), (Some(0), Some(1000), Some(Duration::ZERO)));
}

fn repeat(text: &str) -> Repeat {
    let Statement::Repeat(repeat) = one(text) else { panic!("{text}") };
    repeat
}

#[test]
fn a_repetition_puts_its_number_wherever_it_is_wanted() {
    let burst = repeat("repeat 30 place desk user=u{n} request=R-{n} as burst # all");
    assert_eq!((burst.count, burst.label.as_deref()), (30, Some("burst")));
    for n in [1, 30] {
        let Statement::Place(place) = burst.statement(n).unwrap() else { panic!() };
        assert_eq!(place.call.user, Some(format!("u{n}")));
        assert_eq!(place.call.request.unwrap().as_str(), format!("R-{n}"));
        assert_eq!(place.call.label.as_deref(), Some("burst"));
    }
    let each = repeat("repeat 3 via c{n} place desk as b{n} user=x");
    assert_eq!(each.label.as_deref(), Some("b{n}"));
    let Statement::Via { coordinator, statement } = each.statement(2).unwrap() else { panic!() };
    assert_eq!(coordinator, "c2");
    assert!(matches!(*statement, Statement::Place(place) if place.call.label.as_deref() == Some("b2")));
    let Statement::Via { statement, .. } = one("via c2 repeat 3 outcome b{n} ended") else { panic!() };
    assert!(matches!(*statement, Statement::Repeat(repeat) if repeat.label.is_none() && repeat.count == 3));
}

fn checks(text: &str) -> Vec<Check> {
    let Statement::Expect(Expect::Named { checks, .. }) = one(text) else { panic!("{text}") };
    checks
}

#[test]
fn expectations_keep_their_order_and_their_words() {
    let read = checks("expect p1 host=s1|s2 error=none reason=LOWEST_LOAD flags=idle,all_busy flags+=blind");
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let expected = [
        Check::Host(names(&["s1", "s2"])),
        Check::Error(None),
        Check::Reason("lowest_load".to_owned()),
        Check::Flags(vec!["idle", "all_busy"]),
        Check::FlagsAmong(vec!["blind"]),
    ];
    assert_eq!(read, expected);
    assert_eq!(checks("expect s1 state=maxusers"), [Check::State(HostState::MaxUsers)]);
    assert_eq!(
        checks("expect p1 reservation=none flags="),
        [Check::Reservation(None), Check::Flags(Vec::new())]
    );
    assert_eq!(checks("expect s1 users=absent"), [Check::Number(Figure::Users, Expected::Absent)]);
    let Statement::Expect(Expect::Tally { label, counts }) = one("expect tally burst s1=10 s3=8..12") else {
        panic!()
    };
    assert_eq!(
        (label.as_str(), counts),
        ("burst", vec![("s1".to_owned(), 10..=10), ("s3".to_owned(), 8..=12)])
    );
}

#[test]
fn a_number_is_compared_as_exactly_as_it_was_written() {
    let number = |text: &str| match checks(&format!("expect s1 w={text}")).remove(0) {
        Check::Number(Figure::W, expected) => expected,
        other => panic!("{other:?}"),
    };
    for (written, actual, is_it) in [
        ("56.65", Some(56.6549), true),
        ("56.65", Some(56.6601), false),
        ("56.6549", Some(56.66), true),
        ("50.0", Some(50.04), true),
        ("50.0", Some(50.06), false),
        ("67", Some(66.67), true),
        ("3", Some(4.0), false),
        ("3", None, false),
        ("3", Some(f64::NAN), false),
        ("absent", None, true),
        ("absent", Some(0.0), false),
    ] {
        assert_eq!(number(written).admits(actual), is_it, "{written} {actual:?}");
    }
}
