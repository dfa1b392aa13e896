use std::collections::BTreeMap;

use usher_types::{FailureCause, GatewayId, PoolName, RequestId, Token};

use super::*;
use crate::farm::{Host, telling};

const AS_OF: BootTime = BootTime::from_millis(1_000_000);
const MAX_AGE: Duration = Duration::from_secs(900);

/// A host that is ready and holds a resource.
fn told(id: &str) -> v1::WatchedHost {
    let told = telling::told(id, "desk");
    v1::WatchedHost {
        load: Some(v1::Load { ready: Some(true), ..told.load.unwrap() }),
        replicas: Some(v1::WatchedReplicas { resource_ids: vec!["db".into()], unlisted: false }),
        ..told
    }
}

fn known_with(policy: v1::Policy, hosts: Vec<v1::WatchedHost>) -> Arc<Known> {
    let host = |told: v1::WatchedHost| {
        let measured_at = told.load_age_ms.map(|age| AS_OF.before(Duration::from_millis(age)));
        (told.host_id.as_str().into(), Arc::new(Host { told, measured_at, timed_at: AS_OF }))
    };
    let pool = v1::WatchedPool {
        pool: "desk".into(),
        version: 3,
        policy: Some(policy),
        ..v1::WatchedPool::default()
    };
    Arc::new(Known {
        farm: "f".into(),
        as_of: AS_OF,
        hosts_heard: 2,
        hosts_registered: 2,
        pools: [("desk".to_owned(), pool)].into(),
        hosts: hosts.into_iter().map(host).collect::<BTreeMap<_, _>>(),
    })
}

fn known(hosts: Vec<v1::WatchedHost>) -> Arc<Known> {
    known_with(v1::Policy::default(), hosts)
}

fn knowing(known: &Arc<Known>) -> Arc<Local> {
    let local = Arc::new(Local::default());
    local.learn(Basis { known: known.clone(), came_at: AS_OF, age_then: Duration::ZERO });
    local
}

fn request(id: &str) -> Request {
    let mut request = Request::of_nobody(PoolName::new("desk").unwrap());
    request.token = Token { gateway: GatewayId::new("g").unwrap(), request_id: RequestId::new(id).unwrap() };
    request.dry_run = false;
    request
}

async fn host_of(local: &Arc<Local>, request: Request, now: BootTime) -> Result<String, NoLocal> {
    let deadline = Instant::now() + Duration::from_secs(10);
    local.decide(request, MAX_AGE, now, deadline).await.map(|(placement, _)| placement.host_id)
}

#[tokio::test]
async fn hosts_that_could_take_nobody_when_they_were_last_heard_are_left_out() {
    let drain = v1::Drain { mode: v1::DrainMode::Persistent.into(), ..v1::Drain::default() };
    let full = v1::Load {
        max_users: Some(v1::UserLimit { limit: Some(v1::user_limit::Limit::Users(3)) }),
        ..told("x").load.unwrap()
    };
    let not_ready =
        v1::Load { ready: Some(false), not_ready_reason: Some("nologin".into()), ..told("x").load.unwrap() };
    let hosts = vec![
        v1::WatchedHost { drain: Some(drain), ..told("drained") },
        v1::WatchedHost { load: Some(full), ..told("full") },
        v1::WatchedHost { load: Some(not_ready), ..told("not-ready") },
        v1::WatchedHost { load_age_ms: Some(60_000), connected: false, ..told("silent") },
        v1::WatchedHost { shut_down: true, said_goodbye: true, connected: false, ..told("down") },
        told("well"),
    ];
    let local = knowing(&known(hosts.clone()));
    // However much later: nobody can say that it is gone.
    for (number, later) in [0, 1, 60, 899].into_iter().enumerate() {
        let now = AS_OF + Duration::from_secs(later);
        assert_eq!(host_of(&local, request(&format!("r{number}")), now).await.unwrap(), "well");
    }
    let without = knowing(&known(hosts.into_iter().filter(|host| host.host_id != "well").collect()));
    let NoLocal::Refused { reason, hosts } = host_of(&without, request("r"), AS_OF).await.unwrap_err() else {
        panic!()
    };
    assert_eq!((reason, hosts.len()), ("MAX_USERS", 5), "{hosts:?}");
}

