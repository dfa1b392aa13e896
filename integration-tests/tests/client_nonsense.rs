//! What if something answers on a coordinator's port that is none?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_stream::{Stream, wrappers::TcpListenerStream};
use tonic::{Request, Response, Status};
use usher_client::{Client as Library, Config, Error, NoLocal};
use usher_integration_tests::{Farm, LONG, wait_until};
use usher_proto::v1::placement_service_server::{PlacementService, PlacementServiceServer};
use usher_proto::v1::{self, watch_farm_response::Event};

/// Clients until one of them has asked the impostor first: chance decides it for each.
async fn until_asked(asked: &AtomicU32, mut client: impl AsyncFnMut()) {
    for _ in 0..40 {
        client().await;
        if asked.load(Ordering::Relaxed) > 0 {
            return;
        }
    }
    panic!("of forty clients none has asked it");
}

/// Answers every login with the same words, and tells of a farm of its own.
#[derive(Clone, Default)]
struct Impostor {
    answer: Option<v1::Placement>,
    farm: Vec<v1::WatchFarmResponse>,
    /// How often it was asked for a place, and to tell of its farm.
    asked: Arc<AtomicU32>,
    watched: Arc<AtomicU32>,
}

type Told = Pin<Box<dyn Stream<Item = Result<v1::WatchFarmResponse, Status>> + Send>>;

#[tonic::async_trait]
impl PlacementService for Impostor {
    type WatchFarmStream = Told;

    async fn place(&self, _: Request<v1::PlaceRequest>) -> Result<Response<v1::PlaceResponse>, Status> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(Response::new(v1::PlaceResponse { placement: self.answer.clone() }))
    }

    async fn failover(
        &self,
        _: Request<v1::FailoverRequest>,
    ) -> Result<Response<v1::FailoverResponse>, Status> {
        Ok(Response::new(v1::FailoverResponse { placement: self.answer.clone() }))
    }

    async fn report_outcome(
        &self,
        _: Request<v1::ReportOutcomeRequest>,
    ) -> Result<Response<v1::ReportOutcomeResponse>, Status> {
        Err(Status::unimplemented("no"))
    }

    async fn explain(&self, _: Request<v1::ExplainRequest>) -> Result<Response<v1::ExplainResponse>, Status> {
        Err(Status::unimplemented("no"))
    }

    async fn watch_farm(
        &self,
        _: Request<v1::WatchFarmRequest>,
    ) -> Result<Response<Self::WatchFarmStream>, Status> {
        self.watched.fetch_add(1, Ordering::Relaxed);
        let told = self.farm.clone().into_iter().map(Ok);
        Ok(Response::new(Box::pin(tokio_stream::iter(told))))
    }
}

impl Impostor {
    /// Its address.
    async fn serve(self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = tonic::transport::Server::builder()
            .add_service(PlacementServiceServer::new(self))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(serving);
        address
    }
}

fn answer(change: impl FnOnce(&mut v1::Placement)) -> Option<v1::Placement> {
    let mut placement = v1::Placement {
        host_id: "h".into(),
        host_name: "h".into(),
        pool: "desk".into(),
        endpoints: vec![v1::Endpoint { kind: "ssh".into(), address: "192.0.2.1".into(), port: 22 }],
        ..v1::Placement::default()
    };
    change(&mut placement);
    Some(placement)
}

fn start(farm: &str) -> v1::WatchFarmResponse {
    let start = v1::FarmStart { farm: farm.into(), instance_id: "i".into(), ..v1::FarmStart::default() };
    v1::WatchFarmResponse { revision: 1, event: Some(Event::Start(start)), held_ms: 0 }
}

