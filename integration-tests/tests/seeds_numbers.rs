//! Do running processes give the numbers that the documents of the field print?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::UdpSocket;

use tonic::Code;
use usher_integration_tests::{
    Client, FakeAgent, Farm, LONG, free_udp_port, hello, load, operation, place, refusal, wait_for, weights,
};
use usher_proto::error::retry_after;
use usher_proto::v1;

#[track_caller]
fn near(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance, "{found} is not {expected}");
}

async fn attached(client: &Client, name: &str, report: v1::Load) -> FakeAgent {
    let mut fake = FakeAgent::attach(client, hello(name)).await.unwrap();
    fake.report(report).await;
    fake
}

#[tokio::test]
async fn case_067_the_worked_example_with_every_term_in_the_explanation() {
    let farm = Farm::start().await;
    farm.client().apply("desk", weights(30.0, 30.0, 25.0, 15.0)).await.unwrap();
    let _agent = farm
        .agent("hosts")
        .host("s1", "cpu=35,mem=55,users=10,procs=70")
        .host("s2", "cpu=25,mem=45,users=14,procs=89")
        .await;
    let client = farm.gateway("g1");
    let placed = client.place(place("desk", "login-1")).await.unwrap();
    assert_eq!((placed.host_name.as_str(), placed.policy_version), ("s1", 1));
    assert_eq!(placed.reason(), v1::PlacementReason::LowestLoad);
    near(placed.weighted_load.unwrap(), 56.6549, 0.0005);
    near(placed.alternatives[0].weighted_load.unwrap(), 61.0, 0.0005);

    let explained = client.explain(&placed.decision_id).await.unwrap();
    assert_eq!((explained.top_users, explained.top_processes), (14.0, 89.0));
    let expected = [
        ("s1", [10.5, 16.5, 25.0 * 10.0 / 14.0, 15.0 * 70.0 / 89.0], 56.6549),
        ("s2", [7.5, 13.5, 25.0, 15.0], 61.0),
    ];
    for (host, (name, terms, sum)) in explained.hosts.iter().zip(expected) {
        let found = host.terms.as_ref().unwrap();
        assert_eq!(host.host_name, name);
        for (found, expected) in [found.cpu, found.memory, found.users, found.processes].iter().zip(terms) {
            near(*found, expected, 0.0005);
        }
        near(found.weighted_load, sum, 0.0005);
        near(found.cpu + found.memory + found.users + found.processes, found.weighted_load, 1e-9);
    }

    let shown = farm.ctl(&["explain", &placed.decision_id, "--json"]).await.exited(0).json();
    let hosts = shown["explanation"]["hosts"].as_array().unwrap();
    for (host, (name, terms, sum)) in hosts.iter().zip(expected) {
        assert_eq!(host["host_name"], name);
        for (term, expected) in ["cpu", "memory", "users", "processes"].iter().zip(terms) {
            near(host["terms"][term].as_f64().unwrap(), expected, 0.0005);
        }
        near(host["terms"]["weighted_load"].as_f64().unwrap(), sum, 0.0005);
    }
    let page = farm.ctl(&["explain", &placed.decision_id]).await.exited(0).stdout;
    assert!(page.contains("56.655") && page.contains("61.000"), "{page}");
}

#[tokio::test]
async fn case_076_with_users_alone_the_host_with_fewer_users_wins() {
    let farm = Farm::start().await;
    farm.client().apply("desk", weights(0.0, 0.0, 100.0, 0.0)).await.unwrap();
    let _agent = farm
        .agent("hosts")
        .host("s1", "cpu=1,mem=1,users=6,procs=1")
        .host("s2", "cpu=90,mem=90,users=5,procs=900")
        .await;
    let placed = farm.client().place(place("desk", "login-1")).await.unwrap();
    assert_eq!(placed.host_name, "s2");
    near(placed.weighted_load.unwrap(), 83.3333, 0.0005);
    near(placed.alternatives[0].weighted_load.unwrap(), 100.0, 0.0005);
}

