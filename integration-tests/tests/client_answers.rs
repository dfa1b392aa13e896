//! What does the library make of coordinators' answers, one after the other, and what does it leave behind?
//!
//! The coordinators here say what each test wants, whichever of them is asked: chance decides which is first.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt as _, stream};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Request, Response, Status};
use usher_client::{Cause, Client as Library, Config, Error, Outcome};
use usher_integration_tests::{LONG, hello, wait_until};
use usher_proto::error::{KEPT_HOSTS, reason, status};
use usher_proto::v1::placement_service_server::{PlacementService, PlacementServiceServer};
use usher_proto::v1::{self, watch_farm_response::Event};

/// What is said to a login.
#[derive(Clone)]
enum Said {
    Host(&'static str),
    No(Code, &'static str, Option<Duration>),
    /// All are full, but for what others may give of so many hosts.
    Kept(u32, Duration),
    /// These hosts are lost.
    Lost(&'static [&'static str]),
    /// The connection stands, and nothing comes.
    Nothing,
}

/// A question, as a coordinator saw it.
#[derive(Clone, Debug)]
struct Asked {
    by: usize,
    attempt: u32,
    tried: Vec<String>,
}

#[derive(Default)]
struct Scene {
    /// One after the other, the last one for ever.
    answers: Mutex<Vec<Said>>,
    asked: Mutex<Vec<Asked>>,
    reports: Mutex<Vec<(usize, v1::ReportOutcomeRequest)>>,
    /// Places that only this coordinator knows, if any does.
    known_to: Mutex<Option<usize>>,
}

#[derive(Clone)]
struct Coordinator(usize, Arc<Scene>);

type Told = Pin<Box<dyn Stream<Item = Result<v1::WatchFarmResponse, Status>> + Send>>;

impl Coordinator {
    async fn answer(
        &self,
        (pool, request_id): (String, String),
        attempt: u32,
        tried: Vec<String>,
    ) -> Result<Option<v1::Placement>, Status> {
        self.1.asked.lock().unwrap().push(Asked { by: self.0, attempt, tried });
        let said = {
            let mut answers = self.1.answers.lock().unwrap();
            if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }
        };
        match said {
            Said::Host(host) => Ok(Some(v1::Placement {
                host_id: host.into(),
                host_name: host.into(),
                pool,
                endpoints: vec![v1::Endpoint { kind: "ssh".into(), address: "192.0.2.1".into(), port: 22 }],
                reservation: Some(v1::Token { gateway: "local".into(), request_id }),
                reason: v1::PlacementReason::LowestLoad.into(),
                ..v1::Placement::default()
            })),
            Said::No(code, reason, after) => Err(status(code, reason, "no", HashMap::new(), after)),
            Said::Kept(hosts, after) => {
                let metadata = HashMap::from([(KEPT_HOSTS.to_owned(), hosts.to_string())]);
                Err(status(Code::ResourceExhausted, reason::MAX_USERS, "no", metadata, Some(after)))
            }
            Said::Lost(hosts) => {
                let lost = |host: &&str| (format!("host:{host}"), "OFFLINE".to_owned());
                let metadata = hosts.iter().map(lost).collect();
                Err(status(Code::Unavailable, reason::ALL_OFFLINE, "no", metadata, None))
            }
            Said::Nothing => std::future::pending().await,
        }
    }
}

#[tonic::async_trait]
impl PlacementService for Coordinator {
    type WatchFarmStream = Told;

    async fn place(&self, asked: Request<v1::PlaceRequest>) -> Result<Response<v1::PlaceResponse>, Status> {
        let v1::PlaceRequest { pool, request_id, attempt, .. } = asked.into_inner();
        let placement = self.answer((pool, request_id), attempt, Vec::new()).await?;
        Ok(Response::new(v1::PlaceResponse { placement }))
    }

    async fn failover(
        &self,
        asked: Request<v1::FailoverRequest>,
    ) -> Result<Response<v1::FailoverResponse>, Status> {
        let v1::FailoverRequest { pool, request_id, attempt, tried, .. } = asked.into_inner();
        let placement = self.answer((pool, request_id), attempt, tried).await?;
        Ok(Response::new(v1::FailoverResponse { placement }))
    }

