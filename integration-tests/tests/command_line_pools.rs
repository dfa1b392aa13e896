//! Can an operator make pools, change them, look back at them, and set what is one host's or one replica's, by hand?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use usher_integration_tests::{Agent, Farm, LONG, holds, page, place, row, wait_for};

/// What a command that is refused tells people.
async fn no(farm: &Farm, line: &str, code: i32) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    farm.ctl(&words).await.exited(code).stderr
}

#[tokio::test]
async fn what_a_session_costs_is_shown_with_its_unit_and_explains_a_prediction() {
    let farm = Farm::start().await;
    page(&farm, "pool create desk --set method=predictive").await;
    let learned = page(&farm, "pool learned desk").await;
    assert_eq!(row(&learned, "logon_cores")[..4], ["logon_cores", "1.000", "cores", "no"]);
    assert_eq!(row(&learned, "logon_seconds")[1..4], ["20.0", "s", "no"]);
    let json = farm.ctl(&["pool", "learned", "desk", "--json"]).await.exited(0).json();
    assert_eq!(json["costs"].as_array().unwrap().len(), 5, "{json:#}");
    holds(&no(&farm, "pool learned nowhere", 1).await, &["UNKNOWN_POOL"]);

    let _agent =
        farm.agent("hosts").host("s1", "cpu=35,mem=55,users=10").host("s2", "cpu=5,mem=45,users=90").await;
    let placed = farm.client().place(place("desk", "login-1")).await.unwrap();
    assert_eq!((placed.host_name.as_str(), placed.weighted_load), ("s2", None));
    let explained = farm.client().explain(&placed.decision_id).await.unwrap();
    assert_eq!((explained.hosts.len(), explained.costs.len()), (2, 5));
    for host in &explained.hosts {
        let of = host.predicted.as_ref().unwrap();
        let sum = of.background + of.logons + of.sessions + of.memory + of.scarce_memory;
        assert!((sum - host.score.unwrap()).abs() < 0.01, "{host:?}");
    }
    let shown = page(&farm, &format!("explain {}", placed.decision_id)).await;
    holds(&shown, &["PREDICTIVE", "s2 by PREDICTED", "BACKGROUND", "one more session costs:"]);
}

#[tokio::test]
async fn a_pool_is_created_from_a_profile_changed_compared_and_looked_back_at() {
    let farm = Farm::start().await;
    let rehearsed = page(&farm, "pool create login --profile ssh-login --dry-run").await;
    holds(&rehearsed, &["pool login can be created; nothing was applied"]);
    holds(&no(&farm, "pool show login", 1).await, &["UNKNOWN_POOL"]);
    let created = page(&farm, "pool create login --profile ssh-login --set max_users=80").await;
    assert_eq!(row(&created, "weights"), ["weights", "15/15/55/15", "40/30/15/15"]);
    assert_eq!(row(&created, "max_users"), ["max_users", "unlimited", "80"]);
    holds(&created, &["pool login is created: version 1 by local"]);
    holds(&no(&farm, "pool create login", 1).await, &["INVALID_FIELD", "never applied"]);

    let line = "pool apply login --set threshold=40 --set mem_critical=off --set weights=30/30/25/15 \
                --set reservation_ttl=60s --set weights.users_percent=100";
    // Two spellings of one setting: the one that is typed by name wins.
    let applied = page(&farm, line).await;
    assert_eq!(row(&applied, "weights"), ["weights", "40/30/15/15", "30/30/25/15"]);
    assert_eq!(row(&applied, "mem_critical_percent"), ["mem_critical_percent", "95", "off"]);
    assert_eq!(row(&applied, "reservation_ttl_ms"), ["reservation_ttl_ms", "120s", "60s"]);

    let last = page(&farm, "pool diff login").await;
    holds(&last, &["from version 1 to version 2"]);
    assert_eq!(row(&last, "threshold_percent"), ["threshold_percent", "0", "40"]);
    let all = page(&farm, "pool diff login --from 0 --to 1").await;
    assert_eq!(row(&all, "affinity"), ["affinity", "session", "linger"]);
    let history = page(&farm, "pool history login").await;
    let newest = row(&history, "2");
    assert_eq!(newest[2], "local");
    holds(newest[3], &["weights", "threshold_percent", "mem_critical_percent", "reservation_ttl_ms"]);
    holds(
        &page(&farm, "pool history login --changes --limit 1").await,
        &["version 2 by local", "40/30/15/15"],
    );

    let first = page(&farm, "pool show login --version 1 --toml").await;
    holds(&first, &["max_users = 80", "cpu_percent = 40.0", "affinity = \"linger\""]);
    std::fs::write(farm.folder().join("login.toml"), &first).unwrap();
    let differs = page(&farm, "pool diff login -f login.toml").await;
    assert_eq!(row(&differs, "threshold_percent"), ["threshold_percent", "40", "0"]);
    page(&farm, "pool apply login -f login.toml --expect-version 2").await;
    holds(&page(&farm, "pool diff login --from 1 --to 3").await, &["do not differ"]);
    holds(&no(&farm, "pool show login --version 9", 1).await, &["version 9 is not kept", "1 to 3"]);
    holds(
        &page(&farm, "pool show login --version 0").await,
        &["0: the defaults", "max_users = \"unlimited\""],
    );
}

