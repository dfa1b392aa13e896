//! Does everything that people decided come back from a backup, in either kind of store, and nothing from a bad one?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use serde_json::Value;
use usher_integration_tests::{
    Client, Coordinator, CoordinatorStart, CtlOutput, EtcdStart, Farm, LONG, run_ctl, wait_for, wait_until,
};
use usher_proto::v1;

async fn ctl(folder: &Path, coordinator: &Coordinator, arguments: &[&str]) -> CtlOutput {
    let settings = folder.join("client.toml");
    std::fs::write(&settings, "").unwrap();
    let address = coordinator.grpc.to_string();
    let mut all = vec!["--config", settings.to_str().unwrap(), "--coordinator", &address, "--gateway", "ann"];
    all.extend(arguments);
    run_ctl(folder, &all).await
}

/// What an operator sees of what was decided: the pools with their versions, marks and drains of a host that is away.
async fn decided(folder: &Path, coordinator: &Coordinator) -> [Value; 3] {
    let mut seen = Vec::new();
    for arguments in [
        &["pool", "show", "desk", "--json"][..],
        &["pool", "history", "desk", "--json"],
        &["pool", "list", "--json"],
    ] {
        seen.push(ctl(folder, coordinator, arguments).await.exited(0).json());
    }
    seen.try_into().unwrap()
}

/// Two pools with versions, a host with marks, a drain that waits for it, and a marked replica.
async fn decide(farm: &Farm) {
    farm.ctl(&["pool", "create", "desk", "--profile", "unlike", "--gateway", "ann"]).await.exited(0);
    farm.ctl(&["pool", "apply", "desk", "--set", "max_users=40", "--gateway", "ann"]).await.exited(0);
    farm.ctl(&["pool", "apply", "desk", "--set", "range=8", "--gateway", "ann"]).await.exited(0);
    farm.ctl(&["pool", "create", "web", "--profile", "web", "--gateway", "ann"]).await.exited(0);
    let mut agent = farm.agent("hosts").host("h1", "cpu=10,users=1").replica("mail").await;
    farm.ctl(&["host", "set", "h1", "--capacity", "2", "--gateway", "ann"]).await.exited(0);
    farm.ctl(&["mark", "h1", "mail", "out-of-service", "--gateway", "ann"]).await.exited(0);
    agent.kill();
    let client = farm.client();
    wait_until("h1 to be away", LONG, async || client.host("h1").await.is_ok_and(|host| !host.connected))
        .await;
    farm.ctl(&["drain", "h1", "--persistent", "--reason", "disks", "--gateway", "ann"]).await.exited(0);
}

