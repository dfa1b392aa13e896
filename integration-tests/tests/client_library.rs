//! Does a gateway that links the library always have an answer?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use usher_client::{Cause, Client as Library, Config, Error, NoLocal, Outcome, Placement, Request};
use usher_integration_tests::{
    Agent, AgentStart, Client, Coordinator, CoordinatorStart, LONG, wait_for, wait_until,
};
use usher_proto::v1;

/// Coordinators side by side, and modelled hosts that report to all of them.
struct Several {
    coordinators: Vec<Coordinator>,
    agent: Agent,
    folder: tempfile::TempDir,
}

impl Several {
    async fn start(number: usize, hosts: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut coordinators = Vec::new();
        for number in 0..number {
            let start = CoordinatorStart::new(folder.path(), &format!("c{number}")).on_fixed_ports();
            coordinators.push(start.start().await);
        }
        let addresses: Vec<_> = coordinators.iter().map(|coordinator| coordinator.grpc).collect();
        let agent = AgentStart::new(folder.path(), "hosts", &addresses);
        let agent = hosts.iter().fold(agent, |agent, (name, values)| agent.host(name, values)).await;
        Self { coordinators, agent, folder }
    }

    fn config(&self) -> Config {
        Config::new(self.coordinators.iter().map(|coordinator| coordinator.grpc.to_string())).gateway("gate")
    }

    fn seen_by(&self, number: usize) -> Client {
        Client::new(self.coordinators[number].grpc, Some("gate"))
    }

    fn cache(&self) -> std::path::PathBuf {
        self.folder.path().join("farm.cache")
    }
}

const THREE: [(&str, &str); 3] = [
    ("s1", "cpu=10,mem=10,users=1,procs=10"),
    ("s2", "cpu=10,mem=10,users=1,procs=10"),
    ("s3", "cpu=10,mem=10,users=1,procs=10"),
];

/// Stops a process, and waits until it stands still.
async fn freeze(coordinator: &Coordinator) {
    coordinator.freeze();
    let stat = format!("/proc/{}/stat", coordinator.pid());
    wait_until("it to stand still", LONG, async || {
        std::fs::read_to_string(&stat).unwrap().rsplit(") ").next().unwrap().starts_with('T')
    })
    .await;
}

async fn limit_users(client: &Client, host: &str, users: u32) {
    let limit = v1::UserLimit { limit: Some(v1::user_limit::Limit::Users(users)) };
    client
        .mark_host(host, v1::HostMarks { max_users: Some(limit), ..v1::HostMarks::default() })
        .await
        .unwrap();
}

async fn knows_farm(library: &Library) {
    wait_until("the library to know the farm", LONG, async || library.farm_age().is_some()).await;
}

fn login(number: u32) -> Request {
    Request::new("desk").id(format!("login-{number}")).user(format!("user-{number}"))
}

#[tokio::test]
async fn a_login_is_placed_reported_and_sent_elsewhere() {
    let farm = Several::start(2, &THREE).await;
    let library = Library::connect(farm.config()).unwrap();
    let placement = library.place(login(1)).await.unwrap();
    assert_eq!((placement.reason().as_str(), placement.is_local()), ("LOWEST_LOAD", false));
    assert_eq!(placement.endpoint("ssh").unwrap().port, placement.endpoints()[0].port);
    assert!(placement.reserved_for().unwrap() > Duration::from_secs(100));
    assert_eq!((placement.request_id(), placement.attempts()), ("login-1", 1));

    let other = library.failover(&placement, Cause::Unreachable).await.unwrap();
    assert_ne!(other.host_id(), placement.host_id());
    let third = library.failover(&other, Cause::Refused).await.unwrap();
    let hosts: HashSet<&str> = [&placement, &other, &third].map(Placement::host_id).into();
    assert_eq!(hosts.len(), 3, "no host twice");
    let Error::Refused(refusal) = library.failover(&third, Cause::Unreachable).await.unwrap_err() else {
        panic!()
    };
    assert_eq!(refusal.reason, "ALL_EXCLUDED", "{refusal}");

    library.report(&third, Outcome::Cancelled);
    assert!(library.flush(LONG).await);
    wait_for("no place to be left", LONG, async || {
        let places: u32 = farm.seen_by(0).hosts().await.unwrap().iter().map(|host| host.pending_places).sum();
        if places == 0 { Ok(()) } else { Err(format!("{places}")) }
    })
    .await;
}

