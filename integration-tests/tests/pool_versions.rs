//! Can every version of a pool's settings be looked at again, also after a restart, and is nothing impossible in force?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tonic::{Code, Status};
use usher_integration_tests::{Client, FakeAgent, Farm, hello, load, refusal, weights};
use usher_proto::error::error_info;
use usher_proto::v1;
use usher_proto::v1::attach_response::Message as Heard;

async fn create(client: &Client, pool: &str, profile: &str) -> Result<v1::ApplyPoolResponse, Status> {
    let request = v1::ApplyPoolRequest {
        pool: pool.to_owned(),
        profile: Some(profile.to_owned()),
        policy: Some(v1::Policy { threshold_percent: Some(40.0), ..Default::default() }),
        must_be_new: true,
        ..Default::default()
    };
    Ok(client.admin.clone().apply_pool(request).await?.into_inner())
}

fn fields(changes: &[v1::FieldChange]) -> Vec<(&str, &str, &str)> {
    changes.iter().map(|c| (c.field.as_str(), c.before.as_str(), c.after.as_str())).collect()
}

#[tokio::test]
async fn every_version_is_kept_and_compared_over_a_restart() {
    let mut farm = Farm::start().on_fixed_ports().await;
    let client = farm.gateway("ann");
    let created = create(&client, "desk", "ssh-login").await.unwrap();
    let expected = [
        ("weights", "15/15/55/15", "40/30/15/15"),
        ("threshold_percent", "0", "40"),
        ("affinity", "session", "linger"),
    ];
    assert_eq!(fields(&created.changes), expected);
    assert_eq!(created.changed, ["weights", "threshold_percent", "affinity"]);
    // Only once is a pool new.
    let again = refusal(create(&client, "desk", "domino").await, Code::InvalidArgument, "INVALID_FIELD");
    assert_eq!(error_info(&again).unwrap().metadata["field"], "pool");
    refusal(create(&client, "mail", "dominoes").await, Code::InvalidArgument, "INVALID_FIELD");

    client.apply("desk", v1::Policy { range: Some(8.0), ..Default::default() }).await.unwrap();
    farm.gateway("bob").apply("desk", weights(30.0, 30.0, 25.0, 15.0)).await.unwrap();
    let before = client.versions("desk").await.unwrap();
    farm.coordinator.kill();
    farm.coordinator.restart().await;
    let versions = client.versions("desk").await.unwrap();
    assert_eq!(versions, before, "nothing is lost when the process is killed");
    let said = |version: &v1::PoolVersion| {
        let pool = version.pool.clone().unwrap();
        (pool.version, pool.author, version.changes.first().map(|change| change.field.clone()).unwrap())
    };
    let said: Vec<_> = versions.iter().map(said).collect();
    assert_eq!(
        said,
        [
            (3, "bob".to_owned(), "weights".to_owned()),
            (2, "ann".to_owned(), "range".to_owned()),
            (1, "ann".to_owned(), "weights".to_owned()),
        ]
    );
    assert!(versions.iter().all(|version| version.pool.as_ref().unwrap().applied_at.is_some()));

    let last = client.diff("desk", None, None).await.unwrap();
    assert_eq!((last.from, last.to), (2, 3));
    assert_eq!(fields(&last.changes), [("weights", "40/30/15/15", "30/30/25/15")]);
    let all = client.diff("desk", Some(0), Some(2)).await.unwrap();
    assert_eq!(all.changes.len(), 4, "{all:?}");
    let back = client.diff("desk", Some(2), Some(1)).await.unwrap();
    assert_eq!(fields(&back.changes), [("range", "8", "6")]);
    refusal(client.diff("desk", None, Some(4)).await, Code::InvalidArgument, "INVALID_FIELD");
    refusal(client.diff("nowhere", None, None).await, Code::NotFound, "UNKNOWN_POOL");
    refusal(client.versions("nowhere").await, Code::NotFound, "UNKNOWN_POOL");
}

