//! Can a small farm have its settings in a file, and who notices if two coordinators have different ones?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use tonic::Code;
use usher_integration_tests::{
    AgentStart, Client, Coordinator, CoordinatorStart, Farm, LONG, refusal, wait_for, wait_until,
};
use usher_proto::v1;

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    file
}

fn settings(file: &Path) -> String {
    format!("policy_source = \"file\"\npolicy_file = {file:?}\n")
}

async fn range_is(client: &Client, range: f64) -> v1::PoolInfo {
    wait_for(&format!("range {range}"), LONG, async || {
        let pool = client.pool("desk").await.map_err(|status| status.to_string())?;
        if pool.policy.as_ref().unwrap().range == Some(range) { Ok(pool) } else { Err(format!("{pool:?}")) }
    })
    .await
}

async fn logged(coordinator: &Coordinator, text: &str) {
    wait_until(&format!("the log to say {text:?}"), LONG, async || coordinator.log().contains(text)).await;
}

#[tokio::test]
async fn case_151_a_broken_file_changes_nothing_and_a_good_one_changes_only_what_it_says() {
    let start = Farm::start().on_fixed_ports();
    let file = write(start.folder(), "pools.toml", "[pools.desk]\nthreshold_percent = 50\nrange = 7\n");
    let mut farm = start.settings(&settings(&file)).await;
    let client = farm.gateway("ann");
    let agent = farm.agent("hosts").host("a", "cpu=10,users=1,ai-xf=64").host("b", "cpu=10,users=1").await;
    assert_eq!(range_is(&client, 7.0).await.version, 1);
    let state = async |host: &str| client.host(host).await.unwrap().state();
    wait_until("a to be BUSY", LONG, async || state("a").await == v1::HostState::Busy).await;
    farm.ctl(&["drain", "b", "--persistent", "--reason", "disks"]).await.exited(0);
    let streams = agent.log().matches("attached").count();

    std::fs::write(&file, "[pools.desk]\nthreshold_percent = 50\nrange = \n").unwrap();
    farm.coordinator.hang_up();
    logged(&farm.coordinator, "pools.toml:3:").await;
    logged(&farm.coordinator, "the settings of pools are as before").await;
    assert!(farm.coordinator.metrics().await.contains("usher_coordinator_policy_file_broken 1"));
    let pool = range_is(&client, 7.0).await;
    assert_eq!((pool.version, pool.author.as_str()), (1, file.to_str().unwrap()));

    std::fs::write(&file, "[pools.desk]\nthreshold_percent = 50\nrange = 8\n").unwrap();
    farm.coordinator.hang_up();
    assert_eq!(range_is(&client, 8.0).await.version, 2);
    assert!(farm.coordinator.metrics().await.contains("usher_coordinator_policy_file_broken 0"));
    assert_eq!([state("a").await, state("b").await], [v1::HostState::Busy, v1::HostState::Restricted]);
    assert_eq!(agent.log().matches("attached").count(), streams, "no stream was dropped");

    // What is in the file is changed there, and only there.
    let refused = refusal(
        client.apply("desk", v1::Policy::default()).await,
        Code::FailedPrecondition,
        "POLICY_FROM_FILE",
    );
    assert!(refused.message().contains("pools.toml"), "{refused:?}");
    let said = farm.ctl(&["pool", "apply", "desk", "--set", "range=9"]).await.exited(1);
    assert!(said.stderr.contains("pools.toml"), "{}", said.stderr);

    // A start with a broken file goes on with what was in force; a check of the settings says what is wrong.
    std::fs::write(&file, "[pools.desk]\nrnge = 9\n").unwrap();
    farm.coordinator.kill();
    farm.coordinator.restart().await;
    logged(&farm.coordinator, "did you mean range?").await;
    assert_eq!(range_is(&client, 8.0).await.version, 2);
}

