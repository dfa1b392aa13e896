//! What a script learns about itself, and what the runner adds to the parts that it runs.

use super::{
    Run, run,
    syntax::{FLAGS, REASONS},
};
use crate::decision::{Flags, PlacementReason, RefusalKind};

const TWO_HOSTS: &str = "pool desk\nhost s1 pool=desk\nhost s2 pool=desk\n\
    report s1 cpu=35 mem=55 users=10 procs=70\nreport s2 cpu=25 mem=45 users=14 procs=89\n";

/// Runs `lines` after two hosts that have reported.
fn play(lines: &str) -> Run {
    run(&format!("{TWO_HOSTS}{lines}")).unwrap()
}

/// The same, and it ran to its end and every expectation held.
fn holds(lines: &str) {
    let run = play(lines);
    assert!(run.holds() && run.checked > 0, "{run}");
}

#[test]
fn an_expectation_that_does_not_hold_says_what_is_the_case_instead() {
    let run = play("place desk as p1\nexpect p1 host=s2 reason=lowest_load\nexpect s1 w=12.5 pending=1\n");
    let failures: Vec<String> = run.failures().map(ToString::to_string).collect();
    assert_eq!(failures, ["line 7: p1\n  - host=s2\n  + host=s1", "line 8: s1\n  - w=12.5\n  + w=68.512"]);
    assert_eq!((run.checked, run.holds()), (4, false));
    assert!(run.stopped.is_none(), "what is not expected is no reason to stop");
}

#[test]
fn a_name_that_stands_for_nothing_stops_the_run_and_a_near_one_is_suggested() {
    for (lines, message) in [
        ("report srv1 cpu=1", "6:8: there is no host srv1"),
        ("report s3 cpu=1", "6:8: there is no host s3, did you mean s1?"),
        ("place desk as burst\nexplain bursts", "7:9: there is no placement bursts, did you mean burst?"),
        ("via c2 place desk", "6:5: there is no coordinator c2, did you mean c1?"),
        ("place desk exclude=s1,elephant", "6:23: there is no host elephant"),
        ("coordinator c1", "6:13: there is a coordinator c1 already"),
        ("expect elephant state=BUSY", "6:8: there is no placement or host elephant"),
        ("advance 32d", "6:1: a scenario lasts 31 days at most"),
        ("   report s3 cpu=1", "6:11: there is no host s3, did you mean s1?"),
        ("seed 1 /\tshow s3 # s3", "6:15: there is no host s3, did you mean s1?"),
        ("drain d", "6:7: there is no host d"),
        ("host s3 pool=deks", "6:14: there is no pool deks, did you mean desk?"),
        ("host s3 pool=office", "6:14: there is no pool office"),
    ] {
        let run = play(&format!("{lines}\nshow s1\n"));
        assert_eq!(run.stopped.map(|stopped| stopped.to_string()).as_deref(), Some(message), "{lines}");
        assert!(!run.events.iter().any(|event| event.to_string().starts_with("s1 AVAILABLE")), "{lines}");
    }
}

#[test]
fn a_text_that_is_not_understood_is_not_run_at_all() {
    let errors = run("pool desk\nhots s1\nreport s1 cpu=\n").unwrap_err();
    assert_eq!(errors[0].to_string(), "2:1: unknown verb \"hots\", did you mean host?");
}

#[test]
fn every_flag_and_every_reason_can_be_expected() {
    let flags = [
        Flags::ALL_BUSY,
        Flags::OVER_PENDING,
        Flags::INCOMPLETE,
        Flags::PROVISIONAL,
        Flags::SPARSE,
        Flags::IDLE,
        Flags::STALLED,
        Flags::RAMPING,
        Flags::PARTIAL_VIEW,
        Flags::BLIND,
        Flags::AFFINITY_UNKNOWN,
    ];
    let flags = flags.into_iter().fold(Flags::NONE, |all, flag| all.with(flag, true));
    assert!(flags.names().all(|name| FLAGS.contains(&name)));
    use PlacementReason as P;
    let placed = [
        P::OwnSession,
        P::Pending,
        P::Preferred,
        P::LowestLoad,
        P::HighestAvailability,
        P::Fill,
        P::Original,
    ];
    use RefusalKind as R;
    let refused = [
        R::UnknownResource,
        R::OutOfService,
        R::Stale,
        R::MaxUsers,
        R::MaxPending,
        R::NoConsentRefused,
        R::NoConsentSilent,
        R::AllRestricted,
        R::AllExcluded,
        R::AllOffline,
    ];
    for reason in placed.map(P::as_str).into_iter().chain(refused.map(R::reason)) {
        assert!(REASONS.contains(&reason.to_lowercase().as_str()), "{reason}");
    }
}

