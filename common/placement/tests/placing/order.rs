//! Which class of hosts comes first, whatever the loads.

use std::{sync::Arc, time::Duration};

use usher_placement::decision::{
    Decision, Excluded, Flags, PlacementReason, RefusalKind, Request, Tier, Words,
};
use usher_types::{
    GatewayId, HostMarks, HostState, Load, Penalty, PenaltyCause, PendingLimit, PendingMode, PolicyChange,
    ReplicaMark, RequestId, ResourceId, SessionState, Token,
};

use crate::support::*;

fn penalty(gateway: Option<&str>, left_s: u64) -> Penalty {
    Penalty {
        gateway: gateway.map(|name| GatewayId::new(name).unwrap()),
        cause: PenaltyCause::Failed,
        left: Duration::from_secs(left_s),
        times: 1,
    }
}

fn penalised(count: u32, penalties: Vec<Penalty>) -> Load {
    Load { penalties, ..users(count) }
}

fn through(gateway: &str, request: &str) -> Request {
    let token =
        Token { gateway: GatewayId::new(gateway).unwrap(), request_id: RequestId::new(request).unwrap() };
    Request { token, dry_run: true, ..ask(request) }
}

// rule: order-tier AVAILABLE, WARMING, BUSY, UNKNOWN
// rule: state-warming before BUSY, after AVAILABLE
#[test]
fn the_tiers_come_in_the_order_of_the_states() {
    let mut sim = Sim::of_users(&[("available", 90), ("warming", 50), ("busy", 10)]);
    sim.apply(PolicyChange { allow_unknown: Some(true), ..PolicyChange::default() });
    sim.report("warming", Load { is_warming_up: true, ..users(50) });
    sim.set_marks("busy", HostMarks { busy: true, ..HostMarks::default() });
    sim.attach("unknown");
    let mut exclude: Vec<String> = Vec::new();
    for (host, tier, all_busy) in [
        ("available", Tier::Available, false),
        ("warming", Tier::Warming, false),
        ("busy", Tier::Busy, true),
        ("unknown", Tier::Unknown, false),
    ] {
        let placed = sim.place(&Request { exclude: exclude.clone(), dry_run: true, ..ask("r") });
        assert_eq!((placed.host(), placed.choice().tier), (host, tier));
        assert_eq!(placed.choice().flags.has(Flags::ALL_BUSY), all_busy);
        exclude.push(host.into());
    }
}

// rule: order-penalised
#[test]
fn case_106_a_penalised_host_comes_last_even_behind_a_busy_one() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 50)]);
    sim.apply(PolicyChange { threshold_percent: Some(30.0), ..PolicyChange::default() });
    sim.available("b", 10.0);
    sim.report("a", penalised(1, vec![penalty(None, 60)]));
    assert_eq!(sim.place(&through("g1", "r1")).host(), "b");
    let only = Request { exclude: vec!["b".into()], ..through("g1", "r2") };
    assert_eq!(sim.place(&only).host(), "a", "nobody better is left");
    assert_eq!(sim.explain(&ask("r")).hosts[1].penalised, Some(PenaltyCause::Failed));
}

// rule: penalty-own-gateway
#[test]
fn a_penalty_of_one_gateway_holds_for_its_logins_only() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 50)]);
    sim.report("a", penalised(1, vec![penalty(Some("sick"), 60)]));
    assert_eq!(sim.place(&through("sick", "r1")).host(), "b");
    assert_eq!(sim.place(&through("well", "r2")).host(), "a");
}

// rule: penalty-length when its time is over, one logon at a time
#[test]
fn after_its_time_a_penalised_host_takes_one_logon_at_a_time() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 50)]);
    sim.report("a", penalised(1, vec![penalty(None, 3)]));
    sim.pass(2);
    assert_eq!(sim.place(&ask("r1")).host(), "b");
    sim.pass(1);
    assert_eq!(sim.place(&ask("r2")).host(), "a");
    assert_eq!(sim.place(&ask("r3")).host(), "b", "while one is on its way");
}

