//! Does the farm notice that nobody can get into a host any more?

#![allow(clippy::unwrap_used, reason = "a test's tool fails as a test does")]

use usher_integration_tests::{Client, Farm, LONG, Sshd, place, wait_for};
use usher_proto::v1;

const HOST: &str = "this-machine";

async fn shows(client: &Client, state: v1::HostState) -> v1::HostInfo {
    wait_for(&format!("{HOST} to be {state:?}"), LONG, async || {
        let host = client.host(HOST).await.map_err(|status| status.to_string())?;
        if host.state() == state {
            Ok(host)
        } else {
            Err(format!("{:?}, {:?}", host.state(), host.collectors))
        }
    })
    .await
}

#[tokio::test]
async fn a_host_whose_sshd_dies_takes_nobody_until_it_is_back() {
    let farm = Farm::start().await;
    let sshd = Sshd::start(farm.folder()).await;
    let door = format!(
        "endpoints = [{{ kind = \"ssh\", address = \"127.0.0.1\", port = {} }}]\n[door]\ninterval = \"1s\"\n",
        sshd.port()
    );
    let _agent = farm.agent(HOST).settings(&door).await;
    let client = farm.client();
    shows(&client, v1::HostState::Available).await;

    // Nothing is tried before the pool says what its doors speak.
    let kind = v1::Policy { kind: Some(v1::DoorKind::Ssh.into()), ..Default::default() };
    client.apply("desk", kind).await.unwrap();
    wait_for("the door to be tried", LONG, async || {
        let host = client.host(HOST).await.map_err(|status| status.to_string())?;
        let door = host.collectors.iter().find(|one| one.name == "door");
        door.filter(|door| door.error.is_none()).map(drop).ok_or_else(|| format!("{:?}", host.collectors))
    })
    .await;
    assert_eq!(client.place(place("desk", "R1")).await.unwrap().host_name, HOST);

    drop(sshd);
    let host = shows(&client, v1::HostState::NotReady).await;
    let reason = host.state_reason;
    assert!(reason.starts_with("door: cannot connect to 127.0.0.1:"), "{reason}");
    client.place(place("desk", "R2")).await.unwrap_err();
}
