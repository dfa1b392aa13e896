//! What if a coordinator's connection breaks while it tells of the farm?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};
use usher_client::{Client as Library, Config, FarmCache, InOrder, RenewError};
use usher_integration_tests::{LONG, hello, load, wait_for, wait_until};
use usher_proto::v1::placement_service_server::{PlacementService, PlacementServiceServer};
use usher_proto::v1::{self, watch_farm_response::Event};

/// How a stream goes on after what it has said.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Ends,
    Breaks,
    /// It breaks when the test says so.
    BreaksWhenTold,
    Stays,
}

/// Tells of the farm, one stream after the other as it is written down here, the last one for ever, and places nobody.
#[derive(Clone)]
struct Teller {
    streams: Arc<Vec<(Vec<v1::WatchFarmResponse>, Then)>>,
    /// Where each began to be told, as the client wanted it.
    wanted: Arc<Mutex<Vec<Option<u64>>>>,
    /// How many may begin; the next one waits.
    may_begin: Arc<tokio::sync::Semaphore>,
    breaks: Arc<Notify>,
}

type Told = Pin<Box<dyn Stream<Item = Result<v1::WatchFarmResponse, Status>> + Send>>;

fn silent<T>() -> Result<Response<T>, Status> {
    Err(Status::unavailable("it places nobody"))
}

#[tonic::async_trait]
impl PlacementService for Teller {
    type WatchFarmStream = Told;

    async fn place(&self, _: Request<v1::PlaceRequest>) -> Result<Response<v1::PlaceResponse>, Status> {
        silent()
    }

    async fn failover(
        &self,
        _: Request<v1::FailoverRequest>,
    ) -> Result<Response<v1::FailoverResponse>, Status> {
        silent()
    }

    async fn report_outcome(
        &self,
        _: Request<v1::ReportOutcomeRequest>,
    ) -> Result<Response<v1::ReportOutcomeResponse>, Status> {
        silent()
    }

    async fn explain(&self, _: Request<v1::ExplainRequest>) -> Result<Response<v1::ExplainResponse>, Status> {
        silent()
    }

    async fn watch_farm(
        &self,
        request: Request<v1::WatchFarmRequest>,
    ) -> Result<Response<Self::WatchFarmStream>, Status> {
        let at = {
            let mut wanted = self.wanted.lock().unwrap();
            wanted.push(request.into_inner().resume_revision);
            (wanted.len() - 1).min(self.streams.len() - 1)
        };
        self.may_begin.acquire().await.unwrap().forget();
        let (messages, then) = self.streams[at].clone();
        let breaks = self.breaks.clone();
        let end = stream::once(async move {
            match then {
                Then::Ends => None,
                Then::Breaks => Some(Err(Status::unavailable("the connection broke"))),
                Then::BreaksWhenTold => {
                    breaks.notified().await;
                    Some(Err(Status::unavailable("the connection broke")))
                }
                Then::Stays => std::future::pending().await,
            }
        });
        let told = stream::iter(messages).map(|message| Some(Ok(message)));
        Ok(Response::new(Box::pin(told.chain(end).filter_map(std::future::ready))))
    }
}

impl Teller {
    fn new(streams: Vec<(Vec<v1::WatchFarmResponse>, Then)>) -> Self {
        Self {
            streams: Arc::new(streams),
            wanted: Arc::default(),
            may_begin: Arc::new(tokio::sync::Semaphore::new(0)),
            breaks: Arc::default(),
        }
    }