#[tokio::test]
async fn impossible_settings_are_refused_by_name_value_and_range_and_the_running_ones_stay() {
    let farm = Farm::start().await;
    page(&farm, "pool create desk --set range=8").await;
    for (setting, parts) in [
        ("weights=30/30/25/10", &["add up to 95"][..]),
        ("range=120", &["range = 120", "1..=30"]),
        ("threshold=nan", &["threshold_percent = NaN", "0..=100"]),
        ("max_users=0", &["max_users = 0", "at least 1"]),
        ("method=fill_first", &["fill_first", "finite max_users"]),
    ] {
        let refused = no(&farm, &format!("pool apply desk --set {setting}"), 1).await;
        holds(&refused, &["INVALID_FIELD"]);
        holds(&refused, parts);
    }
    holds(&no(&farm, "pool apply desk --set treshold=40", 2).await, &["did you mean threshold?"]);
    holds(&no(&farm, "pool apply desk --profile dominoes", 2).await, &["domino"]);
    holds(&page(&farm, "pool show desk").await, &["version  1 by local", "range = 8.0"]);
}

async fn two_hosts() -> (Farm, Agent) {
    let farm = Farm::start().await;
    page(&farm, "pool create desk --set weights=0/0/100/0").await;
    let agent = farm
        .agent("hosts")
        .host("s1", "cpu=35,mem=55,users=10,procs=70")
        .replica("crm")
        .host("s2", "cpu=25,mem=45,users=14,procs=89")
        .replica("crm")
        .await;
    (farm, agent)
}

#[tokio::test]
async fn an_admin_sets_a_hosts_size_and_limits_and_the_host_shows_who_did() {
    let (farm, _agent) = two_hosts().await;
    let rehearsed = page(&farm, "host set s1 --capacity 2 --max-users 12 --dry-run").await;
    holds(&rehearsed, &["of s1 would be set: capacity 2, max_users 12"]);
    assert!(!page(&farm, "host show s1").await.contains("set by an admin"), "nothing was set");
    page(&farm, "host set s1 --capacity 2 --max-users 12 --threshold 30 --range 8").await;
    let shown = page(&farm, "host show s1").await;
    holds(&shown, &["capacity 2, max_users 12, threshold 30, range 8", "limit 12, set by an admin"]);
    assert_eq!(row(&shown, "capacity"), ["capacity", "2,", "set", "by", "an", "admin"]);

    page(&farm, "host set s1 --busy yes").await;
    wait_for("s1 is BUSY", LONG, async || {
        let hosts = page(&farm, "hosts").await;
        if row(&hosts, "s1")[2] == "BUSY" { Ok(()) } else { Err(hosts) }
    })
    .await;
    holds(&page(&farm, "host show s1").await, &["user_set"]);
    let placed = page(&farm, "place desk --dry-run").await;
    assert_eq!(row(&placed, "host")[1], "s2");

    let cleared = page(&farm, "host set s1 --busy no --clear capacity,max_users,threshold,range").await;
    holds(&cleared, &["of s1 nothing is set"]);
    let refused = no(&farm, "host set s1 --capacity 0 --range 120", 1).await;
    holds(&refused, &["INVALID_FIELD", "capacity = 0", "drain", "range = 120", "1..=30"]);
    holds(&no(&farm, "host set s1", 2).await, &["nothing to set"]);
    holds(&no(&farm, "host set nowhere --range 8", 1).await, &["UNKNOWN_HOST"]);
}

#[tokio::test]
async fn a_replica_is_taken_out_of_service_and_back_by_hand() {
    let (farm, _agent) = two_hosts().await;
    let located = page(&farm, "locate crm").await;
    assert_eq!(row(&located, "crm")[..5], ["crm", "s1", "desk", "AVAILABLE", "IN_SERVICE"]);
    holds(
        &page(&farm, "mark s1 crm out-of-service --dry-run").await,
        &["would mark crm on s1 OUT_OF_SERVICE"],
    );
    assert_eq!(row(&page(&farm, "place desk --resource crm --dry-run").await, "host")[1], "s1");

    holds(&page(&farm, "mark s1 crm out-of-service").await, &["is OUT_OF_SERVICE, it was IN_SERVICE"]);
    assert_eq!(row(&page(&farm, "locate crm --pool desk").await, "crm")[4], "OUT_OF_SERVICE");
    assert_eq!(row(&page(&farm, "place desk --resource crm --dry-run").await, "host")[1], "s2");
    page(&farm, "mark s2 crm pending_delete").await;
    holds(&no(&farm, "place desk --resource crm", 1).await, &["OUT_OF_SERVICE", "s1", "s2"]);
    holds(&page(&farm, "mark s1 crm in-service").await, &["is IN_SERVICE, it was OUT_OF_SERVICE"]);
    assert_eq!(row(&page(&farm, "place desk --resource crm --dry-run").await, "host")[1], "s1");
    holds(&no(&farm, "locate nothing", 1).await, &["UNKNOWN_RESOURCE"]);
    holds(&page(&farm, "mark s1 gone out-of-service").await, &["does not list it", "24 h"]);
}