#[tokio::test]
async fn a_no_is_kept_whole() {
    let farm = Several::start(2, &[("s1", "cpu=1,mem=1,users=10,procs=1")]).await;
    for number in 0..2 {
        limit_users(&farm.seen_by(number), "s1", 10).await;
    }
    let library = Library::connect(farm.config()).unwrap();
    let Error::Refused(refusal) = library.place(login(1)).await.unwrap_err() else { panic!() };
    assert_eq!((refusal.reason.as_str(), refusal.code), ("MAX_USERS", tonic::Code::ResourceExhausted));
    assert!(refusal.retry_after.is_some());
    assert_eq!(refusal.hosts().map(|(host, _)| host).collect::<Vec<_>>(), ["s1"]);
    let Error::Refused(refusal) = library.place(Request::new("nowhere")).await.unwrap_err() else { panic!() };
    assert_eq!(refusal.reason, "UNKNOWN_POOL");
    // A dry run takes nothing.
    assert!(matches!(library.place(login(2).dry_run()).await, Err(Error::Refused(_))));
}

const TASKS: usize = 8;

/// Logins one after the other until `end`, from several tasks; each must get a host. Counts those that wait for theirs.
async fn keep_logging_in(library: &Library, end: Instant, under_way: &Arc<AtomicUsize>) -> Vec<Placement> {
    let logins = (0..TASKS).map(|task| {
        let (library, under_way) = (library.clone(), under_way.clone());
        tokio::spawn(async move {
            let mut placed = Vec::new();
            for number in 0.. {
                if Instant::now() >= end {
                    break;
                }
                let request = Request::new("desk").id(format!("{task}-{number}"));
                under_way.fetch_add(1, Ordering::Relaxed);
                let placement = library.place(request).await.unwrap();
                under_way.fetch_sub(1, Ordering::Relaxed);
                library.report(&placement, Outcome::Cancelled);
                placed.push(placement);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            placed
        })
    });
    let mut all = Vec::new();
    for task in logins.collect::<Vec<_>>() {
        all.extend(task.await.unwrap());
    }
    all
}

#[tokio::test]
async fn a_coordinator_that_is_killed_in_the_middle_of_calls_fails_none() {
    let mut farm = Several::start(2, &THREE).await;
    let library = Library::connect(farm.config()).unwrap();
    let first = library.place(login(0)).await.unwrap();
    let used = first.coordinator().unwrap().to_owned();
    let end = Instant::now() + Duration::from_secs(6);
    let under_way = Arc::new(AtomicUsize::new(0));
    let running = tokio::spawn({
        let (library, under_way) = (library.clone(), under_way.clone());
        async move { keep_logging_in(&library, end, &under_way).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let killed = farm.coordinators.iter_mut().find(|c| c.grpc.to_string() == used).unwrap();
    // Each of them then waits for its answer.
    freeze(killed).await;
    wait_until("all to wait for it", LONG, async || under_way.load(Ordering::Relaxed) == TASKS).await;
    killed.kill();
    tokio::time::sleep(Duration::from_secs(2)).await;
    killed.restart().await;
    let placed = running.await.unwrap();
    assert!(placed.iter().all(|placement| !placement.is_local()), "somebody answered each time");
    let interrupted = placed.iter().filter(|placement| placement.attempts() > 1).count();
    assert!(interrupted >= TASKS, "calls were under way: {interrupted}");
    let others = placed.iter().filter(|placement| placement.coordinator() != Some(&used));
    assert!(others.count() > 10, "the other one took over");
}

#[tokio::test]
async fn a_coordinator_that_is_stopped_in_order_fails_no_call() {
    let mut farm = Several::start(2, &THREE).await;
    let library = Library::connect(farm.config()).unwrap();
    let used = library.place(login(0)).await.unwrap().coordinator().unwrap().to_owned();
    let end = Instant::now() + Duration::from_secs(4);
    let running = tokio::spawn({
        let library = library.clone();
        async move { keep_logging_in(&library, end, &Arc::default()).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let stopped = farm.coordinators.iter_mut().find(|c| c.grpc.to_string() == used).unwrap();
    stopped.terminate();
    stopped.ended(LONG).await;
    let placed = running.await.unwrap();
    assert!(placed.iter().all(|placement| !placement.is_local()), "somebody answered each time");
    let (by_used, by_other): (Vec<_>, Vec<_>) =
        placed.iter().partition(|placement| placement.coordinator() == Some(&used));
    assert!(by_used.len() > 10 && by_other.len() > 10, "{} and {}", by_used.len(), by_other.len());
}

#[tokio::test]
async fn case_137_a_coordinator_that_hangs_is_left_for_the_other_one_and_found_again() {
    let farm = Several::start(2, &THREE).await;
    let library = Library::connect(farm.config()).unwrap();
    let first = library.place(login(0)).await.unwrap();
    let used =
        farm.coordinators.iter().position(|c| Some(c.grpc.to_string().as_str()) == first.coordinator());
    let used = used.unwrap();
    freeze(&farm.coordinators[used]).await;
    let placed = library.place(login(1)).await.unwrap();
    assert!(!placed.is_local() && placed.coordinator() != first.coordinator());
    assert_eq!(placed.attempts(), 2, "one id, counted up");
    for number in 2..20 {
        let placed = library.place(login(number)).await.unwrap();
        assert_eq!(placed.attempts(), 1, "it is not waited for again");
    }
    farm.coordinators[used].thaw();
    // The one id has one place in the end, although two coordinators saw the call.
    let other = farm.seen_by(1 - used);
    wait_for("one place for each login", LONG, async || {
        let places: u32 = other.hosts().await.unwrap().iter().map(|host| host.pending_places).sum();
        if places == 20 { Ok(()) } else { Err(format!("{places} places")) }
    })
    .await;
    wait_for("the first to be asked again", LONG, async || {
        let dry = Request::new("desk").dry_run();
        let answered = library.place(dry).await.unwrap();
        if answered.coordinator() == first.coordinator() { Ok(()) } else { Err("the other one answers") }
    })
    .await;
}

#[tokio::test]
async fn with_every_coordinator_gone_the_library_decides_and_they_are_asked_again_when_they_return() {
    let hosts = [
        ("s1", "cpu=10,mem=10,users=1,procs=10"),
        ("s2", "cpu=10,mem=10,users=1,procs=10"),
        ("full", "cpu=1,mem=1,users=5,procs=1"),
    ];
    let mut farm = Several::start(2, &hosts).await;
    for number in 0..2 {
        limit_users(&farm.seen_by(number), "full", 5).await;
    }
    let library = Library::connect(farm.config().deadline(Duration::from_secs(1))).unwrap();
    knows_farm(&library).await;
    let before = library.place(login(0)).await.unwrap();
    let heard = farm.seen_by(0).hosts().await.unwrap();
    assert_eq!(heard.len(), 3);
    farm.coordinators.iter_mut().for_each(|coordinator| coordinator.kill());
    // Reported while nobody is there.
    library.report(&before, Outcome::Cancelled);

    let mut given = BTreeMap::<String, u32>::new();
    let mut last = None;
    for number in 1..=20 {
        let placement = library.place(login(number)).await.unwrap();
        assert!(placement.is_local() && placement.reserved_for().is_none());
        assert_eq!(placement.reason(), "LOCAL_DECISION");
        assert!(placement.flags().iter().any(|flag| flag == "local_decision"));
        *given.entry(placement.host_name().to_owned()).or_default() += 1;
        last = Some(placement);
    }
    assert!(!given.contains_key("full"), "{given:?}");
    assert!((8..=12).contains(&given["s1"]), "what was given out counts: {given:?}");
    let last = last.unwrap();
    let again = library.place(login(20)).await.unwrap();
    assert_eq!(again.host_id(), last.host_id(), "the same id, the same host");
    let other = library.failover(&last, Cause::Unreachable).await.unwrap();
    assert!(other.is_local() && other.host_id() != last.host_id());
    // The host that failed is not the first choice of others either.
    let next = library.place(login(21)).await.unwrap();
    assert_ne!(next.host_id(), last.host_id());
    let Error::NoAnswer(none) = library.place(Request::new("nowhere")).await.unwrap_err() else { panic!() };
    assert_eq!(none.local, NoLocal::UnknownPool("nowhere".into()), "{none}");
    assert_eq!(none.silences.len(), 2);

    for coordinator in &mut farm.coordinators {
        coordinator.restart().await;
    }
    farm.agent.heard().await;
    wait_for("an answer of a coordinator", LONG, async || {
        let placement = library.place(Request::new("desk").dry_run()).await.unwrap();
        if placement.is_local() { Err("a local one") } else { Ok(()) }
    })
    .await;
    assert!(library.flush(LONG).await, "what was reported meanwhile is delivered");
    wait_for("the place of before to be gone", LONG, async || {
        let hosts = farm.seen_by(0).hosts().await.unwrap();
        let places: u32 = hosts.iter().map(|host| host.pending_places).sum();
        if places == 0 { Ok(()) } else { Err(format!("{places}")) }
    })
    .await;
}

/// Newer words of the farm have come since.
async fn learns_anew(library: &Library) {
    let before = library.farm_age().unwrap();
    let began = Instant::now();
    wait_until("newer words of the farm", LONG, async || {
        library.farm_age().unwrap() < before + began.elapsed()
    })
    .await;
}

#[tokio::test]
async fn the_library_decides_by_the_method_of_its_pool_as_the_coordinator_did() {
    let mut farm = Several::start(1, &THREE).await;
    let seen = farm.seen_by(0);
    let methods = [
        (v1::Method::WeightedLoad, "b"),
        (v1::Method::Availability, "c"),
        (v1::Method::Predictive, "a"),
        (v1::Method::FillFirst, "a"),
    ];
    let mut agents = Vec::new();
    for (method, _) in methods {
        let pool = format!("pool-{}", method as i32);
        let limit = v1::UserLimit { limit: Some(v1::user_limit::Limit::Users(20)) };
        let policy =
            v1::Policy { method: Some(method.into()), max_users: Some(limit), ..v1::Policy::default() };
        seen.apply(&pool, policy).await.unwrap();
        let agent = AgentStart::new(farm.folder.path(), &pool, &[farm.coordinators[0].grpc]).pool(&pool);
        let named = |host: &str| format!("{host}{}", method as i32);
        let agent = agent.host(&named("a"), "cpu=10,mem=10,users=9,procs=90,ai-xf=4");
        let agent = agent.host(&named("b"), "cpu=80,mem=60,users=2,procs=10,ai-xf=8");
        agents.push(agent.host(&named("c"), "cpu=40,mem=30,users=5,procs=50,ai-xf=2").await);
    }
    let library = Library::connect(farm.config().deadline(Duration::from_millis(500))).unwrap();
    let chosen = async || {
        let mut chosen = Vec::new();
        for (method, _) in methods {
            let request = Request::new(format!("pool-{}", method as i32)).dry_run();
            let placement = library.place(request).await.unwrap();
            chosen.push((placement.host_name()[..1].to_owned(), placement.is_local()));
        }
        chosen
    };
    let expected = |local: bool| methods.map(|(_, host)| (host.to_owned(), local)).to_vec();
    wait_for("the coordinator to choose by what it has heard", LONG, async || {
        let chosen = chosen().await;
        if chosen == expected(false) { Ok(()) } else { Err(format!("{chosen:?}")) }
    })
    .await;
    knows_farm(&library).await;
    learns_anew(&library).await;
    learns_anew(&library).await;
    farm.coordinators[0].kill();
    assert_eq!(chosen().await, expected(true));
}

fn aside(folder: &Path) -> usize {
    let names = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.to_string_lossy().starts_with("farm.cache.aside-")).count()
}

#[tokio::test]
async fn a_gateway_that_starts_with_every_coordinator_gone_decides_by_its_file() {
    let mut farm = Several::start(1, &THREE).await;
    let config = farm.config().deadline(Duration::from_secs(1)).cache(farm.cache());
    let library = Library::connect(config.clone()).unwrap();
    wait_until("the file", LONG, async || farm.cache().exists()).await;
    drop(library);
    let whole = std::fs::read(farm.cache()).unwrap();
    farm.coordinators[0].kill();

    let library = Library::connect(config.clone()).unwrap();
    knows_farm(&library).await;
    let placement = library.place(login(1)).await.unwrap();
    assert!(placement.is_local() && placement.farm_age().unwrap() > Duration::ZERO);
    drop(library);

    let mut wrong = whole.clone();
    let middle = wrong.len() / 2;
    wrong[middle..middle + 40].fill(0);
    let mut sets_aside = 0;
    for (what, bytes) in [("cut", &whole[..whole.len() - 7]), ("zeroed", &wrong), ("empty", &[][..])] {
        std::fs::write(farm.cache(), bytes).unwrap();
        let library = Library::connect(config.clone()).unwrap();
        let Error::NoAnswer(none) = library.place(login(2)).await.unwrap_err() else { panic!("{what}") };
        assert_eq!(none.local, NoLocal::NothingKnown, "{what}");
        sets_aside += 1;
        assert!(!farm.cache().exists(), "{what}: it is out of the way");
        assert_eq!(aside(farm.folder.path()), sets_aside, "{what}: and kept for people");
    }
    std::fs::write(farm.cache(), &whole).unwrap();
    let library = Library::connect(config.farm("elsewhere")).unwrap();
    assert!(matches!(library.place(login(3)).await, Err(Error::NoAnswer(_))), "the file is of another farm");
}

#[tokio::test]
async fn a_caller_that_goes_away_gives_its_place_back() {
    let farm = Several::start(1, &THREE).await;
    let library = Library::connect(farm.config()).unwrap();
    let seen = farm.seen_by(0);
    // Frozen, it takes the call in and answers it later.
    library.place(Request::new("desk").dry_run()).await.unwrap();
    freeze(&farm.coordinators[0]).await;
    let dropped = tokio::time::timeout(Duration::from_millis(300), library.place(login(1))).await;
    assert!(dropped.is_err());
    farm.coordinators[0].thaw();
    assert!(library.flush(LONG).await);
    wait_for("no place to be left", LONG, async || {
        let places: u32 = seen.hosts().await.unwrap().iter().map(|host| host.pending_places).sum();
        if places == 0 { Ok(()) } else { Err(format!("{places}")) }
    })
    .await;
}

#[tokio::test]
async fn many_logins_at_once_share_the_connections() {
    let farm = Several::start(2, &THREE).await;
    let library = Arc::new(Library::connect(farm.config()).unwrap());
    let calls = (0..200).map(|number| {
        let library = library.clone();
        tokio::spawn(async move { library.place(login(number)).await.unwrap().host_id().to_owned() })
    });
    let mut given = BTreeMap::<String, u32>::new();
    for call in calls.collect::<Vec<_>>() {
        *given.entry(call.await.unwrap()).or_default() += 1;
    }
    assert!(given.values().all(|count| (50..=85).contains(count)), "{given:?}");
}