#[tokio::test]
async fn what_was_given_out_counts_even_when_newer_words_come() {
    let first = known(vec![told("a"), told("b")]);
    let local = knowing(&first);
    let mut given = BTreeMap::<String, u32>::new();
    for number in 0..10 {
        if number == 5 {
            let newer = known(vec![told("a"), told("b")]);
            local.learn(Basis { known: newer, came_at: AS_OF, age_then: Duration::ZERO });
        }
        *given.entry(host_of(&local, request(&format!("r{number}")), AS_OF).await.unwrap()).or_default() += 1;
    }
    assert_eq!(given.values().copied().collect::<Vec<_>>(), [5, 5]);
    let again = host_of(&local, request("r9"), AS_OF).await.unwrap();
    let token = |id: &str| request(id).token;
    assert_eq!(
        again,
        local.built.lock().unwrap().as_ref().unwrap().ledger.get(&token("r9")).unwrap().host_id.as_str()
    );
}

#[tokio::test]
async fn a_place_counts_until_its_time_is_over_or_its_end_is_said() {
    let limit = v1::UserLimit { limit: Some(v1::user_limit::Limit::Users(4)) };
    let policy =
        v1::Policy { max_users: Some(limit), reservation_ttl_ms: Some(60_000), ..v1::Policy::default() };
    let local = knowing(&known_with(policy, vec![told("a")]));
    host_of(&local, request("r1"), AS_OF).await.unwrap();
    assert!(matches!(
        host_of(&local, request("r2"), AS_OF).await,
        Err(NoLocal::Refused { reason: "MAX_USERS", .. })
    ));
    local.report("r1", Outcome::Cancelled, AS_OF);
    host_of(&local, request("r2"), AS_OF).await.unwrap();
    assert!(host_of(&local, request("r3"), AS_OF).await.is_err());
    host_of(&local, request("r3"), AS_OF + Duration::from_secs(61)).await.unwrap();
}

#[tokio::test]
async fn what_has_ended_does_not_fill_the_memory() {
    let local = knowing(&known(vec![told("a")]));
    for number in 0..3000 {
        host_of(&local, request(&format!("r{number}")), AS_OF).await.unwrap();
        local.report(&format!("r{number}"), Outcome::Cancelled, AS_OF);
    }
    let ledger = local.built.lock().unwrap().as_ref().unwrap().ledger.clone();
    let remembered =
        (0..3000).filter(|number| ledger.get(&request(&format!("r{number}")).token).is_some()).count();
    assert!((1..=1500).contains(&remembered), "{remembered}");
}

#[tokio::test]
async fn a_host_that_logins_fail_on_comes_last_for_a_minute() {
    let local = knowing(&known(vec![told("a"), told("b")]));
    local.failed_on("a", AS_OF);
    for number in 0..5 {
        assert_eq!(host_of(&local, request(&format!("r{number}")), AS_OF).await.unwrap(), "b");
    }
    let only = Request { exclude: vec!["b".into()], ..request("x") };
    assert_eq!(host_of(&local, only, AS_OF).await.unwrap(), "a", "better than none");
    assert_eq!(
        host_of(&local, request("r4"), AS_OF).await.unwrap(),
        "b",
        "the same login goes where it went"
    );
    let later = AS_OF + Duration::from_secs(61);
    assert_eq!(host_of(&local, request("y"), later).await.unwrap(), "a", "b has five");
}

#[tokio::test]
async fn a_failover_names_no_host_that_was_tried() {
    let local = knowing(&known(vec![told("a"), told("b"), told("c")]));
    let failover = usher_placement::decision::Failover {
        from_host: "a".into(),
        failed_request: None,
        tried: vec!["b".into()],
        cause: FailureCause::Unreachable,
    };
    let request = Request { failover: Some(failover), ..request("r") };
    assert_eq!(host_of(&local, request, AS_OF).await.unwrap(), "c");
}

