//! Does anybody believe a wrong clock, and what does a process that stood still make up for?
//!
//! libfaketime stands between a real process and its wall clock; the clocks that only run on are left alone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use usher_integration_tests::{
    Authority, Client, FakeAgent, Farm, LONG, hello, load, metric, place, wait_for, wait_until,
};
use usher_proto::v1;

/// A wall clock that a test sets while a process runs by it.
struct WallClock {
    file: PathBuf,
}

impl WallClock {
    fn new(folder: &Path) -> Self {
        let clock = Self { file: folder.join("wall-clock") };
        clock.ahead("+0");
        clock
    }

    /// As in `+3600`, seconds. In one step: a half-written file would be a clock as well.
    fn ahead(&self, seconds: &str) {
        let new = self.file.with_extension("new");
        std::fs::write(&new, seconds).unwrap();
        std::fs::rename(&new, &self.file).unwrap();
    }

    /// What a process that goes by it has in its environment.
    fn environment(&self) -> [(&'static str, String); 4] {
        let libraries = std::fs::read_dir("/usr/lib").unwrap().map(|entry| entry.unwrap().path());
        let library =
            libraries.map(|folder| folder.join("faketime/libfaketimeMT.so.1")).find(|path| path.exists());
        let library = library.expect("libfaketimeMT.so.1 is not there; `cargo xtask peers` installs it");
        [
            ("LD_PRELOAD", library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }
}

/// Waits until the host's skew is within 5 s of this many seconds; its state must not change meanwhile.
async fn skew(client: &Client, host: &str, seconds: i64) {
    wait_for(&format!("a skew of {seconds} s"), LONG, async || {
        let host = client.host(host).await.map_err(|status| status.to_string())?;
        assert_eq!((host.state(), host.connected), (v1::HostState::Available, true), "{host:?}");
        assert!(host.load_age_ms.is_some_and(|age| age < 10_000), "{host:?}");
        let skew = host.clock_skew_ms.ok_or("no skew")? / 1000;
        if (skew - seconds).abs() <= 5 { Ok(()) } else { Err(format!("{skew} s")) }
    })
    .await;
}

#[tokio::test]
async fn case_128_an_agent_whose_clock_is_an_hour_ahead_stays_available_and_its_skew_is_shown() {
    let farm = Farm::start().await;
    let client = farm.client();
    let clock = WallClock::new(farm.folder());
    let start = farm.agent("hosts").host("h1", "cpu=10,users=1");
    let _agent = clock
        .environment()
        .into_iter()
        .fold(start, |start, (name, value)| start.environment(name, value))
        .await;
    skew(&client, "h1", 0).await;
    clock.ahead("+3600");
    skew(&client, "h1", 3600).await;
    let shown = farm.ctl(&["host", "show", "h1"]).await.exited(0).stdout;
    assert!(shown.contains("ms against the coordinator's"), "{shown}");
    client.place(place("desk", "R1")).await.unwrap();
    // What was said by the wrong clock blocks nothing that the right one says.
    clock.ahead("+0");
    skew(&client, "h1", 0).await;
    clock.ahead("-3600");
    skew(&client, "h1", -3600).await;
}

#[tokio::test]
async fn case_129_a_coordinator_whose_clock_jumps_a_day_changes_no_state_and_ends_no_place() {
    let start = Farm::start();
    let authority = Authority::new(start.folder());
    let clock = WallClock::new(start.folder());
    let own = authority.issue("usher://default/coordinator/c1");
    let farm = start
        .coordinator(|start| {
            clock.environment().into_iter().fold(start, |start, (name, value)| start.environment(name, value))
        })
        .settings(&own.table())
        .await;
    let as_role = |role: &str| authority.issue(&format!("usher://default/{role}/{role}-1"));
    let (operator, gateway) =
        (as_role("operator").client(farm.coordinator.grpc), as_role("gateway").client(farm.coordinator.grpc));
    // Its certificate ends in half a day, by the true clock.
    let half_a_day = Duration::from_secs(12 * 3600);
    let brief = authority.issue_until("usher://default/agent/h1", half_a_day).client(farm.coordinator.grpc);
    let brief_hello = v1::Hello { report_interval_ms: 500, ..hello("h1") };
    let agent = FakeAgent::attach(&brief, brief_hello).await.unwrap();
    agent
        .say(v1::attach_request::Message::Load(v1::Load { incarnation_ms: 1000, ..load(10.0, 10.0, 1, 9) }))
        .await;
    wait_until("the host to be available", LONG, async || {
        operator.host("h1").await.is_ok_and(|host| host.state() == v1::HostState::Available)
    })
    .await;
    let placed = gateway.place(place("desk", "R1")).await.unwrap();

    clock.ahead("+86400");
    let jumped = Instant::now();
    let mut sequence = 1;
    wait_until("some seconds after the jump", LONG, async || {
        sequence += 1;
        let load = v1::Load { sequence, incarnation_ms: 1000, ..load(10.0, 10.0, 1, 9) };
        agent.say(v1::attach_request::Message::Load(load)).await;
        let host = operator.host("h1").await.unwrap();
        assert_eq!((host.state(), host.connected, host.pending_places), (v1::HostState::Available, true, 1));
        assert!(host.load_age_ms.is_some_and(|age| age < 3000), "{host:?}");
        jumped.elapsed() > Duration::from_secs(4)
    })
    .await;
    let skew = operator.host("h1").await.unwrap().clock_skew_ms;
    assert!(skew.is_none_or(|skew| skew < -80_000_000), "{skew:?}: the coordinator has seen its clock jump");
    let again = gateway.place(place("desk", "R1")).await.unwrap();
    assert_eq!((again.host_id, again.reservation), (placed.host_id, placed.reservation));
    assert!(!farm.coordinator.log().contains("to=OFFLINE"), "{}", farm.coordinator.log());
    assert!(agent.ended().is_none(), "a stream that stands is not asked for its certificate again");

    // A new connection is: by the clock of the coordinator the certificate has ended.
    let late = authority.issue_until("usher://default/agent/h2", half_a_day);
    assert!(FakeAgent::attach(&late.client(farm.coordinator.grpc), hello("h2")).await.is_err());
    let files = authority.issue("usher://default/agent/h3");
    FakeAgent::attach(&files.client(farm.coordinator.grpc), hello("h3")).await.unwrap();
}

#[tokio::test]
async fn case_134_what_takes_milliseconds_is_measured_so_while_the_wall_clock_steps() {
    let start = Farm::start();
    let clock = WallClock::new(start.folder());
    let farm = start
        .coordinator(|start| {
            clock.environment().into_iter().fold(start, |start, (name, value)| start.environment(name, value))
        })
        .await;
    // A host with a limit is asked, so that a call takes long enough for the clock to step in it.
    let _agent = farm.agent("hosts").host("h1", "cpu=10,users=1").max_users(1000).await;
    let client = farm.client();
    let (is_enough, until_enough) = tokio::sync::oneshot::channel::<()>();
    let calling = tokio::spawn(async move {
        let mut calls = 0_u32;
        while until_enough.is_empty() {
            // A host that is too slow to be asked makes a call no less measured.
            let _answer = client.place(place("desk", &format!("R{calls}"))).await;
            calls += 1;
        }
        calls
    });
    for step in 0..40 {
        clock.ahead(["-2", "+3600"][step % 2]);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    is_enough.send(()).unwrap();
    let calls = calling.await.unwrap();
    assert!(calls > 10, "{calls} calls");
    let page = farm.coordinator.metrics().await;
    let measured =
        |what: &str| metric(&page, &format!("usher_coordinator_place_duration_seconds_{what}")).unwrap();
    assert_eq!(measured("count"), f64::from(calls));
    // An hour, or less than nothing, once would show.
    assert!((0.0..60.0).contains(&measured("sum")), "{} s", measured("sum"));
}

#[tokio::test]
async fn case_126_an_agent_that_stood_still_reports_once_and_then_goes_on_as_before() {
    // 12 s instead of 120: below the 15 s after which its stream would be given up, so that it is the same stream
    // whose missed reports might all come at once.
    const STOPPED: Duration = Duration::from_secs(12);
    // Long, so that a moment before the next report is a moment on a busy machine too.
    const INTERVAL: Duration = Duration::from_secs(3);
    let farm = Farm::start().await;
    let client = farm.client();
    let agent =
        farm.agent("hosts").host("h1", "cpu=10,users=1").report_interval("3s").latency_period("60s").await;
    let loads = async || {
        let page = farm.coordinator.metrics().await;
        metric(&page, "usher_coordinator_reports_total{kind=\"load\"}").unwrap()
    };
    agent.freeze();
    let stopped = Instant::now();
    wait_until("the stop to end", LONG, async || stopped.elapsed() >= STOPPED).await;
    assert_eq!(client.host("h1").await.unwrap().state(), v1::HostState::Offline);
    let before = loads().await;
    agent.thaw();
    let thawed = Instant::now();
    wait_until("one report at once", INTERVAL, async || loads().await > before).await;
    wait_until("half of the time to the next report", LONG, async || thawed.elapsed() > INTERVAL / 2).await;
    // Four were missed. What was on its way when it stopped may come too.
    let at_once = loads().await - before;
    assert!((1.0..=2.0).contains(&at_once), "{at_once} reports at once");
    // In the middle between two reports, and as far from both as it can be.
    wait_until("three more", LONG, async || thawed.elapsed() > INTERVAL * 7 / 2).await;
    let later = loads().await - before - at_once;
    assert!((2.0..=4.0).contains(&later), "{later} reports in the three intervals after");
    let host = client.host("h1").await.unwrap();
    assert_eq!((host.state(), host.connected), (v1::HostState::Available, true));
}