#[tokio::test]
async fn case_068_nobody_logged_in_anywhere_is_a_load_of_zero() {
    let farm = Farm::start().await;
    farm.client().apply("desk", weights(0.0, 0.0, 100.0, 0.0)).await.unwrap();
    let _agent = farm.agent("hosts").host("s1", "users=0").host("s2", "users=0").host("s3", "users=0").await;
    let placed = farm.client().place(place("desk", "login-1")).await.unwrap();
    assert_eq!(placed.weighted_load, Some(0.0));
    let explained = farm.client().explain(&placed.decision_id).await.unwrap();
    assert_eq!(explained.tied_hosts, 3);
}

#[tokio::test]
async fn case_053_the_published_table_of_the_availability_index() {
    let farm = Farm::start().await;
    let table = [(1, 100.0), (2, 83.33), (4, 66.67), (8, 50.0), (16, 33.33), (32, 16.67), (64, 0.0)];
    let with_host = |agent: usher_integration_tests::AgentStart, (xf, _): &(u32, f64)| {
        agent.host(&format!("xf-{xf}"), &format!("cpu=1,ai-xf={xf}"))
    };
    let _agent = table.iter().fold(farm.agent("hosts"), with_host).await;
    for (xf, index) in table {
        let name = format!("xf-{xf}");
        let host = wait_for("an index", LONG, async || {
            let host = farm.client().host(&name).await.map_err(|status| status.to_string())?;
            if host.availability_index.is_some() { Ok(host) } else { Err(format!("{host:?}")) }
        })
        .await;
        near(host.availability_index.unwrap(), index, 0.005);
        near(host.expansion_factor.unwrap(), f64::from(xf), 1e-9);
    }
    let listed = farm.ctl(&["hosts", "--json"]).await.exited(0).json();
    let shown = |host: &serde_json::Value| host["availability_index"].as_f64().unwrap().round() as i64;
    let mut shown: Vec<i64> = listed["hosts"].as_array().unwrap().iter().map(shown).collect();
    shown.sort_unstable();
    assert_eq!(shown, [0, 17, 33, 50, 67, 83, 100]);
}

#[tokio::test]
async fn case_055_timings_sent_to_an_agent_are_weighted_by_frequency_and_case_060_silence_is_idle() {
    let farm = Farm::start().await;
    let port = free_udp_port();
    // A window of 5 x 500 ms: long enough to look at, short enough to wait for its end.
    let _agent = farm.agent("real").statsd(port).latency_period("500ms").await;
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let send = |calls: &[(&str, usize)]| {
        for (line, times) in calls {
            let datagram = vec![*line; *times].join("\n");
            socket.send_to(datagram.as_bytes(), ("127.0.0.1", port)).unwrap();
        }
    };
    let host = async |what: &str, holds: fn(&v1::HostInfo) -> bool| {
        wait_for(what, LONG, async || {
            let host = farm.client().host("real").await.map_err(|status| status.to_string())?;
            if holds(&host) { Ok(host) } else { Err(format!("{host:?}")) }
        })
        .await
    };
    // How fast it is when nothing else happens.
    send(&[("OPEN:3|ms", 20), ("SEARCH:10|ms", 20)]);
    let unloaded = host("the unloaded host's index", |host| host.expansion_factor.is_some()).await;
    assert_eq!((unloaded.availability_index, unloaded.expansion_factor), (Some(100.0), Some(1.0)));
    let idle = host("idle", |host| host.flags.iter().any(|flag| flag == "idle")).await;
    assert_eq!((idle.availability_index, idle.expansion_factor), (Some(100.0), None));

    send(&[("OPEN:12|ms", 90), ("SEARCH:640|ms", 10)]);
    let all = |host: &v1::HostInfo| host.expansion_factor.is_some_and(|xf| (xf - 10.0).abs() < 1e-6);
    let loaded = host("an expansion factor of 10", all).await;
    near(loaded.availability_index.unwrap(), 44.63, 0.005);
    let shown = farm.ctl(&["host", "show", "real", "--json"]).await.exited(0).stdout;
    assert!(!shown.contains("NaN") && shown.contains("SEARCH"), "{shown}");
    host("idle again", |host| host.flags.iter().any(|flag| flag == "idle")).await;
}