#[tokio::test]
async fn impossible_settings_are_refused_with_field_value_and_range_and_the_running_ones_stay() {
    let farm = Farm::start().await;
    let client = farm.client();
    let _agent = farm.agent("hosts").host("h1", "cpu=10,users=1").await;
    let before = client.apply("desk", v1::Policy { range: Some(7.0), ..Default::default() }).await.unwrap();
    let level =
        |percent| Some(v1::CriticalLevel { level: Some(v1::critical_level::Level::Percent(percent)) });
    let logons = |logons| Some(v1::PendingLimit { limit: Some(v1::pending_limit::Limit::Logons(logons)) });
    let users = |users| Some(v1::UserLimit { limit: Some(v1::user_limit::Limit::Users(users)) });
    let wrong: [(&str, &str, v1::Policy); 8] = [
        ("weights", "95", weights(30.0, 30.0, 25.0, 10.0)),
        ("weights.cpu_percent", "NaN", weights(f64::NAN, 50.0, 50.0, 0.0)),
        ("range", "120", v1::Policy { range: Some(120.0), ..Default::default() }),
        ("range", "= 0", v1::Policy { range: Some(0.0), ..Default::default() }),
        ("max_users", "= 0", v1::Policy { max_users: users(0), ..Default::default() }),
        (
            "method",
            "fill_first",
            v1::Policy { method: Some(v1::Method::FillFirst.into()), ..Default::default() },
        ),
        ("mem_critical_percent", "101", v1::Policy { mem_critical: level(101.0), ..Default::default() }),
        ("max_pending", "= 0", v1::Policy { max_pending: logons(0), ..Default::default() }),
    ];
    for (field, value, policy) in wrong {
        let status = refusal(client.apply("desk", policy).await, Code::InvalidArgument, "INVALID_FIELD");
        let text = status.message();
        assert!(text.contains(field) && text.contains(value) && text.contains("allowed"), "{field}: {text}");
    }
    let marks = v1::HostMarks { capacity: Some(0.0), ..Default::default() };
    let status = refusal(client.mark_host("h1", marks).await, Code::InvalidArgument, "INVALID_FIELD");
    assert!(status.message().contains("capacity = 0"), "{status:?}");
    assert_eq!(client.pool("desk").await.unwrap(), v1::PoolInfo { hosts: 1, ..before });
    assert_eq!(client.versions("desk").await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_agent_of_the_first_version_is_told_settings_that_it_understands() {
    let farm = Farm::start().await;
    let client = farm.client();
    let limit = v1::UserLimit { limit: Some(v1::user_limit::Limit::Users(50)) };
    let method = Some(v1::Method::FillFirst.into());
    client.apply("desk", v1::Policy { method, max_users: Some(limit), ..Default::default() }).await.unwrap();
    for (name, agent_version, expected) in [
        ("old", "0.1.0", (v1::Method::WeightedLoad, v1::Baseline::Minimum, false)),
        ("new", "9.0.0", (v1::Method::FillFirst, v1::Baseline::Robust, true)),
    ] {
        let hello = v1::Hello { agent_version: agent_version.into(), ..hello(name) };
        let mut fake = FakeAgent::attach(&client, hello).await.unwrap();
        // Agents of 0.1 say nothing of their latches but this.
        let old = v1::Load { availability_latched: true, ..load(10.0, 10.0, 1, 10) };
        let host = fake.report(old).await;
        let policy = |heard: &Heard| match heard {
            Heard::PoolSettings(settings) => settings.policy.clone(),
            _ => None,
        };
        let policy = fake.hears("its settings", policy).await;
        assert_eq!((policy.method(), policy.baseline(), policy.predict()), expected, "{name}");
        assert_eq!(policy.max_users, Some(limit));
        assert_eq!(host.max_users, Some(50));
    }
}
