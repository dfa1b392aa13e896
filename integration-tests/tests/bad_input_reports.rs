//! Can an agent that is broken or hostile harm anybody but its own host?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tonic::{Code, Status};
use usher_integration_tests::{
    Client, FakeAgent, Farm, LONG, hello, http_get, load, operation, place, reason, refusal, wait_until,
};
use usher_proto::error::error_info;
use usher_proto::v1;
use usher_proto::v1::attach_request::Message as Said;
use usher_proto::v1::attach_response::Message as Heard;

const NOT_NUMBERS: [f64; 3] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];

/// The fault of a report: what it is called, and how it comes about.
type Fault = (&'static str, Box<dyn Fn(&mut v1::Load)>);

fn fault(field: &'static str, change: impl Fn(&mut v1::Load) + 'static) -> Fault {
    (field, Box::new(change))
}

/// These values of a number, and those that are no numbers.
fn numbers(
    field: &'static str,
    wrong: &[f64],
    set: fn(&mut v1::Load) -> &mut Option<f64>,
) -> impl Iterator<Item = Fault> {
    let all: Vec<f64> = wrong.iter().copied().chain(NOT_NUMBERS).collect();
    all.into_iter().map(move |value| fault(field, move |load| *set(load) = Some(value)))
}

fn pending_place() -> v1::PendingPlace {
    v1::PendingPlace {
        token: Some(v1::Token { gateway: "g1".into(), request_id: "R1".into() }),
        attempt: 1,
        content_hash: 7,
        pool: "desk".into(),
        endpoint: Some(v1::Endpoint { kind: "ssh".into(), address: "192.0.2.1".into(), port: 22 }),
        cost: 1,
        counted_users: 1,
        left_ms: 60_000,
        ..Default::default()
    }
}

fn pending(change: impl Fn(&mut v1::PendingPlace) + 'static) -> Fault {
    fault("pending", move |load| {
        let mut place = pending_place();
        change(&mut place);
        load.pending = vec![place];
    })
}

fn ended(change: impl Fn(&mut v1::EndedPlace) + 'static) -> Fault {
    fault("ended", move |load| {
        let place = pending_place();
        let mut ended = v1::EndedPlace {
            token: place.token,
            attempt: 1,
            reason: v1::EndReason::Session.into(),
            pool: place.pool,
            endpoint: place.endpoint,
            ..Default::default()
        };
        change(&mut ended);
        load.ended = vec![ended];
    })
}

fn faults_of_a_load() -> Vec<Fault> {
    let mut faults: Vec<Fault> = vec![
        // Kilobytes taken for bytes: more is used than there is.
        fault("memory_used_bytes", |load| {
            load.memory_total_bytes = Some(65_595_448);
            load.memory_used_bytes = Some(15_000_000_000);
        }),
        fault("memory_used_bytes", |load| load.memory_total_bytes = None),
        fault("memory_used_bytes", |load| load.memory_total_bytes = Some(0)),
        fault("max_users", |load| {
            load.max_users = Some(v1::UserLimit { limit: Some(v1::user_limit::Limit::Users(0)) });
        }),
        fault("max_users", |load| load.max_users = Some(v1::UserLimit { limit: None })),
        fault("sessions_", |load| load.sessions_active = Some(3)),
        pending(|place| place.cost = 0),
        pending(|place| place.cost = 101),
        pending(|place| place.counted_users = 2),
        pending(|place| place.attempt = 0),
        pending(|place| place.left_ms = u64::MAX),
        pending(|place| place.token = None),
        pending(|place| place.token.as_mut().unwrap().request_id.clear()),
        pending(|place| place.token.as_mut().unwrap().gateway = "x".repeat(129)),
        pending(|place| place.pool.clear()),
        pending(|place| place.endpoint = None),
        pending(|place| place.endpoint.as_mut().unwrap().port = 0),
        pending(|place| place.endpoint.as_mut().unwrap().port = 65_536),
        pending(|place| place.user = Some("u".repeat(257))),
        ended(|place| place.reason = 99),
        ended(|place| place.attempt = 0),
        fault("pending", |load| load.pending = vec![v1::PendingPlace::default(); 20_000]),
        fault("collectors", |load| load.collectors = vec![v1::CollectorState::default()]),
    ];
    faults.extend(numbers("cpu_percent", &[-0.1, 100.1, f64::MAX], |load| &mut load.cpu_percent));
    faults.extend(numbers("runnable_demand", &[-1.0, 1e300], |load| &mut load.runnable_demand));
    faults.extend(numbers("capacity", &[0.0, -1.0, 1e9], |load| &mut load.capacity));
    faults.extend(numbers("threshold_percent", &[-1.0, 100.5], |load| &mut load.threshold_percent));
    faults.extend(numbers("range", &[0.0, 0.99, 30.1], |load| &mut load.range));
    faults
}

/// A farm with one host that behaves, beside which others do not.
struct WithGoodHost {
    farm: Farm,
    client: Client,
    good: FakeAgent,
    calls: u32,
}

impl WithGoodHost {
    async fn start() -> Self {
        let farm = Farm::start().await;
        let client = farm.client();
        let mut good = FakeAgent::attach(&client, hello("good")).await.unwrap();
        good.report(load(10.0, 10.0, 1, 10)).await;
        Self { farm, client, good, calls: 0 }
    }

    /// The process, the other stream, and a call.
    async fn is_well(&mut self) {
        self.calls += 1;
        self.good.report(load(10.0, 10.0, self.calls, 10)).await;
        let request = v1::PlaceRequest { dry_run: true, ..place("desk", &format!("R{}", self.calls)) };
        self.client.place(request).await.unwrap();
        assert!(self.farm.coordinator.is_running());
    }

    async fn rejected(&self, host: &FakeAgent) -> u64 {
        self.client.host(host.id()).await.unwrap().rejected_values
    }

    /// Nothing that is no number is shown to anybody.
    async fn shows_numbers(&self) {
        for host in self.client.hosts().await.unwrap() {
            let finite = [host.availability_index, host.cpu_percent, host.memory_percent];
            assert!(finite.into_iter().flatten().all(f64::is_finite), "{host:?}");
            assert!(host.expansion_factor.is_none_or(|factor| factor >= 1.0), "{host:?}");
        }
        let shown = self.farm.ctl(&["hosts", "--json"]).await.exited(0).stdout;
        assert!(!shown.contains("NaN") && !shown.contains("inf"), "{shown}");
    }
}

#[tokio::test]
async fn case_014_each_wrong_number_of_a_report_is_dropped_counted_and_named() {
    let mut farm = WithGoodHost::start().await;
    let mut bad = FakeAgent::attach(&farm.client, hello("bad")).await.unwrap();
    let good_load = || load(35.0, 55.0, 7, 70);
    let mut last = bad.report(good_load()).await.rejected_values;
    for (field, change) in faults_of_a_load() {
        let mut wrong = good_load();
        change(&mut wrong);
        let host = bad.report(wrong).await;
        assert!(host.rejected_values > last, "{field}: {host:?}");
        last = host.rejected_values;
        // What was good is believed, what was not keeps its last value, and no place came of it.
        let memory = host.memory_percent.unwrap();
        assert!((memory - 55.0).abs() < 1e-6, "{field}: {host:?}");
        assert_eq!(
            (host.cpu_percent, host.users, host.processes),
            (Some(35.0), Some(7), Some(70)),
            "{field}"
        );
        assert_eq!((host.capacity, host.max_users, host.pending_places), (1.0, None, 0), "{field}");
        let stale = |metric: &str| host.flags.iter().any(|flag| flag == metric);
        assert_eq!(stale("stale_memory"), field == "memory_used_bytes", "{field}: {:?}", host.flags);
        assert_eq!(stale("stale_cpu"), field == "cpu_percent", "{field}: {:?}", host.flags);
        let host = bad.report(good_load()).await;
        assert_eq!(
            (host.rejected_values, host.flags.iter().any(|flag| flag.starts_with("stale"))),
            (last, false)
        );
    }
    farm.shows_numbers().await;
    farm.is_well().await;
    let metrics = http_get(farm.farm.coordinator.http, "/metrics").await.body;
    for field in ["cpu_percent", "memory_used_bytes", "capacity", "range", "threshold_percent", "pending"] {
        let line = format!("usher_coordinator_report_values_rejected_total{{field=\"{field}\"}}");
        assert!(metrics.contains(&line), "{line} not in {metrics}");
    }
}

#[tokio::test]
async fn the_largest_numbers_that_a_report_can_hold_break_nothing() {
    let mut farm = WithGoodHost::start().await;
    let mut bad = FakeAgent::attach(&farm.client, hello("bad")).await.unwrap();
    let most = v1::Load {
        cpu_percent: Some(100.0),
        runnable_demand: Some(1e6),
        memory_used_bytes: Some(u64::MAX),
        memory_total_bytes: Some(u64::MAX),
        sessions_active: Some(u32::MAX),
        sessions_disconnected: Some(u32::MAX),
        sessions_lingering: Some(u32::MAX),
        settings_version: Some(u64::MAX),
        streams_held: u32::MAX,
        wall_clock_unix_ms: Some(u64::MAX),
        capacity: Some(f64::MIN_POSITIVE),
        ..load(100.0, 100.0, u32::MAX, u32::MAX)
    };
    bad.report(most).await;
    for window in [
        v1::OperationWindow { baseline_us: Some(f64::MIN_POSITIVE), ..operation("A", 1e18, 1e-3) },
        v1::OperationWindow { baseline_us: Some(5e-324), sum_us: 1e18, ..operation("B", 5.0, 1.0) },
        v1::OperationWindow { baseline_us: Some(1e18), ..operation("C", 5e-324, 1.0) },
        v1::OperationWindow {
            in_flight: u32::MAX,
            oldest_in_flight_ms: Some(u64::MAX),
            baseline_age_ms: Some(u64::MAX),
            baseline_samples: u64::MAX,
            failed: 1e18,
            too_long: 1e18,
            ..operation("D", 0.0, 1.0)
        },
    ] {
        bad.latency(vec![window]).await;
        farm.shows_numbers().await;
        farm.is_well().await;
    }
    let placed = farm.client.place(place("desk", "login")).await.unwrap();
    let explained = farm.client.explain(&placed.decision_id).await.unwrap();
    for terms in explained.hosts.iter().filter_map(|host| host.terms.as_ref()) {
        let sum = terms.cpu + terms.memory + terms.users + terms.processes;
        assert!(sum.is_finite() && (sum - terms.weighted_load).abs() < 0.01, "{terms:?}");
    }
}

#[tokio::test]
async fn case_041_a_window_with_a_number_that_is_none_is_dropped_by_operation() {
    let mut farm = WithGoodHost::start().await;
    let mut bad = FakeAgent::attach(&farm.client, hello("bad")).await.unwrap();
    let set: [fn(&mut v1::OperationWindow, f64); 6] = [
        |window, value| window.ok = value,
        |window, value| window.failed = value,
        |window, value| window.too_long = value,
        |window, value| window.sum_us = value,
        |window, value| window.min_us = Some(value),
        |window, value| window.baseline_us = Some(value),
    ];
    let good = operation("GOOD", 100.0, 4.0);
    let mut uptime = 0;
    for change in set {
        for value in NOT_NUMBERS.into_iter().chain([-1.0, 1e300]) {
            let before = farm.rejected(&bad).await;
            let mut window = operation("BAD", 100.0, 64.0);
            change(&mut window, value);
            let latency = v1::Latency { operations: vec![window, good.clone()], ..Default::default() };
            bad.say(Said::Latency(latency)).await;
            // Messages of a stream are taken in order.
            uptime += 1;
            let host = bad.report(load(10.0, 10.0, uptime, 10)).await;
            assert!(host.rejected_values > before, "{host:?}");
            // The other operation counts; one without a baseline takes no part.
            assert!(host.expansion_factor.is_some_and(|xf| xf.is_finite() && xf >= 1.0), "{host:?}");
        }
    }
    let before = farm.rejected(&bad).await;
    let names = ["", "a b", "x\n", &"x".repeat(129)].map(|name| operation(name, 10.0, 2.0));
    let twice = [good.clone(), good];
    let operations = names.into_iter().chain(twice).collect();
    bad.say(Said::Latency(v1::Latency { operations, ..Default::default() })).await;
    let host = bad.report(load(10.0, 10.0, 0, 10)).await;
    assert_eq!(host.rejected_values, before + 5);
    assert!((host.expansion_factor.unwrap() - 4.0).abs() < 1e-9, "{host:?}");
    farm.shows_numbers().await;
    farm.is_well().await;
}

#[tokio::test]
async fn each_wrong_field_of_a_hello_is_refused_by_name() {
    let mut farm = WithGoodHost::start().await;
    type Change = fn(&mut v1::Hello);
    let wrong: [(&str, Change); 22] = [
        ("protocol_version", |hello| hello.protocol_version = 0),
        ("protocol_version", |hello| hello.protocol_version = 2),
        ("agent_version", |hello| hello.agent_version.clear()),
        ("host_id", |hello| hello.host_id.clear()),
        ("host_id", |hello| hello.host_id = "../../etc".into()),
        ("boot_id", |hello| hello.boot_id.clear()),
        ("host_name", |hello| hello.host_name.clear()),
        ("host_name", |hello| hello.host_name = "a b\n".into()),
        ("endpoints", |hello| hello.endpoints.clear()),
        ("endpoints[0].port", |hello| hello.endpoints[0].port = 0),
        ("endpoints[0].port", |hello| hello.endpoints[0].port = 65_536),
        ("endpoints[0].address", |hello| hello.endpoints[0].address.clear()),
        ("labels", |hello| hello.labels = (0..65).map(|n| (n.to_string(), String::new())).collect()),
        ("pool", |hello| hello.pool.clear()),
        ("zone", |hello| hello.zone = Some("z".repeat(129))),
        ("cores", |hello| hello.cores = Some(0)),
        ("memory_bytes", |hello| hello.memory_bytes = Some(0)),
        ("report_interval_ms", |hello| hello.report_interval_ms = 0),
        ("report_interval_ms", |hello| hello.report_interval_ms = 99),
        ("report_interval_ms", |hello| hello.report_interval_ms = 3_600_001),
        ("latency_period_ms", |hello| hello.latency_period_ms = 99),
        ("latency_period_ms", |hello| hello.latency_period_ms = 300_001),
    ];
    for (field, change) in wrong {
        let mut bad = hello("bad");
        change(&mut bad);
        let refused = FakeAgent::attach(&farm.client, bad).await.map(|_| ());
        let status = refusal(refused, Code::InvalidArgument, "INVALID_FIELD");
        assert_eq!(error_info(&status).unwrap().metadata["field"], field, "{status:?}");
        assert!(status.message().contains(field), "{status:?}");
    }
    assert_eq!(farm.client.hosts().await.unwrap().len(), 1, "none of them is a host now");
    farm.is_well().await;
}

#[tokio::test]
async fn a_stream_introduces_itself_first_and_once() {
    let mut farm = WithGoodHost::start().await;
    for first in [
        Said::Load(load(1.0, 1.0, 1, 1)),
        Said::Pong(v1::Pong { nonce: 1 }),
        Said::Goodbye(v1::Goodbye::default()),
    ] {
        let opened = FakeAgent::open(&farm.client, first, hello("bad")).await.map(|_| ());
        refusal(opened, Code::InvalidArgument, "INVALID_FIELD");
    }
    // Whoever says nothing is not waited for for ever.
    let (_silent, queue) = tokio::sync::mpsc::channel::<v1::AttachRequest>(1);
    let stream = tokio_stream::wrappers::ReceiverStream::new(queue);
    let silent = farm.client.agents.clone().attach(stream).await.unwrap_err();
    assert_eq!(silent.code(), Code::DeadlineExceeded);

    // A second Hello, another name in it or not, changes nothing.
    let mut host = FakeAgent::attach(&farm.client, hello("once")).await.unwrap();
    host.report(load(20.0, 20.0, 2, 20)).await;
    host.say(Said::Hello(v1::Hello { host_id: farm.good.id().to_owned(), ..hello("twice") })).await;
    assert!(host.try_say(None).await, "a message of a later protocol");
    let seen = host.report(load(20.0, 20.0, 3, 20)).await;
    assert_eq!((seen.host_name.as_str(), seen.users), ("once", Some(3)));
    assert_eq!(farm.client.hosts().await.unwrap().len(), 2);
    farm.is_well().await;
}

#[tokio::test]
async fn modelled_hosts_are_taken_up_to_the_limit_and_each_of_them_again() {
    let farm = Farm::start().coordinator(|start| start.settings("[limits]\nmax_virtual_hosts = 2")).await;
    let client = farm.client();
    let modelled = |name: &str| v1::Hello { r#virtual: true, ..hello(name) };
    let m1 = modelled("m1");
    let first = FakeAgent::attach(&client, m1.clone()).await.unwrap();
    let _second = FakeAgent::attach(&client, modelled("m2")).await.unwrap();
    let third = FakeAgent::attach(&client, modelled("m3")).await.map(|_| ());
    let status = refusal(third, Code::ResourceExhausted, "MAX_VIRTUAL_HOSTS");
    assert!(
        status.message().contains("m3") && status.message().contains("limits.max_virtual_hosts"),
        "{status:?}"
    );
    let _real = FakeAgent::attach(&client, hello("real")).await.unwrap();
    drop(first);
    let again = v1::Hello { stream_epoch: 9, ..m1 };
    let _again = FakeAgent::attach(&client, again).await.unwrap();
}

#[tokio::test]
async fn a_modelled_host_is_refused_where_they_are_not_allowed() {
    let farm = Farm::start().coordinator(|start| start.without_virtual_hosts()).await;
    let client = farm.client();
    let modelled = v1::Hello { r#virtual: true, ..hello("model") };
    let refused = FakeAgent::attach(&client, modelled).await.map(|_| ());
    let status = refusal(refused, Code::PermissionDenied, "NOT_AUTHORIZED");
    assert!(status.message().contains("allow_virtual") && status.message().contains("model"), "{status:?}");
    let mut agent = farm.agent("models").modelled(2).without_waiting().await;
    wait_until("the agent to say why", LONG, async || agent.log().contains("allow_virtual")).await;
    assert!(agent.is_running(), "it keeps trying: the setting may change");
    assert!(client.hosts().await.unwrap().is_empty());
    let _real = farm.agent("real").await;
    assert_eq!(client.place(place("desk", "R1")).await.unwrap().host_name, "real");
}

#[tokio::test]
async fn unknown_words_of_a_stream_are_dropped_and_never_taken_for_consent() {
    let mut farm = WithGoodHost::start().await;
    let limit = v1::UserLimit { limit: Some(v1::user_limit::Limit::Users(50)) };
    let mut bad =
        FakeAgent::attach(&farm.client, v1::Hello { pool: "other".into(), ..hello("bad") }).await.unwrap();
    farm.client.apply("other", v1::Policy { max_users: Some(limit), ..Default::default() }).await.unwrap();
    bad.report(load(1.0, 1.0, 1, 1)).await;
    bad.say(Said::Goodbye(v1::Goodbye { reason: 99 })).await;
    let session = |state| v1::Session { id: "1".into(), user: "u".into(), state, age_ms: None };
    let page = v1::SessionsPage { last: true, sessions: vec![session(99), session(0)], ..Default::default() };
    bad.say(Said::SessionsPage(page)).await;
    let replicas = vec![v1::Replica::default()];
    bad.say(Said::InventoryPage(v1::InventoryPage { last: true, replicas, ..Default::default() })).await;
    bad.say(Said::SessionCheckAnswer(v1::SessionCheckAnswer { check_id: 12345, exists: Some(true) })).await;
    bad.say(Said::Pong(v1::Pong { nonce: 999 })).await;
    let host = bad.report(load(1.0, 1.0, 2, 1)).await;
    assert_eq!((host.connected, host.replicas), (true, 0));
    assert!(bad.ended().is_none());

    // An answer with a reason that nobody knows is no consent; one to another question neither.
    let gateway = farm.farm.gateway("g1");
    let call = tokio::spawn(async move { gateway.place(place("other", "R1")).await });
    let asked = |heard: &Heard| match heard {
        Heard::ExpectSession(expect) if expect.ask => expect.place.clone(),
        _ => None,
    };
    let place_asked = bad.hears("an ask", asked).await;
    let answer = |token, attempt, refused| Said::PlaceAnswer(v1::PlaceAnswer { token, attempt, refused });
    bad.say(answer(None, 1, None)).await;
    bad.say(answer(Some(v1::Token { gateway: "g1".into(), request_id: "R9".into() }), 1, None)).await;
    bad.say(answer(place_asked.token.clone(), 77, None)).await;
    bad.say(answer(place_asked.token, place_asked.attempt, Some(99))).await;
    let status: Status = call.await.unwrap().unwrap_err();
    assert_eq!(reason(&status), "NO_CONSENT", "{status:?}");
    farm.is_well().await;
}

#[tokio::test]
async fn a_message_of_five_megabytes_ends_its_own_stream_only() {
    let mut farm = WithGoodHost::start().await;
    let hello = hello("big");
    let mut big = FakeAgent::attach(&farm.client, hello.clone()).await.unwrap();
    big.report(load(10.0, 10.0, 1, 10)).await;
    let text = "x".repeat(5 * 1024 * 1024);
    big.say(Said::Load(v1::Load { not_ready_reason: Some(text), ..load(1.0, 1.0, 1, 1) })).await;
    // The library's own refusal, or the end of the stream.
    if let Err(status) = big.end(Duration::from_secs(30)).await {
        assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    }
    farm.is_well().await;
    assert!(farm.good.ended().is_none());
    let mut again = FakeAgent::attach(&farm.client, v1::Hello { stream_epoch: 2, ..hello }).await.unwrap();
    let host = again.report(load(10.0, 10.0, 5, 10)).await;
    assert_eq!((host.connected, host.users), (true, Some(5)));
}

#[tokio::test]
async fn a_host_that_makes_up_thousands_of_places_in_each_report_harms_nobody() {
    let mut farm = WithGoodHost::start().await;
    let bad = v1::Hello { pool: "other".into(), ..hello("bad") };
    let bad = FakeAgent::attach(&farm.client, bad).await.unwrap();
    let place_of = |round: usize, number: usize| {
        let token = v1::Token { gateway: "g1".into(), request_id: format!("R{round}-{number}") };
        v1::PendingPlace { token: Some(token), pool: "other".into(), ..pending_place() }
    };
    let floods: Vec<v1::Load> = (1..=150)
        .map(|round| v1::Load {
            sequence: round as u64,
            incarnation_ms: 1000,
            pending: (0..4095).map(|number| place_of(round, number)).collect(),
            ..load(1.0, 1.0, 1, 1)
        })
        .collect();
    let last = v1::Load { sequence: 151, incarnation_ms: 1000, ..load(1.0, 1.0, 77, 1) };
    let taken = AtomicBool::new(false);
    let flood = async {
        for report in floods.into_iter().chain([last]) {
            bad.say(Said::Load(report)).await;
        }
        bad.seen("its last report", |host| host.users == Some(77) && host.pending_places == 0).await;
        taken.store(true, Ordering::Relaxed);
    };
    // Nobody else's login waits for it, and nobody takes the coordinator for frozen.
    let logins = async {
        while !taken.load(Ordering::Relaxed) {
            let request = v1::PlaceRequest { dry_run: true, ..place("desk", "during") };
            farm.client.place(request).await.unwrap();
        }
    };
    tokio::join!(flood, logins);
    farm.is_well().await;
    // Remembered for a minute each, the 600 000 places would fill 400 MB.
    let resident_kb = resident_kb(farm.farm.coordinator.pid());
    assert!(resident_kb < 200_000, "{resident_kb} kB");
}

/// Memory of a process that is in RAM.
fn resident_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
