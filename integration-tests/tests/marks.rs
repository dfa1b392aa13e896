//! Does what an admin says of a host or a replica hold: at once, on the host, and over restarts?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tonic::Code;
use usher_integration_tests::{
    Client, FakeAgent, Farm, LONG, hello, load, place, refusal, wait_for, wait_until,
};
use usher_proto::v1;
use usher_proto::v1::attach_response::Message as Heard;

fn limit(users: u32) -> v1::HostMarks {
    let max_users = Some(v1::UserLimit { limit: Some(v1::user_limit::Limit::Users(users)) });
    v1::HostMarks { max_users, ..Default::default() }
}

async fn placed_on(client: &Client, request_id: &str) -> String {
    client.place(place("desk", request_id)).await.unwrap().host_name
}

#[tokio::test]
async fn marks_of_a_host_win_over_its_own_reach_it_and_outlive_a_killed_coordinator() {
    let mut farm = Farm::start().on_fixed_ports().await;
    let client = farm.gateway("ann");
    let own = v1::Load { threshold_percent: Some(10.0), capacity: Some(1.0), ..load(10.0, 10.0, 4, 10) };
    let first = hello("h1");
    let mut fake = FakeAgent::attach(&client, first.clone()).await.unwrap();
    let shown = fake.report(own.clone()).await;
    assert_eq!(
        (shown.threshold_percent, shown.setting_origins["threshold_percent"].as_str()),
        (10.0, "agent")
    );
    assert_eq!(shown.setting_origins["max_users"], "pool");

    let marks = v1::HostMarks { capacity: Some(2.0), threshold_percent: Some(30.0), ..limit(9) };
    let rehearsed = v1::SetHostMarksRequest {
        host: "h1".into(),
        marks: Some(marks),
        dry_run: true,
        ..Default::default()
    };
    client.admin.clone().set_host_marks(rehearsed).await.unwrap();
    assert_eq!(client.host("h1").await.unwrap().marks, None, "a rehearsal changes nothing");
    assert_eq!(client.mark_host("h1", marks).await.unwrap(), marks);
    // What is not named stays; what is cleared goes.
    let change = v1::SetHostMarksRequest {
        host: "H1".into(),
        clear: vec!["capacity".into()],
        busy: Some(true),
        ..Default::default()
    };
    let changed = client.admin.clone().set_host_marks(change).await.unwrap().into_inner().marks.unwrap();
    let expected = v1::HostMarks { capacity: None, busy: true, ..marks };
    assert_eq!(changed, expected);

    let host = client.host("h1").await.unwrap();
    assert_eq!((host.marks, host.max_users, host.capacity), (Some(expected), Some(9), 1.0));
    assert_eq!((host.state(), host.busy_reasons), (v1::HostState::Busy, vec!["user_set".to_owned()]));
    assert_eq!((host.threshold_percent, host.setting_origins["threshold_percent"].as_str()), (30.0, "admin"));
    let told = |heard: &Heard| match heard {
        Heard::PoolSettings(settings) => settings.marks.filter(|marks| marks.busy),
        _ => None,
    };
    assert_eq!(fake.hears("its marks", told).await, expected);

    drop(fake);
    farm.coordinator.kill();
    farm.coordinator.restart().await;
    // It may not have been stored as a host yet: its marks wait for its id.
    let again = v1::Hello { stream_epoch: 2, ..first };
    let mut fake = FakeAgent::attach(&client, again).await.unwrap();
    assert_eq!(fake.hears("its marks again", told).await, expected);
    assert_eq!(fake.report(own).await.marks, Some(expected));
}

#[tokio::test]
async fn a_limit_that_an_admin_sets_is_held_by_the_agent_itself() {
    let farm = Farm::start().await;
    let client = farm.client();
    let agent = farm.agent("hosts").host("h1", "cpu=10,users=3").await;
    client.mark_host("h1", limit(5)).await.unwrap();
    for number in 0..2 {
        assert_eq!(placed_on(&client, &format!("R{number}")).await, "h1");
    }
    assert_eq!(agent.places(1).to_string().matches("\"admitted\":true").count(), 2, "{}", agent.places(1));
    let full = refusal(client.place(place("desk", "R2")).await, Code::ResourceExhausted, "MAX_USERS");
    assert!(full.message().contains("h1"), "{full:?}");
    assert_eq!(client.host("h1").await.unwrap().state(), v1::HostState::MaxUsers);
    client.mark_host("h1", limit(6)).await.unwrap();
    assert_eq!(placed_on(&client, "R3").await, "h1");
}

