//! What a scrape shows.

use std::{collections::BTreeMap, sync::atomic::AtomicU64};

use usher_types::HostState;

use super::*;

fn metrics() -> Metrics {
    Metrics::new("1.2.3", "abcdef")
}

#[track_caller]
fn assert_line(text: &str, line: &str) {
    assert!(text.lines().any(|found| found == line), "no line {line:?} in\n{text}");
}

#[test]
fn a_fresh_coordinator_shows_its_build_and_zeros() {
    let text = metrics().encode();
    assert_line(&text, "usher_coordinator_info{version=\"1.2.3\",commit=\"abcdef\"} 1");
    assert_line(&text, "usher_coordinator_streams_open 0");
    assert_line(&text, "usher_coordinator_calls_shed_total 0");
    assert!(!text.contains("usher_coordinator_hosts"), "no farm is known yet");
}

#[test]
fn what_happened_is_counted_by_reason() {
    let metrics = metrics();
    let pool = PoolName::new("desk").unwrap();
    metrics.place_answered(Some(&pool), "LOWEST_LOAD", Duration::from_micros(30));
    metrics.place_answered(Some(&pool), "LOWEST_LOAD", Duration::from_micros(30));
    metrics.place_answered(None, "UNKNOWN_POOL", Duration::from_micros(10));
    metrics.failover_asked("busy");
    metrics.consent_answered(ConsentAnswer::Silent);
    metrics.value_rejected("cpu_percent");
    metrics.store_committed(Duration::from_millis(2), false);
    let text = metrics.encode();
    for line in [
        "usher_coordinator_placements_total{pool=\"desk\",reason=\"LOWEST_LOAD\"} 2",
        "usher_coordinator_placements_total{pool=\"\",reason=\"UNKNOWN_POOL\"} 1",
        "usher_coordinator_place_duration_seconds_count 3",
        "usher_coordinator_failovers_total{cause=\"busy\"} 1",
        "usher_coordinator_consents_total{answer=\"silent\"} 1",
        "usher_coordinator_report_values_rejected_total{field=\"cpu_percent\"} 1",
        "usher_coordinator_store_commit_failures_total 1",
    ] {
        assert_line(&text, line);
    }
}

#[test]
fn a_stream_counts_while_it_is_open() {
    let metrics = metrics();
    let stream = metrics.stream_opened();
    assert_line(&metrics.encode(), "usher_coordinator_streams_open 1");
    drop(stream);
    assert_line(&metrics.encode(), "usher_coordinator_streams_open 0");
}

#[test]
fn the_farm_is_asked_at_every_scrape() {
    let metrics = metrics();
    let asked = Arc::new(AtomicU64::new(0));
    let counter = asked.clone();
    metrics.set_farm(move || {
        let reservations = counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let key = (PoolName::new("desk").unwrap(), HostState::Available);
        FarmFigures {
            hosts: BTreeMap::from([(key, 3)]),
            busy: BTreeMap::from([((PoolName::new("desk").unwrap(), "memory"), 2)]),
            replica_marks: BTreeMap::from([((PoolName::new("desk").unwrap(), "out_of_service"), 4)]),
            incomplete: BTreeMap::from([(PoolName::new("desk").unwrap(), 1)]),
            foreign_settings: BTreeMap::new(),
            reservations,
            decisions: 7,
        }
    });
    metrics.encode();
    let text = metrics.encode();
    assert_line(&text, "usher_coordinator_hosts{pool=\"desk\",state=\"AVAILABLE\"} 3");
    assert_line(&text, "usher_coordinator_hosts_busy{pool=\"desk\",reason=\"memory\"} 2");
    assert_line(&text, "usher_coordinator_hosts_incomplete{pool=\"desk\"} 1");
    assert_line(&text, "usher_coordinator_replica_marks{pool=\"desk\",mark=\"out_of_service\"} 4");
    assert_line(&text, "usher_coordinator_reservations 1");
    assert_line(&text, "usher_coordinator_decisions_kept 7");
}

#[test]
fn every_series_says_what_it_counts() {
    let metrics = metrics();
    metrics.set_farm(FarmFigures::default);
    metrics.place_answered(None, "STALE", Duration::ZERO);
    metrics.failover_asked("busy");
    metrics.login_redirected("maxusers");
    metrics.consent_answered(ConsentAnswer::Admitted);
    metrics.consent_answered(ConsentAnswer::Refused);
    metrics.report_taken("load");
    metrics.something_dropped("decision");
    metrics.value_rejected("cpu_percent");
    metrics.marked("host");
    let text = metrics.encode();
    let helps = text.lines().filter(|line| line.starts_with("# HELP")).count();
    let types = text.lines().filter(|line| line.starts_with("# TYPE")).count();
    assert_eq!((helps, types), (30, 30), "{text}");
    for line in text.lines().filter(|line| line.starts_with("# HELP")) {
        assert!(line.split_whitespace().count() > 8 && !line.contains(".."), "{line}");
    }
}
