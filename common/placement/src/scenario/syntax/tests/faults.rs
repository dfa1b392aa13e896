use super::super::{MAX_BYTES, MAX_ERRORS, parse, parse_bytes};
use super::faults;

#[track_caller]
fn fault(text: &str, expected: &str) {
    let found = faults(text);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].starts_with(expected), "{}\n{expected}", found[0]);
}

#[test]
fn a_near_miss_is_answered_with_what_was_meant() {
    for (text, expected) in [
        ("reprot s1 cpu=1", r#"1:1: unknown verb "reprot", did you mean report?"#),
        ("Seed 1", r#"1:1: unknown verb "Seed", did you mean seed?"#),
        ("host s1 max_user=3", r#"1:9: unknown key "max_user" of host, did you mean max_users?"#),
        ("\n\n host  s1 zoen=a", r#"3:11: unknown key "zoen" of host, did you mean zone?"#),
        ("pool desk wieghts=1/2/3/4", r#"1:11: unknown setting "wieghts" of a pool, did you mean weights?"#),
        (
            "pool desk method=weighted_laod",
            r#"1:18: "weighted_laod" is no value of method, did you mean weighted_load?"#,
        ),
        ("pool desk profile=ssh_login", r#"1:19: unknown profile "ssh_login", did you mean ssh-login?"#),
        ("pool aply desk range=3", r#"1:6: unknown word "aply" behind pool, did you mean apply?"#),
        (
            "drain s1 mode=persistant",
            r#"1:15: unknown mode of a drain "persistant", did you mean persistent?"#,
        ),
        ("drain s1 noreconnect", r#"1:10: unexpected "noreconnect" in drain, did you mean no_reconnect?"#),
        ("report s1 cpu 35", r#"1:11: unexpected "cpu" in report, did you mean cpu=?"#),
        ("report s1 cpu=35%", r#"1:15: "35%" is no number, did you mean 35?"#),
        ("sessions s1 alice:activ", r#"1:19: unknown session state "activ", did you mean active?"#),
        ("advance 15sec", r#"1:9: unknown unit of time in "15sec", did you mean 15s?"#),
        ("outcome p1 conected", r#"1:12: unknown outcome "conected", did you mean connected?"#),
        ("expect s1 state=BUZY", r#"1:17: unknown state "BUZY", did you mean BUSY?"#),
        ("expect p1 error=RESOURCE_EXHAUSTD", "1:17: unknown error code"),
        ("expect p1 flags=all_bussy", r#"1:17: unknown flag "all_bussy", did you mean all_busy?"#),
        ("expect p1 reason=max_user", r#"1:18: unknown reason "max_user", did you mean max_users?"#),
        ("failover desk from=s1 cause=bussy", r#"1:29: unknown cause "bussy", did you mean busy?"#),
        ("mark s1 crm out_of_servce", r#"1:13: unknown mark "out_of_servce", did you mean out_of_service?"#),
        ("clock wal +1d", r#"1:7: unknown clock "wal", did you mean wall?"#),
        ("via c2 plaec desk", r#"1:8: unknown verb "plaec", did you mean place?"#),
        ("repeat 3 place desk usr=u{n}", r#"1:21: unknown key "usr" of place, did you mean user?"#),
        ("place desk user=x is p1", r#"1:19: unexpected "is" in place, did you mean as?"#),
    ] {
        let found = faults(text);
        assert!(found[0].starts_with(expected), "{text}: {}", found[0]);
    }
}

#[test]
fn what_is_nothing_like_anything_is_answered_with_what_is_allowed() {
    fault(
        "host s1 colour=red",
        r#"1:9: unknown key "colour" of host, allowed: pool, zone, cores, memory_gib,"#,
    );
    fault("undrain s1 why=x", r#"1:12: unknown key "why" of undrain, allowed: no key"#);
    fault("door s1 maybe", r#"1:9: unknown answer "maybe", allowed: open, shut"#);
    fault("pool desk range=wide", r#"1:17: "wide" is no value of range, allowed: a number"#);
    fault("elephant", r#"1:1: unknown verb "elephant", allowed: seed, pool, host,"#);
    fault("advance 15", r#"1:9: the duration "15" has no unit, allowed: a number and a unit, such as 200ms"#);
    fault("advance -1s", r#"1:9: "-1s" is no duration"#);
    fault("advance 99999999d", r#"1:9: the duration "99999999d" is too long, allowed: at most 36500d"#);
    fault("every 0s s1", r#"1:7: the interval "0s" is too short, allowed: at least 1ms"#);
    fault("repeat 0 place desk", r#"1:8: "0" is no number of repetitions, allowed: 1..=1000000"#);
    fault("repeat 3 advance 1s", r#"1:10: "advance" cannot be repeated, allowed: place,"#);
    fault("via c2 advance 1s", r#"1:8: "advance" is not asked of a coordinator, allowed: place,"#);
    fault("via c2 via c3 show s1", "1:8: via cannot stand in another via");
    fault("repeat 2 repeat 2 place desk", "1:10: repeat cannot stand in another repeat");
    fault("expect s1 w=nan", r#"1:13: "nan" is no number, allowed: digits"#);
    fault("expect tally b s1=9..8", r#"1:19: "9..8" is no count, allowed: a count, or a range"#);
    fault("place desk cost=-1", r#"1:17: "-1" is no whole number, allowed: a whole number, 0..=4294967295"#);
    fault("place desk exclude=a,,b", "1:22: an item of this list is empty");
}

#[test]
fn what_is_missing_is_named_where_it_would_stand() {
    fault("report", "1:7: report needs the name of a host");
    fault("mark s1", "1:8: mark needs the id of a resource");
    fault("place desk as", "1:14: place needs a label behind as");
    fault("failover desk", "1:14: failover needs from=");
    fault("host set s1", "1:12: host set needs something to set");
    fault("expect p1", "1:10: expect needs something to expect of p1");
    fault("expect tally b", "1:15: expect needs hosts and how many each got");
    fault("latency s1 open_db mean=3ms", "1:28: latency needs calls");
    fault("ready s1", "1:9: ready needs yes or no");
    fault("via c2", "1:7: via needs a statement");
    fault("repeat 3", "1:9: repeat needs a statement");
    fault("warming s1", "1:11: warming needs lag=DURATION, or no");
    fault("show s1 /", "1:9: a statement is missing beside this /");
    fault("/ show s1", "1:1: a statement is missing beside this /");
}

#[test]
fn what_contradicts_itself_is_refused() {
    fault("report s1 cpu=1 cpu=2", r#"1:17: "cpu" is given twice"#);
    fault("ready s1 yes reason=x", r#"1:14: unknown key "reason" of ready"#);
    fault("outcome p1 connected cause=busy", r#"1:22: unknown key "cause" of outcome"#);
    fault("latency s1 o samples=1ms count=3", r#"1:26: unknown key "count" of latency"#);
    fault("place desk as tally", "1:15: a label cannot be");
    fault("every off s1 report", "1:20: every needs either report or off");
    fault("pool desk version=3", r#"1:11: unknown setting "version" of a pool"#);
}

#[test]
fn names_that_cannot_be_are_refused_where_they_stand() {
    fault("host <b> pool=desk", r#"1:6: "<b>": host name may only hold"#);
    fault("host s1 pool=", "1:14: pool is empty");
    fault(&format!("place desk request={}", "R".repeat(129)), r#"1:20: "RRR"#);
    fault("coordinator a,b", r#"1:13: "a,b" is no name, allowed: 1 to 128 characters"#);
    fault("session s1 alice", r#"1:12: "alice" neither comes nor goes, allowed: +user"#);
    fault("sessions s1 :active", "1:13: a session without a user");
}

#[test]
fn quotes_and_control_characters_are_pointed_at() {
    fault("seed 1\nready s1 no reason=\"never closed", "2:20: this quote is not closed on its line");
    fault("show s\u{1b}1", "1:7: control character U+001B");
    // Columns are characters, not bytes.
    fault("drain s1 reason=\"größe ☃\" mod=x", r#"1:27: unknown key "mod" of drain, did you mean mode?"#);
    fault("drain \"s1\" mod=x", r#"1:12: unknown key "mod" of drain, did you mean mode?"#);
}

#[test]
fn every_fault_of_the_file_is_reported_in_its_order() {
    let found = faults("sed 1\nreport s1 zpu=1 mem=x\nshow s1\nadvance 1 / show\n");
    let places: Vec<_> = found.iter().map(|fault| fault.split(": ").next().unwrap()).collect();
    assert_eq!(places, ["1:1", "2:11", "2:21", "4:9", "4:17"]);
}

#[test]
fn the_number_of_faults_is_bounded() {
    assert_eq!(faults(&"x\n".repeat(1000)).len(), MAX_ERRORS);
    let line: String = (0..1000).map(|n| format!(" k{n}=1 w{n}")).collect();
    for verb in ["report s1", "pool desk", "expect p1", "expect tally b", "sessions s1", "session s1"] {
        assert_eq!(faults(&format!("{verb}{line}")).len(), MAX_ERRORS, "{verb}");
    }
}

#[test]
fn what_is_too_large_or_no_text_is_refused() {
    let found = faults(&" ".repeat(MAX_BYTES + 1));
    assert_eq!(
        found,
        [format!("1:1: the scenario has {} bytes, allowed: at most {MAX_BYTES}", MAX_BYTES + 1)]
    );
    assert_eq!(parse(&" ".repeat(MAX_BYTES)), Ok(Vec::new()));
    let error = &parse_bytes(b"seed 1\n\xc3\xa4\xff").unwrap_err()[0];
    assert_eq!(error.to_string(), "2:2: the text is no UTF-8 from here on");
    assert_eq!(parse_bytes(b"seed 1").unwrap().len(), 1);
}
