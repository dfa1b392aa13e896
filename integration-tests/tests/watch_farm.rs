//! What does somebody see who watches the farm?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tonic::transport::Endpoint;
use tonic::{Code, Status, Streaming};
use usher_integration_tests::{Client, FakeAgent, Farm, LONG, hello, load, place, reason, wait_for};
use usher_proto::v1::{self, watch_farm_response::Event};

/// Takes in a stream as a gateway would.
struct Reader {
    stream: Streaming<v1::WatchFarmResponse>,
    revision: u64,
    instance: String,
    resync: v1::WatchResync,
    starts: u32,
    /// A bookmark has come since the last start, or there was none.
    is_whole: bool,
    /// The latest of each host, with what was told of it once.
    hosts: BTreeMap<String, v1::WatchedHost>,
    pools: BTreeMap<String, v1::WatchedPool>,
}

impl Reader {
    async fn open(client: &Client, request: v1::WatchFarmRequest) -> Self {
        let stream = client.placement.clone().watch_farm(request).await.unwrap().into_inner();
        Self {
            stream,
            revision: 0,
            instance: String::new(),
            resync: v1::WatchResync::Unspecified,
            starts: 0,
            is_whole: true,
            hosts: BTreeMap::new(),
            pools: BTreeMap::new(),
        }
    }

    /// The next message taken in. Whether it was a bookmark.
    async fn next(&mut self) -> Result<bool, Status> {
        let message = tokio::time::timeout(LONG, self.stream.message()).await.expect("a bookmark at least");
        let message = message?.expect("the stream goes on");
        let mut is_bookmark = false;
        match message.event.unwrap() {
            Event::Start(start) => {
                self.starts += 1;
                self.is_whole = false;
                (self.resync, self.instance) = (start.resync(), start.instance_id);
            }
            Event::Changes(changes) => {
                self.pools.extend(changes.pools.into_iter().map(|pool| (pool.pool.clone(), pool)));
                for mut host in changes.hosts {
                    let before = self.hosts.remove(&host.host_id).unwrap_or_default();
                    host.facts = host.facts.or(before.facts);
                    host.replicas = host.replicas.or(before.replicas);
                    self.hosts.insert(host.host_id.clone(), host);
                }
                changes.gone_hosts.iter().for_each(|id| drop(self.hosts.remove(id)));
            }
            Event::Bookmark(_) => is_bookmark = true,
        }
        if is_bookmark {
            self.is_whole = true;
        }
        assert_eq!(message.revision > 0, self.is_whole, "half a farm is known up to nowhere");
        assert!(message.revision >= self.revision || !self.is_whole);
        self.revision = message.revision;
        Ok(is_bookmark)
    }

    async fn until_bookmark(&mut self) {
        while !self.next().await.unwrap() {}
    }

    async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !holds(self) {
            assert!(begun.elapsed() < LONG, "waited for {what}: {:?}", self.hosts);
            self.next().await.unwrap();
        }
    }

    fn host(&self, name: &str) -> Option<&v1::WatchedHost> {
        self.hosts.values().find(|host| host.facts.as_ref().is_some_and(|facts| facts.host_name == name))
    }

    fn resume(&self) -> v1::WatchFarmRequest {
        v1::WatchFarmRequest {
            resume_revision: Some(self.revision),
            resume_instance: self.instance.clone(),
            ..v1::WatchFarmRequest::default()
        }
    }
}

#[tokio::test]
async fn a_watcher_gets_the_farm_and_then_what_changes_and_nobodys_name() {
    let farm = Farm::start().await;
    let client = farm.client();
    let _agent = farm.agent("hosts").host("s1", "cpu=35,mem=55,users=10,procs=70").replica("db").await;
    let mut reader = Reader::open(&client, v1::WatchFarmRequest::default()).await;
    reader.until_bookmark().await;
    let told = reader.host("s1").unwrap();
    assert_eq!((told.users, told.connected, told.pending_places), (Some(10), true, 0));
    assert_eq!(told.replicas.as_ref().unwrap().resource_ids, ["db"]);
    assert_eq!(told.facts.as_ref().unwrap().endpoints.len(), 1);
    assert!(told.load_age_ms.unwrap() < 5000);
    assert_eq!(told.load.as_ref().unwrap().cpu_percent, Some(35.0));
    assert_eq!(reader.starts, 1);

    let request = v1::PlaceRequest { user: Some("alice-the-user".into()), ..place("desk", "r1") };
    client.place(request).await.unwrap();
    reader.until("the place", |reader| reader.host("s1").unwrap().pending_places == 1).await;
    assert!(!format!("{:?}", reader.hosts).contains("alice"), "users are not named");

    client.apply("desk", v1::Policy { max_users: Some(limit(50)), ..v1::Policy::default() }).await.unwrap();
    reader.until("the new settings", |reader| reader.pools["desk"].version == 1).await;
    let _more = farm.agent("more").host("s2", "cpu=1,mem=1,users=1,procs=1").await;
    reader.until("a host that comes", |reader| reader.host("s2").is_some()).await;

    // Where it was it goes on, without the farm.
    let mut again = Reader::open(&client, reader.resume()).await;
    again.hosts = std::mem::take(&mut reader.hosts);
    again.until_bookmark().await;
    assert_eq!(again.starts, 0);
    assert!(again.revision >= reader.revision);
}

