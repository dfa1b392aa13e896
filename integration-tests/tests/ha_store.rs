//! What do logins and operators notice when the store that coordinators share loses nodes, its history, or is not there?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use tonic::{Code, Status};
use usher_integration_tests::{Client, LONG, Site, metric, place, reason, refusal, wait_for, wait_until};
use usher_proto::error::error_info;
use usher_proto::v1;

/// A policy that is applied at one coordinator is in force at all within this time ...
const IN_FORCE_WITHIN: Duration = Duration::from_secs(1);
/// ... and on a machine that has other work to do, now and then, within this one.
const AT_THE_LATEST: Duration = Duration::from_secs(10);

fn threshold(percent: f64) -> v1::Policy {
    v1::Policy { threshold_percent: Some(percent), ..Default::default() }
}

async fn applied(client: &Client) -> (u64, Option<f64>) {
    let pool = client.pool("desk").await.unwrap();
    (pool.version, pool.policy.unwrap_or_default().threshold_percent)
}

/// Waits until every one of them has this version of the settings in force; how long that took.
async fn in_force(clients: &[Client], version: u64, percent: f64, within: Duration) -> Duration {
    let since = Instant::now();
    for client in clients {
        wait_for("the settings to be in force", within, async || match applied(client).await {
            found if found == (version, Some(percent)) => Ok(()),
            found => Err(format!("{found:?}, not version {version} with {percent}")),
        })
        .await;
    }
    since.elapsed()
}

async fn apply(client: &Client, percent: f64) -> Result<u64, Status> {
    client.apply("desk", threshold(percent)).await.map(|pool| pool.version)
}

async fn store_connected(site: &Site, number: usize) -> bool {
    metric(&site.coordinators[number].metrics().await, "usher_coordinator_store_connected").unwrap() > 0.5
}

/// The change is refused with the reason that tells an admin that it is not the change that is wrong.
async fn refused(client: &Client) {
    let status = refusal(apply(client, 99.0).await, Code::Unavailable, "STORE_UNAVAILABLE");
    let info = error_info(&status).unwrap();
    assert!(info.metadata.contains_key("since_unix_ms"), "since when: {status:?}");
}

#[tokio::test]
async fn what_is_applied_at_one_is_in_force_at_all_within_a_second_and_of_two_at_once_one_is_told() {
    let site = Site::start(3).sharing(3).await;
    let clients = site.clients("admin");
    let _agent = site.agent("hosts").host("h1", "cpu=10,users=1").await;
    let mut times = Vec::new();
    let first = apply(&clients[0], 1.0).await.unwrap();
    for number in 1..=20u32 {
        let at = &clients[number as usize % 3];
        let version = apply(at, f64::from(number)).await.unwrap();
        assert_eq!(version, first + u64::from(number), "no version is lost or doubled");
        times.push(in_force(&clients, version, f64::from(number), AT_THE_LATEST).await);
    }
    times.sort();
    let in_time = times.iter().filter(|time| **time <= IN_FORCE_WITHIN).count();
    assert!(in_time >= 18, "{in_time} of 20 within {IN_FORCE_WITHIN:?}: {times:?}");
    eprintln!("in force at all: median {:?}, worst {:?}", times[times.len() / 2], times[times.len() - 1]);

    for round in 0..10u64 {
        let version = first + 20 + round;
        in_force(&clients, version, applied(&clients[0]).await.1.unwrap(), AT_THE_LATEST).await;
        let at = |client: &Client, percent| {
            let client = client.clone();
            async move { client.apply_from("desk", Some(version), threshold(percent)).await }
        };
        let answers = tokio::join!(at(&clients[1], 40.0), at(&clients[2], 50.0));
        let (won, lost) = match answers {
            (Ok(won), Err(lost)) | (Err(lost), Ok(won)) => (won, lost),
            both => panic!("of two changes from version {version} one must win: {both:?}"),
        };
        assert_eq!(won.version, version + 1);
        assert_eq!((lost.code(), reason(&lost).as_str()), (Code::FailedPrecondition, "POLICY_VERSION"));
        assert_eq!(error_info(&lost).unwrap().metadata["version"], won.version.to_string());
    }
}