#[tokio::test]
async fn a_replica_out_of_service_is_passed_over_also_after_a_restart_until_it_is_given_back() {
    let mut farm = Farm::start().on_fixed_ports().await;
    let client = farm.client();
    let start = farm.agent("hosts").host("h1", "cpu=1,users=1").replica("mail").host("h2", "cpu=90,users=50");
    let _agent = start.replica("mail").await;
    let wanted = |id: &str| v1::PlaceRequest { resource: Some("mail".into()), ..place("desk", id) };
    assert_eq!(client.place(wanted("R1")).await.unwrap().host_name, "h1");
    let answer = client.mark_replica("h1", "mail", Some(v1::ReplicaMark::OutOfService)).await.unwrap();
    assert_eq!((answer.before, answer.listed), (None, true));
    let placed = client.place(wanted("R2")).await.unwrap();
    assert_eq!(placed.host_name, "h2");
    let explained = client.explain(&placed.decision_id).await.unwrap();
    let h1 = explained.hosts.iter().find(|host| host.host_name == "h1").unwrap();
    assert!(h1.excluded.contains("out of service"), "{h1:?}");
    // Without the resource, h1 serves as before.
    assert_eq!(placed_on(&client, "R3").await, "h1");

    farm.coordinator.kill();
    farm.coordinator.restart().await;
    wait_for("both hosts and their replicas to be back", LONG, async || {
        let request = v1::LocateResourceRequest { resource: "mail".into(), pool: None };
        let answer = client.directory.clone().locate_resource(request).await;
        let found = answer.map_err(|status| status.to_string())?.into_inner().replicas;
        if found.len() < 2 {
            return Err(format!("{found:?}"));
        }
        let marks: Vec<_> = found.iter().map(|r| (r.host_name.as_str(), r.mark)).collect();
        assert_eq!(marks, [("h1", Some(v1::ReplicaMark::OutOfService.into())), ("h2", None)]);
        Ok(())
    })
    .await;
    client.mark_replica("h2", "mail", Some(v1::ReplicaMark::PendingDelete)).await.unwrap();
    wait_until("a refusal for the marks alone", LONG, async || {
        let refused = client.place(wanted("R4")).await.unwrap_err();
        refused.code() == Code::FailedPrecondition
    })
    .await;
    refusal(client.place(wanted("R4")).await, Code::FailedPrecondition, "OUT_OF_SERVICE");
    let back = client.mark_replica("h1", "mail", None).await.unwrap();
    assert_eq!(back.before, Some(v1::ReplicaMark::OutOfService.into()));
    assert_eq!(client.place(wanted("R5")).await.unwrap().host_name, "h1");
    refusal(client.mark_replica("nobody", "mail", None).await, Code::NotFound, "UNKNOWN_HOST");
}

#[tokio::test]
async fn a_host_learns_its_baselines_anew_when_it_is_told() {
    let farm = Farm::start().await;
    let client = farm.client();
    let agent = farm.agent("hosts").host("h1", "cpu=10,users=1,ai-xf=4").await;
    let shown = async || {
        let request = v1::GetBaselinesRequest { host: "h1".into() };
        client.admin.clone().get_baselines(request).await.unwrap().into_inner()
    };
    wait_until("an operation with a baseline", LONG, async || {
        let operations = shown().await.operations;
        operations.iter().any(|operation| operation.baseline_us.is_some())
    })
    .await;
    assert_eq!(shown().await.baseline(), v1::Baseline::Robust);
    let reset = |host: &str| v1::ResetBaselinesRequest { host: host.into(), operation: None };
    let answer = client.admin.clone().reset_baselines(reset("h1")).await.unwrap().into_inner();
    assert_eq!(answer.host_name, "h1");
    let nobody = client.admin.clone().reset_baselines(reset("nobody")).await;
    refusal(nobody, Code::NotFound, "UNKNOWN_HOST");
    let mut fake = FakeAgent::attach(&client, hello("h2")).await.unwrap();
    fake.report(load(10.0, 10.0, 1, 10)).await;
    let operation = Some("open_db".to_owned());
    let request = v1::ResetBaselinesRequest { host: "h2".into(), operation: operation.clone() };
    client.admin.clone().reset_baselines(request).await.unwrap();
    let told = |heard: &Heard| match heard {
        Heard::ResetBaselines(reset) => Some(reset.operation.clone()),
        _ => None,
    };
    assert_eq!(fake.hears("that it is to learn anew", told).await, operation);
    drop(fake);
    client.host("h2").await.unwrap();
    wait_until("its stream to be gone", LONG, async || !client.host("h2").await.unwrap().connected).await;
    let gone = client.admin.clone().reset_baselines(reset("h2")).await.unwrap_err();
    assert_eq!(gone.code(), Code::Unavailable, "{gone:?}");
    drop(agent);
}