fn limit(users: u32) -> v1::UserLimit {
    v1::UserLimit { limit: Some(v1::user_limit::Limit::Users(users)) }
}

#[tokio::test]
async fn a_watcher_of_one_pool_hears_of_no_other_and_nonsense_is_refused() {
    let farm = Farm::start().await;
    let client = farm.client();
    let _desk = farm.agent("desk-hosts").host("s1", "cpu=1,mem=1,users=1,procs=1").await;
    let _mail = farm.agent("mail-hosts").pool("mail").host("m1", "cpu=1,mem=1,users=1,procs=1").await;
    let request = v1::WatchFarmRequest { pools: vec!["mail".into()], ..v1::WatchFarmRequest::default() };
    let mut reader = Reader::open(&client, request).await;
    reader.until_bookmark().await;
    reader.until_bookmark().await;
    assert_eq!(reader.hosts.len(), 1);
    assert!(reader.host("m1").is_some() && reader.pools.contains_key("mail"));
    let wrong = v1::WatchFarmRequest { pools: vec!["a\nb".into()], ..v1::WatchFarmRequest::default() };
    let refused = client.placement.clone().watch_farm(wrong).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, "INVALID_FIELD"));
}

#[tokio::test]
async fn case_138_who_resumes_at_a_trimmed_point_is_told_so_and_gets_the_farm_and_goes_on() {
    let farm = Farm::start().await;
    let client = farm.client();
    let mut agent = FakeAgent::attach(&client, hello("s1")).await.unwrap();
    agent.report(load(1.0, 1.0, 0, 1)).await;
    let mut reader = Reader::open(&client, v1::WatchFarmRequest::default()).await;
    reader.until("the host", |reader| reader.host("s1").is_some_and(|host| host.users == Some(0))).await;
    reader.until_bookmark().await;

    // A revision that was never given is as good as one that is not kept.
    let never = v1::WatchFarmRequest { resume_revision: Some(u64::MAX - 1), ..reader.resume() };
    let mut trimmed = Reader::open(&client, never).await;
    trimmed.until_bookmark().await;
    assert_eq!((trimmed.starts, trimmed.resync), (1, v1::WatchResync::Trimmed));
    assert!(trimmed.host("s1").is_some());
    agent.report(load(1.0, 1.0, 7, 1)).await;
    trimmed.until("what comes after", |reader| reader.host("s1").unwrap().users == Some(7)).await;
    assert_eq!(trimmed.starts, 1, "no second time");

    // Of another run.
    let other = v1::WatchFarmRequest { resume_instance: "another".into(), ..reader.resume() };
    let mut other = Reader::open(&client, other).await;
    other.until_bookmark().await;
    assert_eq!((other.starts, other.resync), (1, v1::WatchResync::OtherInstance));
}

