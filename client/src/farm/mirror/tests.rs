use super::*;

pub(crate) fn told(id: &str, pool: &str) -> v1::WatchedHost {
    v1::WatchedHost {
        host_id: id.into(),
        facts: Some(v1::Hello {
            protocol_version: 1,
            agent_version: "t".into(),
            host_id: id.into(),
            boot_id: "b".into(),
            host_name: id.into(),
            endpoints: vec![v1::Endpoint { kind: "ssh".into(), address: "192.0.2.1".into(), port: 22 }],
            pool: pool.into(),
            report_interval_ms: 5000,
            latency_period_ms: 15_000,
            ..v1::Hello::default()
        }),
        load: Some(v1::Load { users: Some(3), streams_held: 1, ..v1::Load::default() }),
        load_age_ms: Some(1000),
        connected: true,
        users: Some(3),
        ..v1::WatchedHost::default()
    }
}

pub(crate) fn message(revision: u64, event: Event) -> v1::WatchFarmResponse {
    v1::WatchFarmResponse { revision, event: Some(event), held_ms: 0 }
}

pub(crate) fn start(farm: &str) -> v1::WatchFarmResponse {
    let start = v1::FarmStart { farm: farm.into(), instance_id: "i".into(), ..v1::FarmStart::default() };
    message(0, Event::Start(start))
}

pub(crate) fn hosts(revision: u64, hosts: Vec<v1::WatchedHost>) -> v1::WatchFarmResponse {
    let policy = usher_proto::write::policy(&usher_types::Policy::default());
    let pool = v1::WatchedPool {
        pool: "desk".into(),
        version: 1,
        policy: Some(policy),
        ..v1::WatchedPool::default()
    };
    message(
        revision,
        Event::Changes(v1::FarmChanges { pools: vec![pool], hosts, ..v1::FarmChanges::default() }),
    )
}

pub(crate) fn bookmark(revision: u64) -> v1::WatchFarmResponse {
    message(revision, Event::Bookmark(v1::FarmBookmark { hosts_heard: 1, hosts_registered: 1, stale: false }))
}

const NOW: BootTime = BootTime::from_millis(100_000);

#[test]
fn parts_that_are_not_told_again_stay_and_ages_are_of_our_clock() {
    let mut mirror = Mirror::new(None);
    mirror.take(start("f"), NOW).unwrap();
    let mut first = told("a", "desk");
    first.replicas = Some(v1::WatchedReplicas { resource_ids: vec!["db".into()], unlisted: false });
    mirror.take(hosts(7, vec![first]), NOW).unwrap();
    let later = v1::WatchedHost { facts: None, users: Some(4), ..told("a", "desk") };
    let mut changes = hosts(8, vec![later]);
    changes.held_ms = 500;
    mirror.take(changes, NOW + Duration::from_secs(2)).unwrap();
    assert_eq!(mirror.take(bookmark(8), NOW + Duration::from_secs(3)), Ok(Taken::Bookmark { stale: false }));
    let known = mirror.known();
    let host = &known.hosts["a"];
    assert_eq!((host.told.users, host.told.replicas.as_ref().unwrap().resource_ids.len()), (Some(4), 1));
    assert_eq!(host.measured_at, Some(NOW + Duration::from_millis(500)));
    assert_eq!(known.as_of, NOW + Duration::from_secs(3));
    assert_eq!(mirror.resume(), Some((8, "i".to_owned())));
}

#[test]
fn who_is_gone_is_gone_and_a_new_start_forgets_everything() {
    let mut mirror = Mirror::new(None);
    mirror.take(start("f"), NOW).unwrap();
    mirror.take(hosts(1, vec![told("a", "desk"), told("b", "desk"), told("c", "other")]), NOW).unwrap();
    let gone = v1::FarmChanges {
        gone_hosts: vec!["a".into()],
        gone_pools: vec!["other".into()],
        ..v1::FarmChanges::default()
    };
    mirror.take(message(2, Event::Changes(gone)), NOW).unwrap();
    assert_eq!(mirror.known().hosts.keys().map(AsRef::as_ref).collect::<Vec<&str>>(), ["b"]);
    mirror.take(start("f"), NOW).unwrap();
    assert!(mirror.known().hosts.is_empty());
    assert_eq!(mirror.resume(), None, "not known up to anywhere");
}

#[test]
fn what_no_coordinator_would_say_is_found_out() {
    let mut mirror = Mirror::new(Some("f".into()));
    assert_eq!(mirror.take(bookmark(1), NOW), Err(Nonsense::NoStart));
    assert_eq!(mirror.take(start("g"), NOW), Err(Nonsense::OtherFarm("g".into())));
    assert_eq!(mirror.take(v1::WatchFarmResponse::default(), NOW), Err(Nonsense::Empty));
    mirror.take(start("f"), NOW).unwrap();
    let nobody = v1::WatchedHost { facts: None, ..told("a", "desk") };
    assert_eq!(mirror.take(hosts(1, vec![nobody]), NOW), Err(Nonsense::Nobody));
    // The first farm that comes is the farm.
    let mut any = Mirror::new(None);
    any.take(start("f"), NOW).unwrap();
    assert_eq!(any.take(start("g"), NOW), Err(Nonsense::OtherFarm("g".into())));
}