// rule: preferred not if it is penalised
// rule: own-penalised
#[test]
fn neither_the_home_server_nor_a_place_on_its_way_counts_on_a_penalised_host() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 50)]);
    assert_eq!(sim.place(&ask_for("r1", "u1")).host(), "a");
    sim.report(
        "a",
        Load { pending: vec![listed("r1", Some("u1"), 1, 100)], ..penalised(1, vec![penalty(None, 60)]) },
    );
    let home = Request { prefer_host: Some("a".into()), ..ask_for("r2", "u1") };
    let placed = sim.place(&home);
    assert_eq!((placed.host(), placed.choice().reason), ("b", PlacementReason::LowestLoad));
    let why = placed.choice().redirect.unwrap();
    assert_eq!((why.position, why.why.label()), (0, "penalised"));
    // Even if both are: then it is one of several bad ones, and no home.
    sim.report("b", penalised(0, vec![penalty(None, 60)]));
    let home = Request { token: token("r3"), user: None, ..home };
    assert_eq!(sim.place(&home).choice().reason, PlacementReason::LowestLoad);
    // A session there holds all the same: that is where the user's work is.
    sim.sessions("a", &[session("1", "u1", SessionState::Active, 60)]);
    assert!(matches!(sim.place(&ask_for("r4", "u1")).decision, Decision::OwnSession { .. }));
}

fn pending_limit(logons: u32, mode: PendingMode) -> PolicyChange {
    PolicyChange {
        max_pending: Some(PendingLimit::Logons(logons)),
        max_pending_mode: Some(mode),
        ..PolicyChange::default()
    }
}

// rule: order-pending
#[test]
fn case_092_hosts_below_the_pending_limit_come_first() {
    let names: Vec<String> = (0..20).map(|n| format!("h{n}")).collect();
    let hosts: Vec<(&str, u32)> =
        names.iter().zip(0u32..).map(|(name, n)| (name.as_str(), if n == 0 { 0 } else { 80 })).collect();
    let mut sim = Sim::of_users(&hosts);
    sim.apply(pending_limit(4, PendingMode::Soft));
    for n in 0..40 {
        assert!(!sim.place(&ask(&format!("r{n}"))).choice().flags.has(Flags::OVER_PENDING));
    }
    let given: Vec<u32> = names.iter().map(|name| sim.word(name).places()).collect();
    assert_eq!(given[0], 4);
    assert!(given[1..].iter().all(|places| *places <= 2), "{given:?}");
}

// rule: pending-soft
#[test]
fn with_all_at_a_soft_limit_the_best_takes_it_and_the_answer_says_so() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 9)]);
    sim.apply(pending_limit(1, PendingMode::Soft));
    assert_eq!(sim.place(&ask("r1")).host(), "a");
    assert_eq!(sim.place(&ask("r2")).host(), "b");
    let placed = sim.place(&ask("r3"));
    assert_eq!((placed.host(), placed.choice().flags.has(Flags::OVER_PENDING)), ("a", true));
    assert_eq!(placed.choice().limits, None, "nobody is asked under a soft limit");
    assert_eq!(sim.explain(&ask("r")).hosts[0].logons_in_progress, Some(2));
}

// rule: pending-hard case_114: refused with the time until the oldest place ends
// rule: error-max-pending
// rule: consent-asked under a hard limit of logons
#[test]
fn with_all_at_a_hard_limit_it_is_refused_until_the_first_place_ends() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 9)]);
    sim.apply(pending_limit(1, PendingMode::Hard));
    let placed = sim.place(&ask("r1"));
    assert_eq!(placed.choice().limits.unwrap().max_pending, Some(1));
    sim.pass(10);
    assert_eq!(sim.place(&ask("r2")).host(), "b");
    let refused = sim.place(&ask("r3"));
    let refusal = refused.refusal();
    assert_eq!((refusal.kind, refusal.at_limit.len()), (RefusalKind::MaxPending, 2));
    assert_eq!(refusal.retry_after, Some(Duration::from_secs(110)), "the place of 10 s ago, of 120 s");
    sim.end("r2", usher_types::EndReason::Cancelled);
    assert_eq!(sim.place(&ask("r4")).host(), "b");
}