/// Five streams that nobody reads lie on the connection of somebody who places.
#[tokio::test]
async fn case_122_watchers_that_do_not_read_are_not_felt_by_calls_on_their_connection() {
    let farm = Farm::start().await;
    let client = farm.client();
    let _hosts = farm.agent("hosts").modelled(100).await;
    wait_for("a hundred hosts", LONG, async || match client.hosts().await.unwrap().len() {
        100 => Ok(()),
        other => Err(format!("{other}")),
    })
    .await;
    let mut stalled = Vec::new();
    for _ in 0..5 {
        let request = v1::WatchFarmRequest::default();
        stalled.push(client.placement.clone().watch_farm(request).await.unwrap().into_inner());
    }
    let (begun, mut took) = (Instant::now(), Vec::new());
    // Each report of a hundred hosts, five a second: a stream without an end would be sent megabytes meanwhile.
    while begun.elapsed() < Duration::from_secs(20) {
        let call = Instant::now();
        let request = v1::PlaceRequest { dry_run: true, ..place("desk", "r") };
        client.place(request).await.unwrap();
        took.push(call.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // A connection whose window is full holds up every call from then on. A machine that has other work to do holds up some.
    took.sort();
    let (median, p90, worst) = (took[took.len() / 2], took[took.len() * 9 / 10], took[took.len() - 1]);
    assert!(median < Duration::from_millis(50), "{median:?} of {} calls", took.len());
    assert!(p90 < Duration::from_millis(200), "{p90:?} of {} calls", took.len());
    assert!(worst < Duration::from_secs(5), "{worst:?} of {} calls", took.len());
    for mut stream in stalled {
        let mut bytes = 0;
        let end = loop {
            match stream.message().await {
                Ok(Some(message)) => bytes += prost_len(&message),
                Ok(None) => panic!("a stream that nobody reads is closed with a reason"),
                Err(status) => break status,
            }
        };
        assert_eq!((end.code(), reason(&end).as_str()), (Code::Aborted, "RESYNC"));
        assert!(bytes < 1_500_000, "{bytes} bytes lay unread");
    }
}

/// Windows of 64 KB are what HTTP/2 begins with: a connection that has sent so much asks its stream for nothing any more.
#[tokio::test]
async fn case_122_watchers_with_small_windows_that_do_not_read_are_given_up_and_take_no_seat_of_others() {
    let farm = Farm::start().await;
    let client = farm.client();
    let _hosts = farm.agent("hosts").modelled(300).await;
    wait_for("three hundred hosts", LONG, async || match client.hosts().await.unwrap().len() {
        300 => Ok(()),
        other => Err(format!("{other}")),
    })
    .await;
    let endpoint = Endpoint::from_shared(format!("http://{}", farm.coordinator.grpc)).unwrap();
    let small = endpoint.initial_stream_window_size(64 * 1024 - 1).connect_lazy();
    let small = Client::of(small, Some("small"));
    let mut stalled = Vec::new();
    for _ in 0..STREAMS_OF_ONE {
        let opened = small.placement.clone().watch_farm(v1::WatchFarmRequest::default()).await;
        stalled.push(opened.unwrap().into_inner());
    }
    let refused = small.placement.clone().watch_farm(v1::WatchFarmRequest::default()).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Unavailable, "OVERLOADED"));
    let mut other = Reader::open(&client, v1::WatchFarmRequest::default()).await;
    other.until_bookmark().await;

    // The time itself is what is tested: nothing may be read before it is over.
    tokio::time::sleep(GIVEN_UP_AFTER + Duration::from_secs(5)).await;
    for mut stream in stalled {
        let mut messages = 0;
        let end = loop {
            match stream.message().await {
                Ok(Some(_)) => messages += 1,
                Ok(None) => panic!("a stream that nobody reads is closed with a reason"),
                Err(status) => break status,
            }
        };
        assert_eq!((end.code(), reason(&end).as_str()), (Code::Aborted, "RESYNC"));
        assert!(end.message().contains("takes nothing"), "{end:?}");
        assert!(messages >= 1, "what was on its way is not lost");
    }
    wait_for("a stream again", LONG, async || {
        let request = v1::WatchFarmRequest::default();
        small.placement.clone().watch_farm(request).await.map(drop).map_err(|status| status.to_string())
    })
    .await;
}

/// Streams of one gateway at once.
const STREAMS_OF_ONE: usize = 64;
/// How long a message waits for being taken.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(30);

fn prost_len(message: &v1::WatchFarmResponse) -> usize {
    // How long it is on the wire, nearly: there is no need to know it to the byte.
    match &message.event {
        Some(Event::Changes(changes)) => changes.hosts.len() * 300,
        _ => 20,
    }
}

#[tokio::test]
async fn case_119_watchers_do_not_keep_a_coordinator_from_ending() {
    let mut farm = Farm::start().await;
    let client = farm.client();
    let _hosts = farm.agent("hosts").modelled(50).await;
    let mut readers = Vec::new();
    for _ in 0..10 {
        let mut reader = Reader::open(&client, v1::WatchFarmRequest::default()).await;
        reader.until_bookmark().await;
        readers.push(reader);
    }
    // One more that never reads.
    let _stalled = client.placement.clone().watch_farm(v1::WatchFarmRequest::default()).await.unwrap();
    farm.coordinator.terminate();
    for reader in &mut readers {
        let end = loop {
            if let Err(status) = reader.next().await {
                break status;
            }
        };
        assert_eq!(end.code(), Code::Unavailable, "{end:?}");
    }
    let ended = farm.coordinator.ended(Duration::from_secs(10)).await;
    assert!(ended.success(), "{ended:?}");
}
