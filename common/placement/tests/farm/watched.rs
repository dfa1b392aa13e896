//! A farm that was watched, made again.

use std::sync::Arc;
use std::time::Duration;

use usher_placement::decision::{Decision, Inputs, Request, UserTrace, Words, decide};
use usher_placement::farm::{Farm, PoolRecord, Snapshot, WatchedHost, WatchedPool};
use usher_placement::load::{LearnedCosts, Typical};
use usher_placement::reservation::Ledger;
use usher_types::{
    BootId, BootTime, Endpoint, Hello, HostId, HostMarks, HostName, HostState, Load, Policy, PoolName,
    UserLimit,
};

const AS_OF: BootTime = BootTime::from_millis(1_000_000);

fn host(name: &str, users: u32) -> WatchedHost {
    let hello = Hello {
        agent_version: "t".into(),
        host_id: HostId::new(name).unwrap(),
        boot_id: BootId::new("b").unwrap(),
        stream_epoch: 0,
        incarnation_ms: 0,
        host_name: HostName::new(name).unwrap(),
        endpoints: vec![Endpoint { kind: "ssh".into(), address: "192.0.2.1".into(), port: 22 }],
        labels: Default::default(),
        pool: PoolName::new("desk").unwrap(),
        zone: None,
        cores: None,
        memory_bytes: None,
        cpu_model: None,
        report_interval: Duration::from_secs(5),
        latency_period: Duration::from_secs(15),
        is_virtual: false,
        is_reporter: false,
    };
    let load = Load { users: Some(users), streams_held: 1, ..Load::default() };
    WatchedHost {
        hello,
        connected: true,
        shut_down: false,
        said_goodbye: false,
        load: Some((load, AS_OF.before(Duration::from_secs(1)))),
        availability: None,
        background: None,
        background_is_borrowed: false,
        users: Some(users),
        pending_users: 0,
        places: 0,
        aged_places: 0,
        unheard_users: 0,
        unheard_places: 0,
        drain: None,
        marks: HostMarks::default(),
        replicas: Vec::new(),
    }
}

fn farm(policy: Policy, hosts: Vec<WatchedHost>) -> Arc<Snapshot> {
    let name = PoolName::new("desk").unwrap();
    let record = PoolRecord { version: 7, policy, ..PoolRecord::default_of(name) };
    let pool = WatchedPool { record, costs: LearnedCosts::PRIOR, typical: Typical::default() };
    Farm::of_watched(vec![pool], hosts, Arc::new(Ledger::new()), AS_OF).snapshot(AS_OF)
}

fn states(snapshot: &Snapshot) -> Vec<(String, HostState)> {
    let pool = snapshot.pools.values().next().unwrap();
    let words = pool.words();
    let state = |at: usize| usher_placement::farm::state_of(&pool.state_input(at, words[at], 1, AS_OF));
    (0..pool.hosts.len()).map(|at| (pool.hosts[at].facts.name.to_string(), state(at))).collect()
}

#[test]
fn hosts_are_in_the_states_in_which_they_were() {
    let limit = |users| HostMarks { max_users: Some(UserLimit::Users(users)), ..HostMarks::default() };
    let hosts = vec![
        WatchedHost { shut_down: true, said_goodbye: true, ..host("down", 1) },
        WatchedHost {
            load: Some((Load::default(), AS_OF.before(Duration::from_secs(20)))),
            ..host("silent", 1)
        },
        WatchedHost { load: Some((Load::default(), BootTime::ZERO)), ..host("never-heard", 1) },
        WatchedHost { marks: limit(5), pending_users: 2, places: 2, ..host("full", 3) },
        WatchedHost { marks: limit(6), pending_users: 2, places: 2, ..host("nearly-full", 3) },
        WatchedHost { marks: HostMarks { busy: true, ..HostMarks::default() }, ..host("busy", 1) },
    ];
    let expected = [
        ("down", HostState::Offline),
        ("silent", HostState::Offline),
        ("never-heard", HostState::Offline),
        ("full", HostState::MaxUsers),
        ("nearly-full", HostState::Available),
        ("busy", HostState::Busy),
    ];
    let expected: Vec<_> = expected.map(|(name, state)| (name.to_owned(), state)).into();
    assert_eq!(states(&farm(Policy::default(), hosts)), expected);
}

#[test]
fn places_that_were_given_out_count_and_the_settings_are_those_that_were_told() {
    let hosts = vec![WatchedHost { pending_users: 3, places: 3, ..host("a", 1) }, host("b", 2)];
    let snapshot = farm(Policy::default(), hosts);
    let pool = snapshot.pools.values().next().unwrap();
    assert_eq!(pool.version, 7);
    let (words, request) = (pool.words(), Request::of_nobody(pool.name.clone()));
    let inputs = Inputs {
        pool,
        words: Words::All(&words),
        request: &request,
        user: &UserTrace::default(),
        unwilling: &[],
        doors: &[],
        now: AS_OF,
        seed: 1,
    };
    let Decision::Take(choice) = decide(&inputs) else { panic!() };
    assert_eq!(pool.hosts[choice.position as usize].facts.name.to_string(), "b");
}

#[test]
fn a_host_of_a_pool_that_was_not_told_of_is_left_out() {
    let mut stray = host("stray", 1);
    stray.hello.pool = PoolName::new("elsewhere").unwrap();
    let snapshot = farm(Policy::default(), vec![stray, host("a", 1)]);
    assert_eq!((snapshot.pools.len(), states(&snapshot).len()), (1, 1));
}