    /// Its address.
    async fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = tonic::transport::Server::builder()
            .add_service(PlacementServiceServer::new(self.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(serving);
        address
    }

    /// Waits until so many streams were asked for.
    async fn asked(&self, streams: usize) {
        let what = format!("{streams} streams to be asked for");
        wait_until(&what, LONG, async || self.wanted.lock().unwrap().len() >= streams).await;
    }
}

fn message(revision: u64, event: Event) -> v1::WatchFarmResponse {
    v1::WatchFarmResponse { revision, event: Some(event), held_ms: 0 }
}

/// A copy up to its bookmark. Before that nothing is known up to any revision.
fn copy(instance: &str, hosts: &[&str], revision: u64) -> Vec<v1::WatchFarmResponse> {
    let host = |name: &&str| v1::WatchedHost {
        host_id: (*name).to_owned(),
        facts: Some(v1::Hello { host_id: (*name).to_owned(), ..hello(name) }),
        load: Some(v1::Load { ready: Some(true), ..load(10.0, 10.0, 1, 10) }),
        load_age_ms: Some(1000),
        connected: true,
        ..v1::WatchedHost::default()
    };
    let start = v1::FarmStart { farm: "f".into(), instance_id: instance.into(), ..v1::FarmStart::default() };
    let pool =
        v1::WatchedPool { pool: "desk".into(), policy: Some(v1::Policy::default()), ..Default::default() };
    let changes = |pools, hosts| Event::Changes(v1::FarmChanges { pools, hosts, ..Default::default() });
    let count = u32::try_from(hosts.len()).unwrap();
    let bookmark = v1::FarmBookmark { hosts_heard: count, hosts_registered: count, stale: false };
    let mut copy = vec![message(0, Event::Start(start)), message(0, changes(vec![pool], Vec::new()))];
    copy.extend(hosts.iter().map(|name| message(0, changes(Vec::new(), vec![host(name)]))));
    copy.push(message(revision, Event::Bookmark(bookmark)));
    copy
}

/// As far as the first of its hosts.
fn half(mut copy: Vec<v1::WatchFarmResponse>) -> Vec<v1::WatchFarmResponse> {
    copy.truncate(3);
    copy
}

/// The hosts that logins are sent to.
async fn decided(library: &Library) -> BTreeSet<String> {
    let mut hosts = BTreeSet::new();
    for _ in 0..6 {
        let placement = library.place(usher_client::Request::new("desk")).await.unwrap();
        assert!(placement.is_local());
        hosts.insert(placement.host_name().to_owned());
    }
    hosts
}

#[tokio::test]
async fn what_was_known_stays_while_a_copy_breaks_off_and_the_next_one_begins_anew() {
    let teller = Teller::new(vec![
        (copy("i", &["h1", "h2"], 7), Then::BreaksWhenTold),
        // It has begun anew, and the farm is another one.
        (half(copy("j", &["h3", "h4"], 9)), Then::Breaks),
        (half(copy("j", &["h3", "h4"], 9)), Then::Ends),
        (copy("j", &["h3", "h4"], 9), Then::Stays),
    ]);
    let config = Config::new([teller.serve().await]).deadline(Duration::from_millis(200));
    let library = Library::connect(config).unwrap();
    teller.may_begin.add_permits(1);
    wait_until("the library to know the farm", LONG, async || library.farm_age().is_some()).await;
    let old = BTreeSet::from(["h1".to_owned(), "h2".to_owned()]);
    assert_eq!(decided(&library).await, old);

    teller.breaks.notify_one();
    for broken in 2..=3 {
        teller.asked(broken).await;
        teller.may_begin.add_permits(1);
        // That it asks again means that it has taken the half and its end.
        teller.asked(broken + 1).await;
        assert_eq!(decided(&library).await, old, "half a farm is none");
    }
    teller.may_begin.add_permits(1);
    let new = BTreeSet::from(["h3".to_owned(), "h4".to_owned()]);
    wait_for("the new farm", LONG, async || {
        let decided = decided(&library).await;
        // Six logins are of one farm or of both, never of half of one.
        assert!(decided.is_superset(&old) || decided.is_superset(&new), "{decided:?}");
        if decided == new { Ok(()) } else { Err(format!("{decided:?}")) }
    })
    .await;
    // After the first break it goes on where it was; where a copy broke off there is nothing to go on from.
    assert_eq!(*teller.wanted.lock().unwrap(), [None, Some(7), None, None]);
}

#[tokio::test]
async fn half_a_copy_is_not_kept_on_disk_and_that_of_another_coordinator_is() {
    let (broken, whole) = (
        Teller::new(vec![(half(copy("i", &["h1", "h2"], 7)), Then::Breaks)]),
        Teller::new(vec![(copy("j", &["h3", "h4"], 9), Then::Stays)]),
    );
    broken.may_begin.add_permits(2);
    whole.may_begin.add_permits(1);
    let (broken, whole) = (broken.serve().await, whole.serve().await);
    let folder = tempfile::tempdir().unwrap();
    let cache = |coordinators: &[&String]| {
        let names = coordinators.iter().map(ToString::to_string).collect();
        FarmCache::new(folder.path(), &InOrder::new(names, LONG, None, None).unwrap())
    };
    let half = cache(&[&broken]);
    let error = half.renew(LONG).await.unwrap_err();
    assert!(matches!(&error, RenewError::NotTold(why) if why.contains("the connection broke")), "{error}");
    assert!(!half.path().exists());
    let both = cache(&[&broken, &whole]);
    assert!(both.renew(LONG).await.unwrap());
    let farm = both.read().await.unwrap();
    let mut hosts: Vec<&str> = farm.hosts("desk").map(|(_, name)| name).collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["h3", "h4"]);
    let placement = farm.place(usher_client::Request::new("desk").exclude(["h4"])).await.unwrap();
    assert_eq!((placement.host_name(), placement.is_local()), ("h3", true));
}

#[tokio::test]
async fn of_a_hundred_programs_at_once_one_takes_the_copy() {
    let teller = Teller::new(vec![(copy("i", &["h1", "h2"], 7), Then::Stays)]);
    let address = teller.serve().await;
    let folder = tempfile::tempdir().unwrap();
    let programs = (0..100).map(|_| {
        // Each opens the lock for itself, as programs do.
        let in_order = InOrder::new(vec![address.clone()], LONG, None, None).unwrap();
        let cache = FarmCache::new(folder.path(), &in_order);
        tokio::spawn(async move { cache.renew(LONG).await.unwrap() })
    });
    let programs: Vec<_> = programs.collect();
    teller.asked(1).await;
    teller.may_begin.add_permits(100);
    let mut copied = 0;
    for program in programs {
        copied += u32::from(program.await.unwrap());
    }
    assert_eq!((copied, teller.wanted.lock().unwrap().len()), (1, 1));
}