    async fn report_outcome(
        &self,
        report: Request<v1::ReportOutcomeRequest>,
    ) -> Result<Response<v1::ReportOutcomeResponse>, Status> {
        self.1.reports.lock().unwrap().push((self.0, report.into_inner()));
        let known = self.1.known_to.lock().unwrap().is_none_or(|one| one == self.0);
        Ok(Response::new(v1::ReportOutcomeResponse { known }))
    }

    async fn explain(&self, _: Request<v1::ExplainRequest>) -> Result<Response<v1::ExplainResponse>, Status> {
        Err(Status::unimplemented("no"))
    }

    async fn watch_farm(
        &self,
        _: Request<v1::WatchFarmRequest>,
    ) -> Result<Response<Self::WatchFarmStream>, Status> {
        let bookmarks = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            Some((bookmark(), ()))
        });
        Ok(Response::new(Box::pin(stream::iter(farm()).chain(bookmarks).map(Ok))))
    }
}

fn message(event: Event) -> v1::WatchFarmResponse {
    v1::WatchFarmResponse { revision: 1, event: Some(event), held_ms: 0 }
}

fn bookmark() -> v1::WatchFarmResponse {
    message(Event::Bookmark(v1::FarmBookmark { hosts_heard: 2, hosts_registered: 2, stale: false }))
}

/// The pool "desk" with the hosts h1 and h2.
fn farm() -> Vec<v1::WatchFarmResponse> {
    let host = |id: &str| v1::WatchedHost {
        host_id: id.into(),
        facts: Some(v1::Hello { host_id: id.into(), ..hello(id) }),
        load: Some(v1::Load { users: Some(3), streams_held: 1, ready: Some(true), ..v1::Load::default() }),
        load_age_ms: Some(1000),
        connected: true,
        users: Some(3),
        ..v1::WatchedHost::default()
    };
    let pool = v1::WatchedPool {
        pool: "desk".into(),
        version: 1,
        policy: Some(v1::Policy::default()),
        ..v1::WatchedPool::default()
    };
    let start = v1::FarmStart { farm: "f".into(), instance_id: "i".into(), ..v1::FarmStart::default() };
    let changes = v1::FarmChanges {
        pools: vec![pool],
        hosts: vec![host("h1"), host("h2")],
        ..v1::FarmChanges::default()
    };
    vec![message(Event::Start(start)), message(Event::Changes(changes)), bookmark()]
}

/// Two coordinators that say this, and a library that knows the farm.
async fn set(answers: Vec<Said>, deadline: Duration) -> (Arc<Scene>, Library) {
    let scene = Arc::new(Scene { answers: Mutex::new(answers), ..Scene::default() });
    let mut addresses = Vec::new();
    for number in 0..2 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        addresses.push(listener.local_addr().unwrap().to_string());
        let serving = tonic::transport::Server::builder()
            .add_service(PlacementServiceServer::new(Coordinator(number, scene.clone())))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(serving);
    }
    let library = Library::connect(Config::new(addresses).deadline(deadline)).unwrap();
    wait_until("the library to know the farm", LONG, async || library.farm_age().is_some()).await;
    (scene, library)
}

fn login(id: &str) -> usher_client::Request {
    usher_client::Request::new("desk").id(id)
}

