//! Do operators' changes hold: against each other, on the hosts, and over a restart?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use tonic::Code;
use usher_integration_tests::{
    FakeAgent, Farm, LONG, hello, load, place, refusal, run_ctl, wait_for, wait_until, weights,
};
use usher_proto::error::error_info;
use usher_proto::v1;
use usher_proto::v1::attach_response::Message as Heard;

#[tokio::test]
async fn case_154_of_two_writers_from_one_version_the_second_is_refused() {
    let farm = Farm::start().await;
    let client = farm.client();
    let _agent = farm.agent("hosts").host("h1", "cpu=10,users=1").host("h2", "cpu=20,users=2").await;
    for version in 1..=7 {
        assert_eq!(client.apply("desk", weights(15.0, 15.0, 55.0, 15.0)).await.unwrap().version, version);
    }
    let (one, two) = (farm.gateway("admin-1"), farm.gateway("admin-2"));
    let (first, second) = tokio::join!(
        one.apply_from("desk", Some(7), weights(30.0, 30.0, 25.0, 15.0)),
        two.apply_from("desk", Some(7), weights(0.0, 0.0, 100.0, 0.0)),
    );
    let (written, refused) = if first.is_ok() { (first, second) } else { (second, first) };
    let written = written.unwrap();
    assert_eq!(written.version, 8);
    let code = refused.as_ref().unwrap_err().code();
    assert!(matches!(code, Code::FailedPrecondition | Code::Aborted), "{refused:?}");
    refusal(refused, code, "POLICY_VERSION");
    // Late it is the same, and the answer says which version there is.
    let late = two.apply_from("desk", Some(7), weights(0.0, 0.0, 100.0, 0.0)).await;
    let status = refusal(late, Code::FailedPrecondition, "POLICY_VERSION");
    assert_eq!(error_info(&status).unwrap().metadata["version"], "8");
    assert!(status.message().contains('8'), "{status:?}");
    assert_eq!(client.pool("desk").await.unwrap().policy, written.policy);

    // Every agent has it, and every answer names it.
    wait_for("version 8 on all hosts", Duration::from_secs(10), async || {
        let hosts = client.hosts().await.map_err(|status| status.to_string())?;
        let versions: Vec<_> = hosts.iter().map(|host| host.settings_version).collect();
        if versions == [Some(8), Some(8)] { Ok(()) } else { Err(format!("{versions:?}")) }
    })
    .await;
    let placed = client.place(place("desk", "R1")).await.unwrap();
    assert_eq!(placed.policy_version, 8);
    let explained = client.explain(&placed.decision_id).await.unwrap();
    assert_eq!((explained.policy_version, explained.weights), (8, written.policy.unwrap().weights));
}

#[tokio::test]
async fn usherctl_changes_a_pool_and_tells_success_from_refusal_by_its_exit_code() {
    let farm = Farm::start().await;
    let set = "weights.users_percent=100";
    let applied = farm.ctl(&["pool", "apply", "desk", "--set", set, "--json"]).await.exited(0).json();
    assert_eq!(applied["pool"]["version"], 1);
    assert_eq!(applied["pool"]["policy"]["weights"]["users_percent"], 100.0);
    assert_eq!(applied["changed"], serde_json::json!(["weights"]));

    let file = farm.folder().join("desk.toml");
    std::fs::write(&file, "threshold_percent = 25\nmax_users = 50\n").unwrap();
    let file = file.to_str().unwrap();
    let dry = farm.ctl(&["pool", "apply", "desk", "-f", file, "--dry-run"]).await.exited(0);
    assert!(dry.stdout.contains("threshold_percent"), "{dry:?}");
    let shown = farm.ctl(&["pool", "show", "desk", "--json"]).await.exited(0).json();
    assert_eq!(shown["pool"]["version"], 1, "a rehearsal changes nothing");
    farm.ctl(&["pool", "apply", "desk", "-f", file, "--expect-version", "1"]).await.exited(0);
    let shown = farm.ctl(&["pool", "show", "desk", "--json"]).await.exited(0).json();
    assert_eq!(
        (&shown["pool"]["version"], &shown["pool"]["policy"]["threshold_percent"]),
        (&2.into(), &25.0.into())
    );
    assert_eq!(shown["pool"]["policy"]["weights"]["users_percent"], 100.0, "what is not named is kept");

    let late =
        farm.ctl(&["pool", "apply", "desk", "-f", file, "--expect-version", "1", "--json"]).await.exited(1);
    assert_eq!(late.json()["error"]["reason"], "POLICY_VERSION");
    let wrong = farm.ctl(&["pool", "apply", "desk", "--set", "range=120", "--json"]).await.exited(1).json();
    assert_eq!(
        (&wrong["error"]["reason"], &wrong["error"]["metadata"]["field"]),
        (&"INVALID_FIELD".into(), &"range".into())
    );
    let misspelt = farm.ctl(&["pool", "apply", "desk", "--set", "treshold_percent=1"]).await.exited(2);
    assert!(misspelt.stderr.contains("threshold_percent"), "{misspelt:?}");
    let unknown = farm.ctl(&["pool", "show", "nowhere", "--json"]).await.exited(1).json();
    assert_eq!(unknown["error"]["reason"], "UNKNOWN_POOL");
    farm.ctl(&["place", "nowhere"]).await.exited(1);
    farm.ctl(&["place"]).await.exited(2);
    let nobody = ["--coordinator", "127.0.0.1:1", "--config", "none.toml", "hosts"];
    std::fs::write(farm.folder().join("none.toml"), "").unwrap();
    run_ctl(farm.folder(), &nobody).await.exited(3);
}