#[tokio::test]
async fn answers_that_make_no_sense_are_silence_and_the_real_coordinator_is_asked() {
    let farm = Farm::start().await;
    let _agent = farm.agent("hosts").host("s1", "cpu=1,mem=1,users=1,procs=1").await;
    let real = farm.coordinator.grpc.to_string();
    for (what, answer) in [
        ("no host", None),
        ("another pool", answer(|answer| answer.pool = "mail".into())),
        ("no endpoint", answer(|answer| answer.endpoints.clear())),
        ("no port", answer(|answer| answer.endpoints[0].port = 0)),
        ("no id", answer(|answer| answer.host_id.clear())),
        ("a host that was excluded", answer(|answer| answer.host_name = "not-me".into())),
    ] {
        let impostor = Impostor { answer, ..Impostor::default() };
        let asked = impostor.asked.clone();
        let impostor = impostor.serve().await;
        until_asked(&asked, async || {
            let library = Library::connect(Config::new([impostor.clone(), real.clone()])).unwrap();
            for _ in 0..2 {
                let request = usher_client::Request::new("desk").exclude(["not-me"]);
                let placement = library.place(request).await.unwrap();
                assert_eq!(placement.coordinator(), Some(real.as_str()), "{what}");
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_host_that_nobody_has_told_of_is_believed_only_if_nobody_knows_better() {
    let farm = Farm::start().await;
    let _agent = farm.agent("hosts").host("s1", "cpu=1,mem=1,users=1,procs=1").await;
    let real = farm.coordinator.grpc.to_string();
    let impostor = Impostor { answer: answer(|_| ()), ..Impostor::default() };
    let asked = impostor.asked.clone();
    let impostor = impostor.serve().await;
    until_asked(&asked, async || {
        let library = Library::connect(Config::new([impostor.clone(), real.clone()])).unwrap();
        wait_until("the library to know the farm", LONG, async || library.farm_age().is_some()).await;
        for _ in 0..2 {
            let placement = library.place(usher_client::Request::new("desk")).await.unwrap();
            assert_eq!(placement.host_name(), "s1");
        }
    })
    .await;
}

#[tokio::test]
async fn a_farm_that_is_not_ours_or_makes_no_sense_is_not_learned() {
    let bookmark = v1::FarmBookmark { hosts_heard: 5, hosts_registered: 5, stale: false };
    let bookmark = v1::WatchFarmResponse { revision: 1, event: Some(Event::Bookmark(bookmark)), held_ms: 0 };
    let nobody = v1::FarmChanges { hosts: vec![v1::WatchedHost::default()], ..v1::FarmChanges::default() };
    let nobody = v1::WatchFarmResponse { revision: 1, event: Some(Event::Changes(nobody)), held_ms: 0 };
    // One that is ours is learned: what follows is not for want of being told.
    let ours = Impostor { farm: vec![start("ours"), bookmark.clone()], ..Impostor::default() }.serve().await;
    let library = Library::connect(Config::new([ours]).farm("ours")).unwrap();
    wait_until("it to be learned", LONG, async || library.farm_age().is_some()).await;
    for (what, farm) in [
        ("another farm", vec![start("elsewhere"), bookmark.clone()]),
        ("no start", vec![bookmark.clone()]),
        ("a host without a name", vec![start("ours"), nobody, bookmark.clone()]),
        ("nothing", vec![v1::WatchFarmResponse::default()]),
    ] {
        let impostor = Impostor { farm, ..Impostor::default() };
        let watched = impostor.watched.clone();
        let config = Config::new([impostor.serve().await]).farm("ours").deadline(Duration::from_millis(700));
        let library = Library::connect(config).unwrap();
        // Who asks a second time has taken in what came the first time.
        wait_until("it to be told twice", LONG, async || watched.load(Ordering::Relaxed) > 1).await;
        assert_eq!(library.farm_age(), None, "{what}");
        let refused = library.place(usher_client::Request::new("desk")).await.unwrap_err();
        let Error::NoAnswer(none) = refused else { panic!("{what}: {refused}") };
        assert_eq!(none.local, NoLocal::NothingKnown, "{what}");
    }
}

#[tokio::test]
async fn what_speaks_another_protocol_is_silent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let taken = Arc::new(AtomicU32::new(0));
    let counted = taken.clone();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let _ = connection.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").await;
                let mut bytes = [0; 512];
                while connection.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
            });
        }
    });
    let farm = Farm::start().await;
    let _agent = farm.agent("hosts").host("s1", "cpu=1,mem=1,users=1,procs=1").await;
    let real = farm.coordinator.grpc.to_string();
    let library = Library::connect(Config::new([address, real.clone()])).unwrap();
    for _ in 0..4 {
        let placement = library.place(usher_client::Request::new("desk")).await.unwrap();
        assert_eq!(placement.coordinator(), Some(real.as_str()));
    }
    wait_until("it to be spoken to", LONG, async || taken.load(Ordering::Relaxed) > 0).await;
}