#[test]
fn a_label_stands_for_what_it_was_given_to_last_and_a_repetition_is_counted_as_a_whole() {
    holds(
        "repeat 4 place desk user=a{n} as burst\nexpect tally burst s1=3..4 s2=0..1\n\
         repeat 2 place desk user=b{n} exclude=s1,s2 as burst\n\
         expect tally burst s1=0 error=2 all_excluded=2\nexpect burst error=UNAVAILABLE\n\
         repeat 2 place desk user=c{n} exclude=s1 as q{n}\nexpect q1 host=s2\nexpect q2 host=s2\n",
    );
}

#[test]
fn users_that_a_report_counts_follow_the_sessions_that_come_and_go_after_it() {
    holds(
        "sessions s1 alice:active bob:disconnected\nexpect s1 users=10\nsession s1 +carol\nexpect s1 users=11\n\
         session s1 +carol\nexpect s1 users=11\nsession s1 -alice -bob\nexpect s1 users=9\n\
         report s1 cpu=1\nexpect s1 users=1\nreport s2 cpu=1\nexpect s2 users=absent\n",
    );
}

#[test]
fn a_session_ends_the_place_of_its_user_also_in_the_first_list() {
    holds(
        "place desk user=alice as p1\nadvance 5s\nsessions s1 alice:active bob:active\nexpect s1 pending=0\n\
         place desk user=bob as p2\nexpect p2 host=s1 reason=own_session reservation=none\n",
    );
}

#[test]
fn sessions_that_were_there_before_any_login_end_no_place() {
    holds(
        "pool apply desk affinity=none\nsessions s1 alice:active\nplace desk user=alice as p1\nexpect s1 pending=1\n",
    );
}

#[test]
fn wall_clocks_that_jump_change_nothing() {
    let quiet = "every 5s s1,s2 report\nplace desk as p1\nadvance 30s\nshow s1\nshow s2\n";
    let jumping = quiet.replace("advance 30s", "clock wall +1d\nadvance 15s\nclock wall -9h\nadvance 15s");
    let printed = |lines: &str| play(lines).to_string();
    assert_eq!(printed(quiet), printed(&jumping));
}

#[test]
fn what_the_last_report_got_wrong_stays_wrong_until_the_next_one() {
    holds(
        "report s1 cpu=nan mem=55 users=10 procs=70\nexpect s1 flags=stale_cpu\nplace desk user=u as p1\n\
         expect s1 pending=1 flags=stale_cpu\nreport s1 cpu=35 mem=55 users=10 procs=70\nexpect s1 flags=\n",
    );
}

#[test]
fn another_gateways_word_counts_as_its_own() {
    holds(
        "place desk as p1\noutcome p1 failed cause=refused gateway=g1\n\
         place desk as p2\nexpect p2 host=s1\noutcome p2 failed cause=refused gateway=g2\n\
         place desk as p3\nexpect p3 host=s2\n",
    );
}

#[test]
fn silence_costs_time_of_the_call_and_none_of_the_farms() {
    let limited = "pool apply desk max_users=50\nsilence s1\n";
    holds(&format!("{limited}place desk deadline=300ms as p1\nexpect p1 host=s2\nexpect s1 pending=0\n"));
    holds(&format!(
        "{limited}place desk deadline=250ms as p1\nexpect p1 error=DEADLINE_EXCEEDED reason=deadline_passed\n"
    ));
    holds(&format!("{limited}silence s2\nplace desk as p1\nexpect p1 error=UNAVAILABLE reason=no_consent\n"));
}

#[test]
fn a_refused_host_changes_nothing_and_stops_nothing() {
    let run = play(
        "host s3 pool=desk capacity=0\nreport s3 cpu=0 mem=0 users=0 procs=0\nplace desk as p1\nexpect p1 host=s1\n\
         host s4\nshow s4\nhost s4 pool=desk\nexpect s4 state=UNKNOWN\n",
    );
    assert!(run.holds(), "{run}");
    let printed = run.to_string();
    assert!(printed.contains("s3 -> error INVALID_ARGUMENT invalid_field: capacity = 0"), "{printed}");
    assert!(printed.contains("s4 -> error INVALID_ARGUMENT invalid_field: pool = absent"), "{printed}");
    assert!(printed.contains("s4 is not registered"), "{printed}");
}

#[test]
fn a_machine_whose_id_is_another_ones_is_not_registered_and_nothing_said_of_it_reaches_the_other() {
    let clone = "host s9 pool=desk id=id-s1 boot=B9 name=s9.example\n";
    let run = play(&format!(
        "{clone}report s9 cpu=0 mem=0 users=0 procs=0\ndoor s9 shut\nshow s9\nexpect s1 state=AVAILABLE users=10\n\
         place desk exclude=s9 as p1\nexpect p1 host=s1\nplace desk exclude=s1 as p2\nexpect p2 host=s2\n\
         expect s9 state=AVAILABLE\n"
    ));
    let printed = run.to_string();
    assert!(printed.contains("\ns9 is not registered: its id id-s1 is that of s1\n"), "{printed}");
    let failures: Vec<String> = run.failures().map(ToString::to_string).collect();
    let unknown = "line 15: s9\n  - state=AVAILABLE\n  + it is not registered: its id id-s1 is that of s1";
    assert_eq!(failures, [unknown], "{printed}");
    for (line, column) in [
        ("drain s9", 7),
        ("undrain s9", 9),
        ("host set s9 capacity=2", 10),
        ("busy s9 yes", 6),
        ("mark s9 crm out_of_service", 6),
    ] {
        let run = play(&format!("{clone}{line}\nshow s1\n"));
        let message = format!("7:{column}: host s9 is not registered: its id id-s1 is that of s1");
        assert_eq!(run.stopped.map(|stopped| stopped.to_string()), Some(message), "{line}");
    }
}