#[tokio::test]
async fn a_drained_host_gets_no_new_sessions_until_it_is_undrained() {
    let mut farm = Farm::start().on_fixed_ports().await;
    let client = farm.client();
    let _agent = farm.agent("hosts").host("h1", "cpu=1,users=1").host("h2", "cpu=90,users=50").await;
    let mut heard = FakeAgent::attach(&client, hello("h3")).await.unwrap();
    heard.report(load(95.0, 95.0, 90, 900)).await;
    assert_eq!(client.place(place("desk", "R1")).await.unwrap().host_name, "h1");

    let rehearsed = farm.ctl(&["drain", "h1", "--dry-run", "--json"]).await.exited(0).json();
    assert_eq!(rehearsed["host_name"], "h1");
    assert_eq!(client.host("h1").await.unwrap().state(), v1::HostState::Available);
    let drain = ["drain", "h1", "--persistent", "--reason", "new disks", "--gateway", "ops", "--json"];
    let drained = farm.ctl(&drain).await.exited(0).json();
    assert_eq!((&drained["host_name"], &drained["users"]), (&"h1".into(), &1.into()));
    let host = client.host("H1.").await.unwrap();
    assert_eq!(host.state(), v1::HostState::Restricted);
    let mark = host.drain.unwrap();
    assert_eq!(
        (mark.mode(), mark.reason.as_str(), mark.author.as_str()),
        (v1::DrainMode::Persistent, "new disks", "ops")
    );
    assert_eq!(client.place(place("desk", "R2")).await.unwrap().host_name, "h2");

    // The host itself is told, too.
    farm.ctl(&["drain", "h3"]).await.exited(0);
    let drain_of = |heard: &Heard| match heard {
        Heard::PoolSettings(settings) => settings.drain.clone(),
        _ => None,
    };
    assert_eq!(heard.hears("its drain", drain_of).await.mode(), v1::DrainMode::UntilRestart);
    farm.ctl(&["drain", "h2"]).await.exited(0);
    let refused = farm.ctl(&["place", "desk", "--json"]).await.exited(1).json();
    assert_eq!(refused["error"]["reason"], "ALL_RESTRICTED");

    // Over a crash of the coordinator.
    farm.coordinator.kill();
    farm.coordinator.restart().await;
    wait_until("h1 and h2 to be back, drained", LONG, async || {
        let states = [client.host("h1").await, client.host("h2").await];
        states
            .iter()
            .all(|host| host.as_ref().is_ok_and(|h| h.state() == v1::HostState::Restricted && h.connected))
    })
    .await;
    let undrained = farm.ctl(&["undrain", "h1", "--json"]).await.exited(0).json();
    assert_eq!(undrained["was_drained"], true);
    let again = farm.ctl(&["undrain", "h1", "--json"]).await.exited(0).json();
    assert_eq!(again["was_drained"], false);
    farm.ctl(&["drain", "nobody"]).await.exited(1);
    farm.ctl(&["undrain", "nobody"]).await.exited(1);
    wait_for("a place on h1", LONG, async || {
        let placed = client.place(place("desk", "R3")).await.map_err(|status| status.to_string())?;
        assert_eq!(placed.host_name, "h1");
        Ok::<_, String>(())
    })
    .await;
}

#[tokio::test]
async fn a_drain_until_the_restart_ends_with_a_new_boot_and_a_persistent_one_does_not() {
    let farm = Farm::start().await;
    let client = farm.client();
    for (name, mode, after) in [
        ("until", v1::DrainMode::UntilRestart, v1::HostState::Available),
        ("kept", v1::DrainMode::Persistent, v1::HostState::Restricted),
    ] {
        let first_boot = hello(name);
        let mut first = FakeAgent::attach(&client, first_boot.clone()).await.unwrap();
        first.report(load(10.0, 10.0, 1, 10)).await;
        let request = v1::DrainHostRequest { host: name.into(), mode: mode.into(), ..Default::default() };
        client.admin.clone().drain_host(request).await.unwrap();
        // The agent starts again, the host does not.
        drop(first);
        let again = v1::Hello { stream_epoch: 2, incarnation_ms: 2000, ..first_boot.clone() };
        let mut second = FakeAgent::attach(&client, again).await.unwrap();
        assert_eq!(second.report(load(10.0, 10.0, 1, 10)).await.state(), v1::HostState::Restricted, "{name}");
        second.goodbye(v1::GoodbyeReason::HostShutdown).await;
        let boot_id = "another-boot".to_owned();
        let booted = v1::Hello { boot_id, stream_epoch: 1, incarnation_ms: 10, ..first_boot };
        let mut third = FakeAgent::attach(&client, booted).await.unwrap();
        assert_eq!(third.report(load(10.0, 10.0, 1, 10)).await.state(), after, "{name}");
    }
}
