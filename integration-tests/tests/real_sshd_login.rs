//! Does the farm see somebody who really logs in?

#![allow(clippy::unwrap_used, reason = "a test's tool fails as a test does")]

use usher_integration_tests::{Client, Farm, LONG, Sshd, UtmpFile, place, wait_for};
use usher_proto::v1;

const HOST: &str = "this-machine";

/// Waits until the host shows this many users, sessions and users to come.
async fn shows(client: &Client, users: u32, sessions: u32, pending: u32) -> v1::GetHostResponse {
    let what = format!("{users} users, {sessions} sessions, {pending} users to come");
    wait_for(&what, LONG, async || {
        let details = client.host_details(HOST).await.map_err(|status| status.to_string())?;
        let host = details.host.as_ref().unwrap();
        let seen = (host.users, host.sessions_active, host.pending_users);
        // The list of sessions is a message of its own and may come later than their number.
        if seen == (Some(users), Some(sessions), pending) && details.sessions.len() == sessions as usize {
            Ok(details)
        } else {
            Err(format!("{seen:?}, sessions {:?}, collectors {:?}", details.sessions, host.collectors))
        }
    })
    .await
}

#[tokio::test]
async fn alone_a_login_on_a_terminal_raises_users_by_one_and_ends_its_place() {
    let _utmp = UtmpFile::new();
    let farm = Farm::start().await;
    let sshd = Sshd::start(farm.folder()).await;
    let agent = farm.agent(HOST).settings("[sessions]\nsource = \"utmp\"\n");
    let _agent = agent.await;
    let client = farm.client();
    shows(&client, 0, 0, 0).await;

    let request = v1::PlaceRequest { user: Some("root".to_owned()), ..place("desk", "login-1") };
    let placement = client.place(request).await.unwrap();
    assert_eq!(placement.host_name, HOST);
    shows(&client, 0, 0, 1).await;

    let first = sshd.log_in();
    let details = shows(&client, 1, 1, 0).await;
    assert_eq!(details.host.unwrap().pending_places, 0, "the session ended the place");
    let session = &details.sessions[0];
    assert_eq!((session.user.as_str(), session.state()), ("root", v1::SessionState::Active));
    assert!(session.id.starts_with("pts/"), "{session:?}");

    let second = sshd.log_in();
    shows(&client, 1, 2, 0).await;
    second.log_out().await;
    shows(&client, 1, 1, 0).await;
    first.log_out().await;
    shows(&client, 0, 0, 0).await;
}