#[tokio::test]
async fn one_etcd_node_of_three_may_die_and_when_two_have_logins_go_on_and_changes_are_refused() {
    let mut site = Site::start(3).sharing(3).await;
    let clients = site.clients("admin");
    let _agent = site.agent("hosts").host("h1", "cpu=10,users=1").host("h2", "cpu=10,users=1").await;
    let before = apply(&clients[0], 10.0).await.unwrap();
    in_force(&clients, before, 10.0, AT_THE_LATEST).await;

    let etcd = site.etcd.as_mut().unwrap();
    etcd.kill(0);
    for (number, client) in clients.iter().enumerate() {
        client.place(place("desk", &format!("one{number}"))).await.unwrap();
    }
    wait_for("changes to be taken by the other two nodes", LONG, async || {
        apply(&clients[0], 11.0).await.map_err(|status| status.to_string())
    })
    .await;
    let version = applied(&clients[0]).await.0;
    in_force(&clients, version, 11.0, Duration::from_secs(5)).await;

    site.etcd.as_mut().unwrap().kill(1);
    let killed = Instant::now();
    for (number, client) in clients.iter().enumerate() {
        wait_until("the operator to be told", LONG, async || {
            // Logins do not wait for anything of this.
            let begun = Instant::now();
            client.place(place("desk", &format!("two{number}"))).await.unwrap();
            assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
            let log = site.coordinators[number].log();
            !store_connected(&site, number).await && log.contains("the shared store does not answer")
        })
        .await;
        refused(client).await;
    }
    eprintln!("told after {:?}", killed.elapsed());
    let drain = v1::DrainHostRequest { host: "h1".into(), reason: "disks".into(), ..Default::default() };
    clients[0].admin.clone().drain_host(drain).await.expect("a drain is kept by its host");
    wait_until("the drain to be seen through another", LONG, async || {
        clients[1].host("h1").await.unwrap().state() == v1::HostState::Restricted
    })
    .await;

    let etcd = site.etcd.as_mut().unwrap();
    etcd.restart(0);
    etcd.restart(1);
    etcd.healthy().await;
    for number in 0..3 {
        wait_until("the store to answer again", LONG, async || store_connected(&site, number).await).await;
    }
    let version = apply(&clients[2], 12.0).await.unwrap();
    in_force(&clients, version, 12.0, AT_THE_LATEST).await;
    assert!(site.coordinators.iter_mut().all(|coordinator| coordinator.is_running()));
}

/// The version and the threshold that etcd has, as it says itself.
async fn in_etcd(site: &Site) -> (u64, Option<f64>) {
    let row = site.etcd.as_ref().unwrap().get("/usher/default/pools/desk").await.unwrap();
    let row: serde_json::Value = serde_json::from_str(&row).unwrap();
    (row["version"].as_u64().unwrap(), row["policy"]["threshold_percent"].as_f64())
}