// rule: error-max-users full comes before a pending limit
#[test]
fn of_full_and_busy_with_logons_full_is_named() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 10)]);
    sim.apply(PolicyChange { max_users: limit(10), ..pending_limit(1, PendingMode::Hard) });
    assert_eq!(sim.place(&ask("r1")).host(), "a");
    let refused = sim.place(&ask("r2"));
    assert_eq!(refused.refusal().kind, RefusalKind::MaxUsers);
    let rules: Vec<Excluded> = refused.refusal().hosts.iter().map(|(_, why)| *why).collect();
    assert_eq!(rules, [Excluded::MaxPending, Excluded::State(HostState::MaxUsers)]);
}

// rule: consent-share a reporter with a limit, under two coordinators
#[test]
fn a_reporter_gives_each_coordinator_its_share_of_users_and_of_logons() {
    let reporter = |limits: PolicyChange| {
        let mut sim = Sim::new();
        sim.apply(limits);
        let hello = usher_types::Hello { is_reporter: true, ..hello("r") };
        sim.farm.attach(&hello, None, false).unwrap();
        sim.report("r", Load { streams_held: 2, ..users(4) });
        sim
    };
    let mut sim = reporter(PolicyChange { max_users: limit(9), ..PolicyChange::default() });
    for n in 0..2 {
        let placed = sim.place(&ask(&format!("r{n}")));
        assert_eq!(placed.choice().limits, None, "it cannot be asked");
    }
    assert_eq!(sim.place(&ask("r2")).refusal().hosts, [(0, Excluded::OutOfShare)]);
    let mut sim = reporter(pending_limit(5, PendingMode::Hard));
    for n in 0..2 {
        sim.place(&ask(&format!("r{n}")));
    }
    let refused = sim.place(&ask("r2"));
    assert_eq!(refused.refusal().hosts, [(0, Excluded::MaxPending)]);
    assert_eq!(refused.refusal().kind, RefusalKind::MaxPending);
}

fn crm(request: &str) -> Request {
    Request { resource: Some(ResourceId::new("crm").unwrap()), ..ask(request) }
}

// rule: candidate-mark
// rule: error-out-of-service
#[test]
fn a_marked_copy_takes_nobody_and_if_all_are_marked_the_error_says_so() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 9), ("c", 0)]);
    sim.serves("a", &["crm"]);
    sim.serves("b", &["crm"]);
    sim.mark_replica("a", "crm", Some(ReplicaMark::OutOfService));
    assert_eq!(sim.place(&crm("r1")).host(), "b");
    assert_eq!(sim.place(&ask("r2")).host(), "c", "other resources are not marked");
    let excluded = Request { exclude: vec!["b".into()], ..crm("r3") };
    assert_eq!(sim.place(&excluded).refusal().kind, RefusalKind::OutOfService);
    sim.mark_replica("b", "crm", Some(ReplicaMark::PendingDelete));
    let refused = sim.place(&crm("r4"));
    assert_eq!((refused.refusal().kind, refused.refusal().retry_after), (RefusalKind::OutOfService, None));
    let rules: Vec<Excluded> = refused.refusal().hosts.iter().map(|(_, why)| *why).collect();
    let marked = [ReplicaMark::OutOfService, ReplicaMark::PendingDelete].map(Excluded::OutOfService);
    assert_eq!(rules, marked, "of holders only");
    sim.mark_replica("a", "crm", None);
    assert_eq!(sim.place(&crm("r5")).host(), "a");
    let nobody = Request { exclude: vec!["a".into(), "b".into()], ..crm("r6") };
    assert_eq!(sim.place(&nobody).refusal().kind, RefusalKind::AllExcluded);
}