#[tokio::test]
async fn settings_that_differ_between_coordinators_are_found_by_their_hosts_and_do_not_flap() {
    let start = Farm::start().on_fixed_ports();
    let one = write(start.folder(), "one.toml", "[pools.desk]\nmax_users = 40\n");
    let two = write(start.folder(), "two.toml", "[pools.desk]\nmax_users = 50\n");
    let farm = start.settings(&settings(&one)).await;
    let second = CoordinatorStart::new(farm.folder(), "second").settings(&settings(&two)).start().await;
    let (first, other) = (farm.client(), Client::new(second.grpc, None));
    // The first is heard alone, so that its settings are in force.
    let addresses = [farm.coordinator.grpc, second.grpc];
    second.freeze();
    let agent = AgentStart::new(farm.folder(), "hosts", &addresses).host("h1", "cpu=10,users=1");
    let agent = agent.report_interval("1s").without_waiting().await;
    wait_until("the first's settings to be in force", LONG, async || {
        first.host("h1").await.is_ok_and(|host| host.settings_hash.is_some())
    })
    .await;
    second.thaw();
    let ours = first.pool("desk").await.unwrap().settings_hash;
    let theirs = other.pool("desk").await.unwrap().settings_hash;
    assert_ne!(ours, theirs);
    let differs = wait_for("the second to notice", LONG, async || {
        let pool = other.pool("desk").await.map_err(|status| status.to_string())?;
        if pool.foreign.is_empty() { Err(format!("{pool:?}")) } else { Ok(pool) }
    })
    .await;
    let foreign = v1::ForeignSettings {
        settings_hash: ours.unwrap(),
        version: Some(1),
        hosts: 1,
        host_names: vec!["h1".into()],
    };
    assert_eq!(differs.foreign, [foreign]);
    let host = other.host("h1").await.unwrap();
    assert!(
        host.settings_differ && host.settings_hash == ours,
        "of equal versions the one in force stays: {host:?}"
    );
    assert!(!first.host("h1").await.unwrap().settings_differ);
    assert!(second.metrics().await.contains("usher_coordinator_settings_mismatch_hosts{pool=\"desk\"} 1"));
    logged(&second, "hosts of the pool have other settings than this coordinator's").await;

    // The operator brings the file of the first to the second.
    std::fs::copy(&one, &two).unwrap();
    second.hang_up();
    wait_until("nobody to differ", LONG, async || {
        let pools = [first.pool("desk").await, other.pool("desk").await];
        let hashes = pools.iter().map(|pool| pool.as_ref().ok().and_then(|pool| pool.settings_hash));
        hashes.eq([ours, ours]) && !other.host("h1").await.is_ok_and(|host| host.settings_differ)
    })
    .await;
    logged(&second, "every host of the pool has this coordinator's settings again").await;
    assert!(second.metrics().await.contains("usher_coordinator_settings_mismatch_hosts{pool=\"desk\"} 0"));
    assert_eq!(
        second.log().matches("have other settings than this coordinator's").count(),
        1,
        "once a change"
    );
    drop(agent);
}

#[tokio::test]
async fn a_first_start_with_a_broken_file_is_refused_with_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "pools.toml", "[pools.desk]\nmax_users = 0\n");
    let config = write(folder.path(), "coordinator.toml", &settings(&file));
    let run = async |arguments: &[&str]| {
        let mut command = tokio::process::Command::new(usher_integration_tests::binary("usher-coordinator"));
        command.args(arguments).arg(&config).kill_on_drop(true);
        let output = tokio::time::timeout(Duration::from_secs(20), command.output()).await.unwrap().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let data = folder.path().join("data");
    let arguments = [
        "--listen",
        "127.0.0.1:0",
        "--http-listen",
        "none",
        "--data-dir",
        data.to_str().unwrap(),
        "--config",
    ];
    let (code, said) = run(&arguments).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("pools.toml:2:") && said.contains("at least 1, or \"unlimited\""), "{said}");
    let (code, said) = run(&["check-config"]).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("pools.toml:2:"), "{said}");
}