#[tokio::test]
async fn changes_that_etcd_may_carry_out_after_they_were_given_up_are_said_to_be_so_and_all_agree_with_it() {
    let mut site = Site::start(3).sharing(3).await;
    let clients = site.clients("admin");
    let _agent = site.agent("hosts").host("h1", "cpu=10,users=1").await;
    let before = apply(&clients[0], 10.0).await.unwrap();
    in_force(&clients, before, 10.0, AT_THE_LATEST).await;

    // Who leads takes them into its log before it notices that it is alone. The coordinators ask the first node first.
    let etcd = site.etcd.as_mut().unwrap();
    etcd.let_lead(0).await;
    etcd.kill(1);
    etcd.kill(2);
    let at = async |number: usize| {
        let percent = 20.0 + number as f64;
        clients[number].apply_from("desk", Some(before), threshold(percent)).await
    };
    let (first, second, third) = tokio::join!(at(0), at(1), at(2));
    let mut unknown = 0;
    for answer in [first, second, third] {
        let status = refusal(answer, Code::Unavailable, "STORE_UNAVAILABLE");
        let metadata = error_info(&status).unwrap().metadata;
        if metadata.get("outcome").is_some_and(|outcome| outcome == "unknown") {
            assert!(status.message().contains("it may still come into force"), "{status:?}");
            unknown += 1;
        } else {
            assert!(metadata.contains_key("since_unix_ms"), "{status:?}");
        }
    }
    assert_eq!(
        applied(&clients[0]).await,
        (before, Some(10.0)),
        "nothing is in force that etcd has not said"
    );

    // With one of the others back it leads again, as nobody else has so long a log.
    let etcd = site.etcd.as_mut().unwrap();
    etcd.restart(1);
    etcd.healthy().await;
    etcd.restart(2);
    for number in 0..3 {
        wait_until("the store to answer again", LONG, async || store_connected(&site, number).await).await;
    }
    let (version, percent) = in_etcd(&site).await;
    eprintln!("{unknown} of 3 were not known; version {version} with {percent:?} came of them");
    assert!(version == before || (version == before + 1 && unknown > 0), "{version}, not after {before}");
    in_force(&clients, version, percent.unwrap(), AT_THE_LATEST).await;
    // Whoever tries again from the same version is told which one there is, unless nothing came of it.
    let again = clients[1].apply_from("desk", Some(before), threshold(30.0)).await;
    let last = match again {
        Ok(pool) => pool.version,
        Err(status) => {
            assert_eq!(
                (status.code(), reason(&status).as_str()),
                (Code::FailedPrecondition, "POLICY_VERSION")
            );
            assert_eq!(error_info(&status).unwrap().metadata["version"], version.to_string());
            apply(&clients[1], 30.0).await.unwrap()
        }
    };
    assert_eq!(last, version + 1);
    in_force(&clients, last, 30.0, AT_THE_LATEST).await;
    assert_eq!(in_etcd(&site).await, (last, Some(30.0)));
    let histories = [0, 1, 2].map(|number| clients[number].versions("desk"));
    let [first, second, third] = histories;
    let (first, second, third) = tokio::join!(first, second, third);
    let (first, second, third) = (first.unwrap(), second.unwrap(), third.unwrap());
    assert!(first == second && second == third, "{first:?} {second:?} {third:?}");
}

#[tokio::test]
async fn a_coordinator_that_was_cut_from_etcd_over_fifty_changes_and_a_compaction_has_them_all_seconds_later()
{
    let site = Site::start(2).on_network().sharing(1).await;
    let clients = site.clients("admin");
    let operators = site.clients("operator");
    let _agent = site.agent("h1").host("h1", "cpu=10,users=1").await;
    let store = site.etcd_machine(0);
    let mark = |capacity| v1::HostMarks { capacity: Some(capacity), ..Default::default() };
    apply(&clients[0], 1.0).await.unwrap();
    clients[0].mark_host("h1", mark(3.0)).await.unwrap();
    wait_until("both to have them", LONG, async || {
        applied(&clients[1]).await.1 == Some(1.0) && operators[1].host("h1").await.unwrap().capacity == 3.0
    })
    .await;

    let cut = site.coordinator_machine(1);
    cut.part(store);
    for number in 2..=50u32 {
        apply(&clients[0], f64::from(number)).await.unwrap();
    }
    // What is gone must go there as well, and not only what is new come.
    let clear =
        v1::SetHostMarksRequest { host: "h1".into(), clear: vec!["capacity".into()], ..Default::default() };
    clients[0].admin.clone().set_host_marks(clear).await.unwrap();
    site.etcd.as_ref().unwrap().compact().await;
    let (version, _) = applied(&clients[0]).await;
    assert!(applied(&clients[1]).await.0 < version);
    cut.join(store);
    let healed = Instant::now();
    in_force(&clients, version, 50.0, LONG).await;
    wait_until("the mark to be gone", LONG, async || operators[1].host("h1").await.unwrap().capacity != 3.0)
        .await;
    eprintln!("equal after {:?}", healed.elapsed());
    let histories = [clients[0].versions("desk").await.unwrap(), clients[1].versions("desk").await.unwrap()];
    assert_eq!(histories[0], histories[1]);
    // It is heard again, not only read once.
    let version = apply(&clients[1], 60.0).await.unwrap();
    in_force(&clients, version, 60.0, AT_THE_LATEST).await;
    let version = apply(&clients[0], 61.0).await.unwrap();
    in_force(&clients, version, 61.0, AT_THE_LATEST).await;
}