// rule: error-all-restricted a copy out of service is no candidate that could be drained
#[test]
fn of_the_holders_left_all_drained_is_named_so() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 9)]);
    sim.serves("a", &["crm"]);
    sim.serves("b", &["crm"]);
    sim.mark_replica("a", "crm", Some(ReplicaMark::OutOfService));
    sim.drain("b", usher_types::DrainMode::Persistent, false);
    assert_eq!(sim.place(&crm("r1")).refusal().kind, RefusalKind::AllRestricted);
}

// rule: user-names unequal key ids are flagged
#[test]
fn names_hashed_with_another_key_make_affinity_unknown() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 9)]);
    let change = PolicyChange { user_names: Some(usher_types::UserNames::Hashed), ..PolicyChange::default() };
    sim.sessions("b", &[session("1", "hmac:aa:11", SessionState::Active, 60)]);
    let flagged = |sim: &mut Sim, user: &str| {
        let placed = sim.place(&Request { dry_run: true, ..ask_for("r", user) });
        matches!(&placed.decision, Decision::Take(choice) if choice.flags.has(Flags::AFFINITY_UNKNOWN))
    };
    assert!(!flagged(&mut sim, "hmac:bb:11"), "names are plain: there is no key");
    sim.apply(change);
    assert!(flagged(&mut sim, "hmac:bb:11"));
    assert!(flagged(&mut sim, "u1"), "a plain name among hashed ones");
    assert!(!flagged(&mut sim, "hmac:aa:22"));
    assert_eq!(sim.place(&ask_for("r1", "hmac:aa:11")).host(), "b", "and the same hash is the same user");
}

// rule: redirect
#[test]
fn whoever_was_passed_over_is_named_with_the_reason() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 9)]);
    let label = |placed: &Placed| placed.decision.redirect().map(|redirect| redirect.why.label());
    let home = Request { prefer_host: Some("b".into()), dry_run: true, ..ask("r") };
    assert_eq!(label(&sim.place(&home)), None, "it was chosen");
    sim.set_marks("b", HostMarks { busy: true, ..HostMarks::default() });
    assert_eq!(label(&sim.place(&home)), Some("busy"));
    sim.drain("b", usher_types::DrainMode::Persistent, true);
    assert_eq!(label(&sim.place(&home)), Some("restricted"));
    // The user's own session comes before their home server.
    sim.sessions("b", &[session("1", "u1", SessionState::Active, 60)]);
    let own = Request { user: Some("u1".into()), prefer_host: Some("a".into()), ..home };
    assert_eq!(label(&sim.place(&own)), Some("restricted"));
    let from = Request { dry_run: true, ..failover("r", "b", &[], usher_types::FailureCause::Refused) };
    assert_eq!(label(&sim.place(&from)), Some("refused"));
    sim.apply(PolicyChange { max_users: limit(9), ..PolicyChange::default() });
    sim.farm.set_drain(&id("b"), None);
    let home = Request { prefer_host: Some("b".into()), dry_run: true, ..ask("r") };
    assert_eq!(label(&sim.place(&home)), Some("maxusers"));
}

// rule: tie-draw more are drawn in large pools
#[test]
fn a_draw_of_a_class_of_few_is_the_class() {
    let mut sim = Sim::new();
    sim.apply(PolicyChange { weights: only_users(), ..PolicyChange::default() });
    for (host, count) in [("a", 3), ("b", 2), ("c", 1)] {
        sim.attach(host);
        sim.report(host, Load { streams_held: 3, ..users(count) });
    }
    for n in 0..20 {
        assert_eq!(sim.place(&Request { dry_run: true, ..ask(&format!("r{n}")) }).host(), "c");
    }
}