#[tokio::test]
async fn everything_that_was_decided_comes_back_in_a_new_store_as_it_was() {
    let farm = Farm::start().on_fixed_ports().await;
    decide(&farm).await;
    let before = decided(farm.folder(), &farm.coordinator).await;
    let said = farm.ctl(&["backup", "farm.backup"]).await.exited(0);
    assert!(said.stdout.contains("rows of farm default (redb)"), "{}", said.stdout);
    farm.ctl(&["backup", "farm.backup"]).await.exited(2);
    farm.ctl(&["backup", "farm.backup", "--force", "--json"]).await.exited(0);
    let streamed = farm.ctl(&["backup", "-"]).await.exited(0).stdout;
    let kept = std::fs::read_to_string(farm.folder().join("farm.backup")).unwrap();
    let rows = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rows(&streamed).len(), rows(&kept).len());

    let fresh = CoordinatorStart::new(farm.folder(), "fresh").start().await;
    let rehearsed =
        ctl(farm.folder(), &fresh, &["restore", "farm.backup", "--dry-run", "--json"]).await.exited(0).json();
    let kinds: Vec<&str> =
        rehearsed["rows"].as_array().unwrap().iter().map(|row| row["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["POOL", "POOL", "DRAIN", "HOST_MARKS", "REPLICA_MARK"], "{rehearsed}");
    assert!(
        ctl(farm.folder(), &fresh, &["pool", "list", "--json"]).await.json()["pools"]
            .as_array()
            .is_none_or(Vec::is_empty)
    );
    // Nobody can be asked here.
    ctl(farm.folder(), &fresh, &["restore", "farm.backup"]).await.exited(2);
    let done = ctl(farm.folder(), &fresh, &["restore", "farm.backup", "--yes"]).await.exited(0);
    assert!(done.stdout.contains("restored, and in force"), "{}", done.stdout);
    let mut after = decided(farm.folder(), &fresh).await;
    // The host is not in this farm yet.
    let mut before = before;
    for seen in [&mut before, &mut after] {
        for pool in seen[2]["pools"].as_array_mut().unwrap() {
            pool["hosts"] = 0.into();
        }
        seen[0]["pool"]["hosts"] = 0.into();
        for version in seen[1]["versions"].as_array_mut().unwrap() {
            version["pool"]["hosts"] = 0.into();
        }
    }
    assert_eq!(after, before);
    // What was said of the host waits for it, and is handed over to it.
    let addresses = [fresh.grpc];
    let state = farm.folder().join("hosts");
    let again = usher_integration_tests::AgentStart::new(farm.folder(), "hosts", &addresses)
        .host("h1", "cpu=10,users=1");
    assert!(state.exists());
    let _agent = again.replica("mail").await;
    let client = Client::new(fresh.grpc, None);
    let host = client.host("h1").await.unwrap();
    assert_eq!((host.state(), host.capacity), (v1::HostState::Restricted, 2.0));
    assert_eq!(host.state_reason, "drained by ann: disks");
    let located = ctl(farm.folder(), &fresh, &["locate", "mail"]).await.exited(0).stdout.to_uppercase();
    assert!(located.contains("OUT"), "{located}");
    let nothing = ctl(farm.folder(), &fresh, &["restore", "farm.backup", "--dry-run"]).await.exited(0).stdout;
    assert!(nothing.contains("DRAIN"), "the mark was handed over, the backup has it still: {nothing}");
}

#[tokio::test]
async fn a_restore_is_a_new_version_and_survives_a_killed_coordinator() {
    let mut farm = Farm::start().on_fixed_ports().await;
    let client = farm.gateway("ann");
    farm.ctl(&["pool", "create", "desk", "--set", "range=7"]).await.exited(0);
    farm.ctl(&["backup", "farm.backup"]).await.exited(0);
    for range in ["8", "9", "10"] {
        farm.ctl(&["pool", "apply", "desk", "--set", &format!("range={range}")]).await.exited(0);
    }
    farm.ctl(&["pool", "create", "later"]).await.exited(0);
    let _agent = farm.agent("hosts").host("h1", "cpu=10,users=1").await;
    let done =
        farm.ctl(&["restore", "farm.backup", "--yes", "--json", "--gateway", "ben"]).await.exited(0).json();
    let rows = done["rows"].as_array().unwrap();
    assert_eq!((&rows[0]["change"], &rows[0]["name"]), (&"CHANGED".into(), &"desk".into()));
    assert!(rows[0]["detail"].as_str().unwrap().contains("range 10 -> 7"), "{done}");
    assert_eq!((&rows[1]["change"], &rows[1]["name"]), (&"KEPT".into(), &"later".into()));
    let check = async |client: &Client| {
        let pool = client.pool("desk").await.unwrap();
        assert_eq!((pool.version, pool.policy.unwrap().range), (5, Some(7.0)));
        assert!(pool.author.starts_with("ben, from a backup of 20"), "{}", pool.author);
    };
    check(&client).await;
    wait_until("its host to have the new version", LONG, async || {
        client.host("h1").await.is_ok_and(|host| host.settings_version == Some(5))
    })
    .await;
    let versions = client.versions("desk").await.unwrap();
    assert_eq!(versions.len(), 5, "what was applied meanwhile is still known");
    farm.coordinator.kill();
    farm.coordinator.restart().await;
    check(&client).await;
    assert_eq!(client.versions("desk").await.unwrap().len(), 5);
    farm.ctl(&["pool", "apply", "desk", "--set", "range=11", "--expect-version", "5"]).await.exited(0);
}

#[tokio::test]
async fn a_backup_that_was_cut_or_changed_or_is_of_another_farm_changes_nothing() {
    let farm = Farm::start().await;
    farm.ctl(&["pool", "create", "desk", "--set", "range=7"]).await.exited(0);
    farm.ctl(&["backup", "good.backup"]).await.exited(0);
    let good = std::fs::read_to_string(farm.folder().join("good.backup")).unwrap();
    farm.ctl(&["pool", "apply", "desk", "--set", "range=9"]).await.exited(0);
    let lines: Vec<&str> = good.lines().collect();
    let bad = [
        ("empty", String::new()),
        ("one byte short", good[..good.len() - 2].to_owned()),
        ("without its last line", lines[..lines.len() - 1].join("\n") + "\n"),
        ("without a row", [&lines[..1], &lines[2..]].concat().join("\n") + "\n"),
        ("with another value", good.replace("\"range\":7.0", "\"range\":8.0")),
        ("of a later version", good.replace("\"usher_backup\":1", "\"usher_backup\":2")),
        ("something else", "root:x:0:0::/:/bin/sh\n".repeat(9)),
        ("of control characters", "\u{1b}[31m\u{0}\n".repeat(9)),
    ];
    for (what, text) in bad {
        std::fs::write(farm.folder().join("bad.backup"), text).unwrap();
        let refused = farm.ctl(&["restore", "bad.backup", "--yes", "--json"]).await.exited(1).json();
        assert_eq!(refused["error"]["reason"], "BAD_BACKUP", "{what}: {refused}");
        assert!(!refused.to_string().contains('\u{1b}'), "{what}");
    }
    let range = || async { farm.client().pool("desk").await.unwrap().policy.unwrap().range };
    assert_eq!(range().await, Some(9.0));

    let north = CoordinatorStart::new(farm.folder(), "north").settings("farm = \"north\"\n").start().await;
    let refused =
        ctl(farm.folder(), &north, &["restore", "good.backup", "--yes", "--json"]).await.exited(1).json();
    assert_eq!(refused["error"]["reason"], "OTHER_FARM");
    let wrong = ["restore", "good.backup", "--yes", "--farm-was", "south"];
    ctl(farm.folder(), &north, &wrong).await.exited(1);
    let named = ["restore", "good.backup", "--yes", "--farm-was", "default"];
    ctl(farm.folder(), &north, &named).await.exited(0);
    assert_eq!(Client::new(north.grpc, None).pool("desk").await.unwrap().policy.unwrap().range, Some(7.0));
}

#[tokio::test]
async fn case_142_rows_that_cannot_be_read_are_listed_shown_and_forgotten() {
    let mut farm = Farm::start().on_fixed_ports().await;
    farm.ctl(&["pool", "create", "desk", "--set", "range=7"]).await.exited(0);
    assert!(farm.ctl(&["quarantine"]).await.exited(0).stdout.contains("no row is set aside"));
    farm.coordinator.kill();
    damage(&farm.coordinator.data_dir().join("coordinator.redb"));
    farm.coordinator.restart().await;
    let listed = farm.ctl(&["quarantine", "--json"]).await.exited(0).json();
    let rows = listed["rows"].as_array().unwrap();
    let named: Vec<&str> = rows.iter().map(|row| row["key"].as_str().unwrap()).collect();
    assert_eq!(named, ["not an id"], "{listed}");
    assert_eq!(rows[0]["table"], "drains");
    assert!(!rows[0]["why"].as_str().unwrap().is_empty());
    let shown = farm.ctl(&["quarantine", "show", "drains/not an id"]).await.exited(0).stdout;
    assert!(shown.contains("{broken"), "{shown}");
    let said = farm.ctl(&["backup", "farm.backup"]).await.exited(0);
    assert!(said.stderr.contains("1 rows of the store could not be read"), "{}", said.stderr);
    farm.ctl(&["quarantine", "drop", "drains/not an id"]).await.exited(0);
    farm.ctl(&["quarantine", "drop", "drains/not an id"]).await.exited(1);
    assert!(farm.ctl(&["quarantine"]).await.exited(0).stdout.contains("no row is set aside"));
}

/// Puts a row into the store that no coordinator would write.
fn damage(file: &Path) {
    put(file, "drains", std::iter::once(("not an id".to_owned(), b"{broken".to_vec())));
}

/// Puts rows into the store of a coordinator that does not run.
fn put(file: &Path, table: &str, rows: impl Iterator<Item = (String, Vec<u8>)>) {
    let store = redb::Database::open(file).unwrap();
    let transaction = store.begin_write().unwrap();
    {
        let mut table = transaction.open_table(redb::TableDefinition::<&[u8], &[u8]>::new(table)).unwrap();
        for (key, row) in rows {
            table.insert(key.as_bytes(), row.as_slice()).unwrap();
        }
    }
    transaction.commit().unwrap();
}

#[tokio::test]
async fn a_backup_of_either_kind_of_store_restores_into_the_other() {
    let farm = Farm::start().on_fixed_ports().await;
    decide(&farm).await;
    farm.ctl(&["backup", "redb.backup"]).await.exited(0);
    let etcd = EtcdStart::new(farm.folder(), 1).start().await;
    let shared = |name: &str| CoordinatorStart::new(farm.folder(), name).store_in(&etcd, None).start();
    let [one, two] = [shared("one").await, shared("two").await];
    ctl(farm.folder(), &one, &["restore", "redb.backup", "--yes"]).await.exited(0);
    let at_one = decided(farm.folder(), &one).await;
    // The other coordinator has it from their store.
    wait_for("the other coordinator to have it", LONG, async || {
        let at_two = decided(farm.folder(), &two).await;
        if at_two == at_one { Ok(()) } else { Err(format!("{at_two:?}")) }
    })
    .await;
    assert_eq!(at_one[0]["pool"]["version"], 3);

    ctl(farm.folder(), &two, &["pool", "apply", "desk", "--set", "range=9"]).await.exited(0);
    let said = ctl(farm.folder(), &two, &["backup", "etcd.backup"]).await.exited(0);
    assert!(said.stdout.contains("(etcd)"), "{}", said.stdout);
    farm.ctl(&["restore", "etcd.backup", "--yes"]).await.exited(0);
    let pool = farm.client().pool("desk").await.unwrap();
    assert_eq!((pool.version, pool.policy.unwrap().range), (5, Some(9.0)), "3 here, 4 there");
}

#[tokio::test]
async fn a_large_farm_comes_back_in_a_shared_store_as_a_whole() {
    let mut farm = Farm::start().on_fixed_ports().await;
    farm.ctl(&["pool", "create", "desk", "--set", "range=7"]).await.exited(0);
    farm.coordinator.terminate();
    wait_until("the coordinator to have ended", LONG, async || !farm.coordinator.is_running()).await;
    let rows =
        |count: usize| (0..count).map(|of| (format!("app{of}"), format!("\"host-{of}\"").into_bytes()));
    put(&farm.coordinator.data_dir().join("coordinator.redb"), "bindings", rows(1000));
    farm.coordinator.restart().await;
    farm.ctl(&["backup", "farm.backup"]).await.exited(0);
    let etcd = EtcdStart::new(farm.folder(), 1).start().await;
    let shared = CoordinatorStart::new(farm.folder(), "shared").store_in(&etcd, None).start().await;
    let begun = std::time::Instant::now();
    let done =
        ctl(farm.folder(), &shared, &["restore", "farm.backup", "--yes", "--json"]).await.exited(0).json();
    eprintln!("1001 rows were in etcd after {} ms", begun.elapsed().as_millis());
    assert_eq!(done["rows"].as_array().unwrap().len(), 1001);
    let again = ctl(farm.folder(), &shared, &["restore", "farm.backup", "--dry-run"]).await.exited(0).stdout;
    assert!(again.contains("nothing would change"), "{again}");
}
