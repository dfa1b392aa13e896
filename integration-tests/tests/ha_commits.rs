//! Is anything lost that was acknowledged, when a coordinator dies while it writes or its disk is full?
//!
//! `USHER_KILLS=1000` kills more often.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rand::RngExt;
use tonic::Status;
use usher_integration_tests::{
    Client, Coordinator, CoordinatorStart, EtcdStart, Farm, LONG, SmallDisk, metric, place, reason, wait_for,
    wait_until,
};
use usher_proto::v1;

fn kills() -> u32 {
    std::env::var("USHER_KILLS").map_or(100, |kills| kills.parse().unwrap())
}

/// The number that was written last, in both places where what people decide is kept.
async fn written(client: &Client) -> (u32, u32) {
    let policy = client.pool("desk").await.unwrap().policy.unwrap_or_default();
    let threshold = policy.threshold_percent.unwrap_or_default();
    let capacity = client.host("h1").await.unwrap().capacity;
    ((threshold * 1000.0).round() as u32, (capacity * 1000.0).round() as u32)
}

/// Writes one number after the other until the coordinator is gone. What was acknowledged is in the ledger.
async fn write(client: Client, from: u32, settings: Arc<AtomicU32>, marks: Arc<AtomicU32>) {
    for number in from.. {
        if write_one(&client, number, &settings, &marks).await.is_err() {
            return;
        }
    }
}

async fn write_one(
    client: &Client,
    number: u32,
    settings: &AtomicU32,
    marks: &AtomicU32,
) -> Result<(), Status> {
    let value = f64::from(number) / 1000.0;
    let policy = v1::Policy { threshold_percent: Some(value), ..Default::default() };
    client.apply("desk", policy).await?;
    settings.store(number, Ordering::Relaxed);
    let marked = v1::HostMarks { capacity: Some(value), ..Default::default() };
    client.mark_host("h1", marked).await?;
    marks.store(number, Ordering::Relaxed);
    Ok(())
}

/// Kills the coordinator while it commits, over and over; after each start everything that was acknowledged is there.
async fn kill_during_commits(farm: &mut Farm) {
    let client = farm.client();
    let mut agent = farm.agent("hosts").host("h1", "cpu=10,users=1").await;
    farm.coordinator.hosts_stored().await;
    agent.kill();
    let (settings, marks) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    // Something is acknowledged before the first kill, so that each has something to lose.
    let (mut first, mut both) = (1000, 0);
    write_one(&client, first - 1, &settings, &marks).await.unwrap();
    for round in 0..kills() {
        let writing = tokio::spawn(write(client.clone(), first, Arc::clone(&settings), Arc::clone(&marks)));
        // Mostly after something was acknowledged, however long that takes; else whenever it comes.
        wait_until("something to be acknowledged", LONG, async || {
            round % 4 == 0 || settings.load(Ordering::Relaxed) >= first || writing.is_finished()
        })
        .await;
        let begun = Instant::now();
        let pause = Duration::from_micros(rand::rng().random_range(0..90_000));
        wait_until("a moment of writing", LONG, async || begun.elapsed() >= pause).await;
        farm.coordinator.kill();
        writing.await.unwrap();
        farm.coordinator.restart().await;

        let acknowledged = (settings.load(Ordering::Relaxed), marks.load(Ordering::Relaxed));
        let found = wait_for("an answer", LONG, async || {
            client.hosts().await.map_err(|status| status.to_string())?;
            Ok::<_, String>(written(&client).await)
        })
        .await;
        // What was under way may be there too: its answer was lost.
        for (found, acknowledged) in [(found.0, acknowledged.0), (found.1, acknowledged.1)] {
            let expected = acknowledged..=acknowledged.max(first - 1) + 1;
            assert!(
                expected.contains(&found),
                "round {round}: {found} was found, {acknowledged} was acknowledged"
            );
        }
        both += u32::from(acknowledged.0 >= first);
        first = found.0.max(found.1).max(first) + 1;
        settings.store(found.0, Ordering::Relaxed);
        marks.store(found.1, Ordering::Relaxed);
    }
    let page = farm.coordinator.metrics().await;
    assert_eq!(metric(&page, "usher_coordinator_store_rows_quarantined_total").unwrap_or(0.0), 0.0);
    // Not more than a hundred versions are kept, and each is there once.
    let kept = client.versions("desk").await.unwrap();
    let versions: Vec<u64> = kept.iter().map(|kept| kept.pool.as_ref().unwrap().version).collect();
    assert!(versions.windows(2).all(|pair| pair[0] == pair[1] + 1), "{versions:?}");
    eprintln!(
        "{} kills, in {both} of them after something was acknowledged; the last number is {first}",
        kills()
    );
    assert!(both > kills() / 4, "the kills must come while it writes");
}