#[test]
fn a_machine_that_takes_over_an_id_is_the_host_and_the_one_before_is_not() {
    holds(
        "host s9 pool=desk id=id-s1 boot=B9\nsilence s1\nreconnect s9\nreport s9 cpu=1 mem=1 users=3 procs=1\n\
         expect s9 state=AVAILABLE users=3\ndrain s9\nexpect s9 state=RESTRICTED\n",
    );
    let run = play("host s9 pool=desk id=id-s1 boot=B9\nsilence s1\nreconnect s9\nshow s1\n");
    assert!(run.to_string().contains("s1 is not registered: its id id-s1 is that of s9"), "{run}");
}

#[test]
fn a_scenario_that_declares_no_pool_needs_none_and_one_that_declares_later_may() {
    let hosts = "host s1 pool=desk\nreport s1 cpu=1 mem=1 users=1 procs=1\n";
    let login = "place desk as p1\nexpect p1 host=s1\n";
    for text in [
        format!("{hosts}{login}"),
        format!("{hosts}pool desk method=availability\n{login}"),
        format!("{hosts}via c1 pool apply desk method=availability\n{login}"),
    ] {
        let run = run(&text).unwrap();
        assert!(run.holds() && run.checked > 0, "{text}{run}");
    }
}

#[test]
fn what_is_shown_as_flags_is_what_is_expected_of_them() {
    let run = play(
        "show s1\nexpect s1 flags= flags+=no_data\nexpect s1 flags=no_data\nlatency s2 get count=9 mean=1ms\n",
    );
    assert!(run.holds(), "{run}");
    assert!(run.to_string().contains("s1 AVAILABLE ai=absent (no_data) xf=absent"), "{run}");
    let run = play("latency s1 get count=9 mean=1ms\nexpect s1 flags=no_data\n");
    assert_eq!(run.failures().count(), 1, "{run}");
}

#[test]
fn users_that_nobody_knows_have_no_median() {
    let run = run(
        "pool desk\nhost s1 pool=desk\nreport s1 cpu=1 mem=1 procs=1\nplace desk as p1\nshow s1\nexplain p1\n",
    );
    let printed = run.unwrap().to_string();
    assert!(printed.contains("users 55.00 +") && !printed.contains("(median)"), "{printed}");
    let run = play("host s3 pool=desk\nreport s3 cpu=1 mem=1 procs=1\nshow s3\n");
    assert!(run.to_string().contains("(median) + procs"), "{run}");
}

#[test]
fn a_stale_value_is_believed_until_its_time_is_over_and_no_report_is_needed_to_end_it() {
    let limited = "host set s1 max_users=20\nreport s1 cpu=35 mem=55 users=10 procs=70\nadvance 2s\n\
                   report s1 cpu=nan mem=55 users=nan procs=70\n";
    // The value is of the report before: 15 s after that one, and not after the wrong one.
    holds(&format!(
        "{limited}advance 13s\nexpect s1 state=AVAILABLE users=10 flags=stale_cpu,stale_users\nadvance 1ms\n\
         expect s1 state=MAXUSERS users=absent flags=users_unknown,incomplete\nplace desk as p1\nexpect p1 host=s2\n"
    ));
    let run = play(&format!("{limited}advance 13001ms\nplace desk exclude=s2 as p1\nexplain p1\n"));
    assert!(run.to_string().contains("MAXUSERS (users_unknown, limit 20)"), "{run}");
}

#[test]
fn an_event_in_json_has_its_numbers_as_numbers() {
    let run = play("place desk request=R7 as p1\nshow s2\nadvance 1s\n");
    let json: Vec<_> = run.events.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    let placed = json.iter().find(|event| event["event"] == "placed").unwrap();
    assert_eq!((&placed["host"], &placed["reservation"]), (&"s1".into(), &"R7".into()));
    let load = placed["weighted_load"].as_f64().unwrap();
    assert!((load - 64.58).abs() < 0.01, "{placed}");
    let shown = json.iter().find(|event| event["event"] == "shown").unwrap();
    assert_eq!((&shown["state"], &shown["users"]), (&"AVAILABLE".into(), &14.into()));
    assert!(shown["availability_index"].is_null(), "what is not known is no number");
    let changed = json.iter().find(|event| event["event"] == "state_changed").unwrap();
    assert_eq!((&changed["at_s"], &changed["to"]), (&1.0.into(), &"AVAILABLE".into()));
}
