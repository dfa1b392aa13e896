//! Each layer, and the stack as a whole, around a service that answers as the test says.

use std::{convert::Infallible, future::Future, sync::Arc};

use axum::http::{Request, Response};
use tokio::sync::Notify;
use tonic::{Code, Status, body::Body};
use tonic_types::StatusExt;
use tower::{Layer, Service, ServiceExt, service_fn};
use usher_proto::v1::{
    self,
    directory_service_client::DirectoryServiceClient,
    directory_service_server::{DirectoryService, DirectoryServiceServer},
};
use usher_runtime::{
    identity::PeerIdentity,
    net::{Incoming, Limits, PeerInfo, Timeouts},
};

use super::*;

const PLACE: &str = "/usher.v1.PlacementService/Place";

fn config(max_concurrent_calls: u32) -> CoordinatorConfig {
    let mut config = CoordinatorConfig { farm: "main".to_owned(), ..CoordinatorConfig::default() };
    config.limits.max_concurrent_calls = max_concurrent_calls;
    config
}

fn metrics() -> Metrics {
    Metrics::new("0", "none")
}

fn peer(uri: Option<&str>) -> PeerInfo {
    let addr = if uri.is_some() { "192.0.2.1:9" } else { "127.0.0.1:9" };
    PeerInfo {
        addr: addr.parse().unwrap(),
        identity: uri.map(|uri| Arc::new(PeerIdentity::from_uri(uri).unwrap())),
    }
}

fn request(path: &str, peer: PeerInfo) -> Request<Body> {
    let mut request = Request::new(Body::default());
    *request.uri_mut() = path.parse().unwrap();
    request.extensions_mut().insert(peer);
    request
}

/// The stack around `answer`.
fn stacked<F>(
    max_concurrent_calls: u32,
    metrics: Metrics,
    answer: impl Fn(Request<Body>) -> F + Clone + Send + 'static,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone
where
    F: Future<Output = ()> + Send + 'static,
{
    let service = service_fn(move |request| {
        let answered = answer(request);
        async move {
            answered.await;
            Ok::<_, Infallible>(Response::new(Body::default()))
        }
    });
    stack(&config(max_concurrent_calls), metrics).layer(service)
}

#[tokio::test]
async fn a_coordinator_that_goes_down_says_who_else_there_is() {
    let begun = tokio_util::sync::CancellationToken::new();
    let others = || vec!["c2.example:7443".to_owned(), "c3.example:7443".to_owned()];
    let answer = service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::default())) });
    let departure = Departure::new(begun.clone(), others);
    let service = stack(&config(8), metrics()).until(departure).layer(answer);
    let ask = |path: &str| service.clone().oneshot(request(path, peer(None)));
    assert_eq!(status(&ask(PLACE).await.unwrap()).code(), Code::Ok);
    begun.cancel();
    let refused = status(&ask(PLACE).await.unwrap());
    assert_eq!(refused.code(), Code::Unavailable);
    let info = refused.get_details_error_info().unwrap();
    assert_eq!(
        (info.reason.as_str(), info.metadata["coordinators"].as_str()),
        ("SHUTTING_DOWN", "c2.example:7443,c3.example:7443")
    );
    assert!(refused.get_details_retry_info().is_some());
    assert_eq!(status(&ask(ATTACH).await.unwrap()).code(), Code::Ok, "agents are told through their streams");
}

fn status(response: &Response<Body>) -> Status {
    assert_eq!(response.status(), 200, "gRPC says its errors in the headers");
    Status::from_header_map(response.headers()).unwrap_or_else(|| Status::ok(""))
}

async fn call(path: &str, peer: PeerInfo) -> Status {
    let service = stacked(8, metrics(), |_| async {});
    status(&service.oneshot(request(path, peer)).await.unwrap())
}

#[tokio::test]
async fn each_service_is_open_to_its_roles_only() {
    let open = [
        ("/usher.v1.AgentService/Attach", "agent"),
        (PLACE, "gateway operator admin"),
        ("/usher.v1.DirectoryService/ListHosts", "gateway operator admin"),
        ("/usher.v1.AdminService/ApplyPool", "admin"),
        ("/usher.v1.AdminService/DrainHost", "operator admin"),
        ("/usher.v1.AdminService/UndrainHost", "operator admin"),
        ("/usher.v1.AdminService/GetPool", "operator admin"),
        ("/usher.v1.AdminService/GetPoolHistory", "operator admin"),
        ("/usher.v1.AdminService/DiffPool", "operator admin"),
        ("/usher.v1.AdminService/SetHostMarks", "operator admin"),
        ("/usher.v1.AdminService/MarkReplica", "operator admin"),
        ("/usher.v1.AdminService/ResetBaselines", "operator admin"),
        ("/usher.v1.LaterService/Anything", "admin"),
        ("/grpc.health.v1.Health/Check", "agent gateway operator admin coordinator"),
        (
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            "agent gateway operator admin coordinator",
        ),
    ];
    for (path, roles) in open {
        for role in ["agent", "gateway", "operator", "admin", "coordinator"] {
            let uri = format!("usher://main/{role}/one");
            let code = call(path, peer(Some(&uri))).await.code();
            let expected =
                if roles.split(' ').any(|open| open == role) { Code::Ok } else { Code::PermissionDenied };
            assert_eq!(code, expected, "{role} calls {path}");
        }
    }
}