#[tokio::test]
async fn a_coordinator_killed_a_hundred_times_while_it_commits_to_its_file_loses_nothing_acknowledged() {
    let mut farm = Farm::start().on_fixed_ports().await;
    kill_during_commits(&mut farm).await;
}

#[tokio::test]
async fn a_coordinator_killed_a_hundred_times_while_it_commits_to_etcd_loses_nothing_acknowledged() {
    let start = Farm::start();
    let etcd = EtcdStart::new(start.folder(), 1).start().await;
    let mut farm = start.coordinator(|start| start.store_in(&etcd, None)).on_fixed_ports().await;
    kill_during_commits(&mut farm).await;
}

async fn commit_failures(coordinator: &Coordinator) -> f64 {
    metric(&coordinator.metrics().await, "usher_coordinator_store_commit_failures_total").unwrap_or(0.0)
}

#[tokio::test]
async fn with_a_full_disk_changes_are_refused_logins_go_on_and_with_space_again_all_is_well() {
    let farm = Farm::start().await;
    let data = farm.folder().join("small");
    let disk = SmallDisk::mount(&data, 16 * 1024);
    let start = CoordinatorStart::new(farm.folder(), "full").data_in(&data).on_fixed_ports();
    let mut coordinator = start.start().await;
    let client = Client::new(coordinator.grpc, Some("admin"));
    let agent = usher_integration_tests::AgentStart::new(farm.folder(), "hosts", &[coordinator.grpc]);
    let mut agent = agent.host("h1", "cpu=10,users=1").await;
    let threshold = |percent| v1::Policy { threshold_percent: Some(percent), ..Default::default() };
    client.apply("desk", threshold(1.0)).await.unwrap();

    disk.fill();
    let mut acknowledged = 1.0;
    let refused = wait_for("a change that does not fit any more", LONG, async || {
        // The file may have space of its own for some.
        match client.apply("desk", threshold(acknowledged + 1.0)).await {
            Ok(_) => {
                acknowledged += 1.0;
                Err(format!("{acknowledged} fitted"))
            }
            Err(status) => Ok(status),
        }
    })
    .await;
    assert_eq!(reason(&refused), "STORE_UNAVAILABLE", "{refused:?}");
    assert!(commit_failures(&coordinator).await > 0.0);
    assert!(coordinator.log().contains("ERROR"), "the operator is told: {}", coordinator.log());
    for number in 0..20 {
        client.place(place("desk", &format!("R{number}"))).await.unwrap();
    }
    // What is in force is what was acknowledged.
    assert_eq!(client.pool("desk").await.unwrap().policy.unwrap().threshold_percent, Some(acknowledged));

    disk.free();
    wait_for("changes to be taken again, without a restart", LONG, async || {
        client.apply("desk", threshold(77.0)).await.map_err(|status| status.to_string())
    })
    .await;
    coordinator.kill();
    coordinator.restart().await;
    agent.heard().await;
    assert_eq!(client.pool("desk").await.unwrap().policy.unwrap().threshold_percent, Some(77.0));
    // It goes before the disk does.
    drop(coordinator);
}