#[tokio::test]
async fn case_104_a_busy_host_sends_the_user_to_another_that_holds_the_replica() {
    let farm = Farm::start().await;
    let policy = v1::Policy { threshold_percent: Some(30.0), ..Default::default() };
    farm.client().apply("desk", policy).await.unwrap();
    // AI 20, 40 and 100.
    let _agent = farm
        .agent("hosts")
        .host("a", "cpu=1,users=0,ai-xf=27.857618")
        .replica("crm")
        .host("b", "cpu=90,users=9,ai-xf=12.125733")
        .replica("crm")
        .host("c", "cpu=1,users=0,ai-xf=1")
        .await;
    let client = farm.client();
    wait_for("a to be BUSY", LONG, async || {
        let host = client.host("a").await.map_err(|status| status.to_string())?;
        let others = [client.host("b").await, client.host("c").await].map(Result::unwrap);
        let judged = others.iter().all(|host| host.availability_index.is_some());
        if host.state() == v1::HostState::Busy && judged { Ok(()) } else { Err(format!("{host:?}")) }
    })
    .await;
    let resource = Some("crm".to_owned());
    let request = v1::FailoverRequest {
        request_id: "login-2".into(),
        pool: "desk".into(),
        from_host: "a".into(),
        resource: resource.clone(),
        cause: v1::FailoverCause::Busy.into(),
        ..Default::default()
    };
    let elsewhere = client.failover(request).await.unwrap();
    assert_eq!(elsewhere.host_name, "b");
    assert!(!elsewhere.flags.contains(&"all_busy".to_owned()));
    // Nor is c ever chosen for it: not fresh, and not when nobody else is left.
    for number in 0..20 {
        let request = v1::PlaceRequest { resource: resource.clone(), ..place("desk", &format!("p{number}")) };
        assert_eq!(client.place(request).await.unwrap().host_name, "b");
    }
    let both = vec!["a".to_owned(), "b".to_owned()];
    let request = v1::PlaceRequest { resource, exclude: both, ..place("desk", "login-3") };
    assert_eq!(client.place(request).await.unwrap_err().code(), Code::Unavailable);
    let request = v1::PlaceRequest { resource: Some("hr".into()), ..place("desk", "login-4") };
    refusal(client.place(request).await, Code::NotFound, "UNKNOWN_RESOURCE");
}

#[tokio::test]
async fn case_086_when_all_are_busy_the_original_serves() {
    let farm = Farm::start().await;
    let policy = v1::Policy { threshold_percent: Some(30.0), ..Default::default() };
    farm.client().apply("desk", policy).await.unwrap();
    // AI 10, 20 and 15.
    let _agent = farm
        .agent("hosts")
        .host("a", "cpu=50,users=5,ai-xf=42.224253")
        .replica("x")
        .host("b", "cpu=40,users=4,ai-xf=27.857618")
        .replica("x")
        .host("c", "cpu=20,users=1,ai-xf=34.296751")
        .replica("x")
        .await;
    let client = farm.client();
    wait_for("all to be BUSY", LONG, async || {
        let hosts = client.hosts().await.map_err(|status| status.to_string())?;
        let all = hosts.iter().all(|host| host.state() == v1::HostState::Busy);
        if all { Ok(()) } else { Err(format!("{hosts:?}")) }
    })
    .await;
    let request = v1::FailoverRequest {
        request_id: "login-1".into(),
        pool: "desk".into(),
        from_host: "a".into(),
        resource: Some("x".into()),
        cause: v1::FailoverCause::Busy.into(),
        ..Default::default()
    };
    let served = client.failover(request).await.unwrap();
    assert_eq!((served.host_name.as_str(), served.reason()), ("a", v1::PlacementReason::Original));
    assert!(served.flags.contains(&"all_busy".to_owned()));
    let fresh = client.place(place("desk", "login-2")).await.unwrap();
    assert_eq!((fresh.host_name.as_str(), fresh.reason()), ("c", v1::PlacementReason::LowestLoad));
    assert!(fresh.flags.contains(&"all_busy".to_owned()));
}