#[tokio::test]
async fn what_is_not_known_is_said() {
    let local = Arc::new(Local::default());
    assert_eq!(host_of(&local, request("r"), AS_OF).await, Err(NoLocal::NothingKnown));
    let local = knowing(&known(vec![told("a")]));
    let later = AS_OF + Duration::from_secs(901);
    let too_old = NoLocal::TooOld { age: Duration::from_secs(901), allowed: MAX_AGE };
    assert_eq!(host_of(&local, request("r"), later).await, Err(too_old));
    let nowhere = Request { pool: PoolName::new("nowhere").unwrap(), ..request("r") };
    assert_eq!(host_of(&local, nowhere, AS_OF).await, Err(NoLocal::UnknownPool("nowhere".into())));

    let of = |id: &str| Request { resource: Some(usher_types::ResourceId::new(id).unwrap()), ..request(id) };
    assert_eq!(host_of(&local, of("db"), AS_OF).await.unwrap(), "a");
    assert!(matches!(
        host_of(&local, of("other"), AS_OF).await,
        Err(NoLocal::Refused { reason: "UNKNOWN_RESOURCE", .. })
    ));
    let unlisted = v1::WatchedReplicas { resource_ids: Vec::new(), unlisted: true };
    let local = knowing(&known(vec![v1::WatchedHost { replicas: Some(unlisted), ..told("b") }]));
    assert_eq!(host_of(&local, of("other"), AS_OF).await, Err(NoLocal::UnknownResource("other".into())));
}

#[tokio::test]
async fn hosts_told_of_in_words_that_make_no_sense_are_left_out() {
    let mut wrong = told("wrong");
    wrong.facts.as_mut().unwrap().host_name = "<script>".into();
    let mut other = told("other");
    other.facts.as_mut().unwrap().host_id = "somebody".into();
    let mut elsewhere = told("elsewhere");
    elsewhere.facts.as_mut().unwrap().pool = "nobody-told-of-this-pool".into();
    let mut odd = told("odd");
    odd.background = Some(f64::NAN);
    odd.availability = Some(v1::WatchedAvailability { index: Some(f64::INFINITY), ..Default::default() });
    odd.load.as_mut().unwrap().cpu_percent = Some(-5.0);
    let local = knowing(&known(vec![wrong, other, elsewhere, odd]));
    assert_eq!(host_of(&local, request("r"), AS_OF).await.unwrap(), "odd");
}

#[tokio::test]
async fn many_places_move_to_a_newer_farm_and_one_is_ended_among_them() {
    const EACH: u32 = 300;
    let limit = v1::UserLimit { limit: Some(v1::user_limit::Limit::Users(3 + EACH)) };
    let policy = v1::Policy { max_users: Some(limit), ..v1::Policy::default() };
    let local = knowing(&known_with(policy.clone(), vec![told("a"), told("b")]));
    for number in 0..2 * EACH {
        host_of(&local, request(&format!("r{number}")), AS_OF).await.unwrap();
    }
    let newer = known_with(policy, vec![told("a"), told("b")]);
    local.learn(Basis { known: newer, came_at: AS_OF, age_then: Duration::ZERO });
    let full = Err(NoLocal::Refused { reason: "MAX_USERS", hosts: Vec::new() });
    let one_more = async |id: &str| {
        let host = host_of(&local, request(id), AS_OF).await;
        host.map_err(|no| match no {
            NoLocal::Refused { reason, .. } => NoLocal::Refused { reason, hosts: Vec::new() },
            other => other,
        })
    };
    assert_eq!(one_more("x").await, full);
    // Whoever reports is not held up, however many there are.
    let placed = host_of(&local, request("r7"), AS_OF).await;
    local.report("r7", Outcome::Failed, AS_OF);
    assert_eq!(one_more("x").await, placed);
    assert_eq!(one_more("y").await, full);
}

#[test]
fn a_decision_that_is_cut_off_gives_up_the_place_that_it_holds() {
    // A host with a limit is asked, so its place counts before there is an answer.
    let limit = v1::UserLimit { limit: Some(v1::user_limit::Limit::Users(4)) };
    let policy = v1::Policy { max_users: Some(limit), ..v1::Policy::default() };
    let built = Built::of(&known_with(policy, vec![told("a")]));
    let places = || built.snapshot.find_host("a").map(|(pool, at)| pool.members.cells[at].load().places());
    for cut_off in 0..3 {
        let mut running = Running::new(&built, request(&format!("r{cut_off}")));
        assert!(matches!(running.step(&Doors::default()), Step::Ask(_)));
        assert_eq!(places().unwrap(), 1);
        drop(running);
        assert_eq!(places().unwrap(), 0, "{cut_off}");
    }
}