impl Scene {
    fn now_say(&self, answers: Vec<Said>) {
        *self.answers.lock().unwrap() = answers;
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// What was said of logins, each once.
    fn reports(&self) -> Vec<(String, v1::Outcome)> {
        let reports = self.reports.lock().unwrap();
        reports.iter().map(|(_, report)| (report.request_id.clone(), report.outcome())).collect()
    }
}

const PATIENT: Duration = Duration::from_secs(20);
const FULL: Said = Said::No(Code::ResourceExhausted, reason::MAX_USERS, None);

#[tokio::test]
async fn of_two_hosts_that_nobody_has_told_of_the_one_whose_place_stands_is_answered() {
    let (scene, library) = set(vec![Said::Host("new1"), Said::Host("new2")], PATIENT).await;
    let placement = library.place(login("a")).await.unwrap();
    assert_eq!(
        (placement.host_id(), placement.attempts()),
        ("new2", 2),
        "the place of the higher attempt stands"
    );
    assert_ne!(scene.asked()[0].by, scene.asked()[1].by);
}

#[tokio::test]
async fn a_place_that_is_doubted_is_not_left_behind_when_another_one_says_no() {
    let (scene, library) = set(vec![Said::Host("new"), FULL, Said::Host("new")], PATIENT).await;
    let placement = library.place(login("a")).await.unwrap();
    assert_eq!(placement.host_id(), "new");
    assert!(library.flush(LONG).await);
    assert_eq!(scene.reports(), []);
}

#[tokio::test]
async fn a_place_that_is_doubted_is_asked_for_again_when_a_later_try_may_have_ended_it() {
    let (scene, library) = set(vec![Said::Host("new"), Said::Nothing, Said::Host("newer")], PATIENT).await;
    let placement = library.place(login("a")).await.unwrap();
    assert_eq!((placement.host_id(), placement.attempts()), ("newer", 3));
    let asked = scene.asked();
    assert_eq!((asked[2].by, asked[2].attempt), (asked[0].by, 3), "whose answer stands was asked last");
}

#[tokio::test]
async fn a_host_of_a_pool_that_is_not_watched_is_not_doubted() {
    let (scene, library) = set(vec![Said::Host("elsewhere"), FULL], PATIENT).await;
    let request = usher_client::Request::new("mail");
    assert_eq!(library.place(request).await.unwrap().host_id(), "elsewhere");
    assert_eq!(scene.asked().len(), 1);
}

#[tokio::test]
async fn a_new_host_is_not_doubted_of_one_that_has_named_hosts_of_ours() {
    let (scene, library) = set(vec![Said::Host("h1"), Said::Host("new"), FULL], PATIENT).await;
    assert_eq!(library.place(login("a")).await.unwrap().host_id(), "h1");
    assert_eq!(library.place(login("b")).await.unwrap().host_id(), "new");
    assert_eq!(scene.asked().len(), 2, "nobody else was asked");
}

#[tokio::test]
async fn a_busy_host_is_answered_as_often_as_there_is_no_better_one() {
    let (scene, library) = set(vec![Said::Host("h1")], PATIENT).await;
    let mut placement = library.place(login("a")).await.unwrap();
    for _ in 0..4 {
        placement = library.failover(&placement, Cause::Busy).await.unwrap();
        assert_eq!((placement.host_id(), placement.is_local(), placement.attempts()), ("h1", false, 1));
    }
    assert_eq!(scene.asked().last().unwrap().tried, ["h1"], "and is named once");
    // For any other cause it is nonsense.
    scene.now_say(vec![Said::Host("h1"), Said::Host("h2")]);
    let placement = library.failover(&placement, Cause::Unreachable).await.unwrap();
    assert_eq!((placement.host_id(), placement.attempts()), ("h2", 2));
}

#[tokio::test]
async fn a_failover_goes_to_no_host_that_its_request_excluded() {
    let (scene, library) = set(vec![Said::Host("h1")], PATIENT).await;
    let placement = library.place(login("a").exclude(["h9"])).await.unwrap();
    // One answer is nonsense, so another one is asked.
    scene.now_say(vec![Said::Host("h9"), Said::Host("h2")]);
    let other = library.failover(&placement, Cause::Unreachable).await.unwrap();
    assert_eq!((other.host_id(), other.attempts()), ("h2", 2));
    assert_eq!(scene.asked().last().unwrap().tried, ["h9"], "beside the host that it comes from");
    // Of a dry run it is another dry run: a question for a place, which reserves nothing.
    scene.now_say(vec![Said::Host("h1"), Said::Host("h2")]);
    let placement = library.place(login("b").dry_run()).await.unwrap();
    let other = library.failover(&placement, Cause::Unreachable).await.unwrap();
    assert_eq!(other.host_id(), "h2");
    assert_eq!(scene.asked().last().unwrap().tried, [""; 0], "it is no failover");
    assert!(library.flush(LONG).await);
    assert_eq!(scene.reports(), []);
}

#[tokio::test]
async fn an_end_that_nobody_knows_of_is_said_to_each_once() {
    let (scene, library) = set(vec![Said::Host("h1")], PATIENT).await;
    let placement = library.place(login("a")).await.unwrap();
    *scene.known_to.lock().unwrap() = Some(usize::MAX);
    let began = Instant::now();
    library.report(&placement, Outcome::Ended);
    assert!(library.flush(LONG).await);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    let mut told: Vec<usize> = scene.reports.lock().unwrap().iter().map(|(by, _)| *by).collect();
    told.sort_unstable();
    assert_eq!(told, [0, 1]);
}

#[tokio::test]
async fn one_that_goes_down_in_order_is_left_for_the_other_one() {
    let leaves = Said::No(Code::Unavailable, reason::SHUTTING_DOWN, Some(Duration::from_millis(100)));
    let (scene, library) = set(vec![leaves, Said::Host("h1")], PATIENT).await;
    let placement = library.place(login("a")).await.unwrap();
    assert_eq!((placement.host_id(), placement.attempts()), ("h1", 2));
    assert_ne!(scene.asked()[0].by, scene.asked()[1].by);
}

#[tokio::test]
async fn what_a_try_without_an_answer_may_have_left_is_taken_back() {
    // Another one says no.
    let (scene, library) = set(vec![Said::Nothing, FULL], PATIENT).await;
    assert!(matches!(library.place(login("a")).await, Err(Error::Refused(_))));
    assert!(library.flush(LONG).await);
    assert_eq!(scene.reports(), [("a".to_owned(), v1::Outcome::Cancelled)]);
    // Nobody answers, and the library decides.
    let (scene, library) = set(vec![Said::Nothing], Duration::from_secs(2)).await;
    let began = Instant::now();
    assert!(library.place(login("b")).await.unwrap().is_local());
    assert!(began.elapsed() < Duration::from_secs(2), "within the deadline: {:?}", began.elapsed());
    assert!(library.flush(LONG).await);
    assert_eq!(scene.reports(), [("b".to_owned(), v1::Outcome::Cancelled)]);
    // A no of everybody has left nothing.
    let (scene, library) = set(vec![FULL], PATIENT).await;
    assert!(matches!(library.place(login("c")).await, Err(Error::Refused(_))));
    assert!(library.flush(LONG).await);
    assert_eq!(scene.reports(), []);
}

#[tokio::test]
async fn a_place_that_did_not_work_out_is_given_up_even_if_nobody_answers_the_failover() {
    let (scene, library) = set(vec![Said::Host("h1"), Said::Nothing], Duration::from_secs(2)).await;
    let placement = library.place(login("a")).await.unwrap();
    let other = library.failover(&placement, Cause::Refused).await.unwrap();
    assert!(other.is_local() && other.host_id() == "h2");
    assert!(library.flush(LONG).await);
    let mut reports = scene.reports();
    reports.sort_by_key(|(id, _)| id != "a");
    let expected =
        [("a".to_owned(), v1::Outcome::Failed), (other.request_id().to_owned(), v1::Outcome::Cancelled)];
    assert_eq!(reports, expected);
    let reports = scene.reports.lock().unwrap();
    let (_, failed) = reports.iter().find(|(_, report)| report.request_id == "a").unwrap();
    assert_eq!(failed.cause(), v1::FailoverCause::Refused);
}

#[tokio::test]
async fn a_call_that_is_dropped_takes_back_what_it_may_have_been_given() {
    let (scene, library) = set(vec![Said::Nothing], PATIENT).await;
    tokio::select! {
        _ = library.place(login("a")) => panic!("nobody answers"),
        () = wait_until("it to be asked", LONG, async || !scene.asked().is_empty()) => {}
    }
    assert!(library.flush(LONG).await);
    assert_eq!(scene.reports(), [("a".to_owned(), v1::Outcome::Cancelled)]);
}

#[tokio::test]
async fn a_login_that_is_asked_for_again_is_not_ended_by_the_call_that_was_dropped() {
    let (scene, library) = set(vec![Said::Nothing, Said::Host("h1")], PATIENT).await;
    for number in 0..10 {
        scene.now_say(vec![Said::Nothing, Said::Host("h1")]);
        let (id, asked) = (format!("login-{number}"), scene.asked().len());
        tokio::select! {
            _ = library.place(login(&id)) => panic!("nobody answers"),
            () = wait_until("it to be asked", LONG, async || scene.asked().len() > asked) => {}
        }
        library.place(login(&id)).await.unwrap();
    }
    // A word that is under way is waited for, one that waits is not sent: none comes after the answer.
    let said = scene.reports().len();
    assert!(library.flush(LONG).await);
    assert_eq!(scene.reports().len(), said);
}

#[tokio::test]
async fn hosts_that_did_not_answer_in_time_are_asked_again_within_the_deadline() {
    let no_consent = Said::No(Code::Unavailable, reason::NO_CONSENT, Some(Duration::from_millis(200)));
    let stale = Said::No(Code::Unavailable, reason::STALE, Some(Duration::from_millis(200)));
    for passing in [no_consent.clone(), stale] {
        let answers = vec![passing.clone(), passing, Said::Host("h1")];
        let (scene, library) = set(answers, PATIENT).await;
        assert_eq!(library.place(login("a")).await.unwrap().attempts(), 3);
        assert!(library.flush(LONG).await);
        assert_eq!(scene.reports(), []);
    }
    let (_scene, library) = set(vec![no_consent], Duration::from_secs(1)).await;
    let Error::Refused(refusal) = library.place(login("a")).await.unwrap_err() else { panic!() };
    assert_eq!(refusal.reason, "NO_CONSENT", "in the end it is what was said");
}

#[tokio::test]
async fn who_hears_nobody_does_not_outweigh_one_whose_hosts_refused() {
    let lost = Said::Lost(&["h1", "h2"]);
    let refused = Said::No(Code::ResourceExhausted, reason::NO_CONSENT, None);
    for answers in [vec![lost.clone(), refused.clone()], vec![refused, lost]] {
        let (_scene, library) = set(answers, PATIENT).await;
        let Error::Refused(refusal) = library.place(login("a")).await.unwrap_err() else { panic!() };
        assert_eq!(refusal.reason, "NO_CONSENT");
    }
}

#[tokio::test]
async fn room_that_others_may_give_is_asked_for_there_and_then_again() {
    let kept = Said::Kept(2, Duration::from_millis(200));
    let (scene, library) = set(vec![kept.clone(), Said::Host("h1")], PATIENT).await;
    assert_eq!(library.place(login("a")).await.unwrap().attempts(), 2);
    let by: Vec<usize> = scene.asked().iter().map(|asked| asked.by).collect();
    assert_ne!(by[0], by[1], "the other one may give it");
    scene.now_say(vec![kept.clone(), kept.clone(), Said::Host("h2")]);
    assert_eq!(library.place(login("b")).await.unwrap().attempts(), 3, "in a moment it is free for all");
    scene.now_say(vec![kept, FULL]);
    let Error::Refused(refusal) = library.place(login("c")).await.unwrap_err() else { panic!() };
    assert_eq!(refusal.metadata.get(KEPT_HOSTS), None, "one that hears all of it knows better");
}

#[tokio::test]
async fn an_outcome_reaches_one_that_knows_the_place_when_its_giver_does_not_any_more() {
    let (scene, library) = set(vec![Said::Host("h1")], PATIENT).await;
    let placement = library.place(login("a")).await.unwrap();
    let giver = scene.asked()[0].by;
    *scene.known_to.lock().unwrap() = Some(1 - giver);
    library.report(&placement, Outcome::Cancelled);
    assert!(library.flush(LONG).await);
    let told: Vec<usize> = scene.reports.lock().unwrap().iter().map(|(by, _)| *by).collect();
    assert_eq!(told, [giver, 1 - giver]);
}