#[tokio::test]
async fn case_087_everyone_at_the_limit_of_users_refuses_and_one_logout_helps() {
    let farm = Farm::start().await;
    let client = farm.client();
    let limit = v1::UserLimit { limit: Some(v1::user_limit::Limit::Users(10)) };
    client.apply("desk", v1::Policy { max_users: Some(limit), ..Default::default() }).await.unwrap();
    let a = attached(&client, "a", load(20.0, 20.0, 10, 50)).await;
    let mut b = attached(&client, "b", load(20.0, 20.0, 10, 50)).await;
    b.admit_all();
    let refused = refusal(client.place(place("desk", "R1")).await, Code::ResourceExhausted, "MAX_USERS");
    assert!(retry_after(&refused).is_some());
    for name in ["a", "b"] {
        let host = client.host(name).await.unwrap();
        assert_eq!((host.state(), host.pending_places), (v1::HostState::MaxUsers, 0));
    }
    assert!(!a.heard().iter().any(|heard| matches!(heard, v1::attach_response::Message::ExpectSession(_))));

    b.report(load(20.0, 20.0, 9, 50)).await;
    let placed = client.place(place("desk", "R1")).await.unwrap();
    assert_eq!(placed.host_name, "b");
    refusal(client.place(place("desk", "R2")).await, Code::ResourceExhausted, "MAX_USERS");
}

#[tokio::test]
async fn case_070_a_host_that_never_reported_is_unknown_and_not_chosen() {
    let farm = Farm::start().await;
    let client = farm.client();
    let _s1 = attached(&client, "s1", load(35.0, 55.0, 10, 70)).await;
    let mut s2 = FakeAgent::attach(&client, hello("s2")).await.unwrap();
    assert_eq!(client.host("s2").await.unwrap().state(), v1::HostState::Unknown);
    for number in 0..10 {
        let placed = client.place(place("desk", &format!("R{number}"))).await.unwrap();
        assert_eq!(placed.host_name, "s1");
        assert!(placed.alternatives.iter().all(|host| host.host_name != "s2"));
    }
    let request = v1::PlaceRequest { exclude: vec!["s1".into()], ..place("desk", "alone") };
    assert_eq!(client.place(request).await.unwrap_err().code(), Code::Unavailable);
    // A genuine report of almost nothing is another thing.
    s2.report(load(0.0, 0.0, 0, 3)).await;
    assert_eq!(client.place(place("desk", "later")).await.unwrap().host_name, "s2");
}

#[tokio::test]
async fn case_090_a_user_with_a_session_returns_to_it_whatever_the_load() {
    let farm = Farm::start().await;
    let client = farm.client();
    let mut a = attached(&client, "a", load(95.0, 95.0, 40, 900)).await;
    let _b = attached(&client, "b", load(5.0, 5.0, 1, 9)).await;
    let session = v1::Session {
        id: "7".into(),
        user: "u1".into(),
        state: v1::SessionState::Disconnected.into(),
        age_ms: Some(60_000),
    };
    a.sessions(vec![session]).await;
    let request = |id: &str, user: &str| v1::PlaceRequest { user: Some(user.into()), ..place("desk", id) };
    let own = client.place(request("R1", "CORP\\U1")).await.unwrap();
    assert_eq!((own.host_name.as_str(), own.reason()), ("a", v1::PlacementReason::OwnSession));
    assert_eq!((own.reservation, own.reservation_left_ms), (None, None));
    assert_eq!(client.host("a").await.unwrap().pending_places, 0);
    assert_eq!(client.place(request("R2", "u2")).await.unwrap().host_name, "b");
}

#[tokio::test]
async fn case_099_a_host_is_busy_at_its_threshold_and_not_above_it() {
    let farm = Farm::start().await;
    let client = farm.client();
    let factor = |index: f64| 2_f64.powf(6.0 * (1.0 - index / 100.0));
    // Expansion factor, threshold, and whether it is BUSY.
    let hosts = [
        ("equal", 8.0, 50.0, true),
        ("shown-equal-below", factor(29.6), 30.0, true),
        ("shown-equal-above", factor(30.4), 30.0, false),
        ("off", 64.0, 0.0, false),
        ("standby", 1.0, 100.0, true),
    ];
    let mut open = Vec::new();
    for (name, xf, threshold, busy) in hosts {
        let mut fake = FakeAgent::attach(&client, hello(name)).await.unwrap();
        fake.report(v1::Load { threshold_percent: Some(threshold), ..load(10.0, 10.0, 1, 10) }).await;
        let host = fake.latency(vec![operation("LOGIN", 100.0, xf)]).await;
        let expected = if busy { v1::HostState::Busy } else { v1::HostState::Available };
        assert_eq!(host.state(), expected, "{host:?}");
        open.push(fake);
    }
    let standby = open.last().unwrap().seen("its index", |host| host.availability_index.is_some()).await;
    assert_eq!(standby.availability_index, Some(100.0));
}