// rule: explain-reduced
#[test]
fn a_reduced_explanation_keeps_the_chosen_the_best_and_the_counts() {
    let names: Vec<String> = (0..40).map(|n| format!("h{n}")).collect();
    let hosts: Vec<(&str, u32)> = names.iter().zip(1..).map(|(name, n)| (name.as_str(), n)).collect();
    let mut sim = Sim::of_users(&hosts);
    sim.drain("h0", usher_types::DrainMode::Persistent, false);
    sim.drain("h1", usher_types::DrainMode::Persistent, false);
    let request = Request { exclude: vec!["h2".into()], ..ask("r1") };
    let full = sim.explain(&request);
    assert_eq!((full.hosts.len(), full.is_reduced), (40, false));
    let reduced = full.clone().reduce();
    assert_eq!((reduced.hosts.len(), reduced.is_reduced), (17, true));
    assert_eq!(reduced.hosts, full.hosts[..17]);
    let counts: Vec<(&str, u32)> = reduced.excluded_counts.into_iter().collect();
    assert_eq!(counts, [("RESTRICTED", 2), ("excluded by the request", 1)]);
    // The host of an own session is kept though it is no candidate.
    sim.sessions("h0", &[session("1", "u1", SessionState::Active, 60)]);
    let own = sim.explain(&ask_for("r2", "u1")).reduce();
    assert_eq!((own.hosts.len(), own.hosts[0].position, own.hosts[0].rank), (17, 0, None));
}

// rule: explain-only-used
#[test]
fn an_explanation_shows_only_what_the_method_used() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 9)]);
    sim.available("a", 50.0);
    sim.drain("b", usher_types::DrainMode::Persistent, false);
    let by_load = sim.explain(&ask("r"));
    let (a, b) = (&by_load.hosts[0], &by_load.hosts[1]);
    assert!(a.terms.is_some() && a.numbers.cpu_percent.is_some() && by_load.top_users.is_some());
    assert_eq!((a.availability_index, a.logons_in_progress, a.filled_share), (None, None, None));
    assert_eq!((b.score, b.terms, b.tier, b.rank), (None, None, None, None), "its state excludes it");
    assert_eq!(b.excluded, Some(Excluded::State(HostState::Restricted)));

    let change = PolicyChange { method: Some(usher_types::Method::Availability), ..PolicyChange::default() };
    sim.apply(change);
    let by_index = sim.explain(&ask("r"));
    let a = &by_index.hosts[0];
    assert!(a.expansion_factor.is_some() && a.availability_index.is_some() && a.numbers.users == Some(1));
    assert_eq!((a.terms, a.numbers.cpu_percent, a.numbers.capacity), (None, None, None));
    assert_eq!((by_index.top_users, by_index.top_processes), (None, None));
    assert!((a.score.unwrap() - a.expansion_factor.unwrap()).abs() < 1e-9);
}

// rule: explain-same without the name
#[test]
fn a_decision_does_not_look_at_the_login_name_itself() {
    let mut sim = Sim::of_users(&[("a", 1), ("b", 9)]);
    sim.sessions("b", &[session("1", "u1", SessionState::Active, 60)]);
    let (pool, request) = (sim.pool(), ask_for("r1", "u1"));
    let user = usher_placement::decision::UserTrace::find(&pool, &Arc::clone(&sim.ledger), Some("U1"));
    let nameless = Request { user: None, ..request };
    let words = pool.words();
    let decision = usher_placement::decision::decide(&usher_placement::decision::Inputs {
        pool: &pool,
        words: Words::All(&words),
        request: &nameless,
        user: &user,
        unwilling: &[],
        doors: &[],
        now: sim.now,
        seed: 1,
    });
    assert!(matches!(decision, Decision::OwnSession { position: 1, .. }));
    assert!(!format!("{user:?}").contains("u1"));
}