#[tokio::test]
async fn a_denial_is_typed_and_says_what_is_needed() {
    let status = call(PLACE, peer(Some("usher://main/agent/app1"))).await;
    let info = status.get_details_error_info().unwrap();
    assert_eq!((info.reason.as_str(), info.domain.as_str()), ("NOT_AUTHORIZED", "usher.v1"));
    assert!(status.message().contains("gateway or operator"), "{}", status.message());
    assert!(status.message().contains("agent/app1"), "{}", status.message());
}

#[tokio::test]
async fn a_certificate_of_another_farm_is_nobody_here() {
    let status = call("/grpc.health.v1.Health/Check", peer(Some("usher://other/admin/root"))).await;
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(status.message().contains("farm other"), "{}", status.message());
}

#[tokio::test]
async fn a_plain_call_from_another_machine_is_refused() {
    let stranger = PeerInfo { addr: "192.0.2.1:9".parse().unwrap(), identity: None };
    assert_eq!(call(PLACE, stranger).await.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn on_loopback_a_gateway_names_itself_and_is_local_otherwise() {
    for (given, expected) in [(None, "local"), (Some("bastion-1"), "bastion-1")] {
        let service = stacked(8, metrics(), move |request| {
            assert_eq!(request.extensions().get::<Caller>().unwrap().name, expected);
            async {}
        });
        let mut call = request(PLACE, peer(None));
        if let Some(name) = given {
            call.headers_mut().insert("usher-gateway", name.parse().unwrap());
        }
        assert_eq!(status(&service.oneshot(call).await.unwrap()).code(), Code::Ok);
    }
}

#[tokio::test]
async fn a_name_that_no_certificate_could_carry_is_refused_by_field() {
    for bad in [&b"a b"[..], b"\xff"] {
        let service = stacked(8, metrics(), |_| async {});
        let mut call = request(PLACE, peer(None));
        call.headers_mut().insert("usher-gateway", bad.try_into().unwrap());
        let status = status(&service.oneshot(call).await.unwrap());
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(status.get_details_error_info().unwrap().reason, "INVALID_FIELD");
        assert!(status.message().contains("usher-gateway"), "{}", status.message());
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_the_sooner_of_its_own_and_the_longest_deadline() {
    for (asked, expected) in [(Some("250m"), 250), (Some("1H"), 5000), (None, 5000)] {
        let metrics = metrics();
        let service = stacked(8, metrics.clone(), |request| {
            assert!(request.extensions().get::<Deadline>().is_some_and(|deadline| !deadline.has_passed()));
            std::future::pending()
        });
        let mut call = request(PLACE, peer(None));
        if let Some(asked) = asked {
            call.headers_mut().insert("grpc-timeout", asked.parse().unwrap());
        }
        let begun = tokio::time::Instant::now();
        let response = service.oneshot(call).await.unwrap();
        assert_eq!(status(&response).code(), Code::DeadlineExceeded);
        assert_eq!(begun.elapsed(), Duration::from_millis(expected));
        assert!(metrics.encode().contains("deadlines_exceeded_total 1"));
    }
}

#[tokio::test]
async fn a_call_whose_deadline_has_passed_is_not_begun() {
    let service = stacked(8, metrics(), |_| async { panic!("the service was called") });
    let mut call = request(PLACE, peer(None));
    call.headers_mut().insert("grpc-timeout", "0m".parse().unwrap());
    assert_eq!(status(&service.oneshot(call).await.unwrap()).code(), Code::DeadlineExceeded);
}

#[tokio::test(start_paused = true)]
async fn an_agents_stream_has_no_deadline() {
    let hour = Duration::from_secs(3600);
    let service = stacked(8, metrics(), move |request| {
        assert!(request.extensions().get::<Deadline>().is_none());
        tokio::time::sleep(hour)
    });
    let begun = tokio::time::Instant::now();
    let response = service.oneshot(request(ATTACH, peer(None))).await.unwrap();
    assert_eq!((status(&response).code(), begun.elapsed()), (Code::Ok, hour));
}

#[tokio::test(start_paused = true)]
async fn beyond_the_bound_calls_are_refused_at_once_with_a_time_to_try_again() {
    let metrics = metrics();
    let release = Arc::new(Notify::new());
    let gate = release.clone();
    let service = stacked(1, metrics.clone(), move |request| {
        let gate = gate.clone();
        async move {
            if request.uri().path() == PLACE {
                gate.notified().await;
            }
        }
    });
    let first = tokio::spawn(service.clone().oneshot(request(PLACE, peer(None))));
    tokio::task::yield_now().await;

    let refused = status(&service.clone().oneshot(request(PLACE, peer(None))).await.unwrap());
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(refused.get_details_error_info().unwrap().reason, "OVERLOADED");
    assert!(refused.get_details_retry_info().unwrap().retry_delay.is_some());
    assert!(metrics.encode().contains("calls_shed_total 1"));

    let attached = service.clone().oneshot(request(ATTACH, peer(None))).await.unwrap();
    assert_eq!(status(&attached).code(), Code::Ok, "a stream needs no place");

    release.notify_one();
    assert_eq!(status(&first.await.unwrap().unwrap()).code(), Code::Ok);
    let health = "/grpc.health.v1.Health/Check";
    let next = service.oneshot(request(health, peer(None))).await.unwrap();
    assert_eq!(status(&next).code(), Code::Ok, "the place is free again");
}

#[tokio::test]
async fn open_streams_take_no_share_of_the_bound() {
    let service = stacked(1, metrics(), |request| async move {
        if request.uri().path() == ATTACH {
            std::future::pending::<()>().await;
        }
    });
    let streams: Vec<_> =
        (0..3).map(|_| tokio::spawn(service.clone().oneshot(request(ATTACH, peer(None))))).collect();
    tokio::task::yield_now().await;
    let placed = service.oneshot(request(PLACE, peer(None))).await.unwrap();
    assert_eq!(status(&placed).code(), Code::Ok);
    streams.iter().for_each(tokio::task::JoinHandle::abort);
}

/// A directory that never answers, and says who asked.
struct Slow;

#[tonic::async_trait]
impl DirectoryService for Slow {
    async fn list_hosts(
        &self,
        _: tonic::Request<v1::ListHostsRequest>,
    ) -> Result<tonic::Response<v1::ListHostsResponse>, Status> {
        std::future::pending().await
    }

    async fn get_host(
        &self,
        request: tonic::Request<v1::GetHostRequest>,
    ) -> Result<tonic::Response<v1::GetHostResponse>, Status> {
        let caller = request.extensions().get::<Caller>().map(|caller| caller.name.clone());
        Err(Status::not_found(caller.unwrap_or_default()))
    }

    async fn list_replicas(
        &self,
        _: tonic::Request<v1::ListReplicasRequest>,
    ) -> Result<tonic::Response<v1::ListReplicasResponse>, Status> {
        Err(Status::unimplemented("not needed"))
    }

    async fn locate_resource(
        &self,
        _: tonic::Request<v1::LocateResourceRequest>,
    ) -> Result<tonic::Response<v1::LocateResourceResponse>, Status> {
        Err(Status::unimplemented("not needed"))
    }

    async fn list_decisions(
        &self,
        _: tonic::Request<v1::ListDecisionsRequest>,
    ) -> Result<tonic::Response<v1::ListDecisionsResponse>, Status> {
        Err(Status::unimplemented("not needed"))
    }

    async fn get_learned(
        &self,
        _: tonic::Request<v1::GetLearnedRequest>,
    ) -> Result<tonic::Response<v1::GetLearnedResponse>, Status> {
        Err(Status::unimplemented("not needed"))
    }

    async fn list_sessions(
        &self,
        _: tonic::Request<v1::ListSessionsRequest>,
    ) -> Result<tonic::Response<v1::ListSessionsResponse>, Status> {
        Err(Status::unimplemented("not needed"))
    }
}

#[tokio::test]
async fn a_real_server_and_client_see_the_stack_through_the_wire() {
    let listener = usher_runtime::net::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let incoming = Incoming::start(listener, None, Limits::default());
    let mut config = config(8);
    config.limits.call_deadline = usher_runtime::config::HumanDuration::from_millis(100);
    let server = tonic::transport::Server::builder()
        .layer(stack(&config, metrics()))
        .add_service(DirectoryServiceServer::new(Slow))
        .serve_with_incoming(incoming);
    let server = tokio::spawn(server);

    let channel = usher_runtime::net::connect(&addr, None, &Timeouts::default()).await.unwrap();
    let mut client = DirectoryServiceClient::new(channel);
    let mut named = tonic::Request::new(v1::GetHostRequest { host: "h".to_owned() });
    named.metadata_mut().insert("usher-gateway", "bastion-1".parse().unwrap());
    let answer = client.get_host(named).await.unwrap_err();
    assert_eq!((answer.code(), answer.message()), (Code::NotFound, "bastion-1"));

    let late = client.list_hosts(v1::ListHostsRequest { pool: None }).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    server.abort();
}