#[tokio::test]
async fn on_the_smaller_side_of_a_split_nothing_is_changed_and_all_is_equal_when_it_ends() {
    let site = Site::start(2).on_network().sharing(3).await;
    let clients = site.clients("admin");
    let gateways = site.clients("gateway");
    let _agent = site.agent("h1").host("h1", "cpu=10,users=1").await;
    let before = apply(&clients[1], 10.0).await.unwrap();
    in_force(&clients, before, 10.0, AT_THE_LATEST).await;

    // The second coordinator and one node of etcd see each other and the agents, and nobody else of the store.
    let smaller = [site.coordinator_machine(1), site.etcd_machine(2)];
    let larger = [site.etcd_machine(0), site.etcd_machine(1)];
    let pairs = || smaller.into_iter().flat_map(|here| larger.map(|there| (here, there)));
    pairs().for_each(|(here, there)| here.part(there));
    wait_for("the larger side to go on", LONG, async || {
        apply(&clients[0], 20.0).await.map_err(|status| status.to_string())
    })
    .await;
    let told = async || site.coordinators[1].log().contains("the shared store does not answer");
    wait_until("the smaller side to know that it is one", LONG, told).await;
    refused(&clients[1]).await;
    assert_eq!(applied(&clients[1]).await, (before, Some(10.0)), "it serves by what it knew");
    gateways[1].place(place("desk", "R1")).await.unwrap();

    pairs().for_each(|(here, there)| here.join(there));
    let (version, _) = applied(&clients[0]).await;
    in_force(&clients, version, 20.0, LONG).await;
    let next = wait_for("changes through the one that was cut off", LONG, async || {
        apply(&clients[1], 30.0).await.map_err(|status| status.to_string())
    })
    .await;
    assert_eq!(next, version + 1);
    in_force(&clients, next, 30.0, AT_THE_LATEST).await;
}

#[tokio::test]
async fn a_coordinator_that_is_started_while_etcd_is_away_serves_what_it_knew() {
    let mut site = Site::start(1).sharing(1).await;
    let client = site.clients("admin").remove(0);
    let agent = site.agent("hosts").host("h1", "cpu=10,users=1").host("h2", "cpu=10,users=1");
    let mut agent = agent.replica("crm").await;
    let version = apply(&client, 33.0).await.unwrap();
    client.mark_host("h1", v1::HostMarks { capacity: Some(2.5), ..Default::default() }).await.unwrap();
    client.mark_replica("h2", "crm", Some(v1::ReplicaMark::OutOfService)).await.unwrap();

    site.etcd.as_mut().unwrap().kill(0);
    site.coordinators[0].kill();
    site.coordinators[0].restart().await;
    agent.heard().await;
    assert_eq!(applied(&client).await, (version, Some(33.0)));
    assert_eq!(client.host("h1").await.unwrap().capacity, 2.5);
    wait_for("a place", LONG, async || {
        client.place(place("desk", "R1")).await.map_err(|status| status.to_string())
    })
    .await;
    let request = v1::PlaceRequest { resource: Some("crm".into()), ..place("desk", "R2") };
    let status = client.place(request).await.expect_err("the only copy is out of service");
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    refused(&client).await;

    let etcd = site.etcd.as_mut().unwrap();
    etcd.restart(0);
    etcd.healthy().await;
    let next = wait_for("changes to be taken again", LONG, async || {
        apply(&client, 34.0).await.map_err(|status| status.to_string())
    })
    .await;
    assert_eq!(next, version + 1);
    assert_eq!(client.host("h1").await.unwrap().capacity, 2.5);
}
